//! Writing a command log: `export`.
//!
//! Owns the one way in which a line is written: all nine members in the order of DESIGN section 6, `null` for an absent
//! one, the payload in canonical JSON. The same history gives the same bytes, whichever database holds it. Reads one
//! snapshot in pages, never the whole history at once; never writes to the database. Fails with [`ExportError`].

use std::io::{self, Write};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::domain::{
    ActorId, CaseId, Command, CommandName, InvalidCommand, Operation, OperationId, Timestamp, Version, canonical,
    parse_strict,
};
use crate::store::{Database, Snapshot, StoreError};

/// Operations that are read at once.
const PAGE_OPERATIONS: usize = 1_000;
/// Pages that may wait for a slow reader of the output.
const PAGES_WAITING_MAX: usize = 2;

/// What an export may leave out.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportOptions {
    /// Leave out operations whose request was pruned, and count them. Otherwise such a history is refused: its log would
    /// not give the same cases.
    pub allow_pruned: bool,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Lines, one an operation.
    pub lines: u64,
    /// Operations left out because they are pruned.
    pub pruned: u64,
}

/// Why an export ended early. What was written until then is a log of whole lines.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A request was pruned.
    #[error(
        "the history of case `{case_id}` is pruned at version {version}, so its log would be incomplete; leave pruned \
         operations out with --allow-pruned"
    )]
    Pruned {
        /// The case.
        case_id: CaseId,
        /// The operation's version.
        version: Version,
    },
    /// A recorded request is not one that Casework writes.
    #[error("version {version} of case `{case_id}` can't be written as a log line: {reason}; run `casework verify`")]
    Unreadable {
        /// The case.
        case_id: CaseId,
        /// The operation's version.
        version: Version,
        /// What is wrong with it.
        reason: InvalidCommand,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output failed.
    #[error("the log can't be written: {0}")]
    Output(io::Error),
}

/// Writes the history of all cases, ordered by case id (bytes) and version.
///
/// # Errors
/// [`ExportError`].
pub async fn export(
    database: &Database,
    output: &mut impl Write,
    options: ExportOptions,
) -> Result<ExportReport, ExportError> {
    let (pages, mut written) = mpsc::channel::<Result<Page, ExportError>>(PAGES_WAITING_MAX);
    let store = database.store().clone();
    // The scan lives on the database's runtime; writing, which may block, stays with the caller.
    database.spawn(async move {
        let outcome = match store.snapshot().await {
            Ok(mut snapshot) => write_pages(snapshot.as_mut(), options, &pages).await,
            Err(error) => Err(ExportError::Store(error)),
        };
        if let Err(error) = outcome {
            // Whoever stopped listening does not want to know.
            let _ = pages.send(Err(error)).await;
        }
    });
    let mut report = ExportReport::default();
    loop {
        let page = written.recv().await.unwrap_or_else(|| Err(interrupted()))?;
        if page.is_end {
            break;
        }
        output.write_all(&page.text).map_err(ExportError::Output)?;
        report.lines += page.lines;
        report.pruned += page.pruned;
    }
    output.flush().map_err(ExportError::Output)?;
    Ok(report)
}

/// A log that ends without its last page is not a shorter log.
fn interrupted() -> ExportError {
    let reason = "the scan ended before its last page".into();
    ExportError::Store(StoreError::Unavailable { during: "reading the history", reason })
}

#[derive(Default)]
struct Page {
    text: Vec<u8>,
    lines: u64,
    pruned: u64,
    is_end: bool,
}

async fn write_pages(
    snapshot: &mut dyn Snapshot,
    options: ExportOptions,
    pages: &mpsc::Sender<Result<Page, ExportError>>,
) -> Result<(), ExportError> {
    let mut after: Option<(CaseId, Version)> = None;
    loop {
        let key = after.as_ref().map(|(case_id, version)| (case_id, *version));
        let operations = snapshot.operation_scan(key, PAGE_OPERATIONS).await?;
        let Some(last) = operations.last() else {
            let _ = pages.send(Ok(Page { is_end: true, ..Page::default() })).await;
            return Ok(());
        };
        after = Some((last.case_id.clone(), last.version));
        let mut page = Page::default();
        let mut failure = None;
        for operation in &operations {
            if let Err(error) = write_operation(operation, options, &mut page) {
                failure = Some(error);
                break;
            }
        }
        // A closed channel means that nobody reads the log any more.
        if pages.send(Ok(page)).await.is_err() {
            return Ok(());
        }
        if let Some(error) = failure {
            return Err(error);
        }
    }
}

fn write_operation(operation: &Operation, options: ExportOptions, page: &mut Page) -> Result<(), ExportError> {
    let (case_id, version) = (operation.case_id.clone(), operation.version);
    match Command::from_operation(operation) {
        Ok(Some(command)) => {
            write_line(&mut page.text, &command, Some(operation.recorded_at));
            page.text.push(b'\n');
            page.lines += 1;
        }
        Ok(None) if options.allow_pruned => page.pruned += 1,
        Ok(None) => return Err(ExportError::Pruned { case_id, version }),
        Err(reason) => return Err(ExportError::Unreadable { case_id, version, reason }),
    }
    Ok(())
}

/// Appends the line of a command, without a line feed.
pub fn write_line(line: &mut Vec<u8>, command: &Command, at: Option<Timestamp>) {
    let request = parse_strict(command.request().as_bytes()).expect("a command's request is canonical JSON");
    let member = |name: &str| match &request {
        // The request of an `edit` is its payload; it has nothing else.
        payload if command.digest().is_none() => {
            if name == "payload" {
                canonical(payload)
            } else {
                "null".into()
            }
        }
        request => canonical(request.get(name).unwrap_or(&Value::Null)),
    };
    let text = |text: &str| canonical(&Value::from(text));
    let (case_id, operation_id): (&CaseId, OperationId) = (command.case_id(), command.operation_id());
    let (actor, name): (&ActorId, &CommandName) = (command.actor(), command.name());
    let members = [
        ("case_id", text(case_id.as_str())),
        ("operation_id", text(&operation_id.to_string())),
        ("actor", text(actor.as_str())),
        ("command", text(name.as_str())),
        ("expected_revision", member("expected_revision")),
        ("reason", member("reason")),
        ("payload", member("payload")),
        ("workflow", member("workflow")),
        ("at", at.map_or_else(|| "null".into(), |at| text(&at.to_string()))),
    ];
    for (i, (name, value)) in members.iter().enumerate() {
        line.extend_from_slice(if i == 0 { b"{\"" } else { b",\"" });
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\":");
        line.extend_from_slice(value.as_bytes());
    }
    line.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::super::{LineRules, parse_line};
    use super::*;

    fn rewritten(line: &str) -> String {
        let read = parse_line(line.as_bytes(), LineRules::RECORDED).expect(line);
        let mut out = Vec::new();
        write_line(&mut out, &read.command, read.at);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn a_line_is_written_whole_in_one_order_and_stays_as_it_is() {
        let written = rewritten(
            r#"{"at":"2010-10-02T07:20:39.266Z","payload":{"b":"\u00e9","a":26.85120450862128},"actor":"47","command":"open","case_id":"ä \"6\"","operation_id":"B771B053-7056-539F-A472-768709E96733"}"#,
        );
        assert_eq!(
            written,
            r#"{"case_id":"ä \"6\"","operation_id":"b771b053-7056-539f-a472-768709e96733","actor":"47","command":"open","expected_revision":null,"reason":null,"payload":{"a":26.85120450862128,"b":"é"},"workflow":null,"at":"2010-10-02T07:20:39.266000Z"}"#
        );
        assert_eq!(rewritten(&written), written);
    }

    #[test]
    fn an_edit_is_written_with_its_payload_in_canonical_form() {
        let written = rewritten(
            r#"{"case_id":"62","operation_id":"b771b053-7056-539f-a472-768709e96733","actor":"sql:postgres","command":"edit","payload":{"table": "assignments", "insert": "81", "delete": "47"}}"#,
        );
        assert_eq!(
            written,
            r#"{"case_id":"62","operation_id":"b771b053-7056-539f-a472-768709e96733","actor":"sql:postgres","command":"edit","expected_revision":null,"reason":null,"payload":{"delete":"47","insert":"81","table":"assignments"},"workflow":null,"at":null}"#
        );
        assert_eq!(rewritten(&written), written);
    }
}
