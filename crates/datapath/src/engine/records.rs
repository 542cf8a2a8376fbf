//! The records of packets in the replication engine: a pool that grows to the largest burst's need and does not shrink.
//!
//! A record is the slots of a packet in memory (`ir::layout`). Those of a received batch come first, where its descriptors point; further
//! ones are taken in order and given back all together. Records never move, so descriptors may point at them. As records are paid for in
//! units of work, there are at most some megabytes of them.
//!
//! One worker, one thread.
#![allow(unsafe_code)]

use abi::packet::BATCH_MAX;
use base::ids::SlotId;
use ir::layout::{RecordLayout, words_of};
use ir::{BitSet, Intrinsic, Program, SlotKind};
use std::ops::Range;
use std::ptr::NonNull;

/// A packet's record: where its words begin. It is there until [`Records::free_all`], or as long as the pool for a received packet's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record(NonNull<u64>);

/// Where an intrinsic is in each record. One that is not there is in a word behind the record, which stays zero.
#[derive(Clone, Copy)]
struct Place {
    at: u32,
    /// Words of it besides the first.
    more: u32,
    mask: u64,
}

/// Where an intrinsic is read.
#[derive(Clone, Copy)]
pub(super) struct At(u32);

/// Values of intrinsics for several records: of those that the program reads, the word and what is written there.
pub(super) struct Constants<const N: usize> {
    count: usize,
    words: [(u32, u64); N],
    values: [(Intrinsic, u64); N],
}

/// Most words that are copied one by one: four cache lines. For these, a call of `memcpy` per range costs more than the
/// copies. Chosen.
const FEW_WORDS: usize = 32;

/// Words of a record, in order.
struct Words {
    ranges: Vec<Range<usize>>,
    /// Each of them, if they are few.
    few: Vec<u16>,
}

impl Words {
    fn new(ranges: impl Iterator<Item = Range<usize>>) -> Words {
        let ranges = merged(ranges);
        let are_few = ranges.iter().map(Range::len).sum::<usize>() <= FEW_WORDS;
        let few = ranges.iter().filter(|_| are_few).cloned().flatten().map(u16::try_from);
        let few = few.collect::<Result<_, _>>().unwrap_or_default();
        Words { ranges, few }
    }
}

/// By intrinsic.
type Places = [Place; Intrinsic::ALL.len()];

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// What the engine reads that it may have written itself.
const READ_AGAIN: &[Intrinsic] = &[Intrinsic::PacketLength];

pub(super) struct Records {
    /// Words of a record, and of the space for one, which is whole cache lines.
    words: usize,
    stride: usize,
    /// [`BATCH_MAX`] records each.
    blocks: Vec<Box<[u64]>>,
    first: Record,
    /// The next free one, how many follow it in its block, and the block.
    free: Record,
    left: usize,
    block: usize,
    /// Where intrinsics are read.
    places: Places,
    /// Where they are written: what nobody reads needs not be.
    read: Places,
    /// Whether one of these has more than a word.
    has_wide: bool,
    /// Words of the slots that each field list keeps, by the list's number.
    lists: Vec<(u64, Words)>,
    /// Words of the slots that are headers' state.
    headers: Words,
    saved: Vec<u64>,
}

impl Records {
    /// For a program whose operations read these slots.
    pub(super) fn new(program: &Program, read: &BitSet) -> Records {
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
            Some(Place { at: start as u32, more: (end - start - 1) as u32, mask })
        };
        let is_read = |which: &Intrinsic| {
            READ_AGAIN.contains(which)
                // A clone has the class of its session.
                || (program.queues && *which == Intrinsic::ClassOfService)
                || program.intrinsic(*which).is_some_and(|slot| read.contains(slot.index()))
        };
        let words = layout.words().max(1);
        let nowhere = Place { at: words as u32, more: 0, mask: 0 };
        let mut places = [nowhere; Intrinsic::ALL.len()];
        Intrinsic::ALL.iter().for_each(|which| places[*which as usize] = place(which).unwrap_or(nowhere));
        let mut to_write = places;
        Intrinsic::ALL.iter().filter(|which| !is_read(which)).for_each(|which| to_write[*which as usize] = nowhere);
        let of_headers = |kind: SlotKind| {
            matches!(kind, SlotKind::Field(_) | SlotKind::Valid(_) | SlotKind::VarbitLength(_) | SlotKind::HeaderPart)
        };
        let headers = (0..program.slots.len()).filter(|i| of_headers(program.slots[*i].kind)).map(SlotId::from_index);
        let list = |(number, slots): &(u64, Vec<SlotId>)| (*number, Words::new(slots.iter().map(|slot| range(*slot))));
        let mut records = Records {
            words,
            stride: (words + 1).next_multiple_of(LINE_WORDS),
            has_wide: to_write.iter().any(|place| place.more != 0),
            blocks: Vec::new(),
            first: Record(NonNull::dangling()),
            free: Record(NonNull::dangling()),
            left: 0,
            block: 0,
            places,
            read: to_write,
            lists: program.field_lists.iter().map(list).collect(),
            headers: Words::new(headers.map(range)),
            saved: Vec::new(),
        };
        records.grow();
        records.first = records.first_of(0);
        records.free_all();
        records
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.blocks.push(vec![0; self.stride * BATCH_MAX].into_boxed_slice());
    }

    /// Words of a record.
    pub(super) fn words_each(&self) -> usize {
        self.words
    }

    /// A new one with these words in it.
    #[inline]
    pub(super) fn holding(&mut self, words: &[u64]) -> Record {
        let new = self.take_one();
        self.fill(new, words);
        new
    }

    /// Bytes of a record.
    pub(super) fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// The record of a packet of the received batch.
    #[inline(always)]
    pub(super) fn received(&mut self, packet: usize) -> Record {
        debug_assert!(packet < BATCH_MAX);
        // SAFETY: the first block has as many.
        Record(unsafe { self.first.0.add(packet * self.stride) })
    }

    /// Gives all back but those of the received batch.
    #[inline]
    pub(super) fn free_all(&mut self) {
        if self.block != 0 {
            (self.left, self.block) = (0, 0);
        }
    }

    /// A block's first.
    fn first_of(&mut self, block: usize) -> Record {
        Record(NonNull::from(&mut *self.blocks[block]).cast())
    }

    /// One with whatever was in it.
    #[inline(always)]
    fn take_one(&mut self) -> Record {
        if self.left == 0 {
            self.next_block();
        }
        let taken = self.free;
        self.left -= 1;
        // SAFETY: another is in the block, or its end.
        self.free = Record(unsafe { taken.0.add(self.stride) });
        taken
    }

    #[cold]
    #[inline(never)]
    fn next_block(&mut self) {
        self.block += 1;
        if self.block == self.blocks.len() {
            self.grow();
        }
        (self.free, self.left) = (self.first_of(self.block), BATCH_MAX);
    }

    #[inline]
    fn words_mut(&mut self, record: Record) -> &mut [u64] {
        // SAFETY: a record's words stay where they are as long as the pool, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(record.0.as_ptr(), self.words) }
    }

    /// What is in one.
    #[inline]
    pub(super) fn words(&self, record: Record) -> &[u64] {
        // SAFETY: as for `words_mut`.
        unsafe { std::slice::from_raw_parts(record.0.as_ptr(), self.words) }
    }

    /// Fills one with the words of another one, of the same program.
    #[inline]
    pub(super) fn fill(&mut self, record: Record, words: &[u64]) {
        self.words_mut(record).copy_from_slice(words);
    }

    /// Where these intrinsics are in each record.
    #[inline(always)]
    pub(super) fn places<const N: usize>(&self, which: [Intrinsic; N]) -> [At; N] {
        which.map(|which| At(self.places[which as usize].at))
    }

    /// A place that holds nothing, and is zero.
    #[inline(always)]
    pub(super) fn nowhere(&self) -> At {
        At(self.words as u32)
    }

    /// The value of an intrinsic of at most 64 bits.
    #[inline(always)]
    pub(super) fn read(&self, record: Record, at: At) -> u64 {
        // SAFETY: places are within a record's stride, whose words stay where they are as long as the pool, which is borrowed.
        unsafe { *record.0.as_ptr().add(at.0 as usize) }
    }

    /// Values for several records: those that the program reads.
    #[inline]
    pub(super) fn constants<const N: usize>(&self, values: [(Intrinsic, u64); N]) -> Constants<N> {
        let mut all = Constants { count: 0, words: [(0, 0); N], values };
        for (which, value) in values {
            let place = &self.read[which as usize];
            all.words[all.count] = (place.at, value & place.mask);
            // One that is read has bits.
            all.count += usize::from(place.mask != 0);
        }
        all
    }

    /// Writes such values.
    #[inline(always)]
    pub(super) fn write<const N: usize>(&mut self, record: Record, all: &Constants<N>) {
        for (at, value) in &all.words[..all.count] {
            // SAFETY: as for `read`.
            unsafe { *record.0.as_ptr().add(*at as usize) = *value }
        }
        if self.has_wide {
            all.values.iter().for_each(|(which, value)| self.of(record).set(*which, *value));
        }
    }

    /// The one that compiled code finds there.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(super) fn at(&self, words: *mut u64) -> Record {
        Record(NonNull::new(words).expect("packets on their way have records"))
    }

    /// Whether a field list keeps anything.
    #[inline(always)]
    pub(super) fn keeps(&self, list: u64) -> bool {
        self.list(list).is_some_and(|at| !self.lists[at].1.ranges.is_empty())
    }

    /// Where compiled code finds it; it stays there.
    #[inline(always)]
    pub(super) fn pointer(&self, record: Record) -> *mut u64 {
        record.0.as_ptr()
    }

    /// A new one with the same in it.
    #[inline(always)]
    pub(super) fn copy(&mut self, of: Record) -> Record {
        let new = self.take_one();
        debug_assert!(of != new);
        // SAFETY: each record has a stride of words to itself, in whole lines.
        unsafe {
            let (from, to) = (of.0.as_ptr().cast::<[u64; LINE_WORDS]>(), new.0.as_ptr().cast::<[u64; LINE_WORDS]>());
            for line in 0..self.stride / LINE_WORDS {
                std::ptr::copy_nonoverlapping(from.add(line), to.add(line), 1);
            }
        }
        new
    }

    /// A new one with zeros.
    #[inline]
    pub(super) fn zeroed(&mut self) -> Record {
        let new = self.take_one();
        self.words_mut(new).fill(0);
        new
    }

    /// Copies the slots of a field list.
    #[inline(always)]
    pub(super) fn copy_list(&mut self, from: Record, to: Record, list: u64) {
        if let Some(at) = self.list(list) {
            self.copy_words(from, to, &self.lists[at].1);
        }
    }

    /// A new one with zeros but for the slots of a field list.
    pub(super) fn preserved(&mut self, of: Record, list: u64) -> Record {
        let new = self.zeroed();
        self.copy_list(of, new, list);
        new
    }

    /// Clears all of it but the slots of a field list.
    pub(super) fn preserve(&mut self, record: Record, list: u64) {
        let mut saved = std::mem::take(&mut self.saved);
        saved.clear();
        let list = self.list(list);
        // SAFETY: as for `words_mut`.
        let words = unsafe { std::slice::from_raw_parts_mut(record.0.as_ptr(), self.words) };
        let kept: &[Range<usize>] = list.map_or(&[], |at| &self.lists[at].1.ranges);
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
    #[inline(always)]
    pub(super) fn copy_headers(&mut self, from: Record, to: Record) {
        self.copy_words(from, to, &self.headers);
    }

    /// Copies some words of a record to another one.
    #[inline(always)]
    fn copy_words(&self, from: Record, to: Record, words: &Words) {
        assert!(from != to, "a copy is another record");
        for at in &words.few {
            let at = usize::from(*at);
            // SAFETY: words of records, which stay where they are as long as the pool, and nobody else uses.
            unsafe { *to.0.as_ptr().add(at) = *from.0.as_ptr().add(at) }
        }
        if words.few.is_empty() {
            for Range { start, end } in &words.ranges {
                // SAFETY: as above; two records do not overlap.
                unsafe {
                    let (from, to) = (from.0.as_ptr().add(*start), to.0.as_ptr().add(*start));
                    std::ptr::copy_nonoverlapping(from, to, end - start);
                }
            }
        }
    }

    #[inline(always)]
    fn list(&self, number: u64) -> Option<usize> {
        self.lists.iter().position(|(n, _)| *n == number)
    }

    /// A record's intrinsics.
    #[inline(always)]
    pub(super) fn of(&mut self, record: Record) -> Intrinsics<'_> {
        Intrinsics { record, places: &self.places, read: &self.read, has_wide: self.has_wide }
    }
}

/// A record's intrinsics.
#[derive(Clone, Copy)]
pub(super) struct Intrinsics<'r> {
    record: Record,
    places: &'r Places,
    read: &'r Places,
    has_wide: bool,
}

impl Intrinsics<'_> {
    #[inline(always)]
    fn word(self, at: u32) -> *mut u64 {
        // SAFETY: places are within a record's stride, whose words stay where they are as long as the pool, which is borrowed.
        unsafe { self.record.0.as_ptr().add(at as usize) }
    }

    /// An intrinsic's value; zero if the program has none.
    #[inline(always)]
    pub(super) fn get(self, which: Intrinsic) -> u64 {
        // SAFETY: as above; nobody else uses the pool.
        unsafe { *self.word(self.places[which as usize].at) }
    }

    /// Writes an intrinsic for the program, cut to its width, if that reads it.
    #[inline(always)]
    pub(super) fn set(self, which: Intrinsic, value: u64) {
        let place = &self.read[which as usize];
        // SAFETY: as above.
        unsafe { *self.word(place.at) = value & place.mask }
        if self.has_wide {
            self.clear_rest(which);
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_rest(self, which: Intrinsic) {
        let place = &self.read[which as usize];
        for i in 0..place.more {
            // SAFETY: as above.
            unsafe { *self.word(place.at + 1 + i) = 0 }
        }
    }

    /// Reads a request, and withdraws it.
    #[inline(always)]
    pub(super) fn take(self, which: Intrinsic) -> u64 {
        // SAFETY: as above.
        unsafe { std::mem::take(&mut *self.word(self.places[which as usize].at)) }
    }

    /// Withdraws a request.
    #[inline(always)]
    pub(super) fn clear(self, which: Intrinsic) {
        self.take(which);
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
