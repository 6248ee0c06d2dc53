//! Of any number of equal requests at once, one reaches the service: 64 from a barrier, two hundred times, on each store.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::post;
use crate::support::database::{TestDatabase, block_on};
use crate::support::http::HttpClient;
use crate::support::redis::RedisServer;
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::upstream::Upstream;

const CALLERS: usize = 64;
const ROUNDS: u64 = 200;

#[test]
fn redis_with_two_guards() {
    let redis = RedisServer::start();
    check(&redis.url(), 2);
}

#[test]
fn sqlite_with_two_guards() {
    check(TestDatabase::sqlite().url(), 2);
}

#[test]
fn postgres_with_two_guards() {
    check(TestDatabase::postgres().url(), 2);
}

#[test]
fn memory_with_one_guard_and_four_workers() {
    check("memory", 1);
}

/// Guards side by side on one store, in front of one service.
#[track_caller]
fn check(store: &str, guards: usize) {
    let upstream = Upstream::start();
    let options = ServerOptions::guard(&upstream.url(), store).arguments(["--workers", "4"]);
    let guards: Vec<ServerProcess> = (0..guards).map(|_| options.clone().start()).collect();
    // A connection of its own for each caller, and every other one to the other guard.
    let callers: Vec<_> = (0..CALLERS).map(|i| HttpClient::new(guards[i % guards.len()].url())).collect();
    block_on(async {
        for round in 1..=ROUNDS {
            let barrier = Arc::new(Barrier::new(CALLERS));
            let answers = callers.iter().map(|client| {
                let (client, barrier) = (client.clone(), barrier.clone());
                tokio::spawn(async move {
                    barrier.wait().await;
                    post(&client, "/slow/5", &format!("round-{round}"), "{}").await
                })
            });
            let mut first = Vec::new();
            let mut replays = Vec::new();
            for answer in answers.collect::<Vec<_>>() {
                let answer = answer.await.unwrap();
                match (answer.status, answer.is_replay()) {
                    (201, false) => first.push(answer.body),
                    (201, true) => replays.push(answer.body),
                    (202, false) => assert_eq!(answer.problem_code().as_deref(), Some("idempotency-in-flight")),
                    _ => panic!("round {round}: {answer:?}"),
                }
            }
            assert_eq!(first.len(), 1, "round {round}: {first:?}");
            assert!(replays.iter().all(|body| *body == first[0]), "round {round}: a replay differs");
            // The service says which run it was.
            assert_eq!(first[0], format!("{{\"run\": {round}}}"), "round {round}");
        }
    });
    assert_eq!(upstream.runs("/slow/5"), ROUNDS);
}
