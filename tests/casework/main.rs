//! The integration tests of Casework: one binary, one module for each thing that is promised.
//!
//! They see the crate as a user does: the built program, its HTTP interface, the rows in its database as
//! `psql` and the `sqlite3` shell show them. What they need besides is in `tests/support`, documented like `src`.
//! `./ci/test` runs them all; it starts the PostgreSQL that they share. A module named `heavy` holds tests
//! that run one at a time (see `.config/nextest.toml`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and the line says where")]

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "a toolbox: not every tool is in use all the time")]
#[macro_use]
mod support;

mod case_62;
mod command_log;
mod crashes;
mod failure_trace;
mod guard;
mod history;
mod hot_case;
mod http;
mod idempotency;
mod load;
mod lock;
mod memory;
mod metrics;
mod pace;
mod properties;
mod readme;
mod reviewers;
mod schema;
mod shutdown;
mod store;
mod storm;
mod test_support;
mod tidy;
mod two_processes;
mod unclear_commits;
