//! A checked mapping of a peer's file.
//!
//! Before it is mapped, the file is checked: it is a regular file of a file system in memory, so that a page fault
//! waits for no disk and no other process (such as a FUSE server), and it is long enough. Whole pages of the file's
//! page size are mapped (hugetlbfs has huge pages). `guard` handles what happens to the file later.
//!
//! Ordinary pages are allocated when they are touched, so there must be memory for them (`room`). Huge pages of
//! hugetlbfs are reserved in advance.
//!
//! Unmapping a file that is closed everywhere else frees all its pages: this takes a second for some gigabytes, and the
//! peer decides when. So mappings are unmapped on a thread of their quota (`received`), and count against it until
//! then, unless their file is small and sealed against growing.
//!
//! Threads: any. Tests: below and `tests/damage.rs`.
#![allow(unsafe_code)]

use crate::error::MapError;
use crate::file::{QUICK_BYTES, cannot_grow, cannot_shrink, is_memory};
use crate::guard::{Refused, Registration};
use crate::quota::{Quota, Taken};
use crate::received::Closer;
use crate::room::Admitted;
use crate::slice::Slice;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Magic numbers of `statfs(2)`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// A mapped range of a file that a peer shares. Its bytes may change, and its file may shrink, at any time.
#[derive(Debug)]
pub struct Mapping {
    /// The first byte of the range, and its length.
    at: NonNull<u8>,
    len: usize,
    /// Page size in bytes.
    page: usize,
    /// Dropped before the range is unmapped.
    registration: Option<Registration>,
    pages: Option<Pages>,
    /// The admission to the room; `None` for huge pages.
    admitted: Option<Admitted>,
    /// Whether unmapping frees little memory, whatever the peer does.
    is_quick: bool,
    closer: Closer,
}

/// The whole pages that were mapped around the range; unmapped on drop.
#[derive(Debug)]
struct Pages {
    at: NonNull<u8>,
    len: usize,
    /// The file, if it was kept to measure its holes; closed after unmapping.
    file: Option<OwnedFd>,
    /// Its place in a quota; `None` for memory of our own.
    _taken: Option<Taken>,
}

// SAFETY: only its owner has pointers into it.
unsafe impl Send for Pages {}

// SAFETY: a mapping belongs to no thread, and is accessed only through `Slice`, which makes no references to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` of a file for reading and writing. The file may be closed afterwards.
    ///
    /// # Errors
    /// The file is not memory or too short, the range is empty or overflows, the quota is used up, there is not enough
    /// memory for the pages, or a system call failed.
    pub fn new(file: impl AsFd, offset: u64, len: usize, quota: &Quota) -> Result<Mapping, MapError> {
        let file = file.as_fd();
        let taken = quota.take().or_else(|_| {
            // Unmaps pending mappings here, rather than refuse an honest peer that remaps its memory repeatedly.
            quota.closer().finish_pages();
            quota.take()
        })?;
        let page = page_bytes(file)?;
        let end = offset.checked_add(len as u64).filter(|_| len != 0).ok_or(MapError::BadRange)?;
        let size = file_bytes(file.as_raw_fd())?;
        if end > size {
            return Err(MapError::BeyondFile { end, file: size });
        }
        let from = offset & !(page as u64 - 1);
        let before = (offset - from) as usize;
        let mapped_len = before
            .checked_add(len)
            .and_then(|bytes| bytes.checked_next_multiple_of(page))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or(MapError::BadRange)?;
        let is_huge = page > rustix::param::page_size();
        let admitted = if is_huge { None } else { Some(quota.account().admit(file, from, mapped_len as u64)?) };
        let from = libc::off_t::try_from(from).map_err(|_| MapError::BadRange)?;
        let mapped_at = map(file, from, mapped_len)?;
        // SAFETY: `before` lies within the mapping.
        let at = unsafe { mapped_at.add(before) };
        let pages = Some(Pages { at: mapped_at, len: mapped_len, file: None, _taken: Some(taken) });
        let is_quick = size <= QUICK_BYTES as u64 && cannot_grow(file);
        let closer = quota.closer().clone();
        let mut mapping = Mapping { at, len, page, registration: None, pages, admitted, is_quick, closer };
        mapping.registration = Some(Registration::new(mapped_at.as_ptr() as usize, mapped_len, page).map_err(
            |refused| match refused {
                Refused::Full => MapError::TooMany,
                Refused::Handler(error) => MapError::System(io::Error::from_raw_os_error(error)),
            },
        )?);
        Ok(mapping)
    }

    /// Maps the first `len` bytes of a memfd that this process, or the one that started it, has made and sealed against
    /// shrinking, to exchange data with another process that is not trusted. No access to it can raise SIGBUS, and it is
    /// this process's own memory, so it has no place in a quota or in the room of peers.
    ///
    /// # Errors
    /// The file is not sealed, is too short or has huge pages, or a system call failed.
    pub fn of_sealed(file: impl AsFd, len: usize) -> Result<Mapping, MapError> {
        let file = file.as_fd();
        let page = page_bytes(file)?;
        let mapped_len = len.checked_next_multiple_of(page).filter(|bytes| isize::try_from(*bytes).is_ok());
        let mapped_len = mapped_len.filter(|bytes| *bytes != 0).ok_or(MapError::BadRange)?;
        if !cannot_shrink(file) || page > rustix::param::page_size() {
            return Err(MapError::NotMemory);
        }
        let size = file_bytes(file.as_raw_fd())?;
        if mapped_len as u64 > size {
            return Err(MapError::BeyondFile { end: mapped_len as u64, file: size });
        }
        let at = map(file, 0, mapped_len)?;
        let pages = Some(Pages { at, len: mapped_len, file: None, _taken: None });
        let closer = Closer::default();
        Ok(Mapping { at, len, page, registration: None, pages, admitted: None, is_quick: true, closer })
    }

    /// Length of the range in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty: never.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the pages are huge pages, which are reserved in advance (hugetlbfs). Ordinary pages are allocated on
    /// first touch and charged to the process that touched them.
    #[inline]
    pub fn is_huge(&self) -> bool {
        self.page > rustix::param::page_size()
    }

    /// Whether a page was lost since it was mapped, because the file was truncated or memory failed. The whole range
    /// then reads as zeros, and writes to it are not shared.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.registration.as_ref().is_some_and(Registration::is_damaged)
    }

    /// The whole range.
    #[inline]
    pub fn all(&self) -> Slice<'_> {
        // SAFETY: `len` bytes from `at` stay mapped while `self` is borrowed.
        unsafe { Slice::new(self.at, self.len) }
    }

    /// The `len` bytes from `offset`; `None` if the range does not contain all of them.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Slice<'_>> {
        self.all().slice(offset, len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.registration = None;
        let Some(mut pages) = self.pages.take() else { return };
        pages.file = self.admitted.take().and_then(|mut admitted| admitted.end());
        if !self.is_quick {
            self.closer.unmap(pages);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::new`; no slice of it is left, since they borrow the mapping, which is gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Maps whole pages of a file for reading and writing.
fn map(file: BorrowedFd<'_>, from: libc::off_t, len: usize) -> Result<NonNull<u8>, MapError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel replaces no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), from) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    NonNull::new(at.cast::<u8>()).ok_or(MapError::BadRange)
}

/// Whether a file has huge pages, which are reserved in advance (hugetlbfs).
///
/// # Errors
/// The file is not memory, or a system call failed.
pub fn is_huge(file: impl AsFd) -> Result<bool, MapError> {
    Ok(page_bytes(file.as_fd())? > rustix::param::page_size())
}

/// Page size in bytes of the file's mappings, a power of two; an error if the file is not memory.
fn page_bytes(file: BorrowedFd<'_>) -> Result<usize, MapError> {
    if !is_memory(file) {
        return Err(MapError::NotMemory);
    }
    let fd = file.as_raw_fd();
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes a `statfs`, for which all zeros is valid too.
    let about = unsafe {
        if libc::fstatfs(fd, about.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        about.assume_init()
    };
    let page = match about.f_type as u64 & 0xffff_ffff {
        TMPFS_MAGIC => {
            // SAFETY: reads a number; no pointers are passed.
            unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
        }
        HUGETLBFS_MAGIC => about.f_bsize as usize,
        _ => return Err(MapError::NotMemory),
    };
    if page.is_power_of_two() { Ok(page) } else { Err(MapError::NotMemory) }
}

fn file_bytes(fd: i32) -> Result<u64, MapError> {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes a `stat`, for which all zeros is valid too.
    let about = unsafe {
        if libc::fstat(fd, about.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        about.assume_init()
    };
    if about.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(MapError::NotMemory);
    }
    Ok(u64::try_from(about.st_size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::FromRawFd;

    fn map(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, MapError> {
        Mapping::new(file, offset, len, &Quota::new(2).expect("few are there"))
    }

    fn memfd(bytes: u64) -> File {
        // SAFETY: passes a C string; the result is a new file descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(bytes).expect("a memfd grows");
        file
    }

    #[test]
    fn a_region_longer_than_its_file_is_refused() {
        let file = memfd(8192);
        assert!(map(&file, 0, 8192).is_ok());
        assert!(matches!(map(&file, 0, 8193), Err(MapError::BeyondFile { end: 8193, file: 8192 })));
        assert!(matches!(map(&file, 4096, 4097), Err(MapError::BeyondFile { .. })));
        assert!(matches!(map(&file, u64::MAX, 2), Err(MapError::BadRange)));
        assert!(matches!(map(&file, 0, 0), Err(MapError::BadRange)));
        assert!(map(memfd(0), 0, 1).is_err());
    }

    #[test]
    fn only_memory_is_mapped() {
        for path in ["/dev/zero", "/proc/self/maps"] {
            let file = File::open(path).expect("every Linux has it");
            assert!(matches!(map(&file, 0, 4096), Err(MapError::NotMemory)), "{path}");
        }
    }

    #[test]
    fn memory_of_our_own_is_sealed_before_it_is_shared() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let file = memfd_create("own", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&file, 8192).expect("it grows");
        assert!(matches!(Mapping::of_sealed(&file, 8192), Err(MapError::NotMemory)), "it could be truncated");
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("it may be sealed");
        let mapping = Mapping::of_sealed(&file, 8192).expect("it is sealed");
        assert!(mapping.registration.is_none(), "it needs no guard, so DPDK may still grow");
        assert!(mapping.all().store_u64(8, 7, std::sync::atomic::Ordering::Relaxed));
        assert!(matches!(Mapping::of_sealed(&file, 8193), Err(MapError::BeyondFile { .. })));
        assert!(Mapping::of_sealed(&file, 0).is_err());
    }

    #[test]
    fn offsets_need_not_be_whole_pages() {
        let file = memfd(3 * 4096);
        let mapping = map(&file, 4096 + 100, 4096).unwrap();
        mapping.all().write_bytes(0, b"here");
        let whole = map(&file, 0, 3 * 4096).unwrap();
        let mut bytes = [0; 4];
        assert!(whole.all().read_bytes(4196, &mut bytes));
        assert_eq!((&bytes, mapping.len()), (b"here", 4096));
        assert!(mapping.slice(4096, 1).is_none() && mapping.slice(4095, 1).is_some());
    }
}
