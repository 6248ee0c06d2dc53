//! Leases in Redis, for many processes: one Lua script a step, in one round trip.
//!
//! Owns one connection, which opens itself again, on a runtime of its own. Every key it writes has an expiry, set in the same
//! step; a lock takes two keys while it is held, and one for a minute after. Fails with [`LockStoreError`], within
//! [`STEP_TIMEOUT`] at the latest.
//!
//! What Redis does not promise, this store can't: a fail-over to a replica that lags behind, an eviction (set
//! `maxmemory-policy noeviction`) or a restart without a log loses locks. Their holders learn of it at the next renewal.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use super::{LeaseTtl, LockName, LockStore, LockStoreError, Owner};
use crate::store::DatabaseRuntime;

/// How long a step may take, connecting and a second try included.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long connecting may take, and how long an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A Redis server. Cheap to clone.
#[derive(Clone)]
pub struct RedisLockStore {
    connection: ConnectionManager,
    scripts: Arc<Scripts>,
    runtime: Arc<DatabaseRuntime>,
}

struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
}

impl RedisLockStore {
    /// A store in the server at `url` (`redis://HOST:PORT/NUMBER`). Connects to nothing yet.
    ///
    /// # Errors
    /// [`LockStoreError`] where the URL is wrong or no threads can be had. It never repeats the URL, which may hold a
    /// password.
    pub fn open(url: &str) -> Result<Self, LockStoreError> {
        let during = "reading the Redis URL";
        let runtime = DatabaseRuntime::start()
            .map_err(|error| LockStoreError::Unavailable { during, reason: error.to_string() })?;
        // A second try is made here and not in the connection, whose own tries would wait in between.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let connection = {
            // The tasks of the connection belong to this runtime.
            let _entered = runtime.handle().enter();
            Client::open(url).and_then(|client| ConnectionManager::new_lazy_with_config(client, config))
        };
        let connection = connection.map_err(|error| store_error(during, &error))?;
        Ok(Self { connection, scripts: Arc::new(Scripts::new()), runtime })
    }

    /// Runs a script, a second time when the connection turns out to be broken: it may have been so since before this step,
    /// and every step can be sent again.
    async fn run<T>(
        &self,
        during: &'static str,
        name: &LockName,
        script: fn(&Scripts) -> &Script,
        arguments: Vec<String>,
    ) -> Result<T, LockStoreError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let (mut connection, scripts) = (self.connection.clone(), self.scripts.clone());
        let [holders, number] = keys(name);
        let task = self.runtime.handle().spawn(async move {
            let mut step = script(&scripts).key(holders);
            step.key(number).arg(arguments);
            match step.invoke_async(&mut connection).await {
                Err(error) if error.is_connection_dropped() => step.invoke_async(&mut connection).await,
                answered => answered,
            }
        });
        match tokio::time::timeout(STEP_TIMEOUT, task).await {
            Ok(Ok(answered)) => answered.map_err(|error| store_error(during, &error)),
            Ok(Err(ended)) => Err(LockStoreError::Unavailable { during, reason: ended.to_string() }),
            Err(_) => {
                let reason = format!("no answer within {} s", STEP_TIMEOUT.as_secs());
                Err(LockStoreError::Unavailable { during, reason })
            }
        }
    }
}

impl Scripts {
    fn new() -> Self {
        let script = |step| Script::new(&[include_str!("lease.lua"), step].concat());
        Self {
            acquire: script(include_str!("acquire.lua")),
            renew: script(include_str!("renew.lua")),
            release: script(include_str!("release.lua")),
        }
    }
}

/// The owners and the number of a lock. The braces keep both on one node of a cluster.
fn keys(name: &LockName) -> [String; 2] {
    let name = name.as_str();
    [format!("casework:lock:{{{name}}}:owners"), format!("casework:lock:{{{name}}}:number")]
}

/// What an error means: only what the server said about the step itself refuses it.
fn store_error(during: &'static str, error: &RedisError) -> LockStoreError {
    let reason = error.to_string();
    let refused = match error.kind() {
        ErrorKind::Server(kind) => !matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::NoScript
        ),
        // Out of memory, a disk that fails, too few replicas, a script that runs for long: all may pass.
        ErrorKind::Extension => !matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY")),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::UnexpectedReturnType => true,
        _ => false,
    };
    if refused { LockStoreError::Refused { during, reason } } else { LockStoreError::Unavailable { during, reason } }
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
        self.run("taking a lock in Redis", name, |scripts| &scripts.acquire, arguments).await
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        let arguments = vec![owner.to_string(), ttl.micros().to_string()];
        self.run("renewing a lock in Redis", name, |scripts| &scripts.renew, arguments).await
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        self.run("giving back a lock in Redis", name, |scripts| &scripts.release, vec![owner.to_string()]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_is_refused_without_repeating_it() {
        for url in ["", "nonsense", "http://user:s3cret@127.0.0.1", "redis://user:s3cret@127.0.0.1:port"] {
            let Err(LockStoreError::Refused { reason, .. }) = RedisLockStore::open(url) else {
                panic!("{url:?} should be refused");
            };
            assert!(!reason.contains("s3cret"), "{reason}");
        }
    }
}
