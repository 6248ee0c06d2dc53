//! Hand-written sequences of events for one shard. Tickets are numbers.

use serde_json::{Value, json};

use super::*;
use crate::domain::{ActorId, CommandDraft, CommandName, Members, OperationId, Timestamp, Workflow};
use crate::engine::{CaseAction, Now, OperationCache};

struct Bench {
    table: CaseTable<u32>,
    delivered: Vec<(Rc<CaseCell<u32>>, CaseEvent<u32>)>,
    seen: Vec<String>,
    seconds: u64,
}

fn case_id(n: u32) -> CaseId {
    CaseId::parse(&n.to_string()).expect("valid")
}

impl Bench {
    fn new(cases_max: usize) -> Self {
        let limits = TableLimits { cases_max, idle_after: Duration::from_secs(10), case: CaseLimits::default() };
        let table = CaseTable::new(limits, ShardMemory::new(OperationCache::new(1 << 20, 100)));
        Self { table, delivered: Vec::new(), seen: Vec::new(), seconds: 0 }
    }

    fn perform(&mut self, effects: Vec<TableEffect<u32>>) {
        for effect in effects {
            match effect {
                TableEffect::Reply(ticket, Answer::Rejected(rejection)) => {
                    self.seen.push(format!("{ticket}:{}", rejection.code()));
                }
                TableEffect::Reply(ticket, answer) => self.seen.push(format!("{ticket}:{answer:?}")),
                TableEffect::Read(order) => self.seen.push(format!("read {} of {}", order.number, order.case_id)),
                TableEffect::Deliver(cell, event) => self.delivered.push((cell, event)),
                TableEffect::Retire(case_id) => self.seen.push(format!("retire {case_id}")),
            }
        }
    }

    /// Lets the cases handle what was delivered to them.
    fn work(&mut self) {
        let now = Now { monotonic: Duration::from_secs(self.seconds), wall: Timestamp::from_micros(1) };
        for (cell, event) in std::mem::take(&mut self.delivered) {
            for action in cell.handle(event, now) {
                match action {
                    CaseAction::Reply(ticket, _) => self.seen.push(format!("{ticket}:answered")),
                    CaseAction::Read(order) => self.seen.push(format!("read {} of {}", order.number, order.case_id)),
                    CaseAction::Commit(chain, _) => self.seen.push(format!("commit {}", chain.case_id)),
                }
            }
        }
    }

    fn submit(&mut self, ticket: u32, case: u32, name: &str) {
        let Value::Object(mut object) = json!({"reason": "x"}) else { unreachable!("it is an object") };
        let command = Command::new(CommandDraft {
            case_id: case_id(case),
            operation_id: OperationId::from_uuid(uuid::Uuid::from_u128(ticket.into())),
            actor: ActorId::from_stored("47"),
            name: CommandName::from_stored(name),
            members: Members::take(&mut object, &mut Vec::new()),
        })
        .expect("valid");
        let (workflow, deadline) = (Some(Workflow::permit()), Duration::from_secs(self.seconds + 30));
        let mut effects = Vec::new();
        let envelope = Envelope { command, workflow, recorded_at: None, deadline, lane: None, ticket };
        self.table.arrive(envelope, &mut effects);
        self.perform(effects);
    }

    fn absent(&mut self, case: u32, number: u64) {
        let mut effects = Vec::new();
        let found = ReadFound::Case(Ok((CaseState::Absent, Some(Vec::new()))));
        self.table.read_answered(&case_id(case), number, found, &mut effects);
        self.perform(effects);
    }

    fn settle(&mut self, case: u32, verdict: Verdict) {
        let mut effects = Vec::new();
        self.table.settled(&case_id(case), verdict, &mut effects);
        self.perform(effects);
        self.work();
    }

    fn sweep(&mut self) {
        let mut effects = Vec::new();
        self.table.sweep(1, Duration::from_secs(self.seconds), &mut effects);
        self.perform(effects);
    }

    fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }
}

#[test]
fn a_missing_case_is_told_to_those_who_came_before_the_read_and_stays_nowhere() {
    let mut bench = Bench::new(10);
    bench.submit(1, 62, "note");
    bench.submit(2, 62, "note");
    bench.absent(62, 1);
    assert_eq!(bench.seen(), ["read 1 of 62", "1:case-not-found", "read 2 of 62"]);
    bench.absent(62, 1);
    assert_eq!(bench.seen(), [""; 0], "the answer to a read that was answered before is for nobody");
    bench.absent(62, 2);
    assert_eq!(bench.seen(), ["2:case-not-found"]);
    assert_eq!(bench.table.case_count(), 0);
}

#[test]
fn an_open_does_not_wait_for_the_read_and_takes_along_what_waits() {
    let mut bench = Bench::new(10);
    bench.submit(1, 62, "note");
    bench.submit(2, 62, "open");
    assert!(!bench.table.is_arriving(&case_id(62), OperationId::from_uuid(uuid::Uuid::from_u128(1))));
    bench.work();
    bench.absent(62, 1);
    assert_eq!(
        bench.seen(),
        ["read 1 of 62", "commit 62"],
        "the note is checked on version 0, the open waits for that"
    );
    bench.settle(62, Verdict::Held);
    assert_eq!(bench.seen(), ["1:answered", "commit 62"]);
}

#[test]
fn a_full_memory_evicts_idle_cases_and_passes_over_busy_ones() {
    let mut bench = Bench::new(2);
    bench.submit(1, 1, "open");
    bench.submit(2, 2, "open");
    bench.work();
    bench.submit(3, 3, "open");
    assert_eq!(bench.seen(), ["commit 1", "commit 2", "3:Unsettled(Overloaded)"]);
    bench.settle(2, Verdict::Held);
    bench.submit(4, 3, "open");
    bench.work();
    assert_eq!(bench.seen(), ["2:answered", "retire 2", "commit 3"], "case 1 is older, and busy");
    assert_eq!(bench.table.case_count(), 2);
    bench.settle(1, Verdict::Unclear);
    bench.settle(3, Verdict::Held);
    bench.submit(5, 4, "open");
    assert_eq!(bench.seen(), ["4:answered", "retire 3"], "what is unclear stays");
    assert!(!bench.table.is_idle());
}

#[test]
fn an_event_on_its_way_keeps_a_case_in_memory() {
    let mut bench = Bench::new(1);
    bench.submit(1, 1, "open");
    bench.submit(2, 2, "open");
    assert_eq!(bench.seen(), ["2:Unsettled(Overloaded)"]);
    let (cell, _) = bench.delivered.pop().expect("the open is on its way");
    cell.undelivered();
    bench.submit(3, 2, "open");
    assert_eq!(bench.seen(), ["retire 1"], "what could not be delivered holds nothing");
}

#[test]
fn idle_cases_lose_their_driver_after_a_while_and_missing_ones_at_once() {
    let mut bench = Bench::new(10);
    bench.submit(1, 1, "open");
    bench.submit(2, 2, "open");
    bench.work();
    bench.settle(1, Verdict::Held);
    bench.settle(2, Verdict::Failed);
    bench.seen();
    bench.sweep();
    assert_eq!(bench.seen(), ["retire 2"], "its open failed, so nothing is known of it");
    bench.seconds = 11;
    bench.sweep();
    bench.sweep();
    assert_eq!(bench.seen(), ["retire 1"]);
    assert_eq!(bench.table.case_count(), 1, "case 1 stays as a passive entry");
}

#[test]
fn a_table_tells_what_it_holds_and_whom_it_turned_away() {
    let mut bench = Bench::new(2);
    bench.submit(1, 1, "open");
    bench.submit(2, 2, "open");
    bench.work();
    bench.submit(3, 3, "open");
    bench.settle(1, Verdict::Held);
    bench.settle(2, Verdict::Held);
    bench.sweep();
    let stats = bench.table.take_stats();
    assert_eq!((stats.live_cases, stats.passive_cases, stats.no_room, stats.case_full), (2, 0, 1, 0));
    assert!(stats.live_bytes > 2 * size_of::<CaseCell<u32>>() && stats.passive_bytes == 0, "{stats:?}");
    assert!(stats.operation_bytes > 0);

    bench.seconds = 11;
    bench.sweep();
    let idle = bench.table.take_stats();
    assert_eq!((idle.live_cases, idle.passive_cases, idle.no_room), (0, 2, 0), "what was told is told once");
    assert_eq!((idle.live_bytes, idle.passive_bytes), (0, stats.live_bytes));

    // One of them is used again, the other one makes room.
    bench.submit(4, 2, "note");
    bench.work();
    bench.submit(5, 3, "open");
    bench.work();
    bench.sweep();
    let used = bench.table.take_stats();
    assert_eq!((used.live_cases, used.passive_cases, used.passive_bytes), (2, 0, 0));
}

#[test]
fn what_has_left_memory_is_freed_at_once_and_not_by_a_later_sweep() {
    let mut bench = Bench::new(2);
    let mut left = Vec::new();
    for n in 1..=50 {
        bench.submit(n, n, "open");
        left.extend(bench.delivered.iter().map(|(cell, _)| Rc::downgrade(cell)));
        bench.work();
        bench.settle(n, Verdict::Held);
    }
    assert_eq!(bench.table.case_count(), 2);
    assert_eq!(left.iter().filter(|cell| cell.strong_count() > 0).count(), 2, "no sweep has come yet");
}
