//! `casework workflow check FILE...`: reads workflow files as the server would.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::actor::WorkflowConflict;

use super::database::read_workflow;
use super::failure::{CliError, Exit};
use super::output::{self, message};

/// Work with workflow files
#[derive(Debug, Args)]
pub(super) struct WorkflowCommandArgs {
    #[command(subcommand)]
    command: WorkflowCommand,
}

#[derive(Debug, Subcommand)]
enum WorkflowCommand {
    /// Read workflow files and say what is wrong with them, with the line
    Check {
        /// The files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print what the files hold as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: WorkflowCommandArgs) -> anyhow::Result<ExitCode> {
    let WorkflowCommand::Check { files, json } = args.command;
    let mut good = Vec::new();
    for file in &files {
        match read_workflow(file) {
            Ok(workflow) if workflow.contradicts_built_in() => {
                message(format_args!("{}: {}", file.display(), WorkflowConflict::BuiltIn(workflow.name().clone())));
            }
            Ok(workflow) => {
                good.push(json!({
                    "file": file.display().to_string(),
                    "name": workflow.name(),
                    "initial": workflow.initial(),
                    "actions": workflow.action_count(),
                }));
                if !json {
                    let (name, actions) = (workflow.name(), workflow.action_count());
                    output::line(format_args!("{}: workflow `{name}`, {actions} actions", file.display()))?;
                }
            }
            Err(error) => message(format_args!("{error:#}")),
        }
    }
    if json {
        output::json(&good)?;
    }
    if good.len() == files.len() {
        return Ok(ExitCode::SUCCESS);
    }
    let bad = files.len() - good.len();
    let message = format!("{bad} of {} files can't be used; correct what is named above", files.len());
    Err(CliError::new(Exit::Failure, message).into())
}
