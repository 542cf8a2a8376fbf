//! The state of a room, and the admission rule (explained in `room`). Makes no system call except `fstat`.

use crate::file::{FileId, holes};
use crate::room::reading::Reading;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

/// Former regions that an account remembers individually; of older ones it keeps the sum of their bytes. A front end
/// has at most 32 regions, so the last four front ends are recognised when they map the same memory again.
const FORMER_MAX: usize = 128;

/// Files kept open per account, to measure their holes again. For other regions, the holes at
/// admission count. A guest has one or two files.
const FILES_MAX: usize = 8;

/// Maximum reserve for what the switch itself allocates between two measurements: half of the
/// memory that requests in progress may have (`--grpc-memory-max`, 512 MB by default). In a small
/// group the reserve is a sixteenth of the limit.
const OWN_BYTES_MAX: u64 = 256 << 20;

/// Bytes that the kernel charges a group at once per processor: 64 pages (`MEMCG_CHARGE_BATCH`).
const CHARGE_BYTES: u64 = 64 * 4096;

/// Mapped bytes per byte of page table, which is charged too: 8 bytes per page.
const BYTES_PER_TABLE_BYTE: u64 = 512;

/// A region on ordinary pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub account: u64,
    pub file: FileId,
    pub offset: u64,
    pub bytes: u64,
    /// Bytes that are not allocated, at admission.
    pub holes: u64,
}

impl Region {
    fn is(&self, other: &Region) -> bool {
        (self.file, self.offset, self.bytes) == (other.file, other.offset, other.bytes)
    }
}

struct Mapped {
    region: Region,
    file: Option<OwnedFd>,
}

impl Mapped {
    fn holes(&self) -> u64 {
        self.file.as_ref().map_or(self.region.holes, |file| holes(file.as_fd()).min(self.region.bytes))
    }
}

/// An account's former regions: unmapped, but possibly still allocated.
#[derive(Default)]
struct Former {
    /// Oldest first.
    regions: VecDeque<Region>,
    /// Bytes of the regions that are no longer remembered individually.
    others: u64,
}

impl Former {
    fn bytes(&self) -> u64 {
        self.regions.iter().fold(self.others, |sum, region| sum.saturating_add(region.bytes))
    }

    fn add(&mut self, region: Region) {
        self.remove(&region);
        self.regions.push_back(region);
        if self.regions.len() > FORMER_MAX
            && let Some(oldest) = self.regions.pop_front()
        {
            self.others = self.others.saturating_add(oldest.bytes);
        }
    }

    /// Removes a region. Returns whether it was present.
    fn remove(&mut self, region: &Region) -> bool {
        let before = self.regions.len();
        self.regions.retain(|former| !former.is(region));
        self.regions.len() < before
    }

    /// Reduces the total to at most `most` bytes: the rest has been freed.
    fn cut(&mut self, most: u64) {
        let mut excess = self.bytes().saturating_sub(most);
        let cut = excess.min(self.others);
        (self.others, excess) = (self.others - cut, excess - cut);
        while excess > 0
            && let Some(oldest) = self.regions.front_mut()
        {
            if oldest.bytes > excess {
                // The remainder no longer equals any region.
                let rest = oldest.bytes - excess;
                self.regions.pop_front();
                self.others = self.others.saturating_add(rest);
                return;
            }
            excess -= oldest.bytes;
            self.regions.pop_front();
        }
    }
}

/// The state of a room.
#[derive(Default)]
pub(super) struct State {
    next: u64,
    mapped: BTreeMap<u64, Mapped>,
    accounts: BTreeMap<u64, Former>,
    /// Former regions of accounts that have ended.
    ended: Former,
    /// Shared memory of the process that does not belong to peers, measured when there was no peer.
    own: u64,
}

impl State {
    pub(super) fn open(&mut self) -> u64 {
        self.next += 1;
        self.accounts.insert(self.next, Former::default());
        self.next
    }

    pub(super) fn close(&mut self, account: u64) {
        if let Some(former) = self.accounts.remove(&account) {
            self.ended.others = self.ended.others.saturating_add(former.bytes());
        }
    }

    /// Admits a region and returns its number.
    pub(super) fn admit(&mut self, region: Region, reading: &Reading) -> Result<u64, Shortage> {
        self.settle(reading);
        // Any account is searched: another port's guest may have moved here. What it cost
        // as a former region is part of its bytes.
        let mut was_former = false;
        for former in self.accounts.values_mut() {
            was_former |= former.remove(&region);
        }
        if let Err(shortage) = self.check(&region, was_former, reading) {
            if was_former {
                self.former(region.account).add(region);
            }
            return Err(shortage);
        }
        self.next += 1;
        self.mapped.insert(self.next, Mapped { region, file: None });
        Ok(self.next)
    }

    /// Drops former regions whose memory has been freed.
    fn settle(&mut self, reading: &Reading) {
        if self.mapped.is_empty() && self.former_bytes() == 0 {
            self.own = reading.shared;
        }
        self.own = self.own.min(reading.shared);
        let most = reading.shared.saturating_sub(self.own);
        self.accounts.values_mut().chain([&mut self.ended]).for_each(|former| former.cut(most));
    }

    fn former(&mut self, account: u64) -> &mut Former {
        self.accounts.get_mut(&account).unwrap_or(&mut self.ended)
    }

    fn former_bytes(&self) -> u64 {
        let all = self.accounts.values().chain([&self.ended]);
        all.fold(0, |sum, former| sum.saturating_add(former.bytes()))
    }

    fn check(&self, region: &Region, was_former: bool, reading: &Reading) -> Result<(), Shortage> {
        let sum = |of: fn(&Mapped) -> u64| self.mapped.values().map(of).fold(0, u64::saturating_add);
        let shared = reading.shared.saturating_sub(self.own);
        let mapped = sum(|mapped| mapped.region.bytes);
        // A region that we have not touched is not charged.
        let charged = shared.saturating_sub(self.former_bytes());
        let others = mapped - charged.min(mapped);
        let bytes = region.bytes - if was_former { charged.saturating_sub(mapped).min(region.bytes) } else { 0 };
        let former = self.accounts.get(&region.account).map_or(0, Former::bytes);
        let tables = mapped.saturating_add(region.bytes) / BYTES_PER_TABLE_BYTE;
        let check = |place: Place, limit: u64, left: u64, bytes: u64, others: u64| {
            let reserve = reserve(limit, reading.processors) + tables;
            let need = [bytes, others, former, reserve].into_iter().fold(0, u64::saturating_add);
            if need <= left { Ok(()) } else { Err(Shortage { place, left, bytes, others, former, reserve }) }
        };
        for group in &reading.groups {
            let left = group.limit.saturating_sub(group.used);
            check(Place::Group(group.name.clone()), group.limit, left, bytes, others)?;
        }
        match reading.host {
            Some((total, available)) => check(Place::Host, total, available, region.holes, sum(Mapped::holes)),
            None => Ok(()),
        }
    }

    /// Whether to keep a region's file: if it has holes to measure, and not too many files are kept.
    pub(super) fn wants_file(&self, number: u64) -> bool {
        self.mapped.get(&number).is_some_and(|new| {
            let of_it = |other: &&Mapped| other.region.account == new.region.account && other.file.is_some();
            new.region.holes > 0 && self.mapped.values().filter(of_it).count() < FILES_MAX
        })
    }

    pub(super) fn keep_file(&mut self, number: u64, file: Option<OwnedFd>) {
        if let Some(mapped) = self.mapped.get_mut(&number) {
            mapped.file = file;
        }
    }

    /// Makes a region a former one: it is unmapped, or will be and is no longer used.
    pub(super) fn end(&mut self, number: u64) -> Option<OwnedFd> {
        let Mapped { region, file } = self.mapped.remove(&number)?;
        self.former(region.account).add(region);
        file
    }
}

/// Bytes of a limit that stay unused, apart from page tables.
fn reserve(limit: u64, processors: u64) -> u64 {
    (limit / 16).min(OWN_BYTES_MAX) + CHARGE_BYTES * processors
}

/// Where memory is insufficient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A control group with a limit.
    Group(String),
    /// The machine.
    Host,
}

/// Why a region is not admitted: there is not enough memory. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Where memory is insufficient.
    pub place: Place,
    /// Memory left there.
    pub left: u64,
    /// What the region may take of it.
    pub bytes: u64,
    /// What mapped regions may still take of it.
    pub others: u64,
    /// What former regions of the same port may have taken; as much must be left once more.
    pub former: u64,
    /// The reserve.
    pub reserve: u64,
}

impl std::error::Error for Shortage {}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        let Shortage { place, left, bytes, others, former, reserve } = self;
        let place = match place {
            Place::Group(name) => format!("the control group {name}"),
            Place::Host => "the machine".into(),
        };
        write!(
            f,
            "the switch may have to pay {} MB for it, and {place} has {} MB left, of which {} MB are kept for regions that are \
             mapped, {} MB because this port had others before, and {} MB as a reserve; share huge pages, or ",
            mb(*bytes),
            left >> 20,
            mb(*others),
            mb(*former),
            mb(*reserve)
        )?;
        match self.place {
            Place::Group(_) => f.write_str("raise the group's limit (MemoryMax= of the service)"),
            Place::Host => f.write_str("allocate the memory beforehand (prealloc=on of QEMU's memory backend)"),
        }
    }
}
