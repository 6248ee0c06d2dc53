//! Request headers, read strictly: operation id, precondition, preference, media type.
//!
//! Owns what each header may hold. Pure: header maps come in, values or problems go out. Never guesses: what is said twice
//! or half is refused, except a preference, which a server may ignore (RFC 7240).

use std::time::Duration;

use actix_web::http::header::{self, HeaderMap};

use super::problems::{Problem, ProblemCode, invalid};
use crate::domain::{OperationId, Revision, Version};

/// How long a command's answer is waited for, unless `Prefer: wait=N` says otherwise.
const WAIT_DEFAULT: Duration = Duration::from_secs(10);
/// The longest wait that a client can ask for, in seconds.
const WAIT_SECONDS_MAX: u64 = 60;

/// The one value of a header; `Err` when it stands there twice or is no visible ASCII.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(|text| Some(text.trim())).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// `Idempotency-Key`: a UUID, bare or as a structured-field string.
///
/// # Errors
/// `operation-id-missing`, `operation-id-invalid`.
pub(super) fn operation_id(headers: &HeaderMap) -> Result<OperationId, Problem> {
    let invalid = |detail: String| Problem::new(ProblemCode::OperationIdInvalid, detail);
    let value = single(headers, "idempotency-key")
        .map_err(|()| invalid("send one `Idempotency-Key` with one UUID in it".into()))?
        .ok_or_else(|| {
            Problem::new(
                ProblemCode::OperationIdMissing,
                "send `Idempotency-Key` with a UUID that you made for this command",
            )
        })?;
    OperationId::parse_key(value).map_err(|error| invalid(error.to_string()))
}

/// `If-Match: "5"` or `"5.9"`: the revision that the client decided on.
///
/// # Errors
/// `invalid-command` for anything else: several tags, weak tags, `*`.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<Revision>, Problem> {
    let refuse = || {
        invalid(
            "/expected_revision",
            "`If-Match` must be one strong tag of a case, such as \"5\" or \"5.9\"; or leave it out",
        )
    };
    let Some(value) = single(headers, "if-match").map_err(|()| refuse())? else { return Ok(None) };
    let tag = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(refuse)?;
    let (revision, version) = tag.split_once('.').map_or((tag, None), |(revision, version)| (revision, Some(version)));
    if version.is_some_and(|version| counter(version).is_none()) {
        return Err(refuse());
    }
    Ok(Some(Revision::new(counter(revision).ok_or_else(refuse)?)))
}

/// A whole number from 0 to 2^53−1 as our own tags write it: digits alone, no leading zero.
fn counter(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| plain && *number < 1 << 53)
}

/// The entity tag of a case.
pub(super) fn entity_tag(revision: Revision, version: Version) -> String {
    format!("\"{revision}.{version}\"")
}

/// Whether `If-None-Match` names the tag (weak comparison, RFC 9110 section 13.1.2).
pub(super) fn if_none_match(headers: &HeaderMap, tag: &str) -> bool {
    headers.get_all(header::IF_NONE_MATCH).filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
    })
}

/// `Prefer: wait=N`, at most 60 s. What can't be read is ignored, as RFC 7240 asks for.
pub(super) fn wait(headers: &HeaderMap) -> Duration {
    let preferences =
        headers.get_all("prefer").filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut seconds = preferences.filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        (name.trim().eq_ignore_ascii_case("wait") && digits).then(|| value.parse().unwrap_or(u64::MAX))
    });
    seconds.next().map_or(WAIT_DEFAULT, |seconds| Duration::from_secs(seconds.min(WAIT_SECONDS_MAX)))
}

/// Checks `Content-Type` (with any parameters) and that there is no content encoding. Returns whether a type was given.
///
/// # Errors
/// `unsupported-media-type`.
pub(super) fn media_type(headers: &HeaderMap, wanted: &str) -> Result<bool, Problem> {
    let refuse =
        || Problem::new(ProblemCode::UnsupportedMediaType, format!("send the body as {wanted}, without encoding"));
    let encoding = single(headers, "content-encoding").map_err(|()| refuse())?;
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Err(refuse());
    }
    let Some(value) = single(headers, "content-type").map_err(|()| refuse())? else { return Ok(false) };
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(wanted) { Ok(true) } else { Err(refuse()) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: &str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    const ID: &str = "6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11";

    #[test]
    fn an_operation_id_is_one_uuid_bare_or_quoted() {
        let quoted = format!("\"{ID}\"");
        for good in [ID, &quoted, &ID.to_uppercase()] {
            assert_eq!(operation_id(&headers("idempotency-key", &[good])).unwrap().to_string(), ID);
        }
        let (twice, half) = (format!("{ID}, {ID}"), format!("\"{ID}"));
        for bad in [
            &["x"][..],
            &[""],
            &["\""],
            &["\"\""],
            &[ID, ID],
            &[&twice],
            &[&half],
            &["ä"],
            &["00000000-0000-0000-0000-000000000000"],
        ] {
            let problem = operation_id(&headers("idempotency-key", bad)).unwrap_err();
            assert_eq!(problem.code(), ProblemCode::OperationIdInvalid, "{bad:?}");
        }
        assert_eq!(operation_id(&HeaderMap::new()).unwrap_err().code(), ProblemCode::OperationIdMissing);
    }

    #[test]
    fn a_precondition_is_one_strong_tag_of_ours() {
        for (tag, revision) in [("\"5\"", 5), ("\"5.9\"", 5), ("\"0.1\"", 0), ("\"9007199254740991\"", (1 << 53) - 1)] {
            assert_eq!(if_match(&headers("if-match", &[tag])).unwrap(), Some(Revision::new(revision)), "{tag}");
        }
        for bad in [
            "*",
            "5",
            "W/\"5\"",
            "\"5\", \"6\"",
            "\"05\"",
            "\"5.\"",
            "\"5.x\"",
            "\"-1\"",
            "\"9007199254740992\"",
            "\"\"",
            "",
        ] {
            assert_eq!(if_match(&headers("if-match", &[bad])).unwrap_err().status(), 422, "{bad}");
        }
        assert!(if_match(&headers("if-match", &["\"5\"", "\"5\""])).is_err());
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn a_tag_matches_weakly_and_in_a_list() {
        for (value, expected) in
            [("\"5.9\"", true), ("W/\"5.9\"", true), ("\"5\", \"5.9\"", true), ("*", true), ("\"5\"", false)]
        {
            assert_eq!(if_none_match(&headers("if-none-match", &[value]), "\"5.9\""), expected, "{value}");
        }
    }

    #[test]
    fn a_preference_is_bounded_and_never_an_error() {
        for (value, seconds) in [
            ("wait=3", 3),
            ("respond-async, Wait = 0", 0),
            ("wait=60;x=1", 60),
            ("wait=61", 60),
            ("wait=99999999999999999999", 60),
            ("wait=-1", 10),
            ("wait", 10),
            ("wait=", 10),
        ] {
            assert_eq!(wait(&headers("prefer", &[value])).as_secs(), seconds, "{value}");
        }
        assert_eq!(wait(&HeaderMap::new()).as_secs(), 10);
    }

    #[test]
    fn the_media_type_is_the_wanted_one_with_any_parameters() {
        let check = |values: &[&str]| media_type(&headers("content-type", values), "application/json");
        assert!(check(&["Application/JSON; charset=utf-8; x=\"y\""]).unwrap());
        assert!(!check(&[]).unwrap());
        for bad in
            [&["text/json"][..], &["application/jsonx"], &["application/json", "application/json"], &[""], &["json"]]
        {
            assert_eq!(check(bad).unwrap_err().status(), 415, "{bad:?}");
        }
        assert!(media_type(&headers("content-encoding", &["gzip"]), "application/json").is_err());
    }
}
