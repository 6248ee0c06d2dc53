//! The failure trace: everything that can go wrong between an approval and its row, judged by the rows.
//!
//! What differs between the databases, and what these tests do about it:
//!
//! | | PostgreSQL | SQLite |
//! |---|---|---|
//! | who may write at once | everybody; a writer holds the *rows* of its cases | one connection; it holds the whole *file* |
//! | a person who holds a lock stops | the one case; others commit at once | every commit, of all cases |
//! | the loser waits | apart from the batch, for the row lock, until the command's deadline: 503 `contention` | in `BEGIN IMMEDIATE`, 5 s a try, 9 tries: 503 `contention` |
//! | a deadlock | 40P01: the whole statement runs again | can't happen; SQLITE_BUSY takes its place |
//! | processes on one database | many | one; the race below is between two connections of it |
//! | order within the transaction | case, operation, outbox (one statement) | operation, outbox, case |
//!
//! So an error "after the case update, before the outbox insertion" is raised at the outbox insertion, which on PostgreSQL
//! comes after the case's update; on SQLite the case comes last, and the error is raised there as well. The answers are the
//! same on both.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use crate::case_62::{
    Desk, REVIEWED, SOON, act, act_for, act_patiently, books, check_books, rows_under, stored_outcome,
};
use crate::support::database::{TestDatabase, block_on};
use crate::support::http::{RawConnection, command_path};
use crate::support::long_tests_wanted;
use crate::support::wait::{eventually, eventually_async};

/// Past the capture of the test runner: the number is the point.
fn print_lock_wait(database: &TestDatabase, what: &str, wait: Duration) {
    let kind = if database.is_postgres() { "PostgreSQL" } else { "SQLite" };
    let _ = writeln!(std::io::stderr(), "lock wait on {kind}, {what}: {:.1} ms", wait.as_secs_f64() * 1_000.0);
}

on_both_databases! {
    /// A stale revision, an invalid reason, a case without assignment, an approved case.
    async fn each_refusal_has_its_own_result_and_leaves_no_row(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review_all(&["62".into(), "approved".into()]).await;
        desk.open_all(&["unassigned".into()]).await;
        act(&desk.client, &desk.tokens.r47, "approved", "approve", Uuid::new_v4(), 5).await.expect_status(200);
        let before = books(database);

        let (client, r47) = (&desk.client, &desk.tokens.r47);
        let stale = act(client, r47, "62", "approve", Uuid::new_v4(), 4).await.expect_problem(412, "stale-revision");
        assert_eq!(stale.json()["current_revision"], json!(5));
        let too_long = "x".repeat(2_001);
        for reason in ["", " \t\n", &too_long] {
            let invalid = act_for(client, r47, "62", "approve", Uuid::new_v4(), 5, reason).await;
            let invalid = invalid.expect_problem(422, "invalid-command").json();
            assert_eq!(invalid["errors"][0]["pointer"], json!("/reason"), "{invalid}");
        }
        let unassigned = act(client, r47, "unassigned", "approve", Uuid::new_v4(), 0).await;
        unassigned.expect_problem(403, "not-assigned");
        let again = act(client, r47, "approved", "approve", Uuid::new_v4(), 5).await;
        let again = again.expect_problem(409, "illegal-transition").json();
        assert_eq!(again["current_status"], json!("approved"));
        assert_eq!(again["current_revision"], json!(6));

        assert_eq!(books(database), before, "a refusal leaves no row of any kind");
        check_books(database);
    }

    /// On PostgreSQL through two server processes, on SQLite through two connections of one.
    async fn two_exact_requests_at_once_make_one_transition(database: &TestDatabase) {
        let desk = Desk::open(database);
        let door = desk.beside(database);
        let cases: Vec<String> = (0..20).map(|i| format!("raced-{i}")).collect();
        desk.review_all(&cases).await;
        let before = database.count("operations");
        let mut longest = Duration::ZERO;
        for case_id in &cases {
            let id = Uuid::new_v4();
            let timed = async |client| {
                let started = Instant::now();
                (act(client, &desk.tokens.r47, case_id, "approve", id, 5).await, started.elapsed())
            };
            let ((one, one_took), (other, other_took)) = tokio::join!(timed(&desk.client), timed(&door.client));
            let replays = usize::from(one.is_replay()) + usize::from(other.is_replay());
            assert_eq!(replays, 1, "one is applied, the other a replay: {one:?} {other:?}");
            let loser_took = if one.is_replay() { one_took } else { other_took };
            longest = longest.max(loser_took);
            let (one, other) = (one.expect_status(200), other.expect_status(200));
            assert_eq!(one.body, other.body);
            assert_eq!(one.text(), stored_outcome(database, id));
            assert_eq!(rows_under(database, id), [1, 1]);
        }
        print_lock_wait(database, "the loser of an exact race, longest of 20, its whole request", longest);
        assert_eq!(database.count("operations"), before + 20);
        let moved = database.sql("SELECT case_id FROM cases WHERE status = 'approved' AND revision = 6 AND version = 9");
        assert_eq!(moved.len(), 20, "each case moved once");
        check_books(database);
    }

    /// The client is gone before the answer; the exact command again gets the bytes that it should have got.
    async fn a_dropped_response_is_replayed_byte_for_byte(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        let id = Uuid::new_v4();
        let body = json!({ "expected_revision": 5, "reason": REVIEWED }).to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {id}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            command_path("62", "approve"),
            desk.server.address(),
            desk.tokens.r47,
            body.len(),
        );
        let mut connection = RawConnection::connect(desk.server.address());
        connection.send(request.as_bytes());
        drop(connection);
        eventually(SOON, "the command commits without its client", || rows_under(database, id) == [1, 1]);
        let before = books(database);
        for _ in 0..3 {
            let replay = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
            assert!(replay.is_replay());
            assert_eq!(replay.text(), stored_outcome(database, id));
        }
        assert_eq!(books(database), before);
    }

    /// Another reason under the id is another command; so is another actor. Neither sees the first one's data.
    async fn a_reused_id_is_a_conflict_that_shows_nothing(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        let id = Uuid::new_v4();
        let (r47, r81) = (&desk.tokens.r47, &desk.tokens.r81);
        act(&desk.client, r47, "62", "approve", id, 5).await.expect_status(200);
        let before = books(database);
        let other_reason = act_for(&desk.client, r47, "62", "approve", id, 5, "Another reason.").await;
        let other_actor = act(&desk.client, r81, "62", "approve", id, 5).await;
        let other_command = act(&desk.client, r81, "62", "reopen", id, 6).await;
        for answer in [other_reason, other_actor, other_command] {
            let answer = answer.expect_problem(409, "operation-conflict");
            let text = answer.text();
            for secret in [REVIEWED, "recorded_at", "\"47\"", "approved"] {
                assert!(!text.contains(secret), "{secret} is the first one's: {text}");
            }
            assert!(!answer.is_replay());
            assert_eq!(answer.json()["reuse_key"], json!(false));
        }
        assert_eq!(books(database), before);
    }

    /// Whatever was written before the error is gone with it; the same command succeeds once the cause is away.
    async fn an_error_in_mid_transaction_rolls_everything_back(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        let before = books(database);
        let id = Uuid::new_v4();
        for (table, event) in [("outbox", "BEFORE INSERT"), ("cases", "AFTER UPDATE")] {
            if database.is_postgres() {
                database.sql(&format!(
                    "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                       IF TG_TABLE_NAME = 'outbox' AND (SELECT revision FROM cases WHERE case_id = '62') = 5 THEN \
                         RETURN NEW; END IF; -- the case is not updated yet: another order than this test is about\n \
                       RAISE EXCEPTION 'raised by the test'; END $$; \
                     CREATE TRIGGER fail {event} ON {table} FOR EACH ROW EXECUTE FUNCTION fail()"
                ));
            } else {
                database.sql(&format!(
                    "CREATE TRIGGER fail {event} ON {table} BEGIN SELECT RAISE(ABORT, 'raised by the test'); END"
                ));
            }
            let failed = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await;
            let failed = failed.expect_problem(503, "unavailable").json();
            assert_eq!((&failed["retryable"], &failed["reuse_key"]), (&json!(true), &json!(true)));
            assert_eq!(books(database), before, "an error at {event} of {table} leaves nothing");
            database.sql(if database.is_postgres() { "DROP FUNCTION fail CASCADE" } else { "DROP TRIGGER fail" });
        }
        let applied = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
        assert!(!applied.is_replay());
        assert_eq!(rows_under(database, id), [1, 1]);
        check_books(database);
    }

    /// 47 approves while a person takes the assignment away and has not committed yet: the approval waits for that
    /// person's lock and is decided on what the person left behind.
    async fn who_waits_for_a_lock_is_decided_on_the_winners_state(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        // In memory: the server would say yes if it trusted that.
        act(&desk.client, &desk.tokens.r47, "62", "approve", Uuid::new_v4(), 4).await.expect_status(412);
        let before = database.count("operations");
        let mut person = database.session();
        person.run(if database.is_postgres() { "BEGIN" } else { "BEGIN IMMEDIATE" }).unwrap();
        person.run("DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'").unwrap();

        let id = Uuid::new_v4();
        let started = Instant::now();
        let (client, r47) = (desk.client.clone(), desk.tokens.r47.clone());
        let loser = tokio::spawn(async move { act(&client, &r47, "62", "approve", id, 5).await });
        eventually_async(SOON, "the approval is in flight", || desk.is_in_flight("62", id)).await;
        // Long enough that it has met the lock, however slow the machine is.
        eventually(SOON, "a moment passes", || started.elapsed() > Duration::from_millis(500));
        assert!(!loser.is_finished(), "it waits for the lock");
        person.run("COMMIT").unwrap();
        let committed = Instant::now();
        loser.await.unwrap().expect_problem(403, "not-assigned");
        print_lock_wait(database, "an approval behind a person's transaction", started.elapsed());
        print_lock_wait(database, "of that after the person's commit", committed.elapsed());

        assert_eq!(rows_under(database, id), [0, 0]);
        assert_eq!(database.count("operations"), before + 1, "the person's edit is an operation");
        check_books(database);
    }
}

/// A trigger that reports a deadlock says how often the statement ran: sequences do not roll back.
fn install_deadlock(database: &TestDatabase, until_run: &str) {
    database.sql(&format!(
        "CREATE SEQUENCE case_updates; CREATE SEQUENCE outbox_inserts; \
         CREATE FUNCTION count_update() RETURNS trigger LANGUAGE plpgsql AS \
           $$ BEGIN PERFORM nextval('case_updates'); RETURN NEW; END $$; \
         CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('outbox_inserts') <= {until_run} THEN \
             RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER count_update BEFORE UPDATE ON cases FOR EACH ROW EXECUTE FUNCTION count_update(); \
         CREATE TRIGGER deadlock BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION deadlock()"
    ));
}

fn runs(database: &TestDatabase) -> [u64; 2] {
    ["case_updates", "outbox_inserts"].map(|sequence| {
        let value =
            database.sql_value(&format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"));
        value.parse().unwrap()
    })
}

#[test]
fn a_deadlock_runs_the_whole_transaction_again() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        install_deadlock(&database, "1");
        let id = Uuid::new_v4();
        let applied = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
        assert!(!applied.is_replay());
        assert_eq!(runs(&database), [2, 2], "the case's update ran again, not the last statement alone");
        assert_eq!(rows_under(&database, id), [1, 1]);
        check_books(&database);
    });
}

#[test]
fn deadlocks_for_ever_are_contention_after_a_bounded_number_of_runs() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        let before = books(&database);
        install_deadlock(&database, "1000000");
        let id = Uuid::new_v4();
        let refused = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await;
        let refused = refused.expect_problem(503, "contention");
        assert!(refused.header("retry-after").is_some());
        let refused = refused.json();
        assert_eq!((&refused["retryable"], &refused["reuse_key"]), (&json!(true), &json!(true)));
        let [updates, inserts] = runs(&database);
        assert_eq!(updates, inserts, "each run was whole");
        assert!((2..=20).contains(&inserts), "the retries are bounded: {inserts} runs");
        assert_eq!(books(&database), before);
        database.sql("DROP FUNCTION deadlock CASCADE");
        act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
        assert_eq!(rows_under(&database, id), [1, 1]);
    });
}

/// SQLite's place of a deadlock. The file is held for longer than the client waits (202, and the command goes on); in the
/// long run until the tries are spent (503 after 9 times 5 s).
#[test]
fn a_file_held_by_another_writer_is_waited_for_and_nothing_is_half_done() {
    let database = TestDatabase::sqlite();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        let before = books(&database);
        let mut person = database.session();
        person.run("BEGIN IMMEDIATE").unwrap();
        let id = Uuid::new_v4();
        let (client, r47) = (&desk.client, &desk.tokens.r47);
        let started = Instant::now();
        let accepted = act_patiently(client, r47, "62", id, 1).await.expect_status(202);
        assert!(accepted.header("location").is_some());
        assert_eq!(books(&database), before);
        if long_tests_wanted() {
            act_patiently(client, r47, "62", id, 60).await.expect_problem(503, "contention");
            assert_eq!(books(&database), before);
        }
        person.run("ROLLBACK").unwrap();
        let answer = act(client, r47, "62", "approve", id, 5).await.expect_status(200);
        print_lock_wait(&database, "an approval behind a person who holds the file", started.elapsed());
        assert_eq!(answer.text(), stored_outcome(&database, id));
        assert_eq!(rows_under(&database, id), [1, 1]);
        check_books(&database);
    });
}
