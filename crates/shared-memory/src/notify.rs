//! Interrupts between sleeping peers, by eventfds that both hold and neither trusts: of memif rings, and of vhost-user ones.
//!
//! The peer may fill an eventfd's counter and take its non-blocking mode away at any moment, also when its connection has
//! ended, for it may keep a duplicate: a `write` would wait for ever, whatever was asked before. So nothing here reads or
//! writes one.
//!
//! - [`Doorbell::ring`] lets the kernel signal it: a completed asynchronous read (`io_submit(2)`, of one byte of a file of
//!   ours) signals the eventfd named in the request (`IOCB_FLAG_RESFD`), which never waits and wraps at its limit. One
//!   context per process, behind a lock that is held for two system calls. While a system has no context to give
//!   (`fs.aio-max-nr`), a peer that waits for interrupts gets none, and the log says so once.
//! - [`Watch`] waits for one by an epoll instance of our own, edge-triggered: each signal is an event, and the counter need
//!   not be read.
//!
//! Threads: any. Tests: below, `pktio-memif/tests/sleep.rs`, `pktio-vhost/tests/hostile.rs`.
#![allow(unsafe_code)]

use rustix::event::{Timespec, epoll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Requests that can be under way; each is complete when its call returns.
const REQUESTS_MAX: libc::c_long = 16;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// Whether a descriptor is an eventfd. If the system does not say, it is none.
pub fn is_eventfd(file: impl AsFd) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// Wakes a peer that waits for a ring.
#[derive(Clone, Debug)]
pub struct Doorbell {
    event: Arc<OwnedFd>,
}

/// The process's context, made at the first signal.
static SIGNALS: Mutex<Option<Signals>> = Mutex::new(None);

impl Doorbell {
    /// For an eventfd of either side.
    pub fn new(event: Arc<OwnedFd>) -> Doorbell {
        Doorbell { event }
    }

    /// Signals the eventfd. Does not wait.
    #[cold]
    pub fn ring(&self) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
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
        if let Some(signals) = &*signals {
            signals.signal(&self.event);
        }
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
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use std::time::{Duration, Instant};

    fn is_readable(file: &OwnedFd) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&none)).expect("poll works") == 1
    }

    #[test]
    fn a_doorbell_reaches_a_watch_again_and_again() {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let (doorbell, watch) = (Doorbell::new(Arc::clone(&event)), Watch::new(event).expect("an epoll"));
        assert!(!is_readable(&watch.file()));
        for round in 0..100 {
            doorbell.ring();
            assert!(is_readable(&watch.file()), "round {round}");
            watch.clear();
            assert!(!is_readable(&watch.file()), "round {round}: the counter is not read, and rings once");
        }
    }

    /// The finding: `write` on a full eventfd in blocking mode stopped the worker.
    #[test]
    fn a_full_blocking_eventfd_stops_nobody() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes as much");
        let doorbell = Doorbell::new(Arc::new(event));
        let start = Instant::now();
        (0..100).for_each(|_| doorbell.ring());
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn other_files_are_no_eventfds() {
        assert!(is_eventfd(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")));
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(!is_eventfd(&reader) && !is_eventfd(&writer));
        Doorbell::new(Arc::new(OwnedFd::from(writer))).ring();
        drop(reader);
    }
}
