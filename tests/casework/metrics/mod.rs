//! What is measured moves when it should: each metric is provoked and seen to move, by what a scraper sees.
//!
//! [`answers`]: commands, replays and rejections. [`trouble`]: locks, retries, duplicate keys, misses, faults. [`bounds`]:
//! what is kept in memory, and what is refused. [`agreement`]: the latencies are those that a client sees. [`table`]: where
//! they are served, and that the README names them all.

mod agreement;
mod answers;
mod bounds;
pub mod scrape;
mod table;
mod trouble;

use uuid::Uuid;

use crate::case_62::{Desk, note};
use crate::support::database::TestDatabase;
use crate::support::http::Answer;
use crate::support::psql::SqlSession;

/// Holds up the commits of a case: by its row, or on SQLite by the file. Until `COMMIT`, or until it is dropped.
fn hold(database: &TestDatabase, case_id: &str) -> SqlSession {
    let mut holder = database.session();
    let sql = match database {
        TestDatabase::Postgres(_) => format!("BEGIN; SELECT 1 FROM cases WHERE case_id = '{case_id}' FOR UPDATE"),
        TestDatabase::Sqlite(_) => "BEGIN IMMEDIATE".to_owned(),
    };
    let _ = holder.run(&sql).unwrap();
    holder
}

/// Sends a note in a task of its own.
fn note_in_flight(desk: &Desk, case_id: &str, id: Uuid) -> tokio::task::JoinHandle<Answer> {
    let (client, token, case_id) = (desk.client.clone(), desk.tokens.clerk.clone(), case_id.to_owned());
    tokio::spawn(async move {
        let body = serde_json::json!({ "reason": "In flight." });
        client.post_command(&case_id, "note", &id.to_string(), &body, &token).await
    })
}

/// A note under a new id.
async fn new_note(desk: &Desk, case_id: &str) -> Answer {
    note(desk, case_id, Uuid::new_v4(), "One more.").await
}
