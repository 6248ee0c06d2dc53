//! The commit on PostgreSQL: READ SECOND. One constant statement, one round trip, one transaction for a whole batch.
//!
//! Owns the statement (`commit.sql`), how a batch becomes its arrays and how its rows become answers. Never sends anything
//! itself. The statement depends on the writer fence (`f`), locks cases in key order (`l`), opens (`n`), compares and swaps
//! (`u`), and inserts the rest for the cases that won; what each part protects from stands beside it in the SQL.
//!
//! A win is safe because `l.version` is the newest row, locked, and `k.version` the snapshot's. Both equal to `expected`:
//! nothing of the case changed in between, so what was decided on is current. Both tests are needed.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::POSTGRES_EPOCH_MICROS;
use crate::domain::{Timestamp, Version};
use crate::engine::Chain;
use crate::store::{BatchAnswer, ChainAnswer};

/// The statement with a hole for the way in which it locks.
const COMMIT: &str = include_str!("commit.sql");
const LOCK_HOLE: &str = "/*lock*/";

/// Between these stands what serves opens, assignments and checks alone.
/// Its own parameters are the last ones.
const RARE: (&str, &str) = ("/*rare*/", "/*end*/");

/// The text that leaves locked cases out: the others commit at once.
pub(super) fn skipping_text() -> String {
    COMMIT.replace(LOCK_HOLE, "FOR UPDATE SKIP LOCKED")
}

/// [`skipping_text`] for a batch of steps on open cases that assign nobody: most are. What such a batch has no rows for is
/// left out, since PostgreSQL sets up the nodes of a plan whether or not a row comes through them: a third of what an empty
/// batch costs.
pub(super) fn plain_text() -> String {
    let text = skipping_text();
    let mut parts = text.split(RARE.0);
    let first = parts.next().expect("a text has a first part").to_owned();
    parts.fold(first, |plain, part| {
        let (_, rest) = part.split_once(RARE.1).expect("what is opened in commit.sql is closed there");
        plain + rest
    })
}

/// The text that waits for locked cases, up to `lock_timeout`.
pub(super) fn waiting_text() -> String {
    COMMIT.replace(LOCK_HOLE, "FOR UPDATE")
}

/// A point in time as the driver sends a `timestamptz`: microseconds since 2000.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timestamptz(Timestamp);

impl ToSql for Timestamptz {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.put_i64(self.0.micros() - POSTGRES_EPOCH_MICROS);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// A batch as the columns that the statement unnests. Borrows from the batch.
#[derive(Default)]
pub(super) struct Columns<'a> {
    case_id: Vec<&'a str>,
    expected: Vec<i64>,
    workflow: Vec<&'a str>,
    status: Vec<&'a str>,
    revision: Vec<i64>,
    version: Vec<i64>,
    data: Vec<Option<&'a str>>,
    opened_at: Vec<Timestamptz>,
    updated_at: Vec<Timestamptz>,
    operation_case: Vec<i64>,
    operation_id: Vec<Uuid>,
    operation_version: Vec<i64>,
    operation_revision: Vec<i64>,
    operation_status: Vec<&'a str>,
    recorded_at: Vec<Timestamptz>,
    actor: Vec<&'a str>,
    command: Vec<&'a str>,
    digest: Vec<Option<&'a [u8]>>,
    request: Vec<Option<&'a str>>,
    outcome: Vec<Option<&'a str>>,
    assignment_case: Vec<i64>,
    assignee: Vec<&'a str>,
    present: Vec<bool>,
    check_case_id: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    /// Whether [`plain_text`] does.
    pub(super) fn are_plain(&self) -> bool {
        self.check_case_id.is_empty() && self.assignment_case.is_empty() && !self.expected.contains(&0)
    }

    /// Lays a batch out. A chain with a step is named by its place among those with one (from 1), a check by its place
    /// among the checks, counted downwards from -1; [`answers`] reads these places back.
    pub(super) fn of(batch: &[&'a Chain]) -> Self {
        let mut columns = Self::default();
        for chain in batch {
            let Some(step) = &chain.step else {
                columns.check_case_id.push(chain.case_id.as_str());
                continue;
            };
            let after = &step.after;
            columns.case_id.push(chain.case_id.as_str());
            columns.expected.push(chain.expected.get());
            columns.workflow.push(after.workflow.name().as_str());
            columns.status.push(after.status.as_str());
            columns.revision.push(after.revision.get());
            columns.version.push(after.version.get());
            columns.data.push(step.writes_data.then_some(&*after.data));
            columns.opened_at.push(Timestamptz(after.opened_at));
            columns.updated_at.push(Timestamptz(after.updated_at));
            let place = place_of(columns.case_id.len());
            for operation in &step.operations {
                columns.operation_case.push(place);
                columns.operation_id.push(operation.operation_id.uuid());
                columns.operation_version.push(operation.version.get());
                columns.operation_revision.push(operation.revision.get());
                columns.operation_status.push(operation.status.as_str());
                columns.recorded_at.push(Timestamptz(operation.recorded_at));
                columns.actor.push(operation.actor.as_str());
                columns.command.push(operation.command.as_str());
                columns.digest.push(operation.digest.as_ref().map(|digest| digest.as_bytes().as_slice()));
                columns.request.push(operation.request.as_deref());
                columns.outcome.push(operation.outcome.as_deref());
            }
            for change in &step.assignments {
                columns.assignment_case.push(place);
                columns.assignee.push(change.assignee.as_str());
                columns.present.push(change.present);
            }
        }
        columns
    }

    /// The parameters in the order of the statement.
    pub(super) fn params<'p>(&'p self, writer_id: &'p &'p str, epoch: &'p i64) -> [&'p (dyn ToSql + Sync); 26] {
        [
            writer_id,
            epoch,
            &self.case_id,
            &self.expected,
            &self.workflow,
            &self.status,
            &self.revision,
            &self.version,
            &self.data,
            &self.opened_at,
            &self.updated_at,
            &self.operation_case,
            &self.operation_id,
            &self.operation_version,
            &self.operation_revision,
            &self.operation_status,
            &self.recorded_at,
            &self.actor,
            &self.command,
            &self.digest,
            &self.request,
            &self.outcome,
            &self.assignment_case,
            &self.assignee,
            &self.present,
            &self.check_case_id,
        ]
    }
}

fn place_of(count: usize) -> i64 {
    i64::try_from(count).expect("a batch has fewer chains than i64 can count")
}

/// One row of the statement's answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerRow {
    /// 0: the fence; above: a chain with a step; below: a check.
    pub(super) place: i64,
    /// The chain was written; at 0: the fence held.
    pub(super) won: bool,
    /// The version that was seen; at 0: the epoch.
    pub(super) version: i64,
}

/// The rows as answers, one a chain in the batch's order. `None`: the rows do not fit the batch, which only a changed
/// schema can bring about; nothing is known then.
pub(super) fn answers(batch: &[&Chain], rows: &[AnswerRow]) -> Option<BatchAnswer> {
    let fence = rows.iter().find(|row| row.place == 0)?;
    if !fence.won {
        return Some(BatchAnswer::Fenced);
    }
    let mut steps: Vec<Option<AnswerRow>> = vec![None; batch.len() + 1];
    let mut checks = steps.clone();
    for row in rows {
        let (slots, place) = if row.place < 0 { (&mut checks, -row.place) } else { (&mut steps, row.place) };
        *slots.get_mut(usize::try_from(place).ok()?)? = Some(*row);
    }
    let (mut step_place, mut check_place) = (0, 0);
    let answers = batch.iter().map(|chain| {
        let row = if chain.step.is_some() {
            step_place += 1;
            steps[step_place]?
        } else {
            check_place += 1;
            checks[check_place]?
        };
        let holds = row.version == chain.expected.get();
        Some(match (row.won, holds, &chain.step) {
            (true, _, _) | (false, true, None) => ChainAnswer::Held,
            (false, true, Some(_)) => ChainAnswer::Locked,
            (false, false, _) => ChainAnswer::Missed { seen: Version::new(row.version) },
        })
    });
    answers.collect::<Option<Vec<_>>>().map(BatchAnswer::Settled)
}
