//! A port to the kernel: follows its interface, opens its sockets when it comes, and hands them to the queues.
//!
//! ```text
//!   no interface of the name ──▶ claimed, down ──set up──▶ open ──gone──▶ no interface of the name
//!                                     ▲                     │ down: stays open, the sockets live through it
//! ```
//!
//! Sockets reach a queue through a slot, with a number that says that there are others ([`Port::changes`]). The port keeps
//! its own reference to sockets until the queue has let go of them, so they are closed here and not on a worker.
//!
//! Threads: `links_changed` on whoever looks at links, most often the thread of `links`; the device on control.

use crate::claim::Claim;
use crate::interface::{link_state, links, note_of, refused};
use crate::io::{Io, Kind, Sockets, open_tap};
use crate::links::{Known, Links, Table, Watcher};
use crate::netlink::Link;
use crate::queue::KernelQueue;
use crate::{QUEUES_MAX, sys};
use pktio::{
    Device, DeviceSpec, Error, FRAME_HEADER_MAX, LinkState, MTU_DEFAULT, MacAddress, PoolRef, PortOptions, PortStats,
    Queue, QueueCounters,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What device and queues share.
pub(crate) struct Port {
    /// As its user named it, for messages.
    device: String,
    interface: String,
    kind: Kind,
    options: PortOptions,
    pub pool: PoolRef,
    pub counters: Vec<QueueCounters>,
    /// Longer frames are not sent; of large frames, longer segments.
    pub frame_max: AtomicU32,
    /// Counts changes of the slots.
    pub changes: AtomicU32,
    pub slots: Vec<Mutex<Option<Arc<Io>>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    attached: Option<Attached>,
    /// Sockets for the next interface, made ahead.
    unbound: Option<Sockets>,
    /// What was used before, until the queues have let go of it.
    retired: Vec<Arc<Io>>,
    /// Packets missed on sockets that are closed.
    missed: u64,
    last: Option<Known>,
    note: Option<String>,
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

/// Gives an interface what the port's user asked for, and nothing else.
pub(crate) fn change(control: &OwnedFd, link: &Link, options: &PortOptions) -> io::Result<()> {
    if let Some(mtu) = options.mtu.filter(|mtu| u32::from(*mtu) != link.mtu) {
        sys::set_mtu(control, &link.name, mtu)?;
    }
    if options.up && !link.is_set_up { sys::set_up(control, &link.name) } else { Ok(()) }
}

/// The sockets of a port that is opened later, made ahead. They receive nothing.
pub(crate) fn prepare(spec: &DeviceSpec, interface: &str, options: &PortOptions) -> Result<Sockets, Error> {
    let device = spec.to_string();
    let known = links(&device)?.named(interface);
    let known = known.ok_or_else(|| Error::NoSuchInterface { interface: interface.to_owned() })?;
    let mtu = options.mtu.map_or(known.link.mtu, u32::from);
    Sockets::new(mtu, options.queues.clamp(1, QUEUES_MAX)).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission { device, capability: "CAP_NET_RAW" },
        _ => refused(&device, &error),
    })
}

/// Opens a port, with sockets that were made ahead if they fit.
pub(crate) fn open(
    spec: &DeviceSpec,
    interface: &str,
    kind: Kind,
    pool: PoolRef,
    options: &PortOptions,
    prepared: Option<Sockets>,
) -> Result<Box<dyn Device>, Error> {
    let device = spec.to_string();
    let links = links(&device)?;
    let there = links.named(interface);
    let mut options = *options;
    options.queues = options.queues.clamp(1, QUEUES_MAX);
    let mut unbound = None;
    let made = match (kind, &there) {
        (Kind::Packet, None) => return Err(Error::NoSuchInterface { interface: interface.to_owned() }),
        (Kind::Packet, Some(_)) => {
            unbound = Some(prepared.map_or_else(|| prepare(spec, interface, &options), Ok)?);
            None
        }
        (Kind::Tap, _) => {
            // One that is made here is ours to set up.
            options.up |= there.is_none();
            Some(open_tap(interface, options.queues).map_err(|error| tap_refused(&device, &error))?)
        }
    };
    let known = links.named(interface).ok_or_else(|| Error::NoSuchInterface { interface: interface.to_owned() })?;
    let count = usize::from(options.queues);
    let port = Arc::new(Port {
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
    });
    port.attach(&mut lock(&port.state), &known, links.control(), made)?;
    // What setting it up has changed; from then on news come by themselves.
    let watcher: Arc<dyn Watcher> = Arc::clone(&port) as Arc<dyn Watcher>;
    links.add_watcher(Arc::downgrade(&watcher));
    let now = links.poll(|table| table.clone());
    port.links_changed(&now, links.control());
    if let Some(reason) = port.unopened_because() {
        return Err(Error::Device { device: port.device.clone(), reason });
    }
    // Those of an interface that is down are made when it is set up.
    lock(&port.state).unbound = None;
    Ok(Box::new(KernelDevice { links, port, queues_taken: false }))
}

/// Why a TAP interface cannot be made.
fn tap_refused(device: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::File { path: "/dev/net/tun".into(), reason: error.to_string() },
        _ => refused(device, error),
    }
}

impl Port {
    /// Takes an interface: claims it, changes what is to be changed, opens its sockets if it is set up.
    fn attach(
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
    fn unopened_because(&self) -> Option<String> {
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
    fn missed(&self) -> u64 {
        let mut state = lock(&self.state);
        let State { attached, missed, .. } = &mut *state;
        *missed += attached.iter().flat_map(|attached| &attached.io).map(|io| io.take_missed()).sum::<u64>();
        *missed
    }
}

impl Drop for Port {
    /// Closing packet sockets waits for other processors, port by port: who ends a switch, or goes on in its place, does not wait for
    /// that. A TAP's file is closed at once, for the next who opens it.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut io = std::mem::take(&mut state.retired);
        io.extend(state.attached.take().into_iter().flat_map(|attached| attached.io));
        self.slots.clear();
        if self.kind == Kind::Packet {
            // Without a thread they are closed here.
            let _ = std::thread::Builder::new().name("closing".into()).spawn(move || drop(io));
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

/// The control side.
struct KernelDevice {
    links: Arc<Links>,
    port: Arc<Port>,
    queues_taken: bool,
}

impl KernelDevice {
    /// The interface as it is now.
    fn now<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        // The watcher's turn comes before the result: it has taken the lock and given it back.
        self.links.poll(|_| ());
        read(&lock(&self.port.state))
    }
}

impl Device for KernelDevice {
    fn name(&self) -> &str {
        &self.port.device
    }

    fn kind(&self) -> &'static str {
        match self.port.kind {
            Kind::Packet => "af_packet",
            Kind::Tap => "tap",
        }
    }

    fn queue_count(&self) -> u16 {
        self.port.slots.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(KernelQueue::new(Arc::clone(&self.port), index)) as Box<dyn Queue>;
        (0..self.port.slots.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.port.pool)
    }

    fn link(&self) -> LinkState {
        self.now(|state| state.last.as_ref().map_or_else(LinkState::default, link_state))
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.port.counters.iter().for_each(|counters| stats += counters.read());
        stats.rx_dropped += self.port.missed();
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        self.now(|state| state.last.as_ref().and_then(|known| known.link.mac).map(MacAddress))
    }

    fn mtu(&self) -> u16 {
        self.links.poll(|_| ());
        (self.port.frame_max.load(Ordering::Relaxed) - u32::from(FRAME_HEADER_MAX)) as u16
    }

    fn note(&self) -> Option<String> {
        self.now(|state| state.note.clone())
    }
}
