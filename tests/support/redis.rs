//! A Redis server of a test's own: on a free loopback port, in a temporary folder, to kill, start again and empty.
//!
//! It can't outlive its test process: a small shell (the reaper) holds the other end of a pipe, and when that closes, by a
//! drop, an exit or `kill -9`, it ends the server and removes the folder. A server that can't be had fails the test with
//! what to install.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::postgres_server::free_port;
use super::process::{find_on_path, send_signal};
use super::wait::eventually_some;

/// Bound on a start and on an end.
const SOON: Duration = Duration::from_secs(30);
/// Bound on an answer to a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server keeps over a `kill -9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    None,
    /// Everything that it answered: the log is synced before each answer.
    Always,
}

impl Persistence {
    fn arguments(self) -> [&'static str; 6] {
        let append_only = if self == Self::Always { "yes" } else { "no" };
        ["--save", "", "--appendonly", append_only, "--appendfsync", "always"]
    }
}

/// A Redis server. Ended, and its folder removed, when the handle is dropped.
#[derive(Debug)]
pub struct RedisServer {
    folder: PathBuf,
    port: u16,
    persistence: Persistence,
    server: Child,
    _reaper: Reaper,
}

impl RedisServer {
    /// Starts a server that keeps nothing.
    ///
    /// # Panics
    /// When Redis is not installed or does not start; the message has its words.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(Persistence::None)
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When Redis is not installed or does not start; the message has its words.
    #[must_use]
    #[track_caller]
    pub fn start_with(persistence: Persistence) -> Self {
        let folder = tempfile::Builder::new().prefix("casework-redis-").tempdir();
        let folder = folder.expect("a temporary folder can be made").keep();
        let reaper = Reaper::start(&folder);
        // Between the look for a free port and the start another process may take it: look again.
        for _ in 0..5 {
            let port = free_port();
            let mut server = spawn(&folder, port, persistence);
            if wait_ready(&mut server, port) {
                return Self { folder, port, persistence, server, _reaper: reaper };
            }
            let log = read_log(&folder);
            assert!(log.contains("Address already in use"), "Redis does not start: {log}");
        }
        panic!("Redis found no free port in five tries");
    }

    /// `redis://127.0.0.1:PORT`; the same over restarts.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Port on 127.0.0.1; the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `kill -9`; returns when the process is gone.
    pub fn kill_9(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
        // The reaper must not end another process that gets this number.
        let _ = std::fs::remove_file(self.folder.join("pid"));
    }

    /// Stops the process (`SIGSTOP`): connections stay open, and nobody answers.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn pause(&self) {
        assert!(send_signal("STOP", self.server.id()), "Redis does not run");
    }

    /// Lets a paused process go on.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn resume(&self) {
        assert!(send_signal("CONT", self.server.id()), "Redis does not run");
    }

    /// Starts a server that was killed again, on the same port and folder, and returns when it answers.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.server = spawn(&self.folder, self.port, self.persistence);
        assert!(wait_ready(&mut self.server, self.port), "Redis does not start again: {}", read_log(&self.folder));
    }

    /// Deletes all keys.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn flush(&self) {
        assert_eq!(self.command(&["FLUSHALL"]), "+OK\r\n");
    }

    /// Sends a command and returns the answer as the protocol has it: `:-1\r\n`, `$5\r\nhello\r\n`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> String {
        try_command(self.port, words).unwrap_or_else(|error| panic!("Redis does not answer {words:?}: {error}"))
    }

    /// Every key with the milliseconds until it goes by itself; a negative number: it does not.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    #[track_caller]
    pub fn keys_with_ttl(&self) -> Vec<(String, i64)> {
        // A key that goes between the two commands has -2, and is left out.
        let script = "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                      found[#found + 1] = key .. ' ' .. redis.call('PTTL', key) end \
                      return table.concat(found, '\\n')";
        let answer = self.command(&["EVAL", script, "0"]);
        let (_, lines) = answer.split_once("\r\n").expect("a bulk string");
        let keys = lines.trim_end().lines().map(|line| {
            let (key, ttl) = line.rsplit_once(' ').expect("a key and its time");
            (key.to_owned(), ttl.parse().expect("a time is a number"))
        });
        keys.filter(|(_, ttl)| *ttl != -2).collect()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the private Redis:\n{}", read_log(&self.folder));
        }
        self.kill_9();
    }
}

#[track_caller]
fn spawn(folder: &Path, port: u16, persistence: Persistence) -> Child {
    let program = find_on_path("redis-server")
        .expect("the tests need a Redis server: apt-get install redis-server (or run ./ci/test, which does)");
    let _ = std::fs::remove_file(folder.join("log"));
    Command::new(program)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--databases", "1"])
        .args(["--logfile", "log", "--pidfile", "pid"])
        .args(persistence.arguments())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server can be run")
}

/// Whether the server came up; false when it ended.
#[track_caller]
fn wait_ready(server: &mut Child, port: u16) -> bool {
    eventually_some(SOON, "Redis answers", || {
        if server.try_wait().expect("a child can be asked").is_some() {
            return Some(false);
        }
        (try_command(port, &["PING"]).is_ok_and(|answer| answer == "+PONG\r\n")).then_some(true)
    })
}

fn read_log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Sends a command on a connection of its own.
fn try_command(port: u16, words: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes())?;
    // What ends the connection ends the answer.
    stream.write_all(b"*1\r\n$4\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let end = answer.strip_suffix("+OK\r\n").map_or(answer.len(), str::len);
    answer.truncate(end);
    Ok(answer)
}

/// A shell that ends the server and removes its folder once our end of its standard input closes.
#[derive(Debug)]
struct Reaper(Child);

impl Reaper {
    fn start(folder: &Path) -> Self {
        let script = r#"
            read -r _
            pid=$(cat "$1/pid" 2>/dev/null)
            [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null
            rm -rf "$1"
        "#;
        let shell = Command::new("sh")
            .args(["-c", script, "casework-test-reaper"])
            .arg(folder)
            .current_dir("/")
            // A group of its own: what ends the test's group (Ctrl-C, a time limit) must not end the reaper.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(shell.expect("every system with tests has sh"))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
