//! Asynchronous messages: from a connection's queue to the wire.

use super::{Connection, OUTPUT_MAX};
use crate::controllers::{Event, PacketInEvent, Update, packet_in_reason};
use crate::stats::{flow_entry, since};
use openflow::message::{Counts, FlowRemoved, FlowUpdate, PacketIn, Reply};
use openflow::{Message, Version};

/// Maximum number of flow monitor updates in a message.
const UPDATES: usize = 64;

impl Connection {
    /// Sends queued events while there is room.
    pub(super) fn drain(&mut self) {
        if self.endpoint.is_overrun() {
            self.close("it does not read what it is told");
            return;
        }
        let Some(version) = self.version() else { return };
        let mut updates: Vec<FlowUpdate> = Vec::new();
        let mut has_synced = false;
        while self.output.len() < OUTPUT_MAX {
            let Some(event) = self.endpoint.pop() else { break };
            if !matches!(event, Event::Update(_)) || updates.len() >= UPDATES {
                self.send_updates(version, &mut updates);
            }
            match event {
                Event::PacketIn(event) => {
                    let packet = self.packet_in(version, &event);
                    self.send(0, Message::PacketIn(Box::new(packet)));
                }
                Event::FlowRemoved { flow, reason, at_us } => {
                    if !has_synced {
                        self.bridge.host().sync_counts();
                        has_synced = true;
                    }
                    let (packets, bytes) = flow.usage.counts();
                    let removed = FlowRemoved {
                        matching: flow.matching.clone(),
                        priority: flow.priority,
                        cookie: flow.cookie,
                        table: flow.table,
                        reason,
                        duration: since(flow.created_us, at_us),
                        timeouts: crate::expiry::timeouts(&flow),
                        counts: Counts { packets, bytes },
                    };
                    self.send(0, Message::FlowRemoved(removed));
                }
                Event::Message(message) => self.send(0, *message),
                Event::Update(Update::Paused(is_paused)) => {
                    if version >= Version::V14 {
                        updates.push(FlowUpdate::Paused(is_paused));
                    } else {
                        self.send_updates(version, &mut updates);
                        let message = if is_paused { Message::FlowMonitorPaused } else { Message::FlowMonitorResumed };
                        self.send(0, message);
                    }
                }
                Event::Update(Update::Abbreviated(xid)) => updates.push(FlowUpdate::Abbreviated { xid }),
                Event::Update(Update::Full { event, reason, flow, has_instructions }) => {
                    let now_us = self.bridge.host().now_us();
                    updates.push(FlowUpdate::Full { event, reason, flow: flow_entry(&flow, now_us, has_instructions) });
                }
            }
        }
        self.send_updates(version, &mut updates);
        if self.output.len() < OUTPUT_MAX && self.endpoint.status().paused_us.is_some() && self.endpoint.is_idle() {
            self.bridge.resume_monitors(&self.endpoint);
        }
    }

    fn send_updates(&mut self, version: Version, updates: &mut Vec<FlowUpdate>) {
        if updates.is_empty() {
            return;
        }
        let reply = Reply::FlowMonitor(std::mem::take(updates));
        let formats = self.formats;
        if let Err(error) = self.write_reply(version, 0, reply, &formats) {
            tracing::debug!("{}: flow updates not sent: {error}", self.options.uri);
        }
    }

    /// The packet-in as this connection gets it.
    fn packet_in(&self, version: Version, event: &PacketInEvent) -> PacketIn {
        let mut packet = event.packet.clone();
        let max_len = if event.is_miss { self.endpoint.status().miss_send_len } else { event.max_len };
        // A paused packet must be sent whole, because the controller returns it.
        if packet.continuation.is_none() {
            packet.frame.truncate(usize::from(max_len));
        }
        let is_refined = matches!(
            packet.reason,
            packet_in_reason::ACTION_SET | packet_in_reason::GROUP | packet_in_reason::PACKET_OUT
        );
        if version < Version::V14 && is_refined {
            packet.reason = packet_in_reason::ACTION;
        }
        packet
    }
}
