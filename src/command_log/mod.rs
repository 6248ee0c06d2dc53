//! The command log: JSON Lines, one command a line, read, run, written and proved.

mod line;

pub use line::{LINE_BYTES_MAX, LineError, LineRules, LogLine, parse_line};
