//! One command at a time: every answer of the status table that needs no outage.

use serde_json::json;

use super::{Desk, approval, new_id};
use crate::support::http::{case_path, command_path};

on_both_databases! {
    /// The story of the demo: stale, applied, replayed, conflict, illegal, and the outcome by its id.
    async fn an_approval_is_applied_once_and_replayed_byte_for_byte(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let stale = desk.send("62", "approve", approval(4), &desk.reviewer_47).await.expect_problem(412, "stale-revision");
        assert_eq!(stale.json()["current_revision"], 0);
        let before = database.count("operations");

        let key = new_id();
        let send = async |body| desk.client.post_command("62", "approve", &key, &body, &desk.reviewer_47).await;
        let first = send(approval(0)).await.expect_status(200);
        assert!(!first.is_replay());
        assert_eq!(first.header("content-type"), Some("application/json"));
        let outcome = first.json();
        assert_eq!(outcome["status"], "approved");
        assert_eq!((&outcome["revision"], &outcome["version"]), (&json!(1), &json!(3)));
        let again = send(approval(0)).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(again.body, first.body);

        let other = json!({"expected_revision": 0, "reason": "Approved with conditions."});
        let _ = send(other).await.expect_problem(409, "operation-conflict");
        // Another actor under the id learns nothing of the first one's outcome.
        let _ = desk.send("62", "assign", json!({"payload": {"assignee": "81"}}), &desk.clerk).await.expect_status(200);
        let stranger = desk.client.post_command("62", "approve", &key, &approval(0), &desk.reviewer_81).await;
        let stranger = stranger.expect_problem(409, "operation-conflict");
        assert!(!stranger.text().contains("recorded_at"));
        let illegal = desk.send("62", "approve", approval(0), &desk.reviewer_47).await;
        let illegal = illegal.expect_problem(409, "illegal-transition").json();
        assert_eq!((&illegal["current_status"], &illegal["allowed"]), (&json!("approved"), &json!(["reopen"])));
        let _ = desk.send("62", "reopen", approval(5), &desk.reviewer_47).await.expect_problem(412, "stale-revision");

        let path = format!("{}/operations/{key}", case_path("62"));
        let read = desk.client.get(&path, Some(&desk.reviewer_81)).await.expect_status(200);
        assert_eq!(read.body, first.body);
        assert_eq!(database.count("operations"), before + 2);
    }

    async fn opening_answers_201_on_replay_as_well_and_a_second_open_conflicts(database: &TestDatabase) {
        let desk = Desk::open(database);
        let key = new_id();
        let body = json!({"workflow": "permit", "payload": {"subject": "roof terrace"}});
        let first = desk.client.post_command("a/b c", "open", &key, &body, &desk.clerk).await.expect_status(201);
        assert_eq!(first.header("location"), Some("/v1/cases/a%2Fb%20c"));
        let again = desk.client.post_command("a/b c", "open", &key, &body, &desk.clerk).await.expect_status(201);
        assert!(again.is_replay() && again.body == first.body);
        let _ = desk.send("a/b c", "open", json!({}), &desk.clerk).await.expect_problem(409, "case-exists");
        // The id, and whether the case is there, come before the workflow, also before one that nobody knows.
        let unheard = json!({"workflow": "unheard"});
        let other = desk.client.post_command("a/b c", "open", &key, &unheard, &desk.clerk).await;
        let _ = other.expect_problem(409, "operation-conflict");
        let _ = desk.send("a/b c", "open", unheard.clone(), &desk.clerk).await.expect_problem(409, "case-exists");
        let unknown = desk.send("63", "open", unheard, &desk.clerk).await;
        let unknown = unknown.expect_problem(422, "invalid-command");
        assert_eq!(unknown.json()["errors"][0]["pointer"], "/workflow");
        assert_eq!(database.count("cases"), 1);
    }

    async fn roles_and_assignments_are_told_apart(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let _ = desk.send("62", "approve", approval(0), &desk.reviewer_81).await.expect_problem(403, "not-assigned");
        let _ = desk.send("62", "approve", approval(0), &desk.clerk).await.expect_problem(403, "forbidden");
        let _ = desk.send("63", "open", json!({}), &desk.reviewer_47).await.expect_problem(403, "forbidden");
        let other = json!({"reason": "Seen.", "actor": "81"});
        for token in [&desk.reviewer_47, &desk.admin, &desk.clerk] {
            let _ = desk.send("62", "note", other.clone(), token).await.expect_problem(403, "forbidden");
        }
        let noted = desk.send("62", "note", other, &desk.proxy).await.expect_status(200);
        assert_eq!(noted.json()["actor"], "81");
        let own = json!({"reason": "Seen.", "actor": "47"});
        let noted = desk.send("62", "note", own, &desk.reviewer_47).await.expect_status(200);
        assert_eq!(noted.json()["actor"], "47");
        let _ = desk.send("64", "note", json!({"reason": "Seen."}), &desk.clerk).await.expect_problem(404, "case-not-found");
        let _ = desk.send("62", "edit", json!({}), &desk.admin).await.expect_problem(422, "invalid-command");
        let unknown = desk.send("62", "approved", approval(0), &desk.reviewer_47).await;
        let _ = unknown.expect_problem(422, "invalid-command");
        assert_eq!(database.count("operations"), 4);
    }

    async fn a_precondition_stands_for_the_expected_revision(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let path = command_path("62", "approve");
        let send = |tag: &'static str, body: &'static str| {
            let key = new_id();
            let desk = &desk;
            let path = &path;
            async move {
                let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str()), ("if-match", tag)];
                desk.raw(path, &headers, body, &desk.reviewer_47).await
            }
        };
        for tag in ["*", "W/\"0\"", "\"0\", \"1\"", "0", "\"00\""] {
            let _ = send(tag, r#"{"reason":"Reviewed."}"#).await.expect_problem(422, "invalid-command");
        }
        let contradiction = send("\"0\"", r#"{"reason":"Reviewed.","expected_revision":1}"#).await;
        let contradiction = contradiction.expect_problem(422, "invalid-command").json();
        assert_eq!(contradiction["errors"][0]["pointer"], "/expected_revision");
        let _ = send("\"7.9\"", r#"{"reason":"Reviewed."}"#).await.expect_problem(412, "stale-revision");
        assert_eq!(database.count("operations"), 2);
        let _ = send("\"0.2\"", r#"{"reason":"Reviewed.","expected_revision":0}"#).await.expect_status(200);
        // It is part of the command: the same without the header is another one.
        let key = new_id();
        let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str()), ("if-match", "\"1\"")];
        let body = r#"{"reason":"New facts."}"#;
        let reopen = command_path("62", "reopen");
        let _ = desk.raw(&reopen, &headers, body, &desk.reviewer_47).await.expect_status(200);
        let same = json!({"reason": "New facts.", "expected_revision": 1});
        let replay = desk.client.post_command("62", "reopen", &key, &same, &desk.reviewer_47).await.expect_status(200);
        assert!(replay.is_replay());
        let less = json!({"reason": "New facts."});
        let other = desk.client.post_command("62", "reopen", &key, &less, &desk.reviewer_47).await;
        let _ = other.expect_problem(409, "operation-conflict");
    }

    async fn a_pruned_outcome_is_gone_and_not_run_again(database: &TestDatabase) {
        let mut desk = Desk::open(database);
        desk.open_case("62").await;
        let key = new_id();
        let body = json!({"reason": "Seen."});
        let _ = desk.client.post_command("62", "note", &key, &body, &desk.clerk).await.expect_status(200);
        database.sql("UPDATE operations SET request = NULL, outcome = NULL WHERE command = 'note'");
        // What is in memory of a server that runs is the same outcome still; a new one has only the rows.
        desk.server.kill_9();
        desk.server.start_again();
        let _ = desk.client.post_command("62", "note", &key, &body, &desk.clerk).await.expect_problem(410, "outcome-expired");
        let other = desk.client.post_command("62", "note", &key, &json!({"reason": "Other."}), &desk.clerk).await;
        let _ = other.expect_problem(409, "operation-conflict");
        let path = format!("/v1/cases/62/operations/{key}");
        let _ = desk.client.get(&path, Some(&desk.clerk)).await.expect_problem(410, "outcome-expired");
        assert_eq!(database.count("operations"), 3);
    }
}
