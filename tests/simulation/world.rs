//! The world of a simulation: one clock, one source of chance, and what is going to happen.
//!
//! Owns the agenda of events, the counts and the history. First there is trouble for so many events; then it ends, and all
//! must settle: every caller is answered, every case takes a further command on every process, nothing is left over.

use std::collections::{BTreeMap, BTreeSet};

use casework::domain::{CaseId, Command, Workflow};
use casework::engine::{Answer, BatchAnswer, CommitFault, Lane, PlantedBug, ReadFound, ReadOrder, plant};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

use super::network::{Fence, Sending};
use super::options::{Bug, Kind, Options};
use super::people::Client;
use super::process::{Connection, Process};
use super::store::ModelStore;
use super::truth::{Broken, Truth, short};

/// Processes at work.
pub const PROCESSES: usize = 3;
/// Events within which all must settle once the trouble is over.
const SETTLE_STEPS_MAX: usize = 100_000;

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A process (in this incarnation) works on the next message of its shard.
    Shard(usize, u32),
    /// ... of a case's actor.
    Actor(usize, u32, CaseId),
    /// ... of its commit queue.
    Queue(usize, u32),
    /// The commit queue wanted to be woken.
    Wake(usize, u32, u64),
    /// Idle actors are looked for.
    Sweep(usize, u32),
    /// A command reaches a process.
    Submit(usize, Option<Lane>),
    /// A batch reaches the database.
    Begin(u64),
    /// Its transaction commits.
    Commit(u64, u64),
    /// Its answer reaches the process.
    Answer(u64, Result<BatchAnswer, CommitFault>),
    /// A read reaches the database.
    ReadBegin(usize, u32, ReadOrder),
    /// Its answer reaches the process.
    ReadAnswer(usize, u32, ReadOrder, ReadFound),
    /// A fence reaches the database.
    Fence(Fence),
    /// Its answer reaches the process.
    FenceAnswer(Fence, Option<Connection>),
    /// A process starts again.
    Restart(usize),
    /// A client does something.
    Client(usize),
    /// A client has waited long enough (for the sending of this number).
    Timeout(usize, u64),
    /// A person lets a case go.
    Unlock(CaseId),
    /// Something may go wrong.
    Trouble,
}

/// The world.
pub struct World {
    pub options: Options,
    pub rng: Xoshiro256PlusPlus,
    /// Microseconds since the beginning.
    pub now: u64,
    agenda: BTreeMap<(u64, u64), Event>,
    next: u64,
    pub is_quiet: bool,
    rates: BTreeMap<Kind, f64>,
    pub counts: BTreeMap<&'static str, u64>,
    pub history: Vec<String>,
    pub broken: Option<Broken>,
    pub workflow: Arc<Workflow>,
    pub store: ModelStore,
    pub truth: Truth,
    pub processes: Vec<Process>,
    pub clients: Vec<Client>,
    pub sendings: BTreeMap<u64, Sending>,
    pub sent: Vec<Command>,
    /// How often each process has decided a chain of each case.
    pub decided: BTreeMap<(usize, CaseId), u64>,
    pub cases: Vec<CaseId>,
    pub steps: usize,
    /// How long a command may wait to be decided, in microseconds.
    pub deadline: u64,
    /// How many times as long as the others the clients of this seed take their time.
    pub slowness: u64,
}

/// How a simulation ended.
#[derive(Debug)]
pub struct Report {
    /// The promise that was broken.
    pub broken: Option<Broken>,
    /// Events until then.
    pub steps: usize,
    /// What happened, and how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// One event a line, if it was kept.
    pub history: Vec<String>,
}

/// Runs one simulation to its end, or to the first broken promise.
pub fn run(options: &Options) -> Report {
    let engine_bug = match options.bug {
        Some(Bug::Engine(bug)) => Some(bug),
        _ => None,
    };
    plant(engine_bug);
    let mut world = World::new(options.clone());
    world.live();
    plant(None);
    Report { broken: world.broken, steps: world.steps, counts: world.counts, history: world.history }
}

impl World {
    fn new(options: Options) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed);
        // Each seed has its own mixture of troubles: what one kind would hide can show without it.
        let mut rates = BTreeMap::new();
        for kind in Kind::ALL {
            let (is_on, is_often) = (rng.random_bool(0.75), rng.random_bool(0.3));
            let rate = if is_often { rng.random_range(0.05..0.35) } else { rng.random_range(0.005..0.06) };
            if is_on && !options.without.contains(kind) {
                rates.insert(*kind, rate);
            }
        }
        let cases_count = rng.random_range(1..=5);
        let slowness = if rng.random_bool(0.3) { 20 } else { 1 };
        let cases = (0..cases_count).map(|n| CaseId::parse(&(62 + n).to_string()).expect("valid")).collect();
        let workflow = Workflow::permit();
        let mut world = Self {
            rng,
            now: 1_000,
            agenda: BTreeMap::new(),
            next: 0,
            is_quiet: false,
            rates,
            counts: BTreeMap::new(),
            history: Vec::new(),
            broken: None,
            store: ModelStore::new(&options),
            truth: Truth::new(workflow.clone()),
            workflow,
            processes: Vec::new(),
            clients: (0..options.clients).map(|_| Client::default()).collect(),
            sendings: BTreeMap::new(),
            sent: Vec::new(),
            decided: BTreeMap::new(),
            cases,
            steps: 0,
            deadline: 0,
            slowness,
            options,
        };
        world.deadline = world.between(50_000, 400_000);
        for node in 0..PROCESSES {
            let process = Process::new(&mut world, node, 0);
            world.processes.push(process);
            world.begin_sweeps(node);
        }
        for client in 0..world.clients.len() {
            let at = world.between(0, 5_000);
            world.after(at, Event::Client(client));
        }
        world.after(1_000, Event::Trouble);
        world
    }

    fn live(&mut self) {
        self.run_agenda(self.options.steps);
        if self.broken.is_some() {
            return;
        }
        self.is_quiet = true;
        self.note(|| "the trouble is over".into());
        self.begin_counting_tries();
        self.run_agenda(self.steps + SETTLE_STEPS_MAX);
        if self.broken.is_none() {
            // Before anything wakes what may have fallen asleep.
            self.broken = self.left_over();
        }
        if self.broken.is_none() {
            self.probe();
            self.run_agenda(self.steps + SETTLE_STEPS_MAX);
        }
        if self.broken.is_none() {
            self.broken = self.left_over();
        }
    }

    /// What must not be left when everything has settled.
    fn left_over(&mut self) -> Option<Broken> {
        if !self.agenda.is_empty() {
            return Some(format!("it does not settle within {SETTLE_STEPS_MAX} events"));
        }
        let unanswered = self.truth.attempts.iter().position(|attempt| attempt.answered_at.is_none());
        if let Some(number) = unanswered {
            let attempt = &self.truth.attempts[number];
            let id = short(attempt.command.operation_id());
            return Some(format!(
                "attempt {number}, `{}` {id} on case {} at process {}, is never answered",
                attempt.command.name(),
                attempt.command.case_id(),
                attempt.node
            ));
        }
        if let Some(client) = self.clients.iter().position(|client| client.task.is_some()) {
            return Some(format!("client {client} can't bring its command to an end"));
        }
        if let Some(node) = self.processes.iter().position(|process| !process.is_idle()) {
            return Some(format!("process {node} has work left, and nothing to wait for"));
        }
        self.truth.check_all(&self.store).err()
    }

    fn run_agenda(&mut self, until: usize) {
        while self.broken.is_none() && self.steps < until {
            let Some(((at, _), event)) = self.agenda.pop_first() else { return };
            self.now = self.now.max(at) + 1;
            self.steps += 1;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Shard(node, incarnation) => self.run_shard(node, incarnation),
            Event::Actor(node, incarnation, case_id) => self.run_actor(node, incarnation, &case_id),
            Event::Queue(node, incarnation) => self.run_queue(node, incarnation),
            Event::Wake(node, incarnation, at) => self.wake(node, incarnation, at),
            Event::Sweep(node, incarnation) => self.sweep(node, incarnation),
            Event::Submit(attempt, lane) => self.submit(attempt, lane),
            Event::Begin(sending) => self.begin(sending),
            Event::Commit(sending, transaction) => self.commit(sending, transaction),
            Event::Answer(sending, answer) => self.answer(sending, answer),
            Event::ReadBegin(node, incarnation, order) => self.read_begin(node, incarnation, order),
            Event::ReadAnswer(node, incarnation, order, found) => self.read_answer(node, incarnation, order, found),
            Event::Fence(fence) => self.fence_begin(fence),
            Event::FenceAnswer(fence, raised) => self.fence_answer(fence, raised),
            Event::Restart(node) => self.restart(node),
            Event::Client(client) => self.client_turn(client),
            Event::Timeout(client, number) => self.client_timeout(client, number),
            Event::Unlock(case_id) => self.unlock(&case_id),
            Event::Trouble => self.trouble(),
        }
    }

    /// Puts an event on the agenda, so many microseconds from now.
    pub fn after(&mut self, delay: u64, event: Event) {
        self.next += 1;
        self.agenda.insert((self.now + delay, self.next), event);
    }

    /// A number that is used once.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        self.rng.random_range(least..=most)
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    /// Whether trouble of a kind is made now. The caller counts it when it takes effect.
    pub fn makes(&mut self, kind: Kind) -> bool {
        match self.rates.get(&kind) {
            Some(rate) if !self.is_quiet => {
                let rate = *rate;
                self.rng.random_bool(rate)
            }
            _ => false,
        }
    }

    /// Whether trouble of a kind is made now, and counted.
    pub fn makes_counted(&mut self, kind: Kind) -> bool {
        let makes = self.makes(kind);
        if makes {
            self.count(kind.name());
        }
        makes
    }

    /// How long a message takes.
    pub fn message(&mut self) -> u64 {
        if self.makes_counted(Kind::Stall) {
            return self.between(2_000, 300_000);
        }
        self.between(50, 3_000)
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A line of the history.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.options.traced {
            let line = format!("{:>5} {:>9.3} ms  {}", self.steps, self.now as f64 / 1_000.0, line());
            self.history.push(line);
        }
    }

    /// The first promise that breaks ends the simulation.
    pub fn check(&mut self, result: Result<(), Broken>) {
        if let Err(broken) = result {
            self.note(|| format!("BROKEN: {broken}"));
            self.broken.get_or_insert(broken);
        }
    }

    /// A caller is answered.
    pub fn reply(&mut self, number: usize, answer: Answer) {
        let word = match &answer {
            Answer::Applied(_) => "applied",
            Answer::Replayed(_) => "replayed",
            Answer::Rejected(rejection) => rejection.code(),
            Answer::Unsettled(trouble) => trouble.code(),
        };
        self.count(word);
        self.note(|| format!("attempt {number} is answered `{word}`"));
        let checked = self.truth.answered(number, &answer, self.now);
        self.check(checked);
        self.client_answered(number, Some(&answer));
    }

    /// Whether the simulation runs with this bug of the engine.
    pub fn has(&self, bug: PlantedBug) -> bool {
        self.options.bug == Some(Bug::Engine(bug))
    }

    /// Kinds of trouble that this seed makes.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.rates.keys().copied().collect()
    }
}
