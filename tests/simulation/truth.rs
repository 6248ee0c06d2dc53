//! What really happened, and the promises held against it.
//!
//! Owns every attempt, every version of every case with the time at which it landed, and the checks of DESIGN section 2:
//! of each batch when it lands, of each answer at the moment when it is given. Looks at no machine: only at commands,
//! rows and answers. Fails with a sentence that says which promise is broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use casework::domain::{
    ActorId, CaseId, CaseState, Command, Digest, Operation, OperationId, Outcome, Rejection, Workflow, apply, decide,
};
use casework::engine::{Answer, Receipt, Trouble};

use super::store::{Landed, ModelStore};

/// What breaks a promise.
pub type Broken = String;

/// One sending of a command to a process.
#[derive(Debug)]
pub struct Attempt {
    pub client: usize,
    pub node: usize,
    pub incarnation: u32,
    pub command: Command,
    pub invoked_at: u64,
    /// When it was answered; the process may have died instead.
    pub answered_at: Option<u64>,
    /// It was told that nothing was recorded for it.
    pub is_denied: bool,
    pub is_lost: bool,
    /// Its stream and its line in it.
    pub line: Option<(usize, usize)>,
}

/// An operation that landed.
#[derive(Debug)]
pub struct TrueOperation {
    pub version: usize,
    pub landed_at: u64,
    pub recorded_at: i64,
    pub actor: ActorId,
    pub digest: Option<Digest>,
    pub outcome: Arc<str>,
    pub is_pruned: bool,
    applied_to: Option<usize>,
}

/// A version of a case, from the time at which it landed.
#[derive(Debug)]
struct TrueVersion {
    from: u64,
    state: CaseState,
}

/// How the lines of a stream were answered so far: settled, and at which version it was applied.
#[derive(Debug, Default)]
struct TrueLane {
    lines: BTreeMap<usize, (bool, Option<usize>)>,
}

/// Everything that happened.
#[derive(Debug)]
pub struct Truth {
    workflow: Arc<Workflow>,
    pub attempts: Vec<Attempt>,
    by_id: BTreeMap<(CaseId, OperationId), Vec<usize>>,
    versions: BTreeMap<CaseId, Vec<TrueVersion>>,
    operations: BTreeMap<(CaseId, OperationId), TrueOperation>,
    lanes: BTreeMap<usize, TrueLane>,
}

impl Truth {
    pub fn new(workflow: Arc<Workflow>) -> Self {
        Self {
            workflow,
            attempts: Vec::new(),
            by_id: BTreeMap::new(),
            versions: BTreeMap::new(),
            operations: BTreeMap::new(),
            lanes: BTreeMap::new(),
        }
    }

    /// A command is sent; returns the attempt's number.
    pub fn invoke(&mut self, attempt: Attempt) -> usize {
        let key = (attempt.command.case_id().clone(), attempt.command.operation_id());
        self.by_id.entry(key).or_default().push(self.attempts.len());
        self.attempts.push(attempt);
        self.attempts.len() - 1
    }

    /// The newest state of a case.
    pub fn state(&self, case_id: &CaseId) -> CaseState {
        self.versions.get(case_id).and_then(|all| all.last()).map_or(CaseState::Absent, |last| last.state.clone())
    }

    /// The operation under an id.
    pub fn operation(&self, case_id: &CaseId, id: OperationId) -> Option<&TrueOperation> {
        self.operations.get(&(case_id.clone(), id))
    }

    /// Operations that landed before a time and still have their outcome.
    pub fn settled_before(&self, before: u64) -> Vec<(CaseId, OperationId)> {
        let old = |operation: &TrueOperation| operation.landed_at < before && !operation.is_pruned;
        self.operations.iter().filter(|(_, operation)| old(operation)).map(|(key, _)| key.clone()).collect()
    }

    pub fn prune(&mut self, key: &(CaseId, OperationId)) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.is_pruned = true;
        }
    }

    /// A batch landed: what it wrote is held against the commands, and the tables against what was written.
    pub fn landed(
        &mut self,
        landed: &Landed,
        edit: Option<&Command>,
        store: &ModelStore,
        now: u64,
    ) -> Result<(), Broken> {
        for operation in &landed.operations {
            self.operation_landed(operation, edit, now)?;
        }
        self.check_tables(&landed.case_id, store)
    }

    fn operation_landed(&mut self, operation: &Operation, edit: Option<&Command>, now: u64) -> Result<(), Broken> {
        let key = (operation.case_id.clone(), operation.operation_id);
        let at = format!("case {} version {}", operation.case_id, operation.version);
        if self.operations.contains_key(&key) {
            return Err(format!("{at}: operation {} is applied twice", short(operation.operation_id)));
        }
        let mut state = self.state(&operation.case_id);
        if operation.version != state.version().next() {
            return Err(format!("{at}: it follows version {}; versions must be dense", state.version()));
        }
        let command = match edit {
            Some(edit) => edit.clone(),
            None => self.invoked(operation, now).map_err(|broken| format!("{at}: {broken}"))?,
        };
        let decision = decide(&self.workflow, &state, &command).map_err(|rejection| {
            format!("{at}: `{}` by {} was not legal: {rejection}", command.name(), command.actor())
        })?;
        let decided = (&decision.status, decision.revision, decision.version);
        if decided != (&operation.status, operation.revision, operation.version) {
            return Err(format!("{at}: the operation says another status, revision or version than is decided"));
        }
        let outcome = Outcome {
            case_id: &operation.case_id,
            operation_id: operation.operation_id,
            command: &operation.command,
            actor: &operation.actor,
            status: &decision.status,
            revision: decision.revision,
            version: decision.version,
            recorded_at: operation.recorded_at,
        };
        let outcome: Arc<str> = outcome.to_json().into();
        if operation.outcome.as_deref() != Some(&*outcome) {
            return Err(format!("{at}: the stored outcome is not what is decided at this version"));
        }
        apply(&mut state, &decision, operation.recorded_at);
        let versions = self.versions.entry(operation.case_id.clone()).or_default();
        if versions.is_empty() {
            versions.push(TrueVersion { from: 0, state: CaseState::Absent });
        }
        versions.push(TrueVersion { from: now, state });
        let operation = TrueOperation {
            version: versions.len() - 1,
            landed_at: now,
            recorded_at: operation.recorded_at.micros(),
            actor: operation.actor.clone(),
            digest: operation.digest,
            outcome,
            is_pruned: false,
            applied_to: None,
        };
        self.operations.insert(key, operation);
        Ok(())
    }

    /// The command behind an operation: someone sent it, and not all who can have meant it were told "nothing recorded".
    fn invoked(&self, operation: &Operation, now: u64) -> Result<Command, Broken> {
        let key = (operation.case_id.clone(), operation.operation_id);
        let recorded_at = operation.recorded_at.micros().unsigned_abs();
        let sent = self.by_id.get(&key).into_iter().flatten().map(|attempt| &self.attempts[*attempt]);
        let same = sent.filter(|attempt| {
            attempt.command.digest() == operation.digest.as_ref() && *attempt.command.actor() == operation.actor
        });
        let deciding: Vec<&Attempt> = same
            .filter(|attempt| {
                attempt.invoked_at <= recorded_at && attempt.answered_at.is_none_or(|at| at >= recorded_at)
            })
            .collect();
        let Some(first) = deciding.first() else { return Err("nobody sent the command that is stored".into()) };
        if deciding.iter().all(|attempt| attempt.is_denied && attempt.answered_at.is_some_and(|at| at < now)) {
            return Err(format!(
                "`{}` landed after its caller was told that nothing was recorded",
                first.command.name()
            ));
        }
        Ok(first.command.clone())
    }

    /// One row of each kind a version, and the case row is the fold.
    pub fn check_tables(&self, case_id: &CaseId, store: &ModelStore) -> Result<(), Broken> {
        let state = self.state(case_id);
        if store.state(case_id) != state {
            let (row, fold) = (in_words(&store.state(case_id)), in_words(&state));
            return Err(format!("case {case_id}: its row is {row}; its operations give {fold}"));
        }
        let (versions, outbox) = store.rows_of(case_id);
        let dense = versions.iter().enumerate().all(|(i, (version, _))| *version == i as i64 + 1);
        if !dense || versions.len() as i64 != state.version().get() {
            return Err(format!("case {case_id}: its operations are not one a version"));
        }
        if versions != outbox {
            return Err(format!("case {case_id}: outbox rows are not one an operation"));
        }
        Ok(())
    }

    /// Everything that landed is still there at the end.
    pub fn check_all(&self, store: &ModelStore) -> Result<(), Broken> {
        for (case_id, versions) in &self.versions {
            self.check_tables(case_id, store)?;
            if store.operation_count(case_id) != versions.len() - 1 {
                return Err(format!("case {case_id}: operations are lost"));
            }
        }
        Ok(())
    }

    /// An answer is given; it is held against what has landed by now.
    pub fn answered(&mut self, number: usize, answer: &Answer, now: u64) -> Result<(), Broken> {
        let attempt = &mut self.attempts[number];
        if attempt.answered_at.is_some() && !attempt.is_lost {
            return Err(format!("attempt {number} is answered twice"));
        }
        attempt.answered_at = Some(now);
        attempt.is_denied = match answer {
            Answer::Rejected(_) => true,
            Answer::Unsettled(trouble) => {
                matches!(trouble, Trouble::Overloaded | Trouble::Draining | Trouble::Contention)
            }
            Answer::Applied(_) | Answer::Replayed(_) => false,
        };
        let checked = match answer {
            Answer::Applied(receipt) => self.check_receipt(number, receipt, true),
            Answer::Replayed(receipt) => self.check_receipt(number, receipt, false),
            Answer::Rejected(rejection) => self.check_rejection(number, rejection, now),
            Answer::Unsettled(Trouble::Internal) => Err("a caller was told that an invariant is broken".into()),
            Answer::Unsettled(_) => Ok(()),
        };
        checked.and_then(|()| self.check_lane(number, answer)).map_err(|broken| {
            let command = &self.attempts[number].command;
            let id = short(command.operation_id());
            format!("attempt {number}, `{}` {id} on case {}: {broken}", command.name(), command.case_id())
        })
    }

    fn check_receipt(&mut self, number: usize, receipt: &Receipt, is_first: bool) -> Result<(), Broken> {
        let attempt = &self.attempts[number];
        let key = (attempt.command.case_id().clone(), attempt.command.operation_id());
        let Some(operation) = self.operations.get_mut(&key) else {
            return Err("its outcome was given, and nothing is stored".into());
        };
        if operation.outcome != receipt.outcome {
            return Err("another outcome was given than is stored".into());
        }
        if operation.digest.as_ref() != attempt.command.digest() || operation.actor != *attempt.command.actor() {
            return Err("it was given the outcome of another command".into());
        }
        if is_first {
            if operation.applied_to.replace(number).is_some() {
                return Err("it was applied for a second time, as its callers were told".into());
            }
            let invoked_at = attempt.invoked_at;
            if operation.landed_at < invoked_at || operation.recorded_at.unsigned_abs() < invoked_at {
                return Err("it was told `applied`, and had been applied before it was sent".into());
            }
        }
        Ok(())
    }

    fn check_rejection(&self, number: usize, rejection: &Rejection, now: u64) -> Result<(), Broken> {
        let Attempt { command, invoked_at, .. } = &self.attempts[number];
        let key = (command.case_id().clone(), command.operation_id());
        let known = self.operations.get(&key);
        let is_same =
            |known: &TrueOperation| known.digest.as_ref() == command.digest() && known.actor == *command.actor();
        match rejection {
            Rejection::OperationConflict if known.is_some_and(|known| !is_same(known)) => return Ok(()),
            Rejection::OperationConflict => return Err("a conflict with nothing, or with itself".into()),
            Rejection::OutcomeExpired if known.is_some_and(|known| is_same(known) && known.is_pruned) => return Ok(()),
            Rejection::OutcomeExpired => return Err("an outcome was called expired and is not".into()),
            Rejection::InvalidCommand(_) if command.request().contains("poison") => return Ok(()),
            _ => {}
        }
        let absent = [TrueVersion { from: 0, state: CaseState::Absent }];
        let versions = self.versions.get(command.case_id()).map_or(&absent[..], Vec::as_slice);
        // Versions that were the current one at some time from the invocation to now, in which the id was not known.
        let agrees = versions.iter().enumerate().any(|(version, entry)| {
            let until = versions.get(version + 1).map_or(u64::MAX, |next| next.from);
            until >= *invoked_at
                && entry.from <= now
                && known.is_none_or(|known| version < known.version)
                && decide(&self.workflow, &entry.state, command).as_ref() == Err(rejection)
        });
        if agrees {
            return Ok(());
        }
        Err(match known {
            Some(known) if known.landed_at < *invoked_at => {
                format!("it was answered `{}` although it had been applied", rejection.code())
            }
            _ => format!("`{rejection}` was true at no time between the call and its answer"),
        })
    }

    /// The lines of a stream run in order; after one without a final answer no later one runs.
    fn check_lane(&mut self, number: usize, answer: &Answer) -> Result<(), Broken> {
        let attempt = &self.attempts[number];
        let Some((lane, line)) = attempt.line else { return Ok(()) };
        let applied = match answer {
            Answer::Applied(_) => self
                .operations
                .get(&(attempt.command.case_id().clone(), attempt.command.operation_id()))
                .map(|operation| operation.version),
            _ => None,
        };
        let is_settled = !matches!(answer, Answer::Unsettled(_));
        let lines = &mut self.lanes.entry(lane).or_default().lines;
        let earlier_broke = lines.range(..line).any(|(_, (settled, _))| !settled);
        if is_settled && earlier_broke {
            return Err("an earlier line of its stream had no final answer".into());
        }
        if !is_settled && lines.range(line + 1..).any(|(_, (settled, _))| *settled) {
            return Err("a later line of its stream has a final answer already".into());
        }
        let earlier_is_newer = lines.range(..line).any(|(_, (_, version))| *version > applied);
        let later_is_older = lines.range(line + 1..).any(|(_, (_, version))| version.is_some() && *version < applied);
        if applied.is_some() && (earlier_is_newer || later_is_older) {
            return Err("two lines of its stream were applied in another order".into());
        }
        lines.insert(line, (is_settled, applied));
        Ok(())
    }

    /// A process died: its callers learn nothing.
    pub fn lost(&mut self, node: usize, now: u64) -> Vec<usize> {
        let mut lost = Vec::new();
        for (number, attempt) in self.attempts.iter_mut().enumerate() {
            if attempt.node == node && attempt.answered_at.is_none() {
                (attempt.answered_at, attempt.is_lost) = (Some(now), true);
                lost.push(number);
            }
        }
        lost
    }
}

fn in_words(state: &CaseState) -> String {
    let CaseState::Present(case) = state else { return "absent".into() };
    let (status, revision, version) = (&case.status, case.revision, case.version);
    format!("`{status}` at revision {revision}, version {version}, assigned {:?}", case.assignees)
}

/// A part of an id, enough to tell it from others in a history.
pub fn short(id: OperationId) -> String {
    format!("#{:04x}", (id.uuid().as_u128() >> 32) & 0xffff)
}
