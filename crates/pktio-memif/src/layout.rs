//! The memory that we share as a client: rings and their buffers in one region, a memfd whose size is sealed.
//!
//! Threads: any. Tests: `tests.rs`, `tests/hostile.rs`.

use crate::memory::Memory;
use crate::ring::{Descriptor, MASK_INTERRUPTS, Ring, ring_bytes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use shared_memory::Quota;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of a cache line; buffers are aligned to it.
const CACHE_LINE_BYTES: u32 = 64;

/// The layout of a client's memory: rings, and one buffer per descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rings to the server.
    pub to_server: u16,
    /// Rings to us.
    pub to_client: u16,
    /// Base-2 logarithm of the number of descriptors per ring.
    pub log2: u8,
    /// Bytes per buffer.
    pub buffer_bytes: u32,
}

/// The buffers of one of our rings, in region 0: one per descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    first: u32,
    stride: u32,
    bytes: u32,
    mask: u16,
}

/// A client's memory, allocated and initialised.
pub(crate) struct Made {
    /// The file that the server maps.
    pub file: OwnedFd,
    pub memory: Arc<Memory>,
    /// Rings with their buffers; those to the server first.
    pub rings: Vec<(Ring, Buffers)>,
}

impl Layout {
    fn rings(&self) -> u64 {
        u64::from(self.to_server) + u64::from(self.to_client)
    }

    /// Distance between buffers in bytes: an odd number of cache lines, so that buffers start in all sets of a cache.
    fn stride(&self) -> u32 {
        self.buffer_bytes.next_multiple_of(2 * CACHE_LINE_BYTES) + CACHE_LINE_BYTES
    }

    fn buffers_at(&self) -> u64 {
        (self.rings() * ring_bytes(self.log2) as u64).next_multiple_of(u64::from(CACHE_LINE_BYTES))
    }

    /// Total size in bytes; `None` if it exceeds the 32-bit offsets of descriptors.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let bytes = self.buffers_at() + (self.rings() << self.log2) * u64::from(self.stride());
        (bytes <= u64::from(u32::MAX)).then_some(bytes)
    }

    /// Offset of a ring in the region; rings to the server come first.
    pub(crate) fn ring_at(&self, number: u16) -> u32 {
        (usize::from(number) * ring_bytes(self.log2)) as u32
    }

    fn buffers(&self, number: u16) -> Buffers {
        let first = self.buffers_at() + (u64::from(number) << self.log2) * u64::from(self.stride());
        Buffers { first: first as u32, stride: self.stride(), bytes: self.buffer_bytes, mask: (1 << self.log2) - 1 }
    }

    /// Creates the memory: a sealed file, its mapping, and every ring, initialised as empty.
    ///
    /// # Errors
    /// The layout needs more than 4 GiB, the quota is exceeded, or a system call fails.
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
            // The server sets the flags of the rings that it receives from.
            ring.clear(if number < self.to_server { 0 } else { MASK_INTERRUPTS });
            (0..ring.size()).for_each(|index| ring.store(index, buffers.empty(index)));
            rings.push((ring, buffers));
        }
        Ok(Made { file, memory, rings })
    }
}

impl Buffers {
    /// Offset in region 0 of a descriptor's buffer.
    #[inline]
    pub(crate) fn offset(&self, index: u16) -> u32 {
        self.first + u32::from(index & self.mask) * self.stride
    }

    /// A descriptor for an empty buffer.
    #[inline]
    pub(crate) fn empty(&self, index: u16) -> Descriptor {
        Descriptor { flags: 0, region: 0, length: self.bytes, offset: self.offset(index) }
    }
}
