//! The built program serving, as a process of its own: started, asked whether it is ready, killed, started again.
//!
//! The server takes a free port and says which on standard error (`listening on http://127.0.0.1:PORT`). Its
//! output is kept and shown when the test that owns it fails. Dropping the handle kills the process.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::cli::{CliOutput, casework_command};
use super::http::raw_get_status;
use super::process::send_signal;
use super::wait::eventually_some;

/// Bound on a start until `/readyz` answers 200, on a machine that is busy with other tests.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    subcommand: &'static str,
    readiness: &'static str,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    listen: Option<String>,
}

impl ServerOptions {
    /// `serve --database URL` on a free port.
    #[must_use]
    pub fn new(database_url: &str) -> Self {
        Self::bare().argument("--database").argument(database_url)
    }

    /// `serve --demo` on a free port.
    #[must_use]
    pub fn demo() -> Self {
        Self::bare().argument("--demo")
    }

    /// `serve` on a free port, with nothing else said.
    #[must_use]
    pub fn bare() -> Self {
        Self {
            subcommand: "serve",
            readiness: "/readyz",
            arguments: Vec::new(),
            environment: Vec::new(),
            listen: Some("127.0.0.1:0".to_owned()),
        }
    }

    /// `guard --upstream URL --store STORE` on a free port.
    #[must_use]
    pub fn guard(upstream: &str, store: &str) -> Self {
        let options = Self { subcommand: "guard", readiness: "/.guard/readyz", ..Self::bare() };
        options.arguments(["--upstream", upstream, "--store", store])
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, Self::argument)
    }

    /// An environment variable.
    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.environment.push(pair);
        self
    }

    /// Another address than a free port on loopback; `None` leaves `--listen` out.
    #[must_use]
    pub fn listen(mut self, address: Option<&str>) -> Self {
        self.listen = address.map(str::to_owned);
        self
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// When it ends or does not get ready; shows its log.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> ServerProcess {
        let server = self.start_unready();
        server.wait_ready(READY_TIMEOUT);
        server
    }

    /// Starts the server and waits only until it says where it listens.
    ///
    /// # Panics
    /// When it ends or says nothing; shows its log.
    #[must_use]
    #[track_caller]
    pub fn start_unready(self) -> ServerProcess {
        let spawned = self.spawn();
        let mut server = ServerProcess {
            options: self,
            process: spawned,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            url: String::new(),
        };
        server.find_address();
        server
    }

    /// Runs it for a start that must be refused.
    ///
    /// # Panics
    /// When it has not ended within `deadline`.
    #[must_use]
    #[track_caller]
    pub fn start_refused(self, deadline: Duration) -> CliOutput {
        let mut process = self.spawn();
        let status = process.wait(deadline);
        CliOutput { code: status.code(), stdout: process.stdout.text_at_end(), stderr: process.stderr.text_at_end() }
    }

    fn spawn(&self) -> SpawnedServer {
        let mut command = casework_command();
        command.arg(self.subcommand);
        if let Some(address) = &self.listen {
            command.args(["--listen", address]);
        }
        let mut child = command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cargo built the program before its tests");
        SpawnedServer {
            stdout: Captured::start(child.stdout.take().expect("stdout was asked for as a pipe")),
            stderr: Captured::start(child.stderr.take().expect("stderr was asked for as a pipe")),
            child,
            ended: None,
        }
    }
}

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct ServerProcess {
    options: ServerOptions,
    process: SpawnedServer,
    address: SocketAddr,
    url: String,
}

impl ServerProcess {
    /// Starts a server on the database at `database_url` and waits until it is ready.
    ///
    /// # Panics
    /// When it ends or does not get ready; shows its log.
    #[must_use]
    #[track_caller]
    pub fn start(database_url: &str) -> Self {
        ServerOptions::new(database_url).start()
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// Standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// Status of its readiness now; `None` when nobody answers.
    #[must_use]
    pub fn readiness(&self) -> Option<u16> {
        raw_get_status(self.address, self.options.readiness)
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    #[track_caller]
    pub fn wait_ready(&self, deadline: Duration) {
        eventually_some(deadline, "/readyz answers 200", || (self.readiness() == Some(200)).then_some(()));
    }

    /// `kill -9`, and returns when the process is gone. Its log stays readable.
    pub fn kill_9(&mut self) {
        self.process.kill();
    }

    /// Asks it to stop. [`wait`](Self::wait) tells how it ended.
    pub fn sigterm(&self) {
        send_signal("TERM", self.pid());
    }

    /// Sends any signal, `"STOP"` and `"CONT"` say.
    pub fn signal(&self, signal: &str) {
        send_signal(signal, self.pid());
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it still runs at the deadline.
    #[track_caller]
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        self.process.wait(deadline)
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.process.poll().is_none()
    }

    /// Starts the same server again after its end, at the same address, and waits until it is ready.
    ///
    /// # Panics
    /// When it still runs, or does not get ready.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(!self.is_running(), "a server that runs is not started again");
        self.options.listen = Some(self.address.to_string());
        self.process = self.options.spawn();
        self.find_address();
        self.wait_ready(READY_TIMEOUT);
    }

    #[track_caller]
    fn find_address(&mut self) {
        let process = &mut self.process;
        self.address = eventually_some(READY_TIMEOUT, "the server says where it listens", || {
            if let Some(status) = process.poll() {
                panic!("the server ended ({status}) before it listened");
            }
            listening_address(&process.stderr.text()).or_else(|| listening_address(&process.stdout.text()))
        });
        self.url = format!("http://{}", self.address);
    }
}

/// Finds `listening on http://ADDRESS` in a log, whatever stands around it.
fn listening_address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("listening on http://")?;
    // The rest of the line may still be on its way: only what something follows is whole.
    let end = rest.find(|character: char| !matches!(character, '0'..='9' | '.' | ':'))?;
    rest[..end].parse().ok()
}

/// The child process with what it printed.
#[derive(Debug)]
struct SpawnedServer {
    child: Child,
    stdout: Captured,
    stderr: Captured,
    ended: Option<ExitStatus>,
}

impl SpawnedServer {
    fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be asked");
        }
        self.ended
    }

    #[track_caller]
    fn wait(&mut self, deadline: Duration) -> ExitStatus {
        eventually_some(deadline, "the server ends", || self.poll())
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }
}

impl Drop for SpawnedServer {
    fn drop(&mut self) {
        if self.poll().is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!(
                "--- server {} ({:?}), standard output:\n{}\n--- standard error:\n{}\n---",
                self.child.id(),
                self.ended,
                self.stdout.text(),
                self.stderr.text()
            );
        }
    }
}

/// Output of a process, read as it comes so that the process never waits for its reader.
#[derive(Debug)]
struct Captured {
    text: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Captured {
    fn start(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                filled.lock().expect("no holder panics").append(&mut line);
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no holder panics")).into_owned()
    }

    /// All of it, once the process has ended (waits a moment for the last lines).
    fn text_at_end(&self) -> String {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.reader.is_finished() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        self.text()
    }
}
