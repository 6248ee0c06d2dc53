//! Three tables of a snapshot, walked side by side in key order, a page at a time.

use std::collections::VecDeque;
use std::future::Future;

use crate::domain::{CaseId, Operation, Version};
use crate::store::{CaseRecord, OutboxRecord, Snapshot, StoreError};

/// Rows that are read at once from a table.
const PAGE_ROWS: usize = 1_000;

/// A row that has a place in the order of its table.
trait Row: Sized + Send {
    fn case_id(&self) -> &CaseId;
    fn version(&self) -> Version;
    fn page<'a>(
        snapshot: &'a mut dyn Snapshot,
        after: Option<(&'a CaseId, Version)>,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send + 'a;
}

impl Row for CaseRecord {
    fn case_id(&self) -> &CaseId {
        &self.case_id
    }
    fn version(&self) -> Version {
        self.version
    }
    fn page<'a>(
        snapshot: &'a mut dyn Snapshot,
        after: Option<(&'a CaseId, Version)>,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send + 'a {
        snapshot.case_scan(after.map(|key| key.0), PAGE_ROWS)
    }
}

impl Row for Operation {
    fn case_id(&self) -> &CaseId {
        &self.case_id
    }
    fn version(&self) -> Version {
        self.version
    }
    fn page<'a>(
        snapshot: &'a mut dyn Snapshot,
        after: Option<(&'a CaseId, Version)>,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send + 'a {
        snapshot.operation_scan(after, PAGE_ROWS)
    }
}

impl Row for OutboxRecord {
    fn case_id(&self) -> &CaseId {
        &self.case_id
    }
    fn version(&self) -> Version {
        self.version
    }
    fn page<'a>(
        snapshot: &'a mut dyn Snapshot,
        after: Option<(&'a CaseId, Version)>,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send + 'a {
        snapshot.outbox_scan(after, PAGE_ROWS)
    }
}

struct Table<T> {
    rows: VecDeque<T>,
    after: Option<(CaseId, Version)>,
    is_read: bool,
}

impl<T: Row> Table<T> {
    fn new() -> Self {
        Self { rows: VecDeque::new(), after: None, is_read: false }
    }

    async fn peek(&mut self, snapshot: &mut dyn Snapshot) -> Result<Option<&T>, StoreError> {
        if self.rows.is_empty() && !self.is_read {
            let after = self.after.as_ref().map(|(case_id, version)| (case_id, *version));
            self.rows = T::page(snapshot, after).await?.into();
            match self.rows.back() {
                Some(last) => self.after = Some((last.case_id().clone(), last.version())),
                None => self.is_read = true,
            }
        }
        Ok(self.rows.front())
    }

    async fn take_if(
        &mut self,
        snapshot: &mut dyn Snapshot,
        wanted: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, StoreError> {
        let is_wanted = self.peek(snapshot).await?.is_some_and(wanted);
        Ok(if is_wanted { self.rows.pop_front() } else { None })
    }
}

/// The walk.
pub(super) struct Scan<'a> {
    snapshot: &'a mut dyn Snapshot,
    cases: Table<CaseRecord>,
    operations: Table<Operation>,
    outbox: Table<OutboxRecord>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(snapshot: &'a mut dyn Snapshot) -> Self {
        Self { snapshot, cases: Table::new(), operations: Table::new(), outbox: Table::new() }
    }

    /// The smallest case id of which anything is left.
    pub(super) async fn first_case_id(&mut self) -> Result<Option<CaseId>, StoreError> {
        let heads = [
            self.cases.peek(self.snapshot).await?.map(|row| row.case_id.clone()),
            self.operations.peek(self.snapshot).await?.map(|row| row.case_id.clone()),
            self.outbox.peek(self.snapshot).await?.map(|row| row.case_id.clone()),
        ];
        Ok(heads.into_iter().flatten().min())
    }

    pub(super) async fn take_case(&mut self, case_id: &CaseId) -> Result<Option<CaseRecord>, StoreError> {
        self.cases.take_if(self.snapshot, |row| row.case_id == *case_id).await
    }

    pub(super) async fn take_operation(&mut self, case_id: &CaseId) -> Result<Option<Operation>, StoreError> {
        self.operations.take_if(self.snapshot, |row| row.case_id == *case_id).await
    }

    /// The case's next outbox row, up to a version.
    pub(super) async fn take_outbox(
        &mut self,
        case_id: &CaseId,
        up_to: Option<Version>,
    ) -> Result<Option<OutboxRecord>, StoreError> {
        let is_due = |version| up_to.is_none_or(|up_to| version <= up_to);
        self.outbox.take_if(self.snapshot, |row| row.case_id == *case_id && is_due(row.version)).await
    }
}
