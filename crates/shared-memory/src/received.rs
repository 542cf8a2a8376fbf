//! A peer's files and sockets, which are closed on another thread if that may block.
//!
//! A file descriptor from a peer may refer to anything, and `close` may block: on the server of a FUSE file, or, for
//! the last descriptor of a lingering TCP socket (`SO_LINGER`), for as long as its owner has set, which may be hours.
//! Closing a Unix socket with such a file in its receive queue blocks too. So everything from a peer is a [`PeerFile`],
//! which a [`Closer`] closes on a thread of its own. The thread lives while there is something to close.
//!
//! Closing or unmapping a file in memory does not block, but the last owner frees its pages, which takes long for some
//! gigabytes. So large memory is released in the same way: files by their owner's closer, mappings by their quota's,
//! where no mapping waits behind a file.
//!
//! A peer may leave as many files behind as one message carries. The owner of a closer that is
//! [behind](Closer::is_behind) accepts no further peers, so that files which cannot be closed do not accumulate.
//!
//! Threads: any. Tests: below, and `tests/hostile.rs` of both ports.
#![allow(unsafe_code)]

use crate::file::{is_large, is_memory};
use crate::notify::is_eventfd;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Files that may wait to be closed before the owner accepts no further peers.
const WAITING_MAX: usize = 32;

/// Maximum files in a message of a Unix socket (`SCM_MAX_FD`). If the receiver provides space for fewer, the kernel
/// closes the others in `recvmsg`, on the calling thread.
pub const FILES_MAX: usize = 253;

/// Closes the files of a port's or a socket's peers, or unmaps the memory of a quota. Clones share one queue.
#[derive(Clone, Default)]
pub struct Closer(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    files: VecDeque<OwnedFd>,
    /// Objects that unmap their pages when they are dropped.
    pages: VecDeque<Box<dyn Send>>,
    /// Whether the thread is running.
    is_closing: bool,
}

impl std::fmt::Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.lock();
        f.debug_struct("Closer").field("files", &queue.files.len()).field("pages", &queue.pages.len()).finish()
    }
}

impl Closer {
    /// Whether so many files wait to be closed that no further peer must be accepted.
    pub fn is_behind(&self) -> bool {
        self.lock().files.len() >= WAITING_MAX
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, file: OwnedFd) {
        let mut queue = self.lock();
        queue.files.push_back(file);
        self.start(queue);
    }

    /// Drops pages on the thread, which unmaps them.
    pub(crate) fn unmap(&self, pages: impl Send + 'static) {
        let mut queue = self.lock();
        queue.pages.push_back(Box::new(pages));
        self.start(queue);
    }

    /// Unmaps all waiting pages on the calling thread.
    pub(crate) fn finish_pages(&self) {
        let waiting = std::mem::take(&mut self.lock().pages);
        drop(waiting);
    }

    fn start(&self, mut queue: MutexGuard<'_, Queue>) {
        if !queue.is_closing {
            let theirs = self.clone();
            // If no thread can be started, the queue waits for the next call.
            queue.is_closing = thread::Builder::new().name("close".into()).spawn(move || theirs.run()).is_ok();
        }
    }

    fn run(&self) {
        loop {
            let mut queue = self.lock();
            let next = (queue.pages.pop_front(), queue.files.pop_front());
            if let (None, None) = next {
                queue.is_closing = false;
                return;
            }
            drop(queue);
            drop(next);
        }
    }
}

/// A file or socket of a peer.
#[derive(Debug)]
pub struct PeerFile {
    file: ManuallyDrop<OwnedFd>,
    closer: Closer,
}

impl PeerFile {
    /// Wraps a file that `closer` closes.
    pub fn new(file: impl Into<OwnedFd>, closer: &Closer) -> PeerFile {
        PeerFile { file: ManuallyDrop::new(file.into()), closer: closer.clone() }
    }

    /// Returns the file if it is an eventfd, which can be closed anywhere.
    ///
    /// # Errors
    /// The file itself, if it is not an eventfd.
    pub fn into_eventfd(self) -> Result<OwnedFd, PeerFile> {
        if !is_eventfd(&*self.file) {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither field is used afterwards, since `this` is not dropped.
        unsafe {
            std::ptr::drop_in_place(&mut this.closer);
            Ok(ManuallyDrop::take(&mut this.file))
        }
    }
}

impl AsFd for PeerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for PeerFile {
    fn drop(&mut self) {
        // SAFETY: it is not used afterwards.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        let is_quick = if is_memory(&file) { !is_large(file.as_fd()) } else { is_eventfd(&file) };
        if is_quick {
            drop(file);
        } else {
            self.closer.close(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::QUICK_BYTES;
    use crate::mapping::Mapping;
    use crate::quota::Quota;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    /// A socket whose `close` blocks for a minute, and the other end, which reads nothing.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut socket = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (other, _) = listener.accept().expect("it is there");
        socket.set_nonblocking(true).expect("it is a socket");
        while socket.write(&[0; 1 << 16]).is_ok() {}
        socket.set_nonblocking(false).expect("it is a socket");
        let linger = libc::linger { l_onoff: 1, l_linger: 60 };
        let bytes = size_of::<libc::linger>() as libc::socklen_t;
        let at = (&raw const linger).cast();
        // SAFETY: an option that lives during the call.
        let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, bytes) };
        assert_eq!(result, 0);
        (socket.into(), other)
    }

    #[test]
    fn a_file_whose_close_waits_holds_nobody_up() {
        let closer = Closer::default();
        let (first, other) = lingering();
        let start = Instant::now();
        drop(PeerFile::new(first, &closer));
        assert!(!closer.is_behind());
        // Later files wait behind it, and many of them are reported.
        let pipes = || std::io::pipe().expect("a pipe").0;
        (0..=WAITING_MAX).for_each(|_| drop(PeerFile::new(pipes(), &closer)));
        assert!(closer.is_behind());
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        // A reset ends the wait.
        drop(other);
        while closer.is_behind() {
            assert!(start.elapsed() < Duration::from_secs(50), "they are closed in the end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Memory with all pages allocated.
    fn huge() -> OwnedFd {
        let file = memfd_create("huge", MemfdFlags::CLOEXEC).expect("a memfd");
        fallocate(&file, FallocateFlags::empty(), 0, HUGE_BYTES as u64).expect("there is as much memory");
        file
    }

    const HUGE_BYTES: usize = 256 << 20;

    /// Processor time that a call takes on this thread.
    fn cost<T>(what: impl FnOnce() -> T) -> Duration {
        let now = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the kernel writes a structure that lives during the call.
            assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let start = now();
        what();
        now() - start
    }

    /// Regression: a peer left huge memory with the port as its last owner, and
    /// the port's thread freed it page by page.
    #[test]
    fn the_last_owner_of_huge_memory_does_not_free_it_on_its_own_thread() {
        let (file, unsent) = (huge(), huge());
        let whole = huge();
        let freeing = cost(|| drop(whole));
        let quota = Quota::new(1).expect("room");
        let mapping = Mapping::new(&file, 0, HUGE_BYTES, &quota).expect("it is memory");
        drop(file);
        let took = cost(|| drop(mapping));
        assert!(took < freeing / 8, "unmapping took {took:?}, freeing {freeing:?}");
        let closer = Closer::default();
        let file = PeerFile::new(unsent, &closer);
        let took = cost(|| drop(file));
        assert!(took < freeing / 8, "closing took {took:?}, freeing {freeing:?}");
    }

    /// Regression: a small mapping of a large file was unmapped at once, which freed the whole file.
    #[test]
    fn a_small_part_of_huge_memory_is_not_freed_by_its_last_owner_either() {
        let (file, whole) = (huge(), huge());
        let freeing = cost(|| drop(whole));
        let quota = Quota::new(1).expect("room");
        let mapping = Mapping::new(&file, 0, 4096, &quota).expect("it is memory");
        drop(file);
        let took = cost(|| drop(mapping));
        assert!(took < freeing / 8, "unmapping took {took:?}, freeing {freeing:?}");
    }

    /// A front end may remap its memory faster than the old mappings are unmapped.
    #[test]
    fn what_waits_to_be_unmapped_keeps_no_peer_from_mapping() {
        let file = memfd_create("large", MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&file, 2 * QUICK_BYTES as u64).expect("it grows");
        // The thread may be unmapping one.
        let quota = Quota::new(2).expect("room");
        for round in 0..1000 {
            let mapping = Mapping::new(&file, 0, 2 * QUICK_BYTES, &quota);
            assert!(mapping.is_ok(), "round {round}: {mapping:?}");
        }
        while Arc::strong_count(&quota.closer().0) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(quota.closer().lock().pages.is_empty());
    }

    #[test]
    fn eventfds_are_taken_out() {
        let closer = Closer::default();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        assert!(PeerFile::new(event, &closer).into_eventfd().is_ok());
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let refused = PeerFile::new(writer, &closer).into_eventfd().expect_err("it is a pipe");
        drop(refused);
        // The reader sees the end of file once it is closed.
        assert_eq!(std::io::read_to_string(reader).ok().as_deref(), Some(""));
        while Arc::strong_count(&closer.0) > 1 {
            thread::sleep(Duration::from_millis(1)); // The thread's handle, and no other.
        }
    }
}
