//! The schema and the program: behind or ahead is refused in words, and migrations end well whatever happens to them.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::support::cli::{CliOutput, casework, casework_command};
use crate::support::database::{TestDatabase, block_on};
use crate::support::scene::{Sender, SentCommand, make_ready, verify_is_clean};
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::wait::{eventually, eventually_some};

const SOON: Duration = Duration::from_secs(30);

/// A migration that this program does not know, later than all that it does.
const FROM_THE_FUTURE: &str = "INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000000')";

fn spawn_migrate(url: &str) -> Child {
    casework_command()
        .args(["migrate", "--database", url])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cargo built the program before its tests")
}

fn state(database: &TestDatabase) -> String {
    let printed = casework(["migrate", "--status", "--json", "--database", database.url()]).expect_success().json();
    printed["state"].as_str().expect("a state is a word").to_owned()
}

/// The refusals of everything that needs the schema.
fn refusals(database: &TestDatabase) -> Vec<CliOutput> {
    let url = database.url();
    let mut outputs = vec![ServerOptions::new(url).start_refused(SOON)];
    for command in
        [&["token", "issue", "--subject", "47", "--role", "reviewer"][..], &["verify"], &["export"], &["token", "list"]]
    {
        outputs.push(casework(command.iter().copied().chain(["--database", url])));
    }
    outputs
}

#[test]
fn postgres_that_is_behind_is_refused_with_the_command_to_run() {
    let database = TestDatabase::postgres();
    for output in refusals(&database) {
        let output = output.expect_code(1);
        let command = format!("casework migrate --database {}", database.url());
        assert!(output.stderr.contains(&command), "{output:#?}");
        assert!(output.stdout.is_empty(), "{output:#?}");
    }
    assert_eq!(
        database.sql("SELECT 1 FROM pg_tables WHERE schemaname = 'public'"),
        [[""; 0]; 0],
        "nothing was touched"
    );
    assert_eq!(state(&database), "behind");
    // One migration short is behind as well.
    let _ = casework(["migrate", "--database", database.url()]).expect_success();
    let _ = casework(["migrate", "--revert", "--database", database.url()]).expect_success();
    assert_eq!(state(&database), "behind");
    assert!(ServerOptions::new(database.url()).start_refused(SOON).expect_code(1).stderr.contains("casework migrate"));
    // The command it names is all there is to do.
    let token = make_ready(&database);
    let server = ServerProcess::start(database.url());
    let opened = block_on(async {
        Sender::new(server.url(), &token).send(&SentCommand::new("62", "open", "clerk", json!({}))).await
    });
    let _ = opened.expect_status(201);
}

on_both_databases! {
    /// Whatever a newer program made of it, an older one keeps its hands off.
    async fn a_schema_ahead_is_refused_in_words(database: &TestDatabase) {
        let token = make_ready(database);
        let mut server = ServerProcess::start(database.url());
        let _ = database.sql(FROM_THE_FUTURE);
        assert_eq!(state(database), "ahead");
        // A server that runs says so to whoever asks whether it is ready.
        let answer = Sender::new(server.url(), &token).get("/readyz").await.expect_problem(503, "unavailable");
        assert_eq!(answer.json()["checks"]["schema"], "ahead");
        server.kill_9();
        let mut outputs = refusals(database);
        outputs.push(casework(["migrate", "--database", database.url()]));
        for output in outputs {
            let output = output.expect_code(1);
            assert!(output.stderr.contains("newer"), "{output:#?}");
        }
        assert_eq!(state(database), "ahead");
    }

    async fn two_migrations_at_once_both_succeed(database: &TestDatabase) {
        // From nothing, then from one migration short.
        for _ in 0..2 {
            let mut both = [spawn_migrate(database.url()), spawn_migrate(database.url())];
            for child in &mut both {
                assert_eq!(child.wait().unwrap().code(), Some(0));
            }
            assert_eq!(state(database), "current");
            let _ = casework(["migrate", "--revert", "--database", database.url()]).expect_success();
        }
        let _ = make_ready(database);
        verify_is_clean(database);
    }
}

/// Each round is a new file, which all of them switch to WAL mode at once.
#[test]
fn processes_that_make_a_sqlite_file_at_once_all_succeed() {
    for _ in 0..15 {
        let database = TestDatabase::sqlite();
        let mut all: Vec<_> = (0..3).map(|_| spawn_migrate(database.url())).collect();
        for child in &mut all {
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
        assert_eq!(state(&database), "current");
    }
}

/// The migration stops at its nth statement (a trigger makes it sleep), is killed there, and the next one completes it.
#[test]
fn a_migration_killed_between_statements_is_completed_by_the_next() {
    let database = TestDatabase::postgres();
    let _ = database.sql(
        "CREATE SEQUENCE statements;
         CREATE TABLE stop_at (statement bigint NOT NULL);
         CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
           -- A sequence keeps counting when the transaction is rolled back.
           IF nextval('statements') = (SELECT statement FROM stop_at) THEN PERFORM pg_sleep(600); END IF;
         END $$;
         CREATE EVENT TRIGGER stop ON ddl_command_end EXECUTE FUNCTION stop()",
    );
    let sleeping =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND backend_type = 'client backend'";
    let mut killed = 0;
    // Counted from the start of each run; a later one has less to do and may come to its end.
    for statement in [1, 2, 4, 9, 14, 20, 6, 13] {
        let _ = database.sql(&format!(
            "DELETE FROM stop_at; INSERT INTO stop_at VALUES ({statement}); SELECT setval('statements', 1, false)"
        ));
        let mut child = spawn_migrate(database.url());
        let ended = eventually_some(SOON, "the migration stops or ends", || {
            let ended = child.try_wait().unwrap();
            (ended.is_some() || database.sql_value(sleeping) == "1").then_some(ended)
        });
        if let Some(status) = ended {
            assert!(status.success());
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        // The server notices by itself that its client is gone, and rolls back.
        eventually(SOON, "its connection is gone", || database.sql_value(others) == "0");
        assert_eq!(state(&database), "behind");
    }
    assert!(killed >= 4, "only {killed} migrations were killed");
    let _ = database.sql("DROP EVENT TRIGGER stop");
    let _ = make_ready(&database);
    assert_eq!(state(&database), "current");
    verify_is_clean(&database);
}

#[test]
fn sqlite_migrates_itself_whatever_happened_before() {
    let database = TestDatabase::sqlite();
    // Killed at some moment of its first migration, again and again: the times go through all of it.
    for round in 0..12 {
        let mut child = spawn_migrate(database.url());
        let begun = std::time::Instant::now();
        eventually(SOON, "its time is up", || begun.elapsed() >= Duration::from_millis(2 * round));
        let _ = child.kill();
        child.wait().unwrap();
    }
    let token = {
        // No `migrate`: the first command that opens it does that, a missing file included.
        let server = ServerProcess::start(database.url());
        let token = crate::support::token::issue_token(database.url(), "front-end", &["proxy"]).token;
        let open = SentCommand::new("62", "open", "clerk", json!({}));
        let opened = block_on(async { Sender::new(server.url(), &token).send(&open).await });
        let _ = opened.expect_status(201);
        token
    };
    // One migration short, the server brings it up to date; the tokens went with that migration.
    let _ = casework(["migrate", "--revert", "--database", database.url()]).expect_success();
    assert_eq!(state(&database), "behind");
    let server = ServerProcess::start(database.url());
    assert_eq!(state(&database), "current");
    let refused = block_on(async { Sender::new(server.url(), &token).get("/v1/cases/62").await });
    let _ = refused.expect_problem(401, "unauthenticated");
    verify_is_clean(&database);
}
