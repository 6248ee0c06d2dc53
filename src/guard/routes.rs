//! Which layer a request goes through: the table of rules, as a middleware of actix-web.
//!
//! Owns the layers, one a rule over one store, and the bound on requests inside at once. A request that no key protects goes
//! past them, its body unread. Fails with [`GuardSetupError`] when a guard is made; a request can only be refused.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::BoxBody;
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::Method;
use actix_web::{Error, HttpMessage as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::health::Health;
use super::metrics::{self, UpstreamCounts};
use super::problems::ProblemCode;
use super::rules::{Rule, Rules};
use super::settings::{KeyRule, PrincipalRule, UpstreamOptions};
use crate::idempotency::{Idempotency, IdempotencyService, IdempotencySetupError, IdempotencyStore, Principal};

/// A guard can't be made.
#[derive(Debug, thiserror::Error)]
pub enum GuardSetupError {
    /// A layer can't.
    #[error(transparent)]
    Layer(#[from] IdempotencySetupError),
    /// The health path is none, or the site's root.
    #[error("the health path is written as \"/.guard\": with a slash before it and none behind it")]
    HealthPath,
    /// TLS towards the upstream can't be had.
    #[error("no client for the upstream can be made: {0}")]
    Client(String),
}

/// Rules, layers, and where requests go. Cheap to clone.
#[derive(Clone)]
pub struct Guard(pub(super) Arc<Parts>);

/// What all workers share.
pub(super) struct Parts {
    rules: Rules,
    /// For each route, and last for the default: its rule, and its layer where keys mean something.
    table: Vec<(Arc<Rule>, Option<Idempotency>)>,
    /// Any layer: they drain together.
    any_layer: Idempotency,
    pub(super) upstream: Arc<UpstreamOptions>,
    pub(super) counts: Arc<UpstreamCounts>,
    pub(super) health: Health,
    pub(super) health_path: String,
    requests: Arc<Semaphore>,
    requests_max: u32,
}

impl Guard {
    /// A guard over one store. `namespace` tells services apart that share it; at most `requests_max` requests are inside at
    /// once, and more are answered 503.
    ///
    /// # Errors
    /// [`GuardSetupError`].
    pub fn new(
        rules: Rules,
        store: Arc<dyn IdempotencyStore>,
        upstream: UpstreamOptions,
        namespace: &str,
        health_path: &str,
        requests_max: usize,
    ) -> Result<Self, GuardSetupError> {
        let is_path = health_path.starts_with('/') && health_path.len() > 1 && !health_path.ends_with('/');
        if !is_path || health_path.contains(['{', '}', '?', '%']) {
            return Err(GuardSetupError::HealthPath);
        }
        let default = rules.default.options(namespace, &[]);
        let any_layer = Idempotency::new(store.clone()).principal(|_| None, default)?;
        let mut table = Vec::new();
        for (_, methods, rule) in rules.all() {
            table.push((Arc::new(rule.clone()), layer_of(&any_layer, rule, namespace, methods)?));
        }
        let upstream = Arc::new(upstream);
        let requests_max = u32::try_from(requests_max).unwrap_or(u32::MAX);
        Ok(Self(Arc::new(Parts {
            rules,
            table,
            any_layer,
            counts: Arc::default(),
            health: Health::new(store, upstream.clone()),
            upstream,
            health_path: health_path.to_owned(),
            requests: Arc::new(Semaphore::new(requests_max as usize)),
            requests_max,
        })))
    }

    /// Refuses new requests under a key, and waits for those that run; then for the others, to the end of their bodies.
    pub(super) async fn drain(&self) {
        self.0.health.begin_drain();
        self.0.any_layer.drain().await;
        // Whoever waits for all places gets each that is left: nobody new comes in.
        let all = self.0.requests.acquire_many(self.0.requests_max).await;
        drop(all);
    }

    /// What was counted, for Prometheus.
    pub(super) fn metrics_text(&self) -> String {
        let names = self.0.rules.all().map(|(path, ..)| path);
        let counts = self.0.table.iter().map(|(_, layer)| layer.as_ref().map(Idempotency::counts));
        let layers: Vec<_> = names.zip(counts).filter_map(|(path, counts)| Some((path, counts?))).collect();
        let inside = (self.0.requests_max as usize).saturating_sub(self.0.requests.available_permits());
        metrics::text(&layers, &self.0.counts, inside)
    }
}

fn layer_of(
    any: &Idempotency,
    rule: &Rule,
    namespace: &str,
    methods: &[Method],
) -> Result<Option<Idempotency>, IdempotencySetupError> {
    if rule.key == KeyRule::Off {
        return Ok(None);
    }
    let options = rule.options(namespace, methods);
    let principal = rule.principal.clone();
    let principal_of = move |request: &ServiceRequest| match &principal {
        PrincipalRule::Header(name) => {
            // All values, each with its length: two headers are not one that looks like both.
            let mut values = request.headers().get_all(name).peekable();
            values.peek()?;
            let parts = values.flat_map(|value| [&(value.len() as u64).to_be_bytes(), value.as_bytes()].concat());
            Some(Principal::new(parts.collect::<Vec<u8>>()))
        }
        PrincipalRule::Nobody => Some(Principal::everybody()),
    };
    any.beside(principal_of, options).map(Some)
}

impl<S> Transform<S, ServiceRequest> for Guard
where
    S: Service<ServiceRequest, Response = ServiceResponse<BoxBody>, Error = Error> + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Transform = GuardService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        let plain = Shared(Rc::new(service));
        let mut protected = Vec::new();
        for (_, layer) in &self.0.table {
            let service = layer.as_ref().map(|layer| layer.new_transform(plain.clone()).into_inner());
            match service.transpose() {
                Ok(service) => protected.push(service),
                Err(()) => return ready(Err(())),
            }
        }
        ready(Ok(GuardService { guard: self.clone(), plain, protected }))
    }
}

/// A worker's service behind the table.
pub struct GuardService<S> {
    guard: Guard,
    plain: Shared<S>,
    protected: Vec<Option<IdempotencyService<Shared<S>>>>,
}

/// One service behind several layers.
pub struct Shared<S>(Rc<S>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service<ServiceRequest>> Service<ServiceRequest> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        self.0.call(request)
    }
}

/// A request's place among those inside. The request holds it, also when its client has gone, and then its answer's body.
#[derive(Clone)]
pub(super) struct Place(
    #[expect(dead_code, reason = "it is held, and does its work when it goes")] Arc<OwnedSemaphorePermit>,
);

impl<S> Service<ServiceRequest> for GuardService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<BoxBody>, Error = Error> + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.plain.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let parts = &self.guard.0;
        if request.path().strip_prefix(parts.health_path.as_str()).is_some_and(super::server::is_probe) {
            return Box::pin(self.plain.call(request));
        }
        let Ok(place) = parts.requests.clone().try_acquire_owned() else {
            let detail = "nothing was sent to the service; send the same request again in a moment, under the same key";
            let refused = request.into_response(ProblemCode::Overloaded.response(None, detail));
            return Box::pin(ready(Ok(refused)));
        };
        let found = parts.rules.find(request.method(), request.uri().path());
        request.extensions_mut().insert(Place(Arc::new(place)));
        request.extensions_mut().insert(parts.table[found.index].0.clone());
        match self.protected[found.index].as_ref().filter(|_| found.has_key) {
            Some(layer) => Box::pin(layer.call(request)),
            None => Box::pin(self.plain.call(request)),
        }
    }
}
