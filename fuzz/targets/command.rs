//! Any bytes as a log line: what is read is written and read again as the same command, and read the same as a stream's.
#![no_main]

use casework::command_log::{LineRules, parse_line, write_line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(line) = parse_line(bytes, LineRules::RECORDED) else { return };
    let mut written = Vec::new();
    write_line(&mut written, &line.command, line.at);
    let text = written.strip_suffix(b"\n").unwrap_or(&written);
    let again = parse_line(text, LineRules::RECORDED).expect("what was written can be read");
    assert_eq!(again, line);
    if line.command.digest().is_some() {
        let streamed = parse_line(text, LineRules::default()).expect("a stream takes what is no edit");
        assert_eq!(streamed.command, line.command);
    }
});
