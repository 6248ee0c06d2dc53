//! One connection that sends lines, many in flight: an NDJSON stream (`POST /v1/commands`).
//!
//! Owns the lines without an answer, in their order. Opens a new stream when one is lost, and counts what was in flight.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::mix::{Generator, Planned};
use super::post::RECONNECT_PAUSE;
use super::server::LoadServer;
use super::tally::LoadAnswer;
use super::{LoadError, Shared, note_prepared};

/// Lines in flight while the cases are made.
const PREPARE_WINDOW: usize = 256;

/// An open stream.
struct LineStream {
    lines: mpsc::Sender<Bytes>,
    answers: Incoming,
    /// What came behind the last whole line.
    rest: BytesMut,
    pending: VecDeque<(Planned, Instant)>,
    window: usize,
}

impl LineStream {
    /// Opens a stream for at most so many lines at a time. The error is a sentence.
    async fn open(server: &LoadServer, window: usize) -> Result<Self, String> {
        let (lines, mut receiver) = mpsc::channel::<Bytes>(window);
        let body = stream::poll_fn(move |context| {
            receiver.poll_recv(context).map(|line| line.map(|line| Ok::<_, Infallible>(Frame::data(line))))
        });
        let mut sender = server.connect::<StreamBody<_>>().await?;
        let request = server.post("/v1/commands").header("content-type", "application/x-ndjson");
        let request = request.body(StreamBody::new(body)).expect("the path and the headers are constants");
        let response = sender.send_request(request).await.map_err(|error| format!("the stream is refused: {error}"))?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let LoadAnswer::Problem(code) = LoadAnswer::from_http(status, false, body) else {
                return Err(format!("the stream is answered with status {status}"));
            };
            return Err(format!("the stream is refused: {code}"));
        }
        let (answers, rest, pending) = (response.into_body(), BytesMut::new(), VecDeque::new());
        Ok(Self { lines, answers, rest, pending, window })
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.window
    }

    /// Sends a line; what is wrong with the stream is told by [`Self::answer`].
    async fn send(&mut self, generator: &Generator, planned: Planned, due: Instant) {
        let (case_id, id) = (generator.case_id(planned.case), planned.operation_id);
        let (command, members) = (planned.command, planned.body().trim_start_matches('{'));
        let comma = if members == "}" { "" } else { "," };
        let line = format!(
            "{{\"case_id\":\"{case_id}\",\"operation_id\":\"{id}\",\"command\":\"{command}\"{comma}{members}\n"
        );
        self.pending.push_back((planned, due));
        let _ = self.lines.send(line.into()).await;
    }

    /// The next answer, with its command. Safe to drop before it is ready. The error is a sentence.
    async fn answer(&mut self) -> Result<(Planned, Instant, LoadAnswer), String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1).freeze();
                let (planned, due) = self.pending.pop_front().ok_or("an answer to a line that was not sent")?;
                return Ok((planned, due, understand(&line)?));
            }
            let frame = self.answers.frame().await.ok_or("the server ended the stream")?;
            let frame = frame.map_err(|error| format!("the stream was lost: {error}"))?;
            if let Some(piece) = frame.data_ref() {
                self.rest.extend_from_slice(piece);
            }
        }
    }
}

fn understand(line: &Bytes) -> Result<LoadAnswer, String> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        status: u16,
        #[serde(default)]
        replayed: bool,
        #[serde(borrow)]
        outcome: Option<&'a RawValue>,
        #[serde(borrow)]
        problem: Option<&'a RawValue>,
    }
    let answer: Answer<'_> =
        serde_json::from_slice(line).map_err(|error| format!("an answer can't be read: {error}"))?;
    let body = answer.outcome.or(answer.problem).map_or(Bytes::new(), |body| line.slice_ref(body.get().as_bytes()));
    Ok(LoadAnswer::from_http(answer.status, answer.replayed, body))
}

/// Opens every case, and sends the commands whose outcomes a mix repeats.
pub(super) async fn prepare(server: &LoadServer, generator: &Generator) -> Result<(), LoadError> {
    let mut stream = LineStream::open(server, PREPARE_WINDOW).await.map_err(LoadError::Unreachable)?;
    for planned in generator.opens().chain(generator.first_sendings()) {
        if stream.is_full() {
            settle_one(&mut stream, generator).await?;
        }
        stream.send(generator, planned, Instant::now()).await;
    }
    while !stream.is_empty() {
        settle_one(&mut stream, generator).await?;
    }
    Ok(())
}

async fn settle_one(stream: &mut LineStream, generator: &Generator) -> Result<(), LoadError> {
    let (planned, _, answer) = stream.answer().await.map_err(LoadError::Unreachable)?;
    note_prepared(generator, &planned, answer)
}

/// Sends until the run is over, and waits for the last answers.
pub(super) async fn run(shared: Rc<Shared>, server: LoadServer, window: usize) {
    let mut due = shared.timetable.next(Instant::now());
    while due.is_some() {
        let (commands, why) = match LineStream::open(&server, window).await {
            Ok(mut stream) => match run_stream(&shared, &mut stream, &mut due).await {
                Ok(()) => return,
                Err(why) => (stream.pending.len(), why),
            },
            Err(why) => (1, why),
        };
        shared.unanswered(commands as u64, &why);
        tokio::time::sleep(RECONNECT_PAUSE).await;
        due = shared.timetable.next(Instant::now());
    }
}

async fn run_stream(shared: &Shared, stream: &mut LineStream, due: &mut Option<Instant>) -> Result<(), String> {
    loop {
        while let Some(time) = *due
            && time <= Instant::now()
            && !stream.is_full()
        {
            stream.send(&shared.generator, shared.generator.next(), time).await;
            *due = shared.timetable.next(Instant::now());
        }
        if due.is_none() && stream.is_empty() {
            return Ok(());
        }
        let wake = due.filter(|_| !stream.is_full());
        tokio::select! {
            answer = stream.answer(), if !stream.is_empty() => {
                let (planned, due, answer) = answer?;
                shared.answered(&planned, due, &answer);
            }
            () = shared.pacer.until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_outcome_are_those_of_the_answer() {
        let line =
            Bytes::from_static(b"{\"line\":1,\"status\":200,\"replayed\":true,\"outcome\":{\"b\":1, \"a\":2}}\n");
        let body = Bytes::from_static(b"{\"b\":1, \"a\":2}");
        assert_eq!(understand(&line), Ok(LoadAnswer::Outcome { body, is_repeat: true }));
        let line = Bytes::from_static(b"{\"line\":1,\"status\":503,\"problem\":{\"code\":\"overloaded\"}}\n");
        assert_eq!(understand(&line), Ok(LoadAnswer::Problem("overloaded".into())));
        assert!(understand(&Bytes::from_static(b"<html>\n")).is_err());
    }
}
