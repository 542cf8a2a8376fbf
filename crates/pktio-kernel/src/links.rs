//! What the kernel's interfaces are, followed as they change: a netlink socket that stays open, and a thread that sleeps on it.
//!
//! The kernel queues a message for every change before the call that made it returns. [`Links::poll`] takes what is queued, so
//! what it leaves in the table is true at the time of the call; the thread only makes sure that changes have effect when
//! nobody asks. When the queue has overflowed, all links are asked for again. Nothing here opens a file after the start, so
//! a process without descriptors sees its links all the same; after an error the table keeps what was known.
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

/// How long the thread sleeps at most: closes what workers had in use, and shows that it is alive.
const ROUND: Duration = Duration::from_millis(500);
/// A round that takes longer is stuck: a watcher opens sockets, which takes the kernel milliseconds.
const ROUND_MAX: Duration = Duration::from_secs(20);
/// Changes that may wait in the kernel.
const QUEUE_BYTES: usize = 1 << 20;
/// The kernel's messages are at most 32 KB (`NLMSG_GOODSIZE` of a dump).
const MESSAGE_BYTES: usize = 64 << 10;
/// How often all links are asked for when the answer was not complete.
const ATTEMPTS: usize = 5;
/// How long the kernel may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// An interface that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub link: Link,
    /// Differs between two interfaces that have the same index one after the other.
    pub born: u64,
    pub speed_mbps: Option<u32>,
}

/// Interfaces by index.
pub(crate) type Table = BTreeMap<u32, Known>;

/// Somebody who follows links. Called after every change, and in every round; must not call [`Links`].
pub(crate) trait Watcher: Send + Sync {
    fn links_changed(&self, table: &Table, control: &OwnedFd);
}

/// All interfaces of the network namespace.
pub(crate) struct Links {
    socket: Arc<OwnedFd>,
    /// For requests about interfaces.
    control: OwnedFd,
    /// Ends the thread.
    end: Bell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Table,
    born: u64,
    /// Of the last request.
    number: u32,
    watchers: Vec<Weak<dyn Watcher>>,
    buffer: Vec<u8>,
}

/// The one of this process, while somebody uses it.
static SHARED: Mutex<Weak<Links>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// Follows the links of this thread's network namespace, or of whose was first.
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
        // The default protocol is rtnetlink (`NETLINK_ROUTE`).
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        // Less than that if the system's limit is lower: then an overflow is more likely.
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

    /// Takes the kernel's news, tells watchers of them, and shows the table.
    pub(crate) fn poll<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        let mut state = lock(&self.state);
        if self.take_news(&mut state) {
            self.tell(&mut state);
        }
        look(&state.table)
    }

    /// The interface of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Known> {
        self.poll(|table| table.values().find(|known| known.link.name == name).cloned())
    }

    /// The interface of an index.
    pub(crate) fn numbered(&self, index: u32) -> Option<Known> {
        self.poll(|table| table.get(&index).cloned())
    }

    /// Tells `watcher` of changes from now on, as long as it lives.
    pub(crate) fn add_watcher(&self, watcher: Weak<dyn Watcher>) {
        lock(&self.state).watchers.push(watcher);
    }

    /// Tells all watchers; one may have something to do that nobody has said.
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

    /// Takes what is queued; whether there was anything.
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
                    // On an error the table stays as it is; the next overflow or change is another chance.
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

    /// Asks for all links, and forgets those that are not among the answers.
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

    /// Takes answers to the last request; `None` if some are missing.
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

/// The thread.
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
