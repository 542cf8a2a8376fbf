//! The thread of a port: accepts a front end or connects to one, and handles its messages.
//!
//! There is one front end at a time; further ones are disconnected. Nothing here blocks on a peer: only bytes that have
//! arrived are read, so a front end that stops within a message delays only its own port, and a port closes at once.
//! Messages are handled at a bounded rate. If the thread stalls all the same, the watchdog reports it but does not end
//! the process: only this front end is affected.
//!
//! Threads: this one; `Running`'s drop stops it. Tests: `tests/hostile.rs`, `tests/honest.rs`.

use crate::connection::{Connection, Ended};
use crate::port::{Found, Port};
use crate::session::Session;
use crate::terms::Fault;
use heartbeat::Heartbeat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shared_memory::{Closer, Limit, Notifier, Pause, PeerFile};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two attempts to connect to a listening front end.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum messages per second: a front end with 64 pairs of rings needs 1,300 to start.
const MESSAGES_PER_SECOND: u32 = 4096;
/// Maximum warnings per second of a port, so that connecting in a loop does not flood the log.
const WARNINGS_PER_SECOND: u32 = 16;

/// A loop iteration that takes longer is considered stuck: mapping a guest's memory takes milliseconds.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// How front ends connect: to our listener, or we connect to theirs.
pub(crate) enum Way {
    Listen(UnixListener),
    Connect,
}

/// A port with a running thread. The last holder stops it.
pub(crate) struct Running {
    pub port: Arc<Port>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(
        port: Arc<Port>,
        calls: Notifier,
        name: String,
        path: PathBuf,
        way: Way,
    ) -> io::Result<Running> {
        let service = Service {
            port: Arc::clone(&port),
            calls: Arc::new(calls),
            name,
            path,
            way,
            front_end: None,
            messages: Limit::new(MESSAGES_PER_SECOND),
            warnings: Limit::new(WARNINGS_PER_SECOND),
            next_attempt: Instant::now(),
            pause: Pause::default(),
            closer: Closer::default(),
        };
        let name = format!("vhost {}", service.name.replace('\0', "?"));
        let heart = Heartbeat::not_vital(name.as_str(), ROUND_MAX);
        let thread = thread::Builder::new().name(name).spawn(move || service.run(&heart))?;
        Ok(Running { port, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.port.stops.store(true, Ordering::Release);
        self.port.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Service {
    port: Arc<Port>,
    calls: Arc<Notifier>,
    name: String,
    path: PathBuf,
    way: Way,
    front_end: Option<(Connection, Session)>,
    messages: Limit,
    warnings: Limit,
    next_attempt: Instant,
    /// Time without a front end, after one has truncated its memory.
    pause: Pause,
    /// Closes files that front ends have sent.
    closer: Closer,
}

impl Service {
    fn run(mut self, heart: &Heartbeat) {
        while !self.port.stops.load(Ordering::Acquire) {
            heart.rest();
            self.wait();
            heart.beat();
            self.port.bell.silence();
            self.look_at_faults();
            // Handles a disconnect before a new connection is considered.
            self.work();
            self.look_for_front_ends();
        }
        self.front_end = None;
        if let Way::Listen(listener) = self.way {
            let _ = std::fs::remove_file(&self.path);
            // A peer may be waiting in the backlog, with files sent.
            drop(PeerFile::new(listener, &self.closer));
        }
    }

    /// Sleeps until there may be work.
    fn wait(&self) {
        let bell = self.port.bell.file();
        let mut files = vec![PollFd::new(&*bell, PollFlags::IN)];
        let closed = if self.front_end.is_none() { self.closed_for() } else { Duration::ZERO };
        let mut timeout = None;
        match &self.way {
            Way::Listen(listener) if closed.is_zero() => files.push(PollFd::new(listener, PollFlags::IN)),
            // Peers that connect meanwhile wait in the listener's backlog.
            _ if !closed.is_zero() => timeout = Some(closed),
            _ => {}
        }
        let pause = self.messages.pause();
        match &self.front_end {
            Some(_) if !pause.is_zero() => timeout = Some(pause),
            Some((connection, _)) => files.push(PollFd::from_borrowed_fd(connection.file(), PollFlags::IN)),
            None if matches!(self.way, Way::Connect) => {
                let next = self.next_attempt.saturating_duration_since(Instant::now());
                timeout = Some(next.max(closed));
            }
            None => {}
        }
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        // The result is not needed: everything is checked after each wakeup.
        let _ = poll(&mut files, timeout.as_ref());
    }

    /// How long no front end is accepted; zero if one may connect now.
    fn closed_for(&self) -> Duration {
        let behind = if self.closer.is_behind() { RETRY } else { Duration::ZERO };
        self.pause.left(Instant::now()).max(behind)
    }

    fn look_at_faults(&mut self) {
        let faults = std::mem::take(&mut *self.port.faults.lock().unwrap_or_else(PoisonError::into_inner));
        let mut did_damage = false;
        for Found { session, ring, fault } in faults {
            self.warn(&format!("ring {ring} stops: {fault}"));
            if fault != Fault::Damaged {
                continue;
            }
            did_damage = true;
            // Only the session that caused it is disconnected, not a later one.
            if self.front_end.take_if(|(_, now)| now.id() == session).is_some() {
                self.warn("its front end is disconnected");
            }
        }
        if did_damage {
            self.pause.begin(Instant::now());
        }
    }

    fn look_for_front_ends(&mut self) {
        if self.front_end.is_none() && !self.closed_for().is_zero() {
            return;
        }
        let found = match &self.way {
            Way::Listen(listener) => match listener.accept() {
                Ok((socket, _)) => Some(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => {
                    self.warn(&format!("a front end is not accepted: {error}"));
                    // For example, no file descriptor is left: it would fail again at once.
                    thread::sleep(Duration::from_millis(100));
                    None
                }
            },
            Way::Connect if self.front_end.is_none() && Instant::now() >= self.next_attempt => {
                self.next_attempt = Instant::now() + RETRY;
                reach(&self.path).ok()
            }
            Way::Connect => None,
        };
        let Some(socket) = found else { return };
        if self.front_end.is_some() {
            drop(PeerFile::new(socket, &self.closer));
            return self.warn("a second front end is turned away");
        }
        match Connection::new(socket, &self.closer) {
            Ok(connection) => {
                tracing::debug!(port = self.name, "a vhost-user front end is connected");
                self.front_end = Some((connection, Session::new(&self.port, &self.calls)));
            }
            Err(error) => self.warn(&format!("its socket: {error}")),
        }
    }

    /// Handles the messages that have arrived.
    fn work(&mut self) {
        if let Err(ended) = self.work_or_end() {
            self.front_end = None;
            self.next_attempt = Instant::now() + RETRY;
            match ended {
                Ended::Closed => tracing::debug!(port = self.name, "its vhost-user front end has gone"),
                ended => self.warn(&format!("the connection ends: {ended}")),
            }
        }
    }

    fn work_or_end(&mut self) -> Result<(), Ended> {
        while self.messages.pause().is_zero() && !self.port.stops.load(Ordering::Relaxed) {
            let Some((connection, session)) = &mut self.front_end else { return Ok(()) };
            let Some((message, files)) = connection.receive()? else { return Ok(()) };
            self.messages.take();
            let (reply, result) = session.handle(&message, files);
            if let Some(reply) = reply {
                connection.send(&reply)?;
            }
            result.map_err(Ended::Refused)?;
        }
        Ok(())
    }

    fn warn(&mut self, what: &str) {
        if self.warnings.take() {
            tracing::warn!(port = self.name, "vhost-user: {what}");
        }
    }
}

/// Connects to a listening front end, without waiting for space in its backlog.
fn reach(path: &PathBuf) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Options, make_port};
    use pktio::HeapPool;

    /// Whether the thread of this name is stuck if it stays as it is for an hour, and then whether it is vital.
    fn stands_still(name: &str) -> Option<bool> {
        let (mut monitor, now) = (heartbeat::Monitor::default(), Instant::now());
        monitor.stuck_at(now);
        thread::sleep(Duration::from_millis(50));
        let stuck = monitor.stuck_at(now + Duration::from_secs(3600));
        stuck.iter().find(|stuck| stuck.thread == name).map(|stuck| stuck.is_vital)
    }

    /// Regression: a front end that had found a way to block its port's thread went unnoticed.
    #[test]
    fn a_port_s_thread_that_stands_still_is_told_and_is_not_vital() {
        let options = Options { is_server: false, queues: 1, mtu: 1500, memory_bytes: 1 << 20 };
        let (port, calls) = make_port("stopped", &options, HeapPool::shared(16)).expect("a port");
        let running = Running::start(port, calls, "stopped".into(), "/nowhere".into(), Way::Connect);
        let running = running.expect("a thread");
        let wait_until = |expected| (0..1000).any(|_| stands_still("vhost stopped") == expected);
        assert!(wait_until(None), "it waits for work");
        let held = running.port.faults.lock().expect("nobody panics");
        running.port.bell.ring();
        assert!(wait_until(Some(false)));
        drop(held);
        assert!(wait_until(None), "it goes on");
    }

    fn service() -> (Service, tempfile::TempDir) {
        let options = Options { is_server: true, queues: 1, mtu: 1500, memory_bytes: 1 << 20 };
        let (port, calls) = make_port("test", &options, HeapPool::shared(16)).expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("the folder is ours");
        listener.set_nonblocking(true).expect("it is a socket");
        let service = Service {
            port,
            calls: Arc::new(calls),
            name: "test".into(),
            path,
            way: Way::Listen(listener),
            front_end: None,
            messages: Limit::new(MESSAGES_PER_SECOND),
            warnings: Limit::new(WARNINGS_PER_SECOND),
            next_attempt: Instant::now(),
            pause: Pause::default(),
            closer: Closer::default(),
        };
        (service, folder)
    }

    /// Regression: a fault that a worker had found in one front end's rings disconnected the next front end.
    #[test]
    fn a_front_end_does_not_pay_for_the_one_before() {
        let (mut service, _folder) = service();
        let connect = |service: &mut Service| {
            let client = UnixStream::connect(&service.path).expect("it listens");
            service.look_for_front_ends();
            (client, service.front_end.as_ref().expect("it is accepted").1.id())
        };
        let (first, old) = connect(&mut service);
        drop(first);
        service.work();
        assert!(service.front_end.is_none());
        let (_second, new) = connect(&mut service);
        service.port.report(Found { session: old, ring: 1, fault: Fault::Damaged });
        service.look_at_faults();
        assert!(service.front_end.is_some(), "session {new} pays for {old}");
        service.port.report(Found { session: new, ring: 1, fault: Fault::Damaged });
        service.look_at_faults();
        assert!(service.front_end.is_none());
        // No front end may reconnect at once after that: each time would cost a worker some time.
        let waits = UnixStream::connect(&service.path).expect("it listens");
        service.look_for_front_ends();
        assert!(service.front_end.is_none(), "the port is closed for a while");
        service.pause = Pause::default();
        service.look_for_front_ends();
        assert!(service.front_end.is_some(), "who has waited is accepted");
        drop(waits);
    }
}
