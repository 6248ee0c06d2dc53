//! The binary: reads the command line, sets up TLS and the log, runs, and turns an error into a sentence and an exit code.

use std::process::ExitCode;

use casework::store::StoreError;
use clap::Parser as _;

fn main() -> ExitCode {
    let cli = casework::cli::Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Another provider can't be there: this is the first line that touches TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    cli.run().unwrap_or_else(|error| {
        eprintln!("casework: {error:#}");
        let is_away = |error: &StoreError| matches!(error, StoreError::Unavailable { .. });
        ExitCode::from(if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_away) { 5 } else { 1 })
    })
}
