//! The history of a scenario: what its clients did and saw, in a file for `casework check`.
//!
//! A thin cover of the crate's own writer that never fails quietly. The file is removed when the scenario ends well, unless
//! `CASEWORK_FAULTS_KEEP` is set.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use casework::history::HistoryWriter;

use crate::support::http::Answer;
use crate::support::scene::SentCommand;

/// One history, shared by all clients of a scenario.
pub struct Recorder {
    path: PathBuf,
    writer: HistoryWriter,
    attempts: AtomicU64,
}

impl Recorder {
    /// Starts the history of the scenario `name` in the build's folder for test files.
    pub fn create(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{name}-{}.history.jsonl", std::process::id()));
        let writer = HistoryWriter::create(&path).unwrap();
        Self { path, writer, attempts: AtomicU64::new(0) }
    }

    /// An attempt begins: nothing of it is sent yet. Returns its number.
    pub fn invoke(&self, client: &str, command: &SentCommand) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.writer.invoke_line(client, &command.log_line().to_string()).unwrap()
    }

    /// The whole answer to an attempt has come.
    pub fn reply(&self, attempt: u64, answer: &Answer) {
        self.writer.reply(attempt, answer.status, answer.is_replay(), &answer.body).unwrap();
    }

    /// An attempt has no answer.
    pub fn unknown(&self, attempt: u64, why: &str) {
        self.writer.unknown(attempt, why).unwrap();
    }

    /// A fault happened.
    pub fn fault(&self, kind: &str, detail: &str) {
        self.writer.fault(kind, detail).unwrap();
    }

    /// Ends the history: all of it is in the file.
    pub fn finish(self) -> FinishedHistory {
        self.writer.finish().unwrap();
        FinishedHistory { path: self.path, attempts: self.attempts.into_inner() }
    }
}

/// A history that is whole.
pub struct FinishedHistory {
    pub path: PathBuf,
    /// How many attempts were made.
    pub attempts: u64,
}

impl FinishedHistory {
    /// Removes the file, unless it is to be kept.
    pub fn remove(self) {
        if std::env::var_os("CASEWORK_FAULTS_KEEP").is_none() {
            std::fs::remove_file(&self.path).unwrap();
        }
    }
}
