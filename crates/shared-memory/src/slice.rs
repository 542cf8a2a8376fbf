//! A part of a mapping, with checked access.
//!
//! No Rust reference to shared bytes is ever made, since the peer may write while we read. Integers are read and
//! written by one volatile or atomic access each. Byte ranges are copied to or from private memory through raw
//! pointers; the copy may be any mixture of old and new bytes, which is no worse than other hostile bytes.
//!
//! Threads: any, together with the peer. Tests: below.
#![allow(unsafe_code)]

use crate::access::{self, copy};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

/// Types for which any bytes are valid: integers, and `repr(C)` structures of them without padding.
///
/// # Safety
/// Every pattern of bits is a valid value, and there is no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => { $(
        // SAFETY: an integer.
        unsafe impl Plain for $type {}
    )* };
}
plain!(u8, u16, u32, u64);

// SAFETY: elements that are plain, without padding between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Bytes of a mapping, valid while the mapping is borrowed. Offsets are in bytes from the slice's start.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    at: NonNull<u8>,
    len: usize,
    mapping: PhantomData<&'a ()>,
}

// SAFETY: the bytes are accessed only by volatile and atomic accesses and raw copies (see the module documentation).
unsafe impl Send for Slice<'_> {}
// SAFETY: as above.
unsafe impl Sync for Slice<'_> {}

impl<'a> Slice<'a> {
    /// A slice of `len` bytes from `at`.
    ///
    /// # Safety
    /// `len` bytes from `at` stay mapped, to read and to write, for `'a`.
    #[inline]
    pub unsafe fn new(at: NonNull<u8>, len: usize) -> Slice<'a> {
        Slice { at, len, mapping: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for owners that keep the mapping and check bounds themselves.
    #[inline]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.at
    }

    /// Whether the slice contains `len` bytes from `offset`.
    #[inline]
    pub fn contains(&self, offset: usize, len: usize) -> bool {
        offset <= self.len && len <= self.len - offset
    }

    /// The `len` bytes from `offset`; `None` if the slice does not contain all of them.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Slice<'a>> {
        // SAFETY: the range is in this one.
        self.contains(offset, len).then(|| unsafe { Slice::new(self.at.add(offset), len) })
    }

    /// Copies a value out; it may be torn. `None` if the slice does not contain all of it.
    #[inline]
    pub fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        if !self.contains(offset, size_of::<T>()) {
            return None;
        }
        // SAFETY: the bytes are in the slice, any bits are a valid `T`; a volatile read of an aligned one, so that the
        // compiler makes one copy, or a plain one of the bytes.
        unsafe {
            let from = self.at.as_ptr().add(offset).cast::<T>();
            Some(if from.is_aligned() { from.read_volatile() } else { from.read_unaligned() })
        }
    }

    /// Writes a value; false if it does not fit.
    #[inline]
    pub fn write<T: Plain>(&self, offset: usize, value: T) -> bool {
        if !self.contains(offset, size_of::<T>()) {
            return false;
        }
        // SAFETY: the bytes are in the slice.
        unsafe {
            let to = self.at.as_ptr().add(offset).cast::<T>();
            if to.is_aligned() { to.write_volatile(value) } else { to.write_unaligned(value) }
        }
        true
    }

    /// Copies `to.len()` bytes out. Returns false and leaves `to` unchanged if the slice does not contain all of them.
    #[inline]
    pub fn read_bytes(&self, offset: usize, to: &mut [u8]) -> bool {
        let fits = self.contains(offset, to.len());
        if fits {
            // SAFETY: the bytes are in the slice, and `to` is private memory.
            unsafe { copy(self.at.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
        }
        fits
    }

    /// Copies bytes in. Returns false and writes nothing if they do not fit.
    #[inline]
    pub fn write_bytes(&self, offset: usize, from: &[u8]) -> bool {
        let fits = self.contains(offset, from.len());
        if fits {
            // SAFETY: the bytes are in the slice, and `from` is private memory.
            unsafe { copy(from.as_ptr(), self.at.as_ptr().add(offset), from.len()) }
        }
        fits
    }

    /// Loads an index that the peer writes; `None` if the offset is out of range or not aligned.
    #[inline]
    pub fn load_u16(&self, offset: usize, order: Ordering) -> Option<u16> {
        Some(self.atomic_u16(offset)?.load(order))
    }

    /// Stores an index that the peer reads; false if the offset is out of range or not aligned.
    #[inline]
    pub fn store_u16(&self, offset: usize, value: u16, order: Ordering) -> bool {
        let Some(cell) = self.atomic_u16(offset) else { return false };
        cell.store(value, order);
        true
    }

    /// Loads a number that the peer writes; `None` if the offset is out of range or not aligned.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Option<u64> {
        Some(self.atomic_u64(offset)?.load(order))
    }

    /// Stores a number that the peer reads; false if the offset is out of range or not aligned.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> bool {
        let Some(cell) = self.atomic_u64(offset) else { return false };
        cell.store(value, order);
        true
    }

    /// Atomically sets bits of a byte whose bits others set too; false if the offset is out of range.
    #[inline]
    pub fn or_u8(&self, offset: usize, bits: u8, order: Ordering) -> bool {
        if offset >= self.len {
            return false;
        }
        // SAFETY: the byte is in the slice, and is only accessed atomically here.
        unsafe { AtomicU8::from_ptr(self.at.as_ptr().add(offset)) }.fetch_or(bits, order);
        true
    }

    /// Prefetches the cache line at `offset` for reading; the offset may be out of range.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        access::prefetch(self.at.as_ptr().wrapping_add(offset));
    }

    /// Prefetches the cache line at `offset` for writing; the offset may be out of range.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        access::prefetch_to_write(self.at.as_ptr().wrapping_add(offset));
    }

    #[inline]
    fn atomic_u16(&self, offset: usize) -> Option<&AtomicU16> {
        if !self.contains(offset, 2) {
            return None;
        }
        // SAFETY: the bytes are in the slice; only an aligned place becomes an atomic, which may change at any time.
        unsafe {
            let at = self.at.as_ptr().add(offset).cast::<u16>();
            at.is_aligned().then(|| AtomicU16::from_ptr(at))
        }
    }

    #[inline]
    fn atomic_u64(&self, offset: usize) -> Option<&AtomicU64> {
        if !self.contains(offset, 8) {
            return None;
        }
        // SAFETY: as in `atomic_u16`.
        unsafe {
            let at = self.at.as_ptr().add(offset).cast::<u64>();
            at.is_aligned().then(|| AtomicU64::from_ptr(at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn copies_of_every_length_are_right() {
        let from: Vec<u8> = (0..300u16).map(|i| i as u8 ^ 0x5a).collect();
        for len in 0..300 {
            let mut memory = vec![0u8; 302];
            // SAFETY: in the vector, which outlives the slice.
            let slice = unsafe { Slice::new(NonNull::new(memory.as_mut_ptr()).unwrap(), 302) };
            assert!(slice.write_bytes(1, &from[..len]));
            let mut back = vec![0; len];
            assert!(slice.read_bytes(1, &mut back));
            assert!(back == from[..len] && memory[0] == 0 && memory[len + 1..].iter().all(|&byte| byte == 0), "{len}");
        }
    }

    proptest! {
        /// Access at any offset and of any length never leaves the slice.
        #[test]
        fn nothing_outside_is_touched(offset in prop_oneof![0usize..80, Just(usize::MAX), Just(usize::MAX - 7)], len in 0usize..80) {
            let mut memory = [0x5au8; 96];
            // SAFETY: in the array, which outlives the slice.
            let slice = unsafe { Slice::new(NonNull::new(memory.as_mut_ptr().wrapping_add(16)).unwrap(), 64) };
            let bytes = [1u8; 80];
            let fits = offset.checked_add(len).is_some_and(|end| end <= 64);
            prop_assert_eq!(slice.write_bytes(offset, &bytes[..len]), fits);
            prop_assert_eq!(slice.slice(offset, len).is_some(), fits);
            prop_assert_eq!(slice.read_bytes(offset, &mut [0; 80][..len]), fits);
            slice.write(offset, 0x0202_0202_0202_0202u64);
            slice.write(offset, [3u8; 12]);
            slice.store_u16(offset, 4, Ordering::Relaxed);
            slice.store_u64(offset, 5, Ordering::Relaxed);
            prop_assert!(slice.load_u64(offset, Ordering::Relaxed).is_none_or(|value| value == 5 && offset <= 56));
            slice.or_u8(offset, 8, Ordering::Relaxed);
            prop_assert_eq!(slice.read::<u64>(offset).is_some(), offset <= 56);
            prop_assert!(memory[..16].iter().chain(&memory[80..]).all(|&byte| byte == 0x5a));
        }
    }
}
