//! A runs past its lease, B takes the key over, and A comes to its end while B still works: whatever A says then is A's caller's
//! alone. On every store, with A failing and with A succeeding.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, Holding, IdempotencyOptions, IdempotencyStore, Identity, RecordedResponse,
    StoreFault,
};

use super::service::{Runs, Service, post};
use super::stores::on_every_store;
use crate::support::database::block_on;
use crate::support::wait::eventually_async;

const DEADLINE: Duration = Duration::from_secs(20);

/// A store to which no renewal comes through, as in a process that is paused.
struct Paused(Arc<dyn IdempotencyStore>);

#[async_trait]
impl IdempotencyStore for Paused {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        self.0.claim(identity, fingerprint, token, lease).await
    }

    async fn renew(&self, _: &Identity, _: &Fingerprint, _: ClaimToken, _: Duration) -> Result<Holding, StoreFault> {
        Err(StoreFault::Unavailable { during: "renewing", reason: "by order".into() })
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        self.0.complete(identity, fingerprint, token, response, lifetime).await
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        self.0.release(identity, token).await
    }
}

#[test]
fn an_owner_that_comes_late_leaves_the_next_one_alone_on_every_store() {
    on_every_store(|stores| {
        let options = IdempotencyOptions { claim_lease: Duration::from_millis(200), ..IdempotencyOptions::default() };
        let runs = Runs::default();
        let paused = Service::start_with(Arc::new(Paused(stores.first.clone())), options.clone(), runs.clone());
        let other = Service::start_with(stores.second.clone(), options, runs.clone());
        block_on(async {
            for code in [503, 201] {
                let (path, key) = (format!("/late/{code}/{code}"), format!("late-{code}"));
                let b = async {
                    eventually_async(DEADLINE, "A to run", || async { runs.of(&path) == 1 }).await;
                    loop {
                        let got = post(&other, &path, &key, "{}").await;
                        // Until A's lease is over.
                        if got.status != 202 {
                            break got;
                        }
                    }
                };
                let a_and_c = async {
                    let a = post(&paused, &path, &key, "{}").await;
                    let c = post(&paused, &path, &key, "{}").await;
                    runs.add(&format!("/go/{code}"));
                    (a, c)
                };
                let (b, (a, c)) = tokio::join!(b, a_and_c);
                let d = post(&paused, &path, &key, "{}").await;
                let seen = [a.status, c.status, b.status, d.status];
                if seen != [code, 202, 201, 201] || runs.of(&path) != 2 {
                    return Err(format!("A, C, B, D got {seen:?} in {} runs", runs.of(&path)));
                }
                if &a.body[..] != b"of the first owner" || b.is_replay() || !d.is_replay() || d.body != b.body {
                    return Err(format!("the wrong answers: A {a:?}, B {b:?}, D {d:?}"));
                }
            }
            Ok(())
        })
    });
}
