//! Client histories: what clients asked and were answered, written down while it happens and held against what is stored.
//!
//! A history is JSON Lines, one [`Event`] a line. [`HistoryWriter`] writes one for any number of clients; [`History::read`]
//! reads it into little memory; [`check()`] holds it against the final tables and says in a [`CheckReport`] which promises
//! (DESIGN section 2) are broken, and which attempts show it.
//!
//! Owns the rules of the check, each a [`Rule`]. Never writes to a database, never asks a server. Fails with
//! [`HistoryError`] where a history can't be read whole and with [`StoreError`](crate::store::StoreError) where the
//! database can't.

mod case_check;
mod check;
mod event;
mod interner;
mod ledger;
mod meaning;
mod order;
mod read;
mod report;
mod standing;
mod write;

pub use check::{CheckOptions, check, check_snapshot};
pub use event::{Event, EventError, Reply, ReplyProblem, parse_event};
pub use ledger::{History, HistoryBuilder, HistoryFault};
pub use read::HistoryError;
pub use report::{CheckReport, Rule, UnknownAttempts, Violation};
pub use write::HistoryWriter;
