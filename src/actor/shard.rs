//! One shard: the cases of one arbiter, their actors, and what memory knows of their operations.
//!
//! Owns which case is in memory and which has an actor. A command finds its case's actor or starts it; an idle actor becomes
//! a passive entry; a full memory evicts what was used least recently and has nothing waiting, in flight or unclear; a case
//! that does not exist keeps no actor. Never decides, never waits.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use lru::LruCache;
use tokio::sync::mpsc;
use tracing::error;

use super::case_actor::{CaseActor, CaseCell, HandleEvent, IsWaiting};
use super::gateway::GatewayOptions;
use super::reader::{ReadAnswer, ReadKind, ReadRequest};
use super::ticket::{Ticket, turn_away};
use crate::clock;
use crate::domain::{CaseId, CaseState, Command, CommandKind, Edit, KnownOperation, OperationId, Rejection};
use crate::engine::{
    Answer, CaseEvent, CaseLimits, CaseMachine, Chain, Envelope, Known, Now, OperationCache, QueueEvent, Trouble,
    Verdict, answer_known,
};

/// How often idle actors are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How long an actor stays without work.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Details of so many operations of one case are kept; of older ones only the ids.
const DETAILS_PER_CASE_MAX: usize = 4_096;
/// How many busy cases are passed over when one must leave memory.
const EVICTION_TRIES_MAX: usize = 64;

/// What a shard and its case actors share; all on one arbiter.
pub(super) struct ShardContext {
    pub(super) options: GatewayOptions,
    pub(super) cache: RefCell<OperationCache>,
    limits: CaseLimits,
    epoch: Instant,
    address: Addr<CaseShard>,
    reads: mpsc::UnboundedSender<ReadRequest>,
    commits: mpsc::Sender<QueueEvent>,
    next_read: Cell<u64>,
}

impl ShardContext {
    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.epoch.elapsed(), wall: clock::now() }
    }

    /// Begins a read of the case; returns its number.
    pub(super) fn load(&self, case_id: &CaseId) -> u64 {
        self.read(case_id, ReadKind::Case)
    }

    /// Begins a look-up of ids; returns its number.
    pub(super) fn look_up(&self, case_id: &CaseId, ids: Vec<OperationId>) -> u64 {
        self.read(case_id, ReadKind::Operations(ids))
    }

    fn read(&self, case_id: &CaseId, kind: ReadKind) -> u64 {
        let number = self.next_read.get() + 1;
        self.next_read.set(number);
        let request = ReadRequest { case_id: case_id.clone(), number, kind, shard: self.address.clone() };
        if let Err(unsent) = self.reads.send(request) {
            // The reader is gone: the process is ending.
            self.address.do_send(unsent.0.failed(Trouble::Unavailable));
        }
        number
    }

    /// Hands a chain to the commit queue. The channel has room for as many chains as commands may be admitted.
    pub(super) fn commit(&self, chain: Chain, deadline: Duration) {
        if let Err(unsent) = self.commits.try_send(QueueEvent::Enqueued(chain, deadline)) {
            let (mpsc::error::TrySendError::Full(event) | mpsc::error::TrySendError::Closed(event)) = unsent;
            if let QueueEvent::Enqueued(chain, _) = event {
                error!(case.id = %chain.case_id, "a chain could not be handed to the commit queue");
                self.address.do_send(BatchSettled(vec![(chain.case_id, Verdict::Failed)]));
            }
        }
    }
}

/// What a case id has in memory.
enum Entry {
    /// The first read is under way; commands wait. `asked`: so many of them came before it began.
    Arriving { waiting: Vec<Envelope<Ticket>>, asked: usize, read: u64 },
    /// The case is in memory; it has an actor while there is work.
    Kept { cell: Rc<CaseCell>, actor: Option<Addr<CaseActor>> },
}

/// The actor of a shard.
pub(super) struct CaseShard {
    context: Rc<ShardContext>,
    cases: LruCache<CaseId, Entry>,
    cases_max: usize,
    live: HashSet<CaseId>,
}

impl CaseShard {
    /// A shard whose reads and commits go to these queues.
    pub(super) fn new(
        address: Addr<Self>,
        options: GatewayOptions,
        epoch: Instant,
        reads: mpsc::UnboundedSender<ReadRequest>,
        commits: mpsc::Sender<QueueEvent>,
    ) -> Self {
        let cases_max = (options.cases_max / options.shards).max(1);
        let outcomes_bytes_max = options.outcomes_bytes_max / options.shards;
        let limits = CaseLimits { waiting_max: options.case_commands_max, ..CaseLimits::default() };
        let context = ShardContext {
            options,
            cache: RefCell::new(OperationCache::new(outcomes_bytes_max, DETAILS_PER_CASE_MAX)),
            limits,
            epoch,
            address,
            reads,
            commits,
            next_read: Cell::new(0),
        };
        Self { context: Rc::new(context), cases: LruCache::unbounded(), cases_max, live: HashSet::new() }
    }

    fn arrive(&mut self, envelope: Envelope<Ticket>) {
        let case_id = envelope.command.case_id().clone();
        match self.cases.get_mut(&case_id) {
            Some(Entry::Kept { .. }) => self.forward(&case_id, envelope),
            Some(Entry::Arriving { waiting, .. }) => {
                if waiting.len() >= self.context.options.case_commands_max && envelope.lane.is_none() {
                    return turn_away(envelope, Answer::Unsettled(Trouble::Overloaded));
                }
                let brings_case = brings_case(&envelope.command);
                waiting.push(envelope);
                if brings_case {
                    let machine = self.assume_absent(&case_id);
                    self.keep(case_id, machine);
                }
            }
            None => self.arrive_unknown(case_id, envelope),
        }
    }

    fn arrive_unknown(&mut self, case_id: CaseId, envelope: Envelope<Ticket>) {
        let id = envelope.command.operation_id();
        let answer = match self.context.cache.borrow_mut().find(&case_id, id) {
            Known::Recorded(known) => Some(answer_known(known, &envelope.command)),
            Known::Absent | Known::AskDatabase => None,
        };
        if let Some(answer) = answer {
            return turn_away(envelope, answer);
        }
        // A line of a stream is never overloaded: it may pass the cap, by no more cases than commands are admitted, and the
        // next arrivals bring memory back below it.
        if !self.make_room() && envelope.lane.is_none() {
            return turn_away(envelope, Answer::Unsettled(Trouble::Overloaded));
        }
        if brings_case(&envelope.command) {
            let machine = self.assume_absent(&case_id);
            self.keep(case_id.clone(), machine);
            return self.forward(&case_id, envelope);
        }
        let read = self.context.load(&case_id);
        self.cases.put(case_id, Entry::Arriving { waiting: vec![envelope], asked: 1, read });
    }

    fn assume_absent(&self, case_id: &CaseId) -> CaseMachine<Ticket> {
        CaseMachine::assume_absent(case_id.clone(), self.context.limits, &mut self.context.cache.borrow_mut())
    }

    /// Puts a machine into memory and sends it what had waited for it.
    fn keep(&mut self, case_id: CaseId, machine: CaseMachine<Ticket>) {
        let cell = CaseCell::new(case_id.clone(), machine);
        let before = self.cases.put(case_id.clone(), Entry::Kept { cell, actor: None });
        if let Some(Entry::Arriving { waiting, .. }) = before {
            for envelope in waiting {
                self.forward(&case_id, envelope);
            }
        }
    }

    fn forward(&mut self, case_id: &CaseId, envelope: Envelope<Ticket>) {
        let Some((cell, actor)) = self.actor(case_id) else {
            return turn_away(envelope, Answer::Unsettled(Trouble::Unavailable));
        };
        cell.queued.set(cell.queued.get() + 1);
        if let Err(refused) = actor.try_send(HandleEvent(CaseEvent::Submitted(envelope))) {
            cell.queued.set(cell.queued.get() - 1);
            let (SendError::Full(HandleEvent(event)) | SendError::Closed(HandleEvent(event))) = refused;
            if let CaseEvent::Submitted(envelope) = event {
                turn_away(envelope, Answer::Unsettled(Trouble::Overloaded));
            }
        }
    }

    /// Sends a control event: there is at most one read and one chain of a case under way, so these are bounded.
    fn inform(&mut self, case_id: &CaseId, event: CaseEvent<Ticket>) {
        if let Some((cell, actor)) = self.actor(case_id) {
            cell.queued.set(cell.queued.get() + 1);
            actor.do_send(HandleEvent(event));
        }
    }

    /// The actor of a case in memory, started if there is none.
    fn actor(&mut self, case_id: &CaseId) -> Option<(Rc<CaseCell>, Addr<CaseActor>)> {
        let Some(Entry::Kept { cell, actor }) = self.cases.get_mut(case_id) else { return None };
        let address = actor.get_or_insert_with(|| {
            self.live.insert(case_id.clone());
            CaseActor { cell: cell.clone(), context: self.context.clone() }.start()
        });
        Some((cell.clone(), address.clone()))
    }

    /// Makes room for one more case; false: everything that could go is busy.
    fn make_room(&mut self) -> bool {
        let mut tries = 0;
        while self.cases.len() >= self.cases_max {
            let Some((case_id, entry)) = self.cases.pop_lru() else { return true };
            if matches!(&entry, Entry::Kept { cell, .. } if cell.is_idle()) {
                self.live.remove(&case_id);
                self.context.cache.borrow_mut().mark_incomplete(&case_id);
                continue;
            }
            self.cases.put(case_id, entry);
            tries += 1;
            if tries >= EVICTION_TRIES_MAX {
                return false;
            }
        }
        true
    }

    /// Lets idle actors go, and cases that turned out not to exist.
    fn sweep(&mut self) {
        let now = self.context.now().monotonic;
        let Self { live, cases, context, .. } = self;
        live.retain(|case_id| {
            let Some(Entry::Kept { cell, actor }) = cases.peek_mut(case_id) else { return false };
            if !cell.is_idle() {
                return true;
            }
            if !cell.machine.borrow().holds_case() {
                context.cache.borrow_mut().forget(case_id);
                cases.pop(case_id);
                return false;
            }
            if cell.last_used.get() + IDLE_AFTER > now {
                return true;
            }
            *actor = None;
            false
        });
    }

    fn first_read(&mut self, case_id: CaseId, found: Result<(CaseState, Option<Vec<KnownOperation>>), Trouble>) {
        let Some(Entry::Arriving { mut waiting, asked, .. }) = self.cases.pop(&case_id) else { return };
        match found {
            Ok((state @ CaseState::Present(_), operations)) => {
                let machine = CaseMachine::loaded(
                    case_id.clone(),
                    self.context.limits,
                    &mut self.context.cache.borrow_mut(),
                    state,
                    operations,
                );
                self.cases.put(case_id.clone(), Entry::Arriving { waiting, asked, read: 0 });
                self.keep(case_id, machine);
            }
            Ok((CaseState::Absent, _)) => {
                let later = waiting.split_off(asked);
                for envelope in waiting {
                    turn_away(envelope, Answer::Rejected(Rejection::CaseNotFound));
                }
                if !later.is_empty() {
                    // They came after the read had begun: it says nothing about them.
                    let read = self.context.load(&case_id);
                    self.cases.put(case_id, Entry::Arriving { asked: later.len(), waiting: later, read });
                }
            }
            Err(trouble) => {
                for envelope in waiting {
                    turn_away(envelope, Answer::Unsettled(trouble));
                }
            }
        }
    }
}

/// Whether the command makes a case where there is none.
fn brings_case(command: &Command) -> bool {
    matches!(command.kind(), CommandKind::Open { .. } | CommandKind::Edit(Edit::InsertCase { .. }))
}

impl Actor for CaseShard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(self.context.options.commands_max);
        context.run_interval(SWEEP_EVERY, |shard, _| shard.sweep());
    }
}

/// A command comes in.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct SubmitCommand(pub(super) Envelope<Ticket>);

impl Handler<SubmitCommand> for CaseShard {
    type Result = ();

    fn handle(&mut self, SubmitCommand(envelope): SubmitCommand, _: &mut Self::Context) {
        self.arrive(envelope);
    }
}

/// Chains were settled.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BatchSettled(pub(super) Vec<(CaseId, Verdict)>);

impl Handler<BatchSettled> for CaseShard {
    type Result = ();

    fn handle(&mut self, BatchSettled(verdicts): BatchSettled, _: &mut Self::Context) {
        for (case_id, verdict) in verdicts {
            self.inform(&case_id, CaseEvent::Settled(verdict));
        }
    }
}

impl Handler<ReadAnswer> for CaseShard {
    type Result = ();

    fn handle(&mut self, answer: ReadAnswer, _: &mut Self::Context) {
        match self.cases.peek(answer.case_id()) {
            Some(Entry::Arriving { read, .. }) if *read == answer.number() => {
                if let ReadAnswer::Case { case_id, found, .. } = answer {
                    self.first_read(case_id, found);
                }
            }
            Some(Entry::Kept { cell, .. }) if cell.read.get() == answer.number() => {
                let (case_id, event) = answer.into_event();
                self.inform(&case_id, event);
            }
            _ => {}
        }
    }
}

/// Asks whether a command under this id waits or is in flight.
#[derive(Message)]
#[rtype(result = "bool")]
pub(super) struct IsPending(pub(super) CaseId, pub(super) OperationId);

impl Handler<IsPending> for CaseShard {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, IsPending(case_id, operation_id): IsPending, _: &mut Self::Context) -> Self::Result {
        let is_pending = match self.cases.peek(&case_id) {
            // What is in the mailbox counts as well, so the question goes the same way.
            Some(Entry::Kept { actor: Some(actor), .. }) => {
                let answer = actor.send(IsWaiting(operation_id));
                return Box::pin(async move { answer.await.unwrap_or(false) });
            }
            Some(Entry::Arriving { waiting, .. }) => {
                waiting.iter().any(|envelope| envelope.command.operation_id() == operation_id)
            }
            Some(Entry::Kept { actor: None, .. }) | None => false,
        };
        Box::pin(std::future::ready(is_pending))
    }
}
