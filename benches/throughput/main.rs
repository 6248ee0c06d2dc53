//! Casework beside one row-lock transaction a command, on the same PostgreSQL, in one run: `cargo bench --bench throughput`.
//!
//! Prints commands a second and the ratios between them; absolute figures depend on the machine, ratios hold. The peer is
//! `pgbench` with `peers/rowlock.pgb` (best of 8 and 32 clients) over 10,000 cases, and on one case (best of 1, 8 and 32).
//! Casework runs in process: the recorded log `domestic` with 256 commands in flight, notes on one hot case, and repeats of
//! them answered from memory. The server is private, in a temporary folder, with fsync on. Rounds alternate; medians count.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![allow(unused_macros, reason = "the shared test tools serve the tests as well")]
#![allow(missing_docs, reason = "the shared test tools are documented where they live")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, reason = "a benchmark uses a part of the tools")]
mod support;

mod casework_runs;
mod pgbench;

use support::postgres_server::PrivateServer;

/// Rounds of each contender; the median counts.
const ROUNDS: usize = 3;
/// Seconds that pgbench runs for each number of clients.
const PEER_SECONDS: u32 = 4;

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn best(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(0.0, f64::max)
}

fn main() {
    let server = PrivateServer::start();
    let peer = pgbench::Peer::prepare(&server);
    let (mut spread_peer, mut hot_peer) = (Vec::new(), Vec::new());
    let (mut domestic, mut hot, mut replays) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        spread_peer.push(best(&[8, 32].map(|clients| peer.run(10_000, clients, PEER_SECONDS))));
        domestic.extend(casework_runs::domestic(&server.database(), 256));
        hot_peer.push(best(&[1, 8, 32].map(|clients| peer.run(1, clients, PEER_SECONDS))));
        let run = casework_runs::hot_case(&server.database(), 60_000, 256);
        hot.push(run.notes_per_second);
        replays.push(run.replays_per_second);
        assert_eq!(run.statements_during_replays, 0, "a replay from memory touches no database");
    }
    let (spread_peer, hot_peer, hot) = (median(spread_peer), median(hot_peer), median(hot));
    println!("PostgreSQL 15, fsync and synchronous_commit on, client, server and database on {} cores", cores());
    println!("medians of {ROUNDS} rounds, commands/s:");
    println!("{:<52}{spread_peer:>10.0}", "row-lock transaction, 10,000 cases (pgbench)");
    if domestic.is_empty() {
        println!("NOT RUN: the log `domestic` (set CASEWORK_SHARED)");
    } else {
        let domestic = median(domestic);
        println!("{:<52}{domestic:>10.0}{:>8.1} times", "the log `domestic`, 256 in flight", domestic / spread_peer);
    }
    println!("{:<52}{hot_peer:>10.0}", "row-lock transaction, one case (pgbench)");
    println!("{:<52}{hot:>10.0}{:>8.1} times", "notes on one case, 256 in flight", hot / hot_peer);
    println!("{:<52}{:>10.0}", "their repeats, answered from memory", median(replays));
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
