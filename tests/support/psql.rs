//! A person with a shell: SQL through the real `psql` and the real `sqlite3`, one statement list or a session.
//!
//! Tests read the database through these and not through the crate, so that a fault in the crate's own store
//! can't hide itself. Values come as the shell prints them; NULL is [`NULL`], apart from the empty text.
//! A failing statement is an `Err` with the shell's words, which hold the SQLSTATE on PostgreSQL.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::process::find_on_path;

/// How NULL is shown in [`Rows`].
pub const NULL: &str = "\u{2400}";

/// Rows of text values, in the order of the result.
pub type Rows = Vec<Vec<String>>;

/// Separates fields; occurs in no test's data (ASCII unit separator).
const FIELD: char = '\u{1f}';

/// End records: ASCII record separator from `sqlite3 -ascii`; NUL from `psql`, because any other separator
/// stands only between its records and a line feed behind the last.
const RECORD: [char; 2] = ['\u{1e}', '\0'];

/// Milliseconds that the `sqlite3` shell waits for another connection's lock.
const SQLITE_BUSY_TIMEOUT_MS: u32 = 10_000;

/// What the shell said about a statement that failed (`ERROR:  23505: duplicate key ...`).
#[derive(Debug, Clone)]
pub struct SqlError(pub String);

impl std::fmt::Display for SqlError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0.trim())
    }
}

/// Runs SQL by `psql` on the database at `url`. A list of statements shows the rows of all of them.
///
/// # Errors
/// The words of `psql` for the first statement that fails; later ones are not run.
pub fn psql_rows(url: &str, sql: &str) -> Result<Rows, SqlError> {
    one_shot(psql_command(url), sql)
}

/// Runs SQL by the `sqlite3` shell on the database in the file `path`.
///
/// # Errors
/// The words of `sqlite3` for the first statement that fails; later ones are not run.
pub fn sqlite_rows(path: &Path, sql: &str) -> Result<Rows, SqlError> {
    one_shot(sqlite_command(path), sql)
}

fn one_shot(mut command: Command, sql: &str) -> Result<Rows, SqlError> {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the shell was found a moment ago");
    let mut stdin = child.stdin.take().expect("stdin was asked for as a pipe");
    let output = std::thread::scope(|scope| {
        // A shell that stops at a failing statement closes the pipe: its exit code tells.
        scope.spawn(move || drop(stdin.write_all(format!("{sql}\n;\n").as_bytes())));
        child.wait_with_output().expect("a child can be waited for")
    });
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(SqlError(stderr));
    }
    Ok(parse_rows(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_rows(printed: &str) -> Rows {
    let mut records: Vec<&str> = printed.split(RECORD).collect();
    // A row may hold the empty text alone; behind the last separator there is nothing, but for what the sqlite3 shell draws
    // itself: the tree of a query plan.
    let drawn = records.pop().filter(|drawn| drawn.starts_with("QUERY PLAN"));
    records.into_iter().chain(drawn).map(|record| record.split(FIELD).map(str::to_owned).collect()).collect()
}

fn psql_command(url: &str) -> Command {
    let mut command = Command::new(shell("psql", "postgresql-client"));
    command
        .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
        .args(["--set", "ON_ERROR_STOP=1", "--set", "VERBOSITY=verbose"])
        .args(["--pset", &format!("null={NULL}")])
        .arg(format!("--field-separator={FIELD}"))
        .arg("--record-separator-zero")
        .args(["--dbname", url, "--file", "-"])
        .env("PGOPTIONS", "-c client_min_messages=warning")
        .env("PGCONNECT_TIMEOUT", "10")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

fn sqlite_command(path: &Path) -> Command {
    let mut command = Command::new(shell("sqlite3", "sqlite3"));
    command
        .args(["-batch", "-bail", "-ascii", "-nullvalue", NULL])
        .args(["-cmd", &format!(".timeout {SQLITE_BUSY_TIMEOUT_MS}")])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

fn shell(program: &str, package: &str) -> std::path::PathBuf {
    find_on_path(program).unwrap_or_else(|| panic!("the tests need {program}: apt-get install {package}"))
}

/// A shell that stays open: for a transaction that holds its locks while the test goes on.
///
/// Like a person's, it goes on after a statement that failed. Dropping it ends it, and its transaction with it.
pub struct SqlSession {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: File,
    /// The command by which this shell prints a line of its own.
    echo: &'static str,
    statements_sent: u32,
}

impl SqlSession {
    /// Opens `psql` on the database at `url`.
    #[must_use]
    pub fn psql(url: &str) -> Self {
        let mut command = psql_command(url);
        command.args(["--set", "ON_ERROR_STOP=0"]);
        Self::open(command, r"\echo")
    }

    /// Opens the `sqlite3` shell on the database in the file `path`.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        let mut command = sqlite_command(path);
        command.args(["-cmd", ".bail off"]);
        Self::open(command, ".print")
    }

    fn open(mut command: Command, echo: &'static str) -> Self {
        // A file and not a pipe: nobody has to read it while statements run.
        let stderr = tempfile::tempfile().expect("a temporary file can be made");
        let written = stderr.try_clone().expect("a file can be cloned");
        let mut child = command.stderr(written).spawn().expect("the shell was found a moment ago");
        Self {
            stdin: child.stdin.take().expect("stdin was asked for as a pipe"),
            stdout: BufReader::new(child.stdout.take().expect("stdout was asked for as a pipe")),
            stderr,
            child,
            echo,
            statements_sent: 0,
        }
    }

    /// Runs SQL and waits for its end. A statement may wait for a lock as long as it likes.
    ///
    /// # Errors
    /// The shell's words, when a statement fails or the connection is lost.
    pub fn run(&mut self, sql: &str) -> Result<Rows, SqlError> {
        self.send(sql);
        self.finish()
    }

    /// Sends SQL without waiting; [`finish`](Self::finish) waits for it.
    pub fn send(&mut self, sql: &str) {
        self.statements_sent += 1;
        let marker = self.marker();
        // A shell that ended with its connection is noticed in `finish`.
        let _ = writeln!(self.stdin, "{sql}\n;\n{} {marker}", self.echo);
        let _ = self.stdin.flush();
    }

    /// Waits for the end of what was sent last and returns its rows.
    ///
    /// # Errors
    /// The shell's words, when a statement failed or the connection was lost.
    pub fn finish(&mut self) -> Result<Rows, SqlError> {
        let marker = self.marker();
        let mut printed = Vec::new();
        while !printed.ends_with(format!("{marker}\n").as_bytes()) {
            let read = self.stdout.read_until(b'\n', &mut printed);
            if !read.is_ok_and(|bytes| bytes > 0) {
                let _ = self.child.wait();
                return Err(SqlError(format!("{}\nthe shell has ended", self.take_messages())));
            }
        }
        let messages = self.take_messages();
        // Beside errors psql writes warnings there; sqlite3 writes nothing else.
        if messages.contains("ERROR:") || messages.contains("FATAL:") || (self.echo == ".print" && !messages.is_empty())
        {
            return Err(SqlError(messages));
        }
        let printed = String::from_utf8_lossy(&printed);
        let rows = printed.rsplit_once(&marker).map_or("", |(rows, _)| rows);
        Ok(parse_rows(rows))
    }

    fn marker(&self) -> String {
        format!("--end-of-statement-{}--", self.statements_sent)
    }

    /// What the shell wrote to standard error since the last look.
    fn take_messages(&mut self) -> String {
        let mut messages = Vec::new();
        // The shell writes through the same file position: reading from 0 and cutting to 0 moves it back.
        let read = self.stderr.seek(SeekFrom::Start(0)).and_then(|_| self.stderr.read_to_end(&mut messages));
        read.expect("a temporary file can be read");
        self.stderr.set_len(0).expect("a temporary file can be cut");
        self.stderr.seek(SeekFrom::Start(0)).expect("a file has a start");
        String::from_utf8_lossy(&messages).into_owned()
    }
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
