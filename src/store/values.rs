//! Values that both databases hold in the same form.
//!
//! Owns how such a value is read and written. Fails with [`StoreError`] where a row holds what Casework never writes.

use super::StoreError;
use super::errors::inconsistent;
use crate::domain::Digest;

/// A bound on rows as SQL takes it.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A digest as it is stored; NULL belongs to an edit.
pub(super) fn stored_digest(bytes: Option<&[u8]>, during: &'static str) -> Result<Option<Digest>, StoreError> {
    match bytes {
        None => Ok(None),
        Some(bytes) => match Digest::from_stored(bytes) {
            Some(digest) => Ok(Some(digest)),
            None => Err(inconsistent(during, format!("a digest has {} bytes", bytes.len()))),
        },
    }
}
