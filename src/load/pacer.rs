//! Waiting until a command is due.
//!
//! Owns a thread that waits to some ten microseconds. The runtime's own timers count whole milliseconds: in an open loop up to
//! two of them would be told as latency of the server. Cannot fail; without its thread nothing would be sent on time.

use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

type Wait = (Instant, oneshot::Sender<()>);

/// Wakes whoever waits for a time. Times are asked for in their order.
pub(super) struct Pacer(mpsc::Sender<Wait>);

impl Pacer {
    /// Starts the thread, which ends with the pacer.
    pub(super) fn start() -> Self {
        let (waits, asked) = mpsc::channel::<Wait>();
        std::thread::spawn(move || {
            for (due, wake) in asked {
                while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                    std::thread::park_timeout(left);
                }
                // Whoever asked may have had something else to do in the meantime.
                let _gone = wake.send(());
            }
        });
        Self(waits)
    }

    /// Returns at that time, or at once if it has passed.
    pub(super) async fn until(&self, due: Instant) {
        if due <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        self.0.send((due, wake)).expect("the thread runs as long as the pacer is there");
        woken.await.expect("the thread wakes everyone who asks");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_waits_is_woken_in_time_and_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (pacer, start) = (Pacer::start(), Instant::now());
            drop(pacer.until(start + Duration::from_millis(1)));
            for millis in [5, 5, 10, 3] {
                let due = start + Duration::from_millis(millis);
                pacer.until(due).await;
                assert!(Instant::now() >= due);
            }
            assert!(start.elapsed() < Duration::from_secs(5));
        });
    }
}
