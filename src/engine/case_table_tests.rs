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
    let (mut left, mut actors) = (Vec::new(), Vec::new());
    for n in 1..=50 {
        bench.submit(n, n, "open");
        left.extend(bench.delivered.iter().map(|(cell, _)| Rc::downgrade(cell)));
        // The actor of one of them takes its time to end.
        actors.extend(bench.delivered.iter().filter(|_| n == 25).map(|(cell, _)| cell.clone()));
        bench.work();
        bench.settle(n, Verdict::Held);
    }
    let alive = left.iter().filter(|cell| cell.strong_count() > 0).count();
    assert_eq!(alive, 2 + actors.len(), "no sweep has come yet");
    bench.seen();
    bench.sweep();
    assert_eq!(bench.seen(), [""; 0], "what has left is not sent away again");
    let stats = bench.table.take_stats();
    assert_eq!((stats.live_cases, stats.passive_cases), (2, 0));
    let in_memory = left.iter().rev().take(2).filter_map(Weak::upgrade);
    assert_eq!(stats.live_bytes, in_memory.map(|cell| cell.bytes()).sum::<usize>());
}

#[test]
fn a_case_that_turned_out_to_be_missing_leaves_nothing_counted() {
    let mut bench = Bench::new(10);
    bench.submit(1, 1, "open");
    bench.work();
    bench.sweep();
    assert!(bench.table.take_stats().live_bytes > 0);
    bench.settle(1, Verdict::Failed);
    bench.sweep();
    assert_eq!(bench.table.take_stats(), TableStats::default());
}

#[test]
fn each_live_case_is_looked_at_once_a_round_in_equal_parts() {
    let mut bench = Bench::new(100);
    let open = |bench: &mut Bench, n: u32| {
        bench.submit(n, n, "open");
        bench.work();
        bench.settle(n, Verdict::Held);
        bench.seen();
    };
    let retired = |bench: &mut Bench| {
        let mut effects = Vec::new();
        bench.table.sweep(4, Duration::from_secs(bench.seconds), &mut effects);
        effects.len()
    };
    open(&mut bench, 1);
    assert_eq!(retired(&mut bench), 0, "a round of one");
    (2..=10).for_each(|n| open(&mut bench, n));
    bench.seconds = 11;
    let parts: Vec<usize> = (0..4).map(|_| retired(&mut bench)).collect();
    assert_eq!(parts, [3, 3, 3, 1]);
    assert_eq!(bench.table.take_stats().live_cases, 0);
}
