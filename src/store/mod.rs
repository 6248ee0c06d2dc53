//! The seam between Casework and its two databases, and the promises of whatever stands behind it.
//!
//! **Promises.** [`Writer::commit`] writes a batch in one transaction: for each [`Chain`] all of its rows or none, and none
//! unless the case's version is the expected one at the moment of commit. What it cannot say for certain it calls
//! [`CommitFault::Unclear`], and after [`Writer::fence`] what is read is final. Reads show committed rows only.
//!
//! Never decides, never answers a client. Fails with [`StoreError`] (reads) or [`CommitError`] (commits), each classified
//! once, in `errors`.
//!
//! Every call is made on the [`Database`]'s own runtime: a PostgreSQL connection lives on the runtime that opened it.

use async_trait::async_trait;

use crate::domain::{
    ActorId, CaseId, KnownOperation, Operation, OperationId, Revision, Status, Timestamp, Version, WorkflowName,
};
use crate::engine::Chain;
pub use crate::engine::{BatchAnswer, ChainAnswer, CommitFault, LockMode, RetryCause};

mod database;
mod errors;
pub mod postgres;
mod records;
mod redis_link;
mod schema_state;
mod side_tables;
pub mod sqlite;
mod values;

pub use database::{Database, DatabaseRuntime, DatabaseUrl, InvalidDatabaseUrl};
pub use records::{CaseFilter, CaseLoad, CaseRecord, OutboxRecord, StoredWorkflow, TokenRecord};
pub use redis_link::RedisLink;
pub use side_tables::SideTables;

/// Which database stands behind the seam. What differs between them is named here and in the conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Embedded; one process; no row locks: a foreign writer holds up every commit.
    Sqlite,
    /// Many processes; row locks.
    Postgres,
}

/// How the schema stands to the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// Migrations are pending: run `casework migrate`.
    Behind,
    /// They match.
    Current,
    /// The database was migrated by a newer binary: use that one.
    Ahead,
}

/// A read or an administrative statement failed. Nothing was answered from it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached or is shutting down: try again later.
    #[error("the database is not available while {during}: {reason}")]
    Unavailable {
        /// What was being tried.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// The database refused the statement; the same again will fail again.
    #[error("the database refused {during}: {reason}")]
    Refused {
        /// What was being tried.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// Stored rows are not what Casework writes.
    #[error("the database holds something unexpected, found while {during}: {reason}; run `casework verify`")]
    Inconsistent {
        /// What was being tried.
        during: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// A commit that did not answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the commit failed ({fault:?}): {reason}")]
pub struct CommitError {
    /// The class.
    pub fault: CommitFault,
    /// The driver's words, for the log.
    pub reason: String,
}

/// One committing connection. Dropping it closes the connection.
#[async_trait]
pub trait Writer: Send {
    /// Commits a batch in one transaction. Each case stands in it once; chains are sorted by `case_id` (bytes).
    ///
    /// # Errors
    /// [`CommitError`]; for every fault but `Unclear` nothing of the batch is written.
    async fn commit(&mut self, batch: &[Chain], lock: LockMode) -> Result<BatchAnswer, CommitError>;

    /// Makes sure that no earlier batch of this writer can be written any more, and readies the writer for new ones. After
    /// `Ok` what is read is final.
    ///
    /// # Errors
    /// [`StoreError`]: the fence does not hold yet; call it again.
    async fn fence(&mut self) -> Result<(), StoreError>;
}

/// One consistent view of the whole database, for `export` and `verify`. Scans go in key order; `after` is exclusive.
#[async_trait]
pub trait Snapshot: Send {
    /// Cases by id.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn case_scan(&mut self, after: Option<&CaseId>, limit: usize) -> Result<Vec<CaseRecord>, StoreError>;

    /// Operations by case id and version.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn operation_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError>;

    /// Outbox rows by case id and version.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn outbox_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError>;
}

/// A database that keeps Casework's rows.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Which one it is.
    fn kind(&self) -> DatabaseKind;

    /// How the schema stands to the binary.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn schema_state(&self) -> Result<SchemaState, StoreError>;

    /// Runs the pending migrations; harmless when another process does so at the same time. Returns their names.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn schema_migrate(&self) -> Result<Vec<String>, StoreError>;

    /// Reverts the newest migration and returns its name; `None` when there is none left.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn schema_revert(&self) -> Result<Option<String>, StoreError>;

    /// Answers when the database does.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn ping(&self) -> Result<(), StoreError>;

    /// To be called when this process has written its last: brings what a write-ahead log beside the file still holds into
    /// the file, so that a copy of that alone is whole. Nothing depends on it: a log that stays is read at the next start.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tidy_up(&self) -> Result<(), StoreError>;

    /// Opens a committing connection with a writer id of its own, recorded under `node`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn writer_open(&self, node: &str) -> Result<Box<dyn Writer>, StoreError>;

    /// Raises the epochs of all writers that `node` left behind, so that no batch of theirs lands any more.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn writers_fence(&self, node: &str) -> Result<(), StoreError>;

    /// State, assignments and operation ids of cases, each case from one snapshot. A case with more than `operations_max`
    /// operations comes without them. The answer has one entry a requested id, in the same order.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn cases_load(&self, case_ids: &[CaseId], operations_max: usize) -> Result<Vec<CaseLoad>, StoreError>;

    /// Those of the named operations that exist.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn operations_find(
        &self,
        keys: &[(CaseId, OperationId)],
    ) -> Result<Vec<(CaseId, KnownOperation)>, StoreError>;

    /// One case.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn case_fetch(&self, case_id: &CaseId) -> Result<Option<CaseRecord>, StoreError>;

    /// Cases that match a filter, by id.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn case_list(&self, filter: &CaseFilter) -> Result<Vec<CaseRecord>, StoreError>;

    /// One operation.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn operation_fetch(
        &self,
        case_id: &CaseId,
        operation_id: OperationId,
    ) -> Result<Option<Operation>, StoreError>;

    /// A case's operations after a version, by version, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn operation_list(
        &self,
        case_id: &CaseId,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError>;

    /// A consistent view for scans.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError>;

    /// Stores a workflow unless its name is there already; returns what is stored under the name afterwards.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn workflow_insert(&self, workflow: &StoredWorkflow) -> Result<StoredWorkflow, StoreError>;

    /// All stored workflows, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn workflow_list(&self) -> Result<Vec<StoredWorkflow>, StoreError>;

    /// Stores a token (its hash).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn token_insert(&self, token: &TokenRecord) -> Result<(), StoreError>;

    /// The token with this SHA-256, revoked and expired ones too.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn token_find(&self, sha256: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError>;

    /// All tokens, by creation.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn token_list(&self) -> Result<Vec<TokenRecord>, StoreError>;

    /// Revokes a token; false when there is none with this id. Revoking twice keeps the first time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn token_revoke(&self, id: uuid::Uuid, at: Timestamp) -> Result<bool, StoreError>;
}
