//! What a commit queue is told, what it asks for, and its bounds.
//!
//! Owns the vocabulary between [`CommitQueue`](super::CommitQueue) and its driver; no behaviour. Cannot fail.

use std::time::Duration;

use super::batch::{BatchAnswer, CommitFault};
use super::case_events::Verdict;
use super::chain::Chain;
use crate::domain::CaseId;

/// The bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Connections that commit batches.
    pub connections: usize,
    /// A batch goes out with all that waits as soon as a connection is free. While others are in flight it must be worth a
    /// transaction of its own: as many operations as they have together, or at least so many. Too low: small batches, whose
    /// fixed cost the database pays; too high: a connection idles while the other one works.
    pub overlap_operations_max: usize,
    /// Operations in a batch (a single chain may have more).
    pub batch_operations_max: usize,
    /// Chains in a batch, checks included.
    pub batch_chains_max: usize,
    /// About how many bytes a batch may send (a single chain may have more).
    pub batch_bytes_max: usize,
    /// How often a transaction is run again after deadlocks and the like.
    pub retries_max: u32,
    /// The first pause before running it again; doubled each time, and jittered.
    pub retry_pause: Duration,
    /// How often a locked case is left out of a batch before it gets a connection that waits.
    pub locked_tries_max: u32,
    /// How many cases may be waited for at once.
    pub patient_max: usize,
    /// The pause after a fence that could not be raised.
    pub fence_pause: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            connections: 2,
            overlap_operations_max: 128,
            batch_operations_max: 512,
            batch_chains_max: 512,
            batch_bytes_max: 4 << 20,
            retries_max: 8,
            retry_pause: Duration::from_millis(5),
            locked_tries_max: 3,
            patient_max: 4,
            fence_pause: Duration::from_millis(250),
        }
    }
}

/// What happens to a queue.
#[derive(Debug)]
pub enum QueueEvent {
    /// Cases hand their chains over, together, so that they go out together; others may hold a case up until its deadline
    /// (monotonic).
    Enqueued(Vec<(Chain, Duration)>),
    /// The batch in flight on this connection was answered.
    Answered(usize, Result<BatchAnswer, CommitFault>),
    /// The fence of this connection holds.
    FenceHeld(usize),
    /// The fence of this connection could not be raised.
    FenceFailed(usize),
    /// A chain that was waited for was answered.
    PatientAnswered(CaseId, Result<BatchAnswer, CommitFault>),
    /// The fence of the connection that had waited for a case holds.
    PatientFenceHeld(CaseId),
    /// The fence of the connection that had waited for a case could not be raised; it is being tried again.
    PatientFenceFailed(CaseId),
    /// A time that was asked for has come.
    Woken,
}

/// What the driver has to do.
#[derive(Debug)]
pub enum QueueEffect {
    /// Commit these chains on this connection, sorted by case, each case once; leave locked cases out.
    Commit(usize, Vec<Chain>),
    /// Commit this chain on a connection of its own, waiting for its lock at most this long. After an unclear commit the
    /// driver raises that connection's fence until it holds.
    CommitPatiently(Chain, Duration),
    /// Raise the fence of this connection.
    Fence(usize),
    /// Tell a case what became of its chain.
    Settle(CaseId, Verdict),
    /// Send [`QueueEvent::Woken`] at this time (monotonic), or a little later.
    WakeAt(Duration),
}
