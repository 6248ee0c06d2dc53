//! The settings of the layer.
//!
//! Owns their defaults, their bounds and who they are for. Fails with [`InvalidOptions`] where a setting would break a
//! promise.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::HeaderName;
use actix_web::http::{Method, StatusCode};

use super::key::Principal;

/// Tells who sent a request; `None`: nobody knows, and it is answered 401.
pub(super) type PrincipalOf = Arc<dyn Fn(&ServiceRequest) -> Option<Principal> + Send + Sync>;
/// Chooses among requests.
pub type RequestFilter = Arc<dyn Fn(&ServiceRequest) -> bool + Send + Sync>;
/// Chooses among statuses.
pub type StatusFilter = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// What to do with a request whose key can't be claimed because the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// Answer 503 and run nothing.
    Refuse,
    /// Run it without protection: it may run twice.
    RunUnprotected,
}

/// What a handler says about its own answer where the status can't tell: put it into the extensions of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// The answer ends the operation, whatever its status: it is kept.
    Final,
    /// The answer is about this attempt alone: the key is given back.
    Attempt,
}

/// A setting that would break a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    /// Shorter than what can be kept.
    #[error("the lease of a claim must be at least 10 ms; 30 s is usual")]
    LeaseTooShort,
    /// Shorter than what can be kept.
    #[error("responses must be kept for at least 10 ms; 30 minutes are usual")]
    LifetimeTooShort,
    /// Shorter than any store.
    #[error("a store must have at least 10 ms for a claim; 5 s are usual")]
    StoreTimeoutTooShort,
    /// A mismatch is a 4xx: the client must not send it again.
    #[error("a key that belongs to another request is answered 409 or 422")]
    MismatchStatus,
    /// 202, or 409 as the draft has it.
    #[error("a request in flight is answered 202 or 409")]
    InFlightStatus,
}

/// The shortest lease and lifetime: below it a store's clock decides by chance.
const TIME_MIN: Duration = Duration::from_millis(10);

/// Settings of [`Idempotency`](super::Idempotency). Every field has a default.
#[derive(Clone)]
pub struct IdempotencyOptions {
    /// Methods that the layer looks at; others pass untouched. Default: POST, PUT, PATCH, DELETE.
    pub methods: Vec<Method>,
    /// Whether a request without a key is refused (400) or passes untouched. Default: refused.
    pub key_required: bool,
    /// Told apart from other services in one store. Default: the empty text.
    pub namespace: String,
    /// How long an answer is kept. Too short: late retries run again; too long: the store's room. Default: 30 minutes.
    pub response_lifetime: Duration,
    /// How long a claim holds without being renewed, and so how long a crash keeps its key. It is renewed at a third of it.
    /// Default: 30 s.
    pub claim_lease: Duration,
    /// The longest body that is kept; over it, status and headers are. Default: 64 KiB.
    pub response_bytes_max: usize,
    /// The longest request body, which is read whole for the fingerprint; over it 413. Default: 1 MiB.
    pub request_bytes_max: usize,
    /// How long a request's body may take to arrive; over it 408. Default: 30 s.
    pub request_body_timeout: Duration,
    /// What a key that belongs to another request is answered with: 409 or 422. Default: 409.
    pub mismatch_status: u16,
    /// What a request that is running already is answered with: 202 or 409. Default: 202.
    pub in_flight_status: u16,
    /// How long a repeat waits for the first one before it is told that that is in flight. Default: not at all.
    pub in_flight_wait: Duration,
    /// How long the store may take over a claim before it counts as away. Too short: 503 where it is only busy; too long:
    /// clients of a store that hangs hang with it. Default: 5 s.
    pub store_timeout: Duration,
    /// What happens when the store is away. Default: the request is refused.
    pub when_unavailable: WhenUnavailable,
    /// Headers that are kept beside those that always are.
    pub kept_headers: Vec<HeaderName>,
    /// Which statuses end an operation; see [`IdempotencyOptions::with_final`].
    pub is_final: StatusFilter,
    /// Which requests the layer looks at; see [`IdempotencyOptions::with_filter`].
    pub applies: RequestFilter,
}

impl Default for IdempotencyOptions {
    fn default() -> Self {
        Self {
            methods: vec![Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
            key_required: true,
            namespace: String::new(),
            response_lifetime: Duration::from_secs(30 * 60),
            claim_lease: Duration::from_secs(30),
            response_bytes_max: 64 << 10,
            request_bytes_max: 1 << 20,
            request_body_timeout: Duration::from_secs(30),
            mismatch_status: 409,
            in_flight_status: 202,
            in_flight_wait: Duration::ZERO,
            store_timeout: Duration::from_secs(5),
            when_unavailable: WhenUnavailable::Refuse,
            kept_headers: Vec::new(),
            is_final: Arc::new(is_final),
            applies: Arc::new(|_| true),
        }
    }
}

impl IdempotencyOptions {
    /// Which statuses end an operation; an answer with any other gives the key back. Default: all but 5xx, 401, 403, 408,
    /// 413, 415, 425 and 429, which say something about this attempt alone.
    #[must_use]
    pub fn with_final(mut self, is_final: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.is_final = Arc::new(is_final);
        self
    }

    /// Which requests the layer looks at, beside their method: by path, for example. Default: all.
    #[must_use]
    pub fn with_filter(mut self, applies: impl Fn(&ServiceRequest) -> bool + Send + Sync + 'static) -> Self {
        self.applies = Arc::new(applies);
        self
    }

    /// Checks what a type can't.
    ///
    /// # Errors
    /// [`InvalidOptions`].
    pub fn check(&self) -> Result<(), InvalidOptions> {
        if self.claim_lease < TIME_MIN {
            return Err(InvalidOptions::LeaseTooShort);
        }
        if self.response_lifetime < TIME_MIN {
            return Err(InvalidOptions::LifetimeTooShort);
        }
        if self.store_timeout < TIME_MIN {
            return Err(InvalidOptions::StoreTimeoutTooShort);
        }
        if !matches!(self.mismatch_status, 409 | 422) {
            return Err(InvalidOptions::MismatchStatus);
        }
        if !matches!(self.in_flight_status, 202 | 409) {
            return Err(InvalidOptions::InFlightStatus);
        }
        Ok(())
    }
}

fn is_final(status: StatusCode) -> bool {
    !status.is_server_error() && !matches!(status.as_u16(), 100..=199 | 401 | 403 | 408 | 413 | 415 | 425 | 429)
}
