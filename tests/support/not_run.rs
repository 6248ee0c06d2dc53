//! What a test leaves out, it says.
//!
//! Owns the one way of saying so. A runner may keep what a passing test writes to itself, so the line also goes to the file
//! that `CASEWORK_TEST_NOT_RUN` names; `./ci/test` makes it and prints it at the end. Never decides what is left out.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says that the calling test was left out, or a part of it, and why.
///
/// # Panics
/// When the file that was named can't be written: then it would be silent.
#[track_caller]
pub fn say_not_run(why: impl Display) {
    let caller = std::panic::Location::caller();
    let line = format!("NOT RUN: {}:{} {why}\n", caller.file(), caller.line());
    // Not `eprintln!`: the test runner captures that and shows it only for failures.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("CASEWORK_TEST_NOT_RUN") {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        // One write, so that lines of several processes do not mix.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
