//! What a scenario did, counted, and the floors below which it proves nothing.
//!
//! Owns the table at the end of each scenario. A fault is counted by who saw that it happened, never by who asked for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::support::server::ServerProcess;
use crate::traffic::{Counted, Counts};

/// A command to every case succeeds this soon after a fault's end.
pub const RECOVERED_WITHIN: Duration = Duration::from_secs(10);

/// Of a hundred commands, at least so many must be settled while the load goes on, and applied.
const SETTLED_PERCENT_MIN: u64 = 80;
const APPLIED_PERCENT_MIN: u64 = 15;

/// Memory and descriptors of a server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub rss_kib: u64,
    pub descriptors: usize,
}

impl Usage {
    /// Of this process now; `None` when it is gone.
    pub fn of(server: &ServerProcess) -> Option<Self> {
        let folder = format!("/proc/{}", server.pid());
        let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(Self {
            rss_kib: rss.trim().trim_end_matches(" kB").parse().ok()?,
            descriptors: std::fs::read_dir(format!("{folder}/fd")).ok()?.count(),
        })
    }
}

/// Faults that happened and what came after them.
#[derive(Debug, Default)]
pub struct Totals {
    fired: BTreeMap<&'static str, u64>,
    recoveries: BTreeMap<&'static str, Vec<Duration>>,
    facts: Vec<String>,
}

impl Totals {
    /// A fault happened: somebody saw it.
    pub fn fired(&mut self, kind: &'static str) {
        *self.fired.entry(kind).or_default() += 1;
    }

    /// After a fault's end it took so long until a command to every case had succeeded.
    pub fn recovered(&mut self, kind: &'static str, took: Duration) {
        self.recoveries.entry(kind).or_default().push(took);
    }

    /// One more line for the table.
    pub fn fact(&mut self, line: String) {
        self.facts.push(line);
    }

    /// How often each kind happened.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.fired.iter().map(|(kind, count)| (*kind, *count))
    }

    /// The table.
    pub fn table(&self, name: &str, counted: &Counted, attempts: u64, took: Duration, usage: &[[Usage; 2]]) -> String {
        let mut table = String::new();
        let seconds = took.as_secs_f64();
        let mut row = |what: &str, value: String| writeln!(table, "  {what:<28} {value}").expect("text grows");
        let counts = &counted.counts;
        let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        row("took", format!("{seconds:.1} s"));
        row("commands, attempts", format!("{}, {attempts}", number(&counts.commands)));
        row("settled, newly applied", format!("{}, {}", number(&counts.settled), number(&counts.applied)));
        row(
            "unclear for a client",
            format!("{}, of them given up {}", number(&counts.unclear), number(&counts.abandoned)),
        );
        row(
            "unclear, and then",
            format!(
                "{} had been applied, {} applied later, {} rejected",
                number(&counts.unclear_replayed),
                number(&counts.unclear_applied),
                number(&counts.unclear_rejected)
            ),
        );
        for (what, count) in &counted.answers {
            row(&format!("  {what}"), count.to_string());
        }
        for (kind, count) in &self.fired {
            row(&format!("fault {kind}"), count.to_string());
        }
        for (kind, times) in &self.recoveries {
            let (slowest, count) = (times.iter().max().expect("there is one"), times.len());
            let mean = times.iter().sum::<Duration>() / count as u32;
            row(&format!("recovery {kind}"), format!("mean {mean:.1?}, slowest {slowest:.1?} of {count}"));
        }
        for (node, [before, after]) in usage.iter().enumerate() {
            row(
                &format!("process {node}"),
                format!(
                    "{} -> {} MiB, {} -> {} descriptors",
                    before.rss_kib / 1024,
                    after.rss_kib / 1024,
                    before.descriptors,
                    after.descriptors
                ),
            );
        }
        for fact in &self.facts {
            row("", fact.clone());
        }
        format!("--- {name}\n{table}")
    }

    /// A scenario in which too little happened proves nothing.
    ///
    /// # Panics
    /// When a fault did not happen as often as it should, or too few commands were settled or applied.
    pub fn check_floors(&self, counts: &Counts, commands_min: u64, faults_min: &[(&str, u64)]) {
        let (commands, settled, applied) =
            (counts.commands.load(Relaxed), counts.settled.load(Relaxed), counts.applied.load(Relaxed));
        assert!(commands >= commands_min, "{commands} commands are too few");
        assert!(settled * 100 >= commands * SETTLED_PERCENT_MIN, "only {settled} of {commands} commands were settled");
        assert!(applied * 100 >= commands * APPLIED_PERCENT_MIN, "only {applied} of {commands} commands were applied");
        assert!(!faults_min.is_empty(), "a scenario names the faults that it is about");
        for (kind, min) in faults_min {
            let count = self.fired.get(kind).copied().unwrap_or(0);
            assert!(count >= *min, "the fault {kind} happened {count} times, and should at least {min} times");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floors of a run with so many of 100 commands settled and applied, and one fault.
    fn check(settled: u64, applied: u64) {
        let counts =
            Counts { commands: 100.into(), settled: settled.into(), applied: applied.into(), ..Counts::default() };
        let mut totals = Totals::default();
        totals.fired("kill-process");
        totals.check_floors(&counts, 100, &[("kill-process", 1)]);
    }

    #[test]
    fn a_run_in_which_enough_happened_passes() {
        check(100, 50);
    }

    #[test]
    #[should_panic(expected = "only 10 of 100 commands were settled")]
    fn a_run_that_settles_little_fails() {
        check(10, 10);
    }

    #[test]
    #[should_panic(expected = "only 3 of 100 commands were applied")]
    fn a_run_that_applies_little_fails() {
        check(100, 3);
    }

    #[test]
    #[should_panic(expected = "the fault stop-process happened 0 times")]
    fn a_run_without_its_fault_fails() {
        let counts = Counts { commands: 1.into(), settled: 1.into(), applied: 1.into(), ..Counts::default() };
        Totals::default().check_floors(&counts, 1, &[("stop-process", 1)]);
    }

    #[test]
    #[should_panic(expected = "0 commands are too few")]
    fn a_run_in_which_nothing_was_sent_fails() {
        Totals::default().check_floors(&Counts::default(), 1, &[("stop-process", 1)]);
    }
}
