//! `casework check`: a client history against the database that it went to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::database::{DatabaseArgs, Missing};
use super::failure::{CliError, Exit};
use super::output::{self, thousands};
use super::progress::Progress;
use crate::command_log::LogInput;
use crate::history::{CheckOptions, CheckReport, History, check};

/// How often progress is looked at while a history is read, in lines.
const LINES_PER_LOOK: u64 = 4_096;

/// Check a client history against the database: nothing lost, doubled or answered wrongly
///
/// A history is JSON Lines: what clients sent and were answered, with times on one monotonic clock, and the faults that
/// fired. Once nothing writes to the database any more, every promise is held against its tables: what was acknowledged is
/// stored, byte for byte and once; what is stored was sent; a refusal left no row; every answer agrees with the case at a
/// version inside its interval; what ended before something else began has the lower version; each operation has its outbox
/// row; and the tables are the fold of the operations, as `casework verify` proves.
///
/// Exit codes: 0 all promises are kept, 1 the history can't be read, 2 the arguments make no sense, 3 a promise is broken or
/// a required fault did not fire (the first ten are named), 5 the database can't be reached.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The history: a file, plain or packed with gzip, or - for standard input
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// A fault that must have fired, and how often at least; may be given several times
    #[arg(long = "require", value_name = "KIND=N", value_parser = parse_required)]
    required: Vec<(String, u64)>,
    /// A relay has taken outbox rows over: only the newest operations of a case still have one
    #[arg(long)]
    relayed: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn parse_required(text: &str) -> Result<(String, u64), String> {
    let parsed = text.split_once('=').filter(|(kind, _)| !kind.is_empty());
    let parsed = parsed.and_then(|(kind, least)| Some((kind.to_owned(), least.parse().ok()?)));
    parsed.ok_or_else(|| "give the kind of a fault and a number, such as kill-process=3".to_owned())
}

pub(super) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let history = read(&args.history)?;
    let mut faults_required = BTreeMap::new();
    for (kind, least) in args.required {
        let required: &mut u64 = faults_required.entry(kind).or_default();
        *required = (*required).max(least);
    }
    let options = CheckOptions { faults_required, is_relayed: args.relayed, ..CheckOptions::default() };
    super::block_on(async {
        let database = args.database.open(Missing::Refuse).await?;
        let count = options.progress.clone();
        let mut progress = Progress::start("stored operations", None);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut checking = std::pin::pin!(check(&database, history, options));
        let report = loop {
            tokio::select! {
                report = &mut checking => break report,
                _ = tick.tick() => {
                    let count = count.load(Ordering::Relaxed);
                    progress.show(count, count);
                }
            }
        };
        progress.finish();
        let report = report?;
        if args.json {
            output::json(&report)?
        } else {
            print(&report)?
        };
        if report.is_clean() {
            return Ok(ExitCode::SUCCESS);
        }
        let message = match report.violations {
            1 => "1 promise is broken".to_owned(),
            many => format!("promises are broken {} times", thousands(many)),
        };
        Err(CliError::new(Exit::InvariantBroken, format!("{message}; keep the history and a copy of the database"))
            .into())
    })
}

fn read(path: &Path) -> anyhow::Result<History> {
    let shown = path.display();
    let input = LogInput::open(path).with_context(|| format!("{shown} can't be read"))?;
    let (position, length) = (input.position(), input.bytes());
    let mut progress = Progress::start("lines", length);
    let history = History::read(input, |line| {
        if line.is_multiple_of(LINES_PER_LOOK) {
            progress.show(line, position.load(Ordering::Relaxed));
        }
    });
    progress.finish();
    history.with_context(|| format!("{shown} is no whole history"))
}

fn print(report: &CheckReport) -> anyhow::Result<()> {
    for violation in &report.first_violations {
        output::line(violation)?;
    }
    let unlisted = report.violations - report.first_violations.len() as u64;
    if unlisted > 0 {
        output::line(format_args!("... and {} more", thousands(unlisted)))?;
    }
    output::line(format_args!(
        "{} attempts of {} commands to {} cases: {}",
        thousands(report.attempts),
        thousands(report.operations),
        thousands(report.cases),
        counts(&report.answers)
    ))?;
    output::line(format_args!(
        "{} attempts without a clear answer: {} were applied, {} were not",
        thousands(report.unknown.attempts),
        thousands(report.unknown.applied),
        thousands(report.unknown.never_applied)
    ))?;
    output::line(format_args!("faults that fired: {}", counts(&report.faults)))?;
    output::line(format_args!(
        "{} cases, {} operations ({} by SQL), {} outbox rows; {} answers held against the versions in their intervals: {}",
        thousands(report.stored_cases),
        thousands(report.stored_operations),
        thousands(report.stored_edits),
        thousands(report.stored_outbox),
        thousands(report.judged),
        if report.is_clean() { "every promise is kept" } else { "promises are BROKEN" }
    ))?;
    Ok(())
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".into();
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_fault_is_a_kind_and_a_number() {
        assert_eq!(parse_required("kill-process=3"), Ok(("kill-process".into(), 3)));
        for wrong in ["kill-process", "=3", "kill-process=", "kill-process=many", "kill-process=-1"] {
            assert!(parse_required(wrong).is_err(), "{wrong}");
        }
    }
}
