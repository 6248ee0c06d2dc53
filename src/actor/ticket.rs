//! The way back to a caller.
//!
//! Owns the place in the admission bound, and the clock, until the answer is given. Dropped without an answer (a lost actor),
//! the caller learns `unavailable`.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::engine::{Answer, Envelope};
use crate::metrics::{CommandLabel, Metrics};

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Ticket {
    sender: oneshot::Sender<Answer>,
    label: CommandLabel,
    /// When the command arrived (monotonic).
    pub(super) arrived: Duration,
    _admitted: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    /// A ticket of a command that arrived then, and where its answer comes out.
    pub(super) fn new(
        label: CommandLabel,
        arrived: Duration,
        admitted: Option<OwnedSemaphorePermit>,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender, label, arrived, _admitted: admitted }, receiver)
    }

    /// Gives the answer. A caller that hung up has cancelled nothing and misses nothing: the outcome is stored.
    pub(super) fn answer(self, answer: Answer, metrics: &Metrics, now: Duration) {
        metrics.commands.answered(self.label, &answer, now.saturating_sub(self.arrived));
        let _hung_up = self.sender.send(answer);
    }
}

/// Answers a command that did not reach its case machine.
pub(super) fn turn_away(envelope: Envelope<Ticket>, answer: Answer, metrics: &Metrics, now: Duration) {
    if let Some(lane) = &envelope.lane {
        lane.note(&answer);
    }
    envelope.ticket.answer(answer, metrics, now);
}
