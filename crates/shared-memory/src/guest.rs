//! The account of a port that another process of ours serves: that process maps the peers' memory, and asks for each
//! region here.
//!
//! The other process is not trusted to count: a peer may have taken it over. What it asks for is measured here, by the
//! file that it sends; the number of its regions and the sum of their bytes are bounded. Files are closed by a [`Closer`],
//! since the last owner of a file frees its pages. (That it maps no more than it has asked for is not checked: such a
//! process could allocate memory of its own as well.)
//!
//! Threads: one at a time. Tests: below.

use crate::file::{is_memory, size};
use crate::received::{Closer, PeerFile};
use crate::room::{Account, Admitted, NotAdmitted};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// Maximum regions of a guest: more than any kind of port has at a time.
const REGIONS_MAX: usize = 1024;

/// A port's account for a process that maps memory on its behalf. It outlives the process, so that the regions of a
/// process that has ended count as former ones.
#[derive(Debug)]
pub struct Guest {
    account: Account,
    /// The regions by number, with their bytes.
    admitted: BTreeMap<u64, (Admitted, u64)>,
    /// Sum of their bytes.
    bytes: u64,
    bytes_max: u64,
    last: u64,
    closer: Closer,
}

impl Guest {
    /// An account in the room of this process, for at most `bytes_max` bytes at a time. `closer` closes files that peers
    /// may have made.
    pub fn new(bytes_max: u64, closer: &Closer) -> Guest {
        Guest::with(Account::of_process(), bytes_max, closer)
    }

    fn with(account: Account, bytes_max: u64, closer: &Closer) -> Guest {
        Guest { account, admitted: BTreeMap::new(), bytes: 0, bytes_max, last: 0, closer: closer.clone() }
    }

    /// Admits `bytes` bytes from `offset` of a file on ordinary pages. Returns the region's number.
    ///
    /// # Errors
    /// The file is not memory or is shorter (in whole pages), there are too many regions or bytes, or there is not enough
    /// memory.
    pub fn admit(&mut self, file: &PeerFile, offset: u64, bytes: u64) -> Result<u64, NotAdmitted> {
        if !is_memory(file) {
            return Err(NotAdmitted::NotMemory);
        }
        if self.admitted.len() >= REGIONS_MAX {
            return Err(NotAdmitted::TooMany(REGIONS_MAX));
        }
        let size = size(file.as_fd()).checked_next_multiple_of(rustix::param::page_size() as u64).unwrap_or(u64::MAX);
        let end = offset.saturating_add(bytes);
        if end > size {
            return Err(NotAdmitted::BeyondFile { end, file: size });
        }
        let sum = self.bytes.saturating_add(bytes);
        if sum > self.bytes_max {
            return Err(NotAdmitted::TooMuch(self.bytes_max));
        }
        let admitted = self.account.admit(file.as_fd(), offset, bytes)?;
        self.last += 1;
        self.bytes = sum;
        self.admitted.insert(self.last, (admitted, bytes));
        Ok(self.last)
    }

    /// Ends an admission; ignored if there is none of this number.
    pub fn end(&mut self, number: u64) {
        let Some((mut admitted, bytes)) = self.admitted.remove(&number) else { return };
        self.bytes -= bytes;
        if let Some(file) = admitted.end() {
            drop(PeerFile::new(file, &self.closer));
        }
    }

    /// Ends all admissions: the process has ended.
    pub fn end_all(&mut self) {
        let numbers: Vec<u64> = self.admitted.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end(number));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Reading, Room};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    const MB: u64 = 1 << 20;

    fn file(bytes: u64) -> PeerFile {
        let file = memfd_create("peer", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, bytes).expect("it grows");
        PeerFile::new(file, &Closer::default())
    }

    #[test]
    fn what_a_process_maps_for_a_port_is_taken_from_the_room_of_all() {
        let reading = Reading { host: Some((1600 * MB, 1600 * MB)), ..Reading::default() };
        let room = Room::new(move || reading.clone());
        let closer = Closer::default();
        let (mut one, other) = (Guest::with(room.account(), 2000 * MB, &closer), room.account());
        let (large, second) = (file(1200 * MB), file(600 * MB));
        let number = one.admit(&large, 0, 1200 * MB).expect("there is as much");
        assert!(matches!(other.admit(second.as_fd(), 0, 600 * MB), Err(NotAdmitted::NoRoom(_))));
        one.end(number + 7);
        assert!(other.admit(second.as_fd(), 0, 600 * MB).is_err(), "no number but its own ends it");
        one.end(number);
        let admitted = other.admit(second.as_fd(), 0, 600 * MB).expect("the other one is gone");
        assert!(matches!(one.admit(&large, 0, 1200 * MB), Err(NotAdmitted::NoRoom(_))));
        drop(admitted);
        one.admit(&large, 0, 1200 * MB).expect("there is as much");
        one.end_all();
        assert!(other.admit(second.as_fd(), 0, 600 * MB).is_ok(), "the process has ended");
    }

    #[test]
    fn a_process_that_a_peer_has_taken_over_asks_for_so_much_and_no_more() {
        let room = Room::new(Reading::default);
        let mut guest = Guest::with(room.account(), 64 * MB, &Closer::default());
        let null = PeerFile::new(std::fs::File::open("/dev/null").expect("it is there"), &Closer::default());
        assert!(matches!(guest.admit(&null, 0, 4096), Err(NotAdmitted::NotMemory)));
        let small = file(4096);
        assert!((0..REGIONS_MAX).all(|_| guest.admit(&small, 0, 4096).is_ok()));
        assert!(matches!(guest.admit(&small, 0, 4096), Err(NotAdmitted::TooMany(_))));
        guest.end(1);
        assert!(guest.admit(&small, 0, 4096).is_ok(), "there is one less");
        guest.end_all();
        // A file's last page counts as a whole.
        let odd = file(5000);
        assert!(guest.admit(&odd, 0, 8192).is_ok());
        for (offset, bytes) in [(0, 8193), (8192, 1), (4096, 4097), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let refused = guest.admit(&odd, offset, bytes);
            assert!(
                matches!(refused, Err(NotAdmitted::BeyondFile { file: 8192, .. })),
                "{offset} {bytes}: {refused:?}"
            );
        }
        // The sum of all regions has a limit, also of those that share a file.
        guest.end_all();
        let (large, small) = (file(48 * MB), file(16 * MB));
        let first = guest.admit(&large, 0, 48 * MB).expect("it is within the limit");
        assert!(matches!(guest.admit(&large, 0, 48 * MB), Err(NotAdmitted::TooMuch(limit)) if limit == 64 * MB));
        guest.admit(&small, 0, 16 * MB).expect("it fits exactly");
        assert!(matches!(guest.admit(&odd, 0, 1), Err(NotAdmitted::TooMuch(_))));
        guest.end(first);
        assert!(guest.admit(&large, 0, 48 * MB).is_ok(), "what has ended no longer counts");
    }
}
