//! `/healthz` and `/readyz`.
//!
//! Owns what "ready" means: not draining, the database answers, the schema is the binary's. Health asks nobody: a restart
//! does not bring a database back.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header;
use serde_json::json;

use super::exchange::Exchange;
use super::problems::{Problem, ProblemCode};
use crate::store::SchemaState;

/// How long the database may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The process serves.
pub(super) fn health() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(json!({ "status": "ok" }).to_string())
}

/// The process can take commands.
///
/// # Errors
/// `draining`, `unavailable`; the member `checks` says what is wrong.
pub(super) async fn readiness(exchange: &Exchange) -> Result<HttpResponse, Problem> {
    if *exchange.state.draining.borrow() {
        let checks = json!({ "draining": true });
        return Err(Problem::new(ProblemCode::Draining, "the server is shutting down").with("checks", checks));
    }
    let schema = exchange.state.gateway.database().call(|store| async move {
        store.ping().await?;
        store.schema_state().await
    });
    let schema = match tokio::time::timeout(PROBE_TIMEOUT, schema).await {
        Ok(Ok(schema)) => Some(schema),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a probe found the database away");
            None
        }
        Err(_) => None,
    };
    let checks = json!({
        "draining": false,
        "database": if schema.is_some() { "ok" } else { "unreachable" },
        "schema": match schema {
            Some(SchemaState::Current) => "current",
            Some(SchemaState::Behind) => "behind",
            Some(SchemaState::Ahead) => "ahead",
            None => "unknown",
        },
    });
    let not_ready = |code, detail: &str| Err(Problem::new(code, detail).with("checks", checks.clone()));
    match schema {
        None => not_ready(ProblemCode::Unavailable, "the database can't be reached"),
        Some(SchemaState::Behind) => {
            not_ready(ProblemCode::Unavailable, "the schema is behind: run `casework migrate`")
        }
        Some(SchemaState::Ahead) => not_ready(ProblemCode::Unavailable, "the schema is newer than this program"),
        Some(SchemaState::Current) => Ok(HttpResponse::Ok()
            .content_type("application/json")
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .body(json!({ "status": "ready", "checks": checks }).to_string())),
    }
}
