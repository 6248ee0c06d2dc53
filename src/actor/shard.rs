//! One shard: the cases of one arbiter and their actors.
//!
//! Owns the addresses of the case actors. Which case is in memory, which has an actor and what must leave is decided by the
//! [`CaseTable`]; this is its thin driver. Never decides, never waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult, ResponseFuture};
use tokio::sync::mpsc;
use tracing::error;

use super::case_actor::{CaseActor, HandleEvent, IsWaiting};
use super::gateway::GatewayOptions;
use super::reader::{ReadAnswer, ReadRequest};
use super::ticket::{Ticket, turn_away};
use crate::clock;
use crate::domain::{CaseId, OperationId};
use crate::engine::{
    Answer, CaseCell, CaseEvent, CaseLimits, CaseTable, Chain, Envelope, Now, OperationCache, QueueEvent, ReadOrder,
    ShardMemory, TableEffect, TableLimits, TableStats, Trouble, Verdict,
};
use crate::metrics::{Metrics, Refusal};

/// How often a part of the actors is looked at, for those that are idle.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// Each of them once a second.
const SWEEP_PARTS: usize = 20;
/// How long an actor stays without work.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Details of so many operations of one case are kept; of older ones only the ids.
const DETAILS_PER_CASE_MAX: usize = 4_096;

/// What a shard and its case actors share; all on one arbiter.
pub(super) struct ShardContext {
    pub(super) options: GatewayOptions,
    epoch: Instant,
    address: Addr<CaseShard>,
    reads: mpsc::UnboundedSender<ReadRequest>,
    commits: mpsc::Sender<QueueEvent>,
    /// Decided, and not handed to the commit queue yet.
    decided: RefCell<Vec<(Chain, Duration)>>,
    pub(super) metrics: Arc<Metrics>,
}

impl ShardContext {
    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.epoch.elapsed(), wall: clock::now() }
    }

    /// A case has sent a command away that had arrived then: it had too many waiting, or this one for too long.
    pub(super) fn note_refusal(&self, arrived: Duration, now: Duration) {
        let is_late = now >= arrived + self.options.deadline;
        let refusal = if is_late { Refusal::Deadline } else { Refusal::CaseCommandsMax };
        self.metrics.admission.refused(refusal, 1);
    }

    /// Begins a read; its answer comes to the shard.
    pub(super) fn read(&self, order: ReadOrder) {
        if let Err(unsent) = self.reads.send(ReadRequest { order, shard: self.address.clone() }) {
            // The reader is gone: the process is ending.
            self.address.do_send(unsent.0.failed(Trouble::Unavailable));
        }
    }

    /// Hands a chain to the commit queue, with those that other cases decide while this one's message is on its way: they
    /// wake the committer once, and its first batch is not a single chain.
    pub(super) fn commit(&self, chain: Chain, deadline: Duration) {
        let mut decided = self.decided.borrow_mut();
        if decided.is_empty() {
            self.address.do_send(HandOver);
        }
        decided.push((chain, deadline));
    }

    /// The channel has room for as many messages as commands may be admitted.
    fn hand_over(&self) {
        if let Err(unsent) = self.commits.try_send(QueueEvent::Enqueued(self.decided.take())) {
            let (mpsc::error::TrySendError::Full(event) | mpsc::error::TrySendError::Closed(event)) = unsent;
            if let QueueEvent::Enqueued(chains) = event {
                error!(chains = chains.len(), "chains could not be handed to the commit queue");
                let failed = chains.into_iter().map(|(chain, _)| (chain.case_id, Verdict::Failed));
                self.address.do_send(BatchSettled(failed.collect()));
            }
        }
    }
}

/// The actor of a shard.
pub(super) struct CaseShard {
    context: Rc<ShardContext>,
    table: CaseTable<Ticket>,
    actors: HashMap<CaseId, Addr<CaseActor>>,
}

impl CaseShard {
    /// A shard whose reads and commits go to these queues. From now on its mailbox holds all that may be admitted.
    pub(super) fn new(
        context: &mut Context<Self>,
        options: GatewayOptions,
        epoch: Instant,
        reads: mpsc::UnboundedSender<ReadRequest>,
        commits: mpsc::Sender<QueueEvent>,
        metrics: Arc<Metrics>,
    ) -> Self {
        context.set_mailbox_capacity(options.commands_max);
        let address = context.address();
        let limits = TableLimits {
            cases_max: (options.cases_max / options.shards).max(1),
            idle_after: IDLE_AFTER,
            case: CaseLimits { waiting_max: options.case_commands_max, ..CaseLimits::default() },
        };
        let cache = OperationCache::new(options.outcomes_bytes_max / options.shards, DETAILS_PER_CASE_MAX);
        let table = CaseTable::new(limits, ShardMemory::new(cache));
        let decided = RefCell::default();
        let context = ShardContext { options, epoch, address, reads, commits, decided, metrics };
        Self { context: Rc::new(context), table, actors: HashMap::new() }
    }

    fn perform(&mut self, effects: Vec<TableEffect<Ticket>>) {
        for effect in effects {
            match effect {
                TableEffect::Reply(ticket, answer) => {
                    ticket.answer(answer, &self.context.metrics, self.context.epoch.elapsed());
                }
                TableEffect::Read(order) => self.context.read(order),
                TableEffect::Deliver(cell, event) => self.deliver(cell, event),
                TableEffect::Retire(case_id) => {
                    self.actors.remove(&case_id);
                }
            }
        }
    }

    fn deliver(&mut self, cell: Rc<CaseCell<Ticket>>, event: CaseEvent<Ticket>) {
        let actor = self
            .actors
            .entry(cell.case_id().clone())
            .or_insert_with(|| CaseActor::start_for(cell.clone(), self.context.clone()));
        if !matches!(event, CaseEvent::Submitted(_)) {
            // There is at most one read and one chain of a case under way, so these are bounded.
            return actor.do_send(HandleEvent(event));
        }
        if let Err(refused) = actor.try_send(HandleEvent(event)) {
            cell.undelivered();
            let (SendError::Full(HandleEvent(event)) | SendError::Closed(HandleEvent(event))) = refused;
            if let CaseEvent::Submitted(envelope) = event {
                let now = self.context.epoch.elapsed();
                self.context.note_refusal(envelope.ticket.arrived, now);
                turn_away(envelope, Answer::Unsettled(Trouble::Overloaded), &self.context.metrics, now);
            }
        }
    }
}

impl Actor for CaseShard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.run_interval(SWEEP_EVERY, |shard, _| {
            let mut effects = Vec::new();
            shard.table.sweep(SWEEP_PARTS, shard.context.now().monotonic, &mut effects);
            shard.perform(effects);
        });
    }
}

/// A command comes in.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct SubmitCommand(pub(super) Envelope<Ticket>);

impl Handler<SubmitCommand> for CaseShard {
    type Result = ();

    fn handle(&mut self, SubmitCommand(envelope): SubmitCommand, _: &mut Self::Context) {
        let mut effects = Vec::new();
        self.table.arrive(envelope, &mut effects);
        self.perform(effects);
    }
}

/// What was decided goes to the commit queue.
#[derive(Message)]
#[rtype(result = "()")]
struct HandOver;

impl Handler<HandOver> for CaseShard {
    type Result = ();

    fn handle(&mut self, HandOver: HandOver, _: &mut Self::Context) {
        self.context.hand_over();
    }
}

/// Chains were settled.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BatchSettled(pub(super) Vec<(CaseId, Verdict)>);

impl Handler<BatchSettled> for CaseShard {
    type Result = ();

    fn handle(&mut self, BatchSettled(verdicts): BatchSettled, _: &mut Self::Context) {
        let mut effects = Vec::new();
        for (case_id, verdict) in verdicts {
            self.table.settled(&case_id, verdict, &mut effects);
        }
        self.perform(effects);
    }
}

impl Handler<ReadAnswer> for CaseShard {
    type Result = ();

    fn handle(&mut self, ReadAnswer { case_id, number, found }: ReadAnswer, _: &mut Self::Context) {
        let mut effects = Vec::new();
        self.table.read_answered(&case_id, number, found, &mut effects);
        self.perform(effects);
    }
}

/// Asks whether a command under this id waits or is in flight.
#[derive(Message)]
#[rtype(result = "bool")]
pub(super) struct IsPending(pub(super) CaseId, pub(super) OperationId);

impl Handler<IsPending> for CaseShard {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, IsPending(case_id, operation_id): IsPending, _: &mut Self::Context) -> Self::Result {
        // What is in the mailbox counts as well, so the question goes the same way.
        if let Some(actor) = self.actors.get(&case_id) {
            let answer = actor.send(IsWaiting(operation_id));
            return Box::pin(async move { answer.await.unwrap_or(false) });
        }
        Box::pin(std::future::ready(self.table.is_arriving(&case_id, operation_id)))
    }
}

/// Asks what is in memory; publishes what was counted since the last time.
#[derive(Message)]
#[rtype(result = "TableStats")]
pub(super) struct TakeStats;

impl Handler<TakeStats> for CaseShard {
    type Result = MessageResult<TakeStats>;

    fn handle(&mut self, _: TakeStats, _: &mut Self::Context) -> Self::Result {
        let (stats, metrics) = (self.table.take_stats(), &self.context.metrics);
        metrics.memory.count_replays(stats.replays);
        metrics.admission.refused(Refusal::CasesMax, stats.no_room);
        metrics.admission.refused(Refusal::CaseCommandsMax, stats.case_full);
        MessageResult(stats)
    }
}
