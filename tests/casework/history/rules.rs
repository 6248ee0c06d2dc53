//! Each promise broken alone, by hand: the check names the rule, the attempts and what was expected.

use casework::domain::{ActorId, Command, CommandName, OperationId, Outcome, Version};
use casework::history::{CheckOptions, CheckReport, Event, Reply, Rule};

use super::model::{Story, Tables, bare_problem, check, command, command_of};

pub fn open() -> Command {
    command(1, r#""actor":"clerk","command":"open""#)
}

pub fn assign() -> Command {
    command(2, r#""actor":"clerk","command":"assign","payload":{"assignee":"47"}"#)
}

pub fn approve(number: u32, actor: &str, revision: u32) -> Command {
    let rest = format!(r#""actor":"{actor}","command":"approve","expected_revision":{revision},"reason":"Reviewed.""#);
    command(number, &rest)
}

pub fn note(number: u32) -> Command {
    command(number, r#""actor":"clerk","command":"note","reason":"Called.""#)
}

/// Case 62, opened and assigned to 47 by attempts 1 and 2.
pub fn opened() -> Story {
    let mut story = Story::default();
    story.send(&open());
    story.send(&assign());
    story
}

/// Exactly one violation, with its rule and words.
#[track_caller]
pub fn expect(report: &CheckReport, rule: Rule, words: &[&str]) {
    let shown: Vec<_> = report.first_violations.iter().map(ToString::to_string).collect();
    assert_eq!(report.violations, 1, "{shown:#?}");
    assert_eq!(report.first_violations[0].rule, rule, "{shown:#?}");
    for word in words {
        assert!(shown[0].contains(word), "{word:?} is not in {shown:#?}");
    }
}

#[track_caller]
pub fn expect_clean(report: &CheckReport) {
    let shown: Vec<_> = report.first_violations.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{shown:#?}");
}

pub fn as_told(story: &Story) -> CheckReport {
    story.check(|_| {})
}

#[test]
fn every_kind_of_answer_can_be_true() {
    let mut story = Story::default();
    story.send(&approve(9, "47", 0)); // case-not-found
    story.send(&open());
    story.send(&open()); // replayed
    story.send(&command(8, r#""actor":"clerk","command":"open""#)); // case-exists
    story.send(&approve(9, "47", 0)); // not-assigned
    story.send(&assign());
    story.send(&command(10, r#""actor":"47","command":"frobnicate""#)); // invalid-command
    story.send(&approve(9, "47", 1)); // stale-revision
    story.send(&approve(9, "47", 0)); // applied: nothing was stored under its id before
    story.send(&approve(11, "47", 1)); // illegal-transition
    story.send(&command(9, r#""actor":"81","command":"note","reason":"Mine.""#)); // operation-conflict
    let lost = story.begin(&note(12));
    story.model.run(&note(12)).unwrap();
    story.lose(lost);
    let lost = story.begin(&note(13));
    story.lose(lost);
    let report = as_told(&story);
    expect_clean(&report);
    for code in [
        "applied",
        "replayed",
        "unknown",
        "case-not-found",
        "case-exists",
        "invalid-command",
        "not-assigned",
        "illegal-transition",
        "stale-revision",
        "operation-conflict",
    ] {
        assert!(report.answers.contains_key(code), "{code} is not in {:?}", report.answers);
    }
    assert_eq!((report.unknown.attempts, report.unknown.applied, report.unknown.never_applied), (2, 1, 1));
    assert_eq!((report.stored_operations, report.stored_outbox, report.cases), (4, 4, 1));
}

/// Takes the newest operation out of all tables, as if it had never been.
fn forget_newest(story: &Story) -> Tables {
    let mut shorter = Story::default();
    let commands: Vec<Command> =
        story.model.operations().iter().map(|row| Command::from_operation(row).unwrap().expect("not pruned")).collect();
    commands[..commands.len() - 1].iter().for_each(|command| drop(shorter.model.run(command)));
    shorter.model.tables()
}

#[test]
fn an_acknowledged_operation_that_is_gone_is_lost() {
    let mut story = opened();
    story.send(&note(3));
    let report = story.check(|tables| *tables = forget_newest(&story));
    expect(&report, Rule::AcknowledgedIsStored, &["case `62`", "attempt 3", "as applied at version 3", "not stored"]);

    story.send(&note(3)); // replayed
    let report = story.check(|tables| *tables = forget_newest(&story));
    assert_eq!(report.violations, 2);
    assert!(report.first_violations[1].to_string().contains("as replayed at version 3"));
}

#[test]
fn a_case_of_which_no_row_is_left_is_lost_as_well() {
    for case_id in ["61", "63"] {
        let mut story = opened();
        story.send(&command_of(case_id, 7, r#""actor":"clerk","command":"open""#));
        let report = story.check(|tables| *tables = opened().model.tables());
        expect(&report, Rule::AcknowledgedIsStored, &[&format!("case `{case_id}`"), "attempt 3"]);
    }
}

#[test]
fn other_bytes_than_are_stored_are_named() {
    let mut story = opened();
    story.send(&note(3));
    if let Event::Reply { reply: Reply::Outcome { outcome, .. }, .. } = story.end_of(3) {
        *outcome = outcome.replace("\"version\":3", "\"version\":4");
    }
    expect(&as_told(&story), Rule::AcknowledgedAsStored, &["attempt 3", "says version 4", "stored at version 3"]);
}

#[test]
fn the_outcome_of_another_command_is_not_acknowledged() {
    let mut story = opened();
    story.send(&note(3));
    let other = command(3, r#""actor":"81","command":"note","reason":"Mine.""#);
    let attempt = story.begin(&other);
    let stored = story.model.operations()[2].outcome.clone().unwrap();
    story.answer(attempt, &other, &Ok((stored, true)));
    expect(&as_told(&story), Rule::AcknowledgedAsStored, &["attempt 4", "digests differ"]);
}

#[test]
fn an_operation_is_answered_as_applied_once() {
    let mut story = opened();
    let (first, second) = (story.begin(&note(3)), story.begin(&note(3)));
    let answer = story.model.run(&note(3));
    story.answer(first, &note(3), &answer);
    story.answer(second, &note(3), &answer);
    expect(&as_told(&story), Rule::AppliedOnce, &["attempts 3 and 4", "answered as applied 2 times"]);
}

#[test]
fn only_open_answers_201() {
    let mut story = opened();
    if let Event::Reply { status, .. } = story.end_of(2) {
        *status = 201;
    }
    expect(&as_told(&story), Rule::Status, &["attempt 2", "status 201", "must be 200"]);
}

#[test]
fn what_nobody_sent_is_not_stored() {
    let mut story = opened();
    story.model.run(&note(3)).unwrap();
    expect(&as_told(&story), Rule::StoredWasInvoked, &["case `62`", "version 3", "no attempt"]);
}

#[test]
fn what_a_person_did_by_sql_was_sent_by_nobody_and_is_fine() {
    let mut story = opened();
    let edit = |tables: &mut Tables, actor: &str| {
        let row = &mut tables.operations[1];
        row.actor = ActorId::from_stored(actor);
        row.command = CommandName::from_stored("edit");
        row.digest = None;
        row.request = Some(r#"{"insert":"47","table":"assignments"}"#.into());
        row.outcome = Some(Outcome::from(&*row).to_json().into());
    };
    story.events.retain(|event| !matches!(event, Event::Invoke { attempt: 2, .. } | Event::Reply { attempt: 2, .. }));
    let report = story.check(|tables| edit(tables, "sql:postgres"));
    expect_clean(&report);
    assert_eq!(report.stored_edits, 1);
    expect(&story.check(|tables| edit(tables, "clerk")), Rule::StoredWasInvoked, &["version 2"]);
}

#[test]
fn what_is_stored_is_the_command_that_was_sent() {
    let mut story = opened();
    let lost = story.begin(&note(3));
    story.model.run(&command(3, r#""actor":"clerk","command":"note","reason":"Wrote.""#)).unwrap();
    story.lose(lost);
    expect(&as_told(&story), Rule::StoredWasInvoked, &["attempt 3", "another command", "digests differ"]);
}

#[test]
fn a_clear_no_leaves_no_row() {
    for code in ["overloaded", "draining", "contention", "internal", "forbidden", "unauthenticated"] {
        let mut story = opened();
        let attempt = story.begin(&note(3));
        story.model.run(&note(3)).unwrap();
        story.end(attempt, 503, Reply::Problem(bare_problem(code)));
        expect(&as_told(&story), Rule::RefusedLeavesNoRow, &["attempt 3", "version 3", "clear no"]);
    }
    for code in ["unavailable", "bad-gateway"] {
        let mut story = opened();
        let attempt = story.begin(&note(3));
        story.model.run(&note(3)).unwrap();
        story.end(attempt, 503, Reply::Problem(bare_problem(code)));
        expect_clean(&as_told(&story));
    }
}

#[test]
fn each_operation_has_its_outbox_row() {
    let story = opened();
    let report = story.check(|tables| drop(tables.outbox.remove(0)));
    expect(&report, Rule::OneOutboxRow, &["2 operations and 1 outbox rows"]);
    let relayed = CheckOptions { is_relayed: true, ..CheckOptions::default() };
    let mut tables = story.model.tables();
    tables.outbox.remove(0);
    expect_clean(&check(&story.events, &mut tables, relayed));
}

#[test]
fn what_verify_finds_is_a_broken_promise_too() {
    let report = opened().check(|tables| tables.cases[0].version = Version::new(9));
    expect(&report, Rule::Recomputed, &["case `62`", "the version `9`"]);
    let nil = OperationId::from_uuid(uuid::Uuid::max());
    let report = opened().check(|tables| tables.outbox[1].operation_id = nil);
    expect(&report, Rule::Recomputed, &["version 2", "names another operation"]);
}

#[test]
fn a_fault_that_did_not_fire_is_missed() {
    let mut story = opened();
    let fault = |at_us| Event::Fault { at_us, kind: "kill-process".into(), detail: "node 2".into() };
    story.events.extend([fault(1), fault(2)]);
    let required = |least| CheckOptions {
        faults_required: [("kill-process".to_owned(), least)].into(),
        ..CheckOptions::default()
    };
    expect_clean(&check(&story.events, &mut story.model.tables(), required(2)));
    let report = check(&story.events, &mut story.model.tables(), required(3));
    expect(&report, Rule::FaultFired, &["`kill-process` fired 2 times", "at least 3"]);
    assert_eq!(report.faults["kill-process"], 2);
}

#[test]
fn all_violations_are_counted_and_the_first_are_named() {
    let mut story = opened();
    for number in 10..40 {
        story.model.run(&note(number)).unwrap();
    }
    let report = as_told(&story);
    assert_eq!((report.violations, report.first_violations.len()), (30, 10));
}
