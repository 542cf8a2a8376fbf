//! The multi-bit trie: longest prefix match on one value of up to 128 bits. This file changes it; [`super::node`] says
//! what it is made of and how readers walk.
//!
//! A node is made only where more than [`LIST_MAX`] prefixes meet, and it starts at the bit where they part. So memory
//! follows the number of prefixes, not their length, and a lookup visits few nodes: in a table of all the Internet's
//! prefixes a [`Directory`] for the first 16 bits, and mostly one node. (Degermark, Brodnik, Carlsson, Pink: "Small
//! forwarding tables for fast routing lookups"; Gupta, Lin, McKeown: "Routing lookups in hardware at memory access
//! speeds" for the directory; the expansion of prefixes to values is Srinivasan and Varghese's controlled prefix
//! expansion.)
//!
//! A prefix is expanded in the node (or directory) it ends in, and one level further as the *base* of what hangs there;
//! never deeper. So inserting a short prefix costs at most the runs of one node and the bases of its children.
//!
//! **Change while readers walk.** A change either stores in single places and bases, or makes a new node (list) that
//! differs and stores it over the old one; for every key exactly one of these stores matters. So one change is seen whole
//! or not at all. As to several: a reader goes from short to long prefixes (a base before the places of its node), and
//! what was replaced stays as it was then. So with insertions only, what a reader returns is the answer at the moment
//! when it read the place of its answer, or when that was replaced. Removals could make it miss both an old long prefix
//! and the new short one; they count in [`crate::version::Version`], and the reader looks again.
//!
//! Values are left-aligned in the word `T`. Threads: one writer, any number of readers. Tests: `tests/properties.rs`,
//! `tests/stress.rs`.
#![allow(unsafe_code)]

use super::node::{FANOUT, List, Node, Place, Runs, TAG_ENTRY, TAG_LIST, TAG_NODE, TAG_SKIP};
use super::node::{set_base, tag_of, tagged, untag};
use super::spare::{Dead, Spare};
use super::walk::prefetch;
use super::word::{DIRECTORY_BITS, Prefix, STRIDE, Word};
use abi::EntryHeader;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Prefixes of a list; one more makes a node.
const LIST_MAX: usize = 4;

/// Where a trie begins.
#[derive(Debug)]
#[repr(C)]
pub struct Root {
    /// The entry of the empty prefix, or null.
    pub default: AtomicPtr<EntryHeader>,
    /// Everything else, if there is no directory.
    pub place: Place,
}

impl Root {
    /// Of a trie without prefixes.
    pub fn new() -> Root {
        Root { default: AtomicPtr::new(ptr::null_mut()), place: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Default for Root {
    fn default() -> Self {
        Root::new()
    }
}

/// The places of the first 16 bits, for tries that are expected to be large.
#[derive(Debug)]
pub struct Directory {
    places: Box<[Place]>,
    /// The length of the prefix whose entry a place has, or leads on with as base; 0 for none.
    lens: Box<[u8]>,
}

impl Directory {
    /// Without anything.
    pub fn new() -> Directory {
        let count = 1 << DIRECTORY_BITS;
        // SAFETY: all zero bytes are a place without anything.
        let places = unsafe { Box::new_zeroed_slice(count).assume_init() };
        Directory { places, lens: vec![0; count].into() }
    }

    /// The first place.
    pub fn places(&self) -> *const Place {
        self.places.as_ptr()
    }

    /// Prefetches the node that a value leads to.
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

/// The values of a node or directory of `bits` bits that a prefix of `len` bits in it covers; `index` is one of them.
fn covered(index: usize, len: u32, bits: u32) -> Range<usize> {
    let count = 1usize << (bits - len);
    let first = index & !(count - 1);
    first..first + count
}

/// What a change gives to a value that has `content` and the prefix length `len`: its content and length from now on.
type Change<'a> = &'a mut dyn FnMut(*mut u8, u8) -> (*mut u8, u8);

/// The writer's operations below one root.
///
/// `dead` collects what was unlinked; the caller retires it.
pub struct Trie<'a, T> {
    /// Where it begins.
    pub root: &'a Root,
    /// The places of the first bits, if the trie has them; then the root has no place in use.
    pub directory: Option<&'a mut Directory>,
    /// What was unlinked.
    pub dead: &'a mut Vec<Dead>,
    /// Scratch memory for making nodes.
    pub runs: &'a mut Runs,
    /// Where memory comes from.
    pub spare: &'a mut Spare,
    /// The type of values.
    pub word: PhantomData<T>,
}

impl<T: Word> Trie<'_, T> {
    /// Adds a prefix that is not there.
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

    /// Gives a prefix that is there another entry.
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

    /// Removes a prefix that is there. `stored` gives the entry of a stored prefix, or null.
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

    /// A change of a prefix at the top: in the root, in the directory where `applies` (to the length of what is there and
    /// the prefix's) gets `entry` and `len`, or `below` a place that stands for some bits.
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

    /// Adds a prefix of more than `depth` bits below the place of its first `depth` bits.
    fn insert_below(&mut self, place: &Place, depth: u32, prefix: Prefix<T>, entry: *mut EntryHeader) {
        let content = place.load(Ordering::Relaxed);
        match tag_of(content) {
            TAG_ENTRY => {
                let list = List::make(self.spare, content.cast(), &[(prefix, entry)]);
                place.store(tagged(list, TAG_LIST), Ordering::Release);
            }
            TAG_LIST => {
                let list = untag::<List<T>>(content);
                // SAFETY: the list is linked, so it is alive.
                let (base, mut items) = unsafe { ((*list).base(), Few::read(list)) };
                items.insert(prefix, entry);
                let new = if items.len() <= LIST_MAX {
                    tagged(List::make(self.spare, base, &items), TAG_LIST)
                } else {
                    self.node_of(&items, depth, base)
                };
                place.store(new, Ordering::Release);
                // SAFETY: it was just unlinked.
                self.dead.push(unsafe { List::dead(list) });
            }
            _ => {
                let node = untag::<Node<T>>(content);
                // SAFETY: the node is linked, so it is alive.
                let (value, node_depth, base) = unsafe { ((*node).value, (*node).depth, (*node).base()) };
                let common = prefix.value.common(value).min(node_depth);
                if common == node_depth && prefix.len > node_depth {
                    return self.insert_into(place, prefix, entry);
                }
                // The prefix parts from the node's value, or ends, above the node: a new node at that place, and the old
                // one below it, with the base that it has there.
                let at = common.min(prefix.len - 1) / STRIDE * STRIDE;
                // SAFETY: as above.
                let copy = unsafe { Node::copy(self.spare, node, ptr::null_mut()) };
                let above = self.empty(prefix.value, at, base, depth);
                let index = value.octet(at);
                let below = tagged(copy, if node_depth == at + STRIDE { TAG_NODE } else { TAG_SKIP });
                self.rewrite(&above, index..index + 1, &mut |_, len| (below, len));
                self.insert_into(&above, prefix, entry);
                place.store(above.into_inner(), Ordering::Release);
                // SAFETY: it was just unlinked.
                self.dead.push(unsafe { Node::dead(node) });
            }
        }
    }

    /// Adds a prefix in or below the node at a place; the prefix has the node's bits and is longer.
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
        let list = List::make(self.spare, leaf.load(Ordering::Relaxed).cast(), &[(prefix, entry)]);
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

    /// Removes a prefix below a place. True if the place then has an entry or nothing.
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
            let (base, mut items) = unsafe { ((*list).base(), Few::read(list)) };
            items.remove(prefix);
            let gone = items.is_empty();
            place.store(
                if gone { base.cast() } else { tagged(List::make(self.spare, base, &items), TAG_LIST) },
                Ordering::Release,
            );
            // SAFETY: it was just unlinked.
            self.dead.push(unsafe { List::dead(list) });
            return gone;
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
        // A place that leads nowhere any more may join its neighbours.
        self.remove_below(leaf, depth + STRIDE, prefix, stored)
            && self.rewrite(place, index..index + 1, &mut |content, len| (content, len))
    }

    /// Changes a range of values of the node at a place: in the node if its runs stay the same, otherwise by a new one.
    /// True if the place then has an entry or nothing, because the node had nothing left.
    fn rewrite(&mut self, place: &Place, range: Range<usize>, change: Change<'_>) -> bool {
        let content = place.load(Ordering::Relaxed);
        let node = untag::<Node<T>>(content);
        // SAFETY: the node is linked, or ours, so it is alive; its bytes are the writer's; all runs are below its count.
        unsafe {
            let (starts, count, lens) = ((*node).starts(), (*node).count(), Node::lens(node));
            let leaf = |run: usize| Node::leaf(node, run).load(Ordering::Relaxed);
            let run_at = |run: usize| (leaf(run), *lens.add(run));
            let is_start = |value: usize| starts[value / 64] >> (value % 64) & 1 == 1;
            let (first, last) = ((*node).run_of(range.start), (*node).run_of(range.end - 1));
            // The runs that begin before the range; in it; behind it, from `tail` on.
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
                let new = Node::splice(self.spare, node, new_starts, head, middle, tail);
                place.store(tagged(new, tag_of(content)), Ordering::Release);
            }
            self.dead.push(Node::dead(node));
            is_empty
        }
    }

    /// A place with a new node, without prefixes; `depth` is the place's.
    fn empty(&mut self, value: T, at: u32, base: *mut EntryHeader, depth: u32) -> Place {
        let node = Node::empty(self.spare, value, at, base);
        AtomicPtr::new(tagged(node, if at == depth { TAG_NODE } else { TAG_SKIP }))
    }

    /// The content of a place that stands for `depth` bits: a node with these prefixes of more bits.
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

/// The bits of quarter `q` for values below `value`.
fn below(value: usize, q: usize) -> u64 {
    match value.saturating_sub(64 * q) {
        0 => 0,
        n @ 1..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

/// The first value from `from` on where a run starts, or 256.
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

/// What a place with this content has when a prefix covers it.
fn cover<T: Word>(content: *mut u8, entry: *mut EntryHeader) -> *mut u8 {
    if tag_of(content) == TAG_ENTRY {
        return entry.cast();
    }
    // SAFETY: contents of linked places are alive.
    unsafe { set_base::<T>(content, entry) };
    content
}

/// The next shorter stored prefix of those that end behind `depth`: its entry and bits behind `depth`.
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

/// The prefixes of a list, longest first, and room for one more.
struct Few<T> {
    items: [(Prefix<T>, *mut EntryHeader); LIST_MAX + 1],
    len: usize,
}

impl<T: Word> Few<T> {
    /// # Safety
    /// The list is alive.
    unsafe fn read(list: *const List<T>) -> Few<T> {
        let mut few = Few { items: [(Prefix { value: T::ZERO, len: 0 }, ptr::null_mut()); LIST_MAX + 1], len: 0 };
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

impl<T> Deref for Few<T> {
    type Target = [(Prefix<T>, *mut EntryHeader)];

    fn deref(&self) -> &Self::Target {
        &self.items[..self.len]
    }
}

/// The memory of everything below a root, for teardown; the root then has nothing.
pub fn clear<T: Word>(root: &Root, directory: Option<&mut Directory>, dead: &mut Vec<Dead>) {
    root.default.store(ptr::null_mut(), Ordering::Release);
    clear_place::<T>(&root.place, dead);
    if let Some(directory) = directory {
        directory.places.iter().for_each(|place| clear_place::<T>(place, dead));
        directory.lens.fill(0);
    }
}

fn clear_place<T: Word>(place: &Place, dead: &mut Vec<Dead>) {
    let content = place.load(Ordering::Relaxed);
    // No stores to places that have nothing: most of a directory may be pages that were never touched.
    if content.is_null() {
        return;
    }
    place.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: what was linked until now is alive.
    unsafe {
        match tag_of(content) {
            TAG_ENTRY => {}
            TAG_LIST => dead.push(List::<T>::dead(untag(content))),
            _ => {
                let node = untag::<Node<T>>(content);
                (0..(*node).count()).for_each(|run| clear_place::<T>(Node::leaf(node, run), dead));
                dead.push(Node::dead(node));
            }
        }
    }
}
