//! Commands that take their time: 202, full queues, and a client that hangs up.

use serde_json::json;

use super::{Desk, SOON, new_id};
use crate::support::database::TestDatabase;
use crate::support::http::RawConnection;
use crate::support::psql::SqlSession;
use crate::support::wait::{eventually, eventually_async};

/// Holds up commits to case 62: its row on PostgreSQL, the whole file on SQLite.
fn hold(database: &TestDatabase) -> SqlSession {
    let mut session = database.session();
    if database.is_postgres() {
        session.run("BEGIN").unwrap();
        session.run("SELECT 1 FROM cases WHERE case_id = '62' FOR UPDATE").unwrap();
    } else {
        session.run("BEGIN IMMEDIATE").unwrap();
    }
    session
}

on_both_databases! {
    async fn what_is_not_settled_in_time_is_answered_202_and_goes_on(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let mut held = hold(database);
        let key = new_id();
        let send = async |wait: &str| {
            let headers =
                [("content-type", "application/json"), ("idempotency-key", key.as_str()), ("prefer", wait)];
            desk.raw("/v1/cases/62/note", &headers, r#"{"reason":"Seen."}"#, &desk.clerk).await
        };
        let accepted = send("wait=1").await.expect_status(202);
        let location = accepted.header("location").unwrap().to_owned();
        assert_eq!(location, format!("/v1/cases/62/operations/{key}"));
        assert!(accepted.header("retry-after").is_some());
        let pending = desk.client.get(&location, Some(&desk.clerk)).await.expect_status(202);
        assert!(pending.header("retry-after").is_some());
        // An exact repeat waits for the same commit.
        let _ = send("respond-async, wait=0").await.expect_status(202);
        let case = desk.client.get("/v1/cases/62", Some(&desk.clerk)).await.expect_status(200);
        assert_eq!(case.header("etag"), Some("\"0.2\""), "a read shows committed rows only");
        held.run("COMMIT").unwrap();
        eventually_async(SOON, "the outcome is there", async || {
            desk.client.get(&location, Some(&desk.clerk)).await.status == 200
        })
        .await;
        assert!(send("wait=60").await.expect_status(200).is_replay());
        assert_eq!(database.count("operations"), 3);
    }

    async fn a_full_queue_is_answered_503_before_anything_is_recorded(database: &TestDatabase) {
        let desk = Desk::open_with(database, &["--commands-max", "4"]);
        desk.open_case("62").await;
        let mut held = hold(database);
        let send = async |key: String| {
            let headers =
                [("content-type", "application/json"), ("idempotency-key", key.as_str()), ("prefer", "wait=0")];
            desk.raw("/v1/cases/62/note", &headers, r#"{"reason":"Seen."}"#, &desk.clerk).await
        };
        let mut accepted = Vec::new();
        for _ in 0..4 {
            let key = new_id();
            let _ = send(key.clone()).await.expect_status(202);
            accepted.push(key);
        }
        let refused = send(new_id()).await.expect_problem(503, "overloaded");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.json()["reuse_key"], true);
        held.run("COMMIT").unwrap();
        for key in &accepted {
            let path = format!("/v1/cases/62/operations/{key}");
            eventually_async(SOON, "an accepted command is settled", async || {
                desk.client.get(&path, Some(&desk.clerk)).await.status == 200
            })
            .await;
        }
        assert_eq!(database.count("operations"), 6);
    }

    async fn a_client_that_hangs_up_cancels_nothing(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let mut held = hold(database);
        let key = new_id();
        let body = r#"{"reason":"Seen."}"#;
        let mut connection = RawConnection::connect(desk.server.address());
        let request = format!(
            "POST /v1/cases/62/note HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            desk.clerk,
            body.len()
        );
        connection.send(request.as_bytes());
        let path = format!("/v1/cases/62/operations/{key}");
        eventually_async(SOON, "the command is in flight", async || {
            desk.client.get(&path, Some(&desk.clerk)).await.status == 202
        })
        .await;
        drop(connection);
        held.run("COMMIT").unwrap();
        eventually(SOON, "the command is recorded", || database.count("operations") == 3);
        let again = desk.client.post_command("62", "note", &key, &json!({"reason": "Seen."}), &desk.clerk).await;
        assert!(again.expect_status(200).is_replay());
    }
}
