//! The store in memory: its bound, and that nothing stays behind.

use std::sync::Arc;
use std::time::Duration;

use casework::lock::{DEFAULT_NAMESPACE, LockError, LockOutcome, LockStoreError, MemoryLockStore, SemaphoreLock};

use super::fixture::{LONG, SOON};
use crate::support::wait::eventually_async;

#[tokio::test]
async fn a_full_store_is_an_error_and_drops_no_lease() {
    let store = Arc::new(MemoryLockStore::new(2));
    let lock = SemaphoreLock::new(store.clone());
    let nested = |key: &'static str| lock.with_semaphore_lock(key, LONG, DEFAULT_NAMESPACE, |_| async {});
    let outcome = lock.with_semaphore_lock("a", LONG, DEFAULT_NAMESPACE, |_| async {
        lock.with_semaphore_lock("b", LONG, DEFAULT_NAMESPACE, |_| async {
            let full = nested("c").await;
            assert!(matches!(full, Err(LockError::Store(LockStoreError::Unavailable { .. }))), "{full:?}");
            // Those that are held are still told apart from those that are not.
            assert_eq!(nested("a").await.unwrap(), LockOutcome::Skipped);
            assert_eq!(store.len(), 2);
        })
        .await
        .unwrap()
    });
    assert_eq!(outcome.await.unwrap(), LockOutcome::Locked(LockOutcome::Locked(())));
    assert!(store.is_empty(), "{} leases stay behind", store.len());
}

#[tokio::test]
async fn leases_that_ran_out_make_room() {
    use casework::lock::{LeaseTtl, LockName, LockStore, Owner};
    let store = MemoryLockStore::new(100);
    let take = async |key: usize, ttl: Duration| {
        let name = LockName::new("memory", &key.to_string()).unwrap();
        store.acquire(&name, Owner::random(), LeaseTtl::new(ttl).unwrap(), std::num::NonZeroU32::MIN).await
    };
    for key in 0..100 {
        let ttl = if key % 2 == 0 { Duration::from_millis(1) } else { LONG };
        // Room was made meanwhile for those that are short.
        take(key, ttl).await.unwrap();
    }
    eventually_async(SOON, "half of them run out", async || {
        take(1, LONG).await.unwrap();
        store.len() == 50
    })
    .await;
}
