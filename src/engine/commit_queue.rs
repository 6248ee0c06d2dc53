//! The protocol of a shard's committing connections: chains wait, go out as batches, and are settled.
//!
//! Owns when a batch is sent (no timers: see [`QueueLimits::overlap_operations_max`]), what a failure means for each of its
//! chains, the halving of a batch that holds a bad chain, the retries, and the fence after an unclear commit. Connections are
//! numbered from 0 and each has a fate of its own. Never does I/O: [`CommitQueue::step`] takes an event and the time and
//! appends effects. Cannot fail.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::batch::{BatchAnswer, ChainAnswer, CommitFault};
use super::case_events::Verdict;
use super::chain::Chain;
use super::planted_bugs::{PlantedBug, planted, rebase};
use super::queue_events::{QueueEffect, QueueEvent, QueueLimits};
use crate::domain::CaseId;

mod patience;
mod waits;

pub use waits::QueueWaits;

#[derive(Debug, Clone)]
struct Queued {
    chain: Chain,
    deadline: Duration,
    locked_tries: u32,
    not_before: Duration,
    enqueued_at: Duration,
    /// When it was first found held by another transaction.
    locked_since: Option<Duration>,
}

/// What a connection is at.
#[derive(Debug)]
enum Stage {
    /// The connection is free.
    Idle,
    /// A batch is in flight; so often it was run again.
    Committing { batch: Vec<Queued>, retries: u32 },
    /// The batch is run again at that time.
    Pausing { batch: Vec<Queued>, retries: u32, until: Duration },
    /// A commit was unclear, the fence is being raised.
    Fencing { unclear: Vec<CaseId>, told: bool },
    /// The fence could not be raised and is tried again at that time.
    FencePausing { unclear: Vec<CaseId>, until: Duration },
}

impl Stage {
    fn operations_in_flight(&self) -> usize {
        let Self::Committing { batch, .. } = self else { return 0 };
        batch.iter().map(Queued::weight).sum()
    }

    /// Whether a fence could not be raised and was not since: the database is away, as far as this connection knows.
    fn is_away(&self) -> bool {
        matches!(self, Self::FencePausing { .. } | Self::Fencing { told: true, .. })
    }
}

impl Queued {
    /// What it adds to a batch: its operations; a check counts as one.
    fn weight(&self) -> usize {
        self.chain.operation_count().max(1)
    }
}

/// The queue of a shard's committing connections.
#[derive(Debug)]
pub struct CommitQueue {
    limits: QueueLimits,
    /// One for each connection.
    stages: Vec<Stage>,
    waiting: VecDeque<Queued>,
    /// Halves of a batch that was refused whole; they go first.
    halves: VecDeque<Vec<Queued>>,
    patient: HashMap<CaseId, Queued>,
    /// Drawn from by the jitter; a plain linear congruence, so that a run can be repeated.
    jitter: u64,
    waits: QueueWaits,
}

impl CommitQueue {
    /// An empty queue. The seed spreads the retries of several processes.
    pub fn new(limits: QueueLimits, seed: u64) -> Self {
        Self {
            limits,
            stages: (0..limits.connections.max(1)).map(|_| Stage::Idle).collect(),
            waiting: VecDeque::new(),
            halves: VecDeque::new(),
            patient: HashMap::new(),
            jitter: seed,
            waits: QueueWaits::default(),
        }
    }

    /// Whether nothing waits, is in flight or unclear.
    pub fn is_idle(&self) -> bool {
        self.stages.iter().all(|stage| matches!(stage, Stage::Idle))
            && self.waiting.is_empty()
            && self.halves.is_empty()
            && self.patient.is_empty()
    }

    /// Takes an event at a time (monotonic) and appends what has to be done.
    pub fn step(&mut self, event: QueueEvent, now: Duration, effects: &mut Vec<QueueEffect>) {
        self.waits.clear();
        match event {
            QueueEvent::Enqueued(chains) => self.enqueued(chains, now, effects),
            QueueEvent::Answered(connection, answer) => self.answered(connection, answer, now, effects),
            QueueEvent::FenceHeld(connection) => self.fence_held(connection, effects),
            QueueEvent::FenceFailed(connection) => self.fence_failed(connection, now, effects),
            QueueEvent::PatientAnswered(case_id, answer) => self.patient_answered(case_id, answer, now, effects),
            QueueEvent::PatientFenceHeld(case_id) => {
                self.patient.remove(&case_id);
                effects.push(QueueEffect::Settle(case_id, Verdict::Fenced));
            }
            QueueEvent::PatientFenceFailed(case_id) => {
                effects.push(QueueEffect::Settle(case_id, Verdict::StillUnclear));
            }
            QueueEvent::Woken => self.woken(now, effects),
        }
        self.advance(now, effects);
    }

    /// The driver keeps one wake-up, the earliest. If that was meant for a chain that has gone since, a pause that ends
    /// later must be asked for again, or nothing would end it.
    fn woken(&self, now: Duration, effects: &mut Vec<QueueEffect>) {
        if planted(PlantedBug::WakeUpLost) {
            return;
        }
        for stage in &self.stages {
            if let Stage::Pausing { until, .. } | Stage::FencePausing { until, .. } = stage
                && now < *until
            {
                effects.push(QueueEffect::WakeAt(*until));
            }
        }
    }

    fn enqueued(&mut self, chains: Vec<(Chain, Duration)>, now: Duration, effects: &mut Vec<QueueEffect>) {
        let is_away = self.stages.iter().all(Stage::is_away);
        for (chain, deadline) in chains {
            if is_away {
                // The database is away. Nothing of this chain was sent, so the answer is clear.
                effects.push(QueueEffect::Settle(chain.case_id, Verdict::Failed));
            } else {
                let (locked_tries, not_before, enqueued_at, locked_since) = (0, Duration::ZERO, now, None);
                self.waiting.push_back(Queued { chain, deadline, locked_tries, not_before, enqueued_at, locked_since });
            }
        }
    }

    fn answered(
        &mut self,
        connection: usize,
        answer: Result<BatchAnswer, CommitFault>,
        now: Duration,
        effects: &mut Vec<QueueEffect>,
    ) {
        let stage = &mut self.stages[connection];
        let Stage::Committing { batch, retries } = std::mem::replace(stage, Stage::Idle) else {
            unreachable!("a batch is answered once, while it is in flight");
        };
        match answer {
            Ok(BatchAnswer::Settled(answers)) => {
                assert_eq!(answers.len(), batch.len(), "the store answers every chain");
                for (queued, answer) in batch.into_iter().zip(answers) {
                    self.chain_answered(queued, answer, now, effects);
                }
            }
            answer @ (Ok(BatchAnswer::Fenced) | Err(CommitFault::Unclear)) => {
                let unclear: Vec<CaseId> = batch.into_iter().map(|queued| queued.chain.case_id).collect();
                settle_all(&unclear, Verdict::Unclear, effects);
                if planted(PlantedBug::UnclearWithoutFence) && answer.is_err() {
                    return settle_all(&unclear, Verdict::Fenced, effects);
                }
                self.stages[connection] = Stage::Fencing { unclear, told: false };
                effects.push(QueueEffect::Fence(connection));
            }
            Err(CommitFault::Retry(_) | CommitFault::Locked) => self.pause(connection, batch, retries, now, effects),
            Err(CommitFault::Failed) => settle_batch(batch, Verdict::Failed, effects),
            Err(fault @ (CommitFault::Duplicate | CommitFault::BrokenInvariant | CommitFault::Data)) => {
                self.halve(batch, fault, effects);
            }
        }
    }

    fn chain_answered(
        &mut self,
        mut queued: Queued,
        answer: ChainAnswer,
        now: Duration,
        effects: &mut Vec<QueueEffect>,
    ) {
        let verdict = match answer {
            ChainAnswer::Held => Verdict::Held,
            ChainAnswer::Missed { seen } if planted(PlantedBug::RetriedWithoutDeciding) => {
                rebase(&mut queued.chain, seen);
                return self.waiting.push_back(queued);
            }
            ChainAnswer::Missed { .. } => Verdict::Missed,
            ChainAnswer::Locked if now >= queued.deadline => Verdict::Contention,
            ChainAnswer::Locked => {
                if planted(PlantedBug::TwoChainsInFlight) {
                    effects.push(QueueEffect::Settle(queued.chain.case_id.clone(), Verdict::Missed));
                }
                queued.locked_since.get_or_insert(now);
                queued.locked_tries += 1;
                queued.not_before = now + self.jittered(self.limits.retry_pause, queued.locked_tries);
                self.waiting.push_back(queued);
                return;
            }
        };
        self.waits.unlocked(&queued, now);
        effects.push(QueueEffect::Settle(queued.chain.case_id, verdict));
    }

    /// The whole transaction is run again, a bounded number of times, without the chains whose deadline has passed.
    fn pause(
        &mut self,
        connection: usize,
        batch: Vec<Queued>,
        retries: u32,
        now: Duration,
        effects: &mut Vec<QueueEffect>,
    ) {
        let is_last = retries >= self.limits.retries_max;
        let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| !is_last && now < queued.deadline);
        settle_batch(late, Verdict::Contention, effects);
        if batch.is_empty() {
            return;
        }
        let until = now + self.jittered(self.limits.retry_pause, retries + 1);
        self.stages[connection] = Stage::Pausing { batch, retries: retries + 1, until };
        effects.push(QueueEffect::WakeAt(until));
    }

    /// One chain spoilt the batch: halve it until that one stands alone. A chain is never cut.
    fn halve(&mut self, mut batch: Vec<Queued>, fault: CommitFault, effects: &mut Vec<QueueEffect>) {
        if batch.len() == 1 {
            let verdict = match fault {
                CommitFault::Data => Verdict::BadData,
                CommitFault::BrokenInvariant => Verdict::Broken,
                _ => Verdict::Missed,
            };
            return settle_batch(batch, verdict, effects);
        }
        let second = batch.split_off(batch.len() / 2);
        if planted(PlantedBug::HalvesShareAFate) {
            settle_batch(second, Verdict::BadData, effects);
            return self.halves.push_front(batch);
        }
        self.halves.push_front(second);
        self.halves.push_front(batch);
    }

    fn fence_held(&mut self, connection: usize, effects: &mut Vec<QueueEffect>) {
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if (number == connection || planted(PlantedBug::FenceTakenForBoth))
                && let Stage::Fencing { unclear, .. } = stage
            {
                settle_all(unclear, Verdict::Fenced, effects);
                *stage = Stage::Idle;
            }
        }
    }

    fn fence_failed(&mut self, connection: usize, now: Duration, effects: &mut Vec<QueueEffect>) {
        if let Stage::Fencing { unclear, told } = std::mem::replace(&mut self.stages[connection], Stage::Idle) {
            if !told {
                settle_all(&unclear, Verdict::StillUnclear, effects);
            }
            let until = now + self.jittered(self.limits.fence_pause, 1);
            self.stages[connection] = Stage::FencePausing { unclear, until };
            if self.stages.iter().all(Stage::is_away) {
                let never_sent = self.halves.drain(..).flatten().chain(self.waiting.drain(..)).collect();
                settle_batch(never_sent, Verdict::Failed, effects);
            }
            effects.push(QueueEffect::WakeAt(until));
        }
    }

    fn advance(&mut self, now: Duration, effects: &mut Vec<QueueEffect>) {
        for connection in 0..self.stages.len() {
            match &mut self.stages[connection] {
                Stage::Pausing { batch, retries, until } if now >= *until => {
                    let (batch, retries) = (std::mem::take(batch), *retries);
                    self.send(connection, batch, retries, effects);
                }
                Stage::FencePausing { unclear, until } if now >= *until => {
                    let unclear = std::mem::take(unclear);
                    self.stages[connection] = Stage::Fencing { unclear, told: true };
                    effects.push(QueueEffect::Fence(connection));
                }
                Stage::Idle => self.use_free(connection, now, effects),
                _ => {}
            }
        }
    }

    /// A connection is free: what waits goes out, if it is worth a transaction of its own.
    fn use_free(&mut self, connection: usize, now: Duration, effects: &mut Vec<QueueEffect>) {
        self.hand_to_patience(now, effects);
        if let Some(half) = self.halves.pop_front() {
            return self.send(connection, half, 0, effects);
        }
        let in_flight: usize = self.stages.iter().map(Stage::operations_in_flight).sum();
        let wanted = in_flight.min(self.limits.overlap_operations_max);
        let ready = self.waiting.iter().filter(|queued| queued.not_before <= now);
        let mut enough = ready.scan(0, |sum, queued| {
            *sum += queued.weight();
            Some(*sum)
        });
        if enough.any(|sum| sum >= wanted) {
            let batch = self.take_batch(now);
            self.send(connection, batch, 0, effects);
        } else if in_flight == 0
            && let Some(next) = self.waiting.iter().map(|queued| queued.not_before).min()
        {
            effects.push(QueueEffect::WakeAt(next));
        }
    }

    fn send(&mut self, connection: usize, batch: Vec<Queued>, retries: u32, effects: &mut Vec<QueueEffect>) {
        let chains = batch.iter().map(|queued| queued.chain.clone()).collect();
        effects.push(QueueEffect::Commit(connection, chains));
        if planted(PlantedBug::AcknowledgedBeforeCommit) {
            settle_batch(batch.clone(), Verdict::Held, effects);
        }
        self.stages[connection] = Stage::Committing { batch, retries };
    }

    /// All that waits by now, up to the caps, in key order.
    fn take_batch(&mut self, now: Duration) -> Vec<Queued> {
        let limits = self.limits;
        let (mut operations, mut bytes) = (0, 0);
        let mut batch: Vec<Queued> = Vec::new();
        let mut left = VecDeque::new();
        while let Some(mut queued) = self.waiting.pop_front() {
            if queued.not_before > now {
                left.push_back(queued);
                continue;
            }
            if planted(PlantedBug::ChainCut)
                && let Some(step) = &mut queued.chain.step
            {
                step.operations.truncate(limits.batch_operations_max.saturating_sub(operations).max(1));
            }
            operations += queued.chain.operation_count();
            bytes += queued.chain.bytes();
            let is_full = batch.len() >= limits.batch_chains_max
                || operations > limits.batch_operations_max
                || bytes > limits.batch_bytes_max;
            if is_full && !batch.is_empty() {
                left.push_back(queued);
                break;
            }
            self.waits.sent(&queued, now);
            batch.push(queued);
        }
        left.append(&mut self.waiting);
        self.waiting = left;
        batch.sort_by(|a, b| a.chain.case_id.cmp(&b.chain.case_id));
        batch
    }

    /// `pause` doubled `exponent - 1` times (at most 64 times the pause), and then half of it at random.
    fn jittered(&mut self, pause: Duration, exponent: u32) -> Duration {
        self.jitter = self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let full = pause * (1 << (exponent - 1).min(6));
        full / 2 + full.mul_f64((self.jitter >> 40) as f64 / (1_u64 << 24) as f64) / 2
    }
}

fn settle_all(case_ids: &[CaseId], verdict: Verdict, effects: &mut Vec<QueueEffect>) {
    effects.extend(case_ids.iter().map(|case_id| QueueEffect::Settle(case_id.clone(), verdict)));
}

fn settle_batch(batch: Vec<Queued>, verdict: Verdict, effects: &mut Vec<QueueEffect>) {
    effects.extend(batch.into_iter().map(|queued| QueueEffect::Settle(queued.chain.case_id, verdict)));
}

#[cfg(test)]
#[path = "commit_queue_tests.rs"]
mod tests;
