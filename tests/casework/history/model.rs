//! A server in a few lines, and the story of its clients.
//!
//! [`Model`] decides one command after the other with the crate's own rules and keeps rows as a database would;
//! [`Tables`] are those rows, to be tampered with and read as a snapshot. [`Story`] writes down what clients see.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use casework::command_log::{LineRules, WorkflowMap, parse_line};
use casework::domain::decide::Judgement;
use casework::domain::{
    CaseId, CaseState, Command, KnownOperation, Operation, Rejection, Timestamp, Version, Workflow, apply, judge,
};
use casework::history::{CheckOptions, CheckReport, Event, HistoryBuilder, Reply, ReplyProblem, check_snapshot};
use casework::store::{CaseRecord, OutboxRecord, Snapshot, StoreError};

/// A command from the members of its log line behind case 62.
#[track_caller]
pub fn command(number: u32, rest: &str) -> Command {
    command_of("62", number, rest)
}

/// A command of any case.
#[track_caller]
pub fn command_of(case_id: &str, number: u32, rest: &str) -> Command {
    let id = crate::command_log::operation_id(number);
    let line = format!(r#"{{"case_id":"{case_id}","operation_id":"{id}",{rest}}}"#);
    parse_line(line.as_bytes(), LineRules::default()).expect(&line).command
}

/// What a server answered.
pub type Answer = Result<(Arc<str>, bool), Rejection>;

/// The server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    states: BTreeMap<CaseId, CaseState>,
    operations: Vec<Operation>,
}

impl Model {
    /// Decides a command and applies it: the outcome and whether it was there before, or the rejection.
    pub fn run(&mut self, command: &Command) -> Answer {
        let known = self
            .operations
            .iter()
            .find(|row| row.case_id == *command.case_id() && row.operation_id == command.operation_id());
        let known = known.map(KnownOperation::from);
        let state = self.states.entry(command.case_id().clone()).or_insert(CaseState::Absent);
        let workflow = state.case().map_or_else(permit, |case| case.workflow.clone());
        let decision = match judge(known.as_ref(), &workflow, state, command)? {
            Judgement::Replay(outcome) => return Ok((outcome, true)),
            Judgement::Accept(decision) => decision,
        };
        // One time for all: which attempt applied a command must not show in the bytes.
        let recorded_at = Timestamp::from_micros(0);
        apply(state, &decision, recorded_at);
        let operation = decision.to_operation(command, recorded_at);
        let outcome = operation.outcome.clone().expect("a decision has an outcome");
        self.operations.push(operation);
        Ok((outcome, false))
    }

    /// The commands that were applied, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Its rows.
    pub fn tables(&self) -> Tables {
        let mut operations = self.operations.clone();
        operations.sort_by(|left, right| (&left.case_id, left.version).cmp(&(&right.case_id, right.version)));
        let outbox = operations.iter().map(|row| OutboxRecord {
            case_id: row.case_id.clone(),
            version: row.version,
            operation_id: row.operation_id,
        });
        let cases = self.states.iter().filter_map(|(case_id, state)| {
            let case = state.case()?;
            Some(CaseRecord {
                case_id: case_id.clone(),
                workflow: case.workflow.name().clone(),
                status: case.status.clone(),
                revision: case.revision,
                version: case.version,
                assignees: case.assignees.iter().cloned().collect(),
                data: case.data.clone(),
                opened_at: case.opened_at,
                updated_at: case.updated_at,
            })
        });
        Tables { outbox: outbox.collect(), cases: cases.collect(), operations }
    }
}

fn permit() -> Arc<Workflow> {
    static PERMIT: std::sync::LazyLock<Arc<Workflow>> = std::sync::LazyLock::new(Workflow::permit);
    PERMIT.clone()
}

/// Rows in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    pub cases: Vec<CaseRecord>,
    pub operations: Vec<Operation>,
    pub outbox: Vec<OutboxRecord>,
}

#[async_trait]
impl Snapshot for Tables {
    async fn case_scan(&mut self, after: Option<&CaseId>, limit: usize) -> Result<Vec<CaseRecord>, StoreError> {
        let later = self.cases.iter().filter(|row| after.is_none_or(|after| row.case_id > *after));
        Ok(later.take(limit).cloned().collect())
    }

    async fn operation_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let is_later = |row: &&Operation| after.is_none_or(|after| (&row.case_id, row.version) > after);
        Ok(self.operations.iter().filter(is_later).take(limit).cloned().collect())
    }

    async fn outbox_scan(
        &mut self,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let is_later = |row: &&OutboxRecord| after.is_none_or(|after| (&row.case_id, row.version) > after);
        Ok(self.outbox.iter().filter(is_later).take(limit).cloned().collect())
    }
}

/// What a client learns of an answer.
pub fn reply(answer: &Answer) -> Reply {
    match answer {
        Ok((outcome, replayed)) => Reply::Outcome { replayed: *replayed, outcome: outcome.to_string() },
        Err(rejection) => Reply::Problem(problem(rejection)),
    }
}

/// The members of a rejection's problem document that a history keeps.
pub fn problem(rejection: &Rejection) -> ReplyProblem {
    let mut problem = bare_problem(rejection.code());
    match rejection {
        Rejection::IllegalTransition { status, revision, allowed } => {
            problem.current_status = Some(status.to_string());
            problem.current_revision = Some(revision.get());
            problem.allowed = Some(allowed.iter().map(ToString::to_string).collect());
        }
        Rejection::StaleRevision { current } => problem.current_revision = Some(current.get()),
        _ => {}
    }
    problem
}

/// A problem that says nothing but its code.
pub fn bare_problem(code: &str) -> ReplyProblem {
    ReplyProblem { code: code.to_owned(), current_status: None, current_revision: None, allowed: None }
}

/// The HTTP status of an acknowledgement.
pub fn status(command: &Command) -> u16 {
    if command.name().as_str() == "open" { 201 } else { 200 }
}

/// Checks events against rows.
///
/// # Panics
/// When the events contradict themselves.
#[track_caller]
pub fn check(events: &[Event], tables: &mut Tables, options: CheckOptions) -> CheckReport {
    let mut history = HistoryBuilder::default();
    for event in events {
        history.take(event.clone()).expect("a history");
    }
    let history = history.finish().expect("a whole history");
    let workflows = WorkflowMap::from([(permit().name().clone(), permit())]);
    let checked = check_snapshot(tables, &workflows, history, options);
    futures_util::FutureExt::now_or_never(checked).expect("memory never waits").expect("memory does not fail")
}

/// Clients, one after the other unless said otherwise, on a clock that counts by ten.
#[derive(Debug, Default)]
pub struct Story {
    pub model: Model,
    pub events: Vec<Event>,
    at_us: u64,
}

impl Story {
    fn tick(&mut self) -> u64 {
        self.at_us += 10;
        self.at_us
    }

    /// A client begins to send; nothing has come of it yet. Returns the attempt, from 1.
    pub fn begin(&mut self, command: &Command) -> u64 {
        let invoked = self.events.iter().filter(|event| matches!(event, Event::Invoke { .. })).count();
        let attempt = invoked as u64 + 1;
        let (at_us, client) = (self.tick(), format!("client-{attempt}"));
        self.events.push(Event::Invoke { attempt, at_us, client, command: command.clone().into() });
        attempt
    }

    /// An answer comes.
    pub fn end(&mut self, attempt: u64, status: u16, reply: Reply) {
        let at_us = self.tick();
        self.events.push(Event::Reply { attempt, at_us, status, reply });
    }

    /// No answer comes.
    pub fn lose(&mut self, attempt: u64) {
        let at_us = self.tick();
        self.events.push(Event::Unknown { attempt, at_us, why: "connection reset".into() });
    }

    /// Sends a command, which is run at once, and is answered.
    pub fn send(&mut self, command: &Command) -> u64 {
        let attempt = self.begin(command);
        let answer = self.model.run(command);
        self.answer(attempt, command, &answer);
        attempt
    }

    /// Gives the answer of the model.
    pub fn answer(&mut self, attempt: u64, command: &Command, answer: &Answer) {
        let code = if answer.is_ok() { status(command) } else { 409 };
        self.end(attempt, code, reply(answer));
    }

    /// The end of the attempt, to be tampered with.
    #[track_caller]
    pub fn end_of(&mut self, wanted: u64) -> &mut Event {
        let is_end = |event: &&mut Event| match event {
            Event::Reply { attempt, .. } | Event::Unknown { attempt, .. } => *attempt == wanted,
            _ => false,
        };
        self.events.iter_mut().find(is_end).expect("the attempt has an end")
    }

    /// Checks the story against the model's rows as `tamper` leaves them.
    #[track_caller]
    pub fn check(&self, tamper: impl FnOnce(&mut Tables)) -> CheckReport {
        let mut tables = self.model.tables();
        tamper(&mut tables);
        check(&self.events, &mut tables, CheckOptions::default())
    }
}
