//! Command logs through the built program: replayed, exported, verified, on both databases, from file and over HTTP.

mod bad_lines;
mod command_line;
mod export;
mod real_logs;
mod tampering;

use std::fmt::Write as _;

use crate::support::cli::{CliOutput, casework};
use crate::support::database::TestDatabase;

/// The operation id with this number.
pub fn operation_id(number: u32) -> String {
    format!("6f1e4c52-9f0a-4b8e-8d2b-{number:012}")
}

/// A line of a log: `rest` are its members behind case, operation and actor.
pub fn line(case_id: &str, number: u32, actor: &str, rest: &str) -> String {
    let operation_id = operation_id(number);
    format!(r#"{{"case_id":"{case_id}","operation_id":"{operation_id}","actor":"{actor}",{rest}}}"#)
}

/// Case 62: opened, 47 and 81 assigned, returned, resubmitted, a note, approved. Seven lines.
pub fn case_62() -> Vec<String> {
    [
        ("intake", r#""command":"open","payload":{"amount":26.85120450862128,"site":"Hafen 3"}"#),
        ("intake", r#""command":"assign","payload":{"assignee":"47"}"#),
        ("intake", r#""command":"assign","payload":{"assignee":"81"}"#),
        ("47", r#""command":"return","expected_revision":0,"reason":"The plan is missing.""#),
        ("applicant", r#""command":"resubmit","expected_revision":1,"reason":"Here it is.""#),
        ("81", r#""command":"note","reason":"Called the applicant.""#),
        ("47", r#""command":"approve","expected_revision":2,"reason":"All documents reviewed.""#),
    ]
    .iter()
    .zip(1..)
    .map(|((actor, rest), number)| {
        line("62", number, actor, &format!(r#""at":"2026-01-31T12:00:{number:02}.123456Z",{rest}"#))
    })
    .collect()
}

/// Lines as a log.
pub fn log(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").expect("a string grows");
        text
    })
}

/// Brings a database into being with the current schema.
#[track_caller]
pub fn migrate(database: &TestDatabase) {
    casework(["migrate", "--database", database.url()]).expect_success();
}

/// Replays a log from standard input.
#[track_caller]
pub fn replay_text(database: &TestDatabase, text: &str, further: &[&str]) -> CliOutput {
    let mut arguments = vec!["replay", "-", "--json", "--database", database.url()];
    arguments.extend(further);
    crate::support::cli::casework_with_input(arguments, text.as_bytes())
}

/// What `verify --json` prints, whatever its exit code.
#[track_caller]
pub fn verify(database: &TestDatabase) -> CliOutput {
    casework(["verify", "--json", "--database", database.url()])
}
