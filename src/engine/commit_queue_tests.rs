//! Hand-written sequences of events for committing connections.

use super::*;
use crate::domain::Version;
use crate::engine::RetryCause;

struct Bench {
    queue: CommitQueue,
    effects: Vec<QueueEffect>,
    millis: u64,
}

fn case_id(n: usize) -> CaseId {
    CaseId::parse(&format!("{n:03}")).expect("valid")
}

/// A check of version 1 stands for any chain: the queue does not look inside.
fn chain(n: usize) -> Chain {
    Chain { case_id: case_id(n), expected: Version::new(1), step: None }
}

impl Bench {
    fn new() -> Self {
        Self::with_connections(1)
    }

    fn with_connections(connections: usize) -> Self {
        let limits = QueueLimits { connections, ..QueueLimits::default() };
        Self { queue: CommitQueue::new(limits, 7), effects: Vec::new(), millis: 0 }
    }

    fn event(&mut self, event: QueueEvent) {
        self.queue.step(event, Duration::from_millis(self.millis), &mut self.effects);
    }

    fn enqueue(&mut self, n: usize) {
        self.event(QueueEvent::Enqueued(vec![(chain(n), Duration::from_secs(30))]));
    }

    fn settled(&mut self, answers: &[ChainAnswer]) {
        self.event(QueueEvent::Answered(0, Ok(BatchAnswer::Settled(answers.to_vec()))));
    }

    /// A case that is locked so often that it gets a connection which waits.
    fn lock_out(&mut self, n: usize) {
        self.enqueue(n);
        for _ in 0..self.queue.limits.locked_tries_max {
            self.settled(&[Locked]);
            self.millis += 1_000;
            self.event(QueueEvent::Woken);
        }
    }

    fn fault(&mut self, fault: CommitFault) {
        self.event(QueueEvent::Answered(0, Err(fault)));
    }

    fn seen(&mut self) -> Vec<String> {
        self.effects
            .drain(..)
            .map(|effect| match effect {
                QueueEffect::Commit(connection, batch) => {
                    let ids: Vec<&str> = batch.iter().map(|chain| chain.case_id.as_str()).collect();
                    let on = if connection == 0 { String::new() } else { format!(" on {connection}") };
                    format!("commit{on} {}", ids.join(","))
                }
                QueueEffect::CommitPatiently(chain, _) => format!("wait for {}", chain.case_id),
                QueueEffect::Fence(0) => "fence".into(),
                QueueEffect::Fence(connection) => format!("fence {connection}"),
                QueueEffect::Settle(case_id, verdict) => format!("{case_id} {verdict:?}"),
                QueueEffect::WakeAt(_) => "wake".into(),
            })
            .collect()
    }
}

use ChainAnswer::{Held, Locked};

const MISSED: ChainAnswer = ChainAnswer::Missed { seen: Version::ZERO };

#[test]
fn light_load_commits_at_once_and_what_waits_meanwhile_goes_together_in_key_order() {
    let mut bench = Bench::new();
    bench.enqueue(5);
    assert_eq!(bench.seen(), ["commit 005"]);
    for n in [3, 1, 2] {
        bench.enqueue(n);
    }
    assert_eq!(bench.seen(), [""; 0]);
    bench.settled(&[Held]);
    assert_eq!(bench.seen(), ["005 Held", "commit 001,002,003"]);
    bench.settled(&[Held, MISSED, Held]);
    assert_eq!(bench.seen(), ["001 Held", "002 Missed", "003 Held"]);
    assert!(bench.queue.is_idle());
}

#[test]
fn a_batch_has_a_cap_and_the_rest_follows() {
    let mut bench = Bench::new();
    bench.queue.limits.batch_chains_max = 2;
    for n in 0..4 {
        bench.enqueue(n);
    }
    bench.settled(&[Held]);
    bench.settled(&[Held, Held]);
    assert_eq!(bench.seen(), ["commit 000", "000 Held", "commit 001,002", "001 Held", "002 Held", "commit 003"]);
}

#[test]
fn a_locked_case_waits_apart_and_holds_up_nobody() {
    let mut bench = Bench::new();
    bench.lock_out(1);
    let seen = bench.seen();
    assert_eq!(seen.iter().filter(|word| *word == "commit 001").count(), 3);
    assert_eq!(seen.last().map(String::as_str), Some("wait for 001"));
    bench.enqueue(2);
    assert_eq!(bench.seen(), ["commit 002"]);
    bench.event(QueueEvent::PatientAnswered(case_id(1), Ok(BatchAnswer::Settled(vec![Held]))));
    assert_eq!(bench.seen(), ["001 Held"]);
    bench.settled(&[Held]);
    assert!(bench.queue.is_idle());
}

#[test]
fn a_case_that_stays_locked_until_its_deadline_is_contention() {
    let mut bench = Bench::new();
    bench.lock_out(1);
    bench.event(QueueEvent::PatientAnswered(case_id(1), Err(CommitFault::Locked)));
    assert_eq!(bench.seen().last().map(String::as_str), Some("wait for 001"), "the deadline is not there yet");
    bench.millis = 31_000;
    bench.event(QueueEvent::PatientAnswered(case_id(1), Err(CommitFault::Locked)));
    assert_eq!(bench.seen(), ["001 Contention"]);
    assert!(bench.queue.is_idle());
}

#[test]
fn of_64_chains_one_is_bad_and_63_commit() {
    for (fault, verdict) in [
        (CommitFault::Data, "037 BadData"),
        (CommitFault::Duplicate, "037 Missed"),
        (CommitFault::BrokenInvariant, "037 Broken"),
    ] {
        let mut bench = Bench::new();
        bench.enqueue(99);
        for n in 0..64 {
            bench.enqueue(n);
        }
        bench.settled(&[Held]);
        let mut settled = Vec::new();
        while let Some(at) = bench.effects.iter().position(|effect| matches!(effect, QueueEffect::Commit(..))) {
            let QueueEffect::Commit(_, batch) = bench.effects.remove(at) else { panic!("it is a commit") };
            if batch.iter().any(|chain| chain.case_id == case_id(37)) {
                bench.fault(fault);
            } else if batch[0].case_id != case_id(99) {
                bench.settled(&vec![Held; batch.len()]);
            }
        }
        settled.extend(bench.seen());
        assert_eq!(settled.iter().filter(|word| word.ends_with("Held")).count(), 64, "63 and the first");
        assert!(settled.contains(&verdict.to_owned()), "{settled:?}");
        assert!(bench.queue.is_idle());
    }
}

#[test]
fn a_deadlock_runs_the_whole_batch_again_a_bounded_number_of_times() {
    let mut bench = Bench::new();
    bench.enqueue(9);
    bench.enqueue(1);
    bench.enqueue(2);
    bench.settled(&[Held]);
    bench.seen();
    for _ in 0..bench.queue.limits.retries_max {
        bench.fault(CommitFault::Retry(RetryCause::Serialization));
        assert_eq!(bench.seen(), ["wake"]);
        bench.millis += 1_000;
        bench.event(QueueEvent::Woken);
        assert_eq!(bench.seen(), ["commit 001,002"]);
    }
    bench.fault(CommitFault::Retry(RetryCause::Serialization));
    assert_eq!(bench.seen(), ["001 Contention", "002 Contention"]);
}

#[test]
fn a_deadlock_is_not_retried_past_the_deadline() {
    let mut bench = Bench::new();
    bench.enqueue(9);
    bench.enqueue(1);
    bench.millis = 5_000;
    bench.enqueue(2);
    bench.queue.waiting[1].deadline = Duration::from_secs(60);
    bench.settled(&[Held]);
    bench.seen();
    bench.millis = 31_000;
    bench.fault(CommitFault::Retry(RetryCause::Serialization));
    assert_eq!(bench.seen(), ["001 Contention", "wake"]);
    bench.millis = 32_000;
    bench.event(QueueEvent::Woken);
    assert_eq!(bench.seen(), ["commit 002"]);
}

#[test]
fn an_unclear_commit_is_fenced_before_anything_is_concluded() {
    for answer in [Err(CommitFault::Unclear), Ok(BatchAnswer::Fenced)] {
        let mut bench = Bench::new();
        bench.enqueue(1);
        bench.event(QueueEvent::Answered(0, answer));
        bench.enqueue(2);
        assert_eq!(bench.seen(), ["commit 001", "001 Unclear", "fence"]);
        bench.event(QueueEvent::FenceHeld(0));
        assert_eq!(bench.seen(), ["001 Fenced", "commit 002"]);
    }
}

#[test]
fn while_the_fence_can_not_be_raised_new_chains_fail_clearly() {
    let mut bench = Bench::new();
    bench.enqueue(1);
    bench.fault(CommitFault::Unclear);
    bench.enqueue(2);
    bench.seen();
    bench.event(QueueEvent::FenceFailed(0));
    assert_eq!(bench.seen(), ["001 StillUnclear", "002 Failed", "wake"]);
    bench.enqueue(3);
    assert_eq!(bench.seen(), ["003 Failed"]);
    bench.millis += 10_000;
    bench.event(QueueEvent::Woken);
    assert_eq!(bench.seen(), ["fence"]);
    bench.event(QueueEvent::FenceFailed(0));
    assert_eq!(bench.seen(), ["wake"], "told once");
    bench.millis += 10_000;
    bench.event(QueueEvent::Woken);
    bench.event(QueueEvent::FenceHeld(0));
    assert_eq!(bench.seen(), ["fence", "001 Fenced"]);
}

#[test]
fn a_patient_connection_that_becomes_unclear_is_fenced_too() {
    let mut bench = Bench::new();
    bench.lock_out(1);
    bench.seen();
    bench.event(QueueEvent::PatientAnswered(case_id(1), Err(CommitFault::Unclear)));
    bench.event(QueueEvent::PatientFenceFailed(case_id(1)));
    assert!(!bench.queue.is_idle());
    bench.event(QueueEvent::PatientFenceHeld(case_id(1)));
    assert_eq!(bench.seen(), ["001 Unclear", "001 StillUnclear", "001 Fenced"]);
    assert!(bench.queue.is_idle());
}

#[test]
fn a_pause_outlives_a_wake_up_that_was_meant_for_something_else() {
    let mut bench = Bench::new();
    bench.enqueue(1);
    bench.settled(&[Locked]);
    bench.enqueue(2);
    assert_eq!(bench.seen(), ["commit 001", "wake", "commit 002"]);
    bench.fault(CommitFault::Retry(RetryCause::Serialization));
    assert_eq!(bench.seen(), ["wake"]);
    // The driver was asked twice and wakes once, for the locked chain: too early for the pause.
    bench.event(QueueEvent::Woken);
    assert_eq!(bench.seen(), ["wake"]);
    bench.millis += 1_000;
    bench.event(QueueEvent::Woken);
    assert_eq!(bench.seen(), ["commit 002"]);
}

#[test]
fn a_second_batch_goes_out_beside_the_first_when_it_is_worth_it() {
    let mut bench = Bench::with_connections(2);
    bench.enqueue(1);
    assert_eq!(bench.seen(), ["commit 001"]);
    bench.enqueue(2);
    assert_eq!(bench.seen(), ["commit on 1 002"], "as many as are in flight");
    for n in 3..6 {
        bench.enqueue(n);
    }
    bench.settled(&[Held]);
    assert_eq!(bench.seen(), ["001 Held", "commit 003,004,005"]);
    bench.event(QueueEvent::Answered(1, Ok(BatchAnswer::Settled(vec![Held]))));
    bench.enqueue(6);
    bench.enqueue(7);
    assert_eq!(bench.seen(), ["002 Held"], "two wait while three are in flight");
    bench.enqueue(8);
    assert_eq!(bench.seen(), ["commit on 1 006,007,008"]);
}

#[test]
fn past_a_bound_a_second_batch_waits_for_no_more() {
    let mut bench = Bench::with_connections(2);
    bench.queue.limits.overlap_operations_max = 2;
    bench.queue.limits.batch_chains_max = 4;
    bench.enqueue(0);
    bench.enqueue(1);
    for n in 2..6 {
        bench.enqueue(n);
    }
    bench.settled(&[Held]);
    bench.event(QueueEvent::Answered(1, Ok(BatchAnswer::Settled(vec![Held]))));
    bench.seen();
    bench.enqueue(6);
    assert_eq!(bench.seen(), [""; 0]);
    bench.enqueue(7);
    assert_eq!(bench.seen(), ["commit on 1 006,007"]);
}

#[test]
fn each_connection_has_a_fence_of_its_own() {
    let mut bench = Bench::with_connections(2);
    bench.enqueue(1);
    bench.enqueue(2);
    bench.event(QueueEvent::Answered(0, Err(CommitFault::Unclear)));
    bench.event(QueueEvent::Answered(1, Err(CommitFault::Unclear)));
    assert_eq!(bench.seen(), ["commit 001", "commit on 1 002", "001 Unclear", "fence", "002 Unclear", "fence 1"]);
    bench.event(QueueEvent::FenceFailed(1));
    bench.enqueue(3);
    assert_eq!(bench.seen(), ["002 StillUnclear", "wake"], "the other connection may be back soon");
    bench.event(QueueEvent::FenceHeld(0));
    assert_eq!(bench.seen(), ["001 Fenced", "commit 003"]);
    bench.event(QueueEvent::Answered(0, Err(CommitFault::Unclear)));
    bench.enqueue(4);
    bench.event(QueueEvent::FenceFailed(0));
    assert_eq!(bench.seen(), ["003 Unclear", "fence", "003 StillUnclear", "004 Failed", "wake"], "both are away");
    bench.enqueue(5);
    assert_eq!(bench.seen(), ["005 Failed"]);
    bench.millis += 10_000;
    bench.event(QueueEvent::Woken);
    bench.event(QueueEvent::FenceHeld(1));
    bench.event(QueueEvent::FenceHeld(0));
    assert_eq!(bench.seen(), ["fence", "fence 1", "002 Fenced", "003 Fenced"]);
    assert!(bench.queue.is_idle());
}

#[test]
fn a_wait_is_told_once_by_the_step_that_ends_it() {
    let mut bench = Bench::new();
    bench.enqueue(1);
    assert_eq!(bench.queue.waits().sent, [Duration::ZERO], "the connection was free");
    bench.enqueue(2);
    assert_eq!(bench.queue.waits().sent, [Duration::ZERO; 0], "it waits");
    bench.millis = 20;
    bench.settled(&[Locked]);
    assert_eq!(bench.queue.waits().sent, [Duration::from_millis(20)]);
    bench.millis = 100;
    bench.settled(&[Held]);
    assert_eq!(bench.queue.waits().sent, [Duration::ZERO; 0], "case 1 was sent before");
    assert_eq!(bench.queue.waits().locked, [Duration::ZERO; 0], "and is still held, as far as anybody knows");
    bench.millis = 130;
    bench.settled(&[Held]);
    assert_eq!(bench.queue.waits().locked, [Duration::from_millis(110)]);
}

#[test]
fn a_lock_that_outlasts_the_deadline_is_told_as_well() {
    let mut bench = Bench::new();
    bench.lock_out(1);
    let locked_at = Duration::ZERO;
    bench.millis = 31_000;
    bench.event(QueueEvent::PatientAnswered(case_id(1), Err(CommitFault::Locked)));
    assert_eq!(bench.seen().last().map(String::as_str), Some("001 Contention"));
    assert_eq!(bench.queue.waits().locked, [Duration::from_millis(31_000) - locked_at]);
}

#[test]
fn chains_that_are_handed_over_together_go_out_together() {
    let mut bench = Bench::new();
    let chains = (1..=3).map(|n| (chain(n), Duration::from_secs(30))).collect();
    bench.event(QueueEvent::Enqueued(chains));
    assert_eq!(bench.seen(), ["commit 001,002,003"]);
}

#[test]
fn what_waits_when_one_connection_is_away_goes_out_on_the_other() {
    let mut bench = Bench::with_connections(2);
    bench.enqueue(1);
    bench.event(QueueEvent::Answered(0, Err(CommitFault::Unclear)));
    bench.enqueue(2);
    bench.event(QueueEvent::Enqueued(vec![(chain(3), Duration::from_secs(30))]));
    bench.seen();
    bench.event(QueueEvent::Answered(1, Ok(BatchAnswer::Settled(vec![Locked]))));
    bench.event(QueueEvent::FenceFailed(0));
    assert_eq!(bench.seen(), ["commit on 1 003", "001 StillUnclear", "wake"], "case 2 is still in line");
    bench.millis += 10_000;
    bench.event(QueueEvent::Answered(1, Ok(BatchAnswer::Settled(vec![Held]))));
    assert_eq!(bench.seen()[..2], ["003 Held", "fence"]);
}
