//! Prefetches and copies for rings in shared memory.
//!
//! Nothing here checks bounds: callers do. A prefetch is a hint that accesses nothing and never faults, so any address will do.
//!
//! Threads: any. Tests: `slice.rs`.
#![allow(unsafe_code)]

/// Prefetches the cache line at an address, to read it.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same to write it: other processors give the line up. In assembly, since the intrinsic is the prefetch for reading unless the
/// whole crate is compiled for processors that have this instruction; others take it as a no-operation.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Copies `len` bytes, as a mixture of old and new ones if the peer writes meanwhile. Lengths of short frames take a few wide moves, of which
/// two may overlap; others the library's function.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], but that one of both ranges may be changed by the peer meanwhile.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Longer copies cost as much as a call.
    const SHORT: usize = 256;
    /// Copies the first and the last `size_of::<T>()` bytes; `T` is an array of at most `len` bytes.
    ///
    /// # Safety
    /// As for `copy`.
    #[inline(always)]
    unsafe fn ends<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
        let last = len - size_of::<T>();
        // SAFETY: both are in the ranges. Both are read before one is written.
        unsafe {
            let (a, b) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
            to.cast::<T>().write_unaligned(a);
            to.add(last).cast::<T>().write_unaligned(b);
        }
    }
    // SAFETY: the caller's; each step stays within the first `len` bytes.
    unsafe {
        match len {
            32..=64 => ends::<[u8; 32]>(from, to, len),
            65..=128 => ends::<[u8; 64]>(from, to, len),
            129..=SHORT => {
                let mut at = 0;
                while at + 128 < len {
                    to.add(at).cast::<[u8; 64]>().write_unaligned(from.add(at).cast::<[u8; 64]>().read_unaligned());
                    at += 64;
                }
                ends::<[u8; 64]>(from.add(at), to.add(at), len - at);
            }
            16..32 => ends::<[u8; 16]>(from, to, len),
            8..16 => ends::<[u8; 8]>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}
