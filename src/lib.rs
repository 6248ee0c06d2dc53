//! Casework runs approval cases: permits, declarations, change requests. Clients send commands; each command changes its
//! case once, however often it is sent.
//!
//! # Bird's-eye view
//!
//! ```text
//! HTTP · NDJSON · log file
//!        │ Submission
//!        ▼
//!  CommandGateway          the one door: admission, routing, draining          actor::CommandGateway
//!        │
//!        ▼
//!  CaseShard  (an arbiter) finds or starts the case's actor                    actor/shard
//!        │
//!        ▼
//!  CaseActor  (a case)     drives CaseMachine: decides in memory, in order     actor/case_actor → engine/case_machine
//!        │ Chain                                                                              └→ domain::decide
//!        ▼
//!  Committer  (an arbiter) drives CommitQueue: batches, halves, fences         actor/committer → engine/commit_queue
//!        │ batch
//!        ▼
//!  Writer     (a connection) one transaction: cases, operations, outbox        store::Writer → sqlite | postgres
//!        │
//!        ▼  committed
//!  Answer to every caller of the chain, in order
//! ```
//!
//! # Modules, in reading order
//!
//! 1. [`domain`]: words and the pure [`domain::decide()`]. START HERE, with its table test.
//! 2. [`store`]: the seam to the two databases and its promises.
//! 3. [`engine`]: the protocol between deciding and committing, as state machines without I/O.
//! 4. [`actor`]: thin drivers of the engine.
//! 5. [`command_log`]: reading, writing, replaying and verifying command logs.
//! 6. [`history`]: what clients were answered, written down and checked against what is stored.
//! 7. [`load`]: load on a running server, timed and checked.
//! 8. [`http`]: the routes, in one table; problems, in one mapping.
//! 9. [`cli`]: one subcommand a file.
//!
//! Beside them [`metrics`]: what the process measures of itself, for Prometheus. For any service, with cases or without:
//! [`idempotency`], one answer for each key, [`guard`], the same in front of a service in any language, and [`lock`], a
//! semaphore lock.
//!
//! # Invariants
//!
//! * **The database is the authority.** Actors, caches and routing make it fast; with all of them wrong the promises hold.
//! * **Memory follows the commit.** Speculative state lives in a chain in flight and nowhere else; on any error of the store
//!   the case's memory is dropped and read again.
//! * **No answer before its commit.** An acceptance waits for its transaction, a rejection for its version check.
//! * **Unclear is settled by the fence**, never by reading alone.
//! * **Deciding is pure.** Time and ids come in as arguments; `domain` and `engine` do no I/O.
//! * **Dependencies point one way:** `domain` ← `engine` ← `store` ← {`metrics`, `lock`, `idempotency`} ← `actor` ← `command_log` ← `history` ← `load` ← `http` ← `guard` ← `cli`.
//! * **Every queue is bounded**, and what does not fit is refused before anything is recorded.

pub mod actor;
pub mod cli;
pub mod clock;
pub mod command_log;
pub mod domain;
pub mod engine;
pub mod guard;
pub mod history;
pub mod http;
pub mod idempotency;
pub mod load;
pub mod lock;
pub mod metrics;
pub mod store;
mod telemetry;
