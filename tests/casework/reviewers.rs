//! Several people at one case: two reviewers at once, a script beside them, an id used twice, a bad command among good ones.
//!
//! Each test is a fault seen in a comparable system. Judged by the rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::case_62::{Desk, SOON, act, books, check_books, note, operation_id_text, rows_under};
use crate::support::database::TestDatabase;
use crate::support::http::Answer;
use crate::support::wait::eventually_async;

/// Two reviewers, two doors, the same moment, so often.
const ROUNDS: usize = 200;

on_both_databases! {
    /// 47 approves and 81 denies at revision 5: on PostgreSQL through two server processes.
    async fn two_reviewers_at_once_make_one_decision(database: &TestDatabase) {
        let desk = Desk::open(database);
        let door = desk.beside(database);
        let cases: Vec<String> = (0..ROUNDS).map(|i| format!("decided-{i}")).collect();
        desk.review_all(&cases).await;
        let mut approved = 0;
        let mut winners = Vec::new();
        for (i, case_id) in cases.iter().enumerate() {
            let (one, other) = if i % 2 == 0 { (&desk.client, &door.client) } else { (&door.client, &desk.client) };
            let (r47, r81) = (&desk.tokens.r47, &desk.tokens.r81);
            let (approve_id, deny_id) = (Uuid::new_v4(), Uuid::new_v4());
            let (approve, deny) = tokio::join!(
                act(one, r47, case_id, "approve", approve_id, 5),
                act(other, r81, case_id, "deny", deny_id, 5),
            );
            let approve_won = approve.status == 200;
            let (won, lost) = if approve_won { (approve, deny) } else { (deny, approve) };
            let won = won.expect_status(200);
            assert!(!won.is_replay());
            lost.expect_problem(409, "illegal-transition");
            approved += usize::from(approve_won);

            // Both ask again, at the other door. The winner gets the receipt, the loser is told why not.
            let again_47 = act(other, r47, case_id, "approve", approve_id, 5).await;
            let again_81 = act(one, r81, case_id, "deny", deny_id, 5).await;
            let (again, lost) = if approve_won { (again_47, again_81) } else { (again_81, again_47) };
            lost.expect_problem(409, "illegal-transition");
            let again = again.expect_status(200);
            assert!(again.is_replay());
            assert_eq!(again.body, won.body);
            winners.push((case_id, if approve_won { approve_id } else { deny_id }, won.text()));
        }
        eprintln!("{approved} of {ROUNDS} rounds went to the approval");
        let id = operation_id_text(database);
        for table in ["operations", "outbox"] {
            let rows = database.sql(&format!("SELECT case_id, {id} FROM {table} WHERE version = 9"));
            let rows: BTreeSet<_> = rows.into_iter().collect();
            let expected = winners.iter().map(|(case_id, id, _)| vec![(*case_id).clone(), id.simple().to_string()]);
            assert_eq!(rows, expected.collect(), "one row a round in {table}, the winner's");
            assert_eq!(database.count(table), (ROUNDS * 9) as u64);
        }
        let stored = database.sql("SELECT case_id, outcome FROM operations WHERE version = 9");
        let stored: BTreeSet<_> = stored.into_iter().collect();
        let answered = winners.into_iter().map(|(case_id, _, text)| vec![case_id.clone(), text]);
        assert_eq!(stored, answered.collect(), "what was answered is what is stored");
        check_books(database);
    }

    /// The first run moved the revision. An honest retry is not "stale", a new command is judged by what is true now.
    async fn an_honest_retry_is_a_replay_and_a_new_id_is_judged_afresh(database: &TestDatabase) {
        let desk = Desk::open(database);
        let door = desk.beside(database);
        desk.review("62").await;
        let id = Uuid::new_v4();
        let r47 = &desk.tokens.r47;
        let first = act(&desk.client, r47, "62", "approve", id, 5).await.expect_status(200);
        for client in [&desk.client, &door.client] {
            let again = act(client, r47, "62", "approve", id, 5).await.expect_status(200);
            assert!(again.is_replay());
            assert_eq!(again.body, first.body);
            let anew = act(client, r47, "62", "approve", Uuid::new_v4(), 5).await;
            anew.expect_problem(409, "illegal-transition");
            act(client, r47, "62", "reopen", Uuid::new_v4(), 5).await.expect_problem(412, "stale-revision");
        }
        // Replay comes first: who lost the assignment after approving still gets the receipt.
        database.sql("DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'");
        let again = act(&desk.client, r47, "62", "approve", id, 5).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(again.body, first.body);
        act(&desk.client, r47, "62", "reopen", Uuid::new_v4(), 6).await.expect_problem(403, "not-assigned");
        assert_eq!(database.count("operations"), 10, "8 of the story, the approval, the edit");
        check_books(database);
    }

    /// A script takes the assignment of 47 away and gives it back while 47 decides and reopens, as fast as both can.
    async fn nobody_acts_at_a_version_at_which_nobody_assigned_them(database: &TestDatabase) {
        let desk = Desk::open(database);
        desk.review("62").await;
        let script = Script::start(database);
        let (mut applied, mut refused, mut contended) = (0, 0, 0);
        let (mut action, mut revision) = ("approve", 5);
        let started = Instant::now();
        while applied < 15 || refused < 15 {
            assert!(started.elapsed() < SOON, "{applied} applied, {refused} refused, {contended} contended: too few");
            let answer = act(&desk.client, &desk.tokens.r47, "62", action, Uuid::new_v4(), revision).await;
            match answer.status {
                200 => {
                    applied += 1;
                    revision += 1;
                    action = if action == "approve" { "reopen" } else { "approve" };
                }
                // The script was there first, each time that the server tried.
                503 => {
                    contended += 1;
                    answer.expect_problem(503, "contention");
                }
                _ => {
                    refused += 1;
                    answer.expect_problem(403, "not-assigned");
                }
            }
        }
        let edits = script.stop();
        eprintln!("{applied} applied, {refused} refused, {contended} contended, {edits} edits");
        check_assigned_at_each_version(database);
        let by_47 = database.sql("SELECT version FROM operations WHERE actor = '47' AND command <> 'return'");
        assert_eq!(by_47.len(), applied, "each answer has its operation, and each operation its answer");
        check_books(database);
    }

    /// 64 commands of 64 cases in one batch, and 64 of one case in one chain; one of them the database can't store.
    async fn one_bad_command_among_64_leaves_the_others_alone(database: &TestDatabase) {
        let desk = Desk::open_with(database, |options| options.argument("--shards").argument("1").argument("--committers").argument("1"));
        let mut cases: Vec<String> = (0..64).map(|i| format!("batched-{i}")).collect();
        cases.extend(["first".into(), "chained".into()]);
        desk.open_all(&cases).await;
        // The tables as they are know nothing that a checked command breaks; so the test adds a rule.
        database.sql(if database.is_postgres() {
            "ALTER TABLE operations ADD CONSTRAINT poison CHECK (request NOT LIKE '%poison%')"
        } else {
            "ALTER TABLE operations ADD COLUMN poison TEXT CHECK (request NOT LIKE '%poison%')"
        });
        for (what, case_of) in [
            ("batch", Box::new(|i: usize| format!("batched-{i}")) as Box<dyn Fn(usize) -> String>),
            ("chain", Box::new(|_| "chained".to_owned())),
        ] {
            let before = database.count("operations");
            let answers = notes_at_once(&desk, database, &*case_of).await;
            assert_eq!(answers.len(), 64);
            for (i, (id, answer)) in answers.into_iter().enumerate() {
                if i == 40 {
                    answer.expect_problem(422, "invalid-command");
                    assert_eq!(rows_under(database, id), [0, 0]);
                } else {
                    answer.expect_status(200);
                }
            }
            assert_eq!(database.count("operations"), before + 64, "63 of the {what} and the one before it");
            assert_eq!(database.count("outbox"), before + 64);
            // Nothing is stuck: the case of the bad command takes the next one.
            note(&desk, &case_of(40), Uuid::new_v4(), "A good one.").await.expect_status(200);
        }
        // It was one batch that was refused, and not 64 of one case each.
        assert!(desk.server.log().contains("chains=64"), "the server's log tells of no batch of 64 cases");
        check_books(database);
    }

    /// A person's edit moves the case; memory notices with the next command, without a restart.
    async fn a_hand_edit_is_seen_by_the_next_command(database: &TestDatabase) {
        let desk = Desk::open(database);
        let door = desk.beside(database);
        desk.review("62").await;
        let r47 = &desk.tokens.r47;
        for client in [&desk.client, &door.client] {
            act(client, r47, "62", "approve", Uuid::new_v4(), 4).await.expect_problem(412, "stale-revision");
        }
        database.sql("UPDATE cases SET status = 'returned' WHERE case_id = '62'");
        for client in [&desk.client, &door.client] {
            let refused = act(client, r47, "62", "approve", Uuid::new_v4(), 5).await;
            let refused = refused.expect_problem(409, "illegal-transition").json();
            assert_eq!(refused["current_status"], json!("returned"));
            assert_eq!(refused["current_revision"], json!(6));
        }
        act(&door.client, r47, "62", "resubmit", Uuid::new_v4(), 6).await.expect_status(200);
        database.sql("UPDATE cases SET revision = 12 WHERE case_id = '62'");
        let refused = act(&desk.client, r47, "62", "approve", Uuid::new_v4(), 7).await;
        assert_eq!(refused.expect_problem(412, "stale-revision").json()["current_revision"], json!(12));
        act(&desk.client, r47, "62", "approve", Uuid::new_v4(), 12).await.expect_status(200);

        let edits = database.sql(
            "SELECT o.version, o.revision, o.status, o.actor FROM operations o JOIN outbox x \
             ON x.case_id = o.case_id AND x.version = o.version WHERE o.command = 'edit' ORDER BY o.version",
        );
        let who = if database.is_postgres() { "sql:postgres" } else { "sql:local" };
        assert_eq!(edits, [["9", "6", "returned", who], ["11", "12", "in_review", who]]);
        check_books(database);
    }
}

/// A person's script: takes 47's assignment to case 62 away and gives it back, over and over. Ends when dropped.
struct Script {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Script {
    fn start(database: &TestDatabase) -> Self {
        let mut session = database.session();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut edits = 0;
            while !stopped.load(Ordering::Relaxed) {
                for sql in [
                    "DELETE FROM assignments WHERE case_id = '62' AND assignee = '47'",
                    "INSERT INTO assignments (case_id, assignee) VALUES ('62', '47')",
                ] {
                    // A DELETE may be chosen to end a deadlock: a person sends it again.
                    while let Err(error) = session.run(sql) {
                        let words = error.to_string();
                        assert!(words.contains("40P01") || words.contains("locked"), "{words}");
                    }
                    edits += 1;
                }
            }
            edits
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it and tells how many edits it made.
    fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// 64 notes that wait together, number 40 a bad one: the committing connection is kept busy until all have arrived.
async fn notes_at_once(desk: &Desk, database: &TestDatabase, case_of: &dyn Fn(usize) -> String) -> Vec<(Uuid, Answer)> {
    let mut person = database.session();
    if database.is_postgres() {
        // What every batch reads first; a try gives up after a second and comes again.
        person.run("BEGIN").unwrap();
        person.run("SELECT FROM writers FOR UPDATE").unwrap();
    } else {
        person.run("BEGIN IMMEDIATE").unwrap();
    }
    let send = |case_id: String, id: Uuid, reason: &'static str| {
        let (client, token) = (desk.client.clone(), desk.tokens.clerk.clone());
        let body = json!({ "reason": reason });
        tokio::spawn(async move { client.post_command(&case_id, "note", &id.to_string(), &body, &token).await })
    };
    let first_id = Uuid::new_v4();
    let first = send("first".into(), first_id, "This one keeps the connection busy.");
    eventually_async(SOON, "the first is in flight", || desk.is_in_flight("first", first_id)).await;
    let ids: Vec<Uuid> = (0..64).map(|_| Uuid::new_v4()).collect();
    let reason = |i| if i == 40 { "poison" } else { "One of 64." };
    let sent: Vec<_> = ids.iter().enumerate().map(|(i, id)| send(case_of(i), *id, reason(i))).collect();
    for (i, id) in ids.iter().enumerate() {
        eventually_async(SOON, "all are in flight", || async { desk.is_in_flight(&case_of(i), *id).await }).await;
    }
    person.run("ROLLBACK").unwrap();
    first.await.unwrap().expect_status(200);
    let mut answers = Vec::new();
    for (id, sent) in ids.into_iter().zip(sent) {
        answers.push((id, sent.await.unwrap()));
    }
    answers
}

/// Folds the assignments from the operations: each workflow action that asks for an assignee has its actor among them.
fn check_assigned_at_each_version(database: &TestDatabase) {
    let mut assigned = BTreeSet::new();
    for row in books(database).operations {
        let [_, version, _, _, _, actor, command, request, _] = &row[..] else { panic!("nine columns: {row:?}") };
        let request: Value = serde_json::from_str(request).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match command.as_str() {
            "assign" => drop(assigned.insert(text(&request["payload"]["assignee"]))),
            "unassign" => drop(assigned.remove(&text(&request["payload"]["assignee"]))),
            "edit" => {
                if let Some(assignee) = request.get("delete") {
                    assigned.remove(&text(assignee));
                }
                if let Some(assignee) = request.get("insert") {
                    assigned.insert(text(assignee));
                }
            }
            "approve" | "deny" | "return" | "reopen" => {
                assert!(assigned.contains(actor), "{actor} was not assigned at version {version}: {row:?}");
            }
            _ => {}
        }
    }
}
