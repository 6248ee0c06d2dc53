//! Reading from SQLite, each function on a reader's thread and within one transaction: one snapshot.
//!
//! Owns the queries for memory, lists and scans. Fails with [`StoreError`].

use diesel::SqliteConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};

use super::rows::{CaseRow, KnownRow, OperationRow, OutboxRow};
use super::schema::{assignments, cases, operations, outbox};
use crate::domain::{CaseId, KnownOperation, Operation, OperationId, Status, Version, WorkflowName};
use crate::store::errors::{TransactionError, sqlite_store_error};
use crate::store::values::sql_limit;
use crate::store::{CaseFilter, CaseLoad, CaseRecord, OutboxRecord, StoreError};

fn in_snapshot<T>(
    connection: &mut SqliteConnection,
    during: &'static str,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, TransactionError>,
) -> Result<T, StoreError> {
    connection.transaction(work).map_err(|error| error.into_sqlite(during))
}

fn assignees_of(connection: &mut SqliteConnection, case_id: &str) -> QueryResult<Vec<String>> {
    assignments::table
        .filter(assignments::case_id.eq(case_id))
        .order(assignments::assignee)
        .select(assignments::assignee)
        .load(connection)
}

fn with_assignees(connection: &mut SqliteConnection, row: CaseRow) -> QueryResult<CaseRecord> {
    let assignees = assignees_of(connection, &row.case_id)?;
    Ok(row.into_record(assignees))
}

/// See [`Store::cases_load`](crate::store::Store::cases_load).
pub(super) fn cases_load(
    connection: &mut SqliteConnection,
    case_ids: &[CaseId],
    operations_max: usize,
) -> Result<Vec<CaseLoad>, StoreError> {
    let during = "loading cases";
    in_snapshot(connection, during, |connection| {
        case_ids.iter().map(|case_id| case_load(connection, case_id, operations_max, during)).collect()
    })
}

fn case_load(
    connection: &mut SqliteConnection,
    case_id: &CaseId,
    operations_max: usize,
    during: &'static str,
) -> Result<CaseLoad, TransactionError> {
    let row = cases::table.find(case_id.as_str()).get_result::<CaseRow>(connection).optional()?;
    let Some(row) = row else { return Ok(CaseLoad { record: None, operations: Some(Vec::new()) }) };
    // A case's operations are as many as its version says: versions are dense.
    let operations = if usize::try_from(row.version).is_ok_and(|version| version <= operations_max) {
        let known = operations::table
            .filter(operations::case_id.eq(case_id.as_str()))
            .select(KnownRow::as_select())
            .load(connection)?;
        Some(known.into_iter().map(|row| row.into_known(during)).collect::<Result<_, _>>()?)
    } else {
        None
    };
    Ok(CaseLoad { record: Some(with_assignees(connection, row)?), operations })
}

/// See [`Store::operations_find`](crate::store::Store::operations_find).
pub(super) fn operations_find(
    connection: &mut SqliteConnection,
    keys: Vec<(CaseId, OperationId)>,
) -> Result<Vec<(CaseId, KnownOperation)>, StoreError> {
    let during = "looking up operation ids";
    in_snapshot(connection, during, |connection| {
        let mut found = Vec::new();
        for (case_id, operation_id) in keys {
            let id = operation_id.uuid();
            let row = operations::table
                .find((case_id.as_str(), id.as_bytes().as_slice()))
                .select(KnownRow::as_select())
                .get_result(connection)
                .optional()?;
            if let Some(row) = row {
                found.push((case_id, row.into_known(during)?));
            }
        }
        Ok(found)
    })
}

/// Cases that match, by id. With an assignee the list starts from that person's assignments: a look-up, not a scan.
pub(super) fn case_list(connection: &mut SqliteConnection, filter: &CaseFilter) -> Result<Vec<CaseRecord>, StoreError> {
    in_snapshot(connection, "listing cases", |connection| {
        let rows = case_rows(connection, filter)?;
        Ok(rows.into_iter().map(|row| with_assignees(connection, row)).collect::<QueryResult<_>>()?)
    })
}

/// See [`Snapshot::case_scan`](crate::store::Snapshot::case_scan): within the transaction that is open already.
pub(super) fn case_scan(connection: &mut SqliteConnection, filter: &CaseFilter) -> Result<Vec<CaseRecord>, StoreError> {
    let rows = case_rows(connection, filter)
        .and_then(|rows| rows.into_iter().map(|row| with_assignees(connection, row)).collect::<QueryResult<_>>());
    rows.map_err(|error| sqlite_store_error("scanning cases", &error))
}

fn case_rows(connection: &mut SqliteConnection, filter: &CaseFilter) -> QueryResult<Vec<CaseRow>> {
    let limit = sql_limit(filter.limit);
    let after = filter.after.as_ref().map(CaseId::as_str);
    let status = filter.status.as_ref().map(Status::as_str);
    let workflow = filter.workflow.as_ref().map(WorkflowName::as_str);
    if let Some(assignee) = &filter.assignee {
        let mut query = assignments::table
            .inner_join(cases::table)
            .filter(assignments::assignee.eq(assignee.as_str()))
            .select(cases::all_columns)
            .order(assignments::case_id)
            .limit(limit)
            .into_boxed();
        if let Some(after) = after {
            query = query.filter(assignments::case_id.gt(after));
        }
        if let Some(status) = status {
            query = query.filter(cases::status.eq(status));
        }
        if let Some(workflow) = workflow {
            query = query.filter(cases::workflow.eq(workflow));
        }
        return query.load(connection);
    }
    let mut query = cases::table.order(cases::case_id).limit(limit).into_boxed();
    if let Some(after) = after {
        query = query.filter(cases::case_id.gt(after));
    }
    if let Some(status) = status {
        query = query.filter(cases::status.eq(status));
    }
    if let Some(workflow) = workflow {
        query = query.filter(cases::workflow.eq(workflow));
    }
    query.load(connection)
}

/// See [`Store::operation_fetch`](crate::store::Store::operation_fetch).
pub(super) fn operation_fetch(
    connection: &mut SqliteConnection,
    case_id: &CaseId,
    operation_id: OperationId,
) -> Result<Option<Operation>, StoreError> {
    let during = "reading an operation";
    let id = operation_id.uuid();
    let row = operations::table
        .find((case_id.as_str(), id.as_bytes().as_slice()))
        .select(OperationRow::as_select())
        .get_result(connection)
        .optional();
    let row = row.map_err(|error| sqlite_store_error(during, &error))?;
    row.map(|row| row.into_operation(during)).transpose()
}

/// See [`Store::operation_list`](crate::store::Store::operation_list).
pub(super) fn operation_list(
    connection: &mut SqliteConnection,
    case_id: &CaseId,
    after: Version,
    limit: usize,
) -> Result<Vec<Operation>, StoreError> {
    let during = "listing a case's operations";
    let rows = operations::table
        .filter(operations::case_id.eq(case_id.as_str()).and(operations::version.gt(after.get())))
        .order(operations::version)
        .limit(sql_limit(limit))
        .select(OperationRow::as_select())
        .load(connection);
    let rows = rows.map_err(|error| sqlite_store_error(during, &error))?;
    rows.into_iter().map(|row| row.into_operation(during)).collect()
}

/// See [`Snapshot::operation_scan`](crate::store::Snapshot::operation_scan).
pub(super) fn operation_scan(
    connection: &mut SqliteConnection,
    after: Option<(CaseId, Version)>,
    limit: usize,
) -> Result<Vec<Operation>, StoreError> {
    let during = "scanning operations";
    let mut query = operations::table
        .select(OperationRow::as_select())
        .order((operations::case_id, operations::version))
        .limit(sql_limit(limit))
        .into_boxed();
    if let Some((case_id, version)) = after {
        // As a row: an OR of two conditions would not be one range of the index.
        let start = sql::<Bool>("(case_id, version) > (").bind::<Text, _>(case_id.as_str().to_owned());
        query = query.filter(start.sql(", ").bind::<BigInt, _>(version.get()).sql(")"));
    }
    let rows = query.load(connection).map_err(|error| sqlite_store_error(during, &error))?;
    rows.into_iter().map(|row| row.into_operation(during)).collect()
}

/// See [`Snapshot::outbox_scan`](crate::store::Snapshot::outbox_scan).
pub(super) fn outbox_scan(
    connection: &mut SqliteConnection,
    after: Option<(CaseId, Version)>,
    limit: usize,
) -> Result<Vec<OutboxRecord>, StoreError> {
    let during = "scanning the outbox";
    let mut query = outbox::table
        .select(OutboxRow::as_select())
        .order((outbox::case_id, outbox::version))
        .limit(sql_limit(limit))
        .into_boxed();
    if let Some((case_id, version)) = after {
        let start = sql::<Bool>("(case_id, version) > (").bind::<Text, _>(case_id.as_str().to_owned());
        query = query.filter(start.sql(", ").bind::<BigInt, _>(version.get()).sql(")"));
    }
    let rows = query.load(connection).map_err(|error| sqlite_store_error(during, &error))?;
    rows.into_iter().map(|row| row.into_record(during)).collect()
}
