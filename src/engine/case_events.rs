//! The words between a case machine and its driver: events in, effects out.
//!
//! Owns the shapes alone; what they mean together is in `case_machine`.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Lane, Trouble};
use super::chain::Chain;
use crate::domain::{CaseState, Command, KnownOperation, OperationId, Timestamp, Workflow};

/// The time at which an event happened.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Since some fixed point; never goes back. Deadlines are measured on it.
    pub monotonic: Duration,
    /// The wall clock: becomes `recorded_at`.
    pub wall: Timestamp,
}

/// The bounds of a case.
#[derive(Debug, Clone, Copy)]
pub struct CaseLimits {
    /// Commands that may wait; more are answered `overloaded`, except lines of a stream, which is held back elsewhere.
    pub waiting_max: usize,
    /// Accepted commands in one chain: the quota of a case in a batch.
    pub chain_operations_max: usize,
    /// About how many bytes a chain may send.
    pub chain_bytes_max: usize,
    /// How often a command is decided again, before `contention` (after misses) or `unavailable` (after unclear commits).
    pub attempts_max: u32,
}

impl Default for CaseLimits {
    fn default() -> Self {
        Self { waiting_max: 1_024, chain_operations_max: 256, chain_bytes_max: 1 << 20, attempts_max: 10 }
    }
}

/// A command on its way through the machine. `T` is how the driver finds the caller.
#[derive(Debug)]
pub struct Envelope<T> {
    /// The command.
    pub command: Command,
    /// For an `open`, or an `edit` that names one, the workflow that the case will have; else the default one. `None`: the
    /// command names one that there is not.
    pub workflow: Option<Arc<Workflow>>,
    /// When it was decided, if a log says so.
    pub recorded_at: Option<Timestamp>,
    /// Until when (monotonic) it may wait to be decided.
    pub deadline: Duration,
    /// The stream that it belongs to.
    pub lane: Option<Lane>,
    /// Who waits for the answer.
    pub ticket: T,
}

/// What happens to a case.
#[derive(Debug)]
pub enum CaseEvent<T> {
    /// A command arrived.
    Submitted(Envelope<T>),
    /// The case was read, in one snapshot; operations `None`: too many to be read.
    Loaded(CaseState, Option<Vec<KnownOperation>>),
    /// The case could not be read.
    LoadFailed(Trouble),
    /// Those of the ids asked for that are recorded.
    LookedUp(Vec<KnownOperation>),
    /// The ids could not be looked up.
    LookUpFailed(Trouble),
    /// Something became of the chain in flight.
    Settled(Verdict),
}

/// What became of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is committed; or, for a check, the version holds.
    Held,
    /// Nothing was written: the case had moved on, or an id was there already.
    Missed,
    /// Nothing was written: it stood alone and a value of it can't be stored.
    BadData,
    /// Nothing was written: others held the case, or won, until the bound.
    Contention,
    /// Nothing was written: the database refused, or was not reached.
    Failed,
    /// Nothing was written: an invariant is broken.
    Broken,
    /// It may be written or not; the fence is being raised.
    Unclear,
    /// The fence could not be raised yet: tell the callers, go on waiting.
    StillUnclear,
    /// The fence holds (or nothing was written at all): what is read now is final.
    Fenced,
}

/// What the driver has to do.
#[derive(Debug)]
pub enum CaseEffect<T> {
    /// Answer a caller.
    Reply(T, Answer),
    /// Read the case in one snapshot, beginning from now.
    Load,
    /// Look these ids up.
    LookUp(Vec<OperationId>),
    /// Commit the chain; others may hold the case up until the deadline (monotonic).
    Commit(Chain, Duration),
}
