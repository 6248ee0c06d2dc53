//! `casework migrate`: brings a schema up to date, shows how it stands, or takes its newest migration back.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::database::{DatabaseArgs, ahead};
use super::output;
use crate::store::{Database, SchemaState};

/// Bring the database's schema up to date
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only say how the schema stands to this program: behind, current or ahead
    #[arg(long, conflicts_with = "revert")]
    status: bool,
    /// Take the newest migration back, and the data that only it knows with it
    #[arg(long)]
    revert: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let url = &args.database.database;
        let database = Database::open(url)?;
        let state = database.call(|store| async move { store.schema_state().await }).await?;
        let (value, sentence) = if args.status {
            let state = match state {
                SchemaState::Behind => "behind",
                SchemaState::Current => "current",
                SchemaState::Ahead => "ahead",
            };
            (json!({"state": state}), format!("the schema of {url} is {state}"))
        } else if state == SchemaState::Ahead {
            return Err(ahead(url));
        } else if args.revert {
            let reverted = database.call(|store| async move { store.schema_revert().await }).await?;
            let sentence =
                reverted.as_ref().map_or_else(|| "nothing is left to revert".into(), |name| format!("reverted {name}"));
            (json!({"reverted": reverted}), sentence)
        } else {
            let applied = database.call(|store| async move { store.schema_migrate().await }).await?;
            let sentence = if applied.is_empty() {
                format!("the schema of {url} is up to date")
            } else {
                format!("applied {}", applied.join(", "))
            };
            (json!({"applied": applied}), sentence)
        };
        if args.json {
            output::json(&value)?;
        } else {
            output::line(sentence)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
