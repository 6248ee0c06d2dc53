//! One line of a command log, read strictly.
//!
//! Owns the members of a line (DESIGN section 6) and what each may hold; the NDJSON endpoint and `replay` read with the same
//! function, so that a log means the same from a file and over the wire. Never runs anything. Fails with [`LineError`],
//! which tells a text that is no JSON from a command that is not allowed.

use serde_json::{Map, Value};

use super::write::write_line;
use crate::domain::{
    ActorId, CaseId, Command, CommandDraft, CommandName, FieldError, InvalidCommand, InvalidId, JsonError, Members,
    OperationId, Timestamp, parse_strict,
};

/// The longest line, in bytes, without its line feed. A recorded line may be longer where it is, byte for byte, what
/// `export` writes: a command that just fitted into a request needs more room with its case, id and actor beside it.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// The longest recorded line, in bytes: data that a person wrote by SQL knows no other bound.
pub const RECORDED_LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a line may leave out and what it may say: a recorded log and a client's stream differ.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineRules<'a> {
    /// Who is meant where `actor` is left out (the token's subject); `None`: it must be given.
    pub default_actor: Option<&'a ActorId>,
    /// The line was recorded, as `export` writes it: `at` is taken, and `edit` lines of `sql:` actors are accepted.
    /// Otherwise `at` is ignored, and `edit` is refused.
    pub recorded: bool,
}

impl LineRules<'_> {
    /// The rules for a log file.
    pub const RECORDED: LineRules<'static> = LineRules { default_actor: None, recorded: true };
}

/// A line that holds a valid command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The command.
    pub command: Command,
    /// When it was recorded; only from a recorded line that says so.
    pub at: Option<Timestamp>,
}

/// Why a line is refused. The variants stand in the order in which they are checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It has more than [`LINE_BYTES_MAX`] bytes.
    #[error("the line has more than {LINE_BYTES_MAX} bytes; send a smaller payload")]
    TooLong,
    /// It is not JSON, has a duplicate member or a lone surrogate, or is nested too deep.
    #[error("{0}")]
    Malformed(String),
    /// `operation_id` is left out.
    #[error("`operation_id` is missing; give each command a UUID of its own")]
    OperationIdMissing,
    /// `operation_id` is no UUID.
    #[error("{0}")]
    OperationIdInvalid(InvalidId),
    /// It is JSON, but no valid command.
    #[error("{0}")]
    Invalid(InvalidCommand),
}

impl LineError {
    /// The stable code, as the HTTP interface answers it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong => "too-large",
            Self::Malformed(_) => "malformed-json",
            Self::OperationIdMissing => "operation-id-missing",
            Self::OperationIdInvalid(_) => "operation-id-invalid",
            Self::Invalid(_) => "invalid-command",
        }
    }
}

/// Reads one line, given without its line feed.
///
/// # Errors
/// [`LineError`]; an invalid command names all members that are wrong, each with its JSON pointer.
pub fn parse_line(line: &[u8], rules: LineRules<'_>) -> Result<LogLine, LineError> {
    let is_long = line.len() > LINE_BYTES_MAX;
    if is_long && !(rules.recorded && line.starts_with(b"{\"case_id\":")) {
        return Err(LineError::TooLong);
    }
    let mut object = match parse_strict(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(LineError::Invalid(InvalidCommand::at("", "a line must be a JSON object"))),
        // The reader counts lines of its own, and this is always its first: naming it beside the log's would mislead.
        Err(JsonError::Malformed(reason)) => {
            return Err(LineError::Malformed(reason.replace(" at line 1 column", " at column")));
        }
        Err(JsonError::Invalid(invalid)) => return Err(LineError::Invalid(invalid)),
    };
    let operation_id = match object.remove("operation_id") {
        None | Some(Value::Null) => return Err(LineError::OperationIdMissing),
        Some(value) => OperationId::parse(value.as_str().unwrap_or_default()).map_err(LineError::OperationIdInvalid)?,
    };
    let mut errors = Vec::new();
    let case_id = text_member(&mut object, "case_id", &mut errors, CaseId::parse);
    let name = text_member(&mut object, "command", &mut errors, CommandName::parse);
    let is_edit = rules.recorded && name.as_ref().is_some_and(|name| name.as_str() == "edit");
    let actor = match rules.default_actor {
        Some(default) if object.get("actor").is_none_or(Value::is_null) => {
            object.remove("actor");
            Some(default.clone())
        }
        _ => {
            text_member(&mut object, "actor", &mut errors, if is_edit { ActorId::parse_editor } else { ActorId::parse })
        }
    };
    let at = object.remove("at").filter(|value| rules.recorded && !value.is_null());
    let at = at.and_then(|value| read_time(&value).map_err(|error| errors.push(error)).ok());
    let members = Members::take(&mut object, &mut errors);
    for name in object.keys() {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        errors.push(FieldError { pointer, detail: "a line has no such member; remove it".into() });
    }
    let (Some(case_id), Some(name), Some(actor), true) = (case_id, name, actor, errors.is_empty()) else {
        return Err(LineError::Invalid(InvalidCommand { errors }));
    };
    let draft = CommandDraft { case_id, operation_id, actor, name, members };
    let command = if is_edit { Command::recorded_edit(draft) } else { Command::new(draft) };
    let read = LogLine { command: command.map_err(LineError::Invalid)?, at };
    if is_long && !is_as_written(line, &read) {
        return Err(LineError::TooLong);
    }
    Ok(read)
}

fn is_as_written(line: &[u8], read: &LogLine) -> bool {
    let mut written = Vec::with_capacity(line.len());
    write_line(&mut written, &read.command, read.at);
    read.at.is_some() && written == line
}

fn text_member<T>(
    object: &mut Map<String, Value>,
    name: &str,
    errors: &mut Vec<FieldError>,
    parse: fn(&str) -> Result<T, InvalidId>,
) -> Option<T> {
    let detail = match object.remove(name) {
        None | Some(Value::Null) => format!("`{name}` is missing; give it as a string"),
        Some(Value::String(text)) => match parse(&text) {
            Ok(id) => return Some(id),
            Err(error) => error.to_string(),
        },
        Some(_) => format!("`{name}` must be a string"),
    };
    errors.push(FieldError { pointer: format!("/{name}"), detail });
    None
}

fn read_time(value: &Value) -> Result<Timestamp, FieldError> {
    let wrong = |detail: String| FieldError { pointer: "/at".into(), detail };
    let text = value.as_str().ok_or_else(|| wrong("must be an RFC 3339 time as a string".into()))?;
    Timestamp::parse(text).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11""#;

    fn recorded(rest: &str) -> Result<LogLine, LineError> {
        parse_line(format!("{{{HEAD},{rest}}}").as_bytes(), LineRules::RECORDED)
    }

    fn pointers(error: LineError) -> Vec<String> {
        let LineError::Invalid(invalid) = error else { panic!("{error:?}") };
        invalid.errors.into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn null_members_are_absent_and_the_time_is_taken_from_a_recorded_line() {
        let rest = r#""actor":"47","command":"approve","expected_revision":5,"reason":"Reviewed.","payload":null,"workflow":null,"at":"2026-01-31T13:00:00+01:00""#;
        let line = recorded(rest).expect("valid");
        assert_eq!(line.at.expect("has one").to_string(), "2026-01-31T12:00:00.000000Z");
        assert_eq!(line.command.actor().as_str(), "47");
        let without = recorded(r#""actor":"47","command":"approve","expected_revision":5,"reason":"Reviewed.""#);
        assert_eq!(without.expect("valid").command, line.command);
    }

    #[test]
    fn a_stream_ignores_the_time_and_fills_in_the_subject() {
        let subject = ActorId::parse("47").expect("valid");
        let rules = LineRules { default_actor: Some(&subject), recorded: false };
        let line = format!(r#"{{{HEAD},"command":"open","at":"yesterday"}}"#);
        let line = parse_line(line.as_bytes(), rules).expect("valid");
        assert_eq!((line.at, line.command.actor()), (None, &subject));
        let other = format!(r#"{{{HEAD},"actor":"81","command":"open"}}"#);
        assert_eq!(parse_line(other.as_bytes(), rules).expect("valid").command.actor().as_str(), "81");
    }

    #[test]
    fn an_edit_is_read_from_a_recorded_line_of_an_sql_actor_alone() {
        let edit = r#""actor":"sql:postgres","command":"edit","payload":{"table":"assignments","delete":"47"}"#;
        assert!(recorded(edit).is_ok());
        assert_eq!(pointers(recorded(&edit.replace("sql:postgres", "47")).expect_err("not by 47")), ["/actor"]);
        let streamed = parse_line(format!("{{{HEAD},{edit}}}").as_bytes(), LineRules::default());
        assert_eq!(pointers(streamed.expect_err("not from a client")), ["/actor"]);
        let streamed = format!("{{{HEAD},{}}}", edit.replace("sql:postgres", "47"));
        assert_eq!(pointers(parse_line(streamed.as_bytes(), LineRules::default()).expect_err("no command")), [""]);
    }

    #[test]
    fn what_is_no_json_is_malformed_and_what_is_no_command_is_invalid() {
        for bad in ["{", "[1,", "{\"a\":1,\"a\":2}", "\"\\ud800\"", ""] {
            assert!(matches!(parse_line(bad.as_bytes(), LineRules::RECORDED), Err(LineError::Malformed(_))), "{bad}");
        }
        let truncated = parse_line(b"{\"a\":", LineRules::RECORDED).expect_err("truncated").to_string();
        assert!(truncated.ends_with("at column 5"), "{truncated}");
        assert_eq!(pointers(parse_line(b"[]", LineRules::RECORDED).expect_err("no object")), [""]);
        assert_eq!(
            pointers(recorded(r#""actor":"","command":7,"at":"x","reason":" ","a/b":1"#).expect_err("wrong")),
            ["/command", "/actor", "/at", "/reason", "/a~1b"]
        );
    }

    #[test]
    fn operation_ids_are_asked_for_before_anything_else() {
        for missing in ["{}", r#"{"operation_id":null,"case_id":7}"#] {
            assert_eq!(parse_line(missing.as_bytes(), LineRules::RECORDED), Err(LineError::OperationIdMissing));
        }
        for bad in [r#"{"operation_id":"x"}"#, r#"{"operation_id":7}"#] {
            let error = parse_line(bad.as_bytes(), LineRules::RECORDED);
            assert!(matches!(error, Err(LineError::OperationIdInvalid(_))), "{error:?}");
        }
    }

    #[test]
    fn a_line_has_at_most_64_kibibytes() {
        let long = |bytes: usize| {
            let head = format!(r#"{{{HEAD},"actor":"47","command":"open","payload":{{"x":""#);
            let tail = "\"}}";
            format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
        };
        assert!(parse_line(long(LINE_BYTES_MAX).as_bytes(), LineRules::RECORDED).is_ok());
        assert_eq!(parse_line(long(LINE_BYTES_MAX + 1).as_bytes(), LineRules::RECORDED), Err(LineError::TooLong));
    }

    #[test]
    fn a_longer_line_is_read_if_it_is_what_export_writes() {
        let payload = "x".repeat(LINE_BYTES_MAX);
        let line = |at: &str| {
            format!(
                r#"{{{HEAD},"actor":"47","command":"open","expected_revision":null,"reason":null,"payload":{{"x":"{payload}"}},"workflow":null,"at":{at}}}"#
            )
        };
        let exported = line(r#""2026-01-31T12:00:00.000000Z""#);
        assert!(parse_line(exported.as_bytes(), LineRules::RECORDED).is_ok());
        assert_eq!(parse_line(exported.as_bytes(), LineRules::default()), Err(LineError::TooLong));
        for other in [line("null"), exported.replace("null,", "null ,")] {
            assert_eq!(parse_line(other.as_bytes(), LineRules::RECORDED), Err(LineError::TooLong));
        }
    }
}
