//! How long commands take, by command and outcome.
//!
//! Owns which command names become labels: the built-in ones, and actions of workflows that this process knows, in the order
//! in which they are met and up to a bound; everything else is `other`. A name is found without a lock or an allocation, the
//! series of an outcome by its place: this is done for every command, also for one that memory answers in two microseconds.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, Registry};

use super::buckets;
use crate::domain::{Command, CommandKind, CommandName, Rejection};
use crate::engine::{Answer, Trouble};

/// The most names with series of their own: each has up to [`OUTCOMES`] histograms.
const NAMES_MAX: usize = 64;

/// What every further name is called; its place is behind the last name.
const OTHER: &str = "other";

/// How many outcomes are told apart.
const OUTCOMES: usize = 15;

/// The latencies of all commands.
#[derive(Debug)]
pub struct CommandMetrics {
    histograms: HistogramVec,
    /// Filled from the front; a name that is there stays there.
    names: [OnceLock<String>; NAMES_MAX],
    /// Held by whoever adds a name.
    adding: Mutex<()>,
    /// By the place of the name and of the outcome; made when that outcome is first met.
    series: Vec<[OnceLock<Histogram>; OUTCOMES]>,
}

/// The place of a command's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLabel(usize);

impl CommandMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let histograms = buckets::seconds_by(
            registry,
            "casework_command_duration_seconds",
            "From a command's arrival at the gateway to its answer, by command and outcome (a problem's code, if it has none).",
            &["command", "outcome"],
        );
        let series = (0..=NAMES_MAX).map(|_| std::array::from_fn(|_| OnceLock::new())).collect();
        Self { histograms, names: std::array::from_fn(|_| OnceLock::new()), adding: Mutex::new(()), series }
    }

    /// The label of a command. `is_action` tells whether some workflow has an action of that name; it is asked only about
    /// names that have no place yet.
    pub fn label(&self, command: &Command, is_action: impl FnOnce(&CommandName) -> bool) -> CommandLabel {
        let name = command.name();
        let known = self.names.iter().map_while(OnceLock::get).position(|known| known == name.as_str());
        if let Some(place) = known {
            return CommandLabel(place);
        }
        let is_full = self.names[NAMES_MAX - 1].get().is_some();
        let is_built_in = !matches!(command.kind(), CommandKind::Action);
        if is_full || !(is_built_in || is_action(name)) {
            return CommandLabel(NAMES_MAX);
        }
        self.add(name)
    }

    fn add(&self, name: &CommandName) -> CommandLabel {
        let _alone = self.adding.lock().expect("no holder of this lock panics");
        let place = self.names.iter().position(|slot| slot.get_or_init(|| name.as_str().to_owned()) == name.as_str());
        CommandLabel(place.unwrap_or(NAMES_MAX))
    }

    /// A command was answered so long after it had arrived.
    pub fn answered(&self, CommandLabel(place): CommandLabel, answer: &Answer, took: Duration) {
        let (outcome_place, outcome) = outcome(answer);
        let histogram = self.series[place][outcome_place].get_or_init(|| {
            let name = self.names.get(place).and_then(OnceLock::get).map_or(OTHER, String::as_str);
            self.histograms.with_label_values(&[name, outcome])
        });
        histogram.observe(took.as_secs_f64());
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
        let (registry, answer) = (Registry::new(), Answer::Unsettled(Trouble::Internal));
        let metrics = CommandMetrics::new(&registry);
        let name_of = |name: String| {
            let label = metrics.label(&command(&name), &is_action);
            metrics.answered(label, &answer, Duration::from_millis(1));
            metrics.names.get(label.0).map_or(OTHER, |name| name.get().expect("it has a place")).to_owned()
        };
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
