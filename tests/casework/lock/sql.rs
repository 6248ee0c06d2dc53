//! The lock in a table: made once, kept small, and lost when somebody deletes it.

use std::time::Duration;

use casework::lock::{
    DEFAULT_NAMESPACE, Held, LeaseTtl, LockError, LockName, LockOutcome, LockStore, LockStoreError, Owner,
    SemaphoreLock, SqlLockStore,
};
use casework::store::SideTables;

use super::fixture::{LONG, SOON, sql_store};

async fn take(store: &SqlLockStore, key: &str) -> u64 {
    let name = LockName::new("sql", key).unwrap();
    let taken = store.acquire(&name, Owner::random(), LeaseTtl::new(LONG).unwrap(), std::num::NonZeroU32::MIN).await;
    taken.unwrap().expect("the lock is free")
}

on_both_databases! {
    async fn the_table_is_made_once_by_many_at_once(database: &TestDatabase) {
        let makers: Vec<_> = (0..8).map(|_| sql_store(database)).collect();
        for store in futures_util::future::join_all(makers).await {
            store.create_tables().await.unwrap();
        }
        assert_eq!(database.count("semaphore_locks"), 0);
    }

    async fn without_its_table_the_lock_is_refused(database: &TestDatabase) {
        let store = SqlLockStore::new(SideTables::open(&database.url().parse().unwrap()).unwrap());
        let lock = SemaphoreLock::new(std::sync::Arc::new(store));
        let work = |_| async { panic!("it must not run") };
        let refused = lock.with_semaphore_lock("62", LONG, DEFAULT_NAMESPACE, work).await;
        assert!(matches!(refused, Err(LockError::Store(LockStoreError::Refused { .. }))), "{refused:?}");
    }

    /// A row deleted by hand is a lock that is lost, and its number goes on growing.
    async fn work_is_told_when_its_row_is_deleted(database: &TestDatabase) {
        let lock = SemaphoreLock::new(std::sync::Arc::new(sql_store(database).await));
        let work = |held: Held| async move {
            database.sql("DELETE FROM semaphore_locks");
            tokio::time::timeout(SOON, held.lost()).await.expect("the work is told");
            held.fencing_number()
        };
        let outcome = lock.with_semaphore_lock("62", Duration::from_secs(1), DEFAULT_NAMESPACE, work).await.unwrap();
        let LockOutcome::Locked(before) = outcome else { panic!("it was free") };
        assert_eq!(lock.counts().lost, 1);
        let work = |held: Held| async move { held.fencing_number() };
        let outcome = lock.with_semaphore_lock("62", LONG, DEFAULT_NAMESPACE, work).await.unwrap();
        assert!(matches!(outcome, LockOutcome::Locked(after) if after > before), "{outcome:?} after {before}");
    }

    /// A row stays for a minute after its last lease, and is deleted when enough locks were taken since.
    async fn old_rows_are_deleted_and_held_ones_are_not(database: &TestDatabase) {
        let store = sql_store(database).await;
        for key in 0..10 {
            take(&store, &format!("old {key}")).await;
        }
        take(&store, "held").await;
        assert_eq!(store.prune().await.unwrap(), 0, "none is old");
        let held = LockName::new("sql", "held").unwrap();
        // Two minutes ago, in microseconds.
        database.sql(&format!("UPDATE semaphore_locks SET expires_at = expires_at - 180000000 WHERE name <> '{}'", held.as_str()));
        assert_eq!(database.count("semaphore_locks"), 11);
        for key in 0..244 {
            take(&store, &format!("new {key}")).await;
        }
        assert_eq!(database.count("semaphore_locks"), 255);
        take(&store, "the 256th").await;
        assert_eq!(database.count("semaphore_locks"), 246, "the old ones are gone");
        assert_eq!(store.prune().await.unwrap(), 0);
    }

    /// A clock that was set back does not set numbers back.
    async fn numbers_grow_though_the_clock_was_set_back(database: &TestDatabase) {
        let store = sql_store(database).await;
        let name = LockName::new("sql", "clock").unwrap();
        let ttl = LeaseTtl::new(LONG).unwrap();
        let owner = Owner::random();
        store.acquire(&name, owner, ttl, std::num::NonZeroU32::MIN).await.unwrap().unwrap();
        assert!(store.release(&name, owner).await.unwrap());
        // Seen from the row, an hour.
        database.sql("UPDATE semaphore_locks SET fencing_number = fencing_number + 3600000000");
        let last: u64 = database.sql_value("SELECT fencing_number FROM semaphore_locks").parse().unwrap();
        assert_eq!(take(&store, "clock").await, last + 1);
    }
}
