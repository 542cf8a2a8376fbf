//! Atomics for the lock-free parts: the standard ones, or the model checker's under `--cfg loom`; also prefetches, and
//! [`CachePadded`], which avoids false sharing.
#![allow(unsafe_code)]

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Prefetches the cache line at an address, which need not be valid.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch(at.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A value on cache lines of its own (two, for the adjacent-line prefetcher), to avoid false sharing. Readers load a
/// table's handle for every packet: if the allocator put it beside memory that the writer changes often, both would
/// keep waiting for the line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
