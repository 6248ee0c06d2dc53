//! The parts of a replay: canonicalising a body, and what the stores are asked for and keep.
//!
//! Owns counts as well as times: commands and bytes are what a server says of itself, messages what went over the wire.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, IdempotencyKey, IdempotencyStore, Identity, Principal, RecordedResponse,
    RedisStore, RequestParts, SqlStore,
};

use super::client::BODY;
use super::support::database::block_on;
use super::support::postgres_server::PrivateServer;
use super::support::redis::RedisServer;
use super::support::tcp_proxy::TcpProxy;

/// What canonicalising a payment may take.
const CANONICAL_MAX: Duration = Duration::from_micros(20);
/// How often something is done to be counted.
const TIMES: u32 = 500;
const LEASE: Duration = Duration::from_secs(600);

fn fingerprint() -> Fingerprint {
    let request = RequestParts {
        method: "POST",
        path: "/payments",
        query: "",
        content_type: Some("application/json"),
        content_encoding: None,
        body: black_box(BODY.as_bytes()),
    };
    Fingerprint::of(&request).unwrap()
}

fn identity() -> Identity {
    let key = uuid::Uuid::new_v4().to_string();
    Identity::new("", &Principal::new("47"), &IdempotencyKey::parse(key.as_bytes()).unwrap())
}

fn response(bytes: usize) -> RecordedResponse {
    let headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        ("location".to_owned(), b"/payments/0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01".to_vec()),
    ];
    RecordedResponse::new(201, headers, vec![b'x'; bytes])
}

/// The quickest of some runs: whatever else the machine does makes it slower only.
fn time_of<T>(mut work: impl FnMut() -> T) -> Duration {
    let runs = (0..20).map(|_| {
        let started = Instant::now();
        (0..TIMES).for_each(|_| drop(black_box(work())));
        started.elapsed() / TIMES
    });
    runs.min().unwrap()
}

/// The fingerprint of a payment, which is canonicalising and more. False: it takes too long.
pub fn print_canonicalising() -> bool {
    let whole = time_of(fingerprint);
    let canonical = time_of(|| {
        let value = casework::domain::parse_strict(black_box(BODY.as_bytes())).unwrap();
        casework::domain::canonical(&value)
    });
    let is_quick = canonical < CANONICAL_MAX;
    let verdict = if is_quick { "within" } else { "FAILED: over" };
    println!(
        "\ncanonicalising a body of {} bytes: {canonical:.1?} ({verdict} {CANONICAL_MAX:?}); with all digests: {whole:.1?}",
        BODY.len()
    );
    is_quick
}

/// Makes a record in a store, as a first request does.
async fn keep(store: &dyn IdempotencyStore, bytes: usize) -> (Identity, Fingerprint) {
    let (identity, fingerprint, token) = (identity(), fingerprint(), ClaimToken::random());
    assert_eq!(store.claim(&identity, &fingerprint, token, LEASE).await, Ok(Claim::Claimed));
    store.complete(&identity, &fingerprint, token, &response(bytes), LEASE).await.unwrap();
    (identity, fingerprint)
}

async fn replay(store: &dyn IdempotencyStore, record: &(Identity, Fingerprint)) {
    let found = store.claim(&record.0, &record.1, ClaimToken::random(), LEASE).await;
    assert!(matches!(found, Ok(Claim::Completed(_))), "{found:?}");
}

/// `redis_version`.
pub fn redis_version(server: &RedisServer) -> String {
    field(&server.command(&["INFO", "server"]), "redis_version:").unwrap_or_default()
}

fn field(info: &str, name: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

/// Calls of a command so far.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let stats = field(&info, &format!("cmdstat_{command}:calls="));
    stats.and_then(|stats| stats.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// What Redis is asked for and what it keeps.
pub fn print_redis(server: &RedisServer) {
    println!();
    let store: Arc<dyn IdempotencyStore> = Arc::new(RedisStore::open(&server.url()).unwrap());
    block_on(async {
        for bytes in [2 << 10, 4 << 10] {
            server.flush();
            let record = keep(store.as_ref(), bytes).await;
            let key = "redis.call('MEMORY', 'USAGE', redis.call('KEYS', '*')[1])";
            let answer = server.command(&["EVAL", &format!("return {key}"), "0"]);
            let used = answer.trim().trim_start_matches(':');
            println!("Redis: a record with a body of {bytes} bytes takes {used} bytes (MEMORY USAGE)");
            replay(store.as_ref(), &record).await;
        }
        let record = keep(store.as_ref(), 200).await;
        replay(store.as_ref(), &record).await;
        // What is sent from outside is a script; what runs within it is no way over the network.
        let before = (calls(server, "evalsha"), calls(server, "eval"), calls(server, "script|load"));
        for _ in 0..TIMES {
            replay(store.as_ref(), &record).await;
        }
        let after = (calls(server, "evalsha"), calls(server, "eval"), calls(server, "script|load"));
        let sent = after.0 - before.0 + after.1 - before.1 + after.2 - before.2;
        println!("Redis: {sent} commands for {TIMES} replays");
        assert_eq!(sent, u64::from(TIMES), "a replay is one round trip");
    });
}

/// What PostgreSQL is asked for.
pub fn print_sql(server: &PrivateServer) {
    let database = server.database();
    let (proxy, url) = TcpProxy::before(database.url());
    block_on(async {
        let store = SqlStore::open(&url.parse().unwrap()).unwrap();
        store.create_tables().await.unwrap();
        let record = keep(&store, 200).await;
        let counted = |what: &str, before: [usize; 2]| {
            let now = messages(&proxy);
            let each = |place: usize| (now[place] - before[place]) as f64 / f64::from(TIMES);
            println!("PostgreSQL: {what}: {:.2} statements, {:.2} round trips", each(0), each(1));
            each(0)
        };
        let before = messages(&proxy);
        for _ in 0..TIMES {
            replay(&store, &record).await;
        }
        assert!((counted("a replay", before) - 1.0).abs() < f64::EPSILON, "a replay is one statement");
        let before = messages(&proxy);
        for _ in 0..TIMES {
            keep(&store, 200).await;
        }
        counted("a first request (claim and answer)", before);
    });
}

/// Executes and Syncs of clients so far.
fn messages(proxy: &TcpProxy) -> [usize; 2] {
    let counts = proxy.counts();
    [b'E', b'S'].map(|kind| counts.frontend_messages.get(&kind).copied().unwrap_or(0))
}
