//! The checker against a search that tries every order, on 10,000 small histories, half of them mutated.
//!
//! The search (WGL, from a crate of its own) knows nothing of versions and intervals: it looks for one order of the attempts
//! in which [`Model`] gives every client its answer and ends with the rows that are stored. Each history is one case, two to
//! four clients and four to eight attempts, run against the model with answers that come late, get lost, or belong to a
//! command that is applied only after its client gave up. Checker and search must agree on every history; a failing one
//! is printed with its seed.

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::LazyLock;

use casework::domain::Command;
use casework::history::{CheckOptions, Event, Reply, ReplyProblem};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use super::model::{Model, Tables, bare_problem, check, command, reply, status};
use super::mutate::mutate;
use crate::support::scene::Dice;

/// Histories; every second one is mutated.
const HISTORIES: u64 = 10_000;
/// Of the mutated ones, at least so many of a hundred must be truly wrong: else the mutations are too tame to show anything.
const WRONG_PERCENT_MIN: u64 = 40;

/// The commands that clients choose from: few, so that they meet each other.
pub static COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(|| {
    [
        (1, r#""actor":"clerk","command":"open""#),
        (2, r#""actor":"81","command":"open""#),
        (3, r#""actor":"clerk","command":"assign","payload":{"assignee":"47"}"#),
        (4, r#""actor":"clerk","command":"unassign","payload":{"assignee":"47"}"#),
        (5, r#""actor":"47","command":"approve","expected_revision":0,"reason":"Reviewed.""#),
        (6, r#""actor":"47","command":"return","expected_revision":0,"reason":"The plan is missing.""#),
        (7, r#""actor":"81","command":"amend","expected_revision":0,"reason":"Another site.""#),
        (8, r#""actor":"81","command":"amend","expected_revision":1,"reason":"Another date.""#),
        (9, r#""actor":"81","command":"withdraw","expected_revision":1,"reason":"Not needed.""#),
        (10, r#""actor":"81","command":"note","reason":"Called.""#),
        (10, r#""actor":"47","command":"note","reason":"Called.""#),
        (5, r#""actor":"47","command":"deny","expected_revision":0,"reason":"Reviewed.""#),
        (11, r#""actor":"47","command":"frobnicate""#),
    ]
    .iter()
    .map(|(number, rest)| command(*number, rest))
    .collect()
});

/// How an attempt ended, and when.
#[derive(Debug, Clone)]
pub enum End {
    Reply(u64, Reply),
    Unknown(u64),
    Never,
}

/// One attempt of a client.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Which of [`COMMANDS`].
    pub command: usize,
    pub began: u64,
    pub end: End,
}

impl Attempt {
    pub fn command(&self) -> &'static Command {
        &COMMANDS[self.command]
    }
}

/// What clients saw and what is stored.
#[derive(Debug, Clone)]
pub struct Small {
    pub attempts: Vec<Attempt>,
    pub model: Model,
}

/// What a client gets that may hear nothing.
enum Fate {
    Answered,
    Lost,
    Unavailable,
    Refused,
}

/// A history that happened: it is right by its making.
fn happened(dice: &mut Dice) -> Small {
    let clients = 2 + dice.below(3);
    let mut free_at = vec![0_u64; clients];
    // (attempt, when it is run, fate), to be run in the order of time.
    let mut runs: Vec<(u64, usize, Fate)> = Vec::new();
    let mut attempts = Vec::new();
    for number in 0..4 + dice.below(5) {
        let client = dice.below(clients);
        let began = free_at[client] + dice.below(4) as u64;
        let is_retry = number > 0 && dice.percent(30);
        let command = match attempts.get(dice.below(number.max(1))) {
            Some(Attempt { command, .. }) if is_retry => *command,
            _ if number == 0 || dice.percent(10) => 0,
            _ => dice.below(COMMANDS.len()),
        };
        let run_at = began + dice.below(5) as u64;
        let ended = run_at + dice.below(5) as u64;
        let (fate, end) = match dice.below(10) {
            0 => (Fate::Lost, End::Never),
            1 => (Fate::Lost, End::Unknown(ended)),
            2 => (Fate::Unavailable, End::Never),
            3 => (Fate::Refused, End::Never),
            _ => (Fate::Answered, End::Never),
        };
        match fate {
            // It is run much later, or not at all.
            Fate::Lost | Fate::Unavailable if dice.percent(70) => {
                runs.push((began + dice.below(30) as u64, number, Fate::Lost));
            }
            Fate::Answered => runs.push((run_at, number, Fate::Answered)),
            _ => {}
        }
        let end = match fate {
            Fate::Unavailable => End::Reply(ended, Reply::Problem(bare_problem("unavailable"))),
            Fate::Refused => End::Reply(ended, Reply::Problem(bare_problem("overloaded"))),
            Fate::Answered => End::Unknown(ended),
            Fate::Lost => end,
        };
        free_at[client] = ended + 1 + dice.below(3) as u64;
        attempts.push(Attempt { command, began, end });
    }
    runs.sort_by_key(|(at, number, _)| (*at, *number));
    let mut model = Model::default();
    for (_, number, fate) in runs {
        let answer = model.run(attempts[number].command());
        if let (Fate::Answered, End::Unknown(ended)) = (fate, attempts[number].end.clone()) {
            attempts[number].end = End::Reply(ended, reply(&answer));
        }
    }
    Small { attempts, model }
}

/// What the checker says.
fn checker_accepts(small: &Small, tables: &mut Tables) -> (bool, String) {
    let mut events = Vec::new();
    for (attempt, number) in small.attempts.iter().zip(1..) {
        let command = attempt.command().clone();
        events.push(Event::Invoke {
            attempt: number,
            at_us: attempt.began,
            client: "a".into(),
            command: command.into(),
        });
        match attempt.end.clone() {
            End::Reply(at_us, reply) => {
                let status = if let Reply::Outcome { .. } = reply { status(attempt.command()) } else { 409 };
                events.push(Event::Reply { attempt: number, at_us, status, reply });
            }
            End::Unknown(at_us) => events.push(Event::Unknown { attempt: number, at_us, why: "cut".into() }),
            End::Never => {}
        }
    }
    let report = check(&events, tables, CheckOptions::default());
    let violations: Vec<_> = report.first_violations.iter().map(ToString::to_string).collect();
    (report.is_clean(), violations.join("\n"))
}

/// One step of the search: an attempt with its end, or the look at the tables when all is over.
#[derive(Clone)]
enum Step {
    Attempt(usize, Rc<Small>),
    Tables(Rc<Tables>),
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("step")
    }
}

/// The model as a state of the search: what was applied says all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied(Rc<Model>);

impl Hash for Applied {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for operation in self.0.operations() {
            (operation.operation_id, operation.digest).hash(hasher);
        }
    }
}

struct Server;

impl Specification for Server {
    type State = Applied;
    type Operation = Step;

    fn init() -> Applied {
        Applied(Rc::default())
    }

    fn apply(step: &Step, state: &Applied) -> (bool, Applied) {
        let (number, small) = match step {
            Step::Tables(tables) => return (state.0.tables() == **tables, state.clone()),
            Step::Attempt(number, small) => (*number, small),
        };
        let attempt = &small.attempts[number];
        let told = match &attempt.end {
            End::Reply(_, Reply::Problem(ReplyProblem { code, .. })) if code == "overloaded" => {
                return (true, state.clone());
            }
            End::Reply(_, Reply::Problem(ReplyProblem { code, .. })) if code == "unavailable" => None,
            End::Reply(_, reply) => Some(reply),
            End::Unknown(_) | End::Never => None,
        };
        let mut model = (*state.0).clone();
        let answer = model.run(attempt.command());
        match told {
            // It is run here; one that never is has its place behind the look at the tables.
            None => (true, Applied(model.into())),
            Some(told) if *told == reply(&answer) => (true, Applied(model.into())),
            Some(_) => (false, state.clone()),
        }
    }
}

/// What the search says.
fn search_accepts(small: &Small, tables: &Tables) -> bool {
    let shared = Rc::new(small.clone());
    let tables = Rc::new(tables.clone());
    let far = 1_000_000;
    // Beginnings before ends of the same time: those are concurrent.
    let mut actions = Vec::new();
    for (number, attempt) in small.attempts.iter().enumerate() {
        let is_open = match &attempt.end {
            End::Reply(_, Reply::Problem(ReplyProblem { code, .. })) => code == "unavailable",
            End::Reply(..) => false,
            End::Unknown(_) | End::Never => true,
        };
        let ended = match attempt.end {
            End::Reply(at, _) if !is_open => at,
            _ => far + 3,
        };
        let step = Step::Attempt(number, shared.clone());
        actions.push((attempt.began, false, number, Action::Call(step.clone())));
        actions.push((ended, true, number, Action::Response(step)));
    }
    let look = small.attempts.len();
    actions.push((far + 1, false, look, Action::Call(Step::Tables(tables.clone()))));
    actions.push((far + 2, true, look, Action::Response(Step::Tables(tables))));
    actions.sort_by_key(|(at, is_end, number, _)| (*at, *is_end, *number));
    let actions = actions.into_iter().map(|(_, _, number, action)| (number, action)).collect();
    WGLChecker::<Server>::is_linearizable(History::from_actions(actions))
}

#[test]
fn checker_and_search_agree_on_every_small_history() {
    let mut dice = Dice::seeded();
    let (mut mutated, mut wrong) = (0, 0);
    let mut by_mutation = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    for number in 0..HISTORIES {
        let mut small = happened(&mut dice);
        let mut tables = small.model.tables();
        let mutation = (number % 2 == 1).then(|| mutate(&mut small, &mut tables, &mut dice));
        let searched = search_accepts(&small, &tables);
        let (checked, violations) = checker_accepts(&small, &mut tables);
        assert_eq!(
            checked, searched,
            "history {number} (mutation {mutation:?}): the checker says {checked} and the search {searched}\n{violations}\n\
             {:#?}\n{:#?}",
            small.attempts, tables.operations
        );
        match mutation {
            None => assert!(searched, "history {number} happened, and both call it wrong: {small:#?}"),
            Some(mutation) => {
                mutated += 1;
                wrong += u64::from(!searched);
                let count = by_mutation.entry(mutation).or_default();
                *count = (count.0 + 1, count.1 + u64::from(!searched));
            }
        }
    }
    eprintln!("{mutated} mutated histories, {wrong} of them wrong: {by_mutation:?}");
    assert!(wrong * 100 >= mutated * WRONG_PERCENT_MIN, "only {wrong} of {mutated} mutated histories are wrong");
    for (mutation, (all, wrong)) in by_mutation {
        assert!(wrong > 0, "the mutation {mutation} never makes a history wrong ({all} tries)");
    }
}
