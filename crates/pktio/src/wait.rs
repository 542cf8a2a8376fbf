//! Waiting without polling: a worker asks its queues for files that become readable when packets come, and sleeps on all of
//! them at once.
//!
//! Whoever waits asks every queue to [`arm`](crate::Queue::arm), looks for packets once more where a queue says so, calls
//! [`wait`], and tells all queues to [`disarm`](crate::Queue::disarm). What came before a queue was armed is its to report,
//! what comes after makes the file readable: so nothing is missed between looking and sleeping.
//!
//! Files are shared by `Arc`: a queue behind a lock is not held while somebody sleeps.
//!
//! Threads: any; a [`Bell`] is rung from everywhere. Tests: below; `datapath/tests/worker.rs`, `pktio-dpdk/tests/`.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How a queue says that packets have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// There may be packets now.
    Now,
    /// A file becomes readable.
    File,
    /// It does not: somebody has to look.
    Poll,
    /// Never: nothing comes this way.
    Never,
}

/// A file that becomes readable when somebody rings.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A silent one.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    /// Makes the file readable, until it is silenced.
    pub fn ring(&self) {
        // It refuses only what would be rung 2^64 times, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets that it was rung.
    pub fn silence(&self) {
        let mut count = [0; 8];
        // An error is that nobody rang.
        let _ = rustix::io::read(&self.0, &mut count);
    }

    /// The file.
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }
}

thread_local! {
    /// Whether the thread has slept since somebody asked.
    static SLEPT: Cell<bool> = const { Cell::new(true) };
}

/// Whether the calling thread has slept here since the last call.
#[inline]
pub(crate) fn take_slept() -> bool {
    SLEPT.replace(false)
}

/// Says that the calling thread has waited for something else than a peer: a lock, say.
#[inline]
pub fn has_waited() {
    SLEPT.set(true);
}

/// Sleeps. To be used by threads that call queues, instead of the standard library's: it tells their sleep from time that a
/// peer made them wait.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
    SLEPT.set(true);
}

/// Sleeps until one of the files is readable or has come to an end, a signal comes, or the time is over.
pub fn wait(files: &[Arc<OwnedFd>], time: Duration) {
    let mut fds: Vec<PollFd<'_>> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // What wakes does not matter: whoever slept looks at everything.
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
