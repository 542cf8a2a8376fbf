//! Notification between sleeping peers by eventfds that both hold and neither trusts; for memif and vhost-user rings.
//!
//! The peer may fill an eventfd's counter and clear its non-blocking mode at any moment, even after its connection has
//! ended, because it may keep a duplicate. A `write` could therefore block for ever, whatever was checked before. So
//! nothing here reads or writes an eventfd.
//!
//! - A [`Notifier`] has the kernel signal it: when an asynchronous read completes (`io_submit(2)`, of one byte of our
//!   own file), the kernel signals the eventfd named in the request (`IOCB_FLAG_RESFD`). This never blocks, and wraps
//!   at the counter's limit. If the system provides no AIO context (`fs.aio-max-nr`), peers that wait for interrupts
//!   get none, and this is logged once.
//!
//!   When an eventfd is signalled, the kernel goes through all its watchers with interrupts disabled, 0.2 microseconds
//!   each, and a peer can watch its own eventfd a million times. So no worker signals one, nor does a thread that
//!   serves two ports: a worker sets a flag and unparks the port's own thread. Ports share none of these threads.
//! - A [`Watch`] waits for an eventfd by an epoll instance of our own, edge-triggered: each signal is an event, and the
//!   counter need not be read.
//!
//! Threads: as above; a [`Watch`] may be used by any. Tests: below, `pktio-memif/tests/sleep.rs`, `tests/hostile.rs` of
//! both ports.
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

/// A signal that takes longer is considered stuck: one that is watched a million times takes 0.2 s.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Maximum requests in flight; each completes before its call returns.
const REQUESTS_MAX: libc::c_long = 16;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// Whether a descriptor is an eventfd; false if the system does not tell.
pub fn is_eventfd(file: impl AsFd) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// The peers' eventfds, by number, and the thread that signals them.
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

/// A worker's handle to the notifier, for all numbers.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Shared>);

/// A worker's handle to the notifier, for one number.
#[derive(Clone, Debug)]
pub struct Doorbell {
    caller: Caller,
    number: usize,
}

impl Notifier {
    /// A notifier for `count` eventfds of the port `name`, none of which is set yet.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(name: &str, count: usize) -> io::Result<Notifier> {
        let shared = Arc::new(Shared {
            peers: (0..count).map(|_| Waiting::default()).collect(),
            thread: OnceLock::new(),
            stops: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        // The standard library panics if a thread's name contains a zero byte.
        let name = format!("call {}", name.replace('\0', "?"));
        let heart = Heartbeat::not_vital(name.as_str(), ROUND_MAX);
        let thread = thread::Builder::new().name(name).spawn(move || theirs.serve(&heart))?;
        // Set here only.
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Notifier { shared, thread: Some(thread) })
    }

    /// A handle for all numbers.
    pub fn caller(&self) -> Caller {
        Caller(Arc::clone(&self.shared))
    }

    /// A handle for one number.
    pub fn doorbell(&self, number: usize) -> Doorbell {
        Doorbell { caller: self.caller(), number }
    }

    /// Sets or clears the eventfd of a number; ignored if the number is out of range.
    pub fn set(&self, number: usize, event: Option<Arc<OwnedFd>>) {
        if let Some(peer) = self.shared.peers.get(number) {
            *peer.lock() = event;
        }
    }
}

impl Caller {
    /// Has this eventfd signalled soon. Makes no system call except to wake our own thread if it sleeps.
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

/// Signals an eventfd; the AIO context is created at the first signal.
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

/// An AIO context, whose completions signal eventfds.
struct Signals {
    context: libc::c_ulong,
    /// One byte long.
    file: OwnedFd,
}

/// The buffer of the reads; its contents are not used.
static BYTE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result_2: i64,
}

/// The kernel's `struct iocb`, on little-endian machines.
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
        // SAFETY: the request lives during the call, which completes it: the file is memory. The kernel writes one byte
        // to a static that is only accessed so, and at most as many events as there is room for.
        unsafe {
            libc::syscall(libc::SYS_io_submit, context, 1 as libc::c_long, requests.as_ptr());
            let zero: libc::c_long = 0;
            libc::syscall(libc::SYS_io_getevents, context, zero, REQUESTS_MAX, events.as_mut_ptr(), &now);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `self` owns the context, and no request is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Waits for a peer's signals on one eventfd.
#[derive(Debug)]
pub struct Watch {
    epoll: Arc<OwnedFd>,
    /// Kept open: an epoll instance drops a file that is closed everywhere.
    _event: Arc<OwnedFd>,
}

impl Watch {
    /// Watches an eventfd, which either side may have created.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new(event: Arc<OwnedFd>) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Watch { epoll: Arc::new(epoll), _event: event })
    }

    /// The file descriptor to poll: readable from a signal until [`Watch::clear`].
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Consumes pending signals. Does not block.
    pub fn clear(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1];
        // An error means that there is no event.
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

    /// Whether the thread of this name is stuck if it stays as it is for an hour, and then whether it is vital.
    fn stands_still(name: &str) -> Option<bool> {
        let (mut monitor, now) = (Monitor::default(), Instant::now());
        monitor.stuck_at(now);
        thread::sleep(Duration::from_millis(50));
        let stuck = monitor.stuck_at(now + Duration::from_secs(3600));
        stuck.iter().find(|stuck| stuck.thread == name).map(|stuck| stuck.is_vital)
    }

    /// Regression: a peer that had found a way to block the thread that signals its eventfds went unnoticed.
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

    /// Regression: `write` on a full eventfd in blocking mode stopped the worker.
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
        // Joins the notifier's thread; it would hang here.
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
