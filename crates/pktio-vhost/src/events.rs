//! Eventfds that a front end sends: one to be signalled when the guest is to be woken (call), one that wakes us (kick).
//!
//! A file descriptor from a peer may be anything (a full pipe, a file of a slow FUSE server), and the peer keeps its own
//! to it, which outlives its connection. So: only eventfds are taken, and nobody writes or reads them, since either could
//! wait for ever. A worker sets a flag and unparks the port's notifier thread, which lets the kernel signal
//! ([`shared_memory::Doorbell`]) and does not wait for a peer. (OVS moved its notifications to a thread of their own too,
//! for speed.) A kick eventfd is watched for edges by an epoll instance.
//!
//! Threads: `Call::ring` from workers, `Calls::set` from the service thread, signals on the notifier. Tests: below.

use rustix::event::epoll;
use shared_memory::{Doorbell, is_eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// A file that is not an eventfd.
#[derive(Debug)]
pub(crate) struct NotAnEventfd(String);

impl std::fmt::Display for NotAnEventfd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it is `{}` and not an eventfd", self.0)
    }
}

/// Takes a file from a peer if it is an eventfd.
pub(crate) fn checked(file: OwnedFd) -> Result<OwnedFd, NotAnEventfd> {
    if is_eventfd(&file) {
        return Ok(file);
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Err(NotAnEventfd(link.map_or_else(|error| error.to_string(), |link| link.display().to_string())))
}

/// The call eventfds of a port's rings, and the thread that signals them.
pub(crate) struct Calls {
    shared: Arc<Shared>,
    notifier: Option<JoinHandle<()>>,
}

struct Shared {
    rings: Vec<Ring>,
    notifier: OnceLock<Thread>,
    stops: AtomicBool,
}

#[derive(Default)]
struct Ring {
    wanted: AtomicBool,
    doorbell: Mutex<Option<Doorbell>>,
}

/// A worker's handle.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Shared>);

impl Caller {
    /// Wakes the guest that waits for this ring, soon. No system call but the one that wakes a sleeping thread of ours.
    #[inline]
    pub(crate) fn call(&self, ring: usize) {
        if !self.0.rings[ring].wanted.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.0.notifier.get()
        {
            thread.unpark();
        }
    }
}

impl Calls {
    /// For `rings` rings of the port `name`.
    pub(crate) fn new(name: &str, rings: usize) -> io::Result<Calls> {
        let shared = Arc::new(Shared {
            rings: (0..rings).map(|_| Ring::default()).collect(),
            notifier: OnceLock::new(),
            stops: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let notifier = thread::Builder::new().name(format!("call {name}")).spawn(move || theirs.serve())?;
        // Nobody else sets it.
        let _ = shared.notifier.set(notifier.thread().clone());
        Ok(Calls { shared, notifier: Some(notifier) })
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller(Arc::clone(&self.shared))
    }

    /// Sets a ring's eventfd, or none.
    pub(crate) fn set(&self, ring: usize, file: Option<OwnedFd>) {
        *self.shared.rings[ring].lock() = file.map(|file| Doorbell::new(Arc::new(file)));
    }
}

impl Ring {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Doorbell>> {
        self.doorbell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn serve(&self) {
        while !self.stops.load(Ordering::Acquire) {
            for ring in &self.rings {
                if ring.wanted.swap(false, Ordering::AcqRel) {
                    let doorbell = ring.lock().clone();
                    doorbell.iter().for_each(Doorbell::ring);
                }
            }
            thread::park();
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        let Some(notifier) = self.notifier.take() else { return };
        notifier.thread().unpark();
        let _ = notifier.join();
    }
}

/// What wakes a queue's worker: an epoll instance with the guest's kick eventfd in it, and one of ours.
pub(crate) struct Waker {
    epoll: Arc<OwnedFd>,
    changed: pktio::Bell,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let waker =
            Waker { epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?), changed: pktio::Bell::new()? };
        waker.watch(&waker.changed.file())?;
        Ok(waker)
    }

    /// What a worker that sleeps waits for.
    pub(crate) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        self.changed.ring();
    }

    /// Watches another file, for edges: what happens from now on.
    pub(crate) fn watch(&self, file: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, file, epoll::EventData::new_u64(0), flags)?)
    }

    pub(crate) fn forget(&self, file: &OwnedFd) {
        // It may be gone already.
        let _ = epoll::delete(&self.epoll, file);
    }

    /// Forgets what has happened, so that the epoll instance is readable for news only. Reads no file of a peer.
    pub(crate) fn silence(&self) {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let _ = epoll::wait(&self.epoll, &mut events, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::time::{Duration, Instant};

    #[test]
    fn a_pipe_is_no_eventfd() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let refused = checked(writer.into()).expect_err("a full one would block");
        assert!(refused.to_string().contains("pipe:"), "{refused}");
        assert!(checked(std::fs::File::open("/dev/null").unwrap().into()).is_err());
        let file = checked(eventfd(0, EventfdFlags::empty()).unwrap()).expect("it is one");
        drop(file);
    }

    fn wait_for_a_call(file: &OwnedFd) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while rustix::io::read(file, &mut [0; 8]).is_err() {
            assert!(Instant::now() < deadline, "an honest guest is called");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The finding: such a file kept the port's notifier for ever, so that no later front end of the port was called.
    #[test]
    fn a_call_file_that_blocks_when_written_does_not_outlive_its_front_end() {
        let calls = Calls::new("test", 2).unwrap();
        let (full, good) = (eventfd(0, EventfdFlags::empty()).unwrap(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        calls.set(0, Some(full.try_clone().unwrap()));
        let caller = calls.caller();
        (0..1000).for_each(|_| caller.call(0));
        thread::sleep(Duration::from_millis(20));
        // It goes, and another one comes; the old one's file is still there.
        calls.set(0, None);
        for ring in [1, 0] {
            calls.set(ring, Some(good.try_clone().unwrap()));
            caller.call(ring);
            wait_for_a_call(&good);
        }
        // Waits for the notifier, and so would not end.
        drop(calls);
    }
}
