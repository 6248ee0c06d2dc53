//! Waiting for a condition with a deadline: the only way a test waits.
//!
//! Polls every few milliseconds; fails the test with what it was waiting for when the deadline passes.

use std::future::Future;
use std::time::{Duration, Instant};

/// Pause between two looks at a condition: short beside any deadline, long beside a look.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` holds and returns how long that took.
///
/// # Panics
/// When `deadline` passes first; the message names `what` was awaited.
#[track_caller]
pub fn eventually(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    eventually_some(deadline, what, || condition().then_some(()));
    started.elapsed()
}

/// Waits until `look` finds something and returns it.
///
/// # Panics
/// When `deadline` passes first; the message names `what` was awaited.
#[track_caller]
pub fn eventually_some<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < deadline, "waited {deadline:?} in vain for: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The same for a condition that has to be awaited, without blocking the runtime.
///
/// # Panics
/// When `deadline` passes first; the message names `what` was awaited.
pub async fn eventually_async<F>(deadline: Duration, what: &str, mut condition: impl FnMut() -> F) -> Duration
where
    F: Future<Output = bool>,
{
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < deadline, "waited {deadline:?} in vain for: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    started.elapsed()
}
