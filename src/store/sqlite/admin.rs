//! Workflows, tokens and the schema of SQLite: the writer's other work.
//!
//! Owns small transactions of a statement or two. Fails with [`StoreError`].

use diesel::SqliteConnection;
use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::Sqlite;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use uuid::Uuid;

use super::rows::{TokenRow, WorkflowRow};
use super::schema::{api_tokens, workflows};
use crate::domain::Timestamp;
use crate::store::errors::{TransactionError, sqlite_store_error};
use crate::store::schema_state::{Embedded, compare, embedded, name_of};
use crate::store::{SchemaState, StoreError, StoredWorkflow, TokenRecord};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const MIGRATING: &str = "migrating the schema";

#[derive(diesel::QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Text)]
    value: String,
}

/// See [`Store::schema_state`](crate::store::Store::schema_state). Writes nothing.
pub(super) fn schema_state(connection: &mut SqliteConnection) -> Result<SchemaState, StoreError> {
    let during = "looking at the schema";
    let mut texts = |sql: &str| {
        let rows = diesel::sql_query(sql).load::<TextRow>(connection);
        rows.map(|rows| rows.into_iter().map(|row| row.value).collect::<Vec<_>>())
            .map_err(|error| sqlite_store_error(during, &error))
    };
    let table = texts("SELECT name AS value FROM sqlite_schema WHERE name = '__diesel_schema_migrations'")?;
    let applied = match table.is_empty() {
        true => Vec::new(),
        false => texts("SELECT version AS value FROM __diesel_schema_migrations")?,
    };
    Ok(compare(&all_embedded()?, &applied))
}

fn all_embedded() -> Result<Vec<Embedded>, StoreError> {
    embedded(MigrationSource::<Sqlite>::migrations(&MIGRATIONS)).map_err(refused)
}

/// See [`Store::schema_migrate`](crate::store::Store::schema_migrate).
pub(super) fn schema_migrate(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    alone(connection, |connection| {
        let versions = connection.run_pending_migrations(MIGRATIONS).map_err(|error| refused(error.to_string()))?;
        let embedded = all_embedded()?;
        Ok(versions.iter().map(|version| name_of(&embedded, &version.to_string())).collect())
    })
}

/// See [`Store::schema_revert`](crate::store::Store::schema_revert).
pub(super) fn schema_revert(connection: &mut SqliteConnection) -> Result<Option<String>, StoreError> {
    alone(connection, |connection| {
        if connection.applied_migrations().map_err(|error| refused(error.to_string()))?.is_empty() {
            return Ok(None);
        }
        let version = connection.revert_last_migration(MIGRATIONS).map_err(|error| refused(error.to_string()))?;
        Ok(Some(name_of(&all_embedded()?, &version.to_string())))
    })
}

/// Runs `work` in one transaction that holds the write lock from its begin: another process waits for it, and what is
/// interrupted has not happened.
fn alone<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Diesel's own transaction, so that the harness makes savepoints within it.
    let done = connection.immediate_transaction(|connection| work(connection).map_err(TransactionError::Store));
    done.map_err(|error| error.into_sqlite(MIGRATING))
}

fn refused(reason: String) -> StoreError {
    StoreError::Refused { during: MIGRATING, reason }
}

/// See [`Store::workflow_insert`](crate::store::Store::workflow_insert).
pub(super) fn workflow_insert(
    connection: &mut SqliteConnection,
    workflow: &StoredWorkflow,
) -> Result<StoredWorkflow, StoreError> {
    let during = "storing a workflow";
    let stored = connection.immediate_transaction(|connection| {
        let find = workflows::table.find(workflow.name.as_str()).select(WorkflowRow::as_select());
        if let Some(row) = find.get_result(connection).optional()? {
            return Ok(Some(row));
        }
        diesel::insert_into(workflows::table)
            .values((
                workflows::name.eq(workflow.name.as_str()),
                workflows::digest.eq(workflow.digest.as_slice()),
                workflows::text.eq(&*workflow.text),
            ))
            .execute(connection)?;
        Ok(None)
    });
    match stored.map_err(|error: diesel::result::Error| sqlite_store_error(during, &error))? {
        Some(row) => row.into_stored(during),
        None => Ok(workflow.clone()),
    }
}

/// See [`Store::workflow_list`](crate::store::Store::workflow_list).
pub(super) fn workflow_list(connection: &mut SqliteConnection) -> Result<Vec<StoredWorkflow>, StoreError> {
    let during = "listing workflows";
    let rows = workflows::table.order(workflows::name).select(WorkflowRow::as_select()).load(connection);
    let rows = rows.map_err(|error| sqlite_store_error(during, &error))?;
    rows.into_iter().map(|row| row.into_stored(during)).collect()
}

/// See [`Store::token_insert`](crate::store::Store::token_insert).
pub(super) fn token_insert(connection: &mut SqliteConnection, token: &TokenRecord) -> Result<(), StoreError> {
    let inserted = diesel::insert_into(api_tokens::table).values(TokenRow::of(token)).execute(connection);
    inserted.map(drop).map_err(|error| sqlite_store_error("storing a token", &error))
}

/// See [`Store::token_find`](crate::store::Store::token_find).
pub(super) fn token_find(
    connection: &mut SqliteConnection,
    sha256: &[u8; 32],
) -> Result<Option<TokenRecord>, StoreError> {
    let during = "looking up a token";
    let row = api_tokens::table
        .filter(api_tokens::token_sha256.eq(sha256.as_slice()))
        .select(TokenRow::as_select())
        .get_result(connection)
        .optional();
    row.map_err(|error| sqlite_store_error(during, &error))?.map(|row| row.into_record(during)).transpose()
}

/// See [`Store::token_list`](crate::store::Store::token_list).
pub(super) fn token_list(connection: &mut SqliteConnection) -> Result<Vec<TokenRecord>, StoreError> {
    let during = "listing tokens";
    let query = api_tokens::table.order((api_tokens::created_at, api_tokens::id)).select(TokenRow::as_select());
    let rows = query.load(connection).map_err(|error| sqlite_store_error(during, &error))?;
    rows.into_iter().map(|row| row.into_record(during)).collect()
}

/// See [`Store::token_revoke`](crate::store::Store::token_revoke).
pub(super) fn token_revoke(connection: &mut SqliteConnection, id: Uuid, at: Timestamp) -> Result<bool, StoreError> {
    let there = connection.immediate_transaction(|connection| {
        let token = api_tokens::table.find(id.as_bytes().as_slice());
        // Only a token that is still in force: revoking twice keeps the first time.
        diesel::update(token.filter(api_tokens::revoked_at.is_null()))
            .set(api_tokens::revoked_at.eq(at.micros()))
            .execute(connection)?;
        diesel::select(diesel::dsl::exists(token)).get_result::<bool>(connection)
    });
    there.map_err(|error: diesel::result::Error| sqlite_store_error("revoking a token", &error))
}
