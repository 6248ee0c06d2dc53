//! The layer itself: what happens to a request between the client and the handler.
//!
//! Owns the order of the steps: does it apply, key, principal, body, fingerprint, claim; then run, replay or refuse. Never
//! hands a request on whose key it does not hold. Every refusal is a problem document, and says whether to retry.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use actix_web::{Error, HttpMessage, HttpResponse};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::claim::{Claim, ClaimToken};
use super::counters::{Counters, IdempotencyCounts, RecentRequests, count};
use super::fingerprint::{Fingerprint, RequestParts};
use super::key::{IdempotencyKey, Identity, Principal};
use super::options::{IdempotencyOptions, InvalidOptions, PrincipalOf, WhenUnavailable};
use super::problems::{Problem, ProblemCode};
use super::run::{ClaimInHand, run};
use super::running::{Guard, Running};
use super::stores::{IdempotencyStore, StoreFault};
use crate::store::{DatabaseRuntime, StoreError};

/// While a repeat waits for the first one: how soon it looks again, and how that grows.
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(200);
/// One in so many claims has expired records removed.
const CLAIMS_PER_SWEEP: u64 = 256;

/// The first half of making a layer: a store, without anybody to keep answers for.
pub struct IdempotencyFor(Arc<dyn IdempotencyStore>);

/// The layer: wrap an app, a scope or a resource in it. Make it once, outside the function that builds a worker's app, and
/// clone it there.
#[derive(Clone)]
pub struct Idempotency(Arc<Layer>);

/// What all clones of a layer share.
pub(super) struct Layer {
    pub(super) store: Arc<dyn IdempotencyStore>,
    pub(super) options: IdempotencyOptions,
    pub(super) runtime: Arc<DatabaseRuntime>,
    pub(super) counters: Counters,
    pub(super) running: Running,
    principal_of: PrincipalOf,
    recent: RecentRequests,
    claims: AtomicU64,
}

/// Why a layer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencySetupError {
    /// A setting would break a promise.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// No threads can be had.
    #[error(transparent)]
    Threads(StoreError),
}

impl Idempotency {
    /// Begins with a store. Who a request is from must be said next: without that, callers would share their keys.
    #[expect(clippy::new_ret_no_self, reason = "a layer without a principal must not exist")]
    pub fn new(store: Arc<dyn IdempotencyStore>) -> IdempotencyFor {
        IdempotencyFor(store)
    }

    /// What the layer has done so far, all workers together.
    pub fn counts(&self) -> IdempotencyCounts {
        self.0.counters.counts()
    }

    /// Shows the counts in a registry, as the counter `casework_idempotency_events_total` with the labels `layer`, which tells
    /// several layers of a process apart, and `event`.
    ///
    /// # Errors
    /// The registry's, where a layer of this name is there already.
    pub fn register(&self, registry: &prometheus::Registry, layer: &str) -> prometheus::Result<()> {
        let shared = self.0.clone();
        crate::telemetry::register_counts(
            registry,
            "casework_idempotency_events_total",
            "What became of requests under an Idempotency-Key.",
            ("layer", layer),
            move || shared.counters.counts().events(),
        )
    }

    /// To be called before the server is stopped: refuses new requests (503 `draining`) and waits for those that run, also
    /// for those whose client has hung up, which the server itself would not wait for.
    pub async fn drain(&self) {
        self.0.running.drain().await;
    }
}

impl IdempotencyFor {
    /// Whom a request is from: a user, an account, a tenant. `None` is answered 401.
    ///
    /// # Errors
    /// [`IdempotencySetupError`].
    pub fn principal(
        self,
        principal_of: impl Fn(&ServiceRequest) -> Option<Principal> + Send + Sync + 'static,
        options: IdempotencyOptions,
    ) -> Result<Idempotency, IdempotencySetupError> {
        options.check()?;
        Ok(Idempotency(Arc::new(Layer {
            store: self.0,
            options,
            runtime: DatabaseRuntime::start().map_err(IdempotencySetupError::Threads)?,
            counters: Counters::default(),
            running: Running::default(),
            principal_of: Arc::new(principal_of),
            recent: RecentRequests::new(),
            claims: AtomicU64::new(0),
        })))
    }

    /// The principal is the value of a header, `Authorization` for example: kept as a digest, like all of them.
    ///
    /// # Errors
    /// [`IdempotencySetupError`].
    pub fn principal_from(
        self,
        header: HeaderName,
        options: IdempotencyOptions,
    ) -> Result<Idempotency, IdempotencySetupError> {
        let of_header = move |request: &ServiceRequest| {
            request.headers().get(&header).map(|value| Principal::new(value.as_bytes()))
        };
        self.principal(of_header, options)
    }
}

impl<S, B> Transform<S, ServiceRequest> for Idempotency
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Transform = IdempotencyService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdempotencyService { service: Rc::new(service), layer: self.0.clone() }))
    }
}

/// A worker's service behind the layer.
pub struct IdempotencyService<S> {
    service: Rc<S>,
    layer: Arc<Layer>,
}

impl<S, B> Service<ServiceRequest> for IdempotencyService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    actix_web::dev::forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (service, layer) = (self.service.clone(), self.layer.clone());
        if !layer.options.methods.contains(request.method()) || !(layer.options.applies)(&request) {
            return Box::pin(async move { service.call(request).await.map(ServiceResponse::map_into_boxed_body) });
        }
        Box::pin(async move {
            let mut request = request;
            match layer.admit(&mut request).await {
                Ok(Admitted::Unprotected) => service.call(request).await.map(ServiceResponse::map_into_boxed_body),
                Ok(Admitted::Answered(response)) => Ok(request.into_response(response)),
                Ok(Admitted::Claimed(claim, running)) => {
                    request.extensions_mut().insert(claim.clone());
                    let outer = request.request().clone();
                    let (sender, receiver) = oneshot::channel();
                    // A task of its own: this future is dropped when the client resets its connection.
                    actix_web::rt::spawn(async move {
                        let handler = async move { service.call(request).await };
                        let outcome = run(layer, running, claim, outer, handler).await;
                        // Nobody waits any more: the answer is stored.
                        let _ = sender.send(outcome);
                    });
                    let ended = |_| actix_web::error::ErrorInternalServerError("the request's task ended early");
                    receiver.await.map_err(ended)?
                }
                Err(problem) => Ok(request.into_response(problem.response())),
            }
        })
    }
}

/// What becomes of a request.
enum Admitted {
    /// It has no key and needs none, or the store is away and that is allowed.
    Unprotected,
    /// It is run, under this claim, and counts as running.
    Claimed(ClaimInHand, Guard),
    /// It was answered before.
    Answered(HttpResponse),
}

impl Layer {
    async fn admit(&self, request: &mut ServiceRequest) -> Result<Admitted, Problem> {
        let options = &self.options;
        let key = match IdempotencyKey::of(request.headers()) {
            Ok(Some(key)) => key,
            Ok(None) if !options.key_required => return Ok(Admitted::Unprotected),
            Ok(None) => {
                let detail =
                    "send an Idempotency-Key header: a new UUID for each operation, the same one for each retry";
                return Err(Problem::new(ProblemCode::KeyMissing, detail));
            }
            Err(invalid) => return Err(Problem::new(ProblemCode::KeyInvalid, invalid.to_string())),
        };
        let principal = (self.principal_of)(request).ok_or_else(|| {
            let detail = "keys belong to a caller, and this request does not say whose it is; authenticate it";
            Problem::new(ProblemCode::Unauthenticated, detail)
        })?;
        let running = self.running.enter().ok_or_else(|| {
            let detail = "the server is shutting down; send the same request again, under the same key";
            Problem::new(ProblemCode::Draining, detail)
        })?;
        let body = self.read_body(request).await?;
        let fingerprint = fingerprint_of(request, &body)?;
        let identity = Identity::new(&options.namespace, &principal, &key);
        let token = ClaimToken::random();
        let claimed = self.claim(&identity, &fingerprint, token).await;
        if matches!(claimed, Ok(Claim::Claimed) | Err(_)) {
            // Somebody will read it again.
            request.set_payload(Payload::from(body));
        }
        match claimed {
            Ok(Claim::Claimed) => {
                count(&self.counters.claimed);
                if self.recent.is_same_under_new_key(&principal, &fingerprint, &identity, Instant::now()) {
                    count(&self.counters.same_under_new_key);
                    tracing::warn!(
                        %identity,
                        "the same request came again under a new key within a minute: does the client make a new key \
                         for each retry?"
                    );
                }
                let lifetime = options.response_lifetime;
                Ok(Admitted::Claimed(ClaimInHand::new(identity, fingerprint, token, lifetime), running))
            }
            Ok(Claim::Completed(response)) => {
                count(&self.counters.replayed);
                Ok(Admitted::Answered(response.replay()))
            }
            Ok(Claim::InFlight { .. }) => {
                count(&self.counters.in_flight);
                let detail = "the first request under this key is still running; send it again to get its answer";
                let problem = Problem::new(ProblemCode::InFlight, detail).with_status(options.in_flight_status);
                Err(problem.with_retry_after(1))
            }
            Ok(Claim::Mismatch(held)) => {
                count(&self.counters.mismatched);
                let detail = "this key was used for another request; a changed request takes a new key";
                let problem = Problem::new(ProblemCode::KeyReused, detail).with_status(options.mismatch_status);
                Err(problem.with_differing(held.differing(&fingerprint)))
            }
            Err(fault) => self.without_store(&identity, &fault),
        }
    }

    fn without_store(&self, identity: &Identity, fault: &StoreFault) -> Result<Admitted, Problem> {
        count(&self.counters.unavailable);
        tracing::warn!(%identity, %fault, "a key could not be claimed");
        match (self.options.when_unavailable, fault) {
            (WhenUnavailable::RunUnprotected, StoreFault::Unavailable { .. }) => Ok(Admitted::Unprotected),
            (_, StoreFault::Full { .. }) => {
                let detail = "nothing was run; send the same request again in a moment, under the same key";
                Err(Problem::new(ProblemCode::Overloaded, detail))
            }
            _ => {
                let detail = "nothing was run; send the same request again, under the same key";
                Err(Problem::new(ProblemCode::Unavailable, detail))
            }
        }
    }

    /// Claims, and waits for one that is in flight as long as the options say.
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
    ) -> Result<Claim, StoreFault> {
        if self.claims.fetch_add(1, Relaxed) % CLAIMS_PER_SWEEP == CLAIMS_PER_SWEEP - 1 {
            let store = self.store.clone();
            self.runtime.handle().spawn(async move {
                if let Err(fault) = store.sweep().await {
                    tracing::debug!(%fault, "expired records were not removed");
                }
            });
        }
        let give_up = Instant::now() + self.options.in_flight_wait;
        let mut pause = LOOK_AGAIN_FIRST;
        loop {
            let claim = self.claim_in_time(identity, fingerprint, token).await?;
            let left = give_up.saturating_duration_since(Instant::now());
            if !matches!(claim, Claim::InFlight { .. }) || left.is_zero() {
                return Ok(claim);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }

    /// Claims within the time that a store has for it.
    async fn claim_in_time(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
    ) -> Result<Claim, StoreFault> {
        let limit = self.options.store_timeout;
        let claiming = self.store.claim(identity, fingerprint, token, self.options.claim_lease);
        if let Ok(claimed) = tokio::time::timeout(limit, claiming).await {
            return claimed;
        }
        // It may still be claimed, for nobody: where this comes too early, the lease ends it.
        let (store, identity) = (self.store.clone(), *identity);
        self.runtime.handle().spawn(async move {
            if let Err(fault) = store.release(&identity, token).await {
                tracing::debug!(%identity, %fault, "a claim that came too late was not given back; its lease will end");
            }
        });
        Err(StoreFault::Unavailable { during: "claiming a key", reason: format!("no answer within {limit:?}") })
    }

    /// The whole body, for the fingerprint and then for the handler.
    async fn read_body(&self, request: &mut ServiceRequest) -> Result<Bytes, Problem> {
        let bytes_max = self.options.request_bytes_max;
        let too_large = || {
            let detail = format!("a request under an Idempotency-Key has a body of at most {bytes_max} bytes");
            Problem::new(ProblemCode::TooLarge, detail)
        };
        let mut payload = request.take_payload();
        let reading = async {
            let broke_off = |_| Problem::new(ProblemCode::RequestTimeout, "the body broke off; send the request again");
            // Most bodies come in one piece, which is passed on as it is.
            let first = payload.next().await.transpose().map_err(broke_off)?.unwrap_or_default();
            let Some(second) = payload.next().await.transpose().map_err(broke_off)? else {
                return if first.len() > bytes_max { Err(too_large()) } else { Ok(first) };
            };
            let mut body = BytesMut::from(first);
            let mut next = Some(second);
            while let Some(chunk) = next {
                if body.len() + chunk.len() > bytes_max {
                    return Err(too_large());
                }
                body.extend_from_slice(&chunk);
                next = payload.next().await.transpose().map_err(broke_off)?;
            }
            Ok(body.freeze())
        };
        tokio::time::timeout(self.options.request_body_timeout, reading).await.unwrap_or_else(|_| {
            let detail = "the body did not arrive in time; send the request again, under the same key";
            Err(Problem::new(ProblemCode::RequestTimeout, detail))
        })
    }
}

fn fingerprint_of(request: &ServiceRequest, body: &[u8]) -> Result<Fingerprint, Problem> {
    let text =
        |name| request.headers().get(name).and_then(|value: &actix_web::http::header::HeaderValue| value.to_str().ok());
    let parts = RequestParts {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.query_string(),
        content_type: text(CONTENT_TYPE),
        content_encoding: text(CONTENT_ENCODING),
        body,
    };
    Fingerprint::of(&parts).map_err(|error| Problem::new(ProblemCode::MalformedJson, error.to_string()))
}
