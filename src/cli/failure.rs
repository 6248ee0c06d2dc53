//! Exit codes, and the last sentence of a command that failed.
//!
//! Owns the one mapping from errors to exit codes. Never panics on a closed pipe: a reader who has seen enough is no error.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::actor::WorkflowConflict;
use crate::command_log::{ExportError, ReplayFault};
use crate::store::StoreError;

/// What an exit code says (DESIGN section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something failed; the same again will fail again.
    Failure = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// An invariant of the database is broken.
    InvariantBroken = 3,
    /// Outcomes differ from those that were expected.
    OutcomesDiffer = 4,
    /// Something can't be reached; try again.
    Unavailable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// The code.
    pub exit: Exit,
    /// A sentence that says what to do next.
    pub message: String,
}

impl CliError {
    /// An error with its code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

/// Prints the sentence and returns the code.
pub(super) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let exit = error.chain().find_map(exit_of).unwrap_or(Exit::Failure);
    // Standard error may be closed as well; the code still tells.
    let _ = writeln!(io::stderr(), "error: {error:#}{}", advice(error));
    exit.into()
}

/// What to do next, where the error itself can't know that it came from a command.
fn advice(error: &anyhow::Error) -> &'static str {
    let is_away = |error: &StoreError| matches!(error, StoreError::Unavailable { .. });
    let is_away = error.chain().any(|cause| match cause.downcast_ref::<WorkflowConflict>() {
        Some(WorkflowConflict::Store(error)) => is_away(error),
        _ => match cause.downcast_ref::<ExportError>() {
            Some(ExportError::Store(error)) => is_away(error),
            _ => cause.downcast_ref::<StoreError>().is_some_and(is_away),
        },
    });
    if is_away { "; check --database, and try again when it can be reached" } else { "" }
}

fn exit_of(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<CliError>() {
        return Some(error.exit);
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(exit_of_store(error));
    }
    match cause.downcast_ref::<WorkflowConflict>() {
        Some(WorkflowConflict::Store(error)) => return Some(exit_of_store(error)),
        Some(_) => return Some(Exit::Failure),
        None => {}
    }
    match cause.downcast_ref::<ExportError>() {
        Some(ExportError::Store(error)) => return Some(exit_of_store(error)),
        Some(ExportError::Unreadable { .. }) => return Some(Exit::InvariantBroken),
        _ => {}
    }
    match cause.downcast_ref::<ReplayFault>() {
        Some(ReplayFault::Unavailable { .. }) => Some(Exit::Unavailable),
        _ => None,
    }
}

fn exit_of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Unavailable { .. } => Exit::Unavailable,
        StoreError::Inconsistent { .. } => Exit::InvariantBroken,
        StoreError::Refused { .. } => Exit::Failure,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| match cause.downcast_ref::<ExportError>() {
        Some(ExportError::Output(error)) => is_closed(error),
        _ => cause.downcast_ref::<io::Error>().is_some_and(is_closed),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn an_exit_code_is_found_behind_any_context() {
        let unavailable = || StoreError::Unavailable { during: "connecting", reason: "refused".into() };
        let exit = |error: anyhow::Error| error.chain().find_map(exit_of);
        assert_eq!(exit(unavailable().into()), Some(Exit::Unavailable));
        assert_eq!(exit(WorkflowConflict::Store(unavailable()).into()), Some(Exit::Unavailable));
        assert_eq!(exit(anyhow::Error::from(ExportError::Store(unavailable()))), Some(Exit::Unavailable));
        let inner: anyhow::Result<()> = Err(CliError::new(Exit::OutcomesDiffer, "x").into());
        assert_eq!(exit(inner.context("while y").expect_err("an error")), Some(Exit::OutcomesDiffer));
        assert_eq!(exit(anyhow::anyhow!("x")), None);
        assert!(is_closed_pipe(&ExportError::Output(io::ErrorKind::BrokenPipe.into()).into()));
    }
}
