//! The answers for IPv4 addresses, spread out so that a lookup is two loads: what compiled code reads.
//!
//! A trie's walk has a branch for each kind of place and waits for three lines of memory, one after the other. So tables of prefixes
//! of up to 32 bits that have room for some hundred entries do without it: they keep all answers for the first 16 and the next 8 bits in
//! arrays, as numbers of 16 bits ([`answers`]). (Gupta, Lin, McKeown: "Routing lookups in hardware at memory access
//! speeds", with one more level so that memory follows the number of prefixes.)
//!
//! # Memory layout (what compiled code relies on)
//!
//! Everything but lists lies in one array ([`Region`], in huge pages where there are any): a **directory** of 65,536 links, the entries
//! by number, links to longer prefixes, as many *own places* as links, and **nodes** of 256 places. The index of a link is its 16 bits as
//! they are loaded from a frame, in its order of bytes. A link is the address of the own place of its 16 bits or of a node. What such an
//! address is modulo 64 is how far to the right the next 8 bits go: not at all for nodes, which begin with a line, and out of sight for
//! own places, which leave the first 8 bytes of a line alone. So the walk has no branch, and a link takes nothing apart.
//!
//! A place is the number of the answer for its 256 addresses, of the longest prefix of any length that covers all of them, or 0 for none;
//! or [`LEADS_ON`] with the position of a link in an array that the 16 bits have of their own, where prefixes are longer than 24 bits:
//! it leads to those ([`longer`]).
//!
//! ```text
//! link  = directory[bytes 0 and 1 of key]
//! place = link[byte 2 of key >> link % 64]
//! if place has LEADS_ON: place = number in longer[key >> 16][place & 0xff] for key & 0xff
//! ```
//!
//! The empty prefix is not here: 0 stands for it. Whoever meets that looks as the engine does, with the version count.
//!
//! **Change while readers walk.** For each key the change of one prefix is one store: in a place, a word of a list, or of a link to what
//! was filled before. Nodes and arrays' positions stay until the whole goes, and the own place beside a node stays as it was when that was
//! linked. So a walk gives the answer at the moment when it read the place, or, if a node came in between, when that was linked. Lists
//! and numbers are used again when no reader has them.
//!
//! **Bounds.** [`NUMBERS`] different answers. An entry that would be one more makes the whole be given up: the trie answers
//! then. Memory is 576 bytes for each 16 bits in which prefixes are longer (all: 38 MB), and some twenty for each prefix of more than
//! 24 bits. A prefix changes the places that it covers, 256 for a /16, so short
//! ones cost more than in the trie: as many stores as there are places in all nodes, for a /1 among a million some ten milliseconds.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`, through tables; compiled walks in
//! `crates/datapath/tests/prefixes.rs`.
#![allow(unsafe_code)]

pub mod answers;
pub mod longer;
pub mod tree;

use super::spare::{Dead, Spare};
use super::walk::prefetch;
use super::word::Prefix;
use crate::region::Region;
use abi::EntryHeader;
use answers::{Answers, Entries, NUMBERS, entry_of};
use longer::{Last, Longer};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use tree::{OCTET_WORDS, Tree, number_of};

/// Bits of the directory.
pub const DIRECTORY_BITS: u32 = 16;
/// Bits of a node.
pub const STRIDE: u32 = 8;
/// Bytes of a link.
pub const LINK_BYTES: usize = size_of::<u64>();
/// Bytes of a place.
pub const PLACE_BYTES: usize = size_of::<u16>();
/// The bit of a place where prefixes are longer.
pub const LEADS_ON: u16 = 1 << 15;
/// Where, behind the directory, the addresses of entries are, by number.
pub const ENTRIES_AT: usize = offset_of!(Memory, entries);
/// Where, behind the directory, the arrays of links to longer prefixes are, by the first 16 bits.
pub const LONGER_AT: usize = offset_of!(Memory, longer);

const FANOUT: usize = 1 << STRIDE;
const LINKS: usize = 1 << DIRECTORY_BITS;
const _: () = assert!(NUMBERS <= LEADS_ON as usize);

/// The answers for 256 values of 8 bits.
#[repr(C, align(64))]
struct Node([AtomicU16; FANOUT]);

/// Own places, none of which is where a shift by its address modulo 64 leaves anything of 8 bits.
#[repr(C, align(64))]
struct OwnPlaces {
    _none: [AtomicU16; STRIDE as usize / PLACE_BYTES],
    places: [AtomicU16; OWN_PLACES],
}

/// Own places of a line.
const OWN_PLACES: usize = (64 - STRIDE as usize) / PLACE_BYTES;
const _: () = assert!(size_of::<OwnPlaces>() == 64);

/// What readers read. Pages that are never touched take no memory.
#[repr(C)]
struct Memory {
    links: [AtomicU64; LINKS],
    entries: Entries,
    longer: [AtomicU64; LINKS],
    places: [OwnPlaces; LINKS.div_ceil(OWN_PLACES)],
    nodes: [Node; LINKS],
}

/// The whole.
#[derive(Debug)]
pub struct Flat {
    memory: Region<Memory>,
    /// The prefixes of up to 16 bits.
    short: Box<[Cell<u64>]>,
    /// By the first 16 bits: the number of the answer of the longest of those.
    bases: Box<[Cell<u16>]>,
    /// By the first 16 bits: the prefixes of 17 to 24 bits.
    trees: Region<[Cell<u64>; OCTET_WORDS]>,
    /// Nodes in use.
    nodes: usize,
    answers: Answers,
    /// Memory of lists, blocks and links to them.
    spare: Spare,
    /// What was unlinked; the caller retires it.
    pub gone: Vec<Gone>,
}

impl Default for Flat {
    fn default() -> Self {
        Flat::new()
    }
}

/// What may be used again when no reader has it any more.
#[derive(Debug)]
pub enum Gone {
    /// A list, or an array of links.
    Memory(Dead),
    /// An answer's number.
    Number(u16),
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// There are no more numbers.
#[derive(Debug)]
pub struct Full;

/// The entry of a key in what a [`Flat`]'s [`directory`](Flat::directory) leads to; null for none.
///
/// # Safety
/// The directory is that of a `Flat` that was linked since the caller's last quiescent point.
#[inline(always)]
pub unsafe fn find(directory: *const u8, key: u32) -> *mut EntryHeader {
    // SAFETY: there is a link for each value of 16 bits; links and places lead to what is alive.
    unsafe {
        let mut content = (*place_of(directory, key)).load(Ordering::Acquire);
        if content & LEADS_ON != 0 {
            content = Longer(link_of(directory, key, content)).find(key as u8);
        }
        entry_of(&(*directory.cast::<Memory>()).entries, content)
    }
}

/// The place of a key.
///
/// # Safety
/// As [`find`].
#[inline(always)]
pub unsafe fn place_of(directory: *const u8, key: u32) -> *const AtomicU16 {
    // SAFETY: the caller's promise.
    unsafe {
        let link = (*directory.cast::<AtomicU64>().add(in_frame(index_of(key)))).load(Ordering::Acquire);
        let places = ptr::with_exposed_provenance::<AtomicU16>(link as usize);
        places.add((u64::from(key >> 8 & 0xff) >> (link % 64)) as usize)
    }
}

/// The link to longer prefixes that a place with this content leads to.
///
/// # Safety
/// As [`find`]; the content is that of the key's place, and leads on.
#[inline(always)]
unsafe fn link_of<'a>(directory: *const u8, key: u32, content: u16) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe {
        let links = (*directory.cast::<Memory>()).longer[(key >> 16) as usize].load(Ordering::Acquire);
        &*ptr::with_exposed_provenance::<AtomicU64>(links as usize).add(usize::from(content & 0xff))
    }
}

/// The number that 16 bits are when they are loaded from a frame.
#[inline(always)]
fn in_frame(index: usize) -> usize {
    usize::from((index as u16).to_be())
}

/// The first 16 bits of a value.
#[inline(always)]
fn index_of(value: u32) -> usize {
    (value >> 16) as usize
}

/// The last 8 bits of a prefix that has some of them.
fn last_of(prefix: Prefix<u32>) -> Last {
    Last { value: prefix.value as u8, len: prefix.len - DIRECTORY_BITS - STRIDE }
}

impl Flat {
    /// Without prefixes.
    pub fn new() -> Flat {
        // SAFETY: all zero bytes are such a thing.
        let (memory, trees): (Region<Memory>, _) = unsafe { (Region::zeroed(1), Region::zeroed(LINKS)) };
        let places = memory[0].places.iter().flat_map(|line| &line.places);
        for (link, place) in memory[0].links.iter().zip(places) {
            link.store(ptr::from_ref(place).expose_provenance() as u64, Ordering::Relaxed);
        }
        Flat {
            memory,
            short: vec![Cell::new(0); 2 * LINKS / 64].into(),
            bases: vec![Cell::new(0); LINKS].into(),
            trees,
            nodes: 0,
            answers: Answers::new(),
            spare: Spare::default(),
            gone: Vec::new(),
        }
    }

    /// Where readers begin; it stays.
    pub fn directory(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    /// Prefetches what a change of a prefix will need.
    pub fn prefetch(&self, prefix: Prefix<u32>) {
        // SAFETY: the writer's own.
        prefetch(unsafe { place_of(self.directory(), prefix.value) }.cast());
        prefetch((&raw const self.trees[index_of(prefix.value)]).cast());
    }

    /// Adds a prefix that is not there and not empty.
    pub fn insert(&mut self, prefix: Prefix<u32>, entry: *mut EntryHeader) -> Result<(), Full> {
        let number = self.answers.take(&self.memory[0].entries, entry).ok_or(Full)?;
        match self.tree_of(prefix) {
            Some((tree, own)) => {
                tree.set(own, true);
                self.paint(prefix, number);
            }
            None => self.insert_long(prefix, number),
        }
        Ok(())
    }

    /// Gives a prefix that is there another entry.
    pub fn replace(&mut self, prefix: Prefix<u32>, old: *mut EntryHeader, entry: *mut EntryHeader) -> Result<(), Full> {
        let number = self.answers.take(&self.memory[0].entries, entry).ok_or(Full)?;
        match prefix.len {
            0..=24 => self.paint(prefix, number),
            _ => self.longer(prefix.value).replace(last_of(prefix), number),
        }
        self.give_back(old);
        Ok(())
    }

    /// Removes a prefix that is there. `stored` gives the entry of a stored prefix of this length, or null.
    pub fn remove(
        &mut self,
        prefix: Prefix<u32>,
        old: *mut EntryHeader,
        stored: &mut dyn FnMut(u32) -> *mut EntryHeader,
    ) {
        match self.tree_of(prefix) {
            Some((tree, own)) => {
                tree.set(own, false);
                let above = prefix.len - own.ilog2();
                let number = match tree.shorter(own) {
                    Some(len) => self.answers.number(stored(above + len)),
                    None if above == 0 => 0,
                    None => self.bases[index_of(prefix.value)].get(),
                };
                self.paint(prefix, number);
            }
            None => {
                let longer = self.longer(prefix.value);
                let Flat { answers, spare, gone, .. } = self;
                let mut number = |len| answers.number(stored(DIRECTORY_BITS + STRIDE + len));
                longer.remove(spare, &mut |dead| gone.push(Gone::Memory(dead)), last_of(prefix), &mut number);
            }
        }
        self.give_back(old);
    }

    /// Takes back what no reader has any more.
    ///
    /// # Safety
    /// It came out of `gone`, and every worker has been quiescent since.
    pub unsafe fn free(&mut self, gone: Gone) {
        match gone {
            // SAFETY: the caller's promise.
            Gone::Memory(dead) => unsafe { self.spare.give_back(dead) },
            Gone::Number(number) => self.answers.free(number),
        }
    }

    /// All prefixes.
    pub fn prefixes(&self) -> Vec<Prefix<u32>> {
        let mut all = Vec::new();
        let mut add = |above: u32, depth: u32, (bits, len): (u32, u32)| {
            all.push(Prefix { value: above | bits << (32 - depth - len), len: depth + len });
        };
        Tree(&self.short).prefixes().for_each(|prefix| add(0, 0, prefix));
        for index in (0..LINKS).filter(|index| self.node(*index).is_some()) {
            let above = (index as u32) << 16;
            Tree(&self.trees[index]).prefixes().for_each(|prefix| add(above, DIRECTORY_BITS, prefix));
            for value in 0..FANOUT as u32 {
                let above = above | value << 8;
                if self.place(above).load(Ordering::Relaxed) & LEADS_ON != 0 {
                    let last = self.longer(above).prefixes();
                    let bits = |last: Last| (u32::from(last.value) >> (STRIDE - last.len), last.len);
                    last.into_iter().for_each(|last| add(above, DIRECTORY_BITS + STRIDE, bits(last)));
                }
            }
        }
        all
    }

    fn give_back(&mut self, entry: *mut EntryHeader) {
        self.gone.extend(self.answers.give_back(entry).map(Gone::Number));
    }

    /// The tree that has a prefix of up to 24 bits, and its number there.
    fn tree_of(&self, prefix: Prefix<u32>) -> Option<(Tree<'_>, usize)> {
        let (value, len) = (prefix.value, prefix.len);
        match len {
            0..=16 => Some((Tree(&self.short), number_of(value, 32, len))),
            17..=24 => Some((Tree(&self.trees[index_of(value)]), number_of(value << 16 >> 16, 16, len - 16))),
            _ => None,
        }
    }

    /// The node behind a link.
    fn node(&self, index: usize) -> Option<&Node> {
        let link = self.memory[0].links[in_frame(index)].load(Ordering::Relaxed);
        // SAFETY: what begins with a line is a node.
        link.is_multiple_of(64).then(|| unsafe { &*ptr::with_exposed_provenance::<Node>(link as usize) })
    }

    fn node_or_new(&mut self, index: usize) -> &Node {
        if self.node(index).is_none() {
            // There is one for each link.
            let node = &self.memory[0].nodes[self.nodes];
            self.nodes += 1;
            let base = self.bases[index].get();
            node.0.iter().for_each(|place| place.store(base, Ordering::Relaxed));
            let link = ptr::from_ref(node).expose_provenance() as u64;
            self.memory[0].links[in_frame(index)].store(link, Ordering::Release);
        }
        self.node(index).expect("it is there or was just made")
    }

    /// The place that a value has.
    fn place(&self, value: u32) -> &AtomicU16 {
        // SAFETY: the writer's own memory.
        unsafe { &*place_of(self.directory(), value) }
    }

    /// The prefixes of more than 24 bits among those with a value's first 24, of which there are or were some.
    fn longer<'a>(&self, value: u32) -> Longer<'a> {
        let content = self.place(value).load(Ordering::Relaxed);
        // SAFETY: the writer's own memory; positions stay, and arrays are freed only by the writer.
        Longer(unsafe { link_of(self.directory(), value, content) })
    }

    /// Gives all that is a prefix's own an answer. It has up to 24 bits.
    fn paint(&mut self, prefix: Prefix<u32>, number: u16) {
        if prefix.len > DIRECTORY_BITS {
            self.node_or_new(index_of(prefix.value));
        }
        let this = &*self;
        let above = |value: u32| {
            let place = this.place(value);
            match place.load(Ordering::Relaxed) & LEADS_ON {
                0 => place.store(number, Ordering::Release),
                _ => this.longer(value).set_base(number),
            }
        };
        let (tree, own) = this.tree_of(prefix).expect("it has up to 24 bits");
        if prefix.len > DIRECTORY_BITS {
            let first = prefix.value >> 16 << 16;
            return tree.own_values(own, &mut |value| above(first | (value as u32) << 8));
        }
        tree.own_values(own, &mut |index| {
            this.bases[index].set(number);
            let first = (index as u32) << 16;
            match this.node(index) {
                Some(_) => Tree(&this.trees[index]).own_values(1, &mut |value| above(first | (value as u32) << 8)),
                None => above(first),
            }
        });
    }

    /// Adds a prefix of more than 24 bits.
    fn insert_long(&mut self, prefix: Prefix<u32>, number: u16) {
        let index = index_of(prefix.value);
        self.node_or_new(index);
        let content = self.place(prefix.value).load(Ordering::Relaxed);
        if content & LEADS_ON == 0 {
            let position = self.new_link(index, content);
            self.place(prefix.value).store(LEADS_ON | position, Ordering::Release);
        }
        let longer = self.longer(prefix.value);
        let Flat { spare, gone, .. } = self;
        longer.insert(spare, &mut |dead| gone.push(Gone::Memory(dead)), last_of(prefix), number);
    }

    /// The position of a new link, without prefixes and with an answer, in the array that 16 bits have.
    fn new_link(&mut self, index: usize, base: u16) -> u16 {
        let node = self.node(index).expect("whoever has longer prefixes has a node");
        let used = node.0.iter().filter(|place| place.load(Ordering::Relaxed) & LEADS_ON != 0).count();
        let array = &self.memory[0].longer[index];
        let links =
            |array: &AtomicU64| ptr::with_exposed_provenance_mut::<AtomicU64>(array.load(Ordering::Relaxed) as usize);
        // Arrays have room for two links, four, eight and so on.
        if used == 0 || used > 1 && used.is_power_of_two() {
            let (room, old) = ((2 * used).max(2), links(array));
            let new = self.spare.take(room * size_of::<AtomicU64>()).cast::<AtomicU64>();
            for position in 0..room {
                // SAFETY: the old array has as many links as are used; the new one has room for them and is not linked yet.
                unsafe {
                    let link = if position < used { (*old.add(position)).load(Ordering::Relaxed) } else { 0 };
                    new.add(position).write(AtomicU64::new(link));
                }
            }
            array.store(new.expose_provenance() as u64, Ordering::Release);
            if used > 0 {
                self.gone.push(Gone::Memory(Dead::new(old, used * size_of::<AtomicU64>())));
            }
        }
        // SAFETY: the array has room for one link more than are used.
        let link = unsafe { &*links(array).add(used) };
        Longer(link).begin(&mut self.spare, base);
        used as u16
    }
}
