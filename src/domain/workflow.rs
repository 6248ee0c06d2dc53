//! A workflow: which actions a case knows, from which status to which, and who may take them.
//!
//! Owns the look-ups that [`decide`](mod@super::decide) needs, hashed (real logs bring 400 actions and 5,000 transitions).
//! Never changes once built. Parsing and its errors live in `workflow_file`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ids::{CommandName, Status, WorkflowName};

/// The built-in workflow, as the TOML that a user could have written (DESIGN section 3).
pub const PERMIT_TOML: &str = include_str!("permit.toml");

/// Whether a member must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// Without it the command is invalid.
    Required,
    /// It may be left out.
    Optional,
}

/// Who may take an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhoMay {
    /// Only those who are assigned to the case at the moment of commit.
    Assignee,
    /// Every actor.
    Anyone,
}

/// One action of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The command that takes it.
    pub name: CommandName,
    /// The statuses from which it is legal.
    pub from: HashSet<Status>,
    /// The status after it.
    pub to: Status,
    /// Who may take it.
    pub by: WhoMay,
    /// Whether a reason must be given.
    pub reason: Requirement,
    /// Whether `expected_revision` must be given.
    pub revision: Requirement,
}

/// A named set of actions and statuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    pub(super) name: WorkflowName,
    pub(super) initial: Status,
    pub(super) closed: HashSet<Status>,
    pub(super) actions: HashMap<CommandName, Action>,
    pub(super) allowed: HashMap<Status, Vec<CommandName>>,
    pub(super) text: Arc<str>,
    pub(super) digest: [u8; 32],
}

impl Workflow {
    /// The built-in `permit` workflow.
    pub fn permit() -> Arc<Self> {
        Arc::new(Self::parse(PERMIT_TOML).expect("the built-in workflow is valid: a test parses it"))
    }

    /// Its name.
    pub fn name(&self) -> &WorkflowName {
        &self.name
    }

    /// The status that `open` gives.
    pub fn initial(&self) -> &Status {
        &self.initial
    }

    /// Whether a case in this status is closed; retention counts from there.
    pub fn is_closed(&self, status: &Status) -> bool {
        self.closed.contains(status)
    }

    /// The action that a command takes, if the workflow has it.
    pub fn action(&self, name: &CommandName) -> Option<&Action> {
        self.actions.get(name)
    }

    /// The actions that are legal from a status, in the order of the file.
    pub fn allowed_from(&self, status: &Status) -> &[CommandName] {
        self.allowed.get(status).map_or(&[], Vec::as_slice)
    }

    /// How many actions it has.
    pub fn action_count(&self) -> usize {
        self.actions.len()
    }

    /// The TOML text that it was read from.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it has the name of the built-in workflow and is another one.
    pub fn contradicts_built_in(&self) -> bool {
        let permit = Self::permit();
        self.name == permit.name && self.digest != permit.digest
    }

    /// SHA-256 over the meaning of the file: comments, white space and order of members do not count.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}
