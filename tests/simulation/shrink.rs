//! The shortest history of a failure that can be found in a few hundred tries.
//!
//! Owns the search: fewer events first, then fewer kinds of trouble and fewer clients, and a few seeds beside the one that
//! failed, because without the noise another one may fail sooner. Any broken promise counts as the failure.

use super::options::{Kind, Options};
use super::world::{Report, run};

/// Simulations that a search may run.
const TRIES_MAX: usize = 600;
/// Seeds that are tried beside the first.
const SEEDS: u64 = 8;

/// A failure, and how to see it again.
#[derive(Debug)]
pub struct Shrunk {
    /// What to run.
    pub options: Options,
    /// What it does, with its history.
    pub report: Report,
}

impl Shrunk {
    /// What broke, the history one event a line, and the command that runs it again.
    pub fn to_text(&self) -> String {
        let broken = self.report.broken.as_deref().unwrap_or("nothing is broken");
        let history = self.report.history.join("\n");
        format!("{history}\n\n{broken}\n\nRun it again:\n  {}\n", self.options.command())
    }
}

/// Searches from options that fail.
pub fn shrink(options: &Options) -> Shrunk {
    let mut search = Search { best: options.clone(), length: usize::MAX, tries: 0 };
    search.keep_if_shorter(options.clone());
    search.fewer_steps();
    loop {
        let before = search.length;
        search.fewer_kinds();
        search.fewer_clients();
        search.other_seeds();
        search.fewer_steps();
        if search.length >= before || search.tries >= TRIES_MAX {
            break;
        }
    }
    let options = Options { traced: true, ..search.best };
    let report = run(&options);
    Shrunk { options, report }
}

struct Search {
    best: Options,
    /// Events of the best history.
    length: usize,
    tries: usize,
}

impl Search {
    fn keep_if_shorter(&mut self, options: Options) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        let report = run(&Options { traced: false, ..options.clone() });
        let is_shorter = report.broken.is_some() && report.steps < self.length;
        if is_shorter {
            (self.best, self.length) = (options, report.steps);
        }
        is_shorter
    }

    fn fewer_steps(&mut self) {
        let mut low = 0;
        while low + 1 < self.best.steps.min(self.length) {
            let steps = low + (self.best.steps.min(self.length) - low) / 2;
            if !self.keep_if_shorter(Options { steps, ..self.best.clone() }) {
                low = steps;
            }
            if self.tries >= TRIES_MAX {
                return;
            }
        }
    }

    fn fewer_kinds(&mut self) {
        for kind in Kind::ALL {
            let mut options = self.best.clone();
            if !options.without.insert(*kind) {
                continue;
            }
            // Without a kind of trouble everything goes another way, so a few ways are tried.
            let _shorter = (0..5).any(|n| self.keep_if_shorter(Options { seed: options.seed + n, ..options.clone() }));
        }
    }

    fn fewer_clients(&mut self) {
        while self.best.clients > 1
            && self.keep_if_shorter(Options { clients: self.best.clients - 1, ..self.best.clone() })
        {}
    }

    fn other_seeds(&mut self) {
        let first = self.best.seed;
        for seed in first + 1..=first + SEEDS {
            self.keep_if_shorter(Options { seed, ..self.best.clone() });
        }
    }
}
