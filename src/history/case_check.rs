//! One case: what its clients were answered against what is stored of it.
//!
//! Owns the rules for a single case but for the order of events, which is in `order`, and for what a rejection says, which is
//! in `standing`. Never reads rows by itself. What it finds goes into the report; it never stops at a violation.
//!
//! Which attempt applied an operation: the one that was answered as having applied it; where none was, one of those without
//! a clear answer. (A process that finds its own unclear commit behind the fence answers it as applied: the stored bytes
//! are those that it had sent, its own time among them. So at most one attempt is ever answered so.)

use std::collections::HashMap;

use super::ledger::{Attempt, History, NEVER, OutcomeHash};
use super::meaning::{Meaning, meaning};
use super::order::{Bound, Disorder, Look, PlacedOperation, Span, sweep};
use super::report::{CheckReport, Rule, Violation};
use super::standing::{Standings, answer_in_words};
use crate::domain::{CaseId, Command, Digest, OperationId, Version};

/// What is kept of a stored operation.
#[derive(Debug)]
pub(super) struct StoredOperation {
    pub(super) operation_id: OperationId,
    pub(super) version: Version,
    /// `None` for an edit by SQL.
    pub(super) digest: Option<Digest>,
    pub(super) is_pruned: bool,
    /// A person made it by SQL.
    pub(super) is_edit: bool,
    pub(super) outcome: OutcomeHash,
}

/// The check of one case.
pub(super) struct CaseCheck<'a> {
    pub(super) case_id: CaseId,
    pub(super) history: &'a History,
    /// Those of the case, by operation and beginning.
    pub(super) attempts: &'a [Attempt],
    /// By version.
    pub(super) stored: &'a [StoredOperation],
    pub(super) standings: &'a Standings,
    pub(super) report: &'a mut CheckReport,
}

/// An answer that must have its place, with the index of its attempt as key.
#[derive(Default)]
struct Placed {
    operations: Vec<PlacedOperation>,
    looks: Vec<Look>,
}

impl CaseCheck<'_> {
    pub(super) fn run(mut self) {
        let places: HashMap<OperationId, usize> =
            self.stored.iter().zip(1..).map(|(operation, place)| (operation.operation_id, place)).collect();
        let mut is_invoked = vec![false; self.stored.len()];
        let mut placed = Placed::default();
        let mut start = 0;
        let attempts = self.attempts;
        let id_of = |attempt: &Attempt| self.history.request(attempt).operation_id;
        for group in attempts.chunk_by(|left, right| id_of(left) == id_of(right)) {
            let place = places.get(&id_of(&group[0])).copied();
            if let Some(place) = place {
                is_invoked[place - 1] = true;
            }
            self.report.operations += 1;
            self.operation(group, start, place, &mut placed);
            start += group.len();
        }
        for (operation, is_invoked) in self.stored.iter().zip(is_invoked) {
            if !is_invoked && !operation.is_edit {
                let what = "is stored, and no attempt of the history invoked it".into();
                self.violation(Rule::StoredWasInvoked, Some(operation.operation_id), &[operation.version], &[], what);
            }
        }
        self.place(&placed);
    }

    /// All attempts under one id; `start` is the index of the first of them, `place` that of the stored operation.
    fn operation(&mut self, group: &[Attempt], start: usize, place: Option<usize>, placed: &mut Placed) {
        let id = self.history.request(&group[0]).operation_id;
        let stored = place.map(|place| &self.stored[place - 1]);
        let mut applied: Vec<&Attempt> = Vec::new();
        let mut unclear: Vec<&Attempt> = Vec::new();
        let mut is_sent_as_stored = false;
        let mut unclear_count = 0;
        for (attempt, key) in group.iter().zip(start..) {
            let is_as_stored = stored.is_some_and(|row| row.digest == Some(self.history.request(attempt).digest));
            is_sent_as_stored |= is_as_stored;
            let span = Span { began: attempt.began, ended: attempt.ended, attempt: attempt.number };
            let mut look = |place_min, place_max| placed.looks.push(Look { key, place_min, place_max, span });
            let last = self.stored.len();
            match meaning(self.history, attempt) {
                Meaning::Acknowledged { .. } => {
                    if self.acknowledgement(attempt, stored) {
                        let place = place.expect("what is acknowledged as stored is stored");
                        if let Meaning::Acknowledged { replayed: true, .. } = meaning(self.history, attempt) {
                            look(place, last);
                        } else {
                            applied.push(attempt);
                        }
                    }
                }
                Meaning::Known(problem) => {
                    let is_known = stored.is_some_and(|row| match problem.code.as_str() {
                        "outcome-expired" => is_as_stored && row.is_pruned,
                        _ => !is_as_stored,
                    });
                    match place.filter(|_| is_known) {
                        Some(place) => look(place, last),
                        None => self.unknown_operation(attempt, stored, is_as_stored),
                    }
                }
                // While the id is known, nothing is decided under it any more.
                Meaning::Decided(_) => look(0, place.map_or(last, |place| place - 1)),
                Meaning::NotRecorded => {}
                Meaning::Unclear => {
                    unclear_count += 1;
                    if is_as_stored {
                        unclear.push(attempt);
                    }
                }
            }
        }
        if applied.len() > 1 {
            let numbers: Vec<_> = applied.iter().map(|attempt| attempt.number).collect();
            let what = format!("was answered as applied {} times; all but one must be replays", applied.len());
            self.violation(Rule::AppliedOnce, Some(id), &versions(stored), &numbers, what);
        }
        self.count_unclear(unclear_count, applied.is_empty() && !unclear.is_empty());
        let (Some(place), Some(row)) = (place, stored) else { return };
        let numbers: Vec<_> = group.iter().map(|attempt| attempt.number).collect();
        if !is_sent_as_stored {
            let what = "is stored as another command than was invoked under its id: the digests differ".into();
            return self.violation(Rule::StoredWasInvoked, Some(id), &[row.version], &numbers, what);
        }
        let span = match (applied.first(), unclear.iter().map(|attempt| (attempt.began, attempt.number)).min()) {
            (Some(applied), _) => Span { began: applied.began, ended: applied.ended, attempt: applied.number },
            (None, Some((began, attempt))) => Span { began, ended: NEVER, attempt },
            (None, None) => {
                let what = "is stored, and no attempt could have applied it: each was answered with a clear no, or as a \
                            replay of another";
                return self.violation(Rule::RefusedLeavesNoRow, Some(id), &[row.version], &numbers, what.into());
            }
        };
        placed.operations.push(PlacedOperation { place, span });
    }

    /// Whether an acknowledgement is of the command that is stored.
    fn acknowledgement(&mut self, attempt: &Attempt, stored: Option<&StoredOperation>) -> bool {
        let Meaning::Acknowledged { status, replayed, hash, version } = meaning(self.history, attempt) else {
            return false;
        };
        let request = self.history.request(attempt);
        let id = request.operation_id;
        let how = if replayed { "replayed" } else { "applied" };
        let due = if self.history.is_open(request) { 201 } else { 200 };
        if status != due {
            let what = format!("was answered as {how} with status {status}; it must be {due}");
            self.violation(Rule::Status, Some(id), &versions(stored), &[attempt.number], what);
        }
        let Some(row) = stored else {
            let what = format!("was acknowledged as {how} at version {version}, and is not stored");
            self.violation(Rule::AcknowledgedIsStored, Some(id), &[], &[attempt.number], what);
            return false;
        };
        let is_as_stored = row.digest == Some(request.digest);
        let what = if !is_as_stored {
            format!("was acknowledged as {how}, and another command is stored under its id: the digests differ")
        } else if row.outcome != hash {
            let stored = row.version;
            format!(
                "was acknowledged as {how} with other bytes than are stored: the answer says version {version}, and it is \
                 stored at version {stored}"
            )
        } else {
            return true;
        };
        self.violation(Rule::AcknowledgedAsStored, Some(id), &[row.version], &[attempt.number], what);
        is_as_stored
    }

    fn unknown_operation(&mut self, attempt: &Attempt, stored: Option<&StoredOperation>, is_as_stored: bool) {
        let id = self.history.request(attempt).operation_id;
        let Meaning::Known(problem) = meaning(self.history, attempt) else { return };
        let words = answer_in_words(problem);
        let what = match (stored, problem.code.as_str()) {
            (None, _) => format!("was answered {words}, and no operation is stored under the id"),
            (Some(_), "operation-conflict") => {
                format!("was answered {words}, and what is stored under the id is this very command")
            }
            (Some(_), _) if is_as_stored => format!("was answered {words}, and its outcome is stored"),
            (Some(_), _) => format!("was answered {words}, and another command is stored under the id"),
        };
        self.violation(Rule::KnownOperation, Some(id), &versions(stored), &[attempt.number], what);
    }

    fn count_unclear(&mut self, attempts: u64, is_applied: bool) {
        let unknown = &mut self.report.unknown;
        unknown.attempts += attempts;
        unknown.applied += u64::from(is_applied);
        unknown.never_applied += attempts - u64::from(is_applied);
    }

    /// Finds a place for every answer.
    fn place(&mut self, placed: &Placed) {
        self.report.judged += placed.looks.len() as u64;
        let (history, attempts, standings) = (self.history, self.attempts, self.standings);
        // A look is tried at its places one after the other, so that one command is enough.
        let mut command: Option<(usize, Command)> = None;
        let mut disorders = Vec::new();
        let fits = |look: usize, place: usize| {
            let key = placed.looks[look].key;
            let Meaning::Decided(problem) = meaning(history, &attempts[key]) else { return true };
            if command.as_ref().is_none_or(|(of, _)| *of != key) {
                command = Some((key, history.command(history.request(&attempts[key]))));
            }
            command.as_ref().is_some_and(|(_, command)| standings.fits(place, command, problem))
        };
        sweep(&placed.operations, &placed.looks, fits, |disorder| disorders.push(disorder));
        for disorder in disorders {
            match disorder {
                Disorder::Operation { earlier, later } => {
                    let before = earlier.attempt.expect("an operation that ended has an attempt");
                    let (high, low) = (self.version(earlier.place), self.version(later.place));
                    let id = self.stored[later.place - 1].operation_id;
                    let what = format!(
                        "attempt {before} had been acknowledged at version {high} before attempt {} began, whose \
                         operation is stored at version {low}: the later one must have the higher version",
                        later.attempt
                    );
                    let numbers = [before, later.attempt];
                    self.violation(Rule::RealTimeOrder, Some(id), &[high, low], &numbers, what);
                }
                Disorder::Look { key, min, max } => self.misplaced(key, min, max),
            }
        }
    }

    fn misplaced(&mut self, key: usize, min: Bound, max: Bound) {
        let attempt = &self.attempts[key];
        let request = self.history.request(attempt);
        let (low, high) = (self.version(min.place), self.version(max.place));
        let answer = match meaning(self.history, attempt) {
            Meaning::Decided(problem) | Meaning::Known(problem) => answer_in_words(problem),
            _ => "as replayed".into(),
        };
        let is_decided = matches!(meaning(self.history, attempt), Meaning::Decided(_));
        let from = match min.attempt {
            Some(before) => format!("attempt {before} had shown version {low} before it began"),
            None if is_decided => "nothing had been shown before it began".into(),
            None => format!("its operation is stored at version {low}"),
        };
        let to = match max.attempt {
            Some(after) => format!("attempt {after}, which made a version past {high}, began after it had ended"),
            None if max.place < self.stored.len() => format!("its own operation is stored at the version after {high}"),
            None => format!("the case ends at version {high}"),
        };
        let mut what = if min.place > max.place {
            format!("was answered {answer}, and no version lies inside its interval: {from}, and {to}")
        } else {
            format!(
                "was answered {answer}, and none of the versions {low} to {high} inside its interval agrees ({from}; {to})"
            )
        };
        if is_decided && min.place <= max.place {
            let command = self.history.command(request);
            what.push_str(&format!(": at version {low} {}", self.standings.describe(min.place, &command)));
            if max.place > min.place {
                what.push_str(&format!(", at version {high} {}", self.standings.describe(max.place, &command)));
            }
        }
        let (id, number) = (request.operation_id, attempt.number);
        self.violation(Rule::AnswerAgrees, Some(id), &[low, high], &[number], what);
    }

    fn version(&self, place: usize) -> Version {
        place.checked_sub(1).map_or(Version::ZERO, |index| self.stored[index].version)
    }

    fn violation(
        &mut self,
        rule: Rule,
        operation_id: Option<OperationId>,
        versions: &[Version],
        attempts: &[u64],
        what: String,
    ) {
        let case_id = Some(self.case_id.clone());
        let (versions, attempts) = (versions.to_vec(), attempts.to_vec());
        self.report.violation(|| Violation { rule, case_id, operation_id, versions, attempts, what });
    }
}

fn versions(stored: Option<&StoredOperation>) -> Vec<Version> {
    stored.iter().map(|row| row.version).collect()
}
