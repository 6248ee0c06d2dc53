//! Reading: cases with their tag, lists in pages, a case's history.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Desk, approval, new_id};
use crate::support::http::case_path;

on_both_databases! {
    async fn a_case_is_read_with_its_tag(database: &TestDatabase) {
        let desk = Desk::open(database);
        let _ = desk.client.get("/v1/cases/62", Some(&desk.clerk)).await.expect_problem(404, "case-not-found");
        let body = json!({"payload": {"z": 1.0, "a": {"é": [null, true]}}});
        let _ = desk.send("62", "open", body, &desk.clerk).await.expect_status(201);
        let _ = desk.send("62", "assign", json!({"payload": {"assignee": "81"}}), &desk.clerk).await.expect_status(200);
        let _ = desk.send("62", "assign", json!({"payload": {"assignee": "47"}}), &desk.clerk).await.expect_status(200);
        let read = desk.client.get("/v1/cases/62", Some(&desk.reviewer_81)).await.expect_status(200);
        assert_eq!(read.header("etag"), Some("\"0.3\""));
        let case = read.json();
        assert_eq!(case["data"], json!({"a": {"é": [null, true]}, "z": 1}));
        assert_eq!(case["assignees"], json!(["47", "81"]));
        assert_eq!(case["allowed"], json!(["approve", "deny", "return", "amend", "withdraw"]));
        for (member, value) in [("workflow", json!("permit")), ("status", json!("in_review")), ("revision", json!(0))] {
            assert_eq!(case[member], value);
        }
        let members: Vec<&String> = case.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 10, "{members:?}");
        let known = async |tag: &str| {
            let headers =
                [("authorization", format!("Bearer {}", desk.clerk)), ("if-none-match", tag.to_owned())];
            desk.client.send(Method::GET, "/v1/cases/62", &headers, "").await
        };
        let same = known("\"0.3\"").await.expect_status(304);
        assert!(same.body.is_empty() && same.header("etag") == Some("\"0.3\""));
        let _ = desk.send("62", "note", json!({"reason": "Seen."}), &desk.clerk).await.expect_status(200);
        let _ = known("\"0.3\"").await.expect_status(200);
    }

    async fn lists_are_filtered_and_come_in_pages(database: &TestDatabase) {
        let desk = Desk::open(database);
        let ids = ["62", "a/b", "B", "a b", "é", "10"];
        for id in ids {
            desk.open_case(id).await;
        }
        let _ = desk.send("B", "approve", approval(0), &desk.reviewer_47).await.expect_status(200);
        let list = async |query: &str, token: &str| {
            let page = desk.client.get(&format!("/v1/cases{query}"), Some(token)).await.expect_status(200).json();
            let ids: Vec<String> =
                page["data"].as_array().unwrap().iter().map(|case| case["case_id"].as_str().unwrap().to_owned()).collect();
            (ids, page["next_cursor"].clone())
        };
        let mut expected = ids.map(str::to_owned);
        expected.sort();
        assert_eq!(list("", &desk.clerk).await, (expected.to_vec(), Value::Null));
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let (page, next) = list(&format!("?limit=2{cursor}"), &desk.clerk).await;
            assert_eq!(page.len(), 2);
            seen.extend(page);
            let Some(next) = next.as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen, expected);
        assert_eq!(list("?status=approved", &desk.clerk).await.0, ["B"]);
        assert_eq!(list("?assignee=me&status=approved&workflow=permit", &desk.reviewer_47).await.0, ["B"]);
        assert_eq!(list("?assignee=me", &desk.reviewer_81).await.0.len(), 0);
        assert_eq!(list("?workflow=other", &desk.clerk).await.0.len(), 0);
        for bad in ["?limit=0", "?limit=201", "?limit=x", "?cursor=x", "?status=In Review", "?stat=x", "?limit=1&limit=1"] {
            let path = format!("/v1/cases{}", bad.replace(' ', "%20"));
            let answer = desk.client.get(&path, Some(&desk.clerk)).await.expect_problem(422, "invalid-command");
            assert!(answer.json()["errors"][0]["pointer"].as_str().is_some_and(|pointer| pointer.starts_with('/')));
        }
    }

    async fn a_history_shows_what_was_sent_and_what_came_of_it(database: &TestDatabase) {
        let desk = Desk::open(database);
        let id = "a/b c";
        desk.open_case(id).await;
        let _ = desk.send(id, "approve", approval(0), &desk.reviewer_47).await.expect_status(200);
        let path = format!("{}/operations", case_path(id));
        let page = desk.client.get(&path, Some(&desk.clerk)).await.expect_status(200).json();
        let rows = page["data"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(page["next_cursor"], Value::Null);
        assert_eq!(rows[1]["payload"], json!({"assignee": "47"}));
        let approve = rows[2].as_object().unwrap();
        assert_eq!(approve["expected_revision"], 0);
        assert_eq!(approve["reason"], "All documents reviewed.");
        assert_eq!((&approve["status"], &approve["version"]), (&json!("approved"), &json!(3)));

        let first = desk.client.get(&format!("{path}?limit=2"), Some(&desk.clerk)).await.expect_status(200).json();
        let cursor = first["next_cursor"].as_str().unwrap();
        let rest = desk.client.get(&format!("{path}?limit=2&cursor={cursor}"), Some(&desk.clerk)).await.expect_status(200);
        assert_eq!(rest.json()["data"], json!([rows[2]]));
        let foreign = desk.client.get(&format!("/v1/cases?cursor={cursor}"), Some(&desk.clerk)).await;
        let _ = foreign.expect_problem(422, "invalid-command");

        let missing = desk.client.get(&format!("{path}/{}", new_id()), Some(&desk.clerk)).await;
        let missing = missing.expect_problem(404, "operation-not-found").json();
        assert_eq!((&missing["retryable"], &missing["reuse_key"]), (&json!(true), &json!(true)));
        let _ = desk.client.get(&format!("{path}/x"), Some(&desk.clerk)).await.expect_problem(400, "operation-id-invalid");
        let unknown = desk.client.get("/v1/cases/unknown/operations", Some(&desk.clerk)).await;
        let _ = unknown.expect_problem(404, "case-not-found");
        // Whether an `open` went through is asked the same way.
        let unknown = desk.client.get(&format!("/v1/cases/unknown/operations/{}", new_id()), Some(&desk.clerk)).await;
        let _ = unknown.expect_problem(404, "operation-not-found");
    }

    async fn a_hand_edit_is_part_of_the_history(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        database.sql("UPDATE cases SET status = 'returned' WHERE case_id = '62'");
        let case = desk.client.get("/v1/cases/62", Some(&desk.clerk)).await.expect_status(200).json();
        assert_eq!(case["status"], "returned");
        assert_eq!(case["allowed"], json!(["resubmit", "withdraw"]));
        let history = desk.client.get("/v1/cases/62/operations", Some(&desk.clerk)).await.expect_status(200).json();
        let edit = &history["data"][2];
        assert_eq!((&edit["command"], &edit["status"]), (&json!("edit"), &json!("returned")));
        assert!(edit["actor"].as_str().is_some_and(|actor| actor.starts_with("sql:")));
        assert_eq!(edit["payload"]["set"]["status"], "returned");
    }
}
