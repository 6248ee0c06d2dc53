//! What holds for every command, of which the examples elsewhere show a few: random commands that shrink when they fail.

use casework::command_log::{LineRules, parse_line, write_line};
use casework::domain::{
    ActorId, Case, CaseId, CaseState, Command, CommandDraft, CommandName, Digest, KnownOperation, Members, OperationId,
    Rejection, Timestamp, Workflow, apply, canonical, decide, parse_strict,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any text that a command may carry: no NUL.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>().prop_filter("no NUL", |c| *c != '\0'), 0..8).prop_map(String::from_iter)
}

/// Any JSON value that the parser accepts.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53) + 1..1 << 53).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite, and no whole number out of range", |number| {
                number.is_finite() && (number.fract() != 0.0 || number.abs() < 9e15)
            })
            .prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A log line's members, of a command that is valid.
fn line() -> impl Strategy<Value = Value> {
    let name =
        prop_oneof![Just("open"), Just("assign"), Just("unassign"), Just("note"), Just("approve"), Just("amend")];
    let reason = text().prop_map(|text| format!("{text}."));
    let payload = proptest::collection::btree_map(text(), value(), 0..4);
    (any::<u128>(), name, reason, 0..1_i64 << 53, any::<bool>(), payload).prop_map(
        |(id, name, reason, revision, is_terse, payload)| {
            let mut line = json!({
                "case_id": "62",
                "operation_id": uuid::Uuid::from_u128(id | 1).to_string(),
                "actor": "47",
                "command": name,
            });
            let payload: Map<String, Value> = payload.into_iter().collect();
            if matches!(name, "assign" | "unassign") {
                line["payload"] = json!({ "assignee": "81" });
            } else if !(is_terse && name == "open") {
                line["payload"] = Value::Object(payload);
            }
            if matches!(name, "note" | "approve" | "amend") {
                line["reason"] = json!(reason);
            }
            if name != "open" && !(is_terse && name == "note") {
                line["expected_revision"] = json!(revision);
            }
            line
        },
    )
}

/// The same value as another writer would put it: members in reverse, white space, every letter escaped.
fn other_spelling(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .rev()
                .map(|(name, value)| format!("\t{} :\n{}", other_spelling(&json!(name)), other_spelling(value)))
                .collect();
            format!("{{ {} }}", members.join(" ,"))
        }
        Value::Array(values) => {
            format!("[ {} ]", values.iter().map(other_spelling).collect::<Vec<_>>().join(" , "))
        }
        Value::String(text) => {
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("\"{escaped}\"")
        }
        other => other.to_string(),
    }
}

fn parsed(text: &str) -> Command {
    parse_line(text.as_bytes(), LineRules::RECORDED).unwrap_or_else(|error| panic!("{error}: {text}")).command
}

fn command(name: &str, id: u128, actor: &str, members: Value) -> Command {
    let Value::Object(mut object) = members else { panic!("an object") };
    Command::new(CommandDraft {
        case_id: CaseId::parse("62").unwrap(),
        operation_id: OperationId::from_uuid(uuid::Uuid::from_u128(id)),
        actor: ActorId::parse(actor).unwrap(),
        name: CommandName::parse(name).unwrap(),
        members: Members::take(&mut object, &mut Vec::new()),
    })
    .unwrap()
}

/// Something that somebody may try on case 62: command, reviewer, and how far the revision is off.
fn attempt() -> impl Strategy<Value = (&'static str, &'static str, i64)> {
    const NAMES: [&str; 12] = [
        "open",
        "assign",
        "unassign",
        "note",
        "approve",
        "deny",
        "return",
        "amend",
        "resubmit",
        "withdraw",
        "reopen",
        "unheard-of",
    ];
    let revision = prop_oneof![8 => Just(0_i64), 1 => Just(1_i64), 1 => Just(-1_i64)];
    (prop::sample::select(&NAMES[..]), prop::sample::select(&["47", "81"][..]), revision)
}

fn invariants(case: &Case, before: Option<&Case>, name: &str) {
    let is_action = !matches!(name, "open" | "assign" | "unassign" | "note");
    let (revision, version) = before.map_or((-1, 0), |before| (before.revision.get(), before.version.get()));
    assert_eq!(case.version.get(), version + 1, "versions are dense");
    assert_eq!(case.revision.get(), revision + i64::from(is_action || name == "open"), "an action raises the revision");
    if let Some(before) = before {
        assert_eq!(case.status != before.status, is_action && name != "amend", "{name} from {}", before.status);
        assert_eq!((&case.data, case.opened_at), (&before.data, before.opened_at));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// parse ∘ write is the identity.
    #[test]
    fn a_written_line_is_read_as_the_same_command(line in line(), at in proptest::option::of(0_i64..4_000_000_000)) {
        let command = parsed(&line.to_string());
        let at = at.map(moment);
        let mut written = Vec::new();
        write_line(&mut written, &command, at);
        let text = std::str::from_utf8(&written).unwrap().trim_end();
        let read = parse_line(text.as_bytes(), LineRules::RECORDED).unwrap();
        prop_assert_eq!(&read.command, &command);
        prop_assert_eq!(read.at, at);
        let mut again = Vec::new();
        write_line(&mut again, &read.command, read.at);
        prop_assert_eq!(again, written);
    }

    /// The digest sees what a command means, not how it is spelt; and it sees every change of meaning.
    #[test]
    fn the_digest_sees_meaning_and_nothing_else(line in line(), other in value()) {
        let command = parsed(&line.to_string());
        let spelt = parsed(&other_spelling(&line));
        prop_assert_eq!(spelt.digest(), command.digest());
        prop_assert_eq!(spelt.request(), command.request());
        prop_assert_eq!(Some(&Digest::of_request(command.request())), command.digest());

        let mut changed = line.clone();
        changed["actor"] = json!("81");
        let changed = parsed(&changed.to_string());
            prop_assert_ne!(changed.digest(), command.digest());
        let mut changed = line.clone();
        if !matches!(command.name().as_str(), "assign" | "unassign") {
            changed["payload"]["one more"] = other;
            let changed = parsed(&changed.to_string());
            prop_assert_ne!(changed.digest(), command.digest());
        }
    }

    #[test]
    fn canonical_json_is_read_as_the_same_value(value in value()) {
        let text = canonical(&value);
        let read = parse_strict(text.as_bytes()).unwrap();
        prop_assert_eq!(canonical(&read), text.clone());
        prop_assert_eq!(canonical(&parse_strict(other_spelling(&value).as_bytes()).unwrap()), text);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse_line(&bytes, LineRules::RECORDED);
        let _ = parse_strict(&bytes);
        let _ = OperationId::parse_key(&String::from_utf8_lossy(&bytes));
        let _ = Workflow::parse(&String::from_utf8_lossy(&bytes));
    }

    /// `decide` changes nothing, says the same twice, and what it accepts moves the case as the rules say.
    #[test]
    fn deciding_and_applying_keep_the_invariants(attempts in proptest::collection::vec(attempt(), 1..40)) {
        let workflow = Workflow::permit();
        let (mut state, mut operations) = (CaseState::Absent, Vec::<(Command, KnownOperation)>::new());
        for (index, (name, actor, off)) in attempts.into_iter().enumerate() {
            let revision = state.case().map_or(0, |case| case.revision.get()) + off;
            let members = match name {
                "open" => json!({}),
                "assign" | "unassign" => json!({ "payload": { "assignee": actor } }),
                "note" => json!({ "reason": "A remark." }),
                _ => json!({ "reason": "Because.", "expected_revision": revision.max(0) }),
            };
            let command = command(name, index as u128 + 1, actor, members);
            let before = state.clone();
            let decided = decide(&workflow, &state, &command);
            prop_assert_eq!(&decided, &decide(&workflow, &before, &command));
            match decided {
                Ok(decision) => {
                    let at = moment(index as i64);
                    apply(&mut state, &decision, at);
                    let case = state.case().expect("an accepted command leaves a case");
                    invariants(case, before.case(), name);
                    prop_assert_eq!(
                        (&case.status, case.revision, case.version, case.updated_at),
                        (&decision.status, decision.revision, decision.version, at)
                    );
                    if let (Some(before), "approve" | "deny" | "return" | "reopen") = (before.case(), name) {
                        prop_assert!(before.assignees.contains(command.actor()), "decided by an assignee");
                    }
                    let operation = KnownOperation::from(&decision.to_operation(&command, at));
                    operations.push((command.clone(), operation));
                }
                Err(rejection) => prop_assert_eq!(
                    matches!(rejection, Rejection::CaseNotFound),
                    before.case().is_none(),
                    "{:?}", rejection
                ),
            }
        }
        // Whatever happened since, an honest repeat gets its outcome, and anybody else under the id a conflict.
        for (command, operation) in &operations {
            prop_assert_eq!(decide::replay(operation, command).ok(), operation.outcome.clone());
            let mut other = command_like(command);
            other.actor = ActorId::parse("somebody-else").unwrap();
            prop_assert_eq!(decide::replay(operation, &Command::new(other).unwrap()), Err(Rejection::OperationConflict));
        }
    }
}

/// Some moment with microseconds.
fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_001)
}

/// The parts of a command, to be put together otherwise.
fn command_like(command: &Command) -> CommandDraft {
    let Value::Object(mut request) = parse_strict(command.request().as_bytes()).unwrap() else { panic!("an object") };
    request.retain(|name, value| !value.is_null() && !matches!(name.as_str(), "v" | "case_id" | "command" | "actor"));
    CommandDraft {
        case_id: command.case_id().clone(),
        operation_id: command.operation_id(),
        actor: command.actor().clone(),
        name: command.name().clone(),
        members: Members::take(&mut request, &mut Vec::new()),
    }
}
