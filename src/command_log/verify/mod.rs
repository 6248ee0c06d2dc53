//! Proving a database: every case recomputed from its operations.
//!
//! Owns the walk over one snapshot and the list of what is wrong; what must hold for one case is in `case_fold`. Keeps one
//! case's state and a few pages in memory, however long a history is. Never writes. Fails with [`StoreError`] when the
//! database can't be read; what it finds is no error but a [`VerifyReport`].

mod case_fold;
mod scan;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::case_fold::CaseFold;
use self::scan::Scan;
use crate::domain::{CaseId, CaseState, Operation, Version, Workflow, WorkflowName};
use crate::store::{Database, Snapshot, StoreError, StoredWorkflow};

/// The workflows that cases follow, by name.
pub type WorkflowMap = HashMap<WorkflowName, Arc<Workflow>>;

/// How a database is proved.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// How many faults are listed; all are counted.
    pub faults_max: usize,
    /// Counts the operations that were looked at, for whoever shows progress.
    pub progress: Arc<AtomicU64>,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { faults_max: 20, progress: Arc::default() }
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// The case; `None`: it concerns no single one.
    pub case_id: Option<CaseId>,
    /// The version at which it shows; `None`: it concerns the case as a whole.
    pub version: Option<Version>,
    /// A sentence that says what is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.case_id, self.version) {
            (Some(case_id), Some(version)) => write!(f, "case `{case_id}`, version {version}: {}", self.what),
            (Some(case_id), None) => write!(f, "case `{case_id}`: {}", self.what),
            _ => f.write_str(&self.what),
        }
    }
}

/// What was looked at, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Cases (case ids with a row of any kind).
    pub cases: u64,
    /// Operations.
    pub operations: u64,
    /// Those whose request and outcome are pruned: their resulting status, revision and version are taken as they stand.
    pub pruned: u64,
    /// Outbox rows.
    pub outbox: u64,
    /// How many faults there are.
    pub faults: u64,
    /// The first of them, in key order.
    pub first_faults: Vec<Fault>,
    #[serde(skip)]
    faults_max: usize,
}

impl VerifyReport {
    /// Whether every invariant holds.
    pub fn is_clean(&self) -> bool {
        self.faults == 0
    }

    fn fault(&mut self, case_id: Option<&CaseId>, version: Option<Version>, what: impl Into<String>) {
        self.faults += 1;
        if self.first_faults.len() < self.faults_max {
            self.first_faults.push(Fault { case_id: case_id.cloned(), version, what: what.into() });
        }
    }
}

/// Someone who looks on while a database is proved, to hold it against what else is known. Cases come in the order of
/// their ids (bytes), the operations of a case by version.
pub trait CaseWitness: Send {
    /// An operation was folded. `state` is its case afterwards; `None` where that can't be known for certain, behind a row
    /// that is pruned or wrong.
    fn operation(&mut self, operation: &Operation, state: Option<&CaseState>);

    /// The case was read to its end; it has so many outbox rows.
    fn case_end(&mut self, case_id: &CaseId, outbox: u64);
}

/// Nobody looks on.
impl CaseWitness for () {
    fn operation(&mut self, _: &Operation, _: Option<&CaseState>) {}
    fn case_end(&mut self, _: &CaseId, _: u64) {}
}

/// Proves a whole database, workflows included, on one snapshot.
///
/// # Errors
/// [`StoreError`] when it can't be read to its end.
pub async fn verify(database: &Database, options: VerifyOptions) -> Result<VerifyReport, StoreError> {
    Ok(verify_before(database, options, ()).await?.0)
}

/// The same before a witness, who is given back.
///
/// # Errors
/// [`StoreError`] when it can't be read to its end.
pub async fn verify_before<W: CaseWitness + 'static>(
    database: &Database,
    options: VerifyOptions,
    mut witness: W,
) -> Result<(VerifyReport, W), StoreError> {
    database
        .call(move |store| async move {
            let mut report = VerifyReport { faults_max: options.faults_max, ..VerifyReport::default() };
            let mut snapshot = store.snapshot().await?;
            // Workflows are only ever added, so that those of a moment later include those of the snapshot.
            let workflows = read_workflows(&store.workflow_list().await?, &mut report);
            verify_into(snapshot.as_mut(), &workflows, &options.progress, &mut witness, &mut report).await?;
            Ok((report, witness))
        })
        .await
}

/// Proves the cases, operations and outbox rows of a snapshot. Must run where the snapshot's connection lives.
///
/// # Errors
/// [`StoreError`] when it can't be read to its end.
pub async fn verify_snapshot(
    snapshot: &mut dyn Snapshot,
    workflows: &WorkflowMap,
    options: &VerifyOptions,
) -> Result<VerifyReport, StoreError> {
    verify_snapshot_before(snapshot, workflows, options, &mut ()).await
}

/// The same before a witness.
///
/// # Errors
/// [`StoreError`] when it can't be read to its end.
pub async fn verify_snapshot_before(
    snapshot: &mut dyn Snapshot,
    workflows: &WorkflowMap,
    options: &VerifyOptions,
    witness: &mut dyn CaseWitness,
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport { faults_max: options.faults_max, ..VerifyReport::default() };
    verify_into(snapshot, workflows, &options.progress, witness, &mut report).await?;
    Ok(report)
}

fn read_workflows(stored: &[StoredWorkflow], report: &mut VerifyReport) -> WorkflowMap {
    let mut workflows = WorkflowMap::new();
    for row in stored {
        let name = &row.name;
        match Workflow::parse(&row.text) {
            Ok(workflow) => {
                if workflow.name() != name || *workflow.digest() != row.digest {
                    report.fault(None, None, format!("the stored workflow `{name}` does not fit its name and digest"));
                }
                workflows.insert(name.clone(), Arc::new(workflow));
            }
            Err(error) => report.fault(None, None, format!("the stored workflow `{name}` can't be read: {error}")),
        }
    }
    workflows
}

async fn verify_into(
    snapshot: &mut dyn Snapshot,
    workflows: &WorkflowMap,
    progress: &AtomicU64,
    witness: &mut dyn CaseWitness,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut scan = Scan::new(snapshot);
    while let Some(case_id) = scan.first_case_id().await? {
        report.cases += 1;
        let outbox_before = report.outbox;
        let record = scan.take_case(&case_id).await?;
        let mut fold = CaseFold::new(case_id.clone(), record, workflows);
        while let Some(operation) = scan.take_operation(&case_id).await? {
            report.operations += 1;
            progress.fetch_add(1, Ordering::Relaxed);
            fold.fold(&operation, report);
            witness.operation(&operation, fold.known_state());
            while let Some(row) = scan.take_outbox(&case_id, Some(operation.version)).await? {
                report.outbox += 1;
                fold.outbox(&row, Some(&operation), report);
            }
            fold.end_of_version(&operation, report);
        }
        while let Some(row) = scan.take_outbox(&case_id, None).await? {
            report.outbox += 1;
            fold.outbox(&row, None, report);
        }
        fold.finish(report);
        witness.case_end(&case_id, report.outbox - outbox_before);
    }
    Ok(())
}
