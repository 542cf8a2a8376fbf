//! Packets between controller and data plane (P4Runtime specification, "Packet I/O").
//!
//! On the controller's port a frame starts with the program's `@controller_header`; in P4Runtime messages, its fields
//! are metadata with ids. A program without such a header exchanges plain frames without metadata.

use crate::error::{Error, Result, choices};
use crate::forwarding::Forwarding;
use crate::schema::{ParamSchema, ValueType};
use base::Bits;

/// A packet-in or packet-out with its metadata.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// The frame without the controller header.
    pub payload: Vec<u8>,
    /// Metadata ids and values.
    pub metadata: Vec<(u32, Vec<u8>)>,
}

/// Name of the header of packets to the controller.
const PACKET_IN: &str = "packet_in";
/// Name of the header of packets from the controller.
const PACKET_OUT: &str = "packet_out";

impl Forwarding {
    /// The fields of a controller header in wire order.
    fn header_fields(&self, name: &str) -> Option<Vec<ParamSchema>> {
        let headers = &self.schema.info.controller_packet_metadata;
        let header = headers.iter().find(|h| h.preamble.name == name)?;
        let program = self.schema.program.controller_headers.iter().find(|h| h.name == name);
        let fields = header.metadata.iter().enumerate().map(|(i, field)| {
            let width = program.and_then(|h| h.fields.get(i)).map(|(_, width)| *width);
            let value = ValueType::for_param(field, &self.schema, width);
            ParamSchema { id: field.id, name: field.name.clone(), value }
        });
        Some(fields.collect())
    }

    /// Splits a frame into controller header and payload; `None` if the frame is shorter than the header.
    pub(crate) fn packet_in(&self, frame: &[u8]) -> Option<Packet> {
        let Some(fields) = self.header_fields(PACKET_IN) else {
            return Some(Packet { payload: frame.to_vec(), metadata: vec![] });
        };
        let bits: u32 = fields.iter().map(|f| f.value.width).sum();
        let bytes = bits.div_ceil(8) as usize;
        let header = Bits::from_bytes_be(bytes as u32 * 8, frame.get(..bytes)?);
        let mut below = bytes as u32 * 8;
        let metadata = fields.iter().map(|field| {
            below -= field.value.width;
            (field.id, field.value.encode(&header.lshr(u64::from(below)).resize_u(field.value.width)))
        });
        Some(Packet { metadata: metadata.collect(), payload: frame[bytes..].to_vec() })
    }

    /// Prepends the controller header to a packet and sends it through the program.
    pub(crate) fn packet_out(&self, packet: &Packet) -> Result<()> {
        let cpu_port = self.cpu_port().ok_or_else(|| {
            Error::precondition("the switch has no port for the controller, so packets cannot be sent from it")
        })?;
        let fields = self.header_fields(PACKET_OUT).unwrap_or_default();
        for (id, _) in &packet.metadata {
            if !fields.iter().any(|f| f.id == *id) {
                let names = choices(fields.iter().map(|f| f.name.as_str()));
                return Err(Error::invalid(format!("packet-out metadata has no field {id}; there is {names}")));
            }
        }
        let mut header = Bits::zero(0);
        for field in &fields {
            let what = format!("packet-out metadata `{}`", field.name);
            let mut given = packet.metadata.iter().filter(|(id, _)| *id == field.id);
            let value = match (given.next(), given.next()) {
                (Some((_, value)), None) => field.value.decode(value, &what).map_err(|e| Error::invalid(e.message))?,
                (None, _) => return Err(Error::invalid(format!("{what} is missing"))),
                (Some(_), Some(_)) => return Err(Error::invalid(format!("{what} is given twice"))),
            };
            header = header.concat(&value);
        }
        // Headers are whole bytes in P4; a shorter one is padded with zeros at its end.
        let padding = header.width().div_ceil(8) * 8 - header.width();
        let mut frame = header.concat(&Bits::zero(padding)).to_bytes_be();
        let (bytes, max) = (frame.len() + packet.payload.len(), self.target.frame_bytes_max());
        if bytes > max {
            let with = if frame.is_empty() { "" } else { " with its controller header" };
            return Err(Error::invalid(format!("the packet has {bytes} bytes{with}, the limit is {max}")));
        }
        frame.extend(&packet.payload);
        self.target.inject(cpu_port, frame).map_err(Error::exhausted)
    }
}
