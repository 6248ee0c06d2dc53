//! `casework guard`: the idempotency layer in front of any HTTP service.
//!
//! Owns the order of a start (socket, rules, store) and the words in which a start is refused: exit code 5 when a SQL store is
//! away, 1 otherwise. A Redis that is away does not stop the start: it comes back under the same address, and until then
//! requests under a key are answered 503.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::failure::{CliError, Exit};
use super::output;
use super::serve::listen;
use crate::guard::{self, Guard, HostRule, Listeners, Rules, ServerOptions, Time, UpstreamOptions};
use crate::idempotency::{IdempotencyStore, MemoryBounds, MemoryStore, RedisStore, SqlStore};
use crate::store::{DatabaseUrl, StoreError};

/// Put the idempotency layer in front of any HTTP service
///
/// A reverse proxy: a POST, PUT, PATCH or DELETE with an Idempotency-Key reaches the service once, and its repeats get the
/// first answer. Without a rule that says otherwise, requests without a key pass as they are, and the caller is told apart by
/// its Authorization header. Several guards share a Redis or a SQL database. docs/guard.md has the rules.
#[derive(Debug, Args)]
pub(super) struct GuardArgs {
    /// The service, as http://HOST:PORT; a path is put before that of each request
    #[arg(long, value_name = "URL", required_unless_present = "check_rules")]
    upstream: Option<String>,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    listen: String,
    /// Where answers are kept: redis://HOST:PORT, sqlite:PATH, postgres://USER@HOST/NAME, or memory (this process alone)
    #[arg(
        long,
        value_name = "STORE",
        env = "CASEWORK_GUARD_STORE",
        hide_env_values = true,
        required_unless_present = "check_rules"
    )]
    store: Option<String>,
    /// A file of rules in TOML, by path and method [default: keys are optional everywhere]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Read this file of rules, print the rules in effect, and end
    #[arg(long, value_name = "FILE")]
    check_rules: Option<PathBuf>,
    /// Tells services apart that share a store
    #[arg(long, value_name = "NAME", default_value = "")]
    namespace: String,
    /// Which Host header the service sees
    #[arg(long, value_enum, default_value = "client")]
    host: HostRule,
    /// How long connecting to the service may take
    #[arg(long, value_name = "TIME", default_value = "5s")]
    connect_timeout: Time,
    /// How long an idle connection to the service is used again; keep it below the service's own time
    #[arg(long, value_name = "TIME", default_value = "1s")]
    upstream_keep_alive: Time,
    /// Where /healthz and /readyz of the guard itself are; all other paths are the service's
    #[arg(long, value_name = "PATH", default_value = "/.guard")]
    health_path: String,
    /// Serve /metrics at this address and port
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    /// How long requests that run may take to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s")]
    drain_timeout: Time,
    /// Threads that carry requests
    #[arg(long, value_name = "N", default_value = "2")]
    workers: NonZeroUsize,
    /// Requests inside at once; more are answered 503
    #[arg(long, value_name = "N", default_value = "1024")]
    requests_max: NonZeroUsize,
    /// With --store memory: claims and answers kept at once; more are answered 503
    #[arg(long, value_name = "N", default_value = "100000")]
    memory_records_max: NonZeroUsize,
    /// With --store memory: bytes of answers kept at once; more are answered 503
    #[arg(long, value_name = "BYTES", default_value = "268435456")]
    memory_bytes_max: NonZeroUsize,
}

/// Serves until SIGTERM or SIGINT; exit code 0 then.
pub(super) fn run(args: GuardArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.check_rules {
        output::line(rules_in(file)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: GuardArgs) -> anyhow::Result<()> {
    let (main, address) = listen(&args.listen, "--listen")?;
    let metrics = args.metrics_listen.as_deref().map(|address| listen(address, "--metrics-listen")).transpose()?;
    let rules = args.rules.as_deref().map_or_else(|| Ok(Rules::default()), rules_in)?;
    let mut upstream = UpstreamOptions::new(args.upstream.as_deref().unwrap_or_default()).context("--upstream")?;
    upstream.host = args.host;
    upstream.connect_timeout = args.connect_timeout.0;
    upstream.keep_alive = args.upstream_keep_alive.0;
    let store = open_store(&args).await?;
    let guard = Guard::new(rules, store, upstream, &args.namespace, &args.health_path, args.requests_max.get())?;
    output::message(format_args!("listening on http://{address}"));
    if let Some((_, address)) = &metrics {
        output::message(format_args!("metrics at http://{address}/metrics"));
    }
    let listeners = Listeners { main, metrics: metrics.map(|(listener, _)| listener) };
    let options = ServerOptions { workers: args.workers.get(), drain_timeout: args.drain_timeout.0 };
    guard::serve(listeners, guard, options).await.context("the guard failed")
}

fn rules_in(file: &Path) -> anyhow::Result<Rules> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))?;
    Rules::parse(&text).with_context(|| format!("{} can't be used", file.display()))
}

async fn open_store(args: &GuardArgs) -> anyhow::Result<Arc<dyn IdempotencyStore>> {
    let said = args.store.as_deref().unwrap_or_default();
    if said == "memory" {
        let (records_max, bytes_max) = (args.memory_records_max.get(), args.memory_bytes_max.get());
        return Ok(Arc::new(MemoryStore::new(MemoryBounds { records_max, bytes_max })));
    }
    if said.starts_with("redis:") {
        return Ok(Arc::new(RedisStore::open(said).map_err(|error| refused(&error))?));
    }
    let url: DatabaseUrl = said.parse().map_err(|_| {
        let message = "--store is redis://HOST:PORT, sqlite:PATH, postgres://USER@HOST/NAME or memory";
        CliError::new(Exit::Usage, message)
    })?;
    let store = SqlStore::open(&url).map_err(|error| refused(&error))?;
    store.create_tables().await.map_err(|error| refused(&error))?;
    Ok(Arc::new(store))
}

fn refused(error: &StoreError) -> CliError {
    match error {
        StoreError::Unavailable { .. } => {
            CliError::new(Exit::Unavailable, format!("{error}; check --store, and try again when it can be reached"))
        }
        _ => CliError::new(Exit::Failure, format!("{error}; check --store")),
    }
}
