//! One notice of one operation to one sink, and the seam behind which sinks stand.
//!
//! Owns what a notice is made of and what a sink may say about it. Never sends anything, knows no database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::domain::{ActorId, CaseId, OperationId, Status, Timestamp, Version};

/// The name of a sink in the configuration: `[a-z][a-z0-9_-]*`, at most 64 characters. It is part of a delivery's key: a sink
/// that is renamed is another sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkName(String);

/// The text is no name of a sink.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a sink is [a-z][a-z0-9_-]*, at most 64 characters")]
pub struct InvalidSinkName;

/// The longest name, in characters.
const NAME_MAX: usize = 64;

impl SinkName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SinkName {
    type Err = InvalidSinkName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = text.len() <= NAME_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidSinkName) }
    }
}

impl fmt::Display for SinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A notice of one operation, as it is handed to a sink.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The case.
    pub case_id: CaseId,
    /// The operation's version: the place in the case's order.
    pub version: Version,
    /// The operation.
    pub operation_id: OperationId,
    /// Its command.
    pub command: String,
    /// The case's workflow.
    pub workflow: String,
    /// The case's status behind it.
    pub status: Status,
    /// Who sent it.
    pub actor: String,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// The canonical request, as stored: JSON with `reason` and `payload`.
    pub request: Box<RawValue>,
    /// The outcome, byte for byte as the client got it.
    pub outcome: Box<RawValue>,
    /// The case's data (the payload of `open`) when this attempt began.
    pub data: Box<RawValue>,
    /// Who was assigned when this attempt began.
    pub assignees: Vec<ActorId>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

impl Delivery {
    /// The id of the notice: derived from the operation, so that it is the same at each attempt, by whichever process, at every
    /// sink. Safe in a header, a mail's `Message-ID` and a file name.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        hash.update((self.case_id.as_str().len() as u64).to_be_bytes());
        hash.update(self.case_id.as_str().as_bytes());
        hash.update(self.operation_id.uuid().as_bytes());
        let digest = hash.finalize();
        digest.iter().take(16).fold(String::from("op_"), |mut id, byte| {
            id.push_str(&format!("{byte:02x}"));
            id
        })
    }

    /// The notice as JSON: `{"type":"case.approve","timestamp":...,"data":{the outcome}}`, the shape of Standard Webhooks. The
    /// same bytes at each attempt.
    pub fn body(&self) -> String {
        format!(
            r#"{{"type":"case.{}","timestamp":"{}","data":{}}}"#,
            self.command,
            self.recorded_at,
            self.outcome.get()
        )
    }
}

/// Why a sink did not take a delivery. In words for an operator; never a body, key or token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryFailure {
    /// This one was not taken; later it may be. `retry_after`: when the receiver says so.
    #[error("not taken: {reason}")]
    NotTaken {
        /// What happened.
        reason: String,
        /// How long the receiver wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Nothing is taken at present: the receiver can't be reached. Counts towards a pause of the sink, not as an attempt of this
    /// delivery alone.
    #[error("the sink is away: {reason}")]
    SinkAway {
        /// What happened.
        reason: String,
    },
    /// This one never will be taken, as it stands: a dead letter at once.
    #[error("refused for good: {reason}")]
    Refused {
        /// What happened.
        reason: String,
    },
    /// The receiver wants nothing from here any more (410 of a webhook): the sink is disabled until an operator resumes it.
    #[error("the receiver is gone: {reason}")]
    SinkGone {
        /// What happened.
        reason: String,
    },
}

/// Where notices go. `deliver` answers `Ok` when the receiver has taken the notice for good, and may be called again with the
/// same delivery at any time: a receiver that must not see one twice looks at [`Delivery::id`].
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Delivers one notice, within the sink's own bounded time.
    ///
    /// # Errors
    /// [`DeliveryFailure`].
    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryFailure>;
}
