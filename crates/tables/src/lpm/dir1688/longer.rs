//! The prefixes of more than 24 bits that share their first 24: a short list, or one slot for each of the 256
//! addresses.
//!
//! A *list* is an array of 32-bit words, longest prefix first. Its last word has mask 0, so it matches every address
//! and gives the result for those that match no prefix. A list with another number of prefixes is a new list. A *block*
//! has a 16-bit place for each address.
//!
//! ```text
//! word of a list: value, mask (8 bits each), next-hop index (16 bits)
//! ```
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`, through tables.
#![allow(unsafe_code)]

use super::tree::{OCTET_WORDS, Tree, number_of};
use crate::lpm::allocator::{NodeAllocator, Unlinked};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The bit of a link that marks a block.
pub const BLOCK: u64 = 1;
/// Position of the mask in a list's word, in bits; the value is below it.
pub const MASK_SHIFT: u32 = 8;
/// Position of the next-hop index in a list's word, in bits.
pub const NEXT_HOP_SHIFT: u32 = 16;
/// The most prefixes of a list; one more turns it into a block.
const LIST_MAX: usize = 12;

#[repr(C)]
struct Block {
    places: [AtomicU16; 256],
    /// Used by the writer only: the set of prefixes, and the next-hop index of addresses that match none.
    tree: [Cell<u64>; OCTET_WORDS],
    base: Cell<u16>,
}

/// A prefix of the last 8 bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Last {
    /// The 8 bits; those after the prefix are zero.
    pub value: u8,
    /// Length in bits, 1 to 8.
    pub len: u32,
}

impl Last {
    fn mask(self) -> u8 {
        !(0xffu16 >> self.len) as u8
    }

    fn word(self, number: u16) -> u32 {
        u32::from(self.value) | u32::from(self.mask()) << MASK_SHIFT | u32::from(number) << NEXT_HOP_SHIFT
    }

    fn in_tree(self) -> usize {
        number_of(self.value.into(), 8, self.len)
    }
}

fn last_of(word: u32) -> Last {
    Last { value: word as u8, len: ((word >> MASK_SHIFT) as u8).count_ones() }
}

/// The list or block that a link points at. The link is a word that the writer changes.
pub struct Longer<'a>(pub &'a AtomicU64);

impl Longer<'_> {
    /// The next-hop index for an address with these last 8 bits.
    ///
    /// # Safety
    /// Nothing that was linked at or after the caller's last quiescent point has been freed.
    #[inline(always)]
    pub unsafe fn find(&self, value: u8) -> u16 {
        let link = self.0.load(Ordering::Acquire);
        // SAFETY: the caller's promise; the bit says what is there.
        unsafe {
            if link & BLOCK != 0 {
                return (*block(link)).places[usize::from(value)].load(Ordering::Acquire);
            }
            let mut at = list(link);
            loop {
                let word = (*at).load(Ordering::Acquire);
                if (word ^ u32::from(value)) & word >> MASK_SHIFT & 0xff == 0 {
                    return (word >> NEXT_HOP_SHIFT) as u16;
                }
                at = at.add(1);
            }
        }
    }

    /// Links a list without prefixes; `base` is the next-hop index for all addresses.
    pub fn begin(&self, allocator: &mut NodeAllocator, base: u16) {
        self.0.store(make_list(allocator, &[], base), Ordering::Release);
    }

    /// Changes the next-hop index of the addresses that match no prefix.
    pub fn set_base(&self, number: u16) {
        match self.content() {
            Content::List { at, prefixes, .. } => {
                // SAFETY: the last word is behind the prefixes.
                let last = unsafe { &*at.add(prefixes.len()) };
                last.store(u32::from(number) << NEXT_HOP_SHIFT, Ordering::Release);
            }
            Content::Block(block) => {
                block.base.set(number);
                block.paint(1, number);
            }
        }
    }

    /// Adds a prefix; unlinked memory is passed to `dead`.
    pub fn insert(&self, allocator: &mut NodeAllocator, unlink: &mut impl FnMut(Unlinked), prefix: Last, number: u16) {
        match self.content() {
            Content::Block(block) => {
                Tree(&block.tree).set(prefix.in_tree(), true);
                block.paint(prefix.in_tree(), number);
            }
            Content::List { mut prefixes, base, at } => {
                let words = prefixes.len() + 1;
                let place = prefixes.partition_point(|word| last_of(*word).len >= prefix.len);
                prefixes.insert(place, prefix.word(number));
                let new = match prefixes.len() {
                    0..=LIST_MAX => make_list(allocator, &prefixes, base),
                    _ => make_block(allocator, &prefixes, base),
                };
                self.0.store(new, Ordering::Release);
                unlink(Unlinked::new(at, words * size_of::<u32>()));
            }
        }
    }

    /// Changes the next-hop index of a stored prefix.
    pub fn replace(&self, prefix: Last, number: u16) {
        match self.content() {
            Content::Block(block) => block.paint(prefix.in_tree(), number),
            Content::List { prefixes, at, .. } => {
                let place = prefixes.iter().position(|word| last_of(*word) == prefix).expect("the prefix is there");
                // SAFETY: the list has so many words.
                unsafe { &*at.add(place) }.store(prefix.word(number), Ordering::Release);
            }
        }
    }

    /// Removes a stored prefix. `stored` returns the next-hop index of the stored prefix of a given length in these 8
    /// bits.
    pub fn remove(
        &self,
        allocator: &mut NodeAllocator,
        unlink: &mut impl FnMut(Unlinked),
        prefix: Last,
        stored: &mut dyn FnMut(u32) -> u16,
    ) {
        match self.content() {
            Content::Block(block) => {
                let tree = Tree(&block.tree);
                tree.set(prefix.in_tree(), false);
                let number = tree.shorter(prefix.in_tree()).map_or(block.base.get(), stored);
                block.paint(prefix.in_tree(), number);
            }
            Content::List { mut prefixes, base, at } => {
                let words = prefixes.len() + 1;
                prefixes.retain(|word| last_of(*word) != prefix);
                self.0.store(make_list(allocator, &prefixes, base), Ordering::Release);
                unlink(Unlinked::new(at, words * size_of::<u32>()));
            }
        }
    }

    /// The stored prefixes.
    pub fn prefixes(&self) -> Vec<Last> {
        match self.content() {
            Content::List { prefixes, .. } => prefixes.into_iter().map(last_of).collect(),
            Content::Block(block) => {
                let prefixes = Tree(&block.tree).prefixes();
                prefixes.map(|(bits, len)| Last { value: (bits << (8 - len)) as u8, len }).collect()
            }
        }
    }

    fn content(&self) -> Content<'_> {
        let link = self.0.load(Ordering::Relaxed);
        // SAFETY: what is linked is alive.
        unsafe {
            if link & BLOCK != 0 {
                return Content::Block(&*block(link));
            }
            let at = list(link);
            let mut prefixes = Vec::with_capacity(LIST_MAX + 1);
            loop {
                let word = (*at.add(prefixes.len())).load(Ordering::Relaxed);
                if word >> MASK_SHIFT & 0xff == 0 {
                    return Content::List { at, prefixes, base: (word >> NEXT_HOP_SHIFT) as u16 };
                }
                prefixes.push(word);
            }
        }
    }
}

enum Content<'a> {
    /// The words of its prefixes, and the next-hop index in its last word.
    List {
        at: *mut AtomicU32,
        prefixes: Vec<u32>,
        base: u16,
    },
    Block(&'a Block),
}

fn list(link: u64) -> *mut AtomicU32 {
    ptr::with_exposed_provenance_mut(link as usize)
}

fn block(link: u64) -> *const Block {
    ptr::with_exposed_provenance((link & !BLOCK) as usize)
}

fn make_list(allocator: &mut NodeAllocator, prefixes: &[u32], base: u16) -> u64 {
    let at = allocator.take((prefixes.len() + 1) * size_of::<u32>()).cast::<u32>();
    for (i, word) in prefixes.iter().copied().chain([u32::from(base) << NEXT_HOP_SHIFT]).enumerate() {
        // SAFETY: the memory has room for so many words, and is aligned to 16.
        unsafe { at.add(i).write(word) };
    }
    at.expose_provenance() as u64
}

/// A block with the prefixes of a list's words.
fn make_block(allocator: &mut NodeAllocator, prefixes: &[u32], base: u16) -> u64 {
    let at = allocator.take(size_of::<Block>()).cast::<Block>();
    let places = [const { AtomicU16::new(0) }; 256];
    // SAFETY: the memory has room for a block, and is aligned to 16.
    let block = unsafe {
        at.write(Block { places, tree: [const { Cell::new(0) }; OCTET_WORDS], base: Cell::new(base) });
        &*at
    };
    prefixes.iter().for_each(|word| Tree(&block.tree).set(last_of(*word).in_tree(), true));
    block.paint(1, base);
    prefixes.iter().for_each(|word| block.paint(last_of(*word).in_tree(), (word >> NEXT_HOP_SHIFT) as u16));
    at.expose_provenance() as u64 | BLOCK
}

impl Block {
    /// Stores a next-hop index for all values whose longest match is `prefix`.
    fn paint(&self, prefix: usize, number: u16) {
        Tree(&self.tree).own_values(prefix, &mut |value| self.places[value].store(number, Ordering::Release));
    }
}
