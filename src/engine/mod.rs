//! The protocol between deciding and committing, as state machines without I/O.

mod answer;
mod chain;

pub use answer::{Answer, Lane, Receipt, Trouble};
pub use chain::{AssignmentChange, Chain, Step};
