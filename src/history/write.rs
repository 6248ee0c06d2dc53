//! Writing a history while it happens.
//!
//! Owns the clock of a history and the numbers of its attempts. [`HistoryWriter`] is shared by all clients; each call stamps
//! its own time: an invocation before the command is sent, a reply after it has come, so that what really happened lies
//! within. Buffered: a history counts once [`HistoryWriter::finish`] has succeeded. Fails with [`io::Error`] of the output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde_json::Value;
use serde_json::value::RawValue;

use super::event::{Kind, Line};
use crate::command_log::write_line;
use crate::domain::Command;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A history that is being written, by any number of threads.
#[derive(Debug)]
pub struct HistoryWriter<W: Write = File> {
    output: Mutex<BufWriter<W>>,
    origin: Instant,
    attempts: AtomicU64,
}

impl HistoryWriter {
    /// Makes the file, or empties it. Times count from here.
    ///
    /// # Errors
    /// [`io::Error`] when it can't be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(File::create(path)?))
    }
}

impl<W: Write> HistoryWriter<W> {
    /// Writes to any output. Times count from here.
    pub fn new(output: W) -> Self {
        let output = Mutex::new(BufWriter::with_capacity(BUFFER_BYTES, output));
        Self { output, origin: Instant::now(), attempts: AtomicU64::new(0) }
    }

    /// The time on the history's clock, in microseconds.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).expect("no history runs for 500,000 years")
    }

    /// Says that `client` is about to send `command`; call it before. Returns the number of the attempt, from 1.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn invoke(&self, client: &str, command: &Command) -> io::Result<u64> {
        let mut line = Vec::new();
        write_line(&mut line, command, None);
        self.invoke_line(client, std::str::from_utf8(&line).expect("a log line is JSON"))
    }

    /// The same, from the text of a command log line.
    ///
    /// # Errors
    /// [`io::Error`] of the output, and for a text that is no JSON.
    pub fn invoke_line(&self, client: &str, line: &str) -> io::Result<u64> {
        let command: &RawValue = serde_json::from_str(line)?;
        let attempt = 1 + self.attempts.fetch_add(1, Ordering::Relaxed);
        let line = Line::at(Kind::Invoke, self.now_us());
        self.write(&Line { attempt: Some(attempt), client: Some(client.into()), command: Some(command), ..line })?;
        Ok(attempt)
    }

    /// Notes the whole answer of a server; call it after. `replayed`: it came with `Idempotent-Replay: true`. 200 and 201
    /// are outcomes; 202, and what is neither an outcome nor a problem document, is written as unknown.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn reply(&self, attempt: u64, status: u16, replayed: bool, body: &[u8]) -> io::Result<()> {
        let line = Line { attempt: Some(attempt), status: Some(status), ..Line::at(Kind::Reply, self.now_us()) };
        match (status, std::str::from_utf8(body)) {
            (200 | 201, Ok(outcome)) => {
                self.write(&Line { replayed: Some(replayed), outcome: Some(outcome.into()), ..line })
            }
            (400.., Ok(body)) if is_problem(body) => {
                let problem = serde_json::from_str(body).expect("it was read a moment ago");
                self.write(&Line { problem: Some(problem), ..line })
            }
            _ => self.unknown(attempt, &format!("status {status}")),
        }
    }

    /// Notes that no clear answer will come to this attempt.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn unknown(&self, attempt: u64, why: &str) -> io::Result<()> {
        let line = Line::at(Kind::Unknown, self.now_us());
        self.write(&Line { attempt: Some(attempt), why: Some(why.into()), ..line })
    }

    /// Notes a fault; call it once it is sure that it fired.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn fault(&self, kind: &str, detail: &str) -> io::Result<()> {
        let line = Line::at(Kind::Fault, self.now_us());
        self.write(&Line { kind: Some(kind.into()), detail: Some(detail.into()), ..line })
    }

    /// Writes out what is buffered. The history may go on.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn flush(&self) -> io::Result<()> {
        self.output().flush()
    }

    /// Writes out what is buffered and gives the output back.
    ///
    /// # Errors
    /// [`io::Error`] of the output.
    pub fn finish(self) -> io::Result<W> {
        let output = self.output.into_inner().expect("no holder of this lock panics");
        output.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn write(&self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.output().write_all(&text)
    }

    fn output(&self) -> MutexGuard<'_, BufWriter<W>> {
        self.output.lock().expect("no holder of this lock panics")
    }
}

fn is_problem(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|body| body.get("code").is_some_and(Value::is_string))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::event::{Event, Reply, parse_event};
    use super::*;

    const NOTE: &str = r#"{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11","actor":"47","command":"note","reason":"Called."}"#;

    fn written(history: HistoryWriter<Vec<u8>>) -> Vec<Event> {
        let text = String::from_utf8(history.finish().unwrap()).unwrap();
        text.lines().map(|line| parse_event(line.as_bytes()).expect(line)).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let history = HistoryWriter::new(Vec::new());
        let first = history.invoke_line("client-3", NOTE).unwrap();
        history.reply(first, 200, true, br#"{"case_id":"62"}"#).unwrap();
        let second = history.invoke_line("client-3", NOTE).unwrap();
        let problem = br#"{"type":"/problems/stale-revision","code":"stale-revision","current_revision":4}"#;
        history.reply(second, 412, false, problem).unwrap();
        history.fault("kill-process", "node 2").unwrap();
        let events = written(history);
        let [
            Event::Invoke { attempt: 1, client, command, .. },
            Event::Reply { attempt: 1, status: 200, reply: Reply::Outcome { replayed: true, outcome }, .. },
            Event::Invoke { attempt: 2, command: again, .. },
            Event::Reply { attempt: 2, status: 412, reply: Reply::Problem(problem), .. },
            Event::Fault { kind, detail, .. },
        ] = events.as_slice()
        else {
            panic!("other events: {events:?}");
        };
        assert_eq!((client.as_str(), outcome.as_str()), ("client-3", r#"{"case_id":"62"}"#));
        assert_eq!(command, again);
        assert_eq!((problem.code.as_str(), problem.current_revision), ("stale-revision", Some(4)));
        assert_eq!((kind.as_str(), detail.as_str()), ("kill-process", "node 2"));
    }

    #[test]
    fn an_answer_that_settles_nothing_is_unknown() {
        let history = HistoryWriter::new(Vec::new());
        for (status, body) in [(202, r#"{"state":"pending"}"#), (502, "<html>"), (503, "{}"), (500, "")] {
            history.reply(1, status, false, body.as_bytes()).unwrap();
        }
        for event in written(history) {
            assert!(matches!(event, Event::Unknown { attempt: 1, .. }), "{event:?}");
        }
    }

    #[test]
    fn a_command_is_written_as_a_log_line() {
        let rules = crate::command_log::LineRules::default();
        let command = crate::command_log::parse_line(NOTE.as_bytes(), rules).unwrap().command;
        let history = HistoryWriter::new(Vec::new());
        history.invoke("client-1", &command).unwrap();
        let [Event::Invoke { command: read, .. }] = &written(history)[..] else { panic!("one invocation") };
        assert_eq!(**read, command);
    }

    #[test]
    fn times_never_go_back_and_attempts_count_up_over_threads() {
        let history = HistoryWriter::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let before = history.now_us();
                        let attempt = history.invoke_line("client", NOTE).unwrap();
                        history.unknown(attempt, "cut").unwrap();
                        assert!(history.now_us() >= before);
                    }
                });
            }
        });
        let mut times = std::collections::BTreeMap::<u64, Vec<u64>>::new();
        for event in written(history) {
            let (Event::Invoke { attempt, at_us, .. } | Event::Unknown { attempt, at_us, .. }) = event else {
                panic!("neither");
            };
            times.entry(attempt).or_default().push(at_us);
        }
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
        assert!(times.values().all(|times| times.len() == 2 && times[0] <= times[1]));
    }

    #[test]
    fn a_line_that_is_no_event_says_why() {
        for (line, expected) in [
            ("{", "EOF"),
            (r#"{"event":"invoke","at_us":1,"client":"a"}"#, "needs `command`"),
            (r#"{"event":"reply","attempt":1,"at_us":1}"#, "needs `status`"),
            (r#"{"event":"reply","attempt":1,"at_us":1,"status":200,"outcome":"{}"}"#, "either"),
            (r#"{"event":"unknown","at_us":1,"why":"x"}"#, "needs `attempt`"),
            (r#"{"event":"fault","at_us":1}"#, "needs `kind`"),
            (r#"{"event":"fault","at_us":1,"kind":"x","node":1}"#, "unknown field"),
            (r#"{"event":"invoke","attempt":1,"at_us":1,"client":"a","command":{}}"#, "`operation_id` is missing"),
        ] {
            let error = parse_event(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
