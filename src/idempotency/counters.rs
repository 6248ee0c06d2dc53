//! What the layer did, counted; and requests that come again under a new key.
//!
//! Owns numbers and a short memory of recent requests. Never refuses anything. Cannot fail.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use sha2::{Digest as _, Sha256};

use super::fingerprint::Fingerprint;
use super::key::{Identity, Principal};

/// How soon the same request under a new key counts as a client that draws a key for each attempt.
const NEW_KEY_WITHIN: Duration = Duration::from_secs(60);
/// How many requests are remembered for that; the oldest is forgotten first, which only loses a count.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// What a layer has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdempotencyCounts {
    /// Requests that were run.
    pub claimed: u64,
    /// Answers given again.
    pub replayed: u64,
    /// Repeats that came while the first one ran, and were told so.
    pub in_flight: u64,
    /// Keys that came with another request.
    pub mismatched: u64,
    /// Keys given back, because the answer was not final.
    pub released: u64,
    /// Leases that ran out under their owner.
    pub lost: u64,
    /// Answers kept without their body.
    pub tombstones: u64,
    /// Requests refused, or run without protection, because the store was away or full.
    pub unavailable: u64,
    /// Answers that could not be stored.
    pub not_stored: u64,
    /// The same request of the same principal under a new key within a minute.
    pub same_under_new_key: u64,
}

impl IdempotencyCounts {
    /// Each with the name that it has as an event in [`Idempotency::register`](super::Idempotency::register).
    pub fn events(&self) -> [(&'static str, u64); 10] {
        [
            ("claimed", self.claimed),
            ("replayed", self.replayed),
            ("in_flight", self.in_flight),
            ("mismatched", self.mismatched),
            ("released", self.released),
            ("lost", self.lost),
            ("tombstone", self.tombstones),
            ("unavailable", self.unavailable),
            ("not_stored", self.not_stored),
            ("same_under_new_key", self.same_under_new_key),
        ]
    }
}

/// The counters behind [`IdempotencyCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) claimed: AtomicU64,
    pub(super) replayed: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) mismatched: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) tombstones: AtomicU64,
    pub(super) unavailable: AtomicU64,
    pub(super) not_stored: AtomicU64,
    pub(super) same_under_new_key: AtomicU64,
}

impl Counters {
    pub(super) fn counts(&self) -> IdempotencyCounts {
        IdempotencyCounts {
            claimed: self.claimed.load(Relaxed),
            replayed: self.replayed.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            mismatched: self.mismatched.load(Relaxed),
            released: self.released.load(Relaxed),
            lost: self.lost.load(Relaxed),
            tombstones: self.tombstones.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            not_stored: self.not_stored.load(Relaxed),
            same_under_new_key: self.same_under_new_key.load(Relaxed),
        }
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Requests that were run lately, by principal and fingerprint.
pub(super) struct RecentRequests(Mutex<LruCache<[u8; 32], (Identity, Instant)>>);

impl RecentRequests {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED_MAX)))
    }

    /// Notes a request that is run, and says whether the same one was run under another key a short while ago.
    pub(super) fn is_same_under_new_key(
        &self,
        principal: &Principal,
        fingerprint: &Fingerprint,
        identity: &Identity,
        now: Instant,
    ) -> bool {
        let request: [u8; 32] =
            Sha256::new().chain_update(principal.digest()).chain_update(fingerprint.whole()).finalize().into();
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = recent.put(request, (*identity, now));
        before.is_some_and(|(other, at)| other != *identity && now.duration_since(at) < NEW_KEY_WITHIN)
    }
}
