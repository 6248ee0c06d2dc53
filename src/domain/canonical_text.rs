//! Writing a JSON value in canonical form (RFC 8785).
//!
//! Owns the order of members and the escapes; how a fraction is written is `serde_json_canonicalizer`'s. That crate writes all
//! of it, and a test holds this against it; but it reads each name again and keeps each member apart until it is sorted,
//! which takes longer than all else that a small command costs. Cannot fail on what `parse_strict` returns.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// Up to here, 2^53 − 1, a double is the integer itself and is written as such.
const INTEGER_MAX: u64 = 9_007_199_254_740_991;
/// Enough for most commands, so that the text seldom has to grow.
const TEXT_BYTES: usize = 256;

/// The canonical text of a value.
pub(super) fn write(value: &Value) -> String {
    let mut text = String::with_capacity(TEXT_BYTES);
    write_value(value, &mut text);
    text
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(number, text),
        Value::String(string) => write_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => write_object(members, text),
    }
}

fn write_number(number: &Number, text: &mut String) {
    let written = match (number.as_u64(), number.as_i64()) {
        (Some(number @ ..=INTEGER_MAX), _) => write!(text, "{number}"),
        (_, Some(number)) if number.unsigned_abs() <= INTEGER_MAX => write!(text, "{number}"),
        _ => {
            let number = serde_json_canonicalizer::to_string(number);
            text.write_str(&number.expect("strict values have finite numbers"))
        }
    };
    written.expect("a String takes what is written");
}

/// Members stand in the order of their names as UTF-16 (RFC 8785, section 3.2.3). For ASCII that is the order of their bytes,
/// in which they are kept.
fn write_object(members: &Map<String, Value>, text: &mut String) {
    text.push('{');
    if members.keys().all(|name| name.is_ascii()) && members.keys().is_sorted() {
        write_members(members.iter(), text);
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        write_members(sorted.into_iter(), text);
    }
    text.push('}');
}

fn write_members<'v>(members: impl Iterator<Item = (&'v String, &'v Value)>, text: &mut String) {
    for (i, (name, value)) in members.enumerate() {
        if i > 0 {
            text.push(',');
        }
        write_string(name, text);
        text.push(':');
        write_value(value, text);
    }
}

/// Only what must be escaped is (RFC 8785, section 3.2.2.2).
fn write_string(string: &str, text: &mut String) {
    text.push('"');
    let mut rest = string;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        text.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            control => write!(text, "\\u{control:04x}").expect("a String takes what is written"),
        }
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_the_crate(value: &Value) -> String {
        serde_json_canonicalizer::to_string(value).expect("finite numbers")
    }

    fn text() -> impl Strategy<Value = String> {
        // Escapes, the edges of one, two and three bytes, and names whose order differs between bytes and UTF-16.
        let odd = prop::sample::select(vec![
            '\u{1}',
            '\u{8}',
            '\t',
            '\n',
            '\u{c}',
            '\r',
            '\u{1f}',
            '"',
            '\\',
            '/',
            '\u{7f}',
            '\u{80}',
            '\u{e9}',
            '\u{2028}',
            '\u{ffff}',
            '\u{fb33}',
            '\u{1f600}',
            'a',
            'b',
            '1',
        ]);
        prop::collection::vec(prop_oneof![3 => odd, 1 => any::<char>()], 0..6).prop_map(String::from_iter)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-20_i64..20).prop_map(Value::from),
            prop::sample::select(vec![0_i64, 1 << 53, (1 << 53) - 1, -(1 << 53), 1 - (1 << 53)]).prop_map(Value::from),
            any::<f64>().prop_filter_map("finite", |double| Number::from_f64(double).map(Value::Number)),
            Just(Value::from(-0.0)),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((text(), inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Digests that were stored before are those of that crate's text.
        #[test]
        fn the_text_is_that_of_the_crate(value in value()) {
            prop_assert_eq!(write(&value), of_the_crate(&value));
        }
    }

    #[test]
    fn members_are_ordered_as_utf16() {
        // RFC 8785, section 3.2.3: U+1F600 is a pair of surrogates, which stand before U+FB33.
        let value = serde_json::json!({"\u{fb33}": 1, "\u{1f600}": 2, "\r": 3, "1": 4, "\u{80}": 5});
        assert_eq!(write(&value), "{\"\\r\":3,\"1\":4,\"\u{80}\":5,\"\u{1f600}\":2,\"\u{fb33}\":1}");
        assert_eq!(write(&value), of_the_crate(&value));
    }
}
