//! The memory that a client shares with its server: one or more regions, each a file that both have mapped.
//!
//! **Invariant:** [`Memory::find`] returns an address only if all requested bytes are mapped. The peer may change their
//! contents at any time. If it truncates a file later, it loses the connection ([`Memory::is_damaged`]) and nobody else
//! is affected: `shared-memory` has the checks and the SIGBUS handler.
//!
//! Threads: any. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use shared_memory::{MapError, Mapping, Quota};
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Maximum regions of a client. One that shares its packet buffers has a region per memory segment, which are few.
pub(crate) const REGIONS_MAX: usize = 64;

/// The part of a region that 32-bit descriptor offsets can address; what lies beyond is not mapped.
const REGION_REACH_BYTES: u64 = 1 << 32;

/// How many bytes of a region of `bytes` bytes are mapped.
pub(crate) fn reach(bytes: u64) -> u64 {
    bytes.min(REGION_REACH_BYTES)
}

/// The mapped regions of one client.
#[derive(Default)]
pub(crate) struct Memory {
    /// Address and length in bytes of each region.
    places: Vec<(NonNull<u8>, u64)>,
    mappings: Vec<Mapping>,
}

// SAFETY: the addresses point into `mappings`, which any thread may use; see `Mapping`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the next region: the first `bytes` bytes of a file, up to the limit of descriptor offsets.
    ///
    /// # Errors
    /// See [`Mapping::new`].
    pub(crate) fn add(&mut self, file: impl AsFd, bytes: u64, quota: &Quota) -> Result<(), MapError> {
        let mapping = Mapping::new(file, 0, reach(bytes) as usize, quota)?;
        self.places.push((mapping.all().as_ptr(), mapping.len() as u64));
        self.mappings.push(mapping);
        Ok(())
    }

    /// Bytes of the regions on ordinary pages, which are charged to the process that touches them first.
    pub(crate) fn ordinary_bytes(&self) -> u64 {
        self.mappings.iter().filter(|mapping| !mapping.is_huge()).map(|mapping| mapping.len() as u64).sum()
    }

    /// Number of regions.
    pub(crate) fn region_count(&self) -> usize {
        self.mappings.len()
    }

    /// The address of `bytes` bytes; `None` if the region does not exist or does not contain all of them.
    #[inline]
    pub(crate) fn find(&self, region: u16, offset: u32, bytes: u32) -> Option<NonNull<u8>> {
        let (base, size) = *self.places.get(usize::from(region))?;
        // SAFETY: `offset` is at most the mapping's size.
        (u64::from(offset) + u64::from(bytes) <= size).then(|| unsafe { base.add(offset as usize) })
    }

    /// Writes bytes into region 0, as a peer does; cut at the region's end.
    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) {
        if let Some(mapping) = self.mappings.first() {
            let room = mapping.len().saturating_sub(offset as usize).min(bytes.len());
            mapping.all().write_bytes(offset as usize, &bytes[..room]);
        }
    }

    /// Whether a page was lost because a file was truncated.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.mappings.iter().any(Mapping::is_damaged)
    }
}
