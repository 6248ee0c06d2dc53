//! The values that rules and options are made of: times, paths, who a request is from, where the upstream is.
//!
//! Owns how each is written and read again. Each fails with a sentence that says how it is written.

use std::fmt;
use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, HeaderName};
use serde::{Deserialize, Serialize};

/// How long a time may be: a century is as good as for ever.
const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Units of time, longest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("ms", 1), ("s", 1_000)];

/// A time as it is written: a whole number and d, h, m, s or ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(pub Duration);

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no time: write a whole number and d, h, m, s or ms, as in \"30s\"");
        let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let time = number.checked_mul(*unit_ms).map(Duration::from_millis).ok_or_else(wrong)?;
        if time > TIME_MAX { Err(format!("{text:?} is longer than a hundred years")) } else { Ok(Self(time)) }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let in_order = ["d", "h", "m", "s"].into_iter().filter_map(|name| UNITS.iter().find(|unit| unit.0 == name));
        for (name, unit_ms) in in_order {
            if millis > 0 && millis.is_multiple_of(*unit_ms) {
                return write!(f, "{}{name}", millis / unit_ms);
            }
        }
        write!(f, "{millis}ms")
    }
}

/// Reading by `FromStr`, writing by `Display`, for serde.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(Time);
as_text!(PathPattern);
as_text!(PrincipalRule);

/// Which paths a route is for: one, or (`/payments/*`) one and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    /// Without the `/*`.
    path: String,
    and_below: bool,
}

impl PathPattern {
    /// Whether `path` (percent-decoded) is one of them.
    pub fn matches(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some("") => true,
            Some(rest) => self.and_below && rest.starts_with('/'),
            None => false,
        }
    }
}

impl std::str::FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, and_below) = text.strip_suffix("/*").map_or((text, false), |path| (path, true));
        if !(path.starts_with('/') || and_below && path.is_empty()) || path.contains(['*', '?', '#', '%']) {
            return Err(format!(
                "{text:?} is no path of a route: write one path (\"/payments\"), or one and everything below it \
                 (\"/payments/*\"), without query and percent signs"
            ));
        }
        Ok(Self { path: path.to_owned(), and_below })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.and_below { "/*" } else { "" })
    }
}

/// Which part of a request says whom it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PrincipalRule {
    /// A header; a request with a key and without the header is answered 401.
    Header(HeaderName),
    /// Nothing does: all callers share their keys, and may see each other's answers.
    Nobody,
}

impl std::str::FromStr for PrincipalRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no principal: write \"authorization\", \"header:NAME\" or \"none\"");
        match text {
            "authorization" => Ok(Self::Header(AUTHORIZATION)),
            "none" => Ok(Self::Nobody),
            _ => {
                let name = text.strip_prefix("header:").ok_or_else(wrong)?;
                HeaderName::try_from(name).map(Self::Header).map_err(|_| wrong())
            }
        }
    }
}

impl fmt::Display for PrincipalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) if *name == AUTHORIZATION => f.write_str("authorization"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Nobody => f.write_str("none"),
        }
    }
}

/// What a request needs to be let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRule {
    /// A key; without one it is answered 400.
    Required,
    /// Nothing: with a key it is protected, without one it passes as it is.
    Optional,
    /// Keys mean nothing here: the request passes as it is, its body unread.
    Off,
}

/// What becomes of a key whose request was sent to the upstream and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenUnclear {
    /// The guard's own 502 or 504 is kept: the request is never sent again under this key.
    Keep,
    /// It is given back: the next attempt is sent.
    Release,
}

/// Which `Host` the upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum HostRule {
    /// The client's, so that links which the service makes lead through the guard.
    Client,
    /// The upstream's own, for one that is chosen by its name.
    Upstream,
}

/// Where requests go, and how.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// Scheme, host, port, and a path that all requests get before theirs (without its last slash).
    pub(super) url: reqwest::Url,
    /// Which `Host` it sees.
    pub host: HostRule,
    /// How long connecting may take. Too short: 502 on a busy network; too long: clients wait for an upstream that is away.
    pub connect_timeout: Duration,
    /// How long an idle connection is used again. Must be shorter than the upstream's own time, or a request that meets the
    /// closing connection is unclear.
    pub keep_alive: Duration,
}

/// The address of an upstream can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the upstream is given as http://HOST:PORT or https://HOST, perhaps with a path, without query and credentials"
)]
pub struct InvalidUpstream;

impl UpstreamOptions {
    /// The upstream at `url`.
    ///
    /// # Errors
    /// [`InvalidUpstream`].
    pub fn new(url: &str) -> Result<Self, InvalidUpstream> {
        let url = reqwest::Url::parse(url).map_err(|_| InvalidUpstream)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_place = url.query().is_none() && url.fragment().is_none() && url.has_host();
        if !matches!(url.scheme(), "http" | "https") || !is_plain || !is_place {
            return Err(InvalidUpstream);
        }
        let (connect_timeout, keep_alive) = (Duration::from_secs(5), Duration::from_secs(1));
        Ok(Self { url, host: HostRule::Client, connect_timeout, keep_alive })
    }

    /// Host and port, for a connection.
    pub(super) fn place(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        (host, self.url.port_or_known_default().unwrap_or(80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["30s", "300ms", "90d", "5h", "1m", "0ms", "1500ms"] {
            assert_eq!(text.parse::<Time>().expect("valid").to_string(), text);
        }
        assert_eq!("60s".parse::<Time>().expect("valid").to_string(), "1m");
        for bad in ["", "30", "s", "-1s", "1.5s", "1é", "99999999999999999999s", "40000d"] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_is_one_path_or_one_and_everything_below() {
        let matches = |pattern: &str, path| pattern.parse::<PathPattern>().expect("valid").matches(path);
        assert!(matches("/payments", "/payments") && !matches("/payments", "/payments/1"));
        assert!(matches("/payments/*", "/payments") && matches("/payments/*", "/payments/1/x"));
        assert!(!matches("/payments/*", "/payments2") && matches("/*", "/anything"));
        for bad in ["", "payments", "*", "/a*", "/a/*/b", "/a?b", "/%61"] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_upstream_is_a_place_and_nothing_else() {
        assert_eq!(UpstreamOptions::new("https://[::1]/api").expect("valid").place(), ("::1".to_owned(), 443));
        for bad in ["", "127.0.0.1:80", "ftp://a", "http://a:b@c", "http://a/?b", "http://a/#b", "unix:/x"] {
            assert!(UpstreamOptions::new(bad).is_err(), "{bad}");
        }
    }
}
