//! What the layer itself answers, as RFC 9457 problem documents.
//!
//! Owns the codes and what each means for a retry: one table. Never shows a key, a body or a driver's words. Cannot fail.

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;

use super::fingerprint::Part;

/// Every code that the layer answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemCode {
    /// No key where one is needed.
    KeyMissing,
    /// A key that is none, or two of them.
    KeyInvalid,
    /// The key belongs to another request.
    KeyReused,
    /// The same request is running.
    InFlight,
    /// Nobody to keep an answer for.
    Unauthenticated,
    /// JSON that can't be read, or in two ways.
    MalformedJson,
    /// The body did not come.
    RequestTimeout,
    /// A body over the bound.
    TooLarge,
    /// The handler panicked, or its response broke off.
    Internal,
    /// The store has no room.
    Overloaded,
    /// The server is shutting down.
    Draining,
    /// The store is away: nothing was run.
    Unavailable,
}

/// What a code means on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemFacts {
    /// The stable code.
    pub code: &'static str,
    /// The HTTP status, unless an option says otherwise.
    pub status: u16,
    /// A short sentence that is the same for every occurrence.
    pub title: &'static str,
    /// The same request may succeed unchanged.
    pub retryable: bool,
    /// If so, under the same key; a changed request always takes a new one.
    pub reuse_key: bool,
}

impl ProblemCode {
    /// All of them, in the order of their statuses.
    pub const ALL: [Self; 12] = [
        Self::InFlight,
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::MalformedJson,
        Self::Unauthenticated,
        Self::RequestTimeout,
        Self::KeyReused,
        Self::TooLarge,
        Self::Internal,
        Self::Overloaded,
        Self::Draining,
        Self::Unavailable,
    ];

    /// The table.
    pub fn facts(self) -> ProblemFacts {
        let facts =
            |status, code, title, retryable, reuse_key| ProblemFacts { code, status, title, retryable, reuse_key };
        match self {
            Self::InFlight => facts(202, "idempotency-in-flight", "The same request is being run", true, true),
            Self::KeyMissing => facts(400, "idempotency-key-missing", "An Idempotency-Key is needed", false, false),
            Self::KeyInvalid => facts(400, "idempotency-key-invalid", "The Idempotency-Key is not valid", false, false),
            Self::MalformedJson => facts(400, "malformed-json", "The JSON can't be read", false, false),
            Self::Unauthenticated => facts(401, "unauthenticated", "The caller is not known", false, true),
            Self::RequestTimeout => facts(408, "request-timeout", "The request did not arrive in time", true, true),
            Self::KeyReused => {
                facts(409, "idempotency-key-reused", "The key was used for another request", false, false)
            }
            Self::TooLarge => facts(413, "too-large", "The request body is too large", false, false),
            Self::Internal => facts(500, "internal", "The server found a fault of its own", true, true),
            Self::Overloaded => facts(503, "overloaded", "There is no room for another key", true, true),
            Self::Draining => facts(503, "draining", "The server is shutting down", true, true),
            Self::Unavailable => facts(503, "unavailable", "The idempotency store is not available", true, true),
        }
    }
}

/// RFC 9457, section 3.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    code: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    retryable: bool,
    reuse_key: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differs: Vec<&'static str>,
}

/// One occurrence of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    code: ProblemCode,
    status: u16,
    detail: String,
    differs: Vec<Part>,
    retry_after_seconds: Option<u64>,
}

impl Problem {
    /// A problem with a sentence that says what to do next.
    pub(super) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let status = code.facts().status;
        let retry_after_seconds = (status == 503).then_some(1);
        Self { code, status, detail: detail.into(), differs: Vec::new(), retry_after_seconds }
    }

    /// Another status than the table's.
    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Names the parts that differ; never what stands in them.
    pub(super) fn with_differing(self, differs: Vec<Part>) -> Self {
        Self { differs, ..self }
    }

    /// When to come back.
    pub(super) fn with_retry_after(self, seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }

    /// The answer.
    pub(super) fn response(&self) -> HttpResponse {
        let facts = self.code.facts();
        let document = Document {
            kind: format!("/problems/{}", facts.code),
            code: facts.code,
            title: facts.title,
            status: self.status,
            detail: &self.detail,
            retryable: facts.retryable,
            reuse_key: facts.reuse_key,
            differs: self.differs.iter().map(|part| part.name()).collect(),
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponseBuilder::new(status);
        if let Some(seconds) = self.retry_after_seconds {
            response.insert_header((RETRY_AFTER, seconds));
        }
        response.insert_header((CONTENT_TYPE, "application/problem+json"));
        response.body(serde_json::to_string(&document).expect("texts and numbers are JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_the_order_of_their_statuses() {
        let facts = ProblemCode::ALL.map(ProblemCode::facts);
        assert!(facts.is_sorted_by_key(|facts| facts.status));
        let codes: std::collections::BTreeSet<_> = facts.iter().map(|facts| facts.code).collect();
        assert_eq!(codes.len(), facts.len());
    }
}
