//! What a batch may answer: the words between the commit queue and the store.
//!
//! Owns the classes of failure (DESIGN section 4). Each store maps its own codes to them once.

use std::time::Duration;

use crate::domain::Version;

/// What a commit's failure means (DESIGN section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// Nothing was written; the same transaction may succeed.
    Retry(RetryCause),
    /// Nothing was written; an operation id (or case) was there already. Halve the batch, then reload.
    Duplicate,
    /// Nothing was written; a version was there already although the compare-and-swap held: an invariant is broken.
    BrokenInvariant,
    /// Nothing was written; a value can't be stored. Halve the batch until the bad case stands alone.
    Data,
    /// Nothing was written; the lock on a case was not given in time (55P03 in the waiting text).
    Locked,
    /// Nothing was written; the server refused the statement for another reason.
    Failed,
    /// It may be written or not, now or later: fence, then read.
    Unclear,
}

/// Why the same transaction is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCause {
    /// The database could not put it in an order with others (40001).
    Serialization,
    /// It was chosen to end a deadlock (40P01).
    Deadlock,
    /// Somebody else holds what all commits need: the file (SQLITE_BUSY), or the writer's own row.
    Busy,
}

/// How a batch treats a case that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Leave it out and answer [`ChainAnswer::Locked`]; the others commit at once.
    Skip,
    /// Wait for it, at most this long.
    Wait(Duration),
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchAnswer {
    /// One answer a chain, in the batch's order.
    Settled(Vec<ChainAnswer>),
    /// Another process raised this writer's epoch: nothing was written and nothing was checked.
    Fenced,
}

/// What became of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainAnswer {
    /// All of it is committed; or, for a check, the version is the expected one.
    Held,
    /// Nothing of it is written: the case is at another version.
    Missed {
        /// The version that the transaction saw.
        seen: Version,
    },
    /// Nothing of it is written: another transaction holds the case.
    Locked,
}
