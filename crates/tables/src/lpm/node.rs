//! Nodes and lists of the multi-bit trie: memory layout and one lookup step.
//!
//! # Memory layout (inlined lookups rely on it)
//!
//! A **place** is one slot of the trie: a word with a pointer and, in its two highest bits, a tag. Addresses of user
//! space leave these bits zero. (Entries may lie at any address, so the low bits are not free.)
//!
//! | tag | the pointer |
//! | --- | --- |
//! | [`TAG_ENTRY`] | the entry of the longest prefix that ends at this level, or null |
//! | [`TAG_NODE`] | a [`Node`] for the next 8 bits |
//! | [`TAG_SKIP`] | a [`Node`] at its own `depth` (path compression): all prefixes below it share the skipped bits |
//! | [`TAG_LIST`] | a [`List`] of a few prefixes |
//!
//! A **directory** is 65,536 places, one for each value of the first 16 bits.
//!
//! A **node** branches on 8 bits (256 values). Neighbouring values with equal contents form one *run*, and only runs
//! take memory: a bitmap has a one where a run starts, and the number of ones up to and including a value, minus one,
//! is the index of its run's place. (This is the `leafvec` bitmap of Asai and Ohara, "Poptrie: a compressed trie with
//! population count for fast and scalable software IP routing table lookup", section 3.3.) With this layout a step
//! reads two cache lines:
//!
//! ```text
//! offset 16 q       quarter q (values 64 q to 64 q + 63): its 64 bits of the bitmap
//! offset 16 q + 8   base << 16 | number of runs that start in the quarters before
//! offset 64         value, depth: for nodes reached through TAG_SKIP
//! LEAVES            one place for each run
//! after them        one byte for each run, used by the writer only
//! ```
//!
//! *base* is the entry of the longest prefix that ends *above* the node, within the level of the place that points
//! here. It is the result for a key that matches nothing in the node, and is the same in all quarters. A place in a
//! node that points at a node or list is a run of its own.
//!
//! # Lookup
//!
//! ```text
//! best = the default; place = directory[key >> (W - 16)]; depth = 16
//! while place has TAG_NODE:
//!     v = the 8 bits after the first `depth`; q = node + 16 * (v >> 6)
//!     word = q[8]; if word >> 16 != 0 { best = word >> 16 }           // before the place
//!     n = (word & 0xffff) + popcount(q[0] & (!0 >> (63 - (v & 63))))
//!     place = node[LEAVES + 8 * (n - 1)]; depth += 8
//! if place has TAG_ENTRY: the result is place, or best if it is null; otherwise: walk.rs
//! ```
//!
//! Threads: readers look up ([`super::walk`]); only the writer makes and changes nodes ([`super::trie`]).
#![allow(unsafe_code)]

use super::allocator::{NodeAllocator, Unlinked};
use super::word::{Prefix, STRIDE, Word};
use abi::EntryHeader;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Values that a node branches on.
pub const FANOUT: usize = 1 << STRIDE;
/// The tag bits of a place: its two highest.
pub const TAG_MASK: usize = 3 << 62;
/// Tag: an entry, or null.
pub const TAG_ENTRY: usize = 0;
/// Tag: a [`List`].
pub const TAG_LIST: usize = 1 << 62;
/// Tag: a [`Node`] for the 8 bits that follow the place's.
pub const TAG_NODE: usize = 2 << 62;
/// Tag: a [`Node`] whose `depth` is greater than the place's.
pub const TAG_SKIP: usize = 3 << 62;

/// A slot of a trie: a tagged pointer.
pub type Place = AtomicPtr<u8>;

const QUARTERS: usize = 4;
/// Bits below the base in a quarter's second word.
const RANK_BITS: u32 = 16;

/// Bytes of a quarter: its part of the bitmap, and its word.
pub const QUARTER_BYTES: usize = size_of::<Quarter>();

#[repr(C)]
struct Quarter {
    /// Immutable once linked.
    starts: u64,
    word: AtomicU64,
}

/// A node for 256 values of the 8 bits from `depth` on. The module's documentation has the layout.
#[repr(C)]
pub struct Node<T> {
    quarters: [Quarter; QUARTERS],
    /// The first `depth` bits that all prefixes below share, then zeros. Immutable once linked.
    pub value: T,
    /// Bits before those that the node branches on; a multiple of [`STRIDE`]. Immutable once linked.
    pub depth: u32,
    leaves: [Place; 0],
}

/// The header of a list; `count` [`Item`]s follow, longest prefix first.
#[repr(C)]
pub struct List<T> {
    /// The result if no item matches; as a node's base.
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

/// Packs a pointer and 16 bits into one word; addresses of user space have 47 bits.
fn pack(entry: *mut EntryHeader, low: u64) -> u64 {
    let address = entry.expose_provenance() as u64;
    debug_assert!(address >> (64 - RANK_BITS) == 0 && low >> RANK_BITS == 0);
    address << RANK_BITS | low
}

#[inline(always)]
fn entry_of(word: u64) -> *mut EntryHeader {
    ptr::with_exposed_provenance_mut((word >> RANK_BITS) as usize)
}

/// Consecutive runs of a node under construction.
#[derive(Default)]
pub struct Runs {
    /// The bitmap.
    pub starts: [u64; QUARTERS],
    /// The contents of the runs' places.
    pub leaves: Vec<*mut u8>,
    /// For each run, how many bits beyond `depth` the prefix has whose entry is the run's entry or base; 0 for no
    /// prefix.
    pub lens: Vec<u8>,
    /// The run before the next one; it may be one that precedes these.
    last: Option<(*mut u8, u8)>,
}

impl Runs {
    /// Empties it; the next run follows `last`.
    pub fn clear(&mut self, last: Option<(*mut u8, u8)>) {
        self.starts = [0; QUARTERS];
        self.leaves.clear();
        self.lens.clear();
        self.last = last;
    }

    /// Whether a run with this content would merge with the last one.
    pub fn continues(&self, leaf: *mut u8, len: u8) -> bool {
        self.last == Some((leaf, len)) && tag_of(leaf) == TAG_ENTRY
    }

    /// Appends a run that starts at value `start`, or extends the last one.
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
    /// Offset of the runs' places in bytes.
    pub const LEAVES: usize = size_of::<Node<T>>();

    fn bytes(runs: usize) -> usize {
        Self::LEAVES + runs * (size_of::<Place>() + 1)
    }

    /// A new node without prefixes.
    pub fn empty(allocator: &mut NodeAllocator, value: T, depth: u32, base: *mut EntryHeader) -> *mut Node<T> {
        let node = Self::allocate(allocator, value.prefix(depth), depth, base, [1, 0, 0, 0], 1);
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
    pub unsafe fn copy(allocator: &mut NodeAllocator, node: *mut Node<T>, base: *mut EntryHeader) -> *mut Node<T> {
        // SAFETY: the caller's promise; both nodes have as many runs.
        unsafe {
            let count = (*node).count();
            let new = Self::allocate(allocator, (*node).value, (*node).depth, base, (*node).starts(), count);
            copy_places(Self::leaf(node, 0), Self::leaf(new, 0), count);
            ptr::copy_nonoverlapping(Self::lens(node), Self::lens(new), count);
            new
        }
    }

    /// A copy of a node with its runs before `head`, then `middle`, then its runs from `tail` on. `starts` is the new
    /// bitmap.
    ///
    /// # Safety
    /// The node is alive, and `starts` has one bit for each run of the new node.
    pub unsafe fn splice(
        allocator: &mut NodeAllocator,
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
            let new = Self::allocate(allocator, (*node).value, (*node).depth, (*node).base(), starts, new_count);
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

    /// A node whose places and lengths are not written yet.
    fn allocate(
        allocator: &mut NodeAllocator,
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
            let node = allocator.take(Self::bytes(count)).cast::<Node<T>>();
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

    /// The index of the run that contains a value.
    pub fn run_of(&self, value: usize) -> usize {
        let before: u32 = self.quarters[..value / 64].iter().map(|q| q.starts.count_ones()).sum();
        let here = self.quarters[value / 64].starts & (u64::MAX >> (63 - value % 64));
        (before + here.count_ones()) as usize - 1
    }

    /// The place of run number `run`.
    ///
    /// # Safety
    /// `node` is alive and has this run.
    pub unsafe fn leaf<'a>(node: *const Node<T>, run: usize) -> &'a Place {
        // SAFETY: the places follow the node.
        unsafe { &*node.cast::<u8>().add(Self::LEAVES).cast::<Place>().add(run) }
    }

    /// The writer's prefix lengths, one byte for each run.
    ///
    /// # Safety
    /// `node` is alive.
    pub unsafe fn lens(node: *mut Node<T>) -> *mut u8 {
        // SAFETY: the bytes follow the places.
        unsafe { node.cast::<u8>().add(Self::LEAVES + size_of::<Place>() * (*node).count()) }
    }

    /// The result for keys that match nothing in the node.
    pub fn base(&self) -> *mut EntryHeader {
        entry_of(self.quarters[0].word.load(Ordering::Relaxed))
    }

    fn set_base(&self, base: *mut EntryHeader) {
        for quarter in &self.quarters {
            let rank = quarter.word.load(Ordering::Relaxed) & ((1 << RANK_BITS) - 1);
            quarter.word.store(pack(base, rank), Ordering::Release);
        }
    }

    /// The node's memory, to be freed when no reader can see it.
    ///
    /// # Safety
    /// `node` is alive and unlinked, and this is called once for it.
    pub unsafe fn unlinked(node: *mut Node<T>) -> Unlinked {
        // SAFETY: the caller's promise.
        Unlinked::new(node, Self::bytes(unsafe { (*node).count() }))
    }

    /// One step of a lookup: the best entry so far (the base, or `best` if the base is null), and the place of the
    /// value.
    ///
    /// # Safety
    /// `node` is alive, and `value` is below 256.
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

/// Copies places of a node, which only the writer changes, into a node that is not linked yet.
///
/// # Safety
/// Both arrays have room for `count` places.
unsafe fn copy_places(from: *const Place, to: *const Place, count: usize) {
    // SAFETY: the caller's promise; readers only read.
    unsafe { ptr::copy_nonoverlapping(from.cast::<*mut u8>(), to.cast_mut().cast::<*mut u8>(), count) };
}

impl<T: Word> Item<T> {
    fn new(prefix: Prefix<T>, entry: *mut EntryHeader) -> Item<T> {
        Item { value: prefix.value, word: AtomicU64::new(pack(entry, prefix.len.into())) }
    }

    /// The prefix and its entry.
    pub fn get(&self) -> (Prefix<T>, *mut EntryHeader) {
        let word = self.word.load(Ordering::Relaxed);
        (Prefix { value: self.value, len: (word & 0xffff) as u32 }, entry_of(word))
    }

    /// Replaces the entry.
    pub fn set(&self, entry: *mut EntryHeader) {
        let len = self.word.load(Ordering::Relaxed) & 0xffff;
        self.word.store(pack(entry, len), Ordering::Release);
    }
}

impl<T: Word> List<T> {
    fn bytes(count: usize) -> usize {
        size_of::<List<T>>() + count * size_of::<Item<T>>()
    }

    /// A new list of these prefixes, which are sorted by length, longest first.
    pub fn make(
        allocator: &mut NodeAllocator,
        base: *mut EntryHeader,
        items: &[(Prefix<T>, *mut EntryHeader)],
    ) -> *mut List<T> {
        // SAFETY: the memory is aligned to 16; header and items lie inside.
        unsafe {
            let list = allocator.take(Self::bytes(items.len())).cast::<List<T>>();
            list.write(List { base: AtomicPtr::new(base), count: items.len() as u64, items: [] });
            for (i, (prefix, entry)) in items.iter().enumerate() {
                list.add(1).cast::<Item<T>>().add(i).write(Item::new(*prefix, *entry));
            }
            list
        }
    }

    /// The prefixes.
    ///
    /// # Safety
    /// `list` is alive.
    #[inline(always)]
    pub unsafe fn items<'a>(list: *const List<T>) -> &'a [Item<T>] {
        // SAFETY: `count` items follow the header, whose size is a multiple of their alignment.
        unsafe { std::slice::from_raw_parts(list.add(1).cast::<Item<T>>(), (*list).count as usize) }
    }

    /// The result for keys that match no prefix of the list.
    pub fn base(&self) -> *mut EntryHeader {
        self.base.load(Ordering::Relaxed)
    }

    /// The list's memory, to be freed when no reader can see it.
    ///
    /// # Safety
    /// As [`Node::dead`].
    pub unsafe fn unlinked(list: *mut List<T>) -> Unlinked {
        // SAFETY: the caller's promise.
        Unlinked::new(list, Self::bytes(unsafe { (*list).count } as usize))
    }

    /// The entry of the longest prefix that matches `key`; if none does, the base, or `best` if the base is null.
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

/// Sets the base of the node or list in a place; does nothing for an entry.
///
/// # Safety
/// `content` belongs to a trie of `T` and is alive.
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
