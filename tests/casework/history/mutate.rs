//! What can be wrong with a history: one change to answers, times or rows.
//!
//! A mutated history may still be right (a time moved within what is concurrent): the search tells.

use casework::domain::Command;
use casework::history::Reply;

use super::cross_check::{COMMANDS, End, Small};
use super::model::{Model, Tables, bare_problem, reply};
use crate::support::scene::Dice;

type Mutation = fn(&mut Small, &mut Tables, &mut Dice) -> bool;

const MUTATIONS: &[(&str, Mutation)] = &[
    ("an attempt at another time", shift),
    ("the replayed flag turned", turn_replayed),
    ("the answer of another attempt", take_answer),
    ("a rejection on another state", other_rejection),
    ("the newest operation dropped", drop_newest),
    ("an operation dropped, all later ones decided again", drop_any),
    ("two operations swapped, answers too", swap_versions),
    ("other bytes", other_bytes),
    ("a clear no", clear_no),
    ("an unknown attempt answered", answer_unknown),
    ("an operation that nobody sent", unsent),
    ("another command under the id", other_command),
];

/// Changes one thing and says what.
pub fn mutate(small: &mut Small, tables: &mut Tables, dice: &mut Dice) -> &'static str {
    loop {
        let (name, mutation) = &MUTATIONS[dice.below(MUTATIONS.len())];
        if mutation(small, tables, dice) {
            return name;
        }
    }
}

fn shift(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let index = dice.below(small.attempts.len());
    let attempt = &mut small.attempts[index];
    let by = 1 + dice.below(20) as u64;
    let is_later = dice.percent(50);
    let moved = |at: u64| if is_later { at + by } else { at.saturating_sub(by) };
    attempt.began = moved(attempt.began);
    match &mut attempt.end {
        End::Reply(at, _) | End::Unknown(at) => *at = moved(*at).max(attempt.began),
        End::Never => {}
    }
    true
}

/// The answer of any attempt that has one.
fn any_reply<'s>(small: &'s mut Small, dice: &mut Dice) -> Option<&'s mut Reply> {
    let index = dice.below(small.attempts.len());
    match &mut small.attempts[index].end {
        End::Reply(_, reply) => Some(reply),
        _ => None,
    }
}

fn turn_replayed(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let Some(Reply::Outcome { replayed, .. }) = any_reply(small, dice) else { return false };
    *replayed = !*replayed;
    true
}

fn take_answer(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let Some(other) = any_reply(small, dice).cloned() else { return false };
    let Some(reply) = any_reply(small, dice) else { return false };
    let is_other = *reply != other;
    *reply = other;
    is_other
}

/// The rejection that the attempt's command gives on another state than that which it met.
fn other_rejection(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let index = dice.below(small.attempts.len());
    let commands = applied(&small.model);
    let mut model = rerun(&commands[..dice.below(commands.len() + 1)]);
    let answer = model.run(small.attempts[index].command());
    let End::Reply(_, told) = &mut small.attempts[index].end else { return false };
    if answer.is_ok() || *told == reply(&answer) {
        return false;
    }
    *told = reply(&answer);
    true
}

fn applied(model: &Model) -> Vec<Command> {
    let read = |row| Command::from_operation(row).expect("the model's own").expect("not pruned");
    model.operations().iter().map(read).collect()
}

fn rerun(commands: &[Command]) -> Model {
    let mut model = Model::default();
    // What is not legal any more is left out.
    commands.iter().for_each(|command| drop(model.run(command)));
    model
}

fn store(commands: &[Command], small: &mut Small, tables: &mut Tables) -> bool {
    small.model = rerun(commands);
    *tables = small.model.tables();
    true
}

fn drop_newest(small: &mut Small, tables: &mut Tables, _: &mut Dice) -> bool {
    let mut commands = applied(&small.model);
    commands.pop().is_some() && store(&commands, small, tables)
}

fn drop_any(small: &mut Small, tables: &mut Tables, dice: &mut Dice) -> bool {
    let mut commands = applied(&small.model);
    if commands.len() < 2 {
        return false;
    }
    commands.remove(1 + dice.below(commands.len() - 1));
    store(&commands, small, tables)
}

fn swap_versions(small: &mut Small, tables: &mut Tables, dice: &mut Dice) -> bool {
    let mut commands = applied(&small.model);
    if commands.len() < 3 {
        return false;
    }
    let first = 1 + dice.below(commands.len() - 2);
    commands.swap(first, first + 1);
    if rerun(&commands).operations().len() != commands.len() {
        return false;
    }
    store(&commands, small, tables);
    for attempt in &mut small.attempts {
        let id = COMMANDS[attempt.command].operation_id();
        let row = tables.operations.iter().find(|row| row.operation_id == id);
        if let (End::Reply(_, Reply::Outcome { outcome, .. }), Some(row)) = (&mut attempt.end, row) {
            *outcome = row.outcome.as_deref().expect("not pruned").to_owned();
        }
    }
    true
}

fn other_bytes(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let Some(Reply::Outcome { outcome, .. }) = any_reply(small, dice) else { return false };
    *outcome = outcome.replace("\"revision\":", "\"revision\": ");
    true
}

fn clear_no(small: &mut Small, _: &mut Tables, dice: &mut Dice) -> bool {
    let index = dice.below(small.attempts.len());
    let attempt = &mut small.attempts[index];
    let ended = match attempt.end {
        End::Reply(at, _) | End::Unknown(at) => at,
        End::Never => attempt.began + 1,
    };
    attempt.end = End::Reply(ended, Reply::Problem(bare_problem("overloaded")));
    true
}

fn answer_unknown(small: &mut Small, tables: &mut Tables, dice: &mut Dice) -> bool {
    let index = dice.below(small.attempts.len());
    let attempt = &mut small.attempts[index];
    let ended = match attempt.end {
        End::Unknown(at) => at,
        End::Never => attempt.began + 1 + dice.below(10) as u64,
        End::Reply(..) => return false,
    };
    let id = COMMANDS[attempt.command].operation_id();
    let Some(row) = tables.operations.iter().find(|row| row.operation_id == id) else { return false };
    let outcome = row.outcome.as_deref().expect("not pruned").to_owned();
    attempt.end = End::Reply(ended, Reply::Outcome { replayed: dice.percent(50), outcome });
    true
}

fn unsent(small: &mut Small, tables: &mut Tables, dice: &mut Dice) -> bool {
    let mut commands = applied(&small.model);
    let before = commands.len();
    commands.push(COMMANDS[dice.below(COMMANDS.len())].clone());
    rerun(&commands).operations().len() > before && store(&commands, small, tables)
}

fn other_command(small: &mut Small, tables: &mut Tables, _: &mut Dice) -> bool {
    let mut commands = applied(&small.model);
    let twin = |command: &Command| {
        COMMANDS
            .iter()
            .find(|other| other.operation_id() == command.operation_id() && other.digest() != command.digest())
    };
    let Some(index) = commands.iter().position(|command| twin(command).is_some()) else { return false };
    commands[index] = twin(&commands[index]).expect("it was found a moment ago").clone();
    rerun(&commands).operations().len() == commands.len() && store(&commands, small, tables)
}
