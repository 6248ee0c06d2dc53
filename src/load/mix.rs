//! Which command comes next.
//!
//! Owns the cases of a run, and the outcomes that repeats must get again. Never sends.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use uuid::Uuid;

/// How many commands a repeat is chosen from.
const REPEATABLE_MAX: usize = 10_000;
/// Of a hundred commands of [`Mix::Storm`], so many are repeats.
const STORM_REPEATS_PERCENT: u32 = 5;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// New commands over all cases.
    Spread,
    /// New commands to one case.
    Hot,
    /// Repeats of commands whose outcomes are stored.
    Replay,
    /// New commands over all cases, 5 % of them repeats.
    Storm,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Spread, Self::Hot, Self::Replay, Self::Storm];

    fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Hot => "hot",
            Self::Replay => "replay",
            Self::Storm => "storm",
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mix| mix.name() == text)
            .ok_or_else(|| "a mix is one of spread, hot, replay and storm".into())
    }
}

/// A command, and what must come of it.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// The case, by its number.
    pub(super) case: usize,
    /// `open` or `note`.
    pub(super) command: &'static str,
    pub(super) operation_id: Uuid,
    /// The outcome that a repeat must get; `None`: it is new.
    pub(super) expected: Option<Bytes>,
}

impl Planned {
    /// The JSON object that is sent.
    pub(super) fn body(&self) -> &'static str {
        if self.command == "open" { "{}" } else { r#"{"reason":"All documents reviewed."}"# }
    }
}

/// A command that was applied.
struct Applied {
    case: usize,
    operation_id: Uuid,
    outcome: Bytes,
}

/// The commands of one run.
pub(super) struct Generator {
    mix: Mix,
    /// Part of every case id, so that each run has cases of its own.
    run: String,
    cases: usize,
    applied: RefCell<Vec<Applied>>,
}

impl Generator {
    pub(super) fn new(mix: Mix, cases: usize) -> Self {
        let run = Uuid::new_v4().simple().to_string()[..12].to_owned();
        Self { mix, run, cases: if mix == Mix::Hot { 1 } else { cases }, applied: RefCell::default() }
    }

    /// The id of a case.
    pub(super) fn case_id(&self, case: usize) -> String {
        format!("load-{}-{case}", self.run)
    }

    /// What opens the cases.
    pub(super) fn opens(&self) -> impl Iterator<Item = Planned> {
        (0..self.cases).map(|case| self.new_command(case, "open"))
    }

    /// What must be applied before the mix can repeat it.
    pub(super) fn first_sendings(&self) -> impl Iterator<Item = Planned> {
        let count = match self.mix {
            Mix::Replay => REPEATABLE_MAX,
            Mix::Storm => REPEATABLE_MAX / 10,
            Mix::Spread | Mix::Hot => 0,
        };
        (0..count).map(|number| self.new_command(number % self.cases, "note"))
    }

    /// The next command.
    pub(super) fn next(&self) -> Planned {
        let repeats_percent = match self.mix {
            Mix::Replay => 100,
            Mix::Storm => STORM_REPEATS_PERCENT,
            Mix::Spread | Mix::Hot => 0,
        };
        let applied = self.applied.borrow();
        if !applied.is_empty() && rand::random_range(0..100) < repeats_percent {
            let Applied { case, operation_id, outcome } = &applied[rand::random_range(0..applied.len())];
            let expected = Some(outcome.clone());
            return Planned { case: *case, command: "note", operation_id: *operation_id, expected };
        }
        self.new_command(rand::random_range(0..self.cases), "note")
    }

    /// A new command was applied.
    pub(super) fn note_outcome(&self, planned: &Planned, outcome: Bytes) {
        if planned.command != "note" || !matches!(self.mix, Mix::Replay | Mix::Storm) {
            return;
        }
        let mut applied = self.applied.borrow_mut();
        let entry = Applied { case: planned.case, operation_id: planned.operation_id, outcome };
        if applied.len() < REPEATABLE_MAX {
            applied.push(entry);
        } else {
            let place = rand::random_range(0..REPEATABLE_MAX);
            applied[place] = entry;
        }
    }

    fn new_command(&self, case: usize, command: &'static str) -> Planned {
        Planned { case, command, operation_id: Uuid::new_v4(), expected: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_repeats_as_much_as_it_says() {
        for (mix, least, most) in
            [(Mix::Spread, 0, 0), (Mix::Hot, 0, 0), (Mix::Replay, 10_000, 10_000), (Mix::Storm, 300, 700)]
        {
            assert_eq!(mix.to_string().parse(), Ok(mix));
            let generator = Generator::new(mix, 100);
            for planned in generator.opens().chain(generator.first_sendings()) {
                generator.note_outcome(&planned, Bytes::from_static(b"{}"));
            }
            generator.note_outcome(&generator.new_command(0, "note"), Bytes::from_static(b"{}"));
            let planned: Vec<Planned> = (0..10_000).map(|_| generator.next()).collect();
            let repeats = planned.iter().filter(|planned| planned.expected.is_some()).count();
            assert!((least..=most).contains(&repeats), "{mix}: {repeats} repeats");
            let cases: std::collections::HashSet<usize> = planned.iter().map(|planned| planned.case).collect();
            assert_eq!(cases.len(), if mix == Mix::Hot { 1 } else { 100 }, "{mix}");
        }
    }
}
