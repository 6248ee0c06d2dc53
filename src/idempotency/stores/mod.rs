//! Where answers are kept: one trait, one set of promises, held by one conformance suite.
//!
//! **Promises.** `claim` is one atomic step: of any number of callers one is told [`Claim::Claimed`], until the lease is
//! over or given back. `renew`, `complete` and `release` name their token and change nothing that another one holds. A
//! record goes when its time is over, and not before. Fails with [`StoreFault`]; a step that failed may have been taken.

mod memory;
mod redis;
mod sql;

use std::time::Duration;

use async_trait::async_trait;

pub use self::memory::{MemoryBounds, MemoryStore};
pub use self::redis::RedisStore;
pub use self::sql::SqlStore;
use super::claim::{Claim, ClaimToken, Holding};
use super::fingerprint::Fingerprint;
use super::key::Identity;
use super::recorded_response::RecordedResponse;
use crate::store::StoreError;

/// A store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// It can't be reached, or did not answer in time: try again later.
    #[error("the idempotency store is not available while {during}: {reason}")]
    Unavailable {
        /// What was being tried.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// It has no room for another claim: try again when records have expired.
    #[error("the idempotency store is full: {reason}")]
    Full {
        /// Which bound was reached.
        reason: String,
    },
    /// It holds something that this program did not write.
    #[error("the idempotency store holds something unexpected, found while {during}: {reason}")]
    Inconsistent {
        /// What was being tried.
        during: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// A store of claims and answers. Shared by all workers of a process, or by all processes.
#[async_trait]
pub trait IdempotencyStore: Send + Sync + 'static {
    /// Claims `identity` for `lease` under `token`, unless it is held or answered.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault>;

    /// Lengthens the lease of `token` to `lease` from now.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault>;

    /// Stores the answer of the holder of `token`, for `lifetime` from now.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault>;

    /// Gives the claim of `token` back: whoever comes next runs the request.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault>;

    /// Removes some of what has expired, and says how much; where the store does so by itself, nothing.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn sweep(&self) -> Result<u64, StoreFault> {
        Ok(0)
    }
}

/// A time in whole milliseconds, at least one: what has a length must not become "no time at all", which a store would read
/// as "for ever".
fn whole_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4)
}

impl From<StoreError> for StoreFault {
    /// A store that refuses a step is as little use to a caller as one that is away.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { during, reason } | StoreError::Refused { during, reason } => {
                Self::Unavailable { during, reason }
            }
            StoreError::Inconsistent { during, reason } => Self::Inconsistent { during, reason },
        }
    }
}
