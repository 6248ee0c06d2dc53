//! An answer as it is kept and given again.
//!
//! Owns which headers are kept, the bound on bodies and the form in stores. Never cuts a body: one that is too large, or a
//! stream, is kept without it. Fails with [`UnreadableRecord`] where a store holds something else.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// On an answer that was given before.
pub const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
/// On a replay whose body was not kept.
pub const IDEMPOTENT_BODY: HeaderName = HeaderName::from_static("idempotent-body");

/// Headers that say something about the outcome and may be said again. Never among them: cookies, connection headers,
/// dates, and whatever else belongs to one exchange.
const KEPT_HEADERS: [&str; 14] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "deprecation",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
];

/// Version of the stored form.
const VERSION: u8 = 1;

/// Status, headers and body of an answer. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    status: u16,
    /// As they go out, so that a replay copies none.
    headers: Arc<[(HeaderName, HeaderValue)]>,
    body: Option<Bytes>,
}

/// The bytes are no recorded answer, or one of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored response can't be read: {0}")]
pub struct UnreadableRecord(String);

/// The first line of the stored form; the body follows as it is.
#[derive(Serialize, Deserialize)]
struct Head {
    v: u8,
    status: u16,
    /// Values as Latin-1: each byte a character.
    headers: Vec<(String, String)>,
    body: bool,
}

impl RecordedResponse {
    /// An answer with its body. What HTTP has no such header for is left out.
    pub fn new(status: u16, headers: Vec<(String, Vec<u8>)>, body: impl Into<Bytes>) -> Self {
        Self { status, headers: readable(headers), body: Some(body.into()) }
    }

    /// An answer whose body is not kept: it will not be run again, and whoever repeats it learns the status.
    pub fn tombstone(status: u16, headers: Vec<(String, Vec<u8>)>) -> Self {
        Self { status, headers: readable(headers), body: None }
    }

    /// What is kept of `headers`: the list of this module and `also`, names in lower case.
    pub fn kept_headers(headers: &HeaderMap, also: &[HeaderName]) -> Vec<(String, Vec<u8>)> {
        let kept = |name: &HeaderName| KEPT_HEADERS.binary_search(&name.as_str()).is_ok() || also.contains(name);
        let pairs = headers.iter().filter(|(name, _)| kept(name));
        pairs.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The body; `None`: it was not kept.
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| 80 + name.as_str().len() + value.len()).sum();
        headers + self.body.as_ref().map_or(0, Bytes::len)
    }

    /// The answer for a client that gets it for the first time, from a handler that records it itself.
    pub fn first(&self) -> HttpResponse {
        self.answer(false)
    }

    /// The answer for a client that repeats its request.
    pub fn replay(&self) -> HttpResponse {
        self.answer(true)
    }

    fn answer(&self, is_replay: bool) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponseBuilder::new(status);
        for (name, value) in self.headers.iter() {
            response.append_header((name.clone(), value.clone()));
        }
        if is_replay {
            response.insert_header((IDEMPOTENT_REPLAY, "true"));
        }
        match &self.body {
            Some(body) if body.is_empty() => response.finish(),
            Some(body) => response.body(body.clone()),
            None => {
                response.insert_header((IDEMPOTENT_BODY, "not-kept"));
                response.finish()
            }
        }
    }

    /// The form that stores keep.
    pub fn to_bytes(&self) -> Vec<u8> {
        let latin1 = |value: &[u8]| value.iter().copied().map(char::from).collect();
        let head = Head {
            v: VERSION,
            status: self.status,
            headers: self.headers.iter().map(|(name, value)| (name.to_string(), latin1(value.as_bytes()))).collect(),
            body: self.body.is_some(),
        };
        let mut bytes = serde_json::to_vec(&head).expect("texts and numbers are JSON");
        bytes.push(b'\n');
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// Reads what [`RecordedResponse::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`UnreadableRecord`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self, UnreadableRecord> {
        let mut bytes: Bytes = bytes.into();
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| UnreadableRecord("it has no first line".into()))?;
        let head: Head =
            serde_json::from_slice(&bytes[..end]).map_err(|error| UnreadableRecord(format!("first line: {error}")))?;
        if head.v != VERSION {
            return Err(UnreadableRecord(format!("it is of version {}, this program reads {VERSION}", head.v)));
        }
        let bytes_of = |value: String| value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        let headers: Vec<(String, Vec<u8>)> =
            head.headers.into_iter().map(|(name, value)| (name, bytes_of(value))).collect();
        let body = bytes.split_off(end + 1);
        Ok(Self { status: head.status, headers: readable(headers), body: head.body.then_some(body) })
    }
}

fn readable(headers: Vec<(String, Vec<u8>)>) -> Arc<[(HeaderName, HeaderValue)]> {
    let pair = |(name, value): (String, Vec<u8>)| {
        // Copies: what is kept outlives the request, and must not keep its buffer.
        Some((HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(&value).ok()?))
    };
    headers.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let headers = vec![("etag".to_owned(), b"\"5\"".to_vec()), ("link".to_owned(), vec![b'<', 0xe9, b'>'])];
        for response in [
            RecordedResponse::new(201, headers.clone(), &b"{\"a\":1}\n\0\xff"[..]),
            RecordedResponse::new(204, Vec::new(), Bytes::new()),
            RecordedResponse::tombstone(200, headers),
        ] {
            assert_eq!(RecordedResponse::from_bytes(response.to_bytes()).expect("valid"), response);
        }
        for bad in ["", "{}\n", "{\"v\":2,\"status\":200,\"headers\":[],\"body\":true}\n"] {
            assert!(RecordedResponse::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_list_of_headers_is_sorted_for_its_search() {
        assert!(KEPT_HEADERS.is_sorted());
    }

    #[test]
    fn cookies_are_not_kept() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("set-cookie", "a=1"), ("location", "/payments/1"), ("x-own", "1"), ("date", "now")] {
            headers.append(name.parse().expect("valid"), HeaderValue::from_static(value));
        }
        let kept = RecordedResponse::kept_headers(&headers, &[HeaderName::from_static("x-own")]);
        let names: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            {
                let mut names = names;
                names.sort_unstable();
                names
            },
            ["location", "x-own"]
        );
    }
}
