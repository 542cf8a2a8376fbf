//! Memory that lookups wait for: prefetches, and large arrays in huge pages.
//!
//! A prefetch retires at once. A load that nothing needs yet stays in the reorder buffer until memory has answered, and the processor
//! then sees only the few frames ahead that fit there beside it.
//!
//! Random reads of an array of megabytes in pages of 4 KB wait for page tables as often as for the data.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const LINE: usize = 64;
/// What Linux calls a huge page on the processors that we know.
const HUGE_PAGE: usize = 2 << 20;
/// From so many bytes on an array begins at a huge page and has whole ones: half of one is used at least.
const HUGE_MIN: usize = 1 << 20;

/// Has the processor read all cache lines of an item.
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

/// An array that grows, as a `Vec`; from [`HUGE_MIN`] bytes on in huge pages, if the system gives any.
pub(crate) struct Array<T> {
    first: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns its items, as a vector does.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// An empty one with room for so many items.
    pub(crate) fn with_capacity(capacity: usize) -> Array<T> {
        const { assert!(size_of::<T>() > 0, "items take memory") };
        if capacity == 0 {
            return Array { first: NonNull::dangling(), len: 0, capacity };
        }
        let layout = layout::<T>(capacity);
        // SAFETY: the layout has bytes.
        let first = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(first.cast::<T>()) else { handle_alloc_error(layout) };
        if layout.align() == HUGE_PAGE {
            // SAFETY: whole pages of the array alone; the advice changes no contents. If it is refused, the pages are small ones.
            unsafe { libc::madvise(first.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        Array { first, len: 0, capacity }
    }

    /// One of `len` equal items.
    pub(crate) fn filled(item: T, len: usize) -> Array<T>
    where
        T: Copy,
    {
        let mut array = Array::with_capacity(len);
        (0..len).for_each(|_| array.push(item));
        array
    }

    /// Adds an item behind the last.
    pub(crate) fn push(&mut self, item: T) {
        if self.len == self.capacity {
            let mut larger = Array::with_capacity((self.capacity * 2).max(4));
            // SAFETY: there is room; the items are the larger one's from now on, since this one has none any more when it is dropped.
            unsafe { larger.first.copy_from_nonoverlapping(self.first, self.len) };
            larger.len = std::mem::take(&mut self.len);
            *self = larger;
        }
        // SAFETY: there is room for one more.
        unsafe { self.first.add(self.len).write(item) };
        self.len += 1;
    }
}

/// Where an array of so many items lies.
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
        // SAFETY: so many items are there.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: so many items are there, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        let items: *mut [T] = &mut **self;
        // SAFETY: nobody uses the items or the memory any more, which came from the same layout.
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
        // The last ones lie in huge pages.
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
