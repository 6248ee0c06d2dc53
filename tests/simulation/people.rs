//! Clients: what they send, and what they do with an answer or without one.
//!
//! Owns their habits: the same id again until there is a final answer, on this process or another; repeats at the same
//! time or much later; an id used again for another command or by another actor; streams; giving up.

use std::collections::BTreeMap;
use std::time::Duration;

use casework::domain::{ActorId, CaseId, CaseState, Command, CommandDraft, CommandName, Members, OperationId};
use casework::engine::{Answer, Envelope, Lane};
use serde_json::{Value, json};

use super::options::Kind;
use super::process::ShardMessage;
use super::truth::{Attempt, short};
use super::world::{Event, PROCESSES, World};

/// The reviewers.
const REVIEWERS: [&str; 2] = ["47", "81"];
/// Tries after which a client must have had its answer once the trouble is over.
const TRIES_MAX: u32 = 40;

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    pub task: Option<Task>,
    sendings: u64,
}

/// What a client wants done: one command, or the lines of a stream.
#[derive(Debug)]
pub struct Task {
    /// Each command, and whether it has a final answer.
    commands: Vec<(Command, bool)>,
    is_stream: bool,
    /// It must succeed: a case that can't take a note is stuck.
    is_probe: bool,
    /// The process that it must go to.
    node: Option<usize>,
    /// Attempts without an answer, and the command that each sends.
    open: BTreeMap<usize, usize>,
    tries: u32,
    sending: u64,
}

impl Task {
    fn new(commands: Vec<Command>) -> Self {
        let is_stream = commands.len() > 1;
        let commands = commands.into_iter().map(|command| (command, false)).collect();
        Self { commands, is_stream, is_probe: false, node: None, open: BTreeMap::new(), tries: 0, sending: 0 }
    }
}

impl World {
    /// A client goes on with its task, or finds a new one.
    pub fn client_turn(&mut self, number: usize) {
        if self.clients[number].task.as_ref().is_some_and(|task| !task.open.is_empty()) {
            return;
        }
        if self.clients[number].task.is_none() {
            if self.is_quiet {
                return;
            }
            let commands = self.new_commands();
            self.clients[number].task = Some(Task::new(commands));
        }
        self.client_send(number);
    }

    fn client_send(&mut self, number: usize) {
        let Some(task) = &mut self.clients[number].task else { return };
        task.tries += 1;
        let (tries, is_stream, node) = (task.tries, task.is_stream, task.node);
        let left: Vec<(usize, Command)> =
            task.commands.iter().enumerate().filter(|(_, (_, done))| !done).map(|(i, (c, _))| (i, c.clone())).collect();
        if self.is_quiet && tries > TRIES_MAX {
            return self.check(Err(format!("client {number} has no final answer after {TRIES_MAX} tries")));
        }
        let Some((_, first)) = left.first() else { return };
        let home = self.cases.iter().position(|case_id| case_id == first.case_id()).unwrap_or(0) % PROCESSES;
        let node = match node {
            Some(node) => node,
            None if self.makes_counted(Kind::Switch) || tries > 2 => self.between(0, PROCESSES as u64 - 1) as usize,
            None => home,
        };
        if !self.processes[node].is_up {
            let pause = self.between(2_000, 30_000);
            return self.after(pause, Event::Client(number));
        }
        self.clients[number].sendings += 1;
        let sending = self.clients[number].sendings;
        let lane = (is_stream && left.len() > 1).then(Lane::new);
        let lane_number = self.number() as usize;
        let delay = self.between(50, 2_000);
        let is_doubled = lane.is_none() && self.makes_counted(Kind::ConcurrentRepeat);
        let mut open = BTreeMap::new();
        for (line, (index, command)) in left.into_iter().enumerate() {
            let place = lane.is_some().then_some((lane_number, line));
            let attempt = self.attempt(number, node, command.clone(), place);
            open.insert(attempt, index);
            // Lines arrive in order: the same time, one after the other.
            self.after(delay, Event::Submit(attempt, lane.clone()));
            if is_doubled {
                let other = (node + self.between(0, PROCESSES as u64 - 1) as usize) % PROCESSES;
                if self.processes[other].is_up {
                    let attempt = self.attempt(number, other, command, None);
                    open.insert(attempt, index);
                    let delay = self.between(50, 2_000);
                    self.after(delay, Event::Submit(attempt, None));
                }
            }
        }
        if let Some(task) = &mut self.clients[number].task {
            (task.open, task.sending) = (open, sending);
        }
        let patience = self.between(self.deadline / 2, self.deadline * 2);
        self.after(patience, Event::Timeout(number, sending));
    }

    fn attempt(&mut self, client: usize, node: usize, command: Command, line: Option<(usize, usize)>) -> usize {
        let incarnation = self.processes[node].incarnation;
        let attempt = Attempt {
            client,
            node,
            incarnation,
            command: command.clone(),
            invoked_at: self.now,
            answered_at: None,
            is_denied: false,
            is_lost: false,
            line,
        };
        let number = self.truth.invoke(attempt);
        self.count("attempt");
        self.note(|| {
            let (id, actor, case_id) = (short(command.operation_id()), command.actor(), command.case_id());
            let revision = command.expected_revision().map_or(String::new(), |revision| format!(" at {revision}"));
            let stream = if line.is_some() { " (stream)" } else { "" };
            format!("client {client} sends attempt {number} to process {node}: {actor}: `{}`{revision} {id} on {case_id}{stream}", command.name())
        });
        number
    }

    /// A command reaches its process.
    pub fn submit(&mut self, number: usize, lane: Option<Lane>) {
        let now = self.now;
        let deadline = Duration::from_micros(self.now + self.deadline);
        let attempt = &mut self.truth.attempts[number];
        let (node, incarnation) = (attempt.node, attempt.incarnation);
        if attempt.is_lost {
            return;
        }
        attempt.invoked_at = now;
        let (command, workflow) = (attempt.command.clone(), Some(self.workflow.clone()));
        let envelope = Envelope { command, workflow, recorded_at: None, deadline, lane, ticket: number };
        self.tell_shard(node, incarnation, ShardMessage::Submit(envelope));
    }

    /// An attempt has an answer, or (`None`) its process died.
    pub fn client_answered(&mut self, attempt: usize, answer: Option<&Answer>) {
        let number = self.truth.attempts[attempt].client;
        let gives_up = self.makes(Kind::GiveUp);
        let Some(task) = &mut self.clients[number].task else { return };
        let Some(index) = task.open.remove(&attempt) else { return };
        let is_final = answer.is_some_and(|answer| !matches!(answer, Answer::Unsettled(_)));
        let is_applied = matches!(answer, Some(Answer::Applied(_) | Answer::Replayed(_)));
        task.commands[index].1 |= is_final;
        let probe_failed = task.is_probe && is_final && !is_applied;
        if task.commands.iter().all(|(_, done)| *done) {
            self.clients[number].task = None;
        } else if !task.open.is_empty() {
            return;
        } else if gives_up {
            self.count(Kind::GiveUp.name());
            self.clients[number].task = None;
        }
        if probe_failed {
            self.check(Err(format!("a note on an open case is refused: {answer:?}")));
        }
        let pause = self.between(500, 20_000) * if self.is_quiet { 1 } else { self.slowness };
        self.after(pause, Event::Client(number));
    }

    /// A client has waited long enough: it sends the same again.
    pub fn client_timeout(&mut self, number: usize, sending: u64) {
        let gives_up = self.makes(Kind::GiveUp);
        let Some(task) = &mut self.clients[number].task else { return };
        if task.sending != sending || task.open.is_empty() {
            return;
        }
        task.open.clear();
        if gives_up {
            self.clients[number].task = None;
            self.count(Kind::GiveUp.name());
        }
        self.count("client-timeout");
        self.after(0, Event::Client(number));
    }

    /// From now on a client must come to an end within so many tries.
    pub fn begin_counting_tries(&mut self) {
        for task in self.clients.iter_mut().filter_map(|client| client.task.as_mut()) {
            task.tries = 0;
        }
    }

    /// Every process must still take a note on every case that there is.
    pub fn probe(&mut self) {
        self.note(|| "every process is asked for a note on every case".into());
        self.clients.clear();
        for case_id in self.cases.clone() {
            if self.truth.state(&case_id).case().is_none() {
                continue;
            }
            for node in 0..PROCESSES {
                let command = self.command(&case_id, "note", REVIEWERS[0], json!({"reason": "probe"}));
                let task = Task { is_probe: true, node: Some(node), ..Task::new(vec![command]) };
                self.clients.push(Client { task: Some(task), sendings: 0 });
                self.after(0, Event::Client(self.clients.len() - 1));
            }
        }
    }

    fn new_commands(&mut self) -> Vec<Command> {
        let repeats = [Kind::LateRepeat, Kind::ChangedPayload, Kind::OtherActor];
        for kind in repeats {
            if !self.sent.is_empty() && self.makes_counted(kind) {
                let place = self.between(0, self.sent.len() as u64 - 1) as usize;
                let old = self.sent[place].clone();
                let other =
                    if *old.actor() == ActorId::from_stored(REVIEWERS[0]) { REVIEWERS[1] } else { REVIEWERS[0] };
                let reason = json!({"reason": "another command under the same id"});
                return vec![match kind {
                    Kind::ChangedPayload => self.with_id(&old, "note", old.actor().as_str(), reason),
                    Kind::OtherActor => self.with_id(&old, old.name().as_str(), other, body_of(&old)),
                    _ => old,
                }];
            }
        }
        let place = self.between(0, self.cases.len() as u64 - 1) as usize;
        let case_id = self.cases[place].clone();
        let lines = if self.makes_counted(Kind::Stream) { self.between(2, 5) } else { 1 };
        let mut commands: Vec<Command> = (0..lines).map(|line| self.new_command(&case_id, line as i64)).collect();
        if lines > 1 && self.chance(0.6) {
            commands.splice(0..0, self.too_early(&case_id));
        }
        self.sent.extend(commands.iter().cloned());
        commands
    }

    /// A line that only the next one makes possible: if they change places it shows.
    fn too_early(&mut self, case_id: &CaseId) -> Vec<Command> {
        let state = self.truth.state(case_id);
        let Some(case) = state.case() else { return Vec::new() };
        let is_missing = |who: &&str| !case.assignees.contains(&ActorId::from_stored(*who));
        let (Some(who), Some(action)) = (REVIEWERS.into_iter().find(is_missing), case.allowed().first()) else {
            return Vec::new();
        };
        let (action, revision) = (action.to_string(), case.revision.get());
        let act = self.command(case_id, &action, who, json!({"expected_revision": revision, "reason": "early"}));
        vec![act, self.command(case_id, "assign", REVIEWERS[0], json!({"payload": {"assignee": who}}))]
    }

    /// A command that makes sense, more or less; `ahead`: so many before it are on their way.
    fn new_command(&mut self, case_id: &CaseId, ahead: i64) -> Command {
        let actor = REVIEWERS[self.between(0, 1) as usize];
        let who = REVIEWERS[self.between(0, 1) as usize];
        let state = self.truth.state(case_id);
        let CaseState::Present(case) = state else {
            let name = if self.chance(0.7) { "open" } else { "note" };
            return self.command(case_id, name, actor, json!({"reason": "new"}));
        };
        if self.makes_counted(Kind::OpenRace) {
            return self.command(case_id, "open", actor, json!({"payload": {"by": actor}}));
        }
        if self.makes_counted(Kind::Poison) {
            return self.command(case_id, "note", actor, json!({"reason": "poison"}));
        }
        let revision = match self.between(0, 9) {
            0 => (case.revision.get() - 1).max(0),
            1 => case.revision.get() + 1,
            _ => case.revision.get() + ahead,
        };
        let act = json!({"expected_revision": revision, "reason": "x"});
        match self.between(0, 11) {
            0 => self.command(case_id, "assign", actor, json!({"payload": {"assignee": who}})),
            1 => self.command(case_id, "unassign", actor, json!({"payload": {"assignee": who}})),
            2 => self.command(case_id, "note", actor, json!({"reason": "x"})),
            3 => self.command(case_id, "note", actor, json!({"reason": "x", "expected_revision": revision})),
            _ => {
                let allowed = case.allowed();
                let all = ["approve", "deny", "return", "amend", "resubmit", "withdraw", "reopen"];
                let name = if allowed.is_empty() || self.chance(0.15) {
                    all[self.between(0, all.len() as u64 - 1) as usize].to_owned()
                } else {
                    allowed[self.between(0, allowed.len() as u64 - 1) as usize].to_string()
                };
                // A withdrawn case has no way back; keep them few.
                let name = if name == "withdraw" && self.chance(0.9) { "amend".to_owned() } else { name };
                self.command(case_id, &name, actor, act)
            }
        }
    }

    fn command(&mut self, case_id: &CaseId, name: &str, actor: &str, body: Value) -> Command {
        let id = OperationId::from_uuid(uuid::Uuid::from_u128(u128::from(self.between(1 << 40, u64::MAX)) << 32 | 1));
        command(case_id, id, name, actor, body)
    }

    fn with_id(&mut self, old: &Command, name: &str, actor: &str, body: Value) -> Command {
        let command = command(old.case_id(), old.operation_id(), name, actor, body);
        self.sent.push(command.clone());
        command
    }
}

fn command(case_id: &CaseId, operation_id: OperationId, name: &str, actor: &str, body: Value) -> Command {
    let Value::Object(mut object) = body else { unreachable!("bodies are objects") };
    let members = Members::take(&mut object, &mut Vec::new());
    let (actor, name) = (ActorId::from_stored(actor), CommandName::from_stored(name));
    let draft = CommandDraft { case_id: case_id.clone(), operation_id, actor, name, members };
    Command::new(draft).expect("clients send what the parser lets through")
}

/// The members of a command, as it was sent.
fn body_of(command: &Command) -> Value {
    serde_json::from_str(command.request()).expect("a request is JSON")
}
