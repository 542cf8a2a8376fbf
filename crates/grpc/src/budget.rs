//! Memory budget of requests that are received, decoded and executed: limited in total and per peer.
//!
//! What a request needs is charged before it is allocated, and released when the request is over. Nobody waits for
//! memory: a request that finds too little is refused with RESOURCE_EXHAUSTED and can be sent again. So there is no
//! deadlock between requests that hold part of what they need. Events queued for clients have a budget of their own
//! (`events`).
//!
//! **Sharing.** A peer may use at most as much as is then still free (dynamic thresholds, Choudhury and Hahne 1998): a
//! single peer half of the total ([`Budget::per_peer`]), two peers a third each, and some is always left for the next
//! one.
//!
//! Threads: any; one short lock for each charge. Tests: below, `tests/limits.rs`.

use crate::peer::PeerKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A limited amount of memory, shared by peers.
#[derive(Debug)]
pub struct Budget {
    total_max: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    total: u64,
    peers: HashMap<PeerKey, u64>,
}

/// Memory reserved for one request; released on drop.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    peer: PeerKey,
    bytes: u64,
}

impl Budget {
    /// A budget of `total_max` bytes.
    pub fn new(total_max: u64) -> Arc<Budget> {
        Arc::new(Budget { total_max, used: Mutex::default() })
    }

    /// Bytes that one peer may use if no other peer uses any.
    pub fn per_peer(&self) -> u64 {
        self.total_max / 2
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// An empty charge for a request of a peer.
    pub fn open(self: &Arc<Budget>, peer: PeerKey) -> Charge {
        Charge { budget: Arc::clone(self), peer, bytes: 0 }
    }
}

impl Charge {
    /// Bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the reservation to this many bytes. Returns false, without any change, if the budget does not allow it.
    #[must_use]
    pub fn set(&mut self, bytes: u64) -> bool {
        let mut used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = used.peers.get(&self.peer).copied().unwrap_or(0);
        let (total, of_peer) = (used.total - self.bytes, of_peer - self.bytes);
        let free = self.budget.total_max.checked_sub(total.saturating_add(bytes));
        if bytes > self.bytes && free.is_none_or(|free| of_peer.saturating_add(bytes) > free) {
            return false;
        }
        used.total = total + bytes;
        match of_peer + bytes {
            0 => _ = used.peers.remove(&self.peer),
            bytes => _ = used.peers.insert(self.peer.clone(), bytes),
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Releasing always succeeds.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_take_all_they_can_leave_some_for_the_next_one() {
        let budget = Budget::new(1 << 20);
        let mut held = Vec::new();
        for (user, most) in (0..10).zip((0..20).rev()) {
            let mut charge = budget.open(PeerKey::User(user));
            assert!(!charge.set((1 << most) + 1) && charge.set(1 << most), "user {user}");
            held.push(charge);
        }
        // Two peers at the same time have a third each.
        drop(held);
        let [mut a, mut b] = [1, 2].map(|user| budget.open(PeerKey::User(user)));
        assert!(a.set(300_000) && b.set(349_525) && a.set(349_525) && !a.set(350_000));
    }

    #[test]
    fn a_peer_has_half_and_what_is_given_back_is_there_for_all() {
        let budget = Budget::new(100);
        let [a, b, c] = [1, 2, 3].map(PeerKey::User);
        let mut of_a = budget.open(a.clone());
        let mut of_a_too = budget.open(a);
        assert!(of_a.set(40) && !of_a_too.set(11) && of_a_too.set(10));
        let (mut of_b, mut of_c) = (budget.open(b), budget.open(c));
        assert!(!of_b.set(26) && of_b.set(25) && !of_c.set(13) && of_c.set(12));
        assert_eq!(budget.used(), 87);
        assert!(!of_a.set(41) && of_a.bytes() == 40, "nothing changes when it is refused");
        assert!(of_a.set(5) && of_c.set(30));
        drop((of_a, of_a_too, of_b, of_c));
        assert_eq!(budget.used(), 0);
        assert!(budget.used.lock().unwrap().peers.is_empty(), "peers that are gone are forgotten");
    }
}
