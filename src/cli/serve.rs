//! `casework serve`: the server on one database.
//!
//! Owns the order of a start (socket, schema, workflows, gateway) and the words in which a start is refused: exit code 5
//! when the database is away, 1 otherwise. Messages go to standard error; only the demo prints data.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::database::{self, DatabaseArgs, Missing, WorkflowArgs};
use super::demo::{self, DemoDatabase};
use super::output;
use crate::actor::{CommandGateway, GatewayOptions};
use crate::http::{self, Listeners, ServerOptions};

/// Serve commands and reads over HTTP
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Serve /metrics at this address and port only, and not where commands are served
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    #[command(flatten)]
    workflows: WorkflowArgs,
    /// The name of this process among those on one database; no two running ones share it [default: host name and port]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Threads that decide, each for its share of the cases [default: one for two cores]
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroUsize>,
    /// Connections of each shard that commit [default: 2; on SQLite always 1]
    #[arg(long, value_name = "N")]
    committers: Option<NonZeroUsize>,
    /// Threads that read requests and write answers [default: 2]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Commands that may be on their way at once; more are answered 503 [default: 16384]
    #[arg(long, value_name = "N")]
    commands_max: Option<NonZeroUsize>,
    /// Commands that may wait for one case; more are answered 503 [default: 1024]
    #[arg(long, value_name = "N")]
    case_commands_max: Option<NonZeroUsize>,
    /// Cases kept in memory [default: 100000]
    #[arg(long, value_name = "N")]
    cases_max: Option<NonZeroUsize>,
    /// A temporary SQLite database (instead of --database) with case 62 in review, tokens, and commands to paste
    #[arg(long)]
    demo: bool,
}

/// Serves until SIGTERM or SIGINT; exit code 0 then.
///
/// # Errors
/// A sentence that says why the server does not start and what to do.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    super::block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    // First of all: a second start by mistake must not disturb the server that has the port.
    let (main, address) = listen(&args.listen, "--listen")?;
    let metrics = args.metrics_listen.as_deref().map(|address| listen(address, "--metrics-listen")).transpose()?;

    let demo_database = args.demo.then(DemoDatabase::create).transpose()?;
    let url = demo_database.as_ref().map_or_else(|| args.database.database.clone(), DemoDatabase::url);
    let database = database::open(&url, Missing::Create).await?;
    let workflows = args.workflows.open(&database).await?;
    let gateway = CommandGateway::start(database.clone(), workflows, gateway_options(&args, address.port())).await?;
    if args.demo {
        let tokens = demo::fill(&gateway).await?;
        output::line(demo::text(address, &tokens))?;
    }
    let mut options = ServerOptions::default();
    options.workers = args.workers.map_or(options.workers, NonZeroUsize::get);
    output::message(format_args!("listening on http://{address}"));
    if let Some((_, address)) = &metrics {
        output::message(format_args!("metrics at http://{address}/metrics"));
    }
    let listeners = Listeners { main, metrics: metrics.map(|(listener, _)| listener) };
    http::serve(listeners, gateway, options).await.context("the server failed")?;
    database::tidy_up(&database).await;
    Ok(())
}

/// A socket, and where it is: port 0 takes a free one.
pub(super) fn listen(address: &str, option: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("can't listen on {address}; choose another address with {option}"))?;
    let address = listener.local_addr().context("can't tell which port was taken")?;
    Ok((listener, address))
}

fn gateway_options(args: &ServeArgs, port: u16) -> GatewayOptions {
    let default = GatewayOptions::default();
    let or = |given: Option<NonZeroUsize>, default| given.map_or(default, NonZeroUsize::get);
    GatewayOptions {
        // The same after a restart, so that writers which a killed process left behind are fenced off.
        node: args.node.clone().or_else(|| Some(format!("{}:{port}", host_name()?))).unwrap_or(default.node),
        shards: or(args.shards, default.shards),
        committers: or(args.committers, default.committers),
        commands_max: or(args.commands_max, default.commands_max),
        case_commands_max: or(args.case_commands_max, default.case_commands_max),
        cases_max: or(args.cases_max, default.cases_max),
        outcomes_bytes_max: default.outcomes_bytes_max,
        deadline: default.deadline,
    }
}

/// The host's name, where the system tells it in a file.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
