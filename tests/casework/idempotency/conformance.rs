//! Every store keeps what `promises` asks; every planted bug is found by it.

use super::faulty_stores::{Bug, FaultyStore};
use super::promises::{Stores, check_all};
use super::stores::on_every_store;
use crate::support::database::block_on;

#[test]
fn every_store_keeps_its_promises() {
    on_every_store(|stores| block_on(check_all(stores)));
}

#[test]
fn planted_bugs_are_found() {
    for (bug, words) in [
        (Bug::None, None),
        (Bug::ReleaseWithoutToken, Some("given back")),
        (Bug::CompleteWithoutToken, Some("A answered over")),
        (Bug::RenewWithoutToken, Some("an answer was made a claim again")),
        (Bug::InFlightBeforeMismatch, Some("another request was told InFlight")),
        (Bug::ClaimByGetThenSet, Some("were given the key")),
        (Bug::FingerprintAsKey, Some("given")),
        (Bug::OneLifetime, Some("a lease of")),
    ] {
        let store = FaultyStore::shared(bug);
        let found = block_on(check_all(&Stores { first: store.clone(), second: store })).err();
        let is_found = match (&found, words) {
            (None, None) => true,
            (Some(found), Some(words)) => found.contains(words),
            _ => false,
        };
        assert!(is_found, "{bug:?}: expected {words:?}, found {found:?}");
    }
}
