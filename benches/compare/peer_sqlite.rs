//! The peer on SQLite: the same HTTP, and one transaction a command through Diesel, as a careful service would have it
//! (WAL, `synchronous=FULL`, `BEGIN IMMEDIATE`).
//!
//! Owns the file and a few connections, each on a thread of its own: the quickest way that Diesel has. Does what Casework's
//! commit does for each command: read the case, look the id up, move the case, record operation and outbox row.

use std::sync::{Arc, Mutex, mpsc};

use casework::clock;
use casework::domain::{Command, CommandDraft, Outcome, Revision, Status, Timestamp, Version};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use tokio::sync::oneshot;

use super::peer_http::{self, Backend};

diesel::table! {
    cases (case_id) {
        case_id -> Text,
        status -> Text,
        revision -> BigInt,
        version -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    operations (case_id, operation_id) {
        case_id -> Text,
        operation_id -> Binary,
        version -> BigInt,
        revision -> BigInt,
        status -> Text,
        recorded_at -> BigInt,
        actor -> Text,
        command -> Text,
        digest -> Binary,
        request -> Text,
        outcome -> Text,
    }
}

diesel::table! {
    outbox (case_id, version) {
        case_id -> Text,
        version -> BigInt,
        operation_id -> Binary,
    }
}

const SCHEMA: &str = "
    CREATE TABLE cases (case_id TEXT PRIMARY KEY, status TEXT NOT NULL, revision INTEGER NOT NULL,
        version INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE operations (case_id TEXT NOT NULL, operation_id BLOB NOT NULL, version INTEGER NOT NULL,
        revision INTEGER NOT NULL, status TEXT NOT NULL, recorded_at INTEGER NOT NULL, actor TEXT NOT NULL,
        command TEXT NOT NULL, digest BLOB NOT NULL, request TEXT NOT NULL, outcome TEXT NOT NULL,
        PRIMARY KEY (case_id, operation_id)) STRICT;
    CREATE TABLE outbox (case_id TEXT NOT NULL, version INTEGER NOT NULL, operation_id BLOB NOT NULL,
        PRIMARY KEY (case_id, version)) STRICT, WITHOUT ROWID;";

/// Every connection waits for the file rather than fail.
const PRAGMAS: &str = "PRAGMA busy_timeout = 60000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";

/// Runs the peer on a file that does not exist yet, with so many connections.
pub fn serve(path: &str, connections: usize) {
    let connect = || {
        let mut connection = SqliteConnection::establish(path).unwrap();
        connection.batch_execute(PRAGMAS).unwrap();
        connection
    };
    connect().batch_execute(SCHEMA).unwrap();
    let (jobs, queue) = mpsc::channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..connections {
        let (mut connection, queue) = (connect(), queue.clone());
        std::thread::spawn(move || {
            loop {
                let job = queue.lock().unwrap().recv();
                let Ok(Job { command, answer }) = job else { return };
                // Whoever sent it may be gone; a transaction that failed answers nothing, which the load counts.
                let _ = answer.send(run(&mut connection, &command).inspect_err(|error| eprintln!("{error}")).ok());
            }
        });
    }
    peer_http::serve(Pool { jobs: Mutex::new(jobs) });
}

struct Job {
    command: Command,
    answer: oneshot::Sender<Option<(String, bool)>>,
}

struct Pool {
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl Pool {
    async fn run(&self, command: Command) -> Option<(String, bool)> {
        let (answer, answered) = oneshot::channel();
        self.jobs.lock().unwrap().send(Job { command, answer }).ok()?;
        answered.await.ok()?
    }
}

impl Backend for Pool {
    async fn post(&self, draft: CommandDraft) -> Option<(String, bool)> {
        self.run(Command::new(draft).ok()?).await
    }

    async fn line(&self, command: Command) -> Option<String> {
        self.run(command).await.map(|(outcome, _)| outcome)
    }
}

/// One command, one transaction.
fn run(connection: &mut SqliteConnection, command: &Command) -> QueryResult<(String, bool)> {
    connection.immediate_transaction(|connection| {
        let case_id = command.case_id().as_str();
        let id = command.operation_id().uuid().into_bytes();
        let case: Option<(String, i64, i64)> = cases::table
            .find(case_id)
            .select((cases::status, cases::revision, cases::version))
            .first(connection)
            .optional()?;
        let known: Option<(Vec<u8>, String)> = operations::table
            .find((case_id, id.as_slice()))
            .select((operations::digest, operations::outcome))
            .first(connection)
            .optional()?;
        let digest = command.digest().expect("only an edit by hand has none").as_bytes().as_slice();
        if let Some((known, outcome)) = known {
            return if known == digest { Ok((outcome, true)) } else { Err(diesel::result::Error::RollbackTransaction) };
        }
        let recorded_at = clock::now();
        let (status, revision, version) = match case {
            None if command.name().as_str() == "open" => {
                let new = (cases::case_id.eq(case_id), cases::status.eq("in_review"), cases::revision.eq(0));
                let rest = (cases::version.eq(1), cases::updated_at.eq(recorded_at.micros()));
                diesel::insert_into(cases::table).values((new, rest)).execute(connection)?;
                ("in_review".to_owned(), 0, 1)
            }
            None => return Err(diesel::result::Error::NotFound),
            Some((status, revision, version)) => {
                let moved = (cases::version.eq(version + 1), cases::updated_at.eq(recorded_at.micros()));
                diesel::update(cases::table.find(case_id)).set(moved).execute(connection)?;
                (status, revision, version + 1)
            }
        };
        let outcome = outcome(command, &status, revision, version, recorded_at);
        let key = (operations::case_id.eq(case_id), operations::operation_id.eq(id.as_slice()));
        let state = (
            operations::version.eq(version),
            operations::revision.eq(revision),
            operations::status.eq(&status),
            operations::recorded_at.eq(recorded_at.micros()),
        );
        let said = (
            operations::actor.eq(command.actor().as_str()),
            operations::command.eq(command.name().as_str()),
            operations::digest.eq(digest),
            operations::request.eq(&**command.request()),
            operations::outcome.eq(&outcome),
        );
        diesel::insert_into(operations::table).values((key, state, said)).execute(connection)?;
        let row = (outbox::case_id.eq(case_id), outbox::version.eq(version), outbox::operation_id.eq(id.as_slice()));
        diesel::insert_into(outbox::table).values(row).execute(connection)?;
        Ok((outcome, false))
    })
}

fn outcome(command: &Command, status: &str, revision: i64, version: i64, recorded_at: Timestamp) -> String {
    Outcome {
        case_id: command.case_id(),
        operation_id: command.operation_id(),
        command: command.name(),
        actor: command.actor(),
        status: &Status::from_stored(status),
        revision: Revision::new(revision),
        version: Version::new(version),
        recorded_at,
    }
    .to_json()
}
