//! `casework replay`: runs a command log against a database or a server.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use clap::Args;
use secrecy::SecretString;
use serde::Serialize;

use super::database::{self, DATABASE_DEFAULT, DATABASE_VARIABLE, Missing, WorkflowArgs};
use super::failure::{CliError, Exit};
use super::output::{self, thousands};
use super::progress::Progress;
use crate::actor::{CommandGateway, GatewayOptions};
use crate::command_log::{
    Differences, Expectations, LogInput, LogReader, RemoteServer, ReplayEvent, ReplayFault, ReplayOptions,
    ReplayReport, ReplayTarget, replay,
};
use crate::domain::ActorId;
use crate::store::DatabaseUrl;

/// Run a command log against a database or a server
///
/// A rejection is an outcome, not an error. Running the same log again is safe: what was applied is replayed.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The log, JSON Lines, gzipped or not; - is standard input
    log: PathBuf,
    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [env: CASEWORK_DATABASE_URL] [default: sqlite:casework.db]
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    database: Option<DatabaseUrl>,
    /// A running server instead of a database, as http://HOST:PORT; its clock counts, not the log's
    #[arg(long, value_name = "URL", requires = "token")]
    url: Option<String>,
    /// A token for the server; with the role proxy where the log has several actors
    #[arg(long, value_name = "TOKEN", env = "CASEWORK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    workflows: WorkflowArgs,
    /// A table of what must come of each line (TSV with columns line and outcome); a difference gives exit code 4
    #[arg(long, value_name = "TSV")]
    expect: Option<PathBuf>,
    /// How many commands may be in flight; lines of one case run in order in any case
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    concurrency: u32,
    /// Go on behind a line that can't be read; the exit code is then 1 at the end
    #[arg(long)]
    keep_going: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let is_input = |path: &Path| path == Path::new("-");
    if is_input(&args.log) && args.expect.as_deref().is_some_and(is_input) {
        let message = "standard input can't be the log and the expected outcomes at once; give one of them as a file";
        return Err(CliError::new(Exit::Usage, message).into());
    }
    super::block_on(async {
        let expectations = args.expect.as_deref().map(read_expectations).transpose()?;
        let input = open_input(&args.log)?;
        let target = open_target(&args).await?;
        let result = run_log(&args, input, &target, expectations).await;
        if let ReplayTarget::Gateway(gateway) = &target {
            gateway.begin_drain();
            gateway.drained().await;
            database::tidy_up(gateway.database()).await;
        }
        result
    })
}

fn open_input(path: &Path) -> anyhow::Result<LogInput> {
    LogInput::open(path).with_context(|| format!("{} can't be opened", path.display()))
}

fn read_expectations(path: &Path) -> anyhow::Result<Expectations> {
    Expectations::read(open_input(path)?).with_context(|| format!("{} is not usable", path.display()))
}

async fn open_target(args: &ReplayArgs) -> anyhow::Result<ReplayTarget> {
    if let (Some(url), Some(token)) = (&args.url, &args.token) {
        let server = RemoteServer::new(url, SecretString::from(token.as_str()));
        let server = server.map_err(|error| CliError::new(Exit::Usage, format!("--url {url}: {error}")))?;
        return Ok(ReplayTarget::Server(server));
    }
    let url = match &args.database {
        Some(url) => url.clone(),
        None => {
            let text = std::env::var(DATABASE_VARIABLE).unwrap_or_else(|_| DATABASE_DEFAULT.into());
            text.parse().map_err(|error| CliError::new(Exit::Usage, format!("{DATABASE_VARIABLE}: {error}")))?
        }
    };
    let database = database::open(&url, Missing::Create).await?;
    let workflows = args.workflows.open(&database).await?;
    let options = GatewayOptions::for_window(args.concurrency as usize);
    Ok(ReplayTarget::Gateway(CommandGateway::start(database, workflows, options).await?))
}

async fn run_log(
    args: &ReplayArgs,
    input: LogInput,
    target: &ReplayTarget,
    mut expectations: Option<Expectations>,
) -> anyhow::Result<ExitCode> {
    let options = ReplayOptions {
        concurrency: args.concurrency as usize,
        keep_going: args.keep_going,
        ..ReplayOptions::default()
    };
    let mut progress = Progress::start("lines", input.bytes());
    let position = input.position();
    let mut lines = 0;
    let mut log = LogReader::new(input);
    if let ReplayTarget::Server(_) = target {
        // Lines go out as they are; who sends those without an actor is the token's subject, whom only the server knows.
        log = log.with_default_actor(ActorId::from_stored("the-subject-of-the-token"));
        if !args.workflows.files.is_empty() || args.workflows.default_workflow.is_some() {
            output::message(
                "a server has its own workflows: --workflow and --default-workflow are not used with --url",
            );
        }
    }
    let result = replay(log, target, &options, |event| match event {
        ReplayEvent::Settled { line, outcome } => {
            lines += 1;
            progress.show(lines, position.load(Ordering::Relaxed));
            if let Some(expectations) = &mut expectations {
                expectations.compare(line, outcome.as_str());
            }
        }
        ReplayEvent::Unreadable { line, error } => {
            if args.keep_going {
                progress.message(&format!("line {line} is left out: {error}"));
            }
            if let Some(expectations) = &mut expectations {
                expectations.compare(line, error.code());
            }
        }
        ReplayEvent::Retrying { lines, reason, delay } => {
            progress
                .message(&format!("{lines} lines got no clear answer ({reason}); again in {} ms", delay.as_millis()));
        }
    })
    .await;
    progress.finish();
    let (report, fault) = match result {
        Ok(report) => (report, None),
        Err(error) => (*error.report, Some(error.fault)),
    };
    print(&report, args.json)?;
    if let Some(fault) = fault {
        return Err(explain(fault, &report));
    }
    if let Some(differences) = expectations.map(Expectations::finish).filter(|differences| differences.total > 0) {
        return Err(CliError::new(Exit::OutcomesDiffer, tell_differences(&differences)).into());
    }
    if report.unreadable > 0 {
        let message = format!("{} lines can't be read and were left out", thousands(report.unreadable));
        return Err(CliError::new(Exit::Failure, message).into());
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(fault: ReplayFault, report: &ReplayReport) -> anyhow::Error {
    let done = format!("{} lines before it were run", thousands(report.lines));
    let context = match &fault {
        ReplayFault::Unreadable { line, error } => {
            let message = format!(
                "line {line} can't be read: {error}. The replay stopped before it; {done}. Correct the line and run the log \
                 again, or leave such lines out with --keep-going"
            );
            return CliError::new(Exit::Failure, message).into();
        }
        ReplayFault::Input { .. } => format!("the replay ended early; {done}"),
        ReplayFault::Unavailable { .. } | ReplayFault::Refused { .. } => {
            let unsettled = thousands(report.unsettled);
            let lines = thousands(report.lines);
            format!(
                "the replay ended early; {lines} lines were run, {unsettled} more have no answer and may be applied or not; \
                 put right what follows and run the same log again: what was applied is then replayed"
            )
        }
    };
    anyhow::Error::from(fault).context(context)
}

fn tell_differences(differences: &Differences) -> String {
    let mut text = match differences.total {
        1 => "1 outcome differs from what was expected:".to_owned(),
        total => format!("{} outcomes differ from what was expected:", thousands(total)),
    };
    for difference in &differences.first {
        text.push_str(&format!("\n  {difference}"));
    }
    let unnamed = differences.total - differences.first.len() as u64;
    if unnamed > 0 {
        text.push_str(&format!("\n  ... and {} more", thousands(unnamed)));
    }
    text
}

#[derive(Serialize)]
struct Summary<'a> {
    lines: u64,
    applied: u64,
    replayed: u64,
    rejected: &'a std::collections::BTreeMap<std::borrow::Cow<'static, str>, u64>,
    per_second: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// Only where there are any.
    #[serde(skip_serializing_if = "is_zero")]
    unreadable: u64,
    #[serde(skip_serializing_if = "is_zero")]
    unsettled: u64,
    #[serde(skip_serializing_if = "is_zero")]
    retries: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn print(report: &ReplayReport, as_json: bool) -> anyhow::Result<()> {
    let quantile = |share| output::milliseconds(report.latency.quantile(share));
    let per_second = (report.per_second() * 10.0).round() / 10.0;
    if as_json {
        return output::json(&Summary {
            lines: report.lines,
            applied: report.applied,
            replayed: report.replayed,
            rejected: &report.rejected,
            per_second,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            unreadable: report.unreadable,
            unsettled: report.unsettled,
            retries: report.retries,
        });
    }
    let mut table = output::table(&["outcome", "lines"]);
    let rejected = report.rejected.iter().map(|(code, count)| (&**code, *count));
    let counts = [("applied", report.applied), ("replayed", report.replayed)].into_iter().chain(rejected);
    let special = [("(unreadable)", report.unreadable), ("(no clear answer)", report.unsettled)];
    for (outcome, count) in counts.chain(special.into_iter().filter(|special| special.1 > 0)) {
        table.add_row([outcome.to_owned(), thousands(count)]);
    }
    output::align_right(&mut table, 1);
    output::line(table)?;
    let seconds = report.elapsed.as_secs_f64();
    output::line(format_args!(
        "{} lines in {seconds:.1} s, {}/s; latency p50 {} ms, p95 {} ms, p99 {} ms",
        thousands(report.lines),
        thousands(per_second as u64),
        quantile(0.5),
        quantile(0.95),
        quantile(0.99)
    ))?;
    if report.retries > 0 && std::io::stderr().is_terminal() {
        output::message(format_args!("{} lines were sent again", thousands(report.retries)));
    }
    Ok(())
}
