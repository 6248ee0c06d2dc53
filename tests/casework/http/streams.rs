//! `POST /v1/commands`: lines in, answers out, both ways at once.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Desk, new_id};
use crate::http::SOON;
use crate::support::cli::casework;
use crate::support::database::TestDatabase;
use crate::support::postgres::PrivateServer;
use crate::support::wait::eventually_async;

/// The sending half of an open stream.
pub(super) type Lines = mpsc::UnboundedSender<Bytes>;

/// The receiving half: pieces, and lines that came with an earlier piece.
pub(super) struct Answers {
    pieces: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
    rest: Vec<u8>,
    ready: VecDeque<Value>,
}

impl Answers {
    /// The next answer; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        while self.ready.is_empty() {
            self.rest.extend_from_slice(&self.pieces.next().await?.expect("the stream goes on"));
            while let Some(at) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                self.ready.push_back(serde_json::from_slice(&line).expect("an answer is JSON"));
            }
        }
        self.ready.pop_front()
    }
}

/// Opens a stream: its head is answered before a line is sent.
pub(super) async fn open_stream(desk: &Desk, token: &str) -> (Lines, Answers) {
    let (lines, receiver) = mpsc::unbounded_channel::<Bytes>();
    let body = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|line| (Ok::<_, std::io::Error>(line), receiver))
    });
    let response = reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .post(format!("{}/v1/commands", desk.server.url()))
        .bearer_auth(token)
        .header("content-type", "application/x-ndjson")
        .body(reqwest::Body::wrap_stream(body))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let answers = Answers { pieces: Box::pin(response.bytes_stream()), rest: Vec::new(), ready: VecDeque::new() };
    (lines, answers)
}

/// Sends one line and waits for its answer.
pub(super) async fn exchange(lines: &Lines, answers: &mut Answers, line: &Value) -> Value {
    lines.send(format!("{line}\n").into()).unwrap();
    answers.next().await.expect("each line is answered")
}

pub(super) fn line(case_id: &str, command: &str, members: Value) -> Value {
    let mut line = json!({"case_id": case_id, "operation_id": new_id(), "command": command});
    line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    line
}

pub(super) async fn post(desk: &Desk, lines: &[String], token: &str) -> Vec<Value> {
    let answer = desk.client.post_lines(lines.join("\n"), token).await.expect_status(200);
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

on_both_databases! {
    async fn answers_come_while_the_client_goes_on_sending(database: &TestDatabase) {
        let desk = Desk::open(database);
        let (lines, mut answers) = open_stream(&desk, &desk.admin).await;
        let opened = exchange(&lines, &mut answers, &line("62", "open", json!({}))).await;
        assert_eq!((&opened["line"], &opened["status"], &opened["replayed"]), (&json!(1), &json!(201), &json!(false)));
        let note = line("62", "note", json!({"reason": "Seen.", "at": "2026-01-31T12:00:00Z"}));
        let first = exchange(&lines, &mut answers, &note).await;
        assert_eq!((&first["line"], &first["status"]), (&json!(2), &json!(200)));
        assert_eq!(first["outcome"]["actor"], "admin");
        let again = exchange(&lines, &mut answers, &note).await;
        assert_eq!(again["replayed"], true);
        assert_eq!(again["outcome"], first["outcome"]);
        drop(lines);
        assert_eq!(answers.next().await, None);
        assert_eq!(database.count("operations"), 2);
    }

    async fn a_bad_line_gets_its_answer_and_the_stream_goes_on(database: &TestDatabase) {
        let desk = Desk::open(database);
        let pad = |bytes: usize| {
            let short = line("62", "note", json!({"reason": "Seen.", "payload": {"x": ""}})).to_string();
            short.replace(r#""x":"""#, &format!(r#""x":"{}""#, "x".repeat(bytes - short.len())))
        };
        let lines = [
            line("62", "open", json!({})).to_string(),
            String::new(),
            "  \r".into(),
            "{".into(),
            "[]".into(),
            r#"{"case_id":"62","command":"note","reason":"x"}"#.into(),
            r#"{"case_id":"62","operation_id":"x","command":"note","reason":"x"}"#.into(),
            line("62", "note", json!({"reason": " ", "surprise": 1})).to_string(),
            pad(65_537),
            pad(200_000),
            pad(65_536),
            line("62", "approve", json!({"reason": "x", "expected_revision": 0})).to_string(),
            line("63", "note", json!({"reason": "Seen."})).to_string(),
            line("62", "note", json!({"reason": "Seen."})).to_string(),
        ];
        let answers = post(&desk, &lines, &desk.admin).await;
        let told: Vec<(u64, u64, &str)> = answers
            .iter()
            .map(|answer| {
                let code = answer["problem"]["code"].as_str().unwrap_or_default();
                (answer["line"].as_u64().unwrap(), answer["status"].as_u64().unwrap(), code)
            })
            .collect();
        assert_eq!(told, [
            (1, 201, ""),
            (4, 400, "malformed-json"),
            (5, 422, "invalid-command"),
            (6, 400, "operation-id-missing"),
            (7, 400, "operation-id-invalid"),
            (8, 422, "invalid-command"),
            (9, 413, "too-large"),
            (10, 413, "too-large"),
            (11, 200, ""),
            (12, 403, "not-assigned"),
            (13, 404, "case-not-found"),
            (14, 200, ""),
        ]);
        assert_eq!(answers[5]["problem"]["errors"][1]["pointer"], "/surprise");
        assert_eq!(database.count("operations"), 3);
    }

    async fn roles_and_actors_are_checked_line_by_line(database: &TestDatabase) {
        let desk = Desk::open(database);
        let lines = [
            line("62", "open", json!({})),
            line("62", "assign", json!({"payload": {"assignee": "47"}})),
            line("62", "note", json!({"actor": "47", "reason": "Seen."})),
            line("62", "amend", json!({"reason": "Amended.", "expected_revision": 0})),
            line("62", "note", json!({"actor": "clerk", "reason": "Seen."})),
        ];
        let lines = lines.map(|line| line.to_string());
        let statuses = |answers: Vec<Value>| answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(statuses(post(&desk, &lines, &desk.clerk).await), [201, 200, 403, 403, 200]);
        let approve = line("62", "approve", json!({"actor": "47", "reason": "Reviewed.", "expected_revision": 0}));
        assert_eq!(statuses(post(&desk, &[approve.to_string()], &desk.proxy).await), [200]);
        let _ = desk.client.post_lines("", "unknown").await.expect_problem(401, "unauthenticated");
        let headers = [("content-type", "application/json")];
        let wrong = desk.raw("/v1/commands", &headers, "", &desk.clerk).await;
        let _ = wrong.expect_problem(415, "unsupported-media-type");
    }

    /// What a stream takes, `replay --url` takes from a file: a line without an actor is the subject's.
    async fn a_log_without_actors_is_replayed_in_the_name_of_the_token(database: &TestDatabase) {
        let desk = Desk::open(database);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.jsonl");
        let lines = [line("62", "open", json!({})), line("62", "note", json!({"reason": "Seen."}))];
        std::fs::write(&log, lines.map(|line| line.to_string()).join("\n")).unwrap();
        let replay = ["replay", log.to_str().unwrap(), "--url", desk.server.url(), "--token", &desk.clerk, "--json"];
        let report: Value = serde_json::from_str(&casework(replay).expect_success().stdout).unwrap();
        assert_eq!(report["applied"], 2, "{report}");
        assert_eq!(database.sql_value("SELECT DISTINCT actor FROM operations"), "clerk");
        let into_database = ["replay", log.to_str().unwrap(), "--database", database.url()];
        let refused = casework(into_database).expect_code(1);
        assert!(refused.stderr.contains("`actor` is missing"), "{}", refused.stderr);
    }

    /// 3,000 lines of 30 cases, exact repeats among them, sent without reading a single answer before the end.
    async fn lines_of_a_case_run_in_order_and_answers_come_in_input_order(database: &TestDatabase) {
        check_order(database).await;
    }
}

/// A line without a final answer: those behind it, of the same case, are not run on this stream any more.
#[tokio::test(flavor = "multi_thread")]
async fn lines_behind_an_unclear_one_are_not_run() {
    let server = PrivateServer::start();
    let database = server.database();
    let desk = Desk::open_at(database.url(), &[]);
    desk.open_case("62").await;
    desk.open_case("63").await;
    let note = |case_id| line(case_id, "note", json!({"reason": "Seen."}));
    let (lines, mut answers) = open_stream(&desk, &desk.clerk).await;
    assert_eq!(exchange(&lines, &mut answers, &note("62")).await["status"], 200);
    server.stop_immediate();
    let unclear = note("62");
    let answer = exchange(&lines, &mut answers, &unclear).await;
    assert_eq!((&answer["status"], &answer["problem"]["code"]), (&json!(503), &json!("unavailable")));
    assert_eq!(answer["problem"]["reuse_key"], true);
    server.start_again();
    eventually_async(SOON, "commands are applied again", async || {
        desk.send("63", "note", json!({"reason": "Seen."}), &desk.clerk).await.status == 200
    })
    .await;
    let behind = note("62");
    let answer = exchange(&lines, &mut answers, &behind).await;
    assert_eq!((&answer["status"], &answer["problem"]["code"]), (&json!(503), &json!("unavailable")));
    assert_eq!(exchange(&lines, &mut answers, &note("63")).await["status"], 200);
    drop(lines);
    assert_eq!(answers.next().await, None);
    // Its own connection may still be waiting for its fence while the other one commits.
    eventually_async(SOON, "the unclear line is settled", async || {
        post(&desk, &[unclear.to_string()], &desk.clerk).await[0]["status"] == 200
    })
    .await;
    let again = post(&desk, &[unclear.to_string(), behind.to_string()], &desk.clerk).await;
    let statuses: Vec<&Value> = again.iter().map(|answer| &answer["status"]).collect();
    assert_eq!(statuses, [200, 200]);
    assert_eq!(again[1]["replayed"], false);
}

async fn check_order(database: &TestDatabase) {
    let desk = Desk::open(database);
    let mut lines = Vec::new();
    for case in 0..30 {
        lines.push(line(&format!("case {case}"), "open", json!({})));
    }
    for revision in 0..98 {
        for case in 0..30 {
            let members = json!({"reason": "Amended.", "expected_revision": revision});
            lines.push(line(&format!("case {case}"), "amend", members));
        }
    }
    for case in 0..30 {
        lines.push(lines[30 + case].clone());
    }
    let texts: Vec<String> = lines.iter().map(Value::to_string).collect();
    let answers = post(&desk, &texts, &desk.admin).await;
    assert_eq!(answers.len(), lines.len());
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer["line"], i + 1);
        let expected = if i < 30 { 201 } else { 200 };
        assert_eq!(answer["status"], expected, "{answer}");
        assert_eq!(answer["replayed"], i >= 30 * 99);
        assert_eq!(answer["outcome"]["operation_id"], lines[i]["operation_id"]);
    }
    assert_eq!(database.count("operations"), 30 * 99);
}
