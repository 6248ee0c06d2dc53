//! A recorded operation read back into the command that it was.
//!
//! Owns the way from the stored canonical request to a [`Command`]. Never trusts the row: what it holds is parsed as
//! strictly as what a client sends. Fails with [`InvalidCommand`], whose pointers are those of the request.

use serde_json::{Map, Value};

use super::canonical_json::{JsonError, parse_strict};
use super::command::{Command, CommandDraft, Members};
use super::digest::DIGEST_VERSION;
use super::invalid::{FieldError, InvalidCommand};
use super::operation::Operation;

impl Command {
    /// The command that an operation recorded; `None` once it is pruned. The command's own
    /// [`request`](Command::request) is canonical; that of an `edit` row need not be.
    ///
    /// # Errors
    /// [`InvalidCommand`] where the request is not one that Casework writes, or names another case, actor or command than
    /// the row.
    pub fn from_operation(operation: &Operation) -> Result<Option<Self>, InvalidCommand> {
        let Some(request) = &operation.request else { return Ok(None) };
        let mut object = read_request(request)?;
        let mut draft = CommandDraft {
            case_id: operation.case_id.clone(),
            operation_id: operation.operation_id,
            actor: operation.actor.clone(),
            name: operation.command.clone(),
            members: Members::default(),
        };
        if operation.command.as_str() == "edit" {
            draft.members.payload = Some(object);
            return Command::recorded_edit(draft).map(Some);
        }
        let expected = [
            ("v", Value::from(DIGEST_VERSION)),
            ("case_id", Value::from(operation.case_id.as_str())),
            ("actor", Value::from(operation.actor.as_str())),
            ("command", Value::from(operation.command.as_str())),
        ];
        let mut errors = Vec::new();
        for (name, value) in expected {
            if object.remove(name) != Some(value) {
                errors.push(FieldError { pointer: format!("/{name}"), detail: "is not what the row says".into() });
            }
        }
        draft.members = Members::take(&mut object, &mut errors);
        errors.extend(object.keys().map(|name| FieldError {
            pointer: format!("/{name}"),
            detail: "is no member of a recorded request".into(),
        }));
        if errors.is_empty() { Command::new(draft).map(Some) } else { Err(InvalidCommand { errors }) }
    }
}

fn read_request(request: &str) -> Result<Map<String, Value>, InvalidCommand> {
    match parse_strict(request.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(InvalidCommand::at("", "the recorded request is no JSON object")),
        Err(JsonError::Malformed(reason)) => Err(InvalidCommand::at("", reason)),
        Err(JsonError::Invalid(invalid)) => Err(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    fn operation(command: &str, request: &str) -> Operation {
        Operation {
            case_id: CaseId::from_stored("62"),
            operation_id: OperationId::parse("6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11").expect("valid"),
            version: Version::new(3),
            revision: Revision::new(1),
            status: Status::from_stored("approved"),
            recorded_at: Timestamp::from_micros(0),
            actor: ActorId::from_stored("47"),
            command: CommandName::from_stored(command),
            digest: Some(Digest::of_request(request)),
            request: Some(request.into()),
            outcome: None,
        }
    }

    #[test]
    fn a_recorded_request_becomes_the_command_that_it_was() {
        let request = r#"{"actor":"47","case_id":"62","command":"approve","expected_revision":0,"payload":{"a":[1,0.1]},"reason":"Reviewed.","v":1,"workflow":null}"#;
        let row = operation("approve", request);
        let command = Command::from_operation(&row).expect("valid").expect("not pruned");
        assert_eq!(&**command.request(), request);
        assert_eq!(command.digest(), row.digest.as_ref());
        assert_eq!(Command::from_operation(&Operation { request: None, ..row }), Ok(None));
    }

    #[test]
    fn a_request_that_contradicts_its_row_is_refused() {
        let request = r#"{"actor":"81","case_id":"62","command":"approve","expected_revision":0,"payload":null,"reason":"x","v":2,"workflow":null,"x":1}"#;
        let error = Command::from_operation(&operation("approve", request)).expect_err("another actor");
        let pointers: Vec<_> = error.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["/v", "/actor", "/x"]);
        assert!(Command::from_operation(&operation("approve", "[]")).is_err());
    }

    #[test]
    fn an_edit_is_read_whatever_its_white_space() {
        let row = operation("edit", r#"{"table": "cases", "set": {"status": "denied"}}"#);
        let command = Command::from_operation(&row).expect("valid").expect("not pruned");
        assert_eq!(&**command.request(), r#"{"set":{"status":"denied"},"table":"cases"}"#);
        assert!(matches!(command.kind(), CommandKind::Edit(_)));
    }
}
