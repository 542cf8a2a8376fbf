//! Prefetches and short copies for rings in shared memory.
//!
//! Nothing here checks bounds; callers do. A prefetch is a hint: it accesses
//! nothing and never faults, whatever the address.
//!
//! Threads: any. Tests: `slice.rs`.
#![allow(unsafe_code)]

/// Prefetches the cache line at an address for reading.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the cache line at an address for writing: other processors give it up. Uses assembly because
/// the intrinsic emits a prefetch for reading unless the whole crate is compiled for processors with
/// PREFETCHW; others execute it as a no-op.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that never faults.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The unit of one move: a vector register.
#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

const WIDE: usize = size_of::<Wide>();

/// Copies the first and the last `N` units, which may overlap. All are read before any is written, and stay in
/// registers; with arrays in memory the compiler would copy through the stack.
///
/// # Safety
/// As for [`copy`]; `len` is from `N * WIDE` to `2 * N * WIDE`.
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - N * WIDE;
    // SAFETY: all moves lie within both ranges, since `len >= N * WIDE`.
    unsafe {
        let first: [Wide; N] = std::array::from_fn(|i| from.add(WIDE * i).cast::<Wide>().read_unaligned());
        let second: [Wide; N] = std::array::from_fn(|i| from.add(last + WIDE * i).cast::<Wide>().read_unaligned());
        for (i, bytes) in first.into_iter().enumerate() {
            to.add(WIDE * i).cast::<Wide>().write_unaligned(bytes);
        }
        for (i, bytes) in second.into_iter().enumerate() {
            to.add(last + WIDE * i).cast::<Wide>().write_unaligned(bytes);
        }
    }
}

/// Copies `len` bytes. If the peer writes meanwhile, the result is a mixture of old and new bytes.
/// Lengths of short frames take a few vector moves, the last of which may overlap the one before;
/// other lengths call the library's function.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], but that one of both ranges may be changed by the peer meanwhile.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match len {
            33..=64 => ends::<2>(from, to, len),
            65..=128 => ends::<4>(from, to, len),
            _ => copy_other(from, to, len),
        }
    }
}

/// The rest of [`copy`], out of line, for less frequent lengths.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_other(from: *const u8, to: *mut u8, len: usize) {
    /// Above this length, copying costs as much as a call.
    const SHORT: usize = 256;
    // SAFETY: guaranteed by the caller; each step stays within the first `len` bytes.
    unsafe {
        match len {
            129..=SHORT => {
                let mut at = 0;
                while at + 128 < len {
                    ends::<2>(from.add(at), to.add(at), 64);
                    at += 64;
                }
                ends::<4>(from.add(at), to.add(at), len - at);
            }
            16..=32 => ends::<1>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}
