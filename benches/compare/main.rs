//! Casework beside what every user already has, on the same PostgreSQL, in one run: `cargo bench --bench compare`.
//!
//! Prints throughput, latency and the ratios between them; absolute figures depend on the machine, ratios hold. The
//! contenders are run in turn, several rounds, and the median counts; see `contenders` for the table, `options` for the
//! command line. The server is private, in a temporary folder, with `fsync` on, and everything runs on this machine.
//! Whatever goes wrong, an answer, a transaction, a fault in a database, ends the run.
//!
//! Reading order: `contenders` (who, and against whom), `pgbench`, `peer_bare` and `peer_sqlite` over `peer_http` (the
//! peers), `casework_runs` (Casework), `figures` and `table` (what is made of it), `costs`, `sweeps` and `plots` (curves), `long`.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![allow(unused_macros, reason = "the shared test tools serve the tests as well")]
#![allow(missing_docs, reason = "the shared test tools are documented where they live")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "a benchmark uses a part of the tools")]
mod support;

mod casework_runs;
mod contenders;
mod costs;
mod figures;
mod in_process;
mod long;
mod machine;
mod options;
mod peer_bare;
mod peer_http;
#[allow(dead_code, reason = "shared with the benchmark of the idempotency layer")]
mod peer_process;
mod peer_sqlite;
mod pgbench;
mod plots;
mod sweeps;
mod table;

use contenders::{Contender, Ground, ROWS};
use figures::Figure;
use long::MemorySample;
use machine::Machine;
use options::{Options, USAGE};
use serde::Serialize;
use support::postgres_server::PrivateServer;
use sweeps::Sweeps;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // This program again, as a peer.
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve-bare"] => return peer_bare::serve(),
        ["serve-sqlite", path, connections] => return peer_sqlite::serve(path, connections.parse().unwrap()),
        ["--help" | "-h"] => return println!("{USAGE}"),
        _ => {}
    }
    let options = Options::parse(arguments).unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        std::process::exit(2);
    });
    if options.only.iter().any(|name| name == "list") {
        let rows = ROWS.iter().map(|row| row.name).chain([in_process::NAME, costs::NAME]).chain(long::NAMES);
        return rows.for_each(|name| println!("{name}"));
    }
    compare(&options);
}

/// Everything that was measured, as it is written to a file.
#[derive(Serialize)]
struct Measured<'a> {
    machine: &'a Machine,
    rounds: usize,
    seconds: u32,
    warm_up_seconds: f64,
    figures: Vec<Figure>,
    stored: Vec<costs::Stored>,
    memory: Vec<MemorySample>,
    sweeps: Option<Sweeps>,
}

fn compare(options: &Options) {
    let server = PrivateServer::start();
    let machine = Machine::read(&server);
    eprintln!("{}", machine.describe());
    let (mut figures, mut stored) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        run_round(&server, options, round, &mut figures, &mut stored);
    }
    let peer = pgbench::Peer::prepare(&server);
    let ground = Ground { server: &server, peer: &peer, options, round: 1 };
    let wants_long = |name| options.long && options.wants(name);
    if wants_long(long::NAMES[1]) {
        figures.extend(long::growth(&ground, note));
    }
    let memory = if wants_long(long::NAMES[0]) { long::memory(&ground) } else { Vec::new() };
    let sweeps = options.plots.is_some().then(|| Sweeps::measure(&ground, note));
    println!("{}\n", machine.describe());
    table::print(&figures, options);
    costs::print(&figures, &stored);
    long::print_growth(&figures);
    long::print_memory(&memory);
    if options.smoke {
        check_smoke(&figures, options);
    }
    let (rounds, seconds, warm_up_seconds) = (options.rounds, options.seconds, options.warm_up_seconds());
    let measured = Measured { machine: &machine, rounds, seconds, warm_up_seconds, figures, stored, memory, sweeps };
    write(&measured, options);
}

/// Draws the plots, and writes the figures to a file.
fn write(measured: &Measured<'_>, options: &Options) {
    let mut json = options.json.clone();
    if let (Some(folder), Some(sweeps)) = (&options.plots, &measured.sweeps) {
        std::fs::create_dir_all(folder).unwrap();
        for file in plots::draw(sweeps, folder) {
            println!("drawn: {}", folder.join(file).display());
        }
        json = json.or_else(|| Some(folder.join("figures.json")));
    }
    if let Some(file) = json {
        std::fs::write(&file, serde_json::to_string_pretty(measured).unwrap() + "\n").unwrap();
        println!("figures: {}", file.display());
    }
}

/// Every contender that a wanted row names, once, the peer first.
fn run_round(
    server: &PrivateServer,
    options: &Options,
    round: usize,
    figures: &mut Vec<Figure>,
    stored: &mut Vec<costs::Stored>,
) {
    // Fresh in each round: what earlier rounds left must not slow the peer down.
    let peer = pgbench::Peer::prepare(server);
    let ground = Ground { server, peer: &peer, options, round };
    let mut done: Vec<Contender> = Vec::new();
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        for contender in [row.peer, row.casework] {
            if done.contains(&contender) {
                continue;
            }
            done.push(contender);
            for figure in contender.run(&ground) {
                note(&figure);
                figures.push(figure);
            }
        }
    }
    if options.wants(costs::NAME) {
        let (of_schemas, sizes) = costs::measure(&ground, note);
        figures.extend(of_schemas);
        stored.extend(sizes);
    }
    if options.wants(in_process::NAME) {
        for figure in in_process::measure(server, options, round) {
            note(&figure);
            figures.push(figure);
        }
    }
}

/// Progress, for whoever waits.
fn note(figure: &Figure) {
    let p99 = figure.p99_ms.map_or_else(String::new, |p99| format!("  p99 {p99:>8.3} ms"));
    eprintln!("  {:<40} {:<44} {:>9.0}/s{p99}", figure.contender, figure.variant, figure.per_second);
}

/// A smoke test proves that everything ran, answered, and without errors.
fn check_smoke(figures: &[Figure], options: &Options) {
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        for contender in [row.peer, row.casework] {
            let figure = figures.iter().find(|figure| figure.contender == contender.name());
            let figure = figure.unwrap_or_else(|| panic!("{} was not run", contender.name()));
            assert!(figure.per_second > 0.0 && figure.p99_ms > Some(0.0) && figure.errors == 0, "{figure:?}");
        }
    }
    println!("smoke test passed: every contender ran, every answer was right, every database is clean");
}
