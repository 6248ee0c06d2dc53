//! Identifiers as types: parsed once at the border, so that inside an invalid one cannot exist.
//!
//! Owns the rules for case ids, actors, operation ids and names (DESIGN section 1). Never allocates on clone: texts are
//! shared. Fails with [`InvalidId`], whose text says what the rule is.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The longest case id, actor or name, in characters (Unicode scalar values).
const ID_CHARACTERS_MAX: usize = 128;
/// Actors with this prefix are people who edit by SQL; no client may take such a name.
const SQL_ACTOR_PREFIX: &str = "sql:";

/// Why a text is not a valid identifier; the text is a sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(String);

fn check_id(what: &str, text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId(format!("{what} is empty; give 1 to {ID_CHARACTERS_MAX} characters")));
    }
    let characters = text.chars().count();
    if characters > ID_CHARACTERS_MAX {
        return Err(InvalidId(format!("{what} has {characters} characters; at most {ID_CHARACTERS_MAX} are allowed")));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidId(format!("{what} contains a control character; remove it")));
    }
    if text == "." || text == ".." {
        return Err(InvalidId(format!("{what} must not be `.` or `..`, which paths give another meaning")));
    }
    Ok(())
}

fn check_name(what: &str, text: &str) -> Result<(), InvalidId> {
    let mut bytes = text.bytes();
    let first_is_letter = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    let rest_is_name = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !first_is_letter || !rest_is_name || text.len() > ID_CHARACTERS_MAX {
        return Err(InvalidId(format!(
            "{what} must match [a-z][a-z0-9_-]* and have at most {ID_CHARACTERS_MAX} characters"
        )));
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Takes a text that a database returned. The rules were checked before it was stored.
            pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

text_id!(
    /// What is decided on: 1 to 128 characters, no control characters, not `.` or `..`; compared byte for byte.
    CaseId
);
text_id!(
    /// Who sends a command (`"47"`). Follows the rules of case ids; `sql:` is kept for hand edits.
    ActorId
);
text_id!(
    /// The name of a command: built in (`open`, `assign`, ...) or an action of a workflow.
    CommandName
);
text_id!(
    /// The name of a workflow: `[a-z][a-z0-9_-]*`.
    WorkflowName
);
text_id!(
    /// A status of a workflow: `[a-z][a-z0-9_-]*`.
    Status
);

impl CaseId {
    /// Parses a case id.
    ///
    /// # Errors
    /// [`InvalidId`] where the text breaks the rule of the type.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_id("the case id", text)?;
        Ok(Self(text.into()))
    }
}

impl ActorId {
    /// Parses the name of an actor or assignee that a client gave.
    ///
    /// # Errors
    /// [`InvalidId`] where the text breaks the rules of case ids or begins with `sql:`.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_id("the actor or assignee", text)?;
        if text.starts_with(SQL_ACTOR_PREFIX) {
            return Err(InvalidId("names that begin with `sql:` are kept for edits by SQL; use another".into()));
        }
        Ok(Self(text.into()))
    }

    /// Parses the actor of an exported `edit` line: the one place where `sql:` is right.
    ///
    /// # Errors
    /// [`InvalidId`] where the prefix is missing or the rest breaks the rules of case ids.
    pub fn parse_editor(text: &str) -> Result<Self, InvalidId> {
        check_id("the actor", text)?;
        if !text.starts_with(SQL_ACTOR_PREFIX) {
            return Err(InvalidId("the actor of an `edit` begins with `sql:`".into()));
        }
        Ok(Self(text.into()))
    }
}

impl CommandName {
    /// Parses the name of a command.
    ///
    /// # Errors
    /// [`InvalidId`] where the text is no `[a-z][a-z0-9_-]*`.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_name("the command", text)?;
        Ok(Self(text.into()))
    }
}

impl WorkflowName {
    /// Parses the name of a workflow.
    ///
    /// # Errors
    /// [`InvalidId`] where the text is no `[a-z][a-z0-9_-]*`.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_name("the workflow", text)?;
        Ok(Self(text.into()))
    }
}

impl Status {
    /// Parses the name of a status.
    ///
    /// # Errors
    /// [`InvalidId`] where the text is no `[a-z][a-z0-9_-]*`.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_name("the status", text)?;
        Ok(Self(text.into()))
    }
}

/// The identity of an operation within its case: a UUID that the client makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// Parses 36 characters with hyphens, either case, any version, not nil.
    ///
    /// # Errors
    /// [`InvalidId`] for any other form.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId("the operation id must be a UUID of 36 characters with hyphens, not nil".into());
        if text.len() != 36 {
            return Err(invalid());
        }
        let uuid = Uuid::try_parse(text).map_err(|_| invalid())?;
        if uuid.is_nil() {
            return Err(invalid());
        }
        Ok(Self(uuid))
    }

    /// Parses the value of an `Idempotency-Key` header: an id, bare or as a structured-field string (RFC 8941).
    ///
    /// # Errors
    /// [`InvalidId`] for any other form.
    pub fn parse_key(value: &str) -> Result<Self, InvalidId> {
        let bare = value.strip_prefix('"').map_or(Some(value), |rest| rest.strip_suffix('"'));
        Self::parse(bare.unwrap_or_default())
    }

    /// The UUID.
    pub fn uuid(&self) -> Uuid {
        self.0
    }

    /// Takes a UUID that a database returned or that a caller made.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl serde::Serialize for OperationId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Wraps a count that is not negative.
            ///
            /// # Panics
            /// On a negative number: the database forbids them and the parsers refuse them.
            pub fn new(count: i64) -> Self {
                assert!(count >= 0, "counters are never negative");
                Self(count)
            }

            /// The number.
            pub fn get(self) -> i64 {
                self.0
            }

            /// The one after it.
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// What clients see and send back as `expected_revision`. Every workflow action raises it by 1; `open` gives 0.
    Revision
);
counter!(
    /// Internal: every accepted command raises it by 1; `open` gives 1; 0 stands for "no such case".
    Version
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_ids_have_one_to_128_characters_without_controls_or_dots() {
        for good in ["62", "a b", "ä/ö", &"x".repeat(128), "...", &"é".repeat(128)] {
            assert!(CaseId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a\nb", "a\0", "\u{85}", &"x".repeat(129)] {
            assert!(CaseId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn actors_named_like_sql_users_are_refused() {
        assert!(ActorId::parse("sql:postgres").is_err());
        assert!(ActorId::parse("sqlite").is_ok());
        assert!(ActorId::parse_editor("sql:postgres").is_ok());
        assert!(ActorId::parse_editor("47").is_err());
    }

    #[test]
    fn operation_ids_are_hyphenated_uuids_of_any_version_but_not_nil() {
        assert!(OperationId::parse("5F0C2FDA-2F7B-4E44-9F16-08B2A6A2E3A1").is_ok());
        assert!(OperationId::parse("ffffffff-ffff-ffff-ffff-ffffffffffff").is_ok());
        for bad in [
            "",
            "5f0c2fda2f7b4e449f1608b2a6a2e3a1",
            "00000000-0000-0000-0000-000000000000",
            "{5f0c2fda-2f7b-4e44-9f16-08b2a6a2e3a}",
            "5f0c2fda-2f7b-4e44-9f16-08b2a6a2e3ag",
        ] {
            assert!(OperationId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_lower_case_and_begin_with_a_letter() {
        for good in ["a", "approve", "t02_check-1"] {
            assert!(CommandName::parse(good).is_ok());
        }
        for bad in ["", "1a", "Approve", "a b", "é", "_a"] {
            assert!(CommandName::parse(bad).is_err());
        }
    }
}
