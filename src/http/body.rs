//! Reading a command's body.
//!
//! Owns the bounds on its size (65,536 bytes pass, one more does not, whether or not the length was announced) and on the time
//! that it takes to arrive. Fails with `too-large`, `request-timeout`, or `malformed-json` where the body ends early.

use std::time::Duration;

use actix_web::http::header::{self, HeaderMap};
use actix_web::web;
use bytes::BytesMut;
use futures_util::StreamExt as _;

use super::problems::{Problem, ProblemCode};

/// The largest body of a command, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long the whole body may take to arrive: a bad mobile connection brings 64 KiB in that time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the whole body.
///
/// # Errors
/// `too-large`, `request-timeout`, `malformed-json`.
pub(super) async fn read(headers: &HeaderMap, payload: web::Payload) -> Result<BytesMut, Problem> {
    tokio::time::timeout(BODY_TIMEOUT, read_whole(headers, payload)).await.unwrap_or_else(|_| {
        let detail =
            format!("the body did not arrive whole within {} s; send the request again", BODY_TIMEOUT.as_secs());
        Err(Problem::new(ProblemCode::RequestTimeout, detail))
    })
}

async fn read_whole(headers: &HeaderMap, mut payload: web::Payload) -> Result<BytesMut, Problem> {
    let too_large = || Problem::new(ProblemCode::TooLarge, format!("a command has at most {BODY_BYTES_MAX} bytes"));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|error| {
            tracing::debug!(%error, "the body of a request did not arrive whole");
            Problem::new(ProblemCode::MalformedJson, "the body ended before it was whole")
        })?;
        if body.len() + piece.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
