//! A vector of bounded length on the stack, whose memory is not initialised before use.
//!
//! The arrays for the steps of a burst are as long as the longest burst; initialising one would
//! cost a short burst more than its packets do.
//!
//! Threads: its owner's. Tests: below.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Deref;

/// A vector of up to `N` values.
pub struct Batch<T: Copy, const N: usize> {
    values: [MaybeUninit<T>; N],
    len: usize,
}

impl<T: Copy, const N: usize> Default for Batch<T, N> {
    #[inline(always)]
    fn default() -> Self {
        Batch { values: [const { MaybeUninit::uninit() }; N], len: 0 }
    }
}

impl<T: Copy, const N: usize> Batch<T, N> {
    /// Appends a value; false if the batch is full.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> bool {
        let Some(place) = self.values.get_mut(self.len) else { return false };
        place.write(value);
        self.len += 1;
        true
    }
}

impl<T: Copy, const N: usize> Deref for Batch<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements were initialised.
        unsafe { std::slice::from_raw_parts(self.values.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::Batch;

    #[test]
    fn it_holds_what_was_put_there_and_no_more() {
        let mut batch = Batch::<u64, 3>::default();
        assert!(batch.is_empty());
        let pushed: Vec<bool> = (10..15).map(|value| batch.push(value)).collect();
        assert_eq!(pushed, [true, true, true, false, false]);
        assert_eq!(*batch, [10, 11, 12]);
    }
}
