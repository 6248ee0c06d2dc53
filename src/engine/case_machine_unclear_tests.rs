//! What a case does while a commit is unclear, and behind its fence.

use super::*;

#[test]
fn while_unclear_a_case_decides_rejects_and_drops_nothing() {
    let mut bench = Bench::ready();
    bench.submit(9, note(9));
    bench.settle(Verdict::Held);
    bench.submit(1, approve(1, 5));
    bench.settle(Verdict::Unclear);
    bench.seen();
    bench.submit(2, note(2));
    bench.submit(3, note(9));
    bench.submit(4, command(9, "note", "81", json!({"reason": "another"})));
    assert_eq!(bench.seen(), ["3:replayed"], "only an outcome that can't change is answered");
    assert!(!bench.machine.is_idle());
    bench.settle(Verdict::Fenced);
    bench.event(CaseEvent::LookedUp(vec![]));
    assert_eq!(bench.seen(), ["look-up:1", "load"]);
    bench.event(CaseEvent::Loaded(in_review(5, 10), Some(vec![recorded(&note(9), "n")])));
    assert_eq!(bench.seen(), ["4:operation-conflict", "commit:2@10"], "not there, and never will be: decided again");
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "2:applied"]);
}

#[test]
fn an_unclear_commit_that_is_found_was_applied_and_its_repeat_is_a_replay() {
    let mut bench = Bench::ready();
    bench.submit(1, approve(1, 5));
    let Some(CaseEffect::Commit(chain, _)) = bench.effects.first() else { panic!("a chain") };
    let step = chain.step.clone().expect("a step");
    let written: Vec<KnownOperation> = step.operations.iter().map(KnownOperation::from).collect();
    bench.settle(Verdict::Unclear);
    bench.submit(2, approve(1, 5));
    bench.settle(Verdict::Fenced);
    bench.event(CaseEvent::LookedUp(written.clone()));
    bench.event(CaseEvent::Loaded(CaseState::Present(step.after), Some(written)));
    assert_eq!(bench.seen(), ["commit:1@9", "look-up:1", "1:applied", "load", "2:replayed"]);
}

#[test]
fn an_id_that_another_process_used_while_the_commit_was_unclear_is_not_taken_for_ours() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.settle(Verdict::Unclear);
    bench.settle(Verdict::Fenced);
    let theirs = recorded(&note(1), "the outcome that another process stored");
    bench.event(CaseEvent::LookedUp(vec![theirs.clone()]));
    bench.event(CaseEvent::Loaded(in_review(5, 10), Some(vec![theirs])));
    assert_eq!(bench.seen(), ["commit:1@9", "look-up:1", "load", "1:replayed"]);
}

#[test]
fn what_cannot_be_read_behind_the_fence_is_told_as_unclear() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.settle(Verdict::Unclear);
    bench.submit(2, note(2));
    bench.settle(Verdict::Fenced);
    bench.event(CaseEvent::LookUpFailed(Trouble::Unavailable));
    assert_eq!(bench.seen(), ["commit:1@9", "look-up:1", "1:unavailable", "2:unavailable"]);
    assert!(bench.machine.is_idle());
}

#[test]
fn callers_of_a_case_that_stays_unclear_are_told_to_retry() {
    let mut bench = Bench::ready();
    bench.submit(1, approve(1, 5));
    bench.settle(Verdict::Unclear);
    bench.submit(2, note(2));
    bench.settle(Verdict::StillUnclear);
    assert_eq!(bench.seen(), ["commit:1@9", "1:unavailable", "2:unavailable"]);
    bench.submit(3, note(3));
    bench.settle(Verdict::StillUnclear);
    assert_eq!(bench.seen(), ["3:unavailable"]);
    assert!(!bench.machine.is_idle(), "it must not leave memory");
    bench.settle(Verdict::Fenced);
    assert!(bench.machine.is_idle());
    bench.submit(4, note(4));
    assert_eq!(bench.seen(), ["load"], "memory is gone");
}
