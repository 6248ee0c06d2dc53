//! `/metrics` as Prometheus reads it.
//!
//! [`Scrape`] is one reading: samples by name and labels. It knows no metric of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::http::HttpClient;
use crate::support::wait::eventually_async;

/// Bound on anything that should happen at once, on a machine that is busy with other tests.
pub const SOON: Duration = Duration::from_secs(30);

/// Labels of a sample that are asked for; others may have any value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// One reading.
#[derive(Debug, Clone)]
pub struct Scrape {
    samples: Vec<Sample>,
    /// By name: `counter`, `gauge` or `histogram`.
    pub types: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    /// Asks a server.
    pub async fn of(client: &HttpClient) -> Self {
        let answer = client.get("/metrics", None).await.expect_status(200);
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
        Self::parse(&answer.text())
    }

    /// Reads the text format.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let (mut samples, mut types) = (Vec::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let words: Vec<&str> = comment.split(' ').collect();
                if let ["TYPE", name, kind] = words[..] {
                    assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line:?}"));
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty());
            let pair = |label: &str| {
                let (name, value) = label.split_once('=').unwrap_or_else(|| panic!("no label in {line:?}"));
                (name.to_owned(), value.trim_matches('"').to_owned())
            };
            let (name, labels) = (name.to_owned(), labels.map(pair).collect());
            samples.push(Sample { name, labels, value: value.parse().unwrap() });
        }
        Self { samples, types }
    }

    /// The sum of the samples with these labels, 0 without any. A histogram's samples are named `.._count`, `.._sum` and
    /// `.._bucket`.
    pub fn value(&self, name: &str, labels: Labels) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// Whether there is such a sample, at whatever value.
    pub fn has(&self, name: &str, labels: Labels) -> bool {
        self.matching(name, labels).next().is_some()
    }

    fn matching<'a>(&'a self, name: &'a str, labels: Labels<'a>) -> impl Iterator<Item = &'a Sample> {
        let fits = move |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|has| has == value))
        };
        self.samples.iter().filter(fits)
    }

    /// The names of a metric's labels.
    pub fn labels(&self, metric: &str) -> BTreeSet<&str> {
        let of_metric = |name: &str| {
            name.strip_prefix(metric).is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let samples = self.samples.iter().filter(|sample| of_metric(&sample.name));
        samples.flat_map(|sample| sample.labels.keys().map(String::as_str)).filter(|name| *name != "le").collect()
    }

    /// How much more there is than in an earlier reading.
    pub fn since(&self, earlier: &Self, name: &str, labels: Labels) -> f64 {
        self.value(name, labels) - earlier.value(name, labels)
    }

    /// The buckets of a histogram as (upper bound, count up to there), by bound.
    pub fn buckets(&self, histogram: &str, labels: Labels) -> Vec<(f64, f64)> {
        let name = format!("{histogram}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.matching(&name, labels) {
            let bound = sample.labels["le"].parse().unwrap();
            match buckets.iter_mut().find(|(of, _)| *of == bound) {
                Some((_, count)) => *count += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

/// Reads until a value has risen to `least` above an earlier reading.
pub async fn eventually_risen(client: &HttpClient, earlier: &Scrape, name: &str, labels: Labels<'_>, least: f64) {
    let what = format!("{name}{labels:?} has risen by {least}");
    eventually_async(SOON, &what, || async { Scrape::of(client).await.since(earlier, name, labels) >= least }).await;
}

#[test]
fn the_text_format_is_read_as_it_is_written() {
    let text = "# HELP a_seconds About a.\n# TYPE a_seconds histogram\na_seconds_bucket{b=\"x\",le=\"0.5\"} 1\n\
                a_seconds_bucket{b=\"x\",le=\"+Inf\"} 2\na_seconds_sum{b=\"x\"} 1.5\na_seconds_count{b=\"x\"} 2\n\
                # TYPE c gauge\nc 7\n";
    let scrape = Scrape::parse(text);
    assert_eq!(scrape.types["a_seconds"], "histogram");
    assert_eq!(scrape.buckets("a_seconds", &[("b", "x")]), [(0.5, 1.0), (f64::INFINITY, 2.0)]);
    assert_eq!((scrape.value("a_seconds_sum", &[("b", "x")]), scrape.value("c", &[])), (1.5, 7.0));
    assert_eq!(scrape.labels("a_seconds"), BTreeSet::from(["b"]));
    assert!(!scrape.has("a_seconds_sum", &[("b", "y")]));
}
