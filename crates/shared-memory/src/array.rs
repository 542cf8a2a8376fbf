//! Arrays of integers in a mapping, such as rings. Position and alignment are
//! checked once; an access checks only its index.
//!
//! Every access is one atomic load or store, so the compiler cannot read a value twice.
//!
//! Threads: any, together with the peer. Tests: below.
#![allow(unsafe_code)]

use crate::access;
use crate::slice::Slice;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// An array of integers in a mapping, valid while the mapping is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a, T> {
    at: NonNull<T>,
    len: usize,
    mapping: PhantomData<&'a ()>,
}

// SAFETY: elements are accessed only atomically.
unsafe impl<T> Send for Array<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Array<'_, T> {}

impl<'a, T> Array<'a, T> {
    /// Prefetches the cache line of element `i` for reading; `i` may be out of range.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        access::prefetch(self.at.as_ptr().wrapping_add(i).cast());
    }

    /// Prefetches the cache line of element `i` for writing; `i` may be out of range.
    #[inline(always)]
    pub fn prefetch_to_write(&self, i: usize) {
        access::prefetch_to_write(self.at.as_ptr().wrapping_add(i).cast());
    }
}

macro_rules! array {
    ($($number:ty, $atomic:ty);*) => { $(
        impl<'a> Array<'a, $number> {
            /// The array of as many elements as fit into a slice; `None` if the slice is not aligned.
            #[inline]
            pub fn new(slice: Slice<'a>) -> Option<Self> {
                let at = slice.as_ptr().cast::<$number>();
                let array = Array { at, len: slice.len() / size_of::<$number>(), mapping: PhantomData };
                at.as_ptr().is_aligned().then_some(array)
            }

            /// Loads element `i`; `None` if it is out of range.
            #[inline(always)]
            pub fn load(&self, i: usize, order: Ordering) -> Option<$number> {
                Some(self.cell(i)?.load(order))
            }

            /// Stores element `i`; false if it is out of range.
            #[inline(always)]
            pub fn store(&self, i: usize, value: $number, order: Ordering) -> bool {
                let Some(cell) = self.cell(i) else { return false };
                cell.store(value, order);
                true
            }

            #[inline(always)]
            fn cell(&self, i: usize) -> Option<&'a $atomic> {
                // SAFETY: the element lies in the slice that the array was made from,
                // and is aligned; the mapping lives for `'a`.
                (i < self.len).then(|| unsafe { <$atomic>::from_ptr(self.at.as_ptr().add(i)) })
            }
        }
    )* };
}
array!(u16, AtomicU16; u64, AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_touched_and_alignment_is_asked_for() {
        let mut memory = [0x5a5a_5a5a_5a5a_5a5au64; 6];
        let at = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: in the array, which outlives the slices.
        let slice = |offset: usize, len| unsafe { Slice::new(at.add(offset), len) };
        assert!(Array::<u64>::new(slice(12, 16)).is_none() && Array::<u16>::new(slice(7, 16)).is_none());
        let array = Array::<u64>::new(slice(8, 31)).expect("aligned");
        assert_eq!(array.load(2, Ordering::Relaxed), Some(0x5a5a_5a5a_5a5a_5a5a));
        for i in [3, 4, usize::MAX, usize::MAX / 8 + 1] {
            assert!(array.load(i, Ordering::Relaxed).is_none() && !array.store(i, 1, Ordering::Relaxed), "{i}");
            array.prefetch(i);
        }
        (0..3).for_each(|i| assert!(array.store(i, i as u64, Ordering::Release)));
        let words = Array::<u16>::new(slice(8, 6)).expect("aligned");
        assert!(words.store(2, 7, Ordering::Relaxed) && !words.store(3, 7, Ordering::Relaxed));
        assert_eq!(memory, [0x5a5a_5a5a_5a5a_5a5a, 7 << 32, 1, 2, 0x5a5a_5a5a_5a5a_5a5a, 0x5a5a_5a5a_5a5a_5a5a]);
    }
}
