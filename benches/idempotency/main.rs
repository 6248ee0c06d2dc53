//! What the idempotency layer costs, beside the same handler without it and beside the `axum-idempotent` crate, in one run:
//! `cargo bench --bench idempotency`.
//!
//! Prints replays per second and the server's processor time for each, the parts of a replay, and what the stores are asked
//! for. Contenders are run in turn, round by round, by one client over the same connections, with as many threads each; the
//! medians count. Servers are processes of their own, Redis and PostgreSQL private. Ends with exit code 1 where the memory
//! store's replay is slower than that crate's, or canonicalising takes longer than promised; with `--smoke` it says nothing
//! about speed. Whatever goes wrong besides ends the run.
//!
//! Reading order: `services` (who serves), `client` (who asks), `parts` (canonicalising, bytes, round trips).

#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![allow(unused_macros, reason = "the shared test tools serve the tests as well")]
#![allow(missing_docs, reason = "the shared test tools are documented where they live")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "a benchmark uses a part of the tools")]
mod support;

#[path = "../compare/machine.rs"]
#[allow(dead_code, reason = "the comparison uses the rest")]
mod machine;
#[path = "../compare/peer_process.rs"]
mod peer_process;

mod client;
mod parts;
mod services;

use std::time::Duration;

use client::{Asked, Client};
use machine::{Machine, process_cpu};
use peer_process::PeerProcess;
use support::database::TestDatabase;
use support::postgres_server::PrivateServer;
use support::redis::RedisServer;

const USAGE: &str = "\
cargo bench --bench idempotency -- [OPTIONS]
  --rounds N      rounds of each contender [9]; the median counts
  --seconds N     seconds that each run is counted [2]
  --smoke         one short round: says whether everything works, and nothing about speed";

/// How the benchmark runs.
struct Options {
    rounds: usize,
    time: Duration,
    warm_up: Duration,
    smoke: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut rounds, mut seconds, mut smoke) = (9, 2, false);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
                value.parse().ok().filter(|number| *number > 0).ok_or(format!("{value:?} is no number from 1"))
            };
            match argument.as_str() {
                // What cargo adds.
                "--bench" | "--test" => {}
                "--rounds" => rounds = number()?,
                "--seconds" => seconds = number()?,
                "--smoke" => smoke = true,
                other => return Err(format!("there is no option {other}")),
            }
        }
        let (time, warm_up) = (Duration::from_secs(seconds as u64), Duration::from_millis(300));
        Ok(match smoke {
            true => Self { rounds: 1, time: Duration::from_millis(300), warm_up: Duration::from_millis(50), smoke },
            false => Self { rounds, time, warm_up, smoke },
        })
    }
}

/// Who is measured, in the order of a round.
const CONTENDERS: [(&str, &[&str]); 7] = [
    ("actix-web, the handler alone", &["serve-actix"]),
    ("actix-web, the layer, memory", &["serve-layer", "memory"]),
    ("axum, axum-idempotent, memory", &["serve-axum-idempotent"]),
    ("axum, the handler alone", &["serve-axum"]),
    ("actix-web, the layer, Redis", &["serve-layer", "redis"]),
    ("actix-web, the layer, SQLite", &["serve-layer", "sqlite"]),
    ("actix-web, the layer, PostgreSQL", &["serve-layer", "postgres"]),
];
const BARE: usize = 0;
const MEMORY: usize = 1;
const PEER: usize = 2;
const PEER_BARE: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // This program again, as a server.
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve-actix"] => return services::serve_actix(),
        ["serve-layer", store] => return services::serve_layer(store),
        ["serve-axum"] => return services::serve_axum(),
        ["serve-axum-idempotent"] => return services::serve_axum_idempotent(),
        ["--help" | "-h"] => return println!("{USAGE}"),
        _ => {}
    }
    let options = Options::parse(&arguments).unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        std::process::exit(2);
    });
    let is_fast_enough = measure(&options);
    if !is_fast_enough && !options.smoke {
        std::process::exit(1);
    }
}

/// One run of one contender.
struct Run {
    per_second: f64,
    /// Processor time of the server for one request, in microseconds.
    cpu_micros: f64,
    p50_micros: f64,
    p99_micros: f64,
}

fn measure(options: &Options) -> bool {
    let (redis, sqlite, postgres) = (RedisServer::start(), TestDatabase::sqlite(), PrivateServer::start());
    let database = postgres.database();
    let machine = Machine::read(&postgres);
    let servers: Vec<_> = CONTENDERS
        .iter()
        .map(|(_, arguments)| {
            let store = match arguments[..] {
                [serve, "redis"] => vec![serve.to_owned(), redis.url()],
                [serve, "sqlite"] => vec![serve.to_owned(), sqlite.url().to_owned()],
                [serve, "postgres"] => vec![serve.to_owned(), database.url().to_owned()],
                _ => arguments.iter().map(|word| (*word).to_owned()).collect(),
            };
            PeerProcess::start(&store.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    let clients: Vec<_> = servers.iter().map(|server| Client::prepare(server.url())).collect();
    let mut runs: Vec<Vec<Run>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let mut order: Vec<_> = (0..CONTENDERS.len()).collect();
        // Whoever comes second finds another machine than whoever comes first.
        if round % 2 == 0 {
            order.swap(MEMORY, PEER);
        }
        for place in order {
            let expects_replay = ![BARE, PEER_BARE].contains(&place);
            clients[place].ask_for(options.warm_up, expects_replay);
            let cpu = process_cpu(servers[place].pid());
            let asked = clients[place].ask_for(options.time, expects_replay);
            let cpu = process_cpu(servers[place].pid()).0 - cpu.0;
            let run = run_of(&asked, cpu);
            eprintln!(
                "  {:<36} {:>9.0}/s  {:>6.1} us of processor time",
                CONTENDERS[place].0, run.per_second, run.cpu_micros
            );
            runs[place].push(run);
        }
    }
    drop(servers);
    println!("{}; Redis {}\n", machine.describe(), parts::redis_version(&redis));
    print_table(&runs);
    let canonical_is_quick = parts::print_canonicalising();
    parts::print_redis(&redis);
    parts::print_sql(&postgres);
    print_verdict(&runs, options) && canonical_is_quick
}

fn run_of(asked: &Asked, cpu_seconds: f64) -> Run {
    let count = asked.latencies.len();
    let at = |part: f64| asked.latencies[((count - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    Run {
        per_second: count as f64 / asked.time.as_secs_f64(),
        cpu_micros: cpu_seconds * 1e6 / count as f64,
        p50_micros: at(0.5),
        p99_micros: at(0.99),
    }
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<_> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_table(runs: &[Vec<Run>]) {
    println!(
        "| replays, {} connections, 2 threads a server | a second | server's processor time, us | p50 us | p99 us |",
        client::CONNECTIONS
    );
    println!("|---|---|---|---|---|");
    for ((name, _), runs) in CONTENDERS.iter().zip(runs) {
        println!(
            "| {name} | {:.0} | {:.1} | {:.0} | {:.0} |",
            median(runs, |run| run.per_second),
            median(runs, |run| run.cpu_micros),
            median(runs, |run| run.p50_micros),
            median(runs, |run| run.p99_micros)
        );
    }
    let added = |with: usize, without: usize| {
        median(&runs[with], |run| run.cpu_micros) - median(&runs[without], |run| run.cpu_micros)
    };
    println!(
        "\na replay costs the layer {:.1} us of processor time over the handler alone (memory), axum-idempotent {:.1} us",
        added(MEMORY, BARE),
        added(PEER, PEER_BARE)
    );
}

/// Whether the memory store's replay is at least as fast as the crate's.
fn print_verdict(runs: &[Vec<Run>], options: &Options) -> bool {
    let ratio = median(&runs[MEMORY], |run| run.per_second) / median(&runs[PEER], |run| run.per_second);
    println!("\nreplays a second, memory: the layer has {ratio:.2} times those of axum-idempotent");
    if options.smoke {
        println!("smoke test passed: every contender ran, and every answer was right");
    } else if ratio < 1.0 {
        println!("FAILED: the memory store's replay is slower than axum-idempotent's");
    }
    ratio >= 1.0
}
