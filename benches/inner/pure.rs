//! What needs no database: parsing, the digest, deciding, and the case machine.
//!
//! A machine's step is measured from a command that arrives to the answer that leaves, with the commit taken as held.

use std::hint::black_box;
use std::time::Duration;

use casework::clock;
use casework::command_log::{LineRules, parse_line};
use casework::domain::{
    CaseId, CaseState, Command, Digest, KnownOperation, Workflow, apply, canonical, decide, parse_strict,
};
use casework::engine::{
    Answer, CaseEffect, CaseEvent, CaseLimits, CaseMachine, Envelope, Now, OperationCache, Verdict,
};
use criterion::{BatchSize, Criterion, Throughput};

use super::{NOTE, command};

pub fn bench(criterion: &mut Criterion) {
    parsing(criterion);
    deciding(criterion);
    machine(criterion);
}

/// A case that was opened and whose reviewer is assigned.
pub fn open_case(case_id: &CaseId) -> CaseState {
    let (workflow, mut state) = (Workflow::permit(), CaseState::Absent);
    for (name, body) in [("open", "{}"), ("assign", r#"{"payload":{"assignee":"47"}}"#)] {
        let decision = decide(&workflow, &state, &command(case_id, name, body)).unwrap();
        apply(&mut state, &decision, clock::now());
    }
    state
}

fn parsing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let payload = r#"{"reason":"Reviewed.","payload":{"area":{"x":26.85120450862128,"y":1e2},"parts":[1,2,3,4,"é"]}}"#;
    for (name, body) in [("body of a note", NOTE), ("body with a payload", payload)] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| parse_strict(black_box(body.as_bytes())).unwrap()));
    }
    let line = format!(
        r#"{{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11","actor":"47","command":"note",{}"#,
        &NOTE[1..]
    );
    group.throughput(Throughput::Bytes(line.len() as u64));
    group.bench_function("line to command, digest included", |bencher| {
        bencher.iter(|| parse_line(black_box(line.as_bytes()), LineRules::RECORDED).unwrap());
    });
    group.finish();

    let mut group = criterion.benchmark_group("digest");
    let request = command(&CaseId::parse("62").unwrap(), "note", NOTE).request().clone();
    let value = parse_strict(request.as_bytes()).unwrap();
    group.throughput(Throughput::Bytes(request.len() as u64));
    group.bench_function("canonical form", |bencher| bencher.iter(|| canonical(black_box(&value))));
    group.bench_function("SHA-256 of it", |bencher| bencher.iter(|| Digest::of_request(black_box(&request))));
    group.finish();
}

fn deciding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let (workflow, case_id) = (Workflow::permit(), CaseId::parse("62").unwrap());
    let state = open_case(&case_id);
    let note = command(&case_id, "note", NOTE);
    let approve = command(&case_id, "approve", r#"{"reason":"All documents reviewed.","expected_revision":0}"#);
    let stale = command(&case_id, "approve", r#"{"reason":"All documents reviewed.","expected_revision":4}"#);
    for (name, command) in [("note", &note), ("approve", &approve), ("approve, refused as stale", &stale)] {
        group.bench_function(name, |bencher| bencher.iter(|| decide(&workflow, black_box(&state), black_box(command))));
    }
    let (decision, at) = (decide(&workflow, &state, &approve).unwrap(), clock::now());
    group.bench_function("outcome of approve", |bencher| {
        bencher.iter(|| black_box(&decision).to_operation(black_box(&approve), at));
    });
    group.finish();
}

/// A machine with a case in memory, and its share of the cache.
struct Bench {
    machine: CaseMachine<()>,
    cache: OperationCache,
    effects: Vec<CaseEffect<()>>,
}

impl Bench {
    fn new(case_id: &CaseId, state: CaseState, known: Vec<KnownOperation>) -> Self {
        let mut cache = OperationCache::new(1 << 20, 4_096);
        let machine = CaseMachine::loaded(case_id.clone(), CaseLimits::default(), &mut cache, state, Some(known), 0);
        Self { machine, cache, effects: Vec::new() }
    }

    fn step(&mut self, event: CaseEvent<()>, now: Now) {
        self.machine.step(event, now, &mut self.cache, &mut self.effects);
    }
}

fn submitted(command: Command) -> CaseEvent<()> {
    CaseEvent::Submitted(Envelope {
        command,
        workflow: Some(Workflow::permit()),
        recorded_at: None,
        deadline: Duration::MAX,
        lane: None,
        ticket: (),
    })
}

fn machine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("case machine");
    let case_id = CaseId::parse("62").unwrap();
    let state = open_case(&case_id);
    let now = Now { monotonic: Duration::ZERO, wall: clock::now() };
    for waiting in [1_usize, 64] {
        group.throughput(Throughput::Elements(waiting as u64));
        group.bench_function(format!("{waiting} new, from arrival to answer"), |bencher| {
            let prepare = || {
                let commands = (0..waiting).map(|_| submitted(command(&case_id, "note", NOTE)));
                (Bench::new(&case_id, state.clone(), Vec::new()), commands.collect::<Vec<_>>())
            };
            let run = |(mut bench, events): (Bench, Vec<CaseEvent<()>>)| {
                events.into_iter().for_each(|event| bench.step(event, now));
                // The first one left alone; what came meanwhile is the second chain.
                while !bench.machine.is_idle() {
                    bench.step(CaseEvent::Settled(Verdict::Held), now);
                }
                let is_applied = |effect: &&CaseEffect<()>| matches!(effect, CaseEffect::Reply((), Answer::Applied(_)));
                assert_eq!(bench.effects.iter().filter(is_applied).count(), waiting);
                bench
            };
            bencher.iter_batched(prepare, run, BatchSize::SmallInput);
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("repeat from memory", |bencher| {
        let note = command(&case_id, "note", NOTE);
        let decision = decide(&Workflow::permit(), &state, &note).unwrap();
        let known = KnownOperation::from(&decision.to_operation(&note, now.wall));
        let mut bench = Bench::new(&case_id, state.clone(), vec![known]);
        let run = |event| {
            bench.step(event, now);
            let answer = bench.effects.pop();
            assert!(matches!(answer, Some(CaseEffect::Reply((), Answer::Replayed(_)))));
            answer
        };
        bencher.iter_batched(|| submitted(note.clone()), run, BatchSize::SmallInput);
    });
    group.finish();
}
