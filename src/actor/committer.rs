//! The task behind a commit queue: it owns the committing connections and does what the queue says.
//!
//! Owns the connections that commit: those for batches, a few that wait for locked cases. A commit is never cancelled half
//! way: it runs in a task of its own, which brings the connection back. Runs on the database runtime; ends when its shard is
//! gone and nothing is in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::Addr;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::shard::{BatchSettled, CaseShard};
use crate::domain::CaseId;
use crate::engine::{BatchAnswer, Chain, CommitFault, CommitQueue, LockMode, QueueEffect, QueueEvent, QueueLimits};
use crate::metrics::Metrics;
use crate::store::{Database, StoreError, Writer};

/// How long a waiting connection waits for a lock in one statement.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// The pause between fences of a connection that waited for a case.
const FENCE_PAUSE: Duration = Duration::from_millis(250);

type Connection = Box<dyn Writer>;

/// What comes back from the tasks.
enum Return {
    /// A committing connection by its number, and what it brings.
    Batch(usize, Connection, QueueEvent),
    /// A connection that waited for a case (if it is of further use), and what it brings.
    Patient(Option<Connection>, QueueEvent),
    /// News of a connection that is still busy.
    News(QueueEvent),
}

/// What a committer needs to begin.
pub(super) struct CommitterParts {
    pub(super) database: Database,
    pub(super) writers: Vec<Connection>,
    pub(super) node: String,
    pub(super) epoch: Instant,
    pub(super) shard: Addr<CaseShard>,
    pub(super) events: mpsc::Receiver<QueueEvent>,
    pub(super) metrics: Arc<Metrics>,
}

struct Committer {
    database: Database,
    node: String,
    epoch: Instant,
    shard: Addr<CaseShard>,
    queue: CommitQueue,
    /// By their numbers; `None`: it is at work.
    writers: Vec<Option<Connection>>,
    patient_writers: Vec<Connection>,
    returns: mpsc::UnboundedSender<Return>,
    wake_at: Option<Duration>,
    metrics: Arc<Metrics>,
}

/// Starts a committer.
pub(super) fn start(parts: CommitterParts) {
    let CommitterParts { database, writers, node, epoch, shard, mut events, metrics } = parts;
    // Bounded by the connections: each task sends a return, and news at most once a fence.
    let (returns, mut returned) = mpsc::unbounded_channel();
    let runner = database.clone();
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let mut committer = Committer {
        database,
        node,
        epoch,
        shard,
        queue: CommitQueue::new(QueueLimits { connections: writers.len(), ..QueueLimits::default() }, seed),
        writers: writers.into_iter().map(Some).collect(),
        patient_writers: Vec::new(),
        returns,
        wake_at: None,
        metrics,
    };
    runner.spawn(async move {
        let mut is_open = true;
        while is_open || !committer.queue.is_idle() {
            let pause = committer.wake_at.map(|at| at.saturating_sub(committer.epoch.elapsed()));
            tokio::select! {
                biased;
                event = events.recv(), if is_open => match event {
                    Some(event) => committer.handle(event),
                    None => is_open = false,
                },
                returned = returned.recv() => match returned.expect("the committer holds a sender itself") {
                    Return::Batch(connection, writer, event) => {
                        committer.writers[connection] = Some(writer);
                        committer.handle(event);
                    }
                    Return::Patient(writer, event) => {
                        committer.patient_writers.extend(writer);
                        committer.handle(event);
                    }
                    Return::News(event) => committer.handle(event),
                },
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    committer.wake_at = None;
                    committer.handle(QueueEvent::Woken);
                }
            }
        }
    });
}

impl Committer {
    fn handle(&mut self, event: QueueEvent) {
        let mut effects = Vec::new();
        self.queue.step(event, self.epoch.elapsed(), &mut effects);
        self.metrics.commits.waited(self.queue.waits());
        let mut settled = Vec::new();
        for effect in effects {
            match effect {
                QueueEffect::Settle(case_id, verdict) => settled.push((case_id, verdict)),
                QueueEffect::Commit(connection, batch) => self.commit(connection, batch),
                QueueEffect::CommitPatiently(chain, wait) => self.commit_patiently(chain, wait),
                QueueEffect::Fence(connection) => self.fence(connection),
                QueueEffect::WakeAt(at) => {
                    self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
                }
            }
        }
        if !settled.is_empty() {
            // Facts, not commands: bounded by the chains that were in flight.
            self.shard.do_send(BatchSettled(settled));
        }
    }

    fn take_writer(&mut self, connection: usize) -> Connection {
        self.writers[connection].take().expect("the queue uses a connection only while it is free")
    }

    fn commit(&mut self, connection: usize, batch: Vec<Chain>) {
        let (mut writer, returns) = (self.take_writer(connection), self.returns.clone());
        let metrics = self.metrics.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let answer = commit(&mut writer, &batch, LockMode::Skip).await;
            metrics.commits.answered(&batch, sent.elapsed(), &answer);
            // The receiver is gone only when the process ends.
            let _ended = returns.send(Return::Batch(connection, writer, QueueEvent::Answered(connection, answer)));
        });
    }

    fn fence(&mut self, connection: usize) {
        let (mut writer, returns) = (self.take_writer(connection), self.returns.clone());
        tokio::spawn(async move {
            let event = match fence(&mut writer).await {
                Ok(()) => QueueEvent::FenceHeld(connection),
                Err(_) => QueueEvent::FenceFailed(connection),
            };
            let _ended = returns.send(Return::Batch(connection, writer, event));
        });
    }

    fn commit_patiently(&mut self, chain: Chain, wait: Duration) {
        let (kept, returns) = (self.patient_writers.pop(), self.returns.clone());
        let (store, node) = (self.database.store().clone(), self.node.clone());
        let metrics = self.metrics.clone();
        tokio::spawn(async move {
            let case_id = chain.case_id.clone();
            info!(case.id = %case_id, "a case is held by another transaction; waiting for it apart from the others");
            let opened = match kept {
                Some(writer) => Ok(writer),
                None => store.writer_open(&node).await,
            };
            let (writer, event) = match opened {
                Ok(mut writer) => {
                    let lock = LockMode::Wait(wait.min(LOCK_WAIT_MAX));
                    let answer = commit(&mut writer, &[chain], lock).await;
                    metrics.commits.count(1, &answer);
                    let is_unclear = matches!(answer, Err(CommitFault::Unclear) | Ok(BatchAnswer::Fenced));
                    let mut event = QueueEvent::PatientAnswered(case_id.clone(), answer);
                    if is_unclear {
                        let _ended = returns.send(Return::News(event));
                        fence_until_it_holds(&mut writer, &case_id, &returns).await;
                        event = QueueEvent::PatientFenceHeld(case_id);
                    }
                    (Some(writer), event)
                }
                Err(error) => {
                    warn!(case.id = %case_id, %error, "no connection to wait for a locked case");
                    (None, QueueEvent::PatientAnswered(case_id, Err(CommitFault::Failed)))
                }
            };
            let _ended = returns.send(Return::Patient(writer, event));
        });
    }
}

async fn commit(writer: &mut Connection, batch: &[Chain], lock: LockMode) -> Result<BatchAnswer, CommitFault> {
    writer.commit(batch, lock).await.map_err(|error| {
        warn!(chains = batch.len(), %error, "a batch did not commit");
        error.fault
    })
}

async fn fence(writer: &mut Connection) -> Result<(), StoreError> {
    let raised = writer.fence().await;
    match &raised {
        Ok(()) => info!("the writer fence holds; what became of the unclear batch is read now"),
        Err(error) => warn!(%error, "the writer fence can't be raised yet"),
    }
    raised
}

async fn fence_until_it_holds(writer: &mut Connection, case_id: &CaseId, returns: &mpsc::UnboundedSender<Return>) {
    while fence(writer).await.is_err() {
        let _ended = returns.send(Return::News(QueueEvent::PatientFenceFailed(case_id.clone())));
        tokio::time::sleep(FENCE_PAUSE).await;
    }
}
