//! The steps on PostgreSQL, by the database's clock: processes on several machines need not agree on the time.
//!
//! Owns their statements, each a transaction of its own.

use std::num::NonZeroU32;

use diesel::sql_types::{BigInt, Text};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::{Lease, LeaseTtl, ROW_KEPT, ROWS_PER_PRUNE, Taken};

pub(super) const CREATE: &str = include_str!("create_postgres.sql");

/// At most one row: the lock is taken.
pub(super) async fn acquire(
    connection: &mut AsyncPgConnection,
    lease: Lease,
    ttl: LeaseTtl,
    permits: NonZeroU32,
) -> QueryResult<Vec<Taken>> {
    // `load` and not `get_result`, which returns before the statement has ended.
    sql_query(include_str!("acquire_postgres.sql"))
        .bind::<Text, _>(lease.name)
        .bind::<Text, _>(lease.owner)
        .bind::<BigInt, _>(ttl.micros())
        .bind::<BigInt, _>(i64::from(permits.get()))
        .load(connection)
        .await
}

/// One row: the lease lasts anew.
pub(super) async fn renew(connection: &mut AsyncPgConnection, lease: Lease, ttl: LeaseTtl) -> QueryResult<usize> {
    sql_query(include_str!("renew_postgres.sql"))
        .bind::<Text, _>(lease.name)
        .bind::<Text, _>(lease.owner)
        .bind::<BigInt, _>(ttl.micros())
        .execute(connection)
        .await
}

/// One row: the lease is over.
pub(super) async fn release(connection: &mut AsyncPgConnection, lease: Lease) -> QueryResult<usize> {
    sql_query(include_str!("release_postgres.sql"))
        .bind::<Text, _>(lease.name)
        .bind::<Text, _>(lease.owner)
        .execute(connection)
        .await
}

/// How many old rows were deleted.
pub(super) async fn prune(connection: &mut AsyncPgConnection) -> QueryResult<usize> {
    sql_query(include_str!("prune_postgres.sql"))
        .bind::<BigInt, _>(ROW_KEPT)
        .bind::<BigInt, _>(ROWS_PER_PRUNE)
        .execute(connection)
        .await
}
