//! Leases in Redis, for many processes: one Lua script a step, in one round trip.
//!
//! Owns the scripts and the names of the keys. Every key it writes has an expiry, set in the same step; a lock takes two keys
//! while it is held, and one for a minute after. The connection is a [`RedisLink`], which others may use as well. Fails with
//! [`LockStoreError`], within 2 s.
//!
//! What Redis does not promise, this store can't: a fail-over to a replica that lags behind, an eviction (set
//! `maxmemory-policy noeviction`) or a restart without a log loses locks. Their holders learn of it at the next renewal.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use redis::{FromRedisValue, Script};

use super::store::store_error;
use super::{LeaseTtl, LockName, LockStore, LockStoreError, Owner};
use crate::store::RedisLink;

/// A Redis server. Cheap to clone.
#[derive(Clone)]
pub struct RedisLockStore {
    link: RedisLink,
    acquire: Arc<Script>,
    renew: Arc<Script>,
    release: Arc<Script>,
}

impl RedisLockStore {
    /// A store in the server at `url` (`redis://HOST:PORT/NUMBER`). Connects to nothing yet.
    ///
    /// # Errors
    /// [`LockStoreError`] where the URL is wrong or no threads can be had. It never repeats the URL, which may hold a
    /// password.
    pub fn open(url: &str) -> Result<Self, LockStoreError> {
        Ok(Self::new(RedisLink::open(url).map_err(store_error)?))
    }

    /// A store behind a link that others may use as well: the idempotency layer, for one.
    pub fn new(link: RedisLink) -> Self {
        let script = |step| Arc::new(Script::new(&[include_str!("lease.lua"), step].concat()));
        Self {
            link,
            acquire: script(include_str!("acquire.lua")),
            renew: script(include_str!("renew.lua")),
            release: script(include_str!("release.lua")),
        }
    }

    async fn run<T>(
        &self,
        during: &'static str,
        name: &LockName,
        script: &Arc<Script>,
        arguments: Vec<String>,
    ) -> Result<T, LockStoreError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let arguments = arguments.into_iter().map(String::into_bytes).collect();
        self.link.run(during, script.clone(), keys(name), arguments).await.map_err(store_error)
    }
}

/// The owners and the number of a lock. The braces keep both on one node of a cluster.
fn keys(name: &LockName) -> Vec<Vec<u8>> {
    let name = name.as_str();
    let keys = [format!("casework:lock:{{{name}}}:owners"), format!("casework:lock:{{{name}}}:number")];
    keys.map(String::into_bytes).to_vec()
}

#[async_trait]
impl LockStore for RedisLockStore {
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError> {
        let arguments = vec![owner.to_string(), ttl.micros().to_string(), permits.to_string()];
        self.run("taking a lock in Redis", name, &self.acquire, arguments).await
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        let arguments = vec![owner.to_string(), ttl.micros().to_string()];
        self.run("renewing a lock in Redis", name, &self.renew, arguments).await
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        self.run("giving back a lock in Redis", name, &self.release, vec![owner.to_string()]).await
    }
}
