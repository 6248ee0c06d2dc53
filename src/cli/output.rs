//! What is printed, and how: tables for people, plain columns for pipes, JSON for programs.
//!
//! Never panics on a closed pipe: every write returns its error.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints a line to standard output.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a message to standard error. A closed one is nobody's loss.
pub(super) fn message(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints one JSON document to standard output.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(serde_json::to_string(value)?)?)
}

/// A table: with lines on a terminal, in columns otherwise.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    if io::stdout().is_terminal() {
        table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    }
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// Right-aligns a column.
pub(super) fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A latency in milliseconds, to the microsecond.
pub(super) fn milliseconds(latency: Duration) -> f64 {
    (latency.as_secs_f64() * 1e6).round() / 1e3
}

/// A count with commas between thousands.
pub(super) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_separated() {
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(super::thousands(count), text);
        }
    }
}
