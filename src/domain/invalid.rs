//! What is wrong with a command, member by member.
//!
//! Owns JSON pointers (RFC 6901) and sentences; never a status code.

use std::fmt;

/// One fault and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FieldError {
    /// RFC 6901 pointer into the body (`/payload/amount`); empty for the whole.
    pub pointer: String,
    /// A sentence that says what to change.
    pub detail: String,
}

/// A command that can be read but is not allowed: at least one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidCommand {
    /// The faults, in the order in which they were found.
    pub errors: Vec<FieldError>,
}

impl InvalidCommand {
    /// A command with one fault.
    pub fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { errors: vec![FieldError { pointer: pointer.into(), detail: detail.into() }] }
    }
}

impl fmt::Display for InvalidCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            if error.pointer.is_empty() {
                f.write_str(&error.detail)?;
            } else {
                write!(f, "{}: {}", error.pointer, error.detail)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for InvalidCommand {}
