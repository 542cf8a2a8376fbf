//! Handling of a controller's messages.

use super::Connection;
use crate::controllers::{Status, packet_in_reason};
use crate::features;
use crate::flow_mod::Origin;
use openflow::message::{AsyncConfig, BundleControl, Framed, Request, Role, SwitchConfig};
use openflow::wire::FLOW_NXM;
use openflow::{Error, ErrorKind, Message, Version};

/// `OFPC_FRAG_` bits.
const FRAGMENTS: u16 = 0b11;
/// `OFPC_FRAG_REASM`.
const REASSEMBLE: u16 = 0b10;
/// `OFPC_INVALID_TTL_TO_CONTROLLER` (1.1 and 1.2, and Nicira's in 1.0).
const INVALID_TTL: u16 = 0b100;
/// `OFPRFR_GROUP_MOD`.
const FORWARD_GROUP: u8 = 0;
/// `OFPRFR_METER_MOD`.
const FORWARD_METER: u8 = 1;
/// Reasons of packet-ins that 1.4 has split off from [`packet_in_reason::ACTION`].
const REFINED: u32 =
    1 << packet_in_reason::ACTION_SET | 1 << packet_in_reason::GROUP | 1 << packet_in_reason::PACKET_OUT;

/// Changes per connection that are remembered until they are stored, for a later error. Bounds the memory of a peer
/// that sends no barriers.
const UNKEPT_MAX: usize = 1024;
/// Bytes of each that are remembered.
const UNKEPT_BYTES: usize = 64;

impl Connection {
    /// Processes a message; `bytes` is its wire format.
    pub(super) fn request(&mut self, version: Version, framed: Framed, bytes: &[u8]) -> Result<(), Error> {
        let xid = framed.xid;
        let origin = Origin { connection: Some(self.endpoint.id), xid, version };
        if changes(&framed.message) && self.endpoint.status().role == Role::Slave {
            return Err(Error::new(ErrorKind::BrcIsSlave, "a slave changes nothing"));
        }
        let is_packet = matches!(framed.message, Message::PacketOut(_) | Message::Resume(_));
        if changes(&framed.message) && !is_packet || matches!(framed.message, Message::SetConfig(_)) {
            self.bridge.check_keeper()?;
            if self.bridge.is_keeper_behind() {
                self.wait_kept()?;
            }
            if self.bridge.is_kept() && self.unkept.len() < UNKEPT_MAX {
                self.unkept.push((xid, bytes[..bytes.len().min(UNKEPT_BYTES)].to_vec()));
            }
        }
        match framed.message {
            // A late hello changes nothing (1.3.5, 6.3.1).
            Message::Hello { .. } | Message::EchoReply(_) => {}
            Message::Error { kind, .. } => tracing::debug!("{}: sent error {kind}", self.options.uri),
            Message::EchoRequest(data) => self.send(xid, Message::EchoReply(data)),
            Message::BarrierRequest => {
                self.wait_kept()?;
                self.send(xid, Message::BarrierReply);
            }
            Message::FeaturesRequest => {
                let features = features::features(self.bridge.options.datapath, &self.bridge.tables(), version);
                self.send(xid, Message::FeaturesReply(features));
            }
            Message::GetConfigRequest => {
                let config = self.config(version);
                self.send(xid, Message::GetConfigReply(config));
            }
            Message::SetConfig(config) => self.set_config(config, version)?,
            Message::PacketOut(packet) => {
                {
                    let state = self.bridge.state();
                    let tables = self.bridge.tables();
                    self.bridge
                        .plan(crate::view::View::of(&tables), &state, &crate::view::Visits::default(), 0)
                        .packet_out(&packet)?;
                }
                self.waiting.packet_outs.push_back(packet);
                self.waiting.send(&self.bridge, self.endpoint.id);
            }
            Message::Resume(packet) => {
                let continuation = packet.continuation.unwrap_or_default();
                let start = self.bridge.pending.resume(self.endpoint.id, &continuation, &packet.fields);
                let start =
                    start.ok_or_else(|| Error::new(ErrorKind::NxrStale, "the packet does not wait any more"))?;
                let in_port = self.bridge.fields().named("in_port").and_then(|field| packet.fields.term(field));
                let in_port = in_port.map_or(0, |term| term.value as u32);
                let resumed = self.waiting.resume(&self.bridge, self.endpoint.id, (packet.frame, in_port, start));
                resumed.map_err(|why| Error::new(ErrorKind::NxrStale, why))?;
            }
            Message::FlowMod(request) => self.bridge.flow_mod(&request, &origin)?,
            Message::GroupMod(ref request) => {
                self.bridge.group_mod(request, &origin)?;
                self.bridge.forward(self.endpoint.id, FORWARD_GROUP, &framed);
            }
            Message::MeterMod(ref request) => {
                self.bridge.meter_mod(request, &origin)?;
                self.bridge.forward(self.endpoint.id, FORWARD_METER, &framed);
            }
            Message::PortMod(request) => self.bridge.port_mod(&request, &origin)?,
            Message::TableMod { table, config, vacancy } => self.bridge.table_mod(table, config, vacancy, &origin)?,
            Message::Multipart(request) => {
                let answer = self.bridge.multipart(&self.endpoint, request, version)?;
                // A failure is ignored: clients query the switch before they change anything.
                let _ = self.wait_kept();
                self.answer(version, xid, bytes, answer)?;
            }
            Message::RoleRequest(request) => {
                let reply = self.bridge.role(&self.endpoint, &request)?;
                self.send(xid, Message::RoleReply(reply));
            }
            Message::GetAsyncRequest => {
                let config = self.asynchronous(version);
                self.send(xid, Message::GetAsyncReply(config));
            }
            Message::SetAsync(config) => self.set_asynchronous(config, version),
            Message::QueueGetConfigRequest { port } => {
                let queues = self.bridge.queues(port, u32::MAX)?;
                self.send(xid, Message::QueueGetConfigReply { port, queues });
            }
            Message::BundleControl { bundle, kind, flags } => self.bundle(xid, bundle, kind, flags, bytes)?,
            Message::BundleAdd { bundle, flags, message } => {
                if message.version != version {
                    return Err(Error::new(ErrorKind::BfcBadVersion, "a bundle's message has another version"));
                }
                self.bundles.add(bundle, flags, xid, *message, bytes, self.bridge.host().now_us())?;
            }
            Message::SetPacketInFormat(format) if format <= 2 => self.formats.packet_in = format,
            Message::SetPacketInFormat(format) => {
                return Err(Error::new(ErrorKind::BrcEperm, format!("there is no packet-in format {format}")));
            }
            Message::SetFlowFormat(format) if format == 0 || format == FLOW_NXM => self.formats.flow = format,
            Message::SetFlowFormat(format) => {
                return Err(Error::new(ErrorKind::BrcEperm, format!("there is no flow format {format}")));
            }
            Message::FlowModTableId(on) => self.formats.flow_mod_table_id = on,
            Message::SetControllerId(id) => self.endpoint.status().controller = id,
            Message::FlowMonitorCancel(id) => {
                if self.endpoint.status().monitors.remove(&id).is_none() {
                    return Err(Error::new(ErrorKind::MofcUnknownMonitor, format!("there is no monitor {id}")));
                }
            }
            Message::TlvTable => {
                return Err(Error::new(
                    ErrorKind::BrcBadType,
                    "tunnel metadata is not mapped: a program declares its fields",
                ));
            }
            Message::Experimenter { experimenter, kind, .. } => {
                let why = format!("experimenter {experimenter:#x}, type {kind}");
                return Err(Error::new(ErrorKind::BrcBadExperimenter, why));
            }
            // Only a switch sends these.
            Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(_)
            | Message::FlowRemoved(_)
            | Message::PortStatus { .. }
            | Message::MultipartReply { .. }
            | Message::BarrierReply
            | Message::RoleReply(_)
            | Message::RoleStatus { .. }
            | Message::GetAsyncReply(_)
            | Message::QueueGetConfigReply { .. }
            | Message::Requestforward(_)
            | Message::TableStatus { .. }
            | Message::ControllerStatus(_)
            | Message::FlowMonitorPaused
            | Message::FlowMonitorResumed => {
                return Err(Error::new(ErrorKind::BrcBadType, "only a switch sends this"));
            }
        }
        Ok(())
    }

    /// Waits until all changes so far are stored. On failure, an error is sent for each change of this connection
    /// that is remembered: `ovs-ofctl` does not look at any other message.
    fn wait_kept(&mut self) -> Result<(), Error> {
        let done = self.bridge.wait_kept();
        for (xid, head) in std::mem::take(&mut self.unkept) {
            if let Err(error) = &done {
                self.send_error(xid, error.kind, &head);
            }
        }
        done
    }

    fn config(&self, version: Version) -> SwitchConfig {
        let status = self.endpoint.status();
        let mut flags = self.bridge.tables().fragments();
        if version == Version::V10 && sends_invalid_ttl(&status) {
            flags |= INVALID_TTL;
        }
        SwitchConfig { flags, miss_send_len: status.miss_send_len }
    }

    /// Sets the fragment handling of the bridge, unless this is a slave, and the connection's own settings.
    fn set_config(&mut self, config: SwitchConfig, version: Version) -> Result<(), Error> {
        let known = FRAGMENTS | if version == Version::V10 { INVALID_TTL } else { 0 };
        if config.flags & !known != 0 || config.flags & FRAGMENTS == REASSEMBLE {
            return Err(Error::new(ErrorKind::ScfcBadFlags, format!("flags {:#x}", config.flags)));
        }
        let mut status = self.endpoint.status();
        let is_slave = status.role == Role::Slave;
        status.miss_send_len = config.miss_send_len;
        let wants_ttl = config.flags & INVALID_TTL != 0;
        if version == Version::V10 && wants_ttl != sends_invalid_ttl(&status) {
            let mut masks = status.asynchronous();
            masks.packet_in[0] ^= 1 << packet_in_reason::INVALID_TTL;
            status.asynchronous = Some(masks);
        }
        drop(status);
        if !is_slave {
            self.bridge.set_fragments(config.flags & FRAGMENTS);
        }
        self.bridge.connections_changed();
        Ok(())
    }

    fn asynchronous(&self, version: Version) -> AsyncConfig {
        let mut config = self.endpoint.status().asynchronous();
        if version < Version::V14 {
            config.packet_in = config.packet_in.map(|mask| mask & !REFINED);
        }
        config
    }

    fn set_asynchronous(&mut self, mut config: AsyncConfig, version: Version) {
        if version < Version::V14 {
            let refine = |mask: u32| if mask >> packet_in_reason::ACTION & 1 == 1 { mask | REFINED } else { mask };
            config.packet_in = config.packet_in.map(refine);
        }
        let mut status = self.endpoint.status();
        if version < Version::V14 {
            // 1.3 has three types of asynchronous messages; the others are unchanged.
            let before = status.asynchronous();
            config = AsyncConfig {
                packet_in: config.packet_in,
                port_status: config.port_status,
                flow_removed: config.flow_removed,
                ..before
            };
        }
        status.asynchronous = Some(config);
        drop(status);
        self.bridge.connections_changed();
    }

    fn bundle(&mut self, xid: u32, id: u32, kind: BundleControl, flags: u16, bytes: &[u8]) -> Result<(), Error> {
        let now_us = self.bridge.host().now_us();
        let reply = match kind {
            BundleControl::OpenRequest => {
                self.bundles.open(id, flags, (xid, bytes), now_us)?;
                BundleControl::OpenReply
            }
            BundleControl::CloseRequest => {
                self.bundles.close(id, flags, now_us)?;
                BundleControl::CloseReply
            }
            BundleControl::CommitRequest => {
                let (result, failed) =
                    self.bundles.commit(&self.bridge, self.endpoint.id, id, flags, &mut self.waiting);
                self.waiting.send(&self.bridge, self.endpoint.id);
                if let Some((xid, head, error)) = failed {
                    tracing::debug!("{}: in bundle {id}: {error}", self.options.uri);
                    self.send_error(xid, error.kind, &head);
                }
                result?;
                self.wait_kept()?;
                // Events of the commit for this connection are sent before the reply.
                self.drain();
                BundleControl::CommitReply
            }
            BundleControl::DiscardRequest => {
                self.bundles.discard(id)?;
                BundleControl::DiscardReply
            }
            BundleControl::OpenReply
            | BundleControl::CloseReply
            | BundleControl::CommitReply
            | BundleControl::DiscardReply => {
                return Err(Error::new(ErrorKind::BfcBadType, "only a switch sends this"));
            }
        };
        self.send(xid, Message::BundleControl { bundle: id, kind: reply, flags: 0 });
        Ok(())
    }
}

fn sends_invalid_ttl(status: &Status) -> bool {
    status.asynchronous().packet_in[0] >> packet_in_reason::INVALID_TTL & 1 == 1
}

/// Whether slaves may not send a message (1.3.5, 6.3.6).
fn changes(message: &Message) -> bool {
    match message {
        Message::PacketOut(_)
        | Message::Resume(_)
        | Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::MeterMod(_)
        | Message::PortMod(_)
        | Message::TableMod { .. }
        | Message::BundleControl { .. }
        | Message::BundleAdd { .. } => true,
        Message::Multipart(Request::TableFeatures(new)) => !new.is_empty(),
        _ => false,
    }
}
