//! The public order of checks, walked by one table, and the folding of decisions.

use serde_json::{Map, Value, json};

use super::*;
use crate::domain::{CaseId, CommandDraft, CommandName, Members, OperationId};

fn command(name: &str, actor: &str, body: Value) -> Command {
    let Value::Object(mut object) = body else { panic!("an object") };
    let mut errors = Vec::new();
    let members = Members::take(&mut object, &mut errors);
    assert!(errors.is_empty() && object.is_empty(), "{errors:?}");
    let draft = CommandDraft {
        case_id: CaseId::parse("62").expect("valid"),
        operation_id: OperationId::parse("6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11").expect("valid"),
        actor: ActorId::from_stored(actor),
        name: CommandName::parse(name).expect("valid"),
        members,
    };
    if name == "edit" { Command::recorded_edit(draft).expect("valid") } else { Command::new(draft).expect("valid") }
}

/// Case 62 in `status` at revision 5, 47 assigned.
fn case(status: &str) -> CaseState {
    CaseState::Present(Case {
        workflow: Workflow::permit(),
        status: Status::from_stored(status),
        revision: Revision::new(5),
        version: Version::new(9),
        assignees: [ActorId::from_stored("47")].into(),
        data: "{}".into(),
        opened_at: Timestamp::from_micros(0),
        updated_at: Timestamp::from_micros(0),
    })
}

fn known(of: &Command, outcome: Option<&str>) -> KnownOperation {
    KnownOperation {
        operation_id: of.operation_id(),
        actor: of.actor().clone(),
        command: of.name().clone(),
        digest: of.digest().copied(),
        outcome: outcome.map(Arc::from),
    }
}

/// Each row breaks every rule from its own check on, so that only the order of checks explains the answer.
#[test]
fn checks_come_in_their_public_order() {
    let all_wrong = || command("approve", "81", json!({"expected_revision": 4, "reason": "x"}));
    let other = command("approve", "81", json!({"expected_revision": 4, "reason": "another"}));
    let other_actor = command("approve", "47", json!({"expected_revision": 4, "reason": "x"}));
    let by_47 = |revision: i64| command("approve", "47", json!({"expected_revision": revision, "reason": "x"}));
    let open = command("open", "81", json!({}));
    type Row<'a> = (&'a str, Option<KnownOperation>, CaseState, Command, &'a str);
    let rows: Vec<Row<'_>> = vec![
        (
            "1 exact repeat, whatever the case says",
            Some(known(&all_wrong(), Some("stored"))),
            case("approved"),
            all_wrong(),
            "replay",
        ),
        (
            "1 exact repeat of a case that memory lacks",
            Some(known(&all_wrong(), Some("stored"))),
            CaseState::Absent,
            all_wrong(),
            "replay",
        ),
        (
            "1 another reason under the id",
            Some(known(&other, Some("stored"))),
            case("approved"),
            all_wrong(),
            "operation-conflict",
        ),
        (
            "1 another actor under the id",
            Some(known(&other_actor, Some("stored"))),
            case("approved"),
            all_wrong(),
            "operation-conflict",
        ),
        ("1 pruned", Some(known(&all_wrong(), None)), case("approved"), all_wrong(), "outcome-expired"),
        ("1 pruned, another command", Some(known(&other, None)), case("approved"), all_wrong(), "operation-conflict"),
        ("2 no case", None, CaseState::Absent, all_wrong(), "case-not-found"),
        ("2 open of a case that is there", None, case("approved"), open, "case-exists"),
        (
            "between 2 and 3: unknown command",
            None,
            case("approved"),
            command("frobnicate", "81", json!({"expected_revision": 4})),
            "invalid-command",
        ),
        (
            "between 2 and 3: revision missing",
            None,
            case("approved"),
            command("approve", "81", json!({"reason": "x"})),
            "invalid-command",
        ),
        (
            "between 2 and 3: reason missing",
            None,
            case("approved"),
            command("approve", "81", json!({"expected_revision": 4})),
            "invalid-command",
        ),
        ("3 not assigned", None, case("approved"), all_wrong(), "not-assigned"),
        ("4 illegal", None, case("approved"), by_47(4), "illegal-transition"),
        ("5 stale", None, case("in_review"), by_47(4), "stale-revision"),
        ("5 from the future", None, case("in_review"), by_47(6), "stale-revision"),
        ("accepted", None, case("in_review"), by_47(5), "accept"),
        (
            "accepted: anyone may amend",
            None,
            case("in_review"),
            command("amend", "81", json!({"expected_revision": 5, "reason": "x"})),
            "accept",
        ),
        (
            "reopen at 5 after an approval",
            None,
            case("approved"),
            command("reopen", "47", json!({"expected_revision": 4, "reason": "x"})),
            "stale-revision",
        ),
        ("note in every status", None, case("withdrawn"), command("note", "81", json!({"reason": "x"})), "accept"),
        (
            "note with a stale revision",
            None,
            case("withdrawn"),
            command("note", "81", json!({"reason": "x", "expected_revision": 1})),
            "stale-revision",
        ),
        (
            "assign twice",
            None,
            case("in_review"),
            command("assign", "81", json!({"payload": {"assignee": "47"}})),
            "accept",
        ),
        (
            "unassign nobody",
            None,
            case("in_review"),
            command("unassign", "81", json!({"payload": {"assignee": "81"}})),
            "accept",
        ),
    ];
    for (what, known, state, command, expected) in rows {
        let answer = match judge(known.as_ref(), &Workflow::permit(), &state, &command) {
            Ok(Judgement::Replay(outcome)) => {
                assert_eq!(&*outcome, "stored", "{what}");
                "replay"
            }
            Ok(Judgement::Accept(_)) => "accept",
            Err(rejection) => rejection.code(),
        };
        assert_eq!(answer, expected, "{what}");
    }
}

#[test]
fn an_illegal_transition_names_status_revision_and_what_is_allowed() {
    let command = command("approve", "47", json!({"expected_revision": 5, "reason": "x"}));
    let Err(Rejection::IllegalTransition { status, revision, allowed }) =
        decide(&Workflow::permit(), &case("approved"), &command)
    else {
        panic!("it is illegal")
    };
    assert_eq!((status.as_str(), revision.get()), ("approved", 5));
    assert_eq!(allowed, [CommandName::from_stored("reopen")]);
}

fn fold(state: &mut CaseState, command: &Command) {
    let decision = decide(&Workflow::permit(), state, command).expect("accepted");
    apply(state, &decision, Timestamp::from_micros(7));
}

#[test]
fn actions_raise_the_revision_and_every_command_the_version() {
    let mut state = CaseState::Absent;
    fold(&mut state, &command("open", "81", json!({"payload": {"b": 1, "a": 2}})));
    fold(&mut state, &command("assign", "81", json!({"payload": {"assignee": "47"}})));
    fold(&mut state, &command("note", "81", json!({"reason": "x"})));
    fold(&mut state, &command("return", "47", json!({"expected_revision": 0, "reason": "x"})));
    let case = state.case().expect("open");
    assert_eq!((case.status.as_str(), case.revision.get(), case.version.get()), ("returned", 1, 4));
    assert_eq!(&*case.data, r#"{"a":2,"b":1}"#);
}

#[test]
fn edits_fold_as_the_triggers_count_them() {
    let edit = |payload: Value| {
        let mut members = Map::new();
        members.insert("payload".into(), payload);
        command("edit", "sql:local", Value::Object(members))
    };
    let counts = |state: &CaseState| {
        let case = state.case().expect("open");
        (case.status.to_string(), case.revision.get(), case.version.get(), case.assignees.len())
    };
    let mut state = case("in_review");
    fold(&mut state, &edit(json!({"table": "cases", "set": {"status": "denied"}})));
    assert_eq!(counts(&state), ("denied".into(), 6, 10, 1));
    fold(&mut state, &edit(json!({"table": "cases", "set": {"revision": 9}})));
    assert_eq!(counts(&state), ("denied".into(), 9, 11, 1));
    fold(&mut state, &edit(json!({"table": "cases", "set": {"revision": 20, "data": {"x": 1}}})));
    assert_eq!(counts(&state), ("denied".into(), 20, 12, 1));
    fold(&mut state, &edit(json!({"table": "assignments", "delete": "47"})));
    fold(&mut state, &edit(json!({"table": "assignments", "insert": "81"})));
    fold(&mut state, &edit(json!({"table": "assignments", "delete": "81", "insert": "47"})));
    assert_eq!(counts(&state), ("denied".into(), 20, 15, 1));
    let mut absent = CaseState::Absent;
    let insert =
        json!({"table": "cases", "insert": {"workflow": "permit", "status": "in_review", "revision": 3, "data": {}}});
    fold(&mut absent, &edit(insert));
    assert_eq!(counts(&absent), ("in_review".into(), 3, 1, 0));
}
