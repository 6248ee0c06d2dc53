//! What a request asks for, as a value: two requests with one fingerprint ask for the same thing.
//!
//! Owns what counts (method, path, query by name, media type, body in canonical form) and what does not (order of members,
//! white space, other headers). Two different requests never become one: JSON is read strictly. Fails with [`JsonError`]
//! where a body says it is JSON and can't be read in one way only.

use std::fmt;

use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};

use crate::domain::{JsonError, canonical, parse_strict};

/// A part of a request that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `POST` and so on.
    Method,
    /// As it was sent, percent-encoding and all.
    Path,
    /// Decoded; parameters by name, those of one name in their order.
    Query,
    /// Type and parameters, but for `boundary` and `charset=utf-8`.
    MediaType,
    /// JSON in canonical form (RFC 8785), multipart without its boundary, anything else byte for byte.
    Body,
}

impl Part {
    /// All of them, in the order in which a fingerprint keeps them.
    pub const ALL: [Self; 5] = [Self::Method, Self::Path, Self::Query, Self::MediaType, Self::Body];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Path => "path",
            Self::Query => "query",
            Self::MediaType => "media type",
            Self::Body => "body",
        }
    }
}

/// A request as the fingerprint sees it.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What stands behind `?`.
    pub query: &'a str,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// `Content-Encoding`: an encoded body counts byte for byte.
    pub content_encoding: Option<&'a str>,
    /// The whole body.
    pub body: &'a [u8],
}

/// How many bytes of a part's digest are kept: only to say which part differs.
const HINT_BYTES: usize = 8;

/// SHA-256 over all parts, and a few bytes of each part's own, to tell which of them differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    whole: [u8; 32],
    hints: [[u8; HINT_BYTES]; Part::ALL.len()],
}

impl Fingerprint {
    /// Length of [`Fingerprint::to_bytes`].
    pub const BYTES: usize = 32 + Part::ALL.len() * HINT_BYTES;

    /// Takes a request's fingerprint.
    ///
    /// # Errors
    /// [`JsonError`] for JSON that two readers could read in two ways: duplicate members, lone surrogates, numbers beyond
    /// ±(2^53−1), more than 64 levels.
    pub fn of(request: &RequestParts<'_>) -> Result<Self, JsonError> {
        let media = MediaType::parse(request.content_type.unwrap_or(""));
        let parts = [
            Sha256::digest(request.method),
            Sha256::digest(request.path),
            query_digest(request.query),
            Sha256::digest(media.canonical()),
            body_digest(request, &media)?,
        ];
        let mut whole = Sha256::new_with_prefix(b"casework-fingerprint-1");
        let mut hints = [[0; HINT_BYTES]; Part::ALL.len()];
        for (part, hint) in parts.iter().zip(&mut hints) {
            whole.update(part);
            hint.copy_from_slice(&part[..HINT_BYTES]);
        }
        Ok(Self { whole: whole.finalize().into(), hints })
    }

    /// The parts in which two fingerprints differ.
    pub fn differing(&self, other: &Self) -> Vec<Part> {
        let pairs = self.hints.iter().zip(&other.hints).zip(Part::ALL);
        pairs.filter(|((own, other), _)| own != other).map(|(_, part)| part).collect()
    }

    /// The digest alone, for whoever compares requests across keys.
    pub(super) fn whole(&self) -> &[u8; 32] {
        &self.whole
    }

    /// The form that stores keep.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.whole);
        bytes[32..].copy_from_slice(self.hints.as_flattened());
        bytes
    }

    /// Reads what [`Fingerprint::to_bytes`] wrote; `None`: it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (whole, rest) = bytes.split_first_chunk::<32>()?;
        let mut hints = [[0; HINT_BYTES]; Part::ALL.len()];
        if rest.len() != hints.as_flattened().len() {
            return None;
        }
        hints.as_flattened_mut().copy_from_slice(rest);
        Some(Self { whole: *whole, hints })
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        self.whole[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

fn query_digest(query: &str) -> sha2::digest::Output<Sha256> {
    let mut pairs: Vec<(Vec<u8>, Option<Vec<u8>>)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => (percent_decode_str(name).collect(), Some(percent_decode_str(value).collect())),
            None => (percent_decode_str(pair).collect(), None),
        })
        .collect();
    // Stable: `a=1&a=2` is not `a=2&a=1`.
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = Sha256::new();
    for (name, value) in pairs {
        update_prefixed(&mut hasher, &name);
        hasher.update([u8::from(value.is_some())]);
        update_prefixed(&mut hasher, &value.unwrap_or_default());
    }
    hasher.finalize()
}

fn update_prefixed(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update(u64::try_from(bytes.len()).expect("a length fits 64 bits").to_be_bytes());
    hasher.update(bytes);
}

fn body_digest(request: &RequestParts<'_>, media: &MediaType) -> Result<sha2::digest::Output<Sha256>, JsonError> {
    let body = request.body;
    let is_plain = request.content_encoding.is_none_or(|encoding| encoding.trim().eq_ignore_ascii_case("identity"));
    if !is_plain || body.is_empty() {
        return Ok(Sha256::digest(body));
    }
    if media.is_json() {
        return Ok(Sha256::digest(canonical(&parse_strict(body)?)));
    }
    match &media.boundary {
        Some(boundary) if media.essence.starts_with("multipart/") => Ok(multipart_digest(body, boundary.as_bytes())),
        _ => Ok(Sha256::digest(body)),
    }
}

/// Clients draw a new boundary each time they send a form, also when they repeat it.
fn multipart_digest(body: &[u8], boundary: &[u8]) -> sha2::digest::Output<Sha256> {
    let delimiter = [b"--", boundary].concat();
    let mut hasher = Sha256::new();
    let mut rest = body;
    while let Some(at) = rest.windows(delimiter.len()).position(|window| window == delimiter) {
        update_prefixed(&mut hasher, &rest[..at]);
        rest = &rest[at + delimiter.len()..];
    }
    update_prefixed(&mut hasher, rest);
    hasher.finalize()
}

/// A media type (RFC 9110, section 8.3.1), as far as it counts.
struct MediaType {
    essence: String,
    parameters: Vec<String>,
    boundary: Option<String>,
}

impl MediaType {
    fn parse(text: &str) -> Self {
        let mut parts = text.split(';');
        let essence = parts.next().unwrap_or("").trim().to_ascii_lowercase();
        let (mut parameters, mut boundary) = (Vec::new(), None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            match name.as_str() {
                "" => {}
                "boundary" => boundary = Some(value.to_owned()).filter(|value| !value.is_empty()),
                "charset" if value.eq_ignore_ascii_case("utf-8") => {}
                "charset" => parameters.push(format!("charset={}", value.to_ascii_lowercase())),
                _ => parameters.push(format!("{name}={value}")),
            }
        }
        parameters.sort();
        Self { essence, parameters, boundary }
    }

    fn is_json(&self) -> bool {
        self.essence == "application/json" || self.essence.ends_with("+json")
    }

    fn canonical(&self) -> String {
        [std::slice::from_ref(&self.essence), &self.parameters].concat().join(";")
    }
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
