//! A migration of the schema that is interrupted, at each of its statements: the next run completes it.
//!
//! On PostgreSQL the backend is ended after each statement that defines something (by an event trigger), and the connection
//! is cut before each message. On SQLite the process is killed at each call that writes. Whatever was interrupted, the
//! second run ends well, and the schema is the one of a run that nobody disturbed.

use std::process::Command;

use crate::support::cli::{CliOutput, casework};
use crate::support::database::TestDatabase;
use crate::support::long_tests_wanted;
use crate::support::server::ServerProcess;

fn migrate(url: &str) -> CliOutput {
    casework(["migrate", "--database", url])
}

/// The whole schema, in the words of the database's own tools.
fn schema(database: &TestDatabase) -> String {
    if !database.is_postgres() {
        let rows = database.sql("SELECT type, name, sql FROM sqlite_master ORDER BY type, name");
        assert_eq!(database.sql_value("PRAGMA integrity_check"), "ok");
        return format!("{rows:#?}");
    }
    let output = Command::new("pg_dump").args(["--schema-only", "--no-owner", database.url()]).output();
    let output = output.expect("pg_dump is installed: apt-get install postgresql-client");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // Each dump has a random word of its own here.
    text.lines().filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
}

/// Completes an interrupted migration and compares it with one that nobody disturbed.
fn complete(database: &TestDatabase, undisturbed: &str, interrupted_at: &str) {
    let _ = migrate(database.url()).expect_success();
    let status = casework(["migrate", "--status", "--json", "--database", database.url()]).expect_success();
    assert_eq!(status.json()["state"], "current", "interrupted {interrupted_at}");
    assert!(schema(database) == undisturbed, "interrupted {interrupted_at}, the schema is another one");
}

/// The completed schema is one that a server works on.
fn serves(database: &TestDatabase) {
    let server = ServerProcess::start(database.url());
    assert_eq!(server.readiness(), Some(200));
}

/// Every step in the long run, else each so many-th.
fn step(short: usize) -> usize {
    if long_tests_wanted() { 1 } else { short }
}

mod heavy {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::support::tcp_proxy::TcpProxy;
    use crate::support::wait::eventually;
    use crate::{rig::SOON, support::cli::casework_command};

    /// Ends the backend of the session that has defined so many things.
    const TRIGGER: &str = "CREATE SEQUENCE defined; \
        CREATE FUNCTION end_at() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
          IF nextval('public.defined') = LIMIT THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; END $$; \
        CREATE EVENT TRIGGER end_at ON ddl_command_end EXECUTE FUNCTION end_at()";
    const NO_TRIGGER: &str = "DROP EVENT TRIGGER end_at; DROP FUNCTION end_at; DROP SEQUENCE defined";

    fn undisturbed() -> String {
        let database = TestDatabase::postgres();
        let _ = migrate(database.url()).expect_success();
        schema(&database)
    }

    #[test]
    fn a_migration_of_postgresql_that_ends_at_any_statement_is_completed() {
        let undisturbed = undisturbed();
        let mut interrupted = 0;
        for at in 1.. {
            let database = TestDatabase::postgres();
            database.sql(&TRIGGER.replace("LIMIT", &at.to_string()));
            let first = migrate(database.url());
            let defined: u32 = database.sql_value("SELECT last_value FROM defined").parse().unwrap();
            database.sql(NO_TRIGGER);
            if defined < at {
                let _ = first.expect_success();
                break;
            }
            assert_ne!(first.code, Some(0), "its backend ended at statement {at}: {first:?}");
            interrupted += 1;
            complete(&database, &undisturbed, &format!("at statement {at}"));
            if at == 1 {
                serves(&database);
            }
        }
        eprintln!("a migration of PostgreSQL was ended at each of {interrupted} statements");
        assert!(interrupted >= 15, "{interrupted} statements are too few");
    }

    #[test]
    fn a_migration_of_postgresql_that_is_cut_off_at_any_message_is_completed() {
        let undisturbed = undisturbed();
        let messages = {
            let database = TestDatabase::postgres();
            let (proxy, url) = TcpProxy::before(database.url());
            let _ = migrate(&url).expect_success();
            proxy.counts().frontend_messages.values().sum::<usize>()
        };
        let mut interrupted = 0;
        for at in (0..messages).step_by(step(6)) {
            let database = TestDatabase::postgres();
            let (proxy, url) = TcpProxy::before(database.url());
            let seen = std::sync::atomic::AtomicUsize::new(0);
            let hold = proxy.hold_next(move |_| seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == at);
            let mut first = casework_command().args(["migrate", "--database", &url]).spawn().unwrap();
            // The last few messages may come in another order, or not at all.
            let mut ended = None;
            eventually(SOON, "the message comes, or the program ends", || {
                ended = first.try_wait().unwrap();
                hold.is_held() || ended.is_some()
            });
            if ended.is_none() {
                hold.cut();
            }
            // Also when the program has ended: its last message may be the one that is held, and its session with it.
            proxy.cut();
            if ended.is_none() {
                let status = first.wait().unwrap();
                interrupted += usize::from(!status.success());
            }
            complete(&database, &undisturbed, &format!("at message {at}"));
        }
        eprintln!("a migration of PostgreSQL was cut off at {interrupted} of its {messages} messages");
        assert!(interrupted >= 5, "{interrupted} messages are too few");
    }

    #[test]
    fn a_migration_of_sqlite_that_is_killed_at_any_write_is_completed() {
        let undisturbed = {
            let database = TestDatabase::sqlite();
            let _ = migrate(database.url()).expect_success();
            schema(&database)
        };
        let mut interrupted = 0;
        for at in (1..).step_by(step(2)) {
            let database = TestDatabase::sqlite();
            let calls = "pwrite64,fdatasync,ftruncate,unlink";
            let trace = tempfile::NamedTempFile::new().unwrap();
            let status = Command::new("strace")
                .args(["-f", "-qq", "-e", &format!("trace={calls}")])
                .args(["-e", &format!("inject={calls}:signal=KILL:when={at}"), "-o"])
                .arg(trace.path())
                .arg(env!("CARGO_BIN_EXE_casework"))
                .args(["migrate", "--database", database.url()])
                .stdout(std::process::Stdio::null())
                .status()
                .expect("strace is installed: apt-get install strace");
            if status.success() {
                break;
            }
            // strace ends as its program did.
            assert_eq!(status.signal(), Some(9), "killed at call {at}, and not ended otherwise");
            interrupted += 1;
            complete(&database, &undisturbed, &format!("at call {at}"));
            if at == 1 {
                serves(&database);
            }
        }
        eprintln!("a migration of SQLite was killed at {interrupted} of its calls that write");
        assert!(interrupted >= 10, "{interrupted} calls are too few");
    }
}
