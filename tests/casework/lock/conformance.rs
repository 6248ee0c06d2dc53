//! What every store of a lock promises, as checks that return what they found: `planted` runs them on stores that are
//! wrong.
//!
//! Each check has two stores over the same leases, as two processes have, and keys of its own. That a lease has run out is
//! seen on another one that was taken later for as long: never by sleeping.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::lock::{LeaseTtl, LockName, LockStore, LockStoreError, Owner};
use futures_util::future::BoxFuture;
use tokio::sync::Barrier;

use super::fixture::{LONG, SOON};

/// What a check has found: nothing, or what is wrong in a sentence.
pub type Finding = Result<(), String>;

/// A check with its name.
pub type Check = (&'static str, for<'a> fn(&'a Stores) -> BoxFuture<'a, Finding>);

/// Short, and still long enough for a few steps on a busy machine where one must fall within it.
const SHORT: Duration = Duration::from_millis(200);

/// Two stores over the same leases.
#[derive(Clone)]
pub struct Stores {
    pub first: Arc<dyn LockStore>,
    pub second: Arc<dyn LockStore>,
}

macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}

macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$((stringify!($name), |stores| Box::pin($name(stores)))),+];
    };
}

checks![
    one_owner_at_a_time_and_a_release_opens_at_once,
    numbers_grow_over_releases_and_expiries,
    an_owner_whose_lease_ran_out_does_not_release_the_next_ones,
    an_owner_whose_lease_ran_out_does_not_extend_the_next_ones,
    a_lease_that_ran_out_is_neither_renewed_nor_released,
    a_renewed_lease_lasts_anew,
    permits_are_counted_and_one_that_ran_out_is_taken_over,
    of_64_at_once_as_many_get_it_as_there_are_permits,
    namespace_and_key_do_not_run_into_each_other,
    any_key_is_a_key,
    a_step_that_is_sent_again_takes_nothing_twice,
    a_very_long_lease_is_a_lease,
];

on_every_store! {
    /// All checks, on two stores with connections of their own.
    async fn every_store_does_as_promised(home: &StoreHome) {
        let stores = Stores { first: home.open().await, second: home.open().await };
        for (name, check) in CHECKS {
            if let Err(found) = check(&stores).await {
                panic!("{name}: {found}");
            }
        }
    }
}

fn name(key: &str) -> LockName {
    LockName::new("conformance", key).unwrap()
}

fn words(error: LockStoreError) -> String {
    error.to_string()
}

async fn acquire(store: &Arc<dyn LockStore>, name: &LockName, ttl: Duration) -> Result<Option<(Owner, u64)>, String> {
    acquire_one_of(store, name, ttl, 1).await
}

async fn acquire_one_of(
    store: &Arc<dyn LockStore>,
    name: &LockName,
    ttl: Duration,
    permits: u32,
) -> Result<Option<(Owner, u64)>, String> {
    let owner = Owner::random();
    let number = store.acquire(name, owner, LeaseTtl::new(ttl).unwrap(), NonZeroU32::new(permits).unwrap()).await;
    Ok(number.map_err(words)?.map(|number| (owner, number)))
}

/// Takes a lock that must be free.
async fn take(store: &Arc<dyn LockStore>, name: &LockName, ttl: Duration) -> Result<(Owner, u64), String> {
    acquire(store, name, ttl).await?.ok_or_else(|| format!("{name:?} is free, and was not given"))
}

/// Takes a lock as soon as it is free.
async fn take_when_free(store: &Arc<dyn LockStore>, name: &LockName, ttl: Duration) -> Result<(Owner, u64), String> {
    let started = Instant::now();
    loop {
        if let Some(taken) = acquire(store, name, ttl).await? {
            return Ok(taken);
        }
        ensure!(started.elapsed() < SOON, "{name:?} did not get free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn renew(store: &Arc<dyn LockStore>, name: &LockName, owner: Owner, ttl: Duration) -> Result<bool, String> {
    store.renew(name, owner, LeaseTtl::new(ttl).unwrap()).await.map_err(words)
}

async fn release(store: &Arc<dyn LockStore>, name: &LockName, owner: Owner) -> Result<bool, String> {
    store.release(name, owner).await.map_err(words)
}

async fn one_owner_at_a_time_and_a_release_opens_at_once(stores: &Stores) -> Finding {
    let name = name("one owner");
    let (a, _) = take(&stores.first, &name, LONG).await?;
    ensure!(acquire(&stores.second, &name, LONG).await?.is_none(), "two have it");
    ensure!(acquire(&stores.first, &name, LONG).await?.is_none(), "two have it through one store");
    ensure!(release(&stores.first, &name, a).await?, "the owner's release found no lease");
    let (b, _) = take(&stores.second, &name, LONG).await?;
    ensure!(!release(&stores.first, &name, a).await?, "the first owner released a second time");
    ensure!(acquire(&stores.first, &name, LONG).await?.is_none(), "a second release opened it");
    ensure!(release(&stores.first, &name, b).await?, "an owner may use another process's store");
    Ok(())
}

async fn numbers_grow_over_releases_and_expiries(stores: &Stores) -> Finding {
    let name = name("numbers");
    let mut last = 0;
    for round in 0..10 {
        let store = if round % 2 == 0 { &stores.first } else { &stores.second };
        let ttl = if round == 4 { Duration::from_millis(20) } else { LONG };
        let (owner, number) = take_when_free(store, &name, ttl).await?;
        ensure!(number > last, "round {round}: {number} after {last}");
        last = number;
        if round != 4 {
            ensure!(release(store, &name, owner).await?, "the owner's release found no lease");
        }
    }
    Ok(())
}

async fn an_owner_whose_lease_ran_out_does_not_release_the_next_ones(stores: &Stores) -> Finding {
    let name = name("late release");
    let (a, number) = take(&stores.first, &name, SHORT).await?;
    let (b, next) = take_when_free(&stores.second, &name, LONG).await?;
    ensure!(next > number, "{next} after {number}");
    ensure!(!release(&stores.first, &name, a).await?, "the old owner's release found a lease");
    ensure!(acquire(&stores.first, &name, LONG).await?.is_none(), "the old owner's release opened the lock");
    ensure!(release(&stores.second, &name, b).await?, "the new owner's lease is gone");
    Ok(())
}

async fn an_owner_whose_lease_ran_out_does_not_extend_the_next_ones(stores: &Stores) -> Finding {
    let name = name("late renewal");
    let (a, _) = take(&stores.first, &name, SHORT).await?;
    take_when_free(&stores.second, &name, Duration::from_secs(1)).await?;
    ensure!(!renew(&stores.first, &name, a, 10 * SOON).await?, "the old owner's renewal found a lease");
    take_when_free(&stores.first, &name, LONG).await?;
    Ok(())
}

async fn a_lease_that_ran_out_is_neither_renewed_nor_released(stores: &Stores) -> Finding {
    // Alone, and beside one that lives: then the store still has something under that name.
    for (permits, case) in [(1, "alone"), (2, "beside another")] {
        let (name, later) = (name(&format!("ran out {case}")), name(&format!("ran out {case}, later")));
        if permits == 2 {
            take(&stores.second, &name, LONG).await?;
        }
        let taken = acquire_one_of(&stores.first, &name, SHORT, permits).await?;
        let (a, _) = taken.ok_or("a permit is free, and was not given")?;
        take(&stores.first, &later, SHORT).await?;
        take_when_free(&stores.second, &later, LONG).await?;
        ensure!(!renew(&stores.first, &name, a, LONG).await?, "it was renewed, {case}");
        ensure!(!release(&stores.first, &name, a).await?, "it was there to release, {case}");
        ensure!(acquire_one_of(&stores.second, &name, LONG, permits).await?.is_some(), "its permit is gone, {case}");
    }
    Ok(())
}

async fn a_renewed_lease_lasts_anew(stores: &Stores) -> Finding {
    let (name, later) = (name("renewed"), name("renewed later"));
    // Long enough for the renewal to fall within it.
    let ttl = Duration::from_secs(2);
    let (a, _) = take(&stores.first, &name, ttl).await?;
    take(&stores.first, &later, ttl).await?;
    ensure!(renew(&stores.second, &name, a, LONG).await?, "the owner's renewal found no lease");
    take_when_free(&stores.second, &later, LONG).await?;
    ensure!(acquire(&stores.second, &name, LONG).await?.is_none(), "it ran out though it was renewed");
    ensure!(release(&stores.first, &name, a).await?, "the owner's release found no lease");
    Ok(())
}

async fn permits_are_counted_and_one_that_ran_out_is_taken_over(stores: &Stores) -> Finding {
    let name = name("permits");
    let mut owners = Vec::new();
    for ttl in [LONG, SHORT, LONG] {
        let taken = acquire_one_of(&stores.first, &name, ttl, 3).await?;
        owners.push(taken.ok_or("a permit is free, and was not given")?);
    }
    let started = Instant::now();
    let next = loop {
        if let Some(taken) = acquire_one_of(&stores.second, &name, LONG, 3).await? {
            break taken;
        }
        ensure!(started.elapsed() < SOON, "the permit that ran out was not taken over");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    ensure!(!release(&stores.first, &name, owners[1].0).await?, "a permit that was taken over was released");
    ensure!(acquire_one_of(&stores.second, &name, LONG, 3).await?.is_none(), "four have one of three permits");
    ensure!(release(&stores.second, &name, owners[0].0).await?, "the owner's release found no lease");
    let last = acquire_one_of(&stores.second, &name, LONG, 3).await?.ok_or("a permit is free, and was not given")?;
    owners.extend([next, last]);
    let numbers: Vec<_> = owners.iter().map(|(_, number)| *number).collect();
    ensure!(numbers.is_sorted_by(|a, b| a < b), "numbers do not grow: {numbers:?}");
    Ok(())
}

async fn of_64_at_once_as_many_get_it_as_there_are_permits(stores: &Stores) -> Finding {
    for (round, permits) in [1, 1, 1, 1, 3, 3, 63].into_iter().enumerate() {
        let name = name(&format!("at once {round}"));
        let barrier = Arc::new(Barrier::new(64));
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let store = if task % 2 == 0 { stores.first.clone() } else { stores.second.clone() };
                let (name, barrier) = (name.clone(), barrier.clone());
                tokio::spawn(async move {
                    barrier.wait().await;
                    acquire_one_of(&store, &name, LONG, permits).await
                })
            })
            .collect();
        let mut numbers = Vec::new();
        for task in tasks {
            numbers.extend(task.await.map_err(|error| error.to_string())??.map(|(_, number)| number));
        }
        ensure!(numbers.len() == permits as usize, "{} of 64 got one of {permits} permits", numbers.len());
        numbers.sort_unstable();
        numbers.dedup();
        ensure!(numbers.len() == permits as usize, "two holders have one number");
    }
    Ok(())
}

async fn namespace_and_key_do_not_run_into_each_other(stores: &Stores) -> Finding {
    for (namespace, key) in [("a:b", "c"), ("a", "b:c"), ("", "a:b:c"), ("a:b:c", ""), ("A", "b:c")] {
        take(&stores.first, &LockName::new(namespace, key).unwrap(), LONG).await?;
    }
    Ok(())
}

async fn any_key_is_a_key(stores: &Stores) -> Finding {
    for key in ["", "\0", "ünï \u{202e}", "'; --", "{}", "*", &"k".repeat(100_000)] {
        let name = LockName::new("odd {keys}", key).unwrap();
        let (a, _) = take(&stores.first, &name, LONG).await?;
        ensure!(acquire(&stores.second, &name, LONG).await?.is_none(), "two have {key:?}");
        ensure!(renew(&stores.second, &name, a, LONG).await?, "{key:?} is not renewed");
        ensure!(release(&stores.second, &name, a).await?, "{key:?} is not released");
    }
    Ok(())
}

async fn a_step_that_is_sent_again_takes_nothing_twice(stores: &Stores) -> Finding {
    let name = name("again");
    let (owner, ttl) = (Owner::random(), LeaseTtl::new(LONG).unwrap());
    let two = NonZeroU32::new(2).unwrap();
    let first = stores.first.acquire(&name, owner, ttl, two).await.map_err(words)?;
    let again = stores.second.acquire(&name, owner, ttl, two).await.map_err(words)?;
    ensure!(first.is_some() && again > first, "{again:?} after {first:?}");
    ensure!(acquire_one_of(&stores.first, &name, LONG, 2).await?.is_some(), "one owner took both permits");
    let again = stores.first.acquire(&name, owner, ttl, two).await.map_err(words)?;
    ensure!(again.is_some(), "an owner is in its own way");
    ensure!(release(&stores.first, &name, owner).await?, "the owner's release found no lease");
    ensure!(!release(&stores.first, &name, owner).await?, "one release was not enough");
    Ok(())
}

async fn a_very_long_lease_is_a_lease(stores: &Stores) -> Finding {
    let name = name("long");
    let (a, _) = take(&stores.first, &name, Duration::MAX).await?;
    ensure!(renew(&stores.first, &name, a, Duration::MAX).await?, "the owner's renewal found no lease");
    ensure!(acquire(&stores.second, &name, LONG).await?.is_none(), "two have it");
    ensure!(release(&stores.first, &name, a).await?, "the owner's release found no lease");
    take(&stores.second, &name, LONG).await?;
    Ok(())
}
