//! An upstream that is away, hangs, or dies in the middle of its answer.

use std::time::Duration;

use super::{DEADLINE, Guarded, Rules, headers, post};
use crate::support::database::block_on;
use crate::support::http::{HttpClient, RawConnection};
use crate::support::postgres_server::free_port;
use crate::support::server::ServerOptions;
use crate::support::upstream::Upstream;
use crate::support::wait::eventually_async;

#[test]
fn an_upstream_that_is_away_got_nothing_and_the_next_attempt_is_sent() {
    let port = free_port();
    let guard = ServerOptions::guard(&format!("http://127.0.0.1:{port}"), "memory").start_unready();
    let client = HttpClient::new(guard.url());
    block_on(async {
        for _ in 0..2 {
            let problem = post(&client, "/created", "k", "{}").await.expect_problem(502, "upstream-unavailable");
            assert_eq!(problem.header("retry-after"), Some("1"));
            let problem = problem.json();
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
        }
        assert_eq!(guard.readiness(), Some(503));
        let upstream = Upstream::start_at(port);
        let first = post(&client, "/created", "k", "{}").await.expect_status(201);
        assert!(!first.is_replay() && upstream.runs("/created") == 1);
        guard.wait_ready(DEADLINE);
    });
}

/// The default, which a payment needs: it is never sent again under its key.
#[test]
fn an_unclear_request_is_kept_and_not_sent_again() {
    let guarded = Guarded::start("[default]\nupstream_timeout = \"300ms\"\n");
    block_on(async {
        for (path, status) in [("/die/head", 502), ("/die/body", 502), ("/hang", 504)] {
            let problem = guarded.post(path, path, "{}").await.expect_problem(status, "upstream-unclear");
            assert!(!problem.is_replay() && problem.header("retry-after").is_none());
            let problem = problem.json();
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&false.into(), &true.into()));
            let again = guarded.post(path, path, "{}").await.expect_problem(status, "upstream-unclear");
            assert!(again.is_replay(), "{path}");
            assert_eq!(guarded.upstream.runs(path), 1, "{path}");
        }
    });
}

#[test]
fn by_rule_an_unclear_request_gives_its_key_back() {
    let guarded = Guarded::start("[default]\nupstream_timeout = \"300ms\"\nwhen_unclear = \"release\"\n");
    block_on(async {
        for (path, status) in [("/die/head", 502), ("/die/body", 502), ("/hang", 504)] {
            for run in 1..=2 {
                let problem = guarded.post(path, path, "{}").await.expect_problem(status, "upstream-interrupted");
                assert!(!problem.is_replay());
                assert_eq!((&problem.json()["retryable"], guarded.upstream.runs(path)), (&true.into(), run));
            }
        }
    });
}

/// Whoever sent no key is told that nothing protects it; a GET may be sent again in any case.
#[test]
fn without_a_key_unclear_is_said_and_nothing_is_kept() {
    let guarded = Guarded::start("[default]\nupstream_timeout = \"300ms\"\n");
    block_on(async {
        let bare: [(&str, String); 0] = [];
        for _ in 0..2 {
            let answer = guarded.client.send(reqwest::Method::POST, "/die/head", &bare, "{}").await;
            answer.expect_problem(502, "upstream-unclear");
            let answer = guarded.client.send(reqwest::Method::GET, "/hang", &headers("k"), "").await;
            answer.expect_problem(504, "upstream-interrupted");
        }
    });
    assert_eq!((guarded.upstream.runs("/die/head"), guarded.upstream.runs("/hang")), (2, 2));
}

/// Its head said 201: that is kept, and the first caller sees that its body is not whole.
#[test]
fn a_large_answer_that_breaks_off_is_not_taken_for_whole() {
    let guarded = Guarded::start("");
    let mut connection = RawConnection::connect(guarded.guard.address());
    connection.send(&super::raw_post("/die/big", "k"));
    let broken = String::from_utf8(connection.read_to_end()).unwrap();
    assert!(broken.starts_with("HTTP/1.1 201") && broken.contains("content-length: 200000"), "{broken}");
    assert!(broken.ends_with("half"), "{broken}");
    block_on(async {
        let again = guarded.post("/die/big", "k", "{}").await.expect_status(201);
        assert_eq!((again.is_replay(), again.header("idempotent-body")), (true, Some("not-kept")));
    });
    assert_eq!(guarded.upstream.runs("/die/big"), 1);
}

/// An upstream that is restarted: idle connections to it must not make a request unclear.
#[test]
fn an_upstream_that_comes_back_is_used_again() {
    let port = free_port();
    let rules = Rules::new("");
    let mut upstream = Upstream::start_at(port);
    let guard = rules.apply(ServerOptions::guard(&upstream.url(), "memory")).start();
    let client = HttpClient::new(guard.url());
    block_on(async {
        for round in 0..3 {
            let _ = post(&client, "/created", &format!("before-{round}"), "{}").await.expect_status(201);
            drop(upstream);
            upstream = Upstream::start_at(port);
            let key = format!("after-{round}");
            eventually_async(Duration::from_secs(10), "the upstream to answer", || async {
                let answer = post(&client, "/created", &key, "{}").await;
                assert!(
                    answer.status == 201 || answer.problem_code().as_deref() == Some("upstream-unavailable"),
                    "{answer:?}"
                );
                answer.status == 201
            })
            .await;
        }
    });
}
