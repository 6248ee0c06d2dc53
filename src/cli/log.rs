//! The program's own log: readable lines or JSON on standard error.

use std::io;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Names the environment variable that chooses what is logged.
const FILTER_VARIABLE: &str = "CASEWORK_LOG";

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// How log lines are written to standard error. CASEWORK_LOG chooses which (`info`, `casework=debug`, ...)
    #[arg(long, global = true, value_enum, default_value = "text", env = "CASEWORK_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Readable lines.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging; `default` is the level where CASEWORK_LOG says nothing.
pub(super) fn start(args: &LogArgs, default: &str) {
    let chosen = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.trim().is_empty());
    let filter = EnvFilter::builder().parse_lossy(chosen.as_deref().unwrap_or(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second subscriber is refused; the first one stays.
    let _ = match args.log_format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
