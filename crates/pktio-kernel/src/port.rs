//! What a port's device and queues share: it follows the interface, opens sockets when that comes, and hands them to the queues.
//!
//! ```text
//!   no interface of the name ──▶ claimed, down ──set up──▶ open ──gone──▶ no interface of the name
//!                                     ▲                     │ down: stays open, the sockets live through it
//! ```
//!
//! Sockets reach a queue through a slot, with a number that says that there are others ([`Port::changes`]). The port keeps
//! its own reference to sockets until the queue has let go of them, so they are closed here and not on a worker.
//!
//! Threads: `links_changed` on whoever looks at links, most often the thread of `links`.

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

/// How long who removes a TAP waits until it is closed.
const CLOSING_MAX: Duration = Duration::from_millis(500);

/// What device and queues share.
pub(crate) struct Port {
    /// As its user named it, for messages.
    pub device: String,
    interface: String,
    pub kind: Kind,
    options: PortOptions,
    pub pool: PoolRef,
    pub counters: Vec<QueueCounters>,
    /// Longer frames are not sent; of large frames, longer segments.
    pub frame_max: AtomicU32,
    /// Counts changes of the slots.
    pub changes: AtomicU32,
    pub slots: Vec<Mutex<Option<Arc<Io>>>>,
    pub state: Mutex<State>,
}

/// What the interface is, and what is open on it.
#[derive(Default)]
pub(crate) struct State {
    attached: Option<Attached>,
    /// Sockets for the next interface, made ahead.
    pub unbound: Option<Sockets>,
    /// What was used before, until the queues have let go of it.
    retired: Vec<Arc<Io>>,
    /// Packets missed on sockets that are closed.
    missed: u64,
    pub last: Option<Known>,
    pub note: Option<String>,
}

/// The interface that the port has.
struct Attached {
    index: u32,
    born: u64,
    /// Empty until the interface is set up.
    io: Vec<Arc<Io>>,
    _claim: Claim,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    /// A port without an interface, with sockets for the first one.
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

    /// Takes an interface: claims it, changes what is to be changed, opens its sockets if it is set up.
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

    /// Gives each queue its sockets, or none.
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

    /// Opens the sockets of an interface that has been set up.
    fn open_sockets(&self, attached: &mut Attached, ahead: Option<Sockets>, known: &Known) -> io::Result<()> {
        if attached.io.is_empty() && known.link.is_set_up {
            let (mtu, queues) = (known.link.mtu, self.options.queues);
            let sockets = ahead.filter(|ahead| ahead.fit(mtu, queues));
            attached.io = sockets.map_or_else(|| Sockets::new(mtu, queues), Ok)?.bind(attached.index)?;
            self.hand_out(&attached.io);
        }
        Ok(())
    }

    /// Why the sockets could not be opened though the interface is set up.
    pub(crate) fn unopened_because(&self) -> Option<String> {
        let state = lock(&self.state);
        let is_open = state.attached.as_ref().is_some_and(|attached| !attached.io.is_empty());
        let is_set_up = state.last.as_ref().is_some_and(|known| known.link.is_set_up);
        state.note.clone().filter(|_| is_set_up && !is_open)
    }

    /// Whether the interface, a TAP, is in another network namespace now: its file goes on moving packets, and nobody tells us
    /// of its link. It is up as far as we know.
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

    /// Packets that the kernel has dropped for want of room.
    pub(crate) fn missed(&self) -> u64 {
        let mut state = lock(&self.state);
        let State { attached, missed, .. } = &mut *state;
        *missed += attached.iter().flat_map(|attached| &attached.io).map(|io| io.take_missed()).sum::<u64>();
        *missed
    }
}

impl Drop for Port {
    /// Closing files waits for other processors, socket by socket, and on a busy machine for seconds: who removes a port, ends a switch or
    /// goes on in its place does not wait for that. A TAP's name is free again when its closing has begun, which is a matter of microseconds;
    /// so who removes one waits until it is over, but no longer than [`CLOSING_MAX`], for the next who opens it.
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
        // Without a thread they are closed here.
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
