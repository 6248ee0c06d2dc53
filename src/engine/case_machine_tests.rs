//! Hand-written sequences of events for one case. Tickets are numbers; case 62, reviewers 47 and 81.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::Verdict;
use super::*;
use crate::domain::{
    ActorId, Case, Command, CommandDraft, CommandName, Members, Revision, Status, Timestamp, Version, Workflow,
};

#[path = "case_machine_counts_tests.rs"]
mod counts;
#[path = "case_machine_found_tests.rs"]
mod found;
#[path = "case_machine_unclear_tests.rs"]
mod unclear;

struct Bench {
    machine: CaseMachine<u32>,
    cache: OperationCache,
    effects: Vec<CaseEffect<u32>>,
    seconds: u64,
}

fn case_id() -> CaseId {
    CaseId::parse("62").expect("valid")
}

fn in_review(revision: i64, version: i64) -> CaseState {
    CaseState::Present(Case {
        workflow: Workflow::permit(),
        status: Status::from_stored("in_review"),
        revision: Revision::new(revision),
        version: Version::new(version),
        assignees: [ActorId::from_stored("47")].into(),
        data: "{}".into(),
        opened_at: Timestamp::from_micros(0),
        updated_at: Timestamp::from_micros(0),
    })
}

fn command(id: u128, name: &str, actor: &str, body: Value) -> Command {
    let Value::Object(mut object) = body else { panic!("an object") };
    let members = Members::take(&mut object, &mut Vec::new());
    Command::new(CommandDraft {
        case_id: case_id(),
        operation_id: OperationId::from_uuid(uuid::Uuid::from_u128(id)),
        actor: ActorId::from_stored(actor),
        name: CommandName::from_stored(name),
        members,
    })
    .expect("valid")
}

fn approve(id: u128, revision: i64) -> Command {
    command(id, "approve", "47", json!({"expected_revision": revision, "reason": "x"}))
}

fn note(id: u128) -> Command {
    command(id, "note", "81", json!({"reason": format!("note {id}")}))
}

fn recorded(command: &Command, outcome: &str) -> KnownOperation {
    KnownOperation {
        operation_id: command.operation_id(),
        actor: command.actor().clone(),
        command: command.name().clone(),
        digest: command.digest().copied(),
        outcome: Some(outcome.into()),
    }
}

impl Bench {
    /// Case 62 in review at revision 5, version 9, with no operations in memory but all ids known.
    fn ready() -> Self {
        let mut cache = OperationCache::new(1 << 20, 100);
        let machine =
            CaseMachine::loaded(case_id(), CaseLimits::default(), &mut cache, in_review(5, 9), Some(vec![]), 0);
        Self { machine, cache, effects: Vec::new(), seconds: 0 }
    }

    fn unknown() -> Self {
        let machine = CaseMachine::new(case_id(), CaseLimits::default());
        Self { machine, cache: OperationCache::new(1 << 20, 100), effects: Vec::new(), seconds: 0 }
    }

    fn event(&mut self, event: CaseEvent<u32>) {
        let now = Now {
            monotonic: Duration::from_secs(self.seconds),
            wall: Timestamp::from_micros(1_000_000 + i64::try_from(self.effects.len()).expect("few")),
        };
        self.machine.step(event, now, &mut self.cache, &mut self.effects);
    }

    fn submit_on(&mut self, ticket: u32, command: Command, lane: Option<Lane>) {
        let (deadline, workflow) = (Duration::from_secs(self.seconds + 30), Some(Workflow::permit()));
        self.event(CaseEvent::Submitted(Envelope { command, workflow, recorded_at: None, deadline, lane, ticket }));
    }

    fn submit(&mut self, ticket: u32, command: Command) {
        self.submit_on(ticket, command, None);
    }

    fn settle(&mut self, verdict: Verdict) {
        self.event(CaseEvent::Settled(verdict));
    }

    /// What was asked of the driver since the last call, a word each.
    fn seen(&mut self) -> Vec<String> {
        self.effects
            .drain(..)
            .map(|effect| match effect {
                CaseEffect::Reply(ticket, answer) => {
                    let word = match answer {
                        Answer::Applied(_) => "applied",
                        Answer::Replayed(_) => "replayed",
                        Answer::Rejected(rejection) => rejection.code(),
                        Answer::Unsettled(trouble) => trouble.code(),
                    };
                    format!("{ticket}:{word}")
                }
                CaseEffect::Load => "load".into(),
                CaseEffect::LookUp(ids) => format!("look-up:{}", ids.len()),
                CaseEffect::Commit(chain, _) => {
                    format!("commit:{}@{}", chain.operation_count(), chain.expected)
                }
            })
            .collect()
    }
}

#[test]
fn nothing_is_answered_before_its_commit_and_one_chain_is_in_flight() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    assert_eq!(bench.seen(), ["commit:1@9"]);
    bench.submit(2, note(2));
    bench.submit(3, approve(3, 5));
    bench.submit(4, approve(4, 5));
    assert_eq!(bench.seen(), [""; 0]);
    assert!(!bench.machine.is_idle() && bench.machine.is_pending(note(2).operation_id()));
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "commit:2@10"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["2:applied", "3:applied", "4:illegal-transition"]);
    assert!(bench.machine.is_idle());
}

#[test]
fn a_rejection_is_answered_only_on_a_version_that_holds() {
    let mut bench = Bench::ready();
    bench.submit(1, approve(1, 4));
    assert_eq!(bench.seen(), ["commit:0@9"]);
    bench.settle(Verdict::Missed);
    assert_eq!(bench.seen(), ["load"]);
    bench.event(CaseEvent::Loaded(in_review(4, 8), Some(vec![])));
    assert_eq!(bench.seen(), ["commit:1@8"], "decided again on what was read");
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied"]);
}

#[test]
fn a_rejection_decided_on_a_prefix_that_fails_to_commit_is_not_given() {
    let mut bench = Bench::ready();
    bench.submit(1, note(9));
    bench.submit(2, approve(2, 5));
    bench.submit(3, approve(3, 5));
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "commit:1@10"]);
    bench.settle(Verdict::Failed);
    assert_eq!(bench.seen(), ["2:unavailable", "3:unavailable"], "3 is not told `already approved`");
}

#[test]
fn a_duplicate_in_flight_waits_for_the_same_commit() {
    let mut bench = Bench::ready();
    bench.submit(1, approve(7, 5));
    bench.submit(2, approve(7, 5));
    bench.submit(3, command(7, "approve", "47", json!({"expected_revision": 5, "reason": "another"})));
    assert_eq!(bench.seen(), ["commit:1@9"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "2:replayed", "3:operation-conflict"]);
}

#[test]
fn a_duplicate_in_one_chain_is_looked_up_when_the_chain_is_settled() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.submit(2, note(2));
    bench.submit(3, note(2));
    bench.submit(4, note(4));
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "commit:2@10"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["2:applied", "4:applied", "3:replayed"]);
}

#[test]
fn an_id_that_was_only_rejected_is_decided_afresh_in_order() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.submit(2, approve(2, 4));
    bench.submit(3, approve(2, 5));
    bench.settle(Verdict::Held);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "1:applied", "commit:1@10", "2:stale-revision", "3:applied"]);
}

#[test]
fn after_a_miss_ids_are_looked_up_first() {
    let mut bench = Bench::ready();
    bench.submit(1, approve(1, 5));
    bench.settle(Verdict::Missed);
    let winner = recorded(&approve(1, 5), "the winner's outcome");
    bench.event(CaseEvent::Loaded(in_review(6, 10), Some(vec![winner])));
    assert_eq!(bench.seen(), ["commit:1@9", "load", "1:replayed"]);
}

#[test]
fn a_command_that_misses_ten_times_is_answered_contention() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    for round in 0..10 {
        bench.settle(Verdict::Missed);
        bench.event(CaseEvent::Loaded(in_review(5, 10 + round), Some(vec![])));
        bench.seen();
    }
    bench.settle(Verdict::Missed);
    assert_eq!(bench.seen(), ["1:contention"]);
}

#[test]
fn a_failure_drops_all_memory() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.submit(2, note(2));
    bench.settle(Verdict::Failed);
    assert_eq!(bench.seen(), ["commit:1@9", "1:unavailable", "load"]);
    bench.event(CaseEvent::LoadFailed(Trouble::Unavailable));
    assert_eq!(bench.seen(), ["2:unavailable"]);
    assert!(bench.machine.is_idle() && !bench.machine.holds_case());
}

#[test]
fn a_deadline_drops_a_command_before_it_is_decided_and_never_after() {
    let mut bench = Bench::ready();
    bench.submit(1, note(1));
    bench.submit(2, note(2));
    bench.seconds = 31;
    bench.settle(Verdict::Missed);
    bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![])));
    assert_eq!(bench.seen(), ["commit:1@9", "load", "2:overloaded", "commit:1@9"]);
}

#[test]
fn what_does_not_fit_is_overloaded_and_the_quota_bounds_a_chain_when_it_is_decided() {
    let mut bench = Bench::ready();
    bench.machine.limits = CaseLimits { waiting_max: 3, chain_operations_max: 2, ..CaseLimits::default() };
    for n in 1..=5 {
        bench.submit(n, note(n.into()));
    }
    assert_eq!(bench.seen(), ["commit:1@9", "5:overloaded"]);
    bench.settle(Verdict::Held);
    bench.settle(Verdict::Held);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "commit:2@10", "2:applied", "3:applied", "commit:1@12", "4:applied"]);
}

#[test]
fn one_bad_value_in_a_chain_is_found_and_the_others_commit() {
    let mut bench = Bench::ready();
    bench.submit(9, note(9));
    for n in 1..=3 {
        bench.submit(n, note(n.into()));
    }
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["commit:1@9", "9:applied", "commit:3@10"]);
    bench.settle(Verdict::BadData);
    bench.settle(Verdict::Held);
    bench.settle(Verdict::BadData);
    bench.settle(Verdict::Held);
    assert_eq!(
        bench.seen(),
        ["commit:1@10", "1:applied", "commit:1@11", "2:invalid-command", "commit:1@11", "3:applied"]
    );
}

#[test]
fn no_such_case_is_answered_from_a_read_that_began_later_or_from_a_check_of_version_0() {
    let mut bench = Bench::unknown();
    bench.submit(1, note(1));
    assert_eq!(bench.seen(), ["load"]);
    bench.submit(2, note(2));
    bench.event(CaseEvent::Loaded(CaseState::Absent, Some(vec![])));
    assert_eq!(bench.seen(), ["1:case-not-found", "commit:0@0"]);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["2:case-not-found"]);
    assert!(bench.machine.is_idle() && !bench.machine.holds_case());
}

#[test]
fn commands_behind_an_open_wait_for_it_and_share_its_chain() {
    let mut cache = OperationCache::new(1 << 20, 100);
    let machine = CaseMachine::assume_absent(case_id(), CaseLimits::default(), &mut cache);
    let mut bench = Bench { machine, cache, effects: Vec::new(), seconds: 0 };
    bench.submit(1, command(1, "open", "81", json!({})));
    bench.submit(2, command(2, "assign", "81", json!({"payload": {"assignee": "47"}})));
    bench.submit(3, approve(3, 0));
    assert_eq!(bench.seen(), ["commit:1@0"]);
    bench.settle(Verdict::Held);
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "commit:2@1", "2:applied", "3:applied"]);
}

#[test]
fn ids_that_memory_can_not_tell_are_asked_for_before_deciding() {
    let mut bench = Bench::unknown();
    bench.submit(1, note(1));
    bench.event(CaseEvent::Loaded(in_review(5, 9), None));
    assert_eq!(bench.seen(), ["load", "look-up:1"]);
    bench.submit(2, note(2));
    bench.submit(3, note(3));
    bench.event(CaseEvent::LookedUp(vec![]));
    assert_eq!(bench.seen(), ["commit:1@9"], "what came meanwhile does not hold up what was looked up");
    bench.settle(Verdict::Held);
    assert_eq!(bench.seen(), ["1:applied", "look-up:2"]);
    bench.event(CaseEvent::LookedUp(vec![recorded(&note(2), "stored")]));
    assert_eq!(bench.seen(), ["2:replayed", "commit:1@10"]);
}

#[test]
fn later_lines_of_a_lane_are_not_run_after_one_without_a_final_answer() {
    let mut bench = Bench::ready();
    let lane = Lane::new();
    bench.submit_on(1, note(1), Some(lane.clone()));
    bench.submit_on(2, note(2), Some(lane.clone()));
    bench.submit(3, note(3));
    bench.settle(Verdict::Failed);
    assert_eq!(bench.seen(), ["commit:1@9", "1:unavailable", "load"]);
    bench.event(CaseEvent::Loaded(in_review(5, 9), Some(vec![])));
    bench.submit_on(4, note(4), Some(lane));
    assert_eq!(bench.seen(), ["2:unavailable", "commit:1@9", "4:unavailable"]);
}
