//! The cases of one shard: which are in memory, which have a driver at work, and what must leave.
//!
//! Owns the way of a command to its case's machine. A case is read before its first command is decided, unless that brings
//! the case; an idle case loses its driver and stays as a passive entry; a full memory evicts what was used least recently
//! and has nothing waiting, in flight or unclear; a case that does not exist stays no longer than its commands. Never
//! decides about a case, never does I/O: each call appends effects. Cannot fail.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use lru::LruCache;

use super::answer::{Answer, Lane, Trouble};
use super::case_cell::{CaseCell, ReadFound, ReadKind, ReadOrder, ShardMemory};
use super::case_events::{CaseEvent, CaseLimits, Envelope, Verdict};
use super::case_machine::CaseMachine;
use super::operation_cache::{Known, ReplayCounts, ReplaySource};
use super::planted_bugs::{PlantedBug, planted};
use super::waiting::answer_known;
use crate::domain::{CaseId, CaseState, Command, CommandKind, Edit, KnownOperation, OperationId, Rejection};

/// How many busy cases are passed over when one must leave memory.
const EVICTION_TRIES_MAX: usize = 64;

/// The bounds of a shard.
#[derive(Debug, Clone, Copy)]
pub struct TableLimits {
    /// Cases in memory.
    pub cases_max: usize,
    /// How long a case keeps its driver without work.
    pub idle_after: Duration,
    /// The bounds of each case.
    pub case: CaseLimits,
}

/// What the shard's driver has to do.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost every effect is the large one, and a box for each would cost more"
)]
pub enum TableEffect<T> {
    /// Answer a caller.
    Reply(T, Answer),
    /// Read; the answer comes back to the table.
    Read(ReadOrder),
    /// Let the case handle the event, after those that were delivered to it before. What can't be delivered is taken back
    /// with [`CaseCell::undelivered`].
    Deliver(Rc<CaseCell<T>>, CaseEvent<T>),
    /// The case's driver has no more work.
    Retire(CaseId),
}

/// What a shard's memory holds, and what it was good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Cases with a driver at work.
    pub live_cases: usize,
    /// Cases without a driver, those that are being read for the first time among them.
    pub passive_cases: usize,
    /// About the bytes of the live ones, as the sweeps saw them last.
    pub live_bytes: usize,
    /// About the bytes of the passive ones.
    pub passive_bytes: usize,
    /// About the bytes of the operations and outcomes that are kept of all cases.
    pub operation_bytes: usize,
    /// Repeats that got their outcome since the last time of asking.
    pub replays: ReplayCounts,
    /// Commands turned away since then because nothing could leave memory.
    pub no_room: u64,
    /// Commands turned away since then because too many waited for the first read of their case.
    pub case_full: u64,
}

/// What a case id has in memory.
#[derive(Debug)]
enum Entry<T> {
    /// The first read is under way; commands wait. `asked`: so many of them came before it began.
    Arriving { waiting: Vec<Envelope<T>>, asked: usize, read: u64 },
    /// The case is in memory.
    Kept(Rc<CaseCell<T>>),
}

/// The cases of one shard.
#[derive(Debug)]
pub struct CaseTable<T> {
    limits: TableLimits,
    memory: Rc<ShardMemory>,
    cases: LruCache<CaseId, Entry<T>>,
    /// Those with a driver, in the order in which a sweep looks at them. The place of one that left memory goes when it is
    /// looked at, and does not keep the case until then.
    live: VecDeque<Weak<CaseCell<T>>>,
    live_cases: usize,
    /// So many of them are still to be looked at in this round of sweeps, and so many each time.
    round: (usize, usize),
    live_bytes: usize,
    passive_bytes: usize,
    no_room: u64,
    case_full: u64,
}

impl<T> CaseTable<T> {
    /// An empty table.
    pub fn new(limits: TableLimits, memory: Rc<ShardMemory>) -> Self {
        let (cases, live) = (LruCache::unbounded(), VecDeque::new());
        let (live_cases, round, live_bytes, passive_bytes) = (0, (0, 0), 0, 0);
        Self { limits, memory, cases, live, live_cases, round, live_bytes, passive_bytes, no_room: 0, case_full: 0 }
    }

    /// How many cases are in memory.
    pub fn case_count(&self) -> usize {
        self.cases.len()
    }

    /// What is in memory now.
    pub fn take_stats(&mut self) -> TableStats {
        let mut cache = self.memory.cache.borrow_mut();
        TableStats {
            live_cases: self.live_cases,
            passive_cases: self.cases.len() - self.live_cases,
            live_bytes: self.live_bytes,
            passive_bytes: self.passive_bytes,
            operation_bytes: cache.bytes(),
            replays: cache.take_replays(),
            no_room: std::mem::take(&mut self.no_room),
            case_full: std::mem::take(&mut self.case_full),
        }
    }

    /// A command comes in.
    pub fn arrive(&mut self, envelope: Envelope<T>, effects: &mut Vec<TableEffect<T>>) {
        if envelope.lane.as_ref().is_some_and(Lane::is_broken) {
            return turn_away(envelope, Answer::Unsettled(Trouble::Unavailable), effects);
        }
        let case_id = envelope.command.case_id().clone();
        match self.cases.get_mut(&case_id) {
            Some(Entry::Kept(_)) => self.deliver(&case_id, CaseEvent::Submitted(envelope), effects),
            Some(Entry::Arriving { waiting, .. }) => {
                if waiting.len() >= self.limits.case.waiting_max && envelope.lane.is_none() {
                    self.case_full += 1;
                    return turn_away(envelope, Answer::Unsettled(Trouble::Overloaded), effects);
                }
                let brings_case = brings_case(&envelope.command);
                waiting.push(envelope);
                if brings_case {
                    let machine = self.assume_absent(&case_id);
                    self.keep(case_id, machine, effects);
                }
            }
            None => self.arrive_unknown(case_id, envelope, effects),
        }
    }

    fn arrive_unknown(&mut self, case_id: CaseId, envelope: Envelope<T>, effects: &mut Vec<TableEffect<T>>) {
        let id = envelope.command.operation_id();
        let answer = match self.memory.cache.borrow_mut().find(&case_id, id) {
            Known::Recorded(known) => Some(answer_known(known, &envelope.command)),
            Known::Absent | Known::AskDatabase => None,
        };
        if let Some(answer) = answer {
            if matches!(answer, Answer::Replayed(_)) {
                self.memory.cache.borrow_mut().count_replay(ReplaySource::Memory);
            }
            return turn_away(envelope, answer, effects);
        }
        // A line of a stream is never overloaded: it may pass the cap, by no more cases than commands are admitted, and the
        // next arrivals bring memory back below it.
        if !self.make_room(effects) && envelope.lane.is_none() {
            self.no_room += 1;
            return turn_away(envelope, Answer::Unsettled(Trouble::Overloaded), effects);
        }
        if brings_case(&envelope.command) {
            let machine = self.assume_absent(&case_id);
            self.keep(case_id.clone(), machine, effects);
            return self.deliver(&case_id, CaseEvent::Submitted(envelope), effects);
        }
        self.ask(case_id, vec![envelope], effects);
    }

    /// Begins the first read of a case for these commands.
    fn ask(&mut self, case_id: CaseId, waiting: Vec<Envelope<T>>, effects: &mut Vec<TableEffect<T>>) {
        let order = self.memory.order(&case_id, ReadKind::Case);
        self.cases.put(case_id, Entry::Arriving { asked: waiting.len(), waiting, read: order.number });
        effects.push(TableEffect::Read(order));
    }

    fn assume_absent(&self, case_id: &CaseId) -> CaseMachine<T> {
        CaseMachine::assume_absent(case_id.clone(), self.limits.case, &mut self.memory.cache.borrow_mut())
    }

    /// Puts a machine into memory and sends it what had waited for it.
    fn keep(&mut self, case_id: CaseId, machine: CaseMachine<T>, effects: &mut Vec<TableEffect<T>>) {
        let cell = CaseCell::new(case_id.clone(), self.memory.clone(), machine);
        let before = self.cases.put(case_id.clone(), Entry::Kept(cell));
        if let Some(Entry::Arriving { waiting, .. }) = before {
            for envelope in waiting {
                self.deliver(&case_id, CaseEvent::Submitted(envelope), effects);
            }
        }
    }

    /// Sends an event to a case in memory. News of a case that is not there is for nobody: a busy case never leaves.
    fn deliver(&mut self, case_id: &CaseId, event: CaseEvent<T>, effects: &mut Vec<TableEffect<T>>) {
        let Some(Entry::Kept(cell)) = self.cases.get_mut(case_id) else { return };
        cell.deliver();
        if !cell.is_live.replace(true) {
            self.live.push_back(Rc::downgrade(cell));
            self.live_cases += 1;
            self.live_bytes += cell.counted_bytes.get();
            self.passive_bytes -= cell.counted_bytes.get();
        }
        effects.push(TableEffect::Deliver(cell.clone(), event));
    }

    /// Makes room for one more case; false: everything that could go is busy.
    fn make_room(&mut self, effects: &mut Vec<TableEffect<T>>) -> bool {
        let mut tries = 0;
        while self.cases.len() >= self.limits.cases_max {
            let Some((case_id, entry)) = self.cases.pop_lru() else { return true };
            let goes = |cell: &CaseCell<T>| cell.is_idle() || planted(PlantedBug::BusyCaseEvicted);
            if matches!(&entry, Entry::Kept(cell) if goes(cell)) {
                self.memory.cache.borrow_mut().mark_incomplete(&case_id);
                if let Entry::Kept(cell) = &entry
                    && self.uncount(cell)
                {
                    effects.push(TableEffect::Retire(case_id));
                }
                continue;
            }
            self.cases.put(case_id, entry);
            tries += 1;
            if tries >= EVICTION_TRIES_MAX {
                return false;
            }
        }
        true
    }

    /// A case has left memory: it counts no more. Says whether it had a driver.
    fn uncount(&mut self, cell: &CaseCell<T>) -> bool {
        let was_live = cell.is_live.replace(false);
        if was_live {
            self.live_cases -= 1;
            self.live_bytes -= cell.counted_bytes.take();
        } else {
            self.passive_bytes -= cell.counted_bytes.take();
        }
        was_live
    }

    /// Retires idle drivers, and lets cases go that turned out not to exist. Looks at one of so many parts of the live cases, each case
    /// in its turn: to look at all of them at once would hold up the commands. To be called often.
    pub fn sweep(&mut self, parts: usize, now: Duration, effects: &mut Vec<TableEffect<T>>) {
        if self.round.0 == 0 {
            self.round = (self.live.len(), self.live.len().div_ceil(parts.max(1)));
        }
        let now_looked_at = self.round.0.min(self.round.1);
        self.round.0 -= now_looked_at;
        for _ in 0..now_looked_at {
            let Some(place) = self.live.pop_front() else { return };
            let Some(cell) = place.upgrade().filter(|cell| cell.is_live.get()) else { continue };
            let bytes = cell.bytes();
            self.live_bytes -= cell.counted_bytes.replace(bytes);
            let holds_case = cell.holds_case();
            if !cell.is_idle() || holds_case && cell.last_used.get() + self.limits.idle_after > now {
                self.live_bytes += bytes;
                self.live.push_back(place);
                continue;
            }
            self.live_cases -= 1;
            cell.is_live.set(false);
            if holds_case {
                self.passive_bytes += bytes;
            } else {
                self.memory.cache.borrow_mut().forget(cell.case_id());
                self.cases.pop(cell.case_id());
            }
            effects.push(TableEffect::Retire(cell.case_id().clone()));
        }
    }

    /// A read was answered. Answers that nobody waits for any more are dropped.
    pub fn read_answered(
        &mut self,
        case_id: &CaseId,
        number: u64,
        found: ReadFound,
        effects: &mut Vec<TableEffect<T>>,
    ) {
        match (self.cases.peek(case_id), found) {
            (Some(Entry::Arriving { read, .. }), ReadFound::Case(found))
                if *read == number || planted(PlantedBug::OldReadTaken) =>
            {
                self.first_read(case_id, found, effects);
            }
            (Some(Entry::Kept(cell)), found) if cell.read.get() == number || planted(PlantedBug::OldReadTaken) => {
                self.deliver(case_id, found.into_event(), effects);
            }
            _ => {}
        }
    }

    fn first_read(
        &mut self,
        case_id: &CaseId,
        found: Result<(CaseState, Option<Vec<KnownOperation>>), Trouble>,
        effects: &mut Vec<TableEffect<T>>,
    ) {
        let Some(Entry::Arriving { mut waiting, asked, .. }) = self.cases.pop(case_id) else { return };
        match found {
            Ok((state @ CaseState::Present(_), operations)) => {
                let mut cache = self.memory.cache.borrow_mut();
                let machine = CaseMachine::loaded(
                    case_id.clone(),
                    self.limits.case,
                    &mut cache,
                    state,
                    operations,
                    waiting.len(),
                );
                drop(cache);
                self.cases.put(case_id.clone(), Entry::Arriving { waiting, asked, read: 0 });
                self.keep(case_id.clone(), machine, effects);
            }
            Ok((CaseState::Absent, _)) => {
                let asked = if planted(PlantedBug::AbsenceFromEarlierRead) { waiting.len() } else { asked };
                let later = waiting.split_off(asked);
                for envelope in waiting {
                    turn_away(envelope, Answer::Rejected(Rejection::CaseNotFound), effects);
                }
                if !later.is_empty() {
                    // They came after the read had begun: it says nothing about them.
                    self.ask(case_id.clone(), later, effects);
                }
            }
            Err(trouble) => {
                for envelope in waiting {
                    turn_away(envelope, Answer::Unsettled(trouble), effects);
                }
            }
        }
    }

    /// Something became of a case's chain.
    pub fn settled(&mut self, case_id: &CaseId, verdict: Verdict, effects: &mut Vec<TableEffect<T>>) {
        self.deliver(case_id, CaseEvent::Settled(verdict), effects);
    }

    /// Whether a command under this id waits for the case's first read. Once the case is in memory it is to be asked
    /// itself, behind what was delivered to it.
    pub fn is_arriving(&self, case_id: &CaseId, operation_id: OperationId) -> bool {
        let Some(Entry::Arriving { waiting, .. }) = self.cases.peek(case_id) else { return false };
        waiting.iter().any(|envelope| envelope.command.operation_id() == operation_id)
    }

    /// Whether nothing waits and no case is busy.
    pub fn is_idle(&self) -> bool {
        self.cases.iter().all(|(_, entry)| matches!(entry, Entry::Kept(cell) if cell.is_idle()))
    }
}

/// Answers a command that did not reach its case's machine.
fn turn_away<T>(envelope: Envelope<T>, answer: Answer, effects: &mut Vec<TableEffect<T>>) {
    if let Some(lane) = &envelope.lane {
        lane.note(&answer);
    }
    effects.push(TableEffect::Reply(envelope.ticket, answer));
}

/// Whether the command makes a case where there is none.
fn brings_case(command: &Command) -> bool {
    matches!(command.kind(), CommandKind::Open { .. } | CommandKind::Edit(Edit::InsertCase { .. }))
}

#[cfg(test)]
#[path = "case_table_tests.rs"]
mod tests;
