//! Cases that others hold: each is waited for on a connection of its own, so that the batches go on.
//!
//! Owns when a chain gets such a connection and what its answer means. At most so many are waited for at once.

use std::time::Duration;

use super::{CommitQueue, QueueEffect, Queued};
use crate::domain::CaseId;
use crate::engine::batch::{BatchAnswer, ChainAnswer, CommitFault};
use crate::engine::case_events::Verdict;

impl CommitQueue {
    pub(super) fn patient_answered(
        &mut self,
        case_id: CaseId,
        answer: Result<BatchAnswer, CommitFault>,
        now: Duration,
        effects: &mut Vec<QueueEffect>,
    ) {
        let verdict = match answer {
            Ok(BatchAnswer::Settled(answers)) => match answers.first() {
                Some(ChainAnswer::Held) => Verdict::Held,
                Some(ChainAnswer::Missed { .. }) => Verdict::Missed,
                Some(ChainAnswer::Locked) | None => return self.patient_again(case_id, now, effects),
            },
            Err(CommitFault::Locked | CommitFault::Retry(_)) => return self.patient_again(case_id, now, effects),
            Ok(BatchAnswer::Fenced) | Err(CommitFault::Unclear) => {
                return effects.push(QueueEffect::Settle(case_id, Verdict::Unclear));
            }
            Err(CommitFault::Failed) => Verdict::Failed,
            Err(CommitFault::Duplicate) => Verdict::Missed,
            Err(CommitFault::BrokenInvariant) => Verdict::Broken,
            Err(CommitFault::Data) => Verdict::BadData,
        };
        if let Some(queued) = self.patient.remove(&case_id) {
            self.waits.unlocked(&queued, now);
        }
        effects.push(QueueEffect::Settle(case_id, verdict));
    }

    fn patient_again(&mut self, case_id: CaseId, now: Duration, effects: &mut Vec<QueueEffect>) {
        let Some(queued) = self.patient.remove(&case_id) else { return };
        if now >= queued.deadline {
            self.waits.unlocked(&queued, now);
            return effects.push(QueueEffect::Settle(case_id, Verdict::Contention));
        }
        // Back in line: it is likely free by now, and if not, it waits again.
        self.waiting.push_back(Queued { locked_tries: self.limits.locked_tries_max, not_before: now, ..queued });
    }

    /// Cases that stay locked get a connection that waits for them, as long as there is one.
    pub(super) fn hand_to_patience(&mut self, now: Duration, effects: &mut Vec<QueueEffect>) {
        let mut i = 0;
        while i < self.waiting.len() && self.patient.len() < self.limits.patient_max {
            if self.waiting[i].locked_tries < self.limits.locked_tries_max {
                i += 1;
                continue;
            }
            let queued = self.waiting.remove(i).expect("the index is in range");
            if now >= queued.deadline {
                self.waits.unlocked(&queued, now);
                effects.push(QueueEffect::Settle(queued.chain.case_id, Verdict::Contention));
                continue;
            }
            let wait = queued.deadline - now;
            effects.push(QueueEffect::CommitPatiently(queued.chain.clone(), wait));
            self.patient.insert(queued.chain.case_id.clone(), queued);
        }
    }
}
