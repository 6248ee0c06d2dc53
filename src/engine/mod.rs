//! The protocol between deciding and committing, as state machines without I/O.

mod chain;

pub use chain::{AssignmentChange, Chain, Step};
