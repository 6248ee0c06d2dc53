//! `/metrics`, and the counting of problems.
//!
//! Owns which problems have a counter: all of them, from the start, so that the first one of a kind is seen as a rise. Needs
//! no token, as the probes do not: what is shown are names of commands and numbers. Cannot fail.

use actix_web::HttpResponse;
use actix_web::http::header;
use prometheus::IntCounter;

use super::exchange::Exchange;
use super::problems::{Problem, ProblemCode};
use crate::metrics::{Metrics, TEXT_MEDIA_TYPE};

/// Everything that is measured, as of now.
pub(super) async fn expose(exchange: &Exchange) -> HttpResponse {
    let text = exchange.state.gateway.metrics_text().await;
    HttpResponse::Ok().content_type(TEXT_MEDIA_TYPE).insert_header((header::CACHE_CONTROL, "no-store")).body(text)
}

/// A counter for each code.
#[derive(Debug, Clone)]
pub(super) struct ProblemCounters([IntCounter; ProblemCode::ALL.len()]);

impl ProblemCounters {
    /// All codes, at what they were.
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self(ProblemCode::ALL.map(|code| metrics.problems(code.facts().code)))
    }

    /// A request or a line was answered with this problem.
    pub(super) fn count(&self, problem: &Problem) {
        if let Some(place) = ProblemCode::ALL.iter().position(|code| *code == problem.code()) {
            self.0[place].inc();
        }
    }
}
