//! Which headers cross the guard, and which it adds.
//!
//! Owns the rules of RFC 9110 (7.6.1: headers of one connection end here; 7.6.3: `Via`), RFC 7239 (`Forwarded`) and W3C Trace
//! Context (a valid `traceparent` passes with its `tracestate`; else a new trace begins). What a client says of itself in
//! `Forwarded` and `X-Forwarded-*` is kept and added to: a service must believe the last entry alone. Pure but for the
//! randomness of a new trace. Cannot fail.

use std::net::IpAddr;

use actix_web::http::header::{HeaderMap, HeaderName};
use reqwest::header as upstream;

use super::settings::HostRule;

/// RFC 9110, section 7.6.1, and what else speaks of one connection only. `Expect` was answered by the guard itself.
const OF_ONE_CONNECTION: [&str; 10] = [
    "connection",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];
/// The name of the guard in `Via`.
const VIA: &str = "1.1 casework-guard";

/// Whether a header ends at this hop, whatever `Connection` says.
pub(super) fn is_of_one_connection(name: &str) -> bool {
    OF_ONE_CONNECTION.binary_search(&name).is_ok() || name == "upgrade"
}

/// Names that the `Connection` headers of a message say belong to its connection.
fn named_by_connection<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
    texts.flat_map(|text| text.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// What the guard knows of a request beside its headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    /// Whose connection it came on.
    pub(super) client: Option<IpAddr>,
    /// Which `Host` the upstream sees.
    pub(super) host: HostRule,
}

/// The headers of a request, as the upstream gets them. `Content-Length` is left to whoever sends the body.
pub(super) fn for_upstream(headers: &HeaderMap, hop: Hop) -> upstream::HeaderMap {
    let named = named_by_connection(headers.get_all("connection").map(|value| value.as_bytes()));
    let mut sent = upstream::HeaderMap::with_capacity(headers.len() + 8);
    for (name, value) in headers {
        let name = name.as_str();
        let ends_here = is_of_one_connection(name) || named.iter().any(|named| named == name);
        if ends_here || name == "content-length" || name == "host" && hop.host == HostRule::Upstream {
            continue;
        }
        let pair = (upstream::HeaderName::try_from(name), upstream::HeaderValue::from_bytes(value.as_bytes()));
        if let (Ok(name), Ok(value)) = pair {
            sent.append(name, value);
        }
    }
    add_forwarded(&mut sent, headers, hop.client);
    add(&mut sent, "via", VIA.to_owned());
    if !sent.get("traceparent").is_some_and(|value| is_traceparent(value.as_bytes())) {
        sent.remove("tracestate");
        set(&mut sent, "traceparent", new_traceparent());
    }
    sent
}

/// The headers of an answer, as the client gets them.
pub(super) fn for_client(headers: &upstream::HeaderMap) -> Vec<(HeaderName, Vec<u8>)> {
    let named = named_by_connection(headers.get_all("connection").iter().map(upstream::HeaderValue::as_bytes));
    let crosses = |name: &str| !is_of_one_connection(name) && !named.iter().any(|named| named == name);
    let mut kept = Vec::with_capacity(headers.len() + 1);
    for (name, value) in headers.iter().filter(|(name, _)| crosses(name.as_str()) && *name != "content-length") {
        if let Ok(name) = HeaderName::try_from(name.as_str()) {
            kept.push((name, value.as_bytes().to_vec()));
        }
    }
    kept.push((actix_web::http::header::VIA, VIA.into()));
    kept
}

fn add_forwarded(sent: &mut upstream::HeaderMap, headers: &HeaderMap, client: Option<IpAddr>) {
    let host = headers.get("host").and_then(|value| value.to_str().ok());
    let mut element = match client {
        Some(IpAddr::V6(address)) => format!("for=\"[{address}]\";"),
        Some(IpAddr::V4(address)) => format!("for={address};"),
        None => "for=unknown;".to_owned(),
    };
    // Within quotes; a host with a quote or a backslash is none.
    if let Some(host) = host.filter(|host| !host.contains(['"', '\\'])) {
        element.push_str(&format!("host=\"{host}\";"));
        if !sent.contains_key("x-forwarded-host") {
            set(sent, "x-forwarded-host", host.to_owned());
        }
    }
    element.push_str("proto=http");
    add(sent, "forwarded", element);
    add(sent, "x-forwarded-for", client.map_or_else(|| "unknown".to_owned(), |address| address.to_string()));
    if !sent.contains_key("x-forwarded-proto") {
        set(sent, "x-forwarded-proto", "http".to_owned());
    }
}

/// One more element of a list: behind those that are there.
fn add(sent: &mut upstream::HeaderMap, name: &'static str, element: String) {
    let before: Vec<u8> = sent.get_all(name).iter().flat_map(|value| [value.as_bytes(), b", "].concat()).collect();
    if let Ok(value) = upstream::HeaderValue::from_bytes(&[&before, element.as_bytes()].concat()) {
        sent.insert(name, value);
    }
}

fn set(sent: &mut upstream::HeaderMap, name: &'static str, text: String) {
    if let Ok(value) = upstream::HeaderValue::try_from(text) {
        sent.insert(name, value);
    }
}

/// Trace Context, section 3.2: version, trace, parent, flags; neither id all zeros, no version `ff`; later versions may be
/// longer.
fn is_traceparent(value: &[u8]) -> bool {
    let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    let Some((known, rest)) = value.split_at_checked(55) else { return false };
    let parts: Vec<&[u8]> = known.split(|byte| *byte == b'-').collect();
    let [version, trace, parent, flags] = parts.as_slice() else { return false };
    let has_lengths = [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2];
    let ends = if *version == b"00" { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
    has_lengths
        && ends
        && parts.iter().all(|part| is_hex(part))
        && *version != b"ff"
        && !is_zero(trace)
        && !is_zero(parent)
}

/// A trace of its own, marked as sampled: one that is not would switch off the tracing of a service that asks its parent.
fn new_traceparent() -> String {
    let nonzero = |id: u128| id.max(1);
    let (trace, parent) = (nonzero(rand::random::<u128>()), nonzero(u128::from(rand::random::<u64>())));
    format!("00-{trace:032x}-{parent:016x}-01")
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn sent(pairs: &[(&str, &str)], host: HostRule) -> upstream::HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse().expect("valid"), HeaderValue::from_str(value).expect("valid"));
        }
        for_upstream(&headers, Hop { client: Some(IpAddr::from([127, 0, 0, 1])), host })
    }

    #[test]
    fn what_belongs_to_a_connection_ends_here() {
        let pairs = [
            ("connection", "close, X-Own"),
            ("connection", "x-other"),
            ("x-own", "1"),
            ("x-other", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("proxy-authorization", "secret"),
            ("content-length", "5"),
            ("authorization", "Bearer t"),
            ("idempotency-key", "k"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ];
        let sent = sent(&pairs, HostRule::Client);
        let mut names: Vec<_> = sent.keys().map(upstream::HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = ["authorization", "cookie", "forwarded", "idempotency-key", "traceparent", "via"];
        assert_eq!(names, [&expected[..], &["x-forwarded-for", "x-forwarded-proto"]].concat());
        assert_eq!(sent.get_all("cookie").iter().count(), 2);
        assert!(OF_ONE_CONNECTION.is_sorted());
    }

    #[test]
    fn the_guard_adds_itself_behind_those_before() {
        let pairs =
            [("host", "shop:81"), ("x-forwarded-for", "10.0.0.1"), ("via", "1.0 a"), ("forwarded", "for=10.0.0.1")];
        let sent = sent(&pairs, HostRule::Client);
        for (name, value) in [
            ("host", "shop:81"),
            ("x-forwarded-for", "10.0.0.1, 127.0.0.1"),
            ("x-forwarded-host", "shop:81"),
            ("via", "1.0 a, 1.1 casework-guard"),
            ("forwarded", "for=10.0.0.1, for=127.0.0.1;host=\"shop:81\";proto=http"),
        ] {
            assert_eq!(sent.get(name).and_then(|value| value.to_str().ok()), Some(value), "{name}");
        }
        assert!(!self::sent(&pairs, HostRule::Upstream).contains_key("host"));
    }

    #[test]
    fn a_trace_goes_on_or_begins() {
        let kept = sent(&[("traceparent", TRACE), ("tracestate", "a=1")], HostRule::Client);
        assert_eq!(
            (&kept["traceparent"], &kept["tracestate"]),
            (&TRACE.parse().expect("valid"), &"a=1".parse().expect("valid"))
        );
        let begun = sent(&[("traceparent", "00-0-0-0"), ("tracestate", "a=1")], HostRule::Client);
        assert!(is_traceparent(begun["traceparent"].as_bytes()) && !begun.contains_key("tracestate"));
        let zero = format!("00-{}-{}-01", "0".repeat(32), "1".repeat(16));
        for bad in [&TRACE[1..], &TRACE.to_uppercase(), &TRACE.replacen("00", "ff", 1), &format!("{TRACE}-x"), &zero] {
            assert!(!is_traceparent(bad.as_bytes()), "{bad}");
        }
        assert!(is_traceparent(format!("{}-later", TRACE.replacen("00", "01", 1)).as_bytes()));
    }
}
