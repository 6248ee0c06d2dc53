//! The lock on a real Redis: down, stopped, killed at work, emptied; and no key that stays for ever.

use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::lock::{DEFAULT_NAMESPACE, Held, LockError, LockOutcome, LockStoreError, RedisLockStore, SemaphoreLock};
use tokio::sync::oneshot;

use super::fixture::{LONG, SOON};
use crate::support::redis::{Persistence, RedisServer};
use crate::support::wait::eventually_async;

const KEY: &str = "lesson_session:62";
/// Steps end after 2 s; the rest is for a busy machine.
const QUICKLY: Duration = Duration::from_secs(6);

fn lock(server: &RedisServer) -> SemaphoreLock {
    SemaphoreLock::new(Arc::new(RedisLockStore::open(&server.url()).unwrap()))
}

async fn number(lock: &SemaphoreLock) -> Result<Option<u64>, LockError> {
    let work = |held: Held| async move { held.fencing_number() };
    Ok(match lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await? {
        LockOutcome::Locked(number) => Some(number),
        LockOutcome::Skipped => None,
    })
}

/// Fails unless the lock says quickly that its store is not there.
async fn is_unavailable(lock: &SemaphoreLock) {
    let started = Instant::now();
    let work = |_| async { panic!("it must not run") };
    let refused = lock.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await;
    assert!(matches!(refused, Err(LockError::Store(LockStoreError::Unavailable { .. }))), "{refused:?}");
    assert!(started.elapsed() < QUICKLY, "it took {:?}", started.elapsed());
}

/// Work that goes on until its lease is lost.
async fn work_until_lost(lock: SemaphoreLock, ttl: Duration, begun: oneshot::Sender<u64>) -> LockOutcome<bool> {
    let work = |held: Held| async move {
        begun.send(held.fencing_number()).unwrap();
        held.lost().await;
        held.is_held()
    };
    lock.with_semaphore_lock(KEY, ttl, DEFAULT_NAMESPACE, work).await.unwrap()
}

#[tokio::test]
async fn redis_down_is_an_error_quickly_and_the_work_does_not_run() {
    let mut server = RedisServer::start();
    let lock = lock(&server);
    let before = number(&lock).await.unwrap().unwrap();
    server.kill_9();
    for _ in 0..3 {
        is_unavailable(&lock).await;
    }
    assert_eq!((lock.counts().locked, lock.counts().skipped), (1, 0));
    server.start_again();
    // At once: the broken connection is this store's business.
    let after = number(&lock).await.unwrap().expect("nothing was kept, so it is free");
    assert!(after > before, "{after} after {before}");
}

#[tokio::test]
async fn redis_that_does_not_answer_is_an_error_quickly() {
    let server = RedisServer::start();
    let lock = lock(&server);
    number(&lock).await.unwrap().unwrap();
    server.pause();
    is_unavailable(&lock).await;
    server.resume();
    // What was sent meanwhile has been carried out, and was given back.
    eventually_async(SOON, "the lock is free", async || matches!(number(&lock).await, Ok(Some(_)))).await;
}

#[tokio::test]
async fn work_is_told_when_redis_is_killed_or_emptied() {
    let mut server = RedisServer::start();
    let holder = lock(&server);
    let ttl = Duration::from_secs(1);
    for kill in [false, true] {
        let (begun, has_begun) = oneshot::channel();
        let task = tokio::spawn(work_until_lost(holder.clone(), ttl, begun));
        let before = has_begun.await.unwrap();
        if kill {
            server.kill_9()
        } else {
            server.flush()
        }
        let outcome = tokio::time::timeout(SOON, task).await.expect("the work is told").unwrap();
        assert_eq!(outcome, LockOutcome::Locked(false));
        if kill {
            server.start_again();
        }
        let after = number(&lock(&server)).await.unwrap().expect("nobody holds it");
        assert!(after > before, "{after} after {before}");
    }
    assert_eq!((holder.counts().locked, holder.counts().lost), (2, 2));
}

/// With a log that is synced at each step, a lock outlives the server.
#[tokio::test]
async fn a_lock_outlives_a_redis_that_keeps_its_log() {
    let mut server = RedisServer::start_with(Persistence::Always);
    let (holder, other) = (lock(&server), lock(&server));
    let (restarted, elsewhere) = (&mut server, &other);
    let work = |held: Held| async move {
        restarted.kill_9();
        restarted.start_again();
        assert_eq!(number(elsewhere).await.unwrap(), None, "it is held over the restart");
        assert!(held.is_held());
    };
    let outcome = holder.with_semaphore_lock(KEY, LONG, DEFAULT_NAMESPACE, work).await.unwrap();
    assert_eq!(outcome, LockOutcome::Locked(()));
    assert!(number(&other).await.unwrap().is_some(), "and given back after it");
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = RedisServer::start();
    let lock = lock(&server);
    for _ in 0..2 {
        assert!(number(&lock).await.unwrap().is_some());
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK\r\n");
    }
}

/// PITFALLS: `PTTL` is never -1, whatever is going on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_goes_by_itself_at_all_times() {
    let server = RedisServer::start();
    let lock = lock(&server).permits(std::num::NonZeroU32::new(2).unwrap());
    let ttl = Duration::from_millis(300);
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    // Some are short, some are renewed, some let their lease run out, many are skipped.
                    let ttl = if round % 5 == 0 { Duration::from_millis(1) } else { ttl };
                    let work = |_| tokio::time::sleep(Duration::from_millis(if task % 4 == 0 { 150 } else { 5 }));
                    let _ =
                        lock.with_semaphore_lock(&format!("{}", task % 5), ttl, DEFAULT_NAMESPACE, work).await.unwrap();
                }
            })
        })
        .collect();
    let mut looks = 0;
    let mut seen = 0;
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        for (key, ttl) in server.keys_with_ttl() {
            // A lock's number stays for a minute, its owners for their lease.
            assert!((0..=61_000).contains(&ttl), "{key} goes in {ttl} ms");
            assert!(key.starts_with("casework:lock:{14:semaphore_lock:"), "{key}");
            seen += 1;
        }
        looks += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(looks > 20 && seen > 100, "{looks} looks, {seen} keys");
    for task in tasks {
        task.await.unwrap();
    }
    let counts = lock.counts();
    assert!(counts.locked > 0 && counts.skipped > 0 && counts.locked + counts.skipped == 320, "{counts:?}");
    // A lock that nobody holds has a number left, and that for a minute at most.
    let keys = server.keys_with_ttl();
    assert!(keys.len() <= 5 && keys.iter().all(|(key, _)| key.ends_with(":number")), "{keys:?}");
}

/// What belongs to somebody else is neither read nor changed.
#[tokio::test]
async fn a_key_of_another_kind_is_refused() {
    let server = RedisServer::start();
    let lock = lock(&server);
    number(&lock).await.unwrap().unwrap();
    let [(number_key, _)] = &server.keys_with_ttl()[..] else { panic!("one key") };
    let owners_key = number_key.replace(":number", ":owners");
    assert_eq!(server.command(&["SET", &owners_key, "foreign"]), "+OK\r\n");
    let refused = number(&lock).await;
    assert!(matches!(refused, Err(LockError::Store(LockStoreError::Refused { .. }))), "{refused:?}");
    assert_eq!(server.command(&["GET", &owners_key]), "$7\r\nforeign\r\n");
}
