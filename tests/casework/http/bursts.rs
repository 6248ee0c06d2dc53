//! Many commands at once for a case that is not in memory: all that waited for its first read is run, and in its order.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::streams::{line, post};
use super::{Desk, SOON};
use crate::support::cli::casework;
use crate::support::database::TestDatabase;

/// Many more than an actor's mailbox holds by itself (16).
const BURST: usize = 64;

/// Opens cases, then starts the server again: none of them is in memory.
async fn with_cold_cases(database: &TestDatabase, cases: usize) -> (Desk, Vec<String>) {
    let mut desk = Desk::open(database);
    let case_ids: Vec<String> = (0..cases).map(|case| format!("case {case}")).collect();
    let opens: Vec<String> = case_ids.iter().map(|id| line(id, "open", json!({})).to_string()).collect();
    assert!(post(&desk, &opens, &desk.clerk).await.iter().all(|answer| answer["status"] == 201));
    desk.server.sigterm();
    assert_eq!(desk.server.wait(SOON).code(), Some(0));
    desk.server.start_again();
    (desk, case_ids)
}

fn note(number: usize) -> Value {
    json!({"reason": format!("Note {number}.")})
}

on_both_databases! {
    async fn every_line_of_a_stream_for_a_cold_case_is_run(database: &TestDatabase) {
        let (desk, case_ids) = with_cold_cases(database, 20).await;
        for case_id in &case_ids {
            let lines: Vec<String> = (0..BURST).map(|i| line(case_id, "note", note(i)).to_string()).collect();
            for (i, answer) in post(&desk, &lines, &desk.clerk).await.iter().enumerate() {
                assert_eq!((&answer["status"], &answer["outcome"]["version"]), (&json!(200), &json!(i + 2)), "{answer}");
            }
        }
        assert_eq!(database.count("operations"), (case_ids.len() * (1 + BURST)) as u64);
    }

    async fn single_commands_at_once_for_a_cold_case_are_all_run(database: &TestDatabase) {
        let (desk, case_ids) = with_cold_cases(database, 10).await;
        for case_id in &case_ids {
            let sendings = (0..BURST).map(|i| desk.send(case_id, "note", note(i), &desk.clerk));
            for answer in join_all(sendings).await {
                let _ = answer.expect_status(200);
            }
        }
        assert_eq!(database.count("operations"), (case_ids.len() * (1 + BURST)) as u64);
    }

    /// It has to be looked up, and the lines behind it must not find that there is no such case.
    async fn an_open_with_a_workflow_from_elsewhere_keeps_its_place(database: &TestDatabase) {
        let desk = Desk::open(database);
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("by-mail.toml"), folder.path().join("empty.jsonl"));
        let by_mail = casework::domain::PERMIT_TOML.replacen("name = \"permit\"", "name = \"by-mail\"", 1);
        std::fs::write(&file, by_mail).unwrap();
        std::fs::write(&log, "").unwrap();
        // Another process stores the workflow, while the server runs.
        let replay = ["replay".as_ref(), log.as_os_str(), "--database".as_ref(), database.url().as_ref()];
        casework(replay.into_iter().chain(["--workflow".as_ref(), file.as_os_str()])).expect_success();
        let mut lines = vec![line("62", "open", json!({"workflow": "by-mail"})).to_string()];
        lines.extend((0..BURST).map(|i| line("62", "note", note(i)).to_string()));
        let answers = post(&desk, &lines, &desk.clerk).await;
        let statuses: Vec<u64> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
        assert_eq!(statuses[0], 201, "{}", answers[0]);
        assert_eq!(statuses[1..], [200; BURST]);
    }
}
