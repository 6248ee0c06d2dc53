//! The state of a case: what is decided on.
//!
//! Owns the shape of the state. Never changes by itself: [`apply`](super::apply) is the only way forward.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ids::{ActorId, CommandName, Revision, Status, Version};
use super::timestamp::Timestamp;
use super::workflow::Workflow;

/// A case that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The rules that it follows.
    pub workflow: Arc<Workflow>,
    /// Where it stands.
    pub status: Status,
    /// What clients see and send back.
    pub revision: Revision,
    /// The number of its accepted commands.
    pub version: Version,
    /// Who is assigned.
    pub assignees: BTreeSet<ActorId>,
    /// The payload of `open`: a JSON object as canonical text.
    pub data: Arc<str>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When its last operation was recorded.
    pub updated_at: Timestamp,
}

impl Case {
    /// The actions that are legal now, in the order of the workflow.
    pub fn allowed(&self) -> &[CommandName] {
        self.workflow.allowed_from(&self.status)
    }
}

/// A case id's state: a case, or nothing yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseState {
    /// There is no such case (version 0).
    Absent,
    /// There is one.
    Present(Case),
}

impl CaseState {
    /// The version; 0 where there is no case.
    pub fn version(&self) -> Version {
        match self {
            Self::Absent => Version::ZERO,
            Self::Present(case) => case.version,
        }
    }

    /// The case, if there is one.
    pub fn case(&self) -> Option<&Case> {
        match self {
            Self::Absent => None,
            Self::Present(case) => Some(case),
        }
    }
}
