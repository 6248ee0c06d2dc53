//! The semaphore lock: one works, the others are told so; and what no accident may break.
//!
//! `conformance` holds every store to its promises, `planted` shows that it would find a store that breaks them. `leases` and
//! `ends` go through the lock itself, on every store; `redis`, `sql` and `memory` see to what one store has alone, and
//! `lesson_sessions` to the example, as a process.

#[macro_use]
pub mod fixture;
mod conformance;
mod ends;
mod leases;
mod lesson_sessions;
mod memory;
mod planted;
mod redis;
mod sql;
