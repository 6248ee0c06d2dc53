//! A fresh database of either kind, and the macro that runs one test body on both.
//!
//! What a test promises for one database it promises for the other: write it once, in [`on_both_databases!`].

use std::path::{Path, PathBuf};

use super::postgres::{self, PostgresDatabase};
use super::psql::{Rows, SqlError, SqlSession, sqlite_rows};

/// A database of its own for one test; gone when the handle is dropped.
#[derive(Debug)]
pub enum TestDatabase {
    /// A file in a temporary folder.
    Sqlite(SqliteDatabase),
    /// A database on the shared PostgreSQL server.
    Postgres(PostgresDatabase),
}

impl TestDatabase {
    /// A SQLite database that does not exist yet: its file is made by who opens it first.
    #[must_use]
    #[track_caller]
    pub fn sqlite() -> Self {
        Self::Sqlite(SqliteDatabase::create())
    }

    /// The same in a temporary folder inside `parent`: on a disk of another size, say.
    #[must_use]
    #[track_caller]
    pub fn sqlite_in(parent: &Path) -> Self {
        Self::Sqlite(SqliteDatabase::create_in(parent))
    }

    /// An empty database on the shared PostgreSQL server.
    ///
    /// # Panics
    /// When there is no PostgreSQL; the message says what to install.
    #[must_use]
    #[track_caller]
    pub fn postgres() -> Self {
        Self::Postgres(postgres::database())
    }

    /// URL for `--database`.
    #[must_use]
    pub fn url(&self) -> &str {
        match self {
            Self::Sqlite(database) => database.url(),
            Self::Postgres(database) => database.url(),
        }
    }

    /// Whether it is the PostgreSQL one, for what is written down as differing.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Runs SQL through the database's own shell and returns the rows.
    ///
    /// # Panics
    /// When a statement fails.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Rows {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}\nfailed: {error}"))
    }

    /// Runs SQL through the database's own shell.
    ///
    /// # Errors
    /// The words of the shell.
    pub fn try_sql(&self, sql: &str) -> Result<Rows, SqlError> {
        match self {
            Self::Sqlite(database) => sqlite_rows(database.path(), sql),
            Self::Postgres(database) => database.try_sql(sql),
        }
    }

    /// The single value of a query with one row and one column.
    ///
    /// # Panics
    /// When the statement fails or the result has another shape.
    #[must_use]
    #[track_caller]
    pub fn sql_value(&self, sql: &str) -> String {
        let mut rows = self.sql(sql);
        match rows.as_mut_slice() {
            [row] if row.len() == 1 => row.remove(0),
            _ => panic!("{sql}\nshould give one value, and gave {rows:?}"),
        }
    }

    /// How many rows a table has.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    #[track_caller]
    pub fn count(&self, table: &str) -> u64 {
        let count = self.sql_value(&format!("SELECT count(*) FROM {table}"));
        count.parse().expect("a count is a number")
    }

    /// The database's shell, kept open for a transaction that holds its locks.
    #[must_use]
    pub fn session(&self) -> SqlSession {
        match self {
            Self::Sqlite(database) => SqlSession::sqlite(database.path()),
            Self::Postgres(database) => database.session(),
        }
    }
}

/// A SQLite database in a temporary folder of its own.
#[derive(Debug)]
pub struct SqliteDatabase {
    folder: tempfile::TempDir,
    path: PathBuf,
    url: String,
}

impl SqliteDatabase {
    #[track_caller]
    fn create() -> Self {
        Self::create_in(&std::env::temp_dir())
    }

    #[track_caller]
    fn create_in(parent: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("casework-sqlite-").tempdir_in(parent);
        let folder = folder.expect("a temporary folder can be made");
        let path = folder.path().join("casework.db");
        let url = format!("sqlite:{}", path.display());
        Self { folder, path, url }
    }

    /// URL for `--database`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file, for the `sqlite3` shell.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file, for what lies beside it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Runs an asynchronous test body on a runtime of its own with two threads.
pub fn block_on<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built")
        .block_on(body)
}

/// Writes each test twice, `NAME::sqlite` and `NAME::postgres`.
///
/// ```ignore
/// on_both_databases! {
///     /// Why this matters.
///     async fn stale_revision_leaves_no_row(database: &TestDatabase) {
///         assert_eq!(database.count("operations"), 0);
///     }
/// }
/// ```
macro_rules! on_both_databases {
    ($(
        $(#[doc = $doc:literal])*
        async fn $name:ident($database:ident: &TestDatabase) $body:block
    )+) => { $(
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports, reason = "a test body may need nothing of its module")]
            use super::*;

            async fn check($database: &$crate::support::database::TestDatabase) $body

            #[test]
            fn sqlite() {
                let database = $crate::support::database::TestDatabase::sqlite();
                $crate::support::database::block_on(check(&database));
            }

            #[test]
            fn postgres() {
                let database = $crate::support::database::TestDatabase::postgres();
                $crate::support::database::block_on(check(&database));
            }
        }
    )+ };
}
