//! The fixed match structure of OpenFlow 1.0 (1.0.0, 5.2.3): 40 bytes, whose members stand for several fields.
//!
//! `nw_src` is an IPv4 source or an ARP sender, `tp_src` a TCP, UDP or SCTP port or an ICMP type. A member stands for
//! the first of its fields whose prerequisites hold. Members without meaning under the rest of the match are ignored,
//! as the specification requires. Encoding fails for matches that the structure cannot express.

use crate::action::port;
use crate::error::ErrorKind;
use crate::field::{FieldId, Fields};
use crate::matching::{Match, Term};
use crate::wire::number::{VLAN_PRESENT, ones};
use crate::wire::{Reader, Result, Writer, fail, unencodable};

/// `OFPFW_` bits.
mod wild {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_SRC: u32 = 1 << 2;
    pub(super) const DL_DST: u32 = 1 << 3;
    pub(super) const DL_TYPE: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    pub(super) const NW_SRC_SHIFT: u32 = 8;
    pub(super) const NW_DST_SHIFT: u32 = 14;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 20;
    pub(super) const NW_TOS: u32 = 1 << 21;
}

/// `OFP_VLAN_NONE`: packets without a tag.
const VLAN_NONE: u16 = 0xffff;

// OXM numbers of the basic-class fields that members stand for (1.3.5, 7.2.3.7, table 11).
const IN_PORT: u8 = 0;
const ETH_DST: u8 = 3;
const ETH_SRC: u8 = 4;
const ETH_TYPE: u8 = 5;
const VLAN_VID: u8 = 6;
const VLAN_PCP: u8 = 7;
const IP_DSCP: u8 = 8;
const NW_PROTO: [u8; 2] = [10, 21];
const NW_SRC: [u8; 2] = [11, 22];
const NW_DST: [u8; 2] = [12, 23];
const TP_SRC: [u8; 5] = [13, 15, 17, 19, 29];
const TP_DST: [u8; 5] = [14, 16, 18, 20, 30];

/// The match structure.
#[derive(Clone, Copy, Default)]
struct Fixed {
    wildcards: u32,
    in_port: u16,
    dl_src: [u8; 6],
    dl_dst: [u8; 6],
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: u32,
    nw_dst: u32,
    tp_src: u16,
    tp_dst: u16,
}

/// Decodes a match.
pub(super) fn read(r: &mut Reader, fields: &Fields) -> Result<Match> {
    let fixed = Fixed::read(&mut r.sub(40)?.short(ErrorKind::BmcBadLen))?;
    let mut matching = Match::any();
    let has = |bit: u32| fixed.wildcards & bit == 0;
    let mut too_large = None;
    let mut add = |numbers: &[u8], value: u128, mask: u128| {
        let meant = |id: &FieldId| matching.provides(*id, fields);
        if let Some(id) = numbers.iter().filter_map(|number| fields.basic(*number)).find(meant) {
            let full = fields.get(id).full();
            if value & mask & !full != 0 {
                too_large = Some(id);
            }
            matching.add(id, value & full, mask & full);
        }
    };
    if has(wild::IN_PORT) {
        add(&[IN_PORT], u128::from(port::from_16(fixed.in_port)), u128::MAX);
    }
    if has(wild::DL_SRC) {
        add(&[ETH_SRC], number(&fixed.dl_src), u128::MAX);
    }
    if has(wild::DL_DST) {
        add(&[ETH_DST], number(&fixed.dl_dst), u128::MAX);
    }
    if has(wild::DL_VLAN) && fixed.dl_vlan == VLAN_NONE {
        // Open vSwitch ignores the priority here.
        add(&[VLAN_VID], 0, u128::MAX);
    } else {
        if has(wild::DL_VLAN) {
            add(&[VLAN_VID], VLAN_PRESENT | u128::from(fixed.dl_vlan & 0xfff), u128::MAX);
        } else if has(wild::DL_VLAN_PCP) {
            add(&[VLAN_VID], VLAN_PRESENT, VLAN_PRESENT);
        }
        if has(wild::DL_VLAN_PCP) {
            add(&[VLAN_PCP], u128::from(fixed.dl_vlan_pcp & 7), u128::MAX);
        }
    }
    if has(wild::DL_TYPE) {
        add(&[ETH_TYPE], u128::from(fixed.dl_type), u128::MAX);
    }
    if has(wild::NW_TOS) {
        add(&[IP_DSCP], u128::from(fixed.nw_tos >> 2), u128::MAX);
    }
    if has(wild::NW_PROTO) {
        add(&NW_PROTO, u128::from(fixed.nw_proto), u128::MAX);
    }
    add(&NW_SRC, u128::from(fixed.nw_src), prefix(fixed.wildcards >> wild::NW_SRC_SHIFT));
    add(&NW_DST, u128::from(fixed.nw_dst), prefix(fixed.wildcards >> wild::NW_DST_SHIFT));
    if has(wild::TP_SRC) {
        add(&TP_SRC, u128::from(fixed.tp_src), u128::MAX);
    }
    if has(wild::TP_DST) {
        add(&TP_DST, u128::from(fixed.tp_dst), u128::MAX);
    }
    match too_large {
        Some(id) => fail(ErrorKind::BmcBadValue, format!("`{}` has no such value", fields.get(id).name)),
        None => Ok(matching),
    }
}

/// The mask of an address with the `wild` lowest bits wildcarded.
fn prefix(wild: u32) -> u128 {
    match wild & 0x3f {
        wild @ 0..32 => ones(32) ^ ones(wild),
        _ => 0,
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// Encodes a match.
pub(super) fn write(matching: &Match, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let mut fixed = Fixed { wildcards: (1 << 22) - 1, ..Fixed::default() };
    fixed.wildcards &= !(0x3f << wild::NW_SRC_SHIFT | 0x3f << wild::NW_DST_SHIFT);
    fixed.wildcards |= 32 << wild::NW_SRC_SHIFT | 32 << wild::NW_DST_SHIFT;
    for term in matching.terms() {
        if fixed.set(term, matching, fields).is_none() {
            let name = &fields.get(term.field).name;
            return unencodable(format!("OpenFlow 1.0 cannot match `{name}` as {:#x}/{:#x}", term.value, term.mask));
        }
    }
    fixed.write(out);
    Ok(())
}

impl Fixed {
    fn read(r: &mut Reader) -> Result<Fixed> {
        let wildcards = r.u32()?;
        let in_port = r.u16()?;
        let dl_src = r.array()?;
        let dl_dst = r.array()?;
        let dl_vlan = r.u16()?;
        let dl_vlan_pcp = r.u8()?;
        r.skip(1)?;
        let dl_type = r.u16()?;
        let nw_tos = r.u8()?;
        let nw_proto = r.u8()?;
        r.skip(2)?;
        let nw_src = r.u32()?;
        let nw_dst = r.u32()?;
        let tp_src = r.u16()?;
        let tp_dst = r.u16()?;
        Ok(Fixed {
            wildcards,
            in_port,
            dl_src,
            dl_dst,
            dl_vlan,
            dl_vlan_pcp,
            dl_type,
            nw_tos,
            nw_proto,
            nw_src,
            nw_dst,
            tp_src,
            tp_dst,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.wildcards);
        out.u16(self.in_port);
        out.bytes(&self.dl_src);
        out.bytes(&self.dl_dst);
        out.u16(self.dl_vlan);
        out.u8(self.dl_vlan_pcp);
        out.zeros(1);
        out.u16(self.dl_type);
        out.u8(self.nw_tos);
        out.u8(self.nw_proto);
        out.zeros(2);
        out.u32(self.nw_src);
        out.u32(self.nw_dst);
        out.u16(self.tp_src);
        out.u16(self.tp_dst);
    }

    /// Adds a term; `None` if the structure cannot express it.
    fn set(&mut self, term: &Term, matching: &Match, fields: &Fields) -> Option<()> {
        let number =
            fields.get(term.field).numbers.iter().find(|number| fields.basic(number.field) == Some(term.field))?.field;
        let exact = term.mask == fields.get(term.field).full();
        let low = |limit: u128| (exact && term.value <= limit).then_some(term.value as u16);
        match number {
            IN_PORT => {
                self.in_port = if exact { port::to_16(u32::try_from(term.value).ok()?)? } else { return None };
                self.wildcards &= !wild::IN_PORT;
            }
            ETH_SRC => self.dl_src = self.address(exact, term.value, wild::DL_SRC)?,
            ETH_DST => self.dl_dst = self.address(exact, term.value, wild::DL_DST)?,
            ETH_TYPE => {
                self.dl_type = low(0xffff)?;
                self.wildcards &= !wild::DL_TYPE;
            }
            VLAN_VID if exact && term.value & VLAN_PRESENT != 0 => {
                self.dl_vlan = (term.value & 0xfff) as u16;
                self.wildcards &= !wild::DL_VLAN;
            }
            VLAN_VID if exact && term.value == 0 => {
                self.dl_vlan = VLAN_NONE;
                self.wildcards &= !wild::DL_VLAN;
            }
            VLAN_VID => {
                // The presence of any tag can only be expressed together with a priority.
                let has_priority = fields.basic(VLAN_PCP).is_some_and(|pcp| matching.term(pcp).is_some());
                if term.mask != VLAN_PRESENT || term.value != VLAN_PRESENT || !has_priority {
                    return None;
                }
            }
            VLAN_PCP => {
                self.dl_vlan_pcp = low(7)? as u8;
                self.wildcards &= !wild::DL_VLAN_PCP;
            }
            IP_DSCP => {
                self.nw_tos = (low(0x3f)? << 2) as u8;
                self.wildcards &= !wild::NW_TOS;
            }
            _ if NW_PROTO.contains(&number) => {
                self.nw_proto = low(0xff)? as u8;
                self.wildcards &= !wild::NW_PROTO;
            }
            _ if NW_SRC.contains(&number) => self.nw_src = self.network(term, wild::NW_SRC_SHIFT)?,
            _ if NW_DST.contains(&number) => self.nw_dst = self.network(term, wild::NW_DST_SHIFT)?,
            _ if TP_SRC.contains(&number) => {
                self.tp_src = low(0xffff)?;
                self.wildcards &= !wild::TP_SRC;
            }
            _ if TP_DST.contains(&number) => {
                self.tp_dst = low(0xffff)?;
                self.wildcards &= !wild::TP_DST;
            }
            _ => return None,
        }
        Some(())
    }

    fn address(&mut self, exact: bool, value: u128, bit: u32) -> Option<[u8; 6]> {
        self.wildcards &= !bit;
        let bytes = value.to_be_bytes();
        exact.then(|| [bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]])
    }

    fn network(&mut self, term: &Term, shift: u32) -> Option<u32> {
        let mask = u32::try_from(term.mask).ok()?;
        let wild = mask.trailing_zeros();
        self.wildcards = self.wildcards & !(0x3f << shift) | wild << shift;
        (u128::from(mask) == prefix(wild)).then_some(term.value as u32)
    }
}
