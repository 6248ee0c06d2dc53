//! The idempotency layer: what each store promises, what the layer answers, and what it takes to break it.

mod bodies;
mod conformance;
mod cost;
mod faulty_stores;
mod late_owners;
mod layer;
mod metrics;
mod payments;
mod promises;
mod service;
mod soak;
mod stores;
mod transaction;
mod trouble;
