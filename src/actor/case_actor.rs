//! The actor of one case: a thin driver of its [`CaseMachine`].
//!
//! Owns nothing but the order of its mailbox. The machine lies in a cell that the shard keeps, so that an idle case needs
//! no actor: the shard drops the address, the actor ends, the state stays. Never waits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Message};

use super::shard::ShardContext;
use super::ticket::Ticket;
use crate::domain::{CaseId, OperationId};
use crate::engine::{CaseEffect, CaseEvent, CaseMachine};

/// What the shard keeps of a case and its actor works on; both live on one arbiter.
pub(super) struct CaseCell {
    pub(super) case_id: CaseId,
    pub(super) machine: RefCell<CaseMachine<Ticket>>,
    /// Messages in the actor's mailbox.
    pub(super) queued: Cell<usize>,
    /// When the last message came (monotonic).
    pub(super) last_used: Cell<Duration>,
    /// The read that the machine waits for; answers to older ones are dropped.
    pub(super) read: Cell<u64>,
}

impl CaseCell {
    pub(super) fn new(case_id: CaseId, machine: CaseMachine<Ticket>) -> Rc<Self> {
        Rc::new(Self {
            case_id,
            machine: RefCell::new(machine),
            queued: Cell::new(0),
            last_used: Cell::new(Duration::ZERO),
            read: Cell::new(0),
        })
    }

    /// Whether nothing is under way: then the actor may go, and the case may leave memory.
    pub(super) fn is_idle(&self) -> bool {
        self.queued.get() == 0 && self.machine.borrow().is_idle()
    }
}

/// The actor.
pub(super) struct CaseActor {
    pub(super) cell: Rc<CaseCell>,
    pub(super) context: Rc<ShardContext>,
}

impl Actor for CaseActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        // The machine bounds what waits for the case; the mailbox only has to hold what was admitted.
        context.set_mailbox_capacity(self.context.options.commands_max);
    }
}

/// Something happened to the case.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct HandleEvent(pub(super) CaseEvent<Ticket>);

impl Handler<HandleEvent> for CaseActor {
    type Result = ();

    fn handle(&mut self, HandleEvent(event): HandleEvent, _: &mut Self::Context) {
        let now = self.context.now();
        self.cell.queued.set(self.cell.queued.get() - 1);
        self.cell.last_used.set(now.monotonic);
        let mut effects = Vec::new();
        self.cell.machine.borrow_mut().step(event, now, &mut self.context.cache.borrow_mut(), &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }
}

/// Asks whether a command under this id waits or is in flight.
#[derive(Message)]
#[rtype(result = "bool")]
pub(super) struct IsWaiting(pub(super) OperationId);

impl Handler<IsWaiting> for CaseActor {
    type Result = bool;

    fn handle(&mut self, IsWaiting(operation_id): IsWaiting, _: &mut Self::Context) -> bool {
        self.cell.machine.borrow().is_pending(operation_id)
    }
}

impl CaseActor {
    fn perform(&self, effect: CaseEffect<Ticket>) {
        let case_id = &self.cell.case_id;
        match effect {
            CaseEffect::Reply(ticket, answer) => ticket.answer(answer),
            CaseEffect::Load => self.cell.read.set(self.context.load(case_id)),
            CaseEffect::LookUp(ids) => self.cell.read.set(self.context.look_up(case_id, ids)),
            CaseEffect::Commit(chain, deadline) => self.context.commit(chain, deadline),
        }
    }
}
