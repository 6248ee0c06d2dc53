//! What a claim finds, as a pure table: the rule that every store keeps.
//!
//! Owns the order of the checks: what lapsed counts as absent, another fingerprint is a mismatch before it is in flight,
//! and only then whether there is an answer. Never reads a clock. Cannot fail.

use std::time::Duration;

use super::fingerprint::Fingerprint;
use super::recorded_response::RecordedResponse;

/// The right to run one request, for the length of a lease: every later step names it, so that an owner whose lease ran
/// out can't touch what the next one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimToken([u8; 16]);

impl ClaimToken {
    /// 128 bits of which 122 are random: never drawn twice.
    pub fn random() -> Self {
        Self(*uuid::Uuid::new_v4().as_bytes())
    }

    /// The form that stores keep.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads what a store kept.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Nobody has run it: whoever asked does, and nobody else until the lease is over.
    Claimed,
    /// Somebody runs it; unless that is renewed, for so long.
    InFlight {
        /// What is left of the lease.
        lease_left: Duration,
    },
    /// It was run; this came of it.
    Completed(RecordedResponse),
    /// The key belongs to another request.
    Mismatch(Fingerprint),
}

/// Whether the caller still holds what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It does, and the step was taken.
    Held,
    /// Somebody else does, or there is an answer: nothing was changed.
    Lost,
}

/// What a store holds under an identity.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<T> {
    /// Of the request that claimed it.
    pub fingerprint: Fingerprint,
    /// Who claimed it.
    pub token: ClaimToken,
    /// The end of the lease or, with a response, of the response's lifetime.
    pub until: T,
    /// What came of it, when it is known.
    pub response: Option<RecordedResponse>,
}

/// What stands in the way of a claim; `None`: nothing does. A claim that is sent again, because its answer was lost, finds
/// its own token, and that stands in nobody's way.
pub fn found<T: Copy + PartialOrd>(
    record: Option<&Record<T>>,
    fingerprint: &Fingerprint,
    token: ClaimToken,
    now: T,
    left: impl FnOnce(T) -> Duration,
) -> Option<Claim> {
    let record = record.filter(|record| record.until > now)?;
    if record.fingerprint != *fingerprint {
        return Some(Claim::Mismatch(record.fingerprint));
    }
    match &record.response {
        Some(response) => Some(Claim::Completed(response.clone())),
        None if record.token == token => None,
        None => Some(Claim::InFlight { lease_left: left(record.until) }),
    }
}

/// Whether the owner of `token` may renew its lease: nobody else holds the identity, and there is no answer. One who finds
/// it free, because its lease lapsed or the store was emptied, takes it again: the work goes on.
pub fn may_renew<T: Copy + PartialOrd>(record: Option<&Record<T>>, token: ClaimToken, now: T) -> bool {
    record.is_none_or(|record| record.until <= now || (record.token == token && record.response.is_none()))
}

/// Whether the owner of `token` may store its answer: nobody else holds the identity. One who finds it free stores it all
/// the same: the work was done, and whoever comes next must find the answer. Storing twice is storing once.
pub fn may_complete<T: Copy + PartialOrd>(record: Option<&Record<T>>, token: ClaimToken, now: T) -> bool {
    record.is_none_or(|record| record.until <= now || record.token == token)
}

/// Whether the owner of `token` may give the identity back.
pub fn may_release<T>(record: Option<&Record<T>>, token: ClaimToken) -> bool {
    record.is_some_and(|record| record.token == token && record.response.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint::RequestParts;
    use super::*;

    fn fingerprint(path: &str) -> Fingerprint {
        let request =
            RequestParts { method: "POST", path, query: "", content_type: None, content_encoding: None, body: b"" };
        Fingerprint::of(&request).expect("valid")
    }

    #[test]
    fn the_table() {
        let (own, other) = (fingerprint("/a"), fingerprint("/b"));
        let (mine, theirs) = (ClaimToken::random(), ClaimToken::random());
        let answer = RecordedResponse::tombstone(200, Vec::new());
        let running = Record { fingerprint: own, token: mine, until: 10, response: None };
        let done = Record { response: Some(answer.clone()), ..running.clone() };
        let look = |record: Option<&Record<i32>>, fingerprint: &Fingerprint, token, now| {
            found(record, fingerprint, token, now, |until| {
                Duration::from_secs(u64::try_from(until - now).expect("valid"))
            })
        };
        for (record, fingerprint, token, now, expected) in [
            (None, &own, mine, 0, None),
            (Some(&running), &own, theirs, 4, Some(Claim::InFlight { lease_left: Duration::from_secs(6) })),
            (Some(&running), &own, mine, 4, None),
            (Some(&running), &other, theirs, 4, Some(Claim::Mismatch(own))),
            (Some(&running), &own, theirs, 10, None),
            (Some(&running), &other, theirs, 10, None),
            (Some(&done), &own, theirs, 9, Some(Claim::Completed(answer.clone()))),
            (Some(&done), &own, mine, 9, Some(Claim::Completed(answer))),
            (Some(&done), &other, theirs, 9, Some(Claim::Mismatch(own))),
            (Some(&done), &own, theirs, 10, None),
        ] {
            assert_eq!(look(record, fingerprint, token, now), expected, "{record:?} at {now}");
        }
        for (record, token, now, renews, completes, releases) in [
            (None, mine, 0, true, true, false),
            (Some(&running), mine, 4, true, true, true),
            (Some(&running), theirs, 4, false, false, false),
            (Some(&running), mine, 10, true, true, true),
            (Some(&running), theirs, 10, true, true, false),
            (Some(&done), mine, 4, false, true, false),
            (Some(&done), theirs, 4, false, false, false),
            (Some(&done), theirs, 10, true, true, false),
        ] {
            assert_eq!(may_renew(record, token, now), renews, "{record:?} {token:?} at {now}");
            assert_eq!(may_complete(record, token, now), completes, "{record:?} {token:?} at {now}");
            assert_eq!(may_release(record, token), releases, "{record:?} {token:?} at {now}");
        }
    }
}
