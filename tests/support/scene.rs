//! A database made ready, and commands sent to a server as a busy front end sends them.
//!
//! [`make_ready`] migrates and issues a token that may act for anyone; a [`Sender`] sends [`SentCommand`]s with it. What
//! was acknowledged is compared with [`recorded_outcomes`], which asks the database's own shell and not the crate.

use std::collections::HashSet;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::cli::casework;
use super::database::TestDatabase;
use super::http::{Answer, HttpClient, command_path};
use super::token::issue_token;

/// Migrates the database and returns a token with the role `proxy`.
///
/// # Panics
/// When either is refused.
#[must_use]
#[track_caller]
pub fn make_ready(database: &TestDatabase) -> String {
    let _ = casework(["migrate", "--database", database.url()]).expect_success();
    issue_token(database.url(), "front-end", &["proxy"]).token
}

/// `casework verify` finds every invariant held.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn verify_is_clean(database: &TestDatabase) {
    let _ = casework(["verify", "--database", database.url()]).expect_success();
}

/// The outcomes of all commands in the database, byte for byte; edits by hand are left out.
///
/// # Panics
/// When two rows have the same outcome: an outcome names its operation.
#[must_use]
#[track_caller]
pub fn recorded_outcomes(database: &TestDatabase) -> HashSet<String> {
    let rows = database.sql("SELECT outcome FROM operations WHERE command <> 'edit'");
    let count = rows.len();
    let outcomes: HashSet<String> = rows.into_iter().flatten().collect();
    assert_eq!(outcomes.len(), count, "two operations have one outcome");
    outcomes
}

/// One command as it is sent; sending it again is an exact repeat.
#[derive(Debug, Clone)]
pub struct SentCommand {
    /// The case.
    pub case_id: String,
    /// `note`, `approve`, ...
    pub name: String,
    /// The operation id.
    pub id: String,
    /// The members of its body, `actor` among them.
    pub members: Value,
}

impl SentCommand {
    /// A command of `actor` under a new id.
    #[must_use]
    pub fn new(case_id: &str, name: &str, actor: &str, mut members: Value) -> Self {
        members["actor"] = json!(actor);
        Self { case_id: case_id.to_owned(), name: name.to_owned(), id: Uuid::new_v4().to_string(), members }
    }

    /// A note of the clerk, which is legal on every case at any time.
    #[must_use]
    pub fn note(case_id: &str, reason: &str) -> Self {
        Self::new(case_id, "note", "clerk", json!({ "reason": reason }))
    }

    /// The command as a line of a command log.
    #[must_use]
    pub fn log_line(&self) -> Value {
        let mut line = self.members.clone();
        line["case_id"] = json!(self.case_id);
        line["command"] = json!(self.name);
        line["operation_id"] = json!(self.id);
        line
    }
}

/// Sends commands to one server.
#[derive(Debug, Clone)]
pub struct Sender {
    client: HttpClient,
    token: String,
    wait_seconds: u32,
}

impl Sender {
    /// A sender to the server at `url`. An answer may take a minute.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Self {
        Self { client: HttpClient::new(url), token: token.to_owned(), wait_seconds: 60 }
    }

    /// The same, with another time to wait before the server answers 202.
    #[must_use]
    pub fn waiting(mut self, wait_seconds: u32) -> Self {
        self.wait_seconds = wait_seconds;
        self
    }

    /// The client, for reads.
    #[must_use]
    pub fn client(&self) -> &HttpClient {
        &self.client
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn try_send(&self, command: &SentCommand) -> Result<Answer, reqwest::Error> {
        let headers = [
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".to_owned()),
            ("idempotency-key", command.id.clone()),
            ("prefer", format!("wait={}", self.wait_seconds)),
        ];
        let path = command_path(&command.case_id, &command.name);
        self.client.try_send(Method::POST, &path, &headers, command.members.to_string()).await
    }

    /// The bytes of the request that sends a command, for who sends only some of them.
    #[must_use]
    pub fn raw_request(&self, command: &SentCommand) -> Vec<u8> {
        let body = command.members.to_string();
        format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {}\r\nContent-Length: {}\r\n\r\n{body}",
            command_path(&command.case_id, &command.name),
            self.token,
            command.id,
            body.len(),
        )
        .into_bytes()
    }

    /// Sends a command.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn send(&self, command: &SentCommand) -> Answer {
        self.try_send(command).await.unwrap_or_else(|error| panic!("no answer to {command:?}: {error:?}"))
    }

    /// Reads a path with the sender's token.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn get(&self, path: &str) -> Answer {
        self.client.get(path, Some(&self.token)).await
    }

    /// Sends many commands as one stream, and returns the answers in the order of the commands.
    ///
    /// # Panics
    /// When there is no whole answer, or not one for each command.
    pub async fn stream(&self, commands: &[SentCommand]) -> Vec<Value> {
        let mut lines = String::new();
        for command in commands {
            lines.push_str(&command.log_line().to_string());
            lines.push('\n');
        }
        let answer = self.client.post_lines(lines, &self.token).await.expect_status(200);
        let answers: Vec<Value> =
            answer.text().lines().map(|line| serde_json::from_str(line).expect("an answer is JSON")).collect();
        assert_eq!(answers.len(), commands.len(), "one answer for each line");
        answers
    }

    /// Opens these cases and assigns reviewers 47 and 81 to each.
    ///
    /// # Panics
    /// When any of it is not applied.
    pub async fn open_cases(&self, case_ids: &[String]) {
        let mut commands = Vec::new();
        for case_id in case_ids {
            commands.push(SentCommand::new(case_id, "open", "clerk", json!({})));
            for assignee in ["47", "81"] {
                let members = json!({ "payload": { "assignee": assignee } });
                commands.push(SentCommand::new(case_id, "assign", "clerk", members));
            }
        }
        for answer in self.stream(&commands).await {
            assert!(matches!(answer["status"].as_u64(), Some(200 | 201)), "a case is not made ready: {answer}");
        }
    }
}

/// How long each of some requests took.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// One more.
    pub fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The one below which `percent` of them lie.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[track_caller]
    pub fn percentile(&self, percent: usize) -> Duration {
        assert!(!self.0.is_empty(), "nothing was measured");
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

impl Extend<Duration> for Latencies {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, durations: I) {
        self.0.extend(durations);
    }
}

/// The middle one.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn median(durations: &[Duration]) -> Duration {
    Latencies(durations.to_vec()).percentile(50)
}

/// Numbers that come again with their seed: SplitMix64.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed: that of the environment variable `CASEWORK_TEST_SEED`, else of the clock. The seed is printed.
    ///
    /// # Panics
    /// When the variable is no number.
    #[must_use]
    #[track_caller]
    pub fn seeded() -> Self {
        let seed = std::env::var("CASEWORK_TEST_SEED").map_or_else(
            |_| std::time::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_micros() as u64,
            |text| text.parse().expect("CASEWORK_TEST_SEED is a number"),
        );
        eprintln!("CASEWORK_TEST_SEED={seed}");
        Self(seed)
    }

    /// Dice whose numbers are others, for another task of the same test.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// True so many times of a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
