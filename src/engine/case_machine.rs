//! The protocol of one case: what arrives is decided in order, committed as chains, and answered after the commit.
//!
//! Owns the case's committed state in memory and the commands that wait. Committed and speculative state are kept apart;
//! one chain is in flight at a time; nothing is answered from speculative state, and a rejection only after the version it
//! was decided on has held. Never does I/O, never reads a clock: [`CaseMachine::step`] takes an event and the time and
//! appends effects. Cannot fail; what goes wrong outside comes in as an event and goes out as an [`Answer`].
//!
//! While a commit is unclear (until its fence holds and its ids were looked up) the case decides nothing and is not idle.

use std::collections::{HashSet, VecDeque};

use super::answer::{Answer, Lane, Trouble};
use super::case_events::{CaseEffect, CaseEvent, CaseLimits, Envelope, Now};
use super::flight::{Decided, Draft, Flight};
use super::operation_cache::{Known, OperationCache, ReplaySource};
use super::planted_bugs::{PlantedBug, planted};
use super::waiting::{LookUp, Waiting, answer_known, reply};
use crate::domain::{CaseId, CaseState, InvalidCommand, KnownOperation, OperationId, Rejection, decide};

mod settled;

#[derive(Debug)]
enum Stage<T> {
    /// Nothing is in memory and nothing waits.
    Unknown,
    /// A read is under way.
    Loading,
    /// The state in memory is committed, as far as we know.
    Ready,
    /// Ids are being looked up.
    LookingUp,
    /// A chain is in flight.
    Committing(Flight<T>),
    /// A chain is unclear; `told`: its callers were answered.
    Unclear { flight: Flight<T>, told: bool },
    /// The fence of an unclear chain holds; its ids are being looked up.
    Fenced(Flight<T>),
}

/// One case.
#[derive(Debug)]
pub struct CaseMachine<T> {
    case_id: CaseId,
    limits: CaseLimits,
    stage: Stage<T>,
    /// The committed state; there in `Ready`, `LookingUp` and `Committing`.
    memory: Option<CaseState>,
    waiting: VecDeque<Waiting<T>>,
    arrivals: u64,
    /// Arrivals before this one came before the read that found no case.
    absent_for: u64,
    /// So many of the next commands came before the read that brought the case.
    read_for: usize,
    /// So many commands are decided alone, to find the one whose value can't be stored.
    alone: usize,
}

impl<T> CaseMachine<T> {
    /// A case of which nothing is known.
    pub fn new(case_id: CaseId, limits: CaseLimits) -> Self {
        let (stage, waiting) = (Stage::Unknown, VecDeque::new());
        Self { case_id, limits, stage, memory: None, waiting, arrivals: 0, absent_for: 0, read_for: 0, alone: 0 }
    }

    /// A case that is taken not to exist, without a read: an `open` is on its way, and the compare-and-swap on version 0
    /// will tell.
    pub fn assume_absent(case_id: CaseId, limits: CaseLimits, cache: &mut OperationCache) -> Self {
        cache.replace(&case_id, Some(Vec::new()));
        Self { stage: Stage::Ready, memory: Some(CaseState::Absent), ..Self::new(case_id, limits) }
    }

    /// A case that was read, on behalf of the next `read_for` commands, before the first of them came here.
    pub fn loaded(
        case_id: CaseId,
        limits: CaseLimits,
        cache: &mut OperationCache,
        state: CaseState,
        operations: Option<Vec<KnownOperation>>,
        read_for: usize,
    ) -> Self {
        cache.replace(&case_id, operations);
        Self { stage: Stage::Ready, memory: Some(state), read_for, ..Self::new(case_id, limits) }
    }

    /// Whether nothing waits, is in flight or unclear: only then it may leave memory.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && matches!(self.stage, Stage::Ready | Stage::Unknown)
    }

    /// Whether memory holds a case worth keeping.
    pub fn holds_case(&self) -> bool {
        self.memory.as_ref().is_some_and(|state| state.case().is_some())
    }

    /// About how many bytes of memory it takes, without what the operation cache holds of it.
    pub fn bytes(&self) -> usize {
        let case = self.memory.as_ref().and_then(CaseState::case);
        let of_case = case.map_or(0, |case| {
            let assignees: usize = case.assignees.iter().map(|who| who.as_str().len() + 48).sum();
            case.data.len() + case.status.as_str().len() + assignees
        });
        let waiting =
            self.waiting.iter().map(|waiting| size_of_val(waiting) + waiting.envelope.command.request().len());
        size_of::<Self>() + self.case_id.as_str().len() + of_case + waiting.sum::<usize>()
    }

    /// Whether a command under this id waits or is in flight.
    pub fn is_pending(&self, operation_id: OperationId) -> bool {
        let flight = match &self.stage {
            Stage::Committing(flight) | Stage::Unclear { flight, .. } | Stage::Fenced(flight) => {
                flight.contains(operation_id)
            }
            _ => false,
        };
        flight || self.waiting.iter().any(|waiting| waiting.envelope.command.operation_id() == operation_id)
    }

    /// Takes an event and appends what has to be done.
    pub fn step(
        &mut self,
        event: CaseEvent<T>,
        now: Now,
        cache: &mut OperationCache,
        effects: &mut Vec<CaseEffect<T>>,
    ) {
        match event {
            CaseEvent::Submitted(envelope) => self.submitted(envelope, cache, effects),
            CaseEvent::Loaded(state, operations) => self.on_loaded(state, operations, cache),
            CaseEvent::LoadFailed(trouble) => self.read_failed(trouble, cache, effects),
            CaseEvent::LookedUp(found) => self.looked_up(found, cache, effects),
            CaseEvent::LookUpFailed(trouble) => self.read_failed(trouble, cache, effects),
            CaseEvent::Settled(verdict) => self.settled(verdict, cache, effects),
        }
        match self.stage {
            Stage::Unknown if !self.waiting.is_empty() => self.load(effects),
            Stage::Ready => self.advance(now, cache, effects),
            _ => {}
        }
    }

    fn submitted(&mut self, envelope: Envelope<T>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        let is_unclear = matches!(self.stage, Stage::Unclear { .. });
        let is_read_for = self.read_for > 0;
        self.read_for = self.read_for.saturating_sub(1);
        if envelope.lane.as_ref().is_some_and(Lane::is_broken) {
            return reply(envelope, Answer::Unsettled(Trouble::Unavailable), effects);
        }
        if planted(PlantedBug::DuplicateFromSpeculation)
            && let Stage::Committing(flight) = &self.stage
            && let Some(known) = flight.speculative(envelope.command.operation_id())
        {
            let answer = answer_known(known, &envelope.command);
            return reply(envelope, answer, effects);
        }
        // An outcome can't change, so it is answered whatever the case is doing; a line only behind those before it.
        let is_next = envelope.lane.is_none() || self.is_idle() || planted(PlantedBug::LineAnsweredAhead);
        if is_next
            && let Known::Recorded(known) = cache.find(&self.case_id, envelope.command.operation_id())
            && !self.is_judged_unseen(&envelope)
        {
            let answer = answer_known(known, &envelope.command);
            let is_replay = matches!(answer, Answer::Replayed(_));
            if !is_unclear || is_replay {
                if is_replay {
                    cache.count_replay(if is_read_for { ReplaySource::Database } else { ReplaySource::Memory });
                }
                return reply(envelope, answer, effects);
            }
        }
        if matches!(self.stage, Stage::Unclear { told: true, .. }) {
            return reply(envelope, Answer::Unsettled(Trouble::Unavailable), effects);
        }
        // A stream is held back by its window and by admission; a line of it is never overloaded.
        if self.waiting.len() >= self.limits.waiting_max && envelope.lane.is_none() {
            return reply(envelope, Answer::Unsettled(Trouble::Overloaded), effects);
        }
        // A line that only waits for those before it may be known already; another command is not, or was answered above.
        let id = envelope.command.operation_id();
        let source = if is_read_for {
            ReplaySource::Database
        } else if !is_next && matches!(cache.find(&self.case_id, id), Known::Recorded(_)) {
            ReplaySource::Memory
        } else {
            ReplaySource::InFlight
        };
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.waiting.push_back(Waiting {
            arrival,
            envelope,
            attempts: 0,
            lookup: LookUp::Needed,
            source,
            is_unstorable: false,
        });
    }

    fn on_loaded(&mut self, mut state: CaseState, operations: Option<Vec<KnownOperation>>, cache: &mut OperationCache) {
        if !matches!(self.stage, Stage::Loading) {
            return;
        }
        cache.replace(&self.case_id, operations);
        if let (Some(CaseState::Present(old)), CaseState::Present(new)) = (&self.memory, &mut state) {
            debug_assert!(planted(PlantedBug::AssignmentFromMemoryOnly), "nothing is in memory while it is read");
            new.assignees.clone_from(&old.assignees);
        }
        self.memory = Some(state);
        self.stage = Stage::Ready;
        self.waiting.iter_mut().for_each(|waiting| waiting.source = ReplaySource::Database);
    }

    fn looked_up(&mut self, found: Vec<KnownOperation>, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        match std::mem::replace(&mut self.stage, Stage::Unknown) {
            Stage::LookingUp => {}
            Stage::Fenced(flight) => return self.found_behind_fence(flight, &found, cache, effects),
            other => return self.stage = other,
        }
        let recorded: HashSet<OperationId> = found.iter().map(|operation| operation.operation_id).collect();
        for waiting in &mut self.waiting {
            if waiting.lookup == LookUp::Asked {
                let is_recorded = recorded.contains(&waiting.envelope.command.operation_id());
                (waiting.lookup, waiting.source) = match is_recorded {
                    true => (LookUp::Needed, ReplaySource::Database),
                    false => (LookUp::Absent, ReplaySource::InFlight),
                };
            }
        }
        for operation in found {
            cache.insert(&self.case_id, operation);
        }
        self.stage = Stage::Ready;
    }

    fn read_failed(&mut self, trouble: Trouble, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        if let Stage::Fenced(flight) = std::mem::replace(&mut self.stage, Stage::Unknown) {
            // What became of it is settled and not known here. Whoever sends the same again learns it.
            flight.answer_all(&Answer::Unsettled(Trouble::Unavailable), effects);
        }
        self.fail_waiting(trouble, effects);
        self.drop_memory(cache);
    }

    fn sort_waiting(&mut self) {
        self.waiting.make_contiguous().sort_by_key(|waiting| waiting.arrival);
    }

    fn drop_memory(&mut self, cache: &mut OperationCache) {
        cache.forget(&self.case_id);
        if !planted(PlantedBug::AssignmentFromMemoryOnly) {
            self.memory = None;
        }
        self.absent_for = 0;
        self.stage = Stage::Unknown;
        for waiting in &mut self.waiting {
            waiting.lookup = LookUp::Needed;
        }
    }

    fn load(&mut self, effects: &mut Vec<CaseEffect<T>>) {
        self.stage = Stage::Loading;
        self.absent_for = self.arrivals;
        effects.push(CaseEffect::Load);
    }

    fn fail_waiting(&mut self, trouble: Trouble, effects: &mut Vec<CaseEffect<T>>) {
        for waiting in self.waiting.drain(..) {
            reply(waiting.envelope, Answer::Unsettled(trouble), effects);
        }
    }

    /// Decides what waits, in order, against the speculative state, and hands the chain over.
    fn advance(&mut self, now: Now, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) {
        if self.waiting.is_empty() || self.look_up(cache, effects) {
            return;
        }
        let state = self.memory.clone().expect("a ready case has its state in memory");
        let mut draft = Draft::new(self.case_id.clone(), state);
        let mut deferred = VecDeque::new();
        let mut deferred_lanes: Vec<Lane> = Vec::new();
        let mut accepted = HashSet::new();
        while let Some(waiting) = self.waiting.pop_front() {
            let id = waiting.envelope.command.operation_id();
            let lane = waiting.envelope.lane.as_ref();
            let is_behind_deferred = lane.is_some_and(|lane| deferred_lanes.iter().any(|other| other.is(lane)));
            if accepted.contains(&id) || is_behind_deferred {
                // In flight under this id, equal or not: it waits and is looked up when the chain is settled, and the lines
                // behind it with it.
                deferred_lanes.extend(lane.filter(|_| !is_behind_deferred).cloned());
                let source = if accepted.contains(&id) { ReplaySource::InFlight } else { waiting.source };
                deferred.push_back(Waiting { source, ..waiting });
                continue;
            }
            if let Some(answer) = self.answer_now(&waiting, now, cache) {
                // A final answer to a line waits for the lines before it; another one ends its lane, and that at once.
                let is_final = !matches!(answer, Answer::Unsettled(_)) && !planted(PlantedBug::LineAnsweredAhead);
                if lane.is_some() && is_final && !draft.is_empty() {
                    draft.hold(waiting, answer);
                } else {
                    if matches!(answer, Answer::Replayed(_)) {
                        cache.count_replay(waiting.source);
                    }
                    reply(waiting.envelope, answer, effects);
                }
                continue;
            }
            if draft.is_full(&self.limits, self.alone > 0) || self.must_ask(&waiting, cache) {
                self.waiting.push_front(waiting);
                break;
            }
            match draft.decide(waiting, self.absent_for, now.wall) {
                Decided::Accepted => {
                    accepted.insert(id);
                }
                Decided::Rejected => {}
                Decided::NoCase(waiting) => {
                    reply(waiting.envelope, Answer::Rejected(Rejection::CaseNotFound), effects);
                }
            }
        }
        while let Some(waiting) = deferred.pop_back() {
            self.waiting.push_front(waiting);
        }
        let Some((flight, chain, deadline)) = draft.finish() else {
            // All that came first is answered; what is next, if anything, must be asked for.
            if !planted(PlantedBug::LookUpForgotten) {
                self.look_up(cache, effects);
            }
            return;
        };
        if chain.step.is_none() && planted(PlantedBug::RejectionWithoutCheck) {
            return self.held(flight, cache, effects);
        }
        self.stage = Stage::Committing(flight);
        effects.push(CaseEffect::Commit(chain, deadline));
    }

    fn must_ask(&self, waiting: &Waiting<T>, cache: &mut OperationCache) -> bool {
        let id = waiting.envelope.command.operation_id();
        waiting.lookup != LookUp::Absent
            && matches!(cache.find(&self.case_id, id), Known::AskDatabase)
            && !self.is_judged_unseen(&waiting.envelope)
    }

    /// A planted bug: whether the state alone refuses the command, whatever its id is known for.
    fn is_judged_unseen(&self, envelope: &Envelope<T>) -> bool {
        planted(PlantedBug::LookUpAfterRevision)
            && self
                .memory
                .as_ref()
                .zip(envelope.workflow.as_ref())
                .is_some_and(|(state, workflow)| decide(workflow, state, &envelope.command).is_err())
    }

    /// When memory can't tell the id of the next command, asks for all such ids, as far as memory has room for what may be
    /// found (else the first would be forgotten for the last, and asked for again, for ever); true: the case waits for the
    /// answer.
    fn look_up(&mut self, cache: &mut OperationCache, effects: &mut Vec<CaseEffect<T>>) -> bool {
        if !self.waiting.front().is_some_and(|next| self.must_ask(next, cache)) {
            return false;
        }
        let mut ids = Vec::new();
        for i in 0..self.waiting.len() {
            if ids.len() < cache.details_per_case_max() && self.must_ask(&self.waiting[i], cache) {
                self.waiting[i].lookup = LookUp::Asked;
                ids.push(self.waiting[i].envelope.command.operation_id());
            }
        }
        self.stage = Stage::LookingUp;
        effects.push(CaseEffect::LookUp(ids));
        true
    }

    /// The answers that need no decision: a broken lane, what is recorded, what can't be, a deadline that passed.
    fn answer_now(&self, waiting: &Waiting<T>, now: Now, cache: &mut OperationCache) -> Option<Answer> {
        let envelope = &waiting.envelope;
        // Also where it is recorded: a client that reads an answer takes the lines before it as done.
        if envelope.lane.as_ref().is_some_and(Lane::is_broken) && !planted(PlantedBug::BrokenLaneAnswered) {
            return Some(Answer::Unsettled(Trouble::Unavailable));
        }
        if let Known::Recorded(known) = cache.find(&self.case_id, envelope.command.operation_id())
            && !self.is_judged_unseen(envelope)
        {
            return Some(answer_known(known, &envelope.command));
        }
        if waiting.is_unstorable {
            let detail = "the database can't store a value of this command; change it";
            return Some(Answer::Rejected(Rejection::InvalidCommand(InvalidCommand::at("", detail))));
        }
        // A line of a stream is never overloaded: it was admitted, and others held its case since.
        let trouble = if envelope.lane.is_some() { Trouble::Contention } else { Trouble::Overloaded };
        (waiting.attempts == 0 && now.monotonic > envelope.deadline).then_some(Answer::Unsettled(trouble))
    }
}

#[cfg(test)]
#[path = "case_machine_tests.rs"]
mod tests;
