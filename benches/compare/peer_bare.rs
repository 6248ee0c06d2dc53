//! The peer of replays: a handler that reads the request and answers bytes of the same shape, and nothing else.
//!
//! Owns no state: the outcome comes from the request alone, so that a repeat gets the bytes of its first sending. What it
//! leaves out is what a replay costs: knowing the token, the digest, the case and the operation.

use casework::domain::{Command, CommandDraft, OperationId};

use super::peer_http::{self, Backend};

/// Runs the peer.
pub fn serve() {
    peer_http::serve(Bare);
}

struct Bare;

fn outcome(case_id: &str, operation_id: OperationId, command: &str) -> String {
    // Casework stores its outcomes; here it is written anew, which costs less than finding it.
    format!(
        "{{\"case_id\":\"{case_id}\",\"operation_id\":\"{operation_id}\",\"command\":\"{command}\",\"actor\":\"load\",\
         \"status\":\"in_review\",\"revision\":0,\"version\":2,\"recorded_at\":\"2026-11-30T16:40:38.730683Z\"}}"
    )
}

impl Backend for Bare {
    async fn post(&self, draft: CommandDraft) -> Option<(String, bool)> {
        Some((outcome(draft.case_id.as_str(), draft.operation_id, draft.name.as_str()), true))
    }

    async fn line(&self, command: Command) -> Option<String> {
        Some(outcome(command.case_id().as_str(), command.operation_id(), command.name().as_str()))
    }
}
