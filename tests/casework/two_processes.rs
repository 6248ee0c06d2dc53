//! Two server processes on one PostgreSQL, and a person with `psql` beside them: decided on current state, whoever writes.
//!
//! SQLite has one process by nature, so these run on PostgreSQL alone. What is judged is the rows: who was assigned when
//! is recomputed from the history, edits by hand included.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::support::database::TestDatabase;

/// Whom every case has assigned by its history, case by case; fails where somebody acted who was not assigned.
#[track_caller]
fn check_every_actor_was_assigned(database: &TestDatabase) -> HashMap<String, HashSet<String>> {
    let history = "SELECT case_id, version, command, actor, request FROM operations ORDER BY case_id, version";
    let mut assigned: HashMap<String, HashSet<String>> = HashMap::new();
    let mut checked = 0;
    for row in database.sql(history) {
        let [case_id, version, command, actor, request] = row.as_slice() else { panic!("five columns: {row:?}") };
        let of_case = assigned.entry(case_id.clone()).or_default();
        let request: Value = serde_json::from_str(request).unwrap();
        let name = |value: &Value| value.as_str().map(str::to_owned);
        match command.as_str() {
            "assign" => drop(of_case.insert(name(&request["payload"]["assignee"]).unwrap())),
            "unassign" => drop(of_case.remove(&name(&request["payload"]["assignee"]).unwrap())),
            "edit" if request["table"] == "assignments" => {
                if let Some(assignee) = name(&request["delete"]) {
                    assert!(of_case.remove(&assignee), "{case_id}, version {version}: {assignee} was not assigned");
                }
                of_case.extend(name(&request["insert"]));
            }
            "approve" | "deny" | "return" | "reopen" => {
                checked += 1;
                assert!(of_case.contains(actor), "{case_id}, version {version}: {command} by {actor}, not assigned");
            }
            _ => {}
        }
    }
    assert!(checked > 0, "nobody acted");
    assigned
}

mod heavy {
    use std::collections::{HashMap, HashSet};
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use serde_json::json;

    use super::check_every_actor_was_assigned;
    use crate::support::database::{TestDatabase, block_on};
    use crate::support::http::Answer;
    use crate::support::long_tests_wanted;
    use crate::support::psql::SqlSession;
    use crate::support::scene::{Dice, Sender, SentCommand, make_ready, recorded_outcomes, verify_is_clean};
    use crate::support::server::ServerProcess;

    const CASES: usize = 50;
    const SENDERS: usize = 32;

    #[test]
    fn random_commands_to_either_process_while_assignments_come_and_go() {
        let database = TestDatabase::postgres();
        let token = make_ready(&database);
        let (a, b) = (ServerProcess::start(database.url()), ServerProcess::start(database.url()));
        // A fifth of it where the program was built without optimisation, as for a quick look.
        let commands = if long_tests_wanted() || !cfg!(debug_assertions) { 20_000 } else { 4_000 };
        let senders = [Sender::new(a.url(), &token), Sender::new(b.url(), &token)];
        let storm = Arc::new(Storm::new(commands, senders));
        let mut dice = Dice::seeded();
        let edits = block_on(async {
            storm.senders[0].open_cases(&storm.cases).await;
            let script = {
                let (storm, dice, session) = (storm.clone(), dice.fork(), database.session());
                std::thread::spawn(move || storm.take_away_and_give_back(dice, session))
            };
            let mut tasks = Vec::new();
            for _ in 0..SENDERS {
                tasks.push(tokio::spawn(storm.clone().send_until_done(dice.fork())));
            }
            for task in tasks {
                task.await.unwrap();
            }
            storm.is_over.store(true, Ordering::Relaxed);
            script.join().unwrap()
        });
        storm.print(edits);

        verify_is_clean(&database);
        let recorded = recorded_outcomes(&database);
        let acknowledged = storm.acknowledged.lock().unwrap();
        for outcome in acknowledged.values() {
            assert!(recorded.contains(outcome), "acknowledged, and not in the table: {outcome}");
        }
        // Nobody lost an answer, so there is nothing else: an `open` and two `assign` of each case came before.
        assert_eq!(recorded.len(), acknowledged.len() + 3 * CASES);
        let recorded_edits = database.sql_value("SELECT count(*) FROM operations WHERE command = 'edit'");
        assert_eq!(recorded_edits, edits.to_string());
        let by_history = check_every_actor_was_assigned(&database);
        let mut by_rows: HashMap<String, HashSet<String>> = HashMap::new();
        for row in database.sql("SELECT case_id, assignee FROM assignments") {
            by_rows.entry(row[0].clone()).or_default().insert(row[1].clone());
        }
        for (case_id, assigned) in by_history {
            assert_eq!(by_rows.remove(&case_id).unwrap_or_default(), assigned, "{case_id}");
        }
    }

    /// What the senders and the script share.
    struct Storm {
        commands: usize,
        sent: AtomicUsize,
        is_over: AtomicBool,
        senders: [Sender; 2],
        cases: Vec<String>,
        /// The newest revision that somebody saw, so that many commands are decided at the right one.
        revisions: Vec<AtomicI64>,
        /// What was sent to each case, answered or not: some of it is sent again.
        history: Vec<Mutex<Vec<SentCommand>>>,
        acknowledged: Mutex<HashMap<String, String>>,
        applied: AtomicU64,
        answers: Mutex<HashMap<String, u64>>,
        started: Instant,
    }

    impl Storm {
        fn new(commands: usize, senders: [Sender; 2]) -> Self {
            Self {
                commands,
                sent: AtomicUsize::new(0),
                is_over: AtomicBool::new(false),
                senders,
                cases: (0..CASES).map(|i| format!("case-{i:02}")).collect(),
                revisions: (0..CASES).map(|_| AtomicI64::new(0)).collect(),
                history: (0..CASES).map(|_| Mutex::new(Vec::new())).collect(),
                acknowledged: Mutex::new(HashMap::new()),
                applied: AtomicU64::new(0),
                answers: Mutex::new(HashMap::new()),
                started: Instant::now(),
            }
        }

        async fn send_until_done(self: Arc<Self>, mut dice: Dice) {
            while self.sent.fetch_add(1, Ordering::Relaxed) < self.commands {
                let case = dice.below(CASES);
                let command = self.next_command(case, &mut dice);
                let answer = self.senders[dice.below(2)].send(&command).await;
                self.note_answer(case, &command, &answer);
            }
        }

        /// An exact repeat of something that was sent, or a new command.
        fn next_command(&self, case: usize, dice: &mut Dice) -> SentCommand {
            let mut history = self.history[case].lock().unwrap();
            if !history.is_empty() && dice.percent(25) {
                // Mostly of the newest ones, which may be in flight at the other process.
                let back = if dice.percent(70) { history.len().min(3) } else { history.len() };
                return history[history.len() - 1 - dice.below(back)].clone();
            }
            let name =
                dice.pick(&["approve", "deny", "return", "resubmit", "amend", "reopen", "reopen", "note", "assign"]);
            let actor = dice.pick(&["47", "81", "47", "81", "99"]);
            let mut members = json!({});
            if name == "assign" {
                members["payload"] = json!({ "assignee": dice.pick(&["47", "81"]) });
            } else {
                members["reason"] = json!(format!("number {}", self.sent.load(Ordering::Relaxed)));
            }
            if !matches!(name, "note" | "assign") {
                let known = self.revisions[case].load(Ordering::Relaxed);
                let revision = if dice.percent(10) { known - 1 } else { known };
                members["expected_revision"] = json!(revision.max(0));
            }
            let command = SentCommand::new(&self.cases[case], name, actor, members);
            history.push(command.clone());
            command
        }

        fn note_answer(&self, case: usize, command: &SentCommand, answer: &Answer) {
            let body = answer.json();
            for member in ["revision", "current_revision"] {
                if let Some(revision) = body[member].as_i64() {
                    self.revisions[case].fetch_max(revision, Ordering::Relaxed);
                }
            }
            let what = answer
                .problem_code()
                .unwrap_or_else(|| answer.status.to_string() + if answer.is_replay() { " replay" } else { "" });
            *self.answers.lock().unwrap().entry(what).or_default() += 1;
            match answer.status {
                200 => {
                    self.applied.fetch_add(u64::from(!answer.is_replay()), Ordering::Relaxed);
                    let before = self.acknowledged.lock().unwrap().insert(command.id.clone(), answer.text());
                    if let Some(before) = before {
                        assert_eq!(before, answer.text(), "two outcomes of one command");
                    }
                }
                403 | 409 | 412 => {}
                status => panic!("{status} to {command:?}: {}", answer.text()),
            }
        }

        /// Takes assignments away and gives them back until the storm is over; returns how many rows that changed.
        fn take_away_and_give_back(&self, mut dice: Dice, mut session: SqlSession) -> usize {
            let mut edits = 0;
            while !self.is_over.load(Ordering::Relaxed) {
                let case_id = &self.cases[dice.below(CASES)];
                let assignee = dice.pick(&["47", "81"]);
                let sql = if dice.percent(50) {
                    format!(
                        "DELETE FROM assignments WHERE case_id = '{case_id}' AND assignee = '{assignee}' RETURNING 1"
                    )
                } else {
                    format!(
                        "INSERT INTO assignments (case_id, assignee) VALUES ('{case_id}', '{assignee}') \
                         ON CONFLICT DO NOTHING RETURNING 1"
                    )
                };
                match session.run(&sql) {
                    Ok(rows) => edits += rows.len(),
                    // The person holds the assignment and waits for the case, a commit that assigns the same reviewer holds
                    // the case and waits for the assignment: PostgreSQL may end the person's statement.
                    Err(error) => assert!(error.to_string().contains("40P01"), "{sql}: {error}"),
                }
            }
            edits
        }

        fn print(&self, edits: usize) {
            let mut answers: Vec<_> = self.answers.lock().unwrap().clone().into_iter().collect();
            answers.sort();
            let seconds = self.started.elapsed().as_secs_f64();
            eprintln!("{} commands and {edits} edits in {seconds:.1} s: {answers:?}", self.commands);
            // Every applied command was answered once without the replay header: its first answer.
            assert_eq!(self.applied.load(Ordering::Relaxed), self.acknowledged.lock().unwrap().len() as u64);
        }
    }

    #[test]
    fn stale_memory_of_one_process_decides_nothing() {
        let database = TestDatabase::postgres();
        let token = make_ready(&database);
        let (a, b) = (ServerProcess::start(database.url()), ServerProcess::start(database.url()));
        let (a, b) = (Sender::new(a.url(), &token), Sender::new(b.url(), &token));
        block_on(async {
            let command = |name: &str, actor: &str, members| SentCommand::new("62", name, actor, members);
            let _ = a.send(&command("open", "clerk", json!({}))).await.expect_status(201);
            // A has the case in memory: nobody is assigned.
            let approve = command("approve", "47", json!({ "expected_revision": 0, "reason": "reviewed" }));
            let _ = a.send(&approve).await.expect_problem(403, "not-assigned");

            let _ = b
                .send(&command("assign", "clerk", json!({ "payload": { "assignee": "47" } })))
                .await
                .expect_status(200);
            let first = b.send(&approve).await.expect_status(200);
            assert!(!first.is_replay());
            // The exact retry at A: what it remembers says "not assigned", what is recorded says otherwise.
            let again = a.send(&approve).await.expect_status(200);
            assert!(again.is_replay());
            assert_eq!(first.body, again.body);

            // Now the other way round: A knows the approval, B reopens, and A decides on what B did.
            let _ = b
                .send(&command("reopen", "47", json!({ "expected_revision": 1, "reason": "a mistake" })))
                .await
                .expect_status(200);
            let stale = command("deny", "47", json!({ "expected_revision": 1, "reason": "no" }));
            let answer = a.send(&stale).await.expect_problem(412, "stale-revision");
            assert_eq!(answer.json()["current_revision"], 2);
            let denied = a
                .send(&command("deny", "47", json!({ "expected_revision": 2, "reason": "no" })))
                .await
                .expect_status(200);
            assert_eq!(denied.json()["status"], "denied");
            // And an assignment that B took away counts at A at once.
            let _ = b
                .send(&command("unassign", "clerk", json!({ "payload": { "assignee": "47" } })))
                .await
                .expect_status(200);
            let reopen = command("reopen", "47", json!({ "expected_revision": 3, "reason": "again" }));
            let _ = a.send(&reopen).await.expect_problem(403, "not-assigned");
        });
        verify_is_clean(&database);
        check_every_actor_was_assigned(&database);
        assert_eq!(database.count("operations"), 6);
    }
}
