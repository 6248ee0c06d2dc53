//! What an answer promises about the attempt that it ends.
//!
//! Owns the classes of problem codes. A code that is not known promises nothing.

use super::event::ReplyProblem;
use super::ledger::{Attempt, End, History, OutcomeHash};

/// Codes of rejections that were decided on a state of the case.
const DECIDED: &[&str] =
    &["case-not-found", "case-exists", "invalid-command", "not-assigned", "illegal-transition", "stale-revision"];
/// Codes that speak of the operation under the id.
const KNOWN: &[&str] = &["operation-conflict", "outcome-expired"];
/// Codes of which the answer itself says that nothing was recorded: refused before or without being decided.
const NOT_RECORDED: &[&str] = &[
    "malformed-json",
    "operation-id-missing",
    "operation-id-invalid",
    "unauthenticated",
    "forbidden",
    "not-found",
    "method-not-allowed",
    "request-timeout",
    "too-large",
    "unsupported-media-type",
    "overloaded",
    "draining",
    "contention",
    "internal",
];

/// What is known of an attempt from its end alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning<'a> {
    /// It, or an earlier attempt, was applied.
    Acknowledged { status: u16, replayed: bool, hash: OutcomeHash, version: i64 },
    /// Another command, or a pruned one, was applied under the id.
    Known(&'a ReplyProblem),
    /// The case, as it stood, does not allow it.
    Decided(&'a ReplyProblem),
    /// It was not applied, whatever the case.
    NotRecorded,
    /// It may have been applied, or be applied yet.
    Unclear,
}

/// Reads an attempt's end.
pub(super) fn meaning<'a>(history: &'a History, attempt: &Attempt) -> Meaning<'a> {
    let problem = match attempt.end {
        End::Outcome { status, replayed, hash, version } => {
            return Meaning::Acknowledged { status, replayed, hash, version };
        }
        End::Open | End::Unknown => return Meaning::Unclear,
        End::Problem(number) => history.problem(number),
    };
    let code = problem.code.as_str();
    if KNOWN.contains(&code) {
        return Meaning::Known(problem);
    }
    if DECIDED.contains(&code) {
        // A server that has not met the workflow that an `open` names says so whatever the case.
        let names_workflow = history.names_workflow(history.request(attempt));
        let is_free = code == "invalid-command" && names_workflow;
        return if is_free { Meaning::NotRecorded } else { Meaning::Decided(problem) };
    }
    if NOT_RECORDED.contains(&code) { Meaning::NotRecorded } else { Meaning::Unclear }
}

/// How an attempt is counted in a report.
pub(super) fn answer_name<'a>(history: &'a History, attempt: &Attempt) -> &'a str {
    match attempt.end {
        End::Open | End::Unknown => "unknown",
        End::Outcome { replayed: true, .. } => "replayed",
        End::Outcome { .. } => "applied",
        End::Problem(number) => &history.problem(number).code,
    }
}
