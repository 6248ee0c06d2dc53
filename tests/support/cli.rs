//! The built program run to its end: exit code, standard output, standard error.
//!
//! The environment of the test reaches the program except for `CASEWORK_*`: what a test means, it says.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use super::process::crate_root;

/// What a finished command left behind.
#[derive(Debug)]
pub struct CliOutput {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output: data.
    pub stdout: String,
    /// Standard error: messages.
    pub stderr: String,
}

impl CliOutput {
    /// The same, once it is sure that the command succeeded.
    ///
    /// # Panics
    /// When the exit code is not 0; shows both outputs.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        self.expect_code(0)
    }

    /// The same, once it is sure that the command ended with `code`.
    ///
    /// # Panics
    /// When it ended otherwise; shows both outputs.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "casework ended otherwise: {self:#?}");
        self
    }

    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON on standard output ({error}): {self:#?}"))
    }
}

/// The program, ready for arguments: no input, a clean environment, the crate's folder as the current one.
#[must_use]
pub fn casework_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casework"));
    command.current_dir(crate_root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CASEWORK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program with these arguments to its end.
#[must_use]
pub fn casework(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> CliOutput {
    let output = casework_command().args(arguments).output().expect("cargo built the program before its tests");
    finished(output)
}

/// Runs the program with these arguments and `input` on its standard input.
#[must_use]
pub fn casework_with_input(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &[u8]) -> CliOutput {
    let mut child = casework_command()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cargo built the program before its tests");
    let mut stdin = child.stdin.take().expect("stdin was asked for as a pipe");
    std::thread::scope(|scope| {
        // A program that stops reading early closes the pipe; that is its right, and its exit code tells.
        scope.spawn(move || drop(stdin.write_all(input)));
        finished(child.wait_with_output().expect("a child can be waited for"))
    })
}

fn finished(output: std::process::Output) -> CliOutput {
    CliOutput {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
