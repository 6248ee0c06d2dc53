//! Answers in the memory of one process.
//!
//! Owns a table bounded in records and bytes. Full means refused: a live claim or an answer within its lifetime is never
//! dropped for another. What has expired goes when somebody claims, or by `sweep`. To be made once a process, outside the
//! function that builds a worker's app: one made inside it is a store for each worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{IdempotencyStore, StoreFault};
use crate::idempotency::claim::{Claim, ClaimToken, Holding, Record, found, may_complete, may_release, may_renew};
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::key::Identity;
use crate::idempotency::recorded_response::RecordedResponse;

/// What a record takes beside its response: entry, expiry and fingerprint, with room for the tables to grow.
const RECORD_BYTES: usize = 400;
/// How many expired records one claim removes at most: what came in a burst does not go in one step.
const SWEEP_PER_CLAIM: usize = 4;
/// A lifetime beyond this is as good as this.
const LIFETIME_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How much a memory store holds. What is in flight may exceed the bytes by its answers, for they are known last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Claims and answers together. Too low: 503 under load; too high: memory.
    pub records_max: usize,
    /// In bytes, answers and the store's own. Too low: 503 under load; too high: memory.
    pub bytes_max: usize,
}

impl Default for MemoryBounds {
    /// 100,000 records, 256 MiB.
    fn default() -> Self {
        Self { records_max: 100_000, bytes_max: 256 << 20 }
    }
}

/// A store for one process. Share it in an `Arc`.
pub struct MemoryStore {
    bounds: MemoryBounds,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    records: HashMap<Identity, Record<Instant>>,
    /// Each record's end, soonest first.
    ends: BTreeSet<(Instant, Identity)>,
    bytes: usize,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(bounds: MemoryBounds) -> Self {
        // The name that actix gives the threads of its workers.
        if std::thread::current().name().is_some_and(|name| name.starts_with("actix-rt|") && name.contains("arbiter")) {
            tracing::warn!(
                "a memory store for idempotency was made on a worker's thread: each worker has its own then, and a \
                 repeat that reaches another one runs again; make it once, before HttpServer::new"
            );
        }
        Self { bounds, table: Mutex::default() }
    }

    /// How many records there are, and how many bytes they take by the store's own count.
    pub fn size(&self) -> (usize, usize) {
        let table = self.table();
        (table.records.len(), table.bytes)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn put(&mut self, identity: &Identity, record: Record<Instant>) {
        self.remove(identity);
        self.bytes += bytes_of(&record);
        self.ends.insert((record.until, *identity));
        self.records.insert(*identity, record);
    }

    fn remove(&mut self, identity: &Identity) {
        if let Some(record) = self.records.remove(identity) {
            self.bytes -= bytes_of(&record);
            self.ends.remove(&(record.until, *identity));
        }
    }

    /// Removes at most `count` records that have expired, and returns how many it were.
    fn sweep(&mut self, now: Instant, count: usize) -> usize {
        let mut swept = 0;
        while swept < count {
            let Some((until, identity)) = self.ends.first().copied() else { break };
            if until > now {
                break;
            }
            self.remove(&identity);
            swept += 1;
        }
        if swept > 0 && self.records.len() * 4 < self.records.capacity() {
            let room = self.records.len() * 2;
            self.records.shrink_to(room);
        }
        swept
    }
}

fn bytes_of(record: &Record<Instant>) -> usize {
    RECORD_BYTES + record.response.as_ref().map_or(0, RecordedResponse::bytes)
}

fn end_of(now: Instant, time: Duration) -> Instant {
    now + time.min(LIFETIME_MAX)
}

#[async_trait]
impl IdempotencyStore for MemoryStore {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        let mut table = self.table();
        let now = Instant::now();
        if let Some(found) = found(table.records.get(identity), fingerprint, token, now, |until| until - now) {
            return Ok(found);
        }
        table.sweep(now, SWEEP_PER_CLAIM);
        let is_full =
            |table: &Table| table.records.len() >= self.bounds.records_max || table.bytes >= self.bounds.bytes_max;
        if is_full(&table) && !table.records.contains_key(identity) {
            table.sweep(now, usize::MAX);
            if is_full(&table) {
                let reason = format!("it holds {} records in {} bytes", table.records.len(), table.bytes);
                return Err(StoreFault::Full { reason });
            }
        }
        let record = Record { fingerprint: *fingerprint, token, until: end_of(now, lease), response: None };
        table.put(identity, record);
        Ok(Claim::Claimed)
    }

    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault> {
        let mut table = self.table();
        let now = Instant::now();
        if !may_renew(table.records.get(identity), token, now) {
            return Ok(Holding::Lost);
        }
        let record = Record { fingerprint: *fingerprint, token, until: end_of(now, lease), response: None };
        table.put(identity, record);
        Ok(Holding::Held)
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        let mut table = self.table();
        let now = Instant::now();
        if !may_complete(table.records.get(identity), token, now) {
            return Ok(Holding::Lost);
        }
        let until = end_of(now, lifetime);
        table.put(identity, Record { fingerprint: *fingerprint, token, until, response: Some(response.clone()) });
        Ok(Holding::Held)
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        let mut table = self.table();
        if !may_release(table.records.get(identity), token) {
            return Ok(Holding::Lost);
        }
        table.remove(identity);
        Ok(Holding::Held)
    }

    async fn sweep(&self) -> Result<u64, StoreFault> {
        let swept = self.table().sweep(Instant::now(), usize::MAX);
        Ok(u64::try_from(swept).expect("a count fits 64 bits"))
    }
}
