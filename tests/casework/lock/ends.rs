//! All ends that work behind a lock can come to: a panic, a dropped future, a runtime that goes, a store that is stuck. With a
//! lease of 60 s, a lock that opens soon was given back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use casework::lock::{DEFAULT_NAMESPACE, LockOutcome, MemoryLockStore, SemaphoreLock};
use futures_util::FutureExt as _;

use super::fixture::{LONG, SOON, Troubled};
use super::leases::opens_soon;

const KEY: &str = "lesson_session:62";

/// Work that never ends by itself.
async fn work_for_ever(lock: SemaphoreLock, begun: tokio::sync::mpsc::Sender<()>) {
    let work = |_| async move {
        begun.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let outcome = lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await.unwrap();
    panic!("it ended: {outcome:?}");
}

on_every_store! {
    async fn a_panic_gives_the_lock_back(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        let work = |_| async { panic!("a panic behind the lock, which is what this test is about") };
        let ended = lock.with_semaphore_lock::<(), _, _>(KEY, LONG, DEFAULT_NAMESPACE, work);
        assert!(AssertUnwindSafe(ended).catch_unwind().await.is_err());
        opens_soon(&other).await;
    }

    async fn a_dropped_future_gives_the_lock_back(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
        let task = tokio::spawn(work_for_ever(lock.clone(), begun));
        has_begun.recv().await.unwrap();
        task.abort();
        opens_soon(&other).await;
        assert_eq!((lock.counts().locked, lock.counts().lost), (1, 0));
    }

    /// The step that takes the lock may be on its way when its caller goes.
    async fn a_future_dropped_while_it_takes_the_lock_gives_it_back(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        for polls in 0..30_u64 {
            let work = |_| std::future::pending::<()>();
            let taking = lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work);
            let wait = Duration::from_micros(polls * 50);
            // Skipped: the one before has not been given back yet.
            assert!(!matches!(tokio::time::timeout(wait, taking).await, Ok(Ok(LockOutcome::Locked(())))));
        }
        // The lock's last handle goes as well: what is on its way still ends.
        drop(lock);
        opens_soon(&other).await;
    }

    /// As when a worker thread of a server ends: nobody is left there to give anything back.
    async fn a_runtime_that_goes_gives_the_lock_back(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(work_for_ever(lock, begun));
        has_begun.recv().await.unwrap();
        runtime.shutdown_background();
        opens_soon(&other).await;
    }
}

/// Neither dropping a future nor returning from the work waits for a store that is stuck.
#[tokio::test]
async fn a_store_that_is_stuck_holds_nobody_up() {
    let store = Troubled::new(Arc::new(MemoryLockStore::default()));
    store.stuck_releases.store(true, Ordering::SeqCst);
    let lock = SemaphoreLock::new(store.clone());

    let started = Instant::now();
    let outcome = lock.with_semaphore_lock("returned", LONG, DEFAULT_NAMESPACE, |_| async { 7 }).await.unwrap();
    assert_eq!(outcome, LockOutcome::Locked(7));
    assert!(started.elapsed() < SOON, "returning took {:?}", started.elapsed());

    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let mut work = Box::pin(work_for_ever(lock.clone(), begun));
    tokio::select! {
        () = &mut work => unreachable!("it has no end"),
        _ = has_begun.recv() => {}
    }
    let started = Instant::now();
    drop(work);
    assert!(started.elapsed() < Duration::from_millis(500), "dropping took {:?}", started.elapsed());
}

/// A lock goes from thread to thread, and so does a call of it.
#[test]
fn a_lock_and_its_calls_can_be_sent() {
    fn is_send_and_sync<T: Send + Sync + Clone + 'static>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}
    let lock = SemaphoreLock::new(Arc::new(MemoryLockStore::default()));
    is_send_and_sync(&lock);
    is_send(&lock.with_semaphore_lock("k", LONG, DEFAULT_NAMESPACE, |held| async move { held.lost().await }));
}
