//! Waiting without polling: a worker collects files from its queues that become readable when
//! packets arrive, and polls all of them at once.
//!
//! The protocol: [`arm`](crate::Queue::arm) every queue; receive once more if a queue returns [`Wake::Now`]; call
//! [`wait`]; [`disarm`](crate::Queue::disarm) all queues. A queue reports packets that arrived before it was armed;
//! later packets make its file readable. So no wakeup is lost.
//!
//! Files are shared by `Arc`, so that no lock of a queue is held during the sleep.
//!
//! Threads: any; a [`Bell`] can be rung from any thread. Tests: below; `datapath/tests/worker.rs`, `pktio-dpdk/tests/`.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How a queue announces packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Packets may be available now.
    Now,
    /// By a file that becomes readable.
    File,
    /// Not at all: the queue must be polled.
    Poll,
    /// Never: the queue receives no packets.
    Never,
}

/// An eventfd: its file becomes readable when the bell is rung.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Creates a bell.
    ///
    /// # Errors
    /// No eventfd can be created.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    /// Makes the file readable until the bell is silenced.
    pub fn ring(&self) {
        // The write fails only when the counter is full, and then the file is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the file unreadable until the next ring.
    pub fn silence(&self) {
        let mut count = [0; 8];
        // An error means that the bell was not rung.
        let _ = rustix::io::read(&self.0, &mut count);
    }

    /// The file to poll.
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }
}

thread_local! {
    /// Whether the thread has slept since the last call of [`take_slept`].
    static SLEPT: Cell<bool> = const { Cell::new(true) };
}

/// Returns whether the calling thread has slept or waited since the last call.
#[inline]
pub(crate) fn take_slept() -> bool {
    SLEPT.replace(false)
}

/// Records that the calling thread has waited, though not for a peer: for a lock, for example.
#[inline]
pub fn has_waited() {
    SLEPT.set(true);
}

/// Sleeps. Threads that call queues use this function instead of the standard library's, so that their own sleep is not
/// mistaken for a wait that a peer caused.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
    SLEPT.set(true);
}

/// Sleeps until a file is readable or hung up, a signal arrives, or `time` has passed.
pub fn wait(files: &[Arc<OwnedFd>], time: Duration) {
    let mut fds: Vec<PollFd<'_>> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // The result is not needed: the caller checks everything.
    let _ = poll(&mut fds, Some(&time));
    SLEPT.set(true);
}

#[cfg(test)]
mod tests {
    use super::{Bell, wait};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(240);

    #[test]
    fn a_bell_wakes_who_sleeps_and_stays_rung_until_it_is_silenced() {
        let (bell, other) = (Bell::new().expect("a file"), Bell::new().expect("a file"));
        let files = [other.file(), bell.file()];
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| wait(&files, LONG));
            std::thread::sleep(Duration::from_millis(10));
            bell.ring();
        });
        wait(&files, LONG);
        assert!(start.elapsed() < LONG / 2, "it slept on");
        bell.silence();
        bell.silence();
        let start = Instant::now();
        wait(&files, Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20), "nobody rang");
    }
}
