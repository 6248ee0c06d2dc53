//! One case recomputed from its operations.
//!
//! Owns what must hold: versions are dense from 1; each request is canonical, fits its digest and was legal at its version;
//! each outcome is what is recomputed, byte for byte; outbox rows belong to operations and are the newest of them; the case
//! row is the fold. Where a row is pruned or wrong, its stored status, revision and version are taken, and what can't be
//! known from there on (assignments, data, workflow) is not held against later rows. Never stops at a fault.

use std::sync::Arc;

use super::{VerifyReport, WorkflowMap};
use crate::domain::{
    ActorId, CaseId, CaseState, Command, CommandKind, Decision, Digest, Effect, Operation, Outcome, Rejection,
    Timestamp, Version, Workflow, apply, canonical, decide, parse_strict,
};
use crate::store::{CaseRecord, OutboxRecord};

pub(super) struct CaseFold<'a> {
    case_id: CaseId,
    record: Option<CaseRecord>,
    workflows: &'a WorkflowMap,
    /// The workflows that the case may follow as far as its operations tell: `open` need not name one, and an edit may
    /// have changed it since.
    candidates: Vec<Arc<Workflow>>,
    state: CaseState,
    version: Version,
    are_assignees_known: bool,
    is_data_known: bool,
    times: Option<(Timestamp, Timestamp)>,
    /// Whether an outbox row was seen: from there on every version has one.
    outbox_begun: bool,
    outbox_version: Version,
}

impl<'a> CaseFold<'a> {
    pub(super) fn new(case_id: CaseId, record: Option<CaseRecord>, workflows: &'a WorkflowMap) -> Self {
        // The row's own first: it is the right one unless the workflow was edited.
        let mut candidates: Vec<_> = workflows.values().cloned().collect();
        candidates.sort_by_key(|workflow| {
            (record.as_ref().is_none_or(|record| record.workflow != *workflow.name()), workflow.name().clone())
        });
        Self {
            case_id,
            record,
            workflows,
            candidates,
            state: CaseState::Absent,
            version: Version::ZERO,
            are_assignees_known: true,
            is_data_known: true,
            times: None,
            outbox_begun: false,
            outbox_version: Version::ZERO,
        }
    }

    /// Takes the next operation.
    pub(super) fn fold(&mut self, operation: &Operation, report: &mut VerifyReport) {
        let at = |report: &mut VerifyReport, what: String| {
            report.fault(Some(&operation.case_id), Some(operation.version), what);
        };
        if operation.version != self.version.next() {
            at(report, format!("it follows version {}; versions must be dense from 1", self.version));
            self.forget();
        }
        self.version = operation.version;
        self.times = Some((self.times.map_or(operation.recorded_at, |times| times.0), operation.recorded_at));
        if operation.request.is_some() != operation.outcome.is_some() {
            at(report, "request and outcome must be there both, or neither (pruned)".into());
        }
        match Command::from_operation(operation) {
            Err(invalid) => {
                at(report, format!("the recorded request can't be read: {invalid}"));
                self.forget();
                self.adopt(operation);
            }
            Ok(None) => {
                report.pruned += 1;
                self.forget_pruned(operation);
                self.adopt(operation);
            }
            Ok(Some(command)) => {
                if let Some(what) = digest_fault(operation, &command) {
                    at(report, what);
                }
                match self.decide(operation, &command) {
                    Ok(decision) => apply(&mut self.state, &decision, operation.recorded_at),
                    Err(what) => {
                        at(report, what);
                        self.forget();
                        self.adopt(operation);
                    }
                }
                if operation.outcome.as_deref().is_some_and(|outcome| outcome != expected_outcome(operation)) {
                    at(report, format!("the stored outcome is not {}", expected_outcome(operation)));
                }
            }
        }
    }

    /// What the command does at this version; the sentence when it is not what the row says.
    fn decide(&mut self, operation: &Operation, command: &Command) -> Result<Decision, String> {
        let named = command.named_workflow();
        let candidates = match named {
            Some(name) => match self.workflows.get(name) {
                Some(workflow) => vec![workflow.clone()],
                None => return Err(format!("its workflow `{name}` is not stored")),
            },
            None => self.candidates.clone(),
        };
        let mut reason = None;
        let mut fitting = Vec::new();
        let mut decided = None;
        for workflow in candidates {
            match self.decide_with(&workflow, command) {
                Ok(decision) if agrees(&decision, operation) => {
                    decided.get_or_insert(decision);
                    fitting.push(workflow);
                }
                Ok(decision) => {
                    reason.get_or_insert_with(|| {
                        format!(
                            "`{}` gives status `{}` at revision {}, and the row says status `{}` at revision {}",
                            command.name(),
                            decision.status,
                            decision.revision,
                            operation.status,
                            operation.revision
                        )
                    });
                }
                Err(rejection) => {
                    reason.get_or_insert_with(|| {
                        format!("`{}` by `{}` was not legal here: {rejection}", command.name(), command.actor())
                    });
                }
            }
        }
        let Some(decision) = decided else {
            return Err(reason.unwrap_or_else(|| "no workflow is stored".into()));
        };
        self.candidates = fitting;
        match decision.effect {
            Effect::Opened { .. } => (self.are_assignees_known, self.is_data_known) = (true, true),
            Effect::Edited { data: Some(_), .. } => self.is_data_known = true,
            _ => {}
        }
        Ok(decision)
    }

    fn decide_with(&mut self, workflow: &Arc<Workflow>, command: &Command) -> Result<Decision, Rejection> {
        let decision = decide(workflow, &self.state, command);
        if !matches!(decision, Err(Rejection::NotAssigned)) || self.are_assignees_known {
            return decision;
        }
        // Some assignment is not readable any more. That the command was applied says that the actor had one.
        if let CaseState::Present(case) = &mut self.state {
            case.assignees.insert(command.actor().clone());
        }
        decide(workflow, &self.state, command)
    }

    /// The case after what was folded; `None` where some of it is only the rows' word.
    pub(super) fn known_state(&self) -> Option<&CaseState> {
        self.are_assignees_known.then_some(&self.state)
    }

    /// Takes the row's word for where the case stands.
    fn adopt(&mut self, operation: &Operation) {
        if let CaseState::Absent = self.state {
            let workflow = self.candidates.first().cloned().unwrap_or_else(Workflow::permit);
            let data = Arc::from("{}");
            let effect = Effect::Opened { workflow, data };
            apply(&mut self.state, &standing(operation, effect), operation.recorded_at);
        } else {
            apply(&mut self.state, &standing(operation, Effect::Noted), operation.recorded_at);
        }
    }

    /// After a row that can't be understood, nothing but status, revision and version is known.
    fn forget(&mut self) {
        self.are_assignees_known = false;
        self.is_data_known = false;
        self.candidates = self.workflows.values().cloned().collect();
    }

    fn forget_pruned(&mut self, operation: &Operation) {
        match operation.command.as_str() {
            "open" => self.is_data_known = false,
            "assign" | "unassign" => self.are_assignees_known = false,
            "edit" => self.forget(),
            _ => {}
        }
    }

    /// Takes an outbox row; `operation` is the one of its version, or the next one after it.
    pub(super) fn outbox(&mut self, row: &OutboxRecord, operation: Option<&Operation>, report: &mut VerifyReport) {
        let at = |report: &mut VerifyReport, what: &str| report.fault(Some(&row.case_id), Some(row.version), what);
        self.outbox_begun = true;
        self.outbox_version = row.version;
        match operation.filter(|operation| operation.version == row.version) {
            None => at(report, "the outbox row has no operation"),
            Some(operation) if operation.operation_id != row.operation_id => {
                at(report, "the outbox row names another operation than the one of its version");
            }
            Some(_) => {}
        }
    }

    /// Called when the outbox rows up to the operation are taken.
    pub(super) fn end_of_version(&mut self, operation: &Operation, report: &mut VerifyReport) {
        if self.outbox_begun && self.outbox_version != operation.version {
            let what = "the operation has no outbox row although an earlier one still waits";
            report.fault(Some(&self.case_id), Some(operation.version), what);
        }
    }

    /// Compares the case row with the fold.
    pub(super) fn finish(self, report: &mut VerifyReport) {
        let mut at = |what: String| report.fault(Some(&self.case_id), None, what);
        let (record, case, times) = match (&self.record, &self.state, self.times) {
            (Some(_), CaseState::Absent, _) | (Some(_), _, None) => return at("the case has no operations".into()),
            (None, CaseState::Present(_), _) => return at("the operations have no case".into()),
            (None, CaseState::Absent, _) => return,
            (Some(record), CaseState::Present(case), Some(times)) => (record, case, times),
        };
        let mut compare = |what: &str, row: &dyn std::fmt::Display, fold: &dyn std::fmt::Display| {
            let (row, fold) = (row.to_string(), fold.to_string());
            if row != fold {
                at(format!("the row has {what} `{row}`, and its operations give `{fold}`"));
            }
        };
        compare("the version", &record.version, &self.version);
        compare("the status", &record.status, &case.status);
        compare("the revision", &record.revision, &case.revision);
        compare("the opening time", &record.opened_at, &times.0);
        compare("the time of the last change", &record.updated_at, &times.1);
        if self.are_assignees_known {
            compare("the assignees", &names(record.assignees.iter()), &names(case.assignees.iter()));
        }
        if self.is_data_known {
            compare("the data", &canonical_text(&record.data), &canonical_text(&case.data));
        }
        if !self.candidates.iter().any(|workflow| *workflow.name() == record.workflow) {
            let candidates: Vec<_> = self.candidates.iter().map(|workflow| workflow.name().as_str()).collect();
            compare("the workflow", &record.workflow, &candidates.join("`, `"));
        }
    }
}

fn digest_fault(operation: &Operation, command: &Command) -> Option<String> {
    if let CommandKind::Edit(_) = command.kind() {
        return operation.digest.is_some().then(|| "an `edit` must have no digest".into());
    }
    let request = operation.request.as_deref().unwrap_or_default();
    if operation.digest != Some(Digest::of_request(request)) {
        return Some("the digest is not the one of the recorded request".into());
    }
    (**command.request() != *request).then(|| "the recorded request is not in canonical form".into())
}

fn agrees(decision: &Decision, operation: &Operation) -> bool {
    decision.status == operation.status && decision.revision == operation.revision
}

fn standing(operation: &Operation, effect: Effect) -> Decision {
    let Operation { status, revision, version, .. } = operation.clone();
    Decision { effect, status, revision, version }
}

fn expected_outcome(operation: &Operation) -> String {
    Outcome::from(operation).to_json()
}

/// A person may have spelt the data otherwise.
fn canonical_text(data: &str) -> String {
    parse_strict(data.as_bytes()).map_or_else(|_| data.to_owned(), |value| canonical(&value))
}

fn names<'n>(assignees: impl Iterator<Item = &'n ActorId>) -> String {
    let mut names: Vec<_> = assignees.map(ActorId::as_str).collect();
    names.sort_unstable();
    names.join("`, `")
}

#[cfg(test)]
#[path = "case_fold_tests.rs"]
mod tests;
