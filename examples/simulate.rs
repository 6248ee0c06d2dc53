//! The simulator for long runs, and for one seed whose history is to be read.
//!
//! Owns its command line alone; what is simulated and checked is in `tests/simulation`. Prints progress, counts of all that
//! really happened and seeds a second. A seed that breaks a promise is shrunk; the program prints the shortest history that
//! it found and the command that runs it again, and exits 3.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

#[path = "../tests/simulation/mod.rs"]
#[allow(dead_code, reason = "the tests use some of it alone")]
mod simulation;

use simulation::options::{Kind, bug_named};
use simulation::shrink::shrink;
use simulation::{BUGS, Options, run};

/// Simulate three processes over one database, and check every promise after each step.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed alone and print its history
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Plant a bug; `list` names them
    #[arg(long)]
    bug: Option<String>,
    /// Events until the trouble ends
    #[arg(long, default_value_t = Options::new(0).steps)]
    steps: usize,
    /// Clients at work
    #[arg(long, default_value_t = Options::new(0).clients)]
    clients: usize,
    /// Kinds of trouble to leave out, separated by commas; `list` names them
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

fn main() -> ExitCode {
    match options(&Arguments::parse()) {
        Err(words) => {
            eprintln!("{words}");
            ExitCode::from(2)
        }
        Ok((options, None)) => one(&options),
        Ok((options, Some(seeds))) => many(&options, seeds),
    }
}

/// What to run, and how many seeds of it; `None`: one, with its history.
fn options(arguments: &Arguments) -> Result<(Options, Option<u64>), String> {
    let mut options = Options::new(arguments.seed.unwrap_or(arguments.from));
    (options.steps, options.clients) = (arguments.steps, arguments.clients.max(1));
    if let Some(name) = &arguments.bug {
        let names = || BUGS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join("\n");
        options.bug = Some(bug_named(name).ok_or_else(|| format!("Bugs that can be planted:\n{}", names()))?);
    }
    for name in &arguments.without {
        let names = || Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("\n");
        let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
        options.without.insert(*kind.ok_or_else(|| format!("Kinds of trouble:\n{}", names()))?);
    }
    Ok((options, arguments.seed.is_none().then_some(arguments.seeds)))
}

fn one(options: &Options) -> ExitCode {
    let report = run(&Options { traced: true, ..options.clone() });
    println!("{}", report.history.join("\n"));
    match report.broken {
        Some(broken) => {
            println!("\n{broken}");
            ExitCode::from(3)
        }
        None => {
            println!("\nevery promise held over {} events", report.steps);
            ExitCode::SUCCESS
        }
    }
}

fn many(options: &Options, seeds: u64) -> ExitCode {
    let begun = Instant::now();
    let mut told = Duration::ZERO;
    let (mut steps, mut counts) = (0, BTreeMap::new());
    for n in 0..seeds {
        let options = Options { seed: options.seed + n, ..options.clone() };
        let report = run(&options);
        steps += report.steps;
        for (what, count) in report.counts {
            *counts.entry(what).or_insert(0) += count;
        }
        if let Some(broken) = report.broken {
            println!("seed {}: {broken}\nsearching for the shortest history ...\n", options.seed);
            println!("{}", shrink(&options).to_text());
            return ExitCode::from(3);
        }
        if begun.elapsed() > told + Duration::from_secs(10) {
            told = begun.elapsed();
            eprintln!("{} of {seeds} seeds, {:.0} a second", n + 1, (n + 1) as f64 / told.as_secs_f64());
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    print_counts(&counts);
    println!("{seeds} seeds from {}, {steps} events: every promise held", options.seed);
    println!("{seconds:.1} s, {:.1} seeds a second", seeds as f64 / seconds);
    ExitCode::SUCCESS
}

fn print_counts(counts: &BTreeMap<&'static str, u64>) {
    let troubles: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    for (title, of_trouble) in [("Trouble that was made", true), ("What became of it", false)] {
        println!("{title}:");
        for (what, count) in counts.iter().filter(|(what, _)| troubles.contains(*what) == of_trouble) {
            println!("  {what:<22} {count:>12}");
        }
    }
}
