//! The writer fence: makes sure that no batch of a writer can land any more.
//!
//! Owns the epochs of `writers`. Raising an epoch waits for a batch that still runs (it holds the row FOR SHARE) and makes
//! any that arrives later do nothing. A backend that was cut off in mid-message keeps its locks for hours and no timeout of
//! the server ends it, so what blocks the fence longer than [`LOCK_PATIENCE`] is terminated. Fails with [`StoreError`]: the
//! fence does not hold then, and is raised again. A fence that lands late only fences its owner once more.

use std::time::Duration;

use super::connect::{Connector, RawConnection};
use crate::store::StoreError;
use crate::store::errors::{postgres_lock_timed_out, postgres_store_error};

/// How long the fence waits for the writer's row before it terminates whoever holds it.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);
/// How long one call may take in all; a person who locks the row by hand is waited for no longer than this.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

const RAISE: &str = "UPDATE writers SET epoch = epoch + 1 WHERE writer_id = $1 RETURNING epoch";
const FORGET: &str = "DELETE FROM writers WHERE writer_id = $1";
/// By name, because a backend that waits for its client shows in no other way. The same role may end its own backends.
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
                         AND pid <> pg_backend_pid() AND application_name IN ($1, $2)";

/// The name under which a writer's connection shows in `pg_stat_activity`, by which it can be terminated.
pub(super) fn writer_connection_name(writer_id: &str) -> String {
    format!("casework-writer-{writer_id}")
}

fn fence_connection_name(writer_id: &str) -> String {
    format!("casework-fence-{writer_id}")
}

/// Raises a writer's epoch on a connection of its own and returns it; `None`: there is no such writer, so that no batch of
/// it can land.
///
/// # Errors
/// [`StoreError`]: the fence does not hold (yet).
pub(super) async fn raise(connector: &Connector, writer_id: &str) -> Result<Option<i64>, StoreError> {
    let during = "raising a writer's epoch";
    let raised = tokio::time::timeout(FENCE_TIMEOUT, raise_patiently(connector, writer_id, during)).await;
    raised.unwrap_or_else(|_| {
        Err(StoreError::Unavailable { during, reason: format!("no answer within {} s", FENCE_TIMEOUT.as_secs()) })
    })
}

async fn raise_patiently(
    connector: &Connector,
    writer_id: &str,
    during: &'static str,
) -> Result<Option<i64>, StoreError> {
    let failed = |error: tokio_postgres::Error| postgres_store_error(during, &error);
    let connection = connector.open_raw(&fence_connection_name(writer_id)).await.map_err(failed)?;
    let patience = format!("SET lock_timeout = {}", LOCK_PATIENCE.as_millis());
    connection.client().batch_execute(&patience).await.map_err(failed)?;
    loop {
        match connection.client().query_opt(RAISE, &[&writer_id]).await {
            Ok(row) => return Ok(row.map(|row| row.get(0))),
            Err(error) if postgres_lock_timed_out(&error) => {
                let ended = terminate(&connection, writer_id).await.map_err(failed)?;
                tracing::warn!(writer.id = writer_id, ended, "a writer's backend kept its locks and was terminated");
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Ends the backends of a writer, and of fences that were left behind. Returns how many there were.
async fn terminate(connection: &RawConnection, writer_id: &str) -> Result<usize, tokio_postgres::Error> {
    let names = (writer_connection_name(writer_id), fence_connection_name(writer_id));
    Ok(connection.client().query(TERMINATE, &[&names.0, &names.1]).await?.len())
}

/// Fences every writer that `node` left behind, and forgets it: a writer that turns out to be alive draws a new id.
///
/// # Errors
/// [`StoreError`]: not all of them are fenced.
pub(super) async fn raise_all_of(connector: &Connector, node: &str) -> Result<(), StoreError> {
    let during = "fencing the writers that an earlier start left behind";
    let failed = |error: tokio_postgres::Error| postgres_store_error(during, &error);
    let connection = connector.open_raw("casework-fence").await.map_err(failed)?;
    let rows = connection.client().query("SELECT writer_id FROM writers WHERE node = $1", &[&node]).await;
    for row in rows.map_err(failed)? {
        let writer_id: String = row.get(0);
        raise(connector, &writer_id).await?;
        connection.client().execute(FORGET, &[&writer_id]).await.map_err(failed)?;
    }
    Ok(())
}
