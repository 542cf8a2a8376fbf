//! Eventfds that a front end sends: call eventfds, which we signal to notify the
//! guest, and kick eventfds, which notify us.
//!
//! A file descriptor from a peer may refer to anything (a full pipe, a file of a slow FUSE server), and the peer keeps
//! its own descriptor, which outlives its connection. Therefore only eventfds are accepted, and no worker or service
//! thread reads or writes them, since either could block for ever. Call eventfds are written by a
//! [`shared_memory::Notifier`]'s thread. (OVS also moved notifications to a thread of their own, for speed.) Kick
//! eventfds are watched edge-triggered by an epoll instance.
//!
//! Threads: wakers belong to workers and the service thread. Tests: below, `tests/hostile.rs`.

use rustix::event::epoll;
use shared_memory::PeerFile;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Error: a file that is not an eventfd; holds what it is.
#[derive(Debug)]
pub(crate) struct NotAnEventfd(String);

impl std::fmt::Display for NotAnEventfd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it is `{}` and not an eventfd", self.0)
    }
}

/// Accepts a peer's file if it is an eventfd.
pub(crate) fn checked(file: PeerFile) -> Result<OwnedFd, NotAnEventfd> {
    file.into_eventfd().map_err(|file| {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()));
        NotAnEventfd(link.map_or_else(|error| error.to_string(), |link| link.display().to_string()))
    })
}

/// Wakes a queue's worker: an epoll instance that watches the guest's kick eventfd and one of ours.
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

    /// The file descriptor that a sleeping worker polls.
    pub(crate) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        self.changed.ring();
    }

    /// Adds another file to the epoll set, edge-triggered: only later events are reported.
    pub(crate) fn watch(&self, file: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, file, epoll::EventData::new_u64(0), flags)?)
    }

    pub(crate) fn forget(&self, file: &OwnedFd) {
        // It may have been removed already.
        let _ = epoll::delete(&self.epoll, file);
    }

    /// Consumes pending events, so that the epoll instance is readable only for new ones. Reads no file of a peer.
    pub(crate) fn silence(&self) {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let _ = epoll::wait(&self.epoll, &mut events, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use shared_memory::{Closer, Notifier};
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pipe_is_no_eventfd() {
        let checked = |file: OwnedFd| checked(PeerFile::new(file, &Closer::default()));
        let (_reader, writer) = std::io::pipe().unwrap();
        let refused = checked(writer.into()).expect_err("a full one would block");
        assert!(refused.to_string().contains("pipe:"), "{refused}");
        assert!(checked(std::fs::File::open("/dev/null").unwrap().into()).is_err());
        let file = checked(eventfd(0, EventfdFlags::empty()).unwrap()).expect("it is one");
        drop(file);
    }

    /// Regression: such a file blocked the port's notifier for ever, so that later
    /// front ends of the port were never called.
    #[test]
    fn a_call_file_that_blocks_when_written_does_not_outlive_its_front_end() {
        let notifier = Notifier::new("test", 2).unwrap();
        let (full, good) = (eventfd(0, EventfdFlags::empty()).unwrap(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        notifier.set(0, Some(Arc::new(full.try_clone().unwrap())));
        let caller = notifier.caller();
        (0..1000).for_each(|_| caller.call(0));
        thread::sleep(Duration::from_millis(20));
        // The front end disconnects and another one connects; the old one's file is still open.
        notifier.set(0, None);
        for ring in [1, 0] {
            notifier.set(ring, Some(Arc::new(good.try_clone().unwrap())));
            caller.call(ring);
            wait_for_a_call(&good);
        }
        // Joins the notifier's thread; it would hang here.
        drop(notifier);
    }

    fn wait_for_a_call(file: &OwnedFd) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while rustix::io::read(file, &mut [0; 8]).is_err() {
            assert!(Instant::now() < deadline, "an honest guest is called");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
