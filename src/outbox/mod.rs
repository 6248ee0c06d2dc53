//! What was decided is delivered: relay, sinks, retention of what was sent.
//!
//! The outbox row of an operation becomes one [`Delivery`] for each sink that its rules choose; deliveries of one case go to a
//! sink in the case's order, those of different cases side by side. **At least once**: what is sent twice carries the same
//! [`Delivery::id`] and the same bytes. Nothing is sent before its commit, and nothing inside a transaction.

mod delivery;

pub use delivery::{Delivery, DeliveryFailure, Sink, SinkName};
