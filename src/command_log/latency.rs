//! Latencies counted in buckets.
//!
//! Owns a histogram of constant size: values are kept to about 1.6 %, however many there are. Never grows, cannot fail.

use std::time::Duration;

/// Buckets a power of two is divided into.
const STEPS: u64 = 64;
/// Log2 of [`STEPS`].
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for about 2.5 hours, in microseconds; what took longer counts as that.
const BUCKETS: usize = (STEPS as usize) * 28;

/// How often which latency was seen.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl std::fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("total", &self.total)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish()
    }
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)] += 1;
        self.total += 1;
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The latency that a share of all (0 to 1) did not exceed; zero when none was counted.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(upper_end(bucket));
            }
        }
        Duration::ZERO
    }
}

/// Below [`STEPS`] each microsecond has its bucket; above, each power of two has as many buckets as [`STEPS`].
fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let exponent = micros.ilog2() - STEP_BITS;
    let bucket = STEPS * u64::from(exponent) + (micros >> exponent);
    (bucket as usize).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let exponent = bucket / STEPS - 1;
    let step = bucket - STEPS * exponent;
    ((step + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_kept_to_a_sixty_fourth() {
        for micros in (0..100_000).chain((100_000..3_000_000_000).step_by(7_777_777)) {
            let end = upper_end(bucket(micros));
            assert!(end >= micros && end - micros <= micros / STEPS, "{micros} became {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for micros in 1..=60 {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.total(), 60);
        assert_eq!(histogram.quantile(0.5), Duration::from_micros(30));
        assert_eq!(histogram.quantile(0.99), Duration::from_micros(60));
        assert_eq!(histogram.quantile(0.0), Duration::from_micros(1));
    }
}
