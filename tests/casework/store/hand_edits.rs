//! People with a shell: what they change becomes operations, and what would break the history is refused.
//!
//! Run through the real `psql` and `sqlite3`, which know nothing of Casework's functions.

use casework::domain::{CaseId, Operation, Version};
use casework::engine::ChainAnswer;
use casework::store::Store;
use serde_json::{Value, json};

use super::fixture::{Fixture, assert_books_balance, assignment, case_id, missed, note, open, step};
use crate::support::database::{TestDatabase, block_on};

const ALL: usize = 1_000;

async fn edits(store: &dyn Store, case: &CaseId) -> Vec<Operation> {
    let mut operations = store.operation_list(case, Version::ZERO, ALL).await.unwrap();
    operations.retain(|operation| operation.command.as_str() == "edit");
    operations
}

fn payload(operation: &Operation) -> Value {
    serde_json::from_str(operation.request.as_ref().unwrap()).unwrap()
}

async fn with_case(database: &TestDatabase) -> Fixture {
    let mut fixture = Fixture::on(database).await;
    let mut opening = open("62");
    step(&mut opening).assignments.push(assignment("47", true));
    fixture.commit(&[opening]).await;
    fixture
}

/// The person's name as the edit's actor.
fn editor(database: &TestDatabase) -> String {
    if database.is_postgres() {
        format!("sql:{}", database.sql_value("SELECT session_user"))
    } else {
        "sql:local".into()
    }
}

on_both_databases! {
    /// One shape of payload in both databases; the members of an outcome in their public order.
    async fn edits_become_operations_of_one_shape(database: &TestDatabase) {
        let fixture = with_case(database).await;
        for statement in [
            "INSERT INTO assignments (case_id, assignee) VALUES ('62', '81')",
            "DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'",
            "UPDATE cases SET status = 'denied' WHERE case_id = '62'",
            "UPDATE cases SET revision = 7 WHERE case_id = '62'",
            "UPDATE cases SET data = '{\"b\": [1, \"ä\"]}', revision = 7 WHERE case_id = '62'",
            "UPDATE cases SET status = 'in_review', revision = 20 WHERE case_id = '62'",
        ] {
            database.sql(statement);
        }
        let edits = edits(&*fixture.store, &case_id("62")).await;
        let payloads: Vec<Value> = edits.iter().map(payload).collect();
        assert_eq!(payloads, [
            json!({"table": "assignments", "insert": "81"}),
            json!({"table": "assignments", "delete": "47"}),
            json!({"table": "cases", "set": {"status": "denied", "revision": 1}}),
            json!({"table": "cases", "set": {"revision": 7}}),
            json!({"table": "cases", "set": {"revision": 8, "data": {"b": [1, "ä"]}}}),
            json!({"table": "cases", "set": {"status": "in_review", "revision": 20}}),
        ]);
        for (edit, version) in edits.iter().zip(2..) {
            assert_eq!(edit.version, Version::new(version));
            assert_eq!((edit.actor.as_str(), edit.digest), (editor(database).as_str(), None));
            assert_eq!(edit.operation_id.uuid().get_version_num(), 4);
            let outcome = format!(
                r#"{{"case_id":"62","operation_id":"{}","command":"edit","actor":"{}","status":"{}","revision":{},"version":{version},"recorded_at":"{}"}}"#,
                edit.operation_id, edit.actor, edit.status, edit.revision, edit.recorded_at
            );
            assert_eq!(edit.outcome.as_deref(), Some(outcome.as_str()));
        }
        let record = fixture.store.case_fetch(&case_id("62")).await.unwrap().unwrap();
        assert_eq!((record.revision.get(), record.version.get()), (20, 7));
        assert_eq!(record.updated_at, edits[5].recorded_at);
        assert_books_balance(database);
    }

    async fn a_decision_made_before_an_edit_misses(database: &TestDatabase) {
        let mut fixture = with_case(database).await;
        database.sql("DELETE FROM assignments WHERE case_id = '62'");
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [missed(2)]);
        assert_eq!(fixture.commit(&[note("62", 2)]).await, [ChainAnswer::Held]);
        assert_books_balance(database);
    }

    async fn what_changes_nothing_is_no_edit(database: &TestDatabase) {
        let mut fixture = with_case(database).await;
        fixture.commit(&[open("63")]).await;
        database.sql("UPDATE cases SET status = status, revision = revision, data = data");
        database.sql("UPDATE cases SET data = '{ \"a\" : 1 }'");
        database.sql("DELETE FROM assignments WHERE assignee = 'nobody'");
        database.sql("INSERT INTO assignments SELECT case_id, assignee FROM assignments WHERE true ON CONFLICT DO NOTHING");
        assert_eq!(database.sql_value("SELECT sum(version) FROM cases"), "2");
        assert_books_balance(database);
    }

    /// One statement over many rows is one edit a row, also where rows belong to one case.
    async fn a_statement_over_many_rows_is_an_edit_each(database: &TestDatabase) {
        let mut fixture = with_case(database).await;
        fixture.commit(&[open("63"), open("64")]).await;
        database.sql("UPDATE cases SET status = 'denied'");
        database.sql("INSERT INTO assignments (case_id, assignee) VALUES ('62', '1'), ('62', '2'), ('63', '1')");
        database.sql("DELETE FROM assignments");
        assert_eq!(database.sql("SELECT case_id, version FROM cases ORDER BY case_id"), [["62", "7"], ["63", "4"], ["64", "2"]]);
        assert_books_balance(database);
    }

    async fn a_transaction_that_is_rolled_back_leaves_no_edit(database: &TestDatabase) {
        let _fixture = with_case(database).await;
        database.sql("BEGIN; UPDATE cases SET status = 'denied'; INSERT INTO assignments VALUES ('62', '81'); ROLLBACK");
        assert_eq!(database.sql_value("SELECT version FROM cases"), "1");
        assert_books_balance(database);
    }

    async fn what_would_break_the_history_is_refused(database: &TestDatabase) {
        let fixture = with_case(database).await;
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(61), "]".repeat(61));
        let statements = [
            "DELETE FROM cases".to_owned(),
            "DELETE FROM operations".to_owned(),
            "UPDATE cases SET case_id = '64'".to_owned(),
            "UPDATE cases SET revision = -1".to_owned(),
            "UPDATE cases SET revision = 9007199254740992".to_owned(),
            "UPDATE cases SET workflow = 'unknown'".to_owned(),
            "UPDATE cases SET status = ''".to_owned(),
            "UPDATE cases SET status = 'In Review'".to_owned(),
            "UPDATE cases SET data = 'no JSON'".to_owned(),
            "UPDATE cases SET data = '[]'".to_owned(),
            r#"UPDATE cases SET data = '{"a":9007199254740992}'"#.to_owned(),
            r#"UPDATE cases SET data = '{"a":"\ud800"}'"#.to_owned(),
            r#"UPDATE cases SET data = '{"a":"\u0000"}'"#.to_owned(),
            format!("UPDATE cases SET data = '{deep}'"),
            "UPDATE operations SET actor = 'someone'".to_owned(),
            "UPDATE operations SET outcome = NULL".to_owned(),
            "UPDATE operations SET request = NULL, outcome = NULL, version = 9".to_owned(),
            "UPDATE workflows SET text = ''".to_owned(),
            "DELETE FROM workflows".to_owned(),
            "INSERT INTO assignments VALUES ('none', '81')".to_owned(),
            "INSERT INTO assignments VALUES ('62', 'sql:someone')".to_owned(),
            "INSERT INTO assignments VALUES ('62', '..')".to_owned(),
            "INSERT INTO assignments VALUES ('62', 'a\u{85}b')".to_owned(),
            "INSERT INTO assignments VALUES ('62', '')".to_owned(),
        ];
        let own: &[&str] = if database.is_postgres() {
            &[
                "TRUNCATE cases", "TRUNCATE operations", "TRUNCATE assignments", "TRUNCATE workflows",
                "UPDATE assignments SET case_id = '63'",
                "INSERT INTO cases (case_id, workflow, status, revision) VALUES ('..', 'permit', 'in_review', 0)",
                "INSERT INTO cases (case_id, workflow, status, revision) VALUES ('64', 'unknown', 'in_review', 0)",
                "UPDATE writers SET epoch = epoch", "UPDATE writers SET writer_id = 'x', epoch = epoch + 1",
            ]
        } else {
            &[
                "INSERT INTO cases VALUES ('64', 'permit', 'in_review', 0, 1, '{}', 1, 1)",
                "INSERT OR REPLACE INTO cases VALUES ('62', 'permit', 'in_review', 0, 0, '{}', 1, 1)",
                "INSERT OR REPLACE INTO operations SELECT case_id, operation_id, version, revision, status, recorded_at, 'me', command, digest, request, outcome FROM operations",
                "INSERT OR REPLACE INTO workflows SELECT name, digest, 'other' FROM workflows",
                "UPDATE assignments SET assignee = '81'",
                "UPDATE cases SET version = 9", "UPDATE cases SET updated_at = 1", "UPDATE cases SET opened_at = 1",
            ]
        };
        for statement in statements.iter().map(String::as_str).chain(own.iter().copied()) {
            assert!(database.try_sql(statement).is_err(), "{statement}");
        }
        assert_eq!(database.sql_value("SELECT version FROM cases"), "1");
        assert!(edits(&*fixture.store, &case_id("62")).await.is_empty());
        // Pruning is the one change of an operation that is let through.
        database.sql("UPDATE operations SET request = NULL, outcome = NULL");
        assert_books_balance(database);
    }
}

/// A person's own version and times are not taken on PostgreSQL; a new assignee in place of another is one edit.
#[test]
fn postgres_numbers_and_dates_edits_itself() {
    let database = TestDatabase::postgres();
    block_on(async {
        let fixture = with_case(&database).await;
        database.sql("UPDATE cases SET version = 99, opened_at = now(), updated_at = now()");
        assert_eq!(database.sql_value("SELECT version FROM cases"), "1");
        database.sql("UPDATE assignments SET assignee = '81' WHERE assignee = '47'");
        database.sql(
            "INSERT INTO cases (case_id, workflow, status, revision, version, data) \
             VALUES ('64', 'permit', 'in_review', 3, 99, '{\"a\": 1}') ON CONFLICT DO NOTHING",
        );
        let changed = edits(&*fixture.store, &case_id("62")).await;
        assert_eq!(
            changed.iter().map(payload).collect::<Vec<_>>(),
            [json!({"table": "assignments", "delete": "47", "insert": "81"})]
        );
        let inserted = edits(&*fixture.store, &case_id("64")).await;
        let row = json!({"workflow": "permit", "status": "in_review", "revision": 3, "data": {"a": 1}});
        assert_eq!(inserted.iter().map(payload).collect::<Vec<_>>(), [json!({"table": "cases", "insert": row})]);
        let record = fixture.store.case_fetch(&case_id("64")).await.unwrap().unwrap();
        assert_eq!((record.opened_at, record.version.get()), (inserted[0].recorded_at, 1));
        assert_books_balance(&database);
    });
}

/// The mark of our own writes ends with the transaction that set it.
#[test]
fn a_commit_does_not_leave_its_mark_on_the_session() {
    let database = TestDatabase::postgres();
    block_on(async {
        let _fixture = with_case(&database).await;
        let mut person = database.session();
        person
            .run("BEGIN; INSERT INTO assignments VALUES ('62', '81'); UPDATE cases SET status = 'denied'; COMMIT")
            .unwrap();
        person.run("UPDATE cases SET status = 'approved'").unwrap();
        assert_eq!(database.sql_value("SELECT version FROM cases"), "4");
        assert_books_balance(&database);
    });
}
