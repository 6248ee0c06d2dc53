//! The load: clients that send real commands of the permit workflow as real front ends do, well and badly.
//!
//! They send at the newest revision that somebody saw, repeat commands exactly, change the payload under a used id, send
//! again under the same id after every unclear answer (to whichever process comes next), and some give up. Whatever they
//! do is in the history. An answer that no command of this load can have (500, 422, ...) fails the scenario, and so does a command
//! that is not settled within two minutes. What the answers should be is not decided here.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::recorder::Recorder;
use crate::support::http::{Answer, RawConnection};
use crate::support::scene::{Dice, Sender, SentCommand};

/// Cases that are opened before the load begins.
pub const CASES: usize = 30;
/// Cases that the load itself opens, some time.
const LATE_CASES: usize = 12;
/// Commands of a case that may be sent again.
const RECENT: usize = 40;
/// A command that takes longer than this, with all its retries, is a failure.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// What came of one attempt.
pub enum Attempt {
    /// An outcome, or a rejection.
    Settled(Answer),
    /// Nobody knows, or the server said to try again.
    Unclear,
}

/// What the load counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Commands sent by the load, exact repeats among them, retries not.
    pub commands: AtomicU64,
    /// Commands with an outcome or a rejection.
    pub settled: AtomicU64,
    /// Outcomes that were no replays.
    pub applied: AtomicU64,
    /// Commands of which at least one attempt was unclear.
    pub unclear: AtomicU64,
    /// Of these: an earlier attempt had been applied.
    pub unclear_replayed: AtomicU64,
    /// Of these: a later attempt was applied.
    pub unclear_applied: AtomicU64,
    /// Of these: rejected.
    pub unclear_rejected: AtomicU64,
    /// Commands whose client gave up; they are settled at the end.
    pub abandoned: AtomicU64,
}

/// What was counted, once all is over.
pub struct Counted {
    pub counts: Counts,
    /// Answers by problem code or status, with how many of each.
    pub answers: Vec<(String, u64)>,
}

/// What the clients of a scenario share.
pub struct Traffic {
    doors: Vec<Sender>,
    cases: Vec<String>,
    revisions: Vec<AtomicI64>,
    statuses: Vec<Mutex<String>>,
    recent: Vec<Mutex<VecDeque<SentCommand>>>,
    recorder: Recorder,
    /// How long a client waits for an answer before it takes the attempt for lost.
    patience: Duration,
    is_over: AtomicBool,
    abandoned: Mutex<Vec<SentCommand>>,
    /// Rejected after an unclear attempt: that one could still have been applied.
    doubtful: Mutex<Vec<SentCommand>>,
    answers: Mutex<HashMap<String, u64>>,
    /// What was counted.
    pub counts: Counts,
}

impl Traffic {
    /// A load on the processes behind these senders.
    pub fn new(doors: Vec<Sender>, recorder: Recorder, patience: Duration) -> Self {
        let cases = (0..CASES + LATE_CASES).map(|i| format!("case/{i:02}")).collect();
        Self {
            doors,
            cases,
            revisions: (0..CASES + LATE_CASES).map(|_| AtomicI64::new(0)).collect(),
            statuses: (0..CASES + LATE_CASES).map(|_| Mutex::default()).collect(),
            recent: (0..CASES + LATE_CASES).map(|_| Mutex::default()).collect(),
            recorder,
            patience,
            is_over: AtomicBool::new(false),
            abandoned: Mutex::default(),
            doubtful: Mutex::default(),
            answers: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// A fault happened; it stands in the history.
    pub fn note_fault(&self, kind: &str, detail: &str) {
        self.recorder.fault(kind, detail);
    }

    /// How many doors there are.
    pub fn door_count(&self) -> usize {
        self.doors.len()
    }

    /// Closes all connections and gives the history up; what was counted stays.
    pub fn close(self) -> (Counted, Recorder) {
        let answers = self.answers();
        (Counted { counts: self.counts, answers }, self.recorder)
    }

    /// The cases that were opened at the start.
    pub fn open_cases(&self) -> &[String] {
        &self.cases[..CASES]
    }

    /// How many answers of this kind there were.
    pub fn count_of(&self, what: &str) -> u64 {
        self.answers.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    fn answers(&self) -> Vec<(String, u64)> {
        let mut answers: Vec<_> = self.answers.lock().unwrap().clone().into_iter().collect();
        answers.sort();
        answers
    }

    /// Opens the cases and assigns both reviewers, in the history as everything else.
    pub async fn prepare(self: &Arc<Self>, dice: &mut Dice) {
        let mut tasks = Vec::new();
        for case_id in self.open_cases() {
            let mut commands = vec![SentCommand::new(case_id, "open", "clerk", json!({}))];
            for assignee in ["47", "81"] {
                commands.push(SentCommand::new(
                    case_id,
                    "assign",
                    "clerk",
                    json!({ "payload": { "assignee": assignee } }),
                ));
            }
            let (traffic, mut dice) = (Arc::clone(self), dice.fork());
            tasks.push(tokio::spawn(async move {
                for command in commands {
                    let answer = traffic.settle("preparation", &command, &mut dice).await;
                    assert!(matches!(answer.status, 200 | 201), "{command:?}: {}", answer.text());
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// Sends until the load is over.
    pub async fn run_client(self: Arc<Self>, number: usize, mut dice: Dice) {
        let name = format!("client-{number}");
        while !self.is_over.load(Relaxed) {
            let command = self.next_command(&mut dice);
            self.counts.commands.fetch_add(1, Relaxed);
            // Some clients don't come back after an unclear answer.
            if dice.percent(3) {
                let door = dice.below(self.doors.len());
                match self.attempt(&name, door, &command).await {
                    Attempt::Settled(answer) => self.note_settled(&command, &answer, false),
                    Attempt::Unclear => {
                        self.counts.unclear.fetch_add(1, Relaxed);
                        self.counts.abandoned.fetch_add(1, Relaxed);
                        self.abandoned.lock().unwrap().push(command);
                    }
                }
            } else {
                self.settle(&name, &command, &mut dice).await;
            }
        }
    }

    /// Tells the clients to end with the command that they are at.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Settles what was given up, and asks again for what was rejected in doubt: nothing may be open at the end.
    pub async fn settle_the_rest(&self, dice: &mut Dice) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock().unwrap());
        for command in abandoned {
            self.settle("settler", &command, dice).await;
        }
        let doubtful = std::mem::take(&mut *self.doubtful.lock().unwrap());
        for command in doubtful {
            self.settle("settler", &command, dice).await;
        }
    }

    /// Sends a command, again and again under its id and to any process, until it has an outcome or a rejection.
    pub async fn settle(&self, client: &str, command: &SentCommand, dice: &mut Dice) -> Answer {
        let started = Instant::now();
        for unclear in 0_u32.. {
            let door = dice.below(self.doors.len());
            if let Attempt::Settled(answer) = self.attempt(client, door, command).await {
                self.counts.unclear.fetch_add(u64::from(unclear > 0), Relaxed);
                self.note_settled(command, &answer, unclear > 0);
                return answer;
            }
            let waited = started.elapsed();
            assert!(waited < SETTLED_WITHIN, "not settled after {unclear} attempts in {waited:?}: {command:?}");
            let pause = 5 + dice.below(10 << unclear.min(5)) as u64;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        unreachable!("the loop ends with an answer or a panic")
    }

    /// Sends the first `bytes` of a request (fewer, if there are fewer) to `address` and hangs up without reading. Returns whether
    /// all of it was sent.
    pub fn cut_short(&self, address: SocketAddr, command: &SentCommand, bytes: usize) -> bool {
        let request = self.doors[0].raw_request(command);
        let attempt = self.recorder.invoke("hangs up", command);
        let mut connection = RawConnection::connect(address);
        connection.send(&request[..bytes.min(request.len())]);
        drop(connection);
        self.recorder.unknown(attempt, "the client hung up");
        bytes >= request.len()
    }

    /// Sends a command once, to the process behind this door.
    pub async fn attempt(&self, client: &str, door: usize, command: &SentCommand) -> Attempt {
        let attempt = self.recorder.invoke(client, command);
        let answer = match tokio::time::timeout(self.patience, self.doors[door].try_send(command)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let why = if error.is_connect() { "no connection" } else { "connection lost" };
                return self.note_unknown(attempt, why);
            }
            Err(_) => return self.note_unknown(attempt, "the client waited long enough"),
        };
        // Also what is no answer of Casework (502 of a proxy in front, say) is in the history, as unknown.
        self.recorder.reply(attempt, &answer);
        let problem = serde_json::from_slice::<Value>(&answer.body).ok().filter(|body| body["code"].is_string());
        let code = problem.as_ref().map_or_else(String::new, |problem| problem["code"].as_str().unwrap().to_owned());
        match (answer.status, code.as_str()) {
            (200 | 201, _) => {
                self.count(if answer.is_replay() { "replayed" } else { "applied" });
                Attempt::Settled(answer)
            }
            // 502 and 504 are a proxy's. 408 is HTTP's own: the connection was opened ahead of its use, and the server gave it up
            // just as the request was on its way.
            (status @ (202 | 408 | 502 | 504), "") => {
                self.count(&format!("unknown: {status}"));
                Attempt::Unclear
            }
            (503, "unavailable" | "contention" | "overloaded" | "draining") => {
                let problem = problem.unwrap();
                assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&json!(true), &json!(true)));
                self.count(&code);
                Attempt::Unclear
            }
            (403, "not-assigned")
            | (404, "case-not-found")
            | (409, "illegal-transition" | "operation-conflict" | "case-exists")
            | (412, "stale-revision") => {
                self.count(&code);
                Attempt::Settled(answer)
            }
            (status, _) => panic!("{command:?} can't be answered {status}: {}", answer.text()),
        }
    }

    fn note_unknown(&self, attempt: u64, why: &str) -> Attempt {
        self.recorder.unknown(attempt, why);
        self.count(&format!("unknown: {why}"));
        Attempt::Unclear
    }

    fn count(&self, what: &str) {
        *self.answers.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn note_settled(&self, command: &SentCommand, answer: &Answer, was_unclear: bool) {
        let body = answer.json();
        let case = self.cases.iter().position(|case_id| *case_id == command.case_id).expect("it is one of ours");
        for member in ["revision", "current_revision"] {
            if let Some(revision) = body[member].as_i64() {
                self.revisions[case].fetch_max(revision, Relaxed);
            }
        }
        for member in ["status", "current_status"] {
            if let Some(status) = body[member].as_str() {
                *self.statuses[case].lock().unwrap() = status.to_owned();
            }
        }
        let counts = &self.counts;
        let is_outcome = matches!(answer.status, 200 | 201);
        counts.settled.fetch_add(1, Relaxed);
        counts.applied.fetch_add(u64::from(is_outcome && !answer.is_replay()), Relaxed);
        if was_unclear {
            let ended = match (is_outcome, answer.is_replay()) {
                (true, true) => &counts.unclear_replayed,
                (true, false) => &counts.unclear_applied,
                (false, _) => &counts.unclear_rejected,
            };
            ended.fetch_add(1, Relaxed);
            if !is_outcome {
                self.doubtful.lock().unwrap().push(command.clone());
            }
        }
    }

    /// An exact repeat, another command under a used id, or a new command.
    fn next_command(&self, dice: &mut Dice) -> SentCommand {
        let case = dice.below(self.cases.len());
        let mut recent = self.recent[case].lock().unwrap();
        if !recent.is_empty() && dice.percent(20) {
            // Mostly of the newest ones, which may be in flight at another process.
            let back = if dice.percent(70) { recent.len().min(3) } else { recent.len() };
            let mut command = recent[recent.len() - 1 - dice.below(back)].clone();
            if dice.percent(15) && command.members["reason"].is_string() {
                command.members["reason"] = json!("changed under a used id");
            }
            return command;
        }
        let name = if case >= CASES && dice.percent(5) || dice.percent(1) {
            "open"
        } else {
            let status = self.statuses[case].lock().unwrap();
            match status.as_str() {
                "in_review" if dice.percent(80) => dice.pick(&["approve", "deny", "return", "amend", "note"]),
                "returned" if dice.percent(80) => dice.pick(&["resubmit", "resubmit", "note"]),
                "approved" | "denied" if dice.percent(80) => dice.pick(&["reopen", "reopen", "note"]),
                _ => dice.pick(&["approve", "return", "resubmit", "amend", "reopen", "note", "assign", "unassign"]),
            }
        };
        let actor = dice.pick(&["47", "47", "47", "81", "81", "99"]);
        let mut members = json!({});
        match name {
            "open" => members["payload"] = json!({ "kind": "late" }),
            "assign" => members["payload"] = json!({ "assignee": dice.pick(&["47", "81"]) }),
            // Somebody is sent away now and then; who is assigned most of the time keeps the load going.
            "unassign" => members["payload"] = json!({ "assignee": "81" }),
            _ => members["reason"] = json!("as it should be"),
        }
        if !matches!(name, "open" | "note" | "assign" | "unassign") {
            let known = self.revisions[case].load(Relaxed);
            let revision = if dice.percent(8) { known - 1 } else { known };
            members["expected_revision"] = json!(revision.max(0));
        }
        let command = SentCommand::new(&self.cases[case], name, actor, members);
        recent.push_back(command.clone());
        if recent.len() > RECENT {
            recent.pop_front();
        }
        command
    }
}
