//! The simulator: three processes' engines on one thread, with a seeded source of chance and a virtual clock.
//!
//! It drives the machines of `src/engine` themselves, over a model of the tables, and holds every batch and every answer
//! against the promises of DESIGN section 2. `tests/simulation.rs` runs it in CI, `examples/simulate.rs` for long.
//! Everything follows from the options: the same options give the same history.

mod network;
pub mod options;
mod people;
mod process;
pub mod shrink;
mod store;
mod trouble;
mod truth;
mod world;

pub use options::{BUGS, Options};
pub use world::run;
