//! The memory that the switch and a port's process share: the port's state, and two rings for each queue.
//!
//! ```text
//!  0                 state: link (0 or 1), beats of the process, then the counters of `PortStats` in order, a word each
//!  STATE_BYTES       rings of queue 0: from the peer, to the peer; then those of queue 1, ...
//! ```
//!
//! It is a memfd of the switch. Before the process knows it, the file is sealed against growing and shrinking, and all of
//! it is allocated. Once both have mapped it, and before the process deals with any peer, it is sealed against further
//! writable mappings (`F_SEAL_FUTURE_WRITE`, Linux 5.1), which also forbids to punch holes. So whoever takes the process
//! over can change the bytes, and cannot take a page away: no access of the switch raises SIGBUS or waits for a hole. (The
//! kernel may swap these pages like the rest of the switch's memory.)
//!
//! Each process gets a file of its own: one that was ended may have passed its file on.
//!
//! Threads: any. Tests: below; `src/tests.rs`.

use crate::ring::{self, Consumer, Place, Producer};
use pktio::PortStats;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use shared_memory::Mapping;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const STATE_BYTES: usize = 4096;
const LINK_AT: usize = 0;
const BEATS_AT: usize = 8;
const STATS_AT: usize = 16;

/// A process's mapping of the memory.
#[derive(Clone)]
pub(crate) struct Channel {
    memory: Arc<Mapping>,
    queues: u16,
}

fn bytes(queues: u16) -> usize {
    (STATE_BYTES + 2 * usize::from(queues) * ring::BYTES).next_multiple_of(rustix::param::page_size())
}

impl Channel {
    /// Makes the memory for a port with this number of queues.
    ///
    /// # Errors
    /// There is no memory, or no file is left.
    pub(crate) fn create(queues: u16) -> io::Result<(OwnedFd, Channel)> {
        let file = memfd_create("sluice-port", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = bytes(queues) as u64;
        ftruncate(&file, bytes)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let channel = Channel::open(&file, queues)?;
        Ok((file, channel))
    }

    /// Maps the memory.
    ///
    /// # Errors
    /// The file is not one of [`Channel::create`] for as many queues.
    pub(crate) fn open(file: impl AsFd, queues: u16) -> io::Result<Channel> {
        let memory = Mapping::of_sealed(file, bytes(queues)).map_err(io::Error::other)?;
        Ok(Channel { memory: Arc::new(memory), queues })
    }

    fn place(&self, queue: usize, direction: usize) -> Option<Place> {
        Place::new(&self.memory, STATE_BYTES + (2 * queue + direction) * ring::BYTES)
            .filter(|_| queue < usize::from(self.queues))
    }

    /// The switch's ends of a queue's rings: from the peer, to the peer. `None` if there is no such queue.
    pub(crate) fn switch_ends(&self, queue: usize) -> Option<(Consumer, Producer)> {
        Some((Consumer::new(self.place(queue, 0)?), Producer::new(self.place(queue, 1)?)))
    }

    /// The other ends: from the peer, to the peer.
    pub(crate) fn process_ends(&self, queue: usize) -> Option<(Producer, Consumer)> {
        Some((Producer::new(self.place(queue, 0)?), Consumer::new(self.place(queue, 1)?)))
    }

    /// Overwrites a word of queue 0's ring from the peer, as whoever takes a process over may.
    #[cfg(test)]
    pub(crate) fn overwrite(&self, at: usize, value: u64) {
        assert!(self.memory.all().store_u64(STATE_BYTES + at, value, Ordering::Release));
    }

    /// Writes the port's state, for the switch.
    pub(crate) fn publish(&self, is_up: bool, stats: &PortStats) {
        let memory = self.memory.all();
        for (i, value) in words(stats).into_iter().enumerate() {
            memory.store_u64(STATS_AT + 8 * i, value, Ordering::Relaxed);
        }
        memory.store_u64(LINK_AT, u64::from(is_up), Ordering::Release);
    }

    /// Shows that the process's main thread runs.
    pub(crate) fn beat(&self, beats: u64) {
        self.memory.all().store_u64(BEATS_AT, beats, Ordering::Relaxed);
    }

    /// A number that changes as long as the process's main thread runs.
    pub(crate) fn beats(&self) -> u64 {
        self.memory.all().load_u64(BEATS_AT, Ordering::Relaxed).unwrap_or_default()
    }

    /// Whether the port's link is up, as its process says.
    pub(crate) fn is_up(&self) -> bool {
        self.memory.all().load_u64(LINK_AT, Ordering::Acquire) == Some(1)
    }

    /// The port's counters, as its process says.
    pub(crate) fn stats(&self) -> PortStats {
        let memory = self.memory.all();
        let word = |i: usize| memory.load_u64(STATS_AT + 8 * i, Ordering::Relaxed).unwrap_or_default();
        of_words(std::array::from_fn(word))
    }
}

/// Counters from their values, in the order of [`words`].
pub(crate) fn of_words(words: [u64; 9]) -> PortStats {
    let [rx_packets, rx_bytes, rx_dropped, rx_errors, tx_packets, tx_bytes, tx_dropped, tx_too_long, tx_not_cut] =
        words;
    PortStats { rx_packets, rx_bytes, rx_dropped, rx_errors, tx_packets, tx_bytes, tx_dropped, tx_too_long, tx_not_cut }
}

/// The values of counters.
pub(crate) fn words(stats: &PortStats) -> [u64; 9] {
    let PortStats {
        rx_packets,
        rx_bytes,
        rx_dropped,
        rx_errors,
        tx_packets,
        tx_bytes,
        tx_dropped,
        tx_too_long,
        tx_not_cut,
    } = *stats;
    [rx_packets, rx_bytes, rx_dropped, rx_errors, tx_packets, tx_bytes, tx_dropped, tx_too_long, tx_not_cut]
}

/// Forbids further writable mappings, and punching holes.
///
/// # Errors
/// The kernel is older than 5.1.
pub(crate) fn seal(file: impl AsFd) -> io::Result<()> {
    Ok(fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn nobody_can_take_a_page_away_once_it_is_sealed() {
        let (file, channel) = Channel::create(2).expect("there is memory");
        let other = Channel::open(&file, 2).expect("as many queues");
        assert!(Channel::open(&file, 3).is_err());
        seal(&file).expect("Linux 5.1");
        assert!(Channel::open(&file, 2).is_err(), "who comes later cannot write");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(&file, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
        let stats = PortStats { rx_dropped: 7, tx_not_cut: 9, ..PortStats::default() };
        other.publish(true, &stats);
        assert!(channel.is_up() && channel.stats() == stats);
        assert!(channel.switch_ends(1).is_some() && channel.switch_ends(2).is_none());
    }
}
