//! Any bytes as JSON: the canonical form is read as the same value, stays as it is, and does not depend on the spelling.
#![no_main]

use casework::domain::{Digest, canonical, parse_strict};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = parse_strict(bytes) else { return };
    let text = canonical(&value);
    let read = parse_strict(text.as_bytes()).expect("canonical JSON is strict JSON");
    assert_eq!(canonical(&read), text);
    let other = parse_strict(reversed(&value).as_bytes()).expect("the order of members changes nothing");
    assert_eq!(Digest::of_request(&canonical(&other)), Digest::of_request(&text));
});

/// The same value with its members in the opposite order and some white space.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .rev()
                .map(|(name, value)| format!("{} :\n{}", Value::from(name.as_str()), reversed(value)))
                .collect();
            format!("{{ {} }}", members.join("\t,"))
        }
        Value::Array(values) => format!("[ {} ]", values.iter().map(reversed).collect::<Vec<_>>().join(" , ")),
        other => other.to_string(),
    }
}
