//! JSON read strictly and written canonically (RFC 8785).
//!
//! Owns the rule that two different texts never become one value: duplicate members at any depth, lone surrogates and
//! nesting over 64 are refused as malformed; NUL and numbers outside ±(2^53−1) as invalid, with a pointer. Never merges,
//! never drops. Fails with [`JsonError`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::invalid::{FieldError, InvalidCommand};

/// How deep arrays and objects may be nested.
const DEPTH_MAX: usize = 64;
/// 2^53 − 1: the largest integer that every JSON reader keeps exactly (RFC 7493, section 2.2).
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, a duplicate member, a lone surrogate or too deep.
    #[error("{0}")]
    Malformed(String),
    /// JSON, but with a NUL or a number out of range.
    #[error("{0}")]
    Invalid(InvalidCommand),
}

/// Reads one JSON value and nothing behind it.
///
/// # Errors
/// See [`JsonError`]. The text of a malformed one names line and column.
pub fn parse_strict(text: &[u8]) -> Result<Value, JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| classify(text, &error))?;
    if is_valid(&value) {
        return Ok(value);
    }
    // Again, and slower: this time it says where.
    let mut errors = Vec::new();
    check(&value, &mut String::new(), &mut errors);
    Err(JsonError::Invalid(InvalidCommand { errors }))
}

fn number_is_valid(number: &Number) -> bool {
    number.as_f64().is_some_and(|double| (-INTEGER_MAX..=INTEGER_MAX).contains(&double))
}

fn text_is_valid(text: &str) -> bool {
    !text.contains('\0')
}

/// Whether [`check`] would find nothing.
fn is_valid(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => number_is_valid(number),
        Value::String(text) => text_is_valid(text),
        Value::Array(items) => items.iter().all(is_valid),
        Value::Object(members) => members.iter().all(|(name, member)| text_is_valid(name) && is_valid(member)),
    }
}

/// The canonical text of a value that [`parse_strict`] returned or that was built from such values.
pub fn canonical(value: &Value) -> String {
    super::canonical_text::write(value)
}

/// serde_json reports `1e999` as a syntax error. It is a number, so it is invalid, not malformed: the token at the
/// reported place decides.
fn classify(text: &[u8], error: &serde_json::Error) -> JsonError {
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or(b"");
    let is_number_byte = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let at = error.column().min(line.len());
    let start = line[..at].iter().rposition(|byte| !is_number_byte(byte)).map_or(0, |i| i + 1);
    let end = line[at..].iter().position(|byte| !is_number_byte(byte)).map_or(line.len(), |i| at + i);
    let token = std::str::from_utf8(&line[start..end]).unwrap_or("");
    if error.is_syntax()
        && token.parse::<f64>().is_ok_and(f64::is_infinite)
        && token.contains(|c: char| c.is_ascii_digit())
    {
        return JsonError::Invalid(InvalidCommand::at("", "a number is too large for JSON; use one within ±(2^53−1)"));
    }
    JsonError::Malformed(format!("the JSON can't be read: {error}"))
}

fn check(value: &Value, pointer: &mut String, errors: &mut Vec<FieldError>) {
    let mut refuse =
        |pointer: &str, detail: &str| errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            if !number_is_valid(number) {
                refuse(
                    pointer,
                    "numbers must lie within ±(2^53−1), or they would not survive as JSON; send it as a string",
                );
            }
        }
        Value::String(text) => {
            if !text_is_valid(text) {
                refuse(pointer, "strings must not contain NUL; remove it");
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                within(pointer, &i.to_string(), |pointer| check(item, pointer, errors));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                within(pointer, name, |pointer| {
                    if !text_is_valid(name) {
                        errors.push(FieldError {
                            pointer: pointer.clone(),
                            detail: "member names must not contain NUL; remove it".into(),
                        });
                    }
                    check(member, pointer, errors);
                });
            }
        }
    }
}

/// Runs `f` with `pointer` extended by one RFC 6901 token.
fn within(pointer: &mut String, token: &str, f: impl FnOnce(&mut String)) {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&token.replace('~', "~0").replace('/', "~1"));
    f(pointer);
    pointer.truncate(length);
}

/// Builds a [`Value`] and refuses what `Value`'s own reader would merge.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // −0 and 0 are one number to JCS; keep one of them.
        let value = if value == 0.0 { 0.0 } else { value };
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(serde::de::Error::custom(format_args!("the member {name:?} stands twice in one object")));
            }
            let value = members.next_value_seed(inner)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: &str) -> Result<String, JsonError> {
        parse_strict(input.as_bytes()).map(|value| canonical(&value))
    }

    #[test]
    fn members_are_sorted_and_numbers_are_doubles() {
        assert_eq!(
            text(r#"{"b":[1.0,1e2,-0],"a":{"z":"\u00e9","y":0.1}}"#).expect("valid"),
            r#"{"a":{"y":0.1,"z":"é"},"b":[1,100,0]}"#
        );
        assert_eq!(text("26.85120450862128").expect("valid"), "26.85120450862128");
    }

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_malformed() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        let very_deep = "[".repeat(10_000);
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"\u0061":2}}]"#,
            r#""\ud800""#,
            r#""\udc00x""#,
            "{",
            "",
            "1 2",
            "NaN",
            "01",
            "\"\x01\"",
            &deep,
            &very_deep,
        ] {
            assert!(matches!(text(bad), Err(JsonError::Malformed(_))), "{bad}");
        }
        assert!(text(&("[".repeat(64) + &"]".repeat(64))).is_ok());
    }

    #[test]
    fn numbers_that_would_merge_and_nul_are_invalid_with_a_pointer() {
        for bad in [
            "9007199254740992",
            "-9007199254740992",
            "9007199254740992.0",
            "9.007199254740992e15",
            "1e999",
            "18446744073709551616",
            "[1, -1e400 ]",
        ] {
            assert!(matches!(text(bad), Err(JsonError::Invalid(_))), "{bad}");
        }
        assert!(text("9007199254740991").is_ok());
        let Err(JsonError::Invalid(invalid)) = text(r#"{"a/b":["x\u0000"]}"#) else { panic!("NUL passed") };
        assert_eq!(invalid.errors[0].pointer, "/a~1b/0");
    }

    #[test]
    fn ten_thousand_decimals_are_read_as_the_standard_library_reads_them() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let decimal = format!("{}.{}", (state >> 33) % 10_000, state % 10_000_000_000_000_000);
            let value = parse_strict(decimal.as_bytes()).expect("valid");
            assert_eq!(value.as_f64().map(f64::to_bits), decimal.parse::<f64>().ok().map(f64::to_bits), "{decimal}");
        }
    }
}
