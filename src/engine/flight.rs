//! A chain while it is decided (`Draft`) and while it is in flight (`Flight`).
//!
//! Owns the speculative state: it lives here and nowhere else, and is dropped whole when the chain does not hold.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::{Answer, Receipt};
use super::case_events::{CaseEffect, CaseLimits};
use super::chain::{AssignmentChange, Chain, Step};
use super::operation_cache::OperationCache;
use super::waiting::{Waiting, reply};
use crate::domain::decide::Effect;
use crate::domain::{
    ActorId, CaseId, CaseState, Decision, InvalidCommand, KnownOperation, Operation, OperationId, Rejection, Timestamp,
    Version, apply, decide,
};

/// A chain in flight: what becomes of the case if it holds, and who waits for it.
#[derive(Debug)]
pub(super) struct Flight<T> {
    pub(super) after: CaseState,
    /// In the order in which they were decided.
    pub(super) members: Vec<Member<T>>,
}

/// A command that was decided.
#[derive(Debug)]
pub(super) enum Member<T> {
    Accepted(Waiting<T>, KnownOperation),
    /// Nothing is written for it, and it has this answer if the chain holds: a rejection, or what is known of its id where
    /// earlier lines of its stream are in the chain.
    Answered(Waiting<T>, Answer),
}

impl<T> Flight<T> {
    pub(super) fn contains(&self, operation_id: OperationId) -> bool {
        self.members.iter().any(|member| match member {
            Member::Accepted(waiting, _) | Member::Answered(waiting, _) => {
                waiting.envelope.command.operation_id() == operation_id
            }
        })
    }

    /// What becomes of the accepted commands if the chain holds, in order.
    pub(super) fn operations(&self) -> impl Iterator<Item = &KnownOperation> {
        self.members.iter().filter_map(|member| match member {
            Member::Accepted(_, operation) => Some(operation),
            Member::Answered(..) => None,
        })
    }

    /// The operation that this id becomes if the chain holds.
    pub(super) fn speculative(&self, operation_id: OperationId) -> Option<&KnownOperation> {
        self.operations().find(|operation| operation.operation_id == operation_id)
    }

    /// Gives all its callers one answer; what is left of it has none.
    pub(super) fn answer_all(self, answer: &Answer, effects: &mut Vec<CaseEffect<T>>) -> Self {
        for member in self.members {
            let (Member::Accepted(waiting, _) | Member::Answered(waiting, _)) = member;
            reply(waiting.envelope, answer.clone(), effects);
        }
        Self { after: self.after, members: Vec::new() }
    }

    /// Its commands, to be decided again.
    pub(super) fn into_waiting(self) -> impl DoubleEndedIterator<Item = Waiting<T>> {
        self.members.into_iter().map(|member| {
            let (Member::Accepted(waiting, _) | Member::Answered(waiting, _)) = member;
            waiting
        })
    }
}

impl<T> Member<T> {
    /// It is about to be answered; if it is a repeat, it counts as one.
    pub(super) fn count_replay(&self, cache: &mut OperationCache) {
        if let Self::Answered(waiting, Answer::Replayed(_)) = self {
            cache.count_replay(waiting.source);
        }
    }

    /// Its chain is committed: answers as it was decided; `keep` gets the operation.
    pub(super) fn answer_held(self, effects: &mut Vec<CaseEffect<T>>, keep: impl FnOnce(KnownOperation)) {
        match self {
            Self::Accepted(waiting, operation) => {
                let outcome = operation.outcome.clone().expect("an operation that was just made has its outcome");
                let receipt = Receipt { command: operation.command.clone(), outcome };
                keep(operation);
                reply(waiting.envelope, Answer::Applied(receipt), effects);
            }
            Self::Answered(waiting, answer) => reply(waiting.envelope, answer, effects),
        }
    }
}

/// What became of a command in a [`Draft`].
pub(super) enum Decided<T> {
    /// It is part of the chain.
    Accepted,
    /// It is answered when the version has held.
    Rejected,
    /// It is not part of the chain: a read has said that there is no such case.
    NoCase(Box<Waiting<T>>),
}

/// A chain that is being decided.
pub(super) struct Draft<T> {
    case_id: CaseId,
    expected: Version,
    state: CaseState,
    members: Vec<Member<T>>,
    operations: Vec<Operation>,
    assignments: BTreeMap<ActorId, bool>,
    writes_data: bool,
    bytes: usize,
    deadline: Duration,
}

impl<T> Draft<T> {
    pub(super) fn new(case_id: CaseId, state: CaseState) -> Self {
        Self {
            case_id,
            expected: state.version(),
            state,
            members: Vec::new(),
            operations: Vec::new(),
            assignments: BTreeMap::new(),
            writes_data: false,
            bytes: 0,
            deadline: Duration::ZERO,
        }
    }

    /// Whether the chain takes no further command. Bounds apply when a chain is decided; it is never cut afterwards.
    pub(super) fn is_full(&self, limits: &CaseLimits, alone: bool) -> bool {
        let operations_max = if alone { 1 } else { limits.chain_operations_max };
        self.operations.len() >= operations_max
            || self.bytes >= limits.chain_bytes_max
            || self.members.len() >= limits.waiting_max
    }

    /// Decides a command on the speculative state. `absent_for`: commands that arrived before this one came before a read
    /// that found no case, so "no such case" is an answer to them already.
    pub(super) fn decide(&mut self, waiting: Waiting<T>, absent_for: u64, now: Timestamp) -> Decided<T> {
        let envelope = &waiting.envelope;
        let workflow = match (&self.state, &envelope.workflow) {
            (CaseState::Present(case), _) if envelope.command.named_workflow().is_none() => &case.workflow,
            (_, Some(workflow)) => workflow,
            // What the case says comes first: an `open` of a case that is there is told so.
            (CaseState::Present(case), None) => &case.workflow,
            (CaseState::Absent, None) => {
                self.hold(waiting, Answer::Rejected(no_such_workflow()));
                return Decided::Rejected;
            }
        };
        match decide(workflow, &self.state, &envelope.command) {
            Ok(decision) => {
                self.accept(waiting, &decision, now);
                Decided::Accepted
            }
            Err(Rejection::CaseNotFound) if self.operations.is_empty() && waiting.arrival < absent_for => {
                Decided::NoCase(Box::new(waiting))
            }
            Err(rejection) => {
                self.hold(waiting, Answer::Rejected(rejection));
                Decided::Rejected
            }
        }
    }

    /// Keeps an answer back until all that was decided before it has held.
    pub(super) fn hold(&mut self, waiting: Waiting<T>, answer: Answer) {
        self.deadline = self.deadline.max(waiting.envelope.deadline);
        self.members.push(Member::Answered(waiting, answer));
    }

    /// Whether nothing was decided yet.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn accept(&mut self, waiting: Waiting<T>, decision: &Decision, now: Timestamp) {
        let envelope = &waiting.envelope;
        let command = &envelope.command;
        let at = envelope.recorded_at.unwrap_or(now);
        apply(&mut self.state, decision, at);
        match &decision.effect {
            Effect::Opened { .. } => self.writes_data = true,
            Effect::Edited { data, .. } => self.writes_data |= data.is_some(),
            Effect::Assigned(who) => self.assign(who, true),
            Effect::Unassigned(who) => self.assign(who, false),
            Effect::Reassigned { delete, insert } => {
                delete.iter().for_each(|who| self.assign(who, false));
                insert.iter().for_each(|who| self.assign(who, true));
            }
            Effect::Noted | Effect::Moved => {}
        }
        let operation = decision.to_operation(command, at);
        let outcome_bytes = operation.outcome.as_ref().map_or(0, |outcome| outcome.len());
        self.bytes += 160 + command.request().len() + outcome_bytes;
        self.deadline = self.deadline.max(envelope.deadline);
        self.members.push(Member::Accepted(waiting, KnownOperation::from(&operation)));
        self.operations.push(operation);
    }

    fn assign(&mut self, who: &ActorId, present: bool) {
        self.assignments.insert(who.clone(), present);
    }

    /// The flight, the chain, and until when others may hold the case up; `None`: nothing was decided.
    pub(super) fn finish(self) -> Option<(Flight<T>, Chain, Duration)> {
        if self.members.is_empty() {
            return None;
        }
        let step = match &self.state {
            CaseState::Present(case) if !self.operations.is_empty() => Some(Step {
                after: case.clone(),
                writes_data: self.writes_data,
                operations: self.operations,
                assignments: self
                    .assignments
                    .into_iter()
                    .map(|(assignee, present)| AssignmentChange { assignee, present })
                    .collect(),
            }),
            _ => None,
        };
        let chain = Chain { case_id: self.case_id, expected: self.expected, step };
        Some((Flight { after: self.state, members: self.members }, chain, self.deadline))
    }
}

fn no_such_workflow() -> Rejection {
    let detail = "there is no such workflow; start the server with its file, or name another";
    Rejection::InvalidCommand(InvalidCommand::at("/workflow", detail))
}
