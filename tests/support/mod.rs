//! What the integration tests and benchmarks share: databases, the server as a process, clients, a proxy.
//!
//! Reading order: [`database`] (a fresh database of either kind, and one test body run on both), [`postgres`]
//! and [`postgres_server`] (the server behind it, and private ones to stop and kill), [`server`] and [`cli`] (the built program), [`example`] (an example, as a process),
//! [`token`], [`http`] (requests, well-formed and not), [`tcp_proxy`] (what a network can do to a
//! PostgreSQL connection), [`strace`] (what a disk can do to a
//! process, and the order of its system calls), [`small_disk`] (one that fills up), [`redis`] (a Redis of a test's own), [`upstream`] (a service that is not ours), [`psql`] (a person with a shell), [`data`] (recorded command logs), [`not_run`] (what is left out is said), [`scene`] (a database made
//! ready and a busy front end), [`wait`].
//!
//! Whatever is started here is stopped when its handle is dropped or its process ends, however that comes. What
//! cannot be had (no PostgreSQL installed, say) panics with a sentence that says what to install; nothing is
//! skipped in silence. Waiting is polling a condition with a deadline, never a sleep.

pub mod cli;
pub mod data;
#[macro_use]
pub mod database;
pub mod example;
pub mod http;
pub mod not_run;
pub mod postgres;
pub mod postgres_messages;
pub mod postgres_server;
pub mod process;
pub mod psql;
pub mod redis;
pub mod scene;
pub mod server;
pub mod small_disk;
pub mod strace;
pub mod tcp_proxy;
mod tcp_proxy_engine;
pub mod token;
pub mod upstream;
pub mod wait;

/// Whether the tests that take minutes were asked for (`./ci/test --long`).
#[must_use]
pub fn long_tests_wanted() -> bool {
    std::env::var_os("CASEWORK_TEST_LONG").is_some_and(|value| value == "1")
}
