//! PostgreSQL for tests: the server that a run shares, and fresh databases on it.
//!
//! `./ci/test` starts one server and names it in `CASEWORK_TEST_POSTGRES`, because the test runner gives each
//! test a process of its own. Without the variable each process starts a server for itself (see
//! [`postgres_server`](super::postgres_server)). A database that can't be had fails the test and says what to
//! install; it is never a skip.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub use super::postgres_server::PrivateServer;
use super::psql::{Rows, SqlError, SqlSession, psql_rows};

/// Names the shared server: `postgres://postgres@127.0.0.1:PORT/postgres`, a superuser's URL.
pub const SHARED_SERVER_VARIABLE: &str = "CASEWORK_TEST_POSTGRES";

/// A fresh, empty database on the shared server. Dropped with its handle, whoever is connected.
///
/// # Panics
/// When there is no PostgreSQL; the message says what to install.
#[must_use]
#[track_caller]
pub fn database() -> PostgresDatabase {
    PostgresDatabase::create(shared_server_url())
}

/// The superuser's URL of the server that the run shares; starts one for this process if there is none.
#[must_use]
#[track_caller]
pub fn shared_server_url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    static OWN_SERVER: OnceLock<PrivateServer> = OnceLock::new();
    URL.get_or_init(|| match std::env::var(SHARED_SERVER_VARIABLE) {
        Ok(url) if !url.is_empty() => url,
        // Statics are never dropped: the reaper stops this one when the process ends.
        _ => OWN_SERVER.get_or_init(PrivateServer::start).url(),
    })
}

/// A database of its own for one test.
#[derive(Debug)]
pub struct PostgresDatabase {
    name: String,
    url: String,
    admin_url: String,
}

impl PostgresDatabase {
    /// Creates a database on the server whose superuser's URL is `admin_url`.
    ///
    /// # Panics
    /// When the server refuses or is not there.
    #[must_use]
    #[track_caller]
    pub fn create(admin_url: &str) -> Self {
        Self::create_with(admin_url, "")
    }

    /// The same with further clauses of `CREATE DATABASE`, `TABLESPACE small` say.
    ///
    /// # Panics
    /// When the server refuses or is not there.
    #[must_use]
    #[track_caller]
    pub fn create_with(admin_url: &str, clauses: &str) -> Self {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let name = format!("casework_{}_{}", std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let url = with_database_name(admin_url, &name);
        // Process ids come back in a long run: an earlier process that was killed may have left its database.
        for sql in [format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"), format!("CREATE DATABASE {name} {clauses}")]
        {
            if let Err(error) = psql_rows(admin_url, &sql) {
                panic!("no database for the test ({sql}) on {admin_url}: {error}");
            }
        }
        Self { name, url, admin_url: admin_url.to_owned() }
    }

    /// URL of the database for `--database`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Name of the database on its server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL through `psql` and returns the rows.
    ///
    /// # Panics
    /// When a statement fails.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Rows {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}\nfailed: {error}"))
    }

    /// Runs SQL through `psql`.
    ///
    /// # Errors
    /// The words of `psql`.
    pub fn try_sql(&self, sql: &str) -> Result<Rows, SqlError> {
        psql_rows(&self.url, sql)
    }

    /// A `psql` that stays open, for a transaction that holds its locks.
    #[must_use]
    pub fn session(&self) -> SqlSession {
        SqlSession::psql(&self.url)
    }

    /// Process ids of the server's backends in this database whose client is not `psql`.
    #[must_use]
    #[track_caller]
    pub fn backend_pids(&self) -> Vec<u32> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                   AND backend_type = 'client backend' AND application_name <> 'psql' ORDER BY pid";
        let rows = self.sql(sql);
        rows.iter().map(|row| row[0].parse().expect("a process id is a number")).collect()
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A test may have stopped its private server; then the folder goes, and the database with it.
        if let Err(error) = psql_rows(&self.admin_url, &sql) {
            eprintln!("the database {} was not dropped: {error}", self.name);
        }
    }
}

/// `url` with another database name and the same server.
#[must_use]
pub fn with_database_name(url: &str, name: &str) -> String {
    let server = url.rsplit_once('/').map_or(url, |(server, _)| server);
    format!("{server}/{name}")
}
