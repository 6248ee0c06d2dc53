//! `POST /v1/cases/{case_id}/{command}`: one command.
//!
//! Owns the way from a request to a [`Command`] and from an [`Answer`] to a response. Token and role are checked before
//! anything is decided. Only the answer is awaited here: a client that hangs up cancels nothing.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, web};
use serde_json::{Map, Value, json};

use super::auth::Identity;
use super::exchange::Exchange;
use super::problems::{Problem, ProblemCode, RETRY_AFTER_SECONDS, invalid, invalid_path_id};
use super::{body, headers, target};
use crate::actor::Submission;
use crate::domain::{
    ActorId, CaseId, Command, CommandDraft, CommandName, FieldError, InvalidCommand, Members, OperationId, Revision,
    parse_strict,
};
use crate::engine::{Answer, Receipt, Trouble};

/// Runs one command.
///
/// # Errors
/// Every problem that a command can have.
pub(super) async fn run(exchange: &Exchange, payload: web::Payload) -> Result<HttpResponse, Problem> {
    let request_headers = exchange.request.headers();
    // The body is read whatever comes of it: an unread one costs the client its connection.
    let body = body::read(request_headers, payload).await;
    let identity = exchange.identify().await?;
    let case_id = exchange.case_id()?;
    let name = CommandName::parse(&exchange.parameters[1]).map_err(|error| invalid_path_id(&error))?;
    identity.may_send(&name)?;
    // The query is no part of the command: a parameter that changed its meaning would be lost in a replay.
    exchange.query(&[])?;
    let has_media_type = headers::media_type(request_headers, "application/json")?;
    let operation_id = headers::operation_id(request_headers)?;
    let if_match = headers::if_match(request_headers)?;
    let body = body?;
    if !has_media_type && !body.is_empty() {
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, "say `Content-Type: application/json`"));
    }
    let (actor, members) = read_members(&body, if_match, &identity)?;
    let command = Command::new(CommandDraft { case_id: case_id.clone(), operation_id, actor, name, members })?;
    if exchange.state.refuses_command() {
        return Err(Trouble::Draining.into());
    }
    let pending = exchange.state.gateway.submit(Submission { command, recorded_at: None, lane: None });
    match tokio::time::timeout(headers::wait(request_headers), exchange.state.settle(pending)).await {
        Ok(answer) => respond(answer, &case_id),
        Err(_) => Ok(still_pending(&case_id, operation_id)),
    }
}

/// The actor and the members of a body; an empty body is `{}`.
fn read_members(body: &[u8], if_match: Option<Revision>, identity: &Identity) -> Result<(ActorId, Members), Problem> {
    let mut object = match body {
        [] => Map::new(),
        body => match parse_strict(body)? {
            Value::Object(object) => object,
            _ => return Err(invalid("", "the body must be a JSON object")),
        },
    };
    let mut errors = Vec::new();
    let mut refuse = |pointer: String, detail: String| errors.push(FieldError { pointer, detail });
    let actor = match object.remove("actor") {
        None | Some(Value::Null) => identity.subject.clone(),
        Some(value) => match value.as_str().map(ActorId::parse) {
            Some(Ok(actor)) => {
                identity.may_act_as(&actor)?;
                actor
            }
            Some(Err(error)) => {
                refuse("/actor".into(), error.to_string());
                identity.subject.clone()
            }
            None => {
                refuse("/actor".into(), "must be a string".into());
                identity.subject.clone()
            }
        },
    };
    let mut members = Members::take(&mut object, &mut errors);
    if let Some(revision) = if_match {
        if members.expected_revision.is_some_and(|sent| sent != revision) {
            let detail = "`If-Match` and `expected_revision` name two revisions; send one of them, or the same in both";
            errors.push(FieldError { pointer: "/expected_revision".into(), detail: detail.into() });
        }
        members.expected_revision = Some(revision);
    }
    errors.extend(object.keys().map(|name| FieldError {
        pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        detail: "a command has no such member; remove it".into(),
    }));
    if errors.is_empty() { Ok((actor, members)) } else { Err(InvalidCommand { errors }.into()) }
}

/// The status of a stored outcome.
pub(super) fn status(receipt: &Receipt) -> StatusCode {
    if receipt.command.as_str() == "open" { StatusCode::CREATED } else { StatusCode::OK }
}

fn respond(answer: Answer, case_id: &CaseId) -> Result<HttpResponse, Problem> {
    let (receipt, replayed) = match answer {
        Answer::Applied(receipt) => (receipt, false),
        Answer::Replayed(receipt) => (receipt, true),
        Answer::Rejected(rejection) => return Err(rejection.into()),
        Answer::Unsettled(trouble) => return Err(trouble.into()),
    };
    let status = status(&receipt);
    let mut response = HttpResponse::build(status);
    response.content_type("application/json");
    if status == StatusCode::CREATED {
        response.insert_header((header::LOCATION, target::case_path(case_id.as_str())));
    }
    if replayed {
        response.insert_header(("idempotent-replay", "true"));
    }
    Ok(response.body(receipt.outcome.to_string()))
}

/// The command goes on; the client learns where to ask.
pub(super) fn still_pending(case_id: &CaseId, operation_id: OperationId) -> HttpResponse {
    HttpResponse::Accepted()
        .content_type("application/json")
        .insert_header((header::LOCATION, target::operation_path(case_id.as_str(), operation_id)))
        .insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS))
        .body(json!({ "case_id": case_id, "operation_id": operation_id, "state": "pending" }).to_string())
}
