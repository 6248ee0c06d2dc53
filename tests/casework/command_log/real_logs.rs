//! The recorded logs and their storms: every outcome as expected, the final table equal, `verify` clean; on both
//! databases, from file and over HTTP.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::{migrate, verify};
use crate::support::cli::{CliOutput, casework, casework_command};
use crate::support::data::{RecordedLog, gzipped_lines, recorded_log};
use crate::support::database::TestDatabase;
use crate::support::long_tests_wanted;
use crate::support::not_run::say_not_run;
use crate::support::server::ServerOptions;
use crate::support::token::issue_token;
use crate::support::wait::eventually;

/// What becomes of the commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `replay --database`.
    File,
    /// `replay --url`, as NDJSON to a running server.
    Http,
}

#[track_caller]
fn replay(database: &TestDatabase, way: Way, file: &Path, log: &RecordedLog, further: &[&str]) -> CliOutput {
    let path = |path: &Path| path.to_str().expect("a path in the project's language").to_owned();
    let mut arguments = vec!["replay".to_owned(), path(file), "--json".to_owned()];
    arguments.extend(further.iter().map(|argument| (*argument).to_owned()));
    if way == Way::File {
        arguments.extend(["--database".to_owned(), database.url().to_owned()]);
        arguments.extend(["--workflow".to_owned(), path(&log.workflow)]);
        return casework(arguments);
    }
    let server = ServerOptions::new(database.url()).argument("--workflow").argument(&log.workflow).start();
    let token = issue_token(database.url(), "replayer", &["proxy"]);
    arguments.extend(["--url".to_owned(), server.url().to_owned(), "--token".to_owned(), token.token]);
    casework(arguments)
}

#[track_caller]
fn check_final_table(database: &TestDatabase, log: &RecordedLog) {
    let mut expected: Vec<Vec<String>> = gzipped_lines(&log.final_table)
        .iter()
        .skip(1)
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect();
    expected.sort();
    let mut rows = database.sql(
        "SELECT case_id, revision, status, (SELECT count(*) FROM assignments a WHERE a.case_id = c.case_id) FROM cases c",
    );
    rows.sort();
    assert_eq!(rows.len(), expected.len(), "as many cases as in the final table");
    let different = rows.iter().zip(&expected).find(|(row, expected)| row != expected);
    assert_eq!(different, None, "the first case that differs from the final table");
}

/// The log itself: every line applied. Then its storm into another database: every line's outcome as expected.
#[track_caller]
fn check_log(name: &str, lines: u64, way: Way, further: &[&str], fresh: fn() -> TestDatabase) {
    let Some(log) = recorded_log(name) else { return };
    let database = fresh();
    migrate(&database);
    let report = replay(&database, way, &log.commands, &log, further).expect_success().json();
    assert_eq!((&report["lines"], &report["applied"]), (&lines.into(), &lines.into()), "{report}");
    check_final_table(&database, &log);
    assert_eq!(verify(&database).expect_success().json()["operations"], lines);

    let database = fresh();
    migrate(&database);
    let expected = log.storm_expected.to_str().expect("a path in the project's language");
    let further = [further, &["--expect", expected]].concat();
    let report = replay(&database, way, &log.storm, &log, &further).expect_success().json();
    assert_eq!(report["applied"], lines, "{report}");
    check_final_table(&database, &log);
    assert_eq!(verify(&database).expect_success().json()["operations"], lines);
}

/// When the large log is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// In every run; in a build without optimisation it takes minutes, and runs with `--long`.
    Always,
    /// With `--long`: each way and each database has its turn in every run, not each pair of them.
    Long,
}

#[track_caller]
fn domestic(when: When, way: Way, database: fn() -> TestDatabase) {
    if !long_tests_wanted() && (when == When::Long || cfg!(debug_assertions)) {
        return say_not_run("the large log in this way needs --long (and an optimised build)");
    }
    check_log("domestic", 109_414, way, &[], database);
}

mod heavy {
    use super::*;

    #[test]
    fn receipt_and_its_storm_on_sqlite_from_file() {
        check_log("receipt", 12_443, Way::File, &[], TestDatabase::sqlite);
    }

    #[test]
    fn receipt_and_its_storm_on_postgres_from_file() {
        check_log("receipt", 12_443, Way::File, &[], TestDatabase::postgres);
    }

    #[test]
    fn receipt_and_its_storm_on_sqlite_over_http() {
        check_log("receipt", 12_443, Way::Http, &[], TestDatabase::sqlite);
    }

    #[test]
    fn receipt_and_its_storm_on_postgres_over_http() {
        check_log("receipt", 12_443, Way::Http, &[], TestDatabase::postgres);
    }

    #[test]
    fn receipt_and_its_storm_one_command_at_a_time_on_sqlite() {
        check_log("receipt", 12_443, Way::File, &["--concurrency", "1"], TestDatabase::sqlite);
    }

    #[test]
    fn receipt_and_its_storm_one_command_at_a_time_on_postgres() {
        check_log("receipt", 12_443, Way::File, &["--concurrency", "1"], TestDatabase::postgres);
    }

    on_both_databases! {
        /// The client resends what has no clear answer, in order, under the same ids.
        async fn a_server_killed_under_a_replay_loses_nothing(database: &TestDatabase) {
            let Some(log) = recorded_log("receipt") else { return };
            migrate(database);
            let mut server =
                ServerOptions::new(database.url()).argument("--workflow").argument(&log.workflow).start();
            let token = issue_token(database.url(), "replayer", &["proxy"]);
            let mut replay = casework_command();
            replay.arg("replay").arg(&log.storm).arg("--json").args(["--url", server.url(), "--token", &token.token]);
            let replay = replay.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            for operations in [1_000, 4_000, 8_000] {
                eventually(Duration::from_secs(240), "the replay goes on", || database.count("operations") > operations);
                server.kill_9();
                server.start_again();
            }
            let output = replay.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            // An answer that was lost comes back as a replay.
            let count = |member: &str| report[member].as_u64().unwrap();
            assert_eq!((count("lines"), count("applied") + count("replayed")), (13_437, 13_065), "{report}");
            assert!(report["retries"].as_u64().unwrap() > 0, "{report}");
            check_final_table(database, &log);
            assert_eq!(verify(database).expect_success().json()["operations"], 12_443);
        }
    }

    #[test]
    fn domestic_and_its_storm_on_sqlite_from_file() {
        domestic(When::Long, Way::File, TestDatabase::sqlite);
    }

    #[test]
    fn domestic_and_its_storm_on_postgres_from_file() {
        domestic(When::Always, Way::File, TestDatabase::postgres);
    }

    #[test]
    fn domestic_and_its_storm_on_sqlite_over_http() {
        domestic(When::Always, Way::Http, TestDatabase::sqlite);
    }

    #[test]
    fn domestic_and_its_storm_on_postgres_over_http() {
        domestic(When::Long, Way::Http, TestDatabase::postgres);
    }
}
