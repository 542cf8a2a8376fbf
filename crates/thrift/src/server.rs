//! The TCP server: one thread that accepts connections, and one for each connection.
//!
//! ```text
//!   accept ─▶ a place of CONNECTIONS_MAX ─▶ thread: wait for a call ─▶ read it ─▶ Services::run ─▶ answer ─▶ wait …
//! ```
//!
//! A client may be silent between calls for any time, like a command line at its prompt. When all places are taken, a
//! new connection evicts another one: of the peer that has most, the one whose last call is longest ago (`admission`). A
//! call counts once it has been received completely, so incomplete calls do not keep a place. The rest of a call must
//! arrive, and its answer must be taken, within [`PATIENCE`] each. Input that is not a call ends the connection.
//! Memory: one message and one answer for each connection.
//!
//! Tests: below, `tests/py/test_thrift.py`.

use crate::handles::HandleLookup;
use crate::notices::Ageing;
use crate::service::{Services, logged};
use crate::wire::{self, Outcome};
use admission::{Activity, Admission, Limits, PeerKey};
use heartbeat::Heartbeat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit on simultaneous connections.
pub const CONNECTIONS_MAX: usize = 32;
/// Time limit for the rest of a call to arrive, and for an answer to be taken.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Pause after a connection could not be accepted.
const AGAIN: Duration = Duration::from_millis(50);

/// Interval at which the accepting thread checks whether the server is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Maximum duration of an iteration of the accepting thread.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// The server; dropping it closes the socket and all connections.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    places: Arc<Admission>,
    accepting: Option<JoinHandle<()>>,
    services: Arc<Services>,
}

impl Server {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Notifies subscribers of idle entries, by the handles that its clients know.
    ///
    /// # Errors
    /// If the system cannot create its thread.
    pub fn ageing(&self) -> io::Result<Ageing> {
        Ageing::start(Arc::clone(&self.services))
    }

    /// Finds the handles of entries that its clients know.
    pub fn handles(&self) -> HandleLookup {
        HandleLookup::new(Arc::clone(&self.services))
    }

    pub(crate) fn start(
        listener: TcpListener,
        services: Arc<Services>,
        limits: (usize, Duration),
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (most, patience) = limits;
        // One peer may take all places: it loses some when other peers connect.
        let places = Admission::new(Limits { connections: most, per_peer: usize::MAX, handshakes: 0 });
        let stop: Arc<AtomicBool> = Arc::default();
        let (told, of, to) = (Arc::clone(&stop), Arc::clone(&places), Arc::clone(&services));
        let accept = move || accept(&listener, &to, &of, &told, patience);
        let accepting = std::thread::Builder::new().name("thrift".to_string()).spawn(accept)?;
        Ok(Server { address, stop, places, accepting: Some(accepting), services })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.accepting.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
        self.places.evict_all();
    }
}

fn accept(
    listener: &TcpListener,
    services: &Arc<Services>,
    places: &Arc<Admission>,
    stop: &AtomicBool,
    patience: Duration,
) {
    let heart = Heartbeat::new("thrift", ROUND_MAX);
    while !stop.load(Ordering::SeqCst) {
        heart.beat();
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&LOOK));
        let accepted = listener.accept().and_then(|(stream, peer)| {
            stream.set_nonblocking(false)?;
            Ok((stream.try_clone()?, stream, peer))
        });
        let (ours, stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                if services.complaints.allow() {
                    tracing::warn!("thrift: a connection could not be accepted: {error}");
                }
                std::thread::sleep(AGAIN);
                continue;
            }
        };
        let cut = move || drop(ours.shutdown(Shutdown::Both));
        let place = match places.take(PeerKey::of_address(peer.ip()), cut) {
            Ok(place) => place,
            Err(why) => {
                if services.complaints.allow() {
                    tracing::warn!(%peer, "thrift: refused: {why}, all in the middle of calls");
                }
                continue;
            }
        };
        let of = Arc::clone(services);
        let serve = move || {
            // The place is freed even if a call panics.
            if let Err(error) = serve(&stream, peer, place.activity(), &of, patience)
                && of.complaints.allow()
            {
                tracing::warn!(%peer, "thrift: the connection ends: {}", logged(&error));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("thrift-client".to_string()).spawn(serve)
            && services.complaints.allow()
        {
            tracing::warn!(%peer, "thrift: no thread for a connection: {error}");
        }
    }
}

/// A stream with a deadline for reads.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Option<Instant>,
}

/// The error of a connection that was closed in the middle of a call.
const CUT_OFF: &str = "it has closed in the middle of a call";

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a call was not received completely in time")
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(late());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(into).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => late(),
            _ => error,
        })
    }
}

fn serve(
    stream: &TcpStream,
    peer: SocketAddr,
    activity: &Arc<Activity>,
    services: &Services,
    patience: Duration,
) -> Result<(), String> {
    let set = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(patience)));
    set.map_err(|error| error.to_string())?;
    let mut incoming = BufReader::new(Timed { stream, until: None });
    loop {
        incoming.get_mut().until = None;
        match incoming.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(_) => {}
            // The client has closed the connection, or was evicted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        incoming.get_mut().until = Some(Instant::now() + patience);
        let call = wire::read_call(&mut incoming).map_err(|error| match error {
            thrift::Error::Protocol(error) => error.message,
            thrift::Error::Transport(error) if error.kind == thrift::TransportErrorKind::EndOfFile => {
                CUT_OFF.to_string()
            }
            thrift::Error::Transport(error) => error.message,
            other => other.to_string(),
        })?;
        let _busy = activity.call();
        let outcome = services.run(&call, peer);
        if !call.oneway {
            let method = call.name.split_once(':').map_or(call.name.as_str(), |(_, method)| method);
            let answer = encoded(method, call.sequence, outcome)?;
            write_whole(stream, &answer, Instant::now() + patience)?;
        }
    }
}

fn encoded(method: &str, sequence: i32, outcome: Outcome) -> Result<Vec<u8>, String> {
    wire::answer(method, sequence, outcome).map_err(|error| error.to_string())
}

/// Writes an answer; the client must take all of it by the deadline `until`.
fn write_whole(mut stream: &TcpStream, mut answer: &[u8], until: Instant) -> Result<(), String> {
    while !answer.is_empty() {
        if Instant::now() >= until {
            return Err("the client did not read an answer in time".to_string());
        }
        match stream.write(answer) {
            Ok(written) => answer = &answer[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err("the client did not read an answer in time".to_string());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
