//! The command line: one subcommand a file (DESIGN section 7).
//!
//! Owns arguments, what is printed where (data on standard output, messages on standard error) and the exit codes, which
//! are in `failure`. Never decides and never touches rows by itself: it calls the library as any other program could.

mod check;
mod completions;
mod database;
mod demo;
mod export;
mod failure;
mod guard;
mod load;
mod log;
mod migrate;
mod output;
mod progress;
mod replay;
mod serve;
mod token;
mod verify;
mod workflow;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use database::{DatabaseArgs, Missing, WorkflowArgs};
pub use failure::{CliError, Exit};

/// Approval cases whose commands change a case once, however often they are sent.
#[derive(Debug, Parser)]
#[command(name = "casework", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    log: log::LogArgs,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::ServeArgs),
    Guard(guard::GuardArgs),
    Replay(replay::ReplayArgs),
    Export(export::ExportArgs),
    Verify(verify::VerifyArgs),
    Check(check::CheckArgs),
    Load(load::LoadArgs),
    Token(token::TokenArgs),
    Migrate(migrate::MigrateArgs),
    Workflow(workflow::WorkflowCommandArgs),
    Completions(completions::CompletionsArgs),
}

/// Runs the program with the process's arguments. The exit code is 0 ok, 1 failure, 2 usage, 3 invariant broken, 4 outcomes
/// differ, 5 unavailable.
pub fn main() -> ExitCode {
    // TLS needs a provider before the first connection; a second call finds it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    // What a client sends that is no HTTP is its fault, and no error of ours to log.
    log::start(&cli.log, "warn,actix_http=off");
    let result = match cli.command {
        CliCommand::Serve(args) => serve::run(args),
        CliCommand::Guard(args) => guard::run(args),
        CliCommand::Replay(args) => replay::run(args),
        CliCommand::Export(args) => export::run(args),
        CliCommand::Verify(args) => verify::run(args),
        CliCommand::Check(args) => check::run(args),
        CliCommand::Load(args) => load::run(args),
        CliCommand::Token(args) => token::run(args),
        CliCommand::Migrate(args) => migrate::run(args),
        CliCommand::Workflow(args) => workflow::run(args),
        CliCommand::Completions(args) => completions::run::<Cli>(args),
    };
    result.unwrap_or_else(|error| failure::report(&error))
}

/// Runs a future inside an actix system, which the actors need and everything else tolerates.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    actix_web::rt::System::new().block_on(future)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_fit_together() {
        super::Cli::command().debug_assert();
    }
}
