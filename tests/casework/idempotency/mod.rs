//! The idempotency layer: what each store promises, what the layer answers, and what it takes to break it.

mod conformance;
mod faulty_stores;
mod layer;
mod promises;
mod service;
mod stores;
mod transaction;
mod trouble;
