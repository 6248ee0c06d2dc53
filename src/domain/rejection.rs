//! The deliberate "no": every reason, in order of precedence, each with a stable code.
//!
//! Owns the codes. The HTTP status of each is mapped in one place, `http/problems.rs`. A rejection leaves no row.

use super::ids::{CommandName, Revision, Status};
use super::invalid::InvalidCommand;

/// Why a command is refused. The variants stand in the order in which they are checked (DESIGN section 3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The id belongs to another command, or to another actor's.
    #[error("this operation id was used for another command; make a new id for a new command")]
    OperationConflict,
    /// The id belongs to this command, but its outcome is past the retention horizon.
    #[error("this command was applied; its outcome is older than the retention horizon and was pruned")]
    OutcomeExpired,
    /// There is no such case.
    #[error("there is no such case; open it first")]
    CaseNotFound,
    /// `open` of a case that is there.
    #[error("the case exists already; choose another case id or go on with the case")]
    CaseExists,
    /// The command makes no sense in the case's workflow, or a value can't be stored.
    #[error("{0}")]
    InvalidCommand(InvalidCommand),
    /// The action asks for an assigned actor, and this one is not.
    #[error("the actor is not assigned to the case; have it assigned first")]
    NotAssigned,
    /// The action is not legal from the case's status.
    #[error("the command is not legal while the case is `{status}`")]
    IllegalTransition {
        /// The current status.
        status: Status,
        /// The current revision.
        revision: Revision,
        /// What is legal now.
        allowed: Vec<CommandName>,
    },
    /// The case moved on since the client read it.
    #[error("the case is at revision {current}; read it again and decide on what it says now")]
    StaleRevision {
        /// The current revision.
        current: Revision,
    },
}

impl Rejection {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OperationConflict => "operation-conflict",
            Self::OutcomeExpired => "outcome-expired",
            Self::CaseNotFound => "case-not-found",
            Self::CaseExists => "case-exists",
            Self::InvalidCommand(_) => "invalid-command",
            Self::NotAssigned => "not-assigned",
            Self::IllegalTransition { .. } => "illegal-transition",
            Self::StaleRevision { .. } => "stale-revision",
        }
    }
}
