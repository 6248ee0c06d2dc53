//! Sequences of events that the simulator and the fault rig found, kept by hand.

use super::*;

#[test]
fn a_line_behind_one_without_a_final_answer_is_told_so_also_when_it_is_recorded() {
    let (mut bench, lane) = (Bench::ready(), Lane::new());
    bench.submit(1, note(1));
    bench.submit_on(2, note(1), Some(lane.clone()));
    lane.note(&Answer::Unsettled(Trouble::Overloaded));
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "2:unavailable"]);
}

#[test]
fn what_waits_behind_answered_commands_is_looked_up_at_once() {
    let mut bench = Bench::unknown();
    bench.submit(1, note(1));
    bench.event(CaseEvent::Loaded(in_review(5, 9), None));
    bench.event(CaseEvent::LookedUp(vec![]));
    bench.submit(2, note(1));
    bench.submit(3, note(3));
    assert_eq!(bench.seen(), ["load", "look-up:1", "commit:1@9"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "2:replayed", "look-up:1"], "nothing else would wake the case");
}

/// Found on a full disk under SQLite: each commit was unclear, was fenced, was not there, and was sent again, for ever.
#[test]
fn a_commit_that_is_unclear_each_time_is_answered_at_last() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    let attempts_max = CaseLimits::default().attempts_max;
    for _ in 0..attempts_max {
        bench.settle(Verdict::Unclear);
        bench.settle(Verdict::Fenced);
        bench.event(CaseEvent::LookedUp(vec![]));
        bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![])));
        assert_eq!(bench.seen().last().map(String::as_str), Some("commit:1@9"));
    }
    bench.settle(Verdict::Unclear);
    bench.settle(Verdict::Fenced);
    bench.event(CaseEvent::LookedUp(vec![]));
    assert_eq!(bench.seen(), ["look-up:1", "1:unavailable"]);
    assert!(bench.machine.is_idle());
}

/// Found by seed 4541 of 200,000: more repeats waited than details were kept, and each look-up forgot the first of them.
#[test]
fn more_repeats_than_memory_keeps_are_all_answered() {
    let mut bench = Bench { cache: OperationCache::new(1 << 20, 2), ..Bench::unknown() };
    for id in 1..=3 {
        bench.submit(id, note(id.into()));
    }
    bench.event(CaseEvent::Loaded(in_review(5, 9), None));
    assert_eq!(bench.seen(), ["load", "look-up:2"]);
    bench.event(CaseEvent::LookedUp(vec![recorded(&note(2), "stored"), recorded(&note(1), "stored")]));
    assert_eq!(bench.seen(), ["1:replayed", "2:replayed", "look-up:1"]);
    bench.event(CaseEvent::LookedUp(vec![recorded(&note(3), "stored")]));
    assert_eq!(bench.seen(), ["3:replayed"]);
    assert!(bench.machine.is_idle());
}

/// Found by seed 12545: a repeat kept "not recorded" from before its own chain. Look-ups ask no more than memory keeps since.
#[test]
fn a_repeat_behind_its_own_command_is_replayed_however_little_memory_keeps() {
    let mut bench = Bench { cache: OperationCache::new(1 << 20, 1), ..Bench::unknown() };
    bench.submit(1, approve(1, 5));
    bench.submit(2, note(2));
    bench.submit(3, approve(1, 5));
    bench.event(CaseEvent::Loaded(in_review(5, 9), None));
    bench.event(CaseEvent::LookedUp(vec![]));
    assert_eq!(bench.seen(), ["load", "look-up:1", "commit:1@9"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "look-up:1"]);
    bench.event(CaseEvent::LookedUp(vec![]));
    assert_eq!(bench.seen(), ["3:replayed", "commit:1@10"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["2:applied"]);
}

/// Found by seed 15023: the chain had landed; its rejected line was decided again, behind the later one, and applied.
#[test]
fn what_an_unclear_chain_rejected_stays_rejected_when_it_has_landed() {
    let mut bench = Bench::ready();
    let approval = command(1, "approve", "81", json!({"expected_revision": 5, "reason": "x"}));
    bench.submit(9, note(9));
    bench.submit(1, approval);
    bench.submit(2, command(2, "assign", "47", json!({"payload": {"assignee": "81"}})));
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "9:applied", "commit:1@10"]);
    let Stage::Committing(flight) = &bench.machine.stage else { panic!("a chain in flight") };
    let written: Vec<KnownOperation> = flight.operations().cloned().collect();
    bench.settle(Verdict::Unclear);
    bench.settle(Verdict::Fenced);
    bench.event(CaseEvent::LookedUp(written));
    assert_eq!(bench.seen(), ["look-up:1", "1:not-assigned", "2:applied"]);
    assert!(bench.machine.is_idle());
}

/// Found by an attack by hand: a repeat was answered at once, and the line before it had no final answer then.
#[test]
fn a_line_that_is_a_repeat_is_answered_behind_the_lines_before_it() {
    for (verdict, answers) in
        [(Verdict::Held, ["1:applied", "2:replayed"]), (Verdict::Failed, ["1:unavailable", "2:unavailable"])]
    {
        let (mut bench, lane) = (Bench::unknown(), Lane::new());
        bench.submit_on(1, note(1), Some(lane.clone()));
        bench.submit_on(2, note(9), Some(lane.clone()));
        bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![recorded(&note(9), "stored")])));
        assert_eq!(bench.seen(), ["load", "commit:1@9"], "both are part of the chain");
        bench.settle(verdict);
        assert_eq!(bench.seen(), answers);
    }
    let (mut bench, lane) = (Bench::ready(), Lane::new());
    bench.submit(1, note(9));
    bench.settle(Verdict::Held);
    bench.submit_on(2, note(2), Some(lane.clone()));
    bench.submit_on(3, note(9), Some(lane));
    bench.submit(4, note(9));
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "commit:1@10", "4:replayed"], "4 is no line of a stream");
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["2:applied", "3:replayed"]);
}

#[test]
fn lines_behind_a_repeat_of_a_command_in_flight_wait_with_it() {
    let (mut bench, lane) = (Bench::unknown(), Lane::new());
    bench.submit_on(1, note(1), Some(lane.clone()));
    bench.submit_on(2, note(1), Some(lane.clone()));
    bench.submit_on(3, note(3), Some(lane));
    bench.submit(4, note(4));
    bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![])));
    assert_eq!(bench.seen(), ["load", "commit:2@9"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "4:applied", "2:replayed", "commit:1@11"]);
}

#[test]
fn a_line_whose_case_was_held_past_its_deadline_is_told_so_and_not_that_a_queue_is_full() {
    let (mut bench, lane) = (Bench::ready(), Lane::new());
    bench.submit(1, note(1));
    bench.submit_on(2, note(2), Some(lane.clone()));
    bench.submit_on(3, note(3), Some(lane));
    bench.submit(4, note(4));
    bench.seconds = 31;
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "2:contention", "3:unavailable", "4:overloaded"]);
}
