//! Accepts connections, with limits: their number in total and per peer, and the time for which a handshake, unread
//! output or the absence of calls is tolerated. For P4Runtime and the admin service (HTTP/2), and for metrics (HTTP/1).
//!
//! ```text
//!   accept ──▶ pending handshakes: when there are too many, the oldest one of the peer with the most is closed
//!      │ task per connection, with a deadline
//!      ▼
//!   TLS handshake ──▶ the 24-byte HTTP/2 preface ──▶ a place (`admission`), or closed ──▶ channel ──▶ server
//! ```
//!
//! A client that connects and sends nothing holds a descriptor for at most [`ConnectionLimits::handshake`], and no
//! place. Places are shared fairly between peers: see crate `admission`. When the process has no descriptors left, a
//! spare one is freed to accept the next connection and close it, so that the client is not left waiting and the loop
//! does not spin. Errors of `accept` never end the loop.
//!
//! RFC 9113, 3.4 (connection preface). Threads: the runtime's. Tests: `tests/limits.rs`, `tests/py/test_access.py`.

use crate::peer::{Origin, Peer, names_of};
use crate::tls::Tls;
use admission::{Activity, Admission, Limits, LogLimit, Permit};
use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// The connection preface, which every HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS, and GOAWAY with PROTOCOL_ERROR (RFC 9113, 6.5 and 6.8).
const GO_AWAY: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Limit on the bytes read from a client that does not speak HTTP/2.
const TAKEN_MAX: u64 = 64 << 10;
/// Delay after an error of `accept`: the first one, and the limit to which it doubles.
const REST: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(1);

/// Limits of a listener's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Limit on open connections.
    pub connections_max: usize,
    /// Limit on open connections of one address (for IPv6, of one /64 prefix), or of one user of the Unix socket.
    pub per_peer_max: usize,
    /// Limit on pending handshakes, which do not count as open connections.
    pub handshakes_max: usize,
    /// Deadline from `accept` to the HTTP/2 preface (or the whole head of an HTTP/1 request), TLS included.
    pub handshake: Duration,
    /// How long a peer may leave data unread that is sent to it.
    pub stalled: Duration,
    /// How long a connection may have no call; an open stream is a call. Detected after twice this time at the latest.
    pub idle: Duration,
}

impl Default for ConnectionLimits {
    /// Each connection uses a descriptor, of which a process has 1,024 by default.
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

impl ConnectionLimits {
    fn places(&self) -> Arc<Admission> {
        let ConnectionLimits { connections_max, per_peer_max, handshakes_max, .. } = *self;
        Admission::new(Limits { connections: connections_max, per_peer: per_peer_max, handshakes: handshakes_max })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Box<dyn Io>, Origin)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are small; Nagle's algorithm would delay them until the client's delayed acknowledgement.
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), Origin::Tcp(address)))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let who = stream.peer_cred()?;
                Ok((Box::new(stream), Origin::Unix { uid: who.uid(), gid: who.gid(), pid: who.pid() }))
            }
        }
    }
}

/// The protocol that a connection must begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A connection whose handshakes are complete.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    /// Bytes that were read during the handshake, to be returned again by the first reads.
    ahead: &'static [u8],
    stalled: Duration,
    /// Runs while the peer reads nothing.
    since: Option<Pin<Box<Sleep>>>,
    pub(crate) peer: Peer,
    protocol: Protocol,
    /// Ready when another connection needs the place; `None` once it was.
    evicted: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// When to check next for calls.
    look: Pin<Box<Sleep>>,
    /// How long there may be no call.
    idle: Duration,
    place: Permit,
}

/// Accepts connections and sends those that are ready to `to`. Returns when the receiver is closed.
pub(crate) async fn accept_all(
    listener: Listener,
    limits: ConnectionLimits,
    tls: Option<Tls>,
    protocol: Protocol,
    to: mpsc::Sender<io::Result<Connection>>,
) {
    let places = limits.places();
    let mut spare = File::open("/dev/null").ok();
    let (mut rest, mut failed) = (REST, LogLimit::default());
    let refused: Arc<Mutex<LogLimit>> = Arc::default();
    while !to.is_closed() {
        let (io, origin) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                failed.say(|n| tracing::warn!("a connection could not be accepted: {error} ({n} times)"));
                if out_of_descriptors(&error) && spare.take().is_some() {
                    // Accepts the pending connection and closes it.
                    let _ = tokio::time::timeout(REST, listener.accept()).await;
                    spare = File::open("/dev/null").ok();
                }
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(REST_MAX);
                continue;
            }
        };
        rest = REST;
        if spare.is_none() {
            spare = File::open("/dev/null").ok();
        }
        let say = move |refused: &Mutex<LogLimit>, why: String| {
            let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.say(|n| tracing::warn!(%origin, "a connection is refused: {why} ({n} refused)"));
        };
        if let Err(why) = places.check(&origin.key()) {
            say(&refused, why);
            continue;
        }
        let cut = Arc::new(Notify::new());
        let told = Arc::clone(&cut);
        let handshake = places.begin(origin.key(), move || told.notify_one());
        let (tls, to, places, refused) = (tls.clone(), to.clone(), Arc::clone(&places), Arc::clone(&refused));
        tokio::spawn(async move {
            let begun = tokio::select! {
                begun = tokio::time::timeout(limits.handshake, begin(io, origin, tls, protocol)) => begun,
                () = cut.notified() => {
                    return tracing::debug!(%origin, "a handshake is cut off: too many are under way");
                }
            };
            let (io, peer, ahead) = match begun {
                Ok(Ok(begun)) => begun,
                Ok(Err(error)) => return tracing::debug!(%origin, "a connection ended before it began: {error}"),
                Err(_) => {
                    return tracing::debug!(%origin, "a connection said nothing for {:?}, and is closed", limits.handshake);
                }
            };
            drop(handshake);
            let evicted = Arc::new(Notify::new());
            let told = Arc::clone(&evicted);
            match places.take(origin.key(), move || told.notify_one()) {
                Ok(place) => {
                    let place = (place, evicted);
                    _ = to.send(Ok(Connection::new(io, ahead, peer, protocol, place, limits))).await;
                }
                Err(why) => say(&refused, why),
            }
        });
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    // EMFILE, ENFILE (accept(2)).
    matches!(error.raw_os_error(), Some(24 | 23))
}

/// A connection's bytes, its peer, and the bytes already read.
type Begun = (Box<dyn Io>, Peer, &'static [u8]);

/// Performs the handshakes.
async fn begin(mut io: Box<dyn Io>, origin: Origin, tls: Option<Tls>, protocol: Protocol) -> io::Result<Begun> {
    let mut names = Vec::new();
    let private = tls.is_some() || matches!(origin, Origin::Unix { .. });
    if let Some(tls) = tls {
        let stream = tls.acceptor().accept(io).await?;
        if let Some([first, ..]) = stream.get_ref().1.peer_certificates() {
            names = names_of(first);
        }
        io = Box::new(stream);
    }
    let mut ahead: &'static [u8] = &[];
    if protocol == Protocol::Http2 {
        let mut first = [0; PREFACE.len()];
        io.read_exact(&mut first).await?;
        if first != *PREFACE {
            refuse(io).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP/2"));
        }
        ahead = PREFACE;
    }
    Ok((io, Peer { origin, names: names.into(), private }, ahead))
}

/// Refuses a client that speaks another protocol. Reads what it has sent, because closing a socket with unread data
/// sends a reset, which would discard the answer.
async fn refuse(mut io: Box<dyn Io>) {
    let told = async {
        io.write_all(GO_AWAY).await?;
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(TAKEN_MAX), &mut tokio::io::sink()).await
    };
    // The client may be gone already.
    let _ = told.await;
}

impl Connection {
    fn new(
        io: Box<dyn Io>,
        ahead: &'static [u8],
        peer: Peer,
        protocol: Protocol,
        (place, told): (Permit, Arc<Notify>),
        limits: ConnectionLimits,
    ) -> Connection {
        let evicted: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { told.notified().await });
        let look = Box::pin(tokio::time::sleep(limits.idle));
        Connection {
            io,
            ahead,
            stalled: limits.stalled,
            since: None,
            peer,
            protocol,
            evicted: Some(evicted),
            look,
            idle: limits.idle,
            place,
        }
    }

    /// Ready with the reason when the connection must be closed although its peer is responsive: eviction, or no calls.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.evicted.as_mut().is_none_or(|evicted| evicted.as_mut().poll(cx).is_ready()) {
            self.evicted = None;
            let why = "a connection without calls, or one of a peer with many, is closed: all places are taken";
            tracing::info!(peer = %self.peer, "{why}");
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        loop {
            ready!(self.look.as_mut().poll(cx));
            let (idle, most) = (self.place.activity().idle(), self.idle);
            if idle >= most {
                tracing::debug!(peer = %self.peer, "a connection on which nothing was called for {most:?} is closed");
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "nothing was called for too long"));
            }
            self.look.as_mut().reset(tokio::time::Instant::now() + (most - idle));
        }
    }

    /// Fails an operation when the peer has read nothing for too long.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.since = None;
            return done;
        }
        let stalled = self.stalled;
        let since = self.since.get_or_insert_with(|| Box::pin(tokio::time::sleep(stalled)));
        ready!(since.as_mut().poll(cx));
        let why = format!("the peer took nothing for {stalled:?}");
        tracing::warn!(peer = %self.peer, "a connection is closed: {why}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let (now, later) = self.ahead.split_at(self.ahead.len().min(into.remaining()));
            into.put_slice(now);
            self.ahead = later;
            return Poll::Ready(Ok(()));
        }
        let done = Pin::new(&mut self.io).poll_read(cx, into);
        match done {
            Poll::Pending => self.poll_over(cx).map(Err),
            Poll::Ready(_) => {
                if self.protocol == Protocol::Http1 {
                    self.place.activity().touch();
                }
                done
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.in_time(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.in_time(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(cx);
        self.in_time(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(cx);
        self.in_time(cx, done)
    }
}

/// What calls know about their connection.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    pub(crate) activity: Arc<Activity>,
}

impl Connected for Connection {
    type ConnectInfo = Link;

    fn connect_info(&self) -> Link {
        Link { peer: self.peer.clone(), activity: Arc::clone(self.place.activity()) }
    }
}
