//! The lanes of one stream: one for each case that has lines waiting, or whose lines must not run any more.
//!
//! Owns their number: a lane is forgotten when its last answer is written, unless it is broken. Past a bound of broken ones
//! the whole stream counts as broken, so that a stream of any length stays small while the database is away.

use std::collections::HashMap;

use crate::domain::CaseId;
use crate::engine::Lane;

/// How many broken lanes are told apart.
const BROKEN_MAX: usize = 65_536;

/// The lanes of a stream.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    by_case: HashMap<CaseId, Entry>,
    broken: usize,
}

#[derive(Debug, Default)]
struct Entry {
    lane: Lane,
    waiting: usize,
    counted_as_broken: bool,
}

impl Lanes {
    /// The lane of a line. Each call is followed by one [`Self::leave`].
    pub(super) fn enter(&mut self, case_id: &CaseId) -> Lane {
        let entry = self.by_case.entry(case_id.clone()).or_default();
        entry.waiting += 1;
        entry.lane.clone()
    }

    /// A line of the case was answered.
    pub(super) fn leave(&mut self, case_id: &CaseId) {
        let Some(entry) = self.by_case.get_mut(case_id) else { return };
        entry.waiting -= 1;
        if entry.lane.is_broken() {
            self.broken += usize::from(!std::mem::replace(&mut entry.counted_as_broken, true));
        } else if entry.waiting == 0 {
            self.by_case.remove(case_id);
        }
    }

    /// Whether no further line of this stream is run, whatever its case.
    pub(super) fn all_broken(&self) -> bool {
        self.broken >= BROKEN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Answer, Trouble};

    #[test]
    fn a_lane_is_forgotten_with_its_last_answer_unless_it_is_broken() {
        let mut lanes = Lanes::default();
        let (one, two) = (CaseId::from_stored("62"), CaseId::from_stored("63"));
        let first = lanes.enter(&one);
        lanes.enter(&one);
        lanes.enter(&two);
        lanes.leave(&one);
        lanes.leave(&two);
        assert_eq!(lanes.by_case.len(), 1);
        first.note(&Answer::Unsettled(Trouble::Unavailable));
        lanes.leave(&one);
        assert!(lanes.enter(&one).is_broken());
        lanes.leave(&one);
        assert_eq!(lanes.broken, 1);
        assert!(!lanes.enter(&two).is_broken() && !lanes.all_broken());
    }
}
