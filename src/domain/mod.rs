//! The words of Casework and the pure function that decides.
//!
//! Owns identifiers, cases, workflows, commands, rejections and outcomes. Never does I/O, never reads a clock, never draws
//! a random number: time and ids come in as arguments. Fails only by returning a [`Rejection`] or an [`InvalidCommand`].
//! Start reading at [`decide`](mod@decide).

mod canonical_json;
mod canonical_text;
mod case;
mod command;
pub mod decide;
mod digest;
mod edit;
mod ids;
mod invalid;
mod operation;
mod recorded;
mod rejection;
mod timestamp;
mod workflow;
mod workflow_file;

pub use canonical_json::{JsonError, canonical, parse_strict};
pub use case::{Case, CaseState};
pub use command::{Command, CommandDraft, CommandKind, Members, Reason};
pub use decide::{Decision, Effect, apply, decide, judge};
pub use digest::{DIGEST_VERSION, Digest};
pub use edit::Edit;
pub use ids::{ActorId, CaseId, CommandName, InvalidId, OperationId, Revision, Status, Version, WorkflowName};
pub use invalid::{FieldError, InvalidCommand};
pub use operation::{KnownOperation, Operation, Outcome};
pub use rejection::Rejection;
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use workflow::{Action, PERMIT_TOML, Requirement, WhoMay, Workflow};
pub use workflow_file::WorkflowError;
