//! What a history is made of: one JSON object a line, in any order of time.
//!
//! Owns the words of the format and how each is written and read. A line is an invocation, a reply, the end of waiting
//! without a clear reply, or a fault that really fired:
//!
//! ```text
//! {"event":"invoke","attempt":17,"at_us":1000,"client":"client-3","command":{...a command log line...}}
//! {"event":"reply","attempt":17,"at_us":1400,"status":200,"replayed":false,"outcome":"{\"case_id\":...}"}
//! {"event":"reply","attempt":17,"at_us":1400,"status":409,"problem":{"code":"illegal-transition",...}}
//! {"event":"unknown","attempt":17,"at_us":1400,"why":"connection reset"}
//! {"event":"fault","at_us":1200,"kind":"kill-process","detail":"node 2"}
//! ```
//!
//! Times are microseconds of one monotonic clock that all clients of a history share. `outcome` is the body's bytes as a
//! string. A retry is a further attempt under the same operation id. An attempt without an end is unknown for ever. Never
//! judges anything. Fails with [`EventError`], which says what is wrong with a line.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::command_log::{LineError, LineRules, parse_line};
use crate::domain::Command;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client is about to send a command.
    Invoke {
        /// The number of the attempt, unique in its history.
        attempt: u64,
        /// When, in microseconds: not after the first byte was sent.
        at_us: u64,
        /// Who sends it.
        client: String,
        /// What is sent.
        command: Box<Command>,
    },
    /// The client has the whole reply.
    Reply {
        /// The attempt that it answers.
        attempt: u64,
        /// When, in microseconds: not before the last byte had come.
        at_us: u64,
        /// The HTTP status.
        status: u16,
        /// What was answered.
        reply: Reply,
    },
    /// The client gave up waiting, or was told that the command goes on (202).
    Unknown {
        /// The attempt.
        attempt: u64,
        /// When, in microseconds.
        at_us: u64,
        /// Why there is no clear answer.
        why: String,
    },
    /// A fault fired.
    Fault {
        /// When, in microseconds.
        at_us: u64,
        /// Which: `kill-process`, say.
        kind: String,
        /// What it hit.
        detail: String,
    },
}

/// What a client was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The command is applied.
    Outcome {
        /// Whether the server said that it had been applied before.
        replayed: bool,
        /// The body, byte for byte.
        outcome: String,
    },
    /// It is not, or not clearly.
    Problem(ReplyProblem),
}

/// What a check needs of a problem document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct ReplyProblem {
    /// The stable code.
    pub code: String,
    /// The status on which the server decided, where it says so.
    #[serde(default)]
    pub current_status: Option<String>,
    /// The revision on which the server decided, where it says so.
    #[serde(default)]
    pub current_revision: Option<i64>,
    /// The actions that were legal, where the server says so.
    #[serde(default)]
    pub allowed: Option<Vec<String>>,
}

/// Why a line is no event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// It is no JSON object with these members.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// A member that belongs to the event is left out.
    #[error("`{event}` needs `{member}`")]
    Missing {
        /// The event.
        event: &'static str,
        /// The member.
        member: &'static str,
    },
    /// A reply is either an outcome or a problem.
    #[error("a `reply` has either `outcome` and `replayed`, or `problem`")]
    NeitherOutcomeNorProblem,
    /// The command is none.
    #[error("the command can't be read: {0}")]
    Command(#[from] LineError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Invoke,
    Reply,
    Unknown,
    Fault,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Invoke => "invoke",
            Self::Reply => "reply",
            Self::Unknown => "unknown",
            Self::Fault => "fault",
        }
    }
}

/// A line as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<'a> {
    pub(super) event: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u64>,
    pub(super) at_us: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replayed: Option<bool>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<Cow<'a, str>>,
}

impl Line<'_> {
    pub(super) fn at(event: Kind, at_us: u64) -> Self {
        Self {
            event,
            attempt: None,
            at_us,
            client: None,
            command: None,
            status: None,
            replayed: None,
            outcome: None,
            problem: None,
            why: None,
            kind: None,
            detail: None,
        }
    }
}

/// Reads one line, given without its line feed.
///
/// # Errors
/// [`EventError`]. A command is read as strictly as a server reads it; one that no server would take is no event.
pub fn parse_event(line: &[u8]) -> Result<Event, EventError> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    let event = line.event.name();
    let missing = |member| EventError::Missing { event, member };
    let text = |text: Option<Cow<'_, str>>, member| text.map(Cow::into_owned).ok_or_else(|| missing(member));
    let attempt = line.attempt.ok_or_else(|| missing("attempt"));
    let at_us = line.at_us;
    Ok(match line.event {
        Kind::Invoke => {
            let command = line.command.ok_or_else(|| missing("command"))?;
            let command = parse_line(command.get().as_bytes(), LineRules::default())?.command;
            Event::Invoke { attempt: attempt?, at_us, client: text(line.client, "client")?, command: command.into() }
        }
        Kind::Reply => {
            let status = line.status.ok_or_else(|| missing("status"))?;
            let reply = match (line.outcome, line.replayed, line.problem) {
                (Some(outcome), Some(replayed), None) => Reply::Outcome { replayed, outcome: outcome.into_owned() },
                (None, None, Some(problem)) => Reply::Problem(serde_json::from_str(problem.get())?),
                _ => return Err(EventError::NeitherOutcomeNorProblem),
            };
            Event::Reply { attempt: attempt?, at_us, status, reply }
        }
        Kind::Unknown => Event::Unknown { attempt: attempt?, at_us, why: text(line.why, "why")? },
        Kind::Fault => {
            let detail = line.detail.map(Cow::into_owned).unwrap_or_default();
            Event::Fault { at_us, kind: text(line.kind, "kind")?, detail }
        }
    })
}
