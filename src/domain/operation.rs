//! An accepted command as it is recorded, and the outcome that every repeat gets.
//!
//! Owns the public JSON of an outcome: made once, stored as bytes, returned byte for byte. Never parsed to answer.

use std::sync::Arc;

use super::command::Command;
use super::digest::Digest;
use super::ids::{ActorId, CaseId, CommandName, OperationId, Revision, Status, Version};
use super::timestamp::Timestamp;

/// One row of `operations`: the audit trail and the command log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its case.
    pub case_id: CaseId,
    /// Its identity within the case.
    pub operation_id: OperationId,
    /// The case's version after it.
    pub version: Version,
    /// The case's revision after it.
    pub revision: Revision,
    /// The case's status after it.
    pub status: Status,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// Who sent it.
    pub actor: ActorId,
    /// What it was.
    pub command: CommandName,
    /// `None` for an `edit`.
    pub digest: Option<Digest>,
    /// The canonical request; `None` once pruned.
    pub request: Option<Arc<str>>,
    /// The outcome as it is sent; `None` once pruned.
    pub outcome: Option<Arc<str>>,
}

/// What memory keeps of an operation: enough to answer a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownOperation {
    /// Its identity.
    pub operation_id: OperationId,
    /// Who sent it.
    pub actor: ActorId,
    /// What it was.
    pub command: CommandName,
    /// `None` for an `edit`.
    pub digest: Option<Digest>,
    /// The outcome as it is sent; `None` once pruned.
    pub outcome: Option<Arc<str>>,
}

impl KnownOperation {
    /// Whether the command is an exact repeat of the operation: the same actor and the same digest.
    pub fn is_repeated_by(&self, command: &Command) -> bool {
        self.actor == *command.actor() && self.digest.as_ref() == command.digest()
    }
}

impl From<&Operation> for KnownOperation {
    fn from(operation: &Operation) -> Self {
        Self {
            operation_id: operation.operation_id,
            actor: operation.actor.clone(),
            command: operation.command.clone(),
            digest: operation.digest,
            outcome: operation.outcome.clone(),
        }
    }
}

/// The public result of an operation. The order of the members is part of the stored bytes.
#[derive(Debug, serde::Serialize)]
pub struct Outcome<'a> {
    /// The case.
    pub case_id: &'a CaseId,
    /// The operation.
    pub operation_id: OperationId,
    /// The command.
    pub command: &'a CommandName,
    /// Who sent it.
    pub actor: &'a ActorId,
    /// The status after it.
    pub status: &'a Status,
    /// The revision after it.
    pub revision: Revision,
    /// The version after it.
    pub version: Version,
    /// When it was decided.
    pub recorded_at: Timestamp,
}

impl<'a> From<&'a Operation> for Outcome<'a> {
    fn from(operation: &'a Operation) -> Self {
        Self {
            case_id: &operation.case_id,
            operation_id: operation.operation_id,
            command: &operation.command,
            actor: &operation.actor,
            status: &operation.status,
            revision: operation.revision,
            version: operation.version,
            recorded_at: operation.recorded_at,
        }
    }
}

impl Outcome<'_> {
    /// The bytes that are stored and sent.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an outcome has only texts and integers")
    }
}
