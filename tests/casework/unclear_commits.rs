//! A commit that may have happened or not: the connection is lost before the answer, and the client gets one outcome.
//!
//! On PostgreSQL both halves are made for real: a backend that is ended before its commit, and one that is ended after it
//! and before its answer. And the late one: a batch that arrives at the server after its sender was settled without it. A
//! SQLite COMMIT has no wire to get lost on, but a disk that fails at it (a system call made to fail by `strace`). Judged
//! by the rows.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use crate::case_62::{Desk, SOON, act, books, check_books, note, prepare, rows_under, stored_outcome};
use crate::support::database::{TestDatabase, block_on};
use crate::support::http::{Answer, HttpClient};
use crate::support::postgres::PrivateServer;
use crate::support::postgres_messages::FrontendMessage;
use crate::support::server::ServerOptions;
use crate::support::strace::Strace;
use crate::support::tcp_proxy::{Hold, TcpProxy};
use crate::support::wait::{eventually, eventually_some};

/// What is in every batch that writes.
const COMMIT: &str = "INSERT INTO operations";

/// Approves case 62 as a careful client does: the same again under the same id until there is a clear answer.
async fn approve_until_clear(client: HttpClient, token: String, id: Uuid) -> Answer {
    // Each try lasts as long as the server likes, so a bound on their number is one on the time.
    for _ in 0..100 {
        let answer = act(&client, &token, "62", "approve", id, 5).await;
        match answer.status {
            202 => {}
            503 => {
                let problem = answer.expect_problem(503, "unavailable").json();
                assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&json!(true), &json!(true)));
            }
            _ => return answer,
        }
    }
    panic!("no clear answer in 100 tries");
}

/// The writer's backend that waits for `wait_event`.
fn waiting_writer(database: &TestDatabase, wait_event: &str) -> String {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name LIKE 'casework-writer-%' AND wait_event = '{wait_event}'"
    );
    eventually_some(SOON, "the writer's backend waits there", || database.sql(&sql).first().map(|row| row[0].clone()))
}

fn terminate(database: &TestDatabase, pid: &str) {
    assert_eq!(database.sql_value(&format!("SELECT pg_terminate_backend({pid})")), "t");
}

/// The fence was raised: some writer is past its first epoch.
fn check_fence_was_raised(database: &TestDatabase) {
    let epoch: u64 = database.sql_value("SELECT max(epoch) FROM writers").parse().unwrap();
    assert!(epoch >= 2, "an unclear commit is settled by the fence, not by a read alone");
}

/// The answer, the row, and the answer to the exact retry are one outcome.
async fn check_one_outcome(desk: &Desk, database: &TestDatabase, id: Uuid, answer: Answer) {
    let answer = answer.expect_status(200);
    assert_eq!(answer.text(), stored_outcome(database, id));
    let again = act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
    assert!(again.is_replay());
    assert_eq!(again.body, answer.body);
    assert_eq!(rows_under(database, id), [1, 1]);
    assert_eq!(database.sql("SELECT revision, version FROM cases WHERE case_id = '62'"), [["6", "9"]]);
    check_books(database);
}

/// SQLite: COMMIT answers an I/O error, and the frames may be in the log all the same. The file is opened again and read.
#[test]
fn a_commit_that_fails_on_the_disk_is_settled_by_opening_the_file_again() {
    let database = TestDatabase::sqlite();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        let disk = Strace::attach(desk.server.pid(), &["-e", "inject=fsync,fdatasync:error=EIO:when=1..2"]);
        let id = Uuid::new_v4();
        let answer = approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id).await;
        assert!(disk.injected() >= 1, "the fault fired");
        drop(disk);
        check_one_outcome(&desk, &database, id, answer).await;
    });
}

/// Not committed: the backend is ended while a deferred trigger runs, after all rows were written and before the commit.
#[test]
fn a_commit_that_did_not_happen_is_made_once() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        database.sql(
            "CREATE SEQUENCE commits; \
             CREATE FUNCTION first_commit_is_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF nextval('commits') = 1 THEN PERFORM pg_sleep(600); END IF; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER first_commit_is_slow AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED \
               FOR EACH ROW EXECUTE FUNCTION first_commit_is_slow()",
        );
        let id = Uuid::new_v4();
        let client = tokio::spawn(approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id));
        let pid = waiting_writer(&database, "PgSleep");
        assert_eq!(rows_under(&database, id), [0, 0]);
        terminate(&database, &pid);
        let answer = client.await.unwrap();
        assert_eq!(database.sql_value("SELECT last_value FROM commits"), "2", "the first try never came to its commit");
        check_fence_was_raised(&database);
        check_one_outcome(&desk, &database, id, answer).await;
    });
}

/// The fence can't be raised for a while: the other connection commits meanwhile, and in the end it is the lost one whose
/// fence holds.
#[test]
fn while_a_fence_cannot_be_raised_the_other_connection_commits() {
    let database = TestDatabase::postgres();
    block_on(async {
        let desk = Desk::open_with(&database, |options| options.argument("--shards").argument("1"));
        desk.review_all(&["62".to_owned(), "63".to_owned()]).await;
        database.sql(
            "CREATE SEQUENCE commits; CREATE SEQUENCE tries; \
             CREATE FUNCTION first_commit_is_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF nextval('commits') = 1 THEN PERFORM pg_sleep(600); END IF; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER first_commit_is_slow AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED \
               FOR EACH ROW WHEN (NEW.case_id = '62') EXECUTE FUNCTION first_commit_is_slow(); \
             CREATE FUNCTION no_fence() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               PERFORM nextval('tries'); RAISE EXCEPTION 'no fence now'; END $$; \
             CREATE TRIGGER no_fence BEFORE UPDATE ON writers FOR EACH ROW EXECUTE FUNCTION no_fence()",
        );
        let id = Uuid::new_v4();
        let (client, r47) = (desk.client.clone(), desk.tokens.r47.clone());
        let first = tokio::spawn(async move { act(&client, &r47, "62", "approve", id, 5).await });
        let pid = waiting_writer(&database, "PgSleep");
        let name = database.sql_value(&format!("SELECT application_name FROM pg_stat_activity WHERE pid = {pid}"));
        let lost = name.strip_prefix("casework-writer-").unwrap();
        terminate(&database, &pid);
        let tries = || database.sql_value("SELECT last_value FROM tries").parse::<u32>().unwrap();
        for before in 1..4 {
            eventually(SOON, "the fence is tried again", || tries() > before);
            note(&desk, "63", Uuid::new_v4(), "The other connection is free.").await.expect_status(200);
        }
        assert_eq!(rows_under(&database, id), [0, 0]);
        let _ = first.await.unwrap().expect_problem(503, "unavailable");
        database.sql("DROP TRIGGER no_fence ON writers");
        eventually(SOON, "the fence holds", || database.sql_value("SELECT max(epoch) FROM writers") != "1");
        let answer = approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id).await;
        let fenced = database.sql("SELECT writer_id FROM writers WHERE epoch > 1");
        assert_eq!(fenced, [[lost]], "it is the lost connection whose fence was raised, and no other's");
        check_one_outcome(&desk, &database, id, answer).await;
    });
}

/// Committed, and the answer lost: the backend waits for a standby that does not exist, and is ended there.
#[test]
fn a_commit_whose_answer_was_lost_is_not_made_again() {
    let server = PrivateServer::start();
    let database = TestDatabase::Postgres(server.database());
    block_on(async {
        let desk = Desk::open(&database);
        desk.review("62").await;
        database.sql("CREATE TABLE probe (id integer)");
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        server.sql("SELECT pg_reload_conf()");
        // The server takes the setting over at its own pace: a commit that waits shows that it has.
        let mut probe = database.session();
        eventually(SOON, "commits wait for the standby", || {
            probe.send("INSERT INTO probe VALUES (1)");
            !database.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").is_empty()
        });
        let before = books(&database);
        let id = Uuid::new_v4();
        let client = tokio::spawn(approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id));
        let pid = waiting_writer(&database, "SyncRep");
        assert_eq!(books(&database), before, "committed, and not shown to anyone yet");
        terminate(&database, &pid);
        // Without waiting for the server's next commit: the fence is one, and would wait as well.
        server.sql("ALTER SYSTEM RESET synchronous_standby_names");
        server.sql("SELECT pg_reload_conf()");
        let answer = client.await.unwrap();
        eventually(SOON, "the server has logged what it did", || server.log().contains("already committed locally"));
        check_fence_was_raised(&database);
        check_one_outcome(&desk, &database, id, answer).await;
    });
}

/// Where the first send is held back.
const STOPS: [(&str, u8); 2] = [
    ("before the statement arrives", b'B'),
    // It has run, holds its locks, and waits for the message that would commit it.
    ("before the commit", b'S'),
];

fn hold_commit(proxy: &TcpProxy, kind: u8) -> Hold {
    proxy.hold_next(move |message: &FrontendMessage| message.is(kind, COMMIT))
}

/// Lets the held bytes go and looks at what they do: nothing.
fn check_late_send_does_nothing(database: &TestDatabase, hold: &Hold, kind: u8) {
    let before = books(database);
    hold.release();
    if kind == b'B' {
        let answer = hold.wait_answered(SOON);
        assert_eq!(answer.error_codes, Vec::<String>::new());
        assert_eq!(answer.command_tags, ["SELECT 1"], "the one row that says that the fence did not hold");
    } else {
        // The fence had to end this backend, which kept its locks: nobody is left to take the message.
        let answer = hold.answer();
        assert_eq!(answer.ready, 0, "it never committed: {answer:?}");
    }
    assert_eq!(books(database), before);
}

/// The first send is held back, its sender loses the connection and is settled without it, the client repeats. Then
/// the first one arrives after all.
#[test]
fn a_send_that_arrives_late_does_nothing() {
    for (where_held, kind) in STOPS {
        let database = TestDatabase::postgres();
        let (proxy, url) = TcpProxy::before(database.url());
        block_on(async {
            let tokens = prepare(database.url());
            let desk = Desk::start(ServerOptions::new(&url).argument("--shards").argument("1"), tokens);
            desk.review("62").await;
            let hold = hold_commit(&proxy, kind);
            let id = Uuid::new_v4();
            let approve = || tokio::spawn(approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id));
            let first = approve();
            hold.wait_held(SOON);
            assert_eq!(rows_under(&database, id), [0, 0], "held {where_held}");
            // The client gives up waiting and repeats while the first send is still on its way.
            first.abort();
            let repeated = approve();
            hold.cut_client();
            let answer = repeated.await.unwrap();
            check_fence_was_raised(&database);
            check_late_send_does_nothing(&database, &hold, kind);
            check_one_outcome(&desk, &database, id, answer).await;
            note(&desk, "62", Uuid::new_v4(), "The case goes on.").await.expect_status(200);
            check_books(&database);
        });
    }
}

/// The same, and the process that sent it is killed: the one that takes its place fences it before it answers anything.
#[test]
fn a_send_of_a_killed_process_that_arrives_late_does_nothing() {
    for (where_held, kind) in STOPS {
        let database = TestDatabase::postgres();
        let (proxy, url) = TcpProxy::before(database.url());
        block_on(async {
            let tokens = prepare(database.url());
            let mut desk = Desk::start(ServerOptions::new(&url).argument("--shards").argument("1"), tokens);
            desk.review("62").await;
            let hold = hold_commit(&proxy, kind);
            let id = Uuid::new_v4();
            let (client, r47) = (desk.client.clone(), desk.tokens.r47.clone());
            let first = tokio::spawn(async move {
                let body = json!({ "expected_revision": 5, "reason": crate::case_62::REVIEWED });
                client.try_post_command("62", "approve", &id.to_string(), &body, &r47).await
            });
            hold.wait_held(SOON);
            desk.server.kill_9();
            assert!(first.await.unwrap().is_err(), "the first answer is lost with its process");
            assert_eq!(rows_under(&database, id), [0, 0], "held {where_held}");
            desk.server.start_again();
            let answer = approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id).await;
            assert!(!answer.is_replay(), "the first send never took effect");
            check_late_send_does_nothing(&database, &hold, kind);
            check_one_outcome(&desk, &database, id, answer).await;
        });
    }
}

/// The answer alone is held back, for nobody knows how long: the commit is there, and the repeat finds it.
#[test]
fn an_answer_that_never_comes_is_found_in_the_rows() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    block_on(async {
        let tokens = prepare(database.url());
        let desk = Desk::start(ServerOptions::new(&url).argument("--shards").argument("1"), tokens);
        desk.review("62").await;
        // All rows pass, the end of the exchange does not: rows alone prove no commit.
        let hold = proxy.hold_answer_from(b'Z', |message| message.is(b'E', COMMIT));
        let id = Uuid::new_v4();
        let mut first = tokio::spawn(approve_until_clear(desk.client.clone(), desk.tokens.r47.clone(), id));
        hold.wait_held(SOON);
        eventually(SOON, "it is committed", || rows_under(&database, id) == [1, 1]);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut first);
        assert!(early.await.is_err(), "nothing is answered before the end of the exchange");
        hold.cut_client();
        let answer = first.await.unwrap();
        check_fence_was_raised(&database);
        check_one_outcome(&desk, &database, id, answer).await;
    });
}
