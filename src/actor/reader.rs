//! Reads for the case machines: cases and operation ids, many in one statement.
//!
//! Owns the batching: while a read runs, requests gather, and the next read takes them all. A read begins after its requests
//! have arrived, which is what makes "no such case" an answer. Runs on the database runtime. What fails is answered as
//! trouble; nothing is retried here.

use std::sync::Arc;

use actix::{Addr, Message};
use tokio::sync::{Semaphore, mpsc};
use tracing::{error, warn};

use super::shard::CaseShard;
use super::workflows::WorkflowRegistry;
use crate::domain::{Case, CaseId, CaseState, KnownOperation, OperationId};
use crate::engine::{ReadFound, ReadKind, ReadOrder, Trouble};
use crate::store::{CaseLoad, CaseRecord, Database, StoreError};

/// Requests in one statement.
const BATCH_MAX: usize = 256;
/// Statements at once.
const READS_MAX: usize = 3;
/// A case with more operations comes without their ids; each id is then asked for.
const OPERATIONS_MAX: usize = 256;

/// A read that a shard asks for.
pub(super) struct ReadRequest {
    pub(super) order: ReadOrder,
    pub(super) shard: Addr<CaseShard>,
}

impl ReadRequest {
    /// The answer when it can't be read.
    pub(super) fn failed(self, trouble: Trouble) -> ReadAnswer {
        let ReadOrder { case_id, number, kind } = self.order;
        ReadAnswer { case_id, number, found: ReadFound::failed(&kind, trouble) }
    }

    fn answer(self, found: ReadFound) {
        let ReadOrder { case_id, number, .. } = self.order;
        self.shard.do_send(ReadAnswer { case_id, number, found });
    }
}

/// What was read.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ReadAnswer {
    pub(super) case_id: CaseId,
    pub(super) number: u64,
    pub(super) found: ReadFound,
}

/// Starts the reader; it ends when the last sender is gone. The channel is bounded by admission: a case has one read under
/// way.
pub(super) fn start(database: Database, workflows: WorkflowRegistry) -> mpsc::UnboundedSender<ReadRequest> {
    let (sender, mut requests) = mpsc::unbounded_channel::<ReadRequest>();
    let runner = database.clone();
    runner.spawn(async move {
        let slots = Arc::new(Semaphore::new(READS_MAX));
        let mut batch = Vec::new();
        loop {
            let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            if requests.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            let taken = std::mem::take(&mut batch);
            let (database, workflows) = (database.clone(), workflows.clone());
            tokio::spawn(async move {
                read(&database, &workflows, taken).await;
                drop(slot);
            });
        }
    });
    sender
}

async fn read(database: &Database, workflows: &WorkflowRegistry, requests: Vec<ReadRequest>) {
    let (cases, operations): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|request| matches!(request.order.kind, ReadKind::Case));
    if !cases.is_empty() {
        read_cases(database, workflows, cases).await;
    }
    if !operations.is_empty() {
        read_operations(database, operations).await;
    }
}

async fn read_cases(database: &Database, workflows: &WorkflowRegistry, requests: Vec<ReadRequest>) {
    let ids: Vec<CaseId> = requests.iter().map(|request| request.order.case_id.clone()).collect();
    match database.store().cases_load(&ids, OPERATIONS_MAX).await {
        Ok(loads) => {
            for (request, load) in requests.into_iter().zip(loads) {
                let found = hydrate(workflows, load).await;
                request.answer(ReadFound::Case(found));
            }
        }
        Err(error) => fail_all(requests, &error),
    }
}

async fn hydrate(
    workflows: &WorkflowRegistry,
    load: CaseLoad,
) -> Result<(CaseState, Option<Vec<KnownOperation>>), Trouble> {
    let Some(record) = load.record else { return Ok((CaseState::Absent, load.operations)) };
    let CaseRecord { case_id, workflow, status, revision, version, assignees, data, opened_at, updated_at } = record;
    let workflow = match workflows.find(&workflow).await {
        Ok(Some(workflow)) => workflow,
        Ok(None) => {
            error!(case.id = %case_id, workflow = %workflow, "a case names a workflow that is not stored");
            return Err(Trouble::Internal);
        }
        Err(error) => {
            warn!(case.id = %case_id, %error, "a case's workflow can't be read");
            return Err(Trouble::Unavailable);
        }
    };
    let assignees = assignees.into_iter().collect();
    let case = Case { workflow, status, revision, version, assignees, data, opened_at, updated_at };
    Ok((CaseState::Present(case), load.operations))
}

async fn read_operations(database: &Database, requests: Vec<ReadRequest>) {
    let keys: Vec<(CaseId, OperationId)> = requests
        .iter()
        .flat_map(|request| {
            let ids = match &request.order.kind {
                ReadKind::Operations(ids) => ids.as_slice(),
                ReadKind::Case => &[],
            };
            ids.iter().map(|id| (request.order.case_id.clone(), *id))
        })
        .collect();
    match database.store().operations_find(&keys).await {
        Ok(mut found) => {
            for request in requests {
                let of_case = found.extract_if(.., |(case_id, _)| *case_id == request.order.case_id);
                let operations = of_case.map(|(_, operation)| operation).collect();
                request.answer(ReadFound::Operations(Ok(operations)));
            }
        }
        Err(error) => fail_all(requests, &error),
    }
}

fn fail_all(requests: Vec<ReadRequest>, error: &StoreError) {
    let trouble = match error {
        StoreError::Inconsistent { .. } => Trouble::Internal,
        StoreError::Unavailable { .. } | StoreError::Refused { .. } => Trouble::Unavailable,
    };
    warn!(%error, cases = requests.len(), "cases can't be read");
    for request in requests {
        let shard = request.shard.clone();
        shard.do_send(request.failed(trouble));
    }
}
