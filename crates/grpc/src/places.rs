//! Places for connections, shared between peers so that nobody keeps the others out.
//!
//! - Handshakes under way have places of their own. When they are all taken, the oldest handshake of the peer that has most of them is
//!   closed: a handshake that goes on takes milliseconds, and outlives that.
//! - When all places of connections are taken, a newcomer gets that of a connection on which nothing is called, first of the peer
//!   that has most connections, and of these the one that has called nothing for longest. If all are in use, it gets the newest of the
//!   peer that has most, if that has more than the newcomer then has (max-min fairness). So however many places some peers hold,
//!   another one gets as many as each of them.
//! - A connection on which nothing was called for [`ConnectionLimits::idle`] is closed; an open stream is a call.
//!
//! Threads: any; one short lock. Tests: below, `tests/limits.rs`.

use crate::peer::PeerKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Limits of a listener's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Open connections.
    pub connections_max: usize,
    /// Open connections of one address (of one network of 64 bits of IPv6), or of one user of the Unix socket.
    pub per_peer_max: usize,
    /// Handshakes under way, besides.
    pub handshakes_max: usize,
    /// From `accept` to the first bytes of HTTP/2 (or the whole head of an HTTP/1 request), TLS included.
    pub handshake: Duration,
    /// How long a peer may leave what is sent to it waiting.
    pub stalled: Duration,
    /// How long nothing may be called on a connection. It is noticed after twice the time at the latest.
    pub idle: Duration,
}

impl Default for ConnectionLimits {
    /// A descriptor each; a process has 1,024 of them unless told otherwise.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: 256,
            per_peer_max: 128,
            handshakes_max: 64,
            handshake: Duration::from_secs(10),
            stalled: Duration::from_secs(60),
            idle: Duration::from_secs(300),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is called on a connection.
#[derive(Debug)]
pub(crate) struct Activity {
    calls: AtomicUsize,
    /// When something was called last.
    since: Mutex<Instant>,
    evicted: Notify,
}

impl Activity {
    fn new() -> Arc<Activity> {
        Arc::new(Activity { calls: AtomicUsize::new(0), since: Mutex::new(Instant::now()), evicted: Notify::new() })
    }

    /// A call, until the result is dropped.
    pub(crate) fn call(self: &Arc<Activity>) -> Busy {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// Something was called just now.
    pub(crate) fn touch(&self) {
        *lock(&self.since) = Instant::now();
    }

    /// When something was called last.
    fn since(&self) -> Instant {
        *lock(&self.since)
    }

    /// How long nothing has been called.
    pub(crate) fn idle(&self) -> Duration {
        match self.calls.load(Ordering::Acquire) {
            0 => lock(&self.since).elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// When another connection has got the place.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A call of a connection.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the file.
#[derive(Debug)]
pub(crate) struct Places {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    /// By their numbers, so the oldest comes first.
    handshakes: BTreeMap<u64, (PeerKey, Arc<Notify>)>,
    connections: BTreeMap<u64, (PeerKey, Arc<Activity>)>,
}

/// A handshake under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Handshake {
    places: Arc<Places>,
    number: u64,
    cut: Arc<Notify>,
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
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
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Places> {
        Arc::new(Places { limits, taken: Mutex::default() })
    }

    /// A handshake begins; another one may end for it.
    pub(crate) fn begin(self: &Arc<Places>, key: PeerKey) -> Handshake {
        let mut taken = lock(&self.taken);
        while taken.handshakes.len() >= self.limits.handshakes_max.max(1) {
            let counts = counts(taken.handshakes.values());
            let most =
                taken.handshakes.iter().max_by_key(|(number, (key, _))| (counts[key], std::cmp::Reverse(**number)));
            let Some(number) = most.map(|(number, _)| *number) else { break };
            if let Some((_, cut)) = taken.handshakes.remove(&number) {
                cut.notify_one();
            }
        }
        taken.last += 1;
        let (number, cut) = (taken.last, Arc::new(Notify::new()));
        taken.handshakes.insert(number, (key, Arc::clone(&cut)));
        Handshake { places: Arc::clone(self), number, cut }
    }

    /// Whether a peer may have one more connection, to be asked before its handshake.
    pub(crate) fn check(&self, key: &PeerKey) -> Result<(), String> {
        lock(&self.taken).check(key, self.limits.per_peer_max)
    }

    /// A place for a connection, or why there is none.
    pub(crate) fn take(self: &Arc<Places>, key: PeerKey) -> Result<Place, String> {
        let mut taken = lock(&self.taken);
        let ConnectionLimits { connections_max, per_peer_max, .. } = self.limits;
        taken.check(&key, per_peer_max)?;
        if taken.connections.len() >= connections_max {
            let evicted = taken.to_evict(&key).and_then(|number| taken.connections.remove(&number));
            let (_, activity) = evicted.ok_or_else(|| format!("{connections_max} connections are open"))?;
            activity.evicted.notify_one();
        }
        taken.last += 1;
        let (number, activity) = (taken.last, Activity::new());
        taken.connections.insert(number, (key, Arc::clone(&activity)));
        Ok(Place { places: Arc::clone(self), number, activity })
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
        let idle = self.connections.iter().filter(|(_, (_, activity))| activity.calls.load(Ordering::Acquire) == 0);
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

impl Handshake {
    /// When another one has got the place.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        lock(&self.places.taken).handshakes.remove(&self.number);
    }
}

impl Place {
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// How long nothing may be called.
    pub(crate) fn idle_max(&self) -> Duration {
        self.places.limits.idle
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

    fn places(connections_max: usize, per_peer_max: usize) -> Arc<Places> {
        Places::new(ConnectionLimits { connections_max, per_peer_max, handshakes_max: 4, ..Default::default() })
    }

    fn is_told(notify: &Notify) -> bool {
        let told = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        told.block_on(async { tokio::time::timeout(Duration::ZERO, notify.notified()).await.is_ok() })
    }

    #[test]
    fn places_are_counted_by_peer_and_given_back() {
        let places = places(3, 2);
        let (a, b) = (PeerKey::User(1), PeerKey::User(2));
        let held = [places.take(a.clone()).unwrap(), places.take(a.clone()).unwrap()];
        assert_eq!(places.take(a.clone()).unwrap_err(), "2 connections of this peer are open");
        let third = places.take(b).unwrap();
        drop((held, third));
        assert!(lock(&places.taken).connections.is_empty());
    }

    #[test]
    fn peers_that_hold_all_places_with_calls_give_some_to_another_one_and_no_more_than_their_share() {
        let places = places(8, 4);
        let hold = |user| {
            let place = places.take(PeerKey::User(user)).unwrap();
            let busy = place.activity().call();
            (place, busy)
        };
        let mut held: Vec<_> = [1, 1, 1, 1, 2, 2, 2, 2].map(hold).into();
        for _ in 0..2 {
            held.push(hold(3));
        }
        let of = |user| lock(&places.taken).connections.values().filter(|(key, _)| *key == PeerKey::User(user)).count();
        assert_eq!((of(1), of(2), of(3)), (3, 3, 2));
        // A third would have as many as they: nobody has to give one.
        assert_eq!(places.take(PeerKey::User(3)).unwrap_err(), "8 connections are open");
        assert_eq!(held.iter().filter(|(place, _)| is_told(&place.activity().evicted)).count(), 2);
    }

    #[test]
    fn connections_without_calls_give_their_places_first() {
        let places = places(3, 3);
        let kept = places.take(PeerKey::User(1)).unwrap();
        let _busy = kept.activity().call();
        let (idle, newer) = (places.take(PeerKey::User(2)).unwrap(), places.take(PeerKey::User(3)).unwrap());
        newer.activity().touch();
        let _new = places.take(PeerKey::User(4)).unwrap();
        assert!(is_told(&idle.activity().evicted) && !is_told(&newer.activity().evicted));
        assert!(!is_told(&kept.activity().evicted));
    }

    #[test]
    fn the_oldest_handshake_of_who_has_most_is_cut_off_for_a_new_one() {
        let places = places(8, 8);
        let flood: Vec<Handshake> = (0..3).map(|_| places.begin(PeerKey::User(1))).collect();
        let other = places.begin(PeerKey::User(2));
        let _new = places.begin(PeerKey::User(3));
        assert!(is_told(&flood[0].cut) && !is_told(&flood[1].cut) && !is_told(&other.cut));
        drop((flood, other));
        assert_eq!(lock(&places.taken).handshakes.len(), 1);
    }
}
