//! The store on SQLite: one file, one process that writes much, no server.
//!
//! Owns the threads: one that writes (`BEGIN IMMEDIATE`, WAL, `synchronous=FULL`), a few that read, one that copies the log
//! back. There are no row locks:
//! a foreign writer (a person in the `sqlite3` shell) holds up every commit, which is then [`CommitFault::Retry`]. There is
//! no writer's row either: after a COMMIT without a clear answer the connection is closed and opened again, which rolls back
//! what was not committed, and what is read then is final.

mod admin;
mod case_update;
mod checkpoints;
mod commit;
mod connect;
mod reads;
mod rows;
mod schema;
mod worker;

use std::sync::Arc;

use async_trait::async_trait;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use uuid::Uuid;

use self::checkpoints::Checkpoints;
pub(super) use self::connect::Role;
pub(super) use self::worker::Workers;
use super::errors::sqlite_store_error;
use super::{
    BatchAnswer, CaseFilter, CaseLoad, CaseRecord, CommitError, CommitFault, DatabaseKind, LockMode, OutboxRecord,
    SchemaState, Snapshot, Store, StoreError, StoredWorkflow, TokenRecord, Writer,
};
use crate::domain::{CaseId, KnownOperation, Operation, OperationId, Timestamp, Version};
use crate::engine::Chain;

/// How many threads read. They wait for the disk at most, so a few are enough.
const READERS: usize = 4;

/// A SQLite file. The threads end with the last handle.
pub struct SqliteStore {
    path: Arc<str>,
    writer: Workers,
    readers: Workers,
    checkpoints: Checkpoints,
}

impl SqliteStore {
    /// Starts the threads for the file at `path`; it is opened (and created) when the first work needs it.
    ///
    /// # Errors
    /// [`StoreError`] where a thread can't be started, or the path is one that only one connection could see.
    pub fn new(path: &str) -> Result<Self, StoreError> {
        if path.is_empty() || path.contains(":memory:") || path.contains("mode=memory") {
            let reason = "a database in memory exists for one connection only; give the path of a file".into();
            return Err(StoreError::Refused { during: "reading the database path", reason });
        }
        Ok(Self {
            writer: Workers::start("casework-sqlite-writer", 1, path, Role::Writer)?,
            readers: Workers::start("casework-sqlite-reader", READERS, path, Role::Reader)?,
            checkpoints: Checkpoints::start(path)?,
            path: path.into(),
        })
    }
}

/// A handle to the one thread that commits. Several may exist: their batches take turns.
struct SqliteWriter {
    writer: Workers,
    checkpoints: Checkpoints,
    is_unclear: bool,
}

#[async_trait]
impl Writer for SqliteWriter {
    async fn commit(&mut self, batch: &[Chain], lock: LockMode) -> Result<BatchAnswer, CommitError> {
        if self.is_unclear {
            let reason = "an earlier commit has no clear answer, and the fence was not raised since".into();
            return Err(CommitError { fault: CommitFault::Unclear, reason });
        }
        debug_assert!(batch.is_sorted_by(|a, b| a.case_id < b.case_id), "each case once, in key order");
        let operations = batch.iter().map(Chain::operation_count).sum();
        // Texts are shared, so a copy for the other thread costs a few counters.
        let batch = batch.to_vec();
        self.is_unclear = true;
        let result = self.writer.run_on_slot(move |slot| commit::commit(slot, &batch, lock)).await;
        let result = result.unwrap_or_else(|| {
            let reason = "the commit panicked on the database thread".into();
            Err(CommitError { fault: CommitFault::Unclear, reason })
        });
        self.is_unclear = result.as_ref().is_err_and(|error| error.fault == CommitFault::Unclear);
        if result.is_ok() {
            self.checkpoints.committed(operations);
        }
        result
    }

    async fn fence(&mut self) -> Result<(), StoreError> {
        self.is_unclear = true;
        // On the same thread, so behind any commit whose caller is gone.
        let reopened = self.writer.run_on_slot(|slot| {
            slot.close();
            slot.connection().map(drop)
        });
        reopened.await.unwrap_or_else(|| {
            let reason = "opening the file panicked on the database thread".into();
            Err(StoreError::Unavailable { during: "opening the file again", reason })
        })?;
        self.is_unclear = false;
        Ok(())
    }
}

/// One view of the file: a thread of its own with an open read transaction.
struct SqliteSnapshot(Workers);

impl SqliteSnapshot {
    async fn begin(path: &str) -> Result<Self, StoreError> {
        let during = "scanning the database";
        let workers = Workers::start("casework-sqlite-snapshot", 1, path, Role::Reader)?;
        let begin = workers.run(during, move |connection| {
            // BEGIN alone fixes nothing: the first read does.
            let begun = connection.batch_execute("BEGIN; SELECT count(*) FROM sqlite_schema;");
            begun.map_err(|error| sqlite_store_error(during, &error))
        });
        begin.await?;
        Ok(Self(workers))
    }
}

#[async_trait]
impl Snapshot for SqliteSnapshot {
    async fn case_scan(&mut self, after: Option<&CaseId>, limit: usize) -> Result<Vec<CaseRecord>, StoreError> {
        let filter = CaseFilter { after: after.cloned(), limit, ..CaseFilter::default() };
        self.0.run("scanning cases", move |connection| reads::case_scan(connection, &filter)).await
    }

    async fn operation_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let after = after.map(|(case_id, version)| (case_id.clone(), version));
        self.0.run("scanning operations", move |connection| reads::operation_scan(connection, after, limit)).await
    }

    async fn outbox_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let after = after.map(|(case_id, version)| (case_id.clone(), version));
        self.0.run("scanning the outbox", move |connection| reads::outbox_scan(connection, after, limit)).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Sqlite
    }

    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        self.readers.run("looking at the schema", admin::schema_state).await
    }

    async fn schema_migrate(&self) -> Result<Vec<String>, StoreError> {
        self.writer.run("migrating the schema", admin::schema_migrate).await
    }

    async fn schema_revert(&self) -> Result<Option<String>, StoreError> {
        self.writer.run("migrating the schema", admin::schema_revert).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let during = "asking whether the database answers";
        let ping = move |connection: &mut SqliteConnection| {
            let read = diesel::sql_query("SELECT count(*) FROM sqlite_schema").execute(connection);
            read.map(drop).map_err(|error| sqlite_store_error(during, &error))
        };
        self.readers.run(during, ping).await
    }

    async fn tidy_up(&self) -> Result<(), StoreError> {
        let during = "copying the write-ahead log into the file";
        let checkpoint = move |connection: &mut SqliteConnection| {
            let done = connection.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)");
            done.map_err(|error| sqlite_store_error(during, &error))
        };
        self.writer.run(during, checkpoint).await
    }

    async fn writer_open(&self, _node: &str) -> Result<Box<dyn Writer>, StoreError> {
        self.writer.run("opening a writer", |_| Ok(())).await?;
        Ok(Box::new(SqliteWriter {
            writer: self.writer.clone(),
            checkpoints: self.checkpoints.clone(),
            is_unclear: false,
        }))
    }

    async fn writers_fence(&self, _node: &str) -> Result<(), StoreError> {
        // A dead process holds nothing: SQLite rolls its transaction back before anyone else reads.
        Ok(())
    }

    async fn cases_load(&self, case_ids: &[CaseId], operations_max: usize) -> Result<Vec<CaseLoad>, StoreError> {
        let case_ids = case_ids.to_vec();
        let load = move |connection: &mut _| reads::cases_load(connection, &case_ids, operations_max);
        self.readers.run("loading cases", load).await
    }

    async fn operations_find(
        &self,
        keys: &[(CaseId, OperationId)],
    ) -> Result<Vec<(CaseId, KnownOperation)>, StoreError> {
        let keys = keys.to_vec();
        self.readers.run("looking up operation ids", move |connection| reads::operations_find(connection, keys)).await
    }

    async fn case_fetch(&self, case_id: &CaseId) -> Result<Option<CaseRecord>, StoreError> {
        let loads = self.cases_load(std::slice::from_ref(case_id), 0).await?;
        Ok(loads.into_iter().next().and_then(|load| load.record))
    }

    async fn case_list(&self, filter: &CaseFilter) -> Result<Vec<CaseRecord>, StoreError> {
        let filter = filter.clone();
        self.readers.run("listing cases", move |connection| reads::case_list(connection, &filter)).await
    }

    async fn operation_fetch(
        &self,
        case_id: &CaseId,
        operation_id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        let case_id = case_id.clone();
        let fetch = move |connection: &mut _| reads::operation_fetch(connection, &case_id, operation_id);
        self.readers.run("reading an operation", fetch).await
    }

    async fn operation_list(
        &self,
        case_id: &CaseId,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let case_id = case_id.clone();
        let list = move |connection: &mut _| reads::operation_list(connection, &case_id, after, limit);
        self.readers.run("listing a case's operations", list).await
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(SqliteSnapshot::begin(&self.path).await?))
    }

    async fn workflow_insert(&self, workflow: &StoredWorkflow) -> Result<StoredWorkflow, StoreError> {
        let workflow = workflow.clone();
        let insert = move |connection: &mut _| admin::workflow_insert(connection, &workflow);
        self.writer.run("storing a workflow", insert).await
    }

    async fn workflow_list(&self) -> Result<Vec<StoredWorkflow>, StoreError> {
        self.readers.run("listing workflows", admin::workflow_list).await
    }

    async fn token_insert(&self, token: &TokenRecord) -> Result<(), StoreError> {
        let token = token.clone();
        self.writer.run("storing a token", move |connection| admin::token_insert(connection, &token)).await
    }

    async fn token_find(&self, sha256: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError> {
        let sha256 = *sha256;
        self.readers.run("looking up a token", move |connection| admin::token_find(connection, &sha256)).await
    }

    async fn token_list(&self) -> Result<Vec<TokenRecord>, StoreError> {
        self.readers.run("listing tokens", admin::token_list).await
    }

    async fn token_revoke(&self, id: Uuid, at: Timestamp) -> Result<bool, StoreError> {
        self.writer.run("revoking a token", move |connection| admin::token_revoke(connection, id, at)).await
    }
}
