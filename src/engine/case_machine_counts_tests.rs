//! Where repeats are said to have found their outcome.

use super::*;
use crate::engine::ReplayCounts;

impl Bench {
    /// Replays from memory, from the database and in flight since the last look.
    fn replays(&mut self) -> [u64; 3] {
        let ReplayCounts { memory, database, in_flight } = self.cache.take_replays();
        [memory, database, in_flight]
    }
}

#[test]
fn a_repeat_is_found_in_memory_or_waits_for_the_chain_in_flight() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.submit(2, note(1));
    assert_eq!(bench.replays(), [0, 0, 0], "nothing is answered yet");
    bench.settle(Verdict::Held);
    assert_eq!(bench.replays(), [0, 0, 1]);
    bench.submit(3, note(1));
    assert_eq!(bench.replays(), [1, 0, 0]);
    let other = command(1, "note", "81", json!({"reason": "something else"}));
    bench.submit(4, other);
    assert_eq!(bench.replays(), [0, 0, 0], "a conflict is no replay");
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "2:replayed", "3:replayed", "4:operation-conflict"]);
}

#[test]
fn a_repeat_that_waited_for_a_read_is_from_the_database() {
    let mut bench = Bench::unknown();
    bench.submit(1, note(1));
    bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![recorded(&note(1), "stored")])));
    assert_eq!(bench.replays(), [0, 1, 0]);
    bench.submit(2, note(1));
    assert_eq!(bench.replays(), [1, 0, 0]);

    let mut bench = Bench::unknown();
    bench.submit(1, note(1));
    bench.event(CaseEvent::Loaded(in_review(5, 9), None));
    bench.event(CaseEvent::LookedUp(vec![recorded(&note(1), "stored")]));
    assert_eq!(bench.replays(), [0, 1, 0], "by its id");
}

#[test]
fn a_repeat_of_what_another_process_committed_is_from_the_database() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.settle(Verdict::Missed);
    bench.event(CaseEvent::Loaded(in_review(5, 10), Some(vec![recorded(&note(1), "stored")])));
    assert_eq!(bench.seen(), ["commit:1@9", "load", "1:replayed"]);
    assert_eq!(bench.replays(), [0, 1, 0]);
}

#[test]
fn only_those_for_whom_a_case_was_read_are_from_the_database() {
    let mut cache = OperationCache::new(1 << 20, 100);
    let known = Some(vec![recorded(&note(1), "stored")]);
    let machine = CaseMachine::loaded(case_id(), CaseLimits::default(), &mut cache, in_review(5, 9), known, 1);
    let mut bench = Bench { machine, cache, effects: Vec::new(), seconds: 0 };
    bench.submit(1, note(1));
    assert_eq!(bench.replays(), [0, 1, 0]);
    bench.submit(2, note(1));
    assert_eq!(bench.replays(), [1, 0, 0]);
}

#[test]
fn a_known_line_that_waits_for_those_before_it_is_from_memory() {
    let mut bench = Bench::ready();
    let lane = Lane::new();
    bench.submit(1, note(1));
    bench.settle(Verdict::Held);
    bench.submit_on(2, note(2), Some(lane.clone()));
    bench.submit_on(3, note(1), Some(lane));
    assert_eq!(bench.replays(), [0, 0, 0]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "commit:1@10", "2:applied", "3:replayed"]);
    assert_eq!(bench.replays(), [1, 0, 0]);
}
