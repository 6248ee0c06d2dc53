//! The peers that every user of PostgreSQL has: `pgbench` running one row-lock transaction a command, or one call of a
//! PL/pgSQL function that does the same.
//!
//! Owns the peer's database. Latencies come from pgbench's own log, transaction by transaction. Stops the comparison when
//! a transaction fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::postgres::PostgresDatabase;
use super::support::postgres_server::PrivateServer;
use super::support::process::{crate_root, find_on_path};

/// What a peer sends for each command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// A transaction of seven statements around a locked row.
    RowLock,
    /// One call of a function that does the same.
    Function,
}

impl Script {
    fn path(self) -> PathBuf {
        crate_root().join(match self {
            Self::RowLock => "benches/peers/rowlock.pgb",
            Self::Function => "benches/peers/rowlock_function.pgb",
        })
    }
}

/// What pgbench saw.
#[derive(Debug, Clone, Copy)]
pub struct PeerRun {
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Transactions in all.
    pub transactions: u64,
}

/// The peer's database.
pub struct Peer {
    database: PostgresDatabase,
}

impl Peer {
    /// Makes the peer's schema with 10,000 cases and some history.
    pub fn prepare(server: &PrivateServer) -> Self {
        let database = server.database();
        let schema = crate_root().join("benches/peers/rowlock.sql");
        let status = Command::new("psql")
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(schema)
            .arg(database.url())
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .status()
            .unwrap();
        assert!(status.success(), "the peer's schema can't be made");
        Self { database }
    }

    /// Runs over so many cases with so many clients.
    pub fn run(&self, script: Script, cases: u32, clients: u32, seconds: u32) -> PeerRun {
        let logs = tempfile::tempdir().unwrap();
        let output = Command::new(pgbench())
            .args(["-n", "-M", "prepared", "-j", "2", "--log", "--log-prefix"])
            .arg(logs.path().join("log"))
            .args(["-D", &format!("ncases={cases}"), "-c", &clients.to_string(), "-T", &seconds.to_string()])
            .arg("-f")
            .arg(script.path())
            .arg(self.database.url())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
        let failed = text.lines().find_map(|line| line.strip_prefix("number of failed transactions: "));
        assert!(failed.is_none_or(|failed| failed.starts_with("0 ")), "transactions of pgbench failed: {text}");
        let figure = text.lines().find_map(|line| line.strip_prefix("tps = ")).expect("pgbench prints its tps");
        let latencies = latencies_micros(logs.path());
        let quantile = |share: f64| {
            let rank = (share * latencies.len() as f64).ceil().max(1.0) as usize;
            latencies[rank - 1] as f64 / 1_000.0
        };
        PeerRun {
            per_second: figure.split_whitespace().next().unwrap().parse().unwrap(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
            transactions: latencies.len() as u64,
        }
    }
}

/// All latencies that pgbench logged, sorted; each of its threads writes a file.
fn latencies_micros(folder: &Path) -> Vec<u64> {
    let mut latencies = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        latencies.extend(text.lines().map(|line| {
            let field = line.split(' ').nth(2).expect("client, number, latency");
            field.parse::<u64>().expect("a latency in microseconds")
        }));
    }
    assert!(!latencies.is_empty(), "pgbench logged nothing");
    latencies.sort_unstable();
    latencies
}

fn pgbench() -> PathBuf {
    let packaged = Path::new("/usr/lib/postgresql/15/bin/pgbench");
    if packaged.exists() {
        packaged.into()
    } else {
        find_on_path("pgbench").expect("pgbench is installed with PostgreSQL")
    }
}
