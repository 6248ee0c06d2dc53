//! The latencies that `/metrics` shows are those that a client measures.

use serde_json::Value;

use super::scrape::Scrape;
use crate::case_62::Desk;
use crate::support::cli::casework;

const LATENCY: &str = "casework_command_duration_seconds";

/// The bucket in which a value lies.
fn bucket_of(bounds: &[(f64, f64)], value: f64) -> usize {
    bounds.iter().position(|(bound, _)| value <= *bound).expect("the last bound is infinite")
}

on_both_databases! {
    /// The server does not see the wire and the client's own work, so the client's p95 may lie in the next bucket.
    async fn p95_agrees_with_that_of_the_load_tool_within_a_bucket(database: &TestDatabase) {
        let desk = Desk::open(database);
        let (url, token) = (desk.server.url(), desk.tokens.clerk.as_str());
        let fixed = ["load", "--url", url, "--token", token, "--json", "--warm-up", "0"];
        let output = tokio::task::block_in_place(|| {
            casework(fixed.iter().chain(&["--connections", "4", "--cases", "50", "--duration", "2"])).expect_success()
        });
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        let scrape = Scrape::of(&desk.client).await;
        let notes = [("command", "note"), ("outcome", "applied")];
        let buckets = scrape.buckets(LATENCY, &notes);
        let (_, total) = *buckets.last().unwrap();
        let applied = report["applied"].as_u64().unwrap() as f64;
        // Those that were answered when the time was over are not in the report.
        assert!(applied > 0.0 && (applied..=applied + 4.0).contains(&total), "{applied} and {total}");
        let of_server = buckets.iter().position(|(_, count)| *count >= 0.95 * total).unwrap();
        let p95 = report["p95_ms"].as_f64().unwrap() / 1e3;
        let of_client = bucket_of(&buckets, p95);
        assert!(of_server.abs_diff(of_client) <= 1, "{p95} s at the client; at the server {buckets:?}");
    }
}
