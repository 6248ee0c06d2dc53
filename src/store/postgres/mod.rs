//! The store on PostgreSQL: many processes on one database, row locks, the writer fence.
//!
//! Owns nothing but the way from the seam to its parts: `commit` (READ SECOND) is the one statement that writes cases,
//! `writer` the connection that sends it, `fence` what settles a lost answer, the rest are reads and administration.
//! Connections are driven on the runtime that opened them: every call is made on the database's own runtime.

mod cases;
mod commit;
mod connect;
mod fence;
mod migrate;
mod pool;
mod rows;
mod schema;
mod snapshot;
mod writer;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use uuid::Uuid;

pub(super) use self::connect::Connector;
pub(super) use self::pool::{Pool, within};
use self::rows::{OperationRow, TokenRow, WorkflowRow, to_postgres_time};
use self::schema::{api_tokens, operations, workflows};
use self::snapshot::PostgresSnapshot;
use self::writer::PostgresWriter;
use super::errors::inconsistent;
use super::values::sql_limit;
use super::{
    CaseFilter, CaseLoad, CaseRecord, DatabaseKind, SchemaState, Snapshot, Store, StoreError, StoredWorkflow,
    TokenRecord, Writer,
};
use crate::domain::{CaseId, KnownOperation, Operation, OperationId, Timestamp, Version};

/// 2000-01-01T00:00:00Z in microseconds since 1970: where PostgreSQL counts from.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A PostgreSQL database. Cheap to share; opens connections when they are needed.
pub struct PostgresStore {
    connector: Connector,
    pool: Pool,
}

impl PostgresStore {
    /// Reads a `postgres://` URL; connects to nothing yet. `sslmode=require` in it means TLS with a certificate that this
    /// machine trusts.
    ///
    /// # Errors
    /// [`StoreError::Refused`] with a sentence for the person who wrote the URL.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let connector = Connector::new(url);
        let connector =
            connector.map_err(|reason| StoreError::Refused { during: "reading the database URL", reason })?;
        Ok(Self { pool: Pool::new(connector.clone()), connector })
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Postgres
    }

    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        migrate::schema_state(&self.pool).await
    }

    async fn schema_migrate(&self) -> Result<Vec<String>, StoreError> {
        migrate::schema_migrate(self.connector.clone()).await
    }

    async fn schema_revert(&self) -> Result<Option<String>, StoreError> {
        migrate::schema_revert(self.connector.clone()).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let mut lease = self.pool.lease("asking whether the database answers").await?;
        let answer = diesel::select(1_i32.into_sql::<diesel::sql_types::Integer>());
        let result = within(answer.execute(lease.diesel())).await;
        lease.finish(result).map(drop)
    }

    async fn tidy_up(&self) -> Result<(), StoreError> {
        // The server keeps its log itself.
        Ok(())
    }

    async fn writer_open(&self, node: &str) -> Result<Box<dyn Writer>, StoreError> {
        Ok(Box::new(PostgresWriter::open(self.connector.clone(), node).await?))
    }

    async fn writers_fence(&self, node: &str) -> Result<(), StoreError> {
        fence::raise_all_of(&self.connector, node).await
    }

    async fn cases_load(&self, case_ids: &[CaseId], operations_max: usize) -> Result<Vec<CaseLoad>, StoreError> {
        cases::cases_load(&self.pool, case_ids, operations_max).await
    }

    async fn operations_find(
        &self,
        keys: &[(CaseId, OperationId)],
    ) -> Result<Vec<(CaseId, KnownOperation)>, StoreError> {
        cases::operations_find(&self.pool, keys).await
    }

    async fn case_fetch(&self, case_id: &CaseId) -> Result<Option<CaseRecord>, StoreError> {
        let loads = self.cases_load(std::slice::from_ref(case_id), 0).await?;
        Ok(loads.into_iter().next().and_then(|load| load.record))
    }

    async fn case_list(&self, filter: &CaseFilter) -> Result<Vec<CaseRecord>, StoreError> {
        let mut lease = self.pool.lease("listing cases").await?;
        let rows = within(cases::case_rows(lease.diesel(), filter)).await;
        Ok(lease.finish(rows)?.into_iter().map(|(case, assignees)| case.into_record(assignees)).collect())
    }

    async fn operation_fetch(
        &self,
        case_id: &CaseId,
        operation_id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        let during = "reading an operation";
        let mut lease = self.pool.lease(during).await?;
        let query = operations::table
            .filter(operations::case_id.eq(case_id.as_str()).and(operations::operation_id.eq(operation_id.uuid())))
            .select(OperationRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        lease.finish(rows)?.into_iter().next().map(|row| row.into_operation(during)).transpose()
    }

    async fn operation_list(
        &self,
        case_id: &CaseId,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let during = "listing a case's operations";
        let mut lease = self.pool.lease(during).await?;
        let query = operations::table
            .filter(operations::case_id.eq(case_id.as_str()).and(operations::version.gt(after.get())))
            .order(operations::version)
            .limit(sql_limit(limit))
            .select(OperationRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        lease.finish(rows)?.into_iter().map(|row| row.into_operation(during)).collect()
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(PostgresSnapshot::begin(&self.pool).await?))
    }

    async fn workflow_insert(&self, workflow: &StoredWorkflow) -> Result<StoredWorkflow, StoreError> {
        let during = "storing a workflow";
        let mut lease = self.pool.lease(during).await?;
        let insert = diesel::insert_into(workflows::table)
            .values((
                workflows::name.eq(workflow.name.as_str()),
                workflows::digest.eq(workflow.digest.as_slice()),
                workflows::text.eq(&*workflow.text),
            ))
            .on_conflict_do_nothing();
        let inserted = within(insert.execute(lease.diesel())).await;
        lease.check(inserted)?;
        let query =
            workflows::table.filter(workflows::name.eq(workflow.name.as_str())).select(WorkflowRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        let stored = lease.finish(rows)?.into_iter().next();
        stored.ok_or_else(|| inconsistent(during, "a stored workflow is gone"))?.into_stored(during)
    }

    async fn workflow_list(&self) -> Result<Vec<StoredWorkflow>, StoreError> {
        let during = "listing workflows";
        let mut lease = self.pool.lease(during).await?;
        let query = workflows::table.order(workflows::name).select(WorkflowRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        lease.finish(rows)?.into_iter().map(|row| row.into_stored(during)).collect()
    }

    async fn token_insert(&self, token: &TokenRecord) -> Result<(), StoreError> {
        let mut lease = self.pool.lease("storing a token").await?;
        let insert = diesel::insert_into(api_tokens::table).values(TokenRow::of(token));
        let inserted = within(insert.execute(lease.diesel())).await;
        lease.finish(inserted).map(drop)
    }

    async fn token_find(&self, sha256: &[u8; 32]) -> Result<Option<TokenRecord>, StoreError> {
        let during = "looking up a token";
        let mut lease = self.pool.lease(during).await?;
        let query =
            api_tokens::table.filter(api_tokens::token_sha256.eq(sha256.as_slice())).select(TokenRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        lease.finish(rows)?.into_iter().next().map(|row| row.into_record(during)).transpose()
    }

    async fn token_list(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let during = "listing tokens";
        let mut lease = self.pool.lease(during).await?;
        let query = api_tokens::table.order((api_tokens::created_at, api_tokens::id)).select(TokenRow::as_select());
        let rows = within(query.load(lease.diesel())).await;
        lease.finish(rows)?.into_iter().map(|row| row.into_record(during)).collect()
    }

    async fn token_revoke(&self, id: Uuid, at: Timestamp) -> Result<bool, StoreError> {
        let mut lease = self.pool.lease("revoking a token").await?;
        let at = to_postgres_time(at);
        // Only a token that is still in force: revoking twice keeps the first time.
        let first = diesel::update(api_tokens::table.find(id).filter(api_tokens::revoked_at.is_null()))
            .set(api_tokens::revoked_at.eq(at));
        let revoked = within(first.execute(lease.diesel())).await;
        lease.check(revoked)?;
        let there = within(api_tokens::table.find(id).select(api_tokens::id).load::<Uuid>(lease.diesel())).await;
        Ok(!lease.finish(there)?.is_empty())
    }
}
