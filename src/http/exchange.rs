//! One request on its way through a handler: what every handler asks for.
//!
//! Owns the state that all handlers share and the time limit on reads. Fails with problems.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use tokio::sync::watch;

use super::auth::{Authenticator, Identity, TokenHash};
use super::metrics::ProblemCounters;
use super::problems::{Problem, ProblemCode, invalid_path_id};
use super::target::Query;
use crate::actor::CommandGateway;
use crate::domain::{CaseId, OperationId};
use crate::engine::{Answer, Trouble};
use crate::metrics::Refusal;
use crate::store::{Store, StoreError};

/// How long a read may take before the client is told to come back.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surface {
    /// Everything.
    All,
    /// Everything but `/metrics`, which has a listener of its own.
    AllButMetrics,
    /// `/metrics` alone.
    Metrics,
}

/// What all workers share.
#[derive(Clone)]
pub(super) struct ServerState {
    /// What is served here.
    pub surface: Surface,
    /// The one door.
    pub gateway: CommandGateway,
    /// How often each problem was answered.
    pub problems: ProblemCounters,
    /// Tokens.
    pub authenticator: Authenticator,
    /// True once the server shuts down.
    pub draining: watch::Receiver<bool>,
    /// True once it has waited long enough for what was admitted.
    pub ending: watch::Receiver<bool>,
}

impl ServerState {
    /// Whether new commands are refused; the caller has one that it does not submit for that.
    pub(super) fn refuses_command(&self) -> bool {
        let is_draining = *self.draining.borrow();
        if is_draining {
            self.gateway.metrics().admission.refused(Refusal::Draining, 1);
        }
        is_draining
    }

    /// The answer to a command. One that is not settled when the process ends (somebody holds its case, say) is answered
    /// `unavailable`: it may still be applied, and a repeat under the same id tells.
    pub(super) async fn settle(&self, pending: impl Future<Output = Answer>) -> Answer {
        let mut ending = self.ending.clone();
        tokio::select! {
            biased;
            answer = pending => answer,
            // Without the sender the server is gone as well.
            _ = ending.wait_for(|is_ending| *is_ending) => Answer::Unsettled(Trouble::Unavailable),
        }
    }

    /// Runs a read on the database.
    ///
    /// # Errors
    /// `unavailable`, also after 10 s without an answer; `internal`.
    pub(super) async fn read<T, F, Fut>(&self, call: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn Store>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let answer = tokio::time::timeout(READ_TIMEOUT, self.gateway.database().call(call)).await;
        Ok(answer.unwrap_or_else(|_| {
            Err(StoreError::Unavailable { during: "reading", reason: "no answer in time".into() })
        })?)
    }
}

/// A request, the parameters of its path, and the shared state.
pub(super) struct Exchange {
    /// What came in.
    pub request: HttpRequest,
    /// The decoded parameters of the path, in order.
    pub parameters: Vec<String>,
    /// The id under which the client can ask about it.
    pub request_id: String,
    /// What all workers share.
    pub state: Arc<ServerState>,
}

impl Exchange {
    /// Whom the request's token speaks for.
    ///
    /// # Errors
    /// `unauthenticated`, `unavailable`.
    pub(super) async fn identify(&self) -> Result<Arc<Identity>, Problem> {
        let token = TokenHash::from_headers(self.request.headers())?;
        self.state.authenticator.identify(token).await
    }

    /// The case that the path names.
    ///
    /// # Errors
    /// `invalid-command`.
    pub(super) fn case_id(&self) -> Result<CaseId, Problem> {
        CaseId::parse(&self.parameters[0]).map_err(|error| invalid_path_id(&error))
    }

    /// The operation that the path names.
    ///
    /// # Errors
    /// `operation-id-invalid`.
    pub(super) fn operation_id(&self) -> Result<OperationId, Problem> {
        OperationId::parse(&self.parameters[1])
            .map_err(|error| Problem::new(ProblemCode::OperationIdInvalid, error.to_string()))
    }

    /// The query's parameters.
    ///
    /// # Errors
    /// `invalid-command`.
    pub(super) fn query(&self, known: &[&str]) -> Result<Query, Problem> {
        Query::parse(self.request.query_string(), known)
    }
}
