//! Case 62 in review at revision 5, the people around it, and its rows: what the tests of promises begin with and judge by.
//!
//! [`Desk`] is a server on a database with a token for everyone. Everything that touches the HTTP interface or the
//! tables' columns does it here, so that the tests outlive a redesign. [`books`] are the rows as the database's own shell
//! shows them; [`check_books`] is what must hold of them after anything at all.

use std::time::Duration;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::support::cli::casework;
use crate::support::database::TestDatabase;
use crate::support::http::{Answer, HttpClient, case_path, command_path};
use crate::support::psql::Rows;
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::token::issue_token;

/// Bound on anything that should happen at once, on a machine that is busy with other tests.
pub const SOON: Duration = Duration::from_secs(30);

/// The reason that decisions give when it does not matter.
pub const REVIEWED: &str = "All documents reviewed.";

/// Bearer tokens.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Opens and assigns.
    pub clerk: String,
    /// Reviewer 47.
    pub r47: String,
    /// Reviewer 81.
    pub r81: String,
    /// Speaks in anyone's name.
    pub proxy: String,
}

/// A server on a database, ready for commands.
#[derive(Debug)]
pub struct Desk {
    /// The process.
    pub server: ServerProcess,
    /// A client of it.
    pub client: HttpClient,
    /// Everyone's token.
    pub tokens: Tokens,
}

/// Brings the schema up to date and issues tokens: what an operator does before the first start.
#[track_caller]
pub fn prepare(database_url: &str) -> Tokens {
    let _ = casework(["migrate", "--database", database_url]).expect_success();
    let token = |subject: &str, role: &str| issue_token(database_url, subject, &[role]).token;
    Tokens {
        clerk: token("clerk", "clerk"),
        r47: token("47", "reviewer"),
        r81: token("81", "reviewer"),
        proxy: token("intake", "proxy"),
    }
}

impl Desk {
    /// A server on a fresh database.
    #[track_caller]
    pub fn open(database: &TestDatabase) -> Self {
        Self::open_with(database, |options| options)
    }

    /// The same, with more arguments.
    #[track_caller]
    pub fn open_with(database: &TestDatabase, options: impl FnOnce(ServerOptions) -> ServerOptions) -> Self {
        let tokens = prepare(database.url());
        Self::start(options(ServerOptions::new(database.url())), tokens)
    }

    /// A server on a database that is prepared.
    #[track_caller]
    pub fn start(options: ServerOptions, tokens: Tokens) -> Self {
        let server = options.start();
        let client = HttpClient::new(server.url());
        Self { server, client, tokens }
    }

    /// A second process on the same PostgreSQL. A SQLite file has one process; there it is a second client of the first.
    #[track_caller]
    pub fn beside(&self, database: &TestDatabase) -> SecondDoor {
        if database.is_postgres() {
            let server = ServerProcess::start(database.url());
            let client = HttpClient::new(server.url());
            SecondDoor { client, _server: Some(server) }
        } else {
            SecondDoor { client: HttpClient::new(self.server.url()), _server: None }
        }
    }

    /// Opens a case, assigns 47 and 81, and brings it by real commands to revision 5, in review (version 8).
    pub async fn review(&self, case_id: &str) {
        self.review_all(&[case_id.to_owned()]).await;
    }

    /// The same for many cases, in one stream.
    pub async fn review_all(&self, case_ids: &[String]) {
        let mut lines = String::new();
        for case_id in case_ids {
            let story = [
                ("clerk", "open", json!({})),
                ("clerk", "assign", json!({ "payload": { "assignee": "47" } })),
                ("clerk", "assign", json!({ "payload": { "assignee": "81" } })),
                ("47", "return", json!({ "expected_revision": 0, "reason": "The site plan is missing." })),
                ("clerk", "resubmit", json!({ "expected_revision": 1, "reason": "Site plan added." })),
                ("81", "return", json!({ "expected_revision": 2, "reason": "The site plan is not to scale." })),
                ("clerk", "resubmit", json!({ "expected_revision": 3, "reason": "Site plan drawn to scale." })),
                ("clerk", "amend", json!({ "expected_revision": 4, "reason": "The terrace is 2 m narrower." })),
            ];
            for (actor, command, members) in story {
                lines += &log_line(case_id, actor, command, members);
            }
        }
        self.apply(lines).await;
    }

    /// Opens cases without anybody assigned, in one stream.
    pub async fn open_all(&self, case_ids: &[String]) {
        let lines: String = case_ids.iter().map(|case_id| log_line(case_id, "clerk", "open", json!({}))).collect();
        self.apply(lines).await;
    }

    /// Sends lines that must all be applied.
    pub async fn apply(&self, lines: String) {
        let count = lines.lines().count();
        let answer = self.client.post_lines(lines, &self.tokens.proxy).await.expect_status(200);
        let text = answer.text();
        let applied = |line: &&str| {
            let answer: Value = serde_json::from_str(line).unwrap();
            matches!(answer["status"].as_u64(), Some(200 | 201)) && answer["replayed"] == json!(false)
        };
        assert_eq!(text.lines().filter(applied).count(), count, "every line is applied: {text}");
    }

    /// Whether the server has this command waiting or in flight.
    pub async fn is_in_flight(&self, case_id: &str, operation_id: Uuid) -> bool {
        let path = format!("{}/operations/{operation_id}", case_path(case_id));
        self.client.get(&path, Some(&self.tokens.clerk)).await.status == 202
    }
}

/// Another way in: a client, and its server where it has one of its own.
#[derive(Debug)]
pub struct SecondDoor {
    /// The client.
    pub client: HttpClient,
    _server: Option<ServerProcess>,
}

/// A line of a command log under a fresh id.
pub fn log_line(case_id: &str, actor: &str, command: &str, members: Value) -> String {
    log_line_as(Uuid::new_v4(), case_id, actor, command, members)
}

/// A line of a command log.
pub fn log_line_as(operation_id: Uuid, case_id: &str, actor: &str, command: &str, members: Value) -> String {
    let Value::Object(mut line) = members else { panic!("members are an object: {members}") };
    line.insert("case_id".into(), case_id.into());
    line.insert("operation_id".into(), operation_id.to_string().into());
    line.insert("actor".into(), actor.into());
    line.insert("command".into(), command.into());
    format!("{}\n", Value::Object(line))
}

/// One workflow action by the holder of a token.
pub async fn act(client: &HttpClient, token: &str, case_id: &str, action: &str, id: Uuid, revision: u64) -> Answer {
    act_for(client, token, case_id, action, id, revision, REVIEWED).await
}

/// The same with a reason.
pub async fn act_for(
    client: &HttpClient,
    token: &str,
    case_id: &str,
    action: &str,
    id: Uuid,
    revision: u64,
    reason: &str,
) -> Answer {
    let body = json!({ "expected_revision": revision, "reason": reason });
    client.post_command(case_id, action, &id.to_string(), &body, token).await
}

/// The same by a client that waits longer (or shorter) than the default for the answer.
pub async fn act_patiently(client: &HttpClient, token: &str, case_id: &str, id: Uuid, wait_seconds: u32) -> Answer {
    let headers = [
        ("authorization", format!("Bearer {token}")),
        ("content-type", "application/json".to_owned()),
        ("idempotency-key", id.to_string()),
        ("prefer", format!("wait={wait_seconds}")),
    ];
    let body = json!({ "expected_revision": 5, "reason": REVIEWED }).to_string();
    client.send(reqwest::Method::POST, &command_path(case_id, "approve"), &headers, body).await
}

/// A note by the clerk.
pub async fn note(desk: &Desk, case_id: &str, id: Uuid, reason: &str) -> Answer {
    let body = json!({ "reason": reason });
    desk.client.post_command(case_id, "note", &id.to_string(), &body, &desk.tokens.clerk).await
}

/// The rows of the four tables, as the database's own shell shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Books {
    /// Case, workflow, status, revision, version, data.
    pub cases: Rows,
    /// Case, assignee.
    pub assignments: Rows,
    /// Case, version, operation id, revision, status, actor, command, request, outcome.
    pub operations: Rows,
    /// Case, version, operation id.
    pub outbox: Rows,
}

impl Books {
    /// The same without what differs between two equal runs: the times in the outcomes.
    pub fn without_times(mut self) -> Self {
        for operation in &mut self.operations {
            let mut outcome: Map<String, Value> = serde_json::from_str(&operation[8]).unwrap();
            assert!(outcome.remove("recorded_at").is_some(), "an outcome has its time: {outcome:?}");
            operation[8] = Value::Object(outcome).to_string();
        }
        self
    }
}

/// Reads the rows.
#[track_caller]
pub fn books(database: &TestDatabase) -> Books {
    let id = operation_id_text(database);
    Books {
        cases: database.sql("SELECT case_id, workflow, status, revision, version, data FROM cases ORDER BY case_id"),
        assignments: database.sql("SELECT case_id, assignee FROM assignments ORDER BY case_id, assignee"),
        operations: database.sql(&format!(
            "SELECT case_id, version, {id}, revision, status, actor, command, request, outcome \
             FROM operations ORDER BY case_id, version"
        )),
        outbox: database.sql(&format!("SELECT case_id, version, {id} FROM outbox ORDER BY case_id, version")),
    }
}

/// Expression for an operation id as hexadecimal digits: the two databases store it in types of their own.
pub fn operation_id_text(database: &TestDatabase) -> &'static str {
    if database.is_postgres() { "replace(operation_id::text, '-', '')" } else { "lower(hex(operation_id))" }
}

/// How many operations and outbox rows stand under an id, whatever the case.
#[track_caller]
pub fn rows_under(database: &TestDatabase, operation_id: Uuid) -> [usize; 2] {
    let id = operation_id_text(database);
    ["operations", "outbox"].map(|table| {
        let sql = format!("SELECT case_id FROM {table} WHERE {id} = '{}'", operation_id.simple());
        database.sql(&sql).len()
    })
}

/// The stored outcome of an operation.
#[track_caller]
pub fn stored_outcome(database: &TestDatabase, operation_id: Uuid) -> String {
    let id = operation_id_text(database);
    database.sql_value(&format!("SELECT outcome FROM operations WHERE {id} = '{}'", operation_id.simple()))
}

/// What must hold after anything: versions dense, an outbox row for each operation, and the program's own proof.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn check_books(database: &TestDatabase) {
    let gaps = database.sql(
        "SELECT c.case_id, c.version, count(o.version), min(o.version), max(o.version) FROM cases c \
         LEFT JOIN operations o ON o.case_id = c.case_id GROUP BY c.case_id, c.version \
         HAVING count(o.version) <> c.version OR min(o.version) <> 1 OR max(o.version) <> c.version",
    );
    assert_eq!(gaps, Rows::new(), "each version of a case has its operation");
    let books = books(database);
    let key = |row: &Vec<String>| [row[0].clone(), row[1].clone(), row[2].clone()];
    let operations: Vec<_> = books.operations.iter().map(key).collect();
    let outbox: Vec<_> = books.outbox.iter().map(key).collect();
    assert_eq!(operations, outbox, "each operation has its outbox row");
    check_verify(database);
}

/// `casework verify` finds nothing wrong.
///
/// # Panics
/// When it does.
#[track_caller]
pub fn check_verify(database: &TestDatabase) {
    let _ = casework(["verify", "--database", database.url()]).expect_success();
}
