//! Commits without a clear answer, and the fence that settles them.

use std::time::Duration;

use casework::domain::Version;
use casework::engine::{BatchAnswer, Chain, ChainAnswer, CommitFault, LockMode};

use super::fixture::{Fixture, assert_books_balance, case_id, note, open, store_at, version_check};
use crate::support::database::{TestDatabase, block_on};
use crate::support::tcp_proxy::TcpProxy;
use crate::support::wait::eventually;

const SOON: Duration = Duration::from_secs(30);
/// A part of the commit statement that stands in no other.
const COMMIT: &str = "INSERT INTO outbox";

fn known_id(chain: &Chain) -> (casework::domain::CaseId, casework::domain::OperationId) {
    (chain.case_id.clone(), chain.step.as_ref().unwrap().operations[0].operation_id)
}

on_both_databases! {
    async fn a_writer_commits_after_its_fence(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        for version in 1..4 {
            fixture.writer.fence().await.unwrap();
            assert_eq!(fixture.commit(&[note("62", version)]).await, [ChainAnswer::Held]);
        }
        assert_books_balance(database);
    }

    /// A future that is dropped may have sent its batch: nothing goes out before the fence.
    async fn a_commit_that_was_abandoned_is_unclear_until_the_fence(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("62")]).await;
        let abandoned = note("62", 1);
        {
            let mut commit = Box::pin(fixture.writer.commit(std::slice::from_ref(&abandoned), LockMode::Skip));
            // Polled once: enough for it to be on its way.
            let polled = futures_util::poll!(&mut commit);
            assert!(polled.is_pending());
        }
        assert_eq!(fixture.fault(&[note("62", 1)]).await, CommitFault::Unclear);
        fixture.writer.fence().await.unwrap();
        let found = fixture.store.operations_find(&[known_id(&abandoned)]).await.unwrap();
        let version = 1 + i64::try_from(found.len()).unwrap();
        assert_eq!(fixture.commit(&[note("62", version)]).await, [ChainAnswer::Held]);
        assert_books_balance(database);
    }
}

/// The case to fear: the first send is held back on the way, its sender gives up, reads and goes on, then it arrives.
#[test]
fn a_batch_that_arrives_after_the_fence_does_nothing() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    block_on(async {
        let mut fixture = Fixture::at(&url).await;
        fixture.commit(&[open("62")]).await;
        for (round, late) in
            [vec![note("62", 1)], vec![open("63")], vec![version_check("62", 1)]].into_iter().enumerate()
        {
            let hold = proxy.hold_next(|message| message.is(b'B', COMMIT));
            let mut writer = fixture.writer;
            let sending = tokio::spawn(async move {
                let error = writer.commit(&late, LockMode::Skip).await.unwrap_err();
                (writer, error)
            });
            hold.wait_held(SOON);
            hold.cut_client();
            let (writer, error) = sending.await.unwrap();
            assert_eq!(error.fault, CommitFault::Unclear, "{error}");
            fixture.writer = writer;
            assert_eq!(fixture.fault(&[note("62", 1)]).await, CommitFault::Unclear);
            fixture.writer.fence().await.unwrap();
            // What is read now is final.
            let record = fixture.store.case_fetch(&case_id("62")).await.unwrap().unwrap();
            assert_eq!(record.version, Version::new(1), "round {round}");
            hold.release();
            let answer = hold.wait_answered(SOON);
            assert!(answer.error_codes.is_empty(), "{answer:?}");
            assert_eq!(database.sql("SELECT case_id, version FROM cases"), [["62", "1"]], "round {round}");
        }
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}

/// Run and not committed, its Sync held: the backend keeps its locks and no timeout of the server ends it.
#[test]
fn a_backend_cut_off_in_mid_message_is_ended_by_the_fence() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    block_on(async {
        let mut fixture = Fixture::at(&url).await;
        fixture.commit(&[open("62")]).await;
        let hold = proxy.hold_next(|message| message.is(b'S', COMMIT));
        let (late, mut writer) = (note("62", 1), fixture.writer);
        let id = known_id(&late);
        let sending = tokio::spawn(async move {
            let error = writer.commit(&[late], LockMode::Skip).await.unwrap_err();
            (writer, error.fault)
        });
        hold.wait_held(SOON);
        let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'cases'::regclass AND mode = 'RowExclusiveLock'";
        eventually(SOON, "the statement has run", || database.sql_value(locks) == "1");
        hold.cut_client();
        let (writer, fault) = sending.await.unwrap();
        assert_eq!(fault, CommitFault::Unclear);
        fixture.writer = writer;
        fixture.writer.fence().await.unwrap();
        assert!(fixture.store.operations_find(&[id]).await.unwrap().is_empty());
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}

/// Committed, the answer lost: after the fence it is there.
#[test]
fn a_commit_whose_answer_is_lost_is_found_after_the_fence() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    block_on(async {
        let mut fixture = Fixture::at(&url).await;
        fixture.commit(&[open("62")]).await;
        // Rows and CommandComplete pass; only the end of the exchange, which proves the commit, does not.
        let hold = proxy.hold_answer_from(b'Z', |message| message.is(b'S', COMMIT));
        let (sent, mut writer) = (note("62", 1), fixture.writer);
        let id = known_id(&sent);
        let sending = tokio::spawn(async move {
            let error = writer.commit(&[sent], LockMode::Skip).await.unwrap_err();
            (writer, error.fault)
        });
        hold.wait_held(SOON);
        hold.cut();
        let (writer, fault) = sending.await.unwrap();
        assert_eq!(fault, CommitFault::Unclear);
        fixture.writer = writer;
        fixture.writer.fence().await.unwrap();
        assert_eq!(fixture.store.operations_find(&[id]).await.unwrap().len(), 1);
        assert_eq!(fixture.commit(&[note("62", 2)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}

#[test]
fn a_writer_whose_node_is_taken_over_is_fenced() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62")]).await;
        let other = store_at(database.url());
        other.writers_fence("node-2").await.unwrap();
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        other.writers_fence("node-1").await.unwrap();
        for batch in [vec![note("62", 2)], vec![open("63")], vec![version_check("62", 2)], vec![]] {
            let answer = fixture.writer.commit(&batch, LockMode::Skip).await.unwrap();
            assert_eq!(answer, BatchAnswer::Fenced);
        }
        fixture.writer.fence().await.unwrap();
        assert_eq!(fixture.commit(&[note("62", 2)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}

#[test]
fn a_backend_that_is_terminated_makes_its_commit_unclear() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62")]).await;
        let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                         WHERE datname = current_database() AND application_name LIKE 'casework-%'";
        assert_ne!(database.sql_value(terminate), "0");
        assert_eq!(fixture.fault(&[note("62", 1)]).await, CommitFault::Unclear);
        fixture.writer.fence().await.unwrap();
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        // Readers that the server ended are replaced without anyone noticing.
        fixture.store.ping().await.unwrap();
        assert_eq!(fixture.store.case_fetch(&case_id("62")).await.unwrap().unwrap().version, Version::new(2));
        assert_books_balance(&database);
    });
}

/// A statement that the server cancels has written nothing: no fence is needed.
#[test]
fn a_cancelled_commit_has_failed_and_not_become_unclear() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62")]).await;
        let mut person = database.session();
        person.run("BEGIN; SELECT 1 FROM cases FOR UPDATE").unwrap();
        let mut writer = fixture.writer;
        let waiting = tokio::spawn(async move {
            let lock = LockMode::Wait(SOON);
            let error = writer.commit(&[note("62", 1)], lock).await.unwrap_err();
            (writer, error.fault)
        });
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                      WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(SOON, "the waiting commit is cancelled", || database.sql_value(cancel) == "1");
        let (writer, fault) = waiting.await.unwrap();
        assert_eq!(fault, CommitFault::Failed);
        person.run("ROLLBACK").unwrap();
        fixture.writer = writer;
        assert_eq!(fixture.commit(&[note("62", 1)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}
