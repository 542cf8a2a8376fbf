//! The multi-bit trie: longest prefix match on one value of up to 128 bits. This file has the writer's operations;
//! [`super::node`] has the memory layout, [`super::walk`] the lookup.
//!
//! A node is made only where more than [`LIST_MAX`] prefixes share a path, and it starts at the octet in which they
//! diverge (path compression). So memory is proportional to the number of prefixes, not to their length, and a lookup
//! visits few nodes: for a full Internet routing table the [`Directory`] of the first 16 bits and, in most cases, one
//! node. (Degermark, Brodnik, Carlsson, Pink: "Small forwarding tables for fast routing lookups"; Gupta, Lin, McKeown:
//! "Routing lookups in hardware at memory access speeds" for the directory; the expansion of prefixes to values is
//! Srinivasan and Varghese's controlled prefix expansion.)
//!
//! A prefix is expanded in the node (or directory) that it ends in, and one level further as the *base* of that level's
//! child nodes and lists; never deeper. So inserting a short prefix changes at most the runs of one node and the bases
//! of its children.
//!
//! **Concurrent readers.** A change either stores to single places and bases, or links a modified copy of a node or
//! list in place of the original; for every key exactly one of these stores changes the result. So a reader sees each
//! change entirely or not at all. For several changes: a reader proceeds from short to long prefixes (it reads a base
//! before the node's places), and a replaced node stays as it was when it was unlinked. So as long as prefixes are only
//! inserted, a lookup is linearisable: its result was current when it read the result's place, or when the node with
//! that place was unlinked. With removals a reader could miss both an old long prefix and a new short one; so removals
//! advance [`crate::version::Version`], and readers that see it change look up again.
//!
//! Values are left-aligned in the word `T`.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::allocator::{NodeAllocator, Unlinked};
use super::node::{FANOUT, List, Node, Place, Runs, TAG_ENTRY, TAG_LIST, TAG_NODE, TAG_SKIP};
use super::node::{set_base, tag_of, tagged, untag};
use super::walk::prefetch;
use super::word::{DIRECTORY_BITS, Prefix, STRIDE, Word};
use abi::EntryHeader;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most prefixes of a list; one more turns it into a node.
const LIST_MAX: usize = 4;

/// The root of a trie.
#[derive(Debug)]
#[repr(C)]
pub struct Root {
    /// The entry of the empty prefix (the default route), or null.
    pub default: AtomicPtr<EntryHeader>,
    /// All other prefixes, unless there is a directory.
    pub place: Place,
}

impl Root {
    /// The root of an empty trie.
    pub fn new() -> Root {
        Root { default: AtomicPtr::new(ptr::null_mut()), place: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Default for Root {
    fn default() -> Self {
        Root::new()
    }
}

/// Places indexed by the first 16 bits, for tries that are expected to be large.
#[derive(Debug)]
pub struct Directory {
    places: Box<[Place]>,
    /// For each place, the length of the prefix whose entry is the place's entry or base; 0 for none.
    lens: Box<[u8]>,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Directory {
        let count = 1 << DIRECTORY_BITS;
        // SAFETY: all zero bytes are an array of null places.
        let places = unsafe { Box::new_zeroed_slice(count).assume_init() };
        Directory { places, lens: vec![0; count].into() }
    }

    /// The address of the first place.
    pub fn places(&self) -> *const Place {
        self.places.as_ptr()
    }

    /// Prefetches the node that `value` leads to.
    pub fn prefetch<T: Word>(&self, value: T) {
        const LINES: usize = 8;
        let content = self.places[value.directory_index()].load(Ordering::Relaxed);
        if tag_of(content) != TAG_ENTRY {
            (0..LINES).for_each(|line| prefetch(untag::<u8>(content).wrapping_add(64 * line)));
        }
    }
}

impl Default for Directory {
    fn default() -> Self {
        Directory::new()
    }
}

/// The range of values (of `bits` bits) that a prefix of `len` bits covers; `index` is one of them.
fn covered(index: usize, len: u32, bits: u32) -> Range<usize> {
    let count = 1usize << (bits - len);
    let first = index & !(count - 1);
    first..first + count
}

/// Maps the content and prefix length of a value to its new content and length.
type Change<'a> = &'a mut dyn FnMut(*mut u8, u8) -> (*mut u8, u8);

/// The writer's operations on one trie.
///
/// Unlinked memory is collected in `dead`; the caller retires it.
pub struct Trie<'a, T> {
    /// The root.
    pub root: &'a Root,
    /// The directory, if the trie has one; the root's place is then unused.
    pub directory: Option<&'a mut Directory>,
    /// Unlinked memory.
    pub unlinked: &'a mut Vec<Unlinked>,
    /// Scratch memory for new nodes.
    pub runs: &'a mut Runs,
    /// The allocator.
    pub allocator: &'a mut NodeAllocator,
    /// The type of the values.
    pub word: PhantomData<T>,
}

impl<T: Word> Trie<'_, T> {
    /// Adds a prefix that is not stored yet.
    pub fn insert(&mut self, prefix: Prefix<T>, entry: *mut EntryHeader) {
        self.change(
            prefix,
            entry,
            prefix.len,
            |there, own| there < own,
            |trie, place, depth| {
                trie.insert_below(place, depth, prefix, entry);
            },
        );
    }

    /// Replaces the entry of a stored prefix.
    pub fn replace(&mut self, prefix: Prefix<T>, entry: *mut EntryHeader) {
        self.change(
            prefix,
            entry,
            prefix.len,
            |there, own| there == own,
            |trie, place, depth| {
                trie.replace_below(place, depth, prefix, entry);
            },
        );
    }

    /// Removes a stored prefix. `stored` returns the entry of another prefix, or null if that is not stored.
    pub fn remove(&mut self, prefix: Prefix<T>, stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader) {
        let (entry, len) = match &self.directory {
            Some(_) if prefix.len <= DIRECTORY_BITS => shorter(prefix, 0, stored),
            _ => (ptr::null_mut(), 0),
        };
        self.change(
            prefix,
            entry,
            len,
            |there, own| there == own,
            |trie, place, depth| {
                trie.remove_below(place, depth, prefix, stored);
            },
        );
    }

    /// Changes a prefix at the top level: in the root; in the directory, where places get `entry` and `len` if
    /// `applies(their length, the prefix's length)`; or, through `below`, under a place at some depth.
    fn change(
        &mut self,
        prefix: Prefix<T>,
        entry: *mut EntryHeader,
        len: u32,
        applies: impl Fn(u32, u32) -> bool,
        below: impl FnOnce(&mut Self, &Place, u32),
    ) {
        let root = self.root;
        if prefix.len == 0 {
            return root.default.store(entry, Ordering::Release);
        }
        let Some(directory) = self.directory.take() else { return below(self, &root.place, 0) };
        let index = prefix.value.directory_index();
        if prefix.len <= DIRECTORY_BITS {
            for i in covered(index, prefix.len, DIRECTORY_BITS) {
                if applies(u32::from(directory.lens[i]), prefix.len) {
                    let content = directory.places[i].load(Ordering::Relaxed);
                    directory.places[i].store(cover::<T>(content, entry), Ordering::Release);
                    directory.lens[i] = len as u8;
                }
            }
        } else {
            below(self, &directory.places[index], DIRECTORY_BITS);
        }
        self.directory = Some(directory);
    }

    /// Adds a prefix of more than `depth` bits under the place of its first `depth` bits.
    fn insert_below(&mut self, place: &Place, depth: u32, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let content = place.load(Ordering::Relaxed);
        match tag_of(content) {
            TAG_ENTRY => {
                let list = List::make(self.allocator, content.cast(), &[(prefix, entry)]);
                place.store(tagged(list, TAG_LIST), Ordering::Release);
            }
            TAG_LIST => {
                let list = untag::<List<T>>(content);
                // SAFETY: the list is linked, so it is alive.
                let (base, mut items) = unsafe { ((*list).base(), ShortList::read(list)) };
                items.insert(prefix, entry);
                let new = if items.len() <= LIST_MAX {
                    tagged(List::make(self.allocator, base, &items), TAG_LIST)
                } else {
                    self.node_of(&items, depth, base)
                };
                place.store(new, Ordering::Release);
                // SAFETY: it was just unlinked.
                self.unlinked.push(unsafe { List::unlinked(list) });
            }
            _ => {
                let node = untag::<Node<T>>(content);
                // SAFETY: the node is linked, so it is alive.
                let (value, node_depth, base) = unsafe { ((*node).value, (*node).depth, (*node).base()) };
                let common = prefix.value.common(value).min(node_depth);
                if common == node_depth && prefix.len > node_depth {
                    return self.insert_into(place, prefix, entry);
                }
                // The prefix diverges from the node's value, or ends, above the node: a new node goes there, with a
                // copy of the old one below it that has the base of its new position.
                let at = common.min(prefix.len - 1) / STRIDE * STRIDE;
                // SAFETY: as above.
                let copy = unsafe { Node::copy(self.allocator, node, ptr::null_mut()) };
                let above = self.empty(prefix.value, at, base, depth);
                let index = value.octet(at);
                let below = tagged(copy, if node_depth == at + STRIDE { TAG_NODE } else { TAG_SKIP });
                self.rewrite(&above, index..index + 1, &mut |_, len| (below, len));
                self.insert_into(&above, prefix, entry);
                place.store(above.into_inner(), Ordering::Release);
                // SAFETY: it was just unlinked.
                self.unlinked.push(unsafe { Node::unlinked(node) });
            }
        }
    }

    /// Adds a prefix in or below the node in a place; the prefix has the node's bits and is longer.
    fn insert_into(&mut self, place: &Place, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let node = untag::<Node<T>>(place.load(Ordering::Relaxed));
        // SAFETY: the node is linked, or ours, so it is alive.
        let (depth, run) = unsafe { ((*node).depth, (*node).run_of(prefix.value.octet((*node).depth))) };
        let index = prefix.value.octet(depth);
        if prefix.len <= depth + STRIDE {
            let len = (prefix.len - depth) as u8;
            self.rewrite(place, covered(index, len.into(), STRIDE), &mut |content, there| {
                if there < len { (cover::<T>(content, entry), len) } else { (content, there) }
            });
            return;
        }
        // SAFETY: as above; the run is the node's.
        let leaf = unsafe { Node::leaf(node, run) };
        if tag_of(leaf.load(Ordering::Relaxed)) != TAG_ENTRY {
            return self.insert_below(leaf, depth + STRIDE, prefix, entry);
        }
        let list = List::make(self.allocator, leaf.load(Ordering::Relaxed).cast(), &[(prefix, entry)]);
        self.rewrite(place, index..index + 1, &mut |_, there| (tagged(list, TAG_LIST), there));
    }

    fn replace_below(&mut self, place: &Place, depth: u32, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let content = place.load(Ordering::Relaxed);
        debug_assert!(tag_of(content) != TAG_ENTRY && prefix.len > depth, "the prefix is stored");
        if tag_of(content) == TAG_LIST {
            // SAFETY: the list is linked, so it is alive.
            let items = unsafe { List::<T>::items(untag(content)) };
            items.iter().find(|i| i.get().0 == prefix).expect("the prefix is stored").set(entry);
            return;
        }
        let node = untag::<Node<T>>(content);
        // SAFETY: the node is linked, so it is alive.
        let (depth, run) = unsafe { ((*node).depth, (*node).run_of(prefix.value.octet((*node).depth))) };
        if prefix.len > depth + STRIDE {
            // SAFETY: as above; the run is the node's.
            return self.replace_below(unsafe { Node::leaf(node, run) }, depth + STRIDE, prefix, entry);
        }
        let len = (prefix.len - depth) as u8;
        self.rewrite(place, covered(prefix.value.octet(depth), len.into(), STRIDE), &mut |content, there| {
            if there == len { (cover::<T>(content, entry), len) } else { (content, there) }
        });
    }

    /// Removes a prefix below a place. Returns true if the place then holds an entry or null.
    fn remove_below(
        &mut self,
        place: &Place,
        depth: u32,
        prefix: Prefix<T>,
        stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader,
    ) -> bool {
        let content = place.load(Ordering::Relaxed);
        debug_assert!(tag_of(content) != TAG_ENTRY && prefix.len > depth, "the prefix is stored");
        if tag_of(content) == TAG_LIST {
            let list = untag::<List<T>>(content);
            // SAFETY: the list is linked, so it is alive.
            let (base, mut items) = unsafe { ((*list).base(), ShortList::read(list)) };
            items.remove(prefix);
            let is_removed = items.is_empty();
            place.store(
                if is_removed { base.cast() } else { tagged(List::make(self.allocator, base, &items), TAG_LIST) },
                Ordering::Release,
            );
            // SAFETY: it was just unlinked.
            self.unlinked.push(unsafe { List::unlinked(list) });
            return is_removed;
        }
        let node = untag::<Node<T>>(content);
        // SAFETY: the node is linked, so it is alive.
        let (depth, run) = unsafe { ((*node).depth, (*node).run_of(prefix.value.octet((*node).depth))) };
        let index = prefix.value.octet(depth);
        if prefix.len <= depth + STRIDE {
            let own = (prefix.len - depth) as u8;
            let (entry, len) = shorter(prefix, depth, stored);
            return self.rewrite(place, covered(index, own.into(), STRIDE), &mut |content, there| {
                if there == own { (cover::<T>(content, entry), len as u8) } else { (content, there) }
            });
        }
        // SAFETY: as above; the run is the node's.
        let leaf = unsafe { Node::leaf(node, run) };
        // A place that no longer has a child may merge with its neighbours.
        self.remove_below(leaf, depth + STRIDE, prefix, stored)
            && self.rewrite(place, index..index + 1, &mut |content, len| (content, len))
    }

    /// Changes a range of values of the node in a place: in the node itself if its runs stay the same, otherwise by
    /// linking a modified copy. Returns true if the node became empty, so that the place then holds an entry or null.
    fn rewrite(&mut self, place: &Place, range: Range<usize>, change: Change<'_>) -> bool {
        let content = place.load(Ordering::Relaxed);
        let node = untag::<Node<T>>(content);
        // SAFETY: the node is linked, or ours, so it is alive; its lengths are the writer's; all runs are below its
        // count.
        unsafe {
            let (starts, count, lens) = ((*node).starts(), (*node).count(), Node::lens(node));
            let leaf = |run: usize| Node::leaf(node, run).load(Ordering::Relaxed);
            let run_at = |run: usize| (leaf(run), *lens.add(run));
            let is_start = |value: usize| starts[value / 64] >> (value % 64) & 1 == 1;
            let (first, last) = ((*node).run_of(range.start), (*node).run_of(range.end - 1));
            // `head`: runs that begin before the range; `tail`: the first run after it.
            let head = first + usize::from(!is_start(range.start));
            let middle = &mut *self.runs;
            middle.clear(head.checked_sub(1).map(run_at));
            let mut start = range.start;
            for run in first..=last {
                let (there, len) = run_at(run);
                let (new, len) = change(there, len);
                middle.push(start, new, len);
                start = next_start(&starts, start + 1);
            }
            let (mut tail, mut behind) = (last + 1, range.end);
            if range.end < FANOUT {
                if !is_start(range.end) {
                    let (rest, len) = run_at(last);
                    middle.push(range.end, rest, len);
                } else if middle.continues(leaf(tail), *lens.add(tail)) {
                    (tail, behind) = (tail + 1, range.end + 1);
                }
            }
            let mut new_starts = middle.starts;
            for (q, word) in starts.iter().enumerate() {
                new_starts[q] |= *word & (below(range.start, q) | !below(behind, q));
            }
            let only = if head > 0 { leaf(0) } else { middle.leaves[0] };
            let is_empty = new_starts == [1, 0, 0, 0] && only.is_null();
            if is_empty {
                place.store((*node).base().cast(), Ordering::Release);
            } else if new_starts == starts {
                for (i, (new, len)) in middle.leaves.iter().zip(&middle.lens).enumerate() {
                    if leaf(head + i) != *new {
                        Node::leaf(node, head + i).store(*new, Ordering::Release);
                    }
                    *lens.add(head + i) = *len;
                }
                return false;
            } else {
                debug_assert_eq!(
                    new_starts.iter().map(|s| s.count_ones()).sum::<u32>() as usize,
                    head + middle.leaves.len() + count - tail
                );
                let new = Node::splice(self.allocator, node, new_starts, head, middle, tail);
                place.store(tagged(new, tag_of(content)), Ordering::Release);
            }
            self.unlinked.push(Node::unlinked(node));
            is_empty
        }
    }

    /// A place of depth `depth` with a new, empty node of depth `at`.
    fn empty(&mut self, value: T, at: u32, base: *mut EntryHeader, depth: u32) -> Place {
        let node = Node::empty(self.allocator, value, at, base);
        AtomicPtr::new(tagged(node, if at == depth { TAG_NODE } else { TAG_SKIP }))
    }

    /// The content of a place of depth `depth`: a node with these prefixes, all of which are longer than `depth`.
    fn node_of(&mut self, items: &[(Prefix<T>, *mut EntryHeader)], depth: u32, base: *mut EntryHeader) -> *mut u8 {
        let (first, _) = items[0];
        let part = items.iter().map(|(p, _)| p.value.common(first.value).min(p.len - 1)).min().unwrap_or(0);
        let place = self.empty(first.value, part / STRIDE * STRIDE, base, depth);
        for (prefix, entry) in items {
            self.insert_into(&place, *prefix, *entry);
        }
        place.into_inner()
    }
}

/// The bits of quarter `q`'s bitmap for values below `value`.
fn below(value: usize, q: usize) -> u64 {
    match value.saturating_sub(64 * q) {
        0 => 0,
        n @ 1..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

/// The first value at or after `from` where a run starts, or 256.
fn next_start(starts: &[u64; 4], from: usize) -> usize {
    let mut from = from;
    while from < 256 {
        let rest = starts[from / 64] >> (from % 64);
        if rest != 0 {
            return from + rest.trailing_zeros() as usize;
        }
        from = (from / 64 + 1) * 64;
    }
    256
}

/// The content of a place after a prefix with this entry came to cover it.
fn cover<T: Word>(content: *mut u8, entry: *mut EntryHeader) -> *mut u8 {
    if tag_of(content) == TAG_ENTRY {
        return entry.cast();
    }
    // SAFETY: contents of linked places are alive.
    unsafe { set_base::<T>(content, entry) };
    content
}

/// The longest stored prefix that is shorter than `prefix` and longer than `depth`: its entry and its bits beyond
/// `depth`.
fn shorter<T: Word>(
    prefix: Prefix<T>,
    depth: u32,
    stored: &mut dyn FnMut(Prefix<T>) -> *mut EntryHeader,
) -> (*mut EntryHeader, u32) {
    let found = (depth + 1..prefix.len).rev().find_map(|len| {
        let entry = stored(Prefix { value: prefix.value.prefix(len), len });
        (!entry.is_null()).then_some((entry, len - depth))
    });
    found.unwrap_or((ptr::null_mut(), 0))
}

/// A copy of a list's prefixes, longest first, with room for one more.
struct ShortList<T> {
    items: [(Prefix<T>, *mut EntryHeader); LIST_MAX + 1],
    len: usize,
}

impl<T: Word> ShortList<T> {
    /// # Safety
    /// The list is alive.
    unsafe fn read(list: *const List<T>) -> ShortList<T> {
        let mut few = ShortList { items: [(Prefix { value: T::ZERO, len: 0 }, ptr::null_mut()); LIST_MAX + 1], len: 0 };
        // SAFETY: the caller's promise.
        for (to, item) in few.items.iter_mut().zip(unsafe { List::items(list) }) {
            *to = item.get();
            few.len += 1;
        }
        few
    }

    fn insert(&mut self, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let at = self.partition_point(|(p, _)| p.len >= prefix.len);
        self.items.copy_within(at..self.len, at + 1);
        self.items[at] = (prefix, entry);
        self.len += 1;
    }

    fn remove(&mut self, prefix: Prefix<T>) {
        let at = self.iter().position(|(p, _)| *p == prefix).expect("the prefix is stored");
        self.items.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }
}

impl<T> Deref for ShortList<T> {
    type Target = [(Prefix<T>, *mut EntryHeader)];

    fn deref(&self) -> &Self::Target {
        &self.items[..self.len]
    }
}

/// Unlinks everything below a root for teardown and collects its memory in `dead`; the trie is then empty.
pub fn clear<T: Word>(root: &Root, directory: Option<&mut Directory>, unlinked: &mut Vec<Unlinked>) {
    root.default.store(ptr::null_mut(), Ordering::Release);
    clear_place::<T>(&root.place, unlinked);
    if let Some(directory) = directory {
        directory.places.iter().for_each(|place| clear_place::<T>(place, unlinked));
        directory.lens.fill(0);
    }
}

fn clear_place<T: Word>(place: &Place, unlinked: &mut Vec<Unlinked>) {
    let content = place.load(Ordering::Relaxed);
    // Null places are not written: most of a directory's pages may never have been touched.
    if content.is_null() {
        return;
    }
    place.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: whatever was linked until now is alive.
    unsafe {
        match tag_of(content) {
            TAG_ENTRY => {}
            TAG_LIST => unlinked.push(List::<T>::unlinked(untag(content))),
            _ => {
                let node = untag::<Node<T>>(content);
                (0..(*node).count()).for_each(|run| clear_place::<T>(Node::leaf(node, run), unlinked));
                unlinked.push(Node::unlinked(node));
            }
        }
    }
}
