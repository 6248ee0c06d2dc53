//! An example of this crate as a process: a service that says in its log where it listens.
//!
//! Owns the process, its folder and its log; all three go when the handle is dropped. An example that was not built fails the
//! test with what to run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::wait::eventually_some;

/// Bound on a start.
const SOON: Duration = Duration::from_secs(20);

/// An example that serves.
#[derive(Debug)]
pub struct ExampleProcess {
    process: Child,
    folder: tempfile::TempDir,
    url: String,
}

impl ExampleProcess {
    /// Starts an example on a free port, with these arguments, and returns when it listens.
    ///
    /// # Panics
    /// When it is not built, or ends; shows its log.
    #[must_use]
    #[track_caller]
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let log = File::create(folder.path().join("log")).expect("a temporary folder takes files");
        let process = Command::new(program(name))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a program that was built can be run");
        let mut example = Self { process, folder, url: String::new() };
        example.url = eventually_some(SOON, "the example says where it listens", || {
            let log = example.log();
            let ended = example.process.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "the example ended: {log}");
            let (_, rest) = log.split_once("listening on ")?;
            Some(rest.split_once(' ')?.0.to_owned())
        });
        example
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Everything that it has logged.
    ///
    /// # Panics
    /// When somebody removed the log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log is there")
    }

    /// Waits for its end, and says whether it ended well.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn wait_ended_well(&mut self) -> bool {
        eventually_some(SOON, "the example ends", || self.process.try_wait().expect("a child can be asked")).success()
    }
}

impl Drop for ExampleProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the example:\n{}", self.log());
        }
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Cargo says where the program is that it built for the tests; examples lie beside it.
#[track_caller]
fn program(name: &str) -> PathBuf {
    let Some(casework) = option_env!("CARGO_BIN_EXE_casework") else { panic!("a benchmark runs no example") };
    let program = Path::new(casework).with_file_name("examples").join(name);
    assert!(
        program.is_file(),
        "{} is not built: cargo build --examples, with the profile of the tests (or run ./ci/test, which does)",
        program.display()
    );
    program
}
