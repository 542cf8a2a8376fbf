//! The header of all messages: message types of each version, and lengths.
//!
//! OpenFlow 1.0, 5.1; 1.3.5, 7.1; 1.4.1, 7.1.1; 1.5.1, 7.1.1. Types are named after the newest version's numbers.

use super::{Result, Writer};
use crate::message::Version;

pub(super) const HELLO: u8 = 0;
pub(super) const ERROR: u8 = 1;
pub(super) const ECHO_REQUEST: u8 = 2;
pub(super) const ECHO_REPLY: u8 = 3;
pub(super) const EXPERIMENTER: u8 = 4;
pub(super) const FEATURES_REQUEST: u8 = 5;
pub(super) const FEATURES_REPLY: u8 = 6;
pub(super) const GET_CONFIG_REQUEST: u8 = 7;
pub(super) const GET_CONFIG_REPLY: u8 = 8;
pub(super) const SET_CONFIG: u8 = 9;
pub(super) const PACKET_IN: u8 = 10;
pub(super) const FLOW_REMOVED: u8 = 11;
pub(super) const PORT_STATUS: u8 = 12;
pub(super) const PACKET_OUT: u8 = 13;
pub(super) const FLOW_MOD: u8 = 14;
pub(super) const GROUP_MOD: u8 = 15;
pub(super) const PORT_MOD: u8 = 16;
pub(super) const TABLE_MOD: u8 = 17;
pub(super) const MULTIPART_REQUEST: u8 = 18;
pub(super) const MULTIPART_REPLY: u8 = 19;
pub(super) const BARRIER_REQUEST: u8 = 20;
pub(super) const BARRIER_REPLY: u8 = 21;
pub(super) const QUEUES_REQUEST: u8 = 22;
pub(super) const QUEUES_REPLY: u8 = 23;
pub(super) const ROLE_REQUEST: u8 = 24;
pub(super) const ROLE_REPLY: u8 = 25;
pub(super) const GET_ASYNC_REQUEST: u8 = 26;
pub(super) const GET_ASYNC_REPLY: u8 = 27;
pub(super) const SET_ASYNC: u8 = 28;
pub(super) const METER_MOD: u8 = 29;
pub(super) const ROLE_STATUS: u8 = 30;
pub(super) const TABLE_STATUS: u8 = 31;
pub(super) const REQUESTFORWARD: u8 = 32;
pub(super) const BUNDLE_CONTROL: u8 = 33;
pub(super) const BUNDLE_ADD: u8 = 34;
pub(super) const CONTROLLER_STATUS: u8 = 35;

/// Messages whose type number in 1.0 differs from the newest version's: both numbers.
const MOVED: [(u8, u8); 7] = [
    (15, PORT_MOD),
    (16, MULTIPART_REQUEST),
    (17, MULTIPART_REPLY),
    (18, BARRIER_REQUEST),
    (19, BARRIER_REPLY),
    (20, QUEUES_REQUEST),
    (21, QUEUES_REPLY),
];

/// A version's type number converted to the newest version's; `None` if the version lacks it.
pub(super) fn from_number(version: Version, number: u8) -> Option<u8> {
    if version == Version::V10 && number > FLOW_MOD {
        return MOVED.iter().find(|row| row.0 == number).map(|row| row.1);
    }
    is_in(version, number).then_some(number)
}

/// The newest version's type number converted to a version's.
pub(super) fn to_number(version: Version, kind: u8) -> u8 {
    let moved = MOVED.iter().find(|row| row.1 == kind && version == Version::V10);
    moved.map_or(kind, |row| row.0)
}

/// Whether a version has a message type.
pub(super) fn is_in(version: Version, kind: u8) -> bool {
    match kind {
        HELLO..=FLOW_MOD | PORT_MOD | MULTIPART_REQUEST..=BARRIER_REPLY => true,
        GROUP_MOD | TABLE_MOD | ROLE_REQUEST..=METER_MOD => version >= Version::V13,
        QUEUES_REQUEST | QUEUES_REPLY => version <= Version::V13,
        ROLE_STATUS..=BUNDLE_ADD => version >= Version::V14,
        CONTROLLER_STATUS => version >= Version::V15,
        _ => false,
    }
}

/// Whether messages of this type (1.3 and later) may be inner messages.
pub(super) fn can_nest(kind: u8) -> bool {
    [PACKET_OUT, FLOW_MOD, GROUP_MOD, PORT_MOD, TABLE_MOD, METER_MOD].contains(&kind)
}

/// The type number of multipart replies.
pub(super) fn reply_type(version: Version) -> u8 {
    to_number(version, MULTIPART_REPLY)
}

/// Appends a header, whose length [`finish`] fills in.
pub(super) fn write_header(version: Version, number: u8, xid: u32, out: &mut Vec<u8>) {
    out.bytes(&[version as u8, number, 0, 0]);
    out.u32(xid);
}

/// Fills in the length of the message that begins at `start`.
pub(super) fn finish(start: usize, out: &mut Vec<u8>) -> Result<()> {
    out.patch_length(start + 2, start)
}
