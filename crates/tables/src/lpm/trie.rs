//! The multi-bit trie: longest prefix match on one value of up to 128 bits.
//!
//! **Shape.** A [`Slot`] stands for one prefix of the value ("the first `d` bits are ..."), and holds the entry of the
//! longest stored prefix that covers it and ends in its node, and what is known of longer ones, its *child*:
//! - nothing;
//! - a [`Sparse`] list of up to [`SPARSE_MAX`] prefixes, longest first, compared one by one;
//! - a [`Node`] of 256 slots for the next 8 bits;
//! - a node further down, when all prefixes below agree on more bits than that: its `value` is compared first.
//!
//! A node is made only where more than [`SPARSE_MAX`] prefixes meet, and it starts at the bit where they part. So
//! memory follows the number of prefixes, not their length, and a lookup visits few nodes: for a million random /32 in
//! 128 MB of nodes and 48 MB of lists, a 64K-slot [`Directory`] for the first 16 bits, one node, one list.
//! (Degermark, Brodnik, Carlsson, Pink: "Small forwarding tables for fast routing lookups"; Gupta, Lin, McKeown:
//! "Routing lookups in hardware at memory access speeds" for the directory; the expansion of prefixes to slots is
//! Srinivasan and Varghese's controlled prefix expansion.)
//!
//! **Lookup** walks down and remembers the last entry it passed; nothing is pushed into nodes below, so inserting a
//! short prefix costs at most the slots of one node.
//!
//! **Change while readers walk.** Every word is atomic. Prefixes appear in slots, which hold at most one word per value
//! that matters, or in a new list that replaces the old one; a new node is filled before it is linked. So one change is
//! seen whole or not at all. As to several: a reader goes from short to long prefixes, so with insertions only, what it
//! returns is the answer at the moment it read the place of its answer. Removals could make it miss both an old long
//! prefix and the new short one; they count in [`crate::version::Version`], and the reader looks again.
//!
//! Values are left-aligned in the word `T`. Threads: one writer, any number of readers. Tests: `tests/properties.rs`,
//! `tests/stress.rs`.
#![allow(unsafe_code)]

use abi::EntryHeader;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Prefixes of a list; one more makes a node.
const SPARSE_MAX: usize = 8;
/// Bits of a node.
const STRIDE: u32 = 8;
const FANOUT: usize = 1 << STRIDE;
/// Bits of a directory.
const DIRECTORY_BITS: u32 = 16;

/// A word that holds a left-aligned value.
pub trait Word: Copy + Eq + Ord + Debug + Send + Sync + 'static {
    /// Its bits.
    const BITS: u32;
    /// Zero.
    const ZERO: Self;
    /// The `width` low bits of a number, moved to the left end.
    fn align(value: u128, width: u32) -> Self;
    /// The inverse of [`align`](Word::align).
    fn number(self, width: u32) -> u128;
    /// The eight bits behind the first `depth`.
    fn octet(self, depth: u32) -> usize;
    /// The first [`DIRECTORY_BITS`] bits.
    fn directory_index(self) -> usize;
    /// The number of leading bits that are equal.
    fn common(self, other: Self) -> u32;
    /// The first `len` bits, then zeros.
    fn prefix(self, len: u32) -> Self;
    /// Whether the first `len` bits are equal.
    #[inline]
    fn agrees(self, other: Self, len: u32) -> bool {
        self.common(other) >= len
    }
}

macro_rules! word {
    ($($word:ty)*) => {$(
        impl Word for $word {
            const BITS: u32 = <$word>::BITS;
            const ZERO: Self = 0;
            #[inline]
            fn align(value: u128, width: u32) -> Self {
                if width == 0 { 0 } else { (value as $word) << (<$word>::BITS - width) }
            }
            fn number(self, width: u32) -> u128 {
                if width == 0 { 0 } else { u128::from(self >> (<$word>::BITS - width)) }
            }
            #[inline]
            fn octet(self, depth: u32) -> usize {
                (self << depth >> (<$word>::BITS - STRIDE)) as usize
            }
            #[inline]
            fn directory_index(self) -> usize {
                (self >> (<$word>::BITS - DIRECTORY_BITS)) as usize
            }
            #[inline]
            fn common(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }
            #[inline]
            fn prefix(self, len: u32) -> Self {
                if len == 0 { 0 } else { self & (<$word>::MAX << (<$word>::BITS - len)) }
            }
        }
    )*};
}

word!(u32 u64 u128);

/// The low bits of [`Slot::child`]: what it points at. Null has none.
const TAG_MASK: usize = 3;
/// A [`Node`] for the bits right behind the slot's.
const TAG_NODE: usize = 0;
/// A [`Sparse`] list.
const TAG_SPARSE: usize = 1;
/// A [`Node`] for bits further down.
const TAG_SKIP: usize = 2;

/// One prefix of the value. All zero bytes are a slot without anything.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    entry: AtomicPtr<EntryHeader>,
    child: AtomicPtr<u8>,
}

/// 256 slots for the bits from `depth` on. All zero bytes are a node at depth 0 without anything.
#[repr(C)]
struct Node<T> {
    slots: [Slot; FANOUT],
    /// The first `depth` bits of all prefixes below, then zeros. Fixed once linked.
    value: T,
    /// A multiple of [`STRIDE`]. Fixed once linked.
    depth: u32,
    writer: UnsafeCell<NodeWriter>,
}

/// What only the writer sees of a node.
struct NodeWriter {
    /// Prefixes that end in this node, plus children.
    used: u32,
    /// Bits beyond `depth` of the prefix whose entry a slot holds, 0 for none.
    lens: [u8; FANOUT],
}

/// The header of a list; `count` [`Item`]s follow.
#[repr(C)]
struct Sparse<T> {
    items: [Item<T>; 0],
    count: u64,
}

struct Item<T> {
    value: T,
    entry: AtomicPtr<EntryHeader>,
    len: u32,
}

/// A stored prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<T> {
    /// Left-aligned, zeros behind the prefix.
    pub value: T,
    /// Bits.
    pub len: u32,
}

/// The slots of the first 16 bits, for tries that are expected to be large.
#[derive(Debug)]
pub struct Directory {
    slots: Box<[Slot]>,
    /// As [`NodeWriter::lens`].
    lens: Box<[u8]>,
}

/// Memory that was unlinked but that readers may still see.
#[derive(Debug)]
pub struct Dead(*mut u8, Layout);

// SAFETY: whoever has the value owns the memory.
unsafe impl Send for Dead {}

impl Dead {
    /// Frees it.
    ///
    /// # Safety
    /// No reader can see it any more, and it is freed once.
    pub unsafe fn free(self) {
        let Dead(at, layout) = self;
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(at, layout) };
    }
}

impl Slot {
    /// Without anything.
    pub fn new() -> Slot {
        Slot { entry: AtomicPtr::new(ptr::null_mut()), child: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Slot::new()
    }
}

fn tag_of(child: *mut u8) -> usize {
    child.addr() & TAG_MASK
}

fn untag(child: *mut u8) -> *mut u8 {
    child.map_addr(|a| a & !TAG_MASK)
}

/// Walks from `slot`, which stands for the first `depth` bits of `key`: the entry of the longest prefix, or `best`.
///
/// # Safety
/// `slot` and everything linked below it were made by a [`Trie`] of this `T`, and nothing that was linked since the
/// caller's last quiescent point has been freed.
#[inline]
unsafe fn walk<T: Word>(slot: &Slot, key: T, depth: u32, best: *mut EntryHeader) -> *mut EntryHeader {
    let (mut slot, mut depth, mut best) = (slot, depth, best);
    loop {
        let entry = slot.entry.load(Ordering::Acquire);
        if !entry.is_null() {
            best = entry;
        }
        let child = slot.child.load(Ordering::Acquire);
        match tag_of(child) {
            TAG_NODE => {
                // SAFETY: the tag says what is there; linked memory outlives the caller's batch.
                let Some(node) = (unsafe { child.cast::<Node<T>>().as_ref() }) else { return best };
                slot = &node.slots[key.octet(depth)];
                depth += STRIDE;
            }
            TAG_SPARSE => {
                // SAFETY: as above.
                let items = unsafe { sparse_items::<T>(child) };
                return match items.iter().find(|item| key.agrees(item.value, item.len)) {
                    Some(item) => item.entry.load(Ordering::Acquire),
                    None => best,
                };
            }
            _ => {
                // SAFETY: as above.
                let node = unsafe { &*untag(child).cast::<Node<T>>() };
                if !key.agrees(node.value, node.depth) {
                    return best;
                }
                slot = &node.slots[key.octet(node.depth)];
                depth = node.depth + STRIDE;
            }
        }
    }
}

/// # Safety
/// `child` is tagged as a list and the list is alive.
#[inline]
unsafe fn sparse_items<'a, T>(child: *mut u8) -> &'a [Item<T>] {
    let list = untag(child).cast::<Sparse<T>>();
    // SAFETY: `count` items follow the header, at the item's alignment.
    unsafe { std::slice::from_raw_parts(list.add(1).cast::<Item<T>>(), (*list).count as usize) }
}

fn sparse_layout<T>(count: usize) -> Layout {
    let (layout, items) = Layout::new::<Sparse<T>>()
        .extend(Layout::array::<Item<T>>(count).expect("a list is short"))
        .expect("a list is short");
    debug_assert_eq!(items, size_of::<Sparse<T>>());
    layout
}

/// A list of these items, longest first.
fn new_sparse<T: Word>(items: &[(Prefix<T>, *mut EntryHeader)]) -> *mut u8 {
    let layout = sparse_layout::<T>(items.len());
    // SAFETY: the layout is not empty; header and items lie inside.
    unsafe {
        let list = alloc(layout).cast::<Sparse<T>>();
        if list.is_null() {
            handle_alloc_error(layout);
        }
        list.write(Sparse { items: [], count: items.len() as u64 });
        let first = list.add(1).cast::<Item<T>>();
        for (i, (prefix, entry)) in items.iter().enumerate() {
            first.add(i).write(Item { value: prefix.value, entry: AtomicPtr::new(*entry), len: prefix.len });
        }
        list.cast::<u8>().map_addr(|a| a | TAG_SPARSE)
    }
}

fn new_node<T: Word>(value: T, depth: u32) -> *mut Node<T> {
    let layout = Layout::new::<Node<T>>();
    // SAFETY: the layout is not empty; all zero bytes are a valid node.
    unsafe {
        let node = alloc_zeroed(layout).cast::<Node<T>>();
        if node.is_null() {
            handle_alloc_error(layout);
        }
        (*node).value = value.prefix(depth);
        (*node).depth = depth;
        node
    }
}

/// The child word for a node below a slot that stands for `depth` bits.
fn node_child<T: Word>(node: *mut Node<T>, depth: u32) -> *mut u8 {
    // SAFETY: the caller just made or found the node; its depth is fixed.
    let tag = if unsafe { (*node).depth } == depth { TAG_NODE } else { TAG_SKIP };
    node.cast::<u8>().map_addr(|a| a | tag)
}

/// The slots of a node or directory that a prefix of `len` bits in it covers; `index` is the prefix's own.
fn covered(index: usize, len: u32, bits: u32) -> std::ops::Range<usize> {
    let count = 1usize << (bits - len);
    let first = index & !(count - 1);
    first..first + count
}

/// The writer's operations below one root slot.
///
/// `dead` collects what was unlinked; the caller retires it.
pub struct Trie<'a, T> {
    /// The slot of the empty prefix.
    pub root: &'a Slot,
    /// The slots of the first bits, if the trie has them; then the root slot has no child.
    pub directory: Option<&'a mut Directory>,
    /// What was unlinked.
    pub dead: &'a mut Vec<Dead>,
    /// The type of values.
    pub word: PhantomData<T>,
}

/// Finds the answer for `key`.
///
/// # Safety
/// As [`Trie`]'s memory: the root is alive, and what is linked stays until the caller is quiescent.
#[inline]
pub unsafe fn lookup<T: Word>(root: &Slot, directory: *const Slot, key: T) -> *mut EntryHeader {
    // SAFETY: the caller's promise; a directory has a slot for each index.
    unsafe {
        if directory.is_null() {
            return walk(root, key, 0, ptr::null_mut());
        }
        let best = root.entry.load(Ordering::Acquire);
        walk(&*directory.add(key.directory_index()), key, DIRECTORY_BITS, best)
    }
}

impl Directory {
    /// Without anything.
    pub fn new() -> Directory {
        let count = 1 << DIRECTORY_BITS;
        // SAFETY: all zero bytes are a slot without anything.
        let slots = unsafe { Box::new_zeroed_slice(count).assume_init() };
        Directory { slots, lens: vec![0; count].into() }
    }

    /// The first slot.
    pub fn slots(&self) -> *const Slot {
        self.slots.as_ptr()
    }
}

impl Default for Directory {
    fn default() -> Self {
        Directory::new()
    }
}

impl<T: Word> Trie<'_, T> {
    /// Adds a prefix that is not there.
    pub fn insert(&mut self, prefix: Prefix<T>, entry: *mut EntryHeader) {
        if prefix.len == 0 {
            self.root.entry.store(entry, Ordering::Release);
            return;
        }
        let root = self.root;
        match self.directory.take() {
            Some(directory) => {
                let index = prefix.value.directory_index();
                if prefix.len <= DIRECTORY_BITS {
                    let range = covered(index, prefix.len, DIRECTORY_BITS);
                    expand(&directory.slots, &mut directory.lens, range, prefix.len, entry);
                } else {
                    self.insert_below(&directory.slots[index], DIRECTORY_BITS, prefix, entry);
                }
                self.directory = Some(directory);
            }
            None => _ = self.insert_below(root, 0, prefix, entry),
        }
    }

    /// Adds a prefix of more than `depth` bits below the slot of its first `depth` bits. True if the slot had no child.
    fn insert_below(&mut self, slot: &Slot, depth: u32, prefix: Prefix<T>, entry: *mut EntryHeader) -> bool {
        let child = slot.child.load(Ordering::Relaxed);
        if child.is_null() {
            slot.child.store(new_sparse(&[(prefix, entry)]), Ordering::Release);
            return true;
        }
        if tag_of(child) == TAG_SPARSE {
            let mut items = read_sparse::<T>(child);
            let at = items.partition_point(|(p, _)| p.len >= prefix.len);
            items.insert(at, (prefix, entry));
            let new = if items.len() <= SPARSE_MAX { new_sparse(&items) } else { self.node_of(&items, depth) };
            slot.child.store(new, Ordering::Release);
            self.retire_sparse(child);
            return false;
        }
        let node = untag(child).cast::<Node<T>>();
        // SAFETY: the node is linked, so it is alive; only the writer touches what is not atomic.
        let (value, node_depth) = unsafe { ((*node).value, (*node).depth) };
        let common = prefix.value.common(value).min(node_depth);
        if common < node_depth || prefix.len <= node_depth {
            // The prefix parts from the node's value, or ends, above the node: a new node at that place.
            let at = common.min(prefix.len - 1) / STRIDE * STRIDE;
            let above = new_node(prefix.value, at);
            // SAFETY: the node is new and ours until it is linked.
            unsafe {
                (*above).slots[value.octet(at)].child.store(node_child(node, at + STRIDE), Ordering::Relaxed);
                (*(*above).writer.get()).used = 1;
                self.insert_into(above, prefix, entry);
            }
            slot.child.store(node_child(above, depth), Ordering::Release);
        } else {
            // SAFETY: as above.
            unsafe { self.insert_into(node, prefix, entry) };
        }
        false
    }

    /// # Safety
    /// `node` is alive, its bits are the prefix's, and the prefix is longer than the node's depth.
    unsafe fn insert_into(&mut self, node: *mut Node<T>, prefix: Prefix<T>, entry: *mut EntryHeader) {
        // SAFETY: readers see only `slots`, `value` and `depth`; the rest is the writer's.
        unsafe {
            let (slots, depth) = (&(*node).slots, (*node).depth);
            let index = prefix.value.octet(depth);
            let writer = (*node).writer.get();
            if prefix.len <= depth + STRIDE {
                let len = prefix.len - depth;
                expand(slots, &mut (*writer).lens, covered(index, len, STRIDE), len, entry);
                (*writer).used += 1;
            } else if self.insert_below(&slots[index], depth + STRIDE, prefix, entry) {
                (*writer).used += 1;
            }
        }
    }

    /// A node, as child of a slot that stands for `depth` bits, with these prefixes of more than `depth` bits.
    fn node_of(&mut self, items: &[(Prefix<T>, *mut EntryHeader)], depth: u32) -> *mut u8 {
        let (first, _) = items[0];
        let part = items.iter().map(|(p, _)| p.value.common(first.value).min(p.len - 1)).min().unwrap_or(0);
        let node = new_node(first.value, part / STRIDE * STRIDE);
        for (prefix, entry) in items {
            // SAFETY: the node is new; all prefixes have its bits and are longer.
            unsafe { self.insert_into(node, *prefix, *entry) };
        }
        node_child(node, depth)
    }

    /// Gives a prefix that is there another entry.
    pub fn replace(&mut self, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let store = |slot: &Slot| slot.entry.store(entry, Ordering::Release);
        if prefix.len == 0 {
            return store(self.root);
        }
        let (mut slot, mut depth) = (self.root, 0);
        if let Some(directory) = &self.directory {
            let index = prefix.value.directory_index();
            if prefix.len <= DIRECTORY_BITS {
                let range = covered(index, prefix.len, DIRECTORY_BITS);
                range.filter(|i| u32::from(directory.lens[*i]) == prefix.len).for_each(|i| store(&directory.slots[i]));
                return;
            }
            (slot, depth) = (&directory.slots[index], DIRECTORY_BITS);
        }
        loop {
            let child = slot.child.load(Ordering::Relaxed);
            if tag_of(child) == TAG_SPARSE {
                // SAFETY: the list is linked, so it is alive.
                let items = unsafe { sparse_items::<T>(child) };
                let item = items.iter().find(|i| i.len == prefix.len && i.value == prefix.value);
                item.expect("the prefix is stored").entry.store(entry, Ordering::Release);
                return;
            }
            // SAFETY: the prefix is stored below, so there is a node, linked and alive.
            let node = unsafe { &*untag(child).cast::<Node<T>>() };
            debug_assert!(node.depth >= depth);
            depth = node.depth;
            let index = prefix.value.octet(depth);
            if prefix.len <= depth + STRIDE {
                let len = prefix.len - depth;
                // SAFETY: only the writer, which this is, touches these.
                let lens = unsafe { &(*node.writer.get()).lens };
                let own = covered(index, len, STRIDE).filter(|i| u32::from(lens[*i]) == len);
                own.for_each(|i| store(&node.slots[i]));
                return;
            }
            (slot, depth) = (&node.slots[index], depth + STRIDE);
        }
    }

    /// Removes a prefix that is there. `stored` gives the entry of a stored prefix, or null.
    pub fn remove(&mut self, prefix: Prefix<T>, stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader) {
        if prefix.len == 0 {
            self.root.entry.store(ptr::null_mut(), Ordering::Release);
            return;
        }
        let root = self.root;
        match self.directory.take() {
            Some(directory) => {
                let index = prefix.value.directory_index();
                if prefix.len <= DIRECTORY_BITS {
                    let range = covered(index, prefix.len, DIRECTORY_BITS);
                    contract(&directory.slots, &mut directory.lens, range, 0, prefix, stored);
                } else {
                    self.remove_below(&directory.slots[index], prefix, stored);
                }
                self.directory = Some(directory);
            }
            None => _ = self.remove_below(root, prefix, stored),
        }
    }

    /// Removes a prefix from the child of a slot. True if the slot has no child any more.
    fn remove_below(
        &mut self,
        slot: &Slot,
        prefix: Prefix<T>,
        stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader,
    ) -> bool {
        let child = slot.child.load(Ordering::Relaxed);
        if tag_of(child) == TAG_SPARSE {
            let mut items = read_sparse::<T>(child);
            items.retain(|(p, _)| *p != prefix);
            let new = if items.is_empty() { ptr::null_mut() } else { new_sparse(&items) };
            slot.child.store(new, Ordering::Release);
            self.retire_sparse(child);
            return new.is_null();
        }
        let node = untag(child).cast::<Node<T>>();
        // SAFETY: the prefix is stored below, so there is a node, linked and alive; what is not atomic is the writer's.
        unsafe {
            let (slots, depth) = (&(*node).slots, (*node).depth);
            let index = prefix.value.octet(depth);
            let writer = (*node).writer.get();
            if prefix.len <= depth + STRIDE {
                let range = covered(index, prefix.len - depth, STRIDE);
                contract(slots, &mut (*writer).lens, range, depth, prefix, stored);
                (*writer).used -= 1;
            } else if self.remove_below(&slots[index], prefix, stored) {
                (*writer).used -= 1;
            }
            if (*writer).used > 0 {
                return false;
            }
        }
        slot.child.store(ptr::null_mut(), Ordering::Release);
        self.dead.push(Dead(node.cast(), Layout::new::<Node<T>>()));
        true
    }

    fn retire_sparse(&mut self, child: *mut u8) {
        // SAFETY: it was just unlinked and is not freed yet.
        let count = unsafe { sparse_items::<T>(child) }.len();
        self.dead.push(Dead(untag(child), sparse_layout::<T>(count)));
    }
}

/// The memory of everything below a root, for teardown; the root then has nothing.
pub fn clear<T>(root: &Slot, directory: Option<&mut Directory>, dead: &mut Vec<Dead>) {
    clear_slot::<T>(root, dead);
    if let Some(directory) = directory {
        directory.slots.iter().for_each(|slot| clear_slot::<T>(slot, dead));
        directory.lens.fill(0);
    }
}

fn clear_slot<T>(slot: &Slot, dead: &mut Vec<Dead>) {
    // No stores to slots that have nothing: most of a directory may be pages that were never touched.
    if !slot.entry.load(Ordering::Relaxed).is_null() {
        slot.entry.store(ptr::null_mut(), Ordering::Release);
    }
    let child = slot.child.load(Ordering::Relaxed);
    if child.is_null() {
        return;
    }
    slot.child.store(ptr::null_mut(), Ordering::Release);
    if tag_of(child) == TAG_SPARSE {
        // SAFETY: it was linked until now and is not freed yet.
        let count = unsafe { sparse_items::<T>(child) }.len();
        dead.push(Dead(untag(child), sparse_layout::<T>(count)));
        return;
    }
    let node = untag(child).cast::<Node<T>>();
    // SAFETY: as above.
    unsafe { &(*node).slots }.iter().for_each(|slot| clear_slot::<T>(slot, dead));
    dead.push(Dead(node.cast(), Layout::new::<Node<T>>()));
}

fn read_sparse<T: Word>(child: *mut u8) -> Vec<(Prefix<T>, *mut EntryHeader)> {
    // SAFETY: callers pass a child that is linked.
    let items = unsafe { sparse_items::<T>(child) };
    items.iter().map(|i| (Prefix { value: i.value, len: i.len }, i.entry.load(Ordering::Relaxed))).collect()
}

/// Writes a prefix into the slots it covers, unless they hold a longer one.
fn expand(slots: &[Slot], lens: &mut [u8], range: std::ops::Range<usize>, len: u32, entry: *mut EntryHeader) {
    for i in range {
        if u32::from(lens[i]) < len {
            slots[i].entry.store(entry, Ordering::Release);
            lens[i] = len as u8;
        }
    }
}

/// Takes a prefix out of the slots it holds, which go to the next shorter stored prefix of the same node.
fn contract<T: Word>(
    slots: &[Slot],
    lens: &mut [u8],
    range: std::ops::Range<usize>,
    depth: u32,
    prefix: Prefix<T>,
    stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader,
) {
    let shorter = (depth + 1..prefix.len).rev().find_map(|len| {
        let entry = stored(Prefix { value: prefix.value.prefix(len), len });
        (!entry.is_null()).then_some((entry, len - depth))
    });
    let (entry, len) = shorter.unwrap_or((ptr::null_mut(), 0));
    for i in range {
        if u32::from(lens[i]) == prefix.len - depth {
            slots[i].entry.store(entry, Ordering::Release);
            lens[i] = len as u8;
        }
    }
}
