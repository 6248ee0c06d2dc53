//! Errors on the wire: RFC 9457 problem documents.
//!
//! Owns the one mapping from what can go wrong inside to status, code, title, `retryable` and `reuse_key`: one table,
//! walked by one test. Never shows a driver's words, a body, a key or a token. Cannot fail.

use std::fmt::Write as _;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::actor::WorkflowConflict;
use crate::command_log::LineError;
use crate::domain::{InvalidCommand, InvalidId, JsonError, Rejection};
use crate::engine::Trouble;
use crate::store::StoreError;

/// The header that carries the id of a request back to its sender.
pub(super) const REQUEST_ID_HEADER: &str = "x-request-id";
/// What `Retry-After` says, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u32 = 1;

/// How many faults of one request are named: a body of 64 KiB can hold thousands.
const FIELD_ERRORS_MAX: usize = 20;

/// Every code that a problem document can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemCode {
    /// Not JSON, or JSON that two readers could read in two ways.
    MalformedJson,
    /// No operation id.
    OperationIdMissing,
    /// No UUID, or two ids.
    OperationIdInvalid,
    /// No valid token.
    Unauthenticated,
    /// A valid token without the role.
    Forbidden,
    /// The actor is not assigned to the case.
    NotAssigned,
    /// No such route.
    NotFound,
    /// No such case.
    CaseNotFound,
    /// No such operation of the case, yet.
    OperationNotFound,
    /// The route has other methods.
    MethodNotAllowed,
    /// The body did not come.
    RequestTimeout,
    /// The action is not legal from the case's status.
    IllegalTransition,
    /// The operation id belongs to another command.
    OperationConflict,
    /// `open` of a case that is there.
    CaseExists,
    /// The outcome was pruned.
    OutcomeExpired,
    /// The case moved on.
    StaleRevision,
    /// Body or line over the bound.
    TooLarge,
    /// Neither JSON nor what the route reads.
    UnsupportedMediaType,
    /// Readable, but not allowed.
    InvalidCommand,
    /// An invariant is broken.
    Internal,
    /// A queue is full.
    Overloaded,
    /// The server is shutting down.
    Draining,
    /// Retries are spent.
    Contention,
    /// The database is away, or a commit is unclear.
    Unavailable,
}

/// What a code means on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// The stable code.
    pub code: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// A short sentence that is the same for every occurrence.
    pub title: &'static str,
    /// The same request may succeed unchanged.
    pub retryable: bool,
    /// If so, the operation id is kept; a changed command always takes a new one.
    pub reuse_key: bool,
}

impl ProblemCode {
    /// All of them, in the order of their statuses.
    pub const ALL: [Self; 24] = [
        Self::MalformedJson,
        Self::OperationIdMissing,
        Self::OperationIdInvalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotAssigned,
        Self::NotFound,
        Self::CaseNotFound,
        Self::OperationNotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::IllegalTransition,
        Self::OperationConflict,
        Self::CaseExists,
        Self::OutcomeExpired,
        Self::StaleRevision,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidCommand,
        Self::Internal,
        Self::Overloaded,
        Self::Draining,
        Self::Contention,
        Self::Unavailable,
    ];

    /// The table (DESIGN section 6). No `_`: a new code must say what it means.
    pub(super) fn facts(self) -> Facts {
        let facts = |status, code, title, retryable, reuse_key| Facts { code, status, title, retryable, reuse_key };
        match self {
            Self::MalformedJson => facts(400, "malformed-json", "The JSON can't be read", false, false),
            Self::OperationIdMissing => facts(400, "operation-id-missing", "An operation id is needed", false, false),
            Self::OperationIdInvalid => facts(400, "operation-id-invalid", "The operation id is no UUID", false, false),
            // A new token, the same command: whoever retries after an unclear answer must not lose the id here.
            Self::Unauthenticated => facts(401, "unauthenticated", "A valid token is needed", false, true),
            Self::Forbidden => facts(403, "forbidden", "The token lacks the role", false, false),
            Self::NotAssigned => facts(403, "not-assigned", "The actor is not assigned to the case", false, false),
            Self::NotFound => facts(404, "not-found", "There is nothing at this path", false, false),
            Self::CaseNotFound => facts(404, "case-not-found", "There is no such case", false, false),
            Self::OperationNotFound => facts(404, "operation-not-found", "No such operation is recorded", true, true),
            Self::MethodNotAllowed => facts(405, "method-not-allowed", "The path has other methods", false, false),
            Self::RequestTimeout => facts(408, "request-timeout", "The request did not arrive in time", true, true),
            Self::IllegalTransition => {
                facts(409, "illegal-transition", "The command is not legal in this status", false, false)
            }
            Self::OperationConflict => {
                facts(409, "operation-conflict", "The operation id was used for another command", false, false)
            }
            Self::CaseExists => facts(409, "case-exists", "The case exists already", false, false),
            Self::OutcomeExpired => facts(410, "outcome-expired", "The outcome was pruned", false, false),
            Self::StaleRevision => facts(412, "stale-revision", "The case has moved on", false, false),
            Self::TooLarge => facts(413, "too-large", "The command is too large", false, false),
            Self::UnsupportedMediaType => {
                facts(415, "unsupported-media-type", "The media type is not the one that is read here", false, false)
            }
            Self::InvalidCommand => facts(422, "invalid-command", "The request is not valid", false, false),
            Self::Internal => facts(500, "internal", "The server found a fault of its own", true, true),
            Self::Overloaded => facts(503, "overloaded", "Too many commands are waiting", true, true),
            Self::Draining => facts(503, "draining", "The server is shutting down", true, true),
            Self::Contention => facts(503, "contention", "Other writers hold the case", true, true),
            Self::Unavailable => facts(503, "unavailable", "The database is not available", true, true),
        }
    }

    /// The code of a path `/problems/{code}`.
    pub(super) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|problem| problem.facts().code == code)
    }
}

/// One occurrence of a problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    code: ProblemCode,
    detail: String,
    members: Map<String, Value>,
    allow: Option<String>,
}

/// RFC 9457, section 3; the members of the code itself come last.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    code: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    request_id: &'a str,
    retryable: bool,
    reuse_key: bool,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl Problem {
    /// A problem with a sentence that says what to do next.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), members: Map::new(), allow: None }
    }

    /// Adds a member of the code's own.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.members.insert(name.into(), value);
        self
    }

    /// 405 with the methods that the path has.
    pub(super) fn method_not_allowed(allow: String) -> Self {
        let detail = format!("this path is asked with {allow}");
        Self { allow: Some(allow), ..Self::new(ProblemCode::MethodNotAllowed, detail) }
    }

    /// The code.
    pub fn code(&self) -> ProblemCode {
        self.code
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.code.facts().status
    }

    /// The document.
    pub fn to_json(&self, request_id: &str) -> String {
        let facts = self.code.facts();
        let document = Document {
            kind: format!("/problems/{}", facts.code),
            code: facts.code,
            title: facts.title,
            status: facts.status,
            detail: &self.detail,
            request_id,
            retryable: facts.retryable,
            reuse_key: facts.reuse_key,
            members: &self.members,
        };
        serde_json::to_string(&document).expect("a problem has texts, integers and JSON values")
    }

    /// The response.
    pub(super) fn response(&self, request_id: &str) -> HttpResponse {
        let status = StatusCode::from_u16(self.status()).expect("the table has valid statuses: a test walks it");
        let mut response = HttpResponse::build(status);
        response.content_type("application/problem+json");
        response.insert_header((header::CACHE_CONTROL, "no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"casework\""));
        }
        if let Some(allow) = &self.allow {
            response.insert_header((header::ALLOW, allow.as_str()));
        }
        response.body(self.to_json(request_id))
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let detail = rejection.to_string();
        match rejection {
            Rejection::OperationConflict => Self::new(ProblemCode::OperationConflict, detail),
            Rejection::OutcomeExpired => Self::new(ProblemCode::OutcomeExpired, detail),
            Rejection::CaseNotFound => Self::new(ProblemCode::CaseNotFound, detail),
            Rejection::CaseExists => Self::new(ProblemCode::CaseExists, detail),
            Rejection::InvalidCommand(invalid) => invalid.into(),
            Rejection::NotAssigned => Self::new(ProblemCode::NotAssigned, detail),
            Rejection::IllegalTransition { status, revision, allowed } => {
                let mut detail = detail;
                match allowed.as_slice() {
                    [] => detail.push_str("; no action is legal from there"),
                    [first, rest @ ..] => {
                        let _ = write!(detail, "; legal now: {first}");
                        rest.iter().for_each(|name| detail.extend([", ", name.as_str()]));
                    }
                }
                Self::new(ProblemCode::IllegalTransition, detail)
                    .with("current_status", json!(status))
                    .with("current_revision", json!(revision))
                    .with("allowed", json!(allowed))
            }
            Rejection::StaleRevision { current } => {
                Self::new(ProblemCode::StaleRevision, detail).with("current_revision", json!(current))
            }
        }
    }
}

impl From<Trouble> for Problem {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Overloaded => Self::new(
                ProblemCode::Overloaded,
                "more commands are waiting than the server takes on; nothing was recorded; send it again under the same id",
            ),
            Trouble::Draining => Self::new(
                ProblemCode::Draining,
                "the server is shutting down; nothing was recorded; send it again, to another process or later, under the \
                 same id",
            ),
            Trouble::Contention => Self::new(
                ProblemCode::Contention,
                "other writers held the case for too long; nothing was recorded; send it again under the same id",
            ),
            Trouble::Unavailable => Self::new(
                ProblemCode::Unavailable,
                "the database gave no clear answer: the command may be applied or not; send it again under the same id",
            ),
            Trouble::Internal => Self::new(
                ProblemCode::Internal,
                "the server found a fault of its own and recorded nothing; its log says more",
            ),
        }
    }
}

impl From<InvalidCommand> for Problem {
    fn from(mut invalid: InvalidCommand) -> Self {
        invalid.errors.truncate(FIELD_ERRORS_MAX);
        Self::new(ProblemCode::InvalidCommand, invalid.to_string()).with("errors", json!(invalid.errors))
    }
}

impl From<JsonError> for Problem {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Malformed(detail) => Self::new(ProblemCode::MalformedJson, detail),
            JsonError::Invalid(invalid) => invalid.into(),
        }
    }
}

impl From<LineError> for Problem {
    fn from(error: LineError) -> Self {
        let detail = error.to_string();
        match error {
            LineError::TooLong => Self::new(ProblemCode::TooLarge, detail),
            LineError::Malformed(_) => Self::new(ProblemCode::MalformedJson, detail),
            LineError::OperationIdMissing => Self::new(ProblemCode::OperationIdMissing, detail),
            LineError::OperationIdInvalid(_) => Self::new(ProblemCode::OperationIdInvalid, detail),
            LineError::Invalid(invalid) => invalid.into(),
        }
    }
}

/// A read that failed. The driver's words go to the log, not to the client.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => {
                tracing::warn!(%error, "a read got no answer");
                Self::new(ProblemCode::Unavailable, "the database can't be reached; ask again in a moment")
            }
            StoreError::Refused { .. } | StoreError::Inconsistent { .. } => {
                tracing::error!(%error, "a read failed");
                Self::new(ProblemCode::Internal, "the server could not read what it needs; its log says more")
            }
        }
    }
}

impl From<WorkflowConflict> for Problem {
    fn from(conflict: WorkflowConflict) -> Self {
        match conflict {
            WorkflowConflict::Store(error) => error.into(),
            WorkflowConflict::Differs(_)
            | WorkflowConflict::BuiltIn(_)
            | WorkflowConflict::Twice(_)
            | WorkflowConflict::UnknownDefault(_)
            | WorkflowConflict::Unreadable(..) => {
                tracing::error!(%conflict, "a stored workflow can't be used");
                Self::new(ProblemCode::Internal, "a stored workflow can't be used; the server's log says more")
            }
        }
    }
}

/// A fault of the request outside its JSON body; `pointer` is the member that it stands for, or empty.
pub(super) fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    InvalidCommand::at(pointer, detail).into()
}

/// An id in a path that breaks the rules of its type.
pub(super) fn invalid_path_id(error: &InvalidId) -> Problem {
    invalid("", error.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "problems_tests.rs"]
mod tests;
