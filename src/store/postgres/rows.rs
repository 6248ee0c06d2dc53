//! Rows of PostgreSQL and how they become the store's records. Row structs never leave this folder.

use diesel::pg::data_types::PgTimestamp;
use uuid::Uuid;

use super::POSTGRES_EPOCH_MICROS;
use crate::domain::{
    ActorId, CaseId, CommandName, KnownOperation, Operation, OperationId, Revision, Status, Timestamp, Version,
    WorkflowName,
};
use crate::store::errors::inconsistent;
use crate::store::values::stored_digest;
use crate::store::{CaseRecord, OutboxRecord, StoreError, StoredWorkflow, TokenRecord};

/// A `timestamptz` as the domain's time.
pub(super) fn from_postgres_time(time: PgTimestamp) -> Timestamp {
    Timestamp::from_micros(time.0.saturating_add(POSTGRES_EPOCH_MICROS))
}

/// The domain's time as a `timestamptz`.
pub(super) fn to_postgres_time(time: Timestamp) -> PgTimestamp {
    PgTimestamp(time.micros() - POSTGRES_EPOCH_MICROS)
}

/// A row of `cases`.
#[derive(diesel::Queryable)]
pub(super) struct CaseRow {
    case_id: String,
    workflow: String,
    status: String,
    revision: i64,
    version: i64,
    data: String,
    opened_at: PgTimestamp,
    updated_at: PgTimestamp,
}

impl CaseRow {
    pub(super) fn into_record(self, assignees: Vec<String>) -> CaseRecord {
        CaseRecord {
            case_id: CaseId::from_stored(self.case_id),
            workflow: WorkflowName::from_stored(self.workflow),
            status: Status::from_stored(self.status),
            revision: Revision::new(self.revision),
            version: Version::new(self.version),
            assignees: assignees.into_iter().map(ActorId::from_stored).collect(),
            data: self.data.into(),
            opened_at: from_postgres_time(self.opened_at),
            updated_at: from_postgres_time(self.updated_at),
        }
    }
}

/// A row of `operations`.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::operations)]
pub(super) struct OperationRow {
    case_id: String,
    operation_id: Uuid,
    version: i64,
    revision: i64,
    status: String,
    recorded_at: PgTimestamp,
    actor: String,
    command: String,
    digest: Option<Vec<u8>>,
    request: Option<String>,
    outcome: Option<String>,
}

impl OperationRow {
    pub(super) fn into_operation(self, during: &'static str) -> Result<Operation, StoreError> {
        Ok(Operation {
            digest: stored_digest(self.digest.as_deref(), during)?,
            case_id: CaseId::from_stored(self.case_id),
            operation_id: OperationId::from_uuid(self.operation_id),
            version: Version::new(self.version),
            revision: Revision::new(self.revision),
            status: Status::from_stored(self.status),
            recorded_at: from_postgres_time(self.recorded_at),
            actor: ActorId::from_stored(self.actor),
            command: CommandName::from_stored(self.command),
            request: self.request.map(Into::into),
            outcome: self.outcome.map(Into::into),
        })
    }
}

/// What memory keeps of an operation.
pub(super) struct KnownRow {
    pub(super) operation_id: Uuid,
    pub(super) actor: String,
    pub(super) command: String,
    pub(super) digest: Option<Vec<u8>>,
    pub(super) outcome: Option<String>,
}

impl KnownRow {
    pub(super) fn into_known(self, during: &'static str) -> Result<KnownOperation, StoreError> {
        Ok(KnownOperation {
            digest: stored_digest(self.digest.as_deref(), during)?,
            operation_id: OperationId::from_uuid(self.operation_id),
            actor: ActorId::from_stored(self.actor),
            command: CommandName::from_stored(self.command),
            outcome: self.outcome.map(Into::into),
        })
    }
}

/// A row of `outbox`.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::outbox)]
pub(super) struct OutboxRow {
    case_id: String,
    version: i64,
    operation_id: Uuid,
}

impl From<OutboxRow> for OutboxRecord {
    fn from(row: OutboxRow) -> Self {
        Self {
            case_id: CaseId::from_stored(row.case_id),
            version: Version::new(row.version),
            operation_id: OperationId::from_uuid(row.operation_id),
        }
    }
}

/// A row of `workflows`.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::workflows)]
pub(super) struct WorkflowRow {
    name: String,
    digest: Vec<u8>,
    text: String,
}

impl WorkflowRow {
    pub(super) fn into_stored(self, during: &'static str) -> Result<StoredWorkflow, StoreError> {
        let digest =
            self.digest.try_into().map_err(|_| inconsistent(during, "a workflow's digest has not 32 bytes"))?;
        Ok(StoredWorkflow { name: WorkflowName::from_stored(self.name), digest, text: self.text.into() })
    }
}

/// A row of `api_tokens`.
#[derive(diesel::Queryable, diesel::Selectable, diesel::Insertable)]
#[diesel(table_name = super::schema::api_tokens)]
pub(super) struct TokenRow {
    id: Uuid,
    token_sha256: Vec<u8>,
    subject: String,
    roles: String,
    created_at: PgTimestamp,
    expires_at: Option<PgTimestamp>,
    revoked_at: Option<PgTimestamp>,
}

impl TokenRow {
    pub(super) fn of(token: &TokenRecord) -> Self {
        Self {
            id: token.id,
            token_sha256: token.sha256.to_vec(),
            subject: token.subject.as_str().to_owned(),
            roles: token.roles.clone(),
            created_at: to_postgres_time(token.created_at),
            expires_at: token.expires_at.map(to_postgres_time),
            revoked_at: token.revoked_at.map(to_postgres_time),
        }
    }

    pub(super) fn into_record(self, during: &'static str) -> Result<TokenRecord, StoreError> {
        let sha256 =
            self.token_sha256.try_into().map_err(|_| inconsistent(during, "a token's hash has not 32 bytes"))?;
        Ok(TokenRecord {
            id: self.id,
            sha256,
            subject: ActorId::from_stored(self.subject),
            roles: self.roles,
            created_at: from_postgres_time(self.created_at),
            expires_at: self.expires_at.map(from_postgres_time),
            revoked_at: self.revoked_at.map(from_postgres_time),
        })
    }
}
