//! DIR-16-8-8: IPv4 prefixes expanded into arrays of next-hop indices, so that a lookup is two dependent loads.
//! Compiled code reads them without a call.
//!
//! A lookup in the trie branches on the kind of each place and has three dependent cache misses. LPM tables on up to 32
//! bits with a declared size of some hundred entries avoid that: they expand all prefixes over the first 16 and the
//! next 8 bits into arrays of 16-bit indices ([`next_hops`]). (Gupta, Lin, McKeown: "Routing lookups in hardware at
//! memory access speeds", with one more level, so that memory is proportional to the number of prefixes.)
//!
//! # Memory layout (compiled code relies on it)
//!
//! Everything but the lists lies in one array ([`Region`], in huge pages where available): a **directory** of 65,536
//! links; the entries by index; the links to prefixes of more than 24 bits; one *own place* for each link; and
//! **nodes** of 256 places. A link is indexed by the first 16 bits of the address as loaded from a frame, in network
//! byte order.
//!
//! A link is the address of the own place of its 16 bits or, if they have prefixes of more than 16 bits, of a node. The
//! next 8 bits are shifted right by the link modulo 64. Nodes are aligned to cache lines, so the shift is 0; own places
//! avoid the first 8 bytes of a line, so the shift is at least 8 and leaves zero. So a lookup needs no branch, and no
//! bits of a link need masking.
//!
//! A place holds the next-hop index of its 256 addresses: that of the longest prefix that covers all of them, or 0 for
//! none. If prefixes of more than 24 bits lie below it, it holds the extension flag [`EXTENSION_FLAG`] and the position
//! of a link in an array that its first 16 bits own; the link points at these prefixes ([`longer`]).
//!
//! ```text
//! link  = directory[bytes 0 and 1 of key]
//! place = link[byte 2 of key >> link % 64]
//! if place has EXTENSION_FLAG: place = index in longer[key >> 16][place & 0xff] for key & 0xff
//! ```
//!
//! The empty prefix is not stored here: its result is 0. A reader that finds 0 looks the key up as the engine does,
//! with the version count.
//!
//! **Concurrent readers.** For each key, the change of one prefix is one store: to a place, to a word of a list, or of
//! a link to memory that was filled before. Nodes, and positions in the arrays of links, stay until the whole structure
//! is freed; and an own place is not changed after its link points at a node. So the result of a lookup was current
//! when the reader read the place or, if it read an own place whose link meanwhile points at a node, when that node was
//! linked. Lists and indices are reused only when no reader can have them any more.
//!
//! **Bounds.** Fewer than [`NEXT_HOPS_MAX`] different entries. If one more is needed the structure is abandoned, and
//! the trie takes over. Memory is 576 bytes for each value of the first 16 bits that has longer prefixes (38 MB if all
//! have), and about 20 bytes for each prefix of more than 24 bits. A change of a prefix writes all places that it
//! covers, 256 for a /16; so short prefixes cost more than in the trie: for a /1 among a million prefixes, some ten
//! milliseconds.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`, through tables;
//! compiled lookups in `crates/datapath/tests/prefixes.rs`.
#![allow(unsafe_code)]

pub mod longer;
pub mod next_hops;
pub mod tree;

use super::allocator::{NodeAllocator, Unlinked};
use super::walk::prefetch;
use super::word::Prefix;
use crate::region::Region;
use abi::EntryHeader;
use longer::{Last, Longer};
use next_hops::{Entries, NEXT_HOPS_MAX, NextHops, entry_of};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use tree::{OCTET_WORDS, Tree, number_of};

/// Bits of the directory.
pub const DIRECTORY_BITS: u32 = 16;
/// Bits of a node.
pub const STRIDE: u32 = 8;
/// Bytes of a link in the directory.
pub const LINK_BYTES: usize = size_of::<u64>();
/// Bytes of a place.
pub const PLACE_BYTES: usize = size_of::<u16>();
/// The extension flag: the place refers to prefixes of more than 24 bits.
pub const EXTENSION_FLAG: u16 = 1 << 15;
/// Byte offset, from the directory, of the addresses of entries by next-hop index.
pub const ENTRIES_AT: usize = offset_of!(Memory, entries);
/// Byte offset, from the directory, of the arrays of links to longer prefixes, by the first 16 bits.
pub const LONGER_AT: usize = offset_of!(Memory, longer);

const FANOUT: usize = 1 << STRIDE;
const LINKS: usize = 1 << DIRECTORY_BITS;
const _: () = assert!(NEXT_HOPS_MAX <= EXTENSION_FLAG as usize);

/// The next-hop indices of 256 values of 8 bits.
#[repr(C, align(64))]
struct Node([AtomicU16; FANOUT]);

/// A cache line of own places, at offsets of at least 8: a shift of 8 bits by their address modulo 64 leaves zero.
#[repr(C, align(64))]
struct OwnPlaces {
    _none: [AtomicU16; STRIDE as usize / PLACE_BYTES],
    places: [AtomicU16; OWN_PLACES],
}

/// Own places in a cache line.
const OWN_PLACES: usize = (64 - STRIDE as usize) / PLACE_BYTES;
const _: () = assert!(size_of::<OwnPlaces>() == 64);

/// The memory that readers see. Pages that are never touched take no physical memory.
#[repr(C)]
struct Memory {
    links: [AtomicU64; LINKS],
    entries: Entries,
    longer: [AtomicU64; LINKS],
    places: [OwnPlaces; LINKS.div_ceil(OWN_PLACES)],
    nodes: [Node; LINKS],
}

/// The writer's side of a DIR-16-8-8 structure.
#[derive(Debug)]
pub struct Dir1688 {
    memory: Region<Memory>,
    /// The set of prefixes of up to 16 bits.
    short: Box<[Cell<u64>]>,
    /// By the first 16 bits: the next-hop index of the longest of those prefixes.
    bases: Box<[Cell<u16>]>,
    /// By the first 16 bits: the set of prefixes of 17 to 24 bits.
    trees: Region<[Cell<u64>; OCTET_WORDS]>,
    /// Number of nodes in use.
    nodes: usize,
    next_hops: NextHops,
    /// Memory of lists, blocks and arrays of links to them.
    allocator: NodeAllocator,
    /// Unlinked resources; the caller retires them.
    pub unlinked: Vec<UnlinkedResource>,
}

impl Default for Dir1688 {
    fn default() -> Self {
        Dir1688::new()
    }
}

/// A resource that may be reused when no reader can have it any more.
#[derive(Debug)]
pub enum UnlinkedResource {
    /// A list, or an array of links.
    Memory(Unlinked),
    /// A next-hop index.
    Number(u16),
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// Error: all next-hop indices are in use.
#[derive(Debug)]
pub struct Full;

/// The entry that matches `key`, or null. `directory` is [`Dir1688::directory`].
///
/// # Safety
/// The directory is that of a `Dir1688` that was linked at or after the caller's last quiescent point.
#[inline(always)]
pub unsafe fn find(directory: *const u8, key: u32) -> *mut EntryHeader {
    // SAFETY: there is a link for each value of 16 bits; links and places lead to what is alive.
    unsafe {
        let mut content = (*place_of(directory, key)).load(Ordering::Acquire);
        if content & EXTENSION_FLAG != 0 {
            content = Longer(link_of(directory, key, content)).find(key as u8);
        }
        entry_of(&(*directory.cast::<Memory>()).entries, content)
    }
}

/// The place that holds the result for `key`.
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

/// The link to the longer prefixes that a place with this content refers to.
///
/// # Safety
/// As [`find`]; the content is that of the key's place, and has [`EXTENSION_FLAG`].
#[inline(always)]
unsafe fn link_of<'a>(directory: *const u8, key: u32, content: u16) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe {
        let links = (*directory.cast::<Memory>()).longer[(key >> 16) as usize].load(Ordering::Acquire);
        &*ptr::with_exposed_provenance::<AtomicU64>(links as usize).add(usize::from(content & 0xff))
    }
}

/// A 16-bit index in the byte order in which it is loaded from a frame.
#[inline(always)]
fn in_frame(index: usize) -> usize {
    usize::from((index as u16).to_be())
}

/// The first 16 bits of a value.
#[inline(always)]
fn index_of(value: u32) -> usize {
    (value >> 16) as usize
}

/// The last 8 bits of a prefix of more than 24 bits.
fn last_of(prefix: Prefix<u32>) -> Last {
    Last { value: prefix.value as u8, len: prefix.len - DIRECTORY_BITS - STRIDE }
}

impl Dir1688 {
    /// A structure without prefixes.
    pub fn new() -> Dir1688 {
        // SAFETY: all zero bytes are valid values of both types.
        let (memory, trees): (Region<Memory>, _) = unsafe { (Region::zeroed(1), Region::zeroed(LINKS)) };
        let places = memory[0].places.iter().flat_map(|line| &line.places);
        for (link, place) in memory[0].links.iter().zip(places) {
            link.store(ptr::from_ref(place).expose_provenance() as u64, Ordering::Relaxed);
        }
        Dir1688 {
            memory,
            short: vec![Cell::new(0); 2 * LINKS / 64].into(),
            bases: vec![Cell::new(0); LINKS].into(),
            trees,
            nodes: 0,
            next_hops: NextHops::new(),
            allocator: NodeAllocator::default(),
            unlinked: Vec::new(),
        }
    }

    /// The address at which lookups start; it does not change.
    pub fn directory(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    /// Prefetches the memory that a change of this prefix will touch.
    pub fn prefetch(&self, prefix: Prefix<u32>) {
        // SAFETY: the memory is the writer's own.
        prefetch(unsafe { place_of(self.directory(), prefix.value) }.cast());
        prefetch((&raw const self.trees[index_of(prefix.value)]).cast());
    }

    /// Adds a prefix that is not empty and not stored yet.
    ///
    /// # Errors
    /// [`Full`] if the entry needs a next-hop index and none is free; nothing has changed then.
    pub fn insert(&mut self, prefix: Prefix<u32>, entry: *mut EntryHeader) -> Result<(), Full> {
        let number = self.next_hops.take(&self.memory[0].entries, entry).ok_or(Full)?;
        match self.tree_of(prefix) {
            Some((tree, own)) => {
                tree.set(own, true);
                self.paint(prefix, number);
            }
            None => self.insert_long(prefix, number),
        }
        Ok(())
    }

    /// Replaces the entry of a stored prefix.
    ///
    /// # Errors
    /// As [`Dir1688::insert`].
    pub fn replace(&mut self, prefix: Prefix<u32>, old: *mut EntryHeader, entry: *mut EntryHeader) -> Result<(), Full> {
        let number = self.next_hops.take(&self.memory[0].entries, entry).ok_or(Full)?;
        match prefix.len {
            0..=24 => self.paint(prefix, number),
            _ => self.longer(prefix.value).replace(last_of(prefix), number),
        }
        self.release(old);
        Ok(())
    }

    /// Removes a stored prefix. `stored` returns the entry of the stored prefix of a given length that covers it, or
    /// null.
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
                    Some(len) => self.next_hops.number(stored(above + len)),
                    None if above == 0 => 0,
                    None => self.bases[index_of(prefix.value)].get(),
                };
                self.paint(prefix, number);
            }
            None => {
                let longer = self.longer(prefix.value);
                let Dir1688 { next_hops, allocator, unlinked, .. } = self;
                let mut number = |len| next_hops.number(stored(DIRECTORY_BITS + STRIDE + len));
                longer.remove(
                    allocator,
                    &mut |memory| unlinked.push(UnlinkedResource::Memory(memory)),
                    last_of(prefix),
                    &mut number,
                );
            }
        }
        self.release(old);
    }

    /// Makes a resource available again.
    ///
    /// # Safety
    /// It came out of `gone`, and every worker has been quiescent since.
    pub unsafe fn free(&mut self, resource: UnlinkedResource) {
        match resource {
            // SAFETY: the caller's promise.
            UnlinkedResource::Memory(memory) => unsafe { self.allocator.release(memory) },
            UnlinkedResource::Number(number) => self.next_hops.free(number),
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
                if self.place(above).load(Ordering::Relaxed) & EXTENSION_FLAG != 0 {
                    let last = self.longer(above).prefixes();
                    let bits = |last: Last| (u32::from(last.value) >> (STRIDE - last.len), last.len);
                    last.into_iter().for_each(|last| add(above, DIRECTORY_BITS + STRIDE, bits(last)));
                }
            }
        }
        all
    }

    fn release(&mut self, entry: *mut EntryHeader) {
        self.unlinked.extend(self.next_hops.release(entry).map(UnlinkedResource::Number));
    }

    /// The set that a prefix of up to 24 bits belongs to, and its number there; `None` for longer ones.
    fn tree_of(&self, prefix: Prefix<u32>) -> Option<(Tree<'_>, usize)> {
        let (value, len) = (prefix.value, prefix.len);
        match len {
            0..=16 => Some((Tree(&self.short), number_of(value, 32, len))),
            17..=24 => Some((Tree(&self.trees[index_of(value)]), number_of(value << 16 >> 16, 16, len - 16))),
            _ => None,
        }
    }

    /// The node that a link points at, if it points at one.
    fn node(&self, index: usize) -> Option<&Node> {
        let link = self.memory[0].links[in_frame(index)].load(Ordering::Relaxed);
        // SAFETY: only nodes are aligned to cache lines.
        link.is_multiple_of(64).then(|| unsafe { &*ptr::with_exposed_provenance::<Node>(link as usize) })
    }

    fn node_or_new(&mut self, index: usize) -> &Node {
        if self.node(index).is_none() {
            // The array has a node for each link.
            let node = &self.memory[0].nodes[self.nodes];
            self.nodes += 1;
            let base = self.bases[index].get();
            node.0.iter().for_each(|place| place.store(base, Ordering::Relaxed));
            let link = ptr::from_ref(node).expose_provenance() as u64;
            self.memory[0].links[in_frame(index)].store(link, Ordering::Release);
        }
        self.node(index).expect("it is there or was just made")
    }

    /// The place of a value.
    fn place(&self, value: u32) -> &AtomicU16 {
        // SAFETY: the writer's own memory.
        unsafe { &*place_of(self.directory(), value) }
    }

    /// The prefixes of more than 24 bits that share a value's first 24 bits; the value's place has [`EXTENSION_FLAG`].
    fn longer<'a>(&self, value: u32) -> Longer<'a> {
        let content = self.place(value).load(Ordering::Relaxed);
        // SAFETY: the writer's own memory; positions stay, and arrays are freed only by the writer.
        Longer(unsafe { link_of(self.directory(), value, content) })
    }

    /// Stores a next-hop index for all addresses whose longest match is `prefix`, which has up to 24 bits.
    fn paint(&mut self, prefix: Prefix<u32>, number: u16) {
        if prefix.len > DIRECTORY_BITS {
            self.node_or_new(index_of(prefix.value));
        }
        let this = &*self;
        let above = |value: u32| {
            let place = this.place(value);
            match place.load(Ordering::Relaxed) & EXTENSION_FLAG {
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
        if content & EXTENSION_FLAG == 0 {
            let position = self.new_link(index, content);
            self.place(prefix.value).store(EXTENSION_FLAG | position, Ordering::Release);
        }
        let longer = self.longer(prefix.value);
        let Dir1688 { allocator, unlinked, .. } = self;
        longer.insert(
            allocator,
            &mut |memory| unlinked.push(UnlinkedResource::Memory(memory)),
            last_of(prefix),
            number,
        );
    }

    /// Appends a link without prefixes to the array of a directory index: returns its position. `base` is the result
    /// there.
    fn new_link(&mut self, index: usize, base: u16) -> u16 {
        let node = self.node(index).expect("whoever has longer prefixes has a node");
        let used = node.0.iter().filter(|place| place.load(Ordering::Relaxed) & EXTENSION_FLAG != 0).count();
        let array = &self.memory[0].longer[index];
        let links =
            |array: &AtomicU64| ptr::with_exposed_provenance_mut::<AtomicU64>(array.load(Ordering::Relaxed) as usize);
        // The arrays' capacities are powers of two, from 2 on.
        if used == 0 || used > 1 && used.is_power_of_two() {
            let (room, old) = ((2 * used).max(2), links(array));
            let new = self.allocator.take(room * size_of::<AtomicU64>()).cast::<AtomicU64>();
            for position in 0..room {
                // SAFETY: the old array has `used` links; the new one has room for them and is not linked yet.
                unsafe {
                    let link = if position < used { (*old.add(position)).load(Ordering::Relaxed) } else { 0 };
                    new.add(position).write(AtomicU64::new(link));
                }
            }
            array.store(new.expose_provenance() as u64, Ordering::Release);
            if used > 0 {
                self.unlinked.push(UnlinkedResource::Memory(Unlinked::new(old, used * size_of::<AtomicU64>())));
            }
        }
        // SAFETY: the array has room for at least one more link than are used.
        let link = unsafe { &*links(array).add(used) };
        Longer(link).begin(&mut self.allocator, base);
        used as u16
    }
}
