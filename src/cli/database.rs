//! Which database, and which workflows: arguments that several commands share.
//!
//! Owns the rule who migrates: a SQLite database is brought up to date on use, since it belongs to whoever opens it;
//! PostgreSQL is shared, so that one behind or ahead of the program is refused in words.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::failure::{CliError, Exit};
use super::output::message;
use crate::actor::WorkflowRegistry;
use crate::domain::{Workflow, WorkflowName};
use crate::store::{Database, DatabaseUrl, SchemaState};

/// Where the database is when nothing says so.
pub(super) const DATABASE_DEFAULT: &str = "sqlite:casework.db";
/// Names the environment variable that may say so.
pub(super) const DATABASE_VARIABLE: &str = "CASEWORK_DATABASE_URL";

/// `--database`.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// The database: sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, value_name = "URL", env = DATABASE_VARIABLE, hide_env_values = true, default_value = DATABASE_DEFAULT)]
    pub database: DatabaseUrl,
}

/// What to do about a SQLite file that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Make it.
    Create,
    /// Refuse: a command that only reads would answer from an empty database.
    Refuse,
}

impl DatabaseArgs {
    /// Opens the database with a schema that fits the program.
    ///
    /// # Errors
    /// A sentence that says what to do: it can't be reached, it is behind or ahead, there is no such file.
    pub async fn open(&self, missing: Missing) -> anyhow::Result<Database> {
        open(&self.database, missing).await
    }
}

/// See [`DatabaseArgs::open`].
pub(super) async fn open(url: &DatabaseUrl, missing: Missing) -> anyhow::Result<Database> {
    if let (DatabaseUrl::Sqlite(path), Missing::Refuse) = (url, missing)
        && !path.exists()
    {
        let message = format!("there is no database at {}; name another with --database", path.display());
        return Err(CliError::new(Exit::Failure, message).into());
    }
    let database = Database::open(url)?;
    match database.call(|store| async move { store.schema_state().await }).await? {
        SchemaState::Current => {}
        SchemaState::Behind if matches!(url, DatabaseUrl::Sqlite(_)) => {
            database.call(|store| async move { store.schema_migrate().await }).await?;
        }
        SchemaState::Behind => {
            let message = format!(
                "the schema of {url} is older than this program; bring it up to date with: casework migrate --database {url}"
            );
            return Err(CliError::new(Exit::Failure, message).into());
        }
        SchemaState::Ahead => return Err(ahead(url)),
    }
    Ok(database)
}

pub(super) fn ahead(url: &DatabaseUrl) -> anyhow::Error {
    let message = format!(
        "the schema of {url} is newer than this program ({}): use the program that migrated it, or one later still; \
         `casework migrate --database {url}` of that program can also revert it",
        env!("CARGO_PKG_VERSION")
    );
    CliError::new(Exit::Failure, message).into()
}

/// `--workflow` and `--default-workflow`.
#[derive(Debug, Clone, Args)]
pub struct WorkflowArgs {
    /// A workflow file to store and use; may be given several times
    #[arg(long = "workflow", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The workflow of an `open` that names none: else the single --workflow, else `permit`
    #[arg(long, value_name = "NAME", value_parser = WorkflowName::parse)]
    pub default_workflow: Option<WorkflowName>,
}

impl WorkflowArgs {
    /// Reads the files and stores what is new.
    ///
    /// # Errors
    /// A file that can't be read, with the line; a workflow that differs from the one stored under its name.
    pub async fn open(&self, database: &Database) -> anyhow::Result<WorkflowRegistry> {
        let given = self.files.iter().map(read_workflow).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(WorkflowRegistry::open(database.clone(), given, self.default_workflow.clone()).await?)
    }
}

/// Reads one file.
pub(super) fn read_workflow(path: &PathBuf) -> anyhow::Result<Arc<Workflow>> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{file} can't be read"))?;
    let workflow = Workflow::parse(&text).with_context(|| format!("{file} is no valid workflow"))?;
    Ok(Arc::new(workflow))
}

/// After the last write: a copy of a SQLite file alone is whole then.
pub(super) async fn tidy_up(database: &Database) {
    if let Err(error) = database.call(|store| async move { store.tidy_up().await }).await {
        message(format_args!("the write-ahead log stays beside the database: {error}"));
    }
}
