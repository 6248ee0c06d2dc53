//! A store with a bug on purpose, as seen in the field: what the promises are held against, to prove that they bite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, Holding, IdempotencyStore, Identity, RecordedResponse, StoreFault,
};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// Deletes a claim without looking whose it is.
    ReleaseWithoutToken,
    /// Stores an answer over whatever is there.
    CompleteWithoutToken,
    /// Renews a claim without looking whose it is.
    RenewWithoutToken,
    /// Another request under a key that is in flight is told that it is in flight.
    InFlightBeforeMismatch,
    /// Looks whether the key is free, and sets it in a second step.
    ClaimByGetThenSet,
    /// The fingerprint is the key: equal requests are one, whatever their keys.
    FingerprintAsKey,
    /// A claim is held for as long as answers are kept.
    OneLifetime,
}

struct Entry {
    fingerprint: Fingerprint,
    token: ClaimToken,
    until: Instant,
    response: Option<RecordedResponse>,
}

/// A memory store with a bug.
pub struct FaultyStore {
    bug: Bug,
    entries: Mutex<HashMap<Vec<u8>, Entry>>,
}

impl FaultyStore {
    pub fn shared(bug: Bug) -> Arc<Self> {
        Arc::new(Self { bug, entries: Mutex::default() })
    }

    fn key(&self, identity: &Identity, fingerprint: &Fingerprint) -> Vec<u8> {
        match self.bug {
            Bug::FingerprintAsKey => fingerprint.to_bytes().to_vec(),
            _ => identity.as_bytes().to_vec(),
        }
    }

    fn lease(&self, lease: Duration) -> Duration {
        if self.bug == Bug::OneLifetime { lease.max(Duration::from_secs(30 * 60)) } else { lease }
    }

    fn found(&self, key: &[u8], fingerprint: &Fingerprint, token: ClaimToken) -> Option<Claim> {
        let entries = self.entries.lock().unwrap();
        let now = Instant::now();
        let entry = entries.get(key).filter(|entry| entry.until > now)?;
        let is_hidden = self.bug == Bug::InFlightBeforeMismatch && entry.response.is_none();
        if entry.fingerprint != *fingerprint && !is_hidden {
            return Some(Claim::Mismatch(entry.fingerprint));
        }
        match &entry.response {
            Some(response) => Some(Claim::Completed(response.clone())),
            None if entry.token == token => None,
            None => Some(Claim::InFlight { lease_left: entry.until - now }),
        }
    }

    fn put(&self, key: Vec<u8>, entry: Entry) -> Holding {
        let mut entries = self.entries.lock().unwrap();
        let held = entries.get(&key).filter(|held| held.until > Instant::now());
        let ends_answer = |held: &Entry| held.response.is_some() && entry.response.is_none();
        if held.is_some_and(|held| held.token != entry.token || ends_answer(held)) {
            return Holding::Lost;
        }
        entries.insert(key, entry);
        Holding::Held
    }
}

#[async_trait]
impl IdempotencyStore for FaultyStore {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        let key = self.key(identity, fingerprint);
        if let Some(found) = self.found(&key, fingerprint, token) {
            return Ok(found);
        }
        let until = Instant::now() + self.lease(lease);
        let entry = Entry { fingerprint: *fingerprint, token, until, response: None };
        if self.bug == Bug::ClaimByGetThenSet {
            tokio::task::yield_now().await;
            self.entries.lock().unwrap().insert(key, entry);
            return Ok(Claim::Claimed);
        }
        match self.put(key.clone(), entry) {
            Holding::Held => Ok(Claim::Claimed),
            Holding::Lost => Ok(self.found(&key, fingerprint, token).unwrap_or(Claim::Claimed)),
        }
    }

    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault> {
        let until = Instant::now() + self.lease(lease);
        let entry = Entry { fingerprint: *fingerprint, token, until, response: None };
        let key = self.key(identity, fingerprint);
        if self.bug == Bug::RenewWithoutToken {
            self.entries.lock().unwrap().insert(key, entry);
            return Ok(Holding::Held);
        }
        Ok(self.put(key, entry))
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        let until = Instant::now() + lifetime;
        let entry = Entry { fingerprint: *fingerprint, token, until, response: Some(response.clone()) };
        let key = self.key(identity, fingerprint);
        if self.bug == Bug::CompleteWithoutToken {
            self.entries.lock().unwrap().insert(key, entry);
            return Ok(Holding::Held);
        }
        Ok(self.put(key, entry))
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        let mut entries = self.entries.lock().unwrap();
        let key = identity.as_bytes().as_slice();
        let may = |entry: &Entry| entry.token == token && entry.response.is_none();
        if self.bug == Bug::ReleaseWithoutToken || entries.get(key).is_some_and(may) {
            entries.remove(key);
            return Ok(Holding::Held);
        }
        Ok(Holding::Lost)
    }
}
