//! The lock as a service sees it: one call around the critical section.
//!
//! Owns the runtime that leases are kept on, apart from that of the caller: a closure that blocks its thread does not cost
//! the lease, and a caller that is cancelled needs nobody to give the lease back. Never runs the closure without the lock.
//! Fails with [`LockError`].

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot};
use tokio::time::Instant;

use super::counts::Counters;
use super::lease::{Claim, Held, Lease};
use super::name::logged_digest;
use super::{LeaseTtl, LockCounts, LockName, LockStore, LockStoreError, NAMESPACE_BYTES_MAX, Owner};
use crate::store::DatabaseRuntime;

/// The namespace of locks that need no other.
pub const DEFAULT_NAMESPACE: &str = "semaphore_lock";

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a skipped closure did not run: tell its caller so (202, never 204)"]
pub enum LockOutcome<T> {
    /// The closure ran; its value.
    Locked(T),
    /// Others hold the lock: the closure did not run. Whether their work will succeed is not known, so this is not "done".
    Skipped,
}

/// The closure did not run.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LockError {
    /// Shorter than [`LeaseTtl::MIN`]. Zero does not mean "for ever".
    #[error("a lease of {0:?} is none: give at least 1 ms")]
    InvalidTtl(Duration),
    /// Too long, or with control characters.
    #[error("a namespace has at most {NAMESPACE_BYTES_MAX} bytes and no control characters")]
    InvalidNamespace,
    /// The store failed.
    #[error(transparent)]
    Store(LockStoreError),
}

/// A lock over a store. Cheap to clone; clones share counters and runtime.
#[derive(Clone)]
pub struct SemaphoreLock {
    shared: Arc<Shared>,
    permits: NonZeroU32,
}

/// What clones and leases share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn LockStore>,
    pub(super) counters: Counters,
    runtime: OnceCell<Arc<DatabaseRuntime>>,
}

impl Shared {
    /// Starts a task on the lock's runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
        let runtime = self.runtime.get().expect("started before the first lease");
        runtime.handle().spawn(task).abort_handle()
    }

    async fn start_runtime(&self) -> Result<(), LockError> {
        let started = self.runtime.get_or_try_init(|| async { DatabaseRuntime::start() }).await;
        started.map(drop).map_err(|error| {
            let during = "starting the runtime of the lock";
            LockError::Store(LockStoreError::Unavailable { during, reason: error.to_string() })
        })
    }
}

impl SemaphoreLock {
    /// A lock with one permit. Its threads start with the first use.
    pub fn new(store: Arc<dyn LockStore>) -> Self {
        let shared = Shared { store, counters: Counters::default(), runtime: OnceCell::new() };
        Self { shared: Arc::new(shared), permits: NonZeroU32::MIN }
    }

    /// The same lock for at most `permits` holders of a key at a time. All who use a key must give the same number.
    #[must_use]
    pub fn permits(mut self, permits: NonZeroU32) -> Self {
        self.permits = permits;
        self
    }

    /// Runs `work` if one of the permits of `key` in `namespace` is free, and tells when none is; never waits for one. The
    /// lease is renewed while `work` runs, for `ttl` (from 1 ms) at a time: how long the lock stays shut when this process
    /// dies. `namespace` keeps locks apart that know nothing of each other.
    ///
    /// `work` runs where this is awaited. When it ends, panics or is dropped, the lease is given back.
    ///
    /// # Errors
    /// [`LockError`]: `work` did not run.
    pub async fn with_semaphore_lock<T, F, Fut>(
        &self,
        key: &str,
        ttl: Duration,
        namespace: &str,
        work: F,
    ) -> Result<LockOutcome<T>, LockError>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        let name = LockName::new(namespace, key)?;
        let ttl = LeaseTtl::new(ttl)?;
        let Some(lease) = self.acquire(name.clone(), ttl).await? else {
            self.shared.counters.skipped.add_one();
            let (namespace, key) = (name.namespace(), name.digest());
            tracing::info!(lock.namespace = namespace, lock.key = key, "the lock is held elsewhere: skipped");
            return Ok(LockOutcome::Skipped);
        };
        self.shared.counters.locked.add_one();
        let value = work(lease.held()).await;
        lease.release().await;
        Ok(LockOutcome::Locked(value))
    }

    /// To be called when a constraint had to speak although the lock was held: counted, and a warning. Now and then it is
    /// what the constraint is for; often, the lease is too short for the work or the lock is not where it should be.
    pub fn violation(&self, key: &str) {
        self.shared.counters.violations.add_one();
        tracing::warn!(lock.key = logged_digest(key), "a unique constraint was violated behind the lock");
    }

    /// What happened so far.
    pub fn counts(&self) -> LockCounts {
        self.shared.counters.read()
    }

    /// Shows the counts in a registry, as the counter `casework_lock_events_total` with the labels `lock`, which tells several
    /// locks of a process apart, and `event`.
    ///
    /// # Errors
    /// The registry's, where a lock of this name is there already.
    pub fn register(&self, registry: &prometheus::Registry, lock: &str) -> prometheus::Result<()> {
        let shared = self.shared.clone();
        crate::telemetry::register_counts(
            registry,
            "casework_lock_events_total",
            "What became of those who came for a lock.",
            ("lock", lock),
            move || shared.counters.read().events(),
        )
    }

    /// Takes a lease. The step runs to its end, also when the caller is gone before it; then the lease is given back.
    async fn acquire(&self, name: LockName, ttl: LeaseTtl) -> Result<Option<Lease>, LockError> {
        self.shared.start_runtime().await?;
        let (sender, receiver) = oneshot::channel();
        let claim = Claim { name, owner: Owner::random(), ttl };
        let (shared, permits) = (self.shared.clone(), self.permits);
        self.shared.spawn(async move {
            let asked = Instant::now();
            let acquired = shared.store.acquire(&claim.name, claim.owner, claim.ttl, permits).await;
            let unclear = acquired.is_err().then(|| claim.clone());
            let lease = acquired.map(|number| number.map(|number| Lease::start(shared.clone(), claim, number, asked)));
            // What nobody takes is dropped, and gives itself back.
            drop(sender.send(lease));
            if let Some(claim) = unclear {
                // The answer may have been lost, and not the step.
                let _ = shared.store.release(&claim.name, claim.owner).await;
            }
        });
        let acquired = receiver.await.unwrap_or_else(|_| {
            let reason = "the store panicked".to_owned();
            Err(LockStoreError::Unavailable { during: "taking the lock", reason })
        });
        acquired.map_err(LockError::Store)
    }
}
