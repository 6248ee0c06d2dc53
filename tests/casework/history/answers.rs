//! Answers against time: the order of what was applied, and the version that a rejection or replay speaks of.

use casework::domain::Operation;
use casework::history::{Reply, Rule};

use super::model::{bare_problem, command};
use super::rules::{approve, as_told, expect, expect_clean, note, opened};

/// `stale-revision` at this revision.
fn stale(revision: i64) -> Reply {
    let mut problem = bare_problem("stale-revision");
    problem.current_revision = Some(revision);
    Reply::Problem(problem)
}

#[test]
fn a_replay_needs_something_that_was_applied_before() {
    let mut story = opened();
    let early = story.begin(&note(3));
    let answer = story.model.run(&note(3)).map(|(outcome, _)| (outcome, true));
    story.answer(early, &note(3), &answer);
    let applied = story.begin(&note(3));
    story.answer(applied, &note(3), &answer.map(|(outcome, _)| (outcome, false)));
    expect(
        &as_told(&story),
        Rule::AnswerAgrees,
        &[
            "attempt 3",
            "as replayed",
            "no version lies inside",
            "stored at version 3",
            "attempt 4, which made a version past 2",
        ],
    );
}

#[test]
fn the_version_follows_real_time() {
    let mut story = opened();
    let (late, early) = (note(3), note(4));
    story.model.run(&early).unwrap();
    let answer = story.model.run(&late);
    let attempt = story.begin(&late);
    story.answer(attempt, &late, &answer);
    let attempt = story.begin(&early);
    let outcome = story.model.operations()[2].outcome.clone().unwrap();
    story.answer(attempt, &early, &Ok((outcome, false)));
    expect(
        &as_told(&story),
        Rule::RealTimeOrder,
        &["attempts 3 and 4", "version 4", "version 3", "before attempt 4 began"],
    );
}

#[test]
fn a_rejection_speaks_of_a_version_inside_its_interval() {
    // Each with an answer that was true before attempt 4 moved the case, or never was.
    for (rejected, status, wrong) in [
        (
            approve(9, "81", 0),
            403,
            r#"{"code":"illegal-transition","current_status":"approved","current_revision":1,"allowed":["reopen"]}"#,
        ),
        (approve(9, "47", 7), 412, r#"{"code":"stale-revision","current_revision":0}"#),
        (
            approve(9, "47", 1),
            409,
            r#"{"code":"illegal-transition","current_status":"in_review","current_revision":1,"allowed":[]}"#,
        ),
        (
            approve(9, "47", 1),
            409,
            r#"{"code":"illegal-transition","current_status":"approved","current_revision":0,"allowed":["reopen"]}"#,
        ),
        (
            approve(9, "47", 1),
            409,
            r#"{"code":"illegal-transition","current_status":"approved","current_revision":1,"allowed":["deny"]}"#,
        ),
        (approve(9, "47", 1), 404, r#"{"code":"case-not-found"}"#),
        (note(9), 409, r#"{"code":"case-exists"}"#),
        (note(9), 422, r#"{"code":"invalid-command"}"#),
    ] {
        let mut story = opened();
        story.send(&approve(3, "47", 0));
        let attempt = story.begin(&rejected);
        story.end(attempt, status, Reply::Problem(serde_json::from_str(wrong).unwrap()));
        story.send(&note(5));
        expect(
            &as_told(&story),
            Rule::AnswerAgrees,
            &["attempt 4", "versions 3 to 3", "attempt 5, which made a version past 3, began after", "at version 3"],
        );
    }
}

#[test]
fn a_rejection_may_speak_of_any_version_inside_its_interval() {
    for (revision, is_true) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut story = opened();
        let attempt = story.begin(&approve(9, "47", 7));
        story.send(&command(3, r#""actor":"47","command":"amend","expected_revision":0,"reason":"x""#));
        story.send(&command(4, r#""actor":"47","command":"amend","expected_revision":1,"reason":"x""#));
        story.end(attempt, 412, stale(revision));
        story.send(&command(5, r#""actor":"47","command":"amend","expected_revision":2,"reason":"x""#));
        let report = as_told(&story);
        assert_eq!(report.is_clean(), is_true, "{revision}: {report:#?}");
    }
}

#[test]
fn answers_never_see_the_case_go_back() {
    let mut story = opened();
    let amend = command(3, r#""actor":"47","command":"amend","expected_revision":0,"reason":"x""#);
    let slow = story.begin(&amend);
    let answer = story.model.run(&amend);
    for (number, revision) in [(8, 1), (9, 0)] {
        let attempt = story.begin(&approve(number, "47", 7));
        story.end(attempt, 412, stale(revision));
    }
    story.answer(slow, &amend, &answer);
    expect(&as_told(&story), Rule::AnswerAgrees, &["attempt 5", "attempt 4 had shown version 3", "revision 0"]);
}

#[test]
fn a_conflict_speaks_of_another_command_that_is_stored() {
    let conflict = || Reply::Problem(bare_problem("operation-conflict"));
    let mut story = opened();
    let attempt = story.begin(&note(3));
    story.end(attempt, 409, conflict());
    expect(&as_told(&story), Rule::KnownOperation, &["attempt 3", "no operation is stored under the id"]);

    let mut story = opened();
    story.send(&note(3));
    let attempt = story.begin(&note(3));
    story.end(attempt, 409, conflict());
    expect(&as_told(&story), Rule::KnownOperation, &["attempt 4", "this very command"]);

    let mut story = opened();
    let attempt = story.begin(&command(3, r#""actor":"81","command":"note","reason":"Mine.""#));
    story.end(attempt, 409, conflict());
    story.send(&note(3));
    expect(
        &as_told(&story),
        Rule::AnswerAgrees,
        &["attempt 3", "`operation-conflict`", "attempt 4, which made a version past 2"],
    );
}

#[test]
fn an_expired_outcome_is_pruned() {
    let mut story = opened();
    story.send(&note(3));
    let attempt = story.begin(&note(3));
    story.end(attempt, 410, Reply::Problem(bare_problem("outcome-expired")));
    expect(&as_told(&story), Rule::KnownOperation, &["attempt 4", "its outcome is stored"]);
    let prune = |row: &mut Operation| (row.request, row.outcome) = (None, None);
    expect_clean(&story.check(|tables| prune(&mut tables.operations[2])));
}

#[test]
fn what_is_not_known_behind_a_pruned_row_is_held_against_nobody() {
    let mut story = opened();
    let attempt = story.begin(&approve(9, "81", 0));
    story.end(attempt, 403, Reply::Problem(bare_problem("not-assigned")));
    expect_clean(&story.check(|tables| (tables.operations[1].request, tables.operations[1].outcome) = (None, None)));
}

#[test]
fn a_rejected_attempt_does_not_apply_its_command() {
    let mut story = opened();
    let attempt = story.begin(&approve(3, "47", 0));
    story.end(attempt, 403, Reply::Problem(bare_problem("not-assigned")));
    story.model.run(&approve(3, "47", 0)).unwrap();
    let report = as_told(&story);
    assert!(report.first_violations.iter().any(|violation| violation.rule == Rule::RefusedLeavesNoRow), "{report:#?}");
}
