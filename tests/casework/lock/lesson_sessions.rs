//! The example `lesson_sessions`, as a process: 64 equal requests at once make one session and one study time, with the lock
//! and without it; what the lock changes is how often the constraint had to speak.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::fixture::SOON;
use crate::support::database::TestDatabase;
use crate::support::example::ExampleProcess;
use crate::support::http::{Answer, HttpClient};
use crate::support::redis::RedisServer;
use crate::support::wait::{eventually, eventually_async};

/// How many requests come at once.
const REQUESTS: usize = 64;
/// How many sessions are created so, one after another.
const ROUNDS: usize = 10;

/// The service, until it is dropped.
struct Service(ExampleProcess);

impl Service {
    #[track_caller]
    fn start(database: &TestDatabase, lock: &str) -> Self {
        let arguments = ["--workers", "4", "--database", database.url(), "--lock", lock];
        Self(ExampleProcess::start("lesson_sessions", &arguments))
    }

    fn log(&self) -> String {
        self.0.log()
    }

    fn client(&self) -> HttpClient {
        HttpClient::new(self.0.url())
    }

    async fn counters(&self) -> Value {
        self.client().get("/counters", None).await.expect_status(200).json()
    }
}

fn session(uuid: &str) -> Value {
    json!({"uuid": uuid, "course": "Welding, part 2", "minutes": 45})
}

async fn post(client: &HttpClient, body: impl ToString) -> Answer {
    let headers = [("content-type", "application/json".to_owned())];
    client.send(Method::POST, "/lesson_sessions", &headers, body.to_string()).await
}

/// Sends the same from a barrier over as many connections; how often each status came.
async fn post_at_once(clients: &[HttpClient], body: &Value) -> Vec<u16> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let posts: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, body, barrier) = (client.clone(), body.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                post(&client, body).await.status
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for post in posts {
        statuses.push(post.await.unwrap());
    }
    statuses
}

/// Rounds of equal requests; what the service has counted.
async fn create_at_once(database: &TestDatabase, lock: &str) -> Value {
    let service = Service::start(database, lock);
    let clients: Vec<_> = (0..REQUESTS).map(|_| service.client()).collect();
    for client in &clients {
        // The connection is there before the barrier.
        client.get("/counters", None).await.expect_status(200);
    }
    for round in 0..ROUNDS {
        let body = session(&uuid::Uuid::new_v4().to_string());
        let statuses = post_at_once(&clients, &body).await;
        let count = |status| statuses.iter().filter(|got| **got == status).count();
        let (created, there, skipped) = (count(201), count(204), count(202));
        assert_eq!((created, created + there + skipped), (1, REQUESTS), "round {round}: {statuses:?}");
        assert!(lock != "none" || skipped == 0, "nobody is skipped without a lock");
        // Who was skipped asks again, and is told that it is done.
        assert_eq!(post(&clients[0], &body).await.status, 204);
    }
    assert_eq!(database.count("lesson_sessions"), ROUNDS as u64, "one session a round");
    assert_eq!(database.count("study_times"), ROUNDS as u64, "one study time a round");
    let log = service.log();
    let counters = service.counters().await;
    let number = |name: &str| counters[name].as_u64().unwrap();
    assert_eq!(number("created"), ROUNDS as u64);
    assert_eq!(number("created") + number("already_there") + number("skipped"), ((REQUESTS + 1) * ROUNDS) as u64);
    if lock == "none" {
        assert_eq!(counters["lock"], Value::Null);
    } else {
        assert_eq!(counters["lock"]["skipped"], counters["skipped"]);
        assert_eq!(counters["lock"]["violations"], counters["unique_violations"]);
        let lines =
            log.lines().filter(|line| line.contains("INFO") && line.contains("held elsewhere: skipped")).count();
        assert_eq!(lines as u64, number("skipped"), "each skip is a line");
        assert!(!log.contains("WARN"), "{log}");
    }
    counters
}

on_both_databases! {
    async fn of_64_equal_requests_at_once_one_creates(database: &TestDatabase) {
        let redis = RedisServer::start();
        let mut violations_without = 0;
        for lock in ["none", "memory", "sql", &redis.url()] {
            if lock != "none" {
                database.sql("DELETE FROM study_times; DELETE FROM lesson_sessions");
            }
            let counters = create_at_once(database, lock).await;
            let violations = counters["unique_violations"].as_u64().unwrap();
            let name = lock.split(':').next().unwrap();
            println!(
                "{} requests at once, {ROUNDS} rounds, {}, lock {name}: {violations} unique violations, {} skipped, \
                 {ROUNDS} sessions, {ROUNDS} study times",
                REQUESTS, if database.is_postgres() { "PostgreSQL" } else { "SQLite" }, counters["skipped"]
            );
            if lock == "none" {
                violations_without = violations;
            } else {
                assert_eq!(violations, 0, "the lock keeps them away");
            }
        }
        // On SQLite one transaction waits for the other before it looks.
        assert_eq!(violations_without > 0, database.is_postgres(), "{violations_without} violations without the lock");
    }

    async fn what_is_no_session_is_refused_and_stores_nothing(database: &TestDatabase) {
        let service = Service::start(database, "memory");
        let client = service.client();
        let uuid = "0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01";
        for (body, pointers) in [
            (json!({"uuid": "62", "course": "Welding", "minutes": 45}), vec!["/uuid"]),
            (session(&uuid::Uuid::nil().to_string()), vec!["/uuid"]),
            (json!({"uuid": uuid, "course": " ", "minutes": 0}), vec!["/course", "/minutes"]),
            (json!({"uuid": uuid, "course": "nul \0", "minutes": 1441}), vec!["/course", "/minutes"]),
            (json!({"uuid": uuid, "course": "c".repeat(201), "minutes": 45}), vec!["/course"]),
            (json!({"uuid": uuid, "course": "Welding"}), vec![""]),
            (json!({"uuid": uuid, "course": "Welding", "minutes": 45, "user": 47}), vec![""]),
            (json!([uuid]), vec![""]),
        ] {
            let answer = post(&client, &body).await.expect_problem(422, "invalid-lesson-session").json();
            let found: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
            assert_eq!(found, pointers, "{body}");
        }
        post(&client, "{").await.expect_problem(400, "malformed-json");
        assert_eq!((database.count("lesson_sessions"), database.count("study_times")), (0, 0));
        assert_eq!(service.counters().await["invalid"], 9);

        // Two spellings of an id are one.
        assert_eq!(post(&client, session(uuid)).await.status, 201);
        assert_eq!(post(&client, session(&uuid.to_uppercase())).await.status, 204);
        assert_eq!(post(&client, session(&uuid.replace('-', ""))).await.status, 204);
        assert_eq!((database.count("lesson_sessions"), database.count("study_times")), (1, 1));
    }

    async fn without_the_store_of_the_lock_nothing_is_created(database: &TestDatabase) {
        let mut redis = RedisServer::start();
        let service = Service::start(database, &redis.url());
        let client = service.client();
        let body = session("0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c02");
        redis.kill_9();
        let answer = post(&client, &body).await.expect_problem(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!((database.count("lesson_sessions"), database.count("study_times")), (0, 0));
        redis.start_again();
        let again = || async { post(&client, &body).await.status == 201 };
        eventually_async(SOON, "the service creates it", again).await;
        assert_eq!((database.count("lesson_sessions"), database.count("study_times")), (1, 1));
    }
}

/// A foreign transaction puts the row there between the look and the INSERT, as a holder whose lease was lost would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violation_behind_the_lock_is_counted_and_a_warning() {
    let database = TestDatabase::postgres();
    let service = Service::start(&database, "sql");
    let uuid = "0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c03";
    let mut other = database.session();
    other.run("BEGIN").unwrap();
    other.run(&format!("INSERT INTO lesson_sessions VALUES ('{uuid}', 'Welding')")).unwrap();

    let client = service.client();
    let creating = tokio::spawn(async move { post(&client, session(uuid)).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(SOON, "the INSERT waits for the foreign one", || database.sql_value(waits) == "1");
    // Whoever comes meanwhile is skipped, and told so.
    let skipped = post(&service.client(), session(uuid)).await.expect_status(202);
    assert_eq!((skipped.header("retry-after"), skipped.body.len()), (Some("1"), 0));
    other.run("COMMIT").unwrap();

    creating.await.unwrap().expect_status(204);
    let counters = service.counters().await;
    assert_eq!(counters["unique_violations"], 1);
    assert_eq!(counters["lock"], json!({"locked": 1, "skipped": 1, "lost": 0, "violations": 1}));
    assert_eq!(
        (database.count("lesson_sessions"), database.count("study_times")),
        (1, 0),
        "nothing of ours was written"
    );
    let warning =
        |log: &str| log.lines().any(|line| line.contains("WARN") && line.contains("violated behind the lock"));
    eventually(Duration::from_secs(5), "the warning is in the log", || warning(&service.log()));
    assert!(!service.log().contains(uuid), "no key is logged");
}
