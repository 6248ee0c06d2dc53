//! Writes down what the clients of a scenario did and saw, one JSON line an event, for `casework check`.
//!
//! All times are microseconds of one monotonic clock. The time of an invocation is taken before anything is sent, that
//! of a reply after all of it was read: an interval is never shorter than the truth. Never judges. The file is kept when the
//! scenario fails.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::http::Answer;
use crate::support::scene::SentCommand;

/// One history, shared by all clients of a scenario.
pub struct Recorder {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
    started: Instant,
    attempts: AtomicU64,
}

impl Recorder {
    /// Starts the history of the scenario `name` in the build's folder for test files.
    pub fn create(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{name}-{}.history.jsonl", std::process::id()));
        let file = Mutex::new(BufWriter::new(File::create(&path).unwrap()));
        Self { path, file, started: Instant::now(), attempts: AtomicU64::new(0) }
    }

    /// Where the history is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// An attempt begins: nothing of it is sent yet. Returns its number.
    pub fn invoke(&self, client: &str, command: &SentCommand) -> u64 {
        let at_us = self.now_us();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        self.write(&json!({
            "event": "invoke", "attempt": attempt, "at_us": at_us, "client": client, "command": command.log_line()
        }));
        attempt
    }

    /// An attempt was answered with an outcome.
    pub fn outcome(&self, attempt: u64, answer: &Answer) {
        self.write(&json!({
            "event": "reply", "attempt": attempt, "at_us": self.now_us(), "status": answer.status,
            "replayed": answer.is_replay(), "outcome": answer.text()
        }));
    }

    /// An attempt was answered with a problem.
    pub fn problem(&self, attempt: u64, status: u16, problem: &Value) {
        self.write(&json!({
            "event": "reply", "attempt": attempt, "at_us": self.now_us(), "status": status, "problem": problem
        }));
    }

    /// An attempt has no answer, or one that leaves open what came of it.
    pub fn unknown(&self, attempt: u64, why: &str) {
        self.write(&json!({ "event": "unknown", "attempt": attempt, "at_us": self.now_us(), "why": why }));
    }

    /// A fault happened.
    pub fn fault(&self, kind: &str, detail: &str) {
        self.write(&json!({ "event": "fault", "at_us": self.now_us(), "kind": kind, "detail": detail }));
    }

    /// Everything is in the file from here on.
    pub fn flush(&self) {
        self.file.lock().unwrap().flush().unwrap();
    }

    /// Removes the file, unless `CASEWORK_FAULTS_KEEP` asks to keep it.
    pub fn remove(&self) {
        if std::env::var_os("CASEWORK_FAULTS_KEEP").is_none() {
            std::fs::remove_file(&self.path).unwrap();
        }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn write(&self, event: &Value) {
        let line = format!("{event}\n");
        self.file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }
}
