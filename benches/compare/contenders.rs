//! The contenders, and the pairs of them that make the table.
//!
//! Owns what each runs and with which variants, and the floors of the ratios. A contender is run once a round, right after
//! the one that it is compared with, on the same server.

use super::casework_runs::{Load, Meter, on_postgres, on_sqlite};
use super::figures::{Figure, Measure};
use super::options::Options;
use super::peer_process::PeerProcess;
use super::pgbench::{Peer, Script};
use super::support::postgres_server::PrivateServer;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    RowLock,
    Function,
    OneCase,
    OneClient,
    Posts,
    Streams,
    HotPosts,
    HotStreams,
    OpenLoop,
    Replay,
    Bare,
    Sqlite,
    SqlitePeer,
}

/// A line of the table: Casework against a peer.
pub struct Row {
    /// For `--only`.
    pub name: &'static str,
    pub casework: Contender,
    pub peer: Contender,
    pub measure: Measure,
    /// Throughput: at least so many times the peer's. Latency: at most.
    pub floor: f64,
    /// What is reached for; latency: none.
    pub reach: Option<f64>,
}

impl Row {
    const fn times(name: &'static str, casework: Contender, peer: Contender, floor: f64, reach: f64) -> Self {
        Self { name, casework, peer, measure: Measure::Throughput, floor, reach: Some(reach) }
    }
}

/// The table.
pub const ROWS: &[Row] = &[
    Row::times("spread", Contender::Posts, Contender::RowLock, 5.0, 10.0),
    Row::times("function", Contender::Posts, Contender::Function, 3.0, 5.0),
    Row::times("ndjson", Contender::Streams, Contender::RowLock, 8.0, 15.0),
    Row::times("hot", Contender::HotPosts, Contender::OneCase, 15.0, 25.0),
    Row::times("hot-ndjson", Contender::HotStreams, Contender::OneCase, 25.0, 50.0),
    Row::times("replay", Contender::Replay, Contender::Bare, 0.6, 0.75),
    Row::times("sqlite", Contender::Sqlite, Contender::SqlitePeer, 4.0, 8.0),
    Row {
        name: "latency",
        casework: Contender::OpenLoop,
        peer: Contender::OneClient,
        measure: Measure::P99,
        floor: 2.0,
        reach: None,
    },
];

/// What a contender runs on.
pub struct Ground<'a> {
    pub server: &'a PrivateServer,
    pub peer: &'a Peer,
    pub options: &'a Options,
    /// From 1.
    pub round: usize,
}

impl Contender {
    /// Its name among the figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowLock => "pgbench row lock",
            Self::Function => "pgbench function",
            Self::OneCase => "pgbench one case",
            Self::OneClient => "pgbench one client",
            Self::Posts => "spread POST",
            Self::Streams => "spread NDJSON",
            Self::HotPosts => "hot POST",
            Self::HotStreams => "hot NDJSON",
            Self::OpenLoop => "spread open loop",
            Self::Replay => "replay POST",
            Self::Bare => "bare handler",
            Self::Sqlite => "spread POST, SQLite",
            Self::SqlitePeer => "Diesel transactions, SQLite",
        }
    }

    /// What it is, for the table.
    pub fn words(self) -> &'static str {
        match self {
            Self::RowLock => "pgbench, row-lock transaction, 10,000 cases",
            Self::Function => "pgbench, the same as one PL/pgSQL call",
            Self::OneCase => "pgbench, row-lock transaction, one case",
            Self::OneClient => "pgbench, row-lock transaction, one client, p99 ms",
            Self::Posts => "spread, single POSTs",
            Self::Streams => "spread, NDJSON",
            Self::HotPosts => "hot case, single POSTs",
            Self::HotStreams => "hot case, NDJSON",
            Self::OpenLoop => "spread at 500 commands/s, open loop, p99 ms",
            Self::Replay => "replay",
            Self::Bare => "a bare actix-web handler",
            Self::Sqlite => "spread, SQLite, single POSTs",
            Self::SqlitePeer => "one transaction a command through Diesel, SQLite, same HTTP",
        }
    }

    /// Runs all of its variants.
    pub fn run(self, ground: &Ground<'_>) -> Vec<Figure> {
        match self {
            Self::RowLock => self.pgbench(ground, Script::RowLock, 10_000, &[8, 32, 64]),
            Self::Function => self.pgbench(ground, Script::Function, 10_000, &[8, 32]),
            Self::OneCase => self.pgbench(ground, Script::RowLock, 1, &[8, 1, 32]),
            Self::OneClient => self.pgbench(ground, Script::RowLock, 10_000, &[1]),
            Self::Posts => self.casework(ground, &[64, 128, 256].map(|connections| Load::posts("spread", connections))),
            Self::Streams => self
                .casework(ground, &[(8, 512), (16, 128)].map(|(many, window)| Load::streams("spread", many, window))),
            Self::HotPosts => self.casework(ground, &[Load::posts("hot", 128)]),
            Self::HotStreams => {
                self.casework(ground, &[(8, 512), (2, 256)].map(|(many, window)| Load::streams("hot", many, window)))
            }
            Self::OpenLoop => self.casework(ground, &[Load { rate: Some(500), ..Load::posts("spread", 64) }]),
            Self::Replay => self.casework(ground, &[Load::posts("replay", 128)]),
            Self::Bare => vec![self.bare(ground, 128)],
            Self::Sqlite => {
                vec![on_sqlite(Load::posts("spread", 128), self.name(), ground.round, ground.options)]
            }
            Self::SqlitePeer => {
                let connections = ground.options.variants(&[1, 4]);
                connections.iter().map(|many| self.sqlite_peer(ground, *many, 128)).collect()
            }
        }
    }

    fn pgbench(self, ground: &Ground<'_>, script: Script, cases: u32, clients: &[u32]) -> Vec<Figure> {
        let clients = ground.options.variants(clients);
        clients.iter().map(|clients| self.pgbench_once(ground, script, cases, *clients)).collect()
    }

    /// One run of pgbench.
    pub fn pgbench_once(self, ground: &Ground<'_>, script: Script, cases: u32, clients: u32) -> Figure {
        ground.server.sql("CHECKPOINT");
        let meter = Meter::start(ground.server, None);
        let run = ground.peer.run(script, cases, clients, ground.options.seconds);
        let cost = meter.read().cost(run.transactions);
        Figure {
            contender: self.name(),
            variant: format!("{clients} client{}", if clients == 1 { "" } else { "s" }),
            round: ground.round,
            per_second: run.per_second,
            p50_ms: Some(run.p50_ms),
            p99_ms: Some(run.p99_ms),
            max_ms: Some(run.max_ms),
            errors: 0,
            cost: Some(cost),
        }
    }

    fn casework(self, ground: &Ground<'_>, loads: &[Load]) -> Vec<Figure> {
        let run = |load: &Load| on_postgres(ground.server, *load, self.name(), ground.round, ground.options);
        ground.options.variants(loads).iter().map(run).collect()
    }

    /// One run against the bare handler.
    pub fn bare(self, ground: &Ground<'_>, connections: u32) -> Figure {
        let peer = PeerProcess::start(&["serve-bare"]);
        let load = Load::posts("replay", connections);
        load.figure(self.name(), ground.round, &load.run(peer.url(), "any", None, ground.options))
    }

    /// One run against the peer on SQLite.
    pub fn sqlite_peer(self, ground: &Ground<'_>, pool: usize, connections: u32) -> Figure {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peer.db");
        let pool_text = pool.to_string();
        let peer = PeerProcess::start(&["serve-sqlite", path.to_str().unwrap(), &pool_text]);
        let load = Load::posts("spread", connections);
        let figure = load.figure(self.name(), ground.round, &load.run(peer.url(), "any", None, ground.options));
        Figure { variant: format!("{}, pool of {pool}", figure.variant), ..figure }
    }
}
