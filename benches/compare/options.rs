//! What the comparison is asked for on its command line, behind `cargo bench --bench compare --`.
//!
//! Owns the words and how long things take. Fails with a sentence that lists what there is.

use std::path::PathBuf;

/// What is printed for `--help`, and behind an error.
pub const USAGE: &str = "\
cargo bench --bench compare -- [OPTIONS]
  --only NAME     only rows whose name contains NAME (may be given several times); `--only list` names them
  --rounds N      rounds of each contender [3]; the median counts
  --seconds N     seconds that each run is counted [5]
  --plots DIR     measures the curves as well, and draws them into DIR
  --json FILE     writes every single figure to FILE; with --plots they go to DIR/figures.json
  --long          memory of a million cases, and speed on 10 million operations, as well
  --smoke         one short round of everything asked for: says whether it works, and nothing about speed";

/// How the comparison runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows to run; empty: all.
    pub only: Vec<String>,
    /// Rounds of each contender.
    pub rounds: usize,
    /// Seconds that a run is counted.
    pub seconds: u32,
    /// Where the plots go.
    pub plots: Option<PathBuf>,
    /// Where the figures go.
    pub json: Option<PathBuf>,
    /// Whether the long rows are run.
    pub long: bool,
    /// Whether this is only a test of the comparison itself.
    pub smoke: bool,
}

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    /// What is wrong with them, as a sentence.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let (only, plots, json) = (Vec::new(), None, None);
        let mut options = Self { only, rounds: 3, seconds: 5, plots, json, long: false, smoke: false };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                // What cargo adds.
                "--bench" | "--test" => {}
                "--only" => options.only.push(value()?),
                "--rounds" => options.rounds = number(&value()?)?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--plots" => options.plots = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--long" => options.long = true,
                "--smoke" => options.smoke = true,
                other => return Err(format!("there is no option {other}")),
            }
        }
        if options.smoke {
            (options.rounds, options.seconds) = (1, 2);
        }
        if options.rounds == 0 || options.seconds == 0 {
            return Err("a comparison has at least one round of one second".into());
        }
        Ok(options)
    }

    /// Whether a row of this name is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// Seconds before answers count: connections are open then, statements prepared, caches warm.
    pub fn warm_up_seconds(&self) -> f64 {
        if self.smoke { 0.3 } else { 1.0 }
    }

    /// So many cases the load goes over.
    pub fn cases(&self) -> u32 {
        if self.smoke { 1_000 } else { 10_000 }
    }

    /// The variants of a contender that are run; a smoke test takes the first one alone.
    pub fn variants<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        if self.smoke { &all[..1] } else { all }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}
