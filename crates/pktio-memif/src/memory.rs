//! The memory that a client shares with its server: one or several regions, each a file that both have mapped.
//!
//! **Promise:** [`Memory::find`] gives the address of as many bytes as were asked for, all of them mapped, or nothing. What
//! stands there is the peer's and may change at any time. A file that is truncated later costs its peer the connection
//! ([`Memory::is_damaged`]) and nobody anything else: `shared-memory` has the checks and the handler of SIGBUS.
//!
//! When we are the client, the memory is ours: a memfd sealed against any change of its size ([`Layout`]).
//!
//! Threads: any. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use crate::ring::{Descriptor, MASK_INTERRUPTS, Ring, ring_bytes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use shared_memory::{MapError, Mapping, Quota};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Most regions of a client. One that shares its packet buffers has a region for each of its memory segments, which are few.
pub(crate) const REGIONS_MAX: usize = 64;

/// Descriptors reach so far into a region; what lies beyond is not mapped.
const REGION_REACH_BYTES: u64 = 1 << 32;

/// Bytes of a cache line. Our buffers begin with one.
const CACHE_LINE_BYTES: u32 = 64;

/// Regions of one client.
#[derive(Default)]
pub(crate) struct Memory {
    /// Where each begins, and its bytes.
    places: Vec<(NonNull<u8>, u64)>,
    mappings: Vec<Mapping>,
}

// SAFETY: the addresses are of `mappings`, which any thread may use; see `Mapping`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the next region: the first `bytes` bytes of a file, as far as descriptors reach.
    pub(crate) fn add(&mut self, file: impl AsFd, bytes: u64, quota: &Quota) -> Result<(), MapError> {
        let mapping = Mapping::new(file, 0, bytes.min(REGION_REACH_BYTES) as usize, quota)?;
        self.places.push((mapping.all().as_ptr(), mapping.len() as u64));
        self.mappings.push(mapping);
        Ok(())
    }

    /// Bytes of the regions on ordinary pages, which cost whoever touches them first.
    pub(crate) fn ordinary_bytes(&self) -> u64 {
        self.mappings.iter().filter(|mapping| !mapping.is_huge()).map(|mapping| mapping.len() as u64).sum()
    }

    /// How many regions there are.
    pub(crate) fn region_count(&self) -> usize {
        self.mappings.len()
    }

    /// The address of `bytes` bytes; `None` if they are not all in the region, or there is none of this number.
    #[inline]
    pub(crate) fn find(&self, region: u16, offset: u32, bytes: u32) -> Option<NonNull<u8>> {
        let (base, size) = *self.places.get(usize::from(region))?;
        // SAFETY: the sum is at most the mapping's size.
        (u64::from(offset) + u64::from(bytes) <= size).then(|| unsafe { base.add(offset as usize) })
    }

    /// Writes bytes into region 0 as a peer does, as far as they lie in it.
    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) {
        if let Some(mapping) = self.mappings.first() {
            let room = mapping.len().saturating_sub(offset as usize).min(bytes.len());
            mapping.all().write_bytes(offset as usize, &bytes[..room]);
        }
    }

    /// Whether a page was lost, as by truncation of its file.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.mappings.iter().any(Mapping::is_damaged)
    }
}

/// What a client's memory holds: its rings, and a buffer for each descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rings to the server.
    pub to_server: u16,
    /// Rings to us.
    pub to_client: u16,
    /// Binary logarithm of each ring's descriptors.
    pub log2: u8,
    /// Bytes of a buffer.
    pub buffer_bytes: u32,
}

/// The buffers of a ring of ours, in region 0: one for each descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    first: u32,
    stride: u32,
    bytes: u32,
    mask: u16,
}

/// A client's memory, made.
pub(crate) struct Made {
    /// What the server maps.
    pub file: OwnedFd,
    pub memory: Arc<Memory>,
    /// Those to the server first.
    pub rings: Vec<(Ring, Buffers)>,
}

impl Layout {
    fn rings(&self) -> u64 {
        u64::from(self.to_server) + u64::from(self.to_client)
    }

    /// From one buffer to the next: an odd number of cache lines, so that buffers begin in all sets of a cache.
    fn stride(&self) -> u32 {
        self.buffer_bytes.next_multiple_of(2 * CACHE_LINE_BYTES) + CACHE_LINE_BYTES
    }

    fn buffers_at(&self) -> u64 {
        (self.rings() * ring_bytes(self.log2) as u64).next_multiple_of(u64::from(CACHE_LINE_BYTES))
    }

    /// Bytes of the whole; `None` if descriptors do not reach its end.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let bytes = self.buffers_at() + (self.rings() << self.log2) * u64::from(self.stride());
        (bytes <= u64::from(u32::MAX)).then_some(bytes)
    }

    /// Where a ring is: those to the server first.
    pub(crate) fn ring_at(&self, number: u16) -> u32 {
        (usize::from(number) * ring_bytes(self.log2)) as u32
    }

    fn buffers(&self, number: u16) -> Buffers {
        let first = self.buffers_at() + (u64::from(number) << self.log2) * u64::from(self.stride());
        Buffers { first: first as u32, stride: self.stride(), bytes: self.buffer_bytes, mask: (1 << self.log2) - 1 }
    }

    /// Makes the memory: a sealed file, its mapping, and every ring with its buffers, empty.
    pub(crate) fn make(&self, quota: &Quota) -> std::io::Result<Made> {
        let invalid = || std::io::Error::other("its rings and buffers need more than 4 GiB");
        let bytes = self.bytes().ok_or_else(invalid)?;
        let file = memfd_create("memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut memory = Memory::default();
        memory.add(&file, bytes, quota).map_err(std::io::Error::other)?;
        let memory = Arc::new(memory);
        let mut rings = Vec::new();
        for number in 0..self.to_server + self.to_client {
            let ring = Ring::new(&memory, 0, self.ring_at(number), self.log2).ok_or_else(invalid)?;
            let buffers = self.buffers(number);
            // A server says itself that it polls its rings.
            ring.clear(if number < self.to_server { 0 } else { MASK_INTERRUPTS });
            (0..ring.size()).for_each(|index| ring.store(index, buffers.empty(index)));
            rings.push((ring, buffers));
        }
        Ok(Made { file, memory, rings })
    }
}

impl Buffers {
    /// Where that of a descriptor begins in region 0.
    #[inline]
    pub(crate) fn offset(&self, index: u16) -> u32 {
        self.first + u32::from(index & self.mask) * self.stride
    }

    /// The descriptor of an empty one.
    #[inline]
    pub(crate) fn empty(&self, index: u16) -> Descriptor {
        Descriptor { flags: 0, region: 0, length: self.bytes, offset: self.offset(index) }
    }
}
