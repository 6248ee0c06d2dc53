//! What happens between a decision and its commit.
//!
//! Owns what counts as a retry, a miss and a duplicate key; the committers call it once a batch.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, Registry};

use super::{buckets, counter, counters};
use crate::engine::{BatchAnswer, Chain, ChainAnswer, CommitFault, QueueWaits, RetryCause};

/// Counters and histograms of all committers.
#[derive(Debug)]
pub struct CommitMetrics {
    queue_wait: Histogram,
    row_lock_wait: Histogram,
    durations: Durations,
    batch_operations: Histogram,
    batch_chains: Histogram,
    retries: Retries,
    faults: Faults,
    duplicate_keys: IntCounter,
    misses: IntCounter,
}

#[derive(Debug)]
struct Durations {
    committed: Histogram,
    not_committed: Histogram,
    unclear: Histogram,
}

#[derive(Debug)]
struct Retries {
    serialization: IntCounter,
    deadlock: IntCounter,
    busy: IntCounter,
    locked: IntCounter,
}

#[derive(Debug)]
struct Faults {
    data: IntCounter,
    broken_invariant: IntCounter,
    failed: IntCounter,
    unclear: IntCounter,
    fenced: IntCounter,
}

impl CommitMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let durations = buckets::seconds_by(
            registry,
            "casework_commit_duration_seconds",
            "One transaction of a batch, from sending it to its answer.",
            &["outcome"],
        );
        let duration = |outcome: &str| durations.with_label_values(&[outcome]);
        let retries = counters(
            registry,
            "casework_commit_retries_total",
            "Transactions that are run again, and chains that are left for a later one because their case is locked.",
            "cause",
        );
        let retry = |cause: &str| retries.with_label_values(&[cause]);
        let faults = counters(
            registry,
            "casework_commit_faults_total",
            "Transactions that did not commit, or not clearly, and are not simply run again.",
            "fault",
        );
        let fault = |fault: &str| faults.with_label_values(&[fault]);
        Self {
            queue_wait: buckets::seconds(
                registry,
                "casework_queue_wait_seconds",
                "How long what was decided for a case waited for its first transaction.",
            ),
            row_lock_wait: buckets::seconds(
                registry,
                "casework_row_lock_wait_seconds",
                "How long a case was held by another transaction: from the batch that found it so until that ended.",
            ),
            durations: Durations {
                committed: duration("committed"),
                not_committed: duration("not-committed"),
                unclear: duration("unclear"),
            },
            batch_operations: buckets::counts(
                registry,
                "casework_batch_operations",
                "Operations in the transaction of a batch; 0: it only checks versions.",
            ),
            batch_chains: buckets::counts(registry, "casework_batch_cases", "Cases in the transaction of a batch."),
            retries: Retries {
                serialization: retry("serialization"),
                deadlock: retry("deadlock"),
                busy: retry("busy"),
                locked: retry("locked"),
            },
            faults: Faults {
                data: fault("data"),
                broken_invariant: fault("broken-invariant"),
                failed: fault("failed"),
                unclear: fault("unclear"),
                fenced: fault("fenced"),
            },
            duplicate_keys: counter(
                registry,
                "casework_duplicate_keys_total",
                "Decisions that were made again because another writer had put the operation id or the case there.",
            ),
            misses: counter(
                registry,
                "casework_compare_and_swap_misses_total",
                "Decisions that were made again because another writer had moved the case's version.",
            ),
        }
    }

    /// A step of a commit queue ended these waits.
    pub fn waited(&self, waits: &QueueWaits) {
        waits.sent.iter().for_each(|wait| self.queue_wait.observe(wait.as_secs_f64()));
        waits.locked.iter().for_each(|wait| self.row_lock_wait.observe(wait.as_secs_f64()));
    }

    /// The transaction of a batch was answered.
    pub fn answered(&self, batch: &[Chain], took: Duration, answer: &Result<BatchAnswer, CommitFault>) {
        let operations: usize = batch.iter().map(Chain::operation_count).sum();
        self.batch_operations.observe(operations as f64);
        self.batch_chains.observe(batch.len() as f64);
        let duration = match answer {
            Ok(BatchAnswer::Settled(_)) => &self.durations.committed,
            Ok(BatchAnswer::Fenced) | Err(CommitFault::Unclear) => &self.durations.unclear,
            Err(_) => &self.durations.not_committed,
        };
        duration.observe(took.as_secs_f64());
        self.count(batch.len(), answer);
    }

    /// What came of a transaction of so many chains, also of one that waited for the lock of a single case.
    pub fn count(&self, chains: usize, answer: &Result<BatchAnswer, CommitFault>) {
        match answer {
            Ok(BatchAnswer::Settled(answers)) => {
                for answer in answers {
                    match answer {
                        ChainAnswer::Held => {}
                        ChainAnswer::Missed { .. } => self.misses.inc(),
                        ChainAnswer::Locked => self.retries.locked.inc(),
                    }
                }
            }
            Ok(BatchAnswer::Fenced) => self.faults.fenced.inc(),
            Err(CommitFault::Retry(RetryCause::Serialization)) => self.retries.serialization.inc(),
            Err(CommitFault::Retry(RetryCause::Deadlock)) => self.retries.deadlock.inc(),
            Err(CommitFault::Retry(RetryCause::Busy)) => self.retries.busy.inc(),
            Err(CommitFault::Locked) => self.retries.locked.inc(),
            Err(CommitFault::Duplicate) if chains > 1 => {} // It is halved until the one stands alone.
            Err(CommitFault::Duplicate) => self.duplicate_keys.inc(),
            Err(CommitFault::Data) => self.faults.data.inc(),
            Err(CommitFault::BrokenInvariant) => self.faults.broken_invariant.inc(),
            Err(CommitFault::Failed) => self.faults.failed.inc(),
            Err(CommitFault::Unclear) => self.faults.unclear.inc(),
        }
    }
}
