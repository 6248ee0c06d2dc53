//! Making API tokens: 256 random bits, shown once, kept as SHA-256.
//!
//! Owns the text form of a token. Never stores or logs one: the caller stores [`NewToken::record`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng as _;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::auth::Role;
use crate::domain::{ActorId, Timestamp};
use crate::store::TokenRecord;

/// What every token begins with, so that a scanner of leaked secrets can tell it.
const PREFIX: &str = "casework_";

/// The SHA-256 under which a token is kept.
pub fn token_sha256(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A token that was just made: the only moment at which its text exists.
pub struct NewToken {
    /// What the client sends.
    pub token: SecretString,
    /// What the store keeps.
    pub record: TokenRecord,
}

impl NewToken {
    /// Makes a token for a subject.
    pub fn issue(subject: ActorId, roles: &[Role], created_at: Timestamp, expires_at: Option<Timestamp>) -> Self {
        let mut secret = [0_u8; 32];
        rand::rng().fill_bytes(&mut secret);
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        let names: Vec<&str> = Role::ALL.into_iter().filter(|role| roles.contains(role)).map(Role::name).collect();
        let record = TokenRecord {
            id: uuid::Uuid::now_v7(),
            sha256: token_sha256(&token),
            subject,
            roles: names.join(","),
            created_at,
            expires_at,
            revoked_at: None,
        };
        Self { token: SecretString::from(token), record }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_token_has_256_random_bits_and_only_its_hash_is_kept() {
        let issue = || {
            NewToken::issue(ActorId::from_stored("47"), &[Role::Reviewer, Role::Clerk], Timestamp::from_micros(0), None)
        };
        let (one, two) = (issue(), issue());
        let text = one.token.expose_secret();
        assert_eq!(text.len(), PREFIX.len() + 43);
        assert_ne!(text, two.token.expose_secret());
        assert_eq!(one.record.sha256, token_sha256(text));
        assert_eq!(one.record.roles, "clerk,reviewer");
    }
}
