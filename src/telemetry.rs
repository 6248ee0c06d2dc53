//! Counts that somebody keeps already, for a Prometheus registry of the caller's.
//!
//! Owns how such counts are shown: one counter, whose label `event` tells them apart. Never counts anything itself, and knows
//! no registry but the one it is given. Cannot fail but for what the registry refuses.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts, Registry};

/// What there is to read: each event with how often it came.
type Counts<const N: usize> = [(&'static str, u64); N];

/// Reads counts whenever the registry is.
struct CountsCollector<F> {
    opts: Opts,
    /// Without values: it has the description alone.
    described: IntCounterVec,
    read: F,
}

/// Adds counts to a registry, as the counter `name` with the constant label `of` and the label `event`.
///
/// # Errors
/// The registry's, where the same is there already; the label tells one from another.
pub(crate) fn register_counts<const N: usize>(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    of: (&'static str, &str),
    read: impl Fn() -> Counts<N> + Send + Sync + 'static,
) -> prometheus::Result<()> {
    let opts = Opts::new(name, help).const_label(of.0, of.1);
    let described = IntCounterVec::new(opts.clone(), &["event"])?;
    registry.register(Box::new(CountsCollector { opts, described, read }))
}

impl<const N: usize, F: Fn() -> Counts<N> + Send + Sync> Collector for CountsCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.described.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let counter = IntCounterVec::new(self.opts.clone(), &["event"]).expect("made once before");
        for (event, count) in (self.read)() {
            counter.with_label_values(&[event]).inc_by(count);
        }
        counter.collect()
    }
}
