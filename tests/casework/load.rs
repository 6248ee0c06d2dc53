//! `casework load` against a running server and in process: every mix, all ways of sending, both loops; and a server that lies.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::support::cli::{CliOutput, casework};
use crate::support::database::TestDatabase;
use crate::support::server::ServerProcess;
use crate::support::token::issue_token;

fn load(server: &str, token: &str, options: &[&str]) -> CliOutput {
    let fixed = ["load", "--url", server, "--token", token, "--json", "--warm-up", "0.2"];
    casework(fixed.iter().chain(options))
}

fn summary(output: CliOutput) -> Value {
    serde_json::from_str(&output.expect_success().stdout).unwrap()
}

on_both_databases! {
    async fn each_mix_is_applied_or_replayed_and_the_database_is_clean(database: &TestDatabase) {
        casework(["migrate", "--database", database.url()]).expect_success();
        let token = issue_token(database.url(), "load", &["clerk"]).token;
        let server = ServerProcess::start(database.url());
        for mix in ["spread", "hot", "replay", "storm"] {
            for way in [&["--connections", "16"][..], &["--connections", "2", "--stream", "32"]] {
                let common = ["--duration", "1", "--mix", mix, "--cases", "50", "--database", database.url()];
                let options: Vec<&str> = common.iter().chain(way).copied().collect();
                let report = summary(load(server.url(), &token, &options));
                let count = |member: &str| report[member].as_u64().unwrap();
                let is_sent = [count("applied") > 0, count("replayed") > 0];
                // Of a handful of commands none may be a repeat.
                let has_repeats = mix == "replay" || mix == "storm" && (is_sent[1] || count("applied") > 300);
                assert_eq!(is_sent, [mix != "replay", has_repeats], "{report}");
                assert_eq!((count("wrong"), count("faults")), (0, 0), "{report}");
                assert_eq!(report["errors"], serde_json::json!({}), "{report}");
                let quantiles = ["p50_ms", "p95_ms", "p99_ms", "max_ms"].map(|member| report[member].as_f64().unwrap());
                assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{report}");
            }
        }
        // An open loop sends at its rate, however fast the server is.
        let report = summary(load(server.url(), &token, &["--cases", "10", "--rate", "100", "--duration", "2"]));
        let applied = report["applied"].as_u64().unwrap();
        assert!((150..=201).contains(&applied), "{report}");
        assert_eq!(report["faults"], Value::Null);
    }
}

on_both_databases! {
    async fn a_load_in_process_commits_on_the_database(database: &TestDatabase) {
        casework(["migrate", "--database", database.url()]).expect_success();
        for mix in ["spread", "hot", "replay", "storm"] {
            let common = ["load", "--json", "--database", database.url(), "--warm-up", "0.2", "--duration", "1"];
            let report = summary(casework(common.iter().chain(&["--mix", mix, "--cases", "50", "--connections", "128"])));
            let count = |member: &str| report[member].as_u64().unwrap();
            assert_eq!((count("applied") > 0, count("wrong"), count("faults")), (mix != "replay", 0, 0), "{report}");
            assert!(mix != "replay" || count("replayed") > 0, "{report}");
            assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        }
    }
}

#[test]
fn a_load_needs_something_to_load() {
    for (options, hint) in
        [(&["load"][..], "--url"), (&["load", "--database", "sqlite:x.db", "--stream", "4"], "--url")]
    {
        let refused = casework(options).expect_code(2);
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    }
}

#[test]
fn an_error_says_what_to_do() {
    let database = TestDatabase::sqlite();
    casework(["migrate", "--database", database.url()]).expect_success();
    let token = issue_token(database.url(), "47", &["reviewer"]).token;
    let mut server = ServerProcess::start(database.url());
    let forbidden = load(server.url(), &token, &[]).expect_code(1);
    assert!(forbidden.stderr.contains("forbidden") && forbidden.stderr.contains("clerk"), "{}", forbidden.stderr);
    let unknown = load(server.url(), "unknown", &[]).expect_code(5);
    assert!(unknown.stderr.contains("unauthenticated"), "{}", unknown.stderr);
    let url = server.url().to_owned();
    server.kill_9();
    let away = load(&url, &token, &[]).expect_code(5);
    assert!(away.stderr.contains("can't be reached"), "{}", away.stderr);
    let wrong = load("https://127.0.0.1:1", &token, &[]).expect_code(2);
    assert!(wrong.stderr.contains("TLS"), "{}", wrong.stderr);
}

/// It opens every case and then gives every command the same outcome.
#[test]
fn a_server_that_answers_wrongly_is_caught() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let _ = socket.read(&mut buffer);
                let is_stream = buffer.starts_with(b"POST /v1/commands");
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                if is_stream {
                    let line = "{\"line\":1,\"status\":201,\"replayed\":false,\"outcome\":{}}\n";
                    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                    let _ = socket.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}").as_bytes());
                    while socket.read(&mut buffer).is_ok_and(|read| read > 0) {}
                    return;
                }
                loop {
                    let body = r#"{"operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11"}"#;
                    let _ = socket.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
                    if socket.read(&mut buffer).is_ok_and(|read| read == 0) {
                        return;
                    }
                }
            });
        }
    });
    let output = load(&url, "token", &["--cases", "1", "--connections", "1", "--duration", "1"]).expect_code(3);
    assert!(output.stderr.contains("wrong"), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["applied"], 0, "{report}");
}
