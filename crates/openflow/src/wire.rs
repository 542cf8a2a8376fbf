//! The wire formats of OpenFlow 1.0, 1.3, 1.4 and 1.5.
//!
//! [`read`] decodes one whole message; [`length`] gives its length from the header. [`write()`] appends one message,
//! [`write_reply`] a multipart reply as several messages if needed. Messages of both controller and switch are decoded
//! and encoded.
//!
//! **All input is untrusted.** A reader never reads past the end of its structure, lengths are checked where they are
//! read, and the memory used is a small multiple of the input. Trailing bytes are an error. Padding is ignored, as the
//! specifications require.
//!
//! | file | holds |
//! | --- | --- |
//! | `bytes`, `result`, `props`, `v10` | integers; errors; property lists; 1.0's different numbers |
//! | `header` | header, message types |
//! | `top`, `experimenter`, `multipart` | message types and experimenter types to formats; multipart messages |
//! | `connection`, `bundle` | hello, errors, features, roles, asynchronous messages; bundles and forwarded requests |
//! | `flow`, `flow_stats`, `oxs`, `monitor` | flow mods and removals; flow statistics and their TLVs; flow monitors |
//! | `packet` | packet-ins and packet-outs |
//! | `group`, `meter`, `table`, `port`, `queue` | mods, descriptions and statistics of each |
//! | `oxm`, `number`, `match10` | match TLVs; encoding of a field under each number; 1.0's match structure |
//! | `action`, `nicira`, `learn`, `operand`, `instruction` | actions, their operands, instructions |

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

/// The length of the header of every message, in bytes.
pub const HEADER: usize = 8;

/// The formats that a connection has negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Formats {
    /// [`Message::SetPacketInFormat`]: 0 the version's own packet-ins, 1 `NXT_PACKET_IN`, 2 `NXT_PACKET_IN2`.
    pub packet_in: u32,
    /// [`Message::SetFlowFormat`], for OpenFlow 1.0: 0 its own match structure, 2 NXM.
    pub flow: u32,
    /// [`Message::FlowModTableId`], for OpenFlow 1.0: the upper byte of a flow mod's command is its table id.
    pub flow_mod_table_id: bool,
    /// The asynchronous messages that the controller receives: a [`Message::SetAsync`] that sets only some kinds keeps
    /// the others.
    pub asynchronous: AsyncConfig,
}

/// The value of [`Formats::flow`] and [`Message::SetFlowFormat`] for matches in NXM.
pub const FLOW_NXM: u32 = 2;

/// What decoding and encoding depend on.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    version: Version,
    fields: &'a Fields,
    formats: Formats,
}

impl Context<'_> {
    /// Whether flows use Nicira's formats.
    fn is_nxm(&self) -> bool {
        self.version == Version::V10 && self.formats.flow == FLOW_NXM
    }
}

/// Why a message cannot be decoded, with what the error message needs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("OpenFlow {version:?} message {xid:#x}: {error}")]
pub struct ReadError {
    /// The version of the error message: the request's, or the nearest supported one.
    pub version: Version,
    /// The request's transaction id.
    pub xid: u32,
    /// What is wrong with it.
    pub error: Error,
}

impl ReadError {
    /// The error message for the sender, with as much of the request as fits.
    pub fn answer(&self, request: &[u8]) -> Framed {
        let data = request[..request.len().min(connection::ERROR_DATA_MAX)].to_vec();
        Framed { version: self.version, xid: self.xid, message: Message::Error { kind: self.error.kind, data } }
    }
}

/// The length of the message with this header, in bytes.
///
/// # Errors
/// If the length is less than the header's: message boundaries are then lost, and the connection must be closed.
pub fn length(header: &[u8; HEADER]) -> std::result::Result<usize, Error> {
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len >= HEADER { Ok(len) } else { Err(Error::new(ErrorKind::BrcBadLen, format!("a message of {len} bytes"))) }
}

/// Decodes one whole message of a connection that has negotiated no formats.
///
/// # Errors
/// If it is malformed or has unknown types or values.
pub fn read(bytes: &[u8], fields: &Fields) -> std::result::Result<Framed, ReadError> {
    read_agreed(bytes, fields, &Formats::default())
}

/// Decodes one whole message. Of `formats`, [`Formats::flow_mod_table_id`] and [`Formats::asynchronous`] matter.
///
/// # Errors
/// If it is malformed or has unknown types or values.
pub fn read_agreed(bytes: &[u8], fields: &Fields, formats: &Formats) -> std::result::Result<Framed, ReadError> {
    let xid = bytes.get(4..HEADER).map_or(0, |xid| u32::from_be_bytes([xid[0], xid[1], xid[2], xid[3]]));
    let version = bytes.first().map_or(Version::V10, |number| nearest(*number));
    top::read(bytes, fields, formats).map_err(|error| ReadError { version, xid, error })
}

/// The newest version that is not newer than `number`, or the oldest version.
fn nearest(number: u8) -> Version {
    Version::ALL.into_iter().rev().find(|version| *version as u8 <= number).unwrap_or(Version::V10)
}

/// Appends the encoding of a message to `out`.
///
/// # Errors
/// If the version cannot express it, or if it exceeds 64 KB. `out` is then unchanged.
pub fn write(framed: &Framed, fields: &Fields, formats: &Formats, out: &mut Vec<u8>) -> std::result::Result<(), Error> {
    let start = out.len();
    let context = Context { version: framed.version, fields, formats: *formats };
    let done = top::write(context, framed.xid, &framed.message, out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

/// Appends a multipart reply in as many messages as needed, all but the last with `OFPMPF_REPLY_MORE`. Returns the
/// number of entries that were left out because they exceed a message on their own.
///
/// # Errors
/// If the version cannot express it. `out` is then unchanged.
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

/// The formats of the reply to this request: flow statistics of OpenFlow 1.0 are in Nicira's format if the request is,
/// whatever the connection has negotiated.
pub fn reply_formats(request: &[u8], formats: &Formats) -> Formats {
    match multipart::is_nicira_flow(request) {
        Some(true) => Formats { flow: FLOW_NXM, ..*formats },
        Some(false) => Formats { flow: 0, ..*formats },
        None => *formats,
    }
}

/// The error for a message that a version lacks.
fn lacks(version: Version, what: &str) -> Error {
    Error::new(ErrorKind::BrcBadType, format!("OpenFlow {version:?} has no {what}"))
}

/// A text of at most `len` bytes, which ends at the first zero.
fn read_text(r: &mut Reader<'_>, len: usize) -> Result<String> {
    let bytes = r.bytes(len)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
    Ok(match String::from_utf8_lossy(&bytes[..end]) {
        Cow::Borrowed(text) => text.to_string(),
        // An invalid UTF-8 sequence becomes three bytes, which may exceed the room for text and final zero.
        Cow::Owned(mut text) => {
            text.truncate(text.floor_char_boundary(len.saturating_sub(1)));
            text
        }
    })
}
