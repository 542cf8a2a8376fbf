//! Places for connections, shared between peers so that nobody keeps the others out.
//!
//! - Handshakes under way have places of their own. When they are all taken, the oldest handshake of the peer that has most of them is
//!   closed: a handshake that goes on takes milliseconds, and outlives that.
//! - When all places of connections are taken, a newcomer gets that of a connection on which nothing is called, first of the peer
//!   that has most connections, and of these the one that has called nothing for longest. If all are in use, it gets the newest of the
//!   peer that has most, if that has more than the newcomer then has (max-min fairness). So however many places some peers hold,
//!   another one gets as many as each of them.
//!
//! Who loses a place is told by the function that came with it, which must not block: it is called under the lock.
//!
//! Threads: any; one short lock. Tests: below.

mod peer;
mod seldom;

pub use peer::PeerKey;
pub use seldom::Seldom;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many of them a listener has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Open connections of one peer.
    pub per_peer: usize,
    /// Handshakes under way, besides.
    pub handshakes: usize,
}

/// Tells whoever has a place that it is another's.
type Cut = Box<dyn Fn() + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is called on a connection.
pub struct Activity {
    calls: AtomicUsize,
    /// When something was called last.
    since: Mutex<Instant>,
    cut: Cut,
}

impl Activity {
    fn new(cut: Cut) -> Arc<Activity> {
        Arc::new(Activity { calls: AtomicUsize::new(0), since: Mutex::new(Instant::now()), cut })
    }

    /// A call, until the result is dropped.
    pub fn call(self: &Arc<Activity>) -> Busy {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// A call that ends with the connection.
    pub fn stay(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Something was called just now.
    pub fn touch(&self) {
        *lock(&self.since) = Instant::now();
    }

    fn is_in_use(&self) -> bool {
        self.calls.load(Ordering::Acquire) != 0
    }

    /// When something was called last.
    fn since(&self) -> Instant {
        *lock(&self.since)
    }

    /// How long nothing has been called.
    pub fn idle(&self) -> Duration {
        if self.is_in_use() { Duration::ZERO } else { lock(&self.since).elapsed() }
    }
}

/// A call of a connection.
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the file.
pub struct Places {
    limits: Limits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    last: u64,
    /// By their numbers, so the oldest comes first.
    handshakes: BTreeMap<u64, (PeerKey, Cut)>,
    connections: BTreeMap<u64, (PeerKey, Arc<Activity>)>,
}

/// A handshake under way, until this is dropped.
pub struct Handshake {
    places: Arc<Places>,
    number: u64,
}

/// A connection's place, until this is dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    activity: Arc<Activity>,
}

/// How many each peer has.
fn counts<'a, T: 'a>(of: impl Iterator<Item = &'a (PeerKey, T)>) -> HashMap<PeerKey, usize> {
    let mut counts = HashMap::new();
    of.for_each(|(key, _)| *counts.entry(key.clone()).or_default() += 1);
    counts
}

impl Places {
    /// For a listener.
    pub fn new(limits: Limits) -> Arc<Places> {
        Arc::new(Places { limits, taken: Mutex::default() })
    }

    /// A handshake begins; another one may end for it.
    pub fn begin(self: &Arc<Places>, key: PeerKey, cut: impl Fn() + Send + Sync + 'static) -> Handshake {
        let mut taken = lock(&self.taken);
        while taken.handshakes.len() >= self.limits.handshakes.max(1) {
            let counts = counts(taken.handshakes.values());
            let most =
                taken.handshakes.iter().max_by_key(|(number, (key, _))| (counts[key], std::cmp::Reverse(**number)));
            let Some(number) = most.map(|(number, _)| *number) else { break };
            if let Some((_, cut)) = taken.handshakes.remove(&number) {
                cut();
            }
        }
        taken.last += 1;
        let number = taken.last;
        taken.handshakes.insert(number, (key, Box::new(cut)));
        Handshake { places: Arc::clone(self), number }
    }

    /// Whether a peer may have one more connection, to be asked before its handshake.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, key: &PeerKey) -> Result<(), String> {
        lock(&self.taken).check(key, self.limits.per_peer)
    }

    /// A place for a connection.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(self: &Arc<Places>, key: PeerKey, cut: impl Fn() + Send + Sync + 'static) -> Result<Place, String> {
        let mut taken = lock(&self.taken);
        let Limits { connections: connections_max, per_peer: per_peer_max, .. } = self.limits;
        taken.check(&key, per_peer_max)?;
        if taken.connections.len() >= connections_max {
            let evicted = taken.to_evict(&key).and_then(|number| taken.connections.remove(&number));
            let (_, activity) = evicted.ok_or_else(|| format!("{connections_max} connections are open"))?;
            (activity.cut)();
        }
        taken.last += 1;
        let (number, activity) = (taken.last, Activity::new(Box::new(cut)));
        taken.connections.insert(number, (key, Arc::clone(&activity)));
        Ok(Place { places: Arc::clone(self), number, activity })
    }

    /// Connections on which something is called just now.
    pub fn in_use(&self) -> usize {
        lock(&self.taken).connections.values().filter(|(_, activity)| activity.is_in_use()).count()
    }

    /// Tells all connections that they are over.
    pub fn cut_all(&self) {
        lock(&self.taken).connections.values().for_each(|(_, activity)| (activity.cut)());
    }
}

impl Taken {
    fn check(&self, key: &PeerKey, per_peer_max: usize) -> Result<(), String> {
        match self.connections.values().filter(|(of, _)| of == key).count() >= per_peer_max {
            true => Err(format!("{per_peer_max} connections of this peer are open")),
            false => Ok(()),
        }
    }

    /// The connection whose place a newcomer gets.
    fn to_evict(&self, newcomer: &PeerKey) -> Option<u64> {
        let counts = counts(self.connections.values());
        let idle = self.connections.iter().filter(|(_, (_, activity))| !activity.is_in_use());
        // By the time of the last call, not by how long ago that is: time goes on between two comparisons.
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

impl Place {
    /// What is called on it.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, per_peer: usize) -> Arc<Places> {
        Places::new(Limits { connections, per_peer, handshakes: 4 })
    }

    /// A user's connection, and how often it was told that its place is another's.
    fn take(places: &Arc<Places>, user: u32) -> Result<(Place, Arc<AtomicUsize>), String> {
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
        // A third would have as many as they: nobody has to give one.
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
