//! Reading cases from PostgreSQL.
//!
//! Owns the two statements that memory begins with, each one round trip and one snapshot for many cases, and the list.
//! Both are constant SQL over arrays with an id of their own, so that Diesel prepares them once (`sql_query` is prepared
//! anew each time). Fails with [`StoreError`].

use diesel::pg::Pg;
use diesel::pg::data_types::PgTimestamp;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::pool::{Pool, within};
use super::rows::{CaseRow, KnownRow, from_postgres_time};
use super::schema::{assignments, cases};
use crate::domain::{ActorId, CaseId, KnownOperation, OperationId, Revision, Status, Version, WorkflowName};
use crate::store::errors::inconsistent;
use crate::store::values::sql_limit;
use crate::store::{CaseFilter, CaseLoad, CaseRecord, StoreError};

/// A case's operations are as many as its version says: versions are dense.
const LOAD: &str = "SELECT t.i, c.workflow, c.status, c.revision, c.version, c.data, c.opened_at, c.updated_at, \
    ARRAY(SELECT a.assignee FROM assignments a WHERE a.case_id = c.case_id ORDER BY a.assignee), \
    o.ids, o.actors, o.commands, o.digests, o.outcomes \
    FROM unnest($1::text[]) WITH ORDINALITY AS t (case_id, i) JOIN cases c ON c.case_id = t.case_id \
    LEFT JOIN LATERAL (SELECT array_agg(x.operation_id) AS ids, array_agg(x.actor) AS actors, array_agg(x.command) AS commands, \
      array_agg(x.digest) AS digests, array_agg(x.outcome) AS outcomes \
      FROM operations x WHERE x.case_id = c.case_id AND c.version <= $2::bigint) o ON true";

const FIND: &str = "SELECT t.i, o.operation_id, o.actor, o.command, o.digest, o.outcome \
    FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS t (case_id, operation_id, i) \
    JOIN operations o ON o.case_id = t.case_id AND o.operation_id = t.operation_id";

/// The assignees of the case that stands in the row.
const ASSIGNEES: &str =
    "ARRAY(SELECT x.assignee FROM assignments x WHERE x.case_id = cases.case_id ORDER BY x.assignee)";

struct Load<'a> {
    case_ids: Vec<&'a str>,
    operations_max: i64,
}

impl QueryFragment<Pg> for Load<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push_with_binds(LOAD, &mut out, |out, place| match place {
            1 => out.push_bind_param::<Array<Text>, _>(&self.case_ids),
            _ => out.push_bind_param::<BigInt, _>(&self.operations_max),
        })
    }
}

impl QueryId for Load<'_> {
    type QueryId = Load<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Load<'_> {
    type SqlType = (
        BigInt,
        Text,
        Text,
        BigInt,
        BigInt,
        Text,
        Timestamptz,
        Timestamptz,
        Array<Text>,
        Nullable<Array<SqlUuid>>,
        Nullable<Array<Text>>,
        Nullable<Array<Text>>,
        Nullable<Array<Nullable<Binary>>>,
        Nullable<Array<Nullable<Text>>>,
    );
}

#[derive(diesel::Queryable)]
struct LoadRow {
    place: i64,
    workflow: String,
    status: String,
    revision: i64,
    version: i64,
    data: String,
    opened_at: PgTimestamp,
    updated_at: PgTimestamp,
    assignees: Vec<String>,
    ids: Option<Vec<Uuid>>,
    actors: Option<Vec<String>>,
    commands: Option<Vec<String>>,
    digests: Option<Vec<Option<Vec<u8>>>>,
    outcomes: Option<Vec<Option<String>>>,
}

struct Find<'a> {
    case_ids: Vec<&'a str>,
    operation_ids: Vec<Uuid>,
}

impl QueryFragment<Pg> for Find<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push_with_binds(FIND, &mut out, |out, place| match place {
            1 => out.push_bind_param::<Array<Text>, _>(&self.case_ids),
            _ => out.push_bind_param::<Array<SqlUuid>, _>(&self.operation_ids),
        })
    }
}

impl QueryId for Find<'_> {
    type QueryId = Find<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Find<'_> {
    type SqlType = (BigInt, SqlUuid, Text, Text, Nullable<Binary>, Nullable<Text>);
}

type FindRow = (i64, Uuid, String, String, Option<Vec<u8>>, Option<String>);

/// Writes a text whose parameters `$1`, `$2`, ... stand in order, each once.
fn push_with_binds<'b>(
    text: &'static str,
    out: &mut AstPass<'_, 'b, Pg>,
    mut bind: impl FnMut(&mut AstPass<'_, 'b, Pg>, usize) -> QueryResult<()>,
) -> QueryResult<()> {
    for (place, part) in text.split('$').enumerate() {
        if place == 0 {
            out.push_sql(part);
            continue;
        }
        bind(out, place)?;
        // Diesel writes the `$n` itself; the number in the text is for the reader.
        out.push_sql(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    Ok(())
}

/// See [`Store::cases_load`](crate::store::Store::cases_load).
pub(super) async fn cases_load(
    pool: &Pool,
    case_ids: &[CaseId],
    operations_max: usize,
) -> Result<Vec<CaseLoad>, StoreError> {
    let during = "loading cases";
    let query = Load {
        case_ids: case_ids.iter().map(CaseId::as_str).collect(),
        operations_max: i64::try_from(operations_max).unwrap_or(i64::MAX),
    };
    let mut lease = pool.lease(during).await?;
    let result = within(query.load::<LoadRow>(lease.diesel())).await;
    let rows = lease.finish(result)?;
    // A case that has no row is known to have no operations.
    let mut loads: Vec<CaseLoad> = vec![CaseLoad { record: None, operations: Some(Vec::new()) }; case_ids.len()];
    for row in rows {
        let place = usize::try_from(row.place - 1).ok().filter(|place| *place < loads.len());
        let place = place.ok_or_else(|| inconsistent(during, "a row belongs to no case that was asked for"))?;
        loads[place] = row.into_load(case_ids[place].clone(), operations_max, during)?;
    }
    Ok(loads)
}

impl LoadRow {
    fn into_load(self, case_id: CaseId, operations_max: usize, during: &'static str) -> Result<CaseLoad, StoreError> {
        let is_within = usize::try_from(self.version).is_ok_and(|version| version <= operations_max);
        let operations = if is_within {
            let columns = (self.ids, self.actors, self.commands, self.digests, self.outcomes);
            let (Some(ids), Some(actors), Some(commands), Some(digests), Some(outcomes)) = columns else {
                return Err(inconsistent(during, format!("the case {case_id} has no operations")));
            };
            let rest = actors.into_iter().zip(commands).zip(digests).zip(outcomes);
            let rows = ids.into_iter().zip(rest).map(|(operation_id, (((actor, command), digest), outcome))| {
                KnownRow { operation_id, actor, command, digest, outcome }.into_known(during)
            });
            Some(rows.collect::<Result<_, _>>()?)
        } else {
            None
        };
        let record = CaseRecord {
            case_id,
            workflow: WorkflowName::from_stored(self.workflow),
            status: Status::from_stored(self.status),
            revision: Revision::new(self.revision),
            version: Version::new(self.version),
            assignees: self.assignees.into_iter().map(ActorId::from_stored).collect(),
            data: self.data.into(),
            opened_at: from_postgres_time(self.opened_at),
            updated_at: from_postgres_time(self.updated_at),
        };
        Ok(CaseLoad { record: Some(record), operations })
    }
}

/// See [`Store::operations_find`](crate::store::Store::operations_find).
pub(super) async fn operations_find(
    pool: &Pool,
    keys: &[(CaseId, OperationId)],
) -> Result<Vec<(CaseId, KnownOperation)>, StoreError> {
    let during = "looking up operation ids";
    let query = Find {
        case_ids: keys.iter().map(|(case_id, _)| case_id.as_str()).collect(),
        operation_ids: keys.iter().map(|(_, operation_id)| operation_id.uuid()).collect(),
    };
    let mut lease = pool.lease(during).await?;
    let result = within(query.load::<FindRow>(lease.diesel())).await;
    let found = lease.finish(result)?.into_iter().map(|(place, operation_id, actor, command, digest, outcome)| {
        let key = usize::try_from(place - 1).ok().and_then(|place| keys.get(place));
        let (case_id, _) = key.ok_or_else(|| inconsistent(during, "a row belongs to no id that was asked for"))?;
        let known = KnownRow { operation_id, actor, command, digest, outcome }.into_known(during)?;
        Ok((case_id.clone(), known))
    });
    found.collect()
}

/// A case's row and who is assigned to it.
pub(super) type CaseWithAssignees = (CaseRow, Vec<String>);

/// Cases that match, by id. With an assignee the list starts from that person's assignments: a look-up, not a scan.
pub(super) async fn case_rows(
    connection: &mut AsyncPgConnection,
    filter: &CaseFilter,
) -> QueryResult<Vec<CaseWithAssignees>> {
    let limit = sql_limit(filter.limit);
    let columns = (cases::all_columns, diesel::dsl::sql::<Array<Text>>(ASSIGNEES));
    let after = filter.after.as_ref().map(CaseId::as_str);
    let status = filter.status.as_ref().map(Status::as_str);
    let workflow = filter.workflow.as_ref().map(WorkflowName::as_str);
    if let Some(assignee) = &filter.assignee {
        let mut query = assignments::table
            .inner_join(cases::table)
            .filter(assignments::assignee.eq(assignee.as_str()))
            .select(columns)
            .order(assignments::case_id)
            .limit(limit)
            .into_boxed();
        if let Some(after) = after {
            query = query.filter(assignments::case_id.gt(after));
        }
        if let Some(status) = status {
            query = query.filter(cases::status.eq(status));
        }
        if let Some(workflow) = workflow {
            query = query.filter(cases::workflow.eq(workflow));
        }
        return query.load(connection).await;
    }
    let mut query = cases::table.select(columns).order(cases::case_id).limit(limit).into_boxed();
    if let Some(after) = after {
        query = query.filter(cases::case_id.gt(after));
    }
    if let Some(status) = status {
        query = query.filter(cases::status.eq(status));
    }
    if let Some(workflow) = workflow {
        query = query.filter(cases::workflow.eq(workflow));
    }
    query.load(connection).await
}
