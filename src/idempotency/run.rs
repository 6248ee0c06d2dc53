//! One claimed request, from the handler's start to its stored answer.
//!
//! Owns the task that runs the handler (it goes on when the client has hung up), the renewals of its lease, and what becomes
//! of the answer: kept, kept without its body, or the key given back. A store that fails now costs the caller nothing: the
//! answer goes out, and storing it is tried again for a while. Never runs a handler twice.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody, to_bytes_limited};
use actix_web::dev::ServiceResponse;
use actix_web::error::InternalError;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::claim::{ClaimToken, Holding};
use super::counters::count;
use super::fingerprint::Fingerprint;
use super::key::Identity;
use super::middleware::Layer;
use super::options::Conclusion;
use super::problems::{Problem, ProblemCode};
use super::recorded_response::RecordedResponse;
use super::running::Guard;
use super::stores::StoreFault;

/// How long a caller waits for its answer to be stored before it gets it all the same.
const STORE_WAIT: Duration = Duration::from_secs(2);
/// Between two attempts to store an answer that nobody waits for any more.
const STORE_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How many such attempts there are.
const STORE_RETRIES_MAX: u32 = 60;

/// What a handler needs to store its answer within its own transaction: in the extensions of a request that was claimed.
#[derive(Debug, Clone)]
pub struct ClaimInHand {
    identity: Identity,
    fingerprint: Fingerprint,
    token: ClaimToken,
    lifetime: Duration,
}

impl ClaimInHand {
    /// The claim of a request; `None`: the layer did not claim it.
    pub fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// A claim that was made without the layer, on the store itself.
    pub fn new(identity: Identity, fingerprint: Fingerprint, token: ClaimToken, lifetime: Duration) -> Self {
        Self { identity, fingerprint, token, lifetime }
    }

    /// What the answer is kept under.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who holds the claim.
    pub fn token(&self) -> ClaimToken {
        self.token
    }

    /// How long the answer is to be kept.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }
}

/// Renews a lease until it is stopped or dropped.
struct Renewals {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Renewals {
    /// Starts renewing on the layer's own runtime: a handler that blocks its worker must not lose its lease by that.
    fn start(layer: &Arc<Layer>, claim: &ClaimInHand) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (runtime, layer, claim) = (layer.runtime.clone(), layer.clone(), claim.clone());
        let task = runtime.handle().spawn(async move {
            let lease = layer.options.claim_lease;
            tokio::pin!(stopped);
            // The other side is gone, or says so: either way it is over.
            while tokio::time::timeout(lease / 3, &mut stopped).await.is_err() {
                match layer.store.renew(&claim.identity, &claim.fingerprint, claim.token, lease).await {
                    Ok(Holding::Held) => {}
                    Ok(Holding::Lost) => {
                        count(&layer.counters.lost);
                        tracing::warn!(identity = %claim.identity, "a claim was lost while its request ran");
                        return;
                    }
                    Err(fault) => {
                        tracing::warn!(identity = %claim.identity, %fault, "a claim could not be renewed");
                    }
                }
            }
        });
        Self { stop, task }
    }

    /// Stops, and waits for a renewal that is on its way: behind a release it would take the key again.
    async fn stop(self) {
        // Refused: it has ended by itself.
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(STORE_WAIT, self.task).await;
    }
}

/// Runs a claimed request to its end. The future must be spawned: whoever waits for it may go away.
pub(super) async fn run<F, B>(
    layer: Arc<Layer>,
    _running: Guard,
    claim: ClaimInHand,
    handler: F,
) -> Result<ServiceResponse<BoxBody>, Error>
where
    F: Future<Output = Result<ServiceResponse<B>, Error>>,
    B: MessageBody + 'static,
{
    let renewals = Renewals::start(&layer, &claim);
    let result = AssertUnwindSafe(handler).catch_unwind().await;
    renewals.stop().await;
    match result {
        Ok(Ok(response)) if response.response().error().is_none() && is_final(&layer, &response) => {
            keep(&layer, &claim, response.map_into_boxed_body()).await
        }
        Ok(Ok(response)) => {
            release(&layer, &claim).await;
            Ok(response.map_into_boxed_body())
        }
        Ok(Err(error)) => {
            release(&layer, &claim).await;
            Err(error)
        }
        Err(_) => {
            release(&layer, &claim).await;
            tracing::error!(identity = %claim.identity, "a handler panicked; its key was given back");
            let problem = Problem::new(ProblemCode::Internal, "the request was not finished; send it again");
            Err(InternalError::from_response("a handler panicked", problem.response()).into())
        }
    }
}

/// Whether an answer ends its operation: as its handler says, else by its status.
fn is_final<B>(layer: &Layer, response: &ServiceResponse<B>) -> bool {
    let said = response.response().extensions().get::<Conclusion>().copied();
    said.map_or_else(|| (layer.options.is_final)(response.status()), |said| said == Conclusion::Final)
}

/// Stores a final answer, and returns it for its caller.
async fn keep(
    layer: &Arc<Layer>,
    claim: &ClaimInHand,
    response: ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let options = &layer.options;
    let (request, response) = response.into_parts();
    let status = response.status().as_u16();
    let headers = RecordedResponse::kept_headers(response.headers(), &options.kept_headers);
    let bytes_max = u64::try_from(options.response_bytes_max).unwrap_or(u64::MAX);
    let fits = match response.body().size() {
        BodySize::None => true,
        BodySize::Sized(bytes) => bytes <= bytes_max,
        BodySize::Stream => false,
    };
    if !fits {
        count(&layer.counters.tombstones);
        store(layer, claim, RecordedResponse::tombstone(status, headers)).await;
        return Ok(ServiceResponse::new(request, response));
    }
    let (response, body) = response.into_parts();
    let Ok(Ok(body)) = to_bytes_limited(body, options.response_bytes_max).await else {
        release(layer, claim).await;
        let problem = Problem::new(ProblemCode::Internal, "the response broke off; send the request again");
        return Ok(ServiceResponse::new(request, problem.response()));
    };
    store(layer, claim, RecordedResponse::new(status, headers, body.clone())).await;
    let response: HttpResponse =
        if body.is_empty() { response.map_body(|_, ()| BoxBody::new(())) } else { with(response, body) };
    Ok(ServiceResponse::new(request, response))
}

fn with(response: HttpResponse<()>, body: Bytes) -> HttpResponse {
    response.set_body(BoxBody::new(body))
}

/// Stores an answer. Where that can't be done soon, it goes on being tried without the caller.
async fn store(layer: &Arc<Layer>, claim: &ClaimInHand, response: RecordedResponse) {
    let (layer, claim) = (layer.clone(), claim.clone());
    let runtime = layer.runtime.clone();
    let storing = runtime.handle().spawn(async move {
        let _running = layer.running.go_on();
        for attempt in 0..STORE_RETRIES_MAX {
            let lifetime = claim.lifetime;
            match layer.store.complete(&claim.identity, &claim.fingerprint, claim.token, &response, lifetime).await {
                Ok(Holding::Held) => return,
                Ok(Holding::Lost) => {
                    count(&layer.counters.lost);
                    count(&layer.counters.not_stored);
                    tracing::warn!(
                        identity = %claim.identity,
                        "a response was not stored: the lease had run out, and somebody else ran the request as well"
                    );
                    return;
                }
                Err(fault) => {
                    if attempt == 0 {
                        tracing::warn!(identity = %claim.identity, %fault, "a response could not be stored yet");
                    }
                    if matches!(fault, StoreFault::Inconsistent { .. }) {
                        break;
                    }
                    tokio::time::sleep(STORE_RETRY_PAUSE).await;
                }
            }
        }
        count(&layer.counters.not_stored);
        tracing::error!(identity = %claim.identity, "a response was not stored: a repeat will run the request again");
    });
    // After the wait the caller gets its answer; the task goes on.
    let _ = tokio::time::timeout(STORE_WAIT, storing).await;
}

/// Gives a key back. Where the store is away the lease does so.
async fn release(layer: &Arc<Layer>, claim: &ClaimInHand) {
    layer.counters.released.fetch_add(1, Relaxed);
    let released = tokio::time::timeout(STORE_WAIT, layer.store.release(&claim.identity, claim.token)).await;
    match released {
        Ok(Ok(_)) => {}
        Ok(Err(fault)) => {
            tracing::warn!(identity = %claim.identity, %fault, "a key could not be given back; its lease will end");
        }
        Err(_) => tracing::warn!(identity = %claim.identity, "a key was not given back in time; its lease will end"),
    }
}
