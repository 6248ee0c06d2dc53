//! Each event of the layer and of the lock moves its own counter in a registry of the service's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, Holding, IdempotencyOptions, IdempotencyStore, Identity, MemoryBounds, MemoryStore,
    RecordedResponse, StoreFault,
};
use casework::lock::{DEFAULT_NAMESPACE, Held, MemoryLockStore, SemaphoreLock};
use prometheus::{Encoder as _, Registry, TextEncoder};

use super::service::{Service, post};
use crate::lock::fixture::{LONG, Troubled};
use crate::support::database::block_on;
use crate::support::wait::eventually_async;

const DEADLINE: Duration = Duration::from_secs(20);

/// A memory store that forgets who it gave a key to, by order.
struct Forgetful {
    store: MemoryStore,
    forgets: AtomicBool,
}

#[async_trait]
impl IdempotencyStore for Forgetful {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        self.store.claim(identity, fingerprint, token, lease).await
    }

    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault> {
        self.store.renew(identity, fingerprint, token, lease).await
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        let token = if self.forgets.load(Ordering::SeqCst) { ClaimToken::random() } else { token };
        self.store.complete(identity, fingerprint, token, response, lifetime).await
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        self.store.release(identity, token).await
    }
}

/// The lines of a counter that are not zero, as `event value`.
fn moved(registry: &Registry, name: &str) -> Vec<String> {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let values = text.lines().filter(|line| line.starts_with(name)).map(|line| {
        let (_, event) = line.split_once("event=\"").unwrap();
        let (event, rest) = event.split_once('"').unwrap();
        (event.to_owned(), rest.rsplit_once(' ').unwrap().1.to_owned())
    });
    let mut moved: Vec<_> =
        values.filter(|(_, value)| value != "0").map(|(event, value)| format!("{event} {value}")).collect();
    moved.sort();
    moved
}

#[test]
fn each_event_of_the_layer_moves_its_counter() {
    let bounds = MemoryBounds { records_max: 9, ..MemoryBounds::default() };
    let store = Arc::new(Forgetful { store: MemoryStore::new(bounds), forgets: AtomicBool::new(false) });
    let service = Service::start(store.clone(), IdempotencyOptions::default());
    let registry = Registry::new();
    service.layer.register(&registry, "payments").unwrap();
    assert!(service.layer.register(&registry, "payments").is_err(), "one name, one layer");
    service.layer.register(&registry, "refunds").unwrap();
    let registry = Registry::new();
    service.layer.register(&registry, "payments").unwrap();
    let mut seen: Vec<String> = Vec::new();
    // What has moved since the last look.
    let mut news = || {
        let now = moved(&registry, "casework_idempotency_events_total");
        let news: Vec<_> = now.iter().filter(|line| !seen.contains(line)).cloned().collect();
        seen = now;
        news
    };
    block_on(async {
        assert_eq!(news(), Vec::<String>::new());
        post(&service, "/created", "a", "{}").await;
        assert_eq!(news(), ["claimed 1"]);
        post(&service, "/created", "a", "{}").await;
        assert_eq!(news(), ["replayed 1"]);
        post(&service, "/created", "a", "[]").await;
        assert_eq!(news(), ["mismatched 1"]);
        post(&service, "/created", "b", "{}").await;
        assert_eq!(news(), ["claimed 2", "same_under_new_key 1"]);
        post(&service, "/then/503", "c", "{}").await;
        assert_eq!(news(), ["claimed 3", "released 1"]);
        post(&service, "/bytes/65537", "d", "{}").await;
        assert_eq!(news(), ["claimed 4", "tombstone 1"]);
        let (_, again) = tokio::join!(post(&service, "/slow/500", "e", "{}"), async {
            eventually_async(DEADLINE, "the first to run", || async { service.runs.of("/slow/500") == 1 }).await;
            post(&service, "/slow/500", "e", "{}").await
        });
        assert_eq!((again.status, news()), (202, vec!["claimed 5".to_owned(), "in_flight 1".to_owned()]));
        store.forgets.store(true, Ordering::SeqCst);
        post(&service, "/status/200", "f", "{}").await;
        assert_eq!(news(), ["claimed 6", "lost 1", "not_stored 1"]);
        store.forgets.store(false, Ordering::SeqCst);
        // Nine records fit; four are there: a, b, d, e and the claim of f.
        for key in ["g", "h", "i", "j"] {
            assert_eq!(post(&service, &format!("/as/{key}"), key, "{}").await.status, 200);
        }
        assert_eq!(news(), ["claimed 10"]);
        post(&service, "/as/k", "k", "{}").await.expect_problem(503, "overloaded");
        assert_eq!(news(), ["unavailable 1"]);
    });
    let counts = service.layer.counts();
    let all: Vec<_> = counts.events().iter().map(|(event, count)| format!("{event} {count}")).collect();
    assert!(counts.events().iter().all(|(_, count)| *count > 0), "an event that nothing here moved: {all:?}");
}

#[test]
fn each_event_of_the_lock_moves_its_counter() {
    let store = Troubled::new(Arc::<MemoryLockStore>::default());
    let lock = SemaphoreLock::new(store.clone());
    let registry = Registry::new();
    lock.register(&registry, "lessons").unwrap();
    assert!(lock.register(&registry, "lessons").is_err(), "one name, one lock");
    let events = || moved(&registry, "casework_lock_events_total");
    block_on(async {
        assert_eq!(events(), Vec::<String>::new());
        let work = |_| async {
            let skipped = lock.with_semaphore_lock("62", LONG, DEFAULT_NAMESPACE, |_| async {}).await;
            assert!(skipped.is_ok_and(|outcome| outcome == casework::lock::LockOutcome::Skipped));
        };
        let _ = lock.with_semaphore_lock("62", LONG, DEFAULT_NAMESPACE, work).await.unwrap();
        assert_eq!(events(), ["locked 1", "skipped 1"]);
        lock.violation("62");
        assert_eq!(events(), ["locked 1", "skipped 1", "violation 1"]);
        store.no_renewals.store(true, Ordering::SeqCst);
        let work = |held: Held| async move { held.lost().await };
        let _ = lock.with_semaphore_lock("62", Duration::from_millis(200), DEFAULT_NAMESPACE, work).await.unwrap();
        assert_eq!(events(), ["locked 2", "lost 1", "skipped 1", "violation 1"]);
    });
    assert!(lock.counts().events().iter().all(|(_, count)| *count > 0));
}
