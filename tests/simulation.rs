//! The simulator in CI: seeds without a planted bug hold every promise, each planted bug is caught, and enough happened.
//!
//! `CASEWORK_TEST_LONG=1` runs more seeds. A failure prints the shortest history that was found and the command that runs
//! it again.

#[path = "simulation/mod.rs"]
#[allow(dead_code, reason = "the program for long runs uses some of it alone")]
mod simulation;

use std::collections::BTreeMap;

use simulation::options::Bug;
use simulation::shrink::shrink;
use simulation::{BUGS, Options, run};

/// Seeds without a bug in a run of CI, and in a long one.
const SEEDS: u64 = 500;
const SEEDS_LONG: u64 = 20_000;

fn seeds() -> u64 {
    let is_long = std::env::var("CASEWORK_TEST_LONG").is_ok_and(|long| long == "1");
    if is_long { SEEDS_LONG } else { SEEDS }
}

/// The first seed that is caught, and what it says.
fn caught(bug: Bug, seeds: u64) -> Option<(Options, String)> {
    (0..seeds).find_map(|seed| {
        let options = Options { bug: Some(bug), ..Options::new(seed) };
        let broken = run(&options).broken?;
        Some((options, broken))
    })
}

#[test]
fn no_promise_is_broken_and_enough_happens() {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..seeds() {
        let options = Options::new(seed);
        let report = run(&options);
        if let Some(broken) = report.broken {
            panic!("seed {seed}: {broken}\n\n{}", shrink(&options).to_text());
        }
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:#?}");
}

#[test]
fn every_planted_bug_is_caught() {
    let mut missed = Vec::new();
    for (name, bug, seeds) in BUGS {
        match caught(*bug, *seeds) {
            Some((options, broken)) => println!("{name}: seed {}: {broken}", options.seed),
            None => missed.push(format!("{name}: not caught within {seeds} seeds")),
        }
    }
    assert!(missed.is_empty(), "\n{}\n", missed.join("\n"));
}
