//! A retry storm: a long list of commands with repeats, reused ids, stale revisions and strangers among them, and a client
//! that sends it until every line has a final answer.
//!
//! The recorded log `receipt` where it lies beside the project, else a generated one. Lines of one case go in their
//! order; [`IN_FLIGHT`] cases are on their way at once. What was not answered is sent again, as it was.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::case_62::Books;
use crate::support::data::{gzipped_lines, recorded_log};
use crate::support::http::{Answer, HttpClient};
use crate::support::server::ServerOptions;

/// Commands on their way at once.
const IN_FLIGHT: usize = 64;
/// How long one line is sent again and again; a server that comes back does so sooner.
const PATIENCE: Duration = Duration::from_secs(90);
/// The pause before sending again: short beside a restart, long beside a request.
const PAUSE: Duration = Duration::from_millis(20);

/// One command.
#[derive(Debug)]
struct Line {
    case_id: String,
    operation_id: String,
    command: String,
    body: Value,
}

/// The commands, and what must come of them where that is known.
#[derive(Debug)]
pub struct Storm {
    lines: Vec<Line>,
    expected: Option<Vec<String>>,
    workflow: Option<PathBuf>,
}

/// What a line came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Final {
    /// Applied or replayed, with the outcome's text.
    Done(String, bool),
    /// Refused, with the problem's code.
    Refused(String),
}

impl Final {
    /// Whether a line that stands for `expected` may have come to this. The answer to the first send may have been lost.
    fn fits(&self, expected: &str) -> bool {
        match self {
            Self::Done(_, replayed) => expected == "applied" || (expected == "replayed" && *replayed),
            Self::Refused(code) => expected == code,
        }
    }

    /// The same without what differs between two equal runs.
    fn without_chance(&self) -> Value {
        match self {
            Self::Done(outcome, _) => {
                let mut outcome: Map<String, Value> = serde_json::from_str(outcome).unwrap();
                outcome.remove("recorded_at");
                Value::Object(outcome)
            }
            Self::Refused(code) => json!(code),
        }
    }
}

/// Numbers of a run that goes on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Lines with a final answer.
    pub answered: AtomicUsize,
    /// Requests that got no answer at all.
    pub lost: AtomicUsize,
    /// Requests that were answered 503.
    pub unavailable: AtomicUsize,
}

impl Storm {
    /// The storm of `receipt`, or the generated one; at most its first `lines_max` lines.
    pub fn load(lines_max: usize) -> Self {
        let Some(log) = recorded_log("receipt") else { return Self::generate(lines_max) };
        let lines = gzipped_lines(&log.storm).iter().take(lines_max).map(|line| Line::parse(line)).collect();
        let expected = gzipped_lines(&log.storm_expected);
        let column = |row: &String| row.split('\t').nth(1).unwrap().to_owned();
        let expected = expected.iter().skip(1).take(lines_max).map(column).collect();
        Self { lines, expected: Some(expected), workflow: Some(log.workflow) }
    }

    /// Cases that are returned, resubmitted and decided, each command sent again now and then.
    fn generate(lines_max: usize) -> Self {
        let cases = lines_max.div_ceil(12);
        let mut storm = Self { lines: Vec::new(), expected: Some(Vec::new()), workflow: None };
        let action = |command: &str, revision: u64| {
            (command.to_owned(), json!({ "expected_revision": revision, "reason": "As recorded." }))
        };
        for i in 0..cases {
            let mut story = vec![
                ("open".to_owned(), json!({ "payload": { "number": i } })),
                ("assign".to_owned(), json!({ "payload": { "assignee": "47" } })),
            ];
            story.extend((0..6).map(|revision| action(["return", "resubmit"][revision % 2], revision as u64)));
            story.push(action("approve", 6));
            let case_id = format!("generated-{i}");
            for (n, (command, members)) in story.into_iter().enumerate() {
                let id = Uuid::from_u128((i as u128) << 64 | (n as u128 + 1));
                storm.push(&case_id, id, "47", &command, members.clone(), "applied");
                match (i + n) % 9 {
                    0 | 1 => storm.push(&case_id, id, "47", &command, members, "replayed"),
                    2 => storm.push(&case_id, id, "81", &command, members, "operation-conflict"),
                    // Status and assignment allow it, the revision does not.
                    3 if n >= 3 && n % 2 == 1 => {
                        let (_, stale) = action("return", 0);
                        storm.push(
                            &case_id,
                            Uuid::from_u128(id.as_u128() << 8),
                            "47",
                            "return",
                            stale,
                            "stale-revision",
                        );
                    }
                    4 if n >= 2 => {
                        let (_, strange) = action("return", n as u64 - 1);
                        storm.push(
                            &case_id,
                            Uuid::from_u128(id.as_u128() << 8),
                            "81",
                            "return",
                            strange,
                            "not-assigned",
                        );
                    }
                    _ => {}
                }
            }
        }
        storm
    }

    fn push(&mut self, case_id: &str, id: Uuid, actor: &str, command: &str, mut body: Value, expected: &str) {
        body["actor"] = json!(actor);
        let (case_id, command) = (case_id.to_owned(), command.to_owned());
        self.lines.push(Line { case_id, operation_id: id.to_string(), command, body });
        self.expected.as_mut().expect("a generated storm knows").push(expected.to_owned());
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The options of a server that knows the storm's workflow.
    pub fn options(&self, options: ServerOptions) -> ServerOptions {
        match &self.workflow {
            Some(workflow) => options.argument("--workflow").argument(workflow),
            None => options,
        }
    }

    /// Sends every line until it has a final answer; the answers in the order of the lines.
    pub async fn drive(&self, client: &HttpClient, token: &str, progress: &Progress) -> Vec<Final> {
        let mut cases: Vec<Vec<usize>> = Vec::new();
        let mut place_of: HashMap<&str, usize> = HashMap::new();
        for (i, line) in self.lines.iter().enumerate() {
            let place = *place_of.entry(&line.case_id).or_insert_with(|| {
                cases.push(Vec::new());
                cases.len() - 1
            });
            cases[place].push(i);
        }
        let finals = Mutex::new(vec![None; self.lines.len()]);
        futures_util::stream::iter(cases)
            .for_each_concurrent(IN_FLIGHT, |case| {
                let finals = &finals;
                async move {
                    for i in case {
                        let answer = self.lines[i].send(client, token, progress).await;
                        finals.lock().unwrap()[i] = Some(answer);
                        progress.answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
            .await;
        finals.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
    }

    /// Each line came to what is known to come of it.
    ///
    /// # Panics
    /// When one did not.
    #[track_caller]
    pub fn check_expected(&self, finals: &[Final]) {
        for (i, expected) in self.expected.iter().flatten().enumerate() {
            assert!(finals[i].fits(expected), "line {}: {expected} is expected, not {:?}", i + 1, finals[i]);
        }
    }
}

/// Two runs came to the same, but for times and for which of two equal sends was the first.
///
/// # Panics
/// When they did not.
#[track_caller]
pub fn check_same(finals: &[Final], others: &[Final]) {
    for (i, (one, other)) in finals.iter().zip(others).enumerate() {
        assert_eq!(one.without_chance(), other.without_chance(), "line {}", i + 1);
    }
}

/// Every outcome that a client was given is in the table, with equal bytes.
///
/// # Panics
/// When one is not.
#[track_caller]
pub fn check_acknowledged(finals: &[Final], books: &Books) {
    let stored: HashMap<(&str, &str), &str> =
        books.operations.iter().map(|row| ((row[0].as_str(), row[2].as_str()), row[8].as_str())).collect();
    for outcome in finals.iter().filter_map(|answer| match answer {
        Final::Done(outcome, _) => Some(outcome),
        Final::Refused(_) => None,
    }) {
        let value: Value = serde_json::from_str(outcome).unwrap();
        let id = value["operation_id"].as_str().unwrap().replace('-', "").to_lowercase();
        let found = stored.get(&(value["case_id"].as_str().unwrap(), id.as_str()));
        assert_eq!(found, Some(&outcome.as_str()), "an acknowledged outcome is in the table");
    }
}

impl Line {
    fn parse(line: &str) -> Self {
        let mut members: Map<String, Value> = serde_json::from_str(line).unwrap();
        members.remove("at");
        let mut take = |name: &str| members.remove(name).unwrap().as_str().unwrap().to_owned();
        let (case_id, operation_id, command) = (take("case_id"), take("operation_id"), take("command"));
        Self { case_id, operation_id, command, body: Value::Object(members) }
    }

    async fn send(&self, client: &HttpClient, token: &str, progress: &Progress) -> Final {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "no final answer within {PATIENCE:?}: {self:?}");
            let sent = client.try_post_command(&self.case_id, &self.command, &self.operation_id, &self.body, token);
            match sent.await {
                Ok(answer) => match self.read(answer) {
                    Some(answer) => return answer,
                    None => progress.unavailable.fetch_add(1, Ordering::Relaxed),
                },
                Err(_) => progress.lost.fetch_add(1, Ordering::Relaxed),
            };
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The final answer; `None`: the same has to be sent again, and the answer says so.
    fn read(&self, answer: Answer) -> Option<Final> {
        match answer.status {
            200 | 201 => Some(Final::Done(answer.text(), answer.is_replay())),
            202 => None,
            503 => {
                let problem = answer.json();
                let told = (&problem["retryable"], &problem["reuse_key"]);
                assert_eq!(told, (&json!(true), &json!(true)), "{problem}");
                assert!(answer.header("retry-after").is_some());
                None
            }
            status => {
                assert!((400..500).contains(&status), "{status} to {self:?}: {}", answer.text());
                Some(Final::Refused(answer.problem_code().unwrap()))
            }
        }
    }
}
