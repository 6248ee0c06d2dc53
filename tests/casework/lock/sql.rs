//! The lock in a table: made once, kept small, and lost when somebody deletes it.

use std::time::{Duration, Instant};

use casework::lock::{
    DEFAULT_NAMESPACE, Held, LeaseTtl, LockError, LockName, LockOutcome, LockStore, LockStoreError, Owner,
    SemaphoreLock, SqlLockStore,
};
use casework::store::SideTables;

use super::fixture::{LONG, SOON, sql_store};
use crate::support::database::{TestDatabase, block_on};
use crate::support::tcp_proxy::{Direction, TcpProxy};

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

#[test]
fn deleting_old_locks_uses_the_index_in_both_databases() {
    let (sqlite, postgres) = (TestDatabase::sqlite(), TestDatabase::postgres());
    block_on(async {
        sql_store(&sqlite).await;
        sql_store(&postgres).await;
    });
    let plan = |database: &TestDatabase, explain: &str, text: &str| {
        let rows = database.sql(&format!("{explain} {text}"));
        rows.concat().join("\n")
    };
    let text = include_str!("../../../src/lock/sql/prune_sqlite.sql").replace("?1", "0").replace("?2", "1000");
    let plan_of_sqlite = plan(&sqlite, "EXPLAIN QUERY PLAN", &text);
    assert!(plan_of_sqlite.contains("semaphore_locks_expires_at (expires_at<?)"), "{plan_of_sqlite}");
    assert!(!plan_of_sqlite.contains("SCAN semaphore_locks"), "{plan_of_sqlite}");
    postgres.sql(
        "INSERT INTO semaphore_locks SELECT 'lock ' || g, '{}', 1, CASE WHEN g < 10 THEN 0 ELSE 9000000000000000 END \
         FROM generate_series(1, 20000) g; ANALYZE semaphore_locks",
    );
    let text = include_str!("../../../src/lock/sql/prune_postgres.sql").replace("$1", "60000000").replace("$2", "1000");
    // As every session of the pool has it.
    let plan_of_postgres = plan(&postgres, "SET enable_seqscan = off; EXPLAIN", &text);
    assert!(plan_of_postgres.contains("Index Cond: (expires_at <"), "{plan_of_postgres}");
    assert!(!plan_of_postgres.contains("Seq Scan"), "{plan_of_postgres}");
}

#[test]
fn a_database_that_hangs_is_an_error_within_its_time() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    let tables = SideTables::open(&url.parse().unwrap()).unwrap().step_timeout(Duration::from_millis(300));
    let store = SqlLockStore::new(tables);
    block_on(async {
        store.create_tables().await.unwrap();
        let lock = SemaphoreLock::new(std::sync::Arc::new(store));
        proxy.hold(Direction::ToServer);
        let asked = Instant::now();
        let refused =
            lock.with_semaphore_lock("62", LONG, DEFAULT_NAMESPACE, |_| async { panic!("it must not run") }).await;
        assert!(matches!(refused, Err(LockError::Store(LockStoreError::Unavailable { .. }))), "{refused:?}");
        assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
        proxy.release(Direction::ToServer);
        super::leases::opens_soon(&lock).await;
    });
}
