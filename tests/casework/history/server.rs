//! Histories of the real server, on both databases: a busy one with a kill in it is clean, and no tampering passes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use casework::history::HistoryWriter;
use serde_json::{Value, json};

use crate::support::cli::{CliOutput, casework, casework_with_input};
use crate::support::database::TestDatabase;
use crate::support::scene::{Dice, Sender, SentCommand, make_ready};
use crate::support::server::ServerProcess;
use crate::support::wait::{eventually, eventually_async};

const CLIENTS: usize = 4;
/// Commands of each client.
const COMMANDS: usize = 60;
const CASES: [&str; 3] = ["61", "62", "63 ä/ö"];
/// Bound on anything that is waited for, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(60);

/// A history in a folder of its own.
struct Recorded {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Recorded {
    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// The same history with some of its lines changed or left out.
    fn tampered(&self, change: impl FnMut(Value) -> Option<Value>) -> PathBuf {
        let lines = self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
        let lines: Vec<_> = lines.into_iter().filter_map(change).map(|line| line.to_string()).collect();
        let path = self.folder.path().join("tampered.jsonl");
        std::fs::write(&path, lines.join("\n")).unwrap();
        path
    }

    /// The number of the first attempt that ended as wanted.
    #[track_caller]
    fn attempt(&self, wanted: impl Fn(&Value) -> bool) -> u64 {
        let lines = self.text();
        let ends = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = ends.filter(|line| line["event"] == "reply").find(wanted).expect("such a reply is in the history");
        found["attempt"].as_u64().unwrap()
    }
}

/// Any command: legal or not, new, repeated, or another one under a used id.
fn any_command(dice: &mut Dice, sent: &[SentCommand]) -> SentCommand {
    let case_id = dice.pick(&CASES);
    let revision = dice.below(4);
    let decided = |name: &str, actor: &str| {
        SentCommand::new(case_id, name, actor, json!({ "expected_revision": revision, "reason": "Reviewed." }))
    };
    let assigned = |name: &str| SentCommand::new(case_id, name, "clerk", json!({ "payload": { "assignee": "47" } }));
    match dice.below(10) {
        0 => SentCommand::new(case_id, "open", "clerk", json!({})),
        1 | 2 => assigned("assign"),
        3 => assigned("unassign"),
        4 => decided(dice.pick(&["return", "approve"]), dice.pick(&["47", "81"])),
        5 => decided(dice.pick(&["resubmit", "amend"]), "81"),
        6 => decided("reopen", "47"),
        7 if !sent.is_empty() => sent[dice.below(sent.len())].clone(),
        8 if !sent.is_empty() => {
            let used = &sent[dice.below(sent.len())];
            SentCommand { id: used.id.clone(), ..SentCommand::note(&used.case_id, "Under a used id.") }
        }
        _ => SentCommand::note(case_id, "Called."),
    }
}

fn log_line(command: &SentCommand) -> String {
    let mut line = command.members.clone();
    line["case_id"] = json!(command.case_id);
    line["command"] = json!(command.name);
    line["operation_id"] = json!(command.id);
    line.to_string()
}

/// Sends commands one after the other, each until it has a final answer.
async fn client(name: String, history: Arc<HistoryWriter>, sender: Sender, mut dice: Dice, done: Arc<AtomicUsize>) {
    let mut sent = Vec::new();
    for _ in 0..COMMANDS {
        let command = any_command(&mut dice, &sent);
        eventually_async(SOON, "a final answer", || async {
            let attempt = history.invoke_line(&name, &log_line(&command)).unwrap();
            match sender.try_send(&command).await {
                Ok(answer) => {
                    history.reply(attempt, answer.status, answer.is_replay(), &answer.body).unwrap();
                    answer.status != 202 && answer.status < 500
                }
                Err(error) => {
                    history.unknown(attempt, &error.to_string()).unwrap();
                    false
                }
            }
        })
        .await;
        sent.push(command);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A busy run with a kill in the middle, and two edits by hand while the server is away.
async fn record(database: &TestDatabase) -> Recorded {
    let token = make_ready(database);
    let mut server = ServerProcess::start(database.url());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let history = Arc::new(HistoryWriter::create(&path).unwrap());
    let (mut dice, done) = (Dice::seeded(), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (history, sender, done) = (history.clone(), Sender::new(server.url(), &token), done.clone());
            tokio::spawn(client(format!("client-{number}"), history, sender, dice.fork(), done))
        })
        .collect();
    let cases = || database.count("cases");
    eventually(SOON, "half is done", || done.load(Ordering::Relaxed) > CLIENTS * COMMANDS / 2 && cases() == 3);
    server.kill_9();
    history.fault("kill-process", "the only server").unwrap();
    let moved = "UPDATE cases SET status = CASE status WHEN 'in_review' THEN 'returned' ELSE 'in_review' END";
    let assigned = "INSERT INTO assignments (case_id, assignee) VALUES ('62', '90')";
    for edit in [moved, assigned] {
        database.sql(edit);
        history.fault("hand-edit", edit).unwrap();
    }
    server.start_again();
    for client in clients {
        client.await.unwrap();
    }
    Arc::into_inner(history).expect("all clients are done").finish().unwrap();
    Recorded { folder, path }
}

fn check_history(history: &Path, database: &TestDatabase, further: &[&str]) -> CliOutput {
    let history = history.to_str().unwrap();
    let mut arguments = vec!["check", history, "--database", database.url(), "--json"];
    arguments.extend(further);
    casework(arguments)
}

/// The check exits 3 and says so in one of the violations that it lists.
#[track_caller]
fn expect_broken(output: CliOutput, rule: &str, words: &str) {
    let report = output.expect_code(3).json();
    let violations = report["first_violations"].as_array().unwrap();
    let is_it = |violation: &&Value| violation["rule"] == rule && violation["what"].as_str().unwrap().contains(words);
    assert!(violations.iter().any(|violation| is_it(&violation)), "{rule}, {words:?}: not in {report:#}");
}

/// Runs SQL with the triggers out of the way.
fn tamper(database: &TestDatabase, sql: &str) {
    if database.is_postgres() {
        database.sql(&format!("SET session_replication_role = replica; {sql}"));
        return;
    }
    let triggers = database.sql("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'");
    let drop: String = triggers.iter().map(|row| format!("DROP TRIGGER {};", row[0])).collect();
    let make: String = triggers.iter().map(|row| format!("{};", row[1])).collect();
    database.sql(&format!("{drop}{sql};{make}"));
}

/// What is done to the tables, how it is undone, and what the check says of it. `$1` is an acknowledged operation, by id.
const TAMPERINGS: &[(&str, &str, &str, &str)] = &[
    (
        "CREATE TABLE kept AS SELECT * FROM operations WHERE operation_id = $1; DELETE FROM operations WHERE operation_id = $1",
        "INSERT INTO operations SELECT * FROM kept; DROP TABLE kept",
        "acknowledged-is-stored",
        "and is not stored",
    ),
    (
        "UPDATE operations SET outcome = replace(outcome, 'status', 'Status') WHERE operation_id = $1",
        "UPDATE operations SET outcome = replace(outcome, 'Status', 'status') WHERE operation_id = $1",
        "acknowledged-as-stored",
        "other bytes than are stored",
    ),
    (
        "CREATE TABLE kept AS SELECT * FROM outbox WHERE operation_id = $1; DELETE FROM outbox WHERE operation_id = $1",
        "INSERT INTO outbox SELECT * FROM kept; DROP TABLE kept",
        "one-outbox-row",
        "each operation must have one",
    ),
    (
        "UPDATE cases SET revision = revision + 1 WHERE case_id = '62'",
        "UPDATE cases SET revision = revision - 1 WHERE case_id = '62'",
        "recomputed",
        "the revision",
    ),
];

on_both_databases! {
    /// What a server really answered passes; the same with one thing changed does not.
    async fn a_busy_history_is_clean_and_no_tampering_passes(database: &TestDatabase) {
        let recorded = record(database).await;

        let required = ["--require", "kill-process=1", "--require", "hand-edit=2"];
        let report = check_history(&recorded.path, database, &required).expect_success().json();
        let answers = &report["answers"];
        for (answer, least) in [
            ("applied", 20),
            ("replayed", 1),
            ("unknown", 1),
            ("case-exists", 1),
            ("not-assigned", 1),
            ("illegal-transition", 1),
            ("stale-revision", 1),
            ("operation-conflict", 1),
        ] {
            assert!(answers[answer].as_u64() >= Some(least), "too few answered {answer}: {report:#}");
        }
        assert_eq!(report["stored_edits"], 4, "three cases and an assignment: {report:#}");
        assert_eq!(report["stored_outbox"], report["stored_operations"]);
        assert!(report["judged"].as_u64() >= Some(20), "{report:#}");
        let sentences = casework(["check", recorded.path.to_str().unwrap(), "--database", database.url()]);
        assert!(sentences.expect_success().stdout.contains("every promise is kept"));
        let text = recorded.text();
        casework_with_input(["check", "-", "--database", database.url()], text.as_bytes()).expect_success();

        expect_broken(check_history(&recorded.path, database, &["--require", "hand-edit=3"]), "fault-fired", "at least 3");
        tamper_with_history(&recorded, database);
        tamper_with_tables(&recorded, database);
        check_history(&recorded.path, database, &required).expect_success();
    }
}

/// Changes lines of the history.
fn tamper_with_history(recorded: &Recorded, database: &TestDatabase) {
    let text = recorded.text();
    let is_note = |line: &Value| line["outcome"].as_str().is_some_and(|outcome| outcome.contains("\"note\""));
    let is_alone = |line: &Value| {
        let outcome: Value = serde_json::from_str(line["outcome"].as_str().unwrap()).unwrap();
        let id = outcome["operation_id"].as_str().unwrap();
        text.lines().filter(|line| line.contains("\"invoke\"") && line.contains(id)).count() == 1
    };
    let applied = recorded.attempt(|line| line["replayed"] == false && is_note(line) && is_alone(line));
    let is_applied = |outcome: &Value| {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().any(|line| line["outcome"] == *outcome && line["replayed"] == false)
    };
    let replayed = recorded.attempt(|line| line["replayed"] == true && is_applied(&line["outcome"]));
    let stale = recorded.attempt(|line| line["problem"]["code"] == "stale-revision");
    let with = |attempt: u64, mut change: Box<dyn FnMut(&mut Value)>| {
        recorded.tampered(|mut line| {
            if line["attempt"] == attempt {
                change(&mut line);
            }
            Some(line)
        })
    };
    let broken = |path: &Path, rule, words| expect_broken(check_history(path, database, &[]), rule, words);

    let wrong = |line: &mut Value| {
        if line["event"] == "reply" {
            line["replayed"] = json!(false);
        }
    };
    broken(&with(replayed, Box::new(wrong)), "applied-once", "as applied 2 times");

    let wrong = |line: &mut Value| {
        if line["event"] == "reply" {
            line["problem"]["current_revision"] = json!(1_000);
        }
    };
    broken(&with(stale, Box::new(wrong)), "answer-agrees", "inside its interval");

    let wrong = |line: &mut Value| {
        if line["event"] == "reply" {
            let outcome = line["outcome"].as_str().unwrap().replace("clerk", "Clerk");
            line["outcome"] = json!(outcome);
        }
    };
    broken(&with(applied, Box::new(wrong)), "acknowledged-as-stored", "other bytes");

    let wrong = |line: &mut Value| {
        if line["event"] == "invoke" {
            line["command"]["reason"] = json!("Wrote.");
        }
    };
    broken(&with(applied, Box::new(wrong)), "acknowledged-as-stored", "digests differ");

    let wrong = |line: &mut Value| {
        if line["event"] == "invoke" {
            line["command"]["operation_id"] = json!("6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11");
        }
    };
    let path = with(applied, Box::new(wrong));
    broken(&path, "acknowledged-is-stored", "is not stored");
    broken(&path, "stored-was-invoked", "no attempt of the history invoked it");

    // As if the cases had been opened when all was over.
    let opened = recorded.attempt(|line| line["status"] == 201 && line["replayed"] == false);
    let path = with(opened, Box::new(|line| line["at_us"] = json!(1_u64 << 50)));
    broken(&path, "real-time-order", "the later one must have the higher version");

    let path = recorded.tampered(|line| (line["attempt"] != applied || line["event"] != "invoke").then_some(line));
    let refused = check_history(&path, database, &[]).expect_code(1);
    assert!(refused.stderr.contains("no line says that it was invoked"), "{refused:#?}");
}

/// Changes rows, and changes them back.
fn tamper_with_tables(recorded: &Recorded, database: &TestDatabase) {
    let applied = recorded.attempt(|line| line["replayed"] == false);
    let text = recorded.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let invoked = lines.into_iter().find(|line| line["attempt"] == applied && line["event"] == "invoke").unwrap();
    let id = invoked["command"]["operation_id"].as_str().unwrap();
    // SQLite keeps ids as 16 bytes.
    let id = if database.is_postgres() { format!("'{id}'") } else { format!("x'{}'", id.replace('-', "")) };
    for (wrong, right, rule, words) in TAMPERINGS {
        tamper(database, &wrong.replace("$1", &id));
        expect_broken(check_history(&recorded.path, database, &[]), rule, words);
        tamper(database, &right.replace("$1", &id));
    }
}

#[test]
fn a_history_that_is_not_there_or_proves_nothing_is_refused() {
    let database = TestDatabase::sqlite();
    let _ = make_ready(&database);
    let missing = casework(["check", "no-such-history.jsonl", "--database", database.url()]).expect_code(1);
    assert!(missing.stderr.contains("no-such-history.jsonl can't be read"), "{missing:#?}");
    let empty = casework_with_input(["check", "-", "--database", database.url()], b"").expect_code(1);
    assert!(empty.stderr.contains("proves nothing"), "{empty:#?}");
    let bad = casework_with_input(["check", "-", "--database", database.url()], b"\n{\"event\":1}\n").expect_code(1);
    assert!(bad.stderr.contains("line 2"), "{bad:#?}");
    let _ = casework(["check", "x", "--require", "kill-process"]).expect_code(2);
}
