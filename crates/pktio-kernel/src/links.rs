//! Follows the kernel's interfaces: a netlink socket that stays open, and a thread that sleeps on it.
//!
//! The kernel queues a message for every change before the system call that made it returns. [`Links::poll`]
//! reads all queued messages, so the table is up to date when it returns; the thread only ensures that
//! changes take effect when nobody polls. After an overflow of the queue, all links are requested again.
//! Nothing here opens a file after the start, so links stay known when the process has no file descriptors
//! left; after an error the table keeps its last state.
//!
//! Threads: any; one lock. Watchers are called under it and must not call back. Tests: `tests/follow.rs`.

use crate::netlink::{self, Link, Message};
use crate::sys;
use heartbeat::Heartbeat;
use pktio::Bell;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Interval of the thread: it closes sockets that workers have released, and beats.
const ROUND: Duration = Duration::from_millis(500);
/// A loop iteration that takes longer is considered stuck: a watcher opens
/// sockets, which takes the kernel milliseconds.
const ROUND_MAX: Duration = Duration::from_secs(20);
/// Receive buffer of the netlink socket in bytes, for queued changes.
const QUEUE_BYTES: usize = 1 << 20;
/// Buffer for one message in bytes; the kernel's are at most 32 KB (`NLMSG_GOODSIZE` of a dump).
const MESSAGE_BYTES: usize = 64 << 10;
/// Attempts to list all links when the answer was incomplete.
const ATTEMPTS: usize = 5;
/// Time limit for the kernel's answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// An existing interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub link: Link,
    /// Generation: distinguishes interfaces that have the same index one after the other.
    pub born: u64,
    pub speed_mbps: Option<u32>,
}

/// Interfaces by index.
pub(crate) type Table = BTreeMap<u32, Known>;

/// A follower of links. Called after every change and in every interval; must not call [`Links`].
pub(crate) trait Watcher: Send + Sync {
    fn links_changed(&self, table: &Table, control: &OwnedFd);
}

/// All interfaces of the network namespace.
pub(crate) struct Links {
    socket: Arc<OwnedFd>,
    /// Socket for requests about interfaces.
    control: OwnedFd,
    /// Stops the thread.
    end: Bell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Table,
    born: u64,
    /// Sequence number of the last request.
    number: u32,
    watchers: Vec<Weak<dyn Watcher>>,
    buffer: Vec<u8>,
}

/// This process's instance, while it is in use.
static SHARED: Mutex<Weak<Links>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// The process's shared instance. If it is new, it follows the network namespace of the calling thread.
    pub(crate) fn shared() -> io::Result<Arc<Links>> {
        let mut shared = lock(&SHARED);
        if let Some(links) = shared.upgrade() {
            return Ok(links);
        }
        let links = Arc::new(Links::new()?);
        let (weak, end) = (Arc::downgrade(&links), links.end.file());
        let files = [Arc::clone(&links.socket), end];
        std::thread::Builder::new().name("links".into()).spawn(move || watch(&weak, &files))?;
        *shared = Arc::downgrade(&links);
        Ok(links)
    }

    fn new() -> io::Result<Links> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is rtnetlink (`NETLINK_ROUTE`).
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        // Optional: with a smaller buffer an overflow is more likely.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES);
        bind(&socket, &SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32))?;
        let links = Links {
            socket: Arc::new(socket),
            control: sys::control_socket()?,
            end: Bell::new()?,
            state: Mutex::default(),
        };
        links.ask_all(&mut lock(&links.state))?;
        Ok(links)
    }

    /// A socket for requests about interfaces.
    pub(crate) fn control(&self) -> &OwnedFd {
        &self.control
    }

    /// Applies pending changes, notifies watchers of them, and passes the table to `look`.
    pub(crate) fn poll<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        let mut state = lock(&self.state);
        if self.take_news(&mut state) {
            self.tell(&mut state);
        }
        look(&state.table)
    }

    /// The interface with this name.
    pub(crate) fn named(&self, name: &str) -> Option<Known> {
        self.poll(|table| table.values().find(|known| known.link.name == name).cloned())
    }

    /// The interface with this index.
    pub(crate) fn numbered(&self, index: u32) -> Option<Known> {
        self.poll(|table| table.get(&index).cloned())
    }

    /// Adds a watcher, which is notified as long as it lives.
    pub(crate) fn add_watcher(&self, watcher: Weak<dyn Watcher>) {
        lock(&self.state).watchers.push(watcher);
    }

    /// Notifies all watchers even without changes: they may have work to do.
    fn round(&self) {
        let mut state = lock(&self.state);
        self.take_news(&mut state);
        self.tell(&mut state);
    }

    fn tell(&self, state: &mut State) {
        state.watchers.retain(|watcher| watcher.strong_count() > 0);
        for watcher in state.watchers.iter().filter_map(Weak::upgrade) {
            watcher.links_changed(&state.table, &self.control);
        }
    }

    /// Reads all queued messages. Returns whether there were any.
    fn take_news(&self, state: &mut State) -> bool {
        let mut buffer = std::mem::take(&mut state.buffer);
        buffer.resize(MESSAGE_BYTES, 0);
        let any = self.take_into(state, &mut buffer);
        state.buffer = buffer;
        any
    }

    fn take_into(&self, state: &mut State, buffer: &mut [u8]) -> bool {
        let mut any = false;
        loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((len, _)) => {
                    any = true;
                    for message in netlink::messages(&buffer[..len]) {
                        self.apply(&mut *state, message);
                    }
                }
                Err(rustix::io::Errno::NOBUFS) => {
                    any = true;
                    // After an error the table is unchanged; it is requested again after the next overflow.
                    let _ = self.ask_all(state);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }

    fn apply(&self, state: &mut State, message: Message) {
        match message {
            Message::Link(link) => {
                let speed_mbps = if link.is_set_up { sys::speed_mbps(&self.control, &link.name) } else { None };
                let born = state.table.get(&link.index).map_or_else(
                    || {
                        state.born += 1;
                        state.born
                    },
                    |known| known.born,
                );
                state.table.insert(link.index, Known { link, born, speed_mbps });
            }
            Message::Gone(index) => _ = state.table.remove(&index),
            Message::Done(..) | Message::Failed(_) => {}
        }
    }

    /// Requests all links, and removes those that the answers do not contain.
    fn ask_all(&self, state: &mut State) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            state.number += 1;
            send(&self.socket, &netlink::request(state.number), SendFlags::empty())?;
            if let Some(there) = self.answers(state)? {
                state.table.retain(|index, _| there.contains(index));
                return Ok(());
            }
        }
        Err(io::Error::other("interfaces change too fast to be listed"))
    }

    /// Reads the answers to the last request; `None` if some are missing.
    fn answers(&self, state: &mut State) -> io::Result<Option<Vec<u32>>> {
        let mut buffer = vec![0; MESSAGE_BYTES];
        let mut there = Vec::new();
        let deadline = Instant::now() + ANSWER_TIME;
        while Instant::now() < deadline {
            let len = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(rustix::io::Errno::AGAIN) => {
                    pktio::wait(std::slice::from_ref(&self.socket), Duration::from_millis(100));
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::NOBUFS) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            for message in netlink::messages(&buffer[..len]) {
                match &message {
                    Message::Done(number, is_partial) if *number == state.number => {
                        return Ok((!is_partial).then_some(there));
                    }
                    Message::Failed(number) if *number == state.number => {
                        return Err(io::Error::other("the kernel does not list its interfaces"));
                    }
                    Message::Link(link) => there.push(link.index),
                    Message::Gone(index) => there.retain(|other| other != index),
                    Message::Done(..) | Message::Failed(_) => {}
                }
                self.apply(state, message);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.end.ring();
    }
}

/// The thread's loop.
fn watch(links: &Weak<Links>, files: &[Arc<OwnedFd>]) {
    let heart = Heartbeat::new("links", ROUND_MAX);
    loop {
        heart.beat();
        pktio::wait(files, ROUND);
        match links.upgrade() {
            Some(links) => links.round(),
            None => return,
        }
    }
}
