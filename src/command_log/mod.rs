//! The command log: JSON Lines, one command a line, read, run, written and proved.
//!
//! A line is `{"case_id","operation_id","actor","command","expected_revision","reason","payload","workflow","at"}`; absent and
//! `null` are one. [`parse_line`] reads one, strictly, from a file or from a client's stream. [`replay()`] runs a log
//! against a database or a server, [`export`] writes the log that gives the same database again, and [`verify()`] recomputes
//! every case from its operations.
//!
//! Owns no state: whatever happens, happens through the [`CommandGateway`](crate::actor::CommandGateway) or is read from a
//! snapshot. Fails with an error for each of the four.
//!
//! # A log replayed inside a test
//!
//! ```
//! use casework::actor::{CommandGateway, GatewayOptions, WorkflowRegistry};
//! use casework::command_log::{LogInput, LogReader, ReplayOptions, ReplayTarget, VerifyOptions, replay, verify};
//! use casework::store::Database;
//!
//! const LOG: &str = r#"
//! {"case_id":"62","operation_id":"0b9a2f52-0e0d-4a39-9a0e-3f6f5d4f8a01","actor":"intake","command":"open"}
//! {"case_id":"62","operation_id":"0b9a2f52-0e0d-4a39-9a0e-3f6f5d4f8a02","actor":"intake","command":"assign","payload":{"assignee":"47"}}
//! {"case_id":"62","operation_id":"0b9a2f52-0e0d-4a39-9a0e-3f6f5d4f8a03","actor":"47","command":"approve","expected_revision":0,"reason":"All documents reviewed."}
//! "#;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let database = Database::open(&format!("sqlite:{}", folder.path().join("casework.db").display()).parse()?)?;
//! actix_web::rt::System::new().block_on(async {
//!     database.call(|store| async move { store.schema_migrate().await }).await?;
//!     let workflows = WorkflowRegistry::open(database.clone(), vec![], None).await?;
//!     let gateway = CommandGateway::start(database.clone(), workflows, GatewayOptions::default()).await?;
//!     let target = ReplayTarget::Gateway(gateway);
//!
//!     let report = replay(LogReader::new(LogInput::from_bytes(LOG)), &target, &ReplayOptions::default(), |_| {}).await?;
//!     assert_eq!((report.lines, report.applied), (3, 3));
//!
//!     let again = replay(LogReader::new(LogInput::from_bytes(LOG)), &target, &ReplayOptions::default(), |_| {}).await?;
//!     assert_eq!((again.applied, again.replayed), (0, 3));
//!
//!     assert!(verify(&database, VerifyOptions::default()).await?.is_clean());
//!     Ok(())
//! })
//! # }
//! ```

mod expect;
mod latency;
mod line;
mod read;
mod replay;
mod stream_lines;
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
pub use stream_lines::{StreamLine, StreamLineReader};
pub use verify::{
    CaseWitness, Fault, VerifyOptions, VerifyReport, WorkflowMap, verify, verify_before, verify_snapshot,
    verify_snapshot_before,
};
pub use write::{ExportError, ExportOptions, ExportReport, export, write_line};
