//! A Redis and the runtime that its connection lives on.
//!
//! Owns connecting, connecting again and how long a step may take. A step is one script: it happens whole or not at all,
//! and is sent a second time where the connection broke under it, so scripts must bear that. Never knows what is stored.
//! Fails with [`StoreError`], within [`STEP_TIMEOUT`]: whoever asks has a client waiting.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use super::errors::describe;
use super::{DatabaseRuntime, StoreError};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a step may take, connecting and a second try included.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A connection to one Redis, opened when it is needed. Cheap to clone.
#[derive(Clone)]
pub struct RedisLink {
    connection: ConnectionManager,
    runtime: Arc<DatabaseRuntime>,
}

impl RedisLink {
    /// Reads a URL, `redis://[user:password@]host:port/number`; connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the URL is wrong, [`StoreError::Unavailable`] where no threads can be had.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        // Never the URL itself: it may hold a password.
        let refused = |error: RedisError| StoreError::Refused {
            during: "reading the Redis URL",
            reason: format!("{}; it is given as redis://HOST:PORT", describe(&error)),
        };
        let client = Client::open(url).map_err(refused)?;
        let runtime = DatabaseRuntime::start()?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_min_delay(RECONNECT_PAUSE)
            .set_number_of_retries(1);
        // A connection's tasks run where it is made.
        let _entered = runtime.handle().enter();
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(refused)?;
        Ok(Self { connection, runtime })
    }

    /// Runs a script, from any thread or runtime. `during` names it, in words.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Unavailable`] the step may have been taken all the same.
    pub async fn run<T>(
        &self,
        during: &'static str,
        script: Arc<Script>,
        keys: Vec<Vec<u8>>,
        arguments: Vec<Vec<u8>>,
    ) -> Result<T, StoreError>
    where
        T: FromRedisValue + Send + 'static,
    {
        let mut connection = self.connection.clone();
        let task = self.runtime.handle().spawn(async move {
            let mut invocation = script.prepare_invoke();
            for key in keys {
                invocation.key(key);
            }
            for argument in arguments {
                invocation.arg(argument);
            }
            match invocation.invoke_async(&mut connection).await {
                // The server went away and may be back: the first step after that only finds out.
                Err(error) if error.is_connection_dropped() => invocation.invoke_async(&mut connection).await,
                answered => answered,
            }
        });
        let unavailable = |reason: String| StoreError::Unavailable { during, reason };
        let Ok(ended) = tokio::time::timeout(STEP_TIMEOUT, task).await else {
            return Err(unavailable(format!("no answer within {} s", STEP_TIMEOUT.as_secs())));
        };
        let answered = ended.map_err(|error| unavailable(error.to_string()))?;
        answered.map_err(|error: RedisError| match is_refusal(&error) {
            true => StoreError::Refused { during, reason: describe(&error) },
            false => unavailable(describe(&error)),
        })
    }
}

/// Only what the server said about the step itself refuses it.
fn is_refusal(error: &RedisError) -> bool {
    match error.kind() {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_is_refused_without_repeating_it() {
        for url in ["", "nonsense", "http://user:s3cret@127.0.0.1", "redis://user:s3cret@127.0.0.1:port"] {
            let Err(StoreError::Refused { reason, .. }) = RedisLink::open(url) else {
                panic!("{url:?} should be refused");
            };
            assert!(reason.contains("redis://HOST:PORT") && !reason.contains("s3cret"), "{reason}");
        }
    }
}
