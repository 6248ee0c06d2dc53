//! The layer reads each body before the handler does: behind it, whatever reads it gets all of it.

use std::sync::Arc;

use casework::idempotency::{IdempotencyOptions, MemoryBounds, MemoryStore};
use reqwest::Method;

use super::service::{Service, client, send};
use crate::support::database::block_on;

/// What reads a body, by path: `Bytes`, `Json`, and a stream of chunks.
const READERS: [&str; 3] = ["/echo", "/as/json", "/as/payload"];

fn service() -> Service {
    Service::start(Arc::new(MemoryStore::new(MemoryBounds::default())), IdempotencyOptions::default())
}

#[test]
fn bytes_json_and_streams_are_read_whole() {
    let service = service();
    block_on(async {
        // Of one chunk, of many, and none at all.
        for length in [10, 200_000, 900_000] {
            let body = format!("{{\"a\":\"{}\"}}", "x".repeat(length));
            for path in READERS {
                let key = format!("{path}/{length}");
                let headers = [("idempotency-key", &*key), ("x-user", "47"), ("content-type", "application/json")];
                let got = send(&service, Method::POST, path, &headers, &body).await;
                assert_eq!((got.status, got.body.len()), (200, body.len()), "{path} of {length}");
                assert_eq!(got.body, body.as_bytes(), "{path} of {length}");
            }
        }
        let headers = [("idempotency-key", "empty"), ("x-user", "47")];
        assert_eq!(send(&service, Method::POST, "/echo", &headers, "").await.body.len(), 0);
    });
}

#[test]
fn chunked_bodies_are_read_whole_and_are_the_same_request_however_they_are_cut() {
    let service = service();
    block_on(async {
        let client = client();
        let body = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
        for (path, reader) in READERS.iter().enumerate() {
            for pieces in [7, 100_000] {
                let chunks: Vec<_> =
                    body.as_bytes().chunks(pieces.max(body.len() / 1_000)).map(<[u8]>::to_vec).collect();
                let chunks = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>));
                let request = client
                    .post(service.url(reader))
                    .header("idempotency-key", format!("chunked {path}").replace(' ', "-"));
                let request = request.header("x-user", "47").header("content-type", "application/json");
                let response = request.body(reqwest::Body::wrap_stream(chunks)).send().await.unwrap();
                let is_replay = response.headers().contains_key("idempotent-replay");
                // Over the bound on kept bodies, a repeat has none.
                let expected = if is_replay { 0 } else { body.len() };
                assert_eq!((response.bytes().await.unwrap().len(), is_replay), (expected, pieces != 7), "{reader}");
            }
        }
    });
}

/// A form comes with another boundary each time it is sent, and is the same form.
#[test]
fn a_multipart_form_is_read_whole_and_is_the_same_request_under_another_boundary() {
    let service = service();
    let form = |boundary: &str, amount: &str| {
        format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"amount\"\r\n\r\n{amount}\r\n--{boundary}\r\n\
             content-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n{}\r\n--{boundary}--\r\n",
            "\u{1}-".repeat(20_000)
        )
    };
    block_on(async {
        for path in ["/echo", "/as/payload"] {
            let post = async |boundary: &str, amount: &str| {
                let media = format!("multipart/form-data; boundary={boundary}");
                let headers = [("idempotency-key", path), ("x-user", "47"), ("content-type", &*media)];
                send(&service, Method::POST, path, &headers, &form(boundary, amount)).await
            };
            let first = post("first", "125.50").await;
            assert_eq!((first.status, &first.body[..]), (200, form("first", "125.50").as_bytes()), "{path}");
            let again = post("second", "125.50").await;
            assert!(again.is_replay() && again.body == first.body, "{path}");
            post("second", "125.51").await.expect_problem(409, "idempotency-key-reused");
        }
    });
}
