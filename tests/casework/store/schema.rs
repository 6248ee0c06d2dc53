//! Migrations, constraints and plans.

use std::collections::BTreeSet;

use casework::store::{SchemaState, StoreError};

use super::fixture::{Fixture, open, store_at};
use crate::support::database::{TestDatabase, block_on};
use crate::support::postgres;

/// The constraints that carry a promise, by name, in both databases.
const CONSTRAINTS: &[&str] = &[
    "api_tokens_pkey",
    "api_tokens_subject_check",
    "api_tokens_token_sha256_check",
    "api_tokens_token_sha256_key",
    "assignments_assignee_check",
    "assignments_pkey",
    "cases_case_id_check",
    "cases_pkey",
    "cases_revision_check",
    "cases_status_check",
    "cases_version_check",
    "operations_actor_check",
    "operations_case_id_version_key",
    "operations_command_check",
    "operations_digest_check",
    "operations_edit_check",
    "operations_pkey",
    "operations_pruned_check",
    "operations_revision_check",
    "operations_status_check",
    "operations_version_check",
    "outbox_pkey",
    "workflows_digest_check",
    "workflows_name_check",
    "workflows_pkey",
];

on_both_databases! {
    async fn migrations_run_once_and_revert(database: &TestDatabase) {
        let store = store_at(database.url());
        assert_eq!(store.schema_state().await.unwrap(), SchemaState::Behind);
        let names = store.schema_migrate().await.unwrap();
        assert_eq!(names, ["0001_tables", "0002_hand_edits", "0003_api_tokens"]);
        assert_eq!(store.schema_state().await.unwrap(), SchemaState::Current);
        assert_eq!(store.schema_migrate().await.unwrap(), Vec::<String>::new());
        for name in names.iter().rev() {
            assert_eq!(store.schema_revert().await.unwrap().as_ref(), Some(name));
            assert_eq!(store.schema_state().await.unwrap(), SchemaState::Behind);
        }
        assert_eq!(store.schema_revert().await.unwrap(), None);
        let left = if database.is_postgres() {
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE '%diesel%'"
        } else {
            "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE '%diesel%'"
        };
        assert_eq!(database.sql_value(left), "0");
        assert_eq!(store.schema_migrate().await.unwrap(), names);
        Fixture::on(database).await.commit(&[open("62")]).await;
    }

    async fn two_processes_may_migrate_at_once(database: &TestDatabase) {
        let migrate = || {
            let store = store_at(database.url());
            tokio::spawn(async move { store.schema_migrate().await })
        };
        let (one, other) = (migrate(), migrate());
        let ran = one.await.unwrap().unwrap().len() + other.await.unwrap().unwrap().len();
        assert_eq!(ran, 3);
        assert_eq!(store_at(database.url()).schema_state().await.unwrap(), SchemaState::Current);
    }

    async fn a_schema_of_a_newer_binary_is_ahead(database: &TestDatabase) {
        let store = store_at(database.url());
        store.schema_migrate().await.unwrap();
        database.sql("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')");
        assert_eq!(store.schema_state().await.unwrap(), SchemaState::Ahead);
    }

    async fn both_databases_have_the_same_constraints(database: &TestDatabase) {
        store_at(database.url()).schema_migrate().await.unwrap();
        for name in CONSTRAINTS {
            let found = if database.is_postgres() {
                format!("SELECT count(*) FROM pg_constraint WHERE conname = '{name}'")
            } else {
                format!("SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%CONSTRAINT {name} %'")
            };
            assert_eq!(database.sql_value(&found), "1", "{name}");
        }
    }
}

/// Numbers and names of the migrations are the same in both folders.
#[test]
fn both_databases_have_the_same_migrations() {
    let names = |database: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(database);
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names("postgres"), names("sqlite"));
}

#[test]
fn a_database_that_is_away_is_unavailable_and_a_wrong_url_refused() {
    block_on(async {
        let nobody = store_at("postgres://postgres@127.0.0.1:1/none");
        assert!(matches!(nobody.ping().await.unwrap_err(), StoreError::Unavailable { .. }));
        assert!(matches!(nobody.writer_open("n").await.err().unwrap(), StoreError::Unavailable { .. }));
        assert!(matches!(nobody.schema_migrate().await.unwrap_err(), StoreError::Unavailable { .. }));
        let unknown = postgres::with_database_name(postgres::shared_server_url(), "no_such_database");
        assert!(matches!(store_at(&unknown).ping().await.unwrap_err(), StoreError::Refused { .. }));
        let nowhere = store_at("sqlite:/nonexistent-folder/casework.db");
        assert!(matches!(nowhere.ping().await.unwrap_err(), StoreError::Unavailable { .. }));
        let url: casework::store::DatabaseUrl = "postgres://host/x?sslmode=nonsense".parse().unwrap();
        assert!(matches!(url.store().err().unwrap(), StoreError::Refused { .. }));
        let url: casework::store::DatabaseUrl = "sqlite::memory:".parse().unwrap();
        assert!(matches!(url.store().err().unwrap(), StoreError::Refused { .. }));
    });
}

/// The plan of the commit finds every row by a key, with one row in its arrays and with 512, on tables that are large.
#[test]
fn the_commit_scans_no_table() {
    let database = TestDatabase::postgres();
    block_on(async {
        let store = store_at(database.url());
        store.schema_migrate().await.unwrap();
    });
    database.sql(
        "BEGIN; SELECT set_config('casework.writer', 'on', true); \
         INSERT INTO cases SELECT 'case-' || g, 'permit', 'in_review', 0, 1, '{}', now(), now() FROM generate_series(1, 20000) g; \
         INSERT INTO assignments SELECT case_id, '47' FROM cases; COMMIT; \
         INSERT INTO writers VALUES ('w', 'n', 1); ANALYZE",
    );
    let text = include_str!("../../../src/store/postgres/commit.sql");
    for (lock, is_plain) in [("FOR UPDATE SKIP LOCKED", false), ("FOR UPDATE SKIP LOCKED", true), ("FOR UPDATE", false)]
    {
        let statement = if is_plain { without_rare(text) } else { text.to_owned() };
        let prepare = format!(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; PREPARE batch AS {}",
            statement.replace("/*lock*/", lock)
        );
        for rows in [1, 512] {
            let array = |value: &dyn Fn(usize) -> String, kind: &str| {
                let values: Vec<String> = (1..=rows).map(value).collect();
                format!("ARRAY[{}]::{kind}[]", values.join(", "))
            };
            let of = |value: &str, kind: &str| array(&|_| value.to_owned(), kind);
            let keys = array(&|row| format!("'case-{row}'"), "text");
            let places = array(&|row| row.to_string(), "bigint");
            let (number, text, time) = (of("1", "bigint"), of("'note'", "text"), of("now()", "timestamptz"));
            let ids = of("gen_random_uuid()", "uuid");
            let (digest, yes) = (of("decode(repeat('00', 33), 'hex')", "bytea"), of("true", "boolean"));
            let two = of("2", "bigint");
            let cases = format!("{keys}, {number}, {text}, {text}, {number}, {two}, {text}, {time}, {time}");
            let operations =
                format!("{places}, {ids}, {two}, {number}, {text}, {time}, {text}, {text}, {digest}, {text}, {text}");
            let rare = if is_plain { String::new() } else { format!(", {places}, {text}, {yes}, {keys}") };
            let execute = format!("EXECUTE batch('w', 1, {cases}, {operations}{rare})");
            let plan = database.sql(&format!("{prepare}; EXPLAIN {execute}"));
            let plan: Vec<&str> = plan.iter().flatten().map(String::as_str).collect();
            let plan = plan.join("\n");
            assert!(!plan.contains("Seq Scan"), "{plan}");
            for index in ["cases_pkey", "writers_pkey"] {
                assert!(plan.contains(index), "{index} with {rows} rows:\n{plan}");
            }
            let written = database.sql(&format!("BEGIN; {prepare}; {execute}; ROLLBACK"));
            assert_eq!(written.iter().filter(|row| row[1] == "t").count(), rows + 1, "each case is won, and the fence");
        }
    }
}

/// The statement without what serves opens, assignments and checks alone, as a batch without any sends it.
fn without_rare(text: &str) -> String {
    let mut parts = text.split("/*rare*/");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once("/*end*/").expect("each is closed").1)
}
