//! When a command should be sent, and which answers count.
//!
//! Owns the times of one run. In a closed loop a command is due when its connection asks; in an open loop the commands are
//! due at their rate, whether or not the server keeps up, and a latency runs from there.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The times of one run.
pub(super) struct Timetable {
    start: Instant,
    /// From here on answers count.
    counted_from: Instant,
    end: Instant,
    /// Commands a second; `None`: a closed loop.
    rate: Option<f64>,
    sent: Cell<u64>,
}

impl Timetable {
    pub(super) fn new(start: Instant, rate: Option<f64>, warm_up: Duration, duration: Duration) -> Self {
        let counted_from = start + warm_up;
        Self { start, counted_from, end: counted_from + duration, rate, sent: Cell::new(0) }
    }

    /// When the next command is due; `None`: the run is over. Each call is one command.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let due = match self.rate {
            None => now,
            Some(rate) => {
                let number = self.sent.get();
                self.sent.set(number + 1);
                self.start + Duration::from_secs_f64(number as f64 / rate)
            }
        };
        // A server that does not keep up does not prolong the run: what was due and not sent is left out.
        (due < self.end && now < self.end).then_some(due)
    }

    /// Whether an answer at this time is counted.
    pub(super) fn counts(&self, answered: Instant) -> bool {
        (self.counted_from..self.end).contains(&answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_times_and_ends_with_the_run() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let table = Timetable::new(start, Some(10.0), Duration::from_millis(100), Duration::from_millis(200));
        let due: Vec<_> = std::iter::from_fn(|| table.next(start)).collect();
        assert_eq!(due, [start, after(100), after(200)]);
        assert!(!table.counts(after(99)) && table.counts(after(100)) && !table.counts(after(300)));
        let late = Timetable::new(start, Some(10.0), Duration::ZERO, Duration::from_millis(300));
        assert_eq!(late.next(after(250)), Some(start), "its latency runs from when it was due");
        assert_eq!(late.next(after(300)), None);
    }

    #[test]
    fn a_closed_loop_asks_for_the_time_alone() {
        let start = Instant::now();
        let table = Timetable::new(start, None, Duration::ZERO, Duration::from_secs(1));
        let now = start + Duration::from_millis(500);
        assert_eq!(table.next(now), Some(now));
        assert_eq!(table.next(start + Duration::from_secs(1)), None);
    }
}
