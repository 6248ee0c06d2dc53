//! A peer as a process of its own: this program again, in another mode, so that it is built like the comparison is.
//!
//! Owns the process and ends it on drop: its standard input closes, and it goes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// A peer that serves.
pub struct PeerProcess {
    child: Child,
    url: String,
}

impl PeerProcess {
    /// Starts this program with these arguments and waits until it says where it listens.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.next().expect("the peer says where it listens").unwrap();
        let url = said.strip_prefix("listening on ").unwrap_or_else(|| panic!("the peer said {said:?}")).trim();
        let url = url.to_owned();
        // What it says besides is an error, and belongs on the terminal.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("  peer: {line}")));
        Self { child, url }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process number, for what it costs.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
