//! Rings in shared memory: the head, the tail, flags, and descriptors of 16 bytes, each read once as a whole.
//!
//! ```text
//! offset 0   cookie, flags, head     the client writes the head (and the flags of rings it receives from)
//!       64   tail                    the server writes it
//!      128   descriptors: flags, region, length, offset, metadata
//! ```
//!
//! Heads and tails count without end; the low bits say which descriptor. Frames to the server lie between tail and head;
//! on the way to the client these are empty buffers, and the server's tail moves over those that it has filled.
//!
//! **Promise:** a [`Ring`] lies in its memory as a whole, checked once. Everything in it can change at any time, so each
//! value is loaded once, by an atomic access, and what is made of it is checked before it is used.
//!
//! Source: the ring structures of VPP's memif plugin, as a format. Threads: any; ends of a ring belong to one each.
//! Tests: `tests.rs`.
#![allow(unsafe_code)]

use crate::memory::Memory;
use shared_memory::{prefetch, prefetch_to_write};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What a ring begins with.
pub(crate) const COOKIE: u32 = 0x03e3_1f20;

/// Binary logarithm of the most descriptors of a ring: what other implementations take.
pub(crate) const RING_LOG2_MAX: u8 = 14;

/// Bytes before the descriptors.
pub(crate) const HEADER_BYTES: usize = 128;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// The frame goes on in the next descriptor.
pub(crate) const NEXT: u16 = 1;

/// In a ring's flags: the receiver polls and wants no interrupts.
pub(crate) const MASK_INTERRUPTS: u16 = 1;

const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;

/// Bytes of a ring.
pub(crate) fn ring_bytes(log2: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << log2)
}

/// A piece of a frame, or a buffer for one.
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
    /// Keeps the mapping.
    memory: Arc<Memory>,
}

// SAFETY: a ring is shared memory that any thread may read and write, by atomic accesses only.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of `1 << log2` descriptors at a place of a region; `None` if it is not within the region, or not aligned.
    pub(crate) fn new(memory: &Arc<Memory>, region: u16, offset: u32, log2: u8) -> Option<Ring> {
        if log2 > RING_LOG2_MAX || !(offset as usize).is_multiple_of(align_of::<AtomicU64>()) {
            return None;
        }
        let base = memory.find(region, offset, ring_bytes(log2) as u32)?;
        Some(Ring { base, mask: (1 << log2) - 1, memory: Arc::clone(memory) })
    }

    /// How many descriptors it has.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.mask + 1
    }

    /// The memory that it is in.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether it begins as a ring does.
    pub(crate) fn has_cookie(&self) -> bool {
        self.cookie().load(Ordering::Relaxed) == COOKIE
    }

    /// Makes an empty ring of it, with this flag for its sender.
    pub(crate) fn clear(&self, flags: u16) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.set_flags(flags);
        self.set_head(0);
        self.set_tail(0);
    }

    /// Where the client is.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.index(HEAD_AT).load(Ordering::Acquire)
    }

    /// Publishes what the client has written.
    #[inline]
    pub(crate) fn set_head(&self, head: u16) {
        self.index(HEAD_AT).store(head, Ordering::Release);
    }

    /// Where the server is.
    #[inline]
    pub(crate) fn tail(&self) -> u16 {
        self.index(TAIL_AT).load(Ordering::Acquire)
    }

    /// Publishes what the server has written.
    #[inline]
    pub(crate) fn set_tail(&self, tail: u16) {
        self.index(TAIL_AT).store(tail, Ordering::Release);
    }

    /// Whether the receiver wants an interrupt when there is something in the ring.
    #[inline]
    pub(crate) fn wants_interrupts(&self) -> bool {
        self.index(FLAGS_AT).load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// Sets the flags: the receiver's to do.
    pub(crate) fn set_flags(&self, flags: u16) {
        self.index(FLAGS_AT).store(flags, Ordering::Relaxed);
    }

    /// Reads a descriptor, once.
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

    /// Asks for the descriptors from `index` on that share its cache line, to read them.
    #[inline]
    pub(crate) fn prefetch(&self, index: u16) {
        prefetch(self.words(index).as_ptr().cast());
    }

    /// The same, to write them.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, index: u16) {
        prefetch_to_write(self.words(index).as_ptr().cast());
    }

    #[inline]
    fn words(&self, index: u16) -> &[AtomicU64; 2] {
        let at = HEADER_BYTES + DESCRIPTOR_BYTES * usize::from(index & self.mask);
        // SAFETY: `new` has checked that descriptors 0 to `mask` lie in the mapping and are aligned; the mapping lives as
        // long as `self`, and any bits are valid.
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
