//! Leases in a table, for many processes on PostgreSQL or on one SQLite file: one statement a step.
//!
//! Owns the table `semaphore_locks`: a row a lock, in which the holders stand as a JSON object, owner to the end of its
//! lease. One row, because a statement that waits for it sees it as the one before it left it; holders in rows of their own
//! would be counted as they were before the wait. Times are microseconds since 1970, by the database's clock on PostgreSQL
//! and the process's on SQLite, which is on one machine. Fails with [`LockStoreError`].

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use super::store::store_error;
use super::{LeaseTtl, LockName, LockStore, LockStoreError, Owner};
use crate::store::SideTables;

mod postgres;
mod sqlite;

/// In microseconds: how long a row is kept after its last lease, for clocks that are set back.
const ROW_KEPT: i64 = 60_000_000;
/// After so many locks taken here, old rows are deleted.
const ACQUIRES_PER_PRUNE: u32 = 256;
/// How many rows one statement deletes: more than come in between, so that the table does not grow without end.
const ROWS_PER_PRUNE: i64 = 1_000;

/// A database with the table `semaphore_locks`. Cheap to clone.
#[derive(Clone)]
pub struct SqlLockStore {
    tables: SideTables,
    acquires: Arc<AtomicU32>,
}

/// What a step is about, as SQL takes it.
#[derive(Clone)]
struct Lease {
    name: String,
    owner: String,
}

/// What taking a lock returns.
#[derive(QueryableByName)]
struct Taken {
    #[diesel(sql_type = BigInt)]
    fencing_number: i64,
}

impl SqlLockStore {
    /// A store in a database; see [`SqlLockStore::create_tables`].
    pub fn new(tables: SideTables) -> Self {
        Self { tables, acquires: Arc::default() }
    }

    /// Makes the table where it is not there yet; harmless when another process does so at the same time.
    ///
    /// # Errors
    /// [`LockStoreError`].
    pub async fn create_tables(&self) -> Result<(), LockStoreError> {
        self.tables.create(sqlite::CREATE, postgres::CREATE).await.map_err(store_error)
    }

    /// Deletes up to 1,000 rows of locks that nobody has held for a minute, and returns how many. Taking locks does so by
    /// itself now and then.
    ///
    /// # Errors
    /// [`LockStoreError`].
    pub async fn prune(&self) -> Result<usize, LockStoreError> {
        let pruned =
            self.tables.run("deleting old locks", sqlite::prune, |connection| Box::pin(postgres::prune(connection)));
        pruned.await.map_err(store_error)
    }

    /// Deletes old rows when it is time to.
    async fn prune_now_and_then(&self) {
        if !(self.acquires.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ACQUIRES_PER_PRUNE) {
            return;
        }
        if let Err(error) = self.prune().await {
            // The lock is taken, whatever became of this.
            tracing::warn!(%error, "old locks were not deleted; later locks will see to it");
        }
    }
}

impl Lease {
    /// Once for either database: only one of the two is used.
    fn for_both(name: &LockName, owner: Owner) -> (Self, Self) {
        let lease = Self { name: name.as_str().to_owned(), owner: owner.to_string() };
        (lease.clone(), lease)
    }
}

#[async_trait]
impl LockStore for SqlLockStore {
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError> {
        let during = "taking a lock";
        let (here, there) = Lease::for_both(name, owner);
        let acquired = self.tables.run(
            during,
            move |connection| sqlite::acquire(connection, &here, ttl, permits),
            move |connection| Box::pin(postgres::acquire(connection, there, ttl, permits)),
        );
        let Some(Taken { fencing_number }) = acquired.await.map_err(store_error)?.pop() else {
            return Ok(None);
        };
        self.prune_now_and_then().await;
        let number = u64::try_from(fencing_number).map_err(|_| {
            let reason = format!("{fencing_number} is no fencing number");
            LockStoreError::Refused { during, reason }
        })?;
        Ok(Some(number))
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        let (here, there) = Lease::for_both(name, owner);
        let renewed = self.tables.run(
            "renewing a lock",
            move |connection| sqlite::renew(connection, &here, ttl),
            move |connection| Box::pin(postgres::renew(connection, there, ttl)),
        );
        renewed.await.map(|rows| rows > 0).map_err(store_error)
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        let (here, there) = Lease::for_both(name, owner);
        let released = self.tables.run(
            "giving back a lock",
            move |connection| sqlite::release(connection, &here),
            move |connection| Box::pin(postgres::release(connection, there)),
        );
        released.await.map(|rows| rows > 0).map_err(store_error)
    }
}
