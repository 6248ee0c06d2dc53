//! One consistent view of PostgreSQL: a REPEATABLE READ transaction that stays open.
//!
//! Owns a connection of its own, closed when it is dropped. Fails with [`StoreError`].

use async_trait::async_trait;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};

use super::cases::case_rows;
use super::pool::{Lease, Pool, within};
use super::rows::{OperationRow, OutboxRow};
use super::schema::{operations, outbox};
use crate::domain::{CaseId, Operation, Version};
use crate::store::values::sql_limit;
use crate::store::{CaseFilter, CaseRecord, OutboxRecord, Snapshot, StoreError};

const DURING: &str = "scanning the database";

/// The open transaction.
pub(super) struct PostgresSnapshot(Lease);

impl PostgresSnapshot {
    pub(super) async fn begin(pool: &Pool) -> Result<Self, StoreError> {
        let mut lease = pool.detached(DURING).await?;
        // BEGIN alone fixes nothing: the first read does.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1";
        let begun = lease.diesel().batch_execute(begin).await;
        lease.check(begun)?;
        Ok(Self(lease))
    }
}

#[async_trait]
impl Snapshot for PostgresSnapshot {
    async fn case_scan(&mut self, after: Option<&CaseId>, limit: usize) -> Result<Vec<CaseRecord>, StoreError> {
        let filter = CaseFilter { after: after.cloned(), limit, ..CaseFilter::default() };
        let rows = within(case_rows(self.0.diesel(), &filter)).await;
        Ok(self.0.check(rows)?.into_iter().map(|(case, assignees)| case.into_record(assignees)).collect())
    }

    async fn operation_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let mut query = operations::table
            .select(OperationRow::as_select())
            .order((operations::case_id, operations::version))
            .limit(sql_limit(limit))
            .into_boxed();
        if let Some((case_id, version)) = after {
            // As a row: an OR of two conditions would not be one range of the index.
            let start = sql::<Bool>("(case_id, version) > (").bind::<Text, _>(case_id.as_str());
            query = query.filter(start.sql(", ").bind::<BigInt, _>(version.get()).sql(")"));
        }
        let rows = within(query.load(self.0.diesel())).await;
        self.0.check(rows)?.into_iter().map(|row| row.into_operation(DURING)).collect()
    }

    async fn outbox_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let mut query = outbox::table
            .select(OutboxRow::as_select())
            .order((outbox::case_id, outbox::version))
            .limit(sql_limit(limit))
            .into_boxed();
        if let Some((case_id, version)) = after {
            let start = sql::<Bool>("(case_id, version) > (").bind::<Text, _>(case_id.as_str());
            query = query.filter(start.sql(", ").bind::<BigInt, _>(version.get()).sql(")"));
        }
        let rows = within(query.load(self.0.diesel())).await;
        Ok(self.0.check(rows)?.into_iter().map(OutboxRecord::from).collect())
    }
}
