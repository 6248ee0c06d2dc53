//! The rounds of a replay.
//!
//! Owns the window (at most so many lines without a final answer), the order of a case's lines and the retries. A round is
//! one session with the target: lines go in as long as all is well; after the first one without a clear answer no new line
//! goes in, what is in flight is waited for, and the next round begins with what failed, in the log's order. So a line never
//! overtakes an earlier one of its case, however the target fails. Reading and parsing have a thread of their own.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::session::{LineAnswer, Outgoing, Session, SessionFault};
use super::{ReplayError, ReplayEvent, ReplayFault, ReplayOptions, ReplayReport, ReplayTarget};
use crate::command_log::line::LogLine;
use crate::command_log::read::{LogReader, NumberedLine};

/// Lines that are read ahead.
const READ_AHEAD_LINES: usize = 256;
/// The first wait before lines are sent again; doubled with each round that settles nothing.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// The longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// A line without a final answer.
struct Pending {
    number: u64,
    text: Vec<u8>,
    line: LogLine,
    attempts: u32,
    sent_at: Option<Instant>,
}

/// How a round ended.
enum RoundEnd {
    /// All lines of the log have their answers, or reading ended early.
    Finished,
    /// Some have none.
    Failed(String),
    /// The target refuses to go on.
    Refused(String),
}

pub(super) struct Driver<'a, F> {
    target: &'a ReplayTarget,
    options: &'a ReplayOptions,
    observe: F,
    report: ReplayReport,
    /// To be sent (again), in the log's order; before anything new.
    waiting: VecDeque<Pending>,
    /// Sent in this round and not answered, by ticket.
    in_flight: BTreeMap<u64, Pending>,
    /// Sent in this round, without a clear answer.
    failed: Vec<Pending>,
    tickets: u64,
    input: Option<mpsc::Receiver<io::Result<NumberedLine>>>,
    last_line: u64,
    /// Why reading ended before the end of the log.
    stopped: Option<ReplayFault>,
}

impl<'a, F: FnMut(ReplayEvent<'_>)> Driver<'a, F> {
    pub(super) fn new(target: &'a ReplayTarget, options: &'a ReplayOptions, observe: F) -> Self {
        Self {
            target,
            options,
            observe,
            report: ReplayReport::default(),
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            failed: Vec::new(),
            tickets: 0,
            input: None,
            last_line: 0,
            stopped: None,
        }
    }

    pub(super) async fn run(mut self, log: LogReader) -> Result<ReplayReport, ReplayError> {
        let started = Instant::now();
        self.input = Some(read_ahead(log));
        let fault = self.run_rounds().await.err().or_else(|| self.stopped.take());
        self.report.elapsed = started.elapsed();
        self.report.unsettled = self.waiting.iter().filter(|line| line.sent_at.is_some()).count() as u64;
        match fault {
            None => Ok(self.report),
            Some(fault) => Err(ReplayError { fault, report: Box::new(self.report) }),
        }
    }

    async fn run_rounds(&mut self) -> Result<(), ReplayFault> {
        let mut rounds_in_vain = 0;
        loop {
            let settled_before = self.report.lines;
            let end = self.run_round().await;
            self.collect_failed();
            rounds_in_vain = if self.report.lines > settled_before { 0 } else { rounds_in_vain + 1 };
            let first = self.waiting.front().map(|line| (line.number, line.attempts));
            match (end, first) {
                (RoundEnd::Finished, _) => return Ok(()),
                (RoundEnd::Refused(reason), first) => {
                    return Err(ReplayFault::Refused { line: first.map_or(self.last_line, |line| line.0), reason });
                }
                (RoundEnd::Failed(reason), first) => {
                    let tired = self.waiting.iter().find(|line| line.attempts >= self.options.attempts_max);
                    if let Some((line, attempts)) = tired.map(|line| (line.number, line.attempts)) {
                        return Err(ReplayFault::Unavailable { line, attempts, reason });
                    }
                    if rounds_in_vain >= self.options.attempts_max {
                        let line = first.map_or(self.last_line, |line| line.0);
                        return Err(ReplayFault::Unavailable { line, attempts: rounds_in_vain, reason });
                    }
                    self.wait_before_retry(&reason, rounds_in_vain).await;
                }
            }
        }
    }

    async fn wait_before_retry(&mut self, reason: &str, rounds_in_vain: u32) {
        let delay = BACKOFF_FIRST.saturating_mul(1 << rounds_in_vain.min(10)).min(BACKOFF_MAX);
        // Half of it is random, so that several replays do not come back at once.
        let delay = delay.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        let lines = self.waiting.iter().filter(|line| line.sent_at.is_some()).count();
        self.report.retries += lines as u64;
        (self.observe)(ReplayEvent::Retrying { lines, reason, delay });
        tokio::time::sleep(delay).await;
    }

    /// Puts what has no clear answer back in front, in the log's order. An attempt is counted against the first line of
    /// each case alone: those behind it were not run.
    fn collect_failed(&mut self) {
        let mut failed = std::mem::take(&mut self.failed);
        failed.extend(std::mem::take(&mut self.in_flight).into_values());
        failed.sort_by_key(|line| line.number);
        let mut cases = HashSet::new();
        for line in &mut failed {
            if cases.insert(line.line.command.case_id().clone()) {
                line.attempts += 1;
            }
        }
        for line in failed.into_iter().rev() {
            self.waiting.push_front(line);
        }
    }

    async fn run_round(&mut self) -> RoundEnd {
        let mut session = Session::open(self.target, self.options.concurrency.max(1));
        let mut trouble: Option<String> = None;
        let end = loop {
            let may_send = trouble.is_none() && self.in_flight.len() < self.options.concurrency.max(1);
            if may_send && let Some(line) = self.waiting.pop_front() {
                self.send(&mut session, line).await;
                continue;
            }
            let may_read = may_send && self.input.is_some();
            if self.in_flight.is_empty() && !may_read {
                break trouble.map_or(RoundEnd::Finished, RoundEnd::Failed);
            }
            tokio::select! {
                biased;
                line = next_line(&mut self.input), if may_read => self.take_line(line),
                answer = session.answer(), if !self.in_flight.is_empty() => match answer {
                    Ok((ticket, LineAnswer::Final(outcome))) => self.settle(ticket, &outcome),
                    Ok((ticket, LineAnswer::Unsettled(code))) => {
                        self.failed.extend(self.in_flight.remove(&ticket));
                        trouble.get_or_insert_with(|| code.into_owned());
                    }
                    Ok((_, LineAnswer::Refused(reason))) | Err(SessionFault::Refused(reason)) => {
                        return RoundEnd::Refused(reason);
                    }
                    Err(SessionFault::Unavailable(reason)) => return RoundEnd::Failed(reason),
                },
            }
        };
        session.close().await;
        end
    }

    fn take_line(&mut self, line: Option<io::Result<NumberedLine>>) {
        match line {
            None => self.input = None,
            Some(Err(error)) => {
                self.input = None;
                self.stopped = Some(ReplayFault::Input { line: self.last_line, error });
            }
            Some(Ok(NumberedLine { number, line: Ok((text, line)) })) => {
                self.last_line = number;
                self.waiting.push_back(Pending { number, text, line, attempts: 0, sent_at: None });
            }
            Some(Ok(NumberedLine { number, line: Err(error) })) => {
                self.last_line = number;
                self.report.unreadable += 1;
                (self.observe)(ReplayEvent::Unreadable { line: number, error: &error });
                if !self.options.keep_going {
                    self.input = None;
                    self.stopped = Some(ReplayFault::Unreadable { line: number, error });
                }
            }
        }
    }

    async fn send(&mut self, session: &mut Session, mut line: Pending) {
        line.sent_at.get_or_insert_with(Instant::now);
        self.tickets += 1;
        let ticket = self.tickets;
        session.send(Outgoing { ticket, text: &line.text, line: &line.line }).await;
        self.in_flight.insert(ticket, line);
    }

    fn settle(&mut self, ticket: u64, outcome: &super::LineOutcome) {
        let Some(line) = self.in_flight.remove(&ticket) else { return };
        self.report.count(outcome);
        let latency = line.sent_at.map_or(Duration::ZERO, |sent_at| sent_at.elapsed());
        self.report.latency.record(latency);
        (self.observe)(ReplayEvent::Settled { line: line.number, outcome });
    }
}

async fn next_line(input: &mut Option<mpsc::Receiver<io::Result<NumberedLine>>>) -> Option<io::Result<NumberedLine>> {
    match input {
        Some(lines) => lines.recv().await,
        None => None,
    }
}

/// Starts the thread that reads and parses. It ends with the log, or when nobody listens any more.
fn read_ahead(mut log: LogReader) -> mpsc::Receiver<io::Result<NumberedLine>> {
    let (lines, receiver) = mpsc::channel(READ_AHEAD_LINES);
    std::thread::spawn(move || {
        while let Some(line) = log.next_line().transpose() {
            let is_error = line.is_err();
            if lines.blocking_send(line).is_err() || is_error {
                return;
            }
        }
    });
    receiver
}
