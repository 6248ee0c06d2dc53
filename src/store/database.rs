//! A database and the runtime that its connections live on.
//!
//! Owns the one multi-thread runtime for database work, beside the actix arbiters: a PostgreSQL connection is driven by the
//! runtime that opened it. Never runs a store call anywhere else. Fails with [`StoreError`].

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::postgres::PostgresStore;
use super::sqlite::SqliteStore;
use super::{Store, StoreError};

/// One thread of the database runtime serves two cores: it moves bytes and waits. With more, each commit's answer wakes one
/// thread only to be handed to another.
const CORES_PER_THREAD: usize = 2;

/// Where the database is.
#[derive(Clone)]
pub enum DatabaseUrl {
    /// `sqlite:PATH`.
    Sqlite(PathBuf),
    /// `postgres://...`, with whatever password it has.
    Postgres(SecretString),
}

/// The text names no database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a database is given as sqlite:PATH or postgres://USER@HOST/NAME")]
pub struct InvalidDatabaseUrl;

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(InvalidDatabaseUrl) } else { Ok(Self::Sqlite(path.into())) };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(SecretString::from(text)));
        }
        Err(InvalidDatabaseUrl)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => {
                let url = url.expose_secret();
                let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", ""));
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let path = path.split('?').next().unwrap_or("");
                match authority.rsplit_once('@') {
                    Some((user, host)) => {
                        let user = user.split(':').next().unwrap_or("");
                        write!(f, "{scheme}://{user}@{host}/{path}")
                    }
                    None => write!(f, "{scheme}://{authority}/{path}"),
                }
            }
        }
    }
}

/// A store and its runtime. Clones share both; the last one to go shuts the runtime down in the background.
#[derive(Clone)]
pub struct Database {
    store: Arc<dyn Store>,
    runtime: Arc<DatabaseRuntime>,
}

/// The runtime that connections live on.
pub struct DatabaseRuntime(Option<tokio::runtime::Runtime>);

impl DatabaseRuntime {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the system gives no threads.
    pub fn start() -> Result<Arc<Self>, StoreError> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores / CORES_PER_THREAD).max(1))
            .thread_name("casework-database")
            .enable_all()
            .build()
            .map_err(|error| StoreError::Unavailable {
                during: "starting the database runtime",
                reason: error.to_string(),
            })?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// A handle for spawning.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.0.as_ref().expect("the runtime is there until drop").handle()
    }
}

impl Drop for DatabaseRuntime {
    fn drop(&mut self) {
        // A runtime must not be dropped inside another one; in the background it may.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl DatabaseUrl {
    /// The store behind this URL. It connects to nothing yet: connections are opened by the calls that need them, on the
    /// runtime of those calls.
    ///
    /// # Errors
    /// [`StoreError::Refused`] with a sentence for the person who wrote the URL.
    pub fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            Self::Sqlite(path) => {
                let path = path.to_str().ok_or_else(|| StoreError::Refused {
                    during: "reading the database path",
                    reason: "the path is not UTF-8".into(),
                })?;
                Ok(Arc::new(SqliteStore::new(path)?))
            }
            Self::Postgres(url) => Ok(Arc::new(PostgresStore::new(url.expose_secret())?)),
        }
    }
}

impl Database {
    /// The database behind a URL, on a runtime of its own. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreError`] where the URL is wrong or no threads can be had.
    pub fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        Ok(Self::new(url.store()?, DatabaseRuntime::start()?))
    }

    /// Puts a store on a runtime. The store's connections were opened on it.
    pub fn new(store: Arc<dyn Store>, runtime: Arc<DatabaseRuntime>) -> Self {
        Self { store, runtime }
    }

    /// Runs a store call on the database runtime, from any thread or runtime.
    ///
    /// # Errors
    /// Those of the call; [`StoreError::Unavailable`] when the runtime is shutting down.
    pub async fn call<T, F, Fut>(&self, call: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn Store>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let store = self.store.clone();
        self.runtime.handle().spawn(async move { call(store).await }).await.unwrap_or_else(|error| {
            Err(StoreError::Unavailable { during: "waiting for the database runtime", reason: error.to_string() })
        })
    }

    /// Starts a task on the database runtime.
    pub fn spawn<Fut>(&self, task: Fut)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.runtime.handle().spawn(task);
    }

    /// The store itself, for tasks that run on the database runtime.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url: DatabaseUrl = "postgres://casework:s3cret@db:5432/cases?sslmode=require".parse().expect("valid");
        assert_eq!(format!("{url} {url:?}"), "postgres://casework@db:5432/cases postgres://casework@db:5432/cases");
        let url: DatabaseUrl = "sqlite:a b.db".parse().expect("valid");
        assert_eq!(url.to_string(), "sqlite:a b.db");
        assert!("mysql://x".parse::<DatabaseUrl>().is_err());
        assert!("sqlite:".parse::<DatabaseUrl>().is_err());
    }
}
