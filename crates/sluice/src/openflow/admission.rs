//! Admission of connections at a listener: limits on handshakes and connections, shared between peers (`admission`), and
//! rate-limited log lines.
//!
//! A connection is in its handshake until TLS and OFPT_HELLO are complete, for at most [`HANDSHAKE_MAX`]. Then it needs
//! a place. A connection with a place counts as in use as long as it is open, even if it is silent: controllers may be
//! silent for hours.
//!
//! Tests: below, `tests/py/test_openflow_access.py`.

use admission::{Admission, Handshake, Limits, LogLimit, PeerKey, Permit};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limits of a listener: connections in total and per peer, and handshakes in progress. Each takes a thread and two
/// descriptors, of which a process has 1,024 by default. One peer gets at most half of the connections; handshakes take
/// milliseconds, so a few at a time are enough.
const LIMITS: Limits = Limits { connections: 64, per_peer: 32, handshakes: 32 };
/// The most log lines per kind of event in ten seconds.
const LINES: u32 = 8;
/// How long a handshake may take, TLS and OFPT_HELLO together; the same as for gRPC (`grpc::ConnectionLimits`).
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The admission control of a listener.
pub struct ListenerAdmission {
    uri: String,
    places: Arc<Admission>,
    log: Mutex<[LogLimit; 3]>,
}

/// Events that are logged at a limited rate.
#[derive(Clone, Copy)]
pub enum Event {
    /// A connection could not be accepted, or got no place.
    Refused,
    /// A connection failed in its handshake.
    Failed,
    /// A connection ended.
    Ended,
}

/// Closes a connection from outside its thread.
pub type Cut = Arc<dyn Fn() + Send + Sync>;

/// A connection that a listener has accepted.
pub struct Admitted {
    admission: Arc<ListenerAdmission>,
    key: PeerKey,
    cut: Cut,
    since: Instant,
    handshake: Option<Handshake>,
    place: Option<Permit>,
}

impl ListenerAdmission {
    /// Returns the admission control of the listener with this URI.
    pub fn new(uri: &str) -> Arc<ListenerAdmission> {
        let log = Mutex::new(std::array::from_fn(|_| LogLimit::lines(LINES)));
        Arc::new(ListenerAdmission { uri: uri.to_string(), places: Admission::new(LIMITS), log })
    }

    /// Logs an event, at the limited rate of its kind.
    pub fn log(&self, event: Event, what: &str) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log[event as usize].say(|times| {
            let uri = &self.uri;
            match event {
                Event::Ended => tracing::info!("{uri}: {what} ({times} such)"),
                _ => tracing::warn!("{uri}: {what} ({times} such)"),
            }
        });
    }

    /// Admits a connection to the handshake, possibly in place of another's. `cut` closes the connection; it must not
    /// block.
    ///
    /// # Errors
    /// If this peer has reached its limit of connections.
    pub fn admit(self: &Arc<ListenerAdmission>, key: PeerKey, cut: Cut) -> Result<Admitted, String> {
        self.places.check(&key)?;
        let of = Arc::clone(&cut);
        let handshake = Some(self.places.begin(key.clone(), move || of()));
        Ok(Admitted { admission: Arc::clone(self), key, cut, since: Instant::now(), handshake, place: None })
    }
}

impl Admitted {
    /// Ends the handshake and takes a place, possibly another connection's. Does nothing if it has one.
    ///
    /// # Errors
    /// If no place is available; the message says why.
    pub fn take_place(&mut self) -> Result<(), String> {
        if self.place.is_none() {
            let cut = Arc::clone(&self.cut);
            let place = self.admission.places.take(self.key.clone(), move || cut())?;
            // The place stays in use until it is dropped.
            place.activity().stay();
            (self.place, self.handshake) = (Some(place), None);
        }
        Ok(())
    }

    /// Whether the handshake has exceeded [`HANDSHAKE_MAX`].
    pub fn is_late(&self) -> bool {
        self.place.is_none() && self.since.elapsed() > HANDSHAKE_MAX
    }

    /// Logs an event about this connection, as [`ListenerAdmission::log`].
    pub fn log(&self, event: Event, what: &str) {
        self.admission.log(event, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn connection(admission: &Arc<ListenerAdmission>, user: u32) -> Result<(Admitted, Arc<AtomicUsize>), String> {
        let cut = Arc::new(AtomicUsize::new(0));
        let of = Arc::clone(&cut);
        let connection = admission.admit(
            PeerKey::User(user),
            Arc::new(move || {
                of.fetch_add(1, Ordering::Relaxed);
            }),
        )?;
        Ok((connection, cut))
    }

    #[test]
    fn whoever_holds_all_places_and_all_handshakes_keeps_nobody_else_out() {
        let admission = ListenerAdmission::new("ptcp:test");
        let mut held = Vec::new();
        for user in [1, 2] {
            for _ in 0..LIMITS.per_peer {
                let mut one = connection(&admission, user).unwrap();
                one.0.take_place().unwrap();
                held.push(one);
            }
            assert_eq!(connection(&admission, user).err().as_deref(), Some("32 connections of this peer are open"));
        }
        let silent: Vec<_> = (0..2 * LIMITS.handshakes).map(|_| connection(&admission, 3).unwrap()).collect();
        let cut =
            |of: &[(Admitted, Arc<AtomicUsize>)]| of.iter().filter(|(_, cut)| cut.load(Ordering::Relaxed) == 1).count();
        assert_eq!(cut(&silent), LIMITS.handshakes);
        let mut another = connection(&admission, 4).unwrap();
        another.0.take_place().unwrap();
        assert_eq!((cut(&held), another.1.load(Ordering::Relaxed)), (1, 0));
    }

    #[test]
    fn a_handshake_that_is_over_cannot_be_late() {
        let admission = ListenerAdmission::new("ptcp:test");
        let (mut one, _cut) = connection(&admission, 1).unwrap();
        one.since = Instant::now().checked_sub(2 * HANDSHAKE_MAX).expect("the machine runs for longer");
        assert!(one.is_late());
        one.take_place().unwrap();
        assert!(!one.is_late());
    }
}
