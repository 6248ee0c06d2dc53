//! The statement that moves a case's row, prepared once for a connection.
//!
//! Diesel prepares an `UPDATE` of its own query builder anew each time, which with the triggers on `cases` took half of the
//! processor time of a commit. Owns the text and its parameters, nothing else.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::Sqlite;

use crate::engine::Step;

/// Moves the row of a case to where a step leads.
pub(super) struct CaseUpdate<'a> {
    case_id: &'a str,
    workflow: &'a str,
    status: &'a str,
    revision: i64,
    version: i64,
    updated_at: i64,
    /// `None`: as it is.
    data: Option<&'a str>,
}

impl<'a> CaseUpdate<'a> {
    pub(super) fn new(case_id: &'a str, step: &'a Step) -> Self {
        let after = &step.after;
        Self {
            case_id,
            workflow: after.workflow.name().as_str(),
            status: after.status.as_str(),
            revision: after.revision.get(),
            version: after.version.get(),
            updated_at: after.updated_at.micros(),
            data: step.writes_data.then_some(&*after.data),
        }
    }
}

impl QueryFragment<Sqlite> for CaseUpdate<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("UPDATE cases SET workflow = ");
        out.push_bind_param::<Text, _>(self.workflow)?;
        out.push_sql(", status = ");
        out.push_bind_param::<Text, _>(self.status)?;
        out.push_sql(", revision = ");
        out.push_bind_param::<BigInt, _>(&self.revision)?;
        out.push_sql(", version = ");
        out.push_bind_param::<BigInt, _>(&self.version)?;
        out.push_sql(", updated_at = ");
        out.push_bind_param::<BigInt, _>(&self.updated_at)?;
        out.push_sql(", data = coalesce(");
        out.push_bind_param::<Nullable<Text>, _>(&self.data)?;
        out.push_sql(", data) WHERE case_id = ");
        out.push_bind_param::<Text, _>(self.case_id)
    }
}

impl QueryId for CaseUpdate<'_> {
    type QueryId = CaseUpdate<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl RunQueryDsl<SqliteConnection> for CaseUpdate<'_> {}
