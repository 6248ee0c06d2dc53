//! Batches that win, miss and are refused.

use casework::domain::{ActorId, OperationId, Version};
use casework::engine::{ChainAnswer, CommitFault, LockMode};
use uuid::Uuid;

use super::fixture::{
    Fixture, assert_books_balance, assignment, at, case_id, chain, missed, note, open, operation, step, store_at,
    version_check,
};

on_both_databases! {
    async fn a_win_writes_case_operation_assignment_and_outbox(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut opening = open("62");
        step(&mut opening).assignments.push(assignment("47", true));
        assert_eq!(fixture.commit(std::slice::from_ref(&opening)).await, [ChainAnswer::Held]);
        let cases = database.sql("SELECT case_id, workflow, status, revision, version, data FROM cases");
        assert_eq!(cases, [["62", "permit", "in_review", "0", "1", r#"{"a":1}"#]]);
        assert_eq!(database.sql("SELECT case_id, assignee FROM assignments"), [["62", "47"]]);
        assert_books_balance(database);

        // What is read back is what was decided, to the byte and the microsecond.
        let recorded = &step(&mut opening).operations[0];
        let read = fixture.store.operation_fetch(&case_id("62"), recorded.operation_id).await.unwrap();
        assert_eq!(read.as_ref(), Some(recorded));
        let record = fixture.store.case_fetch(&case_id("62")).await.unwrap().unwrap();
        assert_eq!((record.opened_at, record.updated_at), (at(1), at(1)));
        assert_eq!(record.assignees, [ActorId::from_stored("47")]);

        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        let record = fixture.store.case_fetch(&case_id("62")).await.unwrap().unwrap();
        assert_eq!((record.version, record.opened_at, record.updated_at), (Version::new(2), at(1), at(2)));
        assert_eq!(&*record.data, r#"{"a":1}"#);
        assert_books_balance(database);
    }

    async fn a_miss_leaves_no_row_and_tells_the_version(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        fixture.commit(&[note("62", 1)]).await;
        let mut late = note("62", 1);
        step(&mut late).assignments.push(assignment("81", true));
        assert_eq!(fixture.commit(&[late]).await, [missed(2)]);
        assert_eq!(fixture.commit(&[note("63", 4)]).await, [missed(0)]);
        assert_eq!(database.count("assignments"), 0);
        assert_books_balance(database);
    }

    async fn a_case_is_opened_once_also_by_two_writers(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut other = store_at(database.url()).writer_open("node-2").await.unwrap();
        assert_eq!(fixture.commit(&[open("62")]).await, [ChainAnswer::Held]);
        assert_eq!(fixture.commit(&[open("62")]).await, [missed(1)]);
        let (batch, lock) = ([open("62"), open("63")], LockMode::Skip);
        let answer = other.commit(&batch, lock).await.unwrap();
        assert_eq!(answer, casework::engine::BatchAnswer::Settled(vec![missed(1), ChainAnswer::Held]));
        assert_books_balance(database);
    }

    /// Rejections are answered on a version that holds; a check writes nothing.
    async fn checks_hold_on_the_version_and_miss_on_another(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        let answers = fixture.commit(&[version_check("62", 1), version_check("63", 0)]).await;
        assert_eq!(answers, [ChainAnswer::Held, ChainAnswer::Held]);
        let answers = fixture.commit(&[version_check("62", 0), version_check("63", 1)]).await;
        assert_eq!(answers, [missed(1), missed(0)]);
        assert_eq!(fixture.commit(&[]).await, []);
        assert_books_balance(database);
    }

    async fn a_batch_answers_each_chain_in_its_order(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("a"), open("c"), open("e")]).await;
        fixture.commit(&[note("c", 1)]).await;
        let batch = [note("a", 1), open("b"), note("c", 1), version_check("d", 0), version_check("e", 7), note("f", 3)];
        let answers = fixture.commit(&batch).await;
        assert_eq!(answers, [
            ChainAnswer::Held, ChainAnswer::Held, missed(2), ChainAnswer::Held, missed(1), missed(0)
        ]);
        assert_books_balance(database);
    }

    async fn a_chain_is_one_step_of_its_case(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut opening = chain("62", 0, (1..=40).map(|version| operation("62", version, "note")).collect());
        step(&mut opening).assignments = vec![assignment("47", true), assignment("81", true)];
        assert_eq!(fixture.commit(&[opening]).await, [ChainAnswer::Held]);
        let mut next = chain("62", 40, (41..=600).map(|version| operation("62", version, "note")).collect());
        step(&mut next).assignments = vec![assignment("47", false), assignment("5", false), assignment("81", true)];
        step(&mut next).writes_data = true;
        step(&mut next).after.data = r#"{"b":2}"#.into();
        assert_eq!(fixture.commit(&[next]).await, [ChainAnswer::Held]);
        assert_eq!(database.sql("SELECT version, data FROM cases"), [["600", r#"{"b":2}"#]]);
        assert_eq!(database.sql("SELECT assignee FROM assignments"), [["81"]]);
        assert_eq!(database.sql_value("SELECT count(*) FROM operations WHERE command = 'edit'"), "0");
        assert_books_balance(database);
    }

    /// One bad row fails its batch, and the committer halves until it stands alone.
    async fn a_row_that_cannot_be_stored_is_refused_alone(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut poison = open("b");
        step(&mut poison).operations[0].actor = ActorId::from_stored("");
        let batch = [open("a"), poison, open("c")];
        assert_eq!(fixture.fault(&batch).await, CommitFault::Data);
        assert_eq!(database.count("cases"), 0);
        assert_eq!(fixture.commit(&batch[..1]).await, [ChainAnswer::Held]);
        assert_eq!(fixture.fault(&batch[1..2]).await, CommitFault::Data);
        assert_eq!(fixture.commit(&batch[2..]).await, [ChainAnswer::Held]);
        assert_books_balance(database);
    }

    async fn an_operation_id_that_is_there_is_a_duplicate(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let opening = open("62");
        fixture.commit(std::slice::from_ref(&opening)).await;
        let mut again = note("62", 1);
        step(&mut again).operations[0].operation_id = opening.step.as_ref().unwrap().operations[0].operation_id;
        assert_eq!(fixture.fault(&[open("61"), again]).await, CommitFault::Duplicate);
        assert_eq!(database.count("cases"), 1);
        // The same id in another case is another operation.
        let mut elsewhere = open("63");
        step(&mut elsewhere).operations[0].operation_id = opening.step.as_ref().unwrap().operations[0].operation_id;
        assert_eq!(fixture.commit(&[elsewhere]).await, [ChainAnswer::Held]);
        assert_books_balance(database);
    }

    /// Nobody but Casework numbers operations: a version that is taken although the case stands before it can't heal.
    async fn a_version_that_is_taken_is_a_broken_invariant(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        let id = if database.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
        database.sql(&format!(
            "INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome) \
             SELECT case_id, {id}, 2, revision, status, recorded_at, actor, command, digest, request, outcome FROM operations"
        ));
        assert_eq!(fixture.fault(&[note("62", 1)]).await, CommitFault::BrokenInvariant);
        assert_eq!(database.sql_value("SELECT version FROM cases"), "1");
    }

    async fn odd_texts_come_back_as_they_went(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let name = "ä/ö \u{1f600} \"quoted\" \\ 'x'; --";
        let mut opening = open(name);
        step(&mut opening).operations[0].request = Some("{\"reason\":\"\\u0000 \u{2028}\"}".into());
        step(&mut opening).assignments.push(assignment(name, true));
        assert_eq!(fixture.commit(std::slice::from_ref(&opening)).await, [ChainAnswer::Held]);
        let operations = fixture.store.operation_list(&case_id(name), Version::ZERO, 10).await.unwrap();
        assert_eq!(operations, opening.step.unwrap().operations);
        assert_books_balance(database);
    }

    /// An `edit` of a replayed log has no digest, and changes workflow and data like a person did.
    async fn a_recorded_edit_is_written_like_any_operation(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        let mut edit = note("62", 1);
        let written = step(&mut edit);
        written.operations[0].command = casework::domain::CommandName::from_stored("edit");
        written.operations[0].digest = None;
        written.operations[0].operation_id = OperationId::from_uuid(Uuid::from_u128(7));
        assert_eq!(fixture.commit(std::slice::from_ref(&edit)).await, [ChainAnswer::Held]);
        let read = fixture.store.operation_list(&case_id("62"), Version::new(1), 10).await.unwrap();
        assert_eq!(read, edit.step.unwrap().operations);
        let mut without_digest = note("62", 2);
        step(&mut without_digest).operations[0].digest = None;
        assert_eq!(fixture.fault(&[without_digest]).await, CommitFault::Data);
        assert_books_balance(database);
    }
}
