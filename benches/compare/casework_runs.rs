//! Casework as a user runs it: `casework serve` on a fresh database, and `casework load` as another process beside it.
//!
//! Every answer is checked by the load, and the database is verified behind every run: a wrong answer or a fault in the
//! database stops the comparison, whatever its speed.

use serde_json::Value;

use super::figures::{Cost, Figure};
use super::machine::{CpuSeconds, ended_children_cpu, postgres_cpu, process_cpu};
use super::options::Options;
use super::support::cli::casework;
use super::support::postgres::PostgresDatabase;
use super::support::postgres_server::PrivateServer;
use super::support::server::{ServerOptions, ServerProcess};
use super::support::token::issue_token;

/// How the load is run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// `spread`, `hot`, `replay`.
    pub mix: &'static str,
    pub connections: u32,
    /// Lines in flight on each connection, as one NDJSON stream.
    pub window: Option<u32>,
    /// Commands a second; none: as fast as answers come.
    pub rate: Option<u32>,
}

impl Load {
    /// POSTs of a mix over so many connections.
    pub const fn posts(mix: &'static str, connections: u32) -> Self {
        Self { mix, connections, window: None, rate: None }
    }

    /// Streams of a mix with so many lines in flight on each.
    pub const fn streams(mix: &'static str, connections: u32, window: u32) -> Self {
        Self { mix, connections, window: Some(window), rate: None }
    }

    /// In words.
    pub fn variant(&self) -> String {
        let connections = format!("{} connection{}", self.connections, if self.connections == 1 { "" } else { "s" });
        match (self.window, self.rate) {
            (Some(window), _) => format!("{connections}, {window} lines in flight on each"),
            (None, Some(rate)) => format!("{connections}, {rate} commands/s offered"),
            (None, None) => connections,
        }
    }

    /// Runs it against a server; with a database, that is verified at the end. Returns what `casework load` printed.
    pub fn run(&self, url: &str, token: &str, database: Option<&str>, options: &Options) -> Value {
        self.run_over(options.cases(), url, token, database, options)
    }

    /// The same over so many cases.
    pub fn run_over(&self, cases: u32, url: &str, token: &str, database: Option<&str>, options: &Options) -> Value {
        let mut arguments: Vec<String> =
            ["load", "--json", "--url", url, "--token", token, "--mix", self.mix].map(str::to_owned).into();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("--cases", cases.to_string());
        add("--connections", self.connections.to_string());
        add("--warm-up", options.warm_up_seconds().to_string());
        add("--duration", options.seconds.to_string());
        if let Some(window) = self.window {
            add("--stream", window.to_string());
        }
        if let Some(rate) = self.rate {
            add("--rate", rate.to_string());
        }
        if let Some(database) = database {
            add("--database", database.to_owned());
        }
        let report = casework(&arguments).expect_success().json();
        assert_eq!(report["wrong"], 0, "{report}");
        assert!(database.is_none() || report["faults"] == 0, "{report}");
        report
    }

    /// A figure from what `casework load` printed.
    pub fn figure(&self, contender: &'static str, round: usize, report: &Value) -> Figure {
        let number = |member: &str| report[member].as_f64().expect("a number");
        let errors = report["errors"].as_object().expect("errors by code");
        if !errors.is_empty() {
            eprintln!("  {contender}, {}: errors {}", self.variant(), report["errors"]);
        }
        Figure {
            contender,
            variant: self.variant(),
            round,
            per_second: number("per_second"),
            p50_ms: Some(number("p50_ms")),
            p99_ms: Some(number("p99_ms")),
            max_ms: Some(number("max_ms")),
            errors: errors.values().filter_map(Value::as_u64).sum(),
            cost: None,
        }
    }
}

/// A server that runs on a migrated database, and a token for it.
pub struct Serving {
    pub server: ServerProcess,
    pub token: String,
}

impl Serving {
    /// Migrates the database, issues a token and starts the server.
    pub fn start(database_url: &str, arguments: &[&str]) -> Self {
        casework(["migrate", "--database", database_url]).expect_success();
        let token = issue_token(database_url, "load", &["clerk"]).token;
        let options = arguments.iter().fold(ServerOptions::new(database_url), ServerOptions::argument);
        Self { server: options.start(), token }
    }
}

/// One run on a fresh database of the server.
pub fn on_postgres(
    server: &PrivateServer,
    load: Load,
    contender: &'static str,
    round: usize,
    options: &Options,
) -> Figure {
    let database = server.database();
    let figure = on_database(server, &database, load, contender, round, options);
    casework(["verify", "--database", database.url()]).expect_success();
    figure
}

/// One run on a database of the server, which is not verified.
pub fn on_database(
    server: &PrivateServer,
    database: &PostgresDatabase,
    load: Load,
    contender: &'static str,
    round: usize,
    options: &Options,
) -> Figure {
    let serving = Serving::start(database.url(), &[]);
    server.sql("CHECKPOINT");
    let meter = Meter::start(server, Some(serving.server.pid()));
    let report = load.run(serving.server.url(), &serving.token, None, options);
    let reading = meter.read();
    let mut figure = load.figure(contender, round, &report);
    let commands = database.sql("SELECT count(*) FROM operations")[0][0].parse().unwrap();
    // Repeats leave no row, so they can't be counted that way.
    figure.cost = (load.mix != "replay").then(|| reading.cost(commands));
    figure
}

/// One run on a fresh SQLite file.
pub fn on_sqlite(load: Load, contender: &'static str, round: usize, options: &Options) -> Figure {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("casework.db").display());
    let serving = Serving::start(&url, &[]);
    let report = load.run(serving.server.url(), &serving.token, Some(&url), options);
    load.figure(contender, round, &report)
}

/// Reads what a run costs: before it, and after.
pub struct Meter<'a> {
    postgres: &'a PrivateServer,
    server: Option<u32>,
    before: Reading,
}

/// Processor times and the place in the write-ahead log, or the differences of two such readings.
pub struct Reading {
    server: Option<CpuSeconds>,
    database: CpuSeconds,
    client: CpuSeconds,
    wal_bytes: f64,
}

impl<'a> Meter<'a> {
    /// Before the run; `server`: the process id of a server in between.
    pub fn start(postgres: &'a PrivateServer, server: Option<u32>) -> Self {
        let before = Reading::now(postgres, server);
        Self { postgres, server, before }
    }

    /// What it took since.
    pub fn read(&self) -> Reading {
        let now = Reading::now(self.postgres, self.server);
        let since = |now: CpuSeconds, before: CpuSeconds| CpuSeconds(now.0 - before.0);
        Reading {
            server: now.server.zip(self.before.server).map(|(now, before)| since(now, before)),
            database: since(now.database, self.before.database),
            client: since(now.client, self.before.client),
            wal_bytes: now.wal_bytes - self.before.wal_bytes,
        }
    }
}

impl Reading {
    fn now(postgres: &PrivateServer, server: Option<u32>) -> Self {
        let wal_bytes = postgres.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0].parse().unwrap();
        let database = postgres_cpu(postgres.postmaster_pid());
        Self { server: server.map(process_cpu), database, client: ended_children_cpu(), wal_bytes }
    }

    /// For each of so many commands.
    pub fn cost(&self, commands: u64) -> Cost {
        let each = |seconds: CpuSeconds| seconds.0 * 1e6 / commands.max(1) as f64;
        Cost {
            commands,
            server_micros: self.server.map(each),
            database_micros: Some(each(self.database)),
            client_micros: each(self.client),
            wal_bytes: Some(self.wal_bytes / commands.max(1) as f64),
        }
    }
}
