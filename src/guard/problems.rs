//! What the guard itself answers, beside what the layer does: RFC 9457 problem documents of the same form.
//!
//! Owns the codes and what each means for a retry: one table. Never shows a key, a body or an address. Cannot fail.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::json;

use crate::idempotency::ProblemFacts;

/// Every code that the guard answers with on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemCode {
    /// A path that two readers could take for two.
    PathInvalid,
    /// The upstream could not be connected to: it got nothing.
    UpstreamUnavailable,
    /// The upstream got the request and did not answer; the next attempt is sent to it.
    UpstreamInterrupted,
    /// The upstream got the request and did not answer; it is not sent again.
    UpstreamUnclear,
    /// More requests at once than the guard takes.
    Overloaded,
}

impl ProblemCode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::PathInvalid,
        Self::UpstreamUnavailable,
        Self::UpstreamInterrupted,
        Self::UpstreamUnclear,
        Self::Overloaded,
    ];

    /// The table. A time-out has the status 504 instead of 502.
    pub fn facts(self) -> ProblemFacts {
        let facts =
            |status, code, title, retryable, reuse_key| ProblemFacts { code, status, title, retryable, reuse_key };
        match self {
            Self::PathInvalid => facts(400, "path-invalid", "The path can be read in two ways", false, false),
            Self::UpstreamUnavailable => {
                facts(502, "upstream-unavailable", "The service behind the guard can't be reached", true, true)
            }
            Self::UpstreamInterrupted => {
                facts(502, "upstream-interrupted", "The service behind the guard did not answer", true, true)
            }
            Self::UpstreamUnclear => {
                facts(502, "upstream-unclear", "Whether the request was carried out is not known", false, true)
            }
            Self::Overloaded => facts(503, "overloaded", "The guard has no room for another request", true, true),
        }
    }

    /// The answer; `detail` says what to do next.
    pub(super) fn response(self, status: Option<u16>, detail: &str) -> HttpResponse {
        let facts = self.facts();
        let status = status.unwrap_or(facts.status);
        let document = json!({
            "type": format!("/problems/{}", facts.code),
            "code": facts.code,
            "title": facts.title,
            "status": status,
            "detail": detail,
            "retryable": facts.retryable,
            "reuse_key": facts.reuse_key,
        });
        let mut response = HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY));
        if facts.retryable {
            response.insert_header((RETRY_AFTER, 1));
        }
        response.insert_header((CONTENT_TYPE, "application/problem+json"));
        response.body(document.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_tell_unclear_from_retryable() {
        let codes: std::collections::BTreeSet<_> = ProblemCode::ALL.iter().map(|code| code.facts().code).collect();
        assert_eq!(codes.len(), ProblemCode::ALL.len());
        let retryable = |code: ProblemCode| code.facts().retryable;
        assert!(!retryable(ProblemCode::UpstreamUnclear) && retryable(ProblemCode::UpstreamUnavailable));
    }
}
