//! Client histories: what clients asked and were answered, written down while it happens.
//!
//! Owns the format ([`Event`]) and its writer ([`HistoryWriter`]).

mod event;
mod write;

pub use event::{Event, EventError, Reply, ReplyProblem, parse_event};
pub use write::HistoryWriter;
