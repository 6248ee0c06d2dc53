//! A semaphore lock for any service: of all who come with a key at the same time, one works and the others are told so.
//!
//! The lock makes duplicate work rare; it does not make it impossible. A lease can run out while its holder is paused, and
//! a store can lose what it held. So **a unique constraint (or a compare-and-swap) stays the arbiter**, and
//! [`SemaphoreLock::violation`] counts how often it had to speak behind the lock. Whoever can't have a constraint gives
//! [`Held::fencing_number`] to what they write to, and lets it refuse lower numbers than it has seen.
//!
//! # Quick start
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use casework::lock::{DEFAULT_NAMESPACE, LockOutcome, MemoryLockStore, SemaphoreLock};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), casework::lock::LockError> {
//! let lock = SemaphoreLock::new(Arc::new(MemoryLockStore::default()));
//! let outcome = lock
//!     .with_semaphore_lock("lesson_session:62", Duration::from_secs(10), DEFAULT_NAMESPACE, |held| async move {
//!         // Look whether it is there, create it, and let the unique constraint have the last word.
//!         format!("created under fencing number {}", held.fencing_number())
//!     })
//!     .await?;
//! match outcome {
//!     LockOutcome::Locked(created) => println!("{created}"),
//!     // Not done, by us or by anybody yet: answer 202 with Retry-After, never 204.
//!     LockOutcome::Skipped => println!("somebody else is at it; ask again"),
//! }
//! assert_eq!(lock.counts().locked, 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`MemoryLockStore`] is for one process. Several share a [`RedisLockStore`] or a [`SqlLockStore`] (PostgreSQL, or SQLite
//! on one machine). `examples/lesson_sessions.rs` is a service that uses any of them.
//!
//! # Promises
//!
//! * The closure runs only while its caller holds one of the key's permits (one, unless [`SemaphoreLock::permits`] says
//!   otherwise). A store that can't be asked is an error, quickly, and the closure does not run.
//! * A lease is renewed every third of its time as long as the closure runs, also while that blocks its thread. A process
//!   that dies gives its lease back by not renewing it.
//! * The lease is given back at once when the closure returns, panics, or is cancelled (its future dropped).
//! * Every step names its owner, 128 random bits: a holder whose lease ran out can neither extend nor delete the next one's.
//! * Fencing numbers grow over all holders of a key: `max(last + 1, the store's clock in microseconds)`. They go on growing
//!   when the store has lost everything, unless its clock was set back at the same time.
//!
//! Never knows what is locked, never waits for a lock, and never logs a key (see [`LockName::digest`]). Usable without
//! cases. Fails with [`LockError`].

mod counts;
mod lease;
mod memory;
mod name;
mod redis;
mod semaphore;
mod sql;
mod store;

pub use counts::LockCounts;
pub use lease::Held;
pub use memory::MemoryLockStore;
pub use name::{LeaseTtl, LockName, NAMESPACE_BYTES_MAX, Owner};
pub use redis::RedisLockStore;
pub use semaphore::{DEFAULT_NAMESPACE, LockError, LockOutcome, SemaphoreLock};
pub use sql::SqlLockStore;
pub use store::{LockStore, LockStoreError};
