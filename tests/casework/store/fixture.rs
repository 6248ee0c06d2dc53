//! Chains as the engine would hand them over, and a store with a writer on a fresh database.

use std::sync::Arc;

use casework::domain::{
    ActorId, Case, CaseId, CommandName, Digest, Operation, OperationId, Revision, Status, Timestamp, Version, Workflow,
};
use casework::engine::{AssignmentChange, BatchAnswer, Chain, ChainAnswer, CommitFault, LockMode, Step};
use casework::store::{DatabaseUrl, Store, StoredWorkflow, Writer};
use uuid::Uuid;

use crate::support::database::TestDatabase;

/// 2026-01-31T12:00:00.000001Z in microseconds.
const START_MICROS: i64 = 1_769_860_800_000_001;

/// A migrated database with its store and one writer.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub writer: Box<dyn Writer>,
}

impl Fixture {
    pub async fn on(database: &TestDatabase) -> Self {
        Self::at(database.url()).await
    }

    pub async fn at(url: &str) -> Self {
        let store = store_at(url);
        store.schema_migrate().await.unwrap();
        store.workflow_insert(&permit()).await.unwrap();
        let writer = store.writer_open("node-1").await.unwrap();
        Self { store, writer }
    }

    /// Commits and expects an answer for each chain.
    #[track_caller]
    pub fn commit(&mut self, batch: &[Chain]) -> impl Future<Output = Vec<ChainAnswer>> {
        self.commit_with(batch, LockMode::Skip)
    }

    pub async fn commit_with(&mut self, batch: &[Chain], lock: LockMode) -> Vec<ChainAnswer> {
        match self.writer.commit(batch, lock).await.unwrap() {
            BatchAnswer::Settled(answers) => answers,
            BatchAnswer::Fenced => panic!("nobody has fenced this writer"),
        }
    }

    /// Commits and expects a fault.
    pub async fn fault(&mut self, batch: &[Chain]) -> CommitFault {
        self.writer.commit(batch, LockMode::Skip).await.unwrap_err().fault
    }
}

pub fn store_at(url: &str) -> Arc<dyn Store> {
    url.parse::<DatabaseUrl>().unwrap().store().unwrap()
}

pub fn permit() -> StoredWorkflow {
    let permit = Workflow::permit();
    StoredWorkflow { name: permit.name().clone(), digest: *permit.digest(), text: permit.text().clone() }
}

pub fn case_id(text: &str) -> CaseId {
    CaseId::parse(text).unwrap()
}

/// Time of the version: a microsecond each, so that none is lost by rounding.
pub fn at(version: i64) -> Timestamp {
    Timestamp::from_micros(START_MICROS + version)
}

pub fn operation(case: &str, version: i64, command: &str) -> Operation {
    let request = format!(r#"{{"case_id":"{case}","command":"{command}","version":{version}}}"#);
    Operation {
        case_id: case_id(case),
        operation_id: OperationId::from_uuid(Uuid::new_v4()),
        version: Version::new(version),
        revision: Revision::ZERO,
        status: Status::from_stored("in_review"),
        recorded_at: at(version),
        actor: ActorId::from_stored("47"),
        command: CommandName::from_stored(command),
        digest: Some(Digest::of_request(&request)),
        request: Some(request.into()),
        outcome: Some(format!(r#"{{"case_id":"{case}","version":{version}}}"#).into()),
    }
}

fn case(version: i64) -> Case {
    Case {
        workflow: Workflow::permit(),
        status: Status::from_stored("in_review"),
        revision: Revision::ZERO,
        version: Version::new(version),
        assignees: Default::default(),
        data: r#"{"a":1}"#.into(),
        opened_at: at(1),
        updated_at: at(version),
    }
}

/// A case that is opened.
pub fn open(case_id_text: &str) -> Chain {
    chain(case_id_text, 0, vec![operation(case_id_text, 1, "open")])
}

/// One more note on a case at a version.
pub fn note(case_id_text: &str, expected: i64) -> Chain {
    chain(case_id_text, expected, vec![operation(case_id_text, expected + 1, "note")])
}

/// These operations as one step.
pub fn chain(case_id_text: &str, expected: i64, operations: Vec<Operation>) -> Chain {
    let after = case(operations.last().expect("a chain has an operation").version.get());
    let step = Step { after, writes_data: expected == 0, operations, assignments: Vec::new() };
    Chain { case_id: case_id(case_id_text), expected: Version::new(expected), step: Some(step) }
}

/// A check of a version.
pub fn version_check(case_id_text: &str, expected: i64) -> Chain {
    Chain { case_id: case_id(case_id_text), expected: Version::new(expected), step: None }
}

pub fn step(chain: &mut Chain) -> &mut Step {
    chain.step.as_mut().expect("this chain writes")
}

pub fn assignment(assignee: &str, present: bool) -> AssignmentChange {
    AssignmentChange { assignee: ActorId::from_stored(assignee), present }
}

pub fn missed(seen: i64) -> ChainAnswer {
    ChainAnswer::Missed { seen: Version::new(seen) }
}

/// Versions are dense, and operations, outbox rows and versions are as many, whatever happened.
#[track_caller]
pub fn assert_books_balance(database: &TestDatabase) {
    let versions: u64 = database.sql_value("SELECT coalesce(sum(version), 0) FROM cases").parse().unwrap();
    assert_eq!(database.count("operations"), versions, "an operation for each version");
    assert_eq!(database.count("outbox"), versions, "an outbox row for each version");
    let unlike = "SELECT count(*) FROM operations o LEFT JOIN cases c ON c.case_id = o.case_id \
                  LEFT JOIN outbox x ON x.case_id = o.case_id AND x.version = o.version \
                  WHERE c.case_id IS NULL OR o.version > c.version OR x.operation_id IS NULL OR x.operation_id <> o.operation_id";
    assert_eq!(database.sql_value(unlike), "0", "each operation belongs to a case and has its outbox row");
    let last = "SELECT count(*) FROM cases c LEFT JOIN operations o ON o.case_id = c.case_id AND o.version = c.version \
                WHERE o.version IS NULL OR o.recorded_at <> c.updated_at OR o.revision <> c.revision OR o.status <> c.status";
    assert_eq!(database.sql_value(last), "0", "a case stands where its last operation left it");
}
