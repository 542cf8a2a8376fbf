//! Who may come in at a listener: places for handshakes and connections, shared between peers (`places`), and a log that nobody fills.
//!
//! A connection is a handshake until TLS and OFPT_HELLO are over, for [`HANDSHAKE_MAX`] at most. Then it needs a place. One that has
//! a place counts as in use for as long as it lives, whether it says something or not: controllers are silent for hours.
//!
//! Tests: below, `tests/py/test_openflow_access.py`.

use admission::{Admission, Handshake, Limits, LogLimit, PeerKey, Permit};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections of a listener, of one peer, and handshakes under way. Each has a thread and two descriptors, of which a process has 1,024
/// unless told otherwise. One peer has half of the places at most; handshakes take milliseconds, so a few of them at a time are enough.
const LIMITS: Limits = Limits { connections: 64, per_peer: 32, handshakes: 32 };
/// Of each kind of event, lines of the log in ten seconds.
const LINES: u32 = 8;
/// How long a handshake may take, TLS and OFPT_HELLO together: as gRPC's (`grpc::ConnectionLimits`).
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Of a listener.
pub struct Door {
    uri: String,
    places: Arc<Admission>,
    said: Mutex<[LogLimit; 3]>,
}

/// What the log says now and then.
#[derive(Clone, Copy)]
pub enum Event {
    /// A connection that could not be accepted, or has no place.
    Refused,
    /// One that has failed before it had a place.
    Failed,
    /// One that has ended.
    Ended,
}

/// Ends a connection from outside of its thread.
pub type Cut = Arc<dyn Fn() + Send + Sync>;

/// A connection that a listener has accepted.
pub struct Guest {
    door: Arc<Door>,
    key: PeerKey,
    cut: Cut,
    since: Instant,
    handshake: Option<Handshake>,
    place: Option<Permit>,
}

impl Door {
    /// Of a listener that is called so.
    pub fn new(uri: &str) -> Arc<Door> {
        let said = Mutex::new(std::array::from_fn(|_| LogLimit::lines(LINES)));
        Arc::new(Door { uri: uri.to_string(), places: Admission::new(LIMITS), said })
    }

    /// Says what has happened, if that was not said just now.
    pub fn say(&self, event: Event, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said[event as usize].say(|times| {
            let uri = &self.uri;
            match event {
                Event::Ended => tracing::info!("{uri}: {what} ({times} such)"),
                _ => tracing::warn!("{uri}: {what} ({times} such)"),
            }
        });
    }

    /// Lets somebody in as far as the handshake; another one's may end for it. `cut` must not block.
    ///
    /// # Errors
    /// If this peer has as many connections as it may.
    pub fn let_in(self: &Arc<Door>, key: PeerKey, cut: Cut) -> Result<Guest, String> {
        self.places.check(&key)?;
        let of = Arc::clone(&cut);
        let handshake = Some(self.places.begin(key.clone(), move || of()));
        Ok(Guest { door: Arc::clone(self), key, cut, since: Instant::now(), handshake, place: None })
    }
}

impl Guest {
    /// The handshake is over: it gets a place, maybe another's.
    ///
    /// # Errors
    /// Why there is none.
    pub fn sit_down(&mut self) -> Result<(), String> {
        if self.place.is_none() {
            let cut = Arc::clone(&self.cut);
            let place = self.door.places.take(self.key.clone(), move || cut())?;
            // In use from now on.
            place.activity().stay();
            (self.place, self.handshake) = (Some(place), None);
        }
        Ok(())
    }

    /// Whether the handshake has taken too long.
    pub fn is_late(&self) -> bool {
        self.place.is_none() && self.since.elapsed() > HANDSHAKE_MAX
    }

    /// Says what has happened to it.
    pub fn say(&self, event: Event, what: &str) {
        self.door.say(event, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn guest(door: &Arc<Door>, user: u32) -> Result<(Guest, Arc<AtomicUsize>), String> {
        let cut = Arc::new(AtomicUsize::new(0));
        let of = Arc::clone(&cut);
        let guest = door.let_in(
            PeerKey::User(user),
            Arc::new(move || {
                of.fetch_add(1, Ordering::Relaxed);
            }),
        )?;
        Ok((guest, cut))
    }

    #[test]
    fn whoever_holds_all_places_and_all_handshakes_keeps_nobody_else_out() {
        let door = Door::new("ptcp:test");
        let mut held = Vec::new();
        for user in [1, 2] {
            for _ in 0..LIMITS.per_peer {
                let mut one = guest(&door, user).unwrap();
                one.0.sit_down().unwrap();
                held.push(one);
            }
            assert_eq!(guest(&door, user).err().as_deref(), Some("32 connections of this peer are open"));
        }
        let silent: Vec<_> = (0..2 * LIMITS.handshakes).map(|_| guest(&door, 3).unwrap()).collect();
        let cut =
            |of: &[(Guest, Arc<AtomicUsize>)]| of.iter().filter(|(_, cut)| cut.load(Ordering::Relaxed) == 1).count();
        assert_eq!(cut(&silent), LIMITS.handshakes);
        let mut another = guest(&door, 4).unwrap();
        another.0.sit_down().unwrap();
        assert_eq!((cut(&held), another.1.load(Ordering::Relaxed)), (1, 0));
    }

    #[test]
    fn a_handshake_that_is_over_cannot_be_late() {
        let door = Door::new("ptcp:test");
        let (mut one, _cut) = guest(&door, 1).unwrap();
        one.since = Instant::now().checked_sub(2 * HANDSHAKE_MAX).expect("the machine runs for longer");
        assert!(one.is_late());
        one.sit_down().unwrap();
        assert!(!one.is_late());
    }
}
