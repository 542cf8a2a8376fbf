//! The socket: a thread that accepts, and one for each connection.
//!
//! ```text
//!   accept ──▶ a place among CONNECTIONS_MAX ──▶ thread: wait for a call ─▶ read it ─▶ Services::run ─▶ answer ─▶ wait ...
//! ```
//!
//! A client may stay silent between calls for as long as it likes, as a command line at its prompt does; when all places are taken, the
//! connection that has been silent longest gives its place to a new one. A call that has begun must come whole within [`PATIENCE`], and its
//! answer must be taken within the same. What is no call ends the connection. Memory: a message and an answer for each connection.
//!
//! Tests: below, `tests/py/test_thrift.py`.

use crate::handles::HandleLookup;
use crate::notices::Ageing;
use crate::service::{Services, logged};
use crate::wire::{self, Outcome};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 32;
/// How long the rest of a call may take to come, and an answer to be taken.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The pause after a connection could not be accepted.
const AGAIN: Duration = Duration::from_millis(50);

/// The connections that are open.
#[derive(Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, Connection>>,
}

struct Connection {
    stream: TcpStream,
    /// Since when it is silent; `None` during a call.
    silent_since: Option<Instant>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        // The map is whole before anything can panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; at the limit that of the client that is silent longest ends. False if none is silent.
    fn admit(&self, number: u64, stream: TcpStream, most: usize) -> bool {
        let mut open = self.lock();
        if open.len() >= most {
            let silent = open.iter().filter_map(|(number, connection)| Some((connection.silent_since?, *number)));
            let Some((_, longest)) = silent.min() else { return false };
            if let Some(gone) = open.remove(&longest) {
                let _ = gone.stream.shutdown(Shutdown::Both);
            }
        }
        open.insert(number, Connection { stream, silent_since: Some(Instant::now()) });
        true
    }

    fn set_silent(&self, number: u64, since: Option<Instant>) {
        if let Some(connection) = self.lock().get_mut(&number) {
            connection.silent_since = since;
        }
    }
}

/// The server; dropping it closes the socket and all connections.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
    services: Arc<Services>,
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What tells subscribers of idle entries by the handles that its clients know.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn ageing(&self) -> io::Result<Ageing> {
        Ageing::start(Arc::clone(&self.services))
    }

    /// What gives entries the handles that its clients know.
    pub fn handles(&self) -> HandleLookup {
        HandleLookup::new(Arc::clone(&self.services))
    }

    pub(crate) fn start(
        listener: TcpListener,
        services: Arc<Services>,
        limits: (usize, Duration),
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let (stop, connections): (Arc<AtomicBool>, Arc<Connections>) = Default::default();
        let (told, of, to) = (Arc::clone(&stop), Arc::clone(&connections), Arc::clone(&services));
        let accept = move || accept(&listener, &to, &of, &told, limits);
        let accepting = std::thread::Builder::new().name("thrift".to_string()).spawn(accept)?;
        Ok(Server { address, stop, connections, accepting: Some(accepting), services })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // One more connection wakes the thread that accepts.
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.accepting.take().filter(|_| woken) {
            let _ = thread.join();
        }
        for connection in self.connections.lock().values() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(
    listener: &TcpListener,
    services: &Arc<Services>,
    connections: &Arc<Connections>,
    stop: &AtomicBool,
    (most, patience): (usize, Duration),
) {
    for number in 0.. {
        let accepted = listener.accept();
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("thrift: a connection could not be accepted: {error}");
                std::thread::sleep(AGAIN);
                continue;
            }
        };
        let Ok(ours) = stream.try_clone() else { continue };
        if !connections.admit(number, ours, most) {
            if services.complaints.allow() {
                tracing::warn!(%peer, "thrift: refused, {most} connections are in the middle of calls, which is the limit");
            }
            continue;
        }
        let (services, of) = (Arc::clone(services), Arc::clone(connections));
        let serve = move || {
            let _place = Place { connections: &of, number };
            if let Err(error) = serve(&stream, peer, number, &services, &of, patience)
                && services.complaints.allow()
            {
                tracing::warn!(%peer, "thrift: the connection ends: {}", logged(&error));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("thrift-client".to_string()).spawn(serve) {
            tracing::warn!(%peer, "thrift: no thread for a connection: {error}");
            connections.lock().remove(&number);
        }
    }
}

/// A place among the connections, given back also when a call panics.
struct Place<'a> {
    connections: &'a Connections,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // The other half of the socket is closed with it.
        if let Some(connection) = self.connections.lock().remove(&self.number) {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// A stream that is read until a point in time.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Option<Instant>,
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a call that had begun did not come whole in time")
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
    number: u64,
    services: &Services,
    connections: &Connections,
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
            // The client is gone, or gave its place.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        connections.set_silent(number, None);
        incoming.get_mut().until = Some(Instant::now() + patience);
        let call = wire::read_call(&mut incoming).map_err(|error| match error {
            thrift::Error::Protocol(error) => error.message,
            thrift::Error::Transport(error) => error.message,
            other => other.to_string(),
        })?;
        let outcome = services.run(&call, peer);
        if !call.oneway {
            let method = call.name.split_once(':').map_or(call.name.as_str(), |(_, method)| method);
            let answer = encoded(method, call.sequence, outcome)?;
            write_whole(stream, &answer, Instant::now() + patience)?;
        }
        connections.set_silent(number, Some(Instant::now()));
    }
}

fn encoded(method: &str, sequence: i32, outcome: Outcome) -> Result<Vec<u8>, String> {
    wire::answer(method, sequence, outcome).map_err(|error| error.to_string())
}

/// Writes an answer, which the client must take as a whole until then.
fn write_whole(mut stream: &TcpStream, mut answer: &[u8], until: Instant) -> Result<(), String> {
    while !answer.is_empty() {
        if Instant::now() >= until {
            return Err("an answer was not taken in time".to_string());
        }
        match stream.write(answer) {
            Ok(written) => answer = &answer[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err("an answer was not taken in time".to_string());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
