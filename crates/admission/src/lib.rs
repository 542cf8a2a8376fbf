//! Admission of connections to a listener: a bounded number of places, shared fairly between peers.
//!
//! - Handshakes have places of their own. When all are taken, a newcomer evicts the oldest handshake of the peer that
//!   has most of them. An active handshake takes only milliseconds, and so is rarely evicted.
//! - When all places for connections are taken, a newcomer evicts an idle connection: of the peers with idle ones, the
//!   peer that has most connections loses the one that has been idle longest. If none is idle, the newcomer evicts the
//!   newest connection of the peer that has most, provided that this peer has more than the newcomer would then have
//!   (max-min fairness). So however many places some peers hold, another one gets as many as each of them.
//!
//! The holder of a place is notified of its eviction by the function that it passed. That function is
//! called under the lock, and must not block.
//!
//! Threads: any; one lock, held briefly. Tests: below.

mod log_limit;
mod peer;

pub use log_limit::LogLimit;
pub use peer::PeerKey;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The limits of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Open connections of one peer.
    pub per_peer: usize,
    /// Handshakes in progress, in addition to the connections.
    pub handshakes: usize,
}

/// Notifies the holder of a place that it has lost it.
type OnEvict = Box<dyn Fn() + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The activity of a connection: whether calls are in progress on it.
pub struct Activity {
    calls: AtomicUsize,
    /// Time of the last call.
    since: Mutex<Instant>,
    on_evict: OnEvict,
}

impl Activity {
    fn new(on_evict: OnEvict) -> Arc<Activity> {
        Arc::new(Activity { calls: AtomicUsize::new(0), since: Mutex::new(Instant::now()), on_evict })
    }

    /// Begins a call, which ends when the result is dropped.
    pub fn call(self: &Arc<Activity>) -> Busy {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// Begins a call that ends with the connection.
    pub fn stay(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets the time of the last call to now.
    pub fn touch(&self) {
        *lock(&self.since) = Instant::now();
    }

    fn is_in_use(&self) -> bool {
        self.calls.load(Ordering::Acquire) != 0
    }

    /// Time of the last call.
    fn since(&self) -> Instant {
        *lock(&self.since)
    }

    /// How long the connection has been idle; zero while a call is in progress.
    pub fn idle(&self) -> Duration {
        if self.is_in_use() { Duration::ZERO } else { lock(&self.since).elapsed() }
    }
}

/// A call in progress.
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The places of a listener; see the crate's documentation.
pub struct Admission {
    limits: Limits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    last: u64,
    /// Ordered by number, so the oldest is the first.
    handshakes: BTreeMap<u64, (PeerKey, OnEvict)>,
    connections: BTreeMap<u64, (PeerKey, Arc<Activity>)>,
}

/// A handshake in progress, until this is dropped.
pub struct Handshake {
    places: Arc<Admission>,
    number: u64,
}

/// A place of a connection, freed when this is dropped.
pub struct Permit {
    places: Arc<Admission>,
    number: u64,
    activity: Arc<Activity>,
}

/// The number of places that each peer has.
fn counts<'a, T: 'a>(of: impl Iterator<Item = &'a (PeerKey, T)>) -> HashMap<PeerKey, usize> {
    let mut counts = HashMap::new();
    of.for_each(|(key, _)| *counts.entry(key.clone()).or_default() += 1);
    counts
}

impl Admission {
    /// The places of a new listener.
    pub fn new(limits: Limits) -> Arc<Admission> {
        Arc::new(Admission { limits, taken: Mutex::default() })
    }

    /// Begins a handshake, evicting another one if all places are taken.
    pub fn begin(self: &Arc<Admission>, key: PeerKey, on_evict: impl Fn() + Send + Sync + 'static) -> Handshake {
        let mut taken = lock(&self.taken);
        while taken.handshakes.len() >= self.limits.handshakes.max(1) {
            let counts = counts(taken.handshakes.values());
            let most =
                taken.handshakes.iter().max_by_key(|(number, (key, _))| (counts[key], std::cmp::Reverse(**number)));
            let Some(number) = most.map(|(number, _)| *number) else { break };
            if let Some((_, on_evict)) = taken.handshakes.remove(&number) {
                on_evict();
            }
        }
        taken.last += 1;
        let number = taken.last;
        taken.handshakes.insert(number, (key, Box::new(on_evict)));
        Handshake { places: Arc::clone(self), number }
    }

    /// Checks whether a peer may open another connection. To be called before its handshake.
    ///
    /// # Errors
    /// The peer has as many connections as it may have.
    pub fn check(&self, key: &PeerKey) -> Result<(), String> {
        lock(&self.taken).check(key, self.limits.per_peer)
    }

    /// Takes a place for a connection, evicting another one if all are taken.
    ///
    /// # Errors
    /// The peer has as many connections as it may have, or no connection can be evicted.
    pub fn take(
        self: &Arc<Admission>,
        key: PeerKey,
        on_evict: impl Fn() + Send + Sync + 'static,
    ) -> Result<Permit, String> {
        let mut taken = lock(&self.taken);
        let Limits { connections: connections_max, per_peer: per_peer_max, .. } = self.limits;
        taken.check(&key, per_peer_max)?;
        if taken.connections.len() >= connections_max {
            let evicted = taken.to_evict(&key).and_then(|number| taken.connections.remove(&number));
            let (_, activity) = evicted.ok_or_else(|| format!("{connections_max} connections are open"))?;
            (activity.on_evict)();
        }
        taken.last += 1;
        let (number, activity) = (taken.last, Activity::new(Box::new(on_evict)));
        taken.connections.insert(number, (key, Arc::clone(&activity)));
        Ok(Permit { places: Arc::clone(self), number, activity })
    }

    /// Number of connections with a call in progress.
    pub fn in_use(&self) -> usize {
        lock(&self.taken).connections.values().filter(|(_, activity)| activity.is_in_use()).count()
    }

    /// Notifies all connections that they must end.
    pub fn evict_all(&self) {
        lock(&self.taken).connections.values().for_each(|(_, activity)| (activity.on_evict)());
    }
}

impl Taken {
    fn check(&self, key: &PeerKey, per_peer_max: usize) -> Result<(), String> {
        match self.connections.values().filter(|(of, _)| of == key).count() >= per_peer_max {
            true => Err(format!("{per_peer_max} connections of this peer are open")),
            false => Ok(()),
        }
    }

    /// The number of the connection that a newcomer evicts; `None` if none may be evicted.
    fn to_evict(&self, newcomer: &PeerKey) -> Option<u64> {
        let counts = counts(self.connections.values());
        let idle = self.connections.iter().filter(|(_, (_, activity))| !activity.is_in_use());
        // Compares the times of the last calls, not the idle times, which grow between two comparisons.
        let idle = idle.max_by_key(|(_, (key, activity))| (counts[key], Reverse(activity.since())));
        let has = counts.get(newcomer).copied().unwrap_or(0) + 1;
        let in_use = || {
            let greedy = self.connections.iter().filter(|(_, (key, _))| counts[key] > has);
            greedy.max_by_key(|(number, (key, _))| (counts[key], **number))
        };
        idle.or_else(in_use).map(|(number, _)| *number)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        lock(&self.places.taken).handshakes.remove(&self.number);
    }
}

impl Permit {
    /// The activity of the connection.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.places.taken).connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, per_peer: usize) -> Arc<Admission> {
        Admission::new(Limits { connections, per_peer, handshakes: 4 })
    }

    /// A connection of a user, and how often it was notified of its eviction.
    fn take(places: &Arc<Admission>, user: u32) -> Result<(Permit, Arc<AtomicUsize>), String> {
        let told = Arc::new(AtomicUsize::new(0));
        let of = Arc::clone(&told);
        let place = places.take(PeerKey::User(user), move || {
            of.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok((place, told))
    }

    fn is_told(told: &AtomicUsize) -> bool {
        told.load(Ordering::Relaxed) == 1
    }

    #[test]
    fn places_are_counted_by_peer_and_given_back() {
        let places = places(3, 2);
        let held = [take(&places, 1).unwrap(), take(&places, 1).unwrap()];
        assert_eq!(take(&places, 1).err().as_deref(), Some("2 connections of this peer are open"));
        let third = take(&places, 2).unwrap();
        drop((held, third));
        assert!(lock(&places.taken).connections.is_empty());
    }

    #[test]
    fn peers_that_hold_all_places_with_calls_give_some_to_another_one_and_no_more_than_their_share() {
        let places = places(8, 4);
        let hold = |user| {
            let (place, told) = take(&places, user).unwrap();
            let busy = place.activity().call();
            (place, busy, told)
        };
        let mut held: Vec<_> = [1, 1, 1, 1, 2, 2, 2, 2].map(hold).into();
        for _ in 0..2 {
            held.push(hold(3));
        }
        let of = |user| lock(&places.taken).connections.values().filter(|(key, _)| *key == PeerKey::User(user)).count();
        assert_eq!((of(1), of(2), of(3)), (3, 3, 2));
        // A third connection would equal what the others have, so nobody is evicted.
        assert_eq!(take(&places, 3).err().as_deref(), Some("8 connections are open"));
        assert_eq!(held.iter().filter(|(.., told)| is_told(told)).count(), 2);
    }

    #[test]
    fn connections_without_calls_give_their_places_first() {
        let places = places(3, 3);
        let (kept, told) = take(&places, 1).unwrap();
        let _busy = kept.activity().call();
        let (idle, newer) = (take(&places, 2).unwrap(), take(&places, 3).unwrap());
        newer.0.activity().touch();
        let _new = take(&places, 4).unwrap();
        assert!(is_told(&idle.1) && !is_told(&newer.1) && !is_told(&told));
    }

    #[test]
    fn the_oldest_handshake_of_who_has_most_is_cut_off_for_a_new_one() {
        let places = places(8, 8);
        let begin = |user| {
            let told = Arc::new(AtomicUsize::new(0));
            let of = Arc::clone(&told);
            (
                places.begin(PeerKey::User(user), move || {
                    of.fetch_add(1, Ordering::Relaxed);
                }),
                told,
            )
        };
        let flood: Vec<_> = (0..3).map(|_| begin(1)).collect();
        let other = begin(2);
        let _new = begin(3);
        assert!(is_told(&flood[0].1) && !is_told(&flood[1].1) && !is_told(&other.1));
        drop((flood, other));
        assert_eq!(lock(&places.taken).handshakes.len(), 1);
    }
}
