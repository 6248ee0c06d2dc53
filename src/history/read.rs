//! Reading a history from a file, line by line.
//!
//! Owns the counting of lines and the bound on one. Keeps one line at a time. Fails with [`HistoryError`], which names the
//! line: a history that can't be read whole proves nothing.

use std::io::{self, BufRead as _, Read as _};

use super::event::{EventError, parse_event};
use super::ledger::{History, HistoryBuilder, HistoryFault};
use crate::command_log::LogInput;

/// The longest line, in bytes: a command, or an outcome written as a JSON string, with room for both.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Why a history can't be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The input failed.
    #[error("the history can't be read behind line {line}: {error}")]
    Input {
        /// The last line that was read.
        line: u64,
        /// The system's words.
        error: io::Error,
    },
    /// A line is no event.
    #[error("line {line}: {error}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        error: EventError,
    },
    /// A line contradicts an earlier one.
    #[error("line {line}: {fault}")]
    Contradiction {
        /// The line, from 1.
        line: u64,
        /// How.
        fault: HistoryFault,
    },
    /// The lines do not make a history.
    #[error("{0}")]
    Whole(#[from] HistoryFault),
}

impl History {
    /// Reads a history; packed ones are recognised. Empty lines are skipped. `on_line` is told the number of each line.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn read(input: LogInput, mut on_line: impl FnMut(u64)) -> Result<Self, HistoryError> {
        let mut text = input.into_text();
        let mut builder = HistoryBuilder::default();
        let mut buffer = Vec::new();
        for line in 1.. {
            buffer.clear();
            let failed = |error| HistoryError::Input { line: line - 1, error };
            if text.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut buffer).map_err(failed)? == 0 {
                break;
            }
            on_line(line);
            if buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let event = parse_event(&buffer).map_err(|error| HistoryError::Line { line, error })?;
            builder.take(event).map_err(|fault| HistoryError::Contradiction { line, fault })?;
        }
        Ok(builder.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVOKE: &str = r#"{"event":"invoke","attempt":1,"at_us":5,"client":"a","command":{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11","actor":"47","command":"note","reason":"Called."}}"#;

    fn read(lines: &[&str]) -> Result<History, String> {
        History::read(LogInput::from_bytes(lines.join("\n")), |_| {}).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_come_in_any_order_of_time() {
        let reply = r#"{"event":"reply","attempt":1,"at_us":9,"status":503,"problem":{"code":"unavailable"}}"#;
        let fault = r#"{"event":"fault","at_us":7,"kind":"kill-process","detail":"node 2"}"#;
        let history = read(&[reply, fault, "", INVOKE]).expect("a history");
        let attempt = history.attempts()[0];
        assert_eq!((attempt.number, attempt.began, attempt.ended), (1, 5, 9));
        assert_eq!(history.faults["kill-process"], 1);
    }

    #[test]
    fn a_history_that_contradicts_itself_is_refused() {
        let unknown = r#"{"event":"unknown","attempt":1,"at_us":9,"why":"x"}"#;
        let early = r#"{"event":"unknown","attempt":1,"at_us":4,"why":"x"}"#;
        for (lines, expected) in [
            (&[INVOKE, INVOKE][..], "line 2: attempt 1 is invoked twice"),
            (&[INVOKE, unknown, unknown], "line 3: attempt 1 ends twice"),
            (&[unknown], "no line says that it was invoked"),
            (&[INVOKE, early], "ends before it is invoked"),
            (&[], "holds no attempt"),
            (&[INVOKE, "", "{"], "line 3: EOF"),
        ] {
            let error = read(lines).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
