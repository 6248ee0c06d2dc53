//! The bounds of the histograms' buckets.
//!
//! Owns how exact a quantile is: a bound is at most twice the one before it.

use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry};

use super::register;

/// Half a millisecond to half a minute, in seconds: a commit on a fast disk takes one, a command's deadline is the other.
pub(super) const SECONDS: [f64; 17] =
    [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0];

/// Zero (a batch may have nothing to write) to the caps of a batch.
const COUNTS: [f64; 11] = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

pub(super) fn seconds(registry: &Registry, name: &str, help: &str) -> Histogram {
    register(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec())))
}

pub(super) fn seconds_by(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
    register(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels))
}

pub(super) fn counts(registry: &Registry, name: &str, help: &str) -> Histogram {
    register(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(COUNTS.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bound_is_more_than_twice_the_one_before_it() {
        for bounds in [&SECONDS[..], &COUNTS[1..]] {
            for pair in bounds.windows(2) {
                assert!(pair[0] < pair[1] && pair[1] <= 2.0 * pair[0], "{pair:?}");
            }
        }
    }
}
