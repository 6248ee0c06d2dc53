//! The peer: `pgbench` running one row-lock transaction a command.

use std::path::Path;
use std::process::Command;

use super::support::postgres::PostgresDatabase;
use super::support::postgres_server::PrivateServer;
use super::support::process::{crate_root, find_on_path};

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

    /// Transactions a second over `cases` cases with so many clients.
    pub fn run(&self, cases: u32, clients: u32, seconds: u32) -> f64 {
        let output = Command::new(pgbench())
            .args(["-n", "-M", "prepared", "-j", "2"])
            .args(["-D", &format!("ncases={cases}"), "-c", &clients.to_string(), "-T", &seconds.to_string()])
            .arg("-f")
            .arg(crate_root().join("benches/peers/rowlock.pgb"))
            .arg(self.database.url())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
        let figure = text.lines().find_map(|line| line.strip_prefix("tps = ")).expect("pgbench prints its tps");
        figure.split_whitespace().next().unwrap().parse().unwrap()
    }
}

fn pgbench() -> std::path::PathBuf {
    let packaged = Path::new("/usr/lib/postgresql/15/bin/pgbench");
    if packaged.exists() {
        packaged.into()
    } else {
        find_on_path("pgbench").expect("pgbench is installed with PostgreSQL")
    }
}
