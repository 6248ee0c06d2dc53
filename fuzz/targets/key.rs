//! Any text as an `Idempotency-Key`: what is taken is one UUID that is written as it was, in lower case.
#![no_main]

use casework::domain::OperationId;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &str| {
    let Ok(id) = OperationId::parse_key(value) else { return };
    let text = id.to_string();
    assert_eq!(text, value.trim_matches('"').to_ascii_lowercase());
    assert_eq!(OperationId::parse_key(&format!("\"{text}\"")), Ok(id));
    assert!(!id.uuid().is_nil());
});
