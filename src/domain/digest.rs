//! The digest that tells an exact repeat from another command under the same id.
//!
//! Owns the version byte: when the canonical form changes, [`DIGEST_VERSION`] grows and old digests keep their meaning.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The version of the canonical form (`"v"` in it, and the first byte of the digest).
pub const DIGEST_VERSION: u8 = 1;

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
