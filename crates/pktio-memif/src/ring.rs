//! Rings in shared memory: head, tail, flags, and descriptors of 16 bytes, each read once as a whole.
//!
//! ```text
//! offset 0   cookie, flags, head     the client writes the head, the ring's receiver the flags
//!       64   tail                    the server writes it
//!      128   descriptors: flags, region, length, offset, metadata
//! ```
//!
//! Head and tail are free-running counters; their low bits are the descriptor's index. In a ring to the server, the
//! descriptors between tail and head hold frames. In a ring to the client they hold empty buffers, and the server
//! advances the tail over those that it has filled.
//!
//! **Invariant:** a [`Ring`] lies completely in its memory, which is checked once. Its contents can change at any time,
//! so each value is loaded once, atomically, and checked before it is used.
//!
//! Source: the ring structures of VPP's memif plugin, as a format. Threads: any; each end of a ring
//! belongs to one thread. Tests: `tests.rs`.
#![allow(unsafe_code)]

use crate::memory::Memory;
use shared_memory::{prefetch, prefetch_to_write};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The value at the start of every ring.
pub(crate) const COOKIE: u32 = 0x03e3_1f20;

/// Base-2 logarithm of the maximum number of descriptors of a ring, as in other implementations.
pub(crate) const RING_LOG2_MAX: u8 = 14;

/// Bytes of a ring before its descriptors.
pub(crate) const HEADER_BYTES: usize = 128;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// Descriptor flag: the frame continues in the next descriptor.
pub(crate) const NEXT: u16 = 1;

/// Ring flag: the receiver polls and wants no interrupts.
pub(crate) const MASK_INTERRUPTS: u16 = 1;

const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;

/// Bytes of a ring with `1 << log2` descriptors.
pub(crate) fn ring_bytes(log2: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << log2)
}

/// A descriptor: a fragment of a frame, or a buffer for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub flags: u16,
    pub region: u16,
    pub length: u32,
    pub offset: u32,
}

/// A ring.
pub(crate) struct Ring {
    base: NonNull<u8>,
    mask: u16,
    /// Keeps the memory mapped.
    memory: Arc<Memory>,
}

// SAFETY: a ring is shared memory that is accessed only atomically, which any thread may do.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of `1 << log2` descriptors at `offset` in a region; `None` if it
    /// is not inside the region or not aligned.
    pub(crate) fn new(memory: &Arc<Memory>, region: u16, offset: u32, log2: u8) -> Option<Ring> {
        if log2 > RING_LOG2_MAX || !(offset as usize).is_multiple_of(align_of::<AtomicU64>()) {
            return None;
        }
        let base = memory.find(region, offset, ring_bytes(log2) as u32)?;
        Some(Ring { base, mask: (1 << log2) - 1, memory: Arc::clone(memory) })
    }

    /// Number of descriptors.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.mask + 1
    }

    /// The memory that contains the ring.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether the ring starts with the cookie.
    pub(crate) fn has_cookie(&self) -> bool {
        self.cookie().load(Ordering::Relaxed) == COOKIE
    }

    /// Initialises the ring as empty, with these flags.
    pub(crate) fn clear(&self, flags: u16) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.set_flags(flags);
        self.set_head(0);
        self.set_tail(0);
    }

    /// The client's index.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.index(HEAD_AT).load(Ordering::Acquire)
    }

    /// Publishes the descriptors that the client has written.
    #[inline]
    pub(crate) fn set_head(&self, head: u16) {
        self.index(HEAD_AT).store(head, Ordering::Release);
    }

    /// The server's index.
    #[inline]
    pub(crate) fn tail(&self) -> u16 {
        self.index(TAIL_AT).load(Ordering::Acquire)
    }

    /// Publishes the descriptors that the server has written.
    #[inline]
    pub(crate) fn set_tail(&self, tail: u16) {
        self.index(TAIL_AT).store(tail, Ordering::Release);
    }

    /// Whether the receiver wants an interrupt when frames arrive.
    #[inline]
    pub(crate) fn wants_interrupts(&self) -> bool {
        self.index(FLAGS_AT).load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// Sets the flags. Only the ring's receiver may do this.
    pub(crate) fn set_flags(&self, flags: u16) {
        self.index(FLAGS_AT).store(flags, Ordering::Relaxed);
    }

    /// Reads a descriptor once.
    #[inline]
    pub(crate) fn load(&self, index: u16) -> Descriptor {
        let [low, high] = self.words(index);
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        Descriptor { flags: low as u16, region: (low >> 16) as u16, length: (low >> 32) as u32, offset: high as u32 }
    }

    /// Writes a descriptor.
    #[inline]
    pub(crate) fn store(&self, index: u16, descriptor: Descriptor) {
        let Descriptor { flags, region, length, offset } = descriptor;
        let [low, high] = self.words(index);
        low.store(u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32, Ordering::Relaxed);
        high.store(u64::from(offset), Ordering::Relaxed);
    }

    /// Prefetches for reading the descriptors from `index` on in the same cache line.
    #[inline]
    pub(crate) fn prefetch(&self, index: u16) {
        prefetch(self.words(index).as_ptr().cast());
    }

    /// Prefetches like [`Ring::prefetch`], for writing.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, index: u16) {
        prefetch_to_write(self.words(index).as_ptr().cast());
    }

    #[inline]
    fn words(&self, index: u16) -> &[AtomicU64; 2] {
        let at = HEADER_BYTES + DESCRIPTOR_BYTES * usize::from(index & self.mask);
        // SAFETY: `new` has checked that descriptors 0 to `mask` lie in the mapping and are aligned; the mapping lives
        // as long as `self`, and any bits are valid.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    #[inline]
    fn index(&self, at: usize) -> &AtomicU16 {
        // SAFETY: as in `words`, for the header.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.base.cast().as_ref() }
    }
}
