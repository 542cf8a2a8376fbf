//! Outputs: to ports, to controllers, and through the MAC table.

use super::Translator;
use super::frames::Place;
use crate::controllers::packet_in_reason;
use crate::effects::{Effect, PacketInfo};
use crate::normal::is_multicast;
use crate::pending::Pending;
use crate::ports::config;
use crate::recent::Dependence;
use openflow::FieldId;
use openflow::action::{Controller, port};
use std::sync::Arc;

/// OXM numbers of fields (OpenFlow 1.3.5, 7.2.3.7).
const ETH_DST: u8 = 3;
const ETH_SRC: u8 = 4;
const VLAN_VID: u8 = 6;
/// The bridge group address of the spanning tree protocol (IEEE 802.1D, 7.12.3).
const STP_ADDRESS: u128 = 0x0180_c200_0000;

impl Translator<'_> {
    fn basic(&mut self, number: u8) -> Option<u128> {
        let field = self.layout.fields().basic(number)?;
        let layout = self.layout;
        Some(self.state.read(layout.place(field)))
    }

    fn in_port(&mut self) -> u32 {
        let place = self.layout.in_port();
        self.state.read(place) as u32
    }

    /// Whether the packet is accepted: by its port's configuration, and by the bridge's fragment handling.
    pub(super) fn receives(&mut self) -> bool {
        self.depend(Dependence::Ports);
        let in_port = self.in_port();
        let Some(tables) = &self.tables else { return false };
        let bits = tables.ports().get(in_port).map_or(0, |port| port.config);
        if self.drops_fragment() {
            return false;
        }
        if bits & (config::NO_RECV | config::NO_RECV_STP) == 0 {
            return true;
        }
        let is_stp = self.basic(ETH_DST) == Some(STP_ADDRESS);
        let refused = if is_stp { config::NO_RECV_STP } else { config::NO_RECV };
        let takes = bits & refused == 0;
        if !takes {
            self.note(|| format!("port {in_port} receives nothing"));
        }
        takes
    }

    /// Outputs to a port, which may be a reserved one.
    pub(super) fn output(&mut self, to: u32, controller_len: u16, max_len: u32, queue: u32, place: &Place) {
        match to {
            port::IN_PORT => {
                let in_port = self.in_port();
                self.send(in_port, max_len, queue);
            }
            port::TABLE => self.search(0, None, true, place.clone()),
            port::NORMAL => self.normal(max_len, queue),
            port::FLOOD => self.flood(max_len, queue, config::NO_FLOOD),
            port::ALL => self.flood(max_len, queue, 0),
            port::CONTROLLER => {
                let what = Controller {
                    max_len: controller_len,
                    id: 0,
                    reason: self.reason(place),
                    userdata: Vec::new(),
                    pause: false,
                    meter: None,
                };
                self.capture(&what, false, place, None);
            }
            port::ANY => {}
            to => {
                if to == self.in_port() {
                    self.note(|| format!("port {to} is the one by which it came"));
                } else {
                    self.send(to, max_len, queue);
                }
            }
        }
    }

    /// The reason of a packet-in. Packets of a table-miss flow get `OFPR_TABLE_MISS` (OpenFlow 1.3.5, 7.4.1).
    fn reason(&self, place: &Place) -> u8 {
        let is_miss = |flow: &crate::flow::Flow| flow.priority == 0 && flow.matching.terms().is_empty();
        match &place.flow {
            Some(flow) if place.reason == packet_in_reason::ACTION && is_miss(&flow.0) => packet_in_reason::TABLE_MISS,
            _ => place.reason,
        }
    }

    fn send(&mut self, to: u32, max_len: u32, queue: u32) {
        if !self.work_on(1) {
            return;
        }
        self.depend(Dependence::Ports);
        let Some(tables) = &self.tables else { return };
        let Some(port) = tables.ports().get(to) else {
            return self.note(|| format!("there is no port {to}"));
        };
        if port.config & (config::NO_FWD | config::PORT_DOWN) != 0 {
            return self.note(|| format!("port {to} sends nothing"));
        }
        self.note(|| format!("to port {to}"));
        let is_modified = self.state.is_modified();
        // Queue numbers that are too large select the first queue.
        let queue = u8::try_from(queue).unwrap_or(0);
        self.state.effects.push(Effect::Output { port: to, queue, max_len, is_modified, is_last: false });
    }

    /// Outputs to all ports that have none of the `without` bits, except the input port.
    fn flood(&mut self, max_len: u32, queue: u32, without: u32) {
        self.depend(Dependence::Ports);
        let in_port = self.in_port();
        let Some(tables) = &self.tables else { return };
        let ports = tables.ports().iter().filter(|port| port.number != in_port && port.config & without == 0);
        let ports: Vec<u32> = ports.map(|port| port.number).collect();
        ports.into_iter().for_each(|port| self.send(port, max_len, queue));
    }

    /// Forwards as a learning switch.
    fn normal(&mut self, max_len: u32, queue: u32) {
        let (Some(dst), Some(src)) = (self.basic(ETH_DST), self.basic(ETH_SRC)) else {
            return self.fail("NORMAL needs Ethernet addresses, which the program has not");
        };
        let (dst, src) = (dst as u64, src as u64);
        // Bit 12 of `vlan_vid` is set if there is a tag.
        let vlan = (self.basic(VLAN_VID).unwrap_or(0) & 0xfff) as u16;
        let in_port = self.in_port();
        self.would_learn |= !is_multicast(src);
        if self.learns && !is_multicast(src) {
            let now_us = self.subject.now_us;
            let station = self.shared.stations.learn(vlan, src, in_port, now_us);
            self.stations.push(station);
        }
        self.depend(Dependence::Stations);
        let known = if is_multicast(dst) { None } else { self.shared.stations.find(vlan, dst) };
        match known {
            Some(to) if to == in_port => self.note(|| "its receiver is where it came from".to_string()),
            Some(to) => self.send(to, max_len, queue),
            None => self.flood(max_len, queue, config::NO_FLOOD),
        }
    }

    /// Handles a table miss without a flow: OpenFlow 1.0 controllers get the packet.
    pub(super) fn miss(&mut self, table: u8) {
        let what = Controller {
            max_len: 0xffff,
            id: 0,
            reason: packet_in_reason::TABLE_MISS,
            userdata: Vec::new(),
            pause: false,
            meter: None,
        };
        self.capture(&what, true, &Place { table, ..Place::default() }, None);
    }

    /// Nicira's `controller` action.
    pub(super) fn controller(&mut self, controller: &Controller, place: &Place) {
        if !controller.pause {
            return self.capture(controller, false, place, None);
        }
        let is_modified = self.state.is_modified();
        if let Some((start, frozen)) = self.keep_rest(None) {
            self.capture_as(controller, false, place, Some((start, frozen)), is_modified);
        }
    }

    /// Sends the packet to controllers.
    pub(super) fn capture(
        &mut self,
        controller: &Controller,
        is_miss: bool,
        place: &Place,
        rest: Option<(u64, Arc<super::Frozen>)>,
    ) {
        let is_modified = self.state.is_modified();
        self.capture_as(controller, is_miss, place, rest, is_modified);
    }

    fn capture_as(
        &mut self,
        controller: &Controller,
        is_miss: bool,
        place: &Place,
        rest: Option<(u64, Arc<super::Frozen>)>,
        is_modified: bool,
    ) {
        self.note(|| format!("to controllers of id {}, reason {}", controller.id, controller.reason));
        let (start, held) = rest.map_or((None, None), |(start, held)| (Some(start), Some(held)));
        let what = Arc::new(PacketInfo {
            controller: controller.id,
            max_len: controller.max_len,
            reason: controller.reason,
            is_miss,
            table: place.table,
            cookie: place.flow.as_ref().map_or(u64::MAX, |flow| flow.0.cookie),
            userdata: controller.userdata.clone(),
            continuation: start.map(Pending::continuation),
        });
        // A meter for packet-ins drops only this copy.
        let metered = controller.meter.or(Some(openflow::message::meter::CONTROLLER));
        self.depend(Dependence::Meters);
        let meter = self.tables.as_ref().and_then(|tables| tables.meter(metered?)).cloned();
        if let Some(meter) = meter {
            self.state.effects.push(Effect::Meter { meter, skip: 1 });
        }
        self.state.effects.push(Effect::Capture { what, is_modified, is_last: false, _held: held });
    }

    /// Reads and consults a field, if it is present.
    pub(super) fn field(&mut self, field: FieldId) -> Option<u128> {
        if !self.is_present(field) {
            return None;
        }
        let layout = self.layout;
        Some(self.state.read(layout.place(field)))
    }
}
