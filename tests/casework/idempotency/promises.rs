//! What a store promises, as checks that return what they found: run on good stores and on bad ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::idempotency::{
    Claim, ClaimToken, Fingerprint, Holding, IdempotencyKey, IdempotencyStore, Identity, Part, Principal,
    RecordedResponse, RequestParts,
};
use tokio::sync::Barrier;

/// Long beside anything that a check does.
pub const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for, long beside a slow step.
const SHORT: Duration = Duration::from_millis(300);
/// How long something that must come may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// A store as two processes see it; the same one twice where it lives in one.
#[derive(Clone)]
pub struct Stores {
    pub first: Arc<dyn IdempotencyStore>,
    pub second: Arc<dyn IdempotencyStore>,
}

/// What a check found wrong.
pub type Found = Result<(), String>;

macro_rules! require {
    ($condition:expr, $($words:tt)+) => {
        if !$condition { return Err(format!($($words)+)); }
    };
}

/// An identity that no other check uses.
pub fn fresh_identity() -> Identity {
    let key = uuid::Uuid::new_v4().to_string();
    Identity::new("", &Principal::new("47"), &IdempotencyKey::parse(key.as_bytes()).unwrap())
}

pub fn fingerprint(body: &str) -> Fingerprint {
    let request = RequestParts {
        method: "POST",
        path: "/payments",
        query: "",
        content_type: Some("application/json"),
        content_encoding: None,
        body: body.as_bytes(),
    };
    Fingerprint::of(&request).unwrap()
}

pub fn answer(text: &str) -> RecordedResponse {
    let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
    RecordedResponse::new(201, headers, text.as_bytes().to_vec())
}

/// All checks, one after the other; the first that finds something ends them.
pub async fn check_all(stores: &Stores) -> Found {
    one_life(stores).await.map_err(|found| format!("one life: {found}"))?;
    a_mismatch_comes_before_in_flight(stores).await.map_err(|found| format!("mismatch: {found}"))?;
    what_is_kept_without_its_body_says_so(stores).await.map_err(|found| format!("tombstone: {found}"))?;
    a_released_key_is_free(stores).await.map_err(|found| format!("release: {found}"))?;
    an_old_owner_touches_nothing(stores).await.map_err(|found| format!("old owner: {found}"))?;
    a_lapsed_owner_that_nobody_followed_may_complete(stores).await.map_err(|found| format!("lapsed: {found}"))?;
    renewals_hold_a_claim(stores).await.map_err(|found| format!("renewals: {found}"))?;
    a_lifetime_ends_and_a_lease_is_not_one(stores).await.map_err(|found| format!("lifetime: {found}"))?;
    one_of_many_claims(stores, 20).await.map_err(|found| format!("many: {found}"))
}

async fn claim(
    store: &Arc<dyn IdempotencyStore>,
    identity: &Identity,
    body: &str,
    token: ClaimToken,
    lease: Duration,
) -> Result<Claim, String> {
    store.claim(identity, &fingerprint(body), token, lease).await.map_err(|fault| fault.to_string())
}

async fn complete(
    store: &Arc<dyn IdempotencyStore>,
    identity: &Identity,
    token: ClaimToken,
    text: &str,
    lifetime: Duration,
) -> Result<Holding, String> {
    let completed = store.complete(identity, &fingerprint("{}"), token, &answer(text), lifetime).await;
    completed.map_err(|fault| fault.to_string())
}

/// Claims until it is given, under a new token each time.
async fn claim_when_free(
    store: &Arc<dyn IdempotencyStore>,
    identity: &Identity,
    lease: Duration,
) -> Result<ClaimToken, String> {
    let started = Instant::now();
    loop {
        let token = ClaimToken::random();
        if claim(store, identity, "{}", token, lease).await? == Claim::Claimed {
            return Ok(token);
        }
        require!(started.elapsed() < DEADLINE, "the key did not become free within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Claimed, in flight, answered with the same bytes, from either side.
pub async fn one_life(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    require!(claim(&stores.first, &identity, "{}", token, LONG).await? == Claim::Claimed, "a new key was not given");
    for store in [&stores.first, &stores.second] {
        let again = claim(store, &identity, "{}", ClaimToken::random(), LONG).await?;
        let Claim::InFlight { lease_left } = again else { return Err(format!("{again:?} while it ran")) };
        require!(lease_left > LONG / 2 && lease_left <= LONG, "a lease of {LONG:?} has {lease_left:?} left at once");
    }
    // A claim that is sent again because its answer was lost.
    require!(
        claim(&stores.first, &identity, "{}", token, LONG).await? == Claim::Claimed,
        "the owner itself was refused"
    );
    let kept = RecordedResponse::new(
        201,
        vec![("location".into(), b"/payments/1".to_vec()), ("etag".into(), vec![b'"', 0xe9, b'"'])],
        (0..=255).cycle().take(65_536).collect::<Vec<u8>>(),
    );
    let completed = stores.first.complete(&identity, &fingerprint("{}"), token, &kept, LONG).await;
    require!(completed == Ok(Holding::Held), "completing said {completed:?}");
    for store in [&stores.first, &stores.second] {
        let again = claim(store, &identity, "{}", ClaimToken::random(), LONG).await?;
        require!(again == Claim::Completed(kept.clone()), "the answer came back changed");
    }
    // Completing twice is completing once; nothing else is possible any more.
    require!(
        stores.first.complete(&identity, &fingerprint("{}"), token, &kept, LONG).await == Ok(Holding::Held),
        "again"
    );
    let released = stores.first.release(&identity, token).await;
    require!(released == Ok(Holding::Lost), "an answer was given back: {released:?}");
    let renewed = stores.first.renew(&identity, &fingerprint("{}"), token, LONG).await;
    require!(renewed == Ok(Holding::Lost), "an answer was made a claim again: {renewed:?}");
    let again = claim(&stores.second, &identity, "{}", ClaimToken::random(), LONG).await?;
    require!(again == Claim::Completed(kept), "the answer was lost");
    Ok(())
}

/// Another request under the key is told so, while the first runs and afterwards; other principals and keys are free.
pub async fn a_mismatch_comes_before_in_flight(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    require!(claim(&stores.first, &identity, "{}", token, LONG).await? == Claim::Claimed, "not given");
    for _ in 0..2 {
        let other = claim(&stores.second, &identity, "[]", ClaimToken::random(), LONG).await?;
        let Claim::Mismatch(held) = other else { return Err(format!("another request was told {other:?}")) };
        require!(held.differing(&fingerprint("[]")) == [Part::Body], "the wrong parts differ");
        require!(complete(&stores.first, &identity, token, "1", LONG).await? == Holding::Held, "not completed");
    }
    // The same request under another identity is another operation.
    let other = claim(&stores.second, &fresh_identity(), "{}", ClaimToken::random(), LONG).await?;
    require!(other == Claim::Claimed, "the same request under another key was told {other:?}");
    Ok(())
}

/// A tombstone is no answer with an empty body.
pub async fn what_is_kept_without_its_body_says_so(stores: &Stores) -> Found {
    let headers = vec![("location".to_owned(), b"/payments/1".to_vec())];
    for kept in [RecordedResponse::tombstone(200, headers.clone()), RecordedResponse::new(204, headers, Vec::new())] {
        let (identity, token) = (fresh_identity(), ClaimToken::random());
        require!(claim(&stores.first, &identity, "{}", token, LONG).await? == Claim::Claimed, "not given");
        let completed = stores.first.complete(&identity, &fingerprint("{}"), token, &kept, LONG).await;
        require!(completed == Ok(Holding::Held), "completing said {completed:?}");
        let again = claim(&stores.second, &identity, "{}", ClaimToken::random(), LONG).await?;
        require!(again == Claim::Completed(kept), "it came back as {again:?}");
    }
    Ok(())
}

pub async fn a_released_key_is_free(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    require!(claim(&stores.first, &identity, "{}", token, LONG).await? == Claim::Claimed, "not given");
    let foreign = stores.second.release(&identity, ClaimToken::random()).await;
    require!(foreign == Ok(Holding::Lost), "somebody else gave it back: {foreign:?}");
    let held = claim(&stores.second, &identity, "{}", ClaimToken::random(), LONG).await?;
    require!(matches!(held, Claim::InFlight { .. }), "somebody else gave it back: {held:?}");
    require!(stores.first.release(&identity, token).await == Ok(Holding::Held), "the owner could not give it back");
    let other = claim(&stores.second, &identity, "[]", ClaimToken::random(), LONG).await?;
    require!(other == Claim::Claimed, "a key that was given back is not free: {other:?}");
    Ok(())
}

/// A's lease ends while it works; B runs. Whatever A does then leaves B's claim and B's answer alone.
pub async fn an_old_owner_touches_nothing(stores: &Stores) -> Found {
    let (identity, a) = (fresh_identity(), ClaimToken::random());
    require!(claim(&stores.first, &identity, "{}", a, SHORT).await? == Claim::Claimed, "not given");
    let b = claim_when_free(&stores.second, &identity, LONG).await?;
    require!(stores.first.release(&identity, a).await == Ok(Holding::Lost), "A gave B's claim back");
    let renewed = stores.first.renew(&identity, &fingerprint("{}"), a, LONG).await;
    require!(renewed == Ok(Holding::Lost), "A renewed B's claim: {renewed:?}");
    require!(complete(&stores.first, &identity, a, "A", LONG).await? == Holding::Lost, "A answered over B's claim");
    let c = claim(&stores.first, &identity, "{}", ClaimToken::random(), LONG).await?;
    require!(matches!(c, Claim::InFlight { .. }), "C was told {c:?} while B ran");
    require!(complete(&stores.second, &identity, b, "B", LONG).await? == Holding::Held, "B could not complete");
    require!(complete(&stores.first, &identity, a, "A", LONG).await? == Holding::Lost, "A answered over B's answer");
    let d = claim(&stores.first, &identity, "{}", ClaimToken::random(), LONG).await?;
    require!(d == Claim::Completed(answer("B")), "D got another answer than B's");
    Ok(())
}

pub async fn a_lapsed_owner_that_nobody_followed_may_complete(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    let lease = Duration::from_millis(20);
    require!(claim(&stores.first, &identity, "{}", token, lease).await? == Claim::Claimed, "not given");
    tokio::time::sleep(lease * 5).await;
    require!(complete(&stores.first, &identity, token, "late", LONG).await? == Holding::Held, "the answer was refused");
    let again = claim(&stores.second, &identity, "{}", ClaimToken::random(), LONG).await?;
    require!(again == Claim::Completed(answer("late")), "the answer was lost: {again:?}");
    Ok(())
}

pub async fn renewals_hold_a_claim(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    let lease = Duration::from_secs(1);
    require!(claim(&stores.first, &identity, "{}", token, lease).await? == Claim::Claimed, "not given");
    let started = Instant::now();
    while started.elapsed() < lease * 2 {
        let renewed = stores.first.renew(&identity, &fingerprint("{}"), token, lease).await;
        require!(renewed == Ok(Holding::Held), "a lease was lost though it was renewed: {renewed:?}");
        let other = claim(&stores.second, &identity, "{}", ClaimToken::random(), lease).await?;
        require!(matches!(other, Claim::InFlight { .. }), "{other:?} though the lease was renewed");
        tokio::time::sleep(lease / 10).await;
    }
    Ok(())
}

/// A claim lives for its lease, however long answers are kept; an answer for its lifetime, however short leases are.
pub async fn a_lifetime_ends_and_a_lease_is_not_one(stores: &Stores) -> Found {
    let (identity, token) = (fresh_identity(), ClaimToken::random());
    require!(claim(&stores.first, &identity, "{}", token, SHORT).await? == Claim::Claimed, "not given");
    require!(complete(&stores.first, &identity, token, "1", SHORT * 4).await? == Holding::Held, "not completed");
    let completed = Instant::now();
    tokio::time::sleep(SHORT * 2).await;
    let kept = claim(&stores.second, &identity, "{}", ClaimToken::random(), SHORT).await?;
    // A slow machine may have taken the rest of the lifetime.
    require!(kept == Claim::Completed(answer("1")) || completed.elapsed() > SHORT * 4, "kept no longer than a lease");
    let next = claim_when_free(&stores.second, &identity, LONG).await?;
    require!(completed.elapsed() >= SHORT * 4, "an answer went before its lifetime was over");
    require!(stores.second.release(&identity, next).await == Ok(Holding::Held), "not given back");
    Ok(())
}

/// 64 claims at once, half of them from each side, `rounds` times: one is given.
pub async fn one_of_many_claims(stores: &Stores, rounds: usize) -> Found {
    for round in 0..rounds {
        let (identity, barrier) = (fresh_identity(), Arc::new(Barrier::new(64)));
        let claims = (0..64).map(|i| {
            let (store, barrier) = (if i % 2 == 0 { &stores.first } else { &stores.second }.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                claim(&store, &identity, "{}", ClaimToken::random(), LONG).await
            })
        });
        let mut given = 0;
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.unwrap()? {
                Claim::Claimed => given += 1,
                Claim::InFlight { .. } => {}
                other => return Err(format!("round {round}: {other:?}")),
            }
        }
        require!(given == 1, "round {round}: {given} of 64 were given the key");
    }
    Ok(())
}
