//! What happens when a store is away, full or slow, and when a handler stores its answer in its own transaction.

use std::sync::Arc;
use std::time::Duration;

use casework::idempotency::{
    Claim, ClaimToken, Holding, IdempotencyOptions, IdempotencyStore, MemoryBounds, MemoryStore, RedisStore,
    StoreFault, WhenUnavailable,
};

use super::promises::{LONG, answer, fingerprint, fresh_identity};
use super::service::{Service, post};
use super::stores::{on_every_store, redis};
use crate::support::database::block_on;
use crate::support::redis::{Persistence, RedisServer};
use crate::support::wait::eventually_async;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn without_redis_nothing_runs_unless_that_is_allowed() {
    let mut server = RedisServer::start();
    let refusing = Service::start(Arc::new(RedisStore::open(&server.url()).unwrap()), IdempotencyOptions::default());
    let open =
        IdempotencyOptions { when_unavailable: WhenUnavailable::RunUnprotected, ..IdempotencyOptions::default() };
    let running = Service::start(Arc::new(RedisStore::open(&server.url()).unwrap()), open);
    block_on(async {
        assert_eq!(post(&refusing, "/created", "a", "{}").await.status, 201);
        server.kill_9();
        for key in ["a", "b"] {
            let got = post(&refusing, "/created", key, "{}").await;
            let problem = got.expect_problem(503, "unavailable");
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
            assert_eq!(got.header("retry-after"), Some("1"));
        }
        assert_eq!(refusing.runs.of("/created"), 1);
        assert_eq!(post(&running, "/created", "b", "{}").await.status, 201);
        server.start_again();
        eventually_async(DEADLINE, "the service to find Redis again", || async {
            post(&refusing, "/created", "b", "{}").await.status == 201
        })
        .await;
    });
}

#[test]
fn redis_that_dies_while_a_request_runs_costs_the_caller_nothing() {
    let mut server = RedisServer::start_with(Persistence::Always);
    let service = Service::start(Arc::new(RedisStore::open(&server.url()).unwrap()), IdempotencyOptions::default());
    block_on(async {
        let (first, ()) = tokio::join!(post(&service, "/slow/500", "k", "{}"), async {
            eventually_async(DEADLINE, "the request to run", || async { service.runs.of("/slow/500") == 1 }).await;
            server.kill_9();
        });
        assert_eq!((first.status, first.is_replay()), (201, false));
        server.start_again();
        // The claim came back with Redis; the answer is stored as soon as it can be.
        eventually_async(DEADLINE, "the answer to be stored after all", || async {
            let again = post(&service, "/slow/500", "k", "{}").await;
            assert!(matches!(again.status, 201 | 202 | 503), "{again:?}");
            again.is_replay()
        })
        .await;
    });
    assert_eq!(service.runs.of("/slow/500"), 1);
}

#[test]
fn redis_that_forgets_in_the_middle_is_told_again() {
    let server = RedisServer::start();
    let options = IdempotencyOptions { claim_lease: Duration::from_millis(600), ..IdempotencyOptions::default() };
    let service = Service::start(Arc::new(RedisStore::open(&server.url()).unwrap()), options);
    block_on(async {
        let (first, ()) = tokio::join!(post(&service, "/slow/1500", "k", "{}"), async {
            eventually_async(DEADLINE, "the request to run", || async { service.runs.of("/slow/1500") == 1 }).await;
            server.flush();
            eventually_async(DEADLINE, "the claim to be renewed", || async { server.command(&["DBSIZE"]) == ":1\r\n" })
                .await;
            assert_eq!(post(&service, "/slow/1500", "k", "{}").await.status, 202);
        });
        assert_eq!(first.status, 201);
        assert!(post(&service, "/slow/1500", "k", "{}").await.is_replay());
    });
    assert_eq!(service.runs.of("/slow/1500"), 1);
}

#[test]
fn every_key_in_redis_has_an_end() {
    let server = RedisServer::start();
    let stores = redis(&server);
    block_on(async {
        let (store, identity, token) = (stores.first, fresh_identity(), ClaimToken::random());
        let has_an_end = |during: &str| {
            let script = "return redis.call('PTTL', redis.call('KEYS', '*')[1])";
            let answer = server.command(&["EVAL", script, "0"]);
            let left: i64 = answer.trim().trim_start_matches(':').parse().unwrap();
            assert!(left > 0, "{during}: PTTL {left}");
        };
        assert_eq!(store.claim(&identity, &fingerprint("{}"), token, LONG).await, Ok(Claim::Claimed));
        has_an_end("claimed");
        assert_eq!(store.renew(&identity, &fingerprint("{}"), token, LONG).await, Ok(Holding::Held));
        has_an_end("renewed");
        let completed = store.complete(&identity, &fingerprint("{}"), token, &answer("1"), LONG).await;
        assert_eq!(completed, Ok(Holding::Held));
        has_an_end("completed");
    });
}

#[test]
fn a_lease_of_nothing_is_refused_at_start() {
    use casework::idempotency::{Idempotency, Principal};
    for options in [
        IdempotencyOptions { claim_lease: Duration::ZERO, ..IdempotencyOptions::default() },
        IdempotencyOptions { response_lifetime: Duration::ZERO, ..IdempotencyOptions::default() },
        IdempotencyOptions { mismatch_status: 200, ..IdempotencyOptions::default() },
        IdempotencyOptions { in_flight_status: 500, ..IdempotencyOptions::default() },
    ] {
        let store = Arc::new(MemoryStore::new(MemoryBounds::default()));
        assert!(Idempotency::new(store).principal(|_| Some(Principal::everybody()), options).is_err());
    }
}

#[test]
fn a_full_memory_store_refuses_and_drops_nothing() {
    let bounds = MemoryBounds { records_max: 100, ..MemoryBounds::default() };
    let store = Arc::new(MemoryStore::new(bounds));
    let service = Service::start(store.clone(), IdempotencyOptions::default());
    block_on(async {
        for i in 0..100 {
            assert_eq!(post(&service, "/created", &format!("k{i}"), "{}").await.status, 201);
        }
        let got = post(&service, "/created", "one-more", "{}").await;
        got.expect_problem(503, "overloaded");
        for i in 0..100 {
            assert!(post(&service, "/created", &format!("k{i}"), "{}").await.is_replay(), "k{i} was dropped");
        }
    });
    assert_eq!(service.runs.of("/created"), 100);
    let small = MemoryStore::new(MemoryBounds { bytes_max: 1_000, ..MemoryBounds::default() });
    block_on(async {
        let mut full = false;
        for _ in 0..10 {
            let claimed = small.claim(&fresh_identity(), &fingerprint("{}"), ClaimToken::random(), LONG).await;
            full = full || matches!(claimed, Err(StoreFault::Full { .. }));
        }
        assert!(full, "ten claims fit a thousand bytes");
    });
}

#[test]
fn what_has_expired_leaves_every_store() {
    on_every_store(|stores| {
        block_on(async {
            let store = &stores.first;
            for _ in 0..200 {
                let (identity, token) = (fresh_identity(), ClaimToken::random());
                let lifetime = Duration::from_millis(50);
                store.claim(&identity, &fingerprint("{}"), token, LONG).await.map_err(|fault| fault.to_string())?;
                let completed = store.complete(&identity, &fingerprint("{}"), token, &answer("1"), lifetime).await;
                completed.map_err(|fault| fault.to_string())?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let mut swept = 0;
            loop {
                match store.sweep().await.map_err(|fault| fault.to_string())? {
                    0 => break,
                    some => swept += some,
                }
            }
            // Redis does it by itself; the memory store did part of it while claiming.
            if swept > 200 { Err(format!("{swept} of 200 were swept")) } else { Ok(()) }
        })
    });
    let store = MemoryStore::new(MemoryBounds::default());
    block_on(async {
        for _ in 0..1_000 {
            let (identity, lease) = (fresh_identity(), Duration::from_millis(20));
            let claimed = store.claim(&identity, &fingerprint("{}"), ClaimToken::random(), lease).await;
            assert_eq!(claimed, Ok(Claim::Claimed));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        store.sweep().await.unwrap();
    });
    assert_eq!(store.size(), (0, 0));
}
