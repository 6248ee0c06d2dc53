//! Rows of SQLite and how they become the store's records. Row structs never leave this folder.

use uuid::Uuid;

use crate::domain::{
    ActorId, CaseId, CommandName, KnownOperation, Operation, OperationId, Revision, Status, Timestamp, Version,
    WorkflowName,
};
use crate::store::errors::inconsistent;
use crate::store::values::stored_digest;
use crate::store::{CaseRecord, OutboxRecord, StoreError, StoredWorkflow, TokenRecord};

/// A row of `cases`.
#[derive(diesel::Queryable)]
pub(super) struct CaseRow {
    pub(super) case_id: String,
    workflow: String,
    status: String,
    revision: i64,
    pub(super) version: i64,
    data: String,
    opened_at: i64,
    updated_at: i64,
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
            opened_at: Timestamp::from_micros(self.opened_at),
            updated_at: Timestamp::from_micros(self.updated_at),
        }
    }
}

/// A row of `operations`.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::operations)]
pub(super) struct OperationRow {
    case_id: String,
    operation_id: Vec<u8>,
    version: i64,
    revision: i64,
    status: String,
    recorded_at: i64,
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
            operation_id: stored_id(&self.operation_id, during)?,
            version: Version::new(self.version),
            revision: Revision::new(self.revision),
            status: Status::from_stored(self.status),
            recorded_at: Timestamp::from_micros(self.recorded_at),
            actor: ActorId::from_stored(self.actor),
            command: CommandName::from_stored(self.command),
            request: self.request.map(Into::into),
            outcome: self.outcome.map(Into::into),
        })
    }
}

/// What memory keeps of an operation.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::operations)]
pub(super) struct KnownRow {
    operation_id: Vec<u8>,
    actor: String,
    command: String,
    digest: Option<Vec<u8>>,
    outcome: Option<String>,
}

impl KnownRow {
    pub(super) fn into_known(self, during: &'static str) -> Result<KnownOperation, StoreError> {
        Ok(KnownOperation {
            digest: stored_digest(self.digest.as_deref(), during)?,
            operation_id: stored_id(&self.operation_id, during)?,
            actor: ActorId::from_stored(self.actor),
            command: CommandName::from_stored(self.command),
            outcome: self.outcome.map(Into::into),
        })
    }
}

fn stored_id(bytes: &[u8], during: &'static str) -> Result<OperationId, StoreError> {
    let uuid = Uuid::from_slice(bytes).map_err(|error| inconsistent(during, format!("an operation id: {error}")))?;
    Ok(OperationId::from_uuid(uuid))
}

/// A row of `outbox`.
#[derive(diesel::Queryable, diesel::Selectable)]
#[diesel(table_name = super::schema::outbox)]
pub(super) struct OutboxRow {
    case_id: String,
    version: i64,
    operation_id: Vec<u8>,
}

impl OutboxRow {
    pub(super) fn into_record(self, during: &'static str) -> Result<OutboxRecord, StoreError> {
        Ok(OutboxRecord {
            operation_id: stored_id(&self.operation_id, during)?,
            case_id: CaseId::from_stored(self.case_id),
            version: Version::new(self.version),
        })
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
    id: Vec<u8>,
    token_sha256: Vec<u8>,
    subject: String,
    roles: String,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl TokenRow {
    pub(super) fn of(token: &TokenRecord) -> Self {
        Self {
            id: token.id.as_bytes().to_vec(),
            token_sha256: token.sha256.to_vec(),
            subject: token.subject.as_str().to_owned(),
            roles: token.roles.clone(),
            created_at: token.created_at.micros(),
            expires_at: token.expires_at.map(Timestamp::micros),
            revoked_at: token.revoked_at.map(Timestamp::micros),
        }
    }

    pub(super) fn into_record(self, during: &'static str) -> Result<TokenRecord, StoreError> {
        let sha256 =
            self.token_sha256.try_into().map_err(|_| inconsistent(during, "a token's hash has not 32 bytes"))?;
        let id = Uuid::from_slice(&self.id).map_err(|error| inconsistent(during, format!("a token's id: {error}")))?;
        Ok(TokenRecord {
            id,
            sha256,
            subject: ActorId::from_stored(self.subject),
            roles: self.roles,
            created_at: Timestamp::from_micros(self.created_at),
            expires_at: self.expires_at.map(Timestamp::from_micros),
            revoked_at: self.revoked_at.map(Timestamp::from_micros),
        })
    }
}
