//! A case in memory: its machine, and what its shard must know of it from outside.
//!
//! Owns the count of events that are on their way to the machine, which keeps a busy case from leaving memory, and the
//! number of the read that it waits for, so that answers to older reads are dropped. Never decides where an event runs:
//! the driver hands events over one after another, in the order in which the shard delivered them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::answer::{Answer, Trouble};
use super::case_events::{CaseEffect, CaseEvent, Now};
use super::case_machine::CaseMachine;
use super::chain::Chain;
use super::operation_cache::OperationCache;
use crate::domain::{CaseId, CaseState, KnownOperation, OperationId};

/// What a shard and its cases share; all on one thread.
#[derive(Debug)]
pub struct ShardMemory {
    pub(super) cache: RefCell<OperationCache>,
    reads: Cell<u64>,
}

impl ShardMemory {
    /// Memory of operations within the cache's bounds.
    pub fn new(cache: OperationCache) -> Rc<Self> {
        Rc::new(Self { cache: RefCell::new(cache), reads: Cell::new(0) })
    }

    /// A read of a case, numbered from 1.
    pub(super) fn order(&self, case_id: &CaseId, kind: ReadKind) -> ReadOrder {
        self.reads.set(self.reads.get() + 1);
        ReadOrder { case_id: case_id.clone(), number: self.reads.get(), kind }
    }
}

/// What to read of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadKind {
    /// State, assignments and ids, in one snapshot that begins after the order.
    Case,
    /// Which of these are recorded.
    Operations(Vec<OperationId>),
}

/// A read that has to be done. Its answer carries its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOrder {
    /// The case.
    pub case_id: CaseId,
    /// Its number within the shard.
    pub number: u64,
    /// What to read.
    pub kind: ReadKind,
}

/// What was read, or why it can't be.
#[derive(Debug)]
pub enum ReadFound {
    /// The case; operations `None`: too many to be read.
    Case(Result<(CaseState, Option<Vec<KnownOperation>>), Trouble>),
    /// Those of the ids asked for that are recorded.
    Operations(Result<Vec<KnownOperation>, Trouble>),
}

impl ReadFound {
    /// The answer when it can't be read.
    pub fn failed(kind: &ReadKind, trouble: Trouble) -> Self {
        match kind {
            ReadKind::Case => Self::Case(Err(trouble)),
            ReadKind::Operations(_) => Self::Operations(Err(trouble)),
        }
    }

    pub(super) fn into_event<T>(self) -> CaseEvent<T> {
        match self {
            Self::Case(Ok((state, operations))) => CaseEvent::Loaded(state, operations),
            Self::Case(Err(trouble)) => CaseEvent::LoadFailed(trouble),
            Self::Operations(Ok(found)) => CaseEvent::LookedUp(found),
            Self::Operations(Err(trouble)) => CaseEvent::LookUpFailed(trouble),
        }
    }
}

/// What a case's driver has to do.
#[derive(Debug)]
pub enum CaseAction<T> {
    /// Answer a caller.
    Reply(T, Answer),
    /// Read; the answer goes to the shard.
    Read(ReadOrder),
    /// Hand the chain to the commit queue; others may hold the case up until the deadline (monotonic).
    Commit(Chain, Duration),
}

/// What the shard keeps of a case, and its driver works on.
#[derive(Debug)]
pub struct CaseCell<T> {
    case_id: CaseId,
    memory: Rc<ShardMemory>,
    machine: RefCell<CaseMachine<T>>,
    /// Events that were delivered and not handled yet.
    queued: Cell<usize>,
    /// When the last event was handled (monotonic).
    pub(super) last_used: Cell<Duration>,
    /// The read that the machine waits for.
    pub(super) read: Cell<u64>,
    /// Whether it has a driver.
    pub(super) is_live: Cell<bool>,
    /// About its bytes, as they were counted last.
    pub(super) counted_bytes: Cell<usize>,
}

impl<T> CaseCell<T> {
    pub(super) fn new(case_id: CaseId, memory: Rc<ShardMemory>, machine: CaseMachine<T>) -> Rc<Self> {
        let (machine, queued, last_used) = (RefCell::new(machine), Cell::new(0), Cell::new(Duration::ZERO));
        let (read, is_live, counted_bytes) = (Cell::new(0), Cell::new(false), Cell::new(0));
        Rc::new(Self { case_id, memory, machine, queued, last_used, read, is_live, counted_bytes })
    }

    /// The case.
    pub fn case_id(&self) -> &CaseId {
        &self.case_id
    }

    /// Whether nothing is under way: then its driver may go, and the case may leave memory.
    pub fn is_idle(&self) -> bool {
        self.queued.get() == 0 && self.machine.borrow().is_idle()
    }

    /// About how many bytes of memory the case takes, without its cached operations.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.machine.borrow().bytes()
    }

    /// Whether memory holds a case worth keeping.
    pub fn holds_case(&self) -> bool {
        self.machine.borrow().holds_case()
    }

    /// Whether a command under this id waits or is in flight.
    pub fn is_pending(&self, operation_id: OperationId) -> bool {
        self.machine.borrow().is_pending(operation_id)
    }

    /// An event is on its way.
    pub(super) fn deliver(&self) {
        self.queued.set(self.queued.get() + 1);
    }

    /// A delivered event could not be handed over and never will be.
    pub fn undelivered(&self) {
        self.queued.set(self.queued.get() - 1);
    }

    /// Handles a delivered event and says what has to be done.
    pub fn handle(&self, event: CaseEvent<T>, now: Now) -> Vec<CaseAction<T>> {
        self.queued.set(self.queued.get() - 1);
        self.last_used.set(now.monotonic);
        let mut effects = Vec::new();
        self.machine.borrow_mut().step(event, now, &mut self.memory.cache.borrow_mut(), &mut effects);
        let action = |effect| match effect {
            CaseEffect::Reply(ticket, answer) => CaseAction::Reply(ticket, answer),
            CaseEffect::Load => CaseAction::Read(self.order(ReadKind::Case)),
            CaseEffect::LookUp(ids) => CaseAction::Read(self.order(ReadKind::Operations(ids))),
            CaseEffect::Commit(chain, deadline) => CaseAction::Commit(chain, deadline),
        };
        effects.into_iter().map(action).collect()
    }

    fn order(&self, kind: ReadKind) -> ReadOrder {
        let order = self.memory.order(&self.case_id, kind);
        self.read.set(order.number);
        order
    }
}
