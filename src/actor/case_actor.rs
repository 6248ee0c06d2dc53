//! The actor of one case: a thin driver of its machine.
//!
//! Owns nothing but the order of its mailbox. The machine lies in a cell that the shard's table keeps, so that an idle case
//! needs no actor: the shard drops the address, the actor ends, the state stays. Never waits.

use std::rc::Rc;

use actix::{Actor, Addr, Context, Handler, Message};

use super::shard::ShardContext;
use super::ticket::Ticket;
use crate::domain::OperationId;
use crate::engine::{Answer, CaseAction, CaseCell, CaseEvent, Trouble};

/// The actor.
pub(super) struct CaseActor {
    cell: Rc<CaseCell<Ticket>>,
    context: Rc<ShardContext>,
}

impl CaseActor {
    /// Starts the actor of a case. The machine bounds what waits for the case; the mailbox only has to hold what was admitted,
    /// and that from its first message on: all that waited for a case's first read comes at once.
    pub(super) fn start_for(cell: Rc<CaseCell<Ticket>>, context: Rc<ShardContext>) -> Addr<Self> {
        Self::create(|mailbox| {
            mailbox.set_mailbox_capacity(context.options.commands_max);
            Self { cell, context }
        })
    }
}

impl Actor for CaseActor {
    type Context = Context<Self>;
}

/// Something happened to the case.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct HandleEvent(pub(super) CaseEvent<Ticket>);

impl Handler<HandleEvent> for CaseActor {
    type Result = ();

    fn handle(&mut self, HandleEvent(event): HandleEvent, _: &mut Self::Context) {
        let now = self.context.now();
        for action in self.cell.handle(event, now) {
            match action {
                CaseAction::Reply(ticket, answer) => {
                    if answer == Answer::Unsettled(Trouble::Overloaded) {
                        self.context.note_refusal(ticket.arrived, now.monotonic);
                    }
                    // Deciding takes microseconds: the time of the event will do.
                    ticket.answer(answer, &self.context.metrics, now.monotonic);
                }
                CaseAction::Read(order) => self.context.read(order),
                CaseAction::Commit(chain, deadline) => self.context.commit(chain, deadline),
            }
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
        self.cell.is_pending(operation_id)
    }
}
