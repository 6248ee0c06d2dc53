//! Locks, retries, duplicate keys, misses and faults: each is made for real, by somebody else at the database.

use uuid::Uuid;

use super::scrape::{Scrape, eventually_risen};
use super::{hold, new_note, note_in_flight};
use crate::case_62::{Desk, act, check_books, note};
use crate::support::database::{TestDatabase, block_on};

const RETRIES: &str = "casework_commit_retries_total";
const FAULTS: &str = "casework_commit_faults_total";

on_both_databases! {
    /// A row on PostgreSQL, the whole file on SQLite.
    async fn what_others_hold_is_waited_for_and_measured(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        let before = Scrape::of(&desk.client).await;
        let mut holder = hold(database, "62");
        let waiting = note_in_flight(&desk, "62", Uuid::new_v4());
        let cause = if database.is_postgres() { "locked" } else { "busy" };
        eventually_risen(&desk.client, &before, RETRIES, &[("cause", cause)], 1.0).await;
        let _ = holder.run("COMMIT").unwrap();
        waiting.await.unwrap().expect_status(200);
        let after = Scrape::of(&desk.client).await;
        let waits = after.since(&before, "casework_row_lock_wait_seconds_count", &[]);
        let waited = after.since(&before, "casework_row_lock_wait_seconds_sum", &[]);
        // A file that is held is no row: its waits are retries, and commits that take long.
        assert_eq!((waits, waited > 0.0), if database.is_postgres() { (1.0, true) } else { (0.0, false) });
        let failed = after.since(&before, "casework_commit_duration_seconds_count", &[("outcome", "not-committed")]);
        assert_eq!(failed > 0.0, !database.is_postgres(), "a locked row is left out, and the transaction commits");
    }

    /// One connection, whose transaction somebody holds up: what is decided meanwhile waits for the next one.
    async fn what_waits_for_a_transaction_is_measured(database: &TestDatabase) {
        let desk = Desk::open_with(database, |options| options.arguments(["--shards=1", "--committers=1"]));
        desk.review_all(&["62".to_owned(), "63".to_owned()]).await;
        let mut holder = database.session();
        let all = if database.is_postgres() { "BEGIN; LOCK TABLE outbox" } else { "BEGIN IMMEDIATE" };
        let _ = holder.run(all).unwrap();
        let before = Scrape::of(&desk.client).await;
        let ahead = note_in_flight(&desk, "62", Uuid::new_v4());
        eventually_risen(&desk.client, &before, "casework_queue_wait_seconds_count", &[], 1.0).await;
        let behind = note_in_flight(&desk, "63", Uuid::new_v4());
        eventually_risen(&desk.client, &before, "casework_commands_admitted", &[], 2.0).await;
        let held = Scrape::of(&desk.client).await;
        let _ = holder.run("COMMIT").unwrap();
        ahead.await.unwrap().expect_status(200);
        behind.await.unwrap().expect_status(200);
        let after = Scrape::of(&desk.client).await;
        assert_eq!(held.since(&before, "casework_queue_wait_seconds_count", &[]), 1.0);
        assert_eq!(after.since(&held, "casework_queue_wait_seconds_count", &[]), 1.0);
        assert!(after.since(&held, "casework_queue_wait_seconds_sum", &[]) > 0.001);
    }

    /// A row that somebody puts there behind Casework's back, under the id that the next command has.
    async fn a_duplicate_key_is_counted(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        new_note(&desk, "62").await.expect_status(200);
        let before = Scrape::of(&desk.client).await;
        let id = Uuid::new_v4();
        let literal = if database.is_postgres() { format!("'{id}'") } else { format!("x'{}'", id.simple()) };
        database.sql(&format!(
            "INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome) \
             SELECT case_id, {literal}, 100, revision, status, recorded_at, actor, command, digest, request, outcome \
             FROM operations WHERE version = 9"
        ));
        note(&desk, "62", id, "Mine.").await.expect_problem(409, "operation-conflict");
        let after = Scrape::of(&desk.client).await;
        assert_eq!(after.since(&before, "casework_duplicate_keys_total", &[]), 1.0);
        assert_eq!(after.since(&before, "casework_compare_and_swap_misses_total", &[]), 0.0);
    }

    /// What was decided on is not current any more: the version has moved.
    async fn a_miss_of_the_compare_and_swap_is_counted(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        new_note(&desk, "62").await.expect_status(200);
        let before = Scrape::of(&desk.client).await;
        database.sql("DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'");
        act(&desk.client, &desk.tokens.r47, "62", "approve", Uuid::new_v4(), 5).await.expect_problem(403, "not-assigned");
        let after = Scrape::of(&desk.client).await;
        assert_eq!(after.since(&before, "casework_compare_and_swap_misses_total", &[]), 1.0);
        assert_eq!(after.since(&before, "casework_duplicate_keys_total", &[]), 0.0);
        check_books(database);
    }
}

/// The other process has moved the case, so what this one remembers is behind.
#[test]
fn a_second_process_makes_this_one_miss() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        let beside = desk.beside(&database);
        let before = Scrape::of(&desk.client).await;
        let id = Uuid::new_v4();
        act(&beside.client, &desk.tokens.r81, "62", "deny", id, 5).await.expect_status(200);
        assert!(act(&desk.client, &desk.tokens.r81, "62", "deny", id, 5).await.is_replay());
        let after = Scrape::of(&desk.client).await;
        assert_eq!(after.since(&before, "casework_compare_and_swap_misses_total", &[]), 1.0);
        assert_eq!(after.since(&before, "casework_replays_total", &[("source", "database")]), 1.0);
    });
}

/// A trigger fails commits with the SQLSTATE of each kind of trouble.
#[test]
fn retries_and_faults_are_told_apart_by_what_the_database_said() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        database.sql(
            "CREATE TABLE trouble (code text); \
             CREATE FUNCTION make_trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF EXISTS (SELECT FROM trouble) THEN \
                 RAISE EXCEPTION USING ERRCODE = (SELECT code FROM trouble), MESSAGE = 'trouble'; \
               END IF; RETURN NEW; END $$; \
             CREATE TRIGGER make_trouble BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION make_trouble()",
        );
        for (sqlstate, metric, label) in [
            ("40001", RETRIES, ("cause", "serialization")),
            ("40P01", RETRIES, ("cause", "deadlock")),
            ("22000", FAULTS, ("fault", "data")),
            ("23505", FAULTS, ("fault", "broken-invariant")),
            ("P0001", FAULTS, ("fault", "failed")),
            ("57P01", FAULTS, ("fault", "unclear")),
        ] {
            let before = Scrape::of(&desk.client).await;
            database.sql(&format!("INSERT INTO trouble VALUES ('{sqlstate}')"));
            let troubled = note_in_flight(&desk, "62", Uuid::new_v4());
            eventually_risen(&desk.client, &before, metric, &[label], 1.0).await;
            database.sql("DELETE FROM trouble");
            let answer = troubled.await.unwrap();
            assert!([200, 422, 500, 503].contains(&answer.status), "{sqlstate}: {answer:?}");
            let after = Scrape::of(&desk.client).await;
            for other in ["serialization", "deadlock", "busy", "locked"].map(|cause| (RETRIES, ("cause", cause))) {
                assert!(other.1 == label || after.since(&before, other.0, &[other.1]) == 0.0, "{sqlstate}: {other:?}");
            }
            let outcome = if sqlstate == "57P01" { "unclear" } else { "not-committed" };
            let of_outcome = [("outcome", outcome)];
            assert!(after.since(&before, "casework_commit_duration_seconds_count", &of_outcome) >= 1.0, "{sqlstate}");
            new_note(&desk, "62").await.expect_status(200);
        }

        // As another start of this node would, or somebody who wants to be sure that it is gone.
        let before = Scrape::of(&desk.client).await;
        database.sql("UPDATE writers SET epoch = epoch + 1");
        new_note(&desk, "62").await.expect_status(200);
        let after = Scrape::of(&desk.client).await;
        assert_eq!(after.since(&before, FAULTS, &[("fault", "fenced")]), 1.0);
        check_books(&database);
    });
}
