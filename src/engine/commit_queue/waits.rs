//! How long chains waited, for whoever measures.
//!
//! Owns what one step of the queue noted; the next step begins anew, so it never grows and nobody has to take it.

use std::time::Duration;

use super::{CommitQueue, Queued};

/// What chains had waited for when the last step ended it.
#[derive(Debug, Default)]
pub struct QueueWaits {
    /// For a batch: from the hand-over of a chain to its first sending.
    pub sent: Vec<Duration>,
    /// For others: from the batch that found the case held by another transaction to the one that did not, or
    /// to the deadline.
    pub locked: Vec<Duration>,
}

impl QueueWaits {
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        self.locked.clear();
    }

    pub(super) fn sent(&mut self, queued: &Queued, now: Duration) {
        if queued.locked_since.is_none() {
            self.sent.push(now.saturating_sub(queued.enqueued_at));
        }
    }

    pub(super) fn unlocked(&mut self, queued: &Queued, now: Duration) {
        self.locked.extend(queued.locked_since.map(|since| now.saturating_sub(since)));
    }
}

impl CommitQueue {
    /// What chains had waited for when the last step ended it.
    pub fn waits(&self) -> &QueueWaits {
        &self.waits
    }
}
