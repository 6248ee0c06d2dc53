//! Leases in memory, for one process.
//!
//! Owns their bound: what has run out is swept at every step, what lives is never dropped for room. Fails with
//! [`LockStoreError::Unavailable`] when it is full.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;

use super::{LeaseTtl, LockName, LockStore, LockStoreError, Owner};

/// Leases at a time, unless another number is given.
const LEASES_MAX: usize = 100_000;

/// A store for one process. Its clock is monotonic; numbers come from the wall clock, so that they go on growing after a
/// restart.
pub struct MemoryLockStore {
    leases_max: usize,
    leases: Mutex<Leases>,
}

#[derive(Default)]
struct Leases {
    by_name: HashMap<LockName, Vec<Lease>>,
    by_expiry: BTreeMap<(Instant, Owner), LockName>,
    /// Over all names, so that it need not be kept for each.
    last_number: u64,
}

#[derive(Clone, Copy)]
struct Lease {
    owner: Owner,
    until: Instant,
}

impl MemoryLockStore {
    /// A store for at most `leases_max` leases that have not run out. Too low: callers get errors; too high: memory, which
    /// each lease takes until it is given back or has run out.
    pub fn new(leases_max: usize) -> Self {
        Self { leases_max, leases: Mutex::default() }
    }

    /// Leases that were not given back and have not been swept.
    pub fn len(&self) -> usize {
        self.with(|leases| leases.by_expiry.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<T>(&self, step: impl FnOnce(&mut Leases) -> T) -> T {
        step(&mut self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for MemoryLockStore {
    /// For 100,000 leases.
    fn default() -> Self {
        Self::new(LEASES_MAX)
    }
}

impl Leases {
    /// Forgets what has run out.
    fn sweep(&mut self, now: Instant) {
        while let Some(first) = self.by_expiry.first_entry()
            && first.key().0 <= now
        {
            let (_, owner) = *first.key();
            let name = first.remove();
            self.forget(&name, owner);
        }
    }

    fn insert(&mut self, name: &LockName, lease: Lease) {
        self.by_expiry.insert((lease.until, lease.owner), name.clone());
        self.by_name.entry(name.clone()).or_default().push(lease);
    }

    /// Takes an owner's lease out of both maps.
    fn remove(&mut self, name: &LockName, owner: Owner) -> Option<Lease> {
        let lease = *self.by_name.get(name)?.iter().find(|lease| lease.owner == owner)?;
        self.by_expiry.remove(&(lease.until, owner));
        self.forget(name, owner);
        Some(lease)
    }

    fn forget(&mut self, name: &LockName, owner: Owner) {
        if let Some(leases) = self.by_name.get_mut(name) {
            leases.retain(|lease| lease.owner != owner);
            if leases.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        let now = u64::try_from(crate::clock::now().micros()).unwrap_or(0);
        self.last_number = now.max(self.last_number + 1);
        self.last_number
    }
}

#[async_trait]
impl LockStore for MemoryLockStore {
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError> {
        self.with(|leases| {
            let now = Instant::now();
            leases.sweep(now);
            leases.remove(name, owner);
            let holders = leases.by_name.get(name).map_or(0, Vec::len);
            if holders >= usize::try_from(permits.get()).unwrap_or(usize::MAX) {
                return Ok(None);
            }
            if leases.by_expiry.len() >= self.leases_max {
                let reason = format!("it is full: {} locks are held", self.leases_max);
                return Err(LockStoreError::Unavailable { during: "taking a lock in memory", reason });
            }
            leases.insert(name, Lease { owner, until: now + ttl.duration() });
            Ok(Some(leases.next_number()))
        })
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        Ok(self.with(|leases| {
            let now = Instant::now();
            leases.sweep(now);
            let is_held = leases.remove(name, owner).is_some();
            if is_held {
                leases.insert(name, Lease { owner, until: now + ttl.duration() });
            }
            is_held
        }))
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        Ok(self.with(|leases| {
            leases.sweep(Instant::now());
            leases.remove(name, owner).is_some()
        }))
    }
}
