//! What a case hands to the commit queue: a chain of decided commands, or a check of the version they were decided on.
//!
//! Owns the shape that crosses from deciding to storing. A chain is whole: it is never cut, and a case has one in flight.

use crate::domain::{ActorId, Case, CaseId, Operation, Version};

/// One case's part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The case.
    pub case_id: CaseId,
    /// The version that everything in the chain was decided on; 0: there is no such case.
    pub expected: Version,
    /// What is written if the version holds; `None`: a check alone, for rejections.
    pub step: Option<Step>,
}

/// The accepted commands of a chain as one step of their case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The case after the last of them.
    pub after: Case,
    /// Whether `data` changed, or the case is new. Otherwise the column is left alone.
    pub writes_data: bool,
    /// The operations, versions `expected + 1 ..= after.version`.
    pub operations: Vec<Operation>,
    /// The net effect on assignments: each assignee once.
    pub assignments: Vec<AssignmentChange>,
}

/// One assignee's net change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignmentChange {
    /// Who.
    pub assignee: ActorId,
    /// Assigned afterwards, or not.
    pub present: bool,
}

impl Chain {
    /// How many operations it writes.
    pub fn operation_count(&self) -> usize {
        self.step.as_ref().map_or(0, |step| step.operations.len())
    }

    /// About how many bytes it sends.
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<std::sync::Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let operations = self.step.iter().flat_map(|step| &step.operations);
        128 + operations.map(|operation| 160 + text(&operation.request) + text(&operation.outcome)).sum::<usize>()
    }
}
