//! A nanomsg publisher (PUB socket): bmv2's tools get digest messages from it (`thrift_service::Learning`) and the
//! event stream (`bmv2/observe/events.rs`).
//!
//! Both ends of a connection begin with a greeting of 8 bytes: 0, `SP`, 0, the socket's type (16 bits), 0, 0. Then the
//! publisher sends messages, each as its length (64 bits, big-endian) and its bytes; on a local socket a byte 1
//! precedes each. A subscriber sends nothing after its greeting, because topics are filtered at its end.
//!
//! A subscriber that does not read loses messages, as with nanomsg: up to [`BACKLOG_BYTES_MAX`] are queued for it, and
//! messages are sent whole or not at all. At most [`SUBSCRIBERS_MAX`] are connected; a further one replaces a
//! connection of the peer that has most (`admission`). A peer that does not send its greeting within [`PATIENCE`] is
//! disconnected.
//!
//! Threads: one, which calls [`Publisher::publish`] periodically; nothing blocks. Tests: below,
//! `tests/py/test_thrift.py`.
//!
//! Sources: the scalability protocols' mappings, sp-tcp-mapping-01 and sp-ipc-mapping-01, and sp-publish-subscribe-01.

use crate::unix_socket::{self, SocketFile};
use admission::{Admission, Limits, LogLimit, PeerKey, Permit};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most subscribers at a time.
const SUBSCRIBERS_MAX: usize = 32;
/// The most bytes queued for one subscriber.
const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// How long a greeting may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most connections accepted in one call of [`Publisher::publish`], so that a flood of them does not delay
/// messages; twice the number of places.
const ACCEPTED_MAX: usize = 2 * SUBSCRIBERS_MAX;
/// How often new connections are accepted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One peer may have all places; it loses some when others connect.
const LIMITS: Limits = Limits { connections: SUBSCRIBERS_MAX, per_peer: usize::MAX, handshakes: 0 };

const GREETING: [u8; 8] = [0, b'S', b'P', 0, 0, PUBLISHER, 0, 0];
const SUBSCRIBER_GREETING: [u8; 8] = [0, b'S', b'P', 0, 0, SUBSCRIBER, 0, 0];
const PUBLISHER: u8 = 0x20;
const SUBSCRIBER: u8 = 0x21;
/// The byte in front of each message on local sockets.
const MESSAGE: u8 = 1;

/// Where subscribers connect: `ipc://PATH` or `tcp://ADDR:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    Local(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wanted = || format!("`{text}` is neither ipc://PATH nor tcp://ADDR:PORT");
        if let Some(path) = text.strip_prefix("ipc://") {
            return if path.is_empty() { Err(wanted()) } else { Ok(Address::Local(path.into())) };
        }
        let address = text.strip_prefix("tcp://").ok_or_else(wanted)?;
        let any = address.strip_prefix("*:").map(|port| format!("0.0.0.0:{port}"));
        any.as_deref().unwrap_or(address).parse().map(Address::Tcp).map_err(|_| wanted())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Local(path) => write!(f, "ipc://{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

enum Listener {
    Local(UnixListener, #[expect(dead_code, reason = "removes the socket at the end")] SocketFile),
    Tcp(TcpListener),
}

enum Stream {
    Local(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Local(stream) => stream.read(to),
            Stream::Tcp(stream) => stream.read(to),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Local(stream) => stream.write(from),
            Stream::Tcp(stream) => stream.write(from),
        }
    }
}

struct Subscriber {
    stream: Stream,
    since: Instant,
    /// Bytes of its greeting that were received.
    greeted: usize,
    /// Bytes not yet sent to it.
    backlog: Vec<u8>,
    place: Permit,
    /// Set when another connection has taken its place.
    is_cut: Arc<AtomicBool>,
}

/// The publisher; dropping it closes the socket.
pub struct Publisher {
    listener: Listener,
    subscribers: Vec<Subscriber>,
    looked: Option<Instant>,
    places: Arc<Admission>,
    refused: LogLimit,
}

impl Publisher {
    /// Listens at an address. A stale local socket is replaced; the new one is accessible to this user only.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(address: &Address) -> anyhow::Result<Publisher> {
        let listener = match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
            Address::Local(path) => {
                let (listener, file) = unix_socket::listen(path, 0o600)?;
                listener.set_nonblocking(true)?;
                Listener::Local(listener, file)
            }
        };
        Ok(Publisher {
            listener,
            subscribers: Vec::new(),
            looked: None,
            places: Admission::new(LIMITS),
            refused: LogLimit::default(),
        })
    }

    /// Whether there is a subscriber whose greeting is complete.
    pub fn is_heard(&self) -> bool {
        self.subscribers.iter().any(|subscriber| subscriber.greeted == GREETING.len())
    }

    /// Sends messages to all subscribers, after whatever is still queued for them; also accepts connections, every
    /// [`POLL_INTERVAL`].
    pub fn publish(&mut self, messages: &[Vec<u8>], now: Instant) {
        let is_due = self.looked.is_none_or(|looked| now.duration_since(looked) >= POLL_INTERVAL);
        if is_due {
            self.looked = Some(now);
            self.accept(now);
        }
        if is_due || !messages.is_empty() {
            self.subscribers.retain_mut(|subscriber| subscriber.go_on(messages, now));
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_MAX {
            let accepted = match &self.listener {
                Listener::Local(listener, _) => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(true)?;
                    let user = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
                    Ok((Stream::Local(stream), PeerKey::User(user)))
                }),
                Listener::Tcp(listener) => listener.accept().and_then(|(stream, peer)| {
                    stream.set_nonblocking(true)?;
                    Ok((Stream::Tcp(stream), PeerKey::of_address(peer.ip())))
                }),
            };
            let (stream, key) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                // No connection is waiting, or no descriptor is left; try again later.
                Err(_) => return,
            };
            let is_cut = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_cut);
            match self.places.take(key, move || told.store(true, Ordering::Relaxed)) {
                Ok(place) => {
                    let (greeted, backlog) = (0, GREETING.to_vec());
                    self.subscribers.push(Subscriber { stream, since: now, greeted, backlog, place, is_cut });
                }
                Err(why) => {
                    self.refused.say(|times| tracing::warn!("a subscriber is refused: {why} ({times} refused)"));
                }
            }
        }
    }
}

impl Subscriber {
    /// Reads the greeting, queues messages and sends; false when the connection has ended.
    fn go_on(&mut self, messages: &[Vec<u8>], now: Instant) -> bool {
        if self.is_cut.load(Ordering::Relaxed) || !self.listen(now) {
            return false;
        }
        if self.greeted == GREETING.len() {
            for message in messages {
                let marker: &[u8] = if matches!(self.stream, Stream::Local(_)) { &[MESSAGE] } else { &[] };
                if self.backlog.len() + marker.len() + 8 + message.len() <= BACKLOG_BYTES_MAX {
                    self.backlog.extend(marker);
                    self.backlog.extend((message.len() as u64).to_be_bytes());
                    self.backlog.extend(message);
                }
            }
        }
        self.flush()
    }

    /// Reads the greeting; any byte after it is an error. False when the connection has ended.
    fn listen(&mut self, now: Instant) -> bool {
        let mut came = [0; GREETING.len()];
        let room = match GREETING.len() - self.greeted {
            0 => GREETING.len(),
            rest => rest,
        };
        match self.stream.read(&mut came[..room]) {
            Ok(0) => false,
            Ok(count) => {
                let expected = SUBSCRIBER_GREETING.get(self.greeted..self.greeted + count);
                self.greeted += count;
                if self.greeted == GREETING.len() {
                    // A subscriber counts as active although it sends nothing.
                    self.place.activity().stay();
                }
                expected == Some(&came[..count])
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.greeted == GREETING.len() || now.duration_since(self.since) <= PATIENCE
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    /// Sends queued bytes until the socket is full; false when the connection has ended.
    fn flush(&mut self) -> bool {
        let mut sent = 0;
        let is_open = loop {
            if sent == self.backlog.len() {
                break true;
            }
            match self.stream.write(&self.backlog[sent..]) {
                Ok(0) => break false,
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        self.backlog.drain(..sent);
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn publisher() -> (tempfile::TempDir, PathBuf, Publisher) {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("n.ipc");
        let publisher = Publisher::bind(&Address::Local(path.clone())).expect("a socket");
        (folder, path, publisher)
    }

    /// Returns a connection after both greetings.
    fn subscribe(path: &Path, publisher: &mut Publisher, now: Instant) -> UnixStream {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(&SUBSCRIBER_GREETING).expect("room");
        publisher.publish(&[], now);
        let mut greeting = [0; 8];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(greeting, [0, 0x53, 0x50, 0, 0, 0x20, 0, 0]);
        stream
    }

    #[test]
    fn messages_come_to_subscribers_with_their_lengths() {
        let (_folder, path, mut publisher) = publisher();
        let now = Instant::now();
        let mut stream = subscribe(&path, &mut publisher, now);
        publisher.publish(&[b"abc".to_vec(), Vec::new()], now);
        let mut came = [0; 21];
        stream.read_exact(&mut came).expect("two messages");
        assert_eq!(came, *b"\x01\0\0\0\0\0\0\0\x03abc\x01\0\0\0\0\0\0\0\0");
        assert!(publisher.is_heard());
        drop(stream);
        publisher.publish(&[], now + POLL_INTERVAL);
        assert!(!publisher.is_heard());
    }

    #[test]
    fn others_than_subscribers_and_those_who_say_nothing_are_not_kept() {
        let (_folder, path, mut publisher) = publisher();
        let begin = Instant::now();
        let mut wrong = UnixStream::connect(&path).expect("it listens");
        wrong.write_all(&GREETING).expect("room");
        let mut silent = UnixStream::connect(&path).expect("it listens");
        let mut talks = subscribe(&path, &mut publisher, begin);
        talks.write_all(b"x").expect("room");
        publisher.publish(&[], begin + POLL_INTERVAL);
        assert_eq!(publisher.subscribers.len(), 1, "the silent one has time left");
        publisher.publish(&[], begin + PATIENCE + POLL_INTERVAL);
        assert!(publisher.subscribers.is_empty());
        for stream in [&mut wrong, &mut silent, &mut talks] {
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Ok(_) => assert!(rest.is_empty() || rest == GREETING, "{rest:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    }

    #[test]
    fn who_holds_all_places_and_says_nothing_keeps_nobody_out() {
        let (_folder, path, mut publisher) = publisher();
        let now = Instant::now();
        let _silent: Vec<UnixStream> =
            (0..SUBSCRIBERS_MAX).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
        publisher.publish(&[], now);
        assert_eq!(publisher.subscribers.len(), SUBSCRIBERS_MAX);
        let mut stream = subscribe(&path, &mut publisher, now + POLL_INTERVAL);
        publisher.publish(&[b"abc".to_vec()], now + 2 * POLL_INTERVAL);
        let mut came = [0; 12];
        stream.read_exact(&mut came).expect("a message");
        assert_eq!(publisher.subscribers.len(), SUBSCRIBERS_MAX);
    }

    #[test]
    fn who_does_not_read_loses_whole_messages_and_nobody_waits() {
        let (_folder, path, mut publisher) = publisher();
        let now = Instant::now();
        let mut stream = subscribe(&path, &mut publisher, now);
        let message = vec![7; 100_000];
        for _ in 0..100 {
            publisher.publish(std::slice::from_ref(&message), now);
        }
        assert!(publisher.subscribers[0].backlog.len() <= BACKLOG_BYTES_MAX);
        let reader = std::thread::spawn(move || {
            let mut whole = 0;
            let mut frame = vec![0; 9 + 100_000];
            while stream.read_exact(&mut frame).is_ok() {
                assert!(frame[9..].iter().all(|byte| *byte == 7));
                whole += 1;
            }
            whole
        });
        for _ in 0..1000 {
            publisher.publish(&[], Instant::now() + POLL_INTERVAL);
            if publisher.subscribers[0].backlog.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(publisher);
        let whole = reader.join().expect("it reads");
        assert!((10..100).contains(&whole), "{whole} of 100");
    }

    #[test]
    fn addresses_are_nanomsgs() {
        assert_eq!("ipc:///tmp/x".parse(), Ok(Address::Local("/tmp/x".into())));
        let any: Address = "tcp://*:5000".parse().expect("an address");
        assert_eq!(any.to_string(), "tcp://0.0.0.0:5000");
        for wrong in ["ipc://", "tcp://x:1", "tcp://1.2.3.4", "/tmp/x", "inproc://a", ""] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_that_a_switch_left_is_replaced_and_one_that_is_served_is_not() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("n.ipc");
        drop(UnixListener::bind(&path).expect("a socket"));
        assert!(path.exists(), "it is left behind");
        let address = Address::Local(path.clone());
        let publisher = Publisher::bind(&address).expect("a socket");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert!(Publisher::bind(&address).is_err());
        drop(publisher);
        assert!(!path.exists());
        fs::write(&path, "a file").expect("room");
        assert!(Publisher::bind(&address).is_err() && path.exists(), "files stay");
    }
}
