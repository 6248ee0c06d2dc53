//! What the store returns: committed rows in the domain's types. Row structs of diesel never leave the two stores.

use std::sync::Arc;

use super::{ActorId, CaseId, KnownOperation, OperationId, Revision, Status, Timestamp, Version, WorkflowName};

/// A committed case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseRecord {
    /// Its id.
    pub case_id: CaseId,
    /// The name of its workflow.
    pub workflow: WorkflowName,
    /// Its status.
    pub status: Status,
    /// Its revision.
    pub revision: Revision,
    /// Its version.
    pub version: Version,
    /// Who is assigned, sorted by bytes.
    pub assignees: Vec<ActorId>,
    /// JSON as text.
    pub data: Arc<str>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When its last operation was recorded.
    pub updated_at: Timestamp,
}

/// What memory begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseLoad {
    /// The case; `None`: there is none with this id.
    pub record: Option<CaseRecord>,
    /// Its operations; `None`: more than asked for.
    pub operations: Option<Vec<KnownOperation>>,
}

/// Which cases to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseFilter {
    /// Only in this status.
    pub status: Option<Status>,
    /// Only those to whom this actor is assigned.
    pub assignee: Option<ActorId>,
    /// Only of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only ids after this one (bytes).
    pub after: Option<CaseId>,
    /// At most so many.
    pub limit: usize,
}

/// An operation that waits to be taken over by the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRecord {
    /// The case.
    pub case_id: CaseId,
    /// The version that the operation gave the case.
    pub version: Version,
    /// The operation.
    pub operation_id: OperationId,
}

/// A workflow as it was stored at first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWorkflow {
    /// Its name.
    pub name: WorkflowName,
    /// SHA-256 of its meaning.
    pub digest: [u8; 32],
    /// Its TOML.
    pub text: Arc<str>,
}

/// An API token at rest.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its public id.
    pub id: uuid::Uuid,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Who it speaks for.
    pub subject: ActorId,
    /// Its roles, separated by commas (`clerk,reviewer`).
    pub roles: String,
    /// When it was issued.
    pub created_at: Timestamp,
    /// When it ends, if ever.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl std::fmt::Debug for TokenRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRecord").field("id", &self.id).field("subject", &self.subject).finish_non_exhaustive()
    }
}
