//! What a store is asked for: one way there and back for a claim and for a replay, no scan of a table, and never for longer
//! than the options say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, IdempotencyOptions, IdempotencyStore, Identity, RedisStore, SqlStore,
};
use casework::lock::{LeaseTtl, LockName, LockStore, Owner, RedisLockStore};
use casework::store::{DatabaseUrl, RedisLink, SideTables};

use super::promises::{LONG, answer, fingerprint, fresh_identity};
use super::service::{Service, post};
use crate::support::database::{TestDatabase, block_on};
use crate::support::redis::RedisServer;
use crate::support::tcp_proxy::{Direction, TcpProxy};
use crate::support::wait::eventually_async;

const DEADLINE: Duration = Duration::from_secs(20);
/// How often something is done, to be counted.
const TIMES: usize = 20;

/// A first request: claim and answer.
async fn run(store: &dyn IdempotencyStore) -> (Identity, Fingerprint) {
    let (identity, fingerprint, token) = (fresh_identity(), fingerprint("{}"), ClaimToken::random());
    assert_eq!(store.claim(&identity, &fingerprint, token, LONG).await, Ok(Claim::Claimed));
    store.complete(&identity, &fingerprint, token, &answer("1"), LONG).await.unwrap();
    (identity, fingerprint)
}

async fn replay(store: &dyn IdempotencyStore, record: &(Identity, Fingerprint)) {
    let found = store.claim(&record.0, &record.1, ClaimToken::random(), LONG).await;
    assert_eq!(found, Ok(Claim::Completed(answer("1"))));
}

/// How often a script was sent; what a script does within the server is no way over the network.
fn scripts(server: &RedisServer) -> usize {
    let info = server.command(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let stats = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        stats.map_or(0, |stats| stats.split(',').next().unwrap().parse().unwrap())
    };
    ["eval", "evalsha", "script|load"].into_iter().map(calls).sum()
}

#[test]
fn on_redis_each_step_is_one_round_trip() {
    let server = RedisServer::start();
    let store = RedisStore::open(&server.url()).unwrap();
    block_on(async {
        let record = run(&store).await;
        let before = scripts(&server);
        for _ in 0..TIMES {
            replay(&store, &record).await;
        }
        assert_eq!(scripts(&server) - before, TIMES, "replays");
        let before = scripts(&server);
        for _ in 0..TIMES {
            run(&store).await;
        }
        assert_eq!(scripts(&server) - before, 2 * TIMES, "claims and answers");
    });
}

#[test]
fn on_postgres_each_step_is_one_statement() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    let statements = || proxy.counts().frontend_messages.get(&b'E').copied().unwrap_or(0);
    block_on(async {
        let store = SqlStore::open(&url.parse().unwrap()).unwrap();
        store.create_tables().await.unwrap();
        let record = run(&store).await;
        let before = statements();
        for _ in 0..TIMES {
            replay(&store, &record).await;
        }
        assert_eq!(statements() - before, TIMES, "replays");
        let before = statements();
        for _ in 0..TIMES {
            run(&store).await;
        }
        assert_eq!(statements() - before, 2 * TIMES, "claims and answers");
    });
}

/// One connection serves both.
#[test]
fn the_layer_and_the_lock_share_a_link_to_redis() {
    let server = RedisServer::start();
    let link = RedisLink::open(&server.url()).unwrap();
    let (store, lock) = (RedisStore::new(link.clone()), RedisLockStore::new(link));
    let connections = || {
        let info = server.command(&["INFO", "stats"]);
        let total = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        total.unwrap().parse::<usize>().unwrap()
    };
    let before = connections();
    block_on(async {
        run(&store).await;
        let name = LockName::new("shared", "62").unwrap();
        let taken = lock.acquire(&name, Owner::random(), LeaseTtl::new(LONG).unwrap(), std::num::NonZeroU32::MIN).await;
        assert!(taken.unwrap().is_some());
    });
    // The second look is a connection as well.
    assert_eq!(connections() - before, 2);
}

#[test]
fn sweeping_uses_the_index_in_both_databases() {
    let (sqlite, postgres) = (TestDatabase::sqlite(), TestDatabase::postgres());
    for database in [&sqlite, &postgres] {
        let store = SqlStore::open(&database.url().parse().unwrap()).unwrap();
        block_on(store.create_tables()).unwrap();
    }
    let plan = |database: &TestDatabase, explain: &str, text: &str| {
        let rows = database.sql(&format!("{explain} {}", text.replace("$1", "1000")));
        rows.concat().join("\n")
    };
    let plan_of_sqlite =
        plan(&sqlite, "EXPLAIN QUERY PLAN", include_str!("../../../src/idempotency/stores/sweep_sqlite.sql"));
    assert!(plan_of_sqlite.contains("idempotency_records_until_idx (until_ms<?)"), "{plan_of_sqlite}");
    assert!(!plan_of_sqlite.contains("SCAN idempotency_records"), "{plan_of_sqlite}");
    postgres.sql(
        "INSERT INTO idempotency_records SELECT sha256(g::text::bytea), decode(repeat('00', 72), 'hex'), \
         decode(repeat('00', 16), 'hex'), CASE WHEN g < 10 THEN 0 ELSE 9000000000000 END \
         FROM generate_series(1, 20000) g; ANALYZE idempotency_records",
    );
    // As every session of the pool has it.
    let plan_of_postgres = plan(
        &postgres,
        "SET enable_seqscan = off; EXPLAIN",
        include_str!("../../../src/idempotency/stores/sweep_postgres.sql"),
    );
    assert!(plan_of_postgres.contains("idempotency_records_until_idx"), "{plan_of_postgres}");
    assert!(plan_of_postgres.contains("Index Cond: (until_ms <="), "{plan_of_postgres}");
    assert!(!plan_of_postgres.contains("Seq Scan"), "{plan_of_postgres}");
}

/// A service whose store may take `limit` for a claim is told within that, and runs nothing.
async fn is_away_soon(service: &Service, key: &str, runs: u64) {
    let asked = Instant::now();
    post(service, "/created", key, "{}").await.expect_problem(503, "unavailable");
    assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
    assert_eq!(service.runs.of("/created"), runs);
}

fn impatient() -> IdempotencyOptions {
    IdempotencyOptions {
        store_timeout: Duration::from_millis(300),
        claim_lease: Duration::from_secs(2),
        ..IdempotencyOptions::default()
    }
}

#[test]
fn a_postgres_that_hangs_is_away_within_the_time_of_the_options() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    let store = SqlStore::open(&url.parse().unwrap()).unwrap();
    block_on(store.create_tables()).unwrap();
    let service = Service::start(Arc::new(store), impatient());
    block_on(async {
        assert_eq!(post(&service, "/created", "a", "{}").await.status, 201);
        proxy.hold(Direction::ToServer);
        is_away_soon(&service, "b", 1).await;
        is_away_soon(&service, "c", 1).await;
        proxy.release(Direction::ToServer);
        eventually_async(DEADLINE, "the service to go on", || async {
            post(&service, "/created", "b", "{}").await.status == 201
        })
        .await;
        assert!(post(&service, "/created", "a", "{}").await.is_replay());
    });
}

#[test]
fn a_sqlite_file_that_somebody_holds_is_away_within_the_time_of_the_options() {
    let database = TestDatabase::sqlite();
    let store = SqlStore::open(&database.url().parse().unwrap()).unwrap();
    block_on(store.create_tables()).unwrap();
    let service = Service::start(Arc::new(store), impatient());
    block_on(async {
        assert_eq!(post(&service, "/created", "a", "{}").await.status, 201);
        let mut other = database.session();
        other.run("BEGIN IMMEDIATE").unwrap();
        // Reading needs no lock: a replay is given all the same.
        assert!(post(&service, "/created", "a", "{}").await.is_replay());
        is_away_soon(&service, "b", 1).await;
        other.run("ROLLBACK").unwrap();
        eventually_async(DEADLINE, "the service to go on", || async {
            post(&service, "/created", "b", "{}").await.status == 201
        })
        .await;
    });
}

#[test]
fn a_redis_that_hangs_is_away_within_the_time_of_the_options() {
    let server = RedisServer::start();
    let service = Service::start(Arc::new(RedisStore::open(&server.url()).unwrap()), impatient());
    block_on(async {
        assert_eq!(post(&service, "/created", "a", "{}").await.status, 201);
        server.pause();
        is_away_soon(&service, "b", 1).await;
        server.resume();
        eventually_async(DEADLINE, "the service to go on", || async {
            post(&service, "/created", "b", "{}").await.status == 201
        })
        .await;
    });
}

#[test]
fn a_step_on_side_tables_ends_within_its_own_time() {
    let database = TestDatabase::postgres();
    let (proxy, url) = TcpProxy::before(database.url());
    let tables = SideTables::open(&url.parse().unwrap()).unwrap().step_timeout(Duration::from_millis(300));
    let store = SqlStore::new(tables);
    block_on(async {
        store.create_tables().await.unwrap();
        proxy.hold(Direction::ToServer);
        let asked = Instant::now();
        let claimed = store.claim(&fresh_identity(), &fingerprint("{}"), ClaimToken::random(), LONG).await;
        assert!(claimed.is_err_and(|fault| fault.to_string().contains("no answer within 300ms")));
        assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
    });
}

#[test]
fn a_database_that_is_no_file_is_refused_in_words() {
    for (path, words) in [("", "the path is empty"), (":memory:", "in memory"), ("file:x?mode=memory", "in memory")] {
        let Err(error) = SideTables::open(&DatabaseUrl::Sqlite(path.into())) else { panic!("{path:?} was opened") };
        let error = error.to_string();
        assert!(error.contains(words) && error.contains("give the path of a file"), "{path:?}: {error}");
    }
    assert!(SqlStore::open(&"sqlite::memory:".parse().unwrap()).is_err());
}
