//! Large zeroed arrays that readers read and that go back to the system as a whole.
//!
//! From the system directly, not from the allocator: pages come zeroed when they are first touched, so that an array of
//! a million entries is made at once; arrays of a megabyte and more are made of huge pages, if the system gives any, since
//! random lookups in small pages wait for the page table as often as for the data. So they may take up to two megabytes more
//! than they have.
//!
//! Tests: whatever uses it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// From so many bytes on the system is asked, not the allocator.
const MAPPED: usize = 64 << 10;
const HUGE_PAGE: usize = 2 << 20;
/// From so many bytes on arrays are made of huge pages.
const HUGE: usize = 1 << 20;

/// An array of zeroed `T`s.
#[derive(Debug)]
pub struct Region<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: the region owns its memory.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: it gives out shared references only.
unsafe impl<T: Sync> Sync for Region<T> {}

impl Region<Cell<u32>> {
    /// An array of `count` zeros, all of whose pages are there; at least one.
    pub fn zeros(count: usize) -> Self {
        // SAFETY: zero bytes are a zero.
        let region: Self = unsafe { Region::zeroed(count) };
        region.make_pages();
        region
    }
}

impl<T> Region<T> {
    /// An array of `count` zeroed elements; at least one.
    ///
    /// # Safety
    /// All zero bytes are a `T`, which needs no drop.
    pub unsafe fn zeroed(count: usize) -> Region<T> {
        let layout = Layout::array::<T>(count).expect("an array is no larger than memory");
        // SAFETY: the caller's promise.
        unsafe { Self::try_zeroed(count) }.unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// As [`Region::zeroed`]; `None` if there is not enough memory.
    ///
    /// # Safety
    /// As there.
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

    /// The first element, to be written by whoever else has its address.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Makes all pages now, for what is looked for all over it before it is written. A page that is read first gets its memory when it is
    /// written; then every other processor of the process is interrupted, and if it is a huge one, loses all translations of
    /// addresses that it has.
    pub fn make_pages(&self) {
        if self.bytes() >= MAPPED {
            let bytes = mapped_bytes(self.bytes());
            // SAFETY: the pages are the region's; a system that cannot do it (Linux before 5.14) makes them when they are touched.
            unsafe { libc::madvise(self.as_mut_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
        }
    }

    /// Its size.
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
        // SAFETY: the memory came from the same place, and nobody uses it.
        unsafe {
            if layout.size() < MAPPED {
                dealloc(self.first.as_ptr().cast(), layout);
            } else {
                libc::munmap(self.first.as_ptr().cast(), mapped_bytes(layout.size()));
            }
        }
    }
}

/// Bytes of the pages for an array.
fn mapped_bytes(bytes: usize) -> usize {
    if bytes >= HUGE { bytes.next_multiple_of(HUGE_PAGE) } else { bytes }
}

/// Zeroed pages, or null.
fn map(bytes: usize) -> *mut u8 {
    let slack = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    // SAFETY: new private pages touch no other memory; what is cut off was just mapped; the advice is only that.
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
