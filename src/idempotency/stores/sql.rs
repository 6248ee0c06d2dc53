//! Answers in a SQL database, for one process or many; also within the transaction of the handler.
//!
//! Owns the table `idempotency_records` and the statements on it. A claim reads first, which is all that a replay costs, and
//! inserts where nothing live is (on PostgreSQL in the same statement, on SQLite in the next one): the primary key decides
//! between two who do so at once. All times are the database's.

use std::time::Duration;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};
use diesel_async::AsyncPgConnection;

use super::{IdempotencyStore, StoreFault, whole_millis};
use crate::idempotency::claim::{Claim, ClaimToken, Holding};
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::key::Identity;
use crate::idempotency::recorded_response::RecordedResponse;
use crate::idempotency::run::ClaimInHand;
use crate::store::{DatabaseKind, DatabaseUrl, SideTables, StoreError};

/// How often a claim that found nothing live, and then could not insert, looks again. In each round somebody else got on.
const CLAIM_ROUNDS_MAX: usize = 8;
/// How many expired records one sweep removes at most.
const SWEEP_MAX: i64 = 1_000;

/// What `{now}` stands for: milliseconds since 1970.
const POSTGRES_NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)";
const SQLITE_NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

// Parameters appear in their order: SQLite numbers `$1` by that.
const FIND: &str = "SELECT fingerprint, token, until_ms - {now} AS left_ms, response, 0 AS is_new \
    FROM idempotency_records WHERE identity = $1 AND until_ms > {now}";
/// Finds and, where nothing live is, claims: one way to the server and back.
const FIND_OR_CLAIM_POSTGRES: &str = include_str!("claim_postgres.sql");
const KEEP_RUNNING: &str = "INSERT INTO idempotency_records AS held (identity, fingerprint, token, until_ms) \
    VALUES ($1, $2, $3, {now} + $4) ON CONFLICT (identity) DO UPDATE SET fingerprint = excluded.fingerprint, \
    token = excluded.token, until_ms = excluded.until_ms, response = NULL \
    WHERE held.until_ms <= {now} OR (held.token = excluded.token AND held.response IS NULL)";
const COMPLETE: &str = "INSERT INTO idempotency_records AS held (identity, fingerprint, token, until_ms, response) \
    VALUES ($1, $2, $3, {now} + $4, $5) ON CONFLICT (identity) DO UPDATE SET fingerprint = excluded.fingerprint, \
    token = excluded.token, until_ms = excluded.until_ms, response = excluded.response \
    WHERE held.until_ms <= {now} OR held.token = excluded.token";
const COMPLETE_IN_HAND: &str = "UPDATE idempotency_records SET until_ms = {now} + $1, response = $2 \
    WHERE identity = $3 AND token = $4";
const RELEASE: &str = "DELETE FROM idempotency_records WHERE identity = $1 AND token = $2 AND response IS NULL";
fn text_for(kind: DatabaseKind, statement: &str) -> String {
    let now = match kind {
        DatabaseKind::Sqlite => SQLITE_NOW,
        DatabaseKind::Postgres => POSTGRES_NOW,
    };
    statement.replace("{now}", now)
}

/// A parameter of a statement.
#[derive(Clone)]
enum Parameter {
    Bytes(Vec<u8>),
    Number(i64),
}

/// The statement with its parameters; the same on both databases but for their types.
macro_rules! bound {
    ($backend:ty, $text:expr, $parameters:expr) => {{
        let mut query = diesel::sql_query($text).into_boxed::<$backend>();
        for parameter in $parameters {
            query = match parameter {
                Parameter::Bytes(bytes) => query.bind::<Binary, _>(bytes),
                Parameter::Number(number) => query.bind::<BigInt, _>(number),
            };
        }
        query
    }};
}

#[derive(QueryableByName)]
struct RecordRow {
    #[diesel(sql_type = Binary)]
    fingerprint: Vec<u8>,
    #[diesel(sql_type = Binary)]
    token: Vec<u8>,
    #[diesel(sql_type = BigInt)]
    left_ms: i64,
    #[diesel(sql_type = diesel::sql_types::Nullable<Binary>)]
    response: Option<Vec<u8>>,
    /// It was not there, and is the claim that asked.
    #[diesel(sql_type = diesel::sql_types::Bool)]
    is_new: bool,
}

/// A store in a SQL database. Cheap to clone.
#[derive(Clone)]
pub struct SqlStore {
    tables: SideTables,
}

impl SqlStore {
    /// The database at `url`; connects to nothing yet.
    ///
    /// # Errors
    /// [`StoreError`] where the URL is wrong or no threads can be had.
    pub fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        Ok(Self::new(SideTables::open(url)?))
    }

    /// A store on connections that others may use as well, or with another limit of time.
    pub fn new(tables: SideTables) -> Self {
        Self { tables }
    }

    /// Makes the table `idempotency_records` where it is not there yet. To be called at start; several processes may.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create_tables(&self) -> Result<(), StoreError> {
        self.tables.create(include_str!("sqlite.sql"), include_str!("postgres.sql")).await
    }

    /// Stores the response within the handler's own transaction on SQLite, so that it commits with what the handler writes
    /// or not at all. On [`Holding::Lost`] another one has run the request, or does: roll back.
    ///
    /// # Errors
    /// Diesel's.
    pub fn complete_in_sqlite(
        connection: &mut SqliteConnection,
        claim: &ClaimInHand,
        response: &RecordedResponse,
    ) -> QueryResult<Holding> {
        let text = text_for(DatabaseKind::Sqlite, COMPLETE_IN_HAND);
        bound!(diesel::sqlite::Sqlite, text, in_hand(claim, response)).execute(connection).map(holding)
    }

    /// The same on PostgreSQL.
    ///
    /// # Errors
    /// Diesel's.
    pub async fn complete_in_postgres(
        connection: &mut AsyncPgConnection,
        claim: &ClaimInHand,
        response: &RecordedResponse,
    ) -> QueryResult<Holding> {
        let text = text_for(DatabaseKind::Postgres, COMPLETE_IN_HAND);
        let query = bound!(diesel::pg::Pg, text, in_hand(claim, response));
        diesel_async::RunQueryDsl::execute(query, connection).await.map(holding)
    }

    async fn execute(
        &self,
        during: &'static str,
        statement: &'static str,
        parameters: Vec<Parameter>,
    ) -> Result<usize, StoreFault> {
        let text = text_for(self.tables.kind(), statement);
        let (for_sqlite, for_postgres) = ((text.clone(), parameters.clone()), (text, parameters));
        let changed = self.tables.run(
            during,
            move |connection| bound!(diesel::sqlite::Sqlite, for_sqlite.0, for_sqlite.1).execute(connection),
            move |connection| {
                let query = bound!(diesel::pg::Pg, for_postgres.0, for_postgres.1);
                Box::pin(async move { diesel_async::RunQueryDsl::execute(query, connection).await })
            },
        );
        Ok(changed.await?)
    }

    /// What lives under the identity, or the new claim; `None`: somebody else claimed at this moment.
    async fn find_or_claim(
        &self,
        during: &'static str,
        identity: &Identity,
        claim: Vec<Parameter>,
    ) -> Result<Option<RecordRow>, StoreFault> {
        let find = (text_for(DatabaseKind::Sqlite, FIND), [Parameter::Bytes(identity.as_bytes().to_vec())]);
        let insert = (text_for(DatabaseKind::Sqlite, KEEP_RUNNING), claim.clone());
        let rows: Vec<RecordRow> = self
            .tables
            .run(
                during,
                move |connection| {
                    let found: Vec<RecordRow> = bound!(diesel::sqlite::Sqlite, find.0, find.1).load(connection)?;
                    if !found.is_empty() {
                        return Ok(found);
                    }
                    let inserted = bound!(diesel::sqlite::Sqlite, insert.0, insert.1).execute(connection)?;
                    Ok(if inserted == 1 { vec![RecordRow::new()] } else { Vec::new() })
                },
                move |connection| {
                    let query = bound!(diesel::pg::Pg, FIND_OR_CLAIM_POSTGRES, claim);
                    Box::pin(async move { diesel_async::RunQueryDsl::load(query, connection).await })
                },
            )
            .await?;
        Ok(rows.into_iter().next())
    }
}

impl RecordRow {
    fn new() -> Self {
        Self { fingerprint: Vec::new(), token: Vec::new(), left_ms: 0, response: None, is_new: true }
    }
}

fn holding(changed: usize) -> Holding {
    if changed == 1 { Holding::Held } else { Holding::Lost }
}

fn in_hand(claim: &ClaimInHand, response: &RecordedResponse) -> [Parameter; 4] {
    [
        Parameter::Number(whole_millis(claim.lifetime())),
        Parameter::Bytes(response.to_bytes()),
        Parameter::Bytes(claim.identity().as_bytes().to_vec()),
        Parameter::Bytes(claim.token().as_bytes().to_vec()),
    ]
}

fn running(identity: &Identity, fingerprint: &Fingerprint, token: ClaimToken, time: Duration) -> Vec<Parameter> {
    vec![
        Parameter::Bytes(identity.as_bytes().to_vec()),
        Parameter::Bytes(fingerprint.to_bytes().to_vec()),
        Parameter::Bytes(token.as_bytes().to_vec()),
        Parameter::Number(whole_millis(time)),
    ]
}

/// What a live record says to a claim; `None`: it is the claim's own.
fn claim_of(
    during: &'static str,
    row: RecordRow,
    fingerprint: &Fingerprint,
    token: ClaimToken,
) -> Result<Option<Claim>, StoreFault> {
    let inconsistent = |reason: String| StoreFault::Inconsistent { during, reason };
    let held = Fingerprint::from_bytes(&row.fingerprint);
    let held = held.ok_or_else(|| inconsistent("a fingerprint of another length".into()))?;
    if held != *fingerprint {
        return Ok(Some(Claim::Mismatch(held)));
    }
    match row.response {
        Some(bytes) => {
            let response = RecordedResponse::from_bytes(bytes).map_err(|error| inconsistent(error.to_string()))?;
            Ok(Some(Claim::Completed(response)))
        }
        None if row.token == token.as_bytes() => Ok(None),
        None => {
            let lease_left = Duration::from_millis(u64::try_from(row.left_ms).unwrap_or(0));
            Ok(Some(Claim::InFlight { lease_left }))
        }
    }
}

#[async_trait]
impl IdempotencyStore for SqlStore {
    async fn claim(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Claim, StoreFault> {
        let during = "claiming a key";
        let claim = running(identity, fingerprint, token, lease);
        for _ in 0..CLAIM_ROUNDS_MAX {
            match self.find_or_claim(during, identity, claim.clone()).await? {
                None => {}
                Some(row) if row.is_new => return Ok(Claim::Claimed),
                Some(row) => {
                    if let Some(found) = claim_of(during, row, fingerprint, token)? {
                        return Ok(found);
                    }
                    // Its own, sent again because the answer was lost.
                    if self.execute(during, KEEP_RUNNING, claim.clone()).await? == 1 {
                        return Ok(Claim::Claimed);
                    }
                }
            }
        }
        let reason = format!("others claimed it and gave it back {CLAIM_ROUNDS_MAX} times meanwhile");
        Err(StoreFault::Unavailable { during, reason })
    }

    async fn renew(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Holding, StoreFault> {
        let parameters = running(identity, fingerprint, token, lease);
        self.execute("renewing a lease", KEEP_RUNNING, parameters).await.map(holding)
    }

    async fn complete(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        token: ClaimToken,
        response: &RecordedResponse,
        lifetime: Duration,
    ) -> Result<Holding, StoreFault> {
        let mut parameters = running(identity, fingerprint, token, lifetime);
        parameters.push(Parameter::Bytes(response.to_bytes()));
        self.execute("storing a response", COMPLETE, parameters).await.map(holding)
    }

    async fn release(&self, identity: &Identity, token: ClaimToken) -> Result<Holding, StoreFault> {
        let parameters =
            vec![Parameter::Bytes(identity.as_bytes().to_vec()), Parameter::Bytes(token.as_bytes().to_vec())];
        self.execute("giving a key back", RELEASE, parameters).await.map(holding)
    }

    async fn sweep(&self) -> Result<u64, StoreFault> {
        let statement = match self.tables.kind() {
            DatabaseKind::Sqlite => include_str!("sweep_sqlite.sql"),
            DatabaseKind::Postgres => include_str!("sweep_postgres.sql"),
        };
        let swept = self.execute("removing expired records", statement, vec![Parameter::Number(SWEEP_MAX)]).await?;
        Ok(u64::try_from(swept).expect("a count fits 64 bits"))
    }
}
