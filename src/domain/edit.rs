//! What a person changed by SQL, as the triggers record it.
//!
//! Owns the shape of the payload of an `edit` and its folding rule. Never validates a person's choice: it has happened.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::canonical_json::canonical;
use super::ids::{ActorId, Revision, Status, WorkflowName};
use super::invalid::InvalidCommand;

/// One edit. The fields are new values; `None` means unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Columns of `cases`. Revision afterwards: the larger of `revision` and, where something else changed, one more.
    SetCase {
        /// The new workflow.
        workflow: Option<WorkflowName>,
        /// The new status.
        status: Option<Status>,
        /// The new revision, as far as it is named.
        revision: Option<Revision>,
        /// The new data: a JSON value as canonical text.
        data: Option<Arc<str>>,
    },
    /// A case inserted by hand (PostgreSQL only).
    InsertCase {
        /// Its workflow.
        workflow: WorkflowName,
        /// Its status.
        status: Status,
        /// Its revision.
        revision: Revision,
        /// Its data: a JSON value as canonical text.
        data: Arc<str>,
    },
    /// An assignment taken away, given, or both at once.
    Assignment {
        /// Who lost it.
        delete: Option<ActorId>,
        /// Who got it.
        insert: Option<ActorId>,
    },
}

impl Edit {
    /// Reads the payload of an `edit`.
    ///
    /// # Errors
    /// [`InvalidCommand`] with a pointer below `/payload` where the shape is another.
    pub fn from_payload(payload: &Map<String, Value>) -> Result<Self, InvalidCommand> {
        let wrong = |pointer: &str| InvalidCommand::at(pointer, "this is not what an `edit` records; export it anew");
        match payload.get("table").and_then(Value::as_str) {
            Some("assignments") => {
                let name = |member: &str| match payload.get(member) {
                    None => Ok(None),
                    Some(Value::String(name)) => Ok(Some(ActorId::from_stored(name.as_str()))),
                    Some(_) => Err(wrong(&format!("/payload/{member}"))),
                };
                let (delete, insert) = (name("delete")?, name("insert")?);
                if delete.is_none() && insert.is_none() {
                    return Err(wrong("/payload"));
                }
                Ok(Self::Assignment { delete, insert })
            }
            Some("cases") => match (payload.get("set"), payload.get("insert")) {
                (Some(Value::Object(set)), None) => {
                    let (workflow, status, revision, data) = columns(set).ok_or_else(|| wrong("/payload/set"))?;
                    Ok(Self::SetCase { workflow, status, revision, data })
                }
                (None, Some(Value::Object(row))) => match columns(row) {
                    Some((Some(workflow), Some(status), Some(revision), Some(data))) => {
                        Ok(Self::InsertCase { workflow, status, revision, data })
                    }
                    _ => Err(wrong("/payload/insert")),
                },
                _ => Err(wrong("/payload")),
            },
            _ => Err(wrong("/payload/table")),
        }
    }

    /// The workflow that the case has after the edit, if the edit names one.
    pub fn workflow(&self) -> Option<&WorkflowName> {
        match self {
            Self::SetCase { workflow, .. } => workflow.as_ref(),
            Self::InsertCase { workflow, .. } => Some(workflow),
            Self::Assignment { .. } => None,
        }
    }
}

type Columns = (Option<WorkflowName>, Option<Status>, Option<Revision>, Option<Arc<str>>);

fn columns(members: &Map<String, Value>) -> Option<Columns> {
    let (mut workflow, mut status, mut revision, mut data) = (None, None, None, None);
    for (name, value) in members {
        match (name.as_str(), value) {
            ("workflow", Value::String(text)) => workflow = Some(WorkflowName::from_stored(text.as_str())),
            ("status", Value::String(text)) => status = Some(Status::from_stored(text.as_str())),
            ("revision", Value::Number(number)) => revision = Some(Revision::new(number.as_i64().filter(|n| *n >= 0)?)),
            ("data", value) => data = Some(Arc::from(canonical(value))),
            _ => return None,
        }
    }
    Some((workflow, status, revision, data))
}
