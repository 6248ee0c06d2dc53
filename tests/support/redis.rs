//! A Redis of a test's own: to kill, to start again, to empty.
//!
//! It lives in a temporary folder and listens on a free loopback port, the same over restarts. It can't outlive its test: it
//! is killed when the handle is dropped, and by the kernel when the test's process ends. Without a `redis-server` the test
//! fails with what to install.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::process::find_on_path;
use super::wait::eventually;

/// Bound on a start together with the machine's other work.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `redis-server`.
pub struct RedisServer {
    folder: tempfile::TempDir,
    port: u16,
    persistent: bool,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts one that forgets everything when it ends.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(false)
    }

    /// Starts one that writes each change to disk before it answers.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_persistent() -> Self {
        Self::start_with(true)
    }

    fn start_with(persistent: bool) -> Self {
        assert!(find_on_path("redis-server").is_some(), "there is no redis-server: apt-get install redis-server");
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { folder, port, persistent, process: None };
        server.start_again();
        server
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it again, on the same port and folder.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub fn start_again(&mut self) {
        let (append_only, port) = (if self.persistent { "yes" } else { "no" }, self.port.to_string());
        // setpriv has the kernel kill it when the thread that started it ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--save", "", "--port", &port])
            .args(["--appendonly", append_only, "--appendfsync", "always", "--daemonize", "no", "--dir"])
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(child);
        eventually(START_TIMEOUT, "redis-server to answer", || {
            self.try_ask(&["PING"]).is_some_and(|said| said == "PONG")
        });
    }

    /// Kills it by signal 9.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a command through `redis-cli` and returns what it says.
    ///
    /// # Panics
    /// When it fails.
    pub fn ask(&self, command: &[&str]) -> String {
        self.try_ask(command).unwrap_or_else(|| panic!("redis-cli {command:?} failed"))
    }

    fn try_ask(&self, command: &[&str]) -> Option<String> {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(command)
            .stderr(Stdio::null())
            .output()
            .expect("redis-cli comes with redis-server");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
