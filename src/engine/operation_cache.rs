//! What memory knows of operations: ids, digests and outcomes of many cases, in one cache that is bounded in bytes.
//!
//! Owns the question "is this id known?", with three answers: known, certainly new (as of the case's version in memory), or
//! ask the database. Holds committed operations only, so an answer from here can't change. Never loads anything itself.

use std::collections::{HashMap, VecDeque};

use lru::LruCache;

use crate::domain::{CaseId, KnownOperation, OperationId};

/// What an id costs besides its details, in bytes: two table slots with their share of empty ones.
const ID_BYTES: usize = 96;

/// What is known of one id.
#[derive(Debug)]
pub enum Known<'a> {
    /// It is recorded, with everything that is needed to answer.
    Recorded(&'a KnownOperation),
    /// It is not recorded as of the version that the case has in memory.
    Absent,
    /// Memory can't tell: ask the database.
    AskDatabase,
}

/// Where the outcome was found that a repeat got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaySource {
    /// In memory, when the repeat came.
    Memory,
    /// In the database, by a read that the repeat waited for.
    Database,
    /// In a chain that was not settled when the repeat came, and is now.
    InFlight,
}

/// How many repeats got their outcome from where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// [`ReplaySource::Memory`].
    pub memory: u64,
    /// [`ReplaySource::Database`].
    pub database: u64,
    /// [`ReplaySource::InFlight`].
    pub in_flight: u64,
}

/// The operations of many cases; the cases used least recently go first.
#[derive(Debug)]
pub struct OperationCache {
    cases: LruCache<CaseId, CaseOperations>,
    bytes: usize,
    bytes_max: usize,
    details_per_case_max: usize,
    replays: ReplayCounts,
}

#[derive(Debug, Default)]
struct CaseOperations {
    /// `None`: recorded, but its details were dropped.
    ids: HashMap<OperationId, Option<Box<KnownOperation>>>,
    /// Ids with details, oldest first.
    detailed: VecDeque<OperationId>,
    /// Whether an id that is not here is certainly new.
    is_complete: bool,
    bytes: usize,
}

impl OperationCache {
    /// An empty cache: at most `bytes_max` bytes, and details of at most `details_per_case_max` operations a case.
    pub fn new(bytes_max: usize, details_per_case_max: usize) -> Self {
        let (cases, details_per_case_max) = (LruCache::unbounded(), details_per_case_max.max(1));
        Self { cases, bytes: 0, bytes_max, details_per_case_max, replays: ReplayCounts::default() }
    }

    /// Of how many operations of one case the details are kept at most; at least one.
    pub fn details_per_case_max(&self) -> usize {
        self.details_per_case_max
    }

    /// Looks an id up.
    pub fn find(&mut self, case_id: &CaseId, operation_id: OperationId) -> Known<'_> {
        let Some(case) = self.cases.get(case_id) else { return Known::AskDatabase };
        match case.ids.get(&operation_id) {
            Some(Some(known)) => Known::Recorded(known),
            Some(None) => Known::AskDatabase,
            None if case.is_complete => Known::Absent,
            None => Known::AskDatabase,
        }
    }

    /// Replaces what is known of a case by what was read in one snapshot with its state; `None`: too many to be read.
    pub fn replace(&mut self, case_id: &CaseId, operations: Option<Vec<KnownOperation>>) {
        self.forget(case_id);
        let is_complete = operations.is_some();
        self.change(case_id, |case| case.is_complete = is_complete);
        for operation in operations.into_iter().flatten() {
            self.insert(case_id, operation);
        }
    }

    /// Adds a committed operation.
    pub fn insert(&mut self, case_id: &CaseId, operation: KnownOperation) {
        let details_max = self.details_per_case_max;
        self.change(case_id, |case| case.insert(operation, details_max));
    }

    /// The state that the ids belonged to is no longer in memory: what is recorded stays true, but absence is unknown.
    pub fn mark_incomplete(&mut self, case_id: &CaseId) {
        if let Some(case) = self.cases.peek_mut(case_id) {
            case.is_complete = false;
        }
    }

    /// Drops all that is known of a case.
    pub fn forget(&mut self, case_id: &CaseId) {
        if let Some(case) = self.cases.pop(case_id) {
            self.bytes -= case.bytes;
        }
    }

    /// A repeat got its outcome.
    pub fn count_replay(&mut self, source: ReplaySource) {
        match source {
            ReplaySource::Memory => self.replays.memory += 1,
            ReplaySource::Database => self.replays.database += 1,
            ReplaySource::InFlight => self.replays.in_flight += 1,
        }
    }

    /// How many repeats got theirs since this was asked last.
    pub fn take_replays(&mut self) -> ReplayCounts {
        std::mem::take(&mut self.replays)
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes one case's part and keeps the count of bytes; then the cases used least recently give way.
    fn change(&mut self, case_id: &CaseId, change: impl FnOnce(&mut CaseOperations)) {
        if !self.cases.contains(case_id) {
            self.cases.put(case_id.clone(), CaseOperations { bytes: ID_BYTES, ..Default::default() });
            self.bytes += ID_BYTES;
        }
        let case = self.cases.get_mut(case_id).expect("it was put there if it was missing");
        let before = case.bytes;
        change(case);
        self.bytes = self.bytes - before + case.bytes;
        while self.bytes > self.bytes_max && self.cases.len() > 1 {
            let (_, oldest) = self.cases.pop_lru().expect("there is more than one");
            self.bytes -= oldest.bytes;
        }
        if self.bytes > self.bytes_max
            && let Some((_, last)) = self.cases.iter_mut().next()
        {
            // One case alone is past the bound: a case with millions of operations must not keep all of their ids.
            last.shed();
            self.bytes = last.bytes;
        }
    }
}

impl CaseOperations {
    /// Keeps what has details; the database is asked for the rest.
    fn shed(&mut self) {
        self.ids.retain(|_, known| known.is_some());
        self.ids.shrink_to_fit();
        self.is_complete = false;
        self.bytes = ID_BYTES + self.ids.values().flatten().map(|known| ID_BYTES + detail_bytes(known)).sum::<usize>();
    }

    fn insert(&mut self, operation: KnownOperation, details_max: usize) {
        let id = operation.operation_id;
        let bytes = detail_bytes(&operation);
        match self.ids.insert(id, Some(Box::new(operation))) {
            None => self.bytes += ID_BYTES + bytes,
            Some(None) => self.bytes += bytes,
            Some(Some(old)) => {
                self.bytes = self.bytes - detail_bytes(&old) + bytes;
                return;
            }
        }
        self.detailed.push_back(id);
        while self.detailed.len() > details_max {
            let oldest = self.detailed.pop_front().expect("it is longer than its bound");
            if !self.is_complete {
                // An id without details says nothing where others may be missing: the database is asked either way.
                if let Some(known) = self.ids.remove(&oldest) {
                    self.bytes -= ID_BYTES + known.map_or(0, |known| detail_bytes(&known));
                }
            } else if let Some(details) = self.ids.get_mut(&oldest).and_then(Option::take) {
                self.bytes -= detail_bytes(&details);
            }
        }
    }
}

fn detail_bytes(operation: &KnownOperation) -> usize {
    size_of::<KnownOperation>() + operation.outcome.as_ref().map_or(0, |outcome| outcome.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ActorId, CommandName};

    fn case(n: usize) -> CaseId {
        CaseId::parse(&format!("{n}")).expect("valid")
    }

    fn operation(n: u128) -> KnownOperation {
        KnownOperation {
            operation_id: OperationId::from_uuid(uuid::Uuid::from_u128(n)),
            actor: ActorId::from_stored("47"),
            command: CommandName::from_stored("note"),
            digest: None,
            outcome: Some("x".repeat(200).into()),
        }
    }

    #[test]
    fn absence_is_known_only_of_a_complete_case() {
        let mut cache = OperationCache::new(1 << 20, 100);
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::AskDatabase));
        cache.replace(&case(62), Some(vec![operation(1)]));
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::Recorded(_)));
        assert!(matches!(cache.find(&case(62), operation(2).operation_id), Known::Absent));
        cache.mark_incomplete(&case(62));
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::Recorded(_)));
        assert!(matches!(cache.find(&case(62), operation(2).operation_id), Known::AskDatabase));
        cache.replace(&case(62), None);
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::AskDatabase));
    }

    #[test]
    fn old_details_go_first_and_the_ids_stay() {
        let mut cache = OperationCache::new(1 << 20, 2);
        cache.replace(&case(62), Some((1..=3).map(operation).collect()));
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::AskDatabase));
        assert!(matches!(cache.find(&case(62), operation(3).operation_id), Known::Recorded(_)));
        assert!(matches!(cache.find(&case(62), operation(4).operation_id), Known::Absent));
    }

    #[test]
    fn one_case_alone_stays_within_the_bound_as_well() {
        let mut cache = OperationCache::new(10_000, 2);
        cache.replace(&case(62), Some(Vec::new()));
        for n in 1..=10_000 {
            cache.insert(&case(62), operation(n));
            assert!(cache.bytes() <= 10_000, "{n}: {}", cache.bytes());
        }
        // What is no longer known is asked for, and never taken for new.
        assert!(matches!(cache.find(&case(62), operation(1).operation_id), Known::AskDatabase));
        assert!(matches!(cache.find(&case(62), operation(10_001).operation_id), Known::AskDatabase));
        assert!(matches!(cache.find(&case(62), operation(10_000).operation_id), Known::Recorded(_)));
        cache.forget(&case(62));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn of_an_incomplete_case_nothing_is_kept_but_what_has_details() {
        let mut cache = OperationCache::new(1 << 20, 2);
        cache.replace(&case(62), None);
        (1..=2).for_each(|n| cache.insert(&case(62), operation(n)));
        let full = cache.bytes();
        (3..=1_000).for_each(|n| cache.insert(&case(62), operation(n)));
        assert_eq!(cache.bytes(), full);
        assert!(matches!(cache.find(&case(62), operation(998).operation_id), Known::AskDatabase));
    }

    #[test]
    fn the_bytes_stay_within_the_bound_and_come_back_to_zero() {
        let mut cache = OperationCache::new(10_000, 100);
        for n in 0..1_000 {
            cache.replace(&case(n), Some(vec![operation(n as u128 + 1)]));
            assert!(cache.bytes() <= 10_000);
        }
        assert!(matches!(cache.find(&case(999), operation(1_000).operation_id), Known::Recorded(_)));
        assert!(matches!(cache.find(&case(0), operation(1).operation_id), Known::AskDatabase));
        for n in 0..1_000 {
            cache.forget(&case(n));
        }
        assert_eq!(cache.bytes(), 0);
    }
}
