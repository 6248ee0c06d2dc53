//! The actors: thin drivers of the engine. Outside, callers see [`CommandGateway`], never an address or a channel.

mod gateway;
mod workflows;

pub use gateway::{CommandGateway, GatewayOptions, PendingAnswer, Submission};
pub use workflows::{WorkflowConflict, WorkflowRegistry};
