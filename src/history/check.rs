//! A whole history against a whole database.
//!
//! Owns the walk: the snapshot is read once, `verify` folds it, and each case is checked when its last row was read. Keeps
//! the history (compactly) and one case's operations in memory. Never writes. Fails with [`StoreError`] when the database
//! can't be read; broken promises are no error but a [`CheckReport`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::case_check::{CaseCheck, StoredOperation};
use super::ledger::{History, outcome_hash};
use super::meaning::answer_name;
use super::report::{CheckReport, Rule, Violation};
use super::standing::Standings;
use crate::command_log::{
    CaseWitness, VerifyOptions, VerifyReport, WorkflowMap, verify_before, verify_snapshot_before,
};
use crate::domain::{CaseId, CaseState, Operation, Outcome};
use crate::store::{Database, Snapshot, StoreError};

/// How a history is checked.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// How many violations are listed; all are counted.
    pub violations_max: usize,
    /// Faults that must have fired, by kind, each at least so often.
    pub faults_required: BTreeMap<String, u64>,
    /// A relay has taken outbox rows over: only the newest operations of a case have one. Otherwise all have.
    pub is_relayed: bool,
    /// Counts the stored operations that were looked at, for whoever shows progress.
    pub progress: Arc<AtomicU64>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { violations_max: 10, faults_required: BTreeMap::new(), is_relayed: false, progress: Arc::default() }
    }
}

impl CheckOptions {
    fn verify(&self) -> VerifyOptions {
        VerifyOptions { faults_max: self.violations_max, progress: self.progress.clone() }
    }
}

/// Checks a history against the database that its commands went to, once nothing writes there any more.
///
/// # Errors
/// [`StoreError`] when the database can't be read to its end.
pub async fn check(database: &Database, history: History, options: CheckOptions) -> Result<CheckReport, StoreError> {
    let (verified, checker) = verify_before(database, options.verify(), Checker::new(history, options)).await?;
    Ok(checker.finish(verified))
}

/// The same against any snapshot. Must run where the snapshot's connection lives.
///
/// # Errors
/// [`StoreError`] when it can't be read to its end.
pub async fn check_snapshot(
    snapshot: &mut dyn Snapshot,
    workflows: &WorkflowMap,
    history: History,
    options: CheckOptions,
) -> Result<CheckReport, StoreError> {
    let verify_options = options.verify();
    let mut checker = Checker::new(history, options);
    let verified = verify_snapshot_before(snapshot, workflows, &verify_options, &mut checker).await?;
    Ok(checker.finish(verified))
}

struct Checker {
    history: History,
    options: CheckOptions,
    report: CheckReport,
    /// Attempts before this one belong to cases that are done.
    next: usize,
    stored: Vec<StoredOperation>,
    standings: Standings,
}

impl Checker {
    fn new(history: History, options: CheckOptions) -> Self {
        let mut report = CheckReport {
            lines: history.lines,
            attempts: history.attempts().len() as u64,
            faults: history.faults.clone(),
            violations_max: options.violations_max,
            ..CheckReport::default()
        };
        for attempt in history.attempts() {
            let name = answer_name(&history, attempt);
            match report.answers.get_mut(name) {
                Some(count) => *count += 1,
                None => drop(report.answers.insert(name.to_owned(), 1)),
            }
        }
        Self { history, options, report, next: 0, stored: Vec::new(), standings: Standings::new() }
    }

    /// Checks the cases of the history that come before this one: they have no row at all.
    fn unstored_before(&mut self, case_id: Option<&CaseId>) {
        while let Some(attempt) = self.history.attempts().get(self.next) {
            let next = self.history.case_id(attempt);
            if case_id.is_some_and(|case_id| next >= *case_id) {
                return;
            }
            self.case(next, &[], &Standings::new());
        }
    }

    fn case(&mut self, case_id: CaseId, stored: &[StoredOperation], standings: &Standings) {
        let rest = &self.history.attempts()[self.next..];
        let count = rest.iter().take_while(|attempt| self.history.is_of(attempt, &case_id)).count();
        self.next += count;
        self.report.cases += u64::from(count > 0);
        let (history, attempts) = (&self.history, &rest[..count]);
        CaseCheck { case_id, history, attempts, stored, standings, report: &mut self.report }.run();
    }

    fn finish(mut self, verified: VerifyReport) -> CheckReport {
        self.unstored_before(None);
        self.report.take_verified(verified);
        self.report.require_faults(&self.options.faults_required);
        self.report
    }
}

impl CaseWitness for Checker {
    fn operation(&mut self, operation: &Operation, state: Option<&CaseState>) {
        // What is pruned was sent as it is made again from the row.
        let outcome = match &operation.outcome {
            Some(outcome) => outcome_hash(outcome),
            None => outcome_hash(&Outcome::from(operation).to_json()),
        };
        self.stored.push(StoredOperation {
            operation_id: operation.operation_id,
            version: operation.version,
            digest: operation.digest,
            is_pruned: operation.outcome.is_none(),
            is_edit: operation.command.as_str() == "edit" && operation.actor.as_str().starts_with("sql:"),
            outcome,
        });
        self.standings.push(state);
    }

    fn case_end(&mut self, case_id: &CaseId, outbox: u64) {
        self.unstored_before(Some(case_id));
        let stored = std::mem::take(&mut self.stored);
        let standings = std::mem::replace(&mut self.standings, Standings::new());
        let operations = stored.len() as u64;
        if outbox != operations && !self.options.is_relayed {
            self.report.violation(|| Violation {
                rule: Rule::OneOutboxRow,
                case_id: Some(case_id.clone()),
                operation_id: None,
                versions: Vec::new(),
                attempts: Vec::new(),
                what: format!("has {operations} operations and {outbox} outbox rows; each operation must have one"),
            });
        }
        self.report.stored_edits += stored.iter().filter(|operation| operation.is_edit).count() as u64;
        self.case(case_id.clone(), &stored, &standings);
    }
}
