//! What a lease is made of, parsed once: the name of a lock, the time of a lease, its owner.
//!
//! Owns how namespace and key become one name. Never keeps the key itself: it may be somebody's secret, and of any length.
//! Fails with [`LockError`] where a value is refused.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::LockError;

/// In bytes: the longest namespace.
pub const NAMESPACE_BYTES_MAX: usize = 128;

/// In characters of hexadecimal: how much of a key's SHA-256 stands in a log line. Enough to tell keys apart, too little to
/// name them.
const LOGGED_DIGEST: usize = 12;

/// Namespace and key as one name: `LENGTH:NAMESPACE:SHA-256 of the key`. The length keeps `a:b` with `c` apart from `a` with
/// `b:c`; the digest keeps the key out of the store, and every name short. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName {
    text: Arc<str>,
    namespace_start: usize,
    namespace_end: usize,
}

impl LockName {
    /// The name of `key` in `namespace`. Any text is a key, the empty one too.
    ///
    /// # Errors
    /// [`LockError::InvalidNamespace`] when the namespace is longer than [`NAMESPACE_BYTES_MAX`] or has control characters.
    pub fn new(namespace: &str, key: &str) -> Result<Self, LockError> {
        if namespace.len() > NAMESPACE_BYTES_MAX || namespace.contains(char::is_control) {
            return Err(LockError::InvalidNamespace);
        }
        let mut text = format!("{}:", namespace.len());
        let namespace_start = text.len();
        text.push_str(namespace);
        let namespace_end = text.len();
        text.push(':');
        text.push_str(&key_digest(key));
        Ok(Self { text: text.into(), namespace_start, namespace_end })
    }

    /// The name as stores keep it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The namespace, for logs.
    pub fn namespace(&self) -> &str {
        &self.text[self.namespace_start..self.namespace_end]
    }

    /// The beginning of the key's SHA-256, for logs: who knows the key finds its lines with `printf %s KEY | sha256sum`.
    pub fn digest(&self) -> &str {
        let start = self.namespace_end + 1;
        &self.text[start..start + LOGGED_DIGEST]
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The same digest as [`LockName::digest`], where there is no namespace.
pub(super) fn logged_digest(key: &str) -> String {
    let mut digest = key_digest(key);
    digest.truncate(LOGGED_DIGEST);
    digest
}

fn key_digest(key: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(key.as_bytes()) {
        write!(hex, "{byte:02x}").expect("a String takes everything");
    }
    hex
}

/// How long a lease lasts when nobody renews it: from 1 ms; more than [`LeaseTtl::MAX`] counts as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseTtl(Duration);

impl LeaseTtl {
    /// Stores count in milliseconds; a lease of none would be no lease, or one without an end.
    pub const MIN: Duration = Duration::from_millis(1);
    /// A hundred years: in microseconds since 1970 still exact in every store's numbers.
    pub const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// Checks a time.
    ///
    /// # Errors
    /// [`LockError::InvalidTtl`] when it is under [`LeaseTtl::MIN`].
    pub fn new(ttl: Duration) -> Result<Self, LockError> {
        if ttl < Self::MIN { Err(LockError::InvalidTtl(ttl)) } else { Ok(Self(ttl.min(Self::MAX))) }
    }

    /// The time.
    pub fn duration(self) -> Duration {
        self.0
    }

    /// The time in microseconds.
    pub fn micros(self) -> i64 {
        i64::try_from(self.0.as_micros()).expect("a hundred years of microseconds fit")
    }
}

/// Who holds a lease: 128 random bits, new for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Uuid);

impl Owner {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.simple(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, key: &str) -> LockName {
        LockName::new(namespace, key).expect("valid")
    }

    #[test]
    fn namespace_and_key_can_not_run_into_each_other() {
        let names = [
            name("a:b", "c"),
            name("a", "b:c"),
            name("", "a:b:c"),
            name("a:b:c", ""),
            name("1:a", "b:c"),
            name("a", "b:C"),
            name("A", "b:c"),
        ];
        for (index, left) in names.iter().enumerate() {
            for right in &names[index + 1..] {
                assert_ne!(left.as_str(), right.as_str());
            }
        }
        assert_eq!(name("a", "b:c"), name("a", "b:c"));
    }

    #[test]
    fn a_name_holds_its_namespace_and_no_key() {
        let name = name("semaphore_lock", "secret\0key");
        assert_eq!(name.namespace(), "semaphore_lock");
        assert_eq!(name.digest(), logged_digest("secret\0key"));
        assert!(name.as_str().starts_with("14:semaphore_lock:") && name.as_str().len() == 18 + 64, "{name:?}");
        assert!(!name.as_str().contains("secret") && name.as_str().contains(name.digest()));
        // `printf %s abc | sha256sum`
        assert_eq!(logged_digest("abc"), "ba7816bf8f01");
    }

    #[test]
    fn odd_namespaces_are_refused_and_odd_keys_are_not() {
        assert!(matches!(LockName::new("a\0", "k"), Err(LockError::InvalidNamespace)));
        assert!(matches!(LockName::new(&"n".repeat(NAMESPACE_BYTES_MAX + 1), "k"), Err(LockError::InvalidNamespace)));
        for key in ["", "\0", "ünï", &"k".repeat(100_000)] {
            assert!(name(&"n".repeat(NAMESPACE_BYTES_MAX), key).as_str().len() < 256);
        }
    }

    #[test]
    fn a_lease_of_nothing_is_refused_and_a_long_one_is_cut() {
        for none in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
            assert!(matches!(LeaseTtl::new(none), Err(LockError::InvalidTtl(ttl)) if ttl == none), "{none:?}");
        }
        assert_eq!(LeaseTtl::new(LeaseTtl::MIN).expect("valid").micros(), 1_000);
        assert_eq!(LeaseTtl::new(Duration::MAX).expect("valid").duration(), LeaseTtl::MAX);
    }
}
