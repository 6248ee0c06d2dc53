//! What a case does when something became of its chain.
//!
//! Owns the step from a verdict to answers, or to deciding again. Memory follows the commit and is dropped whenever the
//! chain did not hold. Nothing is answered while a chain is unclear, but that it is.

use super::{CaseMachine, Stage};
use crate::domain::{KnownOperation, OperationId};
use crate::engine::answer::{Answer, Trouble};
use crate::engine::case_events::{CaseEffect, Verdict};
use crate::engine::flight::{Flight, Member};
use crate::engine::operation_cache::OperationCache;
use crate::engine::planted_bugs::{PlantedBug, planted};
use crate::engine::waiting::{LookUp, Waiting, reply};

impl<T> CaseMachine<T> {
    pub(super) fn settled(&mut self, verdict: Verdict, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        let flight = match std::mem::replace(&mut self.stage, Stage::Unknown) {
            Stage::Committing(flight) => flight,
            Stage::Unclear { flight, told } => match verdict {
                Verdict::Fenced => return self.fenced(flight, cache, effects),
                Verdict::StillUnclear if !told => {
                    let flight = flight.answer_all(&Answer::Unsettled(Trouble::Unavailable), effects);
                    self.fail_waiting(Trouble::Unavailable, effects);
                    self.stage = Stage::Unclear { flight, told: true };
                    return;
                }
                _ => {
                    self.stage = Stage::Unclear { flight, told };
                    return;
                }
            },
            other => {
                self.stage = other;
                return;
            }
        };
        match verdict {
            Verdict::Held => self.held(flight, cache, effects),
            Verdict::Missed => self.missed(flight, cache, effects),
            Verdict::BadData => self.bad_data(flight),
            Verdict::Contention => self.give_up(flight, Trouble::Contention, cache, effects),
            Verdict::Failed => self.give_up(flight, Trouble::Unavailable, cache, effects),
            Verdict::Broken => self.give_up(flight, Trouble::Internal, cache, effects),
            Verdict::Unclear if planted(PlantedBug::ForgottenWhileUnclear) => {
                self.give_up(flight, Trouble::Contention, cache, effects);
            }
            Verdict::Unclear | Verdict::StillUnclear => self.stage = Stage::Unclear { flight, told: false },
            Verdict::Fenced => self.fenced(flight, cache, effects),
        }
        if verdict == Verdict::StillUnclear {
            self.settled(Verdict::StillUnclear, cache, effects);
        }
    }

    /// Memory follows the commit; then every reply of the chain goes out, in order.
    pub(super) fn held(&mut self, flight: Flight<T>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        // A repeat that waits was looked up before this chain: that its id is absent is no longer true, and its details may
        // not be in memory any more.
        for waiting in &mut self.waiting {
            let is_absent = waiting.lookup == LookUp::Absent;
            if is_absent && flight.speculative(waiting.envelope.command.operation_id()).is_some() {
                waiting.lookup = LookUp::Needed;
            }
        }
        self.alone = self.alone.saturating_sub(flight.members.len());
        for member in flight.members {
            member.count_replay(cache);
            member.answer_held(effects, |operation| cache.insert(&self.case_id, operation));
        }
        self.memory = Some(flight.after);
        self.stage = Stage::Ready;
    }

    /// Reload, look the ids up first, decide again; at most so often.
    fn missed(&mut self, flight: Flight<T>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        self.put_back(flight.into_waiting(), Trouble::Contention, effects);
        if planted(PlantedBug::MemoryKeptAfterMiss) {
            self.stage = Stage::Ready;
            return;
        }
        self.drop_memory(cache);
    }

    /// One command of the chain has a value that the database can't store. A chain is never cut: it is decided again, each
    /// command alone, until the bad one is found alone; then it is answered in its place.
    fn bad_data(&mut self, flight: Flight<T>) {
        let is_single = flight.operations().count() == 1;
        self.alone = if is_single { self.alone.saturating_sub(1) } else { flight.members.len() };
        for member in flight.members.into_iter().rev() {
            let waiting = match member {
                Member::Accepted(waiting, _) => Waiting { is_unstorable: is_single, ..waiting },
                Member::Answered(waiting, _) => waiting,
            };
            self.waiting.push_front(waiting);
        }
        self.sort_waiting();
        self.stage = Stage::Ready;
    }

    fn give_up(
        &mut self,
        flight: Flight<T>,
        trouble: Trouble,
        cache: &mut OperationCache,
        effects: &mut Vec<CaseEffect<T>>,
    ) {
        flight.answer_all(&Answer::Unsettled(trouble), effects);
        self.drop_memory(cache);
    }

    /// What is read from now on is final. Whether the chain landed must be known before anything of it is decided again:
    /// then its rejections held with it, and a rejected line of a stream must not run behind a later one that was applied.
    fn fenced(&mut self, flight: Flight<T>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        let ids: Vec<OperationId> = flight.operations().map(|operation| operation.operation_id).collect();
        if ids.is_empty() {
            // It wrote nothing, or nobody waits for it any more.
            return self.decide_again(flight, cache, effects);
        }
        self.stage = Stage::Fenced(flight);
        effects.push(CaseEffect::LookUp(ids));
    }

    /// The fence holds, and these of the chain's ids are recorded. A chain lands whole, so one operation that is there as it
    /// was sent tells of all (the others may be tombstones by now).
    pub(super) fn found_behind_fence(
        &mut self,
        flight: Flight<T>,
        found: &[KnownOperation],
        cache: &mut OperationCache,
        effects: &mut Vec<CaseEffect<T>>,
    ) {
        let is_there = |sent: &KnownOperation| {
            found.iter().any(|known| known.operation_id == sent.operation_id && known.outcome == sent.outcome)
        };
        if !flight.operations().any(is_there) {
            return self.decide_again(flight, cache, effects);
        }
        self.alone = self.alone.saturating_sub(flight.members.len());
        let mut rejected_again = Vec::new();
        for member in flight.members {
            match member {
                Member::Answered(waiting, _) if planted(PlantedBug::RejectionDecidedAgain) => {
                    rejected_again.push(waiting);
                }
                member => {
                    member.count_replay(cache);
                    member.answer_held(effects, |_| {});
                }
            }
        }
        self.put_back(rejected_again.into_iter(), Trouble::Unavailable, effects);
        self.drop_memory(cache);
    }

    /// Nothing of the chain was written and nothing will be. At most so often: a disk that is full makes every commit
    /// unclear, and nobody would ever be answered.
    fn decide_again(&mut self, flight: Flight<T>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        self.put_back(flight.into_waiting(), Trouble::Unavailable, effects);
        self.drop_memory(cache);
    }

    /// Puts commands back in their places, to be decided again; who was decided too often is answered `trouble`.
    fn put_back(
        &mut self,
        commands: impl DoubleEndedIterator<Item = Waiting<T>>,
        trouble: Trouble,
        effects: &mut Vec<CaseEffect<T>>,
    ) {
        for mut waiting in commands.rev() {
            waiting.attempts += 1;
            self.waiting.push_front(waiting);
        }
        let attempts_max = self.limits.attempts_max;
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.attempts > attempts_max {
                reply(waiting.envelope, Answer::Unsettled(trouble), effects);
            } else {
                self.waiting.push_back(waiting);
            }
        }
        self.sort_waiting();
    }
}
