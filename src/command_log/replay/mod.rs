//! Running a command log against a database or a server.
//!
//! Owns the words: what is run where ([`ReplayTarget`]), what comes of a line ([`LineOutcome`]), what is told on the way
//! ([`ReplayEvent`]) and at the end ([`ReplayReport`]). The rounds are in `driver`. A rejection is an outcome, not an error.
//! Fails with [`ReplayError`], which carries what was done so far; the same log can be run again, and what was applied is
//! then replayed.

mod driver;
mod gateway;
mod remote;
mod session;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::latency::LatencyHistogram;
use super::line::LineError;
use super::read::LogReader;
use crate::actor::CommandGateway;

pub use remote::{InvalidServerUrl, RemoteServer};

/// Where the commands go.
#[derive(Clone)]
pub enum ReplayTarget {
    /// To the actors of this process. A line's `at` becomes the time at which it is recorded, and `edit` lines are applied.
    Gateway(CommandGateway),
    /// To a server, as one NDJSON stream. The server's clock counts, and it refuses `edit` lines.
    Server(RemoteServer),
}

/// How a log is run.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// How many commands may be in flight, at least 1. More gives larger batches and longer latencies; lines of one case
    /// run in order whatever it is.
    pub concurrency: usize,
    /// Go on behind a line that can't be read. Otherwise the replay stops before it.
    pub keep_going: bool,
    /// How often a line without a clear answer is sent, always under the same id, before the replay gives up.
    pub attempts_max: u32,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { concurrency: 64, keep_going: false, attempts_max: 10 }
    }
}

/// What came of a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineOutcome {
    /// The command was applied now.
    Applied,
    /// It had been applied before.
    Replayed,
    /// It was refused; the code says why.
    Rejected(Cow<'static, str>),
}

impl LineOutcome {
    /// `applied`, `replayed`, or the rejection's code.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Applied => "applied",
            Self::Replayed => "replayed",
            Self::Rejected(code) => code,
        }
    }
}

/// What is told on the way.
#[derive(Debug)]
pub enum ReplayEvent<'a> {
    /// A line has its final answer.
    Settled {
        /// The line.
        line: u64,
        /// What came of it.
        outcome: &'a LineOutcome,
    },
    /// A line can't be read; it was not run.
    Unreadable {
        /// The line.
        line: u64,
        /// Why.
        error: &'a LineError,
    },
    /// Lines without a clear answer will be sent again under their ids.
    Retrying {
        /// How many.
        lines: usize,
        /// What was answered.
        reason: &'a str,
        /// How long to wait before.
        delay: Duration,
    },
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Lines that have a final answer: applied, replayed or rejected.
    pub lines: u64,
    /// Those that changed a case now.
    pub applied: u64,
    /// Those that had been applied before.
    pub replayed: u64,
    /// Those that were refused, by code.
    pub rejected: BTreeMap<Cow<'static, str>, u64>,
    /// Lines that can't be read.
    pub unreadable: u64,
    /// Lines that were sent and have no clear answer: they may be applied or not.
    pub unsettled: u64,
    /// How often a line was sent again.
    pub retries: u64,
    /// From the first line to the last answer.
    pub elapsed: Duration,
    /// From sending a line to its final answer, retries included.
    pub latency: LatencyHistogram,
}

impl ReplayReport {
    /// Final answers a second.
    pub fn per_second(&self) -> f64 {
        self.lines as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    fn count(&mut self, outcome: &LineOutcome) {
        self.lines += 1;
        match outcome {
            LineOutcome::Applied => self.applied += 1,
            LineOutcome::Replayed => self.replayed += 1,
            LineOutcome::Rejected(code) => *self.rejected.entry(code.clone()).or_default() += 1,
        }
    }
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayFault {
    /// A line can't be read. Everything before it was run, nothing behind it.
    #[error("line {line}: {error}")]
    Unreadable {
        /// The line.
        line: u64,
        /// Why.
        error: LineError,
    },
    /// The input failed.
    #[error("the log can't be read behind line {line}: {error}")]
    Input {
        /// The last line that was read.
        line: u64,
        /// The system's words.
        error: io::Error,
    },
    /// No clear answer, however often the line was sent.
    #[error(
        "line {line} got no clear answer in {attempts} attempts (the last: {reason}); run the same log again later"
    )]
    Unavailable {
        /// The first line without an answer.
        line: u64,
        /// How often it was sent.
        attempts: u32,
        /// What was answered last.
        reason: String,
    },
    /// The target refuses to go on, and sending again would not help.
    #[error("line {line}: {reason}")]
    Refused {
        /// The first line without an answer.
        line: u64,
        /// Why.
        reason: String,
    },
}

/// A replay that ended early, with what was done so far.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct ReplayError {
    /// Why.
    #[source]
    pub fault: ReplayFault,
    /// What was done.
    pub report: Box<ReplayReport>,
}

/// Runs a log to its end. `observe` is called for each line in the order of the answers, which is the log's order only
/// within a case. Must be called within a tokio or actix runtime.
///
/// # Errors
/// [`ReplayError`].
pub async fn replay(
    log: LogReader,
    target: &ReplayTarget,
    options: &ReplayOptions,
    observe: impl FnMut(ReplayEvent<'_>),
) -> Result<ReplayReport, ReplayError> {
    driver::Driver::new(target, options, observe).run(log).await
}
