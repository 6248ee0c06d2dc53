//! `casework verify`: every case recomputed from its operations, all invariants checked.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;

use super::database::{DatabaseArgs, Missing};
use super::failure::{CliError, Exit};
use super::output::{self, thousands};
use super::progress::Progress;
use crate::command_log::{VerifyOptions, VerifyReport, verify};

/// Recompute every case from its operations and check all invariants; exit code 3 where one is broken
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// How many faults are listed; all are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    faults_max: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: VerifyArgs) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let database = args.database.open(Missing::Refuse).await?;
        let options = VerifyOptions { faults_max: args.faults_max, ..VerifyOptions::default() };
        let count = options.progress.clone();
        let mut progress = Progress::start("operations", None);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut verifying = std::pin::pin!(verify(&database, options));
        let report = loop {
            tokio::select! {
                report = &mut verifying => break report,
                _ = tick.tick() => {
                    let count = count.load(Ordering::Relaxed);
                    progress.show(count, count);
                }
            }
        };
        progress.finish();
        let report = report?;
        print(&report, args.json)?;
        if report.is_clean() {
            return Ok(ExitCode::SUCCESS);
        }
        let message = format!(
            "{} of what must hold does not; stop the writers, keep a copy of the database and compare it with a backup",
            if report.faults == 1 { "1 thing".to_owned() } else { format!("{} things", thousands(report.faults)) }
        );
        Err(CliError::new(Exit::InvariantBroken, message).into())
    })
}

fn print(report: &VerifyReport, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(report);
    }
    for fault in &report.first_faults {
        output::line(fault)?;
    }
    let unlisted = report.faults - report.first_faults.len() as u64;
    if unlisted > 0 {
        output::line(format_args!("... and {} more", thousands(unlisted)))?;
    }
    output::line(format_args!(
        "{} cases, {} operations ({} pruned), {} outbox rows: {}",
        thousands(report.cases),
        thousands(report.operations),
        thousands(report.pruned),
        thousands(report.outbox),
        if report.is_clean() { "every invariant holds" } else { "NOT as they must be" }
    ))?;
    Ok(())
}
