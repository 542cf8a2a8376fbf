//! Bundles (OpenFlow 1.4.1, 6.8 and 7.3.9; for 1.3 an ONF extension): messages that are stored and then applied
//! together.
//!
//! All bundles are atomic and ordered, whatever their flags say. A bundle ends when it is committed (even if that
//! fails), when it is discarded, when a message for it is refused because of its state, and when nothing was added
//! to it for [`IDLE_US`].

use crate::bridge::{Bridge, Step};
use crate::change::Change;
use crate::flow_mod::Origin;
use crate::memory::{Charge, Memory};
use crate::tables::limit;
use crate::waiting::Waiting;
use openflow::message::{Framed, PacketOut};
use openflow::{Error, ErrorKind, Message};
use std::collections::HashMap;
use std::sync::Arc;

/// Idle timeout of bundles, in microseconds (Open vSwitch's `bundle-idle-timeout`).
pub const IDLE_US: u64 = 10_000_000;
/// `OFPBF_ATOMIC` and `OFPBF_ORDERED`.
const FLAGS: u16 = 0b11;
/// Bytes of a refused message that its error message carries.
const ERROR_DATA: usize = 64;

/// A message of a bundle.
#[derive(Debug)]
struct Kept {
    framed: Framed,
    /// The first bytes of the bundle-add message.
    head: Vec<u8>,
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    is_closed: bool,
    messages: Vec<Kept>,
    charge: Charge,
    used_us: u64,
    /// The xid and first bytes of the message that opened it.
    opened: (u32, Vec<u8>),
}

/// The bundles of a connection.
#[derive(Debug)]
pub(crate) struct Bundles {
    all: HashMap<u32, Bundle>,
    /// Bytes charged for all of them.
    bytes: u64,
    memory: Arc<Memory>,
}

/// A message that made a commit fail: its xid, its first bytes, and the error.
pub(crate) type Failed = (u32, Vec<u8>, Error);

fn refuse<T>(kind: ErrorKind, why: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(kind, why))
}

impl Bundles {
    /// No bundles.
    pub fn new(memory: &Arc<Memory>) -> Bundles {
        Bundles { all: HashMap::new(), bytes: 0, memory: Arc::clone(memory) }
    }

    /// Opens a bundle.
    pub fn open(&mut self, id: u32, flags: u16, request: (u32, &[u8]), now_us: u64) -> Result<(), Error> {
        if self.remove(id).is_some() {
            return refuse(ErrorKind::BfcBadId, format!("bundle {id} is open"));
        }
        if flags & !FLAGS != 0 {
            return refuse(ErrorKind::BfcBadFlags, format!("flags {flags:#x}"));
        }
        if self.all.len() >= limit::BUNDLES {
            return refuse(ErrorKind::BfcOutOfBundles, format!("a connection has at most {} bundles", limit::BUNDLES));
        }
        let opened = (request.0, head(request.1));
        let bundle = Bundle {
            flags,
            is_closed: false,
            messages: Vec::new(),
            charge: Charge::nothing(&self.memory.bundles),
            used_us: now_us,
            opened,
        };
        self.all.insert(id, bundle);
        Ok(())
    }

    /// Closes a bundle: it takes no more messages.
    pub fn close(&mut self, id: u32, flags: u16, now_us: u64) -> Result<(), Error> {
        let bundle = self.usable(id, flags)?;
        bundle.is_closed = true;
        bundle.used_us = now_us;
        Ok(())
    }

    /// Discards a bundle.
    pub fn discard(&mut self, id: u32) -> Result<(), Error> {
        match self.remove(id) {
            Some(_) => Ok(()),
            None => refuse(ErrorKind::BfcBadId, format!("there is no bundle {id}")),
        }
    }

    /// Adds a message to a bundle, which is opened if it does not exist.
    pub fn add(
        &mut self,
        id: u32,
        flags: u16,
        outer_xid: u32,
        framed: Framed,
        request: &[u8],
        now_us: u64,
    ) -> Result<(), Error> {
        if framed.xid != outer_xid {
            return refuse(ErrorKind::BfcMsgBadXid, format!("message {} in message {outer_xid}", framed.xid));
        }
        let is_kept = matches!(
            framed.message,
            Message::FlowMod(_)
                | Message::GroupMod(_)
                | Message::MeterMod(_)
                | Message::PortMod(_)
                | Message::PacketOut(_)
        );
        if !is_kept {
            return refuse(ErrorKind::BfcMsgUnsup, "bundles take flow, group, meter and port mods and packet-outs");
        }
        if !self.all.contains_key(&id) {
            self.open(id, flags, (outer_xid, request), now_us)?;
        }
        let (own, bytes) = (self.bytes, bytes_of(&framed));
        let bundle = self.usable(id, flags)?;
        if !bundle.charge.grow(bytes, own) {
            return Err(self.no_memory());
        }
        bundle.messages.push(Kept { framed, head: head(request) });
        bundle.used_us = now_us;
        self.bytes += bytes;
        Ok(())
    }

    fn no_memory(&self) -> Error {
        let (pool, own) = (&self.memory.bundles, self.bytes >> 20);
        let (used, max) = (pool.used() >> 20, pool.max() >> 20);
        let why = format!(
            "a bundle's message: the bundles of this connection take {own} MB of memory, those of all {used} MB of {max} MB, and none takes \
             more than the others leave free; commit what there is, or start the switch with a larger --state-memory"
        );
        self.memory.log(&why);
        Error::new(ErrorKind::BfcMsgTooMany, why)
    }

    /// Applies all messages of a bundle, or none. Its packet-outs are added to `waiting`, together with their
    /// memory charge, for the caller to send.
    pub fn commit(
        &mut self,
        bridge: &Bridge,
        connection: u64,
        id: u32,
        flags: u16,
        waiting: &mut Waiting,
    ) -> (Result<(), Error>, Option<Failed>) {
        let Some(bundle) = self.remove(id) else {
            return (refuse(ErrorKind::BfcBadId, format!("there is no bundle {id}")), None);
        };
        if bundle.flags != flags {
            return (refuse(ErrorKind::BfcBadFlags, format!("flags {flags:#x}, not {:#x}", bundle.flags)), None);
        }
        let mut steps = bundle.messages.iter().map(|kept| {
            let Framed { version, xid, message } = &kept.framed;
            let origin = Origin { connection: Some(connection), xid: *xid, version: *version };
            (origin, step(message, origin))
        });
        match bridge.change_atomically(&mut steps) {
            Ok(()) => {
                for kept in bundle.messages {
                    match kept.framed.message {
                        Message::PortMod(request) => {
                            if let Err(why) = bridge.configure_port(&request) {
                                tracing::warn!("port {}: {why}", request.port);
                            }
                        }
                        Message::PacketOut(packet) => waiting.packet_outs.push_back(packet),
                        _ => {}
                    }
                }
                waiting.charge = bundle.charge;
                (Ok(()), None)
            }
            Err((at, error)) => {
                let kept = &bundle.messages[at];
                let failed = (kept.framed.xid, kept.head.clone(), error);
                (refuse(ErrorKind::BfcMsgFailed, format!("message {} failed", kept.framed.xid)), Some(failed))
            }
        }
    }

    /// Discards bundles whose idle timeout has expired. Returns the xids and first bytes of the messages that
    /// opened them.
    pub fn expire(&mut self, now_us: u64) -> Vec<(u32, Vec<u8>)> {
        let is_over = |bundle: &Bundle| bundle.used_us + IDLE_US <= now_us;
        let ended: Vec<u32> = self.all.iter().filter(|(_, bundle)| is_over(bundle)).map(|(id, _)| *id).collect();
        ended.into_iter().filter_map(|id| self.remove(id)).map(|bundle| bundle.opened).collect()
    }

    /// The bundle with this id, if it is open and has these flags. Otherwise it is discarded.
    fn usable(&mut self, id: u32, flags: u16) -> Result<&mut Bundle, Error> {
        let problem = match self.all.get(&id) {
            None => Some(ErrorKind::BfcBadId),
            Some(bundle) if bundle.is_closed => Some(ErrorKind::BfcBundleClosed),
            Some(bundle) if bundle.flags != flags => Some(ErrorKind::BfcBadFlags),
            Some(_) => None,
        };
        if let Some(kind) = problem {
            self.remove(id);
            return refuse(kind, format!("bundle {id}"));
        }
        self.all.get_mut(&id).ok_or_else(|| Error::new(ErrorKind::BfcBadId, format!("bundle {id}")))
    }

    fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.all.remove(&id)?;
        self.bytes -= bundle.charge.bytes();
        Some(bundle)
    }
}

/// Bytes that a message takes in a bundle. The vector's capacity may be twice its length.
fn bytes_of(framed: &Framed) -> u64 {
    (2 * size_of::<Kept>() + ERROR_DATA + openflow::memory::message(&framed.message)) as u64
}

fn step(message: &Message, origin: Origin) -> Step<'_> {
    Box::new(move |plan| match message {
        Message::FlowMod(request) => Ok(plan.flow_mod(request, &origin)?.into_iter().map(Change::Flow).collect()),
        Message::GroupMod(request) => plan.group_mod(request),
        Message::MeterMod(request) => plan.meter_mod(request),
        Message::PortMod(request) => plan.port_mod(request),
        Message::PacketOut(packet) => plan.packet_out(packet).map(|()| Vec::new()),
        _ => refuse(ErrorKind::BfcMsgUnsup, "not a message of bundles"),
    })
}

fn head(request: &[u8]) -> Vec<u8> {
    request[..request.len().min(ERROR_DATA)].to_vec()
}

impl crate::flow_mod::Plan<'_> {
    /// Checks that a packet-out can be executed (1.3.5, 7.3.7).
    pub fn packet_out(&self, packet: &PacketOut) -> Result<(), Error> {
        use openflow::action::port;
        if packet.buffer != crate::flow_mod::NO_BUFFER {
            return refuse(ErrorKind::BrcBufferUnknown, "packets are not buffered");
        }
        match packet.in_port {
            1..port::MAX | port::CONTROLLER | port::LOCAL | port::ANY => {}
            other => return refuse(ErrorKind::BrcBadPort, format!("a packet cannot have come by port {other:#x}")),
        }
        self.admit.list(&self.tables, &packet.actions)
    }
}
