//! What a person's open transaction does to a batch. Here the two databases differ by nature.

use std::time::Duration;

use casework::engine::{ChainAnswer, CommitFault, LockMode, RetryCause};

use super::fixture::{Fixture, assert_books_balance, note, open, version_check};
use crate::support::database::{TestDatabase, block_on};

/// Long beside a statement, short beside a test.
const BRIEFLY: LockMode = LockMode::Wait(Duration::from_millis(200));
const LONG: LockMode = LockMode::Wait(Duration::from_secs(30));

#[test]
fn a_case_that_psql_holds_is_locked_and_the_others_commit() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62"), open("63")]).await;
        let mut person = database.session();
        person.run("BEGIN; SELECT 1 FROM cases WHERE case_id = '62' FOR UPDATE").unwrap();
        let answers = fixture.commit(&[note("62", 1), note("63", 1)]).await;
        assert_eq!(answers, [ChainAnswer::Locked, ChainAnswer::Held]);
        // A check takes no lock, and an open of a case that is there is a miss at once.
        assert_eq!(fixture.commit(&[version_check("62", 1)]).await, [ChainAnswer::Held]);
        assert_eq!(fixture.commit(&[open("62")]).await, [super::fixture::missed(1)]);

        let refused = fixture.writer.commit(&[note("62", 1)], BRIEFLY).await.unwrap_err();
        assert_eq!(refused.fault, CommitFault::Locked);
        person.run("ROLLBACK").unwrap();
        assert_eq!(fixture.commit_with(&[note("62", 1)], LONG).await, [ChainAnswer::Held]);
        assert_eq!(fixture.commit(&[note("62", 2)]).await, [ChainAnswer::Held]);
        assert_books_balance(&database);
    });
}

#[test]
fn waiting_for_a_case_ends_in_a_miss_when_the_person_changed_it() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62")]).await;
        let mut person = database.session();
        person.run("BEGIN; UPDATE cases SET status = 'denied' WHERE case_id = '62'").unwrap();
        let mut writer = fixture.writer;
        let waiting = tokio::spawn(async move { writer.commit(&[note("62", 1)], LONG).await.unwrap() });
        crate::support::wait::eventually(Duration::from_secs(20), "the commit waits for the case", || {
            let waits =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            database.sql_value(waits) == "1"
        });
        person.run("COMMIT").unwrap();
        let answer = waiting.await.unwrap();
        assert_eq!(answer, casework::engine::BatchAnswer::Settled(vec![super::fixture::missed(2)]));
        assert_books_balance(&database);
    });
}

/// `DO NOTHING` waits for a row that is just being inserted: only the opens may wait for that, not the batch.
#[test]
fn an_open_that_waits_for_a_person_does_not_hold_up_the_batch() {
    let database = TestDatabase::postgres();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("63")]).await;
        let mut person = database.session();
        let insert =
            "BEGIN; INSERT INTO cases (case_id, workflow, status, revision) VALUES ('62', 'permit', 'in_review', 0)";
        person.run(insert).unwrap();
        let answers = fixture.commit(&[open("62"), note("63", 1)]).await;
        assert_eq!(answers, [ChainAnswer::Locked, ChainAnswer::Held]);
        person.run("COMMIT").unwrap();
        assert_eq!(fixture.commit(&[open("62")]).await, [super::fixture::missed(1)]);
        assert_books_balance(&database);
    });
}

#[test]
fn a_foreign_writer_holds_up_every_batch_on_sqlite() {
    let database = TestDatabase::sqlite();
    block_on(async {
        let mut fixture = Fixture::on(&database).await;
        fixture.commit(&[open("62"), open("63")]).await;
        let mut person = database.session();
        person.run("BEGIN IMMEDIATE; UPDATE cases SET status = 'denied' WHERE case_id = '63'").unwrap();
        let refused = fixture.writer.commit(&[note("62", 1)], BRIEFLY).await.unwrap_err();
        assert_eq!(refused.fault, CommitFault::Retry(RetryCause::Busy), "{refused}");
        // What only reads goes on, on what is committed.
        assert_eq!(fixture.commit(&[version_check("63", 1)]).await, [ChainAnswer::Held]);
        person.run("COMMIT").unwrap();
        assert_eq!(
            fixture.commit(&[note("62", 1), note("63", 1)]).await,
            [ChainAnswer::Held, super::fixture::missed(2)]
        );
        assert_books_balance(&database);
    });
}

/// Committers take their locks in one order: many at once on the same cases end without a deadlock.
#[test]
fn committers_do_not_deadlock_each_other() {
    let database = TestDatabase::postgres();
    block_on(async {
        let fixture = Fixture::on(&database).await;
        let names: Vec<String> = (0..40).map(|n| format!("case-{n:02}")).collect();
        let mut tasks = Vec::new();
        for node in 0..4 {
            let (names, mut writer) = (names.clone(), fixture.store.writer_open(&format!("n{node}")).await.unwrap());
            tasks.push(tokio::spawn(async move {
                let mut versions = vec![0; names.len()];
                for _ in 0..25 {
                    let batch: Vec<_> = names
                        .iter()
                        .zip(&versions)
                        .map(|(name, version)| if *version == 0 { open(name) } else { note(name, *version) })
                        .collect();
                    let answer =
                        writer.commit(&batch, LockMode::Skip).await.expect("no fault, a deadlock least of all");
                    let casework::engine::BatchAnswer::Settled(answers) = answer else { panic!("nobody fences") };
                    for (version, answer) in versions.iter_mut().zip(answers) {
                        match answer {
                            ChainAnswer::Held => *version += 1,
                            ChainAnswer::Missed { seen } => *version = seen.get(),
                            ChainAnswer::Locked => {}
                        }
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(database.count("operations") > 500);
        assert_books_balance(&database);
    });
}
