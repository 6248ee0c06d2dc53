//! What a guard counts, for Prometheus.
//!
//! Owns names and labels; labels have the values of the rules file and of the code, never those of clients. A scrape reads
//! the counters where they are kept. Cannot fail.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus::{Encoder as _, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use crate::idempotency::IdempotencyCounts;

/// What became of requests to the upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamCounts {
    /// Attempts to send one.
    pub(super) sent: AtomicU64,
    /// Those where it could not be connected to.
    pub(super) unavailable: AtomicU64,
    /// Those that it got and did not answer whole.
    pub(super) unanswered: AtomicU64,
}

/// The counts of a layer by the names that the metric has.
fn named(counts: &IdempotencyCounts) -> [(&'static str, u64); 10] {
    [
        ("claimed", counts.claimed),
        ("replayed", counts.replayed),
        ("in-flight", counts.in_flight),
        ("mismatched", counts.mismatched),
        ("released", counts.released),
        ("lost", counts.lost),
        ("tombstones", counts.tombstones),
        ("unavailable", counts.unavailable),
        ("not-stored", counts.not_stored),
        ("same-under-new-key", counts.same_under_new_key),
    ]
}

/// Everything in Prometheus' text format: the layers' counts by route, the upstream's, and requests inside now.
pub(super) fn text(layers: &[(String, IdempotencyCounts)], upstream: &UpstreamCounts, requests: usize) -> String {
    let registry = Registry::new();
    let idempotency = counters(
        &registry,
        "casework_guard_idempotency_total",
        "What became of requests under a key, by the path of their route and by outcome.",
        &["route", "outcome"],
    );
    for (route, counts) in layers {
        for (outcome, count) in named(counts) {
            idempotency.with_label_values(&[route.as_str(), outcome]).inc_by(count);
        }
    }
    let about = "Requests to the upstream: sent, those of them that could not be (unavailable), and unanswered ones.";
    let to_upstream = counters(&registry, "casework_guard_upstream_requests_total", about, &["event"]);
    for (event, count) in
        [("sent", &upstream.sent), ("unavailable", &upstream.unavailable), ("unanswered", &upstream.unanswered)]
    {
        to_upstream.with_label_values(&[event]).inc_by(count.load(Relaxed));
    }
    let inside = IntGauge::new("casework_guard_requests", "Requests inside the guard now.");
    let inside = inside.expect("the name is a constant that a test registers");
    inside.set(i64::try_from(requests).unwrap_or(i64::MAX));
    registry.register(Box::new(inside)).expect("each name is registered once");
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).expect("a Vec takes every byte");
    String::from_utf8(text).expect("names, labels and numbers are UTF-8")
}

fn counters(registry: &Registry, name: &str, about: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, about), labels);
    let counters = counters.expect("names and labels are constants that a test registers");
    registry.register(Box::new(counters.clone())).expect("each name is registered once");
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shown_by_route_and_outcome() {
        let counts = IdempotencyCounts { replayed: 3, ..IdempotencyCounts::default() };
        let layers = [("/payments/*".to_owned(), counts), ("/payments/*".to_owned(), counts)];
        let text = text(&layers, &UpstreamCounts::default(), 2);
        for line in [
            // Two routes with one path, for other methods, are counted together.
            "casework_guard_idempotency_total{outcome=\"replayed\",route=\"/payments/*\"} 6",
            "casework_guard_upstream_requests_total{event=\"unanswered\"} 0",
            "casework_guard_requests 2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
