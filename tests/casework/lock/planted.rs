//! Stores with the bugs that others have had. The conformance checks must find each, or they prove nothing.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use casework::lock::{LeaseTtl, LockName, LockStore, LockStoreError, MemoryLockStore, Owner};

use super::conformance::{CHECKS, Stores};
use crate::support::database::block_on;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// Deletes the lock, whoever holds it.
    ReleaseWithoutOwner,
    /// Extends the lock, whoever holds it.
    RenewWithoutOwner,
    /// Looks whether it is free, and takes it a moment later.
    GetThenSet,
    /// Each key counts its holders from one when it was free.
    NumbersStartAgain,
    /// The lease has no end: lock and expiry are two steps, and the second one was not reached.
    NoExpiry,
    /// A lease that ran out comes back to life.
    RenewalRevives,
    /// The key alone is the name: services that share a store share their locks.
    NamespaceLeftOut,
}

/// A store in memory with a bug.
struct PlantedStore {
    bug: Bug,
    store: MemoryLockStore,
    /// Who took each lock last, and until when.
    holders: Mutex<HashMap<LockName, Vec<(Owner, Instant)>>>,
}

impl PlantedStore {
    fn new(bug: Bug) -> Self {
        Self { bug, store: MemoryLockStore::default(), holders: Mutex::default() }
    }

    /// The name that a step is taken under.
    fn stored(&self, name: &LockName) -> LockName {
        // `LENGTH:NAMESPACE:KEY`, with the length of the namespace.
        let key = &name.as_str()[name.as_str().find(':').unwrap() + 1 + name.namespace().len() + 1..];
        if self.bug == Bug::NamespaceLeftOut { LockName::new("", key).unwrap() } else { name.clone() }
    }

    fn last_holder(&self, name: &LockName) -> Option<Owner> {
        Some(self.holders.lock().unwrap().get(name)?.last()?.0)
    }

    fn others(&self, name: &LockName, owner: Owner) -> usize {
        let now = Instant::now();
        let holders = self.holders.lock().unwrap();
        let holders = holders.get(name).into_iter().flatten();
        holders.filter(|(holder, until)| *holder != owner && *until > now).count()
    }

    fn note(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) {
        let mut holders = self.holders.lock().unwrap();
        let holders = holders.entry(name.clone()).or_default();
        holders.retain(|(holder, _)| *holder != owner);
        holders.push((owner, Instant::now() + ttl.duration()));
    }

    fn forget(&self, name: &LockName, owner: Owner) {
        if let Some(holders) = self.holders.lock().unwrap().get_mut(name) {
            holders.retain(|(holder, _)| *holder != owner);
        }
    }
}

#[async_trait]
impl LockStore for PlantedStore {
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError> {
        let (mut given, mut allowed) = (ttl, permits);
        let name = &self.stored(name);
        match self.bug {
            Bug::GetThenSet => {
                if self.others(name, owner) >= permits.get() as usize {
                    return Ok(None);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                allowed = NonZeroU32::MAX;
            }
            Bug::NoExpiry => given = LeaseTtl::new(Duration::MAX).unwrap(),
            _ => {}
        }
        let number = self.store.acquire(name, owner, given, allowed).await?;
        let Some(number) = number else { return Ok(None) };
        let first = self.others(name, owner) == 0;
        self.note(name, owner, ttl);
        Ok(Some(if self.bug == Bug::NumbersStartAgain && first { 1 } else { number }))
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        let name = &self.stored(name);
        let owner = match self.bug {
            Bug::RenewWithoutOwner => self.last_holder(name).unwrap_or(owner),
            Bug::RenewalRevives if self.others(name, owner) == 0 => {
                return Ok(self.store.acquire(name, owner, ttl, NonZeroU32::MIN).await?.is_some());
            }
            _ => owner,
        };
        let renewed = self.store.renew(name, owner, ttl).await?;
        if renewed {
            self.note(name, owner, ttl);
        }
        Ok(renewed)
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        let name = &self.stored(name);
        let owner = match self.bug {
            Bug::ReleaseWithoutOwner => self.last_holder(name).unwrap_or(owner),
            _ => owner,
        };
        self.forget(name, owner);
        self.store.release(name, owner).await
    }
}

/// The names of the checks that find something.
async fn findings(bug: Bug) -> Vec<&'static str> {
    // A check that waits in vain for what the bug prevents has found it as well.
    let patience = Duration::from_secs(if bug == Bug::None { 120 } else { 10 });
    let checks = CHECKS.iter().map(|(name, check)| async move {
        let store = Arc::new(PlantedStore::new(bug));
        let stores = Stores { first: store.clone(), second: store };
        let passed = matches!(tokio::time::timeout(patience, check(&stores)).await, Ok(Ok(())));
        (!passed).then_some(*name)
    });
    futures_util::future::join_all(checks).await.into_iter().flatten().collect()
}

fn check(bug: Bug, finder: &str) {
    let found = block_on(findings(bug));
    assert!(found.contains(&finder), "{bug:?} is not found by {finder}, only by {found:?}");
}

#[test]
fn a_store_without_a_bug_passes() {
    assert_eq!(block_on(findings(Bug::None)), [""; 0]);
}

#[test]
fn a_release_without_owner_is_found() {
    check(Bug::ReleaseWithoutOwner, "an_owner_whose_lease_ran_out_does_not_release_the_next_ones");
}

#[test]
fn a_renewal_without_owner_is_found() {
    check(Bug::RenewWithoutOwner, "an_owner_whose_lease_ran_out_does_not_extend_the_next_ones");
}

#[test]
fn taking_by_get_then_set_is_found() {
    check(Bug::GetThenSet, "of_64_at_once_as_many_get_it_as_there_are_permits");
}

#[test]
fn numbers_that_start_again_are_found() {
    check(Bug::NumbersStartAgain, "numbers_grow_over_releases_and_expiries");
}

#[test]
fn a_lease_without_an_end_is_found() {
    check(Bug::NoExpiry, "an_owner_whose_lease_ran_out_does_not_release_the_next_ones");
}

#[test]
fn a_renewal_that_revives_is_found() {
    check(Bug::RenewalRevives, "a_lease_that_ran_out_is_neither_renewed_nor_released");
}

#[test]
fn names_without_their_namespace_are_found() {
    check(Bug::NamespaceLeftOut, "namespace_and_key_do_not_run_into_each_other");
}
