//! What a client of a service behind the layer sees.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::idempotency::{IdempotencyOptions, IdempotencyStore, MemoryBounds, MemoryStore};
use reqwest::Method;
use tokio::sync::Barrier;

use super::service::{Runs, Service, client, post, send};
use super::stores::on_every_store;
use crate::support::database::block_on;
use crate::support::wait::eventually_async;

const DEADLINE: Duration = Duration::from_secs(20);

fn memory() -> Arc<dyn IdempotencyStore> {
    Arc::new(MemoryStore::new(MemoryBounds::default()))
}

fn service() -> Service {
    Service::start(memory(), IdempotencyOptions::default())
}

#[test]
fn forty_repeats_on_four_workers_run_once_and_get_the_same_bytes() {
    let service = service();
    block_on(async {
        let first = post(&service, "/created", "k", r#"{"a":1,"b":{"c":[1,2],"d":null}}"#).await;
        assert_eq!((first.status, first.is_replay()), (201, false));
        assert_eq!(first.header("set-cookie"), Some("session=47"));
        for _ in 0..40 {
            let again = post(&service, "/created", "\"k\"", "{ \"b\":{\"d\":null,\"c\":[1,2]}, \"a\":1.0 }").await;
            assert_eq!((again.status, again.is_replay(), &again.body), (201, true, &first.body));
            for name in ["location", "etag", "content-type"] {
                assert_eq!(again.header(name), first.header(name), "{name}");
            }
            assert_eq!(again.header("set-cookie"), None);
        }
    });
    assert_eq!(service.runs.of("/created"), 1);
    let counts = service.layer.counts();
    assert_eq!((counts.claimed, counts.replayed), (1, 40));
}

#[test]
fn equal_requests_at_once_run_once_on_every_store() {
    on_every_store(|stores| {
        let runs = Runs::default();
        let services = [stores.first.clone(), stores.second.clone()]
            .map(|store| Service::start_with(store, IdempotencyOptions::default(), runs.clone()));
        block_on(async {
            let client = client();
            for round in 0..10 {
                let (key, barrier) = (uuid::Uuid::new_v4().to_string(), Arc::new(Barrier::new(64)));
                let path = format!("/created/{round}");
                let requests = (0..64).map(|i| {
                    let request = client.post(services[i % 2].url(&path)).header("idempotency-key", &key);
                    let request = request.header("x-user", "47").header("content-type", "application/json").body("{}");
                    let barrier = barrier.clone();
                    tokio::spawn(async move {
                        barrier.wait().await;
                        let response = request.send().await.unwrap();
                        let is_replay = response.headers().contains_key("idempotent-replay");
                        (response.status().as_u16(), is_replay, response.bytes().await.unwrap())
                    })
                });
                let (mut firsts, mut answers) = (0, std::collections::BTreeSet::new());
                for request in requests.collect::<Vec<_>>() {
                    match request.await.unwrap() {
                        (201, is_replay, body) => {
                            firsts += u64::from(!is_replay);
                            answers.insert(body);
                        }
                        (202, false, _) => {}
                        other => return Err(format!("round {round}: {other:?}")),
                    }
                }
                let count = runs.of(&path);
                if (count, firsts, answers.len()) != (1, 1, 1) {
                    return Err(format!("round {round}: ran {count} times, {firsts} firsts, {} bodies", answers.len()));
                }
            }
            Ok(())
        })
    });
}

#[test]
fn a_repeat_meanwhile_is_told_so_and_may_wait() {
    let in_flight = |options: IdempotencyOptions| {
        let service = Service::start(memory(), options);
        block_on(async {
            let (first, again) = tokio::join!(post(&service, "/slow/600", "k", "{}"), async {
                eventually_async(DEADLINE, "the first to run", || async { service.runs.of("/slow/600") == 1 }).await;
                post(&service, "/slow/600", "k", "{}").await
            });
            assert_eq!((first.status, first.is_replay()), (201, false));
            assert_eq!(service.runs.of("/slow/600"), 1);
            (first, again)
        })
    };
    let (_, again) = in_flight(IdempotencyOptions::default());
    let problem = again.expect_problem(202, "idempotency-in-flight");
    assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
    assert_eq!(again.header("retry-after"), Some("1"));
    let (_, again) = in_flight(IdempotencyOptions { in_flight_status: 409, ..IdempotencyOptions::default() });
    again.expect_problem(409, "idempotency-in-flight");
    let waiting = IdempotencyOptions { in_flight_wait: DEADLINE, ..IdempotencyOptions::default() };
    let (first, again) = in_flight(waiting);
    assert_eq!((again.status, again.is_replay(), again.body), (201, true, first.body));
}

#[test]
fn another_request_under_the_key_is_refused_with_what_differs() {
    let service = service();
    block_on(async {
        post(&service, "/created", "k", "{}").await;
        let headers = [("idempotency-key", "k"), ("x-user", "47")];
        for (method, path, body, differs) in [
            (Method::POST, "/created", "{\"a\":null}", "body"),
            (Method::POST, "/created?dry_run=1", "{}", "query"),
            (Method::POST, "/refunds", "{}", "path"),
            (Method::PUT, "/created", "{}", "method"),
        ] {
            let problem =
                send(&service, method, path, &headers, body).await.expect_problem(409, "idempotency-key-reused");
            assert_eq!(problem["differs"], serde_json::json!([differs]));
            assert_eq!(problem["retryable"], false);
        }
        let typed = [("idempotency-key", "k"), ("x-user", "47"), ("content-type", "text/plain")];
        let problem =
            send(&service, Method::POST, "/created", &typed, "{}").await.expect_problem(409, "idempotency-key-reused");
        assert_eq!(problem["differs"], serde_json::json!(["media type"]));
        // Also while the first one runs.
        let (_, other) = tokio::join!(post(&service, "/slow/500", "s", "{}"), async {
            eventually_async(DEADLINE, "the first to run", || async { service.runs.of("/slow/500") == 1 }).await;
            post(&service, "/slow/500", "s", "[]").await
        });
        other.expect_problem(409, "idempotency-key-reused");
    });
    assert_eq!(service.layer.counts().mismatched, 6);
    let service =
        Service::start(memory(), IdempotencyOptions { mismatch_status: 422, ..IdempotencyOptions::default() });
    block_on(async {
        post(&service, "/created", "k", "{}").await;
        post(&service, "/created", "k", "[]").await.expect_problem(422, "idempotency-key-reused");
    });
}

#[test]
fn keys_belong_to_their_principal() {
    let service = service();
    block_on(async {
        for user in ["47", "81"] {
            let headers = [("idempotency-key", "k"), ("x-user", user)];
            let got = send(&service, Method::POST, "/created", &headers, "{}").await;
            assert_eq!((got.status, got.is_replay()), (201, false));
        }
        let nobody = send(&service, Method::POST, "/created", &[("idempotency-key", "k")], "{}").await;
        nobody.expect_problem(401, "unauthenticated");
    });
    assert_eq!(service.runs.of("/created"), 2);
}

#[test]
fn odd_keys_and_bodies_are_refused_before_anything_runs() {
    let service = service();
    block_on(async {
        let long = "k".repeat(256);
        for key in ["", "\"\"", "a b", "schlüssel", &long, "\"open"] {
            let problem = post(&service, "/created", key, "{}").await.expect_problem(400, "idempotency-key-invalid");
            assert!(key.is_empty() || !problem.to_string().contains(&format!("{key} ")));
        }
        let twice = [("idempotency-key", "a"), ("idempotency-key", "a"), ("x-user", "47")];
        send(&service, Method::POST, "/created", &twice, "{}").await.expect_problem(400, "idempotency-key-invalid");
        let none = [("x-user", "47")];
        send(&service, Method::POST, "/created", &none, "{}").await.expect_problem(400, "idempotency-key-missing");
        for body in [r#"{"a":1,"a":2}"#, "9007199254740993", r#""\ud800""#, "{", &"[".repeat(10_000)] {
            post(&service, "/created", "k", body).await.expect_problem(400, "malformed-json");
        }
        post(&service, "/created", "k", &" ".repeat((1 << 20) + 1)).await.expect_problem(413, "too-large");
        assert_eq!(service.runs.of("/created"), 0);
        // By this name a memory store knows that it was made for one worker alone, and warns.
        let thread = send(&service, Method::GET, "/thread", &[], "").await.body;
        let thread = String::from_utf8_lossy(&thread);
        assert!(thread.starts_with("actix-rt|") && thread.contains("arbiter"), "{thread}");
        // GET is none of the layer's business.
        assert_eq!(send(&service, Method::GET, "/created", &[], "").await.status, 201);
    });
    let service = Service::start(memory(), IdempotencyOptions { key_required: false, ..IdempotencyOptions::default() });
    block_on(async {
        let none = [("x-user", "47")];
        assert_eq!(send(&service, Method::POST, "/created", &none, "{}").await.status, 201);
        assert_eq!(send(&service, Method::POST, "/created", &none, "{}").await.json()["run"], 2);
    });
}

#[test]
fn final_answers_are_kept_and_others_are_not() {
    let service = service();
    block_on(async {
        for code in [500, 503, 401, 403, 408, 413, 415, 425, 429] {
            let path = format!("/then/{code}");
            let statuses =
                [post(&service, &path, &path, "{}").await.status, post(&service, &path, &path, "{}").await.status];
            assert_eq!(statuses, [code, 200]);
        }
        for code in [200, 202, 204, 400, 404, 409, 422] {
            let path = format!("/status/{code}");
            let (first, again) = (post(&service, &path, &path, "{}").await, post(&service, &path, &path, "{}").await);
            assert_eq!((first.status, again.status, again.is_replay()), (code, code, true));
            assert!(again.body.is_empty());
            assert_eq!(service.runs.of(&path), 1, "{path}");
        }
        for (path, status) in [("/error", 400), ("/panic", 500)] {
            for run in 1..=2 {
                let got = post(&service, path, path, "{}").await;
                assert_eq!((got.status, got.is_replay(), service.runs.of(path)), (status, false, run), "{path}");
            }
        }
    });
}

#[test]
fn large_and_streamed_answers_come_whole_once_and_are_never_run_twice() {
    let service = service();
    block_on(async {
        for (bytes, is_kept) in [(65_536, true), (65_537, false), (5 << 20, false)] {
            let path = format!("/bytes/{bytes}");
            let (first, again) = (post(&service, &path, &path, "{}").await, post(&service, &path, &path, "{}").await);
            assert_eq!((first.status, first.body.len()), (200, bytes));
            assert_eq!((again.status, again.is_replay()), (200, true));
            assert_eq!(again.body.len(), if is_kept { bytes } else { 0 });
            assert_eq!(again.header("idempotent-body"), (!is_kept).then_some("not-kept"));
            assert_eq!(service.runs.of(&path), 1);
        }
        let client = client();
        let request = client.post(service.url("/stream")).header("idempotency-key", "s").header("x-user", "47");
        let started = Instant::now();
        let mut response = request.body("").send().await.unwrap();
        let start = response.chunk().await.unwrap().unwrap();
        let first_byte = started.elapsed();
        assert_eq!(&start[..], b"start\n");
        let mut rest = Vec::new();
        while let Some(chunk) = response.chunk().await.unwrap() {
            rest.extend_from_slice(&chunk);
        }
        assert!(rest.ends_with(b"chunk 4\n"));
        // The whole takes a second; a layer that collected it would give nothing before.
        assert!(first_byte < started.elapsed() / 2, "the first byte came after {first_byte:?}");
        let headers = [("idempotency-key", "s"), ("x-user", "47"), ("content-type", "")];
        let again = send(&service, Method::POST, "/stream", &headers, "").await;
        assert_eq!((again.status, again.is_replay(), again.header("idempotent-body")), (200, true, Some("not-kept")));
    });
    assert_eq!(service.runs.of("/stream"), 1);
}

/// Sends a request and hangs up once it runs.
fn post_and_hang_up(service: &Service, path: &str, key: &str) {
    let mut socket = TcpStream::connect(service.address()).unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nx-user: 47\r\nidempotency-key: {key}\r\ncontent-length: 2\r\n");
    socket.write_all(format!("{head}content-type: application/json\r\n\r\n{{}}").as_bytes()).unwrap();
    let started = Instant::now();
    while service.runs.of(path) == 0 {
        assert!(started.elapsed() < DEADLINE, "the handler did not start");
        std::thread::yield_now();
    }
    // Unread input makes the kernel send a reset, not an orderly end.
    socket.set_nonblocking(true).unwrap();
    let _ = socket.read(&mut [0; 1]);
}

#[test]
fn a_client_that_hangs_up_finds_its_answer_later() {
    let mut service = service();
    post_and_hang_up(&service, "/slow/300", "k");
    block_on(async {
        eventually_async(DEADLINE, "the answer to be kept", || async {
            post(&service, "/slow/300", "k", "{}").await.is_replay()
        })
        .await;
    });
    assert_eq!(service.runs.of("/slow/300"), 1);
    // Also while the server shuts down: it waits for what runs, and refuses what is new.
    let store = memory();
    let last = Service::start(store.clone(), IdempotencyOptions::default());
    post_and_hang_up(&last, "/slow/700", "k");
    block_on(async {
        let ((), refused) = tokio::join!(last.layer.drain(), async { post(&last, "/created", "new", "{}").await });
        refused.expect_problem(503, "draining");
        let mut last = last;
        last.stop();
        let next = Service::start_with(store, IdempotencyOptions::default(), last.runs.clone());
        assert!(post(&next, "/slow/700", "k", "{}").await.is_replay());
        assert_eq!(next.runs.of("/slow/700"), 1);
    });
    service.stop();
}

#[test]
fn a_client_that_makes_a_new_key_for_each_retry_is_noticed() {
    let service = service();
    block_on(async {
        for key in ["a", "b", "c"] {
            assert_eq!(post(&service, "/created", key, "{\"amount\":5}").await.status, 201);
        }
        post(&service, "/created", "d", "{\"amount\":6}").await;
    });
    assert_eq!(service.layer.counts().same_under_new_key, 2);
}

/// The router behind the layer must be the only holder of the request.
#[test]
fn routes_behind_the_layer_are_found() {
    let service = Service::start(Arc::new(MemoryStore::new(MemoryBounds::default())), IdempotencyOptions::default());
    block_on(async {
        for is_replay in [false, true] {
            let got = post(&service, "/routed/1", "k", "{}").await;
            assert_eq!((got.status, got.is_replay()), (200, is_replay), "{got:?}");
        }
    });
    assert_eq!(service.runs.of("/routed/1"), 1);
}
