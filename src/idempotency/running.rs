//! How many requests are being run, so that a server can wait for them before it ends.
//!
//! Owns a count and who waits for it. Cannot fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// The count. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<State>);

#[derive(Default)]
struct State {
    count: AtomicUsize,
    is_draining: AtomicBool,
    none_left: Notify,
}

/// One that runs; dropped at its end.
pub(super) struct Guard(Arc<State>);

impl Running {
    /// One more; `None`: new ones are refused.
    pub(super) fn enter(&self) -> Option<Guard> {
        // Counted before looking: whoever drains either sees it or has been seen.
        let guard = self.go_on();
        (!self.0.is_draining.load(SeqCst)).then_some(guard)
    }

    /// One more that belongs to one that runs already.
    pub(super) fn go_on(&self) -> Guard {
        self.0.count.fetch_add(1, SeqCst);
        Guard(self.0.clone())
    }

    /// Has new ones refused, and waits for those that run.
    pub(super) async fn drain(&self) {
        self.0.is_draining.store(true, SeqCst);
        loop {
            let woken = self.0.none_left.notified();
            tokio::pin!(woken);
            // Listening comes before looking, so that the last one's end is not missed.
            woken.as_mut().enable();
            if self.0.count.load(SeqCst) == 0 {
                return;
            }
            woken.await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}
