//! A service that is not Casework, in Python: it counts how often each path ran, sets cookies, is slow, streams and dies.
//!
//! `upstream.py` beside this file says what its paths do. It ends when its handle is dropped or the test's process ends,
//! however that comes: its standard input closes then.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::http::raw_exchange;
use super::process::{crate_root, find_on_path};

/// The service.
#[derive(Debug)]
pub struct Upstream {
    child: Child,
    _input: ChildStdin,
    address: SocketAddr,
}

impl Upstream {
    /// Starts it on a free port.
    ///
    /// # Panics
    /// When there is no Python.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::start_at(0)
    }

    /// Starts it on this port of 127.0.0.1.
    ///
    /// # Panics
    /// When there is no Python, or the port is taken.
    #[must_use]
    #[track_caller]
    pub fn start_at(port: u16) -> Self {
        let python = find_on_path("python3").expect("these tests need Python: apt-get install python3");
        let script = crate_root().join("tests/support/upstream.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python can be started");
        let input = child.stdin.take().expect("it was asked for as a pipe");
        let mut line = String::new();
        let output = child.stdout.take().expect("it was asked for as a pipe");
        BufReader::new(output).read_line(&mut line).expect("it says its port");
        let port: u16 = line.trim().parse().expect("it says its port, and its error on standard error");
        Self { child, _input: input, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How often a path was run.
    ///
    /// # Panics
    /// When the service does not answer.
    #[must_use]
    #[track_caller]
    pub fn runs(&self, path: &str) -> u64 {
        let request = format!("GET /_runs{path} HTTP/1.1\r\nhost: upstream\r\nconnection: close\r\n\r\n");
        let answer = String::from_utf8(raw_exchange(self.address, request.as_bytes())).expect("it is a number");
        answer.rsplit("\r\n").next().and_then(|count| count.parse().ok()).expect("it is a number")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
