//! The rows that take long: memory while a million cases are touched, and speed on 10 million operations.
//!
//! Owns the filling of the tables, with rows that `casework verify` accepts like any other. A smoke test runs the same on a
//! thousandth of the size.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::casework_runs::{Load, Serving, on_postgres};
use super::contenders::Ground;
use super::figures::{Figure, Measure, standing};
use super::machine::resident_kib;
use super::options::Options;
use super::support::cli::casework;
use super::support::postgres::PostgresDatabase;

/// For `--only`.
pub const NAMES: [&str; 2] = ["memory", "growth"];
/// Contenders of the growth row.
const GROWTH: [&str; 2] = ["spread POST, empty database", "spread POST, 10 million operations"];
/// At least so much of the speed on an empty database.
const GROWTH_FLOOR: f64 = 0.8;
/// Operations of each case that the tables are filled with.
const OPERATIONS_EACH: u32 = 100;
/// Cases that are filled in one transaction.
const FILLED_AT_ONCE: u32 = 10_000;
/// Cases kept in memory by the server of the memory row.
const CASES_MAX: u32 = 100_000;

/// The server's memory at one moment.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MemorySample {
    pub seconds: f64,
    /// Cases that were opened by then, as PostgreSQL's statistics have it (a second or so late).
    pub cases: u64,
    pub resident_kib: u64,
}

/// So many of something; a thousandth in a smoke test.
fn scaled(count: u32, options: &Options) -> u32 {
    if options.smoke { count / 1_000 } else { count }
}

/// Opens a million cases and sends notes over them, while the server keeps 100,000; samples its memory.
pub fn memory(ground: &Ground<'_>) -> Vec<MemorySample> {
    let (cases, cap) = (scaled(1_000_000, ground.options), scaled(CASES_MAX, ground.options).to_string());
    let database = ground.server.database();
    let serving = Serving::start(database.url(), &["--cases-max", &cap]);
    let options = Options { seconds: scaled(30_000, ground.options).clamp(2, 30), ..ground.options.clone() };
    let load = Load::posts("spread", 128);
    let (start, pid) = (Instant::now(), serving.server.pid());
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        let run =
            scope.spawn(|| load.run_over(cases, serving.server.url(), &serving.token, Some(database.url()), &options));
        while !run.is_finished() {
            let opened = database.sql("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'cases'");
            samples.push(MemorySample {
                seconds: start.elapsed().as_secs_f64(),
                cases: opened[0][0].parse().unwrap(),
                resident_kib: resident_kib(pid).expect("the server runs"),
            });
            std::thread::sleep(Duration::from_secs(1));
        }
        run.join().unwrap();
    });
    samples
}

/// Prints the samples that tell the course.
pub fn print_memory(samples: &[MemorySample]) {
    let Some(last) = samples.last() else { return };
    println!("| seconds | cases opened | resident memory of the server, MiB |\n|---|---|---|");
    let mut next = 0;
    for sample in samples {
        if sample.cases >= next || sample.seconds >= last.seconds {
            println!("| {:.0} | {} | {} |", sample.seconds, sample.cases, sample.resident_kib / 1024);
            next = sample.cases + (last.cases / 20).max(1);
        }
    }
    println!();
}

/// The same load on an empty database and on a filled one, in turn.
pub fn growth(ground: &Ground<'_>, note: fn(&Figure)) -> Vec<Figure> {
    let filled = ground.server.database();
    // A start stores the workflow that the rows are of.
    drop(Serving::start(filled.url(), &[]));
    fill(&filled, scaled(100_000, ground.options).max(100));
    let load = Load::posts("spread", 128);
    let mut figures = Vec::new();
    for round in 1..=ground.options.rounds {
        let empty = on_postgres(ground.server, load, GROWTH[0], round, ground.options);
        let serving = Serving::start(filled.url(), &[]);
        ground.server.sql("CHECKPOINT");
        let report = load.run(serving.server.url(), &serving.token, None, ground.options);
        for figure in [empty, load.figure(GROWTH[1], round, &report)] {
            note(&figure);
            figures.push(figure);
        }
    }
    eprintln!("  verifying the filled database");
    casework(["verify", "--database", filled.url()]).expect_success();
    figures
}

/// Opens so many cases and gives each its operations, as the server would have recorded them.
fn fill(database: &PostgresDatabase, cases: u32) {
    let start = Instant::now();
    for first in (0..cases).step_by(FILLED_AT_ONCE as usize) {
        let last = (first + FILLED_AT_ONCE).min(cases) - 1;
        database.sql(&format!(
            r#"BEGIN;
            SET LOCAL casework.writer = 'on';
            INSERT INTO cases (case_id, workflow, status, revision, version, data, opened_at, updated_at)
              SELECT 'filled-' || c, 'permit', 'in_review', 0, {OPERATIONS_EACH}, '{{}}', t, t
              FROM generate_series({first}, {last}) c, (SELECT timestamptz '2026-11-30 16:40:38.730683+00' AS t) times;
            WITH new AS MATERIALIZED (
              SELECT 'filled-' || c AS case_id, v AS version, gen_random_uuid() AS id,
                CASE v WHEN 1 THEN 'open' ELSE 'note' END AS command,
                CASE v WHEN 1 THEN 'null' ELSE '"All documents reviewed."' END AS reason
              FROM generate_series({first}, {last}) c, generate_series(1, {OPERATIONS_EACH}) v
            ), said AS MATERIALIZED (
              SELECT *, '{{"actor":"load","case_id":"' || case_id || '","command":"' || command
                || '","expected_revision":null,"payload":null,"reason":' || reason || ',"v":1,"workflow":null}}' AS request
              FROM new
            ), recorded AS (
              INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command,
                digest, request, outcome)
              SELECT case_id, id, version, 0, 'in_review', '2026-11-30 16:40:38.730683+00', 'load', command,
                '\x01'::bytea || sha256(convert_to(request, 'UTF8')), request,
                '{{"case_id":"' || case_id || '","operation_id":"' || id || '","command":"' || command
                || '","actor":"load","status":"in_review","revision":0,"version":' || version
                || ',"recorded_at":"2026-11-30T16:40:38.730683Z"}}'
              FROM said
            )
            INSERT INTO outbox (case_id, version, operation_id) SELECT case_id, version, id FROM new;
            COMMIT;"#
        ));
    }
    database.sql("VACUUM ANALYZE");
    let size = |table: &str| -> u64 {
        database.sql(&format!("SELECT pg_total_relation_size('{table}')"))[0][0].parse().unwrap()
    };
    let operations = u64::from(cases * OPERATIONS_EACH);
    eprintln!(
        "  filled with {operations} operations in {:.0} s: {} B each with its indexes, {} B each in the outbox",
        start.elapsed().as_secs_f64(),
        size("operations") / operations,
        size("outbox") / operations
    );
}

/// Prints the growth row.
pub fn print_growth(figures: &[Figure]) {
    let stands = |contender| standing(figures, contender, Measure::Throughput);
    let (Some(empty), Some(full)) = (stands(GROWTH[0]), stands(GROWTH[1])) else { return };
    let ratio = full.median / empty.median;
    println!("| growth | commands/s | times | floor |\n|---|---|---|---|");
    println!("| {}, {} | {:.0} | | |", empty.contender, empty.variant, empty.median);
    let below = if ratio < GROWTH_FLOOR { " BELOW" } else { "" };
    println!(
        "| {}, {} | {:.0} | {ratio:.2}{below} | at least {GROWTH_FLOOR} |\n",
        full.contender, full.variant, full.median
    );
}
