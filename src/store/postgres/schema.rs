//! The tables of PostgreSQL as Diesel sees them; `migrations/postgres` is where they come from.
//!
//! Owns column names and types, nothing else.

diesel::table! {
    cases (case_id) {
        case_id -> Text,
        workflow -> Text,
        status -> Text,
        revision -> BigInt,
        version -> BigInt,
        data -> Text,
        opened_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    assignments (case_id, assignee) {
        case_id -> Text,
        assignee -> Text,
    }
}

diesel::table! {
    operations (case_id, operation_id) {
        case_id -> Text,
        operation_id -> Uuid,
        version -> BigInt,
        revision -> BigInt,
        status -> Text,
        recorded_at -> Timestamptz,
        actor -> Text,
        command -> Text,
        digest -> Nullable<Binary>,
        request -> Nullable<Text>,
        outcome -> Nullable<Text>,
    }
}

diesel::table! {
    outbox (case_id, version) {
        case_id -> Text,
        version -> BigInt,
        operation_id -> Uuid,
    }
}

diesel::table! {
    workflows (name) {
        name -> Text,
        digest -> Binary,
        text -> Text,
    }
}

diesel::table! {
    api_tokens (id) {
        id -> Uuid,
        token_sha256 -> Binary,
        subject -> Text,
        roles -> Text,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        revoked_at -> Nullable<Timestamptz>,
    }
}

diesel::joinable!(assignments -> cases (case_id));
diesel::allow_tables_to_appear_in_same_query!(assignments, cases);
