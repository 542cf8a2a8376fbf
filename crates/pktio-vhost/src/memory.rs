//! The guest's memory as the front end shares it: regions, address translation, and the
//! dirty log of pages that we have written.
//!
//! A memory table is immutable: a change creates another table, and the rings are rebuilt. A range that spans two
//! regions is not translated; drivers do not produce such ranges.
//!
//! Threads: made by the service thread, read by workers through `Arc`. Tests: below.

use crate::message::{REGIONS_MAX, Region};
use shared_memory::{MapError, Mapping, Quota, Slice, is_huge};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Guest memory per bit of the dirty log, in bytes (`VHOST_LOG_PAGE`).
const LOG_PAGE: u64 = 4096;

/// Maximum length of the dirty log: one bit for each page of 2 TB of guest addresses.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// Limits on the memory that a port's front ends may have mapped.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    /// Number of mappings ([`MAPPINGS_MAX`]).
    quota: Quota,
    /// Maximum bytes of one table on ordinary pages. The kernel allocates such a page on first touch and charges it to
    /// the process that touched it, for as long as the front end keeps the file; the switch would pay for a sparse
    /// file. [`Quota`] also checks that there is memory for the pages.
    bytes_max: u64,
}

impl Allowed {
    pub(crate) fn new(bytes_max: u64) -> Result<Allowed, MapError> {
        Ok(Allowed { quota: Quota::new(MAPPINGS_MAX)?, bytes_max })
    }
}

/// Mappings of two tables and two logs: the old ones may be in use while the new ones are mapped.
const MAPPINGS_MAX: usize = 2 * (REGIONS_MAX + 1);

/// A mapped region.
#[derive(Debug)]
struct Mapped {
    region: Region,
    mapping: Mapping,
}

/// A memory table: its regions, at most [`crate::message::REGIONS_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<Arc<Mapped>>,
}

/// Why a region is refused.
#[derive(Debug)]
pub(crate) enum BadRegion {
    Map(MapError),
    Overflows,
    Overlaps,
    /// The table's regions on ordinary pages exceed this many bytes.
    TooMuch(u64),
    Unknown,
}

impl std::fmt::Display for BadRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadRegion::Map(error) => write!(f, "{error}"),
            BadRegion::Overflows => f.write_str("it is empty or its end is no address"),
            BadRegion::Overlaps => f.write_str("it overlaps another one"),
            BadRegion::TooMuch(most) => write!(
                f,
                "the guest's memory on ordinary pages is larger than {} MB, which the port's option memory= raises; huge \
                 pages do not count",
                most >> 20
            ),
            BadRegion::Unknown => f.write_str("there is none with these addresses"),
        }
    }
}

/// A range of guest memory by region number and offset. It does not borrow the
/// mapping, and is checked again on each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    region: usize,
    offset: usize,
    len: usize,
}

impl Memory {
    /// Returns the table with one more region.
    pub(crate) fn with(&self, region: Region, file: impl AsFd, allowed: &Allowed) -> Result<Memory, BadRegion> {
        let end = |start: u64| start.checked_add(region.bytes).filter(|_| region.bytes != 0);
        let (Some(guest_end), Some(user_end)) = (end(region.guest), end(region.user)) else {
            return Err(BadRegion::Overflows);
        };
        let overlaps = |other: &Region| {
            region.guest < other.guest + other.bytes && other.guest < guest_end
                || region.user < other.user + other.bytes && other.user < user_end
        };
        if self.regions.iter().any(|mapped| overlaps(&mapped.region)) {
            return Err(BadRegion::Overlaps);
        }
        let len = usize::try_from(region.bytes).map_err(|_| BadRegion::Overflows)?;
        if !is_huge(&file).map_err(BadRegion::Map)? {
            let ordinary = self.regions.iter().filter(|mapped| !mapped.mapping.is_huge());
            let bytes = ordinary.fold(region.bytes, |sum, mapped| sum.saturating_add(mapped.region.bytes));
            if bytes > allowed.bytes_max {
                return Err(BadRegion::TooMuch(allowed.bytes_max));
            }
        }
        let mapping = Mapping::new(file, region.offset, len, &allowed.quota).map_err(BadRegion::Map)?;
        let mut memory = self.clone();
        memory.regions.push(Arc::new(Mapped { region, mapping }));
        Ok(memory)
    }

    /// Returns the table without the region that has these addresses and this size.
    pub(crate) fn without(&self, region: Region) -> Result<Memory, BadRegion> {
        let is_it = |mapped: &Arc<Mapped>| {
            let own = &mapped.region;
            (own.guest, own.bytes, own.user) == (region.guest, region.bytes, region.user)
        };
        let at = self.regions.iter().position(is_it).ok_or(BadRegion::Unknown)?;
        let mut memory = self.clone();
        memory.regions.remove(at);
        Ok(memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether a region has lost pages because its file was truncated.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.regions.iter().any(|mapped| mapped.mapping.is_damaged())
    }

    /// Whether both tables use the same mappings.
    #[cfg(test)]
    pub(crate) fn shares_with(&self, other: &Memory) -> bool {
        self.regions.iter().zip(&other.regions).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Finds `len` bytes at a front end's user address, which must be aligned to `align` bytes.
    pub(crate) fn place(&self, user: u64, len: usize, align: usize) -> Option<Place> {
        let found = self.regions.iter().enumerate().find_map(|(region, mapped)| {
            let offset = usize::try_from(user.checked_sub(mapped.region.user)?).ok()?;
            mapped.mapping.slice(offset, len).map(|slice| (Place { region, offset, len }, slice))
        });
        found.filter(|(_, slice)| (slice.as_ptr().as_ptr() as usize).is_multiple_of(align)).map(|(place, _)| place)
    }

    /// The bytes of a place of this table; `None` if the table has no such range.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<Slice<'_>> {
        self.regions.get(place.region)?.mapping.slice(place.offset, place.len)
    }

    /// A translator for the addresses of a burst. `hint` is the region that was used last.
    #[inline]
    pub(crate) fn finder<'a, 'h>(&'a self, hint: &'h mut usize) -> Finder<'a, 'h> {
        let window = self.regions.get(*hint).map_or(Window::NONE, |mapped| mapped.window());
        Finder { memory: self, window, hint }
    }

    /// Translates `len` bytes at a guest physical address, if one region contains all of them.
    /// `hint` is the region that was used last.
    #[inline]
    pub(crate) fn translate(&self, guest: u64, len: u32, hint: &mut usize) -> Option<Slice<'_>> {
        if let Some(slice) = self.regions.get(*hint).and_then(|mapped| mapped.translate(guest, len)) {
            return Some(slice);
        }
        let (region, slice) =
            self.regions.iter().enumerate().find_map(|(i, mapped)| Some((i, mapped.translate(guest, len)?)))?;
        *hint = region;
        Some(slice)
    }
}

/// The guest address and bytes of one region.
#[derive(Clone, Copy)]
struct Window<'a> {
    guest: u64,
    bytes: Option<Slice<'a>>,
}

impl Window<'_> {
    const NONE: Self = Window { guest: 0, bytes: None };
}

/// Translates addresses like [`Memory::translate`], and caches the region that was used last.
pub(crate) struct Finder<'a, 'h> {
    memory: &'a Memory,
    window: Window<'a>,
    hint: &'h mut usize,
}

impl<'a> Finder<'a, '_> {
    /// Translates `len` bytes at a guest physical address, if one region contains all of them.
    #[inline(always)]
    pub(crate) fn translate(&mut self, guest: u64, len: u32) -> Option<Slice<'a>> {
        // A wrapped difference is larger than any mapping, so `slice` refuses it.
        let offset = guest.wrapping_sub(self.window.guest) as usize;
        match self.window.bytes.and_then(|bytes| bytes.slice(offset, len as usize)) {
            None => self.change(guest, len),
            found => found,
        }
    }

    #[cold]
    fn change(&mut self, guest: u64, len: u32) -> Option<Slice<'a>> {
        let slice = self.memory.translate(guest, len, self.hint)?;
        self.window = self.memory.regions[*self.hint].window();
        Some(slice)
    }
}

impl Mapped {
    #[inline]
    fn window(&self) -> Window<'_> {
        Window { guest: self.region.guest, bytes: Some(self.mapping.all()) }
    }

    #[inline]
    fn translate(&self, guest: u64, len: u32) -> Option<Slice<'_>> {
        let offset = guest.wrapping_sub(self.region.guest);
        // A wrapped difference is larger than any mapping, so `slice` refuses it.
        self.mapping.slice(offset as usize, len as usize)
    }
}

/// The dirty log used in live migration: a bitmap, shared by the front end, of the guest pages that we have written.
#[derive(Debug)]
pub(crate) struct Log {
    bits: Mapping,
    #[cfg(test)]
    pub(crate) monitor: tests::Monitor,
}

impl Log {
    pub(crate) fn new(file: impl AsFd, bytes: u64, offset: u64, allowed: &Allowed) -> Result<Log, MapError> {
        let bytes = usize::try_from(bytes.min(LOG_BYTES_MAX)).map_err(|_| MapError::BadRange)?;
        let bits = Mapping::new(file, offset, bytes, &allowed.quota)?;
        Ok(Log {
            bits,
            #[cfg(test)]
            monitor: tests::Monitor::default(),
        })
    }

    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.bits.is_damaged()
    }

    /// Marks the pages of `len` bytes at a guest physical address as dirty. Must be called after they were written: the
    /// front end clears bits before it copies pages, so a page that is marked after the write is never missed. Pages
    /// beyond the end of the log are ignored.
    pub(crate) fn mark(&self, guest: u64, len: u64) {
        if len == 0 {
            return;
        }
        let all = self.bits.all();
        let last = guest.saturating_add(len - 1) / LOG_PAGE;
        let end = (all.len() as u64).saturating_mul(8);
        for page in guest / LOG_PAGE..=last.min(end) {
            all.or_u8((page / 8) as usize, 1 << (page % 8), Ordering::SeqCst);
            #[cfg(test)]
            self.monitor.copy(page);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_marked(&self, page: u64) -> bool {
        self.bits.all().read::<u8>((page / 8) as usize).is_some_and(|byte| byte >> (page % 8) & 1 == 1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::collections::BTreeMap;
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex};

    /// A VM monitor that migrates its guest: it copies each page as soon as it is marked, and not again until it is marked again.
    #[derive(Debug, Default)]
    pub(crate) struct Monitor {
        pub(crate) memory: Option<Arc<Memory>>,
        copies: Mutex<BTreeMap<u64, Vec<u8>>>,
    }

    impl Monitor {
        pub(super) fn copy(&self, page: u64) {
            if let Some(now) = self.page(page) {
                self.copies.lock().unwrap().insert(page, now);
            }
        }

        fn page(&self, page: u64) -> Option<Vec<u8>> {
            let mut bytes = vec![0; LOG_PAGE as usize];
            let slice = self.memory.as_ref()?.translate(page * LOG_PAGE, LOG_PAGE as u32, &mut 0)?;
            slice.read_bytes(0, &mut bytes).then_some(bytes)
        }

        /// The pages that were marked, each with whether its last copy is what the page holds now.
        pub(crate) fn pages(&self) -> Vec<(u64, bool)> {
            let copies = self.copies.lock().unwrap();
            copies.iter().map(|(page, copy)| (*page, self.page(*page).as_ref() == Some(copy))).collect()
        }
    }

    pub(crate) fn memfd(bytes: u64) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    pub(crate) fn allowed() -> Allowed {
        Allowed::new(1 << 30).unwrap()
    }

    /// Regression: a front end shared 16 GB of a sparse file, and each page that
    /// its guest named was charged to the switch.
    #[test]
    fn a_sparse_file_larger_than_the_port_s_limit_is_refused() {
        let allowed = Allowed::new(64 << 20).unwrap();
        let region = |number: u64, bytes| Region { guest: number << 40, bytes, user: number << 40, offset: 0 };
        let file = memfd(16 << 30);
        let refused = Memory::default().with(region(1, 16 << 30), &file, &allowed).expect_err("it is too much");
        assert!(refused.to_string().contains("64 MB") && refused.to_string().contains("memory="), "{refused}");
        let half = Memory::default().with(region(1, 32 << 20), &file, &allowed).expect("it fits");
        let all = half.with(region(2, 32 << 20), &file, &allowed).expect("it fits");
        assert!(all.with(region(3, 1), &file, &allowed).is_err(), "all regions together");
        assert!(all.without(region(1, 32 << 20)).unwrap().with(region(3, 1), &file, &allowed).is_ok());
    }

    /// Regression: mapped memory was bounded at any one time, but one sparse file
    /// after another exhausted the switch's memory.
    #[test]
    fn a_front_end_hears_that_there_is_no_memory_for_its_file() {
        let group = shared_memory::Group { name: "/sluice".into(), limit: 256 << 20, used: 100 << 20 };
        let reading = shared_memory::Reading { groups: vec![group], ..Default::default() };
        let room = shared_memory::Room::new(move || reading.clone());
        let quota = Quota::in_room(MAPPINGS_MAX, &room).unwrap();
        let allowed = Allowed { quota, bytes_max: 1 << 30 };
        let region = |number: u64, bytes| Region { guest: number << 40, bytes, user: number << 40, offset: 0 };
        let file = memfd(1 << 30);
        let one = Memory::default().with(region(1, 64 << 20), &file, &allowed).expect("it fits");
        let refused = one.with(region(2, 128 << 20), &file, &allowed).expect_err("it is too much").to_string();
        assert!(
            refused.contains("pay 128 MB") && refused.contains("MemoryMax=") && refused.contains("huge"),
            "{refused}"
        );
        assert!(one.with(region(2, 32 << 20), &file, &allowed).is_ok());
    }

    #[test]
    fn a_port_maps_two_tables_at_a_time_and_no_more() {
        let allowed = allowed();
        let file = memfd(4096);
        let maps = |_| Mapping::new(&file, 0, 4096, &allowed.quota).ok();
        let some: Vec<Mapping> = (0..100).map_while(maps).collect();
        assert_eq!(some.len(), 2 * (REGIONS_MAX + 1));
    }

    #[test]
    fn addresses_are_translated_within_one_region() {
        let allowed = allowed();
        let file = memfd(0x4000);
        let first = Region { guest: 0x10_0000, bytes: 0x2000, user: 0x7000_0000, offset: 0 };
        let second = Region { guest: 0x10_2000, bytes: 0x2000, user: 0x7000_2000, offset: 0x2000 };
        let one = Memory::default().with(first, &file, &allowed).unwrap();
        let memory = one.with(second, &file, &allowed).unwrap();
        let mut hint = 7;
        let len = |guest, len, hint: &mut usize| memory.translate(guest, len, hint).map(|slice| slice.len());
        assert_eq!(len(0x10_0000, 0x2000, &mut hint), Some(0x2000));
        assert_eq!(len(0x10_1fff, 2, &mut hint), None, "it spans two regions");
        assert_eq!((len(0x10_3fff, 1, &mut hint), hint), (Some(1), 1));
        assert_eq!(len(0x10_4000, 1, &mut hint), None);
        assert_eq!(len(0xf_ffff, 1, &mut hint), None);
        assert_eq!(len(u64::MAX, u32::MAX, &mut hint), None);
        assert!(memory.place(0x7000_2000, 0x2000, 16).is_some() && memory.place(0x7000_0008, 16, 16).is_none());
        assert!(memory.place(0x7000_3000, 0x1001, 1).is_none());
        assert!(memory.with(Region { guest: 0x10_3fff, user: 0, ..first }, &file, &allowed).is_err(), "it overlaps");
        assert!(memory.with(Region { guest: u64::MAX, user: 0, ..first }, &file, &allowed).is_err());
        assert!(memory.with(Region { guest: 0, bytes: 0x4001, user: 0, offset: 0 }, &file, &allowed).is_err());
        assert!(memory.without(second).unwrap().shares_with(&one) && memory.without(first).unwrap().len() == 1);
        assert!(one.without(second).is_err());
    }

    #[test]
    fn the_log_has_a_bit_for_each_page() {
        let log = Log::new(memfd(4096), 2, 0, &allowed()).unwrap();
        log.mark(4095, 2);
        log.mark(9 * 4096, 4096);
        log.mark(u64::MAX, 2);
        log.mark(15 * 4096, u64::MAX);
        log.mark(3 * 4096, 0);
        let marked: Vec<u64> = (0..16).filter(|&page| log.is_marked(page)).collect();
        assert_eq!(marked, [0, 1, 9, 15]);
        assert!(!log.is_damaged());
    }
}
