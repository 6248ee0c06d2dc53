//! The memory of a case: with its actor (live), and without (passive), its cached operations apart.
//!
//! Resident memory of this process before and after. Cases are opened in two heaps of equal size; when the second one is
//! opened, the actors of the first have gone and their memory is used again, so what is added is the passive cases alone.

use std::collections::VecDeque;
use std::time::Duration;

use casework::actor::{CommandGateway, GatewayOptions, PendingAnswer, Submission, WorkflowRegistry};
use casework::domain::CaseId;
use casework::engine::Answer;
use casework::store::Database;

use super::command;

/// Longer than an actor stays without work, and a look for such actors besides.
const RETIRED_AFTER: Duration = Duration::from_secs(13);
/// Opens in flight at once.
const IN_FLIGHT: usize = 4_096;

/// Prints bytes a case; a test opens a few and says nothing about their size.
pub fn print(is_test: bool) {
    let heap = if is_test { 1_000 } else { 100_000 };
    let (live, passive) = actix::System::new().block_on(measure(heap, is_test));
    println!("memory of a case, over {heap} of each, cached operations apart (at most 1 MiB in all):");
    println!("  with its actor {live:.0} B; passive {passive:.0} B");
}

async fn measure(heap: usize, is_test: bool) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("casework.db").display());
    let database = Database::open(&url.parse().unwrap()).unwrap();
    database.call(|store| async move { store.schema_migrate().await }).await.unwrap();
    let registry = WorkflowRegistry::open(database.clone(), Vec::new(), None).await.unwrap();
    let options = GatewayOptions { cases_max: 1_000_000, outcomes_bytes_max: 1 << 20, ..GatewayOptions::default() };
    let gateway = CommandGateway::start(database, registry, options).await.unwrap();
    // Buffers, SQLite's pages and the cache reach their size first.
    open(&gateway, "warm", heap / 5).await;
    retire(is_test).await;
    let mut resident = vec![resident_bytes()];
    for name in ["first", "second", "third"] {
        open(&gateway, name, heap).await;
        resident.push(resident_bytes());
        retire(is_test).await;
    }
    let each = |more: f64, cases: usize| more / cases as f64;
    // The first heap brings its actors besides what stays of it.
    (each(resident[1] - resident[0], heap), each(resident[3] - resident[1], 2 * heap))
}

async fn retire(is_test: bool) {
    if !is_test {
        tokio::time::sleep(RETIRED_AFTER).await;
    }
}

async fn open(gateway: &CommandGateway, heap: &str, cases: usize) {
    let mut pending: VecDeque<PendingAnswer> = VecDeque::with_capacity(IN_FLIGHT);
    for number in 0..cases {
        if pending.len() == IN_FLIGHT {
            check(pending.pop_front().expect("it is full").await);
        }
        let case_id = CaseId::parse(&format!("case-{heap}-{number:07}")).unwrap();
        let command = command(&case_id, "open", "{}");
        pending.push_back(gateway.submit(Submission { command, recorded_at: None, lane: None }));
    }
    for answer in pending {
        check(answer.await);
    }
}

fn check(answer: Answer) {
    assert!(matches!(answer, Answer::Applied(_)), "{answer:?}");
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() * 1_024.0
}
