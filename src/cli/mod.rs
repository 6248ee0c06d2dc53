//! The command line: one subcommand a file.
//!
//! Owns what people type and the exit codes. Data goes to standard output, messages to standard error.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::store::DatabaseUrl;

mod demo;
mod serve;

/// Approval cases whose commands change a case once, however often they are sent.
#[derive(Debug, Parser)]
#[command(name = "casework", version)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve commands and reads over HTTP.
    Serve(serve::ServeArgs),
}

/// Which database a command works on.
#[derive(Debug, clap::Args)]
pub struct DatabaseArgs {
    /// sqlite:PATH or postgres://USER@HOST/NAME.
    #[arg(long, env = "CASEWORK_DATABASE_URL", default_value = "sqlite:casework.db")]
    pub database: DatabaseUrl,
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// A sentence that says what to do next.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            CliCommand::Serve(args) => serve::run(args),
        }
    }
}

/// Prints to standard output; whoever reads may have gone.
fn print(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}
