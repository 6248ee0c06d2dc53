//! Guards that are killed, clients that hang up, and a store that goes away, with real processes.

use std::time::{Duration, Instant};

use super::{DEADLINE, Guarded, Rules, post, raw_post};
use crate::support::database::{TestDatabase, block_on};
use crate::support::http::{HttpClient, RawConnection};
use crate::support::redis::{Persistence, RedisServer};
use crate::support::server::ServerOptions;
use crate::support::upstream::Upstream;
use crate::support::wait::{eventually, eventually_async};

/// A guard that dies keeps its key this long.
const LEASE: Duration = Duration::from_secs(2);

#[test]
fn a_guard_killed_in_mid_handler_holds_its_key_until_the_lease_ends_on_redis() {
    let redis = RedisServer::start();
    killed_in_mid_handler(&redis.url());
}

#[test]
fn a_guard_killed_in_mid_handler_holds_its_key_until_the_lease_ends_on_sqlite() {
    killed_in_mid_handler(TestDatabase::sqlite().url());
}

#[test]
fn a_guard_killed_in_mid_handler_holds_its_key_until_the_lease_ends_on_postgres() {
    killed_in_mid_handler(TestDatabase::postgres().url());
}

/// Repeats are told "in flight" by the other guard; then the request is sent again, which is where "once" ends.
#[track_caller]
fn killed_in_mid_handler(store: &str) {
    let (upstream, rules) = (Upstream::start(), Rules::new("[default]\nclaim_lease = \"2s\"\n"));
    let options = rules.apply(ServerOptions::guard(&upstream.url(), store));
    let (mut killed, other) = (options.clone().start(), options.start());
    let client = HttpClient::new(other.url());
    let mut connection = RawConnection::connect(killed.address());
    connection.send(&raw_post("/slow/1000", "k"));
    eventually(DEADLINE, "the request to run", || upstream.runs("/slow/1000") == 1);
    let claimed_after = Instant::now();
    killed.kill_9();
    let mut told_in_flight = 0;
    block_on(async {
        loop {
            let answer = post(&client, "/slow/1000", "k", "{}").await;
            if answer.status == 202 {
                told_in_flight += 1;
                assert!(claimed_after.elapsed() < LEASE + Duration::from_secs(5), "the lease does not end");
                continue;
            }
            assert_eq!((answer.status, answer.is_replay()), (201, false), "{answer:?}");
            break;
        }
        // A thousand milliseconds of it were the second run.
        assert!(claimed_after.elapsed() >= LEASE, "it ran again after {:?}", claimed_after.elapsed());
        assert!(post(&client, "/slow/1000", "k", "{}").await.is_replay());
    });
    assert!(told_in_flight > 0);
    assert_eq!(upstream.runs("/slow/1000"), 2);
}

#[test]
fn a_client_that_hangs_up_gets_its_answer_when_it_comes_back() {
    let guarded = Guarded::start("");
    let mut connection = RawConnection::connect(guarded.guard.address());
    connection.send(&raw_post("/slow/300", "k"));
    eventually(DEADLINE, "the request to run", || guarded.upstream.runs("/slow/300") == 1);
    drop(connection);
    block_on(async {
        eventually_async(DEADLINE, "the answer to be kept", || async {
            let again = guarded.post("/slow/300", "k", "{}").await;
            assert!(matches!(again.status, 201 | 202), "{again:?}");
            again.is_replay()
        })
        .await;
    });
    assert_eq!(guarded.upstream.runs("/slow/300"), 1);
}

#[test]
fn a_guard_that_shuts_down_finishes_what_runs_though_its_client_has_hung_up() {
    let redis = RedisServer::start();
    let upstream = Upstream::start();
    let options = ServerOptions::guard(&upstream.url(), &redis.url());
    let (mut leaving, staying) = (options.clone().start(), options.start());
    let waiting = HttpClient::new(leaving.url());
    let client = HttpClient::new(staying.url());
    let mut connection = RawConnection::connect(leaving.address());
    connection.send(&raw_post("/slow/1500", "gone"));
    block_on(async {
        let answered = async {
            let answer = post(&waiting, "/slow/1400", "stays", "{}").await;
            assert_eq!((answer.status, answer.is_replay()), (201, false));
        };
        let leave = async {
            eventually_async(DEADLINE, "both to run", || async {
                upstream.runs("/slow/1500") == 1 && upstream.runs("/slow/1400") == 1
            })
            .await;
            leaving.sigterm();
            eventually_async(DEADLINE, "readiness to turn", || async { leaving.readiness() == Some(503) }).await;
            drop(connection);
            let refused = post(&HttpClient::new(leaving.url()), "/created", "new", "{}").await;
            let problem = refused.expect_problem(503, "draining").json();
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
        };
        tokio::join!(answered, leave);
    });
    assert_eq!(leaving.wait(DEADLINE).code(), Some(0));
    block_on(async {
        for (path, key) in [("/slow/1500", "gone"), ("/slow/1400", "stays")] {
            assert!(post(&client, path, key, "{}").await.expect_status(201).is_replay(), "{path}");
            assert_eq!(upstream.runs(path), 1);
        }
    });
    assert_eq!(upstream.runs("/created"), 0);
}

/// Longer than the sockets take to close.
#[test]
fn a_guard_that_shuts_down_finishes_what_has_no_key_to_the_end_of_its_body() {
    let mut guarded = Guarded::start("");
    let mut slow = RawConnection::connect(guarded.guard.address());
    slow.send(b"POST /slow/4000 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    let mut stream = RawConnection::connect(guarded.guard.address());
    stream.send(b"GET /ticks/40 HTTP/1.1\r\nhost: a\r\n\r\n");
    let begun = stream.read_until(|bytes| bytes.ends_with(b"chunk 0\n\r\n"));
    eventually(DEADLINE, "the request to run", || guarded.upstream.runs("/slow/4000") == 1);
    guarded.guard.sigterm();
    assert!(slow.read_to_end().starts_with(b"HTTP/1.1 201"));
    let whole = String::from_utf8([begun, stream.read_to_end()].concat()).unwrap();
    assert!(whole.contains("chunk 39\n") && whole.ends_with("0\r\n\r\n"), "{whole}");
    assert_eq!(guarded.guard.wait(DEADLINE).code(), Some(0));
}

#[test]
fn a_drain_ends_at_its_bound() {
    let mut guarded = Guarded::start_with("", |options| options.arguments(["--drain-timeout", "300ms"]));
    let mut connection = RawConnection::connect(guarded.guard.address());
    connection.send(&raw_post("/hang", "k"));
    eventually(DEADLINE, "the request to run", || guarded.upstream.runs("/hang") == 1);
    guarded.guard.sigterm();
    assert_eq!(guarded.guard.wait(Duration::from_secs(10)).code(), Some(0));
    assert!(guarded.guard.log().contains("keys wait for the end of their leases"));
}

#[test]
fn without_redis_nothing_reaches_the_service_unless_a_rule_allows_it() {
    let mut redis = RedisServer::start();
    let rules = Rules::new("[[route]]\npath = \"/chunked\"\nwhen_unavailable = \"run-unprotected\"\n");
    let upstream = Upstream::start();
    let guard = rules.apply(ServerOptions::guard(&upstream.url(), &redis.url())).start();
    let client = HttpClient::new(guard.url());
    block_on(async {
        redis.kill_9();
        let refused = post(&client, "/created", "k", "{}").await.expect_problem(503, "unavailable");
        assert_eq!((refused.header("retry-after"), upstream.runs("/created")), (Some("1"), 0));
        assert!(!post(&client, "/chunked", "k", "{}").await.expect_status(200).is_replay());
        let _ = client.get("/thing", None).await.expect_status(200);
        eventually_async(DEADLINE, "readiness to turn", || async { guard.readiness() == Some(503) }).await;
        redis.start_again();
        eventually_async(DEADLINE, "the guard to find Redis again", || async {
            post(&client, "/created", "k", "{}").await.status == 201
        })
        .await;
        eventually_async(DEADLINE, "readiness to come back", || async { guard.readiness() == Some(200) }).await;
    });
    assert_eq!(upstream.runs("/created"), 1);
}

#[test]
fn redis_killed_during_the_work_or_after_the_answer_costs_the_caller_nothing() {
    let mut redis = RedisServer::start_with(Persistence::Always);
    let upstream = Upstream::start();
    let guard = ServerOptions::guard(&upstream.url(), &redis.url()).start();
    let client = HttpClient::new(guard.url());
    block_on(async {
        let killing = async {
            eventually_async(DEADLINE, "the request to run", || async { upstream.runs("/slow/500") == 1 }).await;
            redis.kill_9();
        };
        let (first, ()) = tokio::join!(post(&client, "/slow/500", "k", "{}"), killing);
        assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
        redis.start_again();
        // The claim came back with Redis; the answer is stored as soon as it can be.
        eventually_async(DEADLINE, "the answer to be stored after all", || async {
            let again = post(&client, "/slow/500", "k", "{}").await;
            assert!(matches!(again.status, 201 | 202 | 503), "{again:?}");
            again.is_replay()
        })
        .await;
        redis.kill_9();
        redis.start_again();
        eventually_async(DEADLINE, "the answer to be found again", || async {
            let again = post(&client, "/slow/500", "k", "{}").await;
            assert!(again.is_replay() || again.status == 503, "{again:?}");
            again.is_replay()
        })
        .await;
    });
    assert_eq!(upstream.runs("/slow/500"), 1);
}
