//! `strace` on a running process: makes system calls fail as a bad disk does, and tells their order.
//!
//! Detached when dropped; the process goes on. Panics with what to install where there is no `strace`, or no right to attach.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::process::send_signal;

/// A `strace` that is attached to all threads of a process.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    trace: tempfile::NamedTempFile,
    /// Keeps reading: it says a word about each new thread.
    says: Option<std::thread::JoinHandle<()>>,
}

impl Strace {
    /// Attaches with these arguments (`-e` and what to trace or to inject); returns once it is attached.
    ///
    /// # Panics
    /// When it can't.
    #[must_use]
    #[track_caller]
    pub fn attach(pid: u32, arguments: &[&str]) -> Self {
        let trace = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        let mut child = Command::new("strace")
            .args(["-f", "-p", &pid.to_string()])
            .args(arguments)
            .arg("-o")
            .arg(trace.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed: apt-get install strace");
        let mut says = BufReader::new(child.stderr.take().expect("stderr was asked for as a pipe"));
        let mut line = String::new();
        while !line.contains("attached") {
            line.clear();
            let read = says.read_line(&mut line).expect("a pipe can be read");
            assert!(read > 0, "strace can't attach to the server (is ptrace allowed here?)");
        }
        let says = std::thread::spawn(move || drop(std::io::copy(&mut says, &mut std::io::sink())));
        Self { child, trace, says: Some(says) }
    }

    /// What it traced so far.
    ///
    /// # Panics
    /// When the file can't be read.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = std::fs::read(self.trace.path()).expect("a temporary file can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many calls it has tampered with.
    #[must_use]
    pub fn injected(&self) -> usize {
        self.text().matches("INJECTED").count()
    }

    /// Detaches; returns all that it traced.
    #[must_use]
    pub fn detach(mut self) -> String {
        self.end();
        self.text()
    }

    fn end(&mut self) {
        // Asked to end, it lets the process go and writes what it has; it may have ended with the process.
        send_signal("TERM", self.child.id());
        let _ = self.child.wait();
        if let Some(says) = self.says.take() {
            let _ = says.join();
        }
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        if self.says.is_some() {
            self.end();
        }
    }
}
