//! The answers for IPv4 addresses, spread out so that a lookup is two loads: what compiled code reads.
//!
//! A trie's walk has a branch for each kind of place, and a processor guesses wrong at them as often as prefixes have different
//! lengths. So tables of prefixes of up to 32 bits that have room for some hundred entries keep, beside the trie, all answers for the
//! first 16 and the next 8 bits in arrays, and for the last 8 where some prefix is so long. (Gupta, Lin, McKeown: "Routing
//! lookups in hardware at memory access speeds", with one more level so that memory follows the number of prefixes.)
//!
//! # Memory layout (what compiled code relies on)
//!
//! Everything lies in one array of words ([`Region`], in huge pages where there are any): a **directory** of 65,536 links, as many
//! places, and **nodes**. A link is the address of places, shifted by 16, with a mask below.
//!
//! It leads to the *own place* of its 16 bits, with mask 0, or to a node of 256 places, with mask 255: so the walk has no branch.
//! A place is an entry, or null for none, or [`LEADS_ON`] with the address of a node for the last 8 bits. Places of nodes hold
//! answers: the longest prefix of any length that covers all of their addresses.
//!
//! ```text
//! link  = directory[key >> 16]
//! place = (link >> 16)[key >> 8 & link & 0xff]
//! if place has LEADS_ON: place = (place without it)[key & 0xff]
//! ```
//!
//! The empty prefix is not here: null stands for it. Whoever meets null looks as the trie does, with the version count.
//!
//! **Change while readers walk.** For each key the change of one prefix is one store: in a place, or of the link to a node that was
//! filled before. Nodes stay until the whole goes, and the own place beside a node stays as it was when that was linked. So a
//! walk gives the answer at the moment when it read the place, or, if a node came in between, when that was linked.
//!
//! **Bounds.** [`NODES_MAX`] nodes, 46 MB. A prefix that would need one more makes the whole be given up: the trie answers then,
//! which takes much less memory for large tables. A prefix changes the places that it covers, 256 for a /16, so short
//! ones cost more than in the trie: as many stores as there are places in all nodes, for a /1 in a table of 100,000 some milliseconds.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`, through tables; compiled walks in
//! `crates/datapath/tests/prefixes.rs`.
#![allow(unsafe_code)]

use super::word::Prefix;
use crate::region::Region;
use abi::EntryHeader;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Nodes that there may be.
pub const NODES_MAX: usize = 20_000;
/// Bits of the directory.
pub const DIRECTORY_BITS: u32 = 16;
/// Bits of a node.
pub const STRIDE: u32 = 8;
/// What a link has below the address, in bits.
pub const LINK_SHIFT: u32 = 16;
/// Bytes of a link.
pub const LINK_BYTES: usize = size_of::<u64>();
/// The bit of a place that leads to a node.
pub const LEADS_ON: u64 = 1 << 63;

const FANOUT: usize = 1 << STRIDE;
const LINKS: usize = 1 << DIRECTORY_BITS;

/// The answers for 256 values of 8 bits.
#[repr(C, align(64))]
struct Node {
    places: [AtomicU64; FANOUT],
    /// The writer's: lengths of the prefixes whose entries the places hold (of a place that leads on, of what it held); 0 for none.
    lens: [AtomicU8; FANOUT],
    /// The writer's: the entry of the longest prefix that ends above, and of a node for the last bits that one's length.
    base: AtomicU64,
    base_len: AtomicU8,
}

/// The directory and room for all nodes; pages that are never touched take no memory.
#[repr(C)]
struct Memory {
    links: [AtomicU64; LINKS],
    places: [AtomicU64; LINKS],
    nodes: [Node; NODES_MAX],
}

/// The whole.
#[derive(Debug)]
pub struct Flat {
    memory: Region<Memory>,
    /// Lengths of the prefixes of up to 16 bits whose entries own places hold, or would; 0 for none.
    lens: Box<[u8]>,
    /// Nodes in use.
    nodes: usize,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// What a change does to the places that its prefix covers: where it applies (to the length of the prefix there) they get another
/// entry with its length.
struct Change<'a> {
    applies: &'a dyn Fn(u8) -> bool,
    entry: u64,
    len: u8,
}

/// There is no room for another node.
#[derive(Debug)]
pub struct Full;

fn word_of(entry: *mut EntryHeader) -> u64 {
    entry.expose_provenance() as u64
}

/// What a place with this content leads to.
fn node_behind(content: u64) -> Option<*const Node> {
    (content & LEADS_ON != 0).then(|| ptr::with_exposed_provenance((content & !LEADS_ON) as usize))
}

/// The values of a level of `bits` bits, of which `value` is one, that a prefix with `len` bits in it covers.
fn covered(value: usize, len: u32, bits: u32) -> Range<usize> {
    let count = 1 << (bits - len);
    let first = value & !(count - 1);
    first..first + count
}

/// The entry of a key in what a [`Flat`]'s [`directory`](Flat::directory) leads to; null for none.
///
/// # Safety
/// The directory is that of a `Flat` that was linked since the caller's last quiescent point.
#[inline(always)]
pub unsafe fn find(directory: *const u8, key: u32) -> *mut EntryHeader {
    // SAFETY: there is a link for each value of 16 bits; links and places lead to places of the same memory.
    unsafe {
        let link = (*directory.cast::<AtomicU64>().add((key >> 16) as usize)).load(Ordering::Acquire);
        let places = ptr::with_exposed_provenance::<AtomicU64>((link >> LINK_SHIFT) as usize);
        let mut content = (*places.add((u64::from(key >> 8) & link & 0xff) as usize)).load(Ordering::Acquire);
        if let Some(node) = node_behind(content) {
            content = (*node).places[(key & 0xff) as usize].load(Ordering::Acquire);
        }
        ptr::with_exposed_provenance_mut(content as usize)
    }
}

impl Flat {
    /// Without prefixes.
    pub fn new() -> Flat {
        // SAFETY: all zero bytes are such a thing.
        let memory: Region<Memory> = unsafe { Region::zeroed(1) };
        for (link, place) in memory[0].links.iter().zip(&memory[0].places) {
            let place = ptr::from_ref(place).expose_provenance() as u64;
            link.store(place << LINK_SHIFT, Ordering::Relaxed);
        }
        Flat { memory, lens: vec![0; LINKS].into(), nodes: 0 }
    }

    /// Where readers begin; it stays.
    pub fn directory(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        LINKS * (2 * LINK_BYTES + 1) + self.nodes * size_of::<Node>()
    }

    /// Adds a prefix that is not there and not empty.
    pub fn insert(&mut self, prefix: Prefix<u32>, entry: *mut EntryHeader) -> Result<(), Full> {
        let own = prefix.len as u8;
        self.change(prefix, &Change { applies: &|there| there < own, entry: word_of(entry), len: own })
    }

    /// Gives a prefix that is there another entry.
    pub fn replace(&mut self, prefix: Prefix<u32>, entry: *mut EntryHeader) {
        let own = prefix.len as u8;
        let change = Change { applies: &|there| there == own, entry: word_of(entry), len: own };
        self.change(prefix, &change).expect("what a prefix needs is there with it");
    }

    /// Removes a prefix that is there. `stored` gives the entry of a stored prefix, or null.
    pub fn remove(&mut self, prefix: Prefix<u32>, stored: &mut dyn FnMut(u32) -> *mut EntryHeader) {
        let own = prefix.len as u8;
        let (above, base) = self.above(prefix);
        let next = (above + 1..prefix.len).rev().find_map(|len| {
            let entry = stored(len);
            (!entry.is_null()).then(|| (word_of(entry), len as u8))
        });
        let (entry, len) = next.unwrap_or(base);
        let change = Change { applies: &|there| there == own, entry, len };
        self.change(prefix, &change).expect("what a prefix needs is there with it");
    }

    /// The bits above the level that a prefix ends in, and the entry and length of the longest prefix that ends above.
    fn above(&self, prefix: Prefix<u32>) -> (u32, (u64, u8)) {
        let index = (prefix.value >> 16) as usize;
        match prefix.len {
            0..=16 => (0, (0, 0)),
            17..=24 => (16, (self.node(index).map_or(0, |n| n.base.load(Ordering::Relaxed)), self.lens[index])),
            _ => {
                let place = self.node(index).and_then(|node| {
                    let content = node.places[(prefix.value >> 8 & 0xff) as usize].load(Ordering::Relaxed);
                    // SAFETY: nodes live as long as `self`.
                    node_behind(content).map(|node| unsafe { &*node })
                });
                let base = |node: &Node| (node.base.load(Ordering::Relaxed), node.base_len.load(Ordering::Relaxed));
                (24, place.map_or((0, 0), base))
            }
        }
    }

    /// The node that a link leads to.
    fn node(&self, index: usize) -> Option<&Node> {
        let link = self.memory[0].links[index].load(Ordering::Relaxed);
        let places = ptr::with_exposed_provenance::<Node>((link >> LINK_SHIFT) as usize);
        // SAFETY: a link with a mask leads to the places of a node, with which the node begins.
        (link & 0xff != 0).then(|| unsafe { &*places })
    }

    /// A new node whose places all hold this, not linked yet.
    fn new_node(&mut self, content: u64, len: u8) -> Result<*const Node, Full> {
        let node = self.memory[0].nodes.get(self.nodes).ok_or(Full)?;
        self.nodes += 1;
        for (place, own) in node.places.iter().zip(&node.lens) {
            place.store(content, Ordering::Relaxed);
            own.store(len, Ordering::Relaxed);
        }
        node.base.store(content, Ordering::Relaxed);
        node.base_len.store(len, Ordering::Relaxed);
        Ok(node)
    }

    fn change(&mut self, prefix: Prefix<u32>, change: &Change<'_>) -> Result<(), Full> {
        let index = (prefix.value >> 16) as usize;
        if prefix.len <= DIRECTORY_BITS {
            for i in covered(index, prefix.len, DIRECTORY_BITS) {
                if !(change.applies)(self.lens[i]) {
                    continue;
                }
                self.lens[i] = change.len;
                match self.node(i) {
                    None => self.memory[0].places[i].store(change.entry, Ordering::Release),
                    Some(node) => {
                        node.base.store(change.entry, Ordering::Relaxed);
                        change_places(node, 0..FANOUT, change);
                    }
                }
            }
            return Ok(());
        }
        if self.node(index).is_none() {
            let content = self.memory[0].places[index].load(Ordering::Relaxed);
            let node = self.new_node(content, self.lens[index])?;
            let link = (node.expose_provenance() as u64) << LINK_SHIFT | (FANOUT as u64 - 1);
            self.memory[0].links[index].store(link, Ordering::Release);
        }
        let value = (prefix.value >> 8 & 0xff) as usize;
        let node = ptr::from_ref(self.node(index).expect("it is there or was just made"));
        // SAFETY: nodes live as long as `self`.
        let node = unsafe { &*node };
        if prefix.len <= DIRECTORY_BITS + STRIDE {
            change_places(node, covered(value, prefix.len - DIRECTORY_BITS, STRIDE), change);
            return Ok(());
        }
        let content = node.places[value].load(Ordering::Relaxed);
        let last = match node_behind(content) {
            Some(last) => last,
            None => {
                let last = self.new_node(content, node.lens[value].load(Ordering::Relaxed))?;
                node.places[value].store(last.expose_provenance() as u64 | LEADS_ON, Ordering::Release);
                last
            }
        };
        let covered = covered((prefix.value & 0xff) as usize, prefix.len - DIRECTORY_BITS - STRIDE, STRIDE);
        // SAFETY: as above.
        change_places(unsafe { &*last }, covered, change);
        Ok(())
    }
}

impl Default for Flat {
    fn default() -> Self {
        Flat::new()
    }
}

/// A change of some places of a node and of what they lead to.
fn change_places(node: &Node, values: Range<usize>, change: &Change<'_>) {
    for (place, len) in node.places[values.clone()].iter().zip(&node.lens[values]) {
        if !(change.applies)(len.load(Ordering::Relaxed)) {
            continue;
        }
        len.store(change.len, Ordering::Relaxed);
        match node_behind(place.load(Ordering::Relaxed)) {
            None => place.store(change.entry, Ordering::Release),
            Some(below) => {
                // SAFETY: what places lead to lives as long as they do.
                let below = unsafe { &*below };
                below.base.store(change.entry, Ordering::Relaxed);
                below.base_len.store(change.len, Ordering::Relaxed);
                change_places(below, 0..FANOUT, change);
            }
        }
    }
}
