//! The steps on SQLite, by the process's clock: the file is on one machine.
//!
//! Owns their statements, each of which writes, and so waits for the file and never meets it changed since it was read.

use std::num::NonZeroU32;

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Text};

use super::{Lease, LeaseTtl, ROW_KEPT, ROWS_PER_PRUNE, Taken};

pub(super) const CREATE: &str = include_str!("create_sqlite.sql");

fn now() -> i64 {
    crate::clock::now().micros()
}

/// At most one row: the lock is taken.
pub(super) fn acquire(
    connection: &mut SqliteConnection,
    lease: &Lease,
    ttl: LeaseTtl,
    permits: NonZeroU32,
) -> QueryResult<Vec<Taken>> {
    sql_query(include_str!("acquire_sqlite.sql"))
        .bind::<Text, _>(&lease.name)
        .bind::<Text, _>(&lease.owner)
        .bind::<BigInt, _>(now())
        .bind::<BigInt, _>(ttl.micros())
        .bind::<BigInt, _>(i64::from(permits.get()))
        .load(connection)
}

/// One row: the lease lasts anew.
pub(super) fn renew(connection: &mut SqliteConnection, lease: &Lease, ttl: LeaseTtl) -> QueryResult<usize> {
    sql_query(include_str!("renew_sqlite.sql"))
        .bind::<Text, _>(&lease.name)
        .bind::<Text, _>(&lease.owner)
        .bind::<BigInt, _>(now())
        .bind::<BigInt, _>(ttl.micros())
        .execute(connection)
}

/// One row: the lease is over.
pub(super) fn release(connection: &mut SqliteConnection, lease: &Lease) -> QueryResult<usize> {
    sql_query(include_str!("release_sqlite.sql"))
        .bind::<Text, _>(&lease.name)
        .bind::<Text, _>(&lease.owner)
        .bind::<BigInt, _>(now())
        .execute(connection)
}

/// How many old rows were deleted.
pub(super) fn prune(connection: &mut SqliteConnection) -> QueryResult<usize> {
    sql_query(include_str!("prune_sqlite.sql"))
        .bind::<BigInt, _>(now() - ROW_KEPT)
        .bind::<BigInt, _>(ROWS_PER_PRUNE)
        .execute(connection)
}
