//! The schema of PostgreSQL: which migrations there are, which have run, and running them.
//!
//! Owns the advisory lock under which they run, so that two processes at once are harmless. Each migration is a transaction
//! of its own together with its mark, so that an interrupted run is completed by the next. Fails with [`StoreError`].

use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use diesel::sql_types::Text;
use diesel_async::{AsyncMigrationHarness, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::connect::Connector;
use super::pool::{Pool, within};
use crate::store::errors::diesel_store_error;
use crate::store::schema_state::{Embedded, compare, embedded, name_of};
use crate::store::{SchemaState, StoreError};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// "casework" in ASCII, so that nobody else takes the same number by accident.
const LOCK: &str = "SELECT pg_advisory_lock(7161681797083427435)";
const MIGRATING: &str = "migrating the schema";

#[derive(diesel::QueryableByName)]
struct VersionRow {
    #[diesel(sql_type = Text)]
    version: String,
}

/// See [`Store::schema_state`](crate::store::Store::schema_state). Writes nothing.
pub(super) async fn schema_state(pool: &Pool) -> Result<SchemaState, StoreError> {
    let mut lease = pool.lease("looking at the schema").await?;
    let exists = diesel::select(diesel::dsl::sql::<diesel::sql_types::Bool>(
        "to_regclass('__diesel_schema_migrations') IS NOT NULL",
    ));
    let exists = within(exists.load::<bool>(lease.diesel())).await;
    let has_table = lease.check(exists)?.into_iter().any(|exists| exists);
    let applied = if has_table {
        within(diesel::sql_query("SELECT version FROM __diesel_schema_migrations").load(lease.diesel())).await
    } else {
        Ok(Vec::<VersionRow>::new())
    };
    let applied: Vec<String> = lease.finish(applied)?.into_iter().map(|row| row.version).collect();
    Ok(compare(&all_embedded()?, &applied))
}

fn all_embedded() -> Result<Vec<Embedded>, StoreError> {
    embedded(MigrationSource::<Pg>::migrations(&MIGRATIONS)).map_err(refused)
}

/// See [`Store::schema_migrate`](crate::store::Store::schema_migrate).
pub(super) async fn schema_migrate(connector: Connector) -> Result<Vec<String>, StoreError> {
    run(connector, |harness| {
        let versions = harness.run_pending_migrations(MIGRATIONS).map_err(|error| refused(error.to_string()))?;
        let embedded = all_embedded()?;
        Ok(versions.iter().map(|version| name_of(&embedded, &version.to_string())).collect())
    })
    .await
}

/// See [`Store::schema_revert`](crate::store::Store::schema_revert).
pub(super) async fn schema_revert(connector: Connector) -> Result<Option<String>, StoreError> {
    run(connector, |harness| {
        if harness.applied_migrations().map_err(|error| refused(error.to_string()))?.is_empty() {
            return Ok(None);
        }
        let version = harness.revert_last_migration(MIGRATIONS).map_err(|error| refused(error.to_string()))?;
        Ok(Some(name_of(&all_embedded()?, &version.to_string())))
    })
    .await
}

type Harness = AsyncMigrationHarness<diesel_async::AsyncPgConnection>;

/// Runs `work` under the lock, on a thread and a runtime of its own: the harness blocks its thread, which no worker of the
/// database's runtime may do.
async fn run<T: Send + 'static>(
    connector: Connector,
    work: impl FnOnce(&mut Harness) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let blocking = move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("casework-migrate").enable_all().build();
        let runtime = runtime.map_err(|error| refused(error.to_string()))?;
        runtime.block_on(async move {
            let (mut connection, driver) = connector.open_diesel("casework-migrate", MIGRATING).await?.into_parts();
            let locked = connection.batch_execute(LOCK).await;
            locked.map_err(|error| diesel_store_error(MIGRATING, &error, driver.is_finished()))?;
            // The session's end gives the lock back.
            work(&mut AsyncMigrationHarness::new(connection))
        })
    };
    let joined = tokio::task::spawn_blocking(blocking).await;
    joined.unwrap_or_else(|error| Err(refused(error.to_string())))
}

fn refused(reason: String) -> StoreError {
    StoreError::Refused { during: MIGRATING, reason }
}
