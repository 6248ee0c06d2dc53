//! Whether a guard lives, and whether it can do its work: the store takes and gives back a claim, the upstream can be
//! connected to.
//!
//! Owns the two probes under the health path, and how often the world is asked for them: at most once a second, however
//! often a probe comes. Tells names of parts and no addresses. Cannot fail: what does not answer is not ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use serde_json::json;
use tokio::sync::Mutex;

use super::forward::can_be_reached;
use super::settings::UpstreamOptions;
use crate::idempotency::{
    ClaimToken, Fingerprint, IdempotencyKey, IdempotencyStore, Identity, Principal, RequestParts,
};

/// How long what was found is true.
const FOUND_FOR: Duration = Duration::from_secs(1);
/// How long the store may take for a probe.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a claim of a probe holds that could not be given back.
const PROBE_LEASE: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Debug, Clone, Copy)]
struct Found {
    at: Instant,
    store: bool,
    upstream: bool,
}

/// The probes. One for all workers.
pub(super) struct Health {
    store: Arc<dyn IdempotencyStore>,
    upstream: Arc<UpstreamOptions>,
    is_draining: AtomicBool,
    last: Mutex<Option<Found>>,
}

impl Health {
    pub(super) fn new(store: Arc<dyn IdempotencyStore>, upstream: Arc<UpstreamOptions>) -> Self {
        Self { store, upstream, is_draining: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// From now on it is not ready.
    pub(super) fn begin_drain(&self) {
        self.is_draining.store(true, Relaxed);
    }

    /// The process runs.
    pub(super) fn live() -> HttpResponse {
        HttpResponse::Ok().insert_header(("cache-control", "no-store")).json(json!({ "status": "ok" }))
    }

    /// It can do its work: 200, else 503 and what is missing.
    pub(super) async fn ready(&self) -> HttpResponse {
        let Found { store, upstream, .. } = self.found().await;
        let is_draining = self.is_draining.load(Relaxed);
        let is_ready = store && upstream && !is_draining;
        let word = |fine: bool, otherwise: &'static str| if fine { "ok" } else { otherwise };
        let state = json!({
            "status": word(is_ready, "not-ready"),
            "store": word(store, "unavailable"),
            "upstream": word(upstream, "unavailable"),
            "draining": is_draining,
        });
        let mut response = if is_ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
        response.insert_header(("cache-control", "no-store")).json(state)
    }

    async fn found(&self) -> Found {
        // Held while looking: those who come meanwhile get what was found.
        let mut last = self.last.lock().await;
        if let Some(found) = last.filter(|found| found.at.elapsed() < FOUND_FOR) {
            return found;
        }
        let store = tokio::time::timeout(STORE_TIMEOUT, self.store_works());
        let (store, upstream) = tokio::join!(store, can_be_reached(&self.upstream));
        let found = Found { at: Instant::now(), store: store.unwrap_or(false), upstream };
        *last = Some(found);
        found
    }

    /// Claims a key that no client can have, for it belongs to another namespace, and gives it back.
    async fn store_works(&self) -> bool {
        let token = ClaimToken::random();
        let Ok(key) = IdempotencyKey::parse(uuid::Uuid::new_v4().to_string().as_bytes()) else { return false };
        let identity = Identity::new("guard-readiness", &Principal::everybody(), &key);
        let parts =
            RequestParts { method: "GET", path: "/", query: "", content_type: None, content_encoding: None, body: b"" };
        let Ok(fingerprint) = Fingerprint::of(&parts) else { return false };
        let claimed = self.store.claim(&identity, &fingerprint, token, PROBE_LEASE).await;
        claimed.is_ok() && self.store.release(&identity, token).await.is_ok()
    }
}
