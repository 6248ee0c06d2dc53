//! The commands around the logs: expected outcomes, tokens, migrations, workflow files, and the exit codes.

use super::{case_62, line, log, migrate, replay_text};
use crate::support::cli::{casework, casework_command};
use crate::support::database::TestDatabase;
use crate::support::token::{issue_token, issue_token_with};

#[test]
fn expected_outcomes_that_differ_give_4_and_the_first_ten_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("expected.tsv");
    let expect = ["--expect", table.to_str().unwrap()];
    let right = (1..=7).map(|line| format!("x\tapplied\t{line}\n")).collect::<String>();
    std::fs::write(&table, format!("note\toutcome\tline\n{right}")).unwrap();
    let database = TestDatabase::sqlite();
    replay_text(&database, &log(&case_62()), &expect).expect_success();
    // The same log again is replayed, line by line.
    let differing = replay_text(&database, &log(&case_62()), &expect).expect_code(4);
    assert!(differing.stderr.contains("7 outcomes differ"), "{differing:#?}");
    assert!(differing.stderr.contains("line 1: expected applied, got replayed"), "{differing:#?}");
    assert_eq!(differing.json()["replayed"], 7);
    let missing = replay_text(&TestDatabase::sqlite(), &log(&case_62()[..5]), &expect).expect_code(4);
    assert!(missing.stderr.contains("line 6: expected applied, but it was not run"), "{missing:#?}");
    std::fs::write(&table, "line\tresult\n").unwrap();
    let unusable = replay_text(&TestDatabase::sqlite(), "", &expect).expect_code(1);
    assert!(unusable.stderr.contains("no column `outcome`"), "{unusable:#?}");
}

#[test]
fn the_report_has_the_promised_members() {
    let report = replay_text(&TestDatabase::sqlite(), &log(&case_62()), &[]).expect_success().json();
    let members: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = ["applied", "lines", "p50_ms", "p95_ms", "p99_ms", "per_second", "rejected", "replayed"];
    let mut members = members;
    members.sort_unstable();
    assert_eq!(members, promised);
    let readable = casework(["replay", "--help"]).expect_success().stdout;
    assert!(readable.contains("--keep-going") && readable.contains("--expect"), "{readable}");
}

#[test]
fn a_server_or_a_database_that_is_not_there_gives_5() {
    // Port 1 refuses at once.
    let database = casework(["verify", "--database", "postgres://casework@127.0.0.1:1/casework"]).expect_code(5);
    assert!(database.stderr.contains("not available"), "{database:#?}");
}

#[test]
fn arguments_that_make_no_sense_give_2() {
    for arguments in [
        &["fly"][..],
        &["replay"],
        &["replay", "x", "--database", "mysql://x"],
        &["replay", "x", "--url", "http://127.0.0.1:1"],
        &["replay", "x", "--concurrency", "0"],
        &["token", "issue", "--subject", "47"],
        &["token", "issue", "--subject", "47", "--role", "king"],
        &["token", "issue", "--subject", "sql:47", "--role", "clerk"],
        &["token", "issue", "--subject", "47", "--role", "clerk", "--expires", "soon"],
        &["migrate", "--status", "--revert"],
    ] {
        casework(arguments).expect_code(2);
    }
    let missing = casework(["replay", "no-such-log.jsonl", "--database", TestDatabase::sqlite().url()]).expect_code(1);
    assert!(missing.stderr.contains("no-such-log.jsonl can't be opened"), "{missing:#?}");
}

on_both_databases! {
    /// The token is shown once; the database keeps a hash.
    async fn a_token_is_issued_listed_and_revoked(database: &TestDatabase) {
        migrate(database);
        let token = issue_token(database.url(), "47", &["reviewer", "clerk"]);
        let other = issue_token_with(database.url(), "81", &["admin"], &["--expires", "90d"]);
        assert!(token.token.len() >= 43 && token.token != other.token);
        let list = || casework(["token", "list", "--json", "--database", database.url()]).expect_success().json();
        let tokens = list();
        assert_eq!(tokens.as_array().unwrap().len(), 2);
        assert_eq!(tokens[0]["roles"], serde_json::json!(["clerk", "reviewer"]));
        assert_eq!((&tokens[0]["expires_at"], &tokens[0]["state"]), (&serde_json::Value::Null, &"active".into()));
        assert!(tokens[1]["expires_at"].as_str().unwrap().ends_with('Z'));
        assert!(!tokens.to_string().contains(&token.token));
        assert!(!format!("{:?}", database.sql("SELECT * FROM api_tokens")).contains(&token.token));
        casework(["token", "revoke", &token.id, "--database", database.url()]).expect_success();
        casework(["token", "revoke", &token.id, "--database", database.url()]).expect_success();
        assert_eq!(list()[0]["state"], "revoked");
        let unknown = casework(["token", "revoke", "6f1e4c52-9f0a-4b8e-8d2b-000000000001", "--database", database.url()]);
        assert!(unknown.expect_code(1).stderr.contains("there is no token"));
        let table = casework(["token", "list", "--database", database.url()]).expect_success().stdout;
        assert!(table.contains("81") && table.contains(&other.id), "{table}");
    }

    /// Up, down and up again; each step says what it did.
    async fn migrations_go_up_and_down(database: &TestDatabase) {
        let run = |argument: &str| casework(["migrate", "--json", "--database", database.url()].into_iter().chain((!argument.is_empty()).then_some(argument))).expect_success().json();
        assert_eq!(run("--status")["state"], "behind");
        let applied = run("")["applied"].as_array().unwrap().len();
        assert!(applied > 0);
        assert_eq!(run("")["applied"], serde_json::json!([]));
        assert_eq!(run("--status")["state"], "current");
        for _ in 0..applied {
            assert!(run("--revert")["reverted"].is_string());
        }
        assert_eq!(run("--revert")["reverted"], serde_json::Value::Null);
        assert_eq!(run("")["applied"].as_array().unwrap().len(), applied);
    }

    /// A schema from the future is refused in words, whatever the command.
    async fn a_schema_that_is_ahead_is_refused_in_words(database: &TestDatabase) {
        migrate(database);
        let columns = if database.is_postgres() { "(version, run_on) VALUES ('9999', now())" } else { "(version) VALUES ('9999')" };
        database.sql(&format!("INSERT INTO __diesel_schema_migrations {columns}"));
        for command in ["verify", "export", "migrate"] {
            let refused = casework([command, "--database", database.url()]).expect_code(1);
            assert!(refused.stderr.contains("newer than this program"), "{refused:#?}");
        }
    }
}

#[test]
fn a_schema_that_is_behind_is_refused_on_postgres_and_brought_up_to_date_on_sqlite() {
    let postgres = TestDatabase::postgres();
    let refused = replay_text(&postgres, &log(&case_62()), &[]).expect_code(1);
    assert!(refused.stderr.contains("casework migrate --database postgres://"), "{refused:#?}");
    let sqlite = TestDatabase::sqlite();
    replay_text(&sqlite, &log(&case_62()), &[]).expect_success();
    assert_eq!(sqlite.count("operations"), 7);
}

#[test]
fn workflow_files_are_checked_with_line_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let action = "[[action]]\nname = \"close\"\nfrom = [\"open\"]\nto = \"closed\"\nby = \"anyone\"\nreason = \"optional\"\nrevision = \"optional\"\n";
    let good = file("good.toml", &format!("name = \"small\"\ninitial = \"open\"\n{action}"));
    let checked = casework(["workflow", "check", &good]).expect_success();
    assert!(checked.stdout.contains("workflow `small`, 1 actions"), "{checked:#?}");
    let bad = file("bad.toml", &format!("name = \"small\"\ninitial = \"open\"\ncolour = \"red\"\n{action}"));
    let checked = casework(["workflow", "check", &good, &bad]).expect_code(1);
    assert!(checked.stderr.contains("bad.toml") && checked.stderr.contains("line 3"), "{checked:#?}");

    // A file that differs under a name that is stored is refused wherever it is used.
    let database = TestDatabase::sqlite();
    let open = line("7", 1, "47", r#""command":"open""#);
    replay_text(&database, &log(std::slice::from_ref(&open)), &["--workflow", &good]).expect_success();
    assert_eq!(database.sql_value("SELECT workflow FROM cases"), "small");
    let other =
        file("other.toml", &format!("name = \"small\"\ninitial = \"open\"\n{}", action.replace("close\"", "shut\"")));
    let refused = replay_text(&database, &log(&[open]), &["--workflow", &other]).expect_code(1);
    assert!(refused.stderr.contains("small-2"), "{refused:#?}");
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = casework(["completions", shell]).expect_success().stdout;
        assert!(script.contains("casework") && script.contains("replay"), "{shell}");
    }
}

#[test]
fn the_database_may_be_named_by_the_environment() {
    let database = TestDatabase::sqlite();
    migrate(&database);
    let mut command = casework_command();
    let output = command.args(["verify"]).env("CASEWORK_DATABASE_URL", database.url()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
