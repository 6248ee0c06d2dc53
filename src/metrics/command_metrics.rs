//! How long commands take, by command and outcome.
//!
//! Owns which command names become labels: the built-in ones, and actions of workflows that this process knows, in the order
//! in which they are met and up to a bound; everything else is `other`. The series of a name are found once a command by a
//! look-up without allocation, those of an outcome by its place.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Instant;

use prometheus::{Histogram, HistogramVec, Registry};

use super::buckets;
use crate::domain::{Command, CommandKind, CommandName, Rejection};
use crate::engine::{Answer, Trouble};

/// The most names with series of their own: each has up to [`OUTCOMES`] histograms.
const NAMES_MAX: usize = 64;

/// What every further name is called.
const OTHER: &str = "other";

/// How many outcomes are told apart.
const OUTCOMES: usize = 15;

/// The latencies of all commands.
#[derive(Debug)]
pub struct CommandMetrics {
    histograms: HistogramVec,
    by_name: RwLock<HashMap<CommandName, Arc<CommandSeries>>>,
    other: Arc<CommandSeries>,
}

/// The latencies of one command name, by outcome. A histogram is made when its outcome is first met.
#[derive(Debug)]
struct CommandSeries {
    name: String,
    histograms: HistogramVec,
    by_outcome: [OnceLock<Histogram>; OUTCOMES],
}

/// Measures one command, from its arrival to its answer.
#[derive(Debug)]
pub struct CommandTimer {
    series: Arc<CommandSeries>,
    arrived: Instant,
}

impl CommandMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let histograms = buckets::seconds_by(
            registry,
            "casework_command_duration_seconds",
            "From a command's arrival at the gateway to its answer, by command and outcome (a problem's code, if it has none).",
            &["command", "outcome"],
        );
        let other = CommandSeries::new(OTHER, &histograms);
        Self { histograms, by_name: RwLock::default(), other }
    }

    /// A command has arrived. `is_action` tells whether some workflow has an action of that name; it is asked only about
    /// names that have no series yet.
    pub fn start(
        &self,
        command: &Command,
        arrived: Instant,
        is_action: impl FnOnce(&CommandName) -> bool,
    ) -> CommandTimer {
        let known = self.by_name.read().expect("no holder of this lock panics").get(command.name()).cloned();
        let series = known.unwrap_or_else(|| {
            let is_built_in = !matches!(command.kind(), CommandKind::Action);
            if is_built_in || is_action(command.name()) { self.admit(command.name()) } else { self.other.clone() }
        });
        CommandTimer { series, arrived }
    }

    fn admit(&self, name: &CommandName) -> Arc<CommandSeries> {
        let mut by_name = self.by_name.write().expect("no holder of this lock panics");
        if by_name.len() >= NAMES_MAX && !by_name.contains_key(name) {
            return self.other.clone();
        }
        by_name.entry(name.clone()).or_insert_with(|| CommandSeries::new(name.as_str(), &self.histograms)).clone()
    }
}

impl CommandSeries {
    fn new(name: &str, histograms: &HistogramVec) -> Arc<Self> {
        let by_outcome = std::array::from_fn(|_| OnceLock::new());
        Arc::new(Self { name: name.to_owned(), histograms: histograms.clone(), by_outcome })
    }
}

impl CommandTimer {
    /// When the command arrived.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The command was answered.
    pub fn answered(&self, answer: &Answer) {
        let (place, outcome) = outcome(answer);
        let series = &self.series;
        let histogram = series.by_outcome[place]
            .get_or_init(|| series.histograms.with_label_values(&[series.name.as_str(), outcome]));
        histogram.observe(self.arrived.elapsed().as_secs_f64());
    }
}

/// The place of an answer among the outcomes, and its label. No `_`: a new outcome gets a place of its own.
fn outcome(answer: &Answer) -> (usize, &'static str) {
    match answer {
        Answer::Applied(_) => (0, "applied"),
        Answer::Replayed(_) => (1, "replayed"),
        Answer::Rejected(rejection) => {
            let place = match rejection {
                Rejection::OperationConflict => 2,
                Rejection::OutcomeExpired => 3,
                Rejection::CaseNotFound => 4,
                Rejection::CaseExists => 5,
                Rejection::InvalidCommand(_) => 6,
                Rejection::NotAssigned => 7,
                Rejection::IllegalTransition { .. } => 8,
                Rejection::StaleRevision { .. } => 9,
            };
            (place, rejection.code())
        }
        Answer::Unsettled(trouble) => {
            let place = match trouble {
                Trouble::Overloaded => 10,
                Trouble::Draining => 11,
                Trouble::Contention => 12,
                Trouble::Unavailable => 13,
                Trouble::Internal => 14,
            };
            (place, trouble.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::domain::{ActorId, CaseId, CommandDraft, Members, OperationId};

    fn command(name: &str) -> Command {
        let Value::Object(mut object) = json!({"reason": "x"}) else { unreachable!("it is an object") };
        let members = if name == "open" { &mut Map::new() } else { &mut object };
        Command::new(CommandDraft {
            case_id: CaseId::from_stored("62"),
            operation_id: OperationId::from_uuid(uuid::Uuid::from_u128(1)),
            actor: ActorId::from_stored("47"),
            name: CommandName::from_stored(name),
            members: Members::take(members, &mut Vec::new()),
        })
        .expect("valid")
    }

    fn names(commands: impl Iterator<Item = String>, is_action: impl Fn(&CommandName) -> bool) -> Vec<String> {
        let metrics = CommandMetrics::new(&Registry::new());
        let name_of = |name: String| metrics.start(&command(&name), Instant::now(), &is_action).series.name.clone();
        commands.map(name_of).collect()
    }

    #[test]
    fn built_in_commands_and_known_actions_are_labels_and_nothing_else() {
        let sent = ["open", "note", "approve", "approve-all", "approve"].map(str::to_owned);
        let labels = names(sent.into_iter(), |name| name.as_str() == "approve");
        assert_eq!(labels, ["open", "note", "approve", "other", "approve"]);
    }

    #[test]
    fn past_a_bound_further_actions_share_a_label() {
        let labels = names((0..400).map(|i| format!("action-{i}")), |_| true);
        assert_eq!(labels.iter().filter(|label| *label == OTHER).count(), 400 - NAMES_MAX);
        assert_eq!(labels[NAMES_MAX - 1], format!("action-{}", NAMES_MAX - 1));
    }
}
