//! Between a process and the database: batches, reads and fences, with everything that can happen to them.
//!
//! Owns when a message arrives, whether its answer is lost, and what a cut-off batch does later: it may have committed
//! before its sender learns that the answer is lost, after that, or after it was sent anew, when only the fence keeps it
//! out. What the database does with a message is the model store's.

use std::time::Duration;

use casework::domain::{CaseId, CaseState};
use casework::engine::{
    BatchAnswer, Chain, CommitFault, PlantedBug, QueueEvent, ReadFound, ReadKind, ReadOrder, RetryCause, Trouble,
};

use super::options::{Kind, StoreBug};
use super::process::{Connection, ShardMessage, batch_word};
use super::store::{Begun, Raised};
use super::world::{Event, World};

/// A case with more operations comes without their ids.
const OPERATIONS_MAX: usize = 6;
/// How long a patient connection waits for a lock in one statement.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(100);

/// Which of a process's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// One of those for batches.
    Main(usize),
    /// The one that waits for this case.
    Patient(CaseId),
}

/// A batch on its way.
#[derive(Debug)]
pub struct Sending {
    node: usize,
    incarnation: u32,
    slot: Slot,
    connection: Connection,
    batch: Vec<Chain>,
    /// Which decision of its process about its case each chain is.
    decisions: Vec<u64>,
    /// Until when it waits for locks; `None`: it leaves locked cases out.
    waits_until: Option<u64>,
    is_cut: bool,
    is_answered: bool,
    is_rerun: bool,
}

/// A fence on its way.
#[derive(Debug, Clone)]
pub struct Fence {
    node: usize,
    incarnation: u32,
    slot: Slot,
    writer: u64,
    /// Its answer is lost: the process takes it as failed.
    is_lost: bool,
    since: u64,
}

impl World {
    fn connection(&mut self, node: usize, slot: &Slot) -> Option<&mut Connection> {
        let process = &mut self.processes[node];
        match slot {
            Slot::Main(number) => process.main.get_mut(*number),
            Slot::Patient(case_id) => process.patient_busy.get_mut(case_id),
        }
    }

    /// Sends a batch.
    pub fn send(&mut self, node: usize, slot: Slot, batch: Vec<Chain>, wait: Option<Duration>) {
        let Some(connection) = self.connection(node, &slot).copied() else { return };
        if connection.is_unclear && !self.has(PlantedBug::UnclearWithoutFence) {
            self.check(Err(format!("process {node} sends a batch on a connection whose last commit is unclear")));
        }
        let incarnation = self.processes[node].incarnation;
        let id = self.number();
        self.note(|| format!("process {node} sends batch {id} [{}]", batch_word(&batch)));
        self.count("batch");
        if matches!(slot, Slot::Main(_)) && self.has_batch_in_flight(node, incarnation) {
            self.count("two-in-flight");
        }
        let waits_until = wait.map(|wait| self.now + u64::try_from(wait.min(LOCK_WAIT_MAX).as_micros()).unwrap_or(0));
        let number = |chain: &Chain| self.decided.get(&(node, chain.case_id.clone())).copied().unwrap_or(0);
        let decisions = batch.iter().map(number).collect();
        let is_rerun = match slot {
            Slot::Main(number) => std::mem::take(&mut self.processes[node].is_rerun[number]),
            Slot::Patient(_) => false,
        };
        let mut sending = Sending {
            node,
            incarnation,
            slot,
            connection,
            batch,
            decisions,
            waits_until,
            is_cut: false,
            is_answered: false,
            is_rerun,
        };
        let delay = self.message();
        let refusals = [
            (Kind::CommitFailed, CommitFault::Failed),
            (Kind::CommitRetry, CommitFault::Retry(RetryCause::Serialization)),
            (Kind::CommitDuplicate, CommitFault::Duplicate),
            (Kind::CommitLost, CommitFault::Unclear),
        ];
        for (kind, fault) in refusals {
            if self.makes_counted(kind) {
                self.note(|| format!("batch {id} will come to nothing: {}", kind.name()));
                self.sendings.insert(id, sending);
                return self.after(delay, Event::Answer(id, Err(fault)));
            }
        }
        sending.is_cut = self.makes_counted(Kind::CommitCut);
        if sending.is_cut {
            let told = self.between(1_000, 20_000);
            self.after(told, Event::Answer(id, Err(CommitFault::Unclear)));
            // Before its sender learns that the answer is lost; just after, while the fence is on its way; or much later.
            let arrival = match self.between(0, 3) {
                0 => self.between(100, told),
                1 | 2 => told + self.between(0, 3_000),
                _ => self.between(told, 1_500_000),
            };
            self.after(arrival, Event::Begin(id));
        } else {
            self.after(delay, Event::Begin(id));
        }
        self.sendings.insert(id, sending);
    }

    fn has_batch_in_flight(&self, node: usize, incarnation: u32) -> bool {
        let is_its = |one: &Sending| (one.node, one.incarnation, one.is_answered) == (node, incarnation, false);
        self.sendings.values().any(|one| is_its(one) && matches!(one.slot, Slot::Main(_)))
    }

    /// A batch reaches the database.
    pub fn begin(&mut self, id: u64) {
        let Some(sending) = self.sendings.get(&id) else { return };
        let Connection { writer, epoch, .. } = sending.connection;
        let waits = sending.waits_until.is_some();
        match self.store.begin(writer, epoch, &sending.batch, waits, sending.is_rerun) {
            Begun::Waits if sending.waits_until.is_some_and(|until| until <= self.now) => {
                self.count("lock-timeout");
                self.over(id, Err(CommitFault::Locked));
            }
            Begun::Waits => self.after(5_000, Event::Begin(id)),
            Begun::Over(answer) => {
                if sending.is_cut && answer == Ok(BatchAnswer::Fenced) {
                    self.count("late-and-refused");
                    self.note(|| format!("batch {id} arrives late and is kept out by the fence"));
                }
                self.over(id, answer);
            }
            Begun::Runs(transaction) => {
                if self.options.has(StoreBug::AnswerBeforeCommit)
                    && let Some(answer) = self.store.answer_of(transaction)
                {
                    self.over(id, Ok(answer));
                    if self.chance(0.1) {
                        self.store.rollback(transaction);
                    }
                }
                let takes = if self.makes_counted(Kind::LongTransaction) {
                    self.between(10_000, 400_000)
                } else {
                    self.between(20, 1_000)
                };
                self.after(takes, Event::Commit(id, transaction));
            }
        }
    }

    /// A batch's transaction commits.
    pub fn commit(&mut self, id: u64, transaction: u64) {
        let Some((answer, landed)) = self.store.commit(transaction) else {
            self.note(|| format!("batch {id} was rolled back"));
            return self.over(id, Err(CommitFault::Unclear));
        };
        if answer == Err(CommitFault::BrokenInvariant) {
            self.check(Err(format!("batch {id} brings a version that is there already")));
        }
        self.note(|| format!("batch {id} ends in the database: {answer:?}"));
        if let Some(sending) = self.sendings.get(&id)
            && sending.is_cut
            && !landed.is_empty()
        {
            self.count(if sending.is_answered { "applied-late" } else { "applied-and-unclear" });
        }
        for landed in &landed {
            self.count("landed");
            let checked = self.truth.landed(landed, None, &self.store, self.now);
            self.check(checked);
            self.check_not_late(id, &landed.case_id);
        }
        self.over(id, answer);
    }

    /// What a process takes for settled is: once its case was decided again, or it has started again, what it had sent
    /// before lands no more. Only the fence can promise that.
    fn check_not_late(&mut self, id: u64, case_id: &CaseId) {
        let Some(Sending { node, incarnation, batch, decisions, .. }) = self.sendings.get(&id) else { return };
        let process = &self.processes[*node];
        let decided = self.decided.get(&(*node, case_id.clone()));
        let chains = batch.iter().zip(decisions);
        let is_old = chains
            .into_iter()
            .any(|(chain, number)| chain.case_id == *case_id && decided.is_some_and(|now| now > number));
        if process.is_up && (process.incarnation != *incarnation || is_old) {
            let since = if is_old { "case was decided again" } else { "process had started again" };
            self.check(Err(format!("batch {id} landed on case {case_id} after its {since}")));
        }
    }

    /// The database is done with a batch; the answer goes back unless it is lost.
    fn over(&mut self, id: u64, answer: Result<BatchAnswer, CommitFault>) {
        let Some(sending) = self.sendings.get(&id) else { return };
        if !sending.is_cut {
            let delay = self.message();
            self.after(delay, Event::Answer(id, answer));
        } else if sending.is_answered {
            self.sendings.remove(&id);
        }
    }

    /// An answer reaches the process.
    pub fn answer(&mut self, id: u64, answer: Result<BatchAnswer, CommitFault>) {
        let Some(sending) = self.sendings.get_mut(&id) else { return };
        if std::mem::replace(&mut sending.is_answered, true) {
            return;
        }
        let (node, incarnation, slot) = (sending.node, sending.incarnation, sending.slot.clone());
        if !sending.is_cut {
            self.sendings.remove(&id);
        }
        if self.alive(node, incarnation).is_none() {
            return;
        }
        self.note(|| format!("process {node} learns of batch {id}: {answer:?}"));
        let is_unclear = answer == Err(CommitFault::Unclear);
        if is_unclear && let Some(connection) = self.connection(node, &slot) {
            connection.is_unclear = true;
            if self.processes[node].main.iter().filter(|connection| connection.is_unclear).count() > 1 {
                self.count("two-unclear");
            }
        }
        if let Ok(BatchAnswer::Settled(answers)) = &answer {
            for answer in answers {
                if *answer == casework::engine::ChainAnswer::Locked {
                    *self.counts.entry("locked").or_default() += 1;
                }
            }
        }
        match slot {
            Slot::Main(number) => {
                self.processes[node].is_rerun[number] = matches!(answer, Err(CommitFault::Retry(_)));
                self.tell_queue(node, incarnation, QueueEvent::Answered(number, answer));
            }
            Slot::Patient(case_id) => {
                let is_fenced = is_unclear || answer == Ok(BatchAnswer::Fenced);
                self.tell_queue(node, incarnation, QueueEvent::PatientAnswered(case_id.clone(), answer));
                if is_fenced {
                    self.fence(node, Slot::Patient(case_id));
                } else {
                    self.free_patient(node, &case_id);
                }
            }
        }
    }

    fn free_patient(&mut self, node: usize, case_id: &CaseId) {
        let process = &mut self.processes[node];
        process.patient_free.extend(process.patient_busy.remove(case_id));
    }

    /// Raises the fence of a connection.
    pub fn fence(&mut self, node: usize, slot: Slot) {
        let Some(connection) = self.connection(node, &slot) else { return };
        let writer = connection.writer;
        let incarnation = self.processes[node].incarnation;
        self.count("fence");
        let delay = self.message();
        let mut fence = Fence { node, incarnation, slot, writer, is_lost: false, since: self.now };
        if self.makes_counted(Kind::FenceFailed) || (!self.is_quiet && self.chance(0.05)) {
            self.after(delay, Event::FenceAnswer(fence.clone(), None));
            fence.is_lost = true;
            if self.chance(0.3) {
                // It never arrives.
                return;
            }
            let arrival = self.between(100, 400_000);
            return self.after(arrival, Event::Fence(fence));
        }
        self.after(delay, Event::Fence(fence));
    }

    /// A fence reaches the database.
    pub fn fence_begin(&mut self, fence: Fence) {
        let raised = match self.store.fence(fence.writer) {
            Raised::Blocked(transaction) => {
                if self.now > fence.since + 300_000 || self.chance(0.2) {
                    self.count("backend-terminated");
                    self.store.rollback(transaction);
                }
                return self.after(2_000, Event::Fence(fence));
            }
            Raised::To(epoch) => Connection { writer: fence.writer, epoch, is_unclear: false },
            Raised::Gone => {
                let writer = self.store.writer_open(fence.node);
                Connection { writer, epoch: 1, is_unclear: false }
            }
        };
        if fence.is_lost {
            self.count("fence-answer-lost");
            return;
        }
        let delay = self.between(50, 3_000);
        self.after(delay, Event::FenceAnswer(fence, Some(raised)));
    }

    /// The answer of a fence reaches the process.
    pub fn fence_answer(&mut self, fence: Fence, raised: Option<Connection>) {
        let Fence { node, incarnation, slot, .. } = fence;
        if self.alive(node, incarnation).is_none() {
            return;
        }
        self.note(|| {
            format!("process {node}: the fence of {slot:?} {}", if raised.is_some() { "holds" } else { "fails" })
        });
        let holds = raised.is_some();
        if let (Some(raised), Some(connection)) = (raised, self.connection(node, &slot)) {
            *connection = raised;
        }
        let event = match (&slot, holds) {
            (Slot::Main(number), true) => QueueEvent::FenceHeld(*number),
            (Slot::Main(number), false) => QueueEvent::FenceFailed(*number),
            (Slot::Patient(case_id), true) => {
                self.free_patient(node, case_id);
                QueueEvent::PatientFenceHeld(case_id.clone())
            }
            (Slot::Patient(case_id), false) => QueueEvent::PatientFenceFailed(case_id.clone()),
        };
        self.tell_queue(node, incarnation, event);
        if !holds && matches!(slot, Slot::Patient(_)) {
            self.fence(node, slot);
        }
    }

    /// A read goes out.
    pub fn read(&mut self, node: usize, incarnation: u32, order: ReadOrder) {
        let delay = self.message();
        self.after(delay, Event::ReadBegin(node, incarnation, order));
    }

    /// A read reaches the database: this is its snapshot.
    pub fn read_begin(&mut self, node: usize, incarnation: u32, order: ReadOrder) {
        let found = if self.makes_counted(Kind::ReadFailed) {
            ReadFound::failed(&order.kind, Trouble::Unavailable)
        } else {
            match &order.kind {
                ReadKind::Case => {
                    let operations = self.store.known(&order.case_id, OPERATIONS_MAX);
                    ReadFound::Case(Ok((self.store.state(&order.case_id), operations)))
                }
                ReadKind::Operations(ids) => ReadFound::Operations(Ok(self.store.find(&order.case_id, ids))),
            }
        };
        let delay = self.message();
        self.after(delay, Event::ReadAnswer(node, incarnation, order, found));
    }

    /// The answer of a read reaches the process.
    pub fn read_answer(&mut self, node: usize, incarnation: u32, order: ReadOrder, mut found: ReadFound) {
        if self.options.has(StoreBug::TornLoad)
            && let ReadFound::Case(Ok((CaseState::Present(old), _))) = &mut found
            && let CaseState::Present(new) = self.store.state(&order.case_id)
        {
            let assignees = std::mem::take(&mut old.assignees);
            *old = casework::domain::Case { assignees, ..new };
        }
        let ReadOrder { case_id, number, .. } = order;
        self.note(|| match &found {
            ReadFound::Case(Ok((state, _))) => format!("process {node} reads case {case_id} at {}", state.version()),
            ReadFound::Operations(Ok(found)) => {
                format!("process {node} looks ids of case {case_id} up: {}", found.len())
            }
            _ => format!("process {node} can't read case {case_id}"),
        });
        self.tell_shard(node, incarnation, ShardMessage::Read(case_id, number, found));
    }
}
