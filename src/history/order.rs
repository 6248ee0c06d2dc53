//! Real-time order of one case: whether what was answered fits one order of events.
//!
//! Owns the sweep. The order of a case's operations is given: it is that of their versions. What was answered without
//! changing the case (a replay, a rejection) is a *look*: it must have its place between two operations. If something ended
//! before something else began, it must not have its place behind it. Then, and only then, one order exists that explains
//! every answer, so that this is linearizability; since the operations have their places already, no search is needed:
//! each look takes the first place that fits, in the order in which the looks began. O(n log n), and a step for each place
//! that is tried.
//!
//! A place is a count of operations: a look at place 3 comes behind the third and before the fourth. Equal times are
//! concurrent. Never knows what a command is.

use super::ledger::NEVER;

/// Something with a beginning and an end (`NEVER`: none) on the history's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) began: u64,
    pub(super) ended: u64,
    /// What is named for it in a sentence.
    pub(super) attempt: u64,
}

/// A stored operation that clients sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedOperation {
    /// From 1.
    pub(super) place: usize,
    pub(super) span: Span,
}

/// An answer that changed nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// What the caller knows it by.
    pub(super) key: usize,
    /// The first place that it can have by itself.
    pub(super) place_min: usize,
    /// The last one.
    pub(super) place_max: usize,
    pub(super) span: Span,
}

/// A bound on a place, and the attempt that sets it (`None`: the look itself, or the end of the case).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) place: usize,
    pub(super) attempt: Option<u64>,
}

/// What no order explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disorder {
    /// The earlier one had ended before the later one began, and its place is behind it.
    Operation { earlier: Bound, later: PlacedSpan },
    /// The look fits no place within its bounds (there is none when `min` is past `max`).
    Look { key: usize, min: Bound, max: Bound },
}

/// An operation's place and attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedSpan {
    pub(super) place: usize,
    pub(super) attempt: u64,
}

#[derive(Clone, Copy)]
enum Item {
    Operation(usize),
    Look(usize),
}

/// Beginnings and ends in the order of time. Beginnings come before ends of the same time: those are concurrent.
#[derive(Default)]
struct Timeline(Vec<(u64, bool, Item)>);

impl Timeline {
    fn note(&mut self, span: &Span, item: Item) {
        self.0.push((span.began, false, item));
        if span.ended != NEVER {
            self.0.push((span.ended, true, item));
        }
    }

    fn in_order(mut self) -> impl Iterator<Item = (bool, Item)> {
        self.0.sort_by_key(|(at, is_end, _)| (*at, *is_end));
        self.0.into_iter().map(|(_, is_end, item)| (is_end, item))
    }
}

/// Finds a place for every look. `fits` says whether a look (by its index) fits a place; disorders are given to `found`.
pub(super) fn sweep(
    operations: &[PlacedOperation],
    looks: &[Look],
    mut fits: impl FnMut(usize, usize) -> bool,
    mut found: impl FnMut(Disorder),
) {
    let ceiling = Ceiling::new(operations, &out_of_order(operations, &mut found));
    let mut timeline = Timeline::default();
    operations.iter().enumerate().for_each(|(i, operation)| timeline.note(&operation.span, Item::Operation(i)));
    looks.iter().enumerate().for_each(|(i, look)| timeline.note(&look.span, Item::Look(i)));
    let mut places: Vec<Option<usize>> = vec![None; looks.len()];
    let mut floor = Bound { place: 0, attempt: None };
    for (is_end, item) in timeline.in_order() {
        match item {
            Item::Operation(i) if is_end => floor.raise(operations[i].place, operations[i].span.attempt),
            Item::Operation(_) => {}
            Item::Look(i) if is_end => {
                if let Some(place) = places[i] {
                    floor.raise(place, looks[i].span.attempt);
                }
            }
            Item::Look(i) => {
                let look = &looks[i];
                let min =
                    if look.place_min > floor.place { Bound { place: look.place_min, attempt: None } } else { floor };
                let mut max = ceiling.before(look.span.ended);
                if look.place_max <= max.place {
                    max = Bound { place: look.place_max, attempt: None };
                }
                places[i] = (min.place..=max.place).find(|place| fits(i, *place));
                if places[i].is_none() {
                    found(Disorder::Look { key: look.key, min, max });
                }
            }
        }
    }
}

/// Finds the operations that began when one with a higher place had ended.
fn out_of_order(operations: &[PlacedOperation], found: &mut impl FnMut(Disorder)) -> Vec<bool> {
    let mut timeline = Timeline::default();
    operations.iter().enumerate().for_each(|(i, operation)| timeline.note(&operation.span, Item::Operation(i)));
    let mut is_late = vec![false; operations.len()];
    let mut floor = Bound { place: 0, attempt: None };
    for (is_end, item) in timeline.in_order() {
        let Item::Operation(i) = item else { continue };
        let PlacedOperation { place, span } = operations[i];
        if is_end {
            floor.raise(place, span.attempt);
        } else if floor.place >= place {
            is_late[i] = true;
            found(Disorder::Operation { earlier: floor, later: PlacedSpan { place, attempt: span.attempt } });
        }
    }
    is_late
}

impl Bound {
    fn raise(&mut self, place: usize, attempt: u64) {
        if place > self.place {
            *self = Self { place, attempt: Some(attempt) };
        }
    }
}

/// The last place that something can have that ended before operations began.
struct Ceiling {
    /// By beginning; the bound is the least of all from there on.
    bounds: Vec<(u64, Bound)>,
}

impl Ceiling {
    /// Operations that are out of order themselves bind nobody: one fault is not told a hundred times.
    fn new(operations: &[PlacedOperation], is_late: &[bool]) -> Self {
        let in_order = operations.iter().zip(is_late).filter(|(_, is_late)| !**is_late).map(|(operation, _)| operation);
        let bound =
            |operation: &PlacedOperation| Bound { place: operation.place - 1, attempt: Some(operation.span.attempt) };
        let mut bounds: Vec<_> = in_order.map(|one| (one.span.began, bound(one))).collect();
        bounds.sort_unstable_by_key(|(began, _)| *began);
        for i in (1..bounds.len()).rev() {
            if bounds[i].1.place < bounds[i - 1].1.place {
                bounds[i - 1].1 = bounds[i].1;
            }
        }
        Self { bounds }
    }

    fn before(&self, ended: u64) -> Bound {
        let first = self.bounds.partition_point(|(began, _)| *began <= ended);
        self.bounds.get(first).map_or(Bound { place: usize::MAX, attempt: None }, |(_, bound)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(began: u64, ended: u64, attempt: u64) -> Span {
        Span { began, ended, attempt }
    }

    fn disorders(operations: &[(usize, Span)], looks: &[(&[usize], Span)]) -> Vec<Disorder> {
        let operations: Vec<_> = operations.iter().map(|&(place, span)| PlacedOperation { place, span }).collect();
        let last = operations.len();
        let all: Vec<_> = looks
            .iter()
            .enumerate()
            .map(|(key, (_, span))| Look { key, place_min: 0, place_max: last, span: *span })
            .collect();
        let mut found = Vec::new();
        sweep(&operations, &all, |look, place| looks[look].0.contains(&place), |disorder| found.push(disorder));
        found
    }

    #[test]
    fn operations_that_overlap_may_have_either_order_and_others_not() {
        assert_eq!(disorders(&[(2, span(0, 10, 1)), (1, span(10, 20, 2))], &[]), []);
        assert_eq!(
            disorders(&[(2, span(0, 10, 1)), (1, span(11, 20, 2))], &[]),
            [Disorder::Operation {
                earlier: Bound { place: 2, attempt: Some(1) },
                later: PlacedSpan { place: 1, attempt: 2 }
            }]
        );
        assert_eq!(disorders(&[(2, span(0, NEVER, 1)), (1, span(11, 20, 2))], &[]), []);
    }

    #[test]
    fn a_look_lies_between_what_ended_before_it_and_what_began_after_it() {
        let operations = [(1, span(0, 10, 1)), (2, span(20, 30, 2)), (3, span(40, 50, 3))];
        assert_eq!(disorders(&operations, &[(&[1], span(11, 19, 9))]), []);
        assert_eq!(disorders(&operations, &[(&[1, 2], span(25, 35, 9))]), []);
        for wrong in [&[0][..], &[2, 3]] {
            assert_eq!(
                disorders(&operations, &[(wrong, span(11, 19, 9))]),
                [Disorder::Look {
                    key: 0,
                    min: Bound { place: 1, attempt: Some(1) },
                    max: Bound { place: 1, attempt: Some(2) }
                }]
            );
        }
    }

    #[test]
    fn an_operation_out_of_order_is_told_once() {
        let operations = [(2, span(0, 10, 1)), (1, span(50, 60, 2))];
        let looks: [(&[usize], Span); 2] = [(&[2], span(11, 19, 8)), (&[2], span(20, 30, 9))];
        let found = disorders(&operations, &looks);
        assert!(
            matches!(found[..], [Disorder::Operation { later: PlacedSpan { place: 1, attempt: 2 }, .. }]),
            "{found:?}"
        );
    }

    #[test]
    fn looks_never_see_the_case_go_back() {
        let operations = [(1, span(0, 100, 1)), (2, span(0, 100, 2))];
        assert_eq!(disorders(&operations, &[(&[1], span(10, 20, 8)), (&[1, 2], span(30, 40, 9))]), []);
        assert_eq!(disorders(&operations, &[(&[1], span(10, 30, 8)), (&[0], span(30, 40, 9))]), []);
        assert_eq!(
            disorders(&operations, &[(&[1], span(10, 20, 8)), (&[0], span(30, 40, 9))]),
            [Disorder::Look {
                key: 1,
                min: Bound { place: 1, attempt: Some(8) },
                max: Bound { place: 2, attempt: None }
            }]
        );
    }
}
