//! What a process measures of itself, for Prometheus.
//!
//! Owns the names, labels and buckets of all metrics and the text that shows them; the README's table is held against it.
//! There is one registry a gateway and nothing global, so that several gateways live in one process. Those who act publish
//! here: this module asks nobody, and never slows a command by more than a few atomic additions. Labels have few values,
//! whatever clients send. Cannot fail.

mod admission_metrics;
mod buckets;
mod command_metrics;
mod commit_metrics;
mod memory_metrics;

use prometheus::core::Collector;
use prometheus::{Encoder as _, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

pub use admission_metrics::{AdmissionMetrics, Refusal};
pub use command_metrics::{CommandLabel, CommandMetrics};
pub use commit_metrics::CommitMetrics;
pub use memory_metrics::MemoryMetrics;

/// The media type of [`Metrics::text`].
pub const TEXT_MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// All metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// How long commands take.
    pub commands: CommandMetrics,
    /// What is refused at the door, and what is inside.
    pub admission: AdmissionMetrics,
    /// Waiting and committing.
    pub commits: CommitMetrics,
    /// What is kept in memory, and what it is good for.
    pub memory: MemoryMetrics,
    problems: IntCounterVec,
}

impl Metrics {
    /// All at zero.
    #[expect(clippy::new_without_default, reason = "it makes a registry, which is more than a default value")]
    pub fn new() -> Self {
        let registry = Registry::new();
        let about = "The program that answers; always 1.";
        let build = gauges(&registry, "casework_build_info", about, "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            commands: CommandMetrics::new(&registry),
            admission: AdmissionMetrics::new(&registry),
            commits: CommitMetrics::new(&registry),
            memory: MemoryMetrics::new(&registry),
            problems: counters(
                &registry,
                "casework_problems_total",
                "Requests and lines of streams that were answered with a problem, by its code: rejections and all others.",
                "code",
            ),
            registry,
        }
    }

    /// The counter of the problems with this code. The codes are few; who answers with them keeps their counters.
    pub fn problems(&self, code: &'static str) -> IntCounter {
        self.problems.with_label_values(&[code])
    }

    /// Everything in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes every byte");
        String::from_utf8(text).expect("names, labels and numbers are UTF-8")
    }
}

/// Adds a metric to the registry.
fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names and labels are constants that a test registers");
    registry.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help))
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), &[label]))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help))
}

fn gauges(registry: &Registry, name: &str, help: &str, label: &str) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
}

/// A count or a size as a gauge takes it.
fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
