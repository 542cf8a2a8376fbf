//! The connections of a bridge. Threads: one for each accepted connection, each listener and each controller that is
//! dialled, and one for timeouts.

use super::address::{Active, Passive};
use super::admission::{Admitted, Cut, Event, ListenerAdmission};
use super::host::SwitchHost;
use super::standalone::Standalone;
use super::stream::{Stream, Tls};
use crate::unix_socket::{self, SocketFile};
use admission::PeerKey;
use anyhow::{Context, Result};
use bridge::{Bridge, Connection, ConnectionOptions, Host};
use grpc::tls::peers::PeerTls;
use heartbeat::Heartbeat;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io::ErrorKind;
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The mode of a bridge's sockets: for owner and group.
const MODE: u32 = 0o660;

/// A listener whose round takes longer counts as stuck; normally it takes [`WAIT`].
const ACCEPT_ROUND_MAX: Duration = Duration::from_secs(10);
/// The same for the thread of timeouts. It waits for the tables while a bundle is planned, up to 19 s with 100,000
/// flows and 1,000 overlap checks; a controller must not be able to restart the switch that way.
const TIME_ROUND_MAX: Duration = Duration::from_secs(60);
/// How often flow timeouts are checked; ports are checked every second time.
const TICK: Duration = Duration::from_millis(50);
/// How long a connection waits for its socket before it checks timers.
const WAIT: Duration = Duration::from_millis(100);
/// The same while workers have no room for controllers' packets.
const ROOM: Duration = Duration::from_millis(1);
/// The delay before a controller is dialled again: the first one, doubled up to the second one.
const REDIAL_PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// How long the peer of a closed connection may take to read the last messages.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long controllers may take to reconnect after a restart before the switch forwards by itself: three inactivity
/// probes, as in ovs-vsctl(8), `fail_mode`.
const STANDS_IN: Duration = Duration::from_secs(15);
/// The timeout of a TCP connection attempt.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// The peers of a bridge.
pub struct Peers {
    /// The management socket.
    pub management: Option<PathBuf>,
    /// Controllers to dial.
    pub active: Vec<Active>,
    /// Addresses on which controllers may connect.
    pub passive: Vec<Passive>,
    /// Certificates and key for TLS.
    pub tls: Option<Arc<PeerTls>>,
    /// Whether the switch forwards by itself while no controller is connected (`fail_mode` standalone).
    pub is_standalone: bool,
}

/// Serves a bridge; dropping it ends all connections.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    dialling: Vec<Dialling>,
    /// Unix sockets, whose files are removed on drop.
    sockets: Vec<SocketFile>,
    tls: Option<Arc<PeerTls>>,
}

struct Shared {
    bridge: Arc<Bridge>,
    host: Arc<SwitchHost>,
    stop: AtomicBool,
    is_standalone: bool,
    /// The number of connected controllers.
    connected: Mutex<usize>,
    standalone: Standalone,
    /// Threads of accepted connections.
    accepted: Mutex<Vec<JoinHandle<()>>>,
}

/// A thread that dials a controller, and whether it is blocked in name resolution or connecting.
type Dialling = (JoinHandle<()>, Arc<AtomicBool>);

/// An accepted connection.
struct Accepted {
    stream: Box<dyn Stream>,
    peer: String,
    key: PeerKey,
    cut: Cut,
}

/// Accepts a TCP connection.
fn accepted(listener: &TcpListener) -> std::io::Result<(TcpStream, std::net::SocketAddr, Cut)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let other = stream.try_clone()?;
    Ok((stream, peer, Arc::new(move || drop(other.shutdown(Shutdown::Both)))))
}

enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<PeerTls>),
    Unix(UnixListener),
}

impl Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer, cut) = accepted(listener)?;
                let key = PeerKey::of_address(peer.ip());
                Ok(Accepted { stream: Box::new(stream), peer: format!("tcp:{peer}"), key, cut })
            }
            Listener::Tls(listener, config) => {
                let (stream, peer, cut) = accepted(listener)?;
                let tls = config.answers().map_err(std::io::Error::other)?;
                let stream = Box::new(Tls::new(stream, tls, Arc::clone(config)));
                Ok(Accepted { stream, peer: format!("ssl:{peer}"), key: PeerKey::of_address(peer.ip()), cut })
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let user = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
                let other = stream.try_clone()?;
                let cut: Cut = Arc::new(move || drop(other.shutdown(Shutdown::Both)));
                Ok(Accepted { stream: Box::new(stream), peer: "unix".to_string(), key: PeerKey::User(user), cut })
            }
        }
    }
}

impl Server {
    /// Starts serving. `is_restored` says that flows were restored, so controllers have [`STANDS_IN`] to reconnect
    /// before the switch forwards by itself.
    ///
    /// # Errors
    /// If an address cannot be listened on, or a thread cannot be started.
    pub(super) fn begin(
        bridge: Arc<Bridge>,
        host: Arc<SwitchHost>,
        peers: Peers,
        standalone: Standalone,
        is_restored: bool,
    ) -> Result<Server> {
        let has_controllers = !peers.active.is_empty() || !peers.passive.is_empty();
        let shared = Arc::new(Shared {
            bridge,
            host,
            stop: AtomicBool::new(false),
            is_standalone: peers.is_standalone,
            connected: Mutex::default(),
            standalone,
            accepted: Mutex::default(),
        });
        let (threads, dialling, sockets) = (Vec::new(), Vec::new(), Vec::new());
        let mut server = Server { shared, threads, dialling, sockets, tls: peers.tls.clone() };
        if let Some(path) = &peers.management {
            let (listener, file) = unix_socket::listen(path, MODE)?;
            server.sockets.push(file);
            server.listen(Listener::Unix(listener), true, &format!("punix:{}", path.display()))?;
            announce!("ovs-ofctl reaches the bridge by unix:{}", path.display());
        }
        for passive in &peers.passive {
            match passive {
                Passive::Tcp(address) => {
                    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
                    let address = listener.local_addr()?;
                    server.listen(Listener::Tcp(listener), false, &format!("ptcp:{address}"))?;
                    announce!("controllers may connect to {address}");
                }
                Passive::Ssl(address) => {
                    let tls = peers.tls.clone().context("pssl: needs certificates")?;
                    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
                    let address = listener.local_addr()?;
                    server.listen(Listener::Tls(listener, tls), false, &format!("pssl:{address}"))?;
                    announce!("controllers may connect to {address} with TLS");
                }
                Passive::Unix(path) => {
                    let (listener, file) = unix_socket::listen(path, MODE)?;
                    server.sockets.push(file);
                    server.listen(Listener::Unix(listener), false, &format!("punix:{}", path.display()))?;
                }
            }
        }
        for active in peers.active {
            let tls = peers.tls.clone();
            let waits = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&waits);
            server.spawn("openflow-dial", move |shared| shared.dial(&active, tls.as_ref(), &told))?;
            server.dialling.extend(server.threads.pop().map(|thread| (thread, waits)));
        }
        let waits = is_restored && peers.is_standalone && has_controllers;
        server.spawn("openflow-time", move |shared| shared.keep_time(waits))?;
        Ok(server)
    }

    /// Reloads certificates, for later connections.
    pub fn reload(&self) {
        let Some(tls) = &self.tls else { return };
        match tls.reload() {
            Ok(()) => tracing::info!("certificates of OpenFlow connections read again"),
            Err(error) => tracing::error!("the certificates of OpenFlow connections stay as they were: {error}"),
        }
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || run(&shared));
        self.threads.push(thread.with_context(|| format!("no thread for {name}"))?);
        Ok(())
    }

    fn listen(&mut self, listener: Listener, is_management: bool, uri: &str) -> Result<()> {
        match &listener {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.set_nonblocking(true)?,
            Listener::Unix(listener) => listener.set_nonblocking(true)?,
        }
        let uri = uri.to_string();
        self.spawn("openflow-listen", move |shared| shared.accept(&listener, is_management, &uri))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let accepted = std::mem::take(&mut *self.shared.accepted.lock().unwrap_or_else(PoisonError::into_inner));
        // Do not wait for a thread that is blocked on a silent host or name server; it ends by itself.
        let dialling =
            self.dialling.drain(..).filter(|(_, waits)| !waits.load(Ordering::SeqCst)).map(|(thread, _)| thread);
        for thread in self.threads.drain(..).chain(accepted).chain(dialling) {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

/// Polls files for events, with a timeout.
fn wait(files: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // The result does not matter: the caller checks everything again.
    let _ = poll(files, Some(&time));
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The thread of timeouts and port changes. With `waits`, it also puts the switch's own flow in force if no
    /// controller reconnects within [`STANDS_IN`].
    fn keep_time(&self, waits: bool) {
        let heart = Heartbeat::new("openflow-time", TIME_ROUND_MAX);
        let mut rounds = 0u32;
        let mut until = waits.then(|| Instant::now() + STANDS_IN);
        while !self.stops() {
            heart.beat();
            if until.take_if(|until| Instant::now() >= *until).is_some() {
                let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
                if *connected == 0 {
                    tracing::warn!("no controller has come back: the bridge forwards as a learning switch does");
                    self.standalone.stand_in();
                }
            }
            std::thread::sleep(TICK);
            self.bridge.tick(self.host.now_us());
            rounds += 1;
            if rounds.is_multiple_of(2) {
                self.host.tell_ports(&self.bridge);
            }
        }
    }

    fn accept(self: &Arc<Shared>, listener: &Listener, is_management: bool, uri: &str) {
        let heart = Heartbeat::new(format!("openflow-listen {uri}"), ACCEPT_ROUND_MAX);
        let admission = ListenerAdmission::new(uri);
        while !self.stops() {
            heart.beat();
            wait(&mut [PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN)], WAIT);
            let Accepted { stream, peer, key, cut } = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => {
                    admission.log(Event::Refused, &format!("a connection could not be accepted: {error}"));
                    std::thread::sleep(WAIT);
                    continue;
                }
            };
            let admitted = match admission.admit(key, cut) {
                Ok(admitted) => admitted,
                Err(why) => {
                    admission.log(Event::Refused, &format!("{peer} is refused: {why}"));
                    continue;
                }
            };
            let shared = Arc::clone(self);
            let body = move || shared.receive(stream, &peer, is_management, admitted);
            match std::thread::Builder::new().name("openflow".to_string()).spawn(body) {
                Ok(thread) => {
                    let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                    accepted.retain(|thread| !thread.is_finished());
                    accepted.push(thread);
                }
                Err(error) => admission.log(Event::Refused, &format!("no thread for a connection: {error}")),
            }
        }
    }

    /// Serves an accepted connection.
    fn receive(&self, mut stream: Box<dyn Stream>, peer: &str, is_management: bool, mut admitted: Admitted) {
        if let Err(error) = stream.begin(&|| self.stops()) {
            return admitted.log(Event::Failed, &format!("{peer}: {error}"));
        }
        if let Some(why) = self.talk(stream, peer, is_management, Some(&mut admitted)) {
            admitted.log(Event::Ended, &format!("{peer}: {why}"));
        }
    }

    /// Dials a controller, and again after each end. `waits` is set while the thread is blocked in name resolution or
    /// connecting.
    fn dial(self: &Arc<Shared>, active: &Active, tls: Option<&Arc<PeerTls>>, waits: &AtomicBool) {
        let mut again = REDIAL_PAUSE[0];
        let mut last = String::new();
        while !self.stops() {
            waits.store(true, Ordering::SeqCst);
            // `drop` joins this thread unless `waits` is set; then the thread touches nothing after `dial`.
            let dialled = if self.stops() { break } else { dial(active, tls) };
            if self.stops() {
                break;
            }
            waits.store(false, Ordering::SeqCst);
            let dialled = dialled.and_then(|mut stream| {
                stream.begin(&|| self.stops())?;
                Ok(stream)
            });
            match dialled {
                Ok(stream) => {
                    tracing::info!("connected to {active}");
                    last.clear();
                    let begin = Instant::now();
                    if let Some(why) = self.talk(stream, &active.to_string(), false, None) {
                        tracing::info!("{active}: {why}");
                    }
                    if begin.elapsed() > REDIAL_PAUSE[1] {
                        again = REDIAL_PAUSE[0];
                    }
                    if !self.stops() {
                        tracing::info!("{active}: the connection has ended");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != last {
                        tracing::warn!("{active}: {text}; it is dialled again");
                        last = text;
                    }
                }
            }
            let begin = Instant::now();
            while begin.elapsed() < again && !self.stops() {
                std::thread::sleep(WAIT);
            }
            again = (2 * again).min(REDIAL_PAUSE[1]);
        }
    }

    /// Counts a controller that has connected or disconnected, and switches standalone forwarding.
    fn count_connected(&self, has_come: bool) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *connected;
        *connected = if has_come { before + 1 } else { before - 1 };
        // A bridge that is stopping leaves its flows as they are for the next process.
        if !self.is_standalone || before.max(*connected) != 1 || self.stops() {
            return;
        }
        match has_come {
            true => self.standalone.leave(),
            false => self.standalone.stand_in(),
        }
    }

    /// Serves a connection until it ends. Returns the reason, unless the peer closed it.
    fn talk(
        &self,
        mut stream: Box<dyn Stream>,
        uri: &str,
        is_management: bool,
        mut admitted: Option<&mut Admitted>,
    ) -> Option<String> {
        let waker = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(file) => Arc::new(file),
            Err(error) => return Some(format!("no descriptor for a connection: {error}")),
        };
        let options =
            ConnectionOptions { is_service: is_management, uri: uri.to_string(), ..ConnectionOptions::default() };
        let mut connection = Connection::new(Arc::clone(&self.bridge), options);
        self.host.set_waker(connection.id(), Some(Arc::clone(&waker)));
        let mut is_counted = false;
        let mut closed_at: Option<Instant> = None;
        let ended = loop {
            if self.stops() || closed_at.is_some_and(|at| at.elapsed() > LAST_WORDS) {
                break Ok(());
            }
            connection.poll(self.host.now_us());
            if let Some(admitted) = &mut admitted {
                let is_late = admitted.is_late();
                let placed = if connection.version().is_some() { admitted.take_place() } else { Ok(()) };
                if let Err(why) = if is_late { Err("it has not said OFPT_HELLO in time".to_string()) } else { placed } {
                    break Err(std::io::Error::other(why));
                }
            }
            if !is_counted && !is_management && connection.version().is_some() {
                self.count_connected(true);
                is_counted = true;
            }
            if let Err(error) = exchange(&mut stream, &mut connection, &waker) {
                break Err(error);
            }
            if connection.is_closed() {
                if connection.output().is_empty() {
                    break Ok(());
                }
                closed_at.get_or_insert_with(Instant::now);
            }
        };
        self.host.set_waker(connection.id(), None);
        if is_counted {
            self.count_connected(false);
        }
        let failed = ended.err().filter(|error| error.kind() != ErrorKind::UnexpectedEof);
        connection.close_reason().map(|reason| format!("closed: {reason}")).or(failed.map(|error| error.to_string()))
    }
}

/// Sends pending output, waits for the socket, and reads input.
fn exchange(stream: &mut Box<dyn Stream>, connection: &mut Connection, waker: &OwnedFd) -> std::io::Result<()> {
    let mut sent = 0;
    let output = connection.output();
    while sent < output.len() {
        match stream.write(&output[sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.drain(..sent);
    let waits = !output.is_empty();
    if sent > 0 {
        connection.taken();
    }
    let reads = connection.wants_input();
    if connection.is_closed() && !waits {
        return Ok(());
    }
    let pending = stream.pending();
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, reads);
    events.set(PollFlags::OUT, waits || pending.output);
    let has_input = reads && pending.input;
    let is_readable = {
        let mut files = [PollFd::from_borrowed_fd(stream.as_fd(), events), PollFd::new(waker, PollFlags::IN)];
        let time = match (has_input, connection.is_stalled()) {
            (true, _) => Duration::ZERO,
            (_, true) => ROOM,
            _ => WAIT,
        };
        wait(&mut files, time);
        files[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
    };
    let _ = rustix::io::read(waker, &mut [0; 8]);
    if pending.output {
        stream.flush()?;
    }
    if !reads || !is_readable && !has_input {
        return Ok(());
    }
    let mut buffer = [0; 64 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => {
            connection.input(&buffer[..bytes]);
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}

fn dial(active: &Active, tls: Option<&Arc<PeerTls>>) -> std::io::Result<Box<dyn Stream>> {
    match active {
        Active::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(stream))
        }
        Active::Tcp(host, port) => Ok(Box::new(dial_tcp(host, *port)?)),
        Active::Ssl(host, port) => {
            let config = tls.ok_or_else(|| std::io::Error::other("there are no certificates"))?;
            let connection = config.dials(host).map_err(std::io::Error::other)?;
            Ok(Box::new(Tls::new(dial_tcp(host, *port)?, connection, Arc::clone(config))))
        }
    }
}

fn dial_tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, DIAL_MAX) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
