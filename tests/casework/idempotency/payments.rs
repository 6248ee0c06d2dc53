//! The example `payments`, as a process: a payment is charged once, on every store; a large answer passes through it.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::service::client;
use crate::support::database::{TestDatabase, block_on};
use crate::support::example::ExampleProcess;
use crate::support::http::{Answer, HttpClient};
use crate::support::process::send_signal;
use crate::support::redis::RedisServer;

const KEY: &str = "0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01";
/// Requests at once.
const REQUESTS: usize = 16;

async fn post(client: &HttpClient, caller: &str, amount: &str) -> Answer {
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("authorization", format!("Bearer {caller}")),
        ("idempotency-key", KEY.to_owned()),
    ];
    let body = json!({"amount": amount, "currency": "EUR", "debtor": caller});
    client.send(Method::POST, "/payments", &headers, body.to_string()).await
}

async fn charges(client: &HttpClient) -> serde_json::Value {
    client.get("/charges", None).await.expect_status(200).json()["charges"].take()
}

#[test]
fn a_payment_is_charged_once_whatever_the_store() {
    let (redis, sqlite, postgres) = (RedisServer::start(), TestDatabase::sqlite(), TestDatabase::postgres());
    for store in ["memory", &redis.url(), sqlite.url(), postgres.url()] {
        let mut example = ExampleProcess::start("payments", &["--store", store, "--workers", "4"]);
        block_on(async {
            let client = HttpClient::new(example.url());
            let at_once = (0..REQUESTS).map(|_| post(&client, "47", "125.50"));
            let answers = futures_util::future::join_all(at_once).await;
            for answer in &answers {
                assert!(matches!(answer.status, 201 | 202), "{store}: {answer:?}");
            }
            let first = answers.iter().find(|answer| answer.status == 201 && !answer.is_replay());
            let first = first.unwrap_or_else(|| panic!("{store}: nobody was the first: {answers:?}"));
            assert_eq!(charges(&client).await, 1, "{store}");
            for _ in 0..3 {
                let again = post(&client, "47", "125.50").await.expect_status(201);
                assert!(again.is_replay() && again.body == first.body, "{store}: {again:?}");
                assert_eq!(again.header("location"), Some("/payments/1"));
            }
            post(&client, "47", "125.51").await.expect_problem(409, "idempotency-key-reused");
            let other = post(&client, "81", "125.50").await.expect_status(201);
            assert!(!other.is_replay(), "{store}: another caller's key is another key");
            assert_eq!(charges(&client).await, 2, "{store}");
            // A path that there is not: answered, and never in progress afterwards.
            let headers = [("authorization", "Bearer 47".to_owned()), ("idempotency-key", "no-such-path".to_owned())];
            for is_replay in [false, true] {
                let got = client.send(Method::POST, "/nowhere", &headers, "").await.expect_status(404);
                assert_eq!(got.is_replay(), is_replay, "{store}");
            }
            let odd = [("authorization", "Bearer 47".to_owned()), ("idempotency-key", "an odd key".to_owned())];
            client.send(Method::POST, "/payments", &odd, "{}").await.expect_problem(400, "idempotency-key-invalid");
            let metrics = client.get("/metrics", None).await.expect_status(200).text();
            for line in ["event=\"claimed\",layer=\"payments\"} 3", "event=\"mismatched\",layer=\"payments\"} 1"] {
                assert!(metrics.contains(line), "{line}: {metrics}");
            }
        });
        assert!(send_signal("INT", example.pid()));
        assert!(example.wait_ended_well(), "{store}");
        let log = example.log();
        assert!(!log.contains(KEY) && !log.contains("an odd key"), "{store}: a key is in the log: {log}");
    }
}

/// The most memory that a process has had, in KiB.
fn memory_peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// What is streamed is neither collected nor copied aside: the process's own peak says so.
#[test]
fn two_hundred_megabytes_pass_through_the_layer_and_leave_no_trace_in_memory() {
    let example = ExampleProcess::start("payments", &[]);
    block_on(async {
        let request = |client: &reqwest::Client, key: &str, megabytes: u32| {
            let url = format!("{}/statements?megabytes={megabytes}", example.url());
            client.post(url).header("authorization", "Bearer 47").header("idempotency-key", key.to_owned()).send()
        };
        let client = client();
        // What a process takes to serve anything at all.
        request(&client, "warm", 1).await.unwrap().bytes().await.unwrap();
        let before = memory_peak_kib(example.pid());
        let asked = Instant::now();
        let mut response = request(&client, "large", 200).await.unwrap();
        let mut received = response.chunk().await.unwrap().unwrap().len();
        let first_byte = asked.elapsed();
        while let Some(chunk) = response.chunk().await.unwrap() {
            received += chunk.len();
        }
        assert_eq!(received, 200 << 20);
        let grown = memory_peak_kib(example.pid()).saturating_sub(before);
        assert!(grown < 20 << 10, "the process took {grown} KiB more for 200 MiB that it passed on");
        assert!(first_byte < Duration::from_millis(200), "the first byte came after {first_byte:?}");
        let again = request(&client, "large", 200).await.unwrap();
        assert_eq!(again.headers()["idempotent-replay"], "true");
        assert_eq!(again.headers()["idempotent-body"], "not-kept");
        assert_eq!(again.bytes().await.unwrap().len(), 0);
    });
}
