//! The protocol between deciding and committing, as state machines without I/O.
//!
//! Owns the rules of DESIGN section 5: a table of the cases in memory and a commit queue for each shard, a case machine for
//! each case. The actors drive them, and so may a simulator: an event and the time go in, effects come out. Never waits,
//! never reads a clock, never touches a database.

mod answer;
mod batch;
mod case_cell;
mod case_events;
mod case_machine;
mod case_table;
mod chain;
mod commit_queue;
mod flight;
mod operation_cache;
mod planted_bugs;
mod queue_events;
mod waiting;

pub use answer::{Answer, Lane, Receipt, Trouble};
pub use batch::{BatchAnswer, ChainAnswer, CommitFault, LockMode, RetryCause};
pub use case_cell::{CaseAction, CaseCell, ReadFound, ReadKind, ReadOrder, ShardMemory};
pub use case_events::{CaseEffect, CaseEvent, CaseLimits, Envelope, Now, Verdict};
pub use case_machine::CaseMachine;
pub use case_table::{CaseTable, TableEffect, TableLimits, TableStats};
pub use chain::{AssignmentChange, Chain, Step};
pub use commit_queue::{CommitQueue, QueueWaits};
pub use operation_cache::{Known, OperationCache, ReplayCounts, ReplaySource};
#[cfg(feature = "planted-bugs")]
pub use planted_bugs::{PlantedBug, plant};
pub use queue_events::{QueueEffect, QueueEvent, QueueLimits};
