//! Large zeroed arrays for readers, which are returned to the system as a whole.
//!
//! They are mapped directly, not allocated: the kernel zeroes pages when they are first touched, so an array for a
//! million entries is made at once. Arrays of a megabyte and more use huge pages if the system has any, since random
//! accesses to small pages miss the TLB, and wait for the page table as often as for the data. They may take up to two
//! megabytes more than their size.
//!
//! Tests: those of its users.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// Size in bytes from which arrays are mapped rather than allocated.
const MAPPED: usize = 64 << 10;
const HUGE_PAGE: usize = 2 << 20;
/// Size in bytes from which arrays use huge pages.
const HUGE: usize = 1 << 20;

/// An array of zeroed `T`s.
#[derive(Debug)]
pub struct Region<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: the region owns its memory.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: it hands out shared references only.
unsafe impl<T: Sync> Sync for Region<T> {}

impl Region<Cell<u32>> {
    /// An array of `count` zeros, at least one, all of whose pages are populated.
    pub fn zeros(count: usize) -> Self {
        // SAFETY: zero bytes are a valid `Cell<u32>`.
        let region: Self = unsafe { Region::zeroed(count) };
        region.make_pages();
        region
    }
}

impl<T> Region<T> {
    /// An array of `count` zeroed elements; at least one. Aborts if there is not enough memory.
    ///
    /// # Safety
    /// All zero bytes are a valid `T`, which needs no drop.
    pub unsafe fn zeroed(count: usize) -> Region<T> {
        let layout = Layout::array::<T>(count).expect("an array is no larger than memory");
        // SAFETY: the caller's promise.
        unsafe { Self::try_zeroed(count) }.unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// As [`Region::zeroed`]; `None` if there is not enough memory.
    ///
    /// # Safety
    /// As [`Region::zeroed`].
    pub unsafe fn try_zeroed(count: usize) -> Option<Region<T>> {
        let layout = Layout::array::<T>(count).ok()?;
        assert!(layout.size() > 0, "an element");
        let first = if layout.size() < MAPPED {
            // SAFETY: the layout is not empty.
            unsafe { alloc_zeroed(layout) }
        } else {
            map(mapped_bytes(layout.size()))
        };
        NonNull::new(first.cast()).map(|first| Region { first, count })
    }

    /// The address of the first element, for writers that synchronise by other means.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Populates all pages now, for arrays that are read at random before they are written. A page that is read first
    /// maps the shared zero page, and is replaced when it is written; that interrupts every other processor of the
    /// process (TLB shootdown), and for a huge page flushes their whole TLBs.
    pub fn make_pages(&self) {
        if self.bytes() >= MAPPED {
            let bytes = mapped_bytes(self.bytes());
            // SAFETY: the pages are the region's. A kernel without this (Linux before 5.14) populates them when they
            // are touched.
            unsafe { libc::madvise(self.as_mut_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.count * size_of::<T>()
    }
}

impl<T> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region has so many elements and is never written through a mutable reference.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.count).expect("the array was made");
        // SAFETY: the memory was allocated or mapped with the same size, and no one uses it.
        unsafe {
            if layout.size() < MAPPED {
                dealloc(self.first.as_ptr().cast(), layout);
            } else {
                libc::munmap(self.first.as_ptr().cast(), mapped_bytes(layout.size()));
            }
        }
    }
}

/// Size in bytes of the pages that are mapped for an array.
fn mapped_bytes(bytes: usize) -> usize {
    if bytes >= HUGE { bytes.next_multiple_of(HUGE_PAGE) } else { bytes }
}

/// Maps zeroed pages; null on failure.
fn map(bytes: usize) -> *mut u8 {
    let slack = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    // SAFETY: new private pages overlap no other memory; the parts that are unmapped were just mapped; `madvise` is
    // only a hint.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(ptr::null_mut(), bytes + slack, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        if slack == 0 {
            return start.cast();
        }
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let front = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        let back = (start.addr() + front + bytes).next_multiple_of(page);
        if front > 0 {
            libc::munmap(start, front);
        }
        let end = (start.addr() + bytes + slack).next_multiple_of(page);
        if end > back {
            libc::munmap(start.byte_add(back - start.addr()), end - back);
        }
        let first = start.byte_add(front);
        libc::madvise(first, bytes, libc::MADV_HUGEPAGE);
        first.cast()
    }
}
