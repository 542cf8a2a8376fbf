//! Interrupts between sleeping peers, by eventfds that both hold and neither trusts: of memif rings, and of vhost-user ones.
//!
//! The peer may fill an eventfd's counter and take its non-blocking mode away at any moment, also when its connection has
//! ended, for it may keep a duplicate: a `write` would wait for ever, whatever was asked before. So nothing here reads or
//! writes one.
//!
//! - A [`Notifier`] lets the kernel signal it: a completed asynchronous read (`io_submit(2)`, of one byte of a file of
//!   ours) signals the eventfd named in the request (`IOCB_FLAG_RESFD`), which never waits and wraps at its limit. While a
//!   system has no context to give (`fs.aio-max-nr`), a peer that waits for interrupts gets none, and the log says so once.
//!
//!   The kernel goes through all who watch an eventfd when it is signalled, with interrupts off: 0.2 microseconds each, and
//!   a peer can watch its own a million times. So no worker signals one, nor a thread that serves two ports: a worker sets a
//!   flag and unparks the port's own thread. Nothing is shared by two of these.
//! - [`Watch`] waits for one by an epoll instance of our own, edge-triggered: each signal is an event, and the counter need
//!   not be read.
//!
//! Threads: as said; [`Watch`] any. Tests: below, `pktio-memif/tests/sleep.rs`, `tests/hostile.rs` of both ports.
#![allow(unsafe_code)]

use heartbeat::Heartbeat;
use rustix::event::{Timespec, epoll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// A signal that takes longer is stuck: one that a peer watches a million times takes 0.2 s.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Requests that can be under way; each is complete when its call returns.
const REQUESTS_MAX: libc::c_long = 16;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// Whether a descriptor is an eventfd. If the system does not say, it is none.
pub fn is_eventfd(file: impl AsFd) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// Eventfds of peers by number, and the thread that signals them.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    peers: Vec<Waiting>,
    thread: OnceLock<Thread>,
    stops: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    is_called: AtomicBool,
    event: Mutex<Option<Arc<OwnedFd>>>,
}

/// A worker's handle.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Shared>);

/// The same for one number.
#[derive(Clone, Debug)]
pub struct Doorbell {
    caller: Caller,
    number: usize,
}

impl Notifier {
    /// For `count` eventfds of the port `name`; none is set yet.
    pub fn new(name: &str, count: usize) -> io::Result<Notifier> {
        let shared = Arc::new(Shared {
            peers: (0..count).map(|_| Waiting::default()).collect(),
            thread: OnceLock::new(),
            stops: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        // A thread's name ends at a zero, and the standard library panics at one.
        let name = format!("call {}", name.replace('\0', "?"));
        let heart = Heartbeat::not_vital(name.as_str(), ROUND_MAX);
        let thread = thread::Builder::new().name(name).spawn(move || theirs.serve(&heart))?;
        // Nobody else sets it.
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Notifier { shared, thread: Some(thread) })
    }

    /// For all numbers.
    pub fn caller(&self) -> Caller {
        Caller(Arc::clone(&self.shared))
    }

    /// For one number.
    pub fn doorbell(&self, number: usize) -> Doorbell {
        Doorbell { caller: self.caller(), number }
    }

    /// Sets a number's eventfd, or none; nothing happens if there are fewer numbers.
    pub fn set(&self, number: usize, event: Option<Arc<OwnedFd>>) {
        if let Some(peer) = self.shared.peers.get(number) {
            *peer.lock() = event;
        }
    }
}

impl Caller {
    /// Wakes the peer that waits for this eventfd, soon. No system call but the one that wakes a sleeping thread of ours.
    #[inline]
    pub fn call(&self, number: usize) {
        if let Some(peer) = self.0.peers.get(number)
            && !peer.is_called.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.0.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Doorbell {
    /// See [`Caller::call`].
    #[cold]
    pub fn ring(&self) {
        self.caller.call(self.number);
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn serve(&self, heart: &Heartbeat) {
        let mut signals = None;
        while !self.stops.load(Ordering::Acquire) {
            for peer in &self.peers {
                heart.beat();
                if peer.is_called.swap(false, Ordering::AcqRel) && !self.stops.load(Ordering::Relaxed) {
                    let event = peer.lock().clone();
                    if let Some(event) = event {
                        signal(&mut signals, &event);
                    }
                }
            }
            heart.rest();
            thread::park();
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let _ = thread.join();
    }
}

/// Signals an eventfd; the context is made at the first signal.
fn signal(signals: &mut Option<Signals>, event: &OwnedFd) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if signals.is_none() {
        match Signals::new() {
            Ok(made) => *signals = Some(made),
            Err(error) if !WARNED.swap(true, Ordering::Relaxed) => tracing::warn!(
                "guests and memif peers that wait for interrupts get none: the system gives no asynchronous I/O \
                 (see fs.aio-max-nr): {error}"
            ),
            Err(_) => {}
        }
    }
    if let Some(signals) = signals {
        signals.signal(event);
    }
}

/// A context of asynchronous I/O, for the signals at its completions.
struct Signals {
    context: libc::c_ulong,
    /// One byte long.
    file: OwnedFd,
}

/// What is read; nobody looks at it.
static BYTE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// `struct io_event` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result_2: i64,
}

/// `struct iocb` of the kernel, on little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

impl Signals {
    fn new() -> io::Result<Signals> {
        if cfg!(target_endian = "big") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = memfd_create("signal", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, 1)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's handle.
        if unsafe { libc::syscall(libc::SYS_io_setup, REQUESTS_MAX, &mut context) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Signals { context, file })
    }

    fn signal(&self, event: &OwnedFd) {
        let mut request = Request {
            opcode: IOCB_CMD_PREAD,
            file: self.file.as_raw_fd() as u32,
            buffer: BYTE.as_ptr() as u64,
            bytes: 1,
            flags: IOCB_FLAG_RESFD,
            event: event.as_raw_fd() as u32,
            ..Request::default()
        };
        let context = self.context;
        let requests: [*mut Request; 1] = [&mut request];
        let mut events = [MaybeUninit::<Event>::uninit(); REQUESTS_MAX as usize];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the request lives during the call, which completes it: the file is memory. The kernel writes one byte to
        // a static that is only accessed so, and at most as many events as there is room for.
        unsafe {
            libc::syscall(libc::SYS_io_submit, context, 1 as libc::c_long, requests.as_ptr());
            let zero: libc::c_long = 0;
            libc::syscall(libc::SYS_io_getevents, context, zero, REQUESTS_MAX, events.as_mut_ptr(), &now);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the context is this one's, and no request of it is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Waits for a peer's signals.
#[derive(Debug)]
pub struct Watch {
    epoll: Arc<OwnedFd>,
    /// An epoll instance forgets a file that everybody has closed.
    _event: Arc<OwnedFd>,
}

impl Watch {
    /// For an eventfd of either side.
    pub fn new(event: Arc<OwnedFd>) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Watch { epoll: Arc::new(epoll), _event: event })
    }

    /// The file that is readable from a signal on until [`Watch::clear`].
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Forgets signals. Does not wait.
    pub fn clear(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1];
        // An error is that there is none.
        let _ = epoll::wait(&self.epoll, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heartbeat::Monitor;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use std::time::Instant;

    /// Whether a file is readable, or becomes so within this time.
    fn is_readable(file: &OwnedFd, within: Duration) -> bool {
        let time = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&time)).expect("poll works") == 1
    }

    const SOON: Duration = Duration::from_secs(60);

    /// Whether the thread of this name stood still for a moment, which is made out to be an hour; and whether it is vital.
    fn stands_still(name: &str) -> Option<bool> {
        let (mut monitor, now) = (Monitor::default(), Instant::now());
        monitor.stuck_at(now);
        thread::sleep(Duration::from_millis(50));
        let stuck = monitor.stuck_at(now + Duration::from_secs(3600));
        stuck.iter().find(|stuck| stuck.thread == name).map(|stuck| stuck.is_vital)
    }

    /// The finding: nobody noticed when a peer had found how to stop the thread that signals its eventfds.
    #[test]
    fn a_thread_that_a_signal_stops_is_told_and_is_not_vital() {
        let notifier = Notifier::new("stopped", 1).expect("a thread");
        let wait_until = |expected| (0..1000).any(|_| stands_still("call stopped") == expected);
        assert!(wait_until(None), "it waits for work");
        let held = notifier.shared.peers[0].lock();
        notifier.caller().call(0);
        assert!(wait_until(Some(false)));
        drop(held);
        assert!(wait_until(None), "it goes on");
    }

    #[test]
    fn a_doorbell_reaches_a_watch_again_and_again() {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let notifier = Notifier::new("test", 2).expect("a thread");
        notifier.set(1, Some(Arc::clone(&event)));
        let (doorbell, watch) = (notifier.doorbell(1), Watch::new(event).expect("an epoll"));
        assert!(!is_readable(&watch.file(), Duration::ZERO));
        for round in 0..100 {
            doorbell.ring();
            assert!(is_readable(&watch.file(), SOON), "round {round}");
            watch.clear();
            assert!(
                !is_readable(&watch.file(), Duration::ZERO),
                "round {round}: the counter is not read, and rings once"
            );
        }
        notifier.caller().call(2);
        assert!(Notifier::new("a\0b", 1).is_ok());
    }

    /// The finding: `write` on a full eventfd in blocking mode stopped the worker.
    #[test]
    fn a_full_blocking_eventfd_stops_nobody() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes as much");
        let notifier = Notifier::new("test", 1).expect("a thread");
        notifier.set(0, Some(Arc::new(event)));
        for _ in 0..100 {
            notifier.doorbell(0).ring();
            thread::yield_now();
        }
        // Waits for the thread, and so would not end.
        drop(notifier);
    }

    #[test]
    fn other_files_are_no_eventfds() {
        assert!(is_eventfd(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")));
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(!is_eventfd(&reader) && !is_eventfd(&writer));
        let notifier = Notifier::new("test", 1).expect("a thread");
        notifier.set(0, Some(Arc::new(writer.into())));
        notifier.caller().call(0);
        drop(notifier);
    }
}
