//! The HTTP interface as a client meets it: the built server on a real socket, on both databases.
//!
//! [`Desk`] is a running server with a token for each role. Each module below walks one part of the interface.

mod bad_input;
mod bursts;
mod commands;
mod demo;
mod reads;
mod start_and_stop;
mod streams;
mod tokens;
mod waiting;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cli::casework;
use crate::support::database::TestDatabase;
use crate::support::http::{Answer, HttpClient};
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::token::issue_token;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A server with a token for each role.
struct Desk {
    server: ServerProcess,
    client: HttpClient,
    clerk: String,
    reviewer_47: String,
    reviewer_81: String,
    proxy: String,
    admin: String,
}

impl Desk {
    /// Migrates, issues the tokens and starts the server.
    #[track_caller]
    fn open(database: &TestDatabase) -> Self {
        Self::open_with(database, &[])
    }

    /// The same with further arguments for `serve`.
    #[track_caller]
    fn open_with(database: &TestDatabase, arguments: &[&str]) -> Self {
        Self::open_at(database.url(), arguments)
    }

    /// The same on the database at a URL.
    #[track_caller]
    fn open_at(url: &str, arguments: &[&str]) -> Self {
        casework(["migrate", "--database", url]).expect_success();
        let token = |subject: &str, role: &str| issue_token(url, subject, &[role]).token;
        let options = arguments.iter().fold(ServerOptions::new(url), |options, argument| options.argument(argument));
        let server = options.start();
        Self {
            client: HttpClient::new(server.url()),
            clerk: token("clerk", "clerk"),
            reviewer_47: token("47", "reviewer"),
            reviewer_81: token("81", "reviewer"),
            proxy: token("intake", "proxy"),
            admin: token("admin", "admin"),
            server,
        }
    }

    /// Sends a command under a new operation id.
    async fn send(&self, case_id: &str, command: &str, body: Value, token: &str) -> Answer {
        self.client.post_command(case_id, command, &new_id(), &body, token).await
    }

    /// Opens a case and assigns reviewer 47: two operations, revision 0.
    async fn open_case(&self, case_id: &str) {
        let _ = self.send(case_id, "open", json!({}), &self.clerk).await.expect_status(201);
        let assign = json!({"payload": {"assignee": "47"}});
        let _ = self.send(case_id, "assign", assign, &self.clerk).await.expect_status(200);
    }

    /// Sends a command with any headers (the token's aside) and any body.
    async fn raw(&self, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>, token: &str) -> Answer {
        let mut all = vec![("authorization", format!("Bearer {token}"))];
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.client.send(reqwest::Method::POST, path, &all, body).await
    }
}

/// An operation id that nobody has used.
fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The body of an approval.
fn approval(revision: i64) -> Value {
    json!({"expected_revision": revision, "reason": "All documents reviewed."})
}
