//! The command log: JSON Lines, one command a line, read, run, written and proved.

mod expect;
mod latency;
mod line;
mod read;
mod replay;
mod verify;
mod write;

pub use expect::{Difference, Differences, ExpectError, Expectations};
pub use latency::LatencyHistogram;
pub use line::{LINE_BYTES_MAX, LineError, LineRules, LogLine, RECORDED_LINE_BYTES_MAX, parse_line};
pub use read::{LogInput, LogReader, NumberedLine};
pub use replay::{
    InvalidServerUrl, LineOutcome, RemoteServer, ReplayError, ReplayEvent, ReplayFault, ReplayOptions, ReplayReport,
    ReplayTarget, replay,
};
pub use verify::{Fault, VerifyOptions, VerifyReport, WorkflowMap, verify, verify_snapshot};
pub use write::{ExportError, ExportOptions, ExportReport, export, write_line};
