//! Starting in words, and going down without losing an answer.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Desk, SOON, new_id};
use crate::support::cli::casework;
use crate::support::database::{TestDatabase, block_on};
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::wait::eventually_async;

/// The promise: from the signal to the end.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

on_both_databases! {
    /// The commit is held up while the signal comes: readiness goes, new work is refused, the admitted one is answered.
    async fn what_is_admitted_is_answered_before_the_server_ends(database: &TestDatabase) {
        let mut desk = Desk::open(database);
        desk.open_case("62").await;
        let mut held = database.session();
        if database.is_postgres() {
            held.run("BEGIN").unwrap();
            held.run("SELECT 1 FROM cases WHERE case_id = '62' FOR UPDATE").unwrap();
        } else {
            held.run("BEGIN IMMEDIATE").unwrap();
        }
        let key = new_id();
        let (client, token, sent) = (desk.client.clone(), desk.clerk.clone(), key.clone());
        let admitted = tokio::spawn(async move {
            client.post_command("62", "note", &sent, &json!({"reason": "Seen."}), &token).await
        });
        let path = format!("/v1/cases/62/operations/{key}");
        eventually_async(SOON, "the command is in flight", async || {
            desk.client.get(&path, Some(&desk.clerk)).await.status == 202
        })
        .await;
        let (lines, mut answers) = crate::http::streams::open_stream(&desk, &desk.clerk).await;

        let signalled = Instant::now();
        desk.server.sigterm();
        eventually_async(SOON, "readiness goes to 503", async || desk.client.get("/readyz", None).await.status == 503).await;
        let _ = desk.client.get("/readyz", None).await.expect_problem(503, "draining");
        let refused = desk.send("62", "note", json!({"reason": "Late."}), &desk.clerk).await;
        let refused = refused.expect_problem(503, "draining");
        assert!(refused.header("retry-after").is_some());
        let late = json!({"case_id": "62", "operation_id": new_id(), "command": "note", "reason": "Late."});
        let line = crate::http::streams::exchange(&lines, &mut answers, &late).await;
        assert_eq!((&line["status"], &line["problem"]["code"]), (&json!(503), &json!("draining")));

        held.run("COMMIT").unwrap();
        let _ = admitted.await.unwrap().expect_status(200);
        assert_eq!(desk.server.wait(SOON).code(), Some(0));
        assert!(signalled.elapsed() < STOPS_WITHIN, "{:?}", signalled.elapsed());
        assert_eq!(database.count("operations"), 3);
    }

    async fn an_idle_server_ends_soon_though_connections_are_open(database: &TestDatabase) {
        let mut desk = Desk::open(database);
        let _stream = crate::http::streams::open_stream(&desk, &desk.clerk).await;
        let _ = desk.client.get("/healthz", None).await.expect_status(200);
        let signalled = Instant::now();
        desk.server.signal("INT");
        assert_eq!(desk.server.wait(SOON).code(), Some(0));
        assert!(signalled.elapsed() < STOPS_WITHIN, "{:?}", signalled.elapsed());
    }
}

#[test]
fn a_start_is_refused_in_words() {
    let database = TestDatabase::postgres();
    let behind = ServerOptions::new(database.url()).start_refused(SOON).expect_code(1);
    assert!(behind.stderr.contains("casework migrate --database"), "{}", behind.stderr);
    casework(["migrate", "--database", database.url()]).expect_success();
    database.sql("INSERT INTO __diesel_schema_migrations (version) VALUES ('29990101000000')");
    let ahead = ServerOptions::new(database.url()).start_refused(SOON).expect_code(1);
    assert!(ahead.stderr.contains("newer"), "{}", ahead.stderr);

    let away = ServerOptions::new("postgres://postgres@127.0.0.1:9/none").start_refused(SOON).expect_code(5);
    assert!(away.stderr.contains("not available"), "{}", away.stderr);

    let sqlite = TestDatabase::sqlite();
    let server = ServerProcess::start(sqlite.url());
    let taken =
        ServerOptions::new(sqlite.url()).listen(Some(&server.address().to_string())).start_refused(SOON).expect_code(1);
    assert!(taken.stderr.contains("--listen"), "{}", taken.stderr);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.toml");
    std::fs::write(&file, "name = \"broken\"\ninitial = \"a\"\nx").unwrap();
    let options = ServerOptions::new(sqlite.url()).argument("--workflow").argument(&file);
    let broken = options.start_refused(SOON).expect_code(1);
    assert!(broken.stderr.contains("line 3"), "{}", broken.stderr);
    // A start without the file would find another `permit` than the built-in one in the database.
    std::fs::write(&file, casework::domain::PERMIT_TOML.replace("\"approved\"", "\"granted\"")).unwrap();
    let permit = ServerOptions::new(sqlite.url()).argument("--workflow").argument(&file);
    let permit = permit.start_refused(SOON).expect_code(1);
    assert!(permit.stderr.contains("permit-2"), "{}", permit.stderr);
    let checked = casework(["workflow".as_ref(), "check".as_ref(), file.as_os_str()]).expect_code(1);
    assert!(checked.stderr.contains("permit-2"), "{}", checked.stderr);
    let unknown = ServerOptions::new(sqlite.url()).argument("--default-workflow").argument("unheard");
    let unknown = unknown.start_refused(SOON).expect_code(1);
    assert!(unknown.stderr.contains("unheard"), "{}", unknown.stderr);
}

/// Who copies the file after the end has everything.
#[test]
fn after_the_end_the_sqlite_file_is_whole_by_itself() {
    let database = TestDatabase::sqlite();
    let mut desk = Desk::open(&database);
    block_on(desk.open_case("62"));
    desk.server.sigterm();
    assert_eq!(desk.server.wait(SOON).code(), Some(0));
    let TestDatabase::Sqlite(file) = &database else { panic!("it was made so") };
    let copy = file.folder().join("copy.db");
    std::fs::copy(file.path(), &copy).unwrap();
    let url = format!("sqlite:{}", copy.display());
    let verified = casework(["verify", "--json", "--database", &url]).expect_success().json();
    assert_eq!(verified["operations"], database.count("operations"), "{verified}");
    assert!(database.count("operations") > 0);
}
