//! The records of packets that are on their way through the replication engine: a pool that grows to what a burst needs and stays.
//!
//! A record is the slots of a packet in memory (`ir::layout`). Those of a received batch come first, where its descriptors point; further
//! ones are taken in order and given back all together. Records never move, so descriptors may point at them. As records are paid for in
//! units of work, there are at most some megabytes of them.
//!
//! One worker, one thread.

use abi::packet::BATCH_MAX;
use base::ids::SlotId;
use ir::layout::{RecordLayout, words_of};
use ir::{Intrinsic, Program, SlotKind};
use std::ops::Range;

/// A packet's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record(u32);

/// Where an intrinsic is in each record.
#[derive(Clone, Copy)]
struct Place {
    at: u32,
    words: u32,
    mask: u64,
}

pub(super) struct Records {
    /// Words of a record.
    words: usize,
    /// [`BATCH_MAX`] records each.
    blocks: Vec<Box<[u64]>>,
    used: usize,
    /// By intrinsic.
    places: [Option<Place>; Intrinsic::ALL.len()],
    /// Words of the slots that each field list keeps, by the list's number.
    lists: Vec<(u64, Vec<Range<usize>>)>,
    /// Words of the slots that are headers' state.
    headers: Vec<Range<usize>>,
    saved: Vec<u64>,
}

impl Records {
    pub(super) fn new(program: &Program) -> Records {
        let layout = RecordLayout::new(program);
        let range = |slot: SlotId| {
            let at = layout.offset(slot);
            at..at + words_of(program.width(slot)) as usize
        };
        let place = |which: &Intrinsic| {
            let slot = program.intrinsic(*which)?;
            let Range { start, end } = range(slot);
            let width = program.width(slot);
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            Some(Place { at: start as u32, words: (end - start) as u32, mask })
        };
        let mut places = [None; Intrinsic::ALL.len()];
        Intrinsic::ALL.iter().for_each(|which| places[*which as usize] = place(which));
        let of_headers = |kind: SlotKind| {
            matches!(
                kind,
                SlotKind::Field(_) | SlotKind::Valid(_) | SlotKind::VarbitLength(_) | SlotKind::HeaderPart
            )
        };
        let headers = (0..program.slots.len()).filter(|i| of_headers(program.slots[*i].kind)).map(SlotId::from_index);
        let list = |(number, slots): &(u64, Vec<SlotId>)| (*number, merged(slots.iter().map(|slot| range(*slot))));
        let mut records = Records {
            words: layout.words().max(1),
            blocks: Vec::new(),
            used: 0,
            places,
            lists: program.field_lists.iter().map(list).collect(),
            headers: merged(headers.map(range)),
            saved: Vec::new(),
        };
        records.grow();
        records.free_all();
        records
    }

    fn grow(&mut self) {
        self.blocks.push(vec![0; self.words * BATCH_MAX].into_boxed_slice());
    }

    /// Bytes of a record.
    pub(super) fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// The record of a packet of the received batch.
    #[inline]
    pub(super) fn received(&self, packet: usize) -> Record {
        debug_assert!(packet < BATCH_MAX);
        Record(packet as u32)
    }

    /// Gives all back but those of the received batch.
    pub(super) fn free_all(&mut self) {
        self.used = BATCH_MAX;
    }

    /// One with whatever was in it.
    #[inline]
    fn take_one(&mut self) -> Record {
        if self.used == self.blocks.len() * BATCH_MAX {
            self.grow();
        }
        self.used += 1;
        Record(self.used as u32 - 1)
    }

    #[inline]
    fn find(&self, record: Record) -> (usize, Range<usize>) {
        let at = record.0 as usize % BATCH_MAX * self.words;
        (record.0 as usize / BATCH_MAX, at..at + self.words)
    }

    #[inline]
    fn words_mut(&mut self, record: Record) -> &mut [u64] {
        let (block, range) = self.find(record);
        &mut self.blocks[block][range]
    }

    /// Where compiled code finds it; it stays there.
    #[inline]
    pub(super) fn pointer(&mut self, record: Record) -> *mut u64 {
        self.words_mut(record).as_mut_ptr()
    }

    /// The words of both.
    #[inline]
    fn both(&mut self, from: Record, to: Record) -> (&[u64], &mut [u64]) {
        let ((a, from), (b, to)) = (self.find(from), self.find(to));
        if a == b {
            debug_assert!(from.end <= to.start, "copies are taken after what they are copies of");
            let (before, behind) = self.blocks[a].split_at_mut(to.start);
            (&before[from], &mut behind[..self.words])
        } else {
            let [a, b] = self.blocks.get_disjoint_mut([a, b]).expect("two blocks that exist");
            (&a[from], &mut b[to])
        }
    }

    /// A new one with the same in it.
    #[inline]
    pub(super) fn copy(&mut self, of: Record) -> Record {
        let new = self.take_one();
        let (from, to) = self.both(of, new);
        to.copy_from_slice(from);
        new
    }

    /// A new one with zeros but for the slots of a field list.
    pub(super) fn preserved(&mut self, of: Record, list: u64) -> Record {
        let new = self.take_one();
        self.words_mut(new).fill(0);
        if let Some(at) = self.list(list) {
            let list = std::mem::take(&mut self.lists[at].1);
            self.copy_ranges(of, new, &list);
            self.lists[at].1 = list;
        }
        new
    }

    /// Clears all of it but the slots of a field list.
    pub(super) fn preserve(&mut self, record: Record, list: u64) {
        let mut saved = std::mem::take(&mut self.saved);
        saved.clear();
        let list = self.list(list);
        let (block, range) = self.find(record);
        let words = &mut self.blocks[block][range];
        let kept: &[Range<usize>] = list.map_or(&[], |at| &self.lists[at].1);
        kept.iter().for_each(|range| saved.extend_from_slice(&words[range.clone()]));
        words.fill(0);
        let mut from = 0;
        for range in kept {
            words[range.clone()].copy_from_slice(&saved[from..from + range.len()]);
            from += range.len();
        }
        self.saved = saved;
    }

    /// Copies headers' fields and validity.
    pub(super) fn copy_headers(&mut self, from: Record, to: Record) {
        let headers = std::mem::take(&mut self.headers);
        self.copy_ranges(from, to, &headers);
        self.headers = headers;
    }

    fn copy_ranges(&mut self, from: Record, to: Record, ranges: &[Range<usize>]) {
        let (from, to) = self.both(from, to);
        ranges.iter().for_each(|range| to[range.clone()].copy_from_slice(&from[range.clone()]));
    }

    fn list(&self, number: u64) -> Option<usize> {
        self.lists.iter().position(|(n, _)| *n == number)
    }

    /// An intrinsic's value; zero if the program has none.
    #[inline]
    pub(super) fn get(&self, record: Record, which: Intrinsic) -> u64 {
        let Some(place) = self.places[which as usize] else { return 0 };
        let (block, range) = self.find(record);
        self.blocks[block][range][place.at as usize]
    }

    /// Writes an intrinsic, cut to its width, if the program has it.
    #[inline]
    pub(super) fn set(&mut self, record: Record, which: Intrinsic, value: u64) {
        let Some(place) = self.places[which as usize] else { return };
        let words = self.words_mut(record);
        words[place.at as usize] = value & place.mask;
        if place.words > 1 {
            words[place.at as usize + 1..][..place.words as usize - 1].fill(0);
        }
    }

    /// Reads and clears.
    #[inline]
    pub(super) fn take(&mut self, record: Record, which: Intrinsic) -> u64 {
        let value = self.get(record, which);
        if value != 0 {
            self.set(record, which, 0);
        }
        value
    }
}

/// Ranges in order, those next to each other as one.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut sorted: Vec<Range<usize>> = ranges.collect();
    sorted.sort_by_key(|range| range.start);
    let mut all: Vec<Range<usize>> = Vec::new();
    for range in sorted {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged() {
        assert_eq!(merged([4..6, 0..1, 1..2, 6..7, 9..9].into_iter()), [0..2, 4..7, 9..9]);
    }
}
