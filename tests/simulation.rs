//! The simulator in CI: seeds without a planted bug hold every promise, each planted bug is caught, and enough happened.
//!
//! `CASEWORK_TEST_LONG=1` runs more seeds. A failure prints the shortest history that was found and the command that runs
//! it again.

#[path = "simulation/mod.rs"]
#[allow(dead_code, reason = "the program for long runs uses some of it alone")]
mod simulation;

use std::collections::BTreeMap;

use simulation::options::{Bug, Kind, bug_named};
use simulation::shrink::shrink;
use simulation::{BUGS, Options, run};

/// Seeds without a bug in a run of CI, and in a long one.
const SEEDS: u64 = 500;
const SEEDS_LONG: u64 = 20_000;

/// What must have happened at least so often over [`SEEDS`] seeds: each kind of trouble, each answer, each way out. A
/// simulator in which nothing happens proves nothing.
const FLOORS: &[(&str, u64)] = &[
    ("commit-failed", 800),
    ("commit-retry", 800),
    ("commit-duplicate", 800),
    ("commit-cut", 500),
    ("commit-lost", 700),
    ("stall", 2_000),
    ("long-transaction", 400),
    ("crash", 700),
    ("foreign-fence", 1_500),
    ("fence-failed", 150),
    ("read-failed", 700),
    ("open-failed", 20),
    ("row-lock", 2_000),
    ("edit", 3_000),
    ("prune", 1_500),
    ("poison", 400),
    ("give-up", 500),
    ("changed-payload", 400),
    ("other-actor", 400),
    ("concurrent-repeat", 1_000),
    ("late-repeat", 400),
    ("stream", 400),
    ("open-race", 400),
    ("switch", 1_000),
    // The ways of an unclear commit.
    ("applied-and-unclear", 40),
    ("applied-late", 45),
    ("late-and-refused", 200),
    ("fence", 2_000),
    ("fence-answer-lost", 150),
    ("backend-terminated", 10),
    ("restart", 700),
    // Two batches of one process at once, and both of them unclear.
    ("two-in-flight", 1_500),
    ("two-unclear", 15),
    // What becomes of a chain.
    ("chain-held", 8_000),
    ("chain-missed", 2_500),
    ("chain-bad-data", 500),
    ("chain-contention", 300),
    ("chain-failed", 900),
    ("chain-fenced", 1_800),
    ("chain-still-unclear", 200),
    ("locked", 1_800),
    ("patient", 1_000),
    ("lock-timeout", 400),
    ("reload", 5_000),
    ("look-up", 6_000),
    ("version-check", 5_000),
    ("actor-retired", 2_500),
    // What callers are told.
    ("applied", 5_000),
    ("replayed", 800),
    ("operation-conflict", 450),
    ("outcome-expired", 40),
    ("case-not-found", 300),
    ("case-exists", 1_000),
    ("invalid-command", 400),
    ("not-assigned", 1_900),
    ("illegal-transition", 800),
    ("stale-revision", 900),
    ("overloaded", 3_000),
    ("contention", 500),
    ("unavailable", 3_000),
];

/// Of all attempts at least this part must end in an outcome.
const SUCCESS_MIN: f64 = 0.15;

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
    let seeds = seeds();
    for seed in 0..seeds {
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
    let count = |what: &str| counts.get(what).copied().unwrap_or(0);
    let mut too_few = Vec::new();
    for (what, floor) in FLOORS {
        if count(what) < floor * seeds / SEEDS {
            too_few.push(format!("{what}: {} times over {seeds} seeds, at least {floor} a {SEEDS}", count(what)));
        }
    }
    let success = (count("applied") + count("replayed")) as f64 / count("attempt") as f64;
    if success < SUCCESS_MIN {
        too_few.push(format!("{success:.3} of all attempts had an outcome, at least {SUCCESS_MIN}"));
    }
    assert!(too_few.is_empty(), "too little happened, so nothing is proved:\n{}\n", too_few.join("\n"));
}

#[test]
fn every_kind_of_trouble_has_its_floor() {
    for kind in Kind::ALL {
        assert!(FLOORS.iter().any(|(what, floor)| *what == kind.name() && *floor > 0), "{} has none", kind.name());
    }
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

#[test]
fn the_same_options_give_the_same_history() {
    let options = Options { traced: true, ..Options::new(62) };
    let (first, second) = (run(&options), run(&options));
    assert!(first.history.len() > 500, "a history of {} events shows little", first.history.len());
    assert_eq!(first.history, second.history);
    let report = run(&Options { seed: 63, ..options });
    assert_ne!(first.history, report.history);
}

#[test]
fn a_failing_seed_is_shrunk_to_a_history_that_fails_again() {
    let bug = bug_named("duplicate-from-speculation").expect("it is planted");
    let (options, _) = caught(bug, 50).expect("it is caught");
    let events = run(&options).steps;
    let shrunk = shrink(&options);
    assert!(shrunk.report.broken.is_some() && shrunk.report.steps <= events);
    assert!(shrunk.report.history.len() <= 100, "a history of {} lines is not short", shrunk.report.history.len());
    let again = run(&shrunk.options);
    assert_eq!((again.broken, again.history), (shrunk.report.broken.clone(), shrunk.report.history.clone()));
    let text = shrunk.to_text();
    let seed = format!("--seed {} ", shrunk.options.seed);
    assert!(text.contains("BROKEN") && text.contains(&seed) && text.contains("--bug duplicate-from-speculation"));
    println!("{text}");
}
