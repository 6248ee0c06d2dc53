//! A history in memory, as small as a check allows: millions of attempts fit.
//!
//! Owns what is kept of an attempt: of a command what is needed to decide it again and its digest, of an outcome a hash of
//! its bytes and the version that it names; texts are kept once. Never judges. Fails with [`HistoryFault`] where the
//! events can't all be true of one run: an attempt invoked twice, ended twice, ended before it began or never invoked.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, json};
use sha2::{Digest as _, Sha256};

use super::event::{Event, Reply, ReplyProblem};
use super::interner::Interner;
use crate::domain::{
    ActorId, CaseId, Command, CommandDraft, CommandKind, CommandName, Digest, Members, OperationId, WorkflowName,
};

/// No text, no number.
const NONE: u32 = u32::MAX;
/// The end of an attempt that has none.
pub(super) const NEVER: u64 = u64::MAX;

/// What can't be true of one run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryFault {
    /// An attempt's number is used again.
    #[error("attempt {0} is invoked twice; each attempt, a retry too, has a number of its own")]
    InvokedTwice(u64),
    /// An attempt has two ends.
    #[error("attempt {0} ends twice")]
    EndedTwice(u64),
    /// An attempt has an end and no beginning.
    #[error("attempt {0} ends, and no line says that it was invoked")]
    NotInvoked(u64),
    /// The clock went back.
    #[error("attempt {0} ends before it is invoked; one monotonic clock must serve the whole history")]
    EndedBefore(u64),
    /// There is nothing to check.
    #[error("the history holds no attempt, so that it proves nothing")]
    Empty,
}

/// A hash of an outcome's bytes; 16 bytes of SHA-256.
pub(super) type OutcomeHash = [u8; 16];

/// Hashes an outcome.
pub(super) fn outcome_hash(outcome: &str) -> OutcomeHash {
    let mut hash = OutcomeHash::default();
    hash.copy_from_slice(&Sha256::digest(outcome.as_bytes())[..size_of::<OutcomeHash>()]);
    hash
}

/// What is read of an outcome's text.
#[derive(serde::Deserialize)]
struct NamedVersion {
    version: i64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// No line says.
    Open,
    /// A line says that nothing clear came.
    Unknown,
    /// Acknowledged; `version`: what the outcome says, 0 where it says none.
    Outcome { status: u16, replayed: bool, hash: OutcomeHash, version: i64 },
    /// A problem, by its number.
    Problem(u32),
}

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) number: u64,
    pub(super) began: u64,
    pub(super) ended: u64,
    request: u32,
    pub(super) end: End,
}

/// A command under an id; its retries share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    case: u32,
    pub(super) operation_id: OperationId,
    pub(super) digest: Digest,
    actor: u32,
    name: u32,
    assignee: u32,
    workflow: u32,
    expected_revision: Option<i64>,
    has_reason: bool,
}

/// A whole history.
#[derive(Debug, Default)]
pub struct History {
    texts: Interner<std::sync::Arc<str>>,
    problems: Interner<ReplyProblem>,
    requests: Vec<Request>,
    /// By case (bytes of its id), operation and beginning.
    attempts: Vec<Attempt>,
    /// Of each kind, how often it fired.
    pub(super) faults: BTreeMap<String, u64>,
    pub(super) lines: u64,
}

impl History {
    pub(super) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    pub(super) fn request(&self, attempt: &Attempt) -> &Request {
        &self.requests[attempt.request as usize]
    }

    pub(super) fn problem(&self, number: u32) -> &ReplyProblem {
        self.problems.get(number)
    }

    pub(super) fn case_id(&self, attempt: &Attempt) -> CaseId {
        CaseId::from_stored(self.texts.get(self.request(attempt).case).clone())
    }

    pub(super) fn is_of(&self, attempt: &Attempt, case_id: &CaseId) -> bool {
        **self.texts.get(self.request(attempt).case) == *case_id.as_str()
    }

    pub(super) fn is_open(&self, request: &Request) -> bool {
        &**self.texts.get(request.name) == "open"
    }

    /// Whether the command names a workflow.
    pub(super) fn names_workflow(&self, request: &Request) -> bool {
        request.workflow != NONE
    }

    /// A command that is decided as the one that was sent: it differs in its reason's text, its payload and its digest.
    pub(super) fn command(&self, request: &Request) -> Command {
        let text = |number: u32| self.texts.get(number).clone();
        let mut object = Map::new();
        if let Some(revision) = request.expected_revision {
            object.insert("expected_revision".into(), json!(revision));
        }
        if request.has_reason {
            object.insert("reason".into(), json!("-"));
        }
        if request.assignee != NONE {
            object.insert("payload".into(), json!({ "assignee": *text(request.assignee) }));
        }
        let mut members = Members::take(&mut object, &mut Vec::new());
        if request.workflow != NONE {
            members.workflow = Some(WorkflowName::from_stored(text(request.workflow)));
        }
        Command::new(CommandDraft {
            case_id: CaseId::from_stored(text(request.case)),
            operation_id: request.operation_id,
            actor: ActorId::from_stored(text(request.actor)),
            name: CommandName::from_stored(text(request.name)),
            members,
        })
        .expect("it has the members that made the one that was read valid")
    }
}

/// Puts a history together from its events.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    history: History,
    by_number: HashMap<u64, u32>,
    /// By a hash of case, operation and digest. Two requests with one hash would merely be kept apart.
    by_request: HashMap<u64, u32>,
}

impl HistoryBuilder {
    /// Takes the next event, in any order.
    ///
    /// # Errors
    /// [`HistoryFault`].
    pub fn take(&mut self, event: Event) -> Result<(), HistoryFault> {
        self.history.lines += 1;
        match event {
            Event::Invoke { attempt: number, at_us, command, .. } => {
                let request = self.intern(&command);
                let attempt = self.attempt(number);
                if attempt.request != NONE {
                    return Err(HistoryFault::InvokedTwice(number));
                }
                (attempt.request, attempt.began) = (request, at_us);
            }
            Event::Reply { attempt: number, at_us, status, reply } => {
                let end = match reply {
                    Reply::Outcome { replayed, outcome } => {
                        let named = serde_json::from_str::<NamedVersion>(&outcome);
                        let version = named.map_or(0, |named| named.version);
                        End::Outcome { status, replayed, hash: outcome_hash(&outcome), version }
                    }
                    Reply::Problem(problem) => End::Problem(self.history.problems.number(problem)),
                };
                self.end(number, at_us, end)?;
            }
            Event::Unknown { attempt, at_us, .. } => self.end(attempt, at_us, End::Unknown)?,
            Event::Fault { kind, .. } => *self.history.faults.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    /// The history, once all its events were taken.
    ///
    /// # Errors
    /// [`HistoryFault`].
    pub fn finish(self) -> Result<History, HistoryFault> {
        let mut history = self.history;
        // Both are large, and sorting needs room.
        drop((self.by_number, self.by_request));
        for attempt in &history.attempts {
            if attempt.request == NONE {
                return Err(HistoryFault::NotInvoked(attempt.number));
            }
            if attempt.ended < attempt.began {
                return Err(HistoryFault::EndedBefore(attempt.number));
            }
        }
        if history.attempts.is_empty() {
            return Err(HistoryFault::Empty);
        }
        let (texts, requests) = (&history.texts, &history.requests);
        history.attempts.sort_unstable_by(|left, right| {
            let key = |attempt: &Attempt| {
                let request = &requests[attempt.request as usize];
                (&**texts.get(request.case), request.operation_id, attempt.began, attempt.number)
            };
            key(left).cmp(&key(right))
        });
        Ok(history)
    }

    fn attempt(&mut self, number: u64) -> &mut Attempt {
        let attempts = &mut self.history.attempts;
        let index = *self.by_number.entry(number).or_insert_with(|| {
            attempts.push(Attempt { number, began: 0, ended: NEVER, request: NONE, end: End::Open });
            u32::try_from(attempts.len() - 1).expect("fewer than 2^32 attempts")
        });
        &mut attempts[index as usize]
    }

    fn end(&mut self, number: u64, at_us: u64, end: End) -> Result<(), HistoryFault> {
        let attempt = self.attempt(number);
        if attempt.end != End::Open {
            return Err(HistoryFault::EndedTwice(number));
        }
        (attempt.ended, attempt.end) = (at_us, end);
        Ok(())
    }

    fn intern(&mut self, command: &Command) -> u32 {
        let digest = *command.digest().expect("only an `edit` has none, and no client can send one");
        let mut hasher = DefaultHasher::new();
        (command.case_id(), command.operation_id(), digest).hash(&mut hasher);
        let hash = hasher.finish();
        let texts = &mut self.history.texts;
        let mut text = |text: Option<&str>| text.map_or(NONE, |text| texts.number_of(text));
        let assignee = match command.kind() {
            CommandKind::Assign(who) | CommandKind::Unassign(who) => Some(who.as_str()),
            _ => None,
        };
        let request = Request {
            case: text(Some(command.case_id().as_str())),
            operation_id: command.operation_id(),
            digest,
            actor: text(Some(command.actor().as_str())),
            name: text(Some(command.name().as_str())),
            assignee: text(assignee),
            workflow: text(command.named_workflow().map(WorkflowName::as_str)),
            expected_revision: command.expected_revision().map(|revision| revision.get()),
            has_reason: command.has_reason(),
        };
        let requests = &mut self.history.requests;
        if let Some(&number) = self.by_request.get(&hash)
            && requests[number as usize] == request
        {
            return number;
        }
        requests.push(request);
        let number = u32::try_from(requests.len() - 1).expect("fewer than 2^32 commands");
        self.by_request.insert(hash, number);
        number
    }
}
