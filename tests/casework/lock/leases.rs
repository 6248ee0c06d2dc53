//! The lock while its work goes on: one runs and the others are told so, the lease lives as long as the work, and a lease
//! that is lost all the same is lost for its old holder alone.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use casework::lock::{DEFAULT_NAMESPACE, Held, LockCounts, LockError, LockOutcome, MemoryLockStore, SemaphoreLock};
use tokio::sync::{Barrier, oneshot};

use super::fixture::{LONG, SOON, Troubled};
use crate::support::wait::eventually_async;

const KEY: &str = "lesson_session:62";

/// Runs nothing behind the lock; whether it was got.
async fn try_lock(lock: &SemaphoreLock, ttl: Duration) -> bool {
    let outcome = lock.with_semaphore_lock(KEY, ttl, DEFAULT_NAMESPACE, |_| async {}).await.unwrap();
    outcome == LockOutcome::Locked(())
}

/// Work that says when it has begun, with what it was told, and ends when it is told to.
struct Work {
    held: Held,
    finish: oneshot::Sender<()>,
    outcome: tokio::task::JoinHandle<LockOutcome<u64>>,
}

impl Work {
    /// Begins as soon as the lock is free.
    async fn begin(lock: &SemaphoreLock, ttl: Duration) -> Self {
        let started = Instant::now();
        loop {
            let (begun, has_begun) = oneshot::channel();
            let (finish, finished) = oneshot::channel();
            let lock = lock.clone();
            let outcome = tokio::spawn(async move {
                let work = |held: Held| async move {
                    let _ = begun.send(held.clone());
                    let _ = finished.await;
                    held.fencing_number()
                };
                lock.with_semaphore_lock(KEY, ttl, DEFAULT_NAMESPACE, work).await.unwrap()
            });
            match has_begun.await {
                Ok(held) => return Self { held, finish, outcome },
                Err(_) => assert!(started.elapsed() < SOON, "the lock did not get free"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets it end; the number that it returned.
    async fn end(self) -> u64 {
        let _ = self.finish.send(());
        match self.outcome.await.unwrap() {
            LockOutcome::Locked(number) => number,
            LockOutcome::Skipped => panic!("it ran, and is called skipped"),
        }
    }
}

on_every_store! {
    /// A release test that waits for the lease to run out would prove no release: this one does not wait.
    async fn the_lock_opens_when_its_work_returns(home: &StoreHome) {
        let lock = home.lock().await;
        let other = home.lock().await;
        for _ in 0..3 {
            assert!(try_lock(&lock, LONG).await);
            assert!(try_lock(&other, LONG).await);
        }
        assert_eq!(lock.counts(), LockCounts { locked: 3, ..LockCounts::default() });
    }

    async fn skipped_is_told_apart_and_nothing_runs(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        let work = Work::begin(&lock, LONG).await;
        let ran = AtomicUsize::new(0);
        let skipped = other.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, |_| async {
            ran.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(skipped.await.unwrap(), LockOutcome::Skipped);
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        assert_eq!(other.counts(), LockCounts { skipped: 1, ..LockCounts::default() });
        // Another namespace knows nothing of it.
        let elsewhere = other.with_semaphore_lock(KEY, LONG, "elsewhere", |_| async {}).await.unwrap();
        assert_eq!(elsewhere, LockOutcome::Locked(()));
        work.end().await;
    }

    /// The work takes three times as long as the lease.
    async fn the_lease_is_renewed_while_the_work_goes_on(home: &StoreHome) {
        let (lock, other) = (home.lock().await, home.lock().await);
        let ttl = Duration::from_secs(1);
        let work = Work::begin(&lock, ttl).await;
        let started = Instant::now();
        while started.elapsed() < 3 * ttl {
            assert!(!try_lock(&other, ttl).await, "two had the lock after {:?}", started.elapsed());
            assert!(work.held.is_held());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let held = work.held.clone();
        work.end().await;
        assert!(!held.is_held(), "the work has ended");
        held.lost().await;
        assert!(try_lock(&other, ttl).await);
        assert_eq!(lock.counts().lost, 0);
    }

    /// PITFALLS: a lease of 200 ms that is not renewed, A at work for 600 ms, B from about 300 ms on, C at the end.
    async fn an_owner_whose_lease_was_lost_leaves_the_next_one_alone(home: &StoreHome) {
        let store = Troubled::new(home.open().await);
        store.no_renewals.store(true, Ordering::SeqCst);
        let lock_a = SemaphoreLock::new(store.clone());
        let (lock_b, lock_c) = (home.lock().await, home.lock().await);

        let a = Work::begin(&lock_a, Duration::from_millis(200)).await;
        let b = Work::begin(&lock_b, Duration::from_secs(2)).await;
        tokio::time::timeout(SOON, a.held.lost()).await.expect("A is told that the lease is lost");
        assert!(!a.held.is_held() && b.held.is_held());
        assert!(b.held.fencing_number() > a.held.fencing_number());

        // A ends while B works: its release must open nothing, its value is returned.
        a.end().await;
        assert!(!try_lock(&lock_c, LONG).await, "A's release opened B's lock");
        assert!(b.held.is_held());
        assert_eq!(lock_a.counts(), LockCounts { locked: 1, lost: 1, ..LockCounts::default() });

        b.end().await;
        assert!(try_lock(&lock_c, LONG).await);
        assert_eq!((lock_b.counts().locked, lock_b.counts().lost), (1, 0));
    }

    /// 64 tasks over two locks, three permits: never more than three at work, and the counts add up.
    async fn permits_bound_how_many_work_at_once(home: &StoreHome) {
        const PERMITS: u32 = 3;
        const ROUNDS: usize = 5;
        let permits = NonZeroU32::new(PERMITS).unwrap();
        let locks = [home.lock().await.permits(permits), home.lock().await.permits(permits)];
        let barrier = Arc::new(Barrier::new(64));
        let (at_work, most, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..64).map(|task| {
            let (lock, barrier) = (locks[task % 2].clone(), barrier.clone());
            let (at_work, most, done) = (at_work.clone(), most.clone(), done.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                for _ in 0..ROUNDS {
                    let work = |_| async {
                        most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        at_work.fetch_sub(1, Ordering::SeqCst);
                    };
                    let outcome = lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await.unwrap();
                    done.fetch_add(usize::from(outcome == LockOutcome::Locked(())), Ordering::SeqCst);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let most = most.load(Ordering::SeqCst);
        assert!((2..=PERMITS as usize).contains(&most), "{most} at work at once");
        let counts = locks.map(|lock| lock.counts());
        let (locked, skipped) = (counts[0].locked + counts[1].locked, counts[0].skipped + counts[1].skipped);
        assert_eq!((locked as usize, (locked + skipped) as usize), (done.load(Ordering::SeqCst), 64 * ROUNDS));
        assert_eq!((counts[0].lost, counts[1].lost), (0, 0));
    }
}

/// The lock keeps its leases on a thread of its own.
#[test]
fn work_that_blocks_its_thread_keeps_its_lease() {
    let store: Arc<MemoryLockStore> = Arc::default();
    let (lock, other) = (SemaphoreLock::new(store.clone()), SemaphoreLock::new(store));
    let ttl = Duration::from_secs(1);
    let one_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    one_thread().block_on(async {
        let work = |held: Held| async move {
            std::thread::sleep(5 * ttl / 2);
            assert!(held.is_held());
            let elsewhere = std::thread::spawn(move || one_thread().block_on(try_lock(&other, ttl)));
            assert!(!elsewhere.join().unwrap());
        };
        let outcome = lock.with_semaphore_lock(KEY, ttl, DEFAULT_NAMESPACE, work).await.unwrap();
        assert_eq!(outcome, LockOutcome::Locked(()));
    });
    assert_eq!(lock.counts().lost, 0);
}

#[tokio::test]
async fn a_lease_of_nothing_is_refused() {
    let lock = SemaphoreLock::new(Arc::new(MemoryLockStore::default()));
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        let work = |_| async { panic!("it must not run") };
        let refused = lock.with_semaphore_lock(KEY, ttl, DEFAULT_NAMESPACE, work).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::InvalidTtl(_)) && error.to_string().contains("at least 1 ms"), "{error}");
    }
    let refused = lock.with_semaphore_lock(KEY, LONG, "name\nspace", |_| async {}).await;
    assert!(matches!(refused, Err(LockError::InvalidNamespace)));
    assert_eq!(lock.counts(), LockCounts::default());
    assert!(try_lock(&lock, Duration::MAX).await, "a very long one is fine");
}

#[tokio::test]
async fn a_violation_behind_the_lock_is_counted() {
    let lock = SemaphoreLock::new(Arc::new(MemoryLockStore::default()));
    lock.clone().violation(KEY);
    assert_eq!(lock.counts(), LockCounts { violations: 1, ..LockCounts::default() });
}

/// A skip is worth a line, a violation a warning; neither shows the key, which may be a secret.
#[test]
fn what_is_logged_has_the_namespace_and_no_key() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || written.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, || {
        let lock = SemaphoreLock::new(Arc::new(MemoryLockStore::default()));
        let inner = lock.clone();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let work = |_| async move { try_lock(&inner, LONG).await };
            let outcome = lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await.unwrap();
            assert_eq!(outcome, LockOutcome::Locked(false));
        });
        lock.violation(KEY);
    });
    let log = log.text();
    let lines: Vec<_> = log.lines().collect();
    // `printf %s lesson_session:62 | sha256sum`
    let key = "lock.key=\"8fdca5bc06bf\"";
    let [skip, violation] = lines[..] else { panic!("two lines: {log}") };
    assert!(
        skip.contains("INFO") && skip.contains("skipped") && skip.contains("lock.namespace=\"semaphore_lock\""),
        "{log}"
    );
    assert!(violation.contains("WARN") && violation.contains("unique constraint"), "{log}");
    assert!(skip.contains(key) && violation.contains(key), "{log}");
    assert!(!log.contains("lesson_session"), "{log}");
}

/// Where a test's log goes.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Waiting is for the tests below and above: a lock that opens.
pub async fn opens_soon(lock: &SemaphoreLock) {
    eventually_async(SOON, "the lock opens", || try_lock(lock, LONG)).await;
}
