//! What memory, lists and scans get to see.

use casework::domain::{ActorId, CaseId, OperationId, Status, Version, WorkflowName};
use casework::store::{CaseFilter, CaseRecord, StoredWorkflow, TokenRecord};
use uuid::Uuid;

use super::fixture::{Fixture, assignment, at, case_id, chain, note, open, operation, permit, step};

fn ids(records: &[CaseRecord]) -> Vec<&str> {
    records.iter().map(|record| record.case_id.as_str()).collect()
}

on_both_databases! {
    async fn a_load_brings_state_assignments_and_ids_up_to_a_bound(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut small = open("small");
        step(&mut small).assignments = vec![assignment("81", true), assignment("47", true)];
        let large = chain("large", 0, (1..=9).map(|version| operation("large", version, "note")).collect());
        fixture.commit(&[large.clone(), small.clone()]).await;
        let asked = [case_id("none"), case_id("small"), case_id("large"), case_id("small")];
        let loads = fixture.store.cases_load(&asked, 8).await.unwrap();
        assert_eq!(loads.len(), 4);
        assert!(loads[0].record.is_none());
        let record = loads[1].record.as_ref().unwrap();
        assert_eq!(record.assignees, [ActorId::from_stored("47"), ActorId::from_stored("81")]);
        let known = loads[1].operations.as_ref().unwrap();
        assert_eq!(*known, [(&small.step.as_ref().unwrap().operations[0]).into()]);
        assert_eq!(loads[2].record.as_ref().unwrap().version, Version::new(9));
        assert_eq!(loads[2].operations, None);
        assert_eq!(loads[3], loads[1]);
        let loads = fixture.store.cases_load(&asked[2..3], 9).await.unwrap();
        assert_eq!(loads[0].operations.as_ref().unwrap().len(), 9);
        assert_eq!(fixture.store.cases_load(&[], 8).await.unwrap(), []);
    }

    async fn operations_are_found_by_case_and_id(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let (one, other) = (open("62"), open("63"));
        fixture.commit(&[one.clone(), other.clone()]).await;
        let id = |chain: &casework::engine::Chain| chain.step.as_ref().unwrap().operations[0].operation_id;
        let unknown = OperationId::from_uuid(Uuid::from_u128(9));
        let keys = [(case_id("62"), id(&one)), (case_id("62"), id(&other)), (case_id("63"), id(&other)), (case_id("63"), unknown)];
        let mut found = fixture.store.operations_find(&keys).await.unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let known = |chain: &casework::engine::Chain| (&chain.step.as_ref().unwrap().operations[0]).into();
        assert_eq!(found, [(case_id("62"), known(&one)), (case_id("63"), known(&other))]);
        assert!(fixture.store.operation_fetch(&case_id("62"), id(&other)).await.unwrap().is_none());
    }

    async fn lists_filter_and_go_on_after_an_id(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let mut batch = [open("A"), open("a"), open("b"), open("ä")];
        for chain in &mut batch {
            step(chain).assignments.push(assignment("47", true));
        }
        step(&mut batch[2]).after.status = Status::from_stored("denied");
        step(&mut batch[2]).operations[0].status = Status::from_stored("denied");
        step(&mut batch[3]).assignments.push(assignment("81", true));
        fixture.commit(&batch).await;
        let all = CaseFilter { limit: 10, ..CaseFilter::default() };
        // In the order of bytes, not of a language.
        assert_eq!(ids(&fixture.store.case_list(&all).await.unwrap()), ["A", "a", "b", "ä"]);
        let page = CaseFilter { limit: 2, after: Some(case_id("A")), ..all.clone() };
        assert_eq!(ids(&fixture.store.case_list(&page).await.unwrap()), ["a", "b"]);
        let denied = CaseFilter { status: Some(Status::from_stored("denied")), ..all.clone() };
        assert_eq!(ids(&fixture.store.case_list(&denied).await.unwrap()), ["b"]);
        let other = CaseFilter { workflow: Some(WorkflowName::from_stored("other")), ..all.clone() };
        assert_eq!(fixture.store.case_list(&other).await.unwrap(), []);
        let mine = CaseFilter { assignee: Some(ActorId::from_stored("81")), ..all.clone() };
        let mine = fixture.store.case_list(&mine).await.unwrap();
        assert_eq!(mine[0].assignees, [ActorId::from_stored("47"), ActorId::from_stored("81")]);
        assert_eq!(ids(&mine), ["ä"]);
        let mine = CaseFilter { assignee: Some(ActorId::from_stored("47")), after: Some(case_id("a")), limit: 1, ..denied };
        assert_eq!(ids(&fixture.store.case_list(&mine).await.unwrap()), ["b"]);
    }

    async fn operations_are_listed_by_version(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        let long = chain("62", 0, (1..=12).map(|version| operation("62", version, "note")).collect());
        fixture.commit(std::slice::from_ref(&long)).await;
        let page = fixture.store.operation_list(&case_id("62"), Version::new(9), 2).await.unwrap();
        assert_eq!(page, long.step.unwrap().operations[9..11]);
    }

    /// What commits after the snapshot began is not in it, page after page.
    async fn a_snapshot_is_one_view(database: &TestDatabase) {
        let mut fixture = Fixture::on(database).await;
        fixture.commit(&[open("a"), open("b"), open("c")]).await;
        let mut snapshot = fixture.store.snapshot().await.unwrap();
        fixture.commit(&[note("a", 1), open("bb"), note("c", 1)]).await;
        database.sql("INSERT INTO assignments VALUES ('b', '81')");

        let first = snapshot.case_scan(None, 2).await.unwrap();
        let rest = snapshot.case_scan(Some(&first[1].case_id), 10).await.unwrap();
        assert_eq!((ids(&first), ids(&rest)), (vec!["a", "b"], vec!["c"]));
        assert!(first.iter().chain(&rest).all(|record| record.version == Version::new(1) && record.assignees.is_empty()));
        let operations = snapshot.operation_scan(None, 10).await.unwrap();
        assert_eq!(operations.len(), 3);
        let after: (&CaseId, Version) = (&operations[0].case_id, operations[0].version);
        assert_eq!(snapshot.operation_scan(Some(after), 10).await.unwrap(), operations[1..]);
        let outbox = snapshot.outbox_scan(None, 10).await.unwrap();
        assert_eq!(snapshot.outbox_scan(Some((&outbox[0].case_id, outbox[0].version)), 1).await.unwrap(), outbox[1..2]);
        assert_eq!(outbox[2].operation_id, operations[2].operation_id);

        let mut later = fixture.store.snapshot().await.unwrap();
        assert_eq!(later.operation_scan(None, 10).await.unwrap().len(), 7);
    }

    async fn a_workflow_keeps_the_text_it_was_first_stored_with(database: &TestDatabase) {
        let fixture = Fixture::on(database).await;
        let changed = StoredWorkflow { digest: [7; 32], text: "changed".into(), ..permit() };
        assert_eq!(fixture.store.workflow_insert(&changed).await.unwrap(), permit());
        let other = StoredWorkflow { name: WorkflowName::from_stored("other"), ..changed };
        assert_eq!(fixture.store.workflow_insert(&other).await.unwrap(), other);
        assert_eq!(fixture.store.workflow_list().await.unwrap(), [other, permit()]);
    }

    async fn tokens_are_found_by_their_hash_and_revoked_once(database: &TestDatabase) {
        let fixture = Fixture::on(database).await;
        let token = |n: u8, expires_at| TokenRecord {
            id: Uuid::from_u128(u128::from(n)),
            sha256: [n; 32],
            subject: ActorId::from_stored("47"),
            roles: "clerk,reviewer".into(),
            created_at: at(i64::from(n)),
            expires_at,
            revoked_at: None,
        };
        let (one, two) = (token(1, None), token(2, Some(at(100))));
        fixture.store.token_insert(&two).await.unwrap();
        fixture.store.token_insert(&one).await.unwrap();
        assert!(fixture.store.token_insert(&one).await.is_err());
        assert_eq!(fixture.store.token_list().await.unwrap(), [one.clone(), two.clone()]);
        assert_eq!(fixture.store.token_find(&[2; 32]).await.unwrap(), Some(two));
        assert_eq!(fixture.store.token_find(&[3; 32]).await.unwrap(), None);
        assert!(fixture.store.token_revoke(one.id, at(50)).await.unwrap());
        assert!(fixture.store.token_revoke(one.id, at(60)).await.unwrap());
        assert!(!fixture.store.token_revoke(Uuid::from_u128(3), at(50)).await.unwrap());
        let revoked = TokenRecord { revoked_at: Some(at(50)), ..one };
        assert_eq!(fixture.store.token_find(&[1; 32]).await.unwrap(), Some(revoked));
    }
}
