//! The writer's side of the list of tuples.
//!
//! The list is divided into *segments* ([`TupleList`]), which are immutable and linked. A change copies one segment of at
//! most [`SEGMENT_MAX`] tuples, so its cost does not depend on the number of masks, which whoever writes entries chooses.
//! A segment that becomes longer is divided, one below [`SEGMENT_MIN`] is merged with a neighbour. Tables with few masks
//! have one segment.
//!
//! Each change of a segment is one store, of the link to it. A tuple that moves is added at its new place first and
//! removed from the old one with the next version ([`crate::version`]): readers see it at one of them at least.
//!
//! Threads: writer only. Tests: below; `ternary/tests.rs`; `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::lanes::Hasher;
use super::search::{Tuple, TupleList};
use std::cmp::Reverse;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Limit of the tuples of a segment. Tables with so many masks at most have one, as readers like best.
pub(super) const SEGMENT_MAX: usize = 256;
/// Least number of tuples of a segment, unless there is only one.
pub(super) const SEGMENT_MIN: usize = 64;

/// The order of tuples: the highest priority first, then by address.
type Place = (Reverse<i32>, *const Tuple);

struct Segment {
    /// The place of the first tuple; not used for the first segment, which may be empty.
    first: Place,
    list: *mut TupleList,
}

/// The segments, in order.
pub(super) struct Segments {
    segments: Vec<Segment>,
    /// How many tuples have been copied to other segments so far.
    copied: u64,
}

impl Segments {
    /// The list whose only segment is this empty one.
    pub(super) fn new(list: *mut TupleList) -> Segments {
        Segments { segments: vec![Segment { first: (Reverse(i32::MAX), ptr::null()), list }], copied: 0 }
    }

    /// How many tuples have been copied to other segments so far: the work that changes have caused.
    #[cfg(test)]
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// All segments.
    pub(super) fn lists(&self) -> impl Iterator<Item = *mut TupleList> + '_ {
        self.segments.iter().map(|segment| segment.list)
    }

    /// The segment and the position in it where a tuple is or belongs.
    fn find(&self, place: Place) -> (usize, usize) {
        let segment = self.segments.partition_point(|segment| segment.first <= place).saturating_sub(1);
        let tuples = &self.list(segment).tuples;
        (segment, tuples.partition_point(|(priority, tuple)| (Reverse(*priority), *tuple) < place))
    }

    fn list(&self, segment: usize) -> &TupleList {
        // SAFETY: segments of the list are alive.
        unsafe { &*self.segments[segment].list }
    }

    /// Adds a tuple. `head` is the link to the first segment; segments that are replaced go to `retire`.
    pub(super) fn insert(
        &mut self,
        head: &AtomicPtr<TupleList>,
        hasher: &Hasher,
        (priority, tuple): (i32, *const Tuple),
        retire: impl FnMut(*mut TupleList),
    ) {
        let (segment, at) = self.find((Reverse(priority), tuple));
        let new = self.list(segment).with(at, (priority, tuple), hasher);
        let lists = if new.tuples.len() > SEGMENT_MAX { halves(new.tuples, hasher) } else { vec![new] };
        self.replace(head, segment..segment + 1, lists, retire);
    }

    /// Removes a tuple that was added with this priority.
    pub(super) fn remove(
        &mut self,
        head: &AtomicPtr<TupleList>,
        hasher: &Hasher,
        (priority, tuple): (i32, *const Tuple),
        retire: impl FnMut(*mut TupleList),
    ) {
        let (segment, at) = self.find((Reverse(priority), tuple));
        let old = self.list(segment);
        debug_assert!(old.tuples[at] == (priority, tuple), "the tuple is listed");
        if old.tuples.len() > SEGMENT_MIN || self.segments.len() == 1 {
            let new = old.without(at, hasher);
            return self.replace(head, segment..segment + 1, vec![new], retire);
        }
        let first = if segment + 1 < self.segments.len() { segment } else { segment - 1 };
        let mut tuples: Vec<_> = [first, first + 1].iter().flat_map(|i| self.list(*i).tuples.iter().copied()).collect();
        tuples.retain(|listed| *listed != (priority, tuple));
        let lists =
            if tuples.len() > SEGMENT_MAX { halves(tuples, hasher) } else { vec![TupleList::new(tuples, hasher)] };
        self.replace(head, first..first + 2, lists, retire);
    }

    /// Publishes `lists` in place of some segments.
    fn replace(
        &mut self,
        head: &AtomicPtr<TupleList>,
        at: Range<usize>,
        lists: Vec<TupleList>,
        mut retire: impl FnMut(*mut TupleList),
    ) {
        let mut next = self.segments.get(at.end).map_or(ptr::null_mut(), |segment| segment.list);
        let mut new = Vec::with_capacity(lists.len());
        for list in lists.into_iter().rev() {
            self.copied += list.tuples.len() as u64;
            list.next.store(next, Ordering::Relaxed);
            let first =
                list.tuples.first().map_or((Reverse(i32::MAX), ptr::null()), |(p, tuple)| (Reverse(*p), *tuple));
            next = Box::into_raw(Box::new(list));
            new.push(Segment { first, list: next });
        }
        new.reverse();
        match at.start.checked_sub(1) {
            Some(before) => self.list(before).next.store(next, Ordering::Release),
            None => head.store(next, Ordering::Release),
        }
        self.segments.splice(at, new).for_each(|old| retire(old.list));
    }
}

/// Two segments of these tuples.
fn halves(mut tuples: Vec<(i32, *const Tuple)>, hasher: &Hasher) -> Vec<TupleList> {
    let second = tuples.split_off(tuples.len() / 2);
    vec![TupleList::new(tuples, hasher), TupleList::new(second, hasher)]
}
