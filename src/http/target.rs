//! The request target: path segments and query parameters, percent-decoded strictly.
//!
//! Owns the rule that the raw path is split first and decoded afterwards, so that `%2F` inside a case id is no separator.
//! Pure. Never normalises: `.` and `..` are segments like any other (no case id can be one of them).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::problems::{Problem, invalid};

/// What stays itself in a path segment (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The decoded segments of a raw path; `None` where an escape is broken or the result is no UTF-8.
pub(super) fn segments(raw_path: &str) -> Option<Vec<String>> {
    raw_path.strip_prefix('/')?.split('/').map(decode).collect()
}

/// Decodes `%XX`; refuses an escape without two hexadecimal digits and what is no UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The path of a case.
pub(super) fn case_path(case_id: &str) -> String {
    format!("/v1/cases/{}", utf8_percent_encode(case_id, SEGMENT))
}

/// The path of an operation.
pub(super) fn operation_path(case_id: &str, operation_id: impl std::fmt::Display) -> String {
    format!("{}/operations/{operation_id}", case_path(case_id))
}

/// Query parameters, each at most once and each known.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `a=b&c=d` (`+` is a space).
    ///
    /// # Errors
    /// `invalid-command` with the parameter as pointer: unknown, given twice, or not decodable.
    pub(super) fn parse(raw: &str, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in raw.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let read = |text: &str| decode(&text.replace('+', " "));
            let (Some(name), Some(value)) = (read(name), read(value)) else {
                return Err(invalid("", "the query is not percent-encoded UTF-8"));
            };
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            if !known.contains(&name.as_str()) {
                let detail = if known.is_empty() {
                    "no query parameter has a meaning here; remove it".to_owned()
                } else {
                    format!("there is no such query parameter; known are {}", known.join(", "))
                };
                return Err(invalid(&pointer, detail));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(invalid(&pointer, "the query parameter stands there twice"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_it_is_decoded() {
        assert_eq!(segments("/v1/cases/a%2Fb%20c%C3%A4/approve").unwrap(), ["v1", "cases", "a/b cä", "approve"]);
        assert_eq!(segments("/a+b/").unwrap(), ["a+b", ""]);
        for bad in ["/%", "/%2", "/%zz", "/%ff", "/%+1", "*", ""] {
            assert!(segments(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_case_id_comes_back_from_its_path() {
        for id in ["62", "a/b c", "ä%2F", "...", "a?b#c"] {
            assert_eq!(segments(&case_path(id)).unwrap()[2], id);
        }
    }

    #[test]
    fn a_query_names_known_parameters_once() {
        let query = Query::parse("status=in_review&assignee=a%2Bb+c&", &["status", "assignee"]).unwrap();
        assert_eq!(query.get("assignee"), Some("a+b c"));
        assert_eq!(query.get("limit"), None);
        for bad in ["limit=1", "status=a&status=a", "status=%ff", "stat%75s"] {
            assert_eq!(Query::parse(bad, &["status"]).is_err(), bad != "stat%75s", "{bad}");
        }
    }
}
