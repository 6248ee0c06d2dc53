//! Making a layer, and what its owner asks of it: counts, metrics, draining.
//!
//! Owns who must be named before there is a layer: without a principal callers would share their keys. Never sees a request.
//! Fails with [`IdempotencySetupError`].

use std::sync::Arc;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::HeaderName;

use super::counters::IdempotencyCounts;
use super::key::Principal;
use super::middleware::Layer;
use super::options::{IdempotencyOptions, InvalidOptions};
use super::running::Running;
use super::stores::IdempotencyStore;
use crate::store::{DatabaseRuntime, StoreError};

/// The first half of making a layer: a store, without anybody to keep answers for.
pub struct IdempotencyFor(Arc<dyn IdempotencyStore>);

/// The layer: wrap an app, a scope or a resource in it. Make it once, outside the function that builds a worker's app, and
/// clone it there.
#[derive(Clone)]
pub struct Idempotency(pub(super) Arc<Layer>);

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

    /// Another layer over the same store, for requests with other settings: it shares the store's connections and the
    /// threads, and draining one drains both. Counts are its own.
    ///
    /// # Errors
    /// [`IdempotencySetupError::Options`].
    pub fn beside(
        &self,
        principal_of: impl Fn(&ServiceRequest) -> Option<Principal> + Send + Sync + 'static,
        options: IdempotencyOptions,
    ) -> Result<Self, IdempotencySetupError> {
        options.check()?;
        let Layer { store, runtime, running, .. } = &*self.0;
        let shared = (store.clone(), runtime.clone(), running.clone());
        Ok(Self(Arc::new(Layer::new(shared, Arc::new(principal_of), options))))
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
        let runtime = DatabaseRuntime::start().map_err(IdempotencySetupError::Threads)?;
        let shared = (self.0, runtime, Running::default());
        Ok(Idempotency(Arc::new(Layer::new(shared, Arc::new(principal_of), options))))
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
