//! Tokens beside a running server: new ones work at once, revoked and expired ones stop in time, an outage is no refusal.

use std::time::Duration;

use serde_json::json;

use super::{Desk, SOON, new_id};
use crate::support::cli::casework;
use crate::support::postgres::PrivateServer;
use crate::support::token::{issue_token, issue_token_with};
use crate::support::wait::eventually_async;

/// The promise of DESIGN section 6.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

on_both_databases! {
    async fn a_new_token_works_at_once_and_a_revoked_one_stops_within_five_seconds(database: &TestDatabase) {
        let desk = Desk::open(database);
        let _ = desk.client.get("/v1/cases", Some("not a token yet")).await.expect_problem(401, "unauthenticated");
        let token = issue_token(database.url(), "81", &["clerk"]);
        let works = async || desk.client.get("/v1/cases", Some(&token.token)).await.status == 200;
        assert!(works().await);
        casework(["token", "revoke", "--database", database.url(), &token.id]).expect_success();
        let took = eventually_async(SOON, "the revoked token stops", async || !works().await).await;
        assert!(took < REVOKED_WITHIN, "{took:?}");
        let _ = desk.client.get("/v1/cases", Some(&token.token)).await.expect_problem(401, "unauthenticated");
    }

    async fn an_expired_token_stops(database: &TestDatabase) {
        let desk = Desk::open(database);
        let token = issue_token_with(database.url(), "81", &["clerk"], &["--expires", "3s"]);
        let works = async || desk.client.get("/v1/cases", Some(&token.token)).await.status == 200;
        assert!(works().await);
        eventually_async(SOON, "the token expires", async || !works().await).await;
    }

    async fn a_stream_that_is_open_loses_a_revoked_token_too(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.open_case("62").await;
        let token = issue_token(database.url(), "81", &["clerk"]);
        let (lines, mut answers) = crate::http::streams::open_stream(&desk, &token.token).await;
        let note = || json!({"case_id": "62", "operation_id": new_id(), "command": "note", "reason": "Seen."});
        assert_eq!(crate::http::streams::exchange(&lines, &mut answers, &note()).await["status"], 200);
        casework(["token", "revoke", "--database", database.url(), &token.id]).expect_success();
        let revoked = tokio::time::Instant::now();
        loop {
            let answer = crate::http::streams::exchange(&lines, &mut answers, &note()).await;
            if answer["status"] == 401 {
                break;
            }
            assert_eq!(answer["status"], 200);
            assert!(revoked.elapsed() < REVOKED_WITHIN);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_database_is_not_a_wrong_token() {
    let server = PrivateServer::start();
    let database = server.database();
    let desk = Desk::open_at(database.url(), &[]);
    desk.open_case("62").await;
    let key = new_id();
    let body = json!({"reason": "Seen."});
    let _ = desk.client.get("/readyz", None).await.expect_status(200);
    server.stop_immediate();
    let unknown = desk.client.get("/v1/cases", Some("unknown")).await.expect_problem(503, "unavailable");
    assert!(unknown.header("retry-after").is_some());
    let ready = desk.client.get("/readyz", None).await.expect_problem(503, "unavailable").json();
    assert_eq!(ready["checks"]["database"], "unreachable");
    let _ = desk.client.get("/healthz", None).await.expect_status(200);
    let note =
        desk.client.post_command("62", "note", &key, &body, &desk.clerk).await.expect_problem(503, "unavailable");
    assert!(note.header("retry-after").is_some());
    let document = note.json();
    assert_eq!((&document["retryable"], &document["reuse_key"]), (&json!(true), &json!(true)));
    server.start_again();
    eventually_async(SOON, "the server recovers by itself", async || {
        desk.client.post_command("62", "note", &key, &body, &desk.clerk).await.status == 200
    })
    .await;
    assert_eq!(database.sql("SELECT count(*) FROM operations")[0][0], "3");
}
