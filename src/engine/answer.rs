//! What a caller learns.
//!
//! Owns the difference between a final answer (an outcome, or a "no" about the current state) and trouble, after which the
//! same command under the same id is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::{CommandName, Rejection};

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was applied now.
    Applied(Receipt),
    /// It had been applied before: the stored outcome.
    Replayed(Receipt),
    /// A deliberate "no"; nothing was recorded for this attempt.
    Rejected(Rejection),
    /// No clear answer: retry with the same id.
    Unsettled(Trouble),
}

/// The stored outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The command (`open` answers 201).
    pub command: CommandName,
    /// The bytes that every repeat gets.
    pub outcome: Arc<str>,
}

/// Why there is no clear answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// A queue is full, or the deadline passed before the command was decided. Nothing was recorded.
    Overloaded,
    /// The server is shutting down. Nothing was recorded.
    Draining,
    /// Other writers won every time, or held the case until the deadline. Nothing was recorded.
    Contention,
    /// The database is away, or a commit is unclear: the command may be applied or not.
    Unavailable,
    /// An invariant is broken; nothing was recorded. The log says which.
    Internal,
}

impl Trouble {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::Contention => "contention",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// The lines of one stream for one case. They run and are answered in order: once one of them has no final answer, the later
/// ones are answered `unavailable` without being run, so whoever reads a final answer may take those before it as done.
#[derive(Debug, Clone, Default)]
pub struct Lane(Arc<AtomicBool>);

impl Lane {
    /// A lane on which nothing has failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether an earlier line had no final answer.
    pub fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether both are the same lane.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Notes an answer that was given on the lane.
    pub fn note(&self, answer: &Answer) {
        if let Answer::Unsettled(_) = answer {
            self.0.store(true, Ordering::Release);
        }
    }
}
