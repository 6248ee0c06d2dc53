//! A PostgreSQL server of a test's own: to share in one process, or to stop, kill and reconfigure.
//!
//! It lives in a temporary folder, listens on a free loopback port, and is as careful as in production (`fsync`
//! is on). It runs as user `postgres` when the tests run as root, whom PostgreSQL refuses.
//!
//! A server can't outlive its test process: a small shell (the reaper) holds the other end of a pipe, and when
//! that closes, by a drop, an exit or `kill -9`, it stops the server and removes the folder. A server that can't be
//! had fails the test with what to install.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::postgres::PostgresDatabase;
use super::process::{find_on_path, ids_of_user, own_uid, send_signal};
use super::psql::{Rows, psql_rows};
use super::wait::eventually;

/// Bound on `initdb`, a start and a stop together with the machine's other work.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What every test server is set to, besides its address; `./ci/test` says the same for the shared one.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("max_connections", "200"),
    // A backend whose client was killed notices within a tenth of a second and rolls back.
    ("client_connection_check_interval", "100ms"),
];

/// A PostgreSQL server of its own, for tests that stop, kill or reconfigure it.
#[derive(Debug)]
pub struct PrivateServer {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    url: String,
    reaper: Child,
}

impl PrivateServer {
    /// Makes a data folder and starts a server on a free port.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start; the message has its words.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        let programs = program_folder();
        let folder = temporary_folder();
        let reaper = start_reaper(&folder);
        let mut server = Self { folder, programs, port: 0, url: String::new(), reaper };
        server.initialize();
        // Between the look for a free port and the start another process may take it: look again.
        for _ in 0..5 {
            server.port = free_port();
            server.url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
            match server.try_start() {
                Ok(()) => return server,
                Err(words) if words.contains("Address already in use") => {}
                Err(words) => panic!("PostgreSQL does not start: {words}"),
            }
        }
        panic!("PostgreSQL found no free port in five tries");
    }

    /// The superuser's URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Port on 127.0.0.1; the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A fresh database on this server. Drop it before the server.
    #[must_use]
    #[track_caller]
    pub fn database(&self) -> PostgresDatabase {
        PostgresDatabase::create(&self.url)
    }

    /// Runs SQL as superuser in the database `postgres`, `ALTER SYSTEM` say.
    ///
    /// # Panics
    /// When a statement fails.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Rows {
        psql_rows(&self.url, sql).unwrap_or_else(|error| panic!("{sql}\nfailed: {error}"))
    }

    /// Stops at once, as a crash does: no checkpoint, sessions cut, recovery at the next start.
    #[track_caller]
    pub fn stop_immediate(&self) {
        self.stop("immediate");
    }

    /// Stops in order: sessions are ended, everything is written.
    #[track_caller]
    pub fn stop_fast(&self) {
        self.stop("fast");
    }

    /// Starts a stopped server again on the same port and data folder, and returns when it takes connections.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_again(&self) {
        if let Err(words) = self.try_start() {
            panic!("PostgreSQL does not start again: {words}");
        }
    }

    /// Stops at once and starts again.
    #[track_caller]
    pub fn restart_immediate(&self) {
        self.stop_immediate();
        self.start_again();
    }

    /// `kill -9` of one backend: the server then cuts all its sessions and recovers by itself.
    ///
    /// # Panics
    /// When there is no such process.
    #[track_caller]
    pub fn kill_backend_9(&self, pid: u32) {
        assert!(send_signal("KILL", pid), "there is no backend {pid}");
    }

    /// `kill -9` of the postmaster; returns when it and all of its processes are gone.
    ///
    /// # Panics
    /// When there is none, or its processes stay.
    #[track_caller]
    pub fn kill_postmaster_9(&self) {
        let pid = self.postmaster_pid();
        assert!(send_signal("KILL", pid), "there is no postmaster {pid}");
        // Its processes notice by themselves; until then the shared memory is in use and nobody can start.
        eventually(START_TIMEOUT, "every process of the server ends", || {
            psql_rows(&self.url, "SELECT 1").is_err() && !is_any_process_in(&self.folder.join("data"))
        });
        // Where nobody waits for orphans (the first process of a small container), the dead postmaster keeps its number, and
        // the next one would believe that it runs.
        for lock in ["data/postmaster.pid".to_owned(), format!(".s.PGSQL.{}.lock", self.port)] {
            let _ = std::fs::remove_file(self.folder.join(lock));
        }
    }

    /// Gives a folder to the user that the server runs as.
    ///
    /// # Panics
    /// When it may not be given away.
    #[track_caller]
    pub fn take_over(&self, folder: &Path) {
        if let Some((uid, gid)) = postgres_ids() {
            std::os::unix::fs::chown(folder, Some(uid), Some(gid)).expect("root may give a folder away");
        }
    }

    /// Moves the write-ahead log to the folder `target`, which must not exist: on a disk of its own, say.
    ///
    /// # Panics
    /// When it can't be moved.
    #[track_caller]
    pub fn move_log_to(&self, target: &Path) {
        self.stop_fast();
        let log = self.folder.join("data/pg_wal");
        let moved = Command::new("cp").arg("-a").arg(&log).arg(target).status().expect("every system has cp");
        assert!(moved.success(), "the log can't be copied to {}", target.display());
        std::fs::remove_dir_all(&log).expect("our own folder can be removed");
        std::os::unix::fs::symlink(target, &log).expect("a link can be made");
        self.start_again();
    }

    /// Stops at once, if it runs at all.
    pub fn stop_if_running(&self) {
        // It may just be ending by itself.
        let _ = self.run("pg_ctl", &["--mode", "immediate", "--wait", "stop"]);
    }

    /// Process id of the postmaster.
    ///
    /// # Panics
    /// When the server was stopped.
    #[must_use]
    #[track_caller]
    pub fn postmaster_pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("the server runs");
        let line = text.lines().next().unwrap_or_default();
        line.parse().expect("the first line is the process id")
    }

    /// What the server logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    #[track_caller]
    fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["--mode", mode, "--wait", "stop"])
            .unwrap_or_else(|words| panic!("PostgreSQL does not stop: {words}"));
    }

    #[track_caller]
    fn initialize(&self) {
        let mut arguments =
            vec!["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"];
        // The default collation is a language's, as in production: a forgotten COLLATE "C" shows.
        let help = self.run("initdb", &["--help"]).unwrap_or_default();
        if help.contains("--icu-locale") {
            arguments.extend(["--locale-provider=icu", "--icu-locale=en-US"]);
        }
        self.run("initdb", &arguments).unwrap_or_else(|words| panic!("initdb fails: {words}"));
    }

    fn try_start(&self) -> Result<(), String> {
        let _ = std::fs::remove_file(self.folder.join("log"));
        let mut options = format!("-c listen_addresses=127.0.0.1 -c port={}", self.port);
        options += &format!(" -c unix_socket_directories={}", self.folder.display());
        for (name, value) in SETTINGS {
            options += &format!(" -c {name}={value}");
        }
        let log = self.folder.join("log");
        let log = log.to_str().expect("temporary folders have plain names");
        let timeout = START_TIMEOUT.as_secs().to_string();
        let arguments = ["--log", log, "--options", &options, "--wait", "--timeout"];
        self.run("pg_ctl", &[&arguments[..], &[&timeout, "start"]].concat())
            .map(drop)
            .map_err(|words| format!("{words}\n{}", self.log()))
    }

    /// Runs one of PostgreSQL's programs on the data folder; its standard output, or all its words.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let path = self.programs.join(program);
        let mut command = Command::new(&path);
        as_postgres_user(&mut command);
        let output_path = self.folder.join("output");
        let _ = std::fs::remove_file(&output_path);
        // A file and not a pipe: a server that pg_ctl starts would keep the pipe open.
        let output = std::fs::File::create(&output_path).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let status = command
            .args(arguments)
            .env("PGDATA", self.folder.join("data"))
            .env("LC_ALL", "C.UTF-8")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .status()
            .map_err(|error| format!("{} can't be run: {error}", path.display()))?;
        let mut words = String::new();
        std::fs::File::open(&output_path)
            .and_then(|mut file| file.read_to_string(&mut words))
            .map_err(|error| error.to_string())?;
        if status.success() { Ok(words) } else { Err(words) }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            let tail: Vec<_> = tail.into_iter().rev().collect();
            eprintln!("last lines of the private PostgreSQL:\n{}", tail.join("\n"));
        }
        drop(self.reaper.stdin.take());
        let _ = self.reaper.wait();
    }
}

/// Whether a process has this folder as its current one, as every process of a PostgreSQL server has its data folder.
fn is_any_process_in(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.into_iter().any(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
}

/// A port on 127.0.0.1 that was free a moment ago.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    address.port()
}

/// The folder with `initdb` and `pg_ctl`: the newest under `/usr/lib/postgresql`, else on the `PATH`.
#[track_caller]
fn program_folder() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file())
        .collect();
    versions.sort();
    versions
        .pop()
        .map(|(_, folder)| folder)
        .or_else(|| {
            let initdb = std::fs::canonicalize(find_on_path("initdb")?).ok()?;
            initdb.parent().map(Path::to_path_buf)
        })
        .expect("the tests need a PostgreSQL server: apt-get install postgresql (or run ./ci/test, which does)")
}

/// User and group that the server runs as, when it can't be us.
#[track_caller]
fn postgres_ids() -> Option<(u32, u32)> {
    (own_uid() == 0).then(|| {
        ids_of_user("postgres").expect(
            "the tests run as root, and PostgreSQL must not: it needs the user postgres (apt-get install postgresql)",
        )
    })
}

fn as_postgres_user(command: &mut Command) {
    if let Some((uid, gid)) = postgres_ids() {
        command.uid(uid).gid(gid);
    }
}

fn temporary_folder() -> PathBuf {
    // Root's own temporary folder may be closed to the user postgres.
    let parent = if own_uid() == 0 { PathBuf::from("/tmp") } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new()
        .prefix("casework-postgres-")
        .tempdir_in(parent)
        .expect("a temporary folder can be made")
        .keep();
    if let Some((uid, gid)) = postgres_ids() {
        std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("root may give a folder away");
    }
    folder
}

/// Stops the server and removes its folder once our end of its standard input closes.
fn start_reaper(folder: &Path) -> Child {
    let script = r#"
        read -r _
        # The server removes this file as it ends; a server that was killed leaves it.
        file="$1/data/postmaster.pid"
        pid=$(head -n 1 "$file" 2>/dev/null)
        [ -z "$pid" ] || kill -QUIT "$pid" 2>/dev/null
        tries=0
        while [ -n "$pid" ] && [ -e "$file" ] && kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 200 ]; do
            sleep 0.05
            tries=$((tries + 1))
        done
        rm -rf "$1"
    "#;
    let mut command = Command::new("sh");
    as_postgres_user(&mut command);
    command
        .args(["-c", script, "casework-test-reaper"])
        .arg(folder)
        .current_dir("/")
        // A group of its own: what ends the test's group (Ctrl-C, a time limit) must not end the reaper.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("every system with tests has sh")
}
