//! A lease from the moment it is got until it is given back or lost.
//!
//! Owns renewal and release. Never trusts a lease longer than `ttl` after the last step that the store confirmed, counted
//! from before that step was sent. Never blocks a thread: giving back is a task of the lock's own runtime. Cannot fail; what
//! the store refuses is logged, and the lease runs out by itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::semaphore::Shared;
use super::{LeaseTtl, LockName, Owner};

/// A lease is renewed after this part of its time: two tries may fail.
const RENEWALS_PER_TTL: u32 = 3;
/// After a renewal that got no answer, the next one comes after this part of the time, within the bounds below.
const RETRIES_PER_TTL: u32 = 20;
/// The shortest wait between two tries.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest wait between two tries.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a caller waits for its lease to be given back. A store that takes longer is told in the background.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// What a store is asked for.
#[derive(Clone)]
pub(super) struct Claim {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) ttl: LeaseTtl,
}

/// How a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Held until then, unless renewed.
    Held { until: Instant },
    /// Another owner may have it.
    Lost,
    /// The closure has ended.
    GivenBack,
}

/// What the closure is told of its lease. Clones may outlive it; they then say that it is not held.
#[derive(Debug, Clone)]
pub struct Held {
    fencing_number: u64,
    standing: watch::Receiver<Standing>,
}

impl Held {
    /// Larger than that of every earlier holder of this key. Give it to what you write to, and let that refuse lower ones.
    pub fn fencing_number(&self) -> u64 {
        self.fencing_number
    }

    /// Whether the lease is held now, as far as can be known without asking: a look before a step that costs much, no
    /// protection of it.
    pub fn is_held(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Held { until } if Instant::now() < until)
    }

    /// Resolves when the lease is lost: a renewal found that it is not this owner's any more, or the store could not be
    /// reached until it was over. A clone that outlives the closure is told so as well.
    pub async fn lost(&self) {
        let mut standing = self.standing.clone();
        // An error: the lease is gone, and with it who could change how it stands.
        let _ = standing.wait_for(|standing| !matches!(standing, Standing::Held { .. })).await;
    }
}

/// A lease in use. Dropping it gives it back in the background.
pub(super) struct Lease {
    shared: Arc<Shared>,
    claim: Claim,
    held: Held,
    standing: Arc<watch::Sender<Standing>>,
    renewal: AbortHandle,
}

impl Lease {
    /// A lease that a store gave when it was asked at `asked`. From now on it is renewed.
    pub(super) fn start(shared: Arc<Shared>, claim: Claim, fencing_number: u64, asked: Instant) -> Self {
        let until = asked + claim.ttl.duration();
        let (sender, receiver) = watch::channel(Standing::Held { until });
        let standing = Arc::new(sender);
        let renewal = shared.spawn(keep(shared.clone(), claim.clone(), standing.clone(), until));
        Self { shared, claim, held: Held { fencing_number, standing: receiver }, standing, renewal }
    }

    /// What the closure is given.
    pub(super) fn held(&self) -> Held {
        self.held.clone()
    }

    /// Gives the lease back, and returns when the store has it or takes long.
    pub(super) async fn release(self) {
        let released = self.give_back();
        if let Some(released) = released {
            // An error says no more than that the task has ended.
            let _ = released.await;
        }
    }

    /// Starts giving back; `None` when that was done before.
    fn give_back(&self) -> Option<oneshot::Receiver<()>> {
        if self.standing.send_replace(Standing::GivenBack) == Standing::GivenBack {
            return None;
        }
        self.renewal.abort();
        let (sender, receiver) = oneshot::channel();
        let (shared, claim) = (self.shared.clone(), self.claim.clone());
        self.shared.spawn(async move {
            let mut release = pin!(shared.store.release(&claim.name, claim.owner));
            let in_time = timeout(RELEASE_WAIT, release.as_mut()).await;
            drop(sender);
            let released = match in_time {
                Ok(released) => released,
                Err(_) => release.await,
            };
            if let Err(error) = released {
                let (namespace, key) = (claim.name.namespace(), claim.name.digest());
                tracing::warn!(
                    lock.namespace = namespace, lock.key = key, %error,
                    "a lock was not given back; it opens when its lease runs out"
                );
            }
        });
        Some(receiver)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Renews a lease until it is given back or lost.
async fn keep(shared: Arc<Shared>, claim: Claim, standing: Arc<watch::Sender<Standing>>, mut until: Instant) {
    let ttl = claim.ttl.duration();
    let retry_pause = (ttl / RETRIES_PER_TTL).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
    let mut next = Instant::now() + ttl / RENEWALS_PER_TTL;
    let mut last_error = "the renewal came too late".to_owned();
    let why = loop {
        sleep_until(next.min(until)).await;
        let asked = Instant::now();
        if asked >= until {
            break last_error;
        }
        match timeout_at(until, shared.store.renew(&claim.name, claim.owner, claim.ttl)).await {
            Ok(Ok(true)) => {
                until = asked + ttl;
                next = asked + ttl / RENEWALS_PER_TTL;
                let renewed = standing.send_if_modified(|standing| {
                    let is_held = matches!(standing, Standing::Held { .. });
                    if is_held {
                        *standing = Standing::Held { until };
                    }
                    is_held
                });
                if !renewed {
                    return;
                }
            }
            Ok(Ok(false)) => break "the lease is not this owner's any more".to_owned(),
            Ok(Err(error)) => {
                last_error = error.to_string();
                next = Instant::now() + retry_pause;
            }
            Err(_) => break "the store did not answer before the lease was over".to_owned(),
        }
    };
    let lost = standing.send_if_modified(|standing| {
        let is_held = matches!(standing, Standing::Held { .. });
        if is_held {
            *standing = Standing::Lost;
        }
        is_held
    });
    // Given back meanwhile: nobody holds it, so nobody has lost it.
    if lost {
        shared.counters.lost.add_one();
        let (namespace, key) = (claim.name.namespace(), claim.name.digest());
        tracing::warn!(lock.namespace = namespace, lock.key = key, why, "a lock was lost while its work went on");
    }
}
