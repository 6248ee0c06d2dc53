//! `casework load`: many commands at a running server or a database, timed and checked.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use secrecy::SecretString;
use serde::Serialize;

use super::database::{self, Missing};
use super::failure::{CliError, Exit};
use super::output::{self, thousands};
use super::progress::Progress;
use crate::actor::{CommandGateway, GatewayOptions, WorkflowRegistry};
use crate::command_log::{VerifyOptions, verify};
use crate::load::{LoadError, LoadOptions, LoadReport, LoadServer, LoadTarget, Mix, load};
use crate::store::DatabaseUrl;

/// Load a running server or a database with commands, and measure
///
/// With --url the commands go to a server; without it this process decides and commits them on --database. Opens cases of its own and sends notes to them. Each answer is checked: a new command must be applied, a repeat must get
/// the bytes of the first answer; one that is wrong gives exit code 3. Not for a database that matters: the cases stay.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// The server, as http://HOST:PORT
    #[arg(long, value_name = "URL", requires = "token", required_unless_present = "database")]
    url: Option<String>,
    /// A token for the server with the role clerk or admin
    #[arg(long, value_name = "TOKEN", env = "CASEWORK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// What is sent: spread (new commands over all cases), hot (to one case), replay (repeats), storm (spread, 5 % repeats)
    #[arg(long, default_value_t = Mix::Spread)]
    mix: Mix,
    /// Over how many cases
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    cases: u32,
    /// How many connections send at once; without --url: how many commands are in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Send lines of an NDJSON stream on each connection, so many in flight, instead of one POST after another
    #[arg(long, value_name = "LINES", requires = "url", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    stream: Option<u32>,
    /// Commands a second, each timed from when it was due (open loop); else each connection sends when it has its answer
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    rate: Option<f64>,
    /// How long answers are not counted yet
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// How long answers are counted
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    duration: f64,
    /// With --url: the server's database, to verify it at the end (as `casework verify` does); without: what is loaded
    #[arg(long, value_name = "URL")]
    database: Option<DatabaseUrl>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (0.0..=86_400.0).contains(&number) { Ok(number) } else { Err("a number from 0 to 86400 is needed".into()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if number > 0.0 && number <= 1e6 { Ok(number) } else { Err("a number above 0, up to 1000000, is needed".into()) }
}

pub(super) fn run(args: LoadArgs) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let target = open_target(&args).await?;
        let options = LoadOptions {
            mix: args.mix,
            cases: args.cases as usize,
            connections: args.connections as usize,
            stream_window: args.stream.map(|window| window as usize),
            rate: args.rate,
            warm_up: Duration::from_secs_f64(args.warm_up),
            duration: Duration::from_secs_f64(args.duration),
        };
        let mut progress = Progress::start("answers", None);
        let report = load(&target, &options, |answers| progress.show(answers, answers)).await;
        progress.finish();
        if let LoadTarget::Gateway(gateway) = &target {
            gateway.begin_drain();
            gateway.drained().await;
            database::tidy_up(gateway.database()).await;
        }
        let report = report.map_err(explain)?;
        let faults = match &args.database {
            Some(url) => Some(verify_database(url).await?),
            None => None,
        };
        print(&args, &report, faults)?;
        if report.wrong > 0 {
            let message = format!("{} answers were wrong; see above", thousands(report.wrong));
            return Err(CliError::new(Exit::InvariantBroken, message).into());
        }
        if let Some(faults) = faults.filter(|faults| *faults > 0) {
            let message = format!("{} faults in the database; run `casework verify`", thousands(faults));
            return Err(CliError::new(Exit::InvariantBroken, message).into());
        }
        if report.applied + report.replayed == 0 {
            let message = "no command had an outcome while answers were counted; see the errors above";
            return Err(CliError::new(Exit::Unavailable, message).into());
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn open_target(args: &LoadArgs) -> anyhow::Result<LoadTarget> {
    if let (Some(url), Some(token)) = (&args.url, &args.token) {
        let server = LoadServer::new(url, SecretString::from(token.as_str()));
        let server = server.map_err(|error| CliError::new(Exit::Usage, format!("--url {url}: {error}")))?;
        return Ok(LoadTarget::Server(server));
    }
    let url = args.database.as_ref().expect("one of --url and --database is required");
    let database = database::open(url, Missing::Create).await?;
    let workflows = WorkflowRegistry::open(database.clone(), Vec::new(), None).await?;
    let options = GatewayOptions::for_window(args.connections as usize);
    Ok(LoadTarget::Gateway(CommandGateway::start(database, workflows, options).await?))
}

fn explain(error: LoadError) -> CliError {
    match error {
        LoadError::Unreachable(_) => {
            CliError::new(Exit::Unavailable, format!("{error}; is the server running, and the token valid?"))
        }
        LoadError::Refused(_) => {
            CliError::new(Exit::Failure, format!("{error}; the token needs the role clerk or admin"))
        }
    }
}

async fn verify_database(url: &DatabaseUrl) -> anyhow::Result<u64> {
    let database = database::open(url, Missing::Refuse).await?;
    Ok(verify(&database, VerifyOptions::default()).await?.faults)
}

#[derive(Serialize)]
struct Summary<'a> {
    mix: String,
    connections: u32,
    applied: u64,
    replayed: u64,
    errors: &'a std::collections::BTreeMap<String, u64>,
    wrong: u64,
    seconds: f64,
    per_second: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Faults that `verify` found; null: not verified.
    faults: Option<u64>,
}

fn print(args: &LoadArgs, report: &LoadReport, faults: Option<u64>) -> anyhow::Result<()> {
    let quantile = |share| output::milliseconds(report.latency.quantile(share));
    let per_second = (report.per_second() * 10.0).round() / 10.0;
    if args.json {
        return output::json(&Summary {
            mix: args.mix.to_string(),
            connections: args.connections,
            applied: report.applied,
            replayed: report.replayed,
            errors: &report.errors,
            wrong: report.wrong,
            seconds: report.elapsed.as_secs_f64(),
            per_second,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
            faults,
        });
    }
    for wrong in &report.first_wrong {
        output::line(wrong)?;
    }
    let mut table = output::table(&["outcome", "commands"]);
    let counts = [("applied", report.applied), ("replayed", report.replayed)].into_iter();
    for (outcome, count) in counts.chain(report.errors.iter().map(|(code, count)| (code.as_str(), *count))) {
        table.add_row([outcome.to_owned(), thousands(count)]);
    }
    output::align_right(&mut table, 1);
    output::line(table)?;
    output::line(format_args!(
        "{} commands a second over {} s; latency p50 {} ms, p95 {} ms, p99 {} ms, max {} ms",
        thousands(per_second as u64),
        report.elapsed.as_secs_f64(),
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        quantile(1.0)
    ))?;
    match faults {
        Some(0) => output::line("verified: every invariant holds")?,
        Some(faults) => output::line(format_args!("verified: {} faults", thousands(faults)))?,
        None => output::message("the database was not verified; name it with --database"),
    }
    Ok(())
}
