//! Figures: one for each run, kept as they were measured.
//!
//! Owns medians and the choice of the best variant. What is printed comes from here, and so does the file of all figures.

use serde::Serialize;

/// Processor time and write-ahead log of one run, for each command that it made.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    /// Commands of the whole run, preparation included: what the rest was divided by.
    pub commands: u64,
    /// Processor time of the server in between, microseconds; none for pgbench.
    pub server_micros: Option<f64>,
    /// Of PostgreSQL, background processes included.
    pub database_micros: Option<f64>,
    /// Of the load generator (or pgbench).
    pub client_micros: f64,
    /// Bytes of PostgreSQL's write-ahead log.
    pub wal_bytes: Option<f64>,
}

/// One run of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Which contender; see `contenders`.
    pub contender: &'static str,
    /// How it was run, `64 connections` say.
    pub variant: String,
    /// From 1.
    pub round: usize,
    /// Commands a second.
    pub per_second: f64,
    /// Latencies; none where they were not measured.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Commands without an outcome while it was counted.
    pub errors: u64,
    pub cost: Option<Cost>,
}

/// What counts about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Measure {
    /// More is better.
    Throughput,
    /// Less is better.
    P99,
}

impl Figure {
    /// The number that counts.
    pub fn value(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Throughput => self.per_second,
            Measure::P99 => self.p99_ms.unwrap_or(f64::INFINITY),
        }
    }
}

/// A contender over all rounds: the best variant of each round, and the median of those.
#[derive(Debug, Clone, Serialize)]
pub struct Standing {
    pub contender: &'static str,
    /// The variant that the median comes from.
    pub variant: String,
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// How a contender stands; `None`: it was not run.
pub fn standing(figures: &[Figure], contender: &'static str, measure: Measure) -> Option<Standing> {
    let of = |round: usize| figures.iter().filter(move |figure| figure.contender == contender && figure.round == round);
    let rounds = figures.iter().map(|figure| figure.round).max()?;
    let mut best: Vec<&Figure> = (1..=rounds)
        .filter_map(|round| {
            let order = |a: &&Figure, b: &&Figure| a.value(measure).total_cmp(&b.value(measure));
            match measure {
                Measure::Throughput => of(round).max_by(order),
                Measure::P99 => of(round).min_by(order),
            }
        })
        .collect();
    best.sort_by(|a, b| a.value(measure).total_cmp(&b.value(measure)));
    let median = best.get(best.len() / 2)?;
    Some(Standing {
        contender,
        variant: median.variant.clone(),
        median: median.value(measure),
        least: best[0].value(measure),
        most: best[best.len() - 1].value(measure),
    })
}
