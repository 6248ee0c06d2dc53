//! The tables of SQLite as Diesel sees them; `migrations/sqlite` is where they come from.
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
        opened_at -> BigInt,
        updated_at -> BigInt,
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
        operation_id -> Binary,
        version -> BigInt,
        revision -> BigInt,
        status -> Text,
        recorded_at -> BigInt,
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
        operation_id -> Binary,
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
        id -> Binary,
        token_sha256 -> Binary,
        subject -> Text,
        roles -> Text,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        revoked_at -> Nullable<BigInt>,
    }
}

diesel::joinable!(assignments -> cases (case_id));
diesel::allow_tables_to_appear_in_same_query!(assignments, cases);
