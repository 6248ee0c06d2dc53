//! The one door: every command comes in here, from HTTP, from a stream or from a log file.
//!
//! Owns admission (a bounded number of commands, counted from here to their answers), the routing of a case to its shard,
//! and draining. Callers see this handle, never an address or a channel. Never decides. What does not fit is answered
//! `overloaded`, what comes while draining `draining`, both before anything is recorded.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::{Actor, Addr, Arbiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tracing::warn;

use super::committer::{self, CommitterParts};
use super::reader;
use super::shard::{CaseShard, IsPending, SubmitCommand, TakeStats};
use super::ticket::{Ticket, turn_away};
use super::workflows::WorkflowRegistry;
use crate::domain::{CaseId, Command, OperationId, Timestamp, Workflow, WorkflowName};
use crate::engine::{Answer, Envelope, Lane, Trouble};
use crate::metrics::{CommandLabel, Metrics, Refusal};
use crate::store::{Database, DatabaseKind, StoreError};

/// The bounds of a gateway. Every queue behind it is bounded by them.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Under which name this process records its writers. One name, one running process.
    pub node: String,
    /// How many shards (arbiters, each with a commit queue) share the cases: a core deciding feeds about one that commits. On
    /// SQLite there is always one: a file has one writer, and two queues before it would only halve its batches.
    pub shards: usize,
    /// How many connections of each shard commit. Two keep the database at work while an answer is on its way; on SQLite
    /// there is always one.
    pub committers: usize,
    /// Commands that may be admitted at once, over all cases.
    pub commands_max: usize,
    /// Commands that may wait for one case.
    pub case_commands_max: usize,
    /// Cases that may be kept in memory, over all shards.
    pub cases_max: usize,
    /// Bytes of outcomes that may be kept in memory, over all shards.
    pub outcomes_bytes_max: usize,
    /// How long a command may wait before it is decided.
    pub deadline: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            node: uuid::Uuid::new_v4().to_string(),
            shards: (cores() / 2).max(1),
            committers: 2,
            commands_max: 16_384,
            case_commands_max: 1_024,
            cases_max: 100_000,
            outcomes_bytes_max: 256 << 20,
            deadline: Duration::from_secs(30),
        }
    }
}

impl GatewayOptions {
    /// For a caller that never has more than so many commands on their way: its window is the bound, and nothing in it is
    /// turned away.
    pub fn for_window(window: usize) -> Self {
        let defaults = Self::default();
        Self {
            commands_max: defaults.commands_max.max(window),
            case_commands_max: defaults.case_commands_max.max(window),
            ..defaults
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A command on its way in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The command.
    pub command: Command,
    /// When it was decided, if a log says so; else the clock does.
    pub recorded_at: Option<Timestamp>,
    /// The stream that it belongs to, if its lines must run in order.
    pub lane: Option<Lane>,
}

/// The answer that will come. Dropping it cancels nothing.
#[derive(Debug)]
pub struct PendingAnswer(oneshot::Receiver<Answer>);

impl Future for PendingAnswer {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Answer::Unsettled(Trouble::Unavailable)))
    }
}

/// A cheap, cloneable handle to all actors of this process. When the last clone goes, the actors end.
#[derive(Clone)]
pub struct CommandGateway(Arc<Inner>);

struct Inner {
    database: Database,
    workflows: WorkflowRegistry,
    options: GatewayOptions,
    epoch: Instant,
    shards: Vec<(Arbiter, Addr<CaseShard>)>,
    admission: Arc<Semaphore>,
    is_draining: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (arbiter, _) in &self.shards {
            arbiter.stop();
        }
    }
}

impl CommandGateway {
    /// Starts the shards and their committers. Fences what an earlier process of the same node left behind. Must be called
    /// inside an actix `System`, since arbiters belong to one.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be reached.
    pub async fn start(
        database: Database,
        workflows: WorkflowRegistry,
        mut options: GatewayOptions,
    ) -> Result<Self, StoreError> {
        (options.shards, options.committers) = match database.store().kind() {
            DatabaseKind::Sqlite => (1, 1),
            DatabaseKind::Postgres => (options.shards.max(1), options.committers.max(1)),
        };
        let node = options.node.clone();
        database.call(move |store| async move { store.writers_fence(&node).await }).await?;
        let epoch = Instant::now();
        let metrics = Arc::new(Metrics::new());
        let reads = reader::start(database.clone(), workflows.clone());
        let mut shards = Vec::new();
        for _ in 0..options.shards {
            let mut writers = Vec::new();
            for _ in 0..options.committers {
                let node = options.node.clone();
                writers.push(database.call(move |store| async move { store.writer_open(&node).await }).await?);
            }
            let (commits, events) = mpsc::channel(options.commands_max.max(1));
            let arbiter = Arbiter::new();
            let (shard_options, shard_reads, shard_metrics) = (options.clone(), reads.clone(), metrics.clone());
            let (ready, is_ready) = oneshot::channel();
            let shard = CaseShard::start_in_arbiter(&arbiter.handle(), move |context| {
                let shard = CaseShard::new(context, shard_options, epoch, shard_reads, commits, shard_metrics);
                let _nobody_waits = ready.send(());
                shard
            });
            // Before that its mailbox is as small as actix makes one.
            is_ready.await.expect("the arbiter was just started and runs the shard's first line");
            let (database, node, shard_actor) = (database.clone(), options.node.clone(), shard.clone());
            let metrics = metrics.clone();
            committer::start(CommitterParts { database, writers, node, epoch, shard: shard_actor, events, metrics });
            shards.push((arbiter, shard));
        }
        let admission = Arc::new(Semaphore::new(options.commands_max));
        let is_draining = AtomicBool::new(false);
        Ok(Self(Arc::new(Inner { database, workflows, options, epoch, shards, admission, is_draining, metrics })))
    }

    /// Sends a command to its case. A full queue answers `overloaded` at once.
    pub fn submit(&self, submission: Submission) -> PendingAnswer {
        if self.is_draining() {
            return self.refuse(submission, Trouble::Draining);
        }
        let Ok(admitted) = self.0.admission.clone().try_acquire_owned() else {
            return self.refuse(submission, Trouble::Overloaded);
        };
        let workflow = match submission.command.named_workflow() {
            None => Some(self.0.workflows.default_workflow().clone()),
            Some(name) => self.0.workflows.get(name),
        };
        let (envelope, answer) = self.admit(submission, admitted, workflow);
        match envelope.workflow {
            Some(_) => self.route(envelope),
            None => self.route_when_found(envelope),
        }
        answer
    }

    /// Sends a command to its case as soon as there is room for it: the back-pressure of streams and log files. Commands reach
    /// their case in the order of these calls, if each is awaited before the next is made.
    pub async fn submit_when_admitted(&self, submission: Submission) -> PendingAnswer {
        // Looked up before it is on its way, so that no later line of its case overtakes it meanwhile.
        let workflow = match submission.command.named_workflow() {
            None => Some(self.0.workflows.default_workflow().clone()),
            Some(name) => match self.find_workflow(name).await {
                Ok(workflow) => workflow,
                Err(trouble) => return self.refuse(submission, trouble),
            },
        };
        match self.0.admission.clone().acquire_owned().await {
            Ok(admitted) if !self.is_draining() => {
                let (envelope, answer) = self.admit(submission, admitted, workflow);
                self.route(envelope);
                answer
            }
            _ => self.refuse(submission, Trouble::Draining),
        }
    }

    /// Answers what is not admitted.
    fn refuse(&self, submission: Submission, trouble: Trouble) -> PendingAnswer {
        match trouble {
            Trouble::Overloaded => self.metrics().admission.refused(Refusal::CommandsMax, 1),
            Trouble::Draining => self.metrics().admission.refused(Refusal::Draining, 1),
            Trouble::Contention | Trouble::Unavailable | Trouble::Internal => {}
        }
        let now = self.0.epoch.elapsed();
        let (ticket, receiver) = Ticket::new(self.label(&submission.command), now, None);
        let answer = Answer::Unsettled(trouble);
        if let Some(lane) = &submission.lane {
            lane.note(&answer);
        }
        ticket.answer(answer, self.metrics(), now);
        PendingAnswer(receiver)
    }

    fn label(&self, command: &Command) -> CommandLabel {
        self.metrics().commands.label(command, |name| self.0.workflows.has_action(name))
    }

    fn admit(
        &self,
        submission: Submission,
        admitted: OwnedSemaphorePermit,
        workflow: Option<Arc<Workflow>>,
    ) -> (Envelope<Ticket>, PendingAnswer) {
        let arrived = self.0.epoch.elapsed();
        let Submission { command, recorded_at, lane } = submission;
        let (ticket, receiver) = Ticket::new(self.label(&command), arrived, Some(admitted));
        let deadline = arrived + self.0.options.deadline;
        (Envelope { command, workflow, recorded_at, deadline, lane, ticket }, PendingAnswer(receiver))
    }

    /// The command names a workflow that this process has not met: another process may have stored it.
    fn route_when_found(&self, mut envelope: Envelope<Ticket>) {
        let gateway = self.clone();
        self.0.database.spawn(async move {
            let name = envelope.command.named_workflow().expect("only such commands come here").clone();
            match gateway.find_workflow(&name).await {
                Ok(workflow) => {
                    envelope.workflow = workflow;
                    gateway.route(envelope);
                }
                Err(trouble) => {
                    let answer = Answer::Unsettled(trouble);
                    turn_away(envelope, answer, gateway.metrics(), gateway.0.epoch.elapsed());
                }
            }
        });
    }

    /// A workflow by name; `None`: there is none. Then the case still has a say: its id, and whether it is there, come first.
    async fn find_workflow(&self, name: &WorkflowName) -> Result<Option<Arc<Workflow>>, Trouble> {
        self.0.workflows.find(name).await.map_err(|error| {
            warn!(workflow = %name, %error, "a workflow can't be looked up");
            Trouble::Unavailable
        })
    }

    fn route(&self, envelope: Envelope<Ticket>) {
        let shard = self.shard(envelope.command.case_id());
        if let Err(refused) = shard.try_send(SubmitCommand(envelope)) {
            let (SendError::Full(SubmitCommand(envelope)) | SendError::Closed(SubmitCommand(envelope))) = refused;
            self.metrics().admission.refused(Refusal::CommandsMax, 1);
            let answer = Answer::Unsettled(Trouble::Overloaded);
            turn_away(envelope, answer, self.metrics(), self.0.epoch.elapsed());
        }
    }

    fn shard(&self, case_id: &CaseId) -> &Addr<CaseShard> {
        let mut hasher = DefaultHasher::new();
        case_id.hash(&mut hasher);
        let index = hasher.finish() % self.0.shards.len() as u64;
        &self.0.shards[index as usize].1
    }

    /// Whether a command under this id is waiting or in flight in this process.
    pub async fn is_pending(&self, case_id: &CaseId, operation_id: OperationId) -> bool {
        let shard = self.shard(case_id).clone();
        shard.send(IsPending(case_id.clone(), operation_id)).await.unwrap_or(false)
    }

    /// Refuses new commands with `draining`; what is admitted goes on.
    pub fn begin_drain(&self) {
        self.0.is_draining.store(true, Ordering::Release);
    }

    /// Whether [`Self::begin_drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.0.is_draining.load(Ordering::Acquire)
    }

    /// Waits until everything admitted is answered. Call [`Self::begin_drain`] first.
    pub async fn drained(&self) {
        let all = u32::try_from(self.0.options.commands_max).unwrap_or(u32::MAX);
        let _all_answered = self.0.admission.acquire_many(all).await;
    }

    /// What this process measures of itself.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// All metrics as of now, in Prometheus' text format. A shard that has ended shows nothing.
    pub async fn metrics_text(&self) -> String {
        let mut stats = Vec::new();
        for (_, shard) in &self.0.shards {
            stats.extend(shard.send(TakeStats).await.ok());
        }
        let metrics = self.metrics();
        metrics.memory.show(&stats);
        // While draining, permits are collected from those that are free.
        if !self.is_draining() {
            metrics.admission.show_admitted(self.0.options.commands_max - self.0.admission.available_permits());
        }
        metrics.text()
    }

    /// The workflows of this process.
    pub fn workflows(&self) -> &WorkflowRegistry {
        &self.0.workflows
    }

    /// The database, for reads.
    pub fn database(&self) -> &Database {
        &self.0.database
    }
}
