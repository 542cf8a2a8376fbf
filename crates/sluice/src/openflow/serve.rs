//! Connections of a bridge: a thread for each, one for each listener and each controller that is dialled, and one that keeps time.

use super::address::{Active, Passive};
use super::host::SwitchHost;
use super::standalone::Standalone;
use super::stream::{Stream, Tls};
use crate::unix_socket::{self, SocketFile};
use anyhow::{Context, Result};
use bridge::{Bridge, Connection, ConnectionOptions, Host};
use grpc::tls::peers::PeerTls;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The owner and the group may use a bridge's sockets.
const MODE: u32 = 0o660;

/// Connections that a listener has at the same time.
const CONNECTIONS_MAX: usize = 64;
/// How often flows' timeouts and ports are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long a connection waits for its socket before it looks at the time.
const WAIT: Duration = Duration::from_millis(100);
/// The same while workers have no room for packets of controllers.
const ROOM: Duration = Duration::from_millis(1);
/// How long after a failure a controller is dialled again: at first, and at most.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// How long a connection that has ended may take to read what it was sent last.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long controllers may take to come back after a restart before the switch stands in for them: three inactivity probes, as
/// ovs-vsctl(8) has it (`fail_mode`).
const STANDS_IN: Duration = Duration::from_secs(15);
/// How long a controller may take to answer a dial.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// Who may connect, and who is dialled.
pub struct Peers {
    /// The management socket.
    pub management: Option<PathBuf>,
    /// Controllers that are dialled.
    pub active: Vec<Active>,
    /// Where controllers may connect.
    pub passive: Vec<Passive>,
    /// What connections with TLS need.
    pub tls: Option<Arc<PeerTls>>,
    /// Whether the switch forwards by itself while no controller is connected.
    pub is_standalone: bool,
}

/// Serves a bridge until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Unix sockets, which are removed at the end.
    sockets: Vec<SocketFile>,
    tls: Option<Arc<PeerTls>>,
}

struct Shared {
    bridge: Arc<Bridge>,
    host: Arc<SwitchHost>,
    stop: AtomicBool,
    is_standalone: bool,
    /// Controllers that are connected.
    connected: Mutex<usize>,
    standalone: Standalone,
    /// Threads of connections that listeners have accepted.
    accepted: Mutex<Vec<JoinHandle<()>>>,
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

    fn accept(&self) -> std::io::Result<(Box<dyn Stream>, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), format!("tcp:{peer}")))
            }
            Listener::Tls(listener, config) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let tls = config.answers().map_err(std::io::Error::other)?;
                Ok((Box::new(Tls::new(stream, tls, Arc::clone(config))), format!("ssl:{peer}")))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Box::new(stream), "unix".to_string()))
            }
        }
    }
}

impl Server {
    /// `is_restored`: flows are those of before, so controllers have some time to come before the switch stands in for them.
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
        let mut server = Server { shared, threads: Vec::new(), sockets: Vec::new(), tls: peers.tls.clone() };
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
            server.spawn("openflow-dial", move |shared| shared.dial(&active, tls.as_ref()))?;
        }
        let waits = is_restored && peers.is_standalone && has_controllers;
        server.spawn("openflow-time", move |shared| shared.keep_time(waits))?;
        Ok(server)
    }

    /// Reads certificates again, for connections from now on.
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
        self.shared.stop.store(true, Ordering::Relaxed);
        let accepted = std::mem::take(&mut *self.shared.accepted.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in self.threads.drain(..).chain(accepted) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Waits for events of files, at most so long.
fn wait(files: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // Interrupted or not, all is looked at again.
    let _ = poll(files, Some(&time));
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// If `waits`, the switch stands in for controllers that do not come.
    fn keep_time(&self, waits: bool) {
        let mut rounds = 0u32;
        let mut until = waits.then(|| Instant::now() + STANDS_IN);
        while !self.stops() {
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
        let count = Arc::new(AtomicUsize::new(0));
        while !self.stops() {
            wait(&mut [PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN)], WAIT);
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => {
                    tracing::warn!("{uri}: {error}");
                    std::thread::sleep(WAIT);
                    continue;
                }
            };
            if count.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                tracing::warn!("{uri}: {CONNECTIONS_MAX} connections are open already; another one is closed");
                continue;
            }
            count.fetch_add(1, Ordering::Relaxed);
            let (shared, counted) = (Arc::clone(self), Arc::clone(&count));
            let body = move || {
                let mut stream = stream;
                match stream.begin(&|| shared.stops()) {
                    Ok(()) => shared.talk(stream, &peer, is_management),
                    Err(error) => tracing::warn!("{peer}: {error}"),
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            };
            match std::thread::Builder::new().name("openflow".to_string()).spawn(body) {
                Ok(thread) => {
                    let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                    accepted.retain(|thread| !thread.is_finished());
                    accepted.push(thread);
                }
                Err(error) => {
                    count.fetch_sub(1, Ordering::Relaxed);
                    tracing::warn!("{uri}: no thread for a connection: {error}");
                }
            }
        }
    }

    /// Dials a controller again and again.
    fn dial(self: &Arc<Shared>, active: &Active, tls: Option<&Arc<PeerTls>>) {
        let mut again = AGAIN[0];
        let mut last = String::new();
        while !self.stops() {
            let dialled = dial(active, tls).and_then(|mut stream| {
                stream.begin(&|| self.stops())?;
                Ok(stream)
            });
            match dialled {
                Ok(stream) => {
                    tracing::info!("connected to {active}");
                    last.clear();
                    let begin = Instant::now();
                    self.talk(stream, &active.to_string(), false);
                    if begin.elapsed() > AGAIN[1] {
                        again = AGAIN[0];
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
            again = (2 * again).min(AGAIN[1]);
        }
    }

    /// A controller has come or gone.
    fn count_connected(&self, has_come: bool) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *connected;
        *connected = if has_come { before + 1 } else { before - 1 };
        // A bridge that ends leaves its flows to the next process.
        if !self.is_standalone || before.max(*connected) != 1 || self.stops() {
            return;
        }
        match has_come {
            true => self.standalone.leave(),
            false => self.standalone.stand_in(),
        }
    }

    /// Serves a connection to its end.
    fn talk(&self, mut stream: Box<dyn Stream>, uri: &str, is_management: bool) {
        let waker = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(file) => Arc::new(file),
            Err(error) => return tracing::warn!("{uri}: no descriptor for a connection: {error}"),
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
        if let Some(reason) = connection.close_reason() {
            tracing::info!("{uri}: closed: {reason}");
        }
        if let Err(error) = ended
            && error.kind() != ErrorKind::UnexpectedEof
        {
            tracing::info!("{uri}: {error}");
        }
    }
}

/// Sends what waits, waits for the socket, and takes what has come.
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
