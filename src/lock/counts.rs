//! How often a lock was got, missed and lost, and how often it did not help.
//!
//! Owns the counters. Never resets them. Cannot fail.

use std::sync::atomic::{AtomicU64, Ordering};

/// What happened since the lock was made, over all of its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LockCounts {
    /// Closures that ran.
    pub locked: u64,
    /// Calls whose closure did not run, because others held the lock.
    pub skipped: u64,
    /// Leases that ended before their closure did.
    pub lost: u64,
    /// Times that a constraint had to speak behind the lock ([`super::SemaphoreLock::violation`]).
    pub violations: u64,
}

impl LockCounts {
    /// Each with the name that it has as an event in [`super::SemaphoreLock::register`].
    pub fn events(&self) -> [(&'static str, u64); 4] {
        [("locked", self.locked), ("skipped", self.skipped), ("lost", self.lost), ("violation", self.violations)]
    }
}

/// The counters behind [`LockCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) locked: Counter,
    pub(super) skipped: Counter,
    pub(super) lost: Counter,
    pub(super) violations: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> LockCounts {
        LockCounts {
            locked: self.locked.get(),
            skipped: self.skipped.get(),
            lost: self.lost.get(),
            violations: self.violations.get(),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
