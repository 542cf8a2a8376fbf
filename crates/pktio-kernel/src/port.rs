//! The state that a port's device and queues share. A port follows its interface, opens sockets when the interface
//! appears, and hands them to the queues.
//!
//! ```text
//!   no interface of this name ──▶ claimed, down ──set up──▶ open ──gone──▶ no interface of this name
//!                                      ▲                     │ down: the sockets stay open
//! ```
//!
//! Sockets reach a queue through a slot; a change counter tells queues to read their slots
//! ([`Port::changes`]). The port keeps a reference to sockets until the queue has released them, so that
//! they are closed here and not on a worker.
//!
//! Threads: `links_changed` runs on whichever thread polls the links, usually the thread of `links`.

use crate::claim::Claim;
use crate::interface::{change, note_of, refused};
use crate::io::{Io, Kind, Sockets, open_tap};
use crate::links::{Known, Table, Watcher};
use crate::sys;
use pktio::{Error, FRAME_HEADER_MAX, MTU_DEFAULT, PoolRef, PortOptions, QueueCounters};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// How long dropping a TAP port waits until its files are closed.
const CLOSING_MAX: Duration = Duration::from_millis(500);

/// The state that device and queues share.
pub(crate) struct Port {
    /// The name its user gave it, for messages.
    pub device: String,
    interface: String,
    pub kind: Kind,
    options: PortOptions,
    pub pool: PoolRef,
    pub counters: Vec<QueueCounters>,
    /// Maximum frame length in bytes; longer frames, and large frames with longer segments, are not sent.
    pub frame_max: AtomicU32,
    /// Counts changes of the slots.
    pub changes: AtomicU32,
    pub slots: Vec<Mutex<Option<Arc<Io>>>>,
    pub state: Mutex<State>,
}

/// The interface's state, and the sockets that are open on it.
#[derive(Default)]
pub(crate) struct State {
    attached: Option<Attached>,
    /// Sockets for the next interface, created in advance.
    pub unbound: Option<Sockets>,
    /// Former sockets that queues have not released yet.
    retired: Vec<Arc<Io>>,
    /// Packets that the kernel dropped on former sockets.
    missed: u64,
    pub last: Option<Known>,
    pub note: Option<String>,
}

/// The interface that the port is attached to.
struct Attached {
    index: u32,
    born: u64,
    /// Empty until the interface is up.
    io: Vec<Arc<Io>>,
    _claim: Claim,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    /// A port without an interface, and with sockets for its first one.
    pub(crate) fn new(
        device: String,
        interface: &str,
        kind: Kind,
        options: PortOptions,
        pool: PoolRef,
        unbound: Option<Sockets>,
    ) -> Port {
        let count = usize::from(options.queues);
        Port {
            device,
            interface: interface.to_owned(),
            kind,
            options,
            pool,
            counters: (0..count).map(|_| QueueCounters::default()).collect(),
            frame_max: AtomicU32::new(u32::from(MTU_DEFAULT) + u32::from(FRAME_HEADER_MAX)),
            changes: AtomicU32::new(0),
            slots: (0..count).map(|_| Mutex::new(None)).collect(),
            state: Mutex::new(State { unbound, ..State::default() }),
        }
    }

    /// Attaches the port to an interface: claims it, applies options, and opens its sockets if it is up.
    pub(crate) fn attach(
        &self,
        state: &mut State,
        known: &Known,
        control: &OwnedFd,
        made: Option<Vec<Arc<Io>>>,
    ) -> Result<(), Error> {
        let claim = Claim::new(&self.device, &self.interface, known.link.index)?;
        change(control, &known.link, &self.options).map_err(|error| refused(&self.device, &error))?;
        let io = match (made, self.kind) {
            (Some(made), _) => made,
            (None, Kind::Tap) => {
                open_tap(&self.interface, self.options.queues).map_err(|error| refused(&self.device, &error))?
            }
            (None, Kind::Packet) => Vec::new(),
        };
        let attached = Attached { index: known.link.index, born: known.born, io, _claim: claim };
        self.hand_out(&attached.io);
        state.attached = Some(attached);
        Ok(())
    }

    /// Puts each queue's sockets, or none, into its slot.
    fn hand_out(&self, io: &[Arc<Io>]) {
        for (i, slot) in self.slots.iter().enumerate() {
            *lock(slot) = io.get(i).cloned();
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn detach(&self, state: &mut State) {
        let Some(attached) = state.attached.take() else { return };
        self.hand_out(&[]);
        state.missed += attached.io.iter().map(|io| io.take_missed()).sum::<u64>();
        state.retired.extend(attached.io);
    }

    /// Opens the sockets if the interface is up and they are not open.
    fn open_sockets(&self, attached: &mut Attached, ahead: Option<Sockets>, known: &Known) -> io::Result<()> {
        if attached.io.is_empty() && known.link.is_set_up {
            let (mtu, queues) = (known.link.mtu, self.options.queues);
            let sockets = ahead.filter(|ahead| ahead.fit(mtu, queues));
            attached.io = sockets.map_or_else(|| Sockets::new(mtu, queues), Ok)?.bind(attached.index)?;
            self.hand_out(&attached.io);
        }
        Ok(())
    }

    /// Why the sockets could not be opened, if the interface is up and they are not open.
    pub(crate) fn unopened_because(&self) -> Option<String> {
        let state = lock(&self.state);
        let is_open = state.attached.as_ref().is_some_and(|attached| !attached.io.is_empty());
        let is_set_up = state.last.as_ref().is_some_and(|known| known.link.is_set_up);
        state.note.clone().filter(|_| is_set_up && !is_open)
    }

    /// Whether the port's TAP interface was moved to another network namespace. Its file still moves packets, but we no
    /// longer hear of its link; it is assumed to be up.
    fn has_moved(&self, state: &mut State) -> bool {
        let file = state.attached.as_ref().and_then(|attached| attached.io.first());
        if self.kind != Kind::Tap || !file.is_some_and(|io| sys::is_attached(io.file())) {
            return false;
        }
        if let Some(last) = &mut state.last {
            last.link.is_running = true;
        }
        state.note = Some(format!("interface `{}` was moved to another network namespace", self.interface));
        true
    }

    /// Number of packets that the kernel has dropped for lack of space.
    pub(crate) fn missed(&self) -> u64 {
        let mut state = lock(&self.state);
        let State { attached, missed, .. } = &mut *state;
        *missed += attached.iter().flat_map(|attached| &attached.io).map(|io| io.take_missed()).sum::<u64>();
        *missed
    }
}

impl Drop for Port {
    /// Closes the sockets on another thread. Closing waits for other processors, socket by socket, for seconds on a
    /// busy machine; neither removing a port, nor ending a switch, nor its successor should wait for that. A TAP's name
    /// becomes free within microseconds after closing has begun. So dropping a TAP port waits for the end, but at most
    /// [`CLOSING_MAX`], so that the name can be opened again.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut io = std::mem::take(&mut state.retired);
        io.extend(state.attached.take().into_iter().flat_map(|attached| attached.io));
        self.slots.clear();
        let (closed, is_closed) = mpsc::channel::<()>();
        let close = move || {
            drop(io);
            drop(closed);
        };
        // If no thread can be started, dropping the closure closes them here.
        let _ = std::thread::Builder::new().name("closing".into()).spawn(close);
        if self.kind == Kind::Tap {
            let _ = is_closed.recv_timeout(CLOSING_MAX);
        }
    }
}

impl Watcher for Port {
    fn links_changed(&self, table: &Table, control: &OwnedFd) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.retired.retain(|io| Arc::strong_count(io) > 1);
        let ours = state.attached.as_ref().map(|attached| (attached.index, attached.born));
        let still = ours.and_then(|(index, born)| table.get(&index).filter(|known| known.born == born));
        if ours.is_some() && still.is_none() {
            if self.has_moved(state) {
                return;
            }
            self.detach(state);
        }
        let mut problem = None;
        let now = still.or_else(|| {
            let known = table.values().find(|known| known.link.name == self.interface)?;
            match self.attach(state, known, control, None) {
                Ok(()) => Some(known),
                Err(error) => {
                    problem = Some(error.to_string());
                    None
                }
            }
        });
        if let (Some(known), Some(attached)) = (now, &mut state.attached)
            && let Err(error) = self.open_sockets(attached, state.unbound.take(), known)
        {
            problem = Some(format!("its sockets cannot be opened: {error}"));
        }
        if let Some(known) = now {
            let mtu = known.link.mtu.min(u32::from(u16::MAX));
            self.frame_max.store(mtu + u32::from(FRAME_HEADER_MAX), Ordering::Relaxed);
        }
        let gone = || format!("interface `{}` is gone; the port waits for one of this name", self.interface);
        state.note = problem.or_else(|| now.map_or_else(|| Some(gone()), |known| note_of(&self.interface, known)));
        state.last = now.cloned();
    }
}
