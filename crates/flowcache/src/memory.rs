//! Memory access: prefetches, and large arrays in huge pages.
//!
//! A prefetch retires at once. A load whose result is not needed yet, by contrast, stays in the reorder buffer
//! until memory has answered, and so limits how many frames ahead the processor can work.
//!
//! Random reads of an array of megabytes in 4 KB pages wait for page table walks as often as for the data.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const LINE: usize = 64;
/// Size of Linux's huge pages on the processors that are supported.
const HUGE_PAGE: usize = 2 << 20;
/// Minimum size in bytes of an array that is aligned to and padded to huge pages: at least half of a page is used.
const HUGE_MIN: usize = 1 << 20;

/// Prefetches all cache lines of an item.
#[inline(always)]
pub(crate) fn prefetch<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<T>().div_ceil(LINE) {
        let at = std::ptr::from_ref(item).cast::<i8>().wrapping_add(line * LINE);
        // SAFETY: a prefetch neither faults nor changes anything.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (item, LINE);
}

/// A growable array, like `Vec`. From [`HUGE_MIN`] bytes on it uses huge pages, if the system provides any.
pub(crate) struct Array<T> {
    first: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: the array owns its items, as a `Vec` does.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// An empty array with room for `capacity` items.
    pub(crate) fn with_capacity(capacity: usize) -> Array<T> {
        const { assert!(size_of::<T>() > 0, "items take memory") };
        if capacity == 0 {
            return Array { first: NonNull::dangling(), len: 0, capacity };
        }
        let layout = layout::<T>(capacity);
        // SAFETY: the layout is not empty: `T` is not zero-sized and `capacity` is not 0.
        let first = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(first.cast::<T>()) else { handle_alloc_error(layout) };
        if layout.align() == HUGE_PAGE {
            // SAFETY: these are whole pages that belong to the array alone, and the advice changes no contents. If
            // it is refused, the pages stay small.
            unsafe { libc::madvise(first.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        Array { first, len: 0, capacity }
    }

    /// An array of `len` equal items.
    pub(crate) fn filled(item: T, len: usize) -> Array<T>
    where
        T: Copy,
    {
        let mut array = Array::with_capacity(len);
        (0..len).for_each(|_| array.push(item));
        array
    }

    /// Appends an item.
    pub(crate) fn push(&mut self, item: T) {
        if self.len == self.capacity {
            let mut larger = Array::with_capacity((self.capacity * 2).max(4));
            // SAFETY: `larger` has room for `len` items. They are moved: `self.len` becomes 0 before the old array
            // is dropped.
            unsafe { larger.first.copy_from_nonoverlapping(self.first, self.len) };
            larger.len = std::mem::take(&mut self.len);
            *self = larger;
        }
        // SAFETY: there is room for one more item.
        unsafe { self.first.add(self.len).write(item) };
        self.len += 1;
    }
}

/// The memory layout of an array with this capacity.
fn layout<T>(capacity: usize) -> Layout {
    let layout = Layout::array::<T>(capacity).and_then(|layout| match layout.size() {
        ..HUGE_MIN => Ok(layout),
        _ => layout.align_to(HUGE_PAGE).map(|layout| layout.pad_to_align()),
    });
    layout.expect("an array is no larger than memory")
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items are initialised.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the first `len` items are initialised, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        let items: *mut [T] = &mut **self;
        // SAFETY: the items and the memory are not used afterwards; the memory was allocated with the same layout.
        unsafe {
            items.drop_in_place();
            if self.capacity != 0 {
                dealloc(self.first.as_ptr().cast(), layout::<T>(self.capacity));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn an_array_grows_as_a_vector_does() {
        let counted = Rc::new(());
        let (mut array, mut vec) = (Array::with_capacity(0), Vec::new());
        // In the end, the array is in huge pages.
        for i in 0..200_000u64 {
            array.push((i, Rc::clone(&counted)));
            vec.push((i, Rc::clone(&counted)));
            if i.is_power_of_two() {
                array.iter_mut().zip(&mut vec).for_each(|(a, b)| (a.0, b.0) = (a.0 + 1, b.0 + 1));
                assert_eq!(*array, *vec);
            }
        }
        assert_eq!(*array, *vec);
        assert!(array.as_ptr().addr().is_multiple_of(HUGE_PAGE));
        drop(array);
        assert_eq!(Rc::strong_count(&counted), 1 + vec.len(), "each item is dropped once");
        assert_eq!(*Array::filled(7u8, 3), [7; 3]);
    }
}
