//! The command log: JSON Lines, one command a line, read, run, written and proved.

mod line;
mod read;
mod write;

pub use line::{LINE_BYTES_MAX, LineError, LineRules, LogLine, RECORDED_LINE_BYTES_MAX, parse_line};
pub use read::{LogInput, LogReader, NumberedLine};
pub use write::{ExportError, ExportOptions, ExportReport, export, write_line};
