//! What goes wrong beside messages: processes die, others raise their fences, people hold and edit rows.
//!
//! Owns how a process dies and starts again (fencing what its earlier self left behind, before it answers anything), and
//! how an edit becomes an operation, as the triggers record it.

use std::collections::BTreeMap;

use casework::domain::{
    ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, Timestamp, apply, decide,
};
use serde_json::{Value, json};

use super::options::{Kind, StoreBug};
use super::process::Process;
use super::store::{Landed, Raised};
use super::world::{Event, PROCESSES, World};

/// Operations that landed so long ago may be pruned, in microseconds.
const PRUNE_AFTER: u64 = 400_000;

impl World {
    /// Something may go wrong.
    pub fn trouble(&mut self) {
        if self.is_quiet {
            return;
        }
        let pause = self.between(500, 6_000);
        self.after(pause, Event::Trouble);
        let node = self.between(0, PROCESSES as u64 - 1) as usize;
        let case_id = {
            let place = self.between(0, self.cases.len() as u64 - 1) as usize;
            self.cases[place].clone()
        };
        if self.makes(Kind::Crash) && self.chance(0.2) {
            self.crash(node);
        }
        if self.makes(Kind::ForeignFence) && self.chance(0.3) {
            let place = self.between(0, self.processes[node].main.len() as u64 - 1) as usize;
            let writer = self.processes[node].main[place].writer;
            if let Raised::To(_) = self.store.fence(writer) {
                self.count(Kind::ForeignFence.name());
                self.note(|| format!("process {node} is fenced by another one"));
            }
        }
        if self.makes(Kind::RowLock) && self.store.held.insert(case_id.clone()) {
            self.count(Kind::RowLock.name());
            self.note(|| format!("a person holds case {case_id}"));
            let most = if self.chance(0.5) { 20_000 } else { self.deadline * 2 };
            let held = self.between(1_000, most);
            self.after(held, Event::Unlock(case_id.clone()));
        }
        if self.makes(Kind::Edit) {
            self.edit(&case_id);
        }
        if self.makes(Kind::Prune) {
            self.prune();
        }
    }

    fn prune(&mut self) {
        let old = self.truth.settled_before(self.now.saturating_sub(PRUNE_AFTER));
        if old.is_empty() {
            return;
        }
        let place = self.between(0, old.len() as u64 - 1) as usize;
        let key = &old[place];
        self.store.prune(&key.0, key.1);
        self.truth.prune(key);
        self.count(Kind::Prune.name());
        self.note(|| format!("operation {} of case {} becomes a tombstone", super::truth::short(key.1), key.0));
    }

    /// A person lets a case go, mostly having changed it.
    pub fn unlock(&mut self, case_id: &CaseId) {
        self.store.held.remove(case_id);
        self.note(|| format!("a person lets case {case_id} go"));
        if self.makes(Kind::Edit) || (!self.is_quiet && self.kinds().contains(&Kind::Edit) && self.chance(0.4)) {
            self.edit(case_id);
        }
    }

    fn edit(&mut self, case_id: &CaseId) {
        let mut state = self.store.state(case_id);
        let who = ["47", "81"][self.between(0, 1) as usize];
        let payload = match (state.case(), self.between(0, 4)) {
            (None, 0) => {
                json!({"table": "cases", "insert": {"workflow": "permit", "status": "in_review", "revision": 0, "data": {}}})
            }
            (None, _) => return,
            (Some(case), _) if case.assignees.contains(&ActorId::from_stored(who)) && self.chance(0.5) => {
                json!({"table": "assignments", "delete": who})
            }
            (Some(case), 0 | 1) if !case.assignees.contains(&ActorId::from_stored(who)) => {
                json!({"table": "assignments", "insert": who})
            }
            (Some(case), 2) => json!({"table": "cases", "set": {"revision": case.revision.get() + 2}}),
            (Some(case), _) => {
                let status = ["in_review", "approved", "denied", "returned"][self.between(0, 3) as usize];
                if case.status.as_str() == status {
                    return;
                }
                json!({"table": "cases", "set": {"status": status}})
            }
        };
        let id = OperationId::from_uuid(uuid::Uuid::from_u128(u128::from(self.between(1 << 40, u64::MAX)) << 32 | 2));
        let command = edit_command(case_id, id, payload);
        let at = Timestamp::from_micros(i64::try_from(self.now).expect("a simulation is short"));
        let decision = decide(&self.workflow, &state, &command).expect("an edit is recorded as it happened");
        apply(&mut state, &decision, at);
        let operation = decision.to_operation(&command, at);
        if !self.store.edit(&state, &operation) {
            return;
        }
        self.count(Kind::Edit.name());
        self.note(|| format!("a person edits case {case_id} to version {}: {}", operation.version, command.request()));
        let landed = Landed { case_id: case_id.clone(), operations: vec![operation] };
        let checked = self.truth.landed(&landed, Some(&command), &self.store, self.now);
        self.check(checked);
    }

    fn crash(&mut self, node: usize) {
        if !self.processes[node].is_up {
            return;
        }
        self.count(Kind::Crash.name());
        self.note(|| format!("process {node} dies"));
        self.processes[node].is_up = false;
        // The server notices closed sockets, or it does not.
        let writers: BTreeMap<u64, usize> = self.store.writers.iter().map(|(id, row)| (*id, row.node)).collect();
        let running: Vec<u64> = self.store.transactions.keys().copied().collect();
        for transaction in running {
            let is_own = self.store.transactions.get(&transaction).and_then(|running| writers.get(&running.writer));
            if is_own == Some(&node) && self.chance(0.5) {
                self.store.rollback(transaction);
            }
        }
        for attempt in self.truth.lost(node, self.now) {
            self.client_answered(attempt, None);
        }
        let pause = self.between(5_000, 300_000);
        self.after(pause, Event::Restart(node));
    }

    /// A process starts: first it fences the writers that its earlier self left behind.
    pub fn restart(&mut self, node: usize) {
        let mut left: Vec<u64> =
            self.store.writers.iter().filter(|(_, row)| row.node == node).map(|(writer, _)| *writer).collect();
        if self.options.has(StoreBug::RestartWithoutFence) {
            left.clear();
        }
        for writer in left {
            if let Raised::Blocked(transaction) = self.store.fence(writer) {
                if self.chance(0.3) {
                    self.store.rollback(transaction);
                }
                return self.after(5_000, Event::Restart(node));
            }
            self.store.writers.remove(&writer);
        }
        let incarnation = self.processes[node].incarnation + 1;
        self.processes[node] = Process::new(self, node, incarnation);
        self.note(|| format!("process {node} is up again"));
        self.count("restart");
        self.begin_sweeps(node);
    }
}

fn edit_command(case_id: &CaseId, operation_id: OperationId, payload: Value) -> Command {
    let Value::Object(mut object) = json!({ "payload": payload }) else { unreachable!("it is an object") };
    let members = Members::take(&mut object, &mut Vec::new());
    let actor = ActorId::from_stored("sql:postgres");
    let name = CommandName::from_stored("edit");
    let draft = CommandDraft { case_id: case_id.clone(), operation_id, actor, name, members };
    Command::recorded_edit(draft).expect("this is what the triggers record")
}
