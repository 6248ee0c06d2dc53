//! What passes through a guard, and how: headers, bodies, streams, and what is kept of an answer.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{Guarded, headers};
use crate::support::database::block_on;
use crate::support::http::{Answer, RawConnection, raw_exchange};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_repeated_post_reaches_the_service_once_and_its_cookies_are_not_replayed() {
    let guarded = Guarded::start("");
    block_on(async {
        let first = guarded.post("/created", "k", r#"{"a":1,"b":[1,2]}"#).await.expect_status(201);
        assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "the first caller gets its cookies");
        assert_eq!((first.header("x-own"), first.header("via")), (Some("yes"), Some("1.1 casework-guard")));
        assert!(!first.is_replay());
        // Another order of members and white space is the same request.
        for body in [r#"{"a":1,"b":[1,2]}"#, r#"{ "b": [1, 2], "a": 1 }"#] {
            let again = guarded.post("/created", "k", body).await.expect_status(201);
            assert!(again.is_replay() && again.header("set-cookie").is_none() && again.header("x-own").is_none());
            assert_eq!((&again.body, again.header("location")), (&first.body, Some("/things/1")));
            assert_eq!((again.header("etag"), again.header("content-type")), (Some("\"1\""), Some("application/json")));
        }
        for (path, body) in [("/created", r#"{"a":1,"b":[2,1]}"#), ("/created?dry_run=1", r#"{"a":1,"b":[1,2]}"#)] {
            guarded.post(path, "k", body).await.expect_problem(409, "idempotency-key-reused");
        }
        assert_eq!(guarded.upstream.runs("/created"), 1);
    });
}

#[test]
fn callers_do_not_share_keys() {
    let guarded = Guarded::start("[[route]]\npath = \"/created\"\n");
    block_on(async {
        for (run, token) in [(1, "Bearer 47"), (2, "Bearer 81")] {
            let headers = [("idempotency-key", "k".to_owned()), ("authorization", token.to_owned())];
            let got = guarded.client.send(Method::POST, "/created", &headers, "{}").await.expect_status(201);
            assert_eq!((got.is_replay(), got.json()), (false, json!({ "run": run })));
        }
        let nobody = [("idempotency-key", "k".to_owned())];
        let got = guarded.client.send(Method::POST, "/created", &nobody, "{}").await;
        got.expect_problem(401, "unauthenticated");
        // Two headers are not one that looks like both.
        let two = "POST /created HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\nauthorization: Bearer 47\r\n\
             authorization: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        let answer = String::from_utf8(raw_exchange(guarded.guard.address(), two.as_bytes())).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201") && !answer.contains("idempotent-replay"), "{answer}");
        assert_eq!(guarded.upstream.runs("/created"), 3);
    });
}

#[test]
fn odd_keys_are_refused_in_words() {
    let guarded = Guarded::start("");
    let of_key = |key: &[u8]| {
        let head =
            b"POST /created HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nconnection: close\r\ncontent-length: 0\r\n";
        [head, b"idempotency-key: ".as_slice(), key, b"\r\n\r\n"].concat()
    };
    for key in [b"".as_slice(), &[b'k'; 256], b"\xe9t\xe9", b"a\r\nidempotency-key: b"] {
        let answer = raw_exchange(guarded.guard.address(), &of_key(key));
        assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(guarded.upstream.runs("/created"), 0);
}

#[test]
fn without_a_key_and_with_a_get_everything_passes_untouched() {
    let guarded = Guarded::start("");
    block_on(async {
        for run in 1..=2 {
            let got = guarded.client.send(Method::POST, "/created", &[], "{}").await.expect_status(201);
            assert_eq!((got.is_replay(), got.json()), (false, json!({ "run": run })));
            let got = guarded.client.send(Method::GET, "/thing", &headers("k"), "").await.expect_status(200);
            assert_eq!((got.is_replay(), got.json()), (false, json!({ "run": run })));
        }
        let head = guarded.client.send(Method::HEAD, "/bytes/1000", &[], "").await.expect_status(200);
        assert_eq!((head.header("content-length"), head.body.len()), (Some("1000"), 0));
        let redirect = guarded.client.send(Method::GET, "/redirect", &[], "").await.expect_status(302);
        assert_eq!((redirect.header("location"), guarded.upstream.runs("/created")), (Some("/created"), 2));
        // Also a body that no layer would take: in chunks, and over the bound.
        let large = vec![b'a'; 3 << 20];
        let got = guarded.client.send(Method::POST, "/echo", &[], large).await.expect_status(200);
        assert_eq!(got.json()["length"], 3 << 20);
        let chunks = b"PUT /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
            3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let answer = String::from_utf8(raw_exchange(guarded.guard.address(), chunks)).unwrap();
        assert!(answer.contains(r#""body": "abcde""#), "{answer}");
    });
}

#[test]
fn a_body_under_a_key_reaches_the_service_whole() {
    let guarded = Guarded::start("");
    block_on(async {
        let body = "é".repeat(300_000);
        let got = guarded.post("/echo", "text", &serde_json::to_string(&body).unwrap()).await.expect_status(200);
        assert_eq!(got.json()["length"], body.len() + 2);
        let chunks = "POST /echo HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nidempotency-key: c\r\nconnection: close\r\n\
            transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let answer = String::from_utf8(raw_exchange(guarded.guard.address(), chunks.as_bytes())).unwrap();
        assert!(answer.contains(r#""body": "abcde""#), "{answer}");
        let large = "a".repeat((1 << 20) + 1);
        guarded.post("/echo", "large", &large).await.expect_problem(413, "too-large");
        guarded.post("/created", "json", r#"{"a":1,"a":2}"#).await.expect_problem(400, "malformed-json");
        assert_eq!((guarded.upstream.runs("/echo"), guarded.upstream.runs("/created")), (2, 0));
    });
}

#[test]
fn headers_cross_and_the_guard_adds_itself() {
    let guarded = Guarded::start("");
    let seen = |answer: Answer| -> Vec<(String, String)> { serde_json::from_value(answer.json()).unwrap() };
    block_on(async {
        let mut sent = headers("k");
        sent.extend([
            ("traceparent", TRACE.to_owned()),
            ("tracestate", "a=1".to_owned()),
            ("x-forwarded-for", "10.0.0.1".to_owned()),
            ("connection", "x-hop".to_owned()),
            ("x-hop", "1".to_owned()),
        ]);
        let seen_by_service = seen(guarded.client.send(Method::POST, "/headers", &sent, "{}").await.expect_status(200));
        let value = |wanted: &str| {
            let mut values = seen_by_service.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
            (values.next(), values.next().is_some())
        };
        let host = guarded.guard.address().to_string();
        let forwarded = format!("for=127.0.0.1;host=\"{host}\";proto=http");
        for (name, expected) in [
            ("idempotency-key", Some("k")),
            ("authorization", Some("Bearer 47")),
            ("traceparent", Some(TRACE)),
            ("tracestate", Some("a=1")),
            ("x-forwarded-for", Some("10.0.0.1, 127.0.0.1")),
            ("x-forwarded-proto", Some("http")),
            ("x-forwarded-host", Some(host.as_str())),
            ("forwarded", Some(forwarded.as_str())),
            ("host", Some(host.as_str())),
            ("via", Some("1.1 casework-guard")),
            ("content-length", Some("2")),
            ("x-hop", None),
            ("transfer-encoding", None),
        ] {
            assert_eq!(value(name), (expected, false), "{name}: {seen_by_service:?}");
        }
        let begun = seen(guarded.client.send(Method::GET, "/headers", &[], "").await.expect_status(200));
        let trace = begun.iter().find(|(name, _)| name == "traceparent").map(|(_, value)| value.clone()).unwrap();
        assert!(trace.len() == 55 && trace.ends_with("-01") && trace != TRACE, "{trace}");
    });
    let own = Guarded::start_with("", |options| options.arguments(["--host", "upstream"]));
    block_on(async {
        let seen_by_service = seen(own.client.send(Method::GET, "/headers", &[], "").await.expect_status(200));
        let host = own.upstream.url().replace("http://", "");
        assert!(seen_by_service.contains(&("host".to_owned(), host)), "{seen_by_service:?}");
    });
}

/// 65,536 bytes are kept; one more is not, and is not sent again either.
#[test]
fn a_body_over_the_bound_passes_whole_and_is_not_run_again() {
    let guarded = Guarded::start("");
    block_on(async {
        for (bytes, is_kept) in [(65_536, true), (65_537, false), (5_000_000, false)] {
            let path = format!("/bytes/{bytes}");
            let first = guarded.post(&path, "k", &format!("{bytes}")).await;
            if bytes == 65_536 {
                assert_eq!((first.status, first.body.len()), (200, bytes));
            } else {
                // The key belongs to another path now.
                first.expect_problem(409, "idempotency-key-reused");
            }
            let key = format!("k{bytes}");
            assert_eq!(guarded.post(&path, &key, "{}").await.body.len(), bytes);
            let again = guarded.post(&path, &key, "{}").await.expect_status(200);
            let (length, marked) = (again.body.len(), again.header("idempotent-body") == Some("not-kept"));
            assert_eq!((again.is_replay(), length, marked), (true, if is_kept { bytes } else { 0 }, !is_kept));
            assert_eq!(guarded.upstream.runs(&path), if is_kept { 2 } else { 1 });
        }
    });
}

#[test]
fn a_slow_stream_passes_part_by_part_and_is_not_run_again() {
    let guarded = Guarded::start("");
    for (key, begin) in [("idempotency-key: k\r\n", "claimed"), ("", "passed by")] {
        let mut connection = RawConnection::connect(guarded.guard.address());
        let started = Instant::now();
        let request = format!(
            "POST /stream HTTP/1.1\r\nhost: a\r\nauthorization: a\r\n{key}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        connection.send(request.as_bytes());
        let first = connection.read_until(|bytes| bytes.ends_with(b"chunk 0\n\r\n"));
        let took = started.elapsed();
        assert!(took < Duration::from_millis(600), "{begin}: the first part came after {took:?}");
        let rest = [first, connection.read_to_end()].concat();
        let text = String::from_utf8(rest).unwrap();
        assert!(
            (0..6).all(|number| text.contains(&format!("chunk {number}\n"))) && text.ends_with("0\r\n\r\n"),
            "{text}"
        );
        assert!(started.elapsed() >= Duration::from_secs(1), "{begin}: it was no slow stream");
    }
    block_on(async {
        let sent = [("idempotency-key", "k".to_owned()), ("authorization", "a".to_owned())];
        let again = guarded.client.send(Method::POST, "/stream", &sent, "").await.expect_status(200);
        assert_eq!((again.is_replay(), again.header("idempotent-body")), (true, Some("not-kept")));
    });
    assert_eq!(guarded.upstream.runs("/stream"), 2);
}

/// Many services send short bodies in chunks: these are kept.
#[test]
fn a_short_body_in_chunks_is_kept_and_events_are_passed_on() {
    let guarded = Guarded::start("");
    block_on(async {
        let first = guarded.post("/chunked", "k", "{}").await.expect_status(200);
        let again = guarded.post("/chunked", "k", "{}").await.expect_status(200);
        assert_eq!((again.is_replay(), &again.body), (true, &first.body));
        assert_eq!(first.json(), json!({ "run": 1 }));
        assert_eq!(guarded.post("/events", "e", "{}").await.text(), "data: 1\n\n");
        let again = guarded.post("/events", "e", "{}").await;
        assert_eq!((again.header("idempotent-body"), guarded.upstream.runs("/events")), (Some("not-kept"), 1));
    });
}

#[test]
fn memory_is_flat_while_a_large_answer_passes() {
    let guarded = Guarded::start("");
    let peak_kib = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", guarded.guard.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    block_on(async {
        assert_eq!(guarded.post("/bytes/1000000", "small", "{}").await.body.len(), 1_000_000);
        let before = peak_kib();
        assert_eq!(guarded.post("/bytes/100000000", "large", "{}").await.body.len(), 100_000_000);
        let grown = peak_kib() - before;
        assert!(grown < 20_000, "a hundred megabytes took {grown} KiB");
    });
}

#[test]
fn statuses_are_kept_or_given_back_as_the_layer_does() {
    let guarded = Guarded::start("[[route]]\npath = \"/then/500\"\nfinal_statuses = [500]\n");
    block_on(async {
        for code in [503, 401, 429] {
            let path = format!("/then/{code}");
            assert_eq!(guarded.post(&path, &path, "{}").await.status, code);
            let second = guarded.post(&path, &path, "{}").await.expect_status(200);
            assert!(!second.is_replay() && guarded.upstream.runs(&path) == 2);
        }
        for code in [400, 404, 204, 500] {
            let path = if code == 500 { "/then/500".to_owned() } else { format!("/status/{code}") };
            let first = guarded.post(&path, &path, "{}").await;
            let second = guarded.post(&path, &path, "{}").await;
            assert_eq!((first.status, second.status, second.is_replay()), (code, code, true));
            assert_eq!((&first.body, guarded.upstream.runs(&path)), (&second.body, 1));
        }
    });
}

#[test]
fn rules_choose_by_path_and_method() {
    let guarded = Guarded::start(
        r#"
        [default]
        key = "required"

        [[route]]
        path = "/status/*"
        key = "off"

        [[route]]
        path = "/created"
        methods = ["POST"]
        principal = "header:X-Account"
        kept_headers = ["X-Own"]
        mismatch = 422

        [[route]]
        path = "/slow/*"
        principal = "none"
        in_flight = 409
        in_flight_wait = "10s"
        "#,
    );
    block_on(async {
        let bare = guarded.client.send(Method::POST, "/other", &[], "{}").await;
        bare.expect_problem(400, "idempotency-key-missing");
        for _ in 0..2 {
            assert!(!guarded.post("/status/200", "k", "{}").await.is_replay());
        }
        guarded.post("/created", "k", "{}").await.expect_problem(401, "unauthenticated");
        let account = [("idempotency-key", "k".to_owned()), ("x-account", "62".to_owned())];
        let send = async |body: &'static str| guarded.client.send(Method::POST, "/created", &account, body).await;
        let _ = send("{}").await.expect_status(201);
        let again = send("{}").await.expect_status(201);
        assert_eq!((again.is_replay(), again.header("x-own")), (true, Some("yes")));
        send("[]").await.expect_problem(422, "idempotency-key-reused");
        let key = [("idempotency-key", "k".to_owned())];
        let slow = async || guarded.client.send(Method::POST, "/slow/300", &key, "{}").await;
        let (one, other) = tokio::join!(slow(), slow());
        assert_eq!((one.status, other.status, &one.body), (201, 201, &other.body));
        assert!(one.is_replay() != other.is_replay(), "one waited for the other");
        assert_eq!(guarded.upstream.runs("/slow/300"), 1);
    });
}

#[test]
fn a_path_that_can_be_read_in_two_ways_is_refused() {
    let guarded = Guarded::start("");
    for path in ["/a/../created", "/a/%2e%2E/created", "/./created", "/a\\..\\created"] {
        let request = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let answer = raw_exchange(guarded.guard.address(), request.as_bytes());
        assert!(answer.starts_with(b"HTTP/1.1 400"), "{path}: {}", String::from_utf8_lossy(&answer));
    }
    // Dots within a name, and percent signs, are as good as anything.
    let answer = raw_exchange(
        guarded.guard.address(),
        b"GET /a..b/%2F%41?x=%20&y HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(guarded.upstream.runs("/created"), 0);
    assert_eq!(guarded.upstream.runs("/a..b/%2F%41"), 1);
}

#[test]
fn probes_and_metrics_tell_how_a_guard_is() {
    let guarded = Guarded::start_with("[[route]]\npath = \"/created\"\n", |options| {
        options.arguments(["--metrics-listen", "127.0.0.1:0"])
    });
    block_on(async {
        let ready: Value = guarded.client.get("/.guard/readyz", None).await.expect_status(200).json();
        assert_eq!(ready, json!({ "status": "ok", "store": "ok", "upstream": "ok", "draining": false }));
        let _ = guarded.client.get("/.guard/healthz", None).await.expect_status(200);
        for _ in 0..3 {
            let _ = guarded.post("/created", "k", "{}").await.expect_status(201);
        }
        let log = guarded.guard.log();
        let address = log.split_once("metrics at ").and_then(|(_, rest)| rest.split_once("/metrics")).unwrap().0;
        let metrics = crate::support::http::HttpClient::new(address);
        let text = metrics.get("/metrics", None).await.expect_status(200).text();
        for line in [
            "casework_guard_idempotency_total{outcome=\"claimed\",route=\"/created\"} 1",
            "casework_guard_idempotency_total{outcome=\"replayed\",route=\"/created\"} 2",
            "casework_guard_upstream_requests_total{event=\"sent\"} 1",
            "casework_guard_requests 0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        // All else below the health path is the service's, also the metrics.
        assert_eq!(guarded.client.get("/metrics", None).await.expect_status(200).json(), json!({ "run": 1 }));
        let _ = guarded.client.get("/.guard/other", None).await.expect_status(200);
    });
    assert_eq!(guarded.upstream.runs("/.guard/other"), 1);
}

#[test]
fn more_requests_at_once_than_allowed_are_refused() {
    let guarded = Guarded::start_with("", |options| options.arguments(["--requests-max", "1"]));
    block_on(async {
        let slow = guarded.post("/slow/500", "a", "{}");
        let second = async {
            crate::support::wait::eventually_async(super::DEADLINE, "the first to run", || async {
                guarded.upstream.runs("/slow/500") == 1
            })
            .await;
            let refused = guarded.post("/created", "b", "{}").await.expect_problem(503, "overloaded");
            assert_eq!(refused.header("retry-after"), Some("1"));
        };
        let (first, ()) = tokio::join!(slow, second);
        assert_eq!(first.status, 201);
        let _ = guarded.post("/created", "b", "{}").await.expect_status(201);
    });
}
