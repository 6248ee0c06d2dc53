//! Ten thousand keys and more come and go: every store is at the end as small as it was at the start.
//!
//! Short by itself; with `CASEWORK_TEST_LONG=1` each store is kept busy for three minutes. What is measured is the store's own
//! count, and in Redis its memory as well; that it grew meanwhile is checked too, or coming back would say nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::idempotency::{
    Claim, ClaimToken, Holding, IdempotencyStore, MemoryBounds, MemoryStore, RecordedResponse, RedisStore,
};
use futures_util::StreamExt;

use super::promises::{LONG, fingerprint, fresh_identity};
use super::stores::sql;
use crate::support::database::block_on;
use crate::support::long_tests_wanted;
use crate::support::redis::RedisServer;
use crate::support::wait::{eventually, eventually_async};

const DEADLINE: Duration = Duration::from_secs(60);
/// Keys at a time.
const AT_ONCE: usize = 32;
/// Keys in one go, and how far the goes are apart at least: 20,000 keys a second, of which memory holds two seconds' worth.
const KEYS_IN_A_GO: usize = 500;
const GO_EVERY: Duration = Duration::from_millis(25);

/// How much is done.
#[derive(Clone, Copy)]
struct Amount {
    /// Keys at least.
    keys: usize,
    /// Time at least.
    time: Duration,
    /// How long each answer is kept.
    lifetime: Duration,
}

impl Amount {
    fn of(keys: usize) -> Self {
        let (time, lifetime) = if long_tests_wanted() { (180, 2_000) } else { (3, 500) };
        Self { keys, time: Duration::from_secs(time), lifetime: Duration::from_millis(lifetime) }
    }
}

/// Claims and answers new keys, looking at the store now and then; returns how many.
async fn churn(store: &Arc<dyn IdempotencyStore>, amount: Amount, mut look: impl FnMut()) -> usize {
    let (started, mut keys) = (Instant::now(), 0);
    let answer = RecordedResponse::new(201, Vec::new(), vec![b'x'; 2_048]);
    let mut pace = tokio::time::interval(GO_EVERY);
    while keys < amount.keys || started.elapsed() < amount.time {
        pace.tick().await;
        let some = futures_util::stream::iter(0..KEYS_IN_A_GO).map(|_| async {
            let (identity, token) = (fresh_identity(), ClaimToken::random());
            assert_eq!(store.claim(&identity, &fingerprint("{}"), token, LONG).await, Ok(Claim::Claimed));
            let completed = store.complete(&identity, &fingerprint("{}"), token, &answer, amount.lifetime).await;
            assert_eq!(completed, Ok(Holding::Held));
        });
        some.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        keys += KEYS_IN_A_GO;
        // As the layer does it, after as many claims.
        store.sweep().await.unwrap();
        look();
    }
    keys
}

#[test]
fn memory_comes_back_to_nothing() {
    let memory = Arc::new(MemoryStore::new(MemoryBounds::default()));
    let store: Arc<dyn IdempotencyStore> = memory.clone();
    let amount = Amount::of(10_000);
    let mut peak = (0, 0);
    let keys = block_on(churn(&store, amount, || peak = peak.max(memory.size())));
    assert!(peak.0 >= 500 && peak.1 > 500 * 2_048, "{peak:?} at most: it never held anything");
    // Several lifetimes went by, so that what came early had to go while others came.
    assert!(peak.0 < keys * 2 / 3, "{} of {keys} keys at a time", peak.0);
    eventually(DEADLINE, "the store to be empty", || {
        block_on(store.sweep()).unwrap();
        memory.size() == (0, 0)
    });
}

fn used_memory(server: &RedisServer) -> i64 {
    let info = server.command(&["INFO", "memory"]);
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap()
}

fn keys_in(server: &RedisServer) -> usize {
    server.command(&["DBSIZE"]).trim().trim_start_matches(':').parse().unwrap()
}

#[test]
fn redis_comes_back_to_where_it_began() {
    let server = RedisServer::start();
    let store: Arc<dyn IdempotencyStore> = Arc::new(RedisStore::open(&server.url()).unwrap());
    block_on(async {
        // Scripts and buffers are there from the first use on.
        let warm = Amount { keys: 500, time: Duration::ZERO, lifetime: Duration::from_millis(10) };
        churn(&store, warm, || {}).await;
        eventually_async(DEADLINE, "the first keys to go", || async { keys_in(&server) == 0 }).await;
        let start = used_memory(&server);
        let mut peak = (0, 0);
        let keys = churn(&store, Amount::of(10_000), || {
            peak = (peak.0.max(keys_in(&server)), peak.1.max(used_memory(&server)));
        });
        let keys = keys.await;
        assert!(peak.0 >= 500 && peak.1 > start + 500 * 2_048, "{peak:?} at most: it never held anything");
        assert!(peak.0 < keys, "{} of {keys} keys at a time", peak.0);
        eventually_async(DEADLINE, "all keys to go, and their memory", || async {
            keys_in(&server) == 0 && used_memory(&server) < start + (1 << 20)
        })
        .await;
    });
}

on_both_databases! {
    /// Fewer, because each is written to the disk.
    async fn tables_come_back_to_nothing(database: &TestDatabase) {
        let stores = tokio::task::block_in_place(|| sql(database));
        let amount = Amount::of(1_000);
        let mut peak = 0;
        let rows = || database.count("idempotency_records");
        let keys = churn(&stores.first, amount, || peak = peak.max(rows())).await;
        assert!(peak >= 100 && peak < keys as u64, "{peak} rows at most of {keys}");
        eventually_async(DEADLINE, "all rows to go", || async {
            stores.first.sweep().await.unwrap();
            rows() == 0
        })
        .await;
    }
}
