//! The actors: thin drivers of the engine.
//!
//! Owns the way of a command inside a process: [`CommandGateway`] → shard → case actor → committer, and back. Outside,
//! callers see the gateway, never an address or a channel. Never decides, never holds a lock over a wait.

mod case_actor;
mod committer;
mod gateway;
mod reader;
mod shard;
mod ticket;
mod workflows;

pub use gateway::{CommandGateway, GatewayOptions, PendingAnswer, Submission};
pub use workflows::{WorkflowConflict, WorkflowRegistry};
