//! The wire formats of messages in OpenFlow 1.0, 1.3, 1.4 and 1.5.
//!
//! [`read`] takes one whole message, whose length [`length`] tells from its header. [`write()`] appends one, and [`write_reply`]
//! the answer to a multipart request in as many messages as it needs. Both sides' messages are read and written.
//!
//! **Nothing that is received is trusted.** A reader never reads past the end of the structure that it is in, lengths are checked
//! where they are read, and memory is a small multiple of the input. Bytes that are left over at the end are an error. Padding is
//! ignored, as the specifications say.
//!
//! | file | holds |
//! | --- | --- |
//! | `bytes`, `result`, `props`, `v10` | integers; errors; property lists; what 1.0 numbers otherwise |
//! | `header` | type numbers and lengths |
//! | `top`, `experimenter`, `multipart` | which format goes by which type number, and messages split over several |
//! | `connection`, `bundle` | hello, errors, features, roles, asynchronous messages; bundles and forwarded requests |
//! | `flow`, `flow_stats`, `oxs`, `monitor` | flow mods and removals; flows' statistics and their TLVs; flow monitors |
//! | `packet` | packet-ins and packet-outs |
//! | `group`, `meter`, `table`, `port`, `queue` | what their names say |
//! | `oxm`, `number`, `match10` | TLVs of matches; how a field looks behind a number; 1.0's structure |
//! | `action`, `nicira`, `learn`, `operand`, `instruction` | actions; what they are made of; instructions |

pub(crate) mod action;
mod bundle;
pub(crate) mod bytes;
mod connection;
mod experimenter;
mod flow;
mod flow_stats;
mod group;
mod header;
pub(crate) mod instruction;
pub(crate) mod learn;
pub(crate) mod match10;
mod meter;
mod monitor;
mod multipart;
pub(crate) mod nicira;
pub(crate) mod number;
pub(crate) mod operand;
pub(crate) mod oxm;
mod oxs;
mod packet;
mod port;
mod props;
mod queue;
mod result;
mod table;
mod top;
mod v10;

pub(crate) use bytes::{Reader, Writer};
pub(crate) use result::{Result, fail, unencodable};

use crate::error::{Error, ErrorKind};
use crate::field::Fields;
use crate::message::{AsyncConfig, Framed, Message, Reply, Version};
use std::borrow::Cow;

/// Bytes of the header of every message.
pub const HEADER: usize = 8;

/// What a connection has agreed on: the state that formats depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Formats {
    /// [`Message::SetPacketInFormat`]: 0 as the version has packet-ins, 1 `NXT_PACKET_IN`, 2 `NXT_PACKET_IN2`.
    pub packet_in: u32,
    /// [`Message::SetFlowFormat`], for OpenFlow 1.0: 0 its own match structure, 2 NXM.
    pub flow: u32,
    /// [`Message::FlowModTableId`], for OpenFlow 1.0: the upper byte of a flow mod's command is its table.
    pub flow_mod_table_id: bool,
    /// Which asynchronous messages the controller gets: a [`Message::SetAsync`] that names some of them keeps the others.
    pub asynchronous: AsyncConfig,
}

/// [`Formats::flow`] and [`Message::SetFlowFormat`]: matches are NXM.
pub const FLOW_NXM: u32 = 2;

/// What all formats need to know.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    version: Version,
    fields: &'a Fields,
    formats: Formats,
}

impl Context<'_> {
    /// Whether flows go in Nicira's formats.
    fn is_nxm(&self) -> bool {
        self.version == Version::V10 && self.formats.flow == FLOW_NXM
    }
}

/// Why a message cannot be read, with what an answer needs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("OpenFlow {version:?} message {xid:#x}: {error}")]
pub struct ReadError {
    /// The version for the answer: the message's, or the nearest that there is.
    pub version: Version,
    /// The message's number.
    pub xid: u32,
    /// What is wrong with it.
    pub error: Error,
}

impl ReadError {
    /// The message that tells the sender: with all of the request, as far as it fits.
    pub fn answer(&self, request: &[u8]) -> Framed {
        let data = request[..request.len().min(connection::ERROR_DATA_MAX)].to_vec();
        Framed { version: self.version, xid: self.xid, message: Message::Error { kind: self.error.kind, data } }
    }
}

/// How long the message with this header is.
///
/// # Errors
/// If it claims to be shorter than its header: what follows cannot be told apart, so the connection is of no more use.
pub fn length(header: &[u8; HEADER]) -> std::result::Result<usize, Error> {
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len >= HEADER { Ok(len) } else { Err(Error::new(ErrorKind::BrcBadLen, format!("a message of {len} bytes"))) }
}

/// Reads one whole message, of a connection without agreed formats.
///
/// # Errors
/// If it is malformed, or asks for what is not known.
pub fn read(bytes: &[u8], fields: &Fields) -> std::result::Result<Framed, ReadError> {
    read_agreed(bytes, fields, &Formats::default())
}

/// Reads one whole message. Of the formats, [`Formats::flow_mod_table_id`] and [`Formats::asynchronous`] make a difference.
///
/// # Errors
/// If it is malformed, or asks for what is not known.
pub fn read_agreed(bytes: &[u8], fields: &Fields, formats: &Formats) -> std::result::Result<Framed, ReadError> {
    let xid = bytes.get(4..HEADER).map_or(0, |xid| u32::from_be_bytes([xid[0], xid[1], xid[2], xid[3]]));
    let version = bytes.first().map_or(Version::V10, |number| nearest(*number));
    top::read(bytes, fields, formats).map_err(|error| ReadError { version, xid, error })
}

/// The newest version that is not newer than this number.
fn nearest(number: u8) -> Version {
    Version::ALL.into_iter().rev().find(|version| *version as u8 <= number).unwrap_or(Version::V10)
}

/// Appends a message.
///
/// # Errors
/// If its version cannot say it, or if it does not fit in 64 KB. `out` is as it was then.
pub fn write(framed: &Framed, fields: &Fields, formats: &Formats, out: &mut Vec<u8>) -> std::result::Result<(), Error> {
    let start = out.len();
    let context = Context { version: framed.version, fields, formats: *formats };
    let done = top::write(context, framed.xid, &framed.message, out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

/// Appends a multipart reply in as many messages as it needs, all but the last with `OFPMPF_REPLY_MORE`. How many entries were left
/// out because they do not fit in a message alone.
///
/// # Errors
/// If the version cannot say it. `out` is as it was then.
pub fn write_reply(
    version: Version,
    xid: u32,
    reply: &Reply,
    fields: &Fields,
    formats: &Formats,
    out: &mut Vec<u8>,
) -> std::result::Result<usize, Error> {
    let start = out.len();
    let done = multipart::write_split(Context { version, fields, formats: *formats }, xid, reply, out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

/// The formats for the answer to this request: an OpenFlow 1.0 request for flows in Nicira's format wants them in that format,
/// whatever the connection's is.
pub fn reply_formats(request: &[u8], formats: &Formats) -> Formats {
    match multipart::is_nicira_flow(request) {
        Some(true) => Formats { flow: FLOW_NXM, ..*formats },
        Some(false) => Formats { flow: 0, ..*formats },
        None => *formats,
    }
}

/// The error for what a version does not have.
fn lacks(version: Version, what: &str) -> Error {
    Error::new(ErrorKind::BrcBadType, format!("OpenFlow {version:?} has no {what}"))
}

/// A text in `len` bytes, up to the first zero.
fn read_text(r: &mut Reader<'_>, len: usize) -> Result<String> {
    let bytes = r.bytes(len)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
    Ok(match String::from_utf8_lossy(&bytes[..end]) {
        Cow::Borrowed(text) => text.to_string(),
        // What is no UTF-8 becomes three bytes, for which the field may have no room with its zero.
        Cow::Owned(mut text) => {
            text.truncate(text.floor_char_boundary(len.saturating_sub(1)));
            text
        }
    })
}
