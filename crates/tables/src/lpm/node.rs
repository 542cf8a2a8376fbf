//! What the trie is made of, and how readers walk it.
//!
//! # Memory layout (what inlined walks rely on)
//!
//! A **place** is one word: a pointer with a tag in its two highest bits, which no address of user space has (an entry may
//! have any address).
//!
//! | tag | the rest |
//! | --- | --- |
//! | [`TAG_ENTRY`] | the entry of the longest prefix that ends at this level, or null |
//! | [`TAG_NODE`] | a [`Node`] for the next 8 bits |
//! | [`TAG_SKIP`] | a [`Node`] further down, at its `depth`: all prefixes below agree on the bits before it |
//! | [`TAG_LIST`] | a [`List`] of a few prefixes |
//!
//! A **directory** is 65,536 places, one for each value of the first 16 bits.
//!
//! A **node** tells 256 values of 8 bits apart. Neighbouring values with the same answer are one *run*, and only runs take
//! memory: a bitmap has a one where a run starts, and the number of ones up to a value, less one, is the position of its
//! run's place. (The bitmap over leaves is Asai and Ohara's: "Poptrie: a compressed trie with population count for fast
//! and scalable software IP routing table lookup", section 3.3.) It lies so that a step reads two cache lines:
//!
//! ```text
//! offset 16 q       quarter q (values 64 q to 64 q + 63): its 64 bits of the bitmap
//! offset 16 q + 8   base << 16 | number of runs that start in the quarters before
//! offset 64         value, depth: for nodes behind TAG_SKIP
//! LEAVES            one place for each run
//! behind them       one byte for each run, the writer's
//! ```
//!
//! *base* is the entry of the longest prefix that ends *above* the node, in the level of the place that leads here: what a
//! key has that finds nothing here. It is the same in all quarters. A place in a node that leads on is a run of its own.
//!
//! # Walk
//!
//! ```text
//! best = the default; place = directory[key >> (W - 16)]; depth = 16
//! while place has TAG_NODE:
//!     v = the 8 bits behind `depth`; q = node + 16 * (v >> 6)
//!     word = q[8]; if word >> 16 != 0 { best = word >> 16 }           // before the place
//!     n = (word & 0xffff) + popcount(q[0] & (!0 >> (63 - (v & 63))))
//!     place = node[LEAVES + 8 * (n - 1)]; depth += 8
//! if place has TAG_ENTRY: the result is place, or best if it is null; otherwise: walk.rs
//! ```
//!
//! Threads: readers walk ([`super::walk`]); making and changing memory is the writer's ([`super::trie`]).
#![allow(unsafe_code)]

use super::spare::{Dead, Spare};
use super::word::{Prefix, STRIDE, Word};
use abi::EntryHeader;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Values that a node tells apart.
pub const FANOUT: usize = 1 << STRIDE;
/// The highest bits of a place.
pub const TAG_MASK: usize = 3 << 62;
/// An entry, or nothing.
pub const TAG_ENTRY: usize = 0;
/// A [`List`].
pub const TAG_LIST: usize = 1 << 62;
/// A [`Node`] for the bits right behind the place's.
pub const TAG_NODE: usize = 2 << 62;
/// A [`Node`] for bits further down.
pub const TAG_SKIP: usize = 3 << 62;

/// One place.
pub type Place = AtomicPtr<u8>;

const QUARTERS: usize = 4;
/// Bits of a quarter's second word below the base.
const RANK_BITS: u32 = 16;

/// Bytes of a quarter's bitmap and word.
pub const QUARTER_BYTES: usize = size_of::<Quarter>();

#[repr(C)]
struct Quarter {
    /// Fixed once linked.
    starts: u64,
    word: AtomicU64,
}

/// 256 values of the bits from `depth` on. See the file's text.
#[repr(C)]
pub struct Node<T> {
    quarters: [Quarter; QUARTERS],
    /// The first `depth` bits of all prefixes below, then zeros. Fixed once linked.
    pub value: T,
    /// A multiple of [`STRIDE`]. Fixed once linked.
    pub depth: u32,
    leaves: [Place; 0],
}

/// The header of a list; `count` [`Item`]s follow, longest prefix first.
#[repr(C)]
pub struct List<T> {
    /// As a node's.
    base: AtomicPtr<EntryHeader>,
    count: u64,
    items: [Item<T>; 0],
}

/// A prefix in a list.
#[repr(C)]
pub struct Item<T> {
    value: T,
    /// `entry << 16 | len`.
    word: AtomicU64,
}

/// The tag of a place's content.
#[inline(always)]
pub fn tag_of(content: *mut u8) -> usize {
    content.addr() & TAG_MASK
}

/// The pointer in a place's content.
#[inline(always)]
pub fn untag<P>(content: *mut u8) -> *mut P {
    content.map_addr(|a| a & !TAG_MASK).cast()
}

/// A place's content.
pub fn tagged<P>(pointer: *mut P, tag: usize) -> *mut u8 {
    pointer.cast::<u8>().map_addr(|a| a | tag)
}

/// A pointer and 16 bits in one word: user space has 47 bits of addresses.
fn pack(entry: *mut EntryHeader, low: u64) -> u64 {
    let address = entry.expose_provenance() as u64;
    debug_assert!(address >> (64 - RANK_BITS) == 0 && low >> RANK_BITS == 0);
    address << RANK_BITS | low
}

#[inline(always)]
fn entry_of(word: u64) -> *mut EntryHeader {
    ptr::with_exposed_provenance_mut((word >> RANK_BITS) as usize)
}

/// Neighbouring runs of a node that is being made.
#[derive(Default)]
pub struct Runs {
    /// The bitmap.
    pub starts: [u64; QUARTERS],
    /// What the runs' places hold.
    pub leaves: Vec<*mut u8>,
    /// Of each run, bits beyond `depth` of the prefix whose entry it has, or leads on with as base; 0 for none.
    pub lens: Vec<u8>,
    /// The last run, also when it is not among these.
    last: Option<(*mut u8, u8)>,
}

impl Runs {
    /// Forgets all; the next run comes behind `last`.
    pub fn clear(&mut self, last: Option<(*mut u8, u8)>) {
        self.starts = [0; QUARTERS];
        self.leaves.clear();
        self.lens.clear();
        self.last = last;
    }

    /// Whether a run behind the last one would be a part of it.
    pub fn continues(&self, leaf: *mut u8, len: u8) -> bool {
        self.last == Some((leaf, len)) && tag_of(leaf) == TAG_ENTRY
    }

    /// Adds a run behind the last one, or lengthens that.
    pub fn push(&mut self, start: usize, leaf: *mut u8, len: u8) {
        if self.continues(leaf, len) {
            return;
        }
        self.starts[start / 64] |= 1 << (start % 64);
        self.leaves.push(leaf);
        self.lens.push(len);
        self.last = Some((leaf, len));
    }
}

impl<T: Word> Node<T> {
    /// Offset of the runs' places.
    pub const LEAVES: usize = size_of::<Node<T>>();

    fn bytes(runs: usize) -> usize {
        Self::LEAVES + runs * (size_of::<Place>() + 1)
    }

    /// A new node without prefixes.
    pub fn empty(spare: &mut Spare, value: T, depth: u32, base: *mut EntryHeader) -> *mut Node<T> {
        let node = Self::allocate(spare, value.prefix(depth), depth, base, [1, 0, 0, 0], 1);
        // SAFETY: the node has one run.
        unsafe {
            Self::leaf(node, 0).store(ptr::null_mut(), Ordering::Relaxed);
            Self::lens(node).write(0);
        }
        node
    }

    /// A copy of a node with another base.
    ///
    /// # Safety
    /// The node is alive.
    pub unsafe fn copy(spare: &mut Spare, node: *mut Node<T>, base: *mut EntryHeader) -> *mut Node<T> {
        // SAFETY: the caller's promise; both nodes have as many runs.
        unsafe {
            let count = (*node).count();
            let new = Self::allocate(spare, (*node).value, (*node).depth, base, (*node).starts(), count);
            copy_places(Self::leaf(node, 0), Self::leaf(new, 0), count);
            ptr::copy_nonoverlapping(Self::lens(node), Self::lens(new), count);
            new
        }
    }

    /// A copy of a node with the bitmap `starts`, its runs below `head`, then `middle`, then its runs from `tail` on.
    ///
    /// # Safety
    /// The node is alive, and the bitmap has as many ones.
    pub unsafe fn splice(
        spare: &mut Spare,
        node: *mut Node<T>,
        starts: [u64; QUARTERS],
        head: usize,
        middle: &Runs,
        tail: usize,
    ) -> *mut Node<T> {
        // SAFETY: the caller's promise; the parts are as long as the new node, or as what the old one has.
        unsafe {
            let (count, added) = ((*node).count(), middle.leaves.len());
            let behind = count - tail;
            let new_count = head + added + behind;
            let new = Self::allocate(spare, (*node).value, (*node).depth, (*node).base(), starts, new_count);
            debug_assert_eq!((*new).count(), new_count);
            let leaf = |run: usize| ptr::from_ref(Self::leaf(new, 0)).add(run);
            copy_places(Self::leaf(node, 0), leaf(0), head);
            ptr::copy_nonoverlapping(middle.leaves.as_ptr(), leaf(head).cast_mut().cast::<*mut u8>(), added);
            copy_places(ptr::from_ref(Self::leaf(node, 0)).add(tail), leaf(head + added), behind);
            let (old_lens, lens) = (Self::lens(node), Self::lens(new));
            ptr::copy_nonoverlapping(old_lens, lens, head);
            ptr::copy_nonoverlapping(middle.lens.as_ptr(), lens.add(head), added);
            ptr::copy_nonoverlapping(old_lens.add(tail), lens.add(head + added), behind);
            new
        }
    }

    /// A node whose places and bytes are not written yet.
    fn allocate(
        spare: &mut Spare,
        value: T,
        depth: u32,
        base: *mut EntryHeader,
        starts: [u64; QUARTERS],
        count: usize,
    ) -> *mut Node<T> {
        let mut rank = 0;
        let quarters = starts.map(|starts| {
            let quarter = Quarter { starts, word: AtomicU64::new(pack(base, rank)) };
            rank += u64::from(starts.count_ones());
            quarter
        });
        // SAFETY: the memory is aligned to 16 and larger than the node.
        unsafe {
            let node = spare.take(Self::bytes(count)).cast::<Node<T>>();
            node.write(Node { quarters, value, depth, leaves: [] });
            node
        }
    }

    /// The bitmap.
    pub fn starts(&self) -> [u64; QUARTERS] {
        [0, 1, 2, 3].map(|q: usize| self.quarters[q].starts)
    }

    /// Number of runs.
    pub fn count(&self) -> usize {
        self.starts().iter().map(|s| s.count_ones() as usize).sum()
    }

    /// The run that a value is in.
    pub fn run_of(&self, value: usize) -> usize {
        let before: u32 = self.quarters[..value / 64].iter().map(|q| q.starts.count_ones()).sum();
        let here = self.quarters[value / 64].starts & (u64::MAX >> (63 - value % 64));
        (before + here.count_ones()) as usize - 1
    }

    /// The place of a run.
    ///
    /// # Safety
    /// `node` is alive and has this run.
    pub unsafe fn leaf<'a>(node: *const Node<T>, run: usize) -> &'a Place {
        // SAFETY: the places follow the node.
        unsafe { &*node.cast::<u8>().add(Self::LEAVES).cast::<Place>().add(run) }
    }

    /// The writer's bytes, one for each run.
    ///
    /// # Safety
    /// `node` is alive.
    pub unsafe fn lens(node: *mut Node<T>) -> *mut u8 {
        // SAFETY: the bytes follow the places.
        unsafe { node.cast::<u8>().add(Self::LEAVES + size_of::<Place>() * (*node).count()) }
    }

    /// The entry of keys that find nothing here.
    pub fn base(&self) -> *mut EntryHeader {
        entry_of(self.quarters[0].word.load(Ordering::Relaxed))
    }

    fn set_base(&self, base: *mut EntryHeader) {
        for quarter in &self.quarters {
            let rank = quarter.word.load(Ordering::Relaxed) & ((1 << RANK_BITS) - 1);
            quarter.word.store(pack(base, rank), Ordering::Release);
        }
    }

    /// To be freed later.
    ///
    /// # Safety
    /// `node` is alive; it is unlinked, and taken here once.
    pub unsafe fn dead(node: *mut Node<T>) -> Dead {
        // SAFETY: the caller's promise.
        Dead::new(node, Self::bytes(unsafe { (*node).count() }))
    }

    /// One step of a walk: the base's entry or else `best`, and the place of the value.
    ///
    /// # Safety
    /// `node` is alive.
    #[inline(always)]
    pub unsafe fn step<'a>(
        node: *const Node<T>,
        value: usize,
        best: *mut EntryHeader,
    ) -> (*mut EntryHeader, &'a Place) {
        // SAFETY: a value has 8 bits; the count of runs up to it is between 1 and the node's runs.
        unsafe {
            let quarter = &*node.cast::<Quarter>().add(value >> 6);
            let word = quarter.word.load(Ordering::Acquire);
            let base = entry_of(word);
            let here = quarter.starts & (u64::MAX >> (63 - (value & 63)));
            let run = (word & 0xffff) as usize + here.count_ones() as usize - 1;
            let place = &*node.cast::<u8>().add(Self::LEAVES).cast::<Place>().add(run);
            (if base.is_null() { best } else { base }, place)
        }
    }
}

/// Copies places of a node, which only the writer changes, to one that is not linked.
///
/// # Safety
/// There are as many at both ends.
unsafe fn copy_places(from: *const Place, to: *const Place, count: usize) {
    // SAFETY: the caller's promise; readers only read.
    unsafe { ptr::copy_nonoverlapping(from.cast::<*mut u8>(), to.cast_mut().cast::<*mut u8>(), count) };
}

impl<T: Word> Item<T> {
    fn new(prefix: Prefix<T>, entry: *mut EntryHeader) -> Item<T> {
        Item { value: prefix.value, word: AtomicU64::new(pack(entry, prefix.len.into())) }
    }

    /// Prefix and entry.
    pub fn get(&self) -> (Prefix<T>, *mut EntryHeader) {
        let word = self.word.load(Ordering::Relaxed);
        (Prefix { value: self.value, len: (word & 0xffff) as u32 }, entry_of(word))
    }

    /// Another entry.
    pub fn set(&self, entry: *mut EntryHeader) {
        let len = self.word.load(Ordering::Relaxed) & 0xffff;
        self.word.store(pack(entry, len), Ordering::Release);
    }
}

impl<T: Word> List<T> {
    fn bytes(count: usize) -> usize {
        size_of::<List<T>>() + count * size_of::<Item<T>>()
    }

    /// A new list of these prefixes, which are ordered longest first.
    pub fn make(spare: &mut Spare, base: *mut EntryHeader, items: &[(Prefix<T>, *mut EntryHeader)]) -> *mut List<T> {
        // SAFETY: the memory is aligned to 16; header and items lie inside.
        unsafe {
            let list = spare.take(Self::bytes(items.len())).cast::<List<T>>();
            list.write(List { base: AtomicPtr::new(base), count: items.len() as u64, items: [] });
            for (i, (prefix, entry)) in items.iter().enumerate() {
                list.add(1).cast::<Item<T>>().add(i).write(Item::new(*prefix, *entry));
            }
            list
        }
    }

    /// Its prefixes.
    ///
    /// # Safety
    /// `list` is alive.
    #[inline(always)]
    pub unsafe fn items<'a>(list: *const List<T>) -> &'a [Item<T>] {
        // SAFETY: `count` items follow the header, whose size is a multiple of their alignment.
        unsafe { std::slice::from_raw_parts(list.add(1).cast::<Item<T>>(), (*list).count as usize) }
    }

    /// The entry of keys that no prefix here matches.
    pub fn base(&self) -> *mut EntryHeader {
        self.base.load(Ordering::Relaxed)
    }

    /// To be freed later.
    ///
    /// # Safety
    /// As [`Node::dead`].
    pub unsafe fn dead(list: *mut List<T>) -> Dead {
        // SAFETY: the caller's promise.
        Dead::new(list, Self::bytes(unsafe { (*list).count } as usize))
    }

    /// The entry of the longest prefix that a key has, or of the base, or `best`.
    ///
    /// # Safety
    /// `list` is alive.
    #[inline(always)]
    pub unsafe fn find(list: *const List<T>, key: T, best: *mut EntryHeader) -> *mut EntryHeader {
        // SAFETY: the caller's promise.
        let (base, items) = unsafe { ((*list).base.load(Ordering::Acquire), List::items(list)) };
        for item in items {
            let word = item.word.load(Ordering::Acquire);
            if key.agrees(item.value, (word & 0xffff) as u32) {
                return entry_of(word);
            }
        }
        if base.is_null() { best } else { base }
    }
}

/// Gives what a place leads to another base; nothing for an entry.
///
/// # Safety
/// The content is of a trie of `T` and alive.
pub unsafe fn set_base<T: Word>(content: *mut u8, base: *mut EntryHeader) {
    // SAFETY: the tag says what is there.
    unsafe {
        match tag_of(content) {
            TAG_ENTRY => {}
            TAG_LIST => (*untag::<List<T>>(content)).base.store(base, Ordering::Release),
            _ => (*untag::<Node<T>>(content)).set_base(base),
        }
    }
}
