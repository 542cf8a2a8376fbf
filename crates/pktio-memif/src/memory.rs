//! The memory that a client shares with its server: one or several regions, each a file that both have mapped.
//!
//! **Promise:** [`Memory::find`] gives the address of as many bytes as were asked for, all of them mapped, or nothing. What
//! stands there is the peer's and may change at any time. A file that is truncated later costs its peer the connection
//! ([`Memory::is_damaged`]) and nobody anything else: `shared-memory` has the checks and the handler of SIGBUS.
//!
//! Threads: any. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use shared_memory::{MapError, Mapping, Quota};
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Most regions of a client. One that shares its packet buffers has a region for each of its memory segments, which are few.
pub(crate) const REGIONS_MAX: usize = 64;

/// Descriptors reach so far into a region; what lies beyond is not mapped.
const REGION_REACH_BYTES: u64 = 1 << 32;

/// How many of a region's bytes are mapped.
pub(crate) fn reach(bytes: u64) -> u64 {
    bytes.min(REGION_REACH_BYTES)
}

/// Regions of one client.
#[derive(Default)]
pub(crate) struct Memory {
    /// Where each begins, and its bytes.
    places: Vec<(NonNull<u8>, u64)>,
    mappings: Vec<Mapping>,
}

// SAFETY: the addresses are of `mappings`, which any thread may use; see `Mapping`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the next region: the first `bytes` bytes of a file, as far as descriptors reach.
    pub(crate) fn add(&mut self, file: impl AsFd, bytes: u64, quota: &Quota) -> Result<(), MapError> {
        let mapping = Mapping::new(file, 0, reach(bytes) as usize, quota)?;
        self.places.push((mapping.all().as_ptr(), mapping.len() as u64));
        self.mappings.push(mapping);
        Ok(())
    }

    /// Bytes of the regions on ordinary pages, which cost whoever touches them first.
    pub(crate) fn ordinary_bytes(&self) -> u64 {
        self.mappings.iter().filter(|mapping| !mapping.is_huge()).map(|mapping| mapping.len() as u64).sum()
    }

    /// How many regions there are.
    pub(crate) fn region_count(&self) -> usize {
        self.mappings.len()
    }

    /// The address of `bytes` bytes; `None` if they are not all in the region, or there is none of this number.
    #[inline]
    pub(crate) fn find(&self, region: u16, offset: u32, bytes: u32) -> Option<NonNull<u8>> {
        let (base, size) = *self.places.get(usize::from(region))?;
        // SAFETY: the sum is at most the mapping's size.
        (u64::from(offset) + u64::from(bytes) <= size).then(|| unsafe { base.add(offset as usize) })
    }

    /// Writes bytes into region 0 as a peer does, as far as they lie in it.
    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) {
        if let Some(mapping) = self.mappings.first() {
            let room = mapping.len().saturating_sub(offset as usize).min(bytes.len());
            mapping.all().write_bytes(offset as usize, &bytes[..room]);
        }
    }

    /// Whether a page was lost, as by truncation of its file.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.mappings.iter().any(Mapping::is_damaged)
    }
}
