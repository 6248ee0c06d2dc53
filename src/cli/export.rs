//! `casework export`: the history of all cases as a command log on standard output.

use std::io::{self, BufWriter, IsTerminal as _};
use std::process::ExitCode;

use clap::Args;

use super::database::{DatabaseArgs, Missing};
use super::output::{message, thousands};
use crate::command_log::{ExportOptions, export};

/// Write the history of all cases as a command log to standard output
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Leave out operations that were pruned, instead of refusing; the log is then incomplete
    #[arg(long)]
    allow_pruned: bool,
}

pub(super) fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let database = args.database.open(Missing::Refuse).await?;
        let mut output = BufWriter::with_capacity(1 << 18, io::stdout());
        let report = export(&database, &mut output, ExportOptions { allow_pruned: args.allow_pruned }).await?;
        if io::stderr().is_terminal() {
            message(format_args!("{} operations exported", thousands(report.lines)));
        }
        if report.pruned > 0 {
            message(format_args!("{} pruned operations were left out", thousands(report.pruned)));
        }
        Ok(ExitCode::SUCCESS)
    })
}
