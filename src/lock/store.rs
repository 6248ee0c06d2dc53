//! The seam to what keeps leases, and what must hold behind it.
//!
//! Owns the trait and its error. A store knows names, owners, times and numbers; it never knows what is locked. One
//! conformance suite runs over all of them (`tests/casework/lock/conformance.rs`).

use std::num::NonZeroU32;

use async_trait::async_trait;

use super::{LeaseTtl, LockName, Owner};
use crate::store::StoreError;

/// A store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LockStoreError {
    /// It can't be reached, did not answer in time, or is full: try again later. Whether the step was done is not known.
    #[error("the lock store is not available while {during}: {reason}")]
    Unavailable {
        /// What was being tried.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// It refused the step; the same again will fail again.
    #[error("the lock store refused {during}: {reason}")]
    Refused {
        /// What was being tried.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
}

/// Keeps leases. Each step is atomic, over all processes that use the store, and names its owner.
///
/// A lease that has run out by the store's clock is nobody's: it is not counted, not renewed and not released.
#[async_trait]
pub trait LockStore: Send + Sync + 'static {
    /// Takes a lease for `owner` unless `permits` others hold one; owner, expiry and fencing number are set in one step.
    /// `None`: they do. The number is larger than those of all earlier holders of the name. Who holds a lease already gets
    /// it anew: a step whose answer was lost can be sent again.
    ///
    /// # Errors
    /// [`LockStoreError`].
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError>;

    /// Lets the lease of `owner` last `ttl` from now. False: it has none (any more).
    ///
    /// # Errors
    /// [`LockStoreError`].
    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError>;

    /// Ends the lease of `owner`. False: it had none (any more).
    ///
    /// # Errors
    /// [`LockStoreError`].
    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError>;
}

/// What an error of the connection means for the lock.
pub(super) fn store_error(error: StoreError) -> LockStoreError {
    match error {
        StoreError::Unavailable { during, reason } => LockStoreError::Unavailable { during, reason },
        StoreError::Refused { during, reason } | StoreError::Inconsistent { during, reason } => {
            LockStoreError::Refused { during, reason }
        }
    }
}
