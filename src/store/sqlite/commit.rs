//! The commit on SQLite: one `BEGIN IMMEDIATE` transaction for a whole batch.
//!
//! Owns the order of the statements, on which the triggers rely: operations and outbox first, the case last, so that a
//! case's operations are ahead of its version exactly while the committer works on it. Statements are single rows, which
//! Diesel prepares once each. Until COMMIT is sent nothing is written; a COMMIT that fails may have happened: unclear.

use diesel::SqliteConnection;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error;

use super::case_update::CaseUpdate;
use super::connect::BUSY_TIMEOUT;
use super::schema::{assignments, cases, operations, outbox};
use super::worker::Slot;
use crate::domain::{Operation, Version};
use crate::engine::{Chain, Step};
use crate::store::errors::{describe, sqlite_is_busy, sqlite_statement_fault};
use crate::store::{BatchAnswer, ChainAnswer, CommitError, CommitFault, LockMode, RetryCause};

/// Commits a batch on the writer's thread. See [`Writer::commit`](crate::store::Writer::commit).
pub(super) fn commit(slot: &mut Slot, batch: &[Chain], lock: LockMode) -> Result<BatchAnswer, CommitError> {
    let connection = slot.connection().map_err(|error| failed(CommitFault::Failed, error.to_string()))?;
    begin(connection, batch, lock)?;
    let mut answers = Vec::with_capacity(batch.len());
    for chain in batch {
        match chain_commit(connection, chain) {
            Ok(answer) => answers.push(answer),
            Err(failure) => {
                let fault = failure.fault(connection, chain);
                if connection.batch_execute("ROLLBACK").is_err() {
                    // SQLite has rolled back by itself; closing makes sure of it.
                    slot.close();
                }
                return Err(fault);
            }
        }
    }
    if let Err(error) = connection.batch_execute("COMMIT") {
        slot.close();
        return Err(failed(CommitFault::Unclear, describe(&error)));
    }
    Ok(BatchAnswer::Settled(answers))
}

/// Starts the transaction. A batch of checks alone takes no lock: it reads one snapshot of committed rows.
fn begin(connection: &mut SqliteConnection, batch: &[Chain], lock: LockMode) -> Result<(), CommitError> {
    let writes = batch.iter().any(|chain| chain.step.is_some());
    let begun = match (writes, lock) {
        (false, _) => connection.batch_execute("BEGIN"),
        (true, LockMode::Skip) => connection.batch_execute("BEGIN IMMEDIATE"),
        (true, LockMode::Wait(wait)) => {
            let waiting = format!("PRAGMA busy_timeout = {}; BEGIN IMMEDIATE;", wait.as_millis());
            let begun = connection.batch_execute(&waiting);
            let reset = connection.batch_execute(&format!("PRAGMA busy_timeout = {};", BUSY_TIMEOUT.as_millis()));
            begun.and(reset)
        }
    };
    begun.map_err(|error| {
        let fault = if sqlite_is_busy(&error) { CommitFault::Retry(RetryCause::Busy) } else { CommitFault::Failed };
        failed(fault, describe(&error))
    })
}

fn failed(fault: CommitFault, reason: String) -> CommitError {
    CommitError { fault, reason }
}

/// A statement that failed, and the operation that it should have inserted.
struct Failure<'a> {
    error: Error,
    operation: Option<&'a Operation>,
}

impl From<Error> for Failure<'_> {
    fn from(error: Error) -> Self {
        Self { error, operation: None }
    }
}

impl Failure<'_> {
    /// Classifies the failure while the transaction is still open: only looking tells which key it was.
    fn fault(&self, connection: &mut SqliteConnection, chain: &Chain) -> CommitError {
        let (mut is_duplicate, mut version_is_taken) = (false, false);
        if let Some(operation) = self.operation.filter(|_| !sqlite_is_busy(&self.error)) {
            let id = operation.operation_id.uuid();
            let same_case = operations::table.filter(operations::case_id.eq(chain.case_id.as_str()));
            let same_id = same_case.filter(operations::operation_id.eq(id.as_bytes().as_slice()));
            let same_version = same_case.filter(operations::version.eq(operation.version.get()));
            is_duplicate = diesel::select(diesel::dsl::exists(same_id)).get_result(connection).unwrap_or(false);
            version_is_taken =
                diesel::select(diesel::dsl::exists(same_version)).get_result(connection).unwrap_or(false);
        }
        failed(sqlite_statement_fault(&self.error, is_duplicate, version_is_taken), describe(&self.error))
    }
}

fn chain_commit<'a>(connection: &mut SqliteConnection, chain: &'a Chain) -> Result<ChainAnswer, Failure<'a>> {
    let case_id = chain.case_id.as_str();
    let seen = cases::table.find(case_id).select(cases::version).get_result::<i64>(connection).optional()?.unwrap_or(0);
    if seen != chain.expected.get() {
        return Ok(ChainAnswer::Missed { seen: Version::new(seen) });
    }
    if let Some(step) = &chain.step {
        step_write(connection, case_id, step, seen == 0)?;
    }
    Ok(ChainAnswer::Held)
}

fn step_write<'a>(
    connection: &mut SqliteConnection,
    case_id: &str,
    step: &'a Step,
    is_new: bool,
) -> Result<(), Failure<'a>> {
    let after = &step.after;
    for operation in &step.operations {
        operation_insert(connection, case_id, operation)?;
    }
    if is_new {
        diesel::insert_into(cases::table)
            .values((
                cases::case_id.eq(case_id),
                cases::workflow.eq(after.workflow.name().as_str()),
                cases::status.eq(after.status.as_str()),
                cases::revision.eq(after.revision.get()),
                cases::version.eq(0),
                cases::data.eq(&*after.data),
                cases::opened_at.eq(after.opened_at.micros()),
                cases::updated_at.eq(after.updated_at.micros()),
            ))
            .execute(connection)?;
    }
    for change in &step.assignments {
        let assignee = change.assignee.as_str();
        if change.present {
            diesel::insert_or_ignore_into(assignments::table)
                .values((assignments::case_id.eq(case_id), assignments::assignee.eq(assignee)))
                .execute(connection)?;
        } else {
            diesel::delete(assignments::table.find((case_id, assignee))).execute(connection)?;
        }
    }
    CaseUpdate::new(case_id, step).execute(connection)?;
    Ok(())
}

fn operation_insert<'a>(
    connection: &mut SqliteConnection,
    case_id: &str,
    operation: &'a Operation,
) -> Result<(), Failure<'a>> {
    let id = operation.operation_id.uuid();
    diesel::insert_into(operations::table)
        .values((
            operations::case_id.eq(case_id),
            operations::operation_id.eq(id.as_bytes().as_slice()),
            operations::version.eq(operation.version.get()),
            operations::revision.eq(operation.revision.get()),
            operations::status.eq(operation.status.as_str()),
            operations::recorded_at.eq(operation.recorded_at.micros()),
            operations::actor.eq(operation.actor.as_str()),
            operations::command.eq(operation.command.as_str()),
            operations::digest.eq(operation.digest.as_ref().map(|digest| digest.as_bytes().as_slice())),
            operations::request.eq(operation.request.as_deref()),
            operations::outcome.eq(operation.outcome.as_deref()),
        ))
        .execute(connection)
        .map_err(|error| Failure { error, operation: Some(operation) })?;
    // From here on the operation is there, our own: a failure is not about its keys.
    diesel::insert_into(outbox::table)
        .values((
            outbox::case_id.eq(case_id),
            outbox::version.eq(operation.version.get()),
            outbox::operation_id.eq(id.as_bytes().as_slice()),
        ))
        .execute(connection)?;
    Ok(())
}
