//! The digest that tells an exact repeat from another command under the same id.
//!
//! Owns the canonical form of a command and its version byte: when the form changes, [`DIGEST_VERSION`] grows and old digests
//! keep their meaning.

use std::fmt;

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::ids::{ActorId, CaseId, CommandName, Revision, WorkflowName};

/// The version of the canonical form (`"v"` in it, and the first byte of the digest).
pub const DIGEST_VERSION: u8 = 1;

/// `JCS({"v":1, case_id, command, ...})` (RFC 8785). The members stand in the order of their names, and `serde_json` escapes
/// strings as RFC 8785 asks, so that only the payload has to be sorted; a property test holds this against the general writer.
#[derive(serde::Serialize)]
pub(super) struct CanonicalRequest<'a> {
    pub(super) actor: &'a ActorId,
    pub(super) case_id: &'a CaseId,
    pub(super) command: &'a CommandName,
    pub(super) expected_revision: Option<Revision>,
    /// Canonical already.
    pub(super) payload: Option<Box<RawValue>>,
    pub(super) reason: Option<&'a str>,
    pub(super) v: u8,
    pub(super) workflow: Option<&'a WorkflowName>,
}

impl CanonicalRequest<'_> {
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a request has only texts, integers and JSON")
    }
}

/// One version byte and the 32 bytes of SHA-256 over the canonical request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 33]);

impl Digest {
    /// The digest of a canonical request (see [`crate::domain::Command::request`]).
    pub fn of_request(canonical: &str) -> Self {
        let mut bytes = [DIGEST_VERSION; 33];
        bytes[1..].copy_from_slice(&Sha256::digest(canonical.as_bytes()));
        Self(bytes)
    }

    /// The 33 bytes as they are stored.
    pub fn as_bytes(&self) -> &[u8; 33] {
        &self.0
    }

    /// Takes stored bytes; `None` when there are not 33 of them.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
