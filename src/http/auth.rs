//! Who sends a request, and what the token allows.
//!
//! Owns roles and the look-up of tokens: SHA-256 of the token, cached for less than five seconds so that a revoked one stops
//! in time; what is not found is never cached, so that a new one works at once. Never keeps or logs a token. Fails with
//! `unauthenticated`, `forbidden`, or `unavailable` while the database is away: an outage is never "wrong token".

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{self, HeaderMap};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};

use super::problems::{Problem, ProblemCode};
use crate::clock;
use crate::domain::{ActorId, CommandName, Timestamp};
use crate::store::{Database, StoreError};

/// How long a look-up is believed. With the time of the look-up itself it stays below the promised five seconds.
const VERIFIED_TTL: Duration = Duration::from_secs(3);
/// How many verified tokens are kept.
const VERIFIED_MAX: u64 = 10_000;
/// How long a look-up may take.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `open`, `assign`, `unassign`, `note`.
    Clerk,
    /// The actions of a workflow, and `note`.
    Reviewer,
    /// Any command, in any actor's name.
    Proxy,
    /// Any command in the subject's own name, and the operators' routes.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clerk, Self::Reviewer, Self::Proxy, Self::Admin];

    /// Its name, as stored and as typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clerk => "clerk",
            Self::Reviewer => "reviewer",
            Self::Proxy => "proxy",
            Self::Admin => "admin",
        }
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Reads `clerk,reviewer`. A role that this binary does not know allows nothing.
    pub fn from_stored(text: &str) -> Self {
        let known = Role::ALL.into_iter().filter(|role| text.split(',').any(|name| name.trim() == role.name()));
        Self(known.fold(0, |set, role| set | 1 << role as u8))
    }

    /// Whether the role is one of them.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether they cover a command in the subject's own name.
    fn cover(self, command: &CommandName) -> bool {
        let any = |roles: &[Role]| roles.iter().any(|role| self.has(*role));
        match command.as_str() {
            "open" | "assign" | "unassign" => any(&[Role::Clerk, Role::Proxy, Role::Admin]),
            "note" => any(&[Role::Clerk, Role::Reviewer, Role::Proxy, Role::Admin]),
            _ => any(&[Role::Reviewer, Role::Proxy, Role::Admin]),
        }
    }
}

/// Whom a valid token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The actor of what is sent with it.
    pub subject: ActorId,
    /// What it may do.
    pub roles: Roles,
    expires_at: Option<Timestamp>,
}

impl Identity {
    /// Whether the command may be sent at all with this token.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn may_send(&self, command: &CommandName) -> Result<(), Problem> {
        if self.roles.cover(command) {
            return Ok(());
        }
        let needed = match command.as_str() {
            "open" | "assign" | "unassign" => "clerk",
            "note" => "clerk or reviewer",
            _ => "reviewer",
        };
        Err(Problem::new(ProblemCode::Forbidden, format!("`{command}` needs a token with the role {needed}")))
    }

    /// Whether commands may be sent in this actor's name.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn may_act_as(&self, actor: &ActorId) -> Result<(), Problem> {
        if *actor == self.subject || self.roles.has(Role::Proxy) {
            return Ok(());
        }
        Err(Problem::new(ProblemCode::Forbidden, "naming another actor than the token's subject needs the role proxy"))
    }
}

/// The SHA-256 of a token: all that is kept of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Takes the token out of `Authorization: Bearer TOKEN`.
    ///
    /// # Errors
    /// `unauthenticated`: no header, two, another scheme.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION);
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(unauthenticated("send one header `Authorization: Bearer TOKEN`"));
        };
        let value = value.to_str().unwrap_or_default().trim();
        let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
        if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
            return Err(unauthenticated("send `Authorization: Bearer TOKEN`"));
        }
        Ok(Self(Sha256::digest(token.trim().as_bytes()).into()))
    }
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(ProblemCode::Unauthenticated, detail)
}

/// A look-up that succeeded, and when it began.
#[derive(Clone)]
struct Verified {
    identity: Arc<Identity>,
    checked_at: Instant,
}

/// Why a look-up did not succeed.
#[derive(Clone)]
enum Refusal {
    Unknown,
    Revoked,
    Store(StoreError),
}

/// Looks tokens up. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub(super) struct Authenticator {
    database: Database,
    verified: Cache<[u8; 32], Verified>,
}

impl Authenticator {
    /// An empty cache before a database.
    pub(super) fn new(database: Database) -> Self {
        let verified = Cache::builder().max_capacity(VERIFIED_MAX).time_to_live(VERIFIED_TTL).build();
        Self { database, verified }
    }

    /// Whom the token speaks for, now.
    ///
    /// # Errors
    /// `unauthenticated`, `unavailable`.
    pub(super) async fn identify(&self, token: TokenHash) -> Result<Arc<Identity>, Problem> {
        let known = self.verified.get(&token.0).await;
        let verified = match known {
            // The cache's own clock starts when the look-up ends; ours when it began.
            Some(verified) if verified.checked_at.elapsed() < VERIFIED_TTL => verified,
            known => {
                if known.is_some() {
                    self.verified.invalidate(&token.0).await;
                }
                // Equal look-ups at the same time become one.
                let look_up = look_up(self.database.clone(), token.0);
                self.verified.try_get_with(token.0, look_up).await.map_err(|refusal| match &*refusal {
                    Refusal::Unknown => unauthenticated("the token is unknown"),
                    Refusal::Revoked => unauthenticated("the token was revoked"),
                    Refusal::Store(error) => Problem::from(error.clone()),
                })?
            }
        };
        if verified.identity.expires_at.is_some_and(|end| end <= clock::now()) {
            return Err(unauthenticated("the token has expired"));
        }
        Ok(verified.identity)
    }
}

async fn look_up(database: Database, sha256: [u8; 32]) -> Result<Verified, Refusal> {
    let checked_at = Instant::now();
    let found = database.call(move |store| async move { store.token_find(&sha256).await });
    let found = tokio::time::timeout(LOOK_UP_TIMEOUT, found).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable { during: "looking up a token", reason: "no answer in time".into() })
    });
    let record = found.map_err(Refusal::Store)?.ok_or(Refusal::Unknown)?;
    if record.revoked_at.is_some() {
        return Err(Refusal::Revoked);
    }
    let roles = Roles::from_stored(&record.roles);
    let identity = Arc::new(Identity { subject: record.subject, roles, expires_at: record.expires_at });
    Ok(Verified { identity, checked_at })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn identity(roles: &str) -> Identity {
        Identity { subject: ActorId::from_stored("47"), roles: Roles::from_stored(roles), expires_at: None }
    }

    #[test]
    fn each_role_covers_its_commands_and_no_other() {
        let table = [
            ("clerk", [true, true, true, true, false]),
            ("reviewer", [false, false, false, true, true]),
            ("proxy", [true; 5]),
            ("admin", [true; 5]),
            ("clerk,reviewer", [true; 5]),
            ("auditor", [false; 5]),
            ("", [false; 5]),
        ];
        for (roles, expected) in table {
            let allowed = ["open", "assign", "unassign", "note", "approve"]
                .map(|name| identity(roles).may_send(&CommandName::from_stored(name)).is_ok());
            assert_eq!(allowed, expected, "{roles}");
        }
    }

    #[test]
    fn only_a_proxy_names_another_actor() {
        for (roles, other) in [("clerk", false), ("reviewer", false), ("admin", false), ("proxy", true)] {
            assert!(identity(roles).may_act_as(&ActorId::from_stored("47")).is_ok());
            assert_eq!(identity(roles).may_act_as(&ActorId::from_stored("81")).is_ok(), other, "{roles}");
        }
    }

    #[test]
    fn a_token_comes_in_one_bearer_header() {
        let hash = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            TokenHash::from_headers(&headers)
        };
        assert!(hash(&["Bearer abc"]).unwrap() == hash(&["bearer  abc "]).unwrap());
        for bad in [&[][..], &["Bearer"], &["Bearer "], &["Basic abc"], &["abc"], &["Bearer a", "Bearer a"]] {
            assert_eq!(hash(bad).err().unwrap().status(), 401);
        }
    }
}
