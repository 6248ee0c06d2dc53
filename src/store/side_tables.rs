//! Tables beside the cases: those of the idempotency layer and of the lock, in a database of either kind.
//!
//! Owns the connections that their statements run on, apart from those of the cases, so that neither waits for the other.
//! Each use says what it does on both databases. Never knows the tables. Fails with [`StoreError`]; a connection whose
//! statement did not end well is not used again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::{QueryResult, SqliteConnection};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret;

use super::errors::sqlite_store_error;
use super::postgres::{Connector, Pool, within};
use super::sqlite::{Role, Workers};
use super::{DatabaseKind, DatabaseRuntime, DatabaseUrl, StoreError};

/// Held while tables are made: `CREATE TABLE IF NOT EXISTS` of two sessions at once fails in one of them. Any number that
/// nothing else locks will do.
const CREATION_LOCK: i64 = 0x6361_7365_7369_6465;

/// How long a step may take, unless another time is given: somebody's client waits for it.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long making tables may take, at start, where others may be doing the same.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections for side tables. Cheap to clone.
#[derive(Clone)]
pub struct SideTables {
    connections: Connections,
    step_timeout: Duration,
    runtime: Arc<DatabaseRuntime>,
}

#[derive(Clone)]
enum Connections {
    Sqlite(Workers),
    Postgres(Box<Pool>),
}

impl SideTables {
    /// Connections to the database at `url`, on a runtime of their own. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreError`] where the URL is wrong or no threads can be had.
    pub fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let refused = |reason: String| StoreError::Refused { during: "reading the database URL", reason };
        let connections = match url {
            DatabaseUrl::Sqlite(path) => {
                check_is_file(path).map_err(refused)?;
                let path = path.to_str().ok_or_else(|| refused("the path is not UTF-8".into()))?;
                Connections::Sqlite(Workers::start("casework-sqlite-side", 1, path, Role::Writer)?)
            }
            DatabaseUrl::Postgres(url) => {
                Connections::Postgres(Box::new(Pool::new(Connector::new(url.expose_secret()).map_err(refused)?)))
            }
        };
        Ok(Self { connections, step_timeout: STEP_TIMEOUT, runtime: DatabaseRuntime::start()? })
    }

    /// The same with another limit for each step, from waiting for a connection to the answer. Default: 5 s. Too short: errors
    /// where the database is only busy; too long: callers of a database that hangs hang with it.
    #[must_use]
    pub fn step_timeout(self, step_timeout: Duration) -> Self {
        Self { step_timeout, ..self }
    }

    /// Which database it is.
    pub fn kind(&self) -> DatabaseKind {
        match self.connections {
            Connections::Sqlite(_) => DatabaseKind::Sqlite,
            Connections::Postgres(_) => DatabaseKind::Postgres,
        }
    }

    /// Makes tables: one text for each database, of statements that change nothing where the tables are there already.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(&self, sqlite: &'static str, postgres: &'static str) -> Result<(), StoreError> {
        self.run_within(
            CREATION_TIMEOUT,
            "creating tables",
            move |connection| diesel::connection::SimpleConnection::batch_execute(connection, sqlite),
            move |connection| {
                Box::pin(async move {
                    // A text of several statements is one transaction, at whose end the lock goes.
                    let text = format!("SELECT pg_advisory_xact_lock({CREATION_LOCK}); {postgres}");
                    connection.batch_execute(&text).await
                })
            },
        )
        .await
    }

    /// Runs the work of the database that this is, from any thread or runtime; to its end, also when the caller is gone.
    /// `during` names it, in words.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Unavailable`] the work may have been done all the same.
    pub async fn run<T, S, P>(&self, during: &'static str, sqlite: S, postgres: P) -> Result<T, StoreError>
    where
        T: Send + 'static,
        S: FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
        P: for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, QueryResult<T>> + Send + 'static,
    {
        self.run_within(self.step_timeout, during, sqlite, postgres).await
    }

    async fn run_within<T, S, P>(
        &self,
        limit: Duration,
        during: &'static str,
        sqlite: S,
        postgres: P,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        S: FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
        P: for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, QueryResult<T>> + Send + 'static,
    {
        let too_late = move || StoreError::Unavailable { during, reason: format!("no answer within {limit:?}") };
        let task = match &self.connections {
            Connections::Sqlite(workers) => {
                let (workers, deadline) = (workers.clone(), Instant::now() + limit);
                self.runtime.handle().spawn(async move {
                    let work = move |connection: &mut SqliteConnection| {
                        // Behind others for so long that nobody waits for it any more: it must not happen unseen.
                        if Instant::now() >= deadline {
                            return Err(too_late());
                        }
                        sqlite(connection).map_err(|error| sqlite_store_error(during, &error))
                    };
                    tokio::time::timeout(limit, workers.run(during, work)).await.unwrap_or_else(|_| Err(too_late()))
                })
            }
            Connections::Postgres(pool) => {
                let pool = pool.clone();
                self.runtime.handle().spawn(async move {
                    let step = async {
                        let mut lease = pool.lease(during).await?;
                        let result = within(postgres(lease.diesel())).await;
                        lease.finish(result)
                    };
                    // A step that is cut off takes its connection with it, which is closed.
                    tokio::time::timeout(limit, step).await.unwrap_or_else(|_| Err(too_late()))
                })
            }
        };
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable { during, reason: error.to_string() }))
    }
}

/// A database in memory is gone with its connection, and nobody else sees it: that is no store.
fn check_is_file(path: &Path) -> Result<(), String> {
    let text = path.to_string_lossy();
    if text.trim().is_empty() {
        return Err("the path is empty; give the path of a file, as in sqlite:casework.db".into());
    }
    if text.starts_with(":memory:") || (text.starts_with("file:") && text.contains("memory")) {
        let instead = "give the path of a file, or use the store that keeps everything in the memory of the process";
        return Err(format!("SQLite in memory belongs to one connection and can't be shared; {instead}"));
    }
    Ok(())
}
