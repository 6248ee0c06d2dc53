//! `export`, and the way from one database into the other: the same bytes whichever holds the history.

use std::process::Stdio;

use super::{case_62, line, log, migrate, replay_text, verify};
use crate::support::cli::{casework, casework_command};
use crate::support::database::TestDatabase;

#[track_caller]
fn export(database: &TestDatabase) -> String {
    casework(["export", "--database", database.url()]).expect_success().stdout
}

/// All rows that carry a promise, as text that both shells print alike.
fn rows(database: &TestDatabase) -> Vec<Vec<Vec<String>>> {
    let id = if database.is_postgres() { "replace(operation_id::text, '-', '')" } else { "lower(hex(operation_id))" };
    let digest = if database.is_postgres() { "encode(digest, 'hex')" } else { "lower(hex(digest))" };
    [
        "SELECT case_id, workflow, status, revision, version FROM cases ORDER BY case_id".to_owned(),
        "SELECT case_id, assignee FROM assignments ORDER BY case_id, assignee".to_owned(),
        format!(
            "SELECT case_id, version, {id}, actor, command, revision, coalesce({digest}, ''), outcome FROM operations \
             ORDER BY case_id, version"
        ),
        format!("SELECT case_id, version, {id} FROM outbox ORDER BY case_id, version"),
    ]
    .iter()
    .map(|sql| database.sql(sql))
    .collect()
}

/// Commands, and edits by a person's shell.
fn filled(database: &TestDatabase) {
    migrate(database);
    let mut lines = case_62();
    lines.push(line(
        "a \\\"b\\\" é/😀",
        40,
        "47",
        r#""command":"open","workflow":"permit","at":"2026-02-01T00:00:00Z""#,
    ));
    lines.push(line("Z", 41, "47", r#""command":"open","payload":{"n":[1e-7,0.1,{"z":null,"a":"\u2028"}]}"#));
    replay_text(database, &log(&lines), &[]).expect_success();
    for sql in [
        "DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'",
        "INSERT INTO assignments (case_id, assignee) VALUES ('62', 'Ann \"the\" é')",
        "UPDATE cases SET status = 'in_review' WHERE case_id = '62'",
        r#"UPDATE cases SET data = '{"b": 1, "a": {"x": [0.10, 2e3]}}', revision = 9 WHERE case_id = 'Z'"#,
    ] {
        database.sql(sql);
    }
    verify(database).expect_success();
}

#[track_caller]
fn check_round_trip(from: &TestDatabase, to: &TestDatabase) {
    filled(from);
    let log = export(from);
    assert_eq!(log.lines().count(), 13);
    migrate(to);
    let report = replay_text(to, &log, &[]).expect_success().json();
    assert_eq!((&report["applied"], &report["lines"]), (&13.into(), &13.into()));
    verify(to).expect_success();
    assert_eq!(rows(from), rows(to));
    assert_eq!(log, export(to));
    // And once more into the same one: nothing but replays.
    let again = replay_text(to, &log, &[]).expect_success().json();
    assert_eq!(again["replayed"], 13);
    assert_eq!(log, export(to));
}

#[test]
fn a_history_goes_from_sqlite_to_postgres_and_exports_the_same_bytes() {
    check_round_trip(&TestDatabase::sqlite(), &TestDatabase::postgres());
}

#[test]
fn a_history_goes_from_postgres_to_sqlite_and_exports_the_same_bytes() {
    check_round_trip(&TestDatabase::postgres(), &TestDatabase::sqlite());
}

#[test]
fn lines_are_ordered_by_case_and_version_and_have_all_members() {
    let database = TestDatabase::sqlite();
    filled(&database);
    let log = export(&database);
    let first = log.lines().next().unwrap();
    assert_eq!(
        first,
        r#"{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-000000000001","actor":"intake","command":"open","expected_revision":null,"reason":null,"payload":{"amount":26.85120450862128,"site":"Hafen 3"},"workflow":null,"at":"2026-01-31T12:00:01.123456Z"}"#
    );
    let cases: Vec<_> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["case_id"].to_string())
        .collect();
    assert!(cases.is_sorted(), "{cases:?}");
}

on_both_databases! {
    /// A pruned operation has no request: its log would not give the same cases.
    async fn a_pruned_history_is_refused_unless_it_may_be_incomplete(database: &TestDatabase) {
        migrate(database);
        replay_text(database, &log(&case_62()), &[]).expect_success();
        database.sql("UPDATE operations SET request = NULL, outcome = NULL WHERE version <= 2");
        let refused = casework(["export", "--database", database.url()]).expect_code(1);
        assert!(refused.stderr.contains("--allow-pruned"), "{refused:#?}");
        assert_eq!(refused.stdout, "");
        let allowed = casework(["export", "--allow-pruned", "--database", database.url()]).expect_success();
        assert_eq!(allowed.stdout.lines().count(), 5);
        assert!(allowed.stderr.contains("2 pruned operations were left out"), "{allowed:#?}");
        // The tombstones keep enough to prove the rest.
        let report = verify(database).expect_success().json();
        assert_eq!(report["pruned"], 2);
    }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let database = TestDatabase::sqlite();
    let lines: Vec<_> = (0..2_000).map(|n| line(&format!("{n}"), n, "47", r#""command":"open""#)).collect();
    replay_text(&database, &log(&lines), &[]).expect_success();
    let mut child = casework_command()
        .args(["export", "--database", database.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_database_that_is_not_there_is_refused_and_not_made() {
    let database = TestDatabase::sqlite();
    for command in ["export", "verify"] {
        let refused = casework([command, "--database", database.url()]).expect_code(1);
        assert!(refused.stderr.contains("there is no database at"), "{refused:#?}");
    }
    assert!(database.try_sql("SELECT 1 FROM cases").is_err());
}
