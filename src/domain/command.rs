//! A command: a request to change one case.
//!
//! Owns the strict reading of its members and its canonical form, from which the digest comes. Never looks at a case.
//! Fails with [`InvalidCommand`], one entry a fault, with JSON pointers.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::canonical_json::canonical;
use super::digest::{CanonicalRequest, DIGEST_VERSION, Digest};
use super::edit::Edit;
use super::ids::{ActorId, CaseId, CommandName, OperationId, Revision, WorkflowName};
use super::invalid::{FieldError, InvalidCommand};

/// The longest reason, in Unicode scalar values.
const REASON_CHARACTERS_MAX: usize = 2_000;

/// The commands that every workflow has, and `edit`, which only the database's triggers write.
pub(super) fn is_built_in(name: &str) -> bool {
    matches!(name, "open" | "assign" | "unassign" | "note" | "edit")
}

/// Why something is done: 1 to 2,000 characters, not only white space, never trimmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The members that a client sends, before they are put together with a case, an id and an actor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Members {
    /// `expected_revision`.
    pub expected_revision: Option<Revision>,
    /// `reason`.
    pub reason: Option<Reason>,
    /// `payload`.
    pub payload: Option<Map<String, Value>>,
    /// `workflow`.
    pub workflow: Option<WorkflowName>,
}

impl Members {
    /// Takes the four members out of an object that [`super::parse_strict`] read; a `null` is absence. What is left in the
    /// object is the caller's. Faults are added to `errors`.
    pub fn take(object: &mut Map<String, Value>, errors: &mut Vec<FieldError>) -> Self {
        let mut take = |name: &str| object.remove(name).filter(|value| !value.is_null());
        let mut refuse = |pointer: &str, detail: String| {
            errors.push(FieldError { pointer: pointer.into(), detail });
        };
        let mut members = Self::default();
        if let Some(value) = take("expected_revision") {
            match whole_number(&value) {
                Some(number) => members.expected_revision = Some(Revision::new(number)),
                None => refuse("/expected_revision", "must be a whole number from 0 to 2^53−1".into()),
            }
        }
        if let Some(value) = take("reason") {
            match read_reason(&value) {
                Ok(reason) => members.reason = Some(reason),
                Err(detail) => refuse("/reason", detail),
            }
        }
        if let Some(value) = take("payload") {
            match value {
                Value::Object(payload) => members.payload = Some(payload),
                _ => refuse("/payload", "must be an object".into()),
            }
        }
        if let Some(value) = take("workflow") {
            match value.as_str().map(WorkflowName::parse) {
                Some(Ok(name)) => members.workflow = Some(name),
                Some(Err(error)) => refuse("/workflow", error.to_string()),
                None => refuse("/workflow", "must be the name of a workflow".into()),
            }
        }
        members
    }
}

fn whole_number(value: &Value) -> Option<i64> {
    let double = value.as_f64()?;
    // parse_strict has refused what lies beyond 2^53−1, so the conversion is exact.
    (double >= 0.0 && double.fract() == 0.0).then_some(double as i64)
}

fn read_reason(value: &Value) -> Result<Reason, String> {
    let Some(text) = value.as_str() else { return Err("must be a string".into()) };
    let characters = text.chars().count();
    if characters > REASON_CHARACTERS_MAX {
        return Err(format!("has {characters} characters; at most {REASON_CHARACTERS_MAX} are allowed"));
    }
    if text.chars().all(char::is_whitespace) {
        return Err("must not be blank".into());
    }
    Ok(Reason(text.into()))
}

/// Everything that makes up a command; [`Command::new`] checks what belongs together.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandDraft {
    /// The case.
    pub case_id: CaseId,
    /// The id that the client made.
    pub operation_id: OperationId,
    /// Who sends it.
    pub actor: ActorId,
    /// What it is.
    pub name: CommandName,
    /// The rest.
    pub members: Members,
}

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandKind {
    /// A new case; names its workflow, or takes the default.
    Open {
        /// As sent.
        workflow: Option<WorkflowName>,
    },
    /// One more assignee.
    Assign(ActorId),
    /// One assignee less.
    Unassign(ActorId),
    /// A remark.
    Note,
    /// An action of the case's workflow.
    Action,
    /// A recorded edit by SQL; only a replayed log brings it.
    Edit(Edit),
}

/// A valid command with its canonical form and digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    case_id: CaseId,
    operation_id: OperationId,
    actor: ActorId,
    name: CommandName,
    kind: CommandKind,
    expected_revision: Option<Revision>,
    has_reason: bool,
    data: Option<Arc<str>>,
    request: Arc<str>,
    digest: Option<Digest>,
}

impl Command {
    /// Puts a command together.
    ///
    /// # Errors
    /// [`InvalidCommand`]: `expected_revision` on `open`, `workflow` on anything else, no assignee, a note without a
    /// reason, the command `edit`.
    pub fn new(draft: CommandDraft) -> Result<Self, InvalidCommand> {
        let members = &draft.members;
        if members.workflow.is_some() && draft.name.as_str() != "open" {
            return Err(InvalidCommand::at("/workflow", "only `open` names a workflow; leave it out"));
        }
        let kind = match draft.name.as_str() {
            "open" if members.expected_revision.is_some() => {
                return Err(InvalidCommand::at("/expected_revision", "a new case has no revision; leave it out"));
            }
            "open" => CommandKind::Open { workflow: members.workflow.clone() },
            "assign" => CommandKind::Assign(assignee(members)?),
            "unassign" => CommandKind::Unassign(assignee(members)?),
            "note" if members.reason.is_none() => {
                return Err(InvalidCommand::at("/reason", "a note needs a reason: the text of the note"));
            }
            "note" => CommandKind::Note,
            "edit" => {
                return Err(InvalidCommand::at(
                    "",
                    "`edit` records a change made by SQL; it can't be sent as a command",
                ));
            }
            _ => CommandKind::Action,
        };
        Ok(Self::assemble(draft, kind))
    }

    /// Puts a recorded `edit` together, as an exported log has it.
    ///
    /// # Errors
    /// [`InvalidCommand`] where the payload is not what the triggers write, or a member does not belong there.
    pub fn recorded_edit(draft: CommandDraft) -> Result<Self, InvalidCommand> {
        let members = &draft.members;
        if members.workflow.is_some() || members.reason.is_some() || members.expected_revision.is_some() {
            return Err(InvalidCommand::at("", "an `edit` has a payload and nothing else"));
        }
        let Some(payload) = &members.payload else {
            return Err(InvalidCommand::at("/payload", "an `edit` needs the payload that was recorded"));
        };
        let kind = CommandKind::Edit(Edit::from_payload(payload)?);
        Ok(Self::assemble(draft, kind))
    }

    fn assemble(draft: CommandDraft, kind: CommandKind) -> Self {
        let CommandDraft { case_id, operation_id, actor, name, members } = draft;
        let has_reason = members.reason.is_some();
        let payload = members.payload.map(|payload| canonical(&Value::Object(payload)));
        let data = match (&kind, &payload) {
            (CommandKind::Open { .. }, Some(payload)) => Some(Arc::from(payload.as_str())),
            _ => None,
        };
        let (request, digest) = if let CommandKind::Edit(_) = kind {
            (payload.expect("an edit has a payload"), None)
        } else {
            let request = CanonicalRequest {
                actor: &actor,
                case_id: &case_id,
                command: &name,
                expected_revision: members.expected_revision,
                payload: payload.map(|text| RawValue::from_string(text).expect("canonical JSON is JSON")),
                reason: members.reason.as_ref().map(Reason::as_str),
                v: DIGEST_VERSION,
                workflow: members.workflow.as_ref(),
            }
            .to_json();
            let digest = Digest::of_request(&request);
            (request, Some(digest))
        };
        Self {
            case_id,
            operation_id,
            actor,
            name,
            kind,
            expected_revision: members.expected_revision,
            has_reason,
            data,
            request: request.into(),
            digest,
        }
    }

    /// The case.
    pub fn case_id(&self) -> &CaseId {
        &self.case_id
    }

    /// The id that the client made.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// Who sends it.
    pub fn actor(&self) -> &ActorId {
        &self.actor
    }

    /// Its name.
    pub fn name(&self) -> &CommandName {
        &self.name
    }

    /// What it asks for.
    pub fn kind(&self) -> &CommandKind {
        &self.kind
    }

    /// The revision on which the client decided.
    pub fn expected_revision(&self) -> Option<Revision> {
        self.expected_revision
    }

    /// Whether a reason was given.
    pub fn has_reason(&self) -> bool {
        self.has_reason
    }

    /// The payload of `open` as canonical text; `{}` where there is none.
    pub fn data(&self) -> Arc<str> {
        self.data.clone().unwrap_or_else(|| Arc::from("{}"))
    }

    /// The canonical form, which is stored: `JCS({"v":1, case_id, command, ...})`; for an `edit` its payload.
    pub fn request(&self) -> &Arc<str> {
        &self.request
    }

    /// The digest; `None` for an `edit`.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The workflow that the command itself names.
    pub fn named_workflow(&self) -> Option<&WorkflowName> {
        match &self.kind {
            CommandKind::Open { workflow } => workflow.as_ref(),
            CommandKind::Edit(edit) => edit.workflow(),
            _ => None,
        }
    }
}

fn assignee(members: &Members) -> Result<ActorId, InvalidCommand> {
    let value = members.payload.as_ref().and_then(|payload| payload.get("assignee"));
    match value {
        Some(Value::String(name)) => {
            ActorId::parse(name).map_err(|error| InvalidCommand::at("/payload/assignee", error.to_string()))
        }
        _ => Err(InvalidCommand::at("/payload/assignee", "name who is meant, as a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::canonical_json::parse_strict;
    use super::*;

    fn command(name: &str, body: &str) -> Result<Command, InvalidCommand> {
        let Value::Object(mut object) = parse_strict(body.as_bytes()).expect("test JSON") else { panic!("an object") };
        let mut errors = Vec::new();
        let members = Members::take(&mut object, &mut errors);
        if !errors.is_empty() {
            return Err(InvalidCommand { errors });
        }
        Command::new(CommandDraft {
            case_id: CaseId::parse("62").expect("valid"),
            operation_id: OperationId::parse("6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11").expect("valid"),
            actor: ActorId::parse("47").expect("valid"),
            name: CommandName::parse(name).expect("valid"),
            members,
        })
    }

    #[test]
    fn golden_vectors_pin_version_1_of_the_digest() {
        let approve =
            command("approve", r#"{"expected_revision":5,"reason":"All documents reviewed."}"#).expect("valid");
        assert_eq!(
            &**approve.request(),
            r#"{"actor":"47","case_id":"62","command":"approve","expected_revision":5,"payload":null,"reason":"All documents reviewed.","v":1,"workflow":null}"#
        );
        assert_eq!(
            approve.digest().expect("has one").to_string(),
            "010b5bc065446ebc615f461a1ad0ad6280ec10d95afea23eb92cbe0e07c5f4c2d1"
        );
        let open = command(
            "open",
            r#"{"payload":{"b":[1.0,{"y":1e2,"x":"\u00e9"}],"a":26.85120450862128},"workflow":"permit"}"#,
        )
        .expect("valid");
        assert_eq!(
            &**open.request(),
            r#"{"actor":"47","case_id":"62","command":"open","expected_revision":null,"payload":{"a":26.85120450862128,"b":[1,{"x":"é","y":100}]},"reason":null,"v":1,"workflow":"permit"}"#
        );
        assert_eq!(
            open.digest().expect("has one").to_string(),
            "018f0f06291e07f4097f1fc9303ad6e03145f8b94e3501f878ebb6e9661eb892ff"
        );
    }

    #[test]
    fn null_is_absence_at_the_top_and_a_value_inside() {
        let digest = |body| command("note", body).expect("valid").digest().copied();
        assert_eq!(digest(r#"{"reason":"x","payload":null}"#), digest(r#"{"reason":"x"}"#));
        assert_ne!(digest(r#"{"reason":"x","payload":{"a":null}}"#), digest(r#"{"reason":"x","payload":{}}"#));
        assert_eq!(
            digest(r#"{"reason":"x","expected_revision":1.0}"#),
            digest(r#"{"expected_revision":1,"reason":"x"}"#)
        );
    }

    #[test]
    fn members_out_of_place_are_invalid_with_a_pointer() {
        let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(2_001));
        for (name, body, pointer) in [
            ("open", r#"{"expected_revision":1}"#, "/expected_revision"),
            ("approve", r#"{"workflow":"permit"}"#, "/workflow"),
            ("approve", r#"{"expected_revision":-1}"#, "/expected_revision"),
            ("approve", r#"{"expected_revision":1.5}"#, "/expected_revision"),
            ("approve", r#"{"expected_revision":"1"}"#, "/expected_revision"),
            ("approve", r#"{"reason":" \u2003\n"}"#, "/reason"),
            ("approve", r#"{"reason":""}"#, "/reason"),
            ("approve", &long, "/reason"),
            ("approve", r#"{"payload":[]}"#, "/payload"),
            ("assign", r#"{"payload":{}}"#, "/payload/assignee"),
            ("assign", r#"{"payload":{"assignee":"sql:x"}}"#, "/payload/assignee"),
            ("note", "{}", "/reason"),
            ("edit", "{}", ""),
        ] {
            let error = command(name, body).expect_err(body);
            assert_eq!(error.errors[0].pointer, pointer, "{name} {body}");
        }
        assert!(command("note", &format!(r#"{{"reason":"{}"}}"#, "é".repeat(2_000))).is_ok());
    }
}
