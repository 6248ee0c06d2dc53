//! What is kept in memory, and the repeats that it answers.
//!
//! Owns nothing that moves by itself: the shards are asked when somebody looks.

use prometheus::{IntCounter, IntGauge, Registry};

use super::{counters, gauge, gauges, signed};
use crate::engine::{ReplayCounts, TableStats};

/// Gauges of all shards, and where repeats found their outcome.
#[derive(Debug)]
pub struct MemoryMetrics {
    live_cases: IntGauge,
    passive_cases: IntGauge,
    live_bytes: IntGauge,
    passive_bytes: IntGauge,
    operation_bytes: IntGauge,
    from_memory: IntCounter,
    from_database: IntCounter,
    in_flight: IntCounter,
}

impl MemoryMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let cases = gauges(
            registry,
            "casework_cases",
            "Cases in memory: live (with an actor) and passive (without one).",
            "state",
        );
        let bytes = gauges(
            registry,
            "casework_case_bytes",
            "About the memory of live and passive cases, without their operations.",
            "state",
        );
        let about = "About the memory of operation ids, digests and outcomes of all cases.";
        let replays = counters(
            registry,
            "casework_replays_total",
            "Repeats that got the stored outcome, by where it was found.",
            "source",
        );
        let replay = |source: &str| replays.with_label_values(&[source]);
        Self {
            live_cases: cases.with_label_values(&["live"]),
            passive_cases: cases.with_label_values(&["passive"]),
            live_bytes: bytes.with_label_values(&["live"]),
            passive_bytes: bytes.with_label_values(&["passive"]),
            operation_bytes: gauge(registry, "casework_operation_cache_bytes", about),
            from_memory: replay("memory"),
            from_database: replay("database"),
            in_flight: replay("in-flight"),
        }
    }

    /// So many repeats got their outcome since the last call.
    pub fn count_replays(&self, replays: ReplayCounts) {
        self.from_memory.inc_by(replays.memory);
        self.from_database.inc_by(replays.database);
        self.in_flight.inc_by(replays.in_flight);
    }

    /// What the shards hold now.
    pub fn show(&self, shards: &[TableStats]) {
        let sum = |part: fn(&TableStats) -> usize| signed(shards.iter().map(part).sum());
        self.live_cases.set(sum(|stats| stats.live_cases));
        self.passive_cases.set(sum(|stats| stats.passive_cases));
        self.live_bytes.set(sum(|stats| stats.live_bytes));
        self.passive_bytes.set(sum(|stats| stats.passive_bytes));
        self.operation_bytes.set(sum(|stats| stats.operation_bytes));
    }
}
