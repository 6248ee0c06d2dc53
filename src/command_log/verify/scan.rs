//! Three tables of a snapshot, walked side by side in key order, a page at a time.

use std::collections::VecDeque;

use async_trait::async_trait;

use crate::domain::{CaseId, Operation, Version};
use crate::store::{CaseRecord, OutboxRecord, Snapshot, StoreError};

/// Rows that are read at once from a table.
const PAGE_ROWS: usize = 1_000;

/// A row that has a place in the order of its table.
#[async_trait]
trait Row: Sized + Send {
    fn key(&self) -> (&CaseId, Version);
    async fn page(
        snapshot: &mut dyn Snapshot,
        after: Option<(&CaseId, Version)>,
        limit: usize,
    ) -> Result<Vec<Self>, StoreError>;
}

/// What the three tables differ in: how a page of them is read.
macro_rules! row {
    ($row:ty, |$snapshot:ident, $after:ident, $limit:ident| $page:expr) => {
        #[async_trait]
        impl Row for $row {
            fn key(&self) -> (&CaseId, Version) {
                (&self.case_id, self.version)
            }
            async fn page(
                $snapshot: &mut dyn Snapshot,
                $after: Option<(&CaseId, Version)>,
                $limit: usize,
            ) -> Result<Vec<Self>, StoreError> {
                $page.await
            }
        }
    };
}

row!(CaseRecord, |snapshot, after, limit| snapshot.case_scan(after.map(|key| key.0), limit));
row!(Operation, |snapshot, after, limit| snapshot.operation_scan(after, limit));
row!(OutboxRecord, |snapshot, after, limit| snapshot.outbox_scan(after, limit));

/// A table read one page ahead.
struct Ahead<T> {
    rows: VecDeque<T>,
    after: Option<(CaseId, Version)>,
    is_read: bool,
}

impl<T: Row> Ahead<T> {
    fn new() -> Self {
        Self { rows: VecDeque::new(), after: None, is_read: false }
    }

    async fn peek(&mut self, snapshot: &mut dyn Snapshot) -> Result<Option<&T>, StoreError> {
        if self.rows.is_empty() && !self.is_read {
            let after = self.after.as_ref().map(|(case_id, version)| (case_id, *version));
            self.rows = T::page(snapshot, after, PAGE_ROWS).await?.into();
            match self.rows.back().map(Row::key) {
                Some((case_id, version)) => self.after = Some((case_id.clone(), version)),
                None => self.is_read = true,
            }
        }
        Ok(self.rows.front())
    }

    async fn peek_case_id(&mut self, snapshot: &mut dyn Snapshot) -> Result<Option<CaseId>, StoreError> {
        Ok(self.peek(snapshot).await?.map(|row| row.key().0.clone()))
    }

    /// The next row if it is of this case and, where a bound is given, not past this version.
    async fn take(
        &mut self,
        snapshot: &mut dyn Snapshot,
        case_id: &CaseId,
        up_to: Option<Version>,
    ) -> Result<Option<T>, StoreError> {
        let is_wanted = self.peek(snapshot).await?.is_some_and(|row| {
            let (of, version) = row.key();
            of == case_id && up_to.is_none_or(|up_to| version <= up_to)
        });
        Ok(if is_wanted { self.rows.pop_front() } else { None })
    }
}

/// The walk.
pub(super) struct Scan<'a> {
    snapshot: &'a mut dyn Snapshot,
    cases: Ahead<CaseRecord>,
    operations: Ahead<Operation>,
    outbox: Ahead<OutboxRecord>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(snapshot: &'a mut dyn Snapshot) -> Self {
        Self { snapshot, cases: Ahead::new(), operations: Ahead::new(), outbox: Ahead::new() }
    }

    /// The smallest case id of which anything is left.
    pub(super) async fn first_case_id(&mut self) -> Result<Option<CaseId>, StoreError> {
        let heads = [
            self.cases.peek_case_id(self.snapshot).await?,
            self.operations.peek_case_id(self.snapshot).await?,
            self.outbox.peek_case_id(self.snapshot).await?,
        ];
        Ok(heads.into_iter().flatten().min())
    }

    pub(super) async fn take_case(&mut self, case_id: &CaseId) -> Result<Option<CaseRecord>, StoreError> {
        self.cases.take(self.snapshot, case_id, None).await
    }

    pub(super) async fn take_operation(&mut self, case_id: &CaseId) -> Result<Option<Operation>, StoreError> {
        self.operations.take(self.snapshot, case_id, None).await
    }

    /// The case's next outbox row, up to a version.
    pub(super) async fn take_outbox(
        &mut self,
        case_id: &CaseId,
        up_to: Option<Version>,
    ) -> Result<Option<OutboxRecord>, StoreError> {
        self.outbox.take(self.snapshot, case_id, up_to).await
    }
}
