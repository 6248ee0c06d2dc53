//! The model store: the tables, and exactly what the SQL in use does to them.
//!
//! Owns rows, row locks, running transactions and writer epochs. A batch locks its cases when it begins (or leaves locked
//! ones out), compares versions then, and writes everything or nothing when it commits; unique keys refuse the whole
//! batch. Knows nothing of time, messages or promises.

use std::collections::{BTreeMap, BTreeSet};

use casework::domain::{ActorId, Case, CaseId, CaseState, KnownOperation, Operation, OperationId, Version};
use casework::engine::{BatchAnswer, Chain, ChainAnswer, CommitFault};

use super::options::{Options, StoreBug};

/// A row of `writers`.
#[derive(Debug)]
pub struct WriterRow {
    pub node: usize,
    pub epoch: u64,
}

/// A transaction that has its locks and has not committed.
#[derive(Debug)]
pub struct Transaction {
    pub writer: u64,
    batch: Vec<Chain>,
    answers: Vec<ChainAnswer>,
    is_rerun: bool,
}

/// How a batch begins.
#[derive(Debug)]
pub enum Begun {
    /// It is over: nothing is or will be written.
    Over(Result<BatchAnswer, CommitFault>),
    /// A case is locked and the statement waits.
    Waits,
    /// It runs.
    Runs(u64),
}

/// How a fence went.
#[derive(Debug, PartialEq, Eq)]
pub enum Raised {
    /// This is the new epoch.
    To(u64),
    /// There is no such writer any more.
    Gone,
    /// A transaction of the writer runs.
    Blocked(u64),
}

/// What a batch wrote for one case.
#[derive(Debug)]
pub struct Landed {
    pub case_id: CaseId,
    pub operations: Vec<Operation>,
}

/// Which operation stands at each version.
pub type Versions = Vec<(i64, OperationId)>;

/// The tables.
#[derive(Debug, Default)]
pub struct ModelStore {
    rows: BTreeMap<CaseId, Case>,
    assignments: BTreeMap<CaseId, BTreeSet<ActorId>>,
    operations: BTreeMap<CaseId, BTreeMap<OperationId, Operation>>,
    versions: BTreeMap<CaseId, BTreeMap<i64, OperationId>>,
    outbox: BTreeMap<CaseId, BTreeMap<i64, OperationId>>,
    pub writers: BTreeMap<u64, WriterRow>,
    next: u64,
    pub transactions: BTreeMap<u64, Transaction>,
    /// Tombstones that a planted bug moved away.
    moved: BTreeMap<CaseId, usize>,
    /// Cases that a person holds.
    pub held: BTreeSet<CaseId>,
    bug: Option<StoreBug>,
}

impl ModelStore {
    pub fn new(options: &Options) -> Self {
        let bug = StoreBug::ALL.iter().copied().find(|bug| options.has(*bug));
        Self { bug, ..Self::default() }
    }

    fn has(&self, bug: StoreBug) -> bool {
        self.bug == Some(bug)
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A new writer at epoch 1.
    pub fn writer_open(&mut self, node: usize) -> u64 {
        let id = self.next_id();
        self.writers.insert(id, WriterRow { node, epoch: 1 });
        id
    }

    /// Raises a writer's epoch; a transaction of it holds the row `FOR SHARE` until it ends.
    pub fn fence(&mut self, writer: u64) -> Raised {
        let running = self.transactions.iter().find(|(_, running)| running.writer == writer);
        if let Some((id, _)) = running {
            return Raised::Blocked(*id);
        }
        match self.writers.get_mut(&writer) {
            Some(row) => {
                row.epoch += 1;
                Raised::To(row.epoch)
            }
            None => Raised::Gone,
        }
    }

    fn is_locked(&self, case_id: &CaseId) -> bool {
        let locks = |running: &Transaction| {
            let chains = running.batch.iter().zip(&running.answers);
            chains.into_iter().any(|(chain, answer)| {
                chain.case_id == *case_id && chain.step.is_some() && *answer != ChainAnswer::Locked
            })
        };
        self.held.contains(case_id) || self.transactions.values().any(locks)
    }

    fn version(&self, case_id: &CaseId) -> Version {
        self.rows.get(case_id).map_or(Version::ZERO, |row| row.version)
    }

    /// The statement begins: the fence row is read, cases are locked and compared.
    pub fn begin(&mut self, writer: u64, epoch: u64, batch: &[Chain], waits: bool, is_rerun: bool) -> Begun {
        let is_current = self.writers.get(&writer).is_some_and(|row| row.epoch == epoch);
        if !is_current && !self.has(StoreBug::EpochNotTested) {
            return Begun::Over(Ok(BatchAnswer::Fenced));
        }
        let operations = || batch.iter().filter_map(|chain| chain.step.as_ref()).flat_map(|step| &step.operations);
        let is_poison = |operation: &Operation| operation.request.as_ref().is_some_and(|text| text.contains("poison"));
        if operations().any(is_poison) {
            return Begun::Over(Err(CommitFault::Data));
        }
        let mut answers: Vec<ChainAnswer> = Vec::new();
        for (place, chain) in batch.iter().enumerate() {
            if batch[..place].iter().any(|earlier| earlier.case_id == chain.case_id) {
                // The statement knows a case once; a second chain of it finds the row taken.
                answers.push(ChainAnswer::Locked);
                continue;
            }
            let seen = self.version(&chain.case_id);
            let holds = seen == chain.expected
                || (self.has(StoreBug::NoCompareAndSwap) && chain.step.is_some() && chain.expected != Version::ZERO);
            answers.push(if chain.step.is_some() && self.is_locked(&chain.case_id) {
                if waits {
                    return Begun::Waits;
                }
                ChainAnswer::Locked
            } else if holds {
                ChainAnswer::Held
            } else {
                ChainAnswer::Missed { seen }
            });
        }
        let id = self.next_id();
        self.transactions.insert(id, Transaction { writer, batch: batch.to_vec(), answers, is_rerun });
        Begun::Runs(id)
    }

    /// What a running transaction would answer if it commits.
    pub fn answer_of(&self, transaction: u64) -> Option<BatchAnswer> {
        self.transactions.get(&transaction).map(|running| BatchAnswer::Settled(running.answers.clone()))
    }

    /// Ends a transaction without a trace; false: it had ended before.
    pub fn rollback(&mut self, transaction: u64) -> bool {
        self.transactions.remove(&transaction).is_some()
    }

    /// Commits a running transaction; `None`: it was ended before.
    pub fn commit(&mut self, transaction: u64) -> Option<(Result<BatchAnswer, CommitFault>, Vec<Landed>)> {
        let Transaction { batch, answers, is_rerun, .. } = self.transactions.remove(&transaction)?;
        let won = || batch.iter().zip(&answers).filter(|(_, answer)| **answer == ChainAnswer::Held);
        for (chain, _) in won() {
            if let Some(fault) = self.conflict(chain) {
                return Some((Err(fault), Vec::new()));
            }
        }
        let landed: Vec<Landed> = won().filter_map(|(chain, _)| self.write(chain, is_rerun)).collect();
        Some((Ok(BatchAnswer::Settled(answers)), landed))
    }

    /// Whether a unique key refuses the chain's operations.
    fn conflict(&self, chain: &Chain) -> Option<CommitFault> {
        let step = chain.step.as_ref()?;
        let ids = self.operations.get(&chain.case_id);
        let versions = self.versions.get(&chain.case_id);
        for operation in &step.operations {
            if ids.is_some_and(|ids| ids.contains_key(&operation.operation_id)) {
                return Some(CommitFault::Duplicate);
            }
            if versions.is_some_and(|versions| versions.contains_key(&operation.version.get())) {
                return Some(CommitFault::BrokenInvariant);
            }
        }
        None
    }

    fn write(&mut self, chain: &Chain, is_rerun: bool) -> Option<Landed> {
        let step = chain.step.as_ref()?;
        let case_id = chain.case_id.clone();
        let mut after = step.after.clone();
        after.assignees = BTreeSet::new();
        if let (false, Some(row)) = (step.writes_data, self.rows.get(&case_id)) {
            after.data = row.data.clone();
        }
        self.rows.insert(case_id.clone(), after);
        let assignments = self.assignments.entry(case_id.clone()).or_default();
        for change in &step.assignments {
            if change.present {
                assignments.insert(change.assignee.clone());
            } else {
                assignments.remove(&change.assignee);
            }
        }
        let mut operations = Vec::new();
        if !(is_rerun && self.has(StoreBug::RetryOfLastStatement)) {
            for operation in &step.operations {
                self.insert(operation);
                operations.push(operation.clone());
            }
        }
        Some(Landed { case_id, operations })
    }

    fn insert(&mut self, operation: &Operation) {
        let (case_id, id, version) = (&operation.case_id, operation.operation_id, operation.version.get());
        let operations = self.operations.entry(case_id.clone()).or_default();
        operations.entry(id).or_insert_with(|| operation.clone());
        self.versions.entry(case_id.clone()).or_default().insert(version, id);
        if !self.has(StoreBug::OutboxApart) {
            self.outbox.entry(case_id.clone()).or_default().insert(version, id);
        }
    }

    /// A person's edit, as the triggers record it: the row and its operation at once. Locked cases are left alone.
    pub fn edit(&mut self, state: &CaseState, operation: &Operation) -> bool {
        let CaseState::Present(case) = state else { return false };
        if self.is_locked(&operation.case_id) {
            return false;
        }
        self.assignments.insert(operation.case_id.clone(), case.assignees.clone());
        self.rows.insert(operation.case_id.clone(), Case { assignees: BTreeSet::new(), ..case.clone() });
        self.insert(operation);
        true
    }

    /// Turns an operation into a tombstone.
    pub fn prune(&mut self, case_id: &CaseId, id: OperationId) {
        let elsewhere = self.has(StoreBug::TombstoneElsewhere);
        let Some(operations) = self.operations.get_mut(case_id) else { return };
        if elsewhere {
            operations.remove(&id);
            *self.moved.entry(case_id.clone()).or_default() += 1;
        } else if let Some(operation) = operations.get_mut(&id) {
            (operation.request, operation.outcome) = (None, None);
        }
    }

    /// The case as it stands.
    pub fn state(&self, case_id: &CaseId) -> CaseState {
        match self.rows.get(case_id) {
            None => CaseState::Absent,
            Some(row) => {
                let assignees = self.assignments.get(case_id).cloned().unwrap_or_default();
                CaseState::Present(Case { assignees, ..row.clone() })
            }
        }
    }

    /// The case's operations, unless there are more than so many.
    pub fn known(&self, case_id: &CaseId, operations_max: usize) -> Option<Vec<KnownOperation>> {
        let Some(operations) = self.operations.get(case_id) else { return Some(Vec::new()) };
        (operations.len() <= operations_max).then(|| operations.values().map(KnownOperation::from).collect())
    }

    /// Those of the ids that are recorded.
    pub fn find(&self, case_id: &CaseId, ids: &[OperationId]) -> Vec<KnownOperation> {
        let operations = self.operations.get(case_id);
        ids.iter().filter_map(|id| operations?.get(id)).map(KnownOperation::from).collect()
    }

    /// The operation at each version, and its outbox row.
    pub fn rows_of(&self, case_id: &CaseId) -> (Versions, Versions) {
        let list = |table: &BTreeMap<CaseId, BTreeMap<i64, OperationId>>| {
            table.get(case_id).into_iter().flatten().map(|(version, id)| (*version, *id)).collect()
        };
        (list(&self.versions), list(&self.outbox))
    }

    /// How many operations a case has.
    pub fn operation_count(&self, case_id: &CaseId) -> usize {
        self.operations.get(case_id).map_or(0, BTreeMap::len) + self.moved.get(case_id).copied().unwrap_or(0)
    }
}
