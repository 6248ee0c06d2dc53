//! What an error of a database means, decided once, by SQLSTATE, severity and constraint name, or by what SQLite had been
//! told to do when it failed.
//!
//! Owns the table of DESIGN section 4. Never retries. What is not known to have written nothing is
//! [`CommitFault::Unclear`], which is always safe: the fence settles it.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use tokio_postgres::error::{DbError, Severity};

use super::{CommitError, CommitFault, RetryCause, StoreError};

/// The primary key of `operations`: an operation id that is there already.
const OPERATION_ID_KEY: &str = "operations_pkey";
/// The primary key of `cases`.
const CASE_KEY: &str = "cases_pkey";

/// An error and all of its causes in one line: drivers leave the cause out of their own text.
pub(super) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// What a failed commit means on PostgreSQL.
///
/// The commit runs through the driver's own client: diesel-async maps most SQLSTATEs to `Unknown` and tells neither code
/// nor severity. Only severity ERROR says that the server rolled the statement back and lives on; a lost connection or
/// FATAL and PANIC, whatever their code, say nothing about what was written.
pub(super) fn postgres_commit_error(error: &tokio_postgres::Error) -> CommitError {
    let fault = match error.as_db_error() {
        Some(db) if db.parsed_severity() == Some(Severity::Error) => postgres_fault(db.code().code(), db.constraint()),
        _ => CommitFault::Unclear,
    };
    CommitError { fault, reason: postgres_reason(error) }
}

/// The meaning of a SQLSTATE that came with severity ERROR.
fn postgres_fault(sqlstate: &str, constraint: Option<&str>) -> CommitFault {
    match (sqlstate, &sqlstate[..2]) {
        ("40001", _) => CommitFault::Retry(RetryCause::Serialization),
        ("40P01", _) => CommitFault::Retry(RetryCause::Deadlock),
        ("23505", _) => match constraint {
            Some(OPERATION_ID_KEY | CASE_KEY) => CommitFault::Duplicate,
            // A version key (or one that nobody knows): reloading never heals it.
            _ => CommitFault::BrokenInvariant,
        },
        ("55P03", _) => CommitFault::Locked,
        (_, "22" | "23") => CommitFault::Data,
        (_, "08") => CommitFault::Unclear,
        (code, "57") if code.starts_with("57P") => CommitFault::Unclear,
        _ => CommitFault::Failed,
    }
}

/// Whether the session itself is in the way: a read-only server, a statement that a pooler forgot or that the schema
/// outgrew. The connection is opened anew before the next commit.
pub(super) fn postgres_session_is_stale(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "25006" | "26000" | "0A000"))
}

/// Whether a lock was not given within `lock_timeout`.
pub(super) fn postgres_lock_timed_out(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "55P03")
}

fn postgres_reason(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{}: {}", db.code().code(), db_text(db)),
        None => describe(error),
    }
}

/// Message and constraint; never the detail, which quotes values.
fn db_text(db: &DbError) -> String {
    match db.constraint() {
        Some(constraint) => format!("{} ({constraint})", db.message()),
        None => db.message().to_owned(),
    }
}

/// What a failed read or administrative statement means, sent through the driver's own client.
pub(super) fn postgres_store_error(during: &'static str, error: &tokio_postgres::Error) -> StoreError {
    let reason = postgres_reason(error);
    let refused = error.as_db_error().is_some_and(|db| {
        let code = db.code().code();
        match db.parsed_severity() {
            Some(Severity::Error) => !matches!(&code[..2], "08" | "53" | "57" | "40" | "55") && code != "25006",
            // Wrong password, role or database: connecting again will not help.
            _ => matches!(&code[..2], "28" | "3D"),
        }
    });
    if refused { StoreError::Refused { during, reason } } else { StoreError::Unavailable { during, reason } }
}

/// What a failed read or administrative statement means, sent through Diesel. `connection_lost` decides where Diesel hides
/// the code: the server's "terminating connection" looks to it like any other error.
pub(super) fn diesel_store_error(during: &'static str, error: &DieselError, connection_lost: bool) -> StoreError {
    let reason = describe(error);
    let gone = matches!(
        error,
        DieselError::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand
                | DatabaseErrorKind::ClosedConnection
                | DatabaseErrorKind::SerializationFailure
                | DatabaseErrorKind::ReadOnlyTransaction,
            _
        )
    );
    match error {
        _ if gone || connection_lost => StoreError::Unavailable { during, reason },
        DieselError::DeserializationError(_) => StoreError::Inconsistent { during, reason },
        _ => StoreError::Refused { during, reason },
    }
}

/// A row that Casework never writes.
pub(super) fn inconsistent(during: &'static str, reason: impl Into<String>) -> StoreError {
    StoreError::Inconsistent { during, reason: reason.into() }
}

/// Whether SQLite said SQLITE_BUSY or SQLITE_LOCKED.
///
/// Diesel passes no result code of SQLite on but those of constraints, so the two are told by `sqlite3_errmsg`, which for
/// them is one of two constants of the library that is linked in (a test holds one against the other).
pub(super) fn sqlite_is_busy(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) => {
            matches!(information.message(), "database is locked" | "database table is locked")
        }
        _ => false,
    }
}

/// What a failed read or administrative statement means on SQLite.
pub(super) fn sqlite_store_error(during: &'static str, error: &DieselError) -> StoreError {
    if sqlite_is_busy(error) {
        return StoreError::Unavailable { during, reason: describe(error) };
    }
    diesel_store_error(during, error, false)
}

/// What ended a transaction of Diesel on SQLite: its own statements, or what was found.
pub(super) enum TransactionError {
    /// A statement failed.
    Diesel(DieselError),
    /// Classified already.
    Store(StoreError),
}

impl From<DieselError> for TransactionError {
    fn from(error: DieselError) -> Self {
        Self::Diesel(error)
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl TransactionError {
    /// The error with its meaning.
    pub(super) fn into_sqlite(self, during: &'static str) -> StoreError {
        match self {
            Self::Diesel(error) => sqlite_store_error(during, &error),
            Self::Store(error) => error,
        }
    }
}

/// What it means on SQLite that a statement failed before COMMIT was sent: nothing is written. `is_duplicate` says whether
/// the operation's id is there already, `version_is_taken` whether its version is; Diesel hides which constraint spoke.
pub(super) fn sqlite_statement_fault(error: &DieselError, is_duplicate: bool, version_is_taken: bool) -> CommitFault {
    if is_duplicate {
        return CommitFault::Duplicate;
    }
    if version_is_taken {
        return CommitFault::BrokenInvariant;
    }
    match error {
        _ if sqlite_is_busy(error) => CommitFault::Retry(RetryCause::Busy),
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => CommitFault::BrokenInvariant,
        DieselError::DatabaseError(
            DatabaseErrorKind::CheckViolation
            | DatabaseErrorKind::NotNullViolation
            | DatabaseErrorKind::ForeignKeyViolation,
            _,
        )
        | DieselError::SerializationError(_) => CommitFault::Data,
        _ => CommitFault::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_mean_what_the_table_says() {
        for (code, constraint, fault) in [
            ("40001", None, CommitFault::Retry(RetryCause::Serialization)),
            ("40P01", None, CommitFault::Retry(RetryCause::Deadlock)),
            ("23505", Some("operations_pkey"), CommitFault::Duplicate),
            ("23505", Some("operations_case_id_version_key"), CommitFault::BrokenInvariant),
            ("23505", Some("outbox_pkey"), CommitFault::BrokenInvariant),
            ("22021", None, CommitFault::Data),
            ("23514", Some("cases_revision_check"), CommitFault::Data),
            ("55P03", None, CommitFault::Locked),
            ("57014", None, CommitFault::Failed),
            ("57P01", None, CommitFault::Unclear),
            ("08006", None, CommitFault::Unclear),
            ("25006", None, CommitFault::Failed),
            ("42P01", None, CommitFault::Failed),
            ("53200", None, CommitFault::Failed),
        ] {
            assert_eq!(postgres_fault(code, constraint), fault, "{code}");
        }
    }
}
