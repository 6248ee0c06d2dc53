//! Lists: `limit`, `cursor` and the envelope.
//!
//! Owns the opaque cursor: the key of the last row, marked with what kind of list it belongs to. Fails with
//! `invalid-command` and the parameter as pointer.

use actix_web::HttpResponse;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::problems::{Problem, invalid};
use super::target::Query;

/// How many rows a page has where the client does not say.
const LIMIT_DEFAULT: usize = 50;
/// The largest page.
const LIMIT_MAX: usize = 200;

/// Reads `limit`.
///
/// # Errors
/// `invalid-command`: not a whole number from 1 to 200.
pub(super) fn limit(query: &Query) -> Result<usize, Problem> {
    let Some(text) = query.get("limit") else { return Ok(LIMIT_DEFAULT) };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|limit| digits && (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| invalid("/limit", format!("must be a whole number from 1 to {LIMIT_MAX}")))
}

/// Writes a cursor. `kind` keeps the cursor of one list from being taken for another's.
pub(super) fn write_cursor(kind: char, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}{key}"))
}

/// Reads `cursor`.
///
/// # Errors
/// `invalid-command`: not a cursor of this kind of list.
pub(super) fn read_cursor<T>(
    query: &Query,
    kind: char,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(text) = query.get("cursor") else { return Ok(None) };
    let decoded = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded
        .as_deref()
        .and_then(|decoded| parse(decoded.strip_prefix(kind)?))
        .map(Some)
        .ok_or_else(|| invalid("/cursor", "is no cursor of this list; take `next_cursor` as it was given"))
}

/// A page of a list.
#[derive(Serialize)]
struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

/// Answers a page.
pub(super) fn respond<T: Serialize>(data: Vec<T>, next_cursor: Option<String>) -> HttpResponse {
    let page = serde_json::to_string(&Page { data, next_cursor }).expect("views hold texts, integers and checked JSON");
    HttpResponse::Ok().content_type("application/json").body(page)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["limit", "cursor"];

    #[test]
    fn a_limit_lies_between_1_and_200() {
        let read = |raw: &str| limit(&Query::parse(raw, &KNOWN).unwrap());
        assert_eq!((read("").unwrap(), read("limit=1").unwrap(), read("limit=200").unwrap()), (50, 1, 200));
        for bad in ["limit=0", "limit=201", "limit=", "limit=%2B5", "limit=1.0", "limit=99999999999999999999"] {
            assert_eq!(read(bad).unwrap_err().status(), 422, "{bad}");
        }
    }

    #[test]
    fn a_cursor_comes_back_and_fits_its_own_list_alone() {
        let raw = format!("cursor={}", write_cursor('c', "a/b ä"));
        let query = Query::parse(&raw, &KNOWN).unwrap();
        let read = |kind| read_cursor(&query, kind, |key| Some(key.to_owned()));
        assert_eq!(read('c').unwrap().as_deref(), Some("a/b ä"));
        assert_eq!(read('o').unwrap_err().status(), 422);
    }
}
