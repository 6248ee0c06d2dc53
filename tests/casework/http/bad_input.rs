//! Bad input: each a clear 4xx problem, and no row.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Desk, approval, new_id};
use crate::support::http::{RawConnection, command_path, raw_status};

const ID: &str = "6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11";
const JSON: &str = "application/json";

/// A body of exactly so many bytes.
fn body_of(bytes: usize) -> String {
    let (head, tail) = (r#"{"reason":"Seen.","payload":{"x":""#, r#""}}"#);
    format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
}

on_both_databases! {
    async fn bad_bodies_are_refused_with_their_reason_and_leave_no_row(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let before = database.count("operations");
        let (wide, deep) = (format!(r#"{{"reason":"{}"}}"#, "x".repeat(2_001)), "[".repeat(10_000));
        let deep = format!(r#"{{"reason":"x","payload":{{"a":{deep}"#);
        let large = body_of(65_537);
        let cases: &[(&str, u16, &str, &str)] = &[
            (r#"{"reason":"#, 400, "malformed-json", ""),
            ("\u{feff}{}", 400, "malformed-json", ""),
            (" ", 400, "malformed-json", ""),
            (r#"{"reason":"x"} {}"#, 400, "malformed-json", ""),
            (r#"{"reason":"x","reason":"x"}"#, 400, "malformed-json", ""),
            (r#"{"reason":"x","payload":{"a":[{"b":1,"b":1}]}}"#, 400, "malformed-json", ""),
            (r#"{"reason":"\ud800"}"#, 400, "malformed-json", ""),
            (&deep, 400, "malformed-json", ""),
            ("[]", 422, "invalid-command", ""),
            ("null", 422, "invalid-command", ""),
            (r#"{"reason":"x","raeson":"x"}"#, 422, "invalid-command", "/raeson"),
            (r#"{"reason":"x","operation_id":"x"}"#, 422, "invalid-command", "/operation_id"),
            (r#"{"reason":"x","expected_revision":9007199254740992}"#, 422, "invalid-command", "/expected_revision"),
            (r#"{"reason":"x","expected_revision":-1}"#, 422, "invalid-command", "/expected_revision"),
            (r#"{"reason":"x","expected_revision":1.5}"#, 422, "invalid-command", "/expected_revision"),
            (r#"{"reason":"x","payload":{"n":1e999}}"#, 422, "invalid-command", ""),
            (r#"{"reason":" \t"}"#, 422, "invalid-command", "/reason"),
            (&wide, 422, "invalid-command", "/reason"),
            (r#"{"reason":"a\u0000b"}"#, 422, "invalid-command", "/reason"),
            (r#"{"reason":"x","payload":{"a":"\u0000"}}"#, 422, "invalid-command", "/payload/a"),
            (r#"{"reason":"x","payload":[]}"#, 422, "invalid-command", "/payload"),
            (r#"{"reason":"x","actor":7}"#, 422, "invalid-command", "/actor"),
            (r#"{"reason":"x","workflow":"permit"}"#, 422, "invalid-command", "/workflow"),
            ("{}", 422, "invalid-command", "/reason"),
            ("", 422, "invalid-command", "/reason"),
            (&large, 413, "too-large", ""),
        ];
        for (body, status, code, pointer) in cases {
            let key = new_id();
            let headers = [("content-type", JSON), ("idempotency-key", key.as_str())];
            let answer = desk.raw("/v1/cases/62/note", &headers, (*body).to_owned(), &desk.clerk).await;
            let problem = answer.expect_problem(*status, code);
            let document = problem.json();
            let request_id = problem.header("x-request-id").unwrap();
            assert_eq!(document["request_id"], request_id);
            assert_eq!(document["type"], format!("/problems/{code}"));
            assert_eq!((&document["retryable"], &document["reuse_key"]), (&json!(false), &json!(false)));
            assert!(document["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{document}");
            if *code == "invalid-command" {
                assert_eq!(document["errors"][0]["pointer"], *pointer, "{document}");
            }
        }
        // Not UTF-8, and without its length: the bound holds all the same.
        let key = new_id();
        let headers = [("content-type", JSON), ("idempotency-key", key.as_str())];
        let answer = desk.raw("/v1/cases/62/note", &headers, &b"{\"reason\":\"\xff\"}"[..], &desk.clerk).await;
        let _ = answer.expect_problem(400, "malformed-json");
        let pieces = (0..9).map(|_| Ok::<_, std::io::Error>("x".repeat(8_192)));
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let _ = desk.raw("/v1/cases/62/note", &headers, body, &desk.clerk).await.expect_problem(413, "too-large");
        assert_eq!(database.count("operations"), before);

        let _ = desk.raw("/v1/cases/62/note", &headers, body_of(65_536), &desk.clerk).await.expect_status(200);
    }

    async fn bad_heads_are_refused_and_leave_no_row(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let before = database.count("operations");
        let body = r#"{"reason":"Seen."}"#;
        let send = async |path: &str, headers: &[(&str, &str)]| desk.raw(path, headers, body, &desk.clerk).await;
        let json = ("content-type", JSON);
        let key = ("idempotency-key", ID);
        let note = "/v1/cases/62/note";

        let _ = send(note, &[json]).await.expect_problem(400, "operation-id-missing");
        for bad in ["x", "", "\"x\"", "6f1e4c529f0a4b8e8d2b0a6a1f4f7c11", "00000000-0000-0000-0000-000000000000"] {
            let _ = send(note, &[json, ("idempotency-key", bad)]).await.expect_problem(400, "operation-id-invalid");
        }
        let _ = send(note, &[json, key, key]).await.expect_problem(400, "operation-id-invalid");
        let two = format!("{ID}, {ID}");
        let _ = send(note, &[json, ("idempotency-key", &two)]).await.expect_problem(400, "operation-id-invalid");

        for bad in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            let answer = send(note, &[key, ("content-type", bad)]).await;
            let _ = answer.expect_problem(415, "unsupported-media-type");
        }
        let _ = send(note, &[key]).await.expect_problem(415, "unsupported-media-type");
        let encoded = send(note, &[key, json, ("content-encoding", "gzip")]).await;
        let _ = encoded.expect_problem(415, "unsupported-media-type");

        let long = "x".repeat(129);
        for bad in [long.as_str(), "a\nb", "..", "."] {
            // The client would take dots for steps: they are written as they stand.
            let path = if bad.starts_with('.') { format!("/v1/cases/{}/note", bad.replace('.', "%2E")) } else { command_path(bad, "note") };
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: {JSON}\r\nIdempotency-Key: {ID}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                desk.clerk,
                body.len()
            );
            let answer = crate::support::http::raw_exchange(desk.server.address(), request.as_bytes());
            assert_eq!(raw_status(&answer), Some(422), "{bad:?}");
        }
        let _ = send("/v1/cases/a/b/note", &[json, key]).await.expect_problem(404, "not-found");
        let _ = send("/v1/cases/%FF/note", &[json, key]).await.expect_problem(404, "not-found");
        let _ = send("/v1/cases/62/No-Te", &[json, key]).await.expect_problem(422, "invalid-command");
        let _ = send("/v1/cases/62/note?dry_run=1", &[json, key]).await.expect_problem(422, "invalid-command");
        let _ = send("/v1/cases/63/note", &[json, key]).await.expect_problem(404, "case-not-found");
        assert_eq!(database.count("operations"), before);

        // Quoted, and with parameters: these are right.
        let quoted = format!("\"{ID}\"");
        let right = [("content-type", "Application/JSON; charset=utf-8"), ("idempotency-key", quoted.as_str())];
        let _ = send(note, &right).await.expect_status(200);
        assert!(send(note, &[json, key]).await.expect_status(200).is_replay());
    }
}

/// What the router and the socket refuse is a problem document as well.
#[tokio::test]
async fn routes_methods_and_tokens_are_answered_with_problems() {
    let database = crate::support::database::TestDatabase::sqlite();
    let desk = Desk::open(&database);
    desk.open_case("62").await;
    let send = async |method: Method, path: &str, token: &str| {
        let headers = [("authorization", token.to_owned())];
        desk.client.send(method, path, &headers, "").await
    };
    let bearer = format!("Bearer {}", desk.clerk);
    for path in ["/", "/v1", "/v1/cases/", "/v1/case", "/problems/unheard", "/v1/outbox/x", "/V1/cases"] {
        let _ = send(Method::GET, path, &bearer).await.expect_problem(404, "not-found");
    }
    for (method, path, allow) in [
        (Method::GET, "/v1/commands", "POST"),
        (Method::DELETE, "/v1/cases/62", "GET, HEAD"),
        (Method::PATCH, "/v1/cases/62/operations", "GET, HEAD, POST"),
        (Method::OPTIONS, "/healthz", "GET, HEAD"),
    ] {
        let answer = send(method, path, &bearer).await.expect_problem(405, "method-not-allowed");
        assert_eq!(answer.header("allow"), Some(allow));
    }
    for token in ["", "Bearer", "Basic abc", "Bearer unknown", &desk.clerk] {
        for (method, path) in
            [(Method::GET, "/v1/cases/62"), (Method::POST, "/v1/cases/62/note"), (Method::POST, "/v1/commands")]
        {
            let answer = send(method, path, token).await.expect_problem(401, "unauthenticated");
            assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
        }
    }
    for path in ["/healthz", "/readyz", "/problems/stale-revision"] {
        let _ = desk.client.get(path, None).await.expect_status(200);
        let head = desk.client.send(Method::HEAD, path, &[], "").await.expect_status(200);
        assert!(head.body.is_empty());
    }
    // A connection goes on after an error, and a client that stops in mid-body takes nobody with it.
    let _ = desk.send("62", "approve", approval(0), "unknown").await.expect_problem(401, "unauthenticated");
    let mut connection = RawConnection::connect(desk.server.address());
    connection.send(b"POST /v1/cases/62/note HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"rea");
    drop(connection);
    // One that stands still in mid-body is told so, and to send the same again.
    let mut slow = RawConnection::connect(desk.server.address());
    let head = format!("Authorization: Bearer {}\r\nIdempotency-Key: {ID}\r\nContent-Type: {JSON}", desk.clerk);
    slow.send(
        format!("POST /v1/cases/62/note HTTP/1.1\r\nHost: x\r\n{head}\r\nContent-Length: 100\r\n\r\n{{").as_bytes(),
    );
    let answer = tokio::task::spawn_blocking(move || slow.read_to_end()).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(raw_status(&answer) == Some(408) && text.contains("request-timeout"), "{text}");
    let note: Value = json!({"reason": "Seen."});
    let _ = desk.send("62", "note", note, &desk.clerk).await.expect_status(200);
    assert_eq!(database.count("operations"), 3);
}
