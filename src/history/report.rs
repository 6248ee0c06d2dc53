//! What a check looked at, and which promises are broken.
//!
//! Owns the sentences' frame: a violation names its case, operation, versions and attempts. Counts all, lists the first.

use std::collections::BTreeMap;
use std::fmt;

use crate::command_log::VerifyReport;
use crate::domain::{CaseId, OperationId, Version};

/// Which promise is broken. Their words are stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// What was acknowledged is stored.
    AcknowledgedIsStored,
    /// What was acknowledged is stored with the bytes and as the command that were answered.
    AcknowledgedAsStored,
    /// An operation is applied at most once.
    AppliedOnce,
    /// The status of an acknowledgement is 201 for `open` and 200 for all else.
    Status,
    /// What is stored was invoked, as the command that is stored.
    StoredWasInvoked,
    /// A clear "no" leaves no row.
    RefusedLeavesNoRow,
    /// What ended before something else began has the lower version.
    RealTimeOrder,
    /// A rejection or replay agrees with the case at a version inside its interval.
    AnswerAgrees,
    /// `operation-conflict` and `outcome-expired` speak of an operation that is stored so.
    KnownOperation,
    /// Each operation has one outbox row.
    OneOutboxRow,
    /// The database is the fold of its operations.
    Recomputed,
    /// A fault fired as often as was asked for.
    FaultFired,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// The case; `None`: it concerns no single one.
    pub case_id: Option<CaseId>,
    /// The operation.
    pub operation_id: Option<OperationId>,
    /// The versions that it shows at.
    pub versions: Vec<Version>,
    /// The attempts that show it.
    pub attempts: Vec<u64>,
    /// What was expected, and what is.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: String| {
            let written = write!(f, "{separator}{text}");
            separator = ", ";
            written
        };
        if let Some(case_id) = &self.case_id {
            part(f, format!("case `{case_id}`"))?;
        }
        if let Some(operation_id) = &self.operation_id {
            part(f, format!("operation {operation_id}"))?;
        }
        for (one, many, numbers) in [
            ("version", "versions", self.versions.iter().map(ToString::to_string).collect::<Vec<_>>()),
            ("attempt", "attempts", self.attempts.iter().map(ToString::to_string).collect()),
        ] {
            match numbers.as_slice() {
                [] => {}
                [number] => part(f, format!("{one} {number}"))?,
                [first @ .., last] => part(f, format!("{many} {} and {last}", first.join(", ")))?,
            }
        }
        let colon = if separator.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.what)
    }
}

/// How the attempts without a clear answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnknownAttempts {
    /// All of them: no answer, 202, `unavailable`.
    pub attempts: u64,
    /// Those that were applied: the command is stored and no attempt was answered as having applied it.
    pub applied: u64,
    /// The others: nothing came of them.
    pub never_applied: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Lines of the history.
    pub lines: u64,
    /// Cases that were asked for something.
    pub cases: u64,
    /// Operation ids that were invoked.
    pub operations: u64,
    /// Attempts.
    pub attempts: u64,
    /// How they were answered: `applied`, `replayed`, a problem's code, `unknown`.
    pub answers: BTreeMap<String, u64>,
    /// What became of the attempts without a clear answer.
    pub unknown: UnknownAttempts,
    /// Rejections and replays that were held against the versions inside their intervals.
    pub judged: u64,
    /// The faults that fired, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Cases in the database.
    pub stored_cases: u64,
    /// Operations in the database.
    pub stored_operations: u64,
    /// Those that a person made by SQL.
    pub stored_edits: u64,
    /// Outbox rows in the database.
    pub stored_outbox: u64,
    /// How often a promise is broken.
    pub violations: u64,
    /// The first of them.
    pub first_violations: Vec<Violation>,
    #[serde(skip)]
    pub(super) violations_max: usize,
}

impl CheckReport {
    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.violations == 0
    }

    pub(super) fn violation(&mut self, violation: impl FnOnce() -> Violation) {
        self.violations += 1;
        if self.first_violations.len() < self.violations_max {
            self.first_violations.push(violation());
        }
    }

    /// Takes over what the database says of itself.
    pub(super) fn take_verified(&mut self, verified: VerifyReport) {
        self.stored_cases = verified.cases;
        self.stored_operations = verified.operations;
        self.stored_outbox = verified.outbox;
        self.violations += verified.faults;
        for fault in verified.first_faults {
            if self.first_violations.len() < self.violations_max {
                self.first_violations.push(Violation {
                    rule: Rule::Recomputed,
                    case_id: fault.case_id,
                    operation_id: None,
                    versions: fault.version.into_iter().collect(),
                    attempts: Vec::new(),
                    what: fault.what,
                });
            }
        }
    }

    /// Holds the faults that fired against those that must have.
    pub(super) fn require_faults(&mut self, required: &BTreeMap<String, u64>) {
        for (kind, &least) in required {
            let fired = self.faults.get(kind).copied().unwrap_or_default();
            if fired < least {
                self.violation(|| Violation {
                    rule: Rule::FaultFired,
                    case_id: None,
                    operation_id: None,
                    versions: Vec::new(),
                    attempts: Vec::new(),
                    what: format!(
                        "the fault `{kind}` fired {fired} times, and at least {least} were asked for: what was not put \
                         to the test is not shown to hold"
                    ),
                });
            }
        }
    }
}
