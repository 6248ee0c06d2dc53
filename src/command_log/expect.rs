//! What should come of each line, and where it did not.
//!
//! Owns the reading of a table of expected outcomes (TSV with a header; columns `line` and `outcome`, others ignored) and
//! the comparison. Never keeps more than the first ten differences. Fails with [`ExpectError`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use super::read::LogInput;

/// Differences that are named; the others are counted.
const DIFFERENCES_NAMED: usize = 10;

/// Why a table of expected outcomes is refused.
#[derive(Debug, thiserror::Error)]
pub enum ExpectError {
    /// It can't be read.
    #[error("the expected outcomes can't be read: {0}")]
    Input(#[from] io::Error),
    /// It has no such column.
    #[error("the expected outcomes have no column `{0}` in their first line; give a header with `line` and `outcome`")]
    NoColumn(&'static str),
    /// A row makes no sense.
    #[error("row {row} of the expected outcomes: {reason}")]
    Row {
        /// Counted from 1, the header among them.
        row: u64,
        /// What is wrong.
        reason: String,
    },
}

/// One line that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The line of the log.
    pub line: u64,
    /// What the table says; `None`: nothing.
    pub expected: Option<Arc<str>>,
    /// What came; `None`: the log has no such line.
    pub actual: Option<Arc<str>>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.expected, &self.actual) {
            (Some(expected), Some(actual)) => write!(f, "line {}: expected {expected}, got {actual}", self.line),
            (Some(expected), None) => write!(f, "line {}: expected {expected}, but it was not run", self.line),
            (None, Some(actual)) => write!(f, "line {}: got {actual}, and nothing was expected", self.line),
            (None, None) => write!(f, "line {}", self.line),
        }
    }
}

/// The differences of a whole log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// How many there are.
    pub total: u64,
    /// The first ten, by line.
    pub first: Vec<Difference>,
}

/// The expected outcomes, compared as lines come out, in any order.
#[derive(Debug, Default)]
pub struct Expectations {
    expected: HashMap<u64, Arc<str>>,
    total: u64,
    first: BTreeMap<u64, Difference>,
}

impl Expectations {
    /// Reads a table.
    ///
    /// # Errors
    /// [`ExpectError`].
    pub fn read(input: LogInput) -> Result<Self, ExpectError> {
        let mut rows = input.into_text().lines();
        let header = rows.next().transpose()?.unwrap_or_default();
        let header = header.trim_start_matches('\u{feff}').trim_end_matches('\r').to_owned();
        let column = |name: &'static str| {
            header.split('\t').position(|column| column == name).ok_or(ExpectError::NoColumn(name))
        };
        let (line_column, outcome_column) = (column("line")?, column("outcome")?);
        let mut outcomes = BTreeSet::<Arc<str>>::new();
        let mut expected = HashMap::new();
        for (row, text) in (2..).zip(rows) {
            let text = text?;
            let text = text.trim_end_matches('\r');
            if text.is_empty() {
                continue;
            }
            let wrong = |reason: String| ExpectError::Row { row, reason };
            let cells: Vec<_> = text.split('\t').collect();
            let cell = |column: usize| cells.get(column).copied().filter(|cell| !cell.is_empty());
            let line = cell(line_column).and_then(|cell| cell.parse::<u64>().ok()).filter(|line| *line > 0);
            let line = line.ok_or_else(|| wrong("`line` must be a number from 1".into()))?;
            let outcome = cell(outcome_column).ok_or_else(|| wrong("`outcome` is empty".into()))?;
            let outcome = outcomes.get(outcome).cloned().unwrap_or_else(|| Arc::from(outcome));
            outcomes.insert(outcome.clone());
            if expected.insert(line, outcome).is_some() {
                return Err(wrong(format!("line {line} stands twice; remove one")));
            }
        }
        Ok(Self { expected, ..Self::default() })
    }

    /// Compares what came of a line.
    pub fn compare(&mut self, line: u64, outcome: &str) {
        let expected = self.expected.remove(&line);
        if expected.as_deref() != Some(outcome) {
            self.note(Difference { line, expected, actual: Some(outcome.into()) });
        }
    }

    /// Adds what was expected and did not come.
    pub fn finish(mut self) -> Differences {
        for (line, expected) in std::mem::take(&mut self.expected) {
            self.note(Difference { line, expected: Some(expected), actual: None });
        }
        Differences { total: self.total, first: self.first.into_values().collect() }
    }

    fn note(&mut self, difference: Difference) {
        self.total += 1;
        self.first.insert(difference.line, difference);
        if self.first.len() > DIFFERENCES_NAMED {
            self.first.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &'static str) -> Result<Expectations, ExpectError> {
        Expectations::read(LogInput::from_bytes(table))
    }

    #[test]
    fn columns_are_found_by_name_and_others_are_ignored() {
        let mut table = read("refers_to\toutcome\tline\n\tapplied\t1\r\n1\treplayed\t2\n\n").expect("valid");
        table.compare(2, "replayed");
        table.compare(1, "applied");
        assert_eq!(table.finish(), Differences::default());
    }

    #[test]
    fn a_difference_and_a_line_missing_on_either_side_are_named_in_order() {
        let mut table = read("line\toutcome\n1\tapplied\n2\tapplied\n3\tapplied\n").expect("valid");
        table.compare(4, "applied");
        table.compare(2, "stale-revision");
        table.compare(1, "applied");
        let differences = table.finish();
        let sentences: Vec<_> = differences.first.iter().map(ToString::to_string).collect();
        assert_eq!(
            (differences.total, sentences),
            (
                3,
                vec![
                    "line 2: expected applied, got stale-revision".to_owned(),
                    "line 3: expected applied, but it was not run".to_owned(),
                    "line 4: got applied, and nothing was expected".to_owned(),
                ]
            )
        );
    }

    #[test]
    fn the_first_ten_are_named_and_all_are_counted() {
        let mut table = Expectations::default();
        for line in (1..=25).rev() {
            table.compare(line, "applied");
        }
        let differences = table.finish();
        assert_eq!(differences.total, 25);
        assert_eq!(
            differences.first.iter().map(|difference| difference.line).collect::<Vec<_>>(),
            (1..=10).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_with_its_row() {
        assert!(matches!(read(""), Err(ExpectError::NoColumn("line"))));
        assert!(matches!(read("line\tresult\n"), Err(ExpectError::NoColumn("outcome"))));
        for bad in ["line\toutcome\n0\tapplied\n", "line\toutcome\n1\n", "line\toutcome\n1\t\n"] {
            assert!(matches!(read(bad), Err(ExpectError::Row { row: 2, .. })), "{bad}");
        }
        assert!(matches!(read("line\toutcome\n1\ta\n1\ta\n"), Err(ExpectError::Row { row: 3, .. })));
    }
}
