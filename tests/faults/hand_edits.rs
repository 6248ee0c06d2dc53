//! People with the database's own shell, who change assignments and cases while the load goes on.
//!
//! Each edit is an operation of its own (see the design): the shell tells how many rows it changed, and so many operations
//! `edit` there must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::psql::SqlSession;
use crate::support::scene::Dice;

/// Edits until told to stop; returns how many rows that changed.
fn edit_until(stop: &AtomicBool, mut dice: Dice, mut session: SqlSession) -> u64 {
    let mut edits = 0;
    while !stop.load(Ordering::Relaxed) {
        let case_id = format!("case/{:02}", dice.below(crate::traffic::CASES));
        let assignee = dice.pick(&["47", "81"]);
        let sql = match dice.below(4) {
            0 => format!("DELETE FROM assignments WHERE case_id = '{case_id}' AND assignee = '{assignee}' RETURNING 1"),
            1 | 2 => format!(
                "INSERT INTO assignments (case_id, assignee) VALUES ('{case_id}', '{assignee}') \
                 ON CONFLICT DO NOTHING RETURNING 1"
            ),
            _ => {
                let status = dice.pick(&["in_review", "returned", "approved", "denied"]);
                format!(
                    "UPDATE cases SET status = '{status}' WHERE case_id = '{case_id}' AND status <> '{status}' RETURNING 1"
                )
            }
        };
        match session.run(&sql) {
            Ok(rows) => edits += rows.len() as u64,
            // Chosen to end a deadlock, or the file was locked for long: a person tries again.
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("40P01") || words.contains("locked"), "{sql}: {words}");
            }
        }
    }
    edits
}

/// A person at work; ends when told or dropped.
struct Person {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Person {
    fn start(session: SqlSession, dice: Dice) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || edit_until(&stopped, dice, session))) }
    }

    /// How many edits it made in all.
    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().unwrap()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

mod heavy {
    use std::time::Instant;

    use super::Person;
    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::wait::eventually;

    /// Fewer prove nothing.
    const EDITS_MIN: u64 = 20;

    /// Two people beside two processes on PostgreSQL, and a process that is killed meanwhile.
    #[test]
    fn hand_edits_beside_two_processes() {
        edit_beside(&TestDatabase::postgres(), "hand-edits", 2);
    }

    /// One process on SQLite: every edit waits for the one writer that there is, or the other way round.
    #[test]
    fn hand_edits_beside_the_process_on_sqlite() {
        edit_beside(&TestDatabase::sqlite(), "hand-edits-sqlite", 1);
    }

    fn edit_beside(database: &TestDatabase, name: &'static str, nodes: usize) {
        let mut rig = Rig::start(database, RigOptions::new(name, nodes));
        let commands = size::commands(2_500);
        let people: Vec<_> = (0..2).map(|_| Person::start(database.session(), rig.dice.fork())).collect();
        rig.load(commands / 4);
        rig.kill_9(0);
        rig.start_again(0);
        rig.recovered("kill-process", Instant::now());
        rig.load(commands / 4);
        let recorded = || database.sql_value("SELECT count(*) FROM operations WHERE command = 'edit'");
        eventually(SOON, "people get their turns", || recorded().parse::<u64>().unwrap() >= EDITS_MIN);
        let edits: u64 = people.into_iter().map(Person::stop).sum();
        assert_eq!(recorded(), edits.to_string(), "each edit is one operation");
        rig.fact(format!("edits by hand: {edits}"));
        rig.fired("hand-edits", &format!("{edits} rows"));
        rig.recovered("hand-edits", Instant::now());
        rig.finish(commands, &[("hand-edits", 1), ("kill-process", 1)]);
    }
}
