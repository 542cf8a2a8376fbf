//! The MAC learning table of the `NORMAL` port (IEEE 802.1D, 7.8 and 7.9; ovs-actions(7), "normal").
//!
//! The table maps a VLAN and an address to the port on which the address was last seen. Workers share it. A packet
//! from a known address only refreshes its entry, which the flow cache does without a lookup.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Aging time of an address, in microseconds (IEEE 802.1D's default, 300 s).
const AGE_US: u64 = 300_000_000;
/// Maximum number of addresses. When full, the least recently seen of [`CANDIDATES`] addresses is evicted.
const ENTRIES_MAX: usize = 1 << 16;
/// Sample size of an eviction, which bounds the cost of each address in a flood of new ones.
const CANDIDATES: usize = 16;

/// An entry of the table: an address's port, and when it was last seen.
#[derive(Debug)]
pub struct Station {
    /// The port.
    pub port: u32,
    used_us: AtomicU64,
}

impl Station {
    /// Refreshes the entry.
    pub fn touch(&self, now_us: u64) {
        self.used_us.fetch_max(now_us, Ordering::Relaxed);
    }
}

/// The MAC learning table.
#[derive(Debug, Default)]
pub struct Stations {
    all: Mutex<Addresses>,
    generation: AtomicU64,
    expired_us: AtomicU64,
}

/// Entries by VLAN and address.
#[derive(Debug, Default)]
struct Addresses {
    all: HashMap<(u16, u64), Arc<Station>>,
    /// The keys in eviction order; some may be of entries that are gone.
    order: VecDeque<(u16, u64)>,
}

impl Addresses {
    fn insert(&mut self, key: (u16, u64), station: Arc<Station>) {
        if self.all.insert(key, station).is_none() {
            self.order.push_back(key);
        }
    }

    /// Evicts the oldest of the next candidates; the others go to the end of the order (a sampled clock algorithm).
    fn make_room(&mut self) {
        let mut oldest: Option<((u16, u64), u64)> = None;
        let mut looked_at = 0;
        while looked_at < CANDIDATES.min(self.all.len()) {
            let Some(key) = self.order.pop_front() else { break };
            let Some(station) = self.all.get(&key) else { continue };
            looked_at += 1;
            let used_us = station.used_us.load(Ordering::Relaxed);
            match oldest {
                Some((other, other_us)) if used_us < other_us => {
                    self.order.push_back(other);
                    oldest = Some((key, used_us));
                }
                Some(_) => self.order.push_back(key),
                None => oldest = Some((key, used_us)),
            }
        }
        if let Some((key, _)) = oldest {
            self.all.remove(&key);
        }
    }
}

/// Interval between two scans for expired entries, in microseconds.
const EXPIRE_US: u64 = 1_000_000;

/// Whether a 48-bit address is a group address (IEEE 802).
pub fn is_multicast(address: u64) -> bool {
    address >> 40 & 1 == 1
}

impl Stations {
    fn lock(&self) -> MutexGuard<'_, Addresses> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A counter that advances when the result of a lookup may have changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Learns that an address was seen on a port, and returns its entry.
    pub fn learn(&self, vlan: u16, address: u64, port: u32, now_us: u64) -> Arc<Station> {
        let mut all = self.lock();
        if let Some(station) = all.all.get(&(vlan, address)).filter(|station| station.port == port) {
            station.touch(now_us);
            return Arc::clone(station);
        }
        if all.all.len() >= ENTRIES_MAX && !all.all.contains_key(&(vlan, address)) {
            all.make_room();
        }
        let station = Arc::new(Station { port, used_us: AtomicU64::new(now_us) });
        all.insert((vlan, address), Arc::clone(&station));
        self.generation.fetch_add(1, Ordering::Release);
        station
    }

    /// The port of an address, if it is known.
    pub fn find(&self, vlan: u16, address: u64) -> Option<u32> {
        self.lock().all.get(&(vlan, address)).map(|station| station.port)
    }

    /// Removes entries that have aged out. To be called often; scans once a second.
    pub fn expire(&self, now_us: u64) {
        let last = self.expired_us.load(Ordering::Relaxed);
        let is_due = now_us >= last.saturating_add(EXPIRE_US);
        if !is_due || self.expired_us.compare_exchange(last, now_us, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let mut all = self.lock();
        let Addresses { all, order } = &mut *all;
        let before = all.len();
        all.retain(|_, station| station.used_us.load(Ordering::Relaxed) + AGE_US > now_us);
        if all.len() != before {
            order.retain(|key| all.contains_key(key));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// All entries: VLAN, address, port, age in seconds.
    pub fn list(&self, now_us: u64) -> Vec<(u16, u64, u32, u64)> {
        let all = self.lock();
        let mut list: Vec<_> = all
            .all
            .iter()
            .map(|((vlan, address), station)| {
                let age_us = now_us.saturating_sub(station.used_us.load(Ordering::Relaxed));
                (*vlan, *address, station.port, age_us / 1_000_000)
            })
            .collect();
        list.sort_unstable();
        list
    }

    /// Removes all entries.
    pub fn clear(&self) {
        *self.lock() = Addresses::default();
        self.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_addresses_forgets_those_that_were_not_seen_for_long() {
        let stations = Stations::default();
        for address in 0..ENTRIES_MAX as u64 {
            stations.learn(1, address, 7, 0);
        }
        let kept: Vec<u64> = (0..ENTRIES_MAX as u64).step_by(64).collect();
        kept.iter().for_each(|address| _ = stations.learn(1, *address, 7, 1_000_000));
        for address in 0..ENTRIES_MAX as u64 / 2 {
            stations.learn(2, address, 7, 500_000);
        }
        assert_eq!(stations.list(0).len(), ENTRIES_MAX);
        let lost = kept.iter().filter(|address| stations.find(1, **address).is_none()).count();
        assert!(lost < kept.len() / 50, "{lost} of {} that were seen lately", kept.len());
    }

    #[test]
    fn addresses_move_and_age() {
        let stations = Stations::default();
        stations.learn(1, 5, 7, 0);
        let generation = stations.generation();
        stations.learn(1, 5, 7, 1_000_000);
        assert_eq!(stations.generation(), generation, "nothing new");
        assert_eq!((stations.find(1, 5), stations.find(2, 5)), (Some(7), None));
        stations.learn(1, 5, 8, 2_000_000);
        assert!(stations.generation() > generation);
        assert_eq!(stations.find(1, 5), Some(8));
        stations.expire(AGE_US + 1_000_000);
        assert_eq!(stations.list(AGE_US), [(1, 5, 8, 298)]);
        stations.expire(AGE_US + 2_000_001);
        assert_eq!(stations.find(1, 5), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let stations = Stations::default();
        for address in 0..=ENTRIES_MAX as u64 {
            stations.learn(0, address, 1, address);
        }
        assert_eq!(stations.lock().all.len(), ENTRIES_MAX);
        assert_eq!((stations.find(0, 0), stations.find(0, 1)), (None, Some(1)));
    }
}
