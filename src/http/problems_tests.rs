//! Walks the table of problems and the mappings into it.

use super::*;
use crate::domain::{CommandName, Revision, Status};

#[test]
fn the_table_of_codes_is_the_published_one() {
    let published = [
        (400, "malformed-json", false, false),
        (400, "operation-id-missing", false, false),
        (400, "operation-id-invalid", false, false),
        (401, "unauthenticated", false, true),
        (403, "forbidden", false, false),
        (403, "not-assigned", false, false),
        (404, "not-found", false, false),
        (404, "case-not-found", false, false),
        (404, "operation-not-found", true, true),
        (405, "method-not-allowed", false, false),
        (408, "request-timeout", true, true),
        (409, "illegal-transition", false, false),
        (409, "operation-conflict", false, false),
        (409, "case-exists", false, false),
        (410, "outcome-expired", false, false),
        (412, "stale-revision", false, false),
        (413, "too-large", false, false),
        (415, "unsupported-media-type", false, false),
        (422, "invalid-command", false, false),
        (500, "internal", true, true),
        (503, "overloaded", true, true),
        (503, "draining", true, true),
        (503, "contention", true, true),
        (503, "unavailable", true, true),
    ];
    let table = ProblemCode::ALL.map(|code| {
        let facts = code.facts();
        assert_eq!(ProblemCode::from_code(facts.code), Some(code));
        (facts.status, facts.code, facts.retryable, facts.reuse_key)
    });
    assert_eq!(table, published);
}

#[test]
fn every_rejection_and_every_trouble_keeps_its_code() {
    let rejections = [
        Rejection::OperationConflict,
        Rejection::OutcomeExpired,
        Rejection::CaseNotFound,
        Rejection::CaseExists,
        Rejection::InvalidCommand(InvalidCommand::at("/reason", "must not be blank")),
        Rejection::NotAssigned,
        Rejection::IllegalTransition {
            status: Status::from_stored("approved"),
            revision: Revision::new(6),
            allowed: vec![CommandName::from_stored("reopen")],
        },
        Rejection::StaleRevision { current: Revision::new(5) },
    ];
    for rejection in rejections {
        let code = rejection.code();
        assert_eq!(Problem::from(rejection).code().facts().code, code);
    }
    let troubles =
        [Trouble::Overloaded, Trouble::Draining, Trouble::Contention, Trouble::Unavailable, Trouble::Internal];
    for trouble in troubles {
        let problem = Problem::from(trouble);
        assert_eq!(problem.code().facts().code, trouble.code());
        assert!(problem.code().facts().retryable && problem.code().facts().reuse_key);
    }
}

#[test]
fn a_document_names_what_the_client_needs_to_go_on() {
    let rejection = Rejection::IllegalTransition {
        status: Status::from_stored("approved"),
        revision: Revision::new(6),
        allowed: vec![CommandName::from_stored("reopen")],
    };
    let document: Value = serde_json::from_str(&Problem::from(rejection).to_json("r-1")).unwrap();
    assert_eq!(
        document,
        json!({
            "type": "/problems/illegal-transition", "code": "illegal-transition",
            "title": "The command is not legal in this status", "status": 409,
            "detail": "the command is not legal while the case is `approved`; legal now: reopen",
            "request_id": "r-1", "retryable": false, "reuse_key": false,
            "current_status": "approved", "current_revision": 6, "allowed": ["reopen"],
        })
    );
    let stale = Problem::from(Rejection::StaleRevision { current: Revision::new(5) }).to_json("r-2");
    assert!(stale.contains(r#""current_revision":5"#), "{stale}");
    let invalid = Problem::from(InvalidCommand::at("/reason", "must not be blank")).to_json("r-3");
    assert!(invalid.contains(r#""errors":[{"detail":"must not be blank","pointer":"/reason"}]"#), "{invalid}");
}

#[test]
fn what_the_driver_said_stays_in_the_log() {
    let error = StoreError::Refused { during: "reading", reason: "password authentication failed".into() };
    assert!(!Problem::from(error).to_json("r").contains("password"));
}

#[test]
fn service_unavailable_says_when_to_come_back() {
    let response = Problem::from(Trouble::Overloaded).response("r");
    assert_eq!(response.headers().get(header::RETRY_AFTER).unwrap(), "1");
    let response = Problem::method_not_allowed("GET, HEAD".into()).response("r");
    assert_eq!(response.headers().get(header::ALLOW).unwrap(), "GET, HEAD");
}
