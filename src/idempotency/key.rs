//! The client's name for one operation, and who the client is: together the identity under which an answer is kept.
//!
//! Owns the syntax of `Idempotency-Key` and how principal and key are joined. Never keeps either in readable form: an
//! identity is a digest, so that no store and no log holds a key. Fails with [`InvalidKey`].

use std::fmt;

use actix_web::http::header::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};

/// The header with the key (draft-ietf-httpapi-idempotency-key-header).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key, in characters.
pub const KEY_CHARACTERS_MAX: usize = 255;

/// A key: 1 to 255 visible ASCII characters, compared as they are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// Why there is no usable key. Its text never repeats what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Two headers: which one counts would be a guess.
    #[error("there are two Idempotency-Key headers; send one")]
    Twice,
    /// Nothing in it.
    #[error("the Idempotency-Key is empty; send 1 to 255 visible ASCII characters, a UUID for example")]
    Empty,
    /// Over 255 characters.
    #[error("the Idempotency-Key has more than 255 characters; send at most 255, a UUID for example")]
    TooLong,
    /// A space, a control character or one that is not ASCII.
    #[error("the Idempotency-Key holds a character that is not visible ASCII; a UUID for example has none")]
    Character,
    /// A quote that does not close, or something behind it.
    #[error("the quotes of the Idempotency-Key are not right; send \"KEY\" or KEY")]
    Quotes,
}

impl IdempotencyKey {
    /// The key of a request: quoted (a string of RFC 8941) or bare. `Ok(None)`: there is no such header.
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, InvalidKey> {
        let mut values = headers.get_all(IDEMPOTENCY_KEY);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(InvalidKey::Twice);
        }
        Self::parse(value.as_bytes()).map(Some)
    }

    /// Reads a header's value. White space around it does not count.
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn parse(value: &[u8]) -> Result<Self, InvalidKey> {
        let value = value.trim_ascii();
        let key = match value.strip_prefix(b"\"") {
            Some(rest) => unquote(rest)?,
            None => value.to_vec(),
        };
        if key.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if !key.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidKey::Character);
        }
        if key.len() > KEY_CHARACTERS_MAX {
            return Err(InvalidKey::TooLong);
        }
        Ok(Self(String::from_utf8(key).expect("graphic ASCII is UTF-8")))
    }
}

/// What stands between quotes, of which the first is gone; `\"` and `\\` stand for a quote and a backslash.
fn unquote(rest: &[u8]) -> Result<Vec<u8>, InvalidKey> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    loop {
        match bytes.next() {
            Some(b'"') if bytes.as_slice().is_empty() => return Ok(key),
            Some(b'\\') => match bytes.next() {
                Some(byte @ (b'"' | b'\\')) => key.push(*byte),
                _ => return Err(InvalidKey::Quotes),
            },
            Some(b'"') | None => return Err(InvalidKey::Quotes),
            Some(byte) => key.push(*byte),
        }
    }
}

/// Without the key itself, which may be a secret of the client's.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} characters)", self.0.len())
    }
}

/// Who sent a request, as far as keys go: two principals never share one.
#[derive(Clone, PartialEq, Eq)]
pub struct Principal(Option<Vec<u8>>);

impl Principal {
    /// A user, an account, a tenant, a token: whatever tells callers apart. The text is kept nowhere.
    pub fn new(name: impl Into<Vec<u8>>) -> Self {
        Self(Some(name.into()))
    }

    /// One for all callers. Right only where all of them may see each other's answers.
    pub fn everybody() -> Self {
        Self(None)
    }

    /// Tells principals apart without keeping their names.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new_with_prefix([u8::from(self.0.is_some())]);
        hasher.update(self.0.as_deref().unwrap_or_default());
        hasher.finalize().into()
    }
}

/// Without the name, which may be a token.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Principal(..)" } else { "Principal(everybody)" })
    }
}

/// What an answer is kept under: a digest of namespace, principal and key, each with its length before it, so that `a:b` and
/// `c` are not `a` and `b:c`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Joins them. Services that share a store have a namespace each.
    pub fn new(namespace: &str, principal: &Principal, key: &IdempotencyKey) -> Self {
        let mut hasher = Sha256::new_with_prefix(b"casework-idempotency-1");
        let mut part = |tag: u8, bytes: &[u8]| {
            hasher.update([tag]);
            hasher.update(u64::try_from(bytes.len()).expect("a length fits 64 bits").to_be_bytes());
            hasher.update(bytes);
        };
        part(0, namespace.as_bytes());
        match &principal.0 {
            Some(name) => part(1, name),
            None => part(2, b""),
        }
        part(3, key.0.as_bytes());
        Self(hasher.finalize().into())
    }

    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The first bytes in hexadecimal: enough to find two log lines about the same identity.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_are_one_key() {
        let key = |text: &str| IdempotencyKey::parse(text.as_bytes()).expect("valid");
        assert_eq!(key("\"8e03978e-40d5-43dd-bc93-6894a57f9324\""), key(" 8e03978e-40d5-43dd-bc93-6894a57f9324 "));
        assert_eq!(key(r#""a\"b\\c""#), key(r#"a"b\c"#));
        assert_eq!(key(&"k".repeat(255)).0.len(), 255);
    }

    #[test]
    fn odd_keys_are_refused_without_being_repeated() {
        for (bytes, reason) in [
            (&b""[..], InvalidKey::Empty),
            (b"  ", InvalidKey::Empty),
            (b"\"\"", InvalidKey::Empty),
            (&[b'k'; 256], InvalidKey::TooLong),
            (b"a b", InvalidKey::Character),
            (b"a\0b", InvalidKey::Character),
            ("schlüssel".as_bytes(), InvalidKey::Character),
            (b"\"open", InvalidKey::Quotes),
            (b"\"k\";p=1", InvalidKey::Quotes),
            (b"\"a\\n\"", InvalidKey::Quotes),
        ] {
            assert_eq!(IdempotencyKey::parse(bytes), Err(reason), "{bytes:?}");
        }
    }

    #[test]
    fn parts_of_an_identity_do_not_run_into_each_other() {
        let key = |text: &str| IdempotencyKey::parse(text.as_bytes()).expect("valid");
        let identity = |namespace: &str, principal: &str, name: &str| {
            Identity::new(namespace, &Principal::new(principal), &key(name))
        };
        assert_ne!(identity("", "a:b", "c"), identity("", "a", "b:c"));
        assert_ne!(identity("a", "b", "c"), identity("", "ab", "c"));
        assert_ne!(identity("", "47", "k"), identity("", "81", "k"));
        assert_ne!(identity("", "", "k"), Identity::new("", &Principal::everybody(), &key("k")));
        assert_eq!(identity("n", "47", "k"), identity("n", "47", "\"k\""));
    }
}
