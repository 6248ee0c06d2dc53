//! The tools of the tests hold what they promise: else a test that leans on them proves nothing.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::postgres::{self, PrivateServer};
use crate::support::psql::{NULL, SqlSession, psql_rows};
use crate::support::tcp_proxy::{Direction, TcpProxy};
use crate::support::wait::eventually;

const SOON: Duration = Duration::from_secs(30);

on_both_databases! {
    async fn shells_tell_null_from_empty_and_keep_odd_text(database: &TestDatabase) {
        database.sql("CREATE TABLE odd (id integer, value text)");
        database.sql("INSERT INTO odd VALUES (1, NULL), (2, ''), (3, 'a|b,\t\"c\"\nd'), (4, 'ünï')");
        let rows = database.sql("SELECT id, value FROM odd ORDER BY id");
        assert_eq!(
            rows,
            [["1", NULL], ["2", ""], ["3", "a|b,\t\"c\"\nd"], ["4", "ünï"]]
        );
        assert_eq!(database.count("odd"), 4);
    }

    async fn shells_report_a_failing_statement(database: &TestDatabase) {
        let error = database.try_sql("SELECT 1; SELECT nonsense FROM nowhere; SELECT 2");
        let words = error.unwrap_err().to_string();
        assert!(words.contains("nowhere"), "{words}");
        assert_eq!(words.contains("42P01"), database.is_postgres(), "{words}");
    }

    async fn a_session_keeps_its_transaction_open(database: &TestDatabase) {
        database.sql("CREATE TABLE held (id integer)");
        let mut session = database.session();
        session.run("BEGIN").unwrap();
        session.run("INSERT INTO held VALUES (7)").unwrap();
        assert_eq!(session.run("SELECT id FROM held").unwrap(), [["7"]]);
        assert_eq!(database.count("held"), 0);
        session.run("COMMIT").unwrap();
        assert_eq!(database.count("held"), 1);
        let error = session.run("SELECT nonsense FROM held").unwrap_err().to_string();
        assert!(error.contains("nonsense"), "{error}");
        assert_eq!(session.run("SELECT id FROM held").unwrap(), [["7"]], "the session goes on");
    }
}

#[test]
fn a_database_is_gone_with_its_handle_though_someone_is_connected() {
    let database = postgres::database();
    let name = database.name().to_owned();
    let mut session = database.session();
    session.run("SELECT 1").unwrap();
    drop(database);
    let sql = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    let rows = psql_rows(postgres::shared_server_url(), &sql).unwrap();
    assert_eq!(rows, [["0"]]);
}

#[test]
fn the_shared_server_is_as_careful_as_in_production() {
    let database = postgres::database();
    let setting = |name: &str| database.sql(&format!("SHOW {name}"))[0][0].clone();
    assert_eq!(setting("fsync"), "on");
    assert_eq!(setting("synchronous_commit"), "on");
    assert_eq!(setting("max_connections"), "200");
    assert_eq!(setting("client_connection_check_interval"), "100ms");
    assert_eq!(setting("listen_addresses"), "127.0.0.1");
}

#[test]
fn a_private_server_survives_kills_and_restarts_on_its_port() {
    let server = PrivateServer::start();
    let database = server.database();
    database.sql("CREATE TABLE kept AS SELECT 1 AS id");
    let port = server.port();

    server.stop_immediate();
    assert!(database.try_sql("SELECT 1").is_err());
    server.start_again();
    assert_eq!(database.sql("SELECT id FROM kept"), [["1"]]);
    assert_eq!(server.port(), port);

    let mut victim = database.session();
    let pid = victim.run("SELECT pg_backend_pid()").unwrap()[0][0].clone();
    server.kill_backend_9(pid.parse().unwrap());
    assert!(victim.run("SELECT 1").is_err());
    eventually(SOON, "the server recovers by itself", || database.try_sql("SELECT id FROM kept").is_ok());
    assert!(server.log().contains("was terminated by signal 9"));
}

/// Runs this test program anew for one test that starts a private server and waits to be killed.
#[test]
fn a_private_server_is_gone_when_its_test_is_killed() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "test_support::start_a_private_server_and_wait"])
        .args(["--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut folder = String::new();
    while !folder.contains("data folder: ") {
        folder.clear();
        assert!(std::io::BufRead::read_line(&mut stdout, &mut folder).unwrap() > 0);
    }
    let (_, folder) = folder.trim().split_once("data folder: ").unwrap();
    let folder = Path::new(folder);
    assert!(folder.join("postmaster.pid").is_file());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually(SOON, "the folder of the server is removed", || !folder.exists());
}

#[test]
#[ignore = "a part of a_private_server_is_gone_when_its_test_is_killed"]
fn start_a_private_server_and_wait() {
    let server = PrivateServer::start();
    let folder = &server.sql("SHOW data_directory")[0][0];
    writeln!(std::io::stdout(), "\ndata folder: {folder}").unwrap();
    // Ends when the test that started us kills us or ends itself.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn a_proxy_passes_holds_releases_and_cuts() {
    let database = postgres::database();
    let (proxy, url) = TcpProxy::before(database.url());
    assert_eq!(psql_rows(&url, "SELECT 1").unwrap(), [["1"]]);
    eventually(SOON, "the proxy forgets a closed connection", || proxy.counts().connections_open == 0);
    assert_eq!(proxy.counts().connections, 1);
    assert!(proxy.counts().frontend_messages[&b'Q'] >= 1);

    database.sql("CREATE TABLE seen (id integer)");
    let mut session = SqlSession::psql(&url);
    session.run("SELECT 1").unwrap();
    let before = proxy.counts().frontend_messages[&b'Q'];
    proxy.hold(Direction::ToServer);
    session.send("INSERT INTO seen VALUES (1)");
    eventually(SOON, "the proxy has the statement", || proxy.counts().frontend_messages[&b'Q'] > before);
    assert_eq!(database.sql("SELECT count(*) FROM seen"), [["0"]]);
    proxy.release(Direction::ToServer);
    session.finish().unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM seen"), [["1"]]);

    proxy.cut();
    assert!(session.run("SELECT 1").is_err());
    proxy.refuse_connections(true);
    assert!(psql_rows(&url, "SELECT 1").is_err());
    proxy.refuse_connections(false);
    assert_eq!(psql_rows(&url, "SELECT 1").unwrap(), [["1"]]);
}

#[test]
fn a_held_statement_arrives_after_its_client_is_gone() {
    let database = postgres::database();
    database.sql("CREATE TABLE late (id integer)");
    let (proxy, url) = TcpProxy::before(database.url());
    let hold = proxy.hold_next(|message| message.is(b'Q', "INSERT INTO late"));
    let mut session = SqlSession::psql(&url);
    session.run("SELECT 1").unwrap();
    session.send("INSERT INTO late VALUES (1)");
    hold.wait_held(SOON);
    hold.cut_client();
    assert!(session.finish().is_err());
    assert_eq!(database.sql("SELECT count(*) FROM late"), [["0"]]);
    // Other connections go on meanwhile.
    assert_eq!(psql_rows(&url, "SELECT 2").unwrap(), [["2"]]);

    hold.release();
    let answer = hold.wait_answered(SOON);
    assert_eq!(answer.command_tags, ["INSERT 0 1"]);
    assert_eq!(database.sql("SELECT count(*) FROM late"), [["1"]]);
}

#[test]
fn an_answer_is_held_after_the_commit_and_before_its_end() {
    let database = postgres::database();
    database.sql("CREATE TABLE committed (id integer)");
    let (proxy, url) = TcpProxy::before(database.url());
    let whole = proxy.hold_answer_to_next(|message| message.is(b'Q', "VALUES (1)"));
    let end = proxy.hold_answer_from(b'Z', |message| message.is(b'Q', "VALUES (2)"));
    for (hold, id) in [(whole, 1), (end, 2)] {
        let mut session = SqlSession::psql(&url);
        session.send(&format!("INSERT INTO committed VALUES ({id})"));
        hold.wait_held(SOON);
        assert_eq!(hold.wait_answered(SOON).ready, 1);
        let committed = format!("SELECT count(*) FROM committed WHERE id = {id}");
        assert_eq!(database.sql(&committed), [["1"]]);
        hold.cut();
        assert!(session.finish().is_err());
    }
}

/// The extended protocol, as the crate's own driver speaks it: the Sync of one statement is held, so that its locks
/// are taken and its commit has not happened.
#[test]
fn a_held_sync_leaves_the_statement_run_and_uncommitted() {
    let database = postgres::database();
    database.sql("CREATE TABLE locked (id integer PRIMARY KEY); INSERT INTO locked VALUES (1)");
    let (proxy, url) = TcpProxy::before(database.url());
    let hold = proxy.hold_next(|message| message.is(b'S', "UPDATE locked"));
    crate::support::database::block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let prepared = client.prepare("SELECT id FROM locked").await.unwrap();
        assert_eq!(client.query(&prepared, &[]).await.unwrap().len(), 1);
        // Preparing sends a Sync of its own, which belongs to no bound statement.
        let update = client.prepare("UPDATE locked SET id = $1").await.unwrap();
        let updating = tokio::spawn(async move { client.execute(&update, &[&2_i32]).await });
        tokio::task::spawn_blocking(move || {
            hold.wait_held(SOON);
            let locked = database.try_sql("SET lock_timeout = '100ms'; SELECT id FROM locked FOR UPDATE");
            assert!(locked.unwrap_err().to_string().contains("55P03"));
            assert_eq!(database.sql("SELECT id FROM locked"), [["1"]]);
            hold.release();
            let answer = hold.wait_answered(SOON);
            assert_eq!(answer.command_tags, ["UPDATE 1"]);
            assert_eq!(database.sql("SELECT id FROM locked"), [["2"]]);
        })
        .await
        .unwrap();
        assert_eq!(updating.await.unwrap().unwrap(), 1);
        driver.abort();
    });
}

#[test]
#[should_panic(expected = "in vain for: the impossible")]
fn waiting_in_vain_fails_at_the_deadline_and_says_for_what() {
    let started = Instant::now();
    eventually(Duration::from_millis(50), "the impossible", || {
        assert!(started.elapsed() < SOON);
        false
    });
}
