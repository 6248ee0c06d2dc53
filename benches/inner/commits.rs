//! A commit of 1 to 512 commands, each of another case, on each database; and of 64 commands of one case.
//!
//! Measured from the call of the writer to its answer: one transaction, durable. Deciding is not part of it.

use std::time::{Duration, Instant};

use casework::clock;
use casework::domain::{CaseId, CaseState, Workflow, apply, decide};
use casework::engine::{BatchAnswer, Chain, ChainAnswer, LockMode, Step};
use casework::store::{Database, Writer};
use criterion::{Criterion, Throughput};

use super::support::postgres;
use super::{NOTE, command};

/// Cases that the batches go over.
const CASES: usize = 2_048;
/// Commands in a batch.
const BATCHES: [usize; 4] = [1, 8, 64, 512];

pub fn bench(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("casework.db").display());
    bench_on(criterion, "commit on SQLite", || sqlite);
    let mut database = None;
    bench_on(criterion, "commit on PostgreSQL", || database.insert(postgres::database()).url().to_owned());
}

fn bench_on(criterion: &mut Criterion, group: &str, url: impl FnOnce() -> String) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10);
    // Made at the first benchmark that is really run.
    let mut url = Some(url);
    let mut bench: Option<Bench> = None;
    for (name, cases, chain) in BATCHES.map(|cases| (format!("{cases} cases"), cases, 1)).into_iter().chain([(
        "one case, 64 commands".into(),
        1,
        64,
    )]) {
        group.throughput(Throughput::Elements((cases * chain) as u64));
        group.bench_function(name, |bencher| {
            let bench = bench.get_or_insert_with(|| Bench::new(&url.take().expect("once")()));
            bencher.iter_custom(|rounds| (0..rounds).map(|_| bench.commit_next(cases, chain)).sum());
        });
    }
    group.finish();
}

/// An open writer, and the states of the cases.
struct Bench {
    runtime: tokio::runtime::Runtime,
    database: Database,
    writer: Option<Box<dyn Writer>>,
    cases: Vec<(CaseId, CaseState)>,
    next: usize,
}

impl Bench {
    fn new(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = Database::open(&url.parse().unwrap()).unwrap();
        let writer = runtime.block_on(database.call(|store| async move {
            store.schema_migrate().await?;
            store.writer_open("inner").await
        }));
        let case_id = |number| CaseId::parse(&format!("case-{number:05}")).unwrap();
        let cases = (0..CASES).map(|number| (case_id(number), CaseState::Absent)).collect();
        let mut bench = Self { runtime, database, writer: Some(writer.unwrap()), cases, next: 0 };
        // Their first commands open them.
        for _ in 0..CASES / 512 {
            bench.commit_next(512, 1);
        }
        bench
    }

    /// The next batch, with so many commands of each of its cases; returns how long its commit took.
    fn commit_next(&mut self, cases: usize, commands: usize) -> Duration {
        let first = self.next;
        self.next = (first + cases) % CASES;
        let mut places: Vec<usize> = (first..first + cases).map(|place| place % CASES).collect();
        // The batch is sorted by case id, which the store relies on.
        places.sort_unstable();
        let batch: Vec<Chain> = places.into_iter().map(|place| self.chain(place, commands)).collect();
        let mut writer = self.writer.take().expect("one commit at a time");
        let (writer, answer, took) = self
            .runtime
            .block_on(self.database.call(move |_| async move {
                let start = Instant::now();
                let answer = writer.commit(&batch, LockMode::Skip).await;
                Ok((writer, answer, start.elapsed()))
            }))
            .unwrap();
        self.writer = Some(writer);
        assert_eq!(answer.unwrap(), BatchAnswer::Settled(vec![ChainAnswer::Held; cases]));
        took
    }

    fn chain(&mut self, place: usize, commands: usize) -> Chain {
        let (workflow, at) = (Workflow::permit(), clock::now());
        let (case_id, state) = &mut self.cases[place];
        let expected = state.version();
        let opens = matches!(state, CaseState::Absent);
        let operations = (0..commands).map(|_| {
            let command = if opens { command(case_id, "open", "{}") } else { command(case_id, "note", NOTE) };
            let decision = decide(&workflow, state, &command).unwrap();
            apply(state, &decision, at);
            decision.to_operation(&command, at)
        });
        let operations = operations.collect();
        let after = state.case().expect("it is open now").clone();
        let step = Step { after, writes_data: opens, operations, assignments: Vec::new() };
        Chain { case_id: case_id.clone(), expected, step: Some(step) }
    }
}
