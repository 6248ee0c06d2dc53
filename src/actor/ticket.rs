//! The way back to a caller.
//!
//! Owns the place in the admission bound, and the clock, until the answer is given. Dropped without an answer (a lost actor),
//! the caller learns `unavailable`.

use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::engine::{Answer, Envelope};
use crate::metrics::CommandTimer;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Ticket {
    sender: oneshot::Sender<Answer>,
    timer: CommandTimer,
    _admitted: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    /// A ticket and where its answer comes out.
    pub(super) fn new(
        timer: CommandTimer,
        admitted: Option<OwnedSemaphorePermit>,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender, timer, _admitted: admitted }, receiver)
    }

    /// When the command arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.timer.arrived()
    }

    /// Gives the answer. A caller that hung up has cancelled nothing and misses nothing: the outcome is stored.
    pub(super) fn answer(self, answer: Answer) {
        self.timer.answered(&answer);
        let _hung_up = self.sender.send(answer);
    }
}

/// Answers a command that did not reach its case machine.
pub(super) fn turn_away(envelope: Envelope<Ticket>, answer: Answer) {
    if let Some(lane) = &envelope.lane {
        lane.note(&answer);
    }
    envelope.ticket.answer(answer);
}
