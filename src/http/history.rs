//! Reading operations: a case's history, or one outcome.
//!
//! Owns how a lost response is recovered: the stored outcome byte for byte, 202 while the command is on its way in this
//! process, 404 `operation-not-found` when nothing is recorded. Shows committed rows only.

use std::borrow::Cow;

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::cases::raw_json;
use super::commands::still_pending;
use super::exchange::Exchange;
use super::list;
use super::problems::{Problem, ProblemCode};
use crate::domain::{
    ActorId, CaseId, CommandName, Operation, OperationId, Rejection, Revision, Status, Timestamp, Version,
};

/// An operation in a history: its outcome's members and what was sent. What was pruned is `null`.
#[derive(Serialize)]
struct OperationView {
    case_id: CaseId,
    operation_id: OperationId,
    command: CommandName,
    actor: ActorId,
    status: Status,
    revision: Revision,
    version: Version,
    recorded_at: Timestamp,
    expected_revision: Option<i64>,
    reason: Option<String>,
    payload: Option<Box<RawValue>>,
}

/// The members of a stored request that are shown.
#[derive(Deserialize)]
struct Request<'a> {
    expected_revision: Option<i64>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

impl OperationView {
    fn new(operation: Operation) -> Result<Self, Problem> {
        let mut view = Self {
            case_id: operation.case_id,
            operation_id: operation.operation_id,
            command: operation.command,
            actor: operation.actor,
            status: operation.status,
            revision: operation.revision,
            version: operation.version,
            recorded_at: operation.recorded_at,
            expected_revision: None,
            reason: None,
            payload: None,
        };
        let Some(request) = operation.request else { return Ok(view) };
        if operation.digest.is_none() {
            // A hand edit: its request is the payload itself.
            view.payload = Some(raw_json(&request, &view.case_id)?);
            return Ok(view);
        }
        let request: Request<'_> = serde_json::from_str(&request).map_err(|error| {
            tracing::error!(
                case.id = %view.case_id, operation.id = %view.operation_id, %error,
                "a stored request can't be read; run `casework verify`"
            );
            Problem::new(ProblemCode::Internal, "a stored request can't be read; the server's log says more")
        })?;
        view.expected_revision = request.expected_revision;
        view.reason = request.reason.map(Cow::into_owned);
        view.payload = request.payload.map(ToOwned::to_owned);
        Ok(view)
    }
}

/// `GET /v1/cases/{case_id}/operations`.
///
/// # Errors
/// `case-not-found`, `invalid-command`, and those of every read.
pub(super) async fn list(exchange: &Exchange) -> Result<HttpResponse, Problem> {
    exchange.identify().await?;
    let case_id = exchange.case_id()?;
    let query = exchange.query(&["limit", "cursor"])?;
    let limit = list::limit(&query)?;
    let parse = |key: &str| key.parse().ok().filter(|version| *version >= 0).map(Version::new);
    let after = list::read_cursor(&query, 'o', parse)?.unwrap_or(Version::ZERO);
    let mut operations = exchange
        .state
        .read(move |store| async move {
            let operations = store.operation_list(&case_id, after, limit + 1).await?;
            // Every case has an operation, so that only an empty answer leaves a question.
            let known = !operations.is_empty() || store.case_fetch(&case_id).await?.is_some();
            Ok(known.then_some(operations))
        })
        .await?
        .ok_or(Rejection::CaseNotFound)?;
    let next_cursor = cut(&mut operations, limit).map(|last| list::write_cursor('o', &last.version.to_string()));
    let views: Result<Vec<_>, _> = operations.into_iter().map(OperationView::new).collect();
    Ok(list::respond(views?, next_cursor))
}

/// Cuts a list that was read with one row too many; the last row that stays, if something was cut.
pub(super) fn cut<T>(rows: &mut Vec<T>, limit: usize) -> Option<&T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    rows.last().filter(|_| more)
}

/// `GET /v1/cases/{case_id}/operations/{operation_id}`.
///
/// # Errors
/// `operation-not-found`, `operation-id-invalid`, `outcome-expired`, and those of every read.
pub(super) async fn fetch(exchange: &Exchange) -> Result<HttpResponse, Problem> {
    exchange.identify().await?;
    let (case_id, operation_id) = (exchange.case_id()?, exchange.operation_id()?);
    // Asked before the read: what is settled in between is found by the read.
    let pending = exchange.state.gateway.is_pending(&case_id, operation_id).await;
    let key = case_id.clone();
    let found =
        exchange.state.read(move |store| async move { store.operation_fetch(&key, operation_id).await }).await?;
    match found {
        Some(Operation { outcome: Some(outcome), .. }) => {
            Ok(HttpResponse::Ok().content_type("application/json").body(outcome.to_string()))
        }
        Some(Operation { outcome: None, .. }) => Err(Rejection::OutcomeExpired.into()),
        None if pending => Ok(still_pending(&case_id, operation_id)),
        None => Err(Problem::new(
            ProblemCode::OperationNotFound,
            "nothing is recorded under this operation id; if its answer was lost, send the command again under the same id",
        )),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn operation(request: Option<&str>, is_edit: bool) -> Operation {
        Operation {
            case_id: CaseId::from_stored("62"),
            operation_id: OperationId::parse("6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11").unwrap(),
            version: Version::new(9),
            revision: Revision::new(5),
            status: Status::from_stored("in_review"),
            recorded_at: Timestamp::from_micros(0),
            actor: ActorId::from_stored("47"),
            command: CommandName::from_stored("amend"),
            digest: (!is_edit).then(|| crate::domain::Digest::of_request("{}")),
            request: request.map(Into::into),
            outcome: None,
        }
    }

    #[test]
    fn a_history_shows_what_was_sent_as_it_was_stored() {
        let request = r#"{"actor":"47","expected_revision":4,"payload":{"a":1e2},"reason":"\"Amended\".","v":1}"#;
        let view = serde_json::to_string(&OperationView::new(operation(Some(request), false)).unwrap()).unwrap();
        assert_eq!(
            view,
            concat!(
                r#"{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11","command":"amend","actor":"47","#,
                r#""status":"in_review","revision":5,"version":9,"recorded_at":"1970-01-01T00:00:00.000000Z","#,
                r#""expected_revision":4,"reason":"\"Amended\".","payload":{"a":1e2}}"#
            )
        );
        let edit = OperationView::new(operation(Some(r#"{"table":"cases"}"#), true)).unwrap();
        assert_eq!(edit.payload.unwrap().get(), r#"{"table":"cases"}"#);
        assert!(OperationView::new(operation(None, false)).unwrap().payload.is_none());
        assert_eq!(OperationView::new(operation(Some("x"), false)).err().unwrap().status(), 500);
    }

    #[test]
    fn the_row_too_many_makes_a_cursor() {
        let mut rows = vec![1, 2, 3];
        assert_eq!(cut(&mut rows, 2), Some(&2));
        assert_eq!(cut(&mut rows, 2), None);
    }
}
