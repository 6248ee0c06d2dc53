//! A process: the engine's machines, and mailboxes between them as the actors have them.
//!
//! Owns what `CaseShard`, `CaseActor` and the committer own: first-in, first-out queues that are worked on whenever chance
//! says so, the connections, and the one wake-up. Each message is handled by the machine that the product would drive.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use casework::domain::{CaseId, Operation, Timestamp};
use casework::engine::{
    CaseAction, CaseCell, CaseEvent, CaseLimits, CaseTable, Chain, CommitFault, CommitQueue, Envelope, Now,
    OperationCache, QueueEffect, QueueEvent, QueueLimits, ReadFound, ReadKind, ShardMemory, TableEffect, TableLimits,
    Verdict,
};

use super::network::Slot;
use super::options::Kind;
use super::truth::short;
use super::world::{Event, World};

/// A committing connection: its place behind the fence.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    pub writer: u64,
    pub epoch: u64,
    /// A commit on it has no clear answer yet.
    pub is_unclear: bool,
}

/// A message to the shard.
#[derive(Debug)]
pub enum ShardMessage {
    Submit(Envelope<usize>),
    Settled(Vec<(CaseId, Verdict)>),
    Read(CaseId, u64, ReadFound),
    /// One of so many parts of the live cases.
    Sweep(usize),
}

type Mailbox = VecDeque<(Rc<CaseCell<usize>>, CaseEvent<usize>)>;

/// A process in one incarnation.
pub struct Process {
    pub is_up: bool,
    pub incarnation: u32,
    table: CaseTable<usize>,
    shard: VecDeque<ShardMessage>,
    actors: BTreeMap<CaseId, Mailbox>,
    queue: CommitQueue,
    events: VecDeque<QueueEvent>,
    wake_at: Option<u64>,
    pub main: Vec<Connection>,
    pub patient_free: Vec<Connection>,
    pub patient_busy: BTreeMap<CaseId, Connection>,
    /// The batch in flight was refused by a deadlock: the next one is its second run.
    pub is_rerun: Vec<bool>,
}

impl Process {
    /// A process that just started. Its bounds are small, so that all of them are met.
    pub fn new(world: &mut World, node: usize, incarnation: u32) -> Self {
        let case = CaseLimits {
            waiting_max: world.between(3, 8) as usize,
            chain_operations_max: world.between(2, 4) as usize,
            chain_bytes_max: 1 << 20,
            attempts_max: world.between(2, 6) as u32,
        };
        let limits = TableLimits {
            cases_max: world.between(1, 4) as usize,
            idle_after: Duration::from_micros(world.between(10_000, 200_000)),
            case,
        };
        let cache = OperationCache::new(world.between(2_000, 20_000) as usize, world.between(2, 10) as usize);
        let connections = world.between(1, 2) as usize;
        let queue = QueueLimits {
            connections,
            overlap_operations_max: world.between(1, 4) as usize,
            batch_operations_max: world.between(2, 6) as usize,
            batch_chains_max: world.between(2, 4) as usize,
            batch_bytes_max: 1 << 20,
            retries_max: world.between(1, 4) as u32,
            retry_pause: Duration::from_micros(world.between(1_000, 20_000)),
            locked_tries_max: world.between(1, 3) as u32,
            patient_max: world.between(1, 2) as usize,
            fence_pause: Duration::from_micros(world.between(5_000, 50_000)),
        };
        Self {
            is_up: true,
            incarnation,
            table: CaseTable::new(limits, ShardMemory::new(cache)),
            shard: VecDeque::new(),
            actors: BTreeMap::new(),
            queue: CommitQueue::new(queue, world.between(0, u64::MAX)),
            events: VecDeque::new(),
            wake_at: None,
            main: (0..connections)
                .map(|_| Connection { writer: world.store.writer_open(node), epoch: 1, is_unclear: false })
                .collect(),
            patient_free: Vec::new(),
            patient_busy: BTreeMap::new(),
            is_rerun: vec![false; connections],
        }
    }

    /// Whether it has no work left.
    pub fn is_idle(&self) -> bool {
        self.is_up
            && self.shard.is_empty()
            && self.events.is_empty()
            && self.actors.values().all(VecDeque::is_empty)
            && self.queue.is_idle()
            && self.table.is_idle()
    }
}

impl World {
    fn machine_now(&self) -> Now {
        let wall = i64::try_from(self.now).expect("a simulation is short");
        Now { monotonic: Duration::from_micros(self.now), wall: Timestamp::from_micros(wall) }
    }

    /// The process, if it is still the same one.
    pub fn alive(&mut self, node: usize, incarnation: u32) -> Option<&mut Process> {
        let process = &mut self.processes[node];
        (process.is_up && process.incarnation == incarnation).then_some(process)
    }

    pub fn begin_sweeps(&mut self, node: usize) {
        let incarnation = self.processes[node].incarnation;
        let at = self.between(20_000, 200_000);
        self.after(at, Event::Sweep(node, incarnation));
    }

    pub fn sweep(&mut self, node: usize, incarnation: u32) {
        if self.alive(node, incarnation).is_some() && !self.is_quiet {
            let parts = self.between(1, 3) as usize;
            self.tell_shard(node, incarnation, ShardMessage::Sweep(parts));
            self.begin_sweeps(node);
        }
    }

    /// A message goes to a shard's mailbox.
    pub fn tell_shard(&mut self, node: usize, incarnation: u32, message: ShardMessage) {
        let Some(process) = self.alive(node, incarnation) else { return };
        process.shard.push_back(message);
        let turn = self.between(1, 200);
        self.after(turn, Event::Shard(node, incarnation));
    }

    /// An event goes to a commit queue.
    pub fn tell_queue(&mut self, node: usize, incarnation: u32, event: QueueEvent) {
        let Some(process) = self.alive(node, incarnation) else { return };
        process.events.push_back(event);
        let turn = self.between(1, 200);
        self.after(turn, Event::Queue(node, incarnation));
    }

    /// A chain goes to the queue alone, or with those that were decided just before it.
    fn hand_over(&mut self, node: usize, incarnation: u32, chain: Chain, deadline: Duration) {
        let joins = self.chance(0.5);
        match self.processes[node].events.back_mut() {
            Some(QueueEvent::Enqueued(chains)) if joins => chains.push((chain, deadline)),
            _ => self.tell_queue(node, incarnation, QueueEvent::Enqueued(vec![(chain, deadline)])),
        }
    }

    pub fn run_shard(&mut self, node: usize, incarnation: u32) {
        let now = self.machine_now();
        let Some(process) = self.alive(node, incarnation) else { return };
        let Some(message) = process.shard.pop_front() else { return };
        let mut effects = Vec::new();
        let table = &mut process.table;
        match message {
            ShardMessage::Submit(envelope) => table.arrive(envelope, &mut effects),
            ShardMessage::Settled(verdicts) => {
                for (case_id, verdict) in verdicts {
                    table.settled(&case_id, verdict, &mut effects);
                }
            }
            ShardMessage::Read(case_id, number, found) => table.read_answered(&case_id, number, found, &mut effects),
            ShardMessage::Sweep(parts) => table.sweep(parts, now.monotonic, &mut effects),
        }
        for effect in effects {
            match effect {
                TableEffect::Reply(attempt, answer) => self.reply(attempt, answer),
                TableEffect::Read(order) => self.read(node, incarnation, order),
                TableEffect::Deliver(cell, event) => {
                    let case_id = cell.case_id().clone();
                    self.processes[node].actors.entry(case_id.clone()).or_default().push_back((cell, event));
                    let turn = self.between(1, 200);
                    self.after(turn, Event::Actor(node, incarnation, case_id));
                }
                TableEffect::Retire(case_id) => {
                    self.count("actor-retired");
                    self.note(|| format!("process {node}: the actor of case {case_id} goes"));
                }
            }
        }
    }

    pub fn run_actor(&mut self, node: usize, incarnation: u32, case_id: &CaseId) {
        let now = self.machine_now();
        let Some(process) = self.alive(node, incarnation) else { return };
        let Some((cell, event)) = process.actors.get_mut(case_id).and_then(VecDeque::pop_front) else { return };
        for action in cell.handle(event, now) {
            match action {
                CaseAction::Reply(attempt, answer) => self.reply(attempt, answer),
                CaseAction::Read(order) => {
                    self.count(if order.kind == ReadKind::Case { "reload" } else { "look-up" });
                    self.read(node, incarnation, order);
                }
                CaseAction::Commit(chain, deadline) => {
                    self.note(|| {
                        let words = chain.step.iter().flat_map(|step| &step.operations).map(word);
                        let words: Vec<_> = words.collect();
                        format!("process {node}: case {case_id} at {} decides [{}]", chain.expected, words.join(", "))
                    });
                    if chain.step.is_none() {
                        self.count("version-check");
                    }
                    *self.decided.entry((node, case_id.clone())).or_default() += 1;
                    self.hand_over(node, incarnation, chain, deadline);
                }
            }
        }
    }

    pub fn run_queue(&mut self, node: usize, incarnation: u32) {
        let Some(process) = self.alive(node, incarnation) else { return };
        if let Some(event) = process.events.pop_front() {
            self.queue_step(node, incarnation, event);
        }
    }

    /// The committer has one wake-up, the earliest that it was asked for.
    pub fn wake(&mut self, node: usize, incarnation: u32, at: u64) {
        let Some(process) = self.alive(node, incarnation) else { return };
        if process.wake_at == Some(at) {
            process.wake_at = None;
            self.queue_step(node, incarnation, QueueEvent::Woken);
        }
    }

    fn queue_step(&mut self, node: usize, incarnation: u32, event: QueueEvent) {
        let now = Duration::from_micros(self.now);
        let mut effects = Vec::new();
        self.processes[node].queue.step(event, now, &mut effects);
        let mut settled = Vec::new();
        for effect in effects {
            match effect {
                QueueEffect::Settle(case_id, verdict) => {
                    self.note(|| format!("process {node}: the chain of case {case_id} is {verdict:?}"));
                    self.count(verdict_name(verdict));
                    settled.push((case_id, verdict));
                }
                QueueEffect::Commit(number, batch) => self.send(node, Slot::Main(number), batch, None),
                QueueEffect::CommitPatiently(chain, wait) => self.commit_patiently(node, chain, wait),
                QueueEffect::Fence(number) => self.fence(node, Slot::Main(number)),
                QueueEffect::WakeAt(at) => {
                    let at = u64::try_from(at.as_micros()).expect("a simulation is short");
                    let process = &mut self.processes[node];
                    if process.wake_at.is_none_or(|earlier| at < earlier) {
                        process.wake_at = Some(at);
                        let delay = at.saturating_sub(self.now);
                        self.after(delay, Event::Wake(node, incarnation, at));
                    }
                }
            }
        }
        if !settled.is_empty() {
            self.tell_shard(node, incarnation, ShardMessage::Settled(settled));
        }
    }

    fn commit_patiently(&mut self, node: usize, chain: Chain, wait: Duration) {
        let case_id = chain.case_id.clone();
        let incarnation = self.processes[node].incarnation;
        self.count("patient");
        let kept = self.processes[node].patient_free.pop();
        let connection = match kept {
            Some(connection) => connection,
            None if self.makes_counted(Kind::OpenFailed) => {
                let failed = QueueEvent::PatientAnswered(case_id, Err(CommitFault::Failed));
                return self.tell_queue(node, incarnation, failed);
            }
            None => Connection { writer: self.store.writer_open(node), epoch: 1, is_unclear: false },
        };
        self.processes[node].patient_busy.insert(case_id.clone(), connection);
        self.send(node, Slot::Patient(case_id), vec![chain], Some(wait));
    }
}

/// An operation in a history.
pub fn word(operation: &Operation) -> String {
    format!("{} {}", operation.command, short(operation.operation_id))
}

/// A batch in a history.
pub fn batch_word(batch: &[Chain]) -> String {
    let chain = |chain: &Chain| match &chain.step {
        None => format!("{}: check {}", chain.case_id, chain.expected),
        Some(step) => {
            let words: Vec<_> = step.operations.iter().map(word).collect();
            format!("{}: {} -> {} [{}]", chain.case_id, chain.expected, step.after.version, words.join(", "))
        }
    };
    batch.iter().map(chain).collect::<Vec<_>>().join("; ")
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Held => "chain-held",
        Verdict::Missed => "chain-missed",
        Verdict::BadData => "chain-bad-data",
        Verdict::Contention => "chain-contention",
        Verdict::Failed => "chain-failed",
        Verdict::Broken => "chain-broken",
        Verdict::Unclear => "chain-unclear",
        Verdict::StillUnclear => "chain-still-unclear",
        Verdict::Fenced => "chain-fenced",
    }
}
