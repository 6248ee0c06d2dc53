//! A command on its way through a case machine, and how it is answered.
//!
//! Owns what is remembered of a command between its tries. A lane learns of an answer here, before the next of its lines is
//! looked at.

use super::answer::{Answer, Receipt};
use super::case_events::{CaseEffect, Envelope};
use super::operation_cache::ReplaySource;
use super::planted_bugs::{PlantedBug, planted};
use crate::domain::{Command, KnownOperation, decide};

/// A command that waits to be decided.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) arrival: u64,
    pub(super) envelope: Envelope<T>,
    /// How often it was decided in vain.
    pub(super) attempts: u32,
    /// What the database said of its id.
    pub(super) lookup: LookUp,
    /// Where its outcome comes from, should it turn out to be a repeat.
    pub(super) source: ReplaySource,
    /// The database can't store a value of it.
    pub(super) is_unstorable: bool,
}

/// What the database said of an id that memory can't tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookUp {
    /// Not asked yet, or found (then the cache has it, or is asked again).
    Needed,
    /// Being asked.
    Asked,
    /// Not recorded, as of the state in memory or later: the compare-and-swap covers the rest.
    Absent,
}

/// The answer to a command whose id is recorded: it needs no machine, for it can't change.
pub(super) fn answer_known(known: &KnownOperation, command: &Command) -> Answer {
    if planted(PlantedBug::DigestNotCompared)
        && let Some(outcome) = known.outcome.clone()
    {
        return Answer::Replayed(Receipt { command: known.command.clone(), outcome });
    }
    match decide::replay(known, command) {
        Ok(outcome) => Answer::Replayed(Receipt { command: known.command.clone(), outcome }),
        Err(rejection) => Answer::Rejected(rejection),
    }
}

/// Answers a caller; a lane learns of it before the next of its lines is looked at.
pub(super) fn reply<T>(envelope: Envelope<T>, answer: Answer, effects: &mut Vec<CaseEffect<T>>) {
    if let Some(lane) = &envelope.lane {
        lane.note(&answer);
    }
    effects.push(CaseEffect::Reply(envelope.ticket, answer));
}
