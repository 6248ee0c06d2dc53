//! A database in memory, tampered with row by row: each fault is found and named.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::super::{VerifyOptions, VerifyReport, WorkflowMap, verify_snapshot};
use super::*;
use crate::command_log::{LineRules, parse_line};
use crate::domain::OperationId;
use crate::store::{Snapshot, StoreError};

#[derive(Default)]
struct Rows {
    cases: Vec<CaseRecord>,
    operations: Vec<Operation>,
    outbox: Vec<OutboxRecord>,
}

#[async_trait]
impl Snapshot for Rows {
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

fn workflows() -> WorkflowMap {
    let other = Workflow::parse(
        "name = \"other\"\ninitial = \"in_review\"\n[[action]]\nname = \"close\"\nfrom = [\"in_review\"]\nto = \"closed\"\nby = \"anyone\"\nreason = \"optional\"\nrevision = \"optional\"\n",
    );
    let all = [Workflow::permit(), Arc::new(other.expect("valid"))];
    all.into_iter().map(|workflow| (workflow.name().clone(), workflow)).collect()
}

/// Case 62: opened, 47 assigned, returned by 47, resubmitted, noted, 47 unassigned by SQL. Case 63: opened, unnamed workflow.
fn rows() -> Rows {
    let log = [
        r#""actor":"intake","command":"open","payload":{"b":1,"a":2},"workflow":"permit""#,
        r#""actor":"intake","command":"assign","payload":{"assignee":"47"}"#,
        r#""actor":"47","command":"return","expected_revision":0,"reason":"Plan missing.""#,
        r#""actor":"81","command":"resubmit","expected_revision":1,"reason":"Here.""#,
        r#""actor":"81","command":"note","reason":"Called.""#,
        r#""actor":"sql:postgres","command":"edit","payload":{"table":"assignments","delete":"47"}"#,
    ];
    let mut rows = Rows::default();
    run(&mut rows, "62", &log);
    run(&mut rows, "63", &[r#""actor":"intake","command":"open""#]);
    rows
}

fn run(rows: &mut Rows, case_id: &str, log: &[&str]) {
    let permit = Workflow::permit();
    let mut state = CaseState::Absent;
    for (i, rest) in (1..).zip(log) {
        let line = format!(
            r#"{{"case_id":"{case_id}","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0000000000{i:02}","at":"2026-01-31T12:00:0{i}Z",{rest}}}"#
        );
        let line = parse_line(line.as_bytes(), LineRules::RECORDED).expect("valid");
        let at = line.at.expect("given");
        let decision = decide(&permit, &state, &line.command).expect("legal");
        apply(&mut state, &decision, at);
        let mut operation = Operation {
            case_id: line.command.case_id().clone(),
            operation_id: line.command.operation_id(),
            version: decision.version,
            revision: decision.revision,
            status: decision.status,
            recorded_at: at,
            actor: line.command.actor().clone(),
            command: line.command.name().clone(),
            digest: line.command.digest().copied(),
            request: Some(line.command.request().clone()),
            outcome: None,
        };
        operation.outcome = Some(expected_outcome(&operation).into());
        let Operation { case_id, version, operation_id, .. } = operation.clone();
        rows.outbox.push(OutboxRecord { case_id, version, operation_id });
        rows.operations.push(operation);
    }
    let case = state.case().expect("opened").clone();
    rows.cases.push(CaseRecord {
        case_id: CaseId::from_stored(case_id),
        workflow: case.workflow.name().clone(),
        status: case.status,
        revision: case.revision,
        version: case.version,
        assignees: case.assignees.into_iter().collect(),
        data: case.data,
        opened_at: case.opened_at,
        updated_at: case.updated_at,
    });
}

/// What `verify` says after a change.
fn check(change: impl FnOnce(&mut Rows)) -> (VerifyReport, Vec<String>) {
    let mut rows = rows();
    change(&mut rows);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let report = runtime
        .block_on(verify_snapshot(&mut rows, &workflows(), &VerifyOptions::default()))
        .expect("memory does not fail");
    let sentences = report.first_faults.iter().map(ToString::to_string).collect();
    (report, sentences)
}

#[track_caller]
fn check_fault(change: impl FnOnce(&mut Rows), expected: &str) {
    let (_, sentences) = check(change);
    assert!(sentences.first().is_some_and(|first| first.contains(expected)), "{expected:?} is not in {sentences:#?}");
}

#[test]
fn an_untouched_database_is_clean() {
    let (report, sentences) = check(|_| {});
    assert_eq!(sentences, Vec::<String>::new());
    assert_eq!((report.cases, report.operations, report.outbox, report.pruned), (2, 7, 7, 0));
    // Delivered rows are gone from the front; a person may spell data otherwise.
    let (report, _) = check(|rows| {
        rows.outbox.drain(..3);
        rows.cases[0].data = r#"{ "a": 2.0, "b": 1 }"#.into();
    });
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_case_row_that_is_not_the_fold_is_found() {
    check_fault(
        |rows| rows.cases[0].status = crate::domain::Status::from_stored("approved"),
        "case `62`: the row has the status `approved`",
    );
    check_fault(|rows| rows.cases[0].revision = rows.cases[0].revision.next(), "the revision `3`");
    check_fault(
        |rows| rows.cases[0].version = rows.cases[0].version.next(),
        "the version `7`, and its operations give `6`",
    );
    check_fault(|rows| rows.cases[0].assignees.push(ActorId::from_stored("81")), "the assignees `81`");
    check_fault(|rows| rows.cases[0].data = "{}".into(), "the data");
    check_fault(|rows| rows.cases[0].opened_at = Timestamp::from_micros(0), "the opening time");
    check_fault(|rows| rows.cases[0].updated_at = Timestamp::from_micros(0), "the time of the last change");
    check_fault(
        |rows| rows.cases[0].workflow = crate::domain::WorkflowName::from_stored("other"),
        "the workflow `other`",
    );
    check_fault(|rows| drop(rows.cases.remove(0)), "case `62`: the operations have no case");
    check_fault(|rows| rows.operations.truncate(6), "case `63`, version 1: the outbox row has no operation");
    check_fault(
        |rows| {
            rows.operations.truncate(6);
            rows.outbox.truncate(6);
        },
        "case `63`: the case has no operations",
    );
}

#[test]
fn an_operation_that_is_not_what_was_decided_is_found() {
    check_fault(|rows| drop(rows.operations.remove(3)), "it follows version 3; versions must be dense");
    check_fault(
        |rows| rows.operations[2].outcome = Some("{}".into()),
        "case `62`, version 3: the stored outcome is not {\"case_id\":\"62\"",
    );
    check_fault(|rows| rows.operations[2].digest = Some(Digest::of_request("x")), "the digest is not the one");
    check_fault(|rows| rows.operations[5].digest = Some(Digest::of_request("x")), "an `edit` must have no digest");
    check_fault(|rows| rows.operations[2].actor = ActorId::from_stored("81"), "/actor: is not what the row says");
    check_fault(
        |rows| rows.operations[2].revision = rows.operations[2].revision.next(),
        "gives status `returned` at revision 1",
    );
    check_fault(|rows| rows.operations[2].outcome = None, "there both, or neither");
    check_fault(|rows| rows.operations[2].request = Some("{".into()), "can't be read");
    check_fault(
        |rows| {
            let spaced = rows.operations[4].request.as_ref().expect("there").replace(',', ", ");
            rows.operations[4].digest = Some(Digest::of_request(&spaced));
            rows.operations[4].request = Some(spaced.into());
        },
        "not in canonical form",
    );
}

#[test]
fn an_operation_by_an_actor_who_was_not_assigned_is_found() {
    check_fault(
        |rows| {
            let mut changed = Rows::default();
            run(
                &mut changed,
                "62",
                &[r#""actor":"x","command":"open""#, r#""actor":"x","command":"assign","payload":{"assignee":"81"}"#],
            );
            // The assignment of 47 becomes one of 81, digest and all; the return by 47 is then a stranger's.
            rows.operations[1].request = changed.operations[1]
                .request
                .as_ref()
                .map(|text| text.replace("\"actor\":\"x\"", "\"actor\":\"intake\"").into());
            rows.operations[1].digest = rows.operations[1].request.as_deref().map(Digest::of_request);
        },
        "case `62`, version 3: `return` by `47` was not legal here: the actor is not assigned",
    );
}

#[test]
fn an_outbox_that_is_no_suffix_of_the_history_is_found() {
    check_fault(|rows| drop(rows.outbox.remove(3)), "case `62`, version 4: the operation has no outbox row");
    check_fault(
        |rows| rows.outbox[1].operation_id = OperationId::from_uuid(uuid::Uuid::new_v4()),
        "case `62`, version 2: the outbox row names another operation",
    );
    check_fault(
        |rows| {
            let mut stray = rows.outbox[0].clone();
            stray.case_id = CaseId::from_stored("61");
            rows.outbox.insert(0, stray);
        },
        "case `61`, version 1: the outbox row has no operation",
    );
}

#[test]
fn a_pruned_history_is_folded_from_what_its_rows_keep() {
    for pruned in [vec![0], vec![1], vec![0, 1, 2, 3, 4, 5], vec![5], vec![1, 5], vec![2, 4]] {
        let (report, sentences) = check(|rows| {
            for i in &pruned {
                rows.operations[*i].request = None;
                rows.operations[*i].outcome = None;
            }
        });
        assert_eq!((report.pruned, sentences), (pruned.len() as u64, vec![]), "{pruned:?}");
    }
    // What is still known is still compared.
    let (_, sentences) = check(|rows| {
        rows.operations[0].request = None;
        rows.operations[0].outcome = None;
        rows.cases[0].assignees = vec![ActorId::from_stored("81")];
    });
    assert_eq!(sentences.len(), 1, "{sentences:?}");
}

#[test]
fn a_workflow_changed_by_sql_is_followed_though_open_named_none() {
    let (_, sentences) = check(|rows| {
        let mut rest = Rows::default();
        run(
            &mut rest,
            "64",
            &[
                r#""actor":"x","command":"open""#,
                r#""actor":"x","command":"amend","expected_revision":0,"reason":"x""#,
                r#""actor":"sql:x","command":"edit","payload":{"table":"cases","set":{"workflow":"other","revision":2}}"#,
            ],
        );
        rest.cases[0].workflow = crate::domain::WorkflowName::from_stored("other");
        rows.cases.extend(rest.cases);
        rows.operations.extend(rest.operations);
        rows.outbox.extend(rest.outbox);
    });
    assert_eq!(sentences, Vec::<String>::new());
}

#[test]
fn faults_are_counted_beyond_those_that_are_listed() {
    let mut rows = rows();
    rows.cases.clear();
    let names: BTreeSet<_> = rows.operations.iter().map(|row| row.case_id.clone()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let options = VerifyOptions { faults_max: 1, ..VerifyOptions::default() };
    let report = runtime.block_on(verify_snapshot(&mut rows, &workflows(), &options)).expect("memory");
    assert_eq!((report.faults, report.first_faults.len(), names.len()), (2, 1, 2));
}
