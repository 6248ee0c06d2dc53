//! Deciding: START HERE.
//!
//! Owns the order of checks, which is public (DESIGN section 3) and walked by one table test below, and the one way in
//! which a decision changes a state. Pure: no I/O, no clock, no randomness. Fails with a [`Rejection`]; [`apply`] cannot
//! fail.

use std::sync::Arc;

use super::case::{Case, CaseState};
use super::command::{Command, CommandKind};
use super::edit::Edit;
use super::ids::{ActorId, Revision, Status, Version};
use super::invalid::{FieldError, InvalidCommand};
use super::operation::{KnownOperation, Operation, Outcome};
use super::rejection::Rejection;
use super::timestamp::Timestamp;
use super::workflow::{Action, Requirement, WhoMay, Workflow};

/// What an accepted command does to its case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The case comes into being.
    Opened {
        /// Its rules.
        workflow: Arc<Workflow>,
        /// The payload of `open` (of the row, where a person inserted it), as canonical text.
        data: Arc<str>,
    },
    /// The actor is assigned afterwards, whether or not before.
    Assigned(ActorId),
    /// The actor is not assigned afterwards, whether or not before.
    Unassigned(ActorId),
    /// A remark was recorded.
    Noted,
    /// An action moved the case.
    Moved,
    /// A person changed columns of the case.
    Edited {
        /// The new rules, if they changed.
        workflow: Option<Arc<Workflow>>,
        /// The new data, if it changed.
        data: Option<Arc<str>>,
    },
    /// A person changed assignments.
    Reassigned {
        /// Who lost it.
        delete: Option<ActorId>,
        /// Who got it.
        insert: Option<ActorId>,
    },
}

/// An accepted command: its effect, and where the case stands afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What it does.
    pub effect: Effect,
    /// The status afterwards.
    pub status: Status,
    /// The revision afterwards.
    pub revision: Revision,
    /// The version afterwards.
    pub version: Version,
}

impl Decision {
    /// What is recorded of the command that was decided so.
    pub fn to_operation(&self, command: &Command, recorded_at: Timestamp) -> Operation {
        let mut operation = Operation {
            case_id: command.case_id().clone(),
            operation_id: command.operation_id(),
            version: self.version,
            revision: self.revision,
            status: self.status.clone(),
            recorded_at,
            actor: command.actor().clone(),
            command: command.name().clone(),
            digest: command.digest().copied(),
            request: Some(command.request().clone()),
            outcome: None,
        };
        operation.outcome = Some(Outcome::from(&operation).to_json().into());
        operation
    }
}

/// What [`judge`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// An exact repeat: answer with the stored outcome.
    Replay(Arc<str>),
    /// A new command that is accepted.
    Accept(Decision),
}

/// All five checks in their public order. `known` is the operation under the command's id, if there is one.
///
/// # Errors
/// The first [`Rejection`] in order of precedence.
pub fn judge(
    known: Option<&KnownOperation>,
    workflow: &Arc<Workflow>,
    state: &CaseState,
    command: &Command,
) -> Result<Judgement, Rejection> {
    if let Some(known) = known {
        return replay(known, command).map(Judgement::Replay);
    }
    decide(workflow, state, command).map(Judgement::Accept)
}

/// Check 1: what is answered under an id that is known. Comes first, so that a reviewer who lost the assignment after
/// approving still gets the receipt, and an honest retry is never "stale".
///
/// # Errors
/// [`Rejection::OperationConflict`] or [`Rejection::OutcomeExpired`].
pub fn replay(known: &KnownOperation, command: &Command) -> Result<Arc<str>, Rejection> {
    if !known.is_repeated_by(command) {
        return Err(Rejection::OperationConflict);
    }
    known.outcome.clone().ok_or(Rejection::OutcomeExpired)
}

/// Checks 2 to 5, for a command whose id is new. `workflow` is the case's; for `open`, and for an `edit` that names one, it
/// is the one that the case will have.
///
/// # Errors
/// The first [`Rejection`] in order of precedence. What a workflow requires of a command (a reason, a revision, the
/// command's being known at all) is checked between 2 and 3: it needs the case's workflow, and comes before the case's
/// state.
pub fn decide(workflow: &Arc<Workflow>, state: &CaseState, command: &Command) -> Result<Decision, Rejection> {
    let case = match (state, command.kind()) {
        (CaseState::Absent, CommandKind::Open { .. }) => {
            let effect = Effect::Opened { workflow: workflow.clone(), data: command.data() };
            return Ok(opened(workflow.initial().clone(), Revision::ZERO, effect));
        }
        (CaseState::Absent, CommandKind::Edit(Edit::InsertCase { status, revision, data, .. })) => {
            let effect = Effect::Opened { workflow: workflow.clone(), data: data.clone() };
            return Ok(opened(status.clone(), *revision, effect));
        }
        (CaseState::Absent, _) => return Err(Rejection::CaseNotFound),
        (CaseState::Present(_), CommandKind::Open { .. } | CommandKind::Edit(Edit::InsertCase { .. })) => {
            return Err(Rejection::CaseExists);
        }
        (CaseState::Present(case), _) => case,
    };
    match command.kind() {
        CommandKind::Assign(who) => stay(case, command, Effect::Assigned(who.clone())),
        CommandKind::Unassign(who) => stay(case, command, Effect::Unassigned(who.clone())),
        CommandKind::Note => stay(case, command, Effect::Noted),
        CommandKind::Action => act(workflow, case, command),
        CommandKind::Edit(edit) => Ok(edited(workflow, case, edit)),
        CommandKind::Open { .. } => Err(Rejection::CaseExists),
    }
}

fn opened(status: Status, revision: Revision, effect: Effect) -> Decision {
    Decision { effect, status, revision, version: Version::ZERO.next() }
}

/// `assign`, `unassign` and `note`: legal in every status, by anyone; only a revision that is given is checked.
fn stay(case: &Case, command: &Command, effect: Effect) -> Result<Decision, Rejection> {
    check_revision(case, command)?;
    Ok(Decision { effect, status: case.status.clone(), revision: case.revision, version: case.version.next() })
}

fn act(workflow: &Workflow, case: &Case, command: &Command) -> Result<Decision, Rejection> {
    let Some(action) = workflow.action(command.name()) else {
        let detail = format!("the workflow `{}` has no command `{}`", workflow.name(), command.name());
        return Err(Rejection::InvalidCommand(InvalidCommand::at("", detail)));
    };
    check_required(action, command)?;
    if action.by == WhoMay::Assignee && !case.assignees.contains(command.actor()) {
        return Err(Rejection::NotAssigned);
    }
    if !action.from.contains(&case.status) {
        return Err(Rejection::IllegalTransition {
            status: case.status.clone(),
            revision: case.revision,
            allowed: workflow.allowed_from(&case.status).to_vec(),
        });
    }
    check_revision(case, command)?;
    Ok(Decision {
        effect: Effect::Moved,
        status: action.to.clone(),
        revision: case.revision.next(),
        version: case.version.next(),
    })
}

fn check_required(action: &Action, command: &Command) -> Result<(), Rejection> {
    let mut errors = Vec::new();
    let mut missing = |pointer: &str, what: &str| {
        let detail = format!("`{}` needs {what}", command.name());
        errors.push(FieldError { pointer: pointer.to_owned(), detail });
    };
    if action.revision == Requirement::Required && command.expected_revision().is_none() {
        missing("/expected_revision", "the revision on which you decided");
    }
    if action.reason == Requirement::Required && !command.has_reason() {
        missing("/reason", "a reason");
    }
    if errors.is_empty() { Ok(()) } else { Err(Rejection::InvalidCommand(InvalidCommand { errors })) }
}

fn check_revision(case: &Case, command: &Command) -> Result<(), Rejection> {
    match command.expected_revision() {
        Some(expected) if expected != case.revision => Err(Rejection::StaleRevision { current: case.revision }),
        _ => Ok(()),
    }
}

/// A recorded edit is applied as it was recorded; the rule for the revision is the triggers' own.
fn edited(workflow: &Arc<Workflow>, case: &Case, edit: &Edit) -> Decision {
    let (effect, status, revision) = match edit {
        Edit::SetCase { workflow: name, status, revision, data } => {
            let moved = name.is_some() || status.is_some() || data.is_some();
            let bumped = if moved { case.revision.next() } else { case.revision };
            let effect = Effect::Edited { workflow: name.is_some().then(|| workflow.clone()), data: data.clone() };
            (
                effect,
                status.clone().unwrap_or_else(|| case.status.clone()),
                revision.map_or(bumped, |set| set.max(bumped)),
            )
        }
        Edit::Assignment { delete, insert } => {
            let effect = Effect::Reassigned { delete: delete.clone(), insert: insert.clone() };
            (effect, case.status.clone(), case.revision)
        }
        Edit::InsertCase { .. } => unreachable!("decide answers an insert before it gets here"),
    };
    Decision { effect, status, revision, version: case.version.next() }
}

/// The state after a decision that was made on it. Cannot fail.
pub fn apply(state: &mut CaseState, decision: &Decision, at: Timestamp) {
    match (&mut *state, &decision.effect) {
        (_, Effect::Opened { workflow, data }) => {
            *state = CaseState::Present(Case {
                workflow: workflow.clone(),
                status: decision.status.clone(),
                revision: decision.revision,
                version: decision.version,
                assignees: Default::default(),
                data: data.clone(),
                opened_at: at,
                updated_at: at,
            });
            return;
        }
        (CaseState::Absent, _) => unreachable!("only `open` is accepted where there is no case"),
        (CaseState::Present(case), effect) => match effect {
            Effect::Assigned(who) => {
                case.assignees.insert(who.clone());
            }
            Effect::Unassigned(who) => {
                case.assignees.remove(who);
            }
            Effect::Edited { workflow, data } => {
                if let Some(workflow) = workflow {
                    case.workflow = workflow.clone();
                }
                if let Some(data) = data {
                    case.data = data.clone();
                }
            }
            Effect::Reassigned { delete, insert } => {
                if let Some(who) = delete {
                    case.assignees.remove(who);
                }
                case.assignees.extend(insert.clone());
            }
            Effect::Opened { .. } | Effect::Noted | Effect::Moved => {}
        },
    }
    if let CaseState::Present(case) = state {
        case.status = decision.status.clone();
        case.revision = decision.revision;
        case.version = decision.version;
        case.updated_at = at;
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
