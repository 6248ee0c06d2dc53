//! Idempotency for any actix-web service: of any number of equal requests under one key, one is run, and all get its answer.
//!
//! Owns the contract of `Idempotency-Key`: identity is (namespace, principal, key); the fingerprint of the request is a value
//! that is stored with it, so that another request under the key is refused, not answered with what it did not ask for. Stands
//! on its own: no case is needed. **At most once while the store keeps what it was told**: a claim whose owner dies is run
//! again after its lease, so work that must not happen twice even then commits its answer in its own transaction
//! ([`SqlStore::complete_in_postgres`], [`SqlStore::complete_in_sqlite`]).
//!
//! # Quick start
//!
//! ```
//! use std::sync::Arc;
//!
//! use actix_web::http::header::AUTHORIZATION;
//! use actix_web::{App, HttpResponse, HttpServer, web};
//! use casework::idempotency::{Idempotency, IdempotencyOptions, MemoryBounds, MemoryStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once a process, outside the closure that builds each worker's app.
//! let store = Arc::new(MemoryStore::new(MemoryBounds::default()));
//! let idempotency = Idempotency::new(store).principal_from(AUTHORIZATION, IdempotencyOptions::default())?;
//!
//! let server = HttpServer::new(move || {
//!     App::new().wrap(idempotency.clone()).route(
//!         "/payments",
//!         web::post().to(async || HttpResponse::Created().json(serde_json::json!({"charged": true}))),
//!     )
//! });
//! # let _ = server;
//! # Ok(())
//! # }
//! ```
//!
//! | a request | is answered |
//! |---|---|
//! | the first under its key | by the handler |
//! | the same again, later | with the same status, body and headers, and `Idempotent-Replay: true` |
//! | the same again, meanwhile | 202 and `Retry-After` (409 by option), after a wait by option |
//! | another one under the key | 409 `idempotency-key-reused` (422 by option), naming the parts that differ |
//! | without a key, or with a bad one | 400 |
//! | while the store is away | 503, and nothing is run (run unprotected by option) |
//!
//! Answers that say something about the attempt alone (5xx, 401, 403, 408, 413, 415, 425, 429, an error that a handler
//! returned) are not kept: the next attempt runs. Bodies over 64 KiB and streams are given to the first caller whole and kept
//! without the body: a repeat gets status, headers and `Idempotent-Body: not-kept`.

mod claim;
mod counters;
mod fingerprint;
mod key;
mod middleware;
mod options;
mod problems;
mod recorded_response;
mod run;
mod running;
mod setup;
mod stores;

pub use claim::{Claim, ClaimToken, Holding};
pub use counters::IdempotencyCounts;
pub use fingerprint::{Fingerprint, Part, RequestParts};
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, Identity, InvalidKey, Principal};
pub use middleware::IdempotencyService;
pub use options::{Conclusion, IdempotencyOptions, InvalidOptions, RequestFilter, StatusFilter, WhenUnavailable};
pub use problems::{ProblemCode, ProblemFacts};
pub use recorded_response::{IDEMPOTENT_BODY, IDEMPOTENT_REPLAY, RecordedResponse, UnreadableRecord};
pub use run::ClaimInHand;
pub use setup::{Idempotency, IdempotencyFor, IdempotencySetupError};
pub use stores::{IdempotencyStore, MemoryBounds, MemoryStore, RedisStore, SqlStore, StoreFault};
