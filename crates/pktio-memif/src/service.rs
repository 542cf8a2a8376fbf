//! The threads that keep ports connected: one for each socket that we serve, with all
//! its ports, and one for each client port.
//!
//! A thread waits for its bell, its listening socket and its connections, and handles one message of a
//! connection at a time. Everything that a peer can make it do is bounded: connections that have not named an
//! interface ([`PENDING_MAX`]), the duration of a handshake ([`HANDSHAKE_TIME`]), messages and connections
//! per process ([`Rates`]). A peer that does not read the messages sent to it loses the connection. Peers of
//! other sockets have other threads. If a thread stalls all the same, the watchdog reports it but does not
//! end the process: only its peers are affected.
//!
//! When a connection ends, its port's link goes down, and its memory is unmapped as soon as the workers have released
//! it. A client reconnects ([`RETRY_TIME`]).
//!
//! Threads: those. Tests: `tests/pair.rs`, `tests/hostile.rs`.

use crate::handshake::{Building, Offer, hello};
use crate::port::{Link, Port, TEND_INTERVAL_MS, lock};
use crate::receive::Fault;
use crate::socket::{Listening, Received, accept, connect_to, receive, send};
use crate::wire::Message;
use heartbeat::Heartbeat;
use pktio::{Bell, Error, MemifRole};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shared_memory::{Closer, Limit, Peer as Process, PeerFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum connections of a socket that have not named an interface. Others wait in the listener's backlog.
const PENDING_MAX: usize = 16;

/// Maximum such connections of one process, so that there is room for others.
const PENDING_OF_A_PROCESS_MAX: usize = 4;

/// Time limit of a handshake, which takes milliseconds; a peer that exceeds it is disconnected.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Time between a client's attempts to connect; the second, after a connection that did not complete the handshake.
const RETRY_TIME: Duration = Duration::from_millis(100);
const RETRY_TIME_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Time without accepting after `accept` failed: no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Maximum messages and connections of a process per second: a client with 256 rings each way needs 600 to start.
const MESSAGES_PER_SECOND: u32 = 4096;

/// Number of processes whose messages are counted separately.
const PROCESSES_MAX: usize = 64;

/// A loop iteration that takes longer is considered stuck: mapping a client's memory takes milliseconds.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Minimum time between warnings, since a peer may provoke them.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps a port connected, by its thread, until it is dropped.
pub(crate) struct Owner {
    port: Arc<Port>,
    place: Place,
}

enum Place {
    Server(PathBuf),
    Client(Option<Service>),
}

/// A running thread.
struct Service {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    /// Removes the socket's file, after the thread has ended.
    _listening: Option<Arc<Listening>>,
}

/// A thread's instructions from others: its ports, and when to stop.
struct Control {
    ports: Mutex<Vec<Arc<Port>>>,
    stop: AtomicBool,
    bell: Bell,
}

/// The sockets that this process serves, by absolute path.
static SERVERS: Mutex<BTreeMap<PathBuf, Service>> = Mutex::new(BTreeMap::new());

/// Whether ports of this process serve the socket at an absolute path.
pub fn serves(path: &Path) -> bool {
    lock(&SERVERS).contains_key(path)
}

impl Owner {
    /// Keeps a port connected from now on. `path` is absolute.
    ///
    /// # Errors
    /// [`Error::Socket`] if the socket is in use or cannot be created, another port serves the
    /// same id on it, or no thread can be started.
    pub(crate) fn new(port: Arc<Port>, path: &Path) -> Result<Owner, Error> {
        let fail = |reason: String| Error::Socket { path: path.to_owned(), reason };
        let place = match port.role {
            MemifRole::Client => {
                let path = path.to_owned();
                let way = Way::Connect { path, next: Instant::now() };
                let start = |control| Thread::new(control, way, Closer::default());
                Place::Client(Some(Service::start(&port, None, start).map_err(|error| fail(error.to_string()))?))
            }
            MemifRole::Server => {
                let mut servers = lock(&SERVERS);
                match servers.get(path) {
                    Some(service) => service.add(&port).map_err(fail)?,
                    None => {
                        let closer = Closer::default();
                        let listening = Arc::new(Listening::new(path, &closer)?);
                        let way = Way::Accept { listening: Arc::clone(&listening), after: None };
                        let start = |control| Thread::new(control, way, closer);
                        let service = Service::start(&port, Some(listening), start);
                        servers.insert(path.to_owned(), service.map_err(|error| fail(error.to_string()))?);
                    }
                }
                Place::Server(path.to_owned())
            }
        };
        Ok(Owner { port, place })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        match &mut self.place {
            Place::Client(service) => drop(service.take()),
            Place::Server(path) => {
                let mut servers = lock(&SERVERS);
                let Some(service) = servers.get(path) else { return };
                let mut ports = lock(&service.control.ports);
                ports.retain(|port| !Arc::ptr_eq(port, &self.port));
                let was_last = ports.is_empty();
                drop(ports);
                if was_last {
                    // Joins the thread, so the socket's file is gone when this returns.
                    drop(servers.remove(path));
                } else {
                    service.control.bell.ring();
                }
            }
        }
        self.port.detach();
        self.port.tend();
    }
}

impl Service {
    fn start(
        port: &Arc<Port>,
        listening: Option<Arc<Listening>>,
        thread: impl FnOnce(Arc<Control>) -> Thread,
    ) -> std::io::Result<Service> {
        let (ports, stop, bell) = (Mutex::new(vec![Arc::clone(port)]), AtomicBool::new(false), Bell::new()?);
        let control = Arc::new(Control { ports, stop, bell });
        let thread = thread(Arc::clone(&control));
        // A socket's ports change; the thread's name is that of its first port.
        let heart = Heartbeat::not_vital(port.name.as_str(), ROUND_MAX);
        let thread = thread::Builder::new().name("memif".into()).spawn(move || thread.run(&heart))?;
        Ok(Service { control, thread: Some(thread), _listening: listening })
    }

    /// Adds a port to a socket that is served.
    fn add(&self, port: &Arc<Port>) -> Result<(), String> {
        let mut ports = lock(&self.control.ports);
        if ports.iter().any(|other| other.id == port.id) {
            return Err(format!("another port of this process serves id {} on it", port.id));
        }
        ports.push(Arc::clone(port));
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How a thread obtains connections.
enum Way {
    /// `after`: accepts nothing before this time.
    Accept { listening: Arc<Listening>, after: Option<Instant> },
    /// `next`: connects not before this time.
    Connect { path: PathBuf, next: Instant },
}

/// A connection.
struct Peer {
    socket: PeerFile,
    since: Instant,
    process: Option<Process>,
    /// `None` until a client has named its interface.
    port: Option<Arc<Port>>,
    state: State,
}

enum State {
    /// Server: waiting for INIT.
    Greeted,
    /// Server: the client is announcing memory and rings.
    Building(Box<Building>),
    /// Client: waiting for HELLO.
    Silent,
    /// Client: announcing memory and rings.
    Offering(Box<Offer>),
    /// Connected: packets may pass.
    Up(Arc<Link>),
    /// The peer broke the protocol.
    Broken,
}

impl Peer {
    fn new(socket: PeerFile, port: Option<Arc<Port>>, state: State) -> Peer {
        Peer { since: Instant::now(), process: Process::of(&socket), socket, port, state }
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }
}

/// Why a connection ends.
enum End {
    /// The peer has closed it.
    Gone,
    /// The peer sent DISCONNECT with this reason.
    Said(String),
    /// We disconnect the peer, for this reason.
    Refused(String),
}

struct Thread {
    control: Arc<Control>,
    way: Way,
    peers: Vec<Peer>,
    /// Closes files that peers have sent.
    closer: Closer,
    rates: Rates,
    warnings: Warnings,
}

impl Thread {
    fn new(control: Arc<Control>, way: Way, closer: Closer) -> Thread {
        Thread { control, way, peers: Vec::new(), closer, rates: Rates::default(), warnings: Warnings::default() }
    }

    fn run(mut self, heart: &Heartbeat) {
        while !self.control.stop.load(Ordering::Acquire) {
            heart.beat();
            self.tend();
            self.connect();
            let (accepts, readable) = self.wait();
            self.control.bell.silence();
            // In reverse order, since connections that end are removed by index.
            for i in readable.into_iter().rev() {
                if let Err(end) = self.take_message(i) {
                    self.end(i, end);
                }
            }
            if accepts {
                self.accept();
            }
        }
        while !self.peers.is_empty() {
            self.end(0, End::Refused("the port is closed".into()));
        }
    }

    /// Ends connections whose port is closed, whose rings are at fault, or whose handshake has timed out; drops ring
    /// ends that workers have returned.
    fn tend(&mut self) {
        let ports = lock(&self.control.ports).clone();
        for i in (0..self.peers.len()).rev() {
            let peer = &self.peers[i];
            let is_open = peer.port.as_ref().is_none_or(|port| ports.iter().any(|open| Arc::ptr_eq(open, port)));
            let reason = match &peer.state {
                _ if !is_open => "the port is closed",
                State::Up(link) => match link.fault() {
                    Some(fault) => {
                        if let (Fault::Truncated, Some(port)) = (fault, &peer.port) {
                            lock(&port.pause).begin(Instant::now());
                        }
                        fault.reason()
                    }
                    None => continue,
                },
                _ if peer.since.elapsed() > HANDSHAKE_TIME => "the handshake takes too long",
                _ => continue,
            };
            self.end(i, End::Refused(reason.into()));
        }
        ports.iter().for_each(|port| port.tend());
    }

    /// Waits for events. Returns whether a connection can be accepted, and which peers are readable.
    fn wait(&self) -> (bool, Vec<usize>) {
        let bell = self.control.bell.file();
        let mut files = vec![PollFd::new(&bell, PollFlags::IN)];
        let mut time = Duration::from_millis(TEND_INTERVAL_MS);
        // Messages beyond a peer's rate wait in its socket.
        let mut heard = Vec::new();
        for (i, peer) in self.peers.iter().enumerate() {
            let pause = self.rates.pause(peer.process);
            if pause.is_zero() {
                files.push(PollFd::new(&peer.socket, PollFlags::IN));
                heard.push(i);
            } else {
                time = time.min(pause);
            }
        }
        match &self.way {
            Way::Accept { listening, after } => {
                let pending = self.peers.iter().filter(|peer| !peer.is_up()).count();
                if pending < PENDING_MAX
                    && !self.closer.is_behind()
                    && after.is_none_or(|after| after <= Instant::now())
                {
                    files.push(PollFd::new(&listening.socket, PollFlags::IN));
                }
            }
            Way::Connect { next, .. } if self.peers.is_empty() => {
                time = time.min(next.saturating_duration_since(Instant::now()));
            }
            Way::Connect { .. } => {}
        }
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if poll(&mut files, Some(&time)).is_err() {
            return (false, Vec::new());
        }
        let is_ready = |file: &PollFd<'_>| !file.revents().is_empty();
        let accepts = files.get(1 + heard.len()).is_some_and(is_ready);
        let readable = heard.iter().zip(&files[1..]).filter(|(_, file)| is_ready(file)).map(|(&i, _)| i);
        (accepts, readable.collect())
    }

    fn accept(&mut self) {
        let Way::Accept { listening, after } = &mut self.way else { return };
        match accept(&listening.socket, &self.closer) {
            Ok(Some(socket)) => {
                let process = Process::of(&socket);
                if !self.rates.take(process) {
                    // Closed rather than left in the backlog, where it would take the place of others.
                    return self.warnings.warn("memif", "a process connects too often");
                }
                let of_it = self.peers.iter().filter(|peer| !peer.is_up() && peer.process == process).count();
                if of_it >= PENDING_OF_A_PROCESS_MAX {
                    let reason = format!("more than {PENDING_OF_A_PROCESS_MAX} connections of a process wait");
                    let _ = send(&socket, &Message::Disconnect(reason.clone()), None);
                    return self.warnings.warn("memif", &format!("a connection is refused: {reason}"));
                }
                let greeting = hello(lock(&self.control.ports).iter());
                if send(&socket, &greeting, None).is_ok() {
                    self.peers.push(Peer::new(socket, None, State::Greeted));
                }
            }
            Ok(None) => {}
            Err(error) => {
                *after = Some(Instant::now() + ACCEPT_PAUSE);
                self.warnings.warn("memif", &format!("a connection cannot be accepted: {error}"));
            }
        }
    }

    /// As a client without a connection: tries to connect.
    fn connect(&mut self) {
        let Way::Connect { path, next } = &mut self.way else { return };
        if !self.peers.is_empty() || *next > Instant::now() {
            return;
        }
        *next = Instant::now() + RETRY_TIME;
        if self.closer.is_behind() {
            return;
        }
        let port = lock(&self.control.ports).first().cloned();
        if let (Ok(socket), Some(port)) = (connect_to(path), port) {
            let socket = PeerFile::new(socket, &self.closer);
            self.peers.push(Peer::new(socket, Some(port), State::Silent));
        }
    }

    /// Handles the peer's next message.
    fn take_message(&mut self, i: usize) -> Result<(), End> {
        let peer = &mut self.peers[i];
        let (message, file) = match receive(&peer.socket, &self.closer) {
            Received::Message(message, file) => {
                self.rates.take(peer.process);
                (message, file)
            }
            Received::Nothing => return Ok(()),
            Received::End => return Err(End::Gone),
            Received::Wrong(what) => return Err(End::Refused(what.into())),
        };
        if let Message::Disconnect(reason) = message {
            return Err(End::Said(reason));
        }
        let state = std::mem::replace(&mut peer.state, State::Broken);
        let (state, answer) = match (state, message) {
            (State::Greeted, Message::Init(init)) => {
                let ports = lock(&self.control.ports);
                let port = ports.iter().find(|port| port.id == init.id).cloned();
                drop(ports);
                let port = port.ok_or_else(|| End::Refused(format!("there is no interface {} here", init.id)))?;
                peer.port = Some(Arc::clone(&port));
                let building = Building::new(port, &init).map_err(End::Refused)?;
                (State::Building(Box::new(building)), Some((Message::Ack, None)))
            }
            (State::Building(mut building), Message::AddRegion(region)) => {
                building.add_region(region, file).map_err(End::Refused)?;
                (State::Building(building), Some((Message::Ack, None)))
            }
            (State::Building(mut building), Message::AddRing(ring)) => {
                building.add_ring(ring, file).map_err(End::Refused)?;
                (State::Building(building), Some((Message::Ack, None)))
            }
            (State::Building(building), Message::Connect(_)) => {
                let port = Arc::clone(&building.port);
                if port.is_up() {
                    return Err(End::Refused("the interface is connected already".into()));
                }
                let link = Arc::new(Link::new(self.control.bell.clone()));
                let ends = building.connect(&link).map_err(End::Refused)?;
                port.attach(ends);
                tracing::info!("port {}: a client is connected", port.name);
                let answer = Message::Connected(port.name.clone());
                (State::Up(link), Some((answer, None)))
            }
            (State::Silent, Message::Hello(hello)) => {
                let port = peer.port.as_ref().ok_or(End::Gone)?;
                let mut offer = Offer::new(port, &hello).map_err(End::Refused)?;
                let first = offer.next();
                (State::Offering(Box::new(offer)), first)
            }
            (State::Offering(mut offer), Message::Ack) => {
                let next = offer.next();
                (State::Offering(offer), next)
            }
            (State::Offering(offer), Message::Connected(_)) if offer.is_complete() => {
                let port = peer.port.as_ref().ok_or(End::Gone)?;
                let link = Arc::new(Link::new(self.control.bell.clone()));
                port.attach(offer.connected(port, &link));
                tracing::info!("port {}: connected to the server", port.name);
                (State::Up(link), None)
            }
            (state @ State::Up(_), Message::Ack) => (state, None),
            (state, _) => {
                peer.state = state;
                return Err(End::Refused("it sent a message out of turn".into()));
            }
        };
        peer.state = state;
        match answer {
            Some((message, file)) => {
                let file = file.as_deref().map(std::os::fd::AsFd::as_fd);
                send(&peer.socket, &message, file).map_err(|_| End::Refused("it reads no messages".into()))
            }
            None => Ok(()),
        }
    }

    /// Ends a connection.
    fn end(&mut self, i: usize, end: End) {
        let peer = self.peers.swap_remove(i);
        let name = peer.port.as_ref().map_or("memif", |port| &port.name).to_owned();
        let was_up = peer.is_up();
        if let Some(port) = peer.port.as_ref().filter(|_| was_up) {
            port.detach();
        }
        match end {
            End::Gone if was_up => tracing::info!("port {name}: the peer is gone"),
            End::Gone => {}
            End::Said(reason) => self.warnings.warn(&name, &format!("the peer has disconnected: {reason}")),
            End::Refused(reason) => {
                let _ = send(&peer.socket, &Message::Disconnect(reason.clone()), None);
                if !self.control.stop.load(Ordering::Relaxed) {
                    self.warnings.warn(&name, &format!("the peer is disconnected: {reason}"));
                }
            }
        }
        // The peer sees the end at once. The call fails only if the peer has already gone.
        let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        if let Way::Connect { next, .. } = &mut self.way {
            *next = Instant::now() + if was_up { RETRY_TIME } else { RETRY_TIME_AFTER_FAILURE };
        }
    }
}

/// Rate limits per process. They are not per connection, since a new one is quickly opened, nor global, so that no peer
/// is delayed by another one's rate.
#[derive(Default)]
struct Rates(Vec<(Option<Process>, Limit)>);

impl Rates {
    /// Counts a message or a connection. Returns whether it is within the rate.
    fn take(&mut self, process: Option<Process>) -> bool {
        if let Some((_, limit)) = self.0.iter_mut().find(|(of, _)| *of == process) {
            return limit.take();
        }
        if self.0.len() >= PROCESSES_MAX {
            self.0.retain(|(_, limit)| !limit.is_over());
        }
        // When the table is full, further processes share the last entry's limit.
        if self.0.len() < PROCESSES_MAX {
            self.0.push((process, Limit::new(MESSAGES_PER_SECOND)));
        }
        self.0.last_mut().is_none_or(|(_, limit)| limit.take())
    }

    /// How long a process must wait until it may send again.
    fn pause(&self, process: Option<Process>) -> Duration {
        let found = self.0.iter().find(|(of, _)| *of == process);
        let shared = || self.0.last().filter(|_| self.0.len() >= PROCESSES_MAX);
        found.or_else(shared).map_or(Duration::ZERO, |(_, limit)| limit.pause())
    }
}

/// Rate-limited warnings.
#[derive(Default)]
struct Warnings {
    last: Option<Instant>,
    kept_back: u64,
}

impl Warnings {
    fn warn(&mut self, port: &str, text: &str) {
        if self.last.is_some_and(|last| last.elapsed() < WARNING_INTERVAL) {
            self.kept_back += 1;
            return;
        }
        self.last = Some(Instant::now());
        match std::mem::take(&mut self.kept_back) {
            0 => tracing::warn!("port {port}: {text}"),
            more => tracing::warn!("port {port}: {text} ({more} warnings about memif peers were kept back)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::PortConfig;
    use pktio::HeapPool;

    /// Whether the thread of this name is stuck if it stays as it is for an hour, and then whether it is vital.
    fn stands_still(name: &str) -> Option<bool> {
        let (mut monitor, now) = (heartbeat::Monitor::default(), Instant::now());
        monitor.stuck_at(now);
        thread::sleep(Duration::from_millis(2 * TEND_INTERVAL_MS));
        let stuck = monitor.stuck_at(now + Duration::from_secs(3600));
        stuck.iter().find(|stuck| stuck.thread == name).map(|stuck| stuck.is_vital)
    }

    /// Regression: a peer that had found a way to block its port's thread went unnoticed.
    #[test]
    fn a_socket_s_thread_that_stands_still_is_told_and_is_not_vital() {
        let config = PortConfig {
            name: "stopped".into(),
            role: MemifRole::Client,
            id: 0,
            ring_log2: 4,
            buffer_bytes: 2048,
            frame_max: 1518,
            queues: 1,
            memory_bytes: 1 << 20,
        };
        let port = Arc::new(Port::new(config, HeapPool::shared(16)).expect("a port"));
        let owner = Owner::new(port, Path::new("/nowhere")).expect("a thread");
        let Place::Client(Some(service)) = &owner.place else { panic!("it is a client") };
        let wait_until = |expected| (0..100).any(|_| stands_still("stopped") == expected);
        assert!(wait_until(None), "it goes round");
        let held = lock(&service.control.ports);
        assert!(wait_until(Some(false)));
        drop(held);
        assert!(wait_until(None), "it goes on");
    }

    #[test]
    fn a_process_that_says_too_much_does_not_use_up_the_rate_of_another() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let (mut rates, this) = (Rates::default(), Process::of(&socket));
        assert!(this.is_some());
        assert!((0..MESSAGES_PER_SECOND).all(|_| rates.take(this)));
        assert!(!rates.take(this) && !rates.pause(this).is_zero());
        assert!(rates.pause(None).is_zero() && rates.take(None));
    }
}
