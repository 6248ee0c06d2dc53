//! Answers in Redis, for many processes.
//!
//! Owns the layout of a record (one string: state, token, fingerprint, answer) and one Lua script a step, so that each step
//! is atomic and one round trip; value and expiry are always set together. Redis keeps what its persistence keeps: a server
//! that comes back empty has forgotten, and a request that is repeated then runs again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, Value};

use super::{IdempotencyStore, StoreFault, whole_millis};
use crate::idempotency::claim::{Claim, ClaimToken, Holding};
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::key::Identity;
use crate::idempotency::recorded_response::RecordedResponse;
use crate::store::{RedisLink, StoreError};

/// Before each key, so that they are told from whatever else lives there.
const KEY_PREFIX: &[u8] = b"idempotency:";

/// KEYS: record. ARGV: token, fingerprint, lease. Bytes of a record: 1 state (`c` claimed, `r` answered), 2 to 17 token,
/// 18 to 89 fingerprint, from 90 on the answer.
const CLAIM: &str = "local held = redis.call('GET', KEYS[1])
if held then
  if string.sub(held, 18, 89) ~= ARGV[2] then return {'mismatch', string.sub(held, 18, 89)} end
  if string.sub(held, 1, 1) == 'r' then return {'completed', string.sub(held, 90)} end
  if string.sub(held, 2, 17) ~= ARGV[1] then return {'in-flight', redis.call('PTTL', KEYS[1])} end
end
redis.call('SET', KEYS[1], 'c' .. ARGV[1] .. ARGV[2], 'PX', ARGV[3])
return {'claimed', ''}";

/// KEYS: record. ARGV: token, fingerprint, lease.
const RENEW: &str = "local held = redis.call('GET', KEYS[1])
if held and (string.sub(held, 1, 1) == 'r' or string.sub(held, 2, 17) ~= ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], 'c' .. ARGV[1] .. ARGV[2], 'PX', ARGV[3])
return 1";

/// KEYS: record. ARGV: token, fingerprint, lifetime, answer.
const COMPLETE: &str = "local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 2, 17) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'r' .. ARGV[1] .. ARGV[2] .. ARGV[4], 'PX', ARGV[3])
return 1";

/// KEYS: record. ARGV: token.
const RELEASE: &str = "local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 17) ~= 'c' .. ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1";

/// A store in Redis. Cheap to clone.
#[derive(Clone)]
pub struct RedisStore {
    link: RedisLink,
    claim: Arc<Script>,
    renew: Arc<Script>,
    complete: Arc<Script>,
    release: Arc<Script>,
}

impl RedisStore {
    /// The Redis at `url` (`redis://HOST:PORT`); connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreError`] where the URL is wrong.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Ok(Self::new(RedisLink::open(url)?))
    }

    /// A store behind a link that others may use as well.
    pub fn new(link: RedisLink) -> Self {
        let script = |text| Arc::new(Script::new(text));
        Self { link, claim: script(CLAIM), renew: script(RENEW), complete: script(COMPLETE), release: script(RELEASE) }
    }

    async fn step(
        &self,
        during: &'static str,
        script: &Arc<Script>,
        identity: &Identity,
        arguments: Vec<Vec<u8>>,
    ) -> Result<Holding, StoreFault> {
        let held: i64 = self.link.run(during, script.clone(), vec![key_of(identity)], arguments).await?;
        Ok(if held == 1 { Holding::Held } else { Holding::Lost })
    }
}

fn key_of(identity: &Identity) -> Vec<u8> {
    [KEY_PREFIX, identity.as_bytes()].concat()
}

fn millis(time: Duration) -> Vec<u8> {
    whole_millis(time).to_string().into_bytes()
}

#[async_trait]
impl IdempotencyStore for RedisStore {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        let during = "claiming a key";
        let arguments = vec![token.as_bytes().to_vec(), fingerprint.to_bytes().to_vec(), millis(lease)];
        let answer: (String, Value) =
            self.link.run(during, self.claim.clone(), vec![key_of(identity)], arguments).await?;
        let inconsistent = |reason: String| StoreFault::Inconsistent { during, reason };
        match answer {
            (word, _) if word == "claimed" => Ok(Claim::Claimed),
            (word, Value::Int(left)) if word == "in-flight" => {
                // -1 and -2: it has no end, or has come to it in this moment.
                Ok(Claim::InFlight { lease_left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) })
            }
            (word, Value::BulkString(bytes)) if word == "completed" => {
                let response = RecordedResponse::from_bytes(bytes);
                response.map(Claim::Completed).map_err(|error| inconsistent(error.to_string()))
            }
            (word, Value::BulkString(bytes)) if word == "mismatch" => Fingerprint::from_bytes(&bytes)
                .map(Claim::Mismatch)
                .ok_or_else(|| inconsistent("a record under our prefix is not ours".into())),
            _ => Err(inconsistent("the answer of the script has another shape".into())),
        }
    }

    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault> {
        let arguments = vec![token.as_bytes().to_vec(), fingerprint.to_bytes().to_vec(), millis(lease)];
        self.step("renewing a lease", &self.renew, identity, arguments).await
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        let arguments =
            vec![token.as_bytes().to_vec(), fingerprint.to_bytes().to_vec(), millis(lifetime), response.to_bytes()];
        self.step("storing a response", &self.complete, identity, arguments).await
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        self.step("giving a key back", &self.release, identity, vec![token.as_bytes().to_vec()]).await
    }
}
