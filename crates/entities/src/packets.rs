//! Packet-ins as words and JSON (P4Runtime specification, "Packet I/O").

use crate::names::{Names, name_of};
use crate::text::{Holds, value_json, value_text};
use messages::p4::v1 as pb;
use serde_json::{Value, json};

/// The P4Info's name for the header of packets to the controller.
const PACKET_IN: &str = "packet_in";

impl Names {
    fn packet_field(&self, id: u32) -> (String, Holds) {
        let headers = &self.info.controller_packet_metadata;
        let header = headers.iter().find(|header| name_of(&header.preamble) == PACKET_IN);
        let field = header.and_then(|header| header.metadata.iter().find(|field| field.id == id));
        match field {
            Some(field) => (field.name.clone(), self.holds(field.bitwidth, field.type_name.as_ref())),
            None => (format!("field_{id}"), Holds::Bits(0)),
        }
    }

    /// The metadata fields of a packet-in: names and values as words.
    pub fn packet_fields(&self, packet: &pb::PacketIn) -> Vec<(String, String)> {
        let field = |given: &pb::PacketMetadata| {
            let (name, holds) = self.packet_field(given.metadata_id);
            (name, value_text(&given.value, holds))
        };
        packet.metadata.iter().map(field).collect()
    }

    /// A packet-in as a JSON object; the frame is in hexadecimal.
    pub fn packet_json(&self, packet: &pb::PacketIn) -> Value {
        let field = |given: &pb::PacketMetadata| {
            let (name, holds) = self.packet_field(given.metadata_id);
            (name, value_json(&given.value, holds))
        };
        let fields: serde_json::Map<String, Value> = packet.metadata.iter().map(field).collect();
        json!({ "metadata": fields, "payload": hex::encode(&packet.payload) })
    }
}
