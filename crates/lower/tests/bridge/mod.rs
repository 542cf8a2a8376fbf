//! Runs the program of an OpenFlow bridge on the interpreter, and provides frames for it.

#![allow(dead_code, reason = "each test file uses its part")]

use base::Bits;
use base::entry::{ActionCall, EntryAction};
use interp::{Fate, Interp, SeededHost};
use ir::{EntryKind, EntryPoint, Program, StageId};
use std::sync::Arc;

/// The program that Sluice ships.
pub const OPENFLOW: &str = include_str!("../../../bridge/p4/openflow.p4");

/// A packet between the two entry points.
#[derive(Clone)]
pub struct Packet {
    pub frame: Vec<u8>,
    pub consumed: u32,
    pub record: Vec<u64>,
}

/// A program of openflow_model.
pub struct Bridge {
    interp: Interp,
    program: Arc<Program>,
}

impl Bridge {
    /// Header actions get an entry point of their own.
    pub fn new(mut program: Program) -> Bridge {
        let (actions, _) = program.openflow.as_ref().and_then(|o| o.actions).expect("it has header actions");
        let hand_over = program.stages.iter().position(|s| s.name == "hand_over").map(StageId::from_index);
        let stages = vec![actions, hand_over.expect("every program has it")];
        program.entries.push(EntryPoint { kind: EntryKind::Deparse, stages });
        let program = Arc::new(program);
        Bridge { interp: Interp::new(program.clone()), program }
    }

    /// The program as lowered, and optimised.
    pub fn both(text: &str) -> [Bridge; 2] {
        let program = super::common::lower(text);
        let mut optimised = program.clone();
        opt::optimise(&mut optimised, &opt::Options::default());
        [program, optimised].map(Bridge::new)
    }

    pub fn fields(&self) -> &[ir::MatchField] {
        &self.program.openflow.as_ref().expect("it is of the model").fields
    }

    pub fn field(&self, name: &str) -> &ir::MatchField {
        self.fields().iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no field `{name}`"))
    }

    pub fn parse(&self, frame: &[u8]) -> Packet {
        // The parser must not rely on earlier contents of the record.
        let mut record = vec![0xa5a5_a5a5_a5a5_a5a5; self.interp.layout().words()];
        for (which, slot) in &self.program.intrinsics {
            let value = if which.name() == "packet_length" { frame.len() as u64 } else { 7 };
            self.interp.layout().set_word(&mut record, *slot, value);
        }
        let outcome = self.interp.run(EntryKind::Ingress, frame, 0, &mut record, &mut SeededHost::new(1), None);
        assert_eq!(outcome.fate, Fate::Replicate(ir::ReplicationPoint::IngressEnd));
        Packet { frame: frame.to_vec(), consumed: outcome.consumed, record }
    }

    pub fn get(&self, packet: &Packet, name: &str) -> u128 {
        self.field(name).parts.iter().fold(0, |value, part| {
            let slot = self.interp.layout().get(&packet.record, part.slot);
            let bits = slot.lshr(part.lo.into()).resize_u(part.width);
            let bits = bits.to_bytes_be().iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
            if part.width == 128 { bits } else { value << part.width | bits }
        })
    }

    pub fn set(&self, packet: &mut Packet, name: &str, value: u128) {
        let mut lo = 0;
        for part in self.field(name).parts.clone().iter().rev() {
            let old = self.interp.layout().get(&packet.record, part.slot);
            let width = old.width();
            let mask = Bits::ones(part.width).resize_u(width).shl(part.lo.into());
            let new = Bits::new(part.width, value >> lo & mask_of(part.width)).resize_u(width).shl(part.lo.into());
            let all = old.and(&mask.not()).or(&new);
            self.interp.layout().set(&mut packet.record, part.slot, &all);
            lo += part.width;
        }
    }

    /// Whether the prerequisites of a field hold.
    pub fn has(&self, packet: &Packet, name: &str) -> bool {
        self.field(name).prerequisites.iter().all(|(other, mask, values)| {
            values.contains(&(self.get(packet, &self.fields()[*other as usize].name) & mask))
        })
    }

    /// Runs a header action. Returns whether it requests reparsing, and whether a TTL has expired.
    pub fn act(&self, packet: &mut Packet, name: &str, argument: Option<Bits>) -> (bool, bool) {
        let openflow = self.program.openflow.as_ref().expect("it is of the model");
        let (_, table) = openflow.actions.expect("it has header actions");
        let is_it = |name: &str, full: &str| full.rsplit('.').next() == Some(name);
        let listed = &self.program.tables[table.index()].actions;
        let index = listed.iter().position(|a| is_it(name, &self.program.actions[a.action.index()].name));
        let action = index.unwrap_or_else(|| panic!("no action `{name}`")) as u32;
        let call = ActionCall { action, args: argument.into_iter().collect() };
        self.interp.state().load_table(table, Vec::new(), EntryAction::Call(call));
        let host = &mut SeededHost::new(1);
        self.interp.run(EntryKind::Deparse, &packet.frame, packet.consumed, &mut packet.record, host, None);
        let bit = |slot: Option<ir::SlotId>| {
            self.interp.layout().get_word(&packet.record, slot.expect("the model has it")) == 1
        };
        (bit(openflow.reparse), bit(openflow.ttl_exceeded))
    }

    pub fn send(&self, packet: &Packet) -> Vec<u8> {
        let mut record = packet.record.clone();
        let port = self.program.intrinsic(ir::Intrinsic::EgressPort).expect("it is of the model");
        self.interp.layout().set_word(&mut record, port, 0x1234_5678);
        let host = &mut SeededHost::new(1);
        let outcome = self.interp.run(EntryKind::Egress, &packet.frame, packet.consumed, &mut record, host, None);
        assert_eq!(outcome.fate, Fate::Send(0x1234_5678));
        outcome.packet
    }
}

pub fn mask_of(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

// Frames, built from the payload outwards.

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(pair).collect()
}

pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub fn ethernet(tags: &str, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = bytes("0200000000d1 020000000051");
    frame.extend(bytes(tags));
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `fragment`: the flags and the fragment offset.
pub fn ipv4(proto: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45 + (options.len() / 4) as u8, 0xb9];
    header.extend(((20 + options.len() + payload.len()) as u16).to_be_bytes());
    header.extend(bytes("1234"));
    header.extend(fragment.to_be_bytes());
    header.extend([64, proto, 0, 0]);
    header.extend(bytes("0a000001 0a000002"));
    header.extend(options);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(transport(proto, &bytes("0a000001 0a000002"), payload, fragment & 0x1fff == 0));
    header
}

pub const IPV6_ADDRESSES: &str = "fd000000000000000000000000000001 fd000000000000000000000000000002";

/// `extensions`: all extension headers; the first one has type `next`.
pub fn ipv6(next: u8, extensions: &[u8], proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = bytes("6b912345");
    header.extend(((extensions.len() + payload.len()) as u16).to_be_bytes());
    header.extend([next, 64]);
    header.extend(bytes(IPV6_ADDRESSES));
    header.extend(extensions);
    header.extend(transport(proto, &bytes(IPV6_ADDRESSES), payload, true));
    header
}

/// The offset of the checksum in a protocol's header.
fn checksum_at(proto: u8) -> Option<usize> {
    match proto {
        6 => Some(16),
        17 => Some(6),
        1 | 58 => Some(2),
        _ => None,
    }
}

fn transport_checksum(proto: u8, addresses: &[u8], payload: &[u8]) -> u16 {
    let length = (payload.len() as u32).to_be_bytes();
    if proto == 1 { checksum(&[payload]) } else { checksum(&[addresses, &length, &[0, proto], payload]) }
}

fn transport(proto: u8, addresses: &[u8], payload: &[u8], is_first: bool) -> Vec<u8> {
    let mut payload = payload.to_vec();
    if let Some(at) = checksum_at(proto).filter(|at| is_first && payload.len() >= at + 2) {
        payload[at..at + 2].fill(0);
        let sum = match transport_checksum(proto, addresses, &payload) {
            0 if proto == 17 => 0xffff,
            sum => sum,
        };
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    payload
}

/// Whether all checksums of a frame without tags, labels and extension headers are correct.
pub fn checksums_are_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let (proto, addresses, payload) = match (frame[12], frame[13]) {
        (8, 0) => {
            let header = usize::from(ip[0] & 15) * 4;
            if checksum(&[&ip[..header]]) != 0 {
                return false;
            }
            (ip[9], &ip[12..20], &ip[header..])
        }
        (0x86, 0xdd) => (ip[6], &ip[8..40], &ip[40..]),
        _ => return true,
    };
    checksum_at(proto).is_none() || matches!(transport_checksum(proto, addresses, payload), 0 | 0xffff)
}

pub fn tcp() -> Vec<u8> {
    bytes("1001 0050 11111111 22222222 5a12 0400 0000 0000 68656c6c6f")
}

pub fn udp() -> Vec<u8> {
    bytes("1002 0035 000b 0000 616263")
}

pub fn solicitation() -> Vec<u8> {
    bytes("8700 0000 00000000 fd0000000000000000000000000000ff 0101 020000000051")
}

pub fn advertisement() -> Vec<u8> {
    bytes("8800 0000 60000000 fd0000000000000000000000000000ff 0e01 010203040506 0201 0200000000d1")
}

/// Frames of all protocols, by name.
pub fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let tag = "8100 a005";
    let hop = bytes("2b 00 050200000000");
    let routing = bytes("06 01 000000000000 0000000000000000");
    let authentication = bytes("06 04 0000 00000001 00000001 000102030405060708090a0b");
    let arp = bytes("0001 0800 06 04 0001 020000000051 0a000001 000000000000 0a000002");
    let label = |is_last: bool| if is_last { "00010b40" } else { "00020c3f" };
    let labels = |n: usize, inner: Vec<u8>| -> Vec<u8> {
        let mut all: Vec<u8> = (1..=n).flat_map(|i| bytes(label(i == n))).collect();
        all.extend(inner);
        all
    };
    vec![
        ("unknown", ethernet("", 0x88b5, &bytes("0102030405"))),
        ("802.3", ethernet("", 0x0008, &bytes("4242030000000000"))),
        ("snap", ethernet("", 0x0024, &[bytes("aaaa03000000 0800"), ipv4(17, &[], 0, &udp())].concat())),
        ("snap without type", ethernet("", 0x0010, &bytes("aaaa03000000 0004 01020304"))),
        ("vlan", ethernet(tag, 0x0800, &ipv4(6, &[], 0, &tcp()))),
        ("two tags", ethernet("88a8 6064 8100 a005", 0x0800, &ipv4(6, &[], 0, &tcp()))),
        ("three tags", ethernet("88a8 6064 8100 a005 8100 0007", 0x0800, &ipv4(6, &[], 0, &tcp()))),
        ("mpls", ethernet("", 0x8847, &labels(1, ipv4(17, &[], 0, &udp())))),
        ("mpls ipv6", ethernet(tag, 0x8847, &labels(1, ipv6(17, &[], 17, &udp())))),
        ("two labels", ethernet("", 0x8848, &labels(2, ipv4(17, &[], 0, &udp())))),
        ("three labels", ethernet("", 0x8847, &labels(3, ipv4(17, &[], 0, &udp())))),
        ("arp", ethernet("", 0x0806, &arp)),
        ("tcp", ethernet("", 0x0800, &ipv4(6, &[], 0x4000, &tcp()))),
        ("udp", ethernet("", 0x0800, &ipv4(17, &[], 0, &udp()))),
        ("options", ethernet("", 0x0800, &ipv4(17, &bytes("01010101 94040000"), 0, &udp()))),
        ("most options", ethernet("", 0x0800, &ipv4(17, &[1; 40], 0, &udp()))),
        ("first fragment", ethernet("", 0x0800, &ipv4(17, &[], 0x2000, &udp()))),
        ("later fragment", ethernet("", 0x0800, &ipv4(17, &[], 0x0010, &udp()))),
        ("sctp", ethernet("", 0x0800, &ipv4(132, &[], 0, &bytes("1003 0b59 01020304 05060708 0003000c")))),
        ("icmp", ethernet("", 0x0800, &ipv4(1, &[], 0, &bytes("0800 0000 0001 0002 61626364")))),
        ("igmp", ethernet("", 0x0800, &ipv4(2, &bytes("94040000"), 0, &bytes("1164ee9b 00000000")))),
        ("icmpv6 in ipv4", ethernet("", 0x0800, &ipv4(58, &[], 0, &bytes("8000 0000 0001 0002")))),
        ("tcp6", ethernet("", 0x86dd, &ipv6(6, &[], 6, &tcp()))),
        ("udp6", ethernet("", 0x86dd, &ipv6(17, &[], 17, &udp()))),
        ("extensions", ethernet("", 0x86dd, &ipv6(0, &[hop.clone(), routing.clone()].concat(), 6, &tcp()))),
        ("authentication", ethernet("", 0x86dd, &ipv6(51, &authentication, 6, &tcp()))),
        ("first fragment6", ethernet("", 0x86dd, &ipv6(44, &bytes("11 00 0001 00000007"), 17, &udp()))),
        ("later fragment6", ethernet("", 0x86dd, &ipv6(44, &bytes("11 00 0009 00000007"), 99, &udp()))),
        (
            "three extensions",
            ethernet("", 0x86dd, &ipv6(0, &[hop, bytes("3c 00 010400000000"), routing].concat(), 6, &tcp())),
        ),
        ("long extension", ethernet("", 0x86dd, &ipv6(60, &[&[6, 5][..], &[0; 46]].concat(), 6, &tcp()))),
        ("echo6", ethernet("", 0x86dd, &ipv6(58, &[], 58, &bytes("8000 0000 0001 0002 61")))),
        ("solicitation", ethernet("", 0x86dd, &ipv6(58, &[], 58, &solicitation()))),
        (
            "solicitation of code 1",
            ethernet("", 0x86dd, &ipv6(58, &[], 58, &[&[135, 1][..], &solicitation()[2..]].concat())),
        ),
        ("advertisement", ethernet("", 0x86dd, &ipv6(58, &[], 58, &advertisement()))),
    ]
}

/// A frame by its name in [`frames`].
pub fn frame(name: &str) -> Vec<u8> {
    frames().into_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no frame `{name}`")).1
}
