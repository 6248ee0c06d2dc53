//! What someone does to the rows behind the triggers' back is found by `verify`, which exits 3 and names the case.

use super::{case_62, log, migrate, replay_text, verify};
use crate::support::database::TestDatabase;

/// Statements that no trigger would let through, each with what `verify` must say.
const TAMPERINGS: &[(&str, &str)] = &[
    ("UPDATE cases SET status = 'denied' WHERE case_id = '62'", "the status `denied`"),
    ("UPDATE cases SET revision = 7 WHERE case_id = '62'", "the revision `7`"),
    ("UPDATE cases SET version = 9 WHERE case_id = '62'", "the version `9`"),
    ("UPDATE cases SET data = '{}' WHERE case_id = '62'", "the data"),
    ("DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'", "the assignees `81`"),
    ("DELETE FROM cases WHERE case_id = '62'", "the operations have no case"),
    ("DELETE FROM operations WHERE case_id = '62' AND version = 5", "versions must be dense"),
    ("DELETE FROM operations WHERE case_id = '62' AND version = 7", "the outbox row has no operation"),
    ("UPDATE operations SET actor = '81' WHERE case_id = '62' AND version = 7", "/actor"),
    ("UPDATE operations SET status = 'denied' WHERE case_id = '62' AND version = 7", "the row says status `denied`"),
    (
        "UPDATE operations SET outcome = replace(outcome, '12:00', '13:00') WHERE version = 4",
        "the stored outcome is not",
    ),
    ("UPDATE operations SET request = replace(request, 'plan', 'map') WHERE version = 4", "digest"),
    ("DELETE FROM outbox WHERE case_id = '62' AND version = 4", "has no outbox row"),
];

/// Runs SQL with the triggers out of the way.
fn tamper(database: &TestDatabase, sql: &str) {
    if database.is_postgres() {
        database.sql(&format!("SET session_replication_role = replica; {sql}"));
        return;
    }
    for row in database.sql("SELECT name FROM sqlite_schema WHERE type = 'trigger'") {
        database.sql(&format!("DROP TRIGGER {}", row[0]));
    }
    database.sql(sql);
}

#[track_caller]
fn check_found(database: &TestDatabase, sql: &str, expected: &str) {
    migrate(database);
    replay_text(database, &log(&case_62()), &[]).expect_success();
    verify(database).expect_success();
    tamper(database, sql);
    let found = verify(database).expect_code(3);
    let report = found.json();
    let faults = report["first_faults"].as_array().unwrap();
    let is_named = |fault: &serde_json::Value| fault["what"].as_str().is_some_and(|what| what.contains(expected));
    assert!(faults.iter().any(is_named), "{sql}: {expected:?} is not in {report:#}");
    assert!(faults.iter().all(|fault| fault["case_id"] == "62"), "{report:#}");
    assert!(found.stderr.contains("must hold"), "{found:#?}");
}

#[test]
fn every_tampering_with_sqlite_is_found() {
    for (sql, expected) in TAMPERINGS {
        check_found(&TestDatabase::sqlite(), sql, expected);
    }
}

#[test]
fn every_tampering_with_postgres_is_found() {
    for (sql, expected) in TAMPERINGS {
        check_found(&TestDatabase::postgres(), sql, expected);
    }
}
