//! What came of the commands, counted and checked.
//!
//! Owns the one place where an answer is held against what was sent. Never stops a run: what is wrong is counted, and the
//! first few are told in words.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;

use super::Shared;
use super::mix::Planned;
use crate::command_log::LatencyHistogram;

/// So many wrong answers are told in words.
const WRONG_LISTED_MAX: usize = 10;

/// An answer to a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoadAnswer {
    /// The bytes of an outcome.
    Outcome { body: Bytes, is_repeat: bool },
    /// No outcome: the code of the problem.
    Problem(String),
}

impl LoadAnswer {
    /// What a server said. A problem that can't be read is known by its status.
    pub(super) fn from_http(status: u16, is_repeat: bool, body: Bytes) -> Self {
        #[derive(Deserialize)]
        struct Problem {
            code: String,
        }
        if matches!(status, 200 | 201) {
            return Self::Outcome { body, is_repeat };
        }
        let problem = serde_json::from_slice::<Problem>(&body);
        Self::Problem(problem.map_or_else(|_| format!("status {status}"), |problem| problem.code))
    }
}

/// What a load saw. Everything but `wrong` is counted after the warm-up alone.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// How long answers were counted.
    pub elapsed: Duration,
    /// New commands that were applied.
    pub applied: u64,
    /// Repeats that got the stored outcome.
    pub replayed: u64,
    /// Commands without an outcome, by the problem's code or in words.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of the answers with an outcome.
    pub latency: LatencyHistogram,
    /// Answers that can't be right: a new command that was replayed, a repeat with other bytes.
    pub wrong: u64,
    /// The first of them, in words.
    pub first_wrong: Vec<String>,
}

impl LoadReport {
    /// Outcomes a second.
    pub fn per_second(&self) -> f64 {
        (self.applied + self.replayed) as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }
}

/// Counts, from all connections.
#[derive(Default)]
pub(super) struct Tally(RefCell<Counted>);

#[derive(Default)]
struct Counted {
    answers: u64,
    report: LoadReport,
}

impl Tally {
    pub(super) fn answers(&self) -> u64 {
        self.0.borrow().answers
    }

    pub(super) fn report(&self, elapsed: Duration) -> LoadReport {
        LoadReport { elapsed, ..self.0.borrow().report.clone() }
    }
}

impl Shared {
    /// A command got its answer.
    pub(super) fn answered(&self, planned: &Planned, due: Instant, answer: &LoadAnswer) {
        let now = Instant::now();
        let wrong = wrong(planned, answer);
        {
            let mut counted = self.tally.0.borrow_mut();
            counted.answers += 1;
            let report = &mut counted.report;
            if let Some(wrong) = wrong {
                report.wrong += 1;
                if report.first_wrong.len() < WRONG_LISTED_MAX {
                    report.first_wrong.push(wrong);
                }
                return;
            }
            if self.timetable.counts(now) {
                match answer {
                    LoadAnswer::Outcome { is_repeat: true, .. } => report.replayed += 1,
                    LoadAnswer::Outcome { is_repeat: false, .. } => report.applied += 1,
                    LoadAnswer::Problem(code) => *report.errors.entry(code.clone()).or_default() += 1,
                }
                if let LoadAnswer::Outcome { .. } = answer {
                    report.latency.record(now - due);
                }
            }
        }
        if let (LoadAnswer::Outcome { body, .. }, None) = (answer, &planned.expected) {
            self.generator.note_outcome(planned, body.clone());
        }
    }

    /// So many commands got none.
    pub(super) fn unanswered(&self, commands: u64, why: &str) {
        if self.timetable.counts(Instant::now()) {
            *self.tally.0.borrow_mut().report.errors.entry(why.to_owned()).or_default() += commands;
        }
    }
}

/// What is wrong with an answer that has an outcome.
fn wrong(planned: &Planned, answer: &LoadAnswer) -> Option<String> {
    #[derive(Deserialize)]
    struct Outcome {
        operation_id: uuid::Uuid,
    }
    let LoadAnswer::Outcome { body, is_repeat } = answer else { return None };
    let id = planned.operation_id;
    match (&planned.expected, is_repeat) {
        (Some(expected), true) if expected == body => None,
        (Some(_), true) => Some(format!("the repeat of {id} got other bytes than the first answer")),
        (Some(_), false) => Some(format!("the repeat of {id} was applied again")),
        (None, true) => Some(format!("the new command {id} was answered as a repeat")),
        (None, false) => match serde_json::from_slice::<Outcome>(body) {
            Ok(outcome) if outcome.operation_id == id => None,
            Ok(outcome) => Some(format!("the command {id} got the outcome of {}", outcome.operation_id)),
            Err(error) => Some(format!("the outcome of {id} can't be read: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_right_is_told() {
        let id = uuid::Uuid::from_u128(62);
        let planned = |expected| Planned { case: 0, command: "note", operation_id: id, expected };
        let outcome = |id: u128| Bytes::from(format!(r#"{{"operation_id":"{}"}}"#, uuid::Uuid::from_u128(id)));
        let answer = LoadAnswer::from_http;
        for (planned, answer, is_wrong) in [
            (planned(None), answer(200, false, outcome(62)), false),
            (planned(None), answer(200, false, outcome(63)), true),
            (planned(None), answer(200, false, Bytes::new()), true),
            (planned(None), answer(200, true, outcome(62)), true),
            (planned(None), answer(503, false, Bytes::new()), false),
            (planned(Some(outcome(62))), answer(200, true, outcome(62)), false),
            (planned(Some(outcome(62))), answer(200, true, outcome(63)), true),
            (planned(Some(outcome(62))), answer(200, false, outcome(62)), true),
        ] {
            assert_eq!(wrong(&planned, &answer).is_some(), is_wrong, "{planned:?} {answer:?}");
        }
    }
}
