//! Reading cases: one, or a list.
//!
//! Owns the JSON of a case and its entity tag. Shows committed rows only, whatever is in flight. Fails with
//! `case-not-found`, `invalid-command`, `unavailable`.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Serialize;
use serde_json::value::RawValue;

use super::exchange::{Exchange, ServerState};
use super::headers::{entity_tag, if_none_match};
use super::problems::{Problem, ProblemCode, invalid};
use super::{history, list};
use crate::domain::{
    ActorId, CaseId, CommandName, InvalidId, Rejection, Revision, Status, Timestamp, Version, Workflow, WorkflowName,
};
use crate::store::{CaseFilter, CaseRecord};

/// A case as clients see it. The order of the members is the documented one.
#[derive(Serialize)]
struct CaseView {
    case_id: CaseId,
    workflow: WorkflowName,
    status: Status,
    revision: Revision,
    version: Version,
    assignees: Vec<ActorId>,
    data: Box<RawValue>,
    allowed: Vec<CommandName>,
    opened_at: Timestamp,
    updated_at: Timestamp,
}

impl CaseView {
    fn new(record: CaseRecord, workflow: Option<&Workflow>) -> Result<Self, Problem> {
        let data = raw_json(&record.data, &record.case_id)?;
        // A person can give a case a workflow that nobody knows: then nothing is allowed.
        let allowed = workflow.map_or(Vec::new(), |workflow| workflow.allowed_from(&record.status).to_vec());
        Ok(Self {
            case_id: record.case_id,
            workflow: record.workflow,
            status: record.status,
            revision: record.revision,
            version: record.version,
            assignees: record.assignees,
            data,
            allowed,
            opened_at: record.opened_at,
            updated_at: record.updated_at,
        })
    }
}

/// Stored JSON as it stands.
pub(super) fn raw_json(text: &str, case_id: &CaseId) -> Result<Box<RawValue>, Problem> {
    RawValue::from_string(text.to_owned()).map_err(|error| {
        tracing::error!(case.id = %case_id, %error, "a stored text is no JSON; run `casework verify`");
        Problem::new(ProblemCode::Internal, "a stored text of the case is no JSON; the server's log says more")
    })
}

/// `GET /v1/cases/{case_id}`.
///
/// # Errors
/// `case-not-found`, and those of every read.
pub(super) async fn fetch(exchange: &Exchange) -> Result<HttpResponse, Problem> {
    exchange.identify().await?;
    let case_id = exchange.case_id()?;
    let found = exchange.state.read(move |store| async move { store.case_fetch(&case_id).await }).await?;
    let record = found.ok_or(Rejection::CaseNotFound)?;
    let tag = entity_tag(record.revision, record.version);
    if if_none_match(exchange.request.headers(), &tag) {
        return Ok(HttpResponse::NotModified().insert_header((header::ETAG, tag)).finish());
    }
    let workflow = exchange.state.gateway.workflows().find(&record.workflow).await?;
    let view = CaseView::new(record, workflow.as_deref())?;
    let body = serde_json::to_string(&view).expect("views hold texts, integers and checked JSON");
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::ETAG, tag))
        .insert_header((header::CACHE_CONTROL, "private, no-cache"))
        .body(body))
}

/// `GET /v1/cases`.
///
/// # Errors
/// `invalid-command`, and those of every read.
pub(super) async fn list(exchange: &Exchange) -> Result<HttpResponse, Problem> {
    let identity = exchange.identify().await?;
    let query = exchange.query(&["status", "assignee", "workflow", "limit", "cursor"])?;
    let limit = list::limit(&query)?;
    let filter = CaseFilter {
        status: filter_by(query.get("status"), "/status", Status::parse)?,
        assignee: match query.get("assignee") {
            Some("me") => Some(identity.subject.clone()),
            other => filter_by(other, "/assignee", ActorId::parse)?,
        },
        workflow: filter_by(query.get("workflow"), "/workflow", WorkflowName::parse)?,
        after: list::read_cursor(&query, 'c', |key| CaseId::parse(key).ok())?,
        // One more than asked for tells whether there is another page.
        limit: limit + 1,
    };
    let mut records = exchange.state.read(move |store| async move { store.case_list(&filter).await }).await?;
    let next_cursor = history::cut(&mut records, limit).map(|last| list::write_cursor('c', last.case_id.as_str()));
    let workflows = find_workflows(&exchange.state, &records).await?;
    let views: Result<Vec<_>, _> = records
        .into_iter()
        .map(|record| {
            let workflow = workflows.get(&record.workflow).cloned();
            CaseView::new(record, workflow.as_deref())
        })
        .collect();
    Ok(list::respond(views?, next_cursor))
}

async fn find_workflows(
    state: &ServerState,
    records: &[CaseRecord],
) -> Result<HashMap<WorkflowName, Arc<Workflow>>, Problem> {
    let mut workflows = HashMap::new();
    let mut unknown = Vec::new();
    for record in records {
        if workflows.contains_key(&record.workflow) || unknown.contains(&&record.workflow) {
            continue;
        }
        match state.gateway.workflows().find(&record.workflow).await? {
            Some(workflow) => {
                workflows.insert(record.workflow.clone(), workflow);
            }
            None => unknown.push(&record.workflow),
        }
    }
    Ok(workflows)
}

fn filter_by<T>(
    text: Option<&str>,
    pointer: &str,
    parse: impl Fn(&str) -> Result<T, InvalidId>,
) -> Result<Option<T>, Problem> {
    text.map(|text| parse(text).map_err(|error| invalid(pointer, error.to_string()))).transpose()
}
