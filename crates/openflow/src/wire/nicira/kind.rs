//! Numbers of experimenters' actions and their properties.

use crate::field::{FieldId, Fields};
use crate::wire::number;

/// Sluice's experimenter id. Ids below 2^24 are IEEE OUIs; this one is in the range for local assignment (IEEE 802c,
/// AAI: the second hexadecimal digit is 2), so that nobody owns it.
pub(crate) const SLUICE: u32 = 0x0072_736c;
/// The subtype of the action that runs a program.
pub(crate) const RUN_PROGRAM: u16 = 1;

/// `NXAST_` numbers.
pub(crate) mod nxast {
    pub(crate) const RESUBMIT: u16 = 1;
    pub(crate) const SET_TUNNEL: u16 = 2;
    pub(crate) const SET_QUEUE: u16 = 4;
    pub(crate) const POP_QUEUE: u16 = 5;
    pub(crate) const REG_MOVE: u16 = 6;
    pub(crate) const REG_LOAD: u16 = 7;
    pub(crate) const NOTE: u16 = 8;
    pub(crate) const SET_TUNNEL64: u16 = 9;
    pub(crate) const MULTIPATH: u16 = 10;
    pub(crate) const BUNDLE: u16 = 12;
    pub(crate) const BUNDLE_LOAD: u16 = 13;
    pub(crate) const RESUBMIT_TABLE: u16 = 14;
    pub(crate) const OUTPUT_REG: u16 = 15;
    pub(crate) const LEARN: u16 = 16;
    pub(crate) const EXIT: u16 = 17;
    pub(crate) const DEC_TTL: u16 = 18;
    pub(crate) const FIN_TIMEOUT: u16 = 19;
    pub(crate) const CONTROLLER: u16 = 20;
    pub(crate) const DEC_TTL_CNT_IDS: u16 = 21;
    pub(crate) const WRITE_METADATA: u16 = 22;
    pub(crate) const PUSH_MPLS: u16 = 23;
    pub(crate) const POP_MPLS: u16 = 24;
    pub(crate) const SET_MPLS_TTL: u16 = 25;
    pub(crate) const DEC_MPLS_TTL: u16 = 26;
    pub(crate) const STACK_PUSH: u16 = 27;
    pub(crate) const STACK_POP: u16 = 28;
    pub(crate) const SAMPLE: u16 = 29;
    pub(crate) const SET_MPLS_LABEL: u16 = 30;
    pub(crate) const SET_MPLS_TC: u16 = 31;
    pub(crate) const OUTPUT_REG2: u16 = 32;
    pub(crate) const REG_LOAD2: u16 = 33;
    pub(crate) const CONJUNCTION: u16 = 34;
    pub(crate) const CT: u16 = 35;
    pub(crate) const NAT: u16 = 36;
    pub(crate) const CONTROLLER2: u16 = 37;
    pub(crate) const SAMPLE2: u16 = 38;
    pub(crate) const OUTPUT_TRUNC: u16 = 39;
    pub(crate) const GROUP: u16 = 40;
    pub(crate) const SAMPLE3: u16 = 41;
    pub(crate) const CLONE: u16 = 42;
    pub(crate) const CT_CLEAR: u16 = 43;
    pub(crate) const RESUBMIT_TABLE_CT: u16 = 44;
    pub(crate) const LEARN2: u16 = 45;
    pub(crate) const ENCAP: u16 = 46;
    pub(crate) const DECAP: u16 = 47;
    pub(crate) const DEC_NSH_TTL: u16 = 48;
    pub(crate) const CHECK_PKT_LARGER: u16 = 49;
    pub(crate) const DELETE_FIELD: u16 = 50;
    pub(crate) const SAMPLE4: u16 = 51;
}

/// Property types of `CONTROLLER2`.
pub(crate) mod nxac2pt {
    pub(crate) const MAX_LEN: u16 = 0;
    pub(crate) const CONTROLLER_ID: u16 = 1;
    pub(crate) const REASON: u16 = 2;
    pub(crate) const USERDATA: u16 = 3;
    pub(crate) const PAUSE: u16 = 4;
    pub(crate) const METER_ID: u16 = 5;
}

/// `OFPR_ACTION`.
pub(crate) const REASON_ACTION: u8 = 1;

/// The tunnel id field.
pub(crate) fn tunnel(fields: &Fields) -> Option<FieldId> {
    fields.numbered(number::nxm_1(16)).or_else(|| fields.basic(38))
}
