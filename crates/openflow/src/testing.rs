//! Match fields as a P4 program would declare them, and random matches and actions, for tests.

use random::Random;

use crate::action::*;
use crate::field::{Field, FieldId, Fields, OxmNumber, Prerequisite, class};
use crate::matching::Match;
use crate::message::Version;

/// Name, width, numbers (class, field), `m` for maskable and `w` for writable, prerequisites (name, mask or 0 for all,
/// values).
type Row = (&'static str, u32, &'static [(u16, u8)], &'static str, &'static [(&'static str, u128, &'static [u128])]);

const OF: u16 = class::OPENFLOW_BASIC;
const XREG: u16 = class::PACKET_REGISTERS;
const IPV4: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x800])];
const IPV6: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x86dd])];
const IP: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x800, 0x86dd])];
const ARP: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x806])];
const MPLS: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x8847, 0x8848])];
const TCP: &[(&str, u128, &[u128])] = &[("ip_proto", 0, &[6])];
const UDP: &[(&str, u128, &[u128])] = &[("ip_proto", 0, &[17])];
const SCTP: &[(&str, u128, &[u128])] = &[("ip_proto", 0, &[132])];
const ICMP: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x800]), ("ip_proto", 0, &[1])];
const ICMP6: &[(&str, u128, &[u128])] = &[("eth_type", 0, &[0x86dd]), ("ip_proto", 0, &[58])];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Declared before their prerequisites, so that the order of encoding is tested.
    ("tcp_src", 16, &[(OF, 13), (0, 9)], "mw", TCP),
    ("tcp_dst", 16, &[(OF, 14), (0, 10)], "mw", TCP),
    ("in_port", 32, &[(OF, 0), (0, 0)], "w", &[]),
    ("metadata", 64, &[(OF, 2)], "mw", &[]),
    ("tun_id", 64, &[(OF, 38), (1, 16)], "mw", &[]),
    ("tun_src", 32, &[(1, 31)], "mw", &[]),
    ("pkt_mark", 32, &[(1, 33)], "mw", &[]),
    ("conj_id", 32, &[(1, 37)], "", &[]),
    ("eth_dst", 48, &[(OF, 3), (0, 1)], "mw", &[]),
    ("eth_src", 48, &[(OF, 4), (0, 2)], "mw", &[]),
    ("eth_type", 16, &[(OF, 5), (0, 3)], "", &[]),
    ("vlan_vid", 13, &[(OF, 6)], "mw", &[]),
    ("vlan_pcp", 3, &[(OF, 7)], "w", &[("vlan_vid", 0x1000, &[0x1000])]),
    ("mpls_label", 20, &[(OF, 34), (1, 80)], "w", MPLS),
    ("mpls_tc", 3, &[(OF, 35), (1, 81)], "w", MPLS),
    ("mpls_bos", 1, &[(OF, 36), (1, 82)], "", MPLS),
    // The number of a cookie as well.
    ("mpls_ttl", 8, &[(1, 30)], "w", MPLS),
    ("ip_dscp", 6, &[(OF, 8)], "w", IP),
    ("ip_ecn", 2, &[(OF, 9), (1, 28)], "w", IP),
    ("ip_proto", 8, &[(OF, 10), (0, 6)], "", IP),
    ("ip_ttl", 8, &[(1, 29)], "w", IP),
    ("ipv4_src", 32, &[(OF, 11), (0, 7)], "mw", IPV4),
    ("ipv4_dst", 32, &[(OF, 12), (0, 8)], "mw", IPV4),
    ("udp_src", 16, &[(OF, 15), (0, 11)], "mw", UDP),
    ("udp_dst", 16, &[(OF, 16), (0, 12)], "mw", UDP),
    ("sctp_src", 16, &[(OF, 17)], "mw", SCTP),
    ("sctp_dst", 16, &[(OF, 18)], "m", SCTP),
    ("icmpv4_type", 8, &[(OF, 19), (0, 13)], "w", ICMP),
    ("icmpv4_code", 8, &[(OF, 20), (0, 14)], "w", ICMP),
    ("arp_op", 16, &[(OF, 21), (0, 15)], "w", ARP),
    ("arp_spa", 32, &[(OF, 22), (0, 16)], "mw", ARP),
    ("arp_tpa", 32, &[(OF, 23), (0, 17)], "mw", ARP),
    ("arp_sha", 48, &[(OF, 24), (1, 17)], "mw", ARP),
    ("ipv6_src", 128, &[(OF, 26), (1, 19)], "mw", IPV6),
    ("ipv6_dst", 128, &[(OF, 27), (1, 20)], "mw", IPV6),
    ("ipv6_label", 20, &[(OF, 28), (1, 27)], "mw", IPV6),
    ("icmpv6_type", 8, &[(OF, 29), (1, 21)], "w", ICMP6),
    ("ct_label", 128, &[(1, 108)], "m", &[]),
];

/// The fields of the table, `reg0` to `reg15`, `xreg0` to `xreg7`, and one of an experimenter.
pub(crate) fn fields() -> Fields {
    let mut rows: Vec<Field> = ROWS.iter().map(|row| field(row.0, row.1, row.2, row.3)).collect();
    for i in 0..16 {
        rows.push(field(&format!("reg{i}"), 32, &[(class::NXM_1, i)], "mw"));
    }
    for i in 0..8 {
        rows.push(field(&format!("xreg{i}"), 64, &[(XREG, i)], "mw"));
    }
    let mut own = field("own", 24, &[(class::EXPERIMENTER, 5)], "mw");
    own.numbers[0].experimenter = 0x00ab_cdef;
    rows.push(own);
    let names: Vec<String> = rows.iter().map(|field| field.name.clone()).collect();
    for (i, row) in ROWS.iter().enumerate() {
        for (name, mask, values) in row.4 {
            let needs = names.iter().position(|other| other == name).unwrap();
            let mask = if *mask == 0 { rows[needs].full() } else { *mask };
            rows[i].prerequisites.push(Prerequisite { field: FieldId(needs as u16), mask, values: values.to_vec() });
        }
    }
    Fields::new(rows).unwrap()
}

/// The same, with separate fields for Nicira's numbers of fields that also have an OpenFlow number, as in
/// `openflow.p4`.
pub(crate) fn fields_with_aliases() -> Fields {
    let mut all: Vec<Field> = fields().iter().map(|(_, field)| field.clone()).collect();
    for field in &mut all {
        field.numbers.retain(|number| (number.class, number.field) != (class::NXM_0, 0));
    }
    for (name, width, number) in [("in_port_16", 16, 0), ("vlan_tci", 16, 4), ("nw_tos", 8, 5)] {
        all.push(field(name, width, &[(class::NXM_0, number)], "mw"));
    }
    Fields::new(all).unwrap()
}

fn field(name: &str, width: u32, numbers: &[(u16, u8)], may: &str) -> Field {
    let numbers =
        numbers.iter().map(|(class, field)| OxmNumber { class: *class, field: *field, experimenter: 0 }).collect();
    let (maskable, writable) = (may.contains('m'), may.contains('w'));
    Field { name: name.into(), width, numbers, maskable, writable, prerequisites: Vec::new() }
}

/// The field with a name.
pub(crate) fn named(name: &str, fields: &Fields) -> FieldId {
    fields.named(name).unwrap()
}

/// The bytes of a hexadecimal text.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The reverse of [`bytes`].
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bits(random: &mut Random, field: &Field) -> u128 {
    random.next_u128() & field.full()
}

/// A random value that a field may have in a match or an action.
fn value(random: &mut Random, id: FieldId, fields: &Fields) -> u128 {
    let field = fields.get(id);
    match field.name.as_str() {
        "in_port" => [1, 77, 0xfeff, 0xffff_fffe][random.below(4) as usize],
        "vlan_vid" => bits(random, field) | 0x1000,
        _ => bits(random, field),
    }
}

/// A random mask that a field may have, not zero.
fn mask(random: &mut Random, id: FieldId, fields: &Fields) -> u128 {
    let field = fields.get(id);
    match random.below(3) {
        0 if field.maskable => bits(random, field).max(1),
        1 if field.maskable => field.full() & !((1 << random.below(field.width.into())) - 1),
        _ => field.full(),
    }
}

/// A random match whose prerequisites hold. Wide registers appear as narrow ones, as they are decoded.
pub(crate) fn random_match(random: &mut Random, fields: &Fields) -> Match {
    fn add(matching: &mut Match, id: FieldId, random: &mut Random, fields: &Fields) {
        if matching.term(id).is_some() {
            return;
        }
        for needs in fields.get(id).prerequisites.clone() {
            add(matching, needs.field, random, fields);
            let value = needs.values[random.below(needs.values.len() as u64) as usize];
            *matching =
                matching.terms().iter().filter(|term| term.field != needs.field).fold(Match::any(), |mut all, term| {
                    all.add(term.field, term.value, term.mask);
                    all
                });
            let full = fields.get(needs.field).full();
            let (extra, mask) =
                if needs.mask == full || random.below(2) == 0 { (0, needs.mask) } else { (0x123, full) };
            matching.add(needs.field, value | extra, mask);
        }
        let mask = mask(random, id, fields);
        matching.add(id, value(random, id, fields), mask);
    }
    loop {
        let mut matching = Match::any();
        for _ in 0..random.below(7) {
            let id = FieldId(random.below(fields.len() as u64) as u16);
            if !fields.get(id).name.starts_with("xreg") {
                add(&mut matching, id, random, fields);
            }
        }
        if matching.lacks_prerequisite(fields).is_none() {
            return matching;
        }
    }
}

fn subfield(random: &mut Random, fields: &Fields, is_target: bool, most: u32) -> Subfield {
    loop {
        let id = FieldId(random.below(fields.len() as u64) as u16);
        let field = fields.get(id);
        // Parts of wide registers are decoded as parts of narrow ones; an experimenter's field needs the longer forms.
        if is_target && !field.writable
            || field.name.starts_with("xreg")
            || matches!(field.name.as_str(), "own" | "in_port")
        {
            continue;
        }
        let offset = random.below(field.width.into()) as u32;
        let bits = 1 + random.below((field.width - offset).min(most).into()) as u32;
        return Subfield { field: id, offset, bits };
    }
}

fn wide_enough(random: &mut Random, fields: &Fields, bits: u32) -> Subfield {
    Subfield { field: named(&format!("reg{}", random.below(16)), fields), offset: random.below(8) as u32, bits }
}

fn copy(random: &mut Random, fields: &Fields) -> (Subfield, Subfield) {
    let (mut from, mut to) = (subfield(random, fields, false, 128), subfield(random, fields, true, 128));
    (from.bits, to.bits) = (from.bits.min(to.bits), from.bits.min(to.bits));
    (from, to)
}

fn random_learn(random: &mut Random, fields: &Fields) -> Learn {
    let is_long = random.below(2) == 0;
    let specs = (0..random.below(5)).map(|_| {
        let (field, to) = copy(random, fields);
        let constant = Source::Value(random.next_u128() & (u128::MAX >> (128 - to.bits)));
        let from = if random.below(2) == 0 { Source::Field(field) } else { constant };
        match random.below(3) {
            0 => LearnSpec::Match { to, from },
            1 => LearnSpec::Load { to, from },
            _ => LearnSpec::Output { from: field },
        }
    });
    let specs = specs.collect();
    let result = (is_long && random.below(2) == 0).then(|| Subfield { bits: 1, ..wide_enough(random, fields, 1) });
    Learn {
        idle_timeout: random.next_u64() as u16,
        hard_timeout: random.next_u64() as u16,
        priority: random.next_u64() as u16,
        cookie: random.next_u64(),
        table: random.below(255) as u8,
        flags: random.below(4) as u16 | if result.is_some() { 4 } else { 0 },
        fin_idle_timeout: random.next_u64() as u16,
        fin_hard_timeout: random.next_u64() as u16,
        limit: if is_long { 1 + random.next_u64() as u32 / 2 } else { 0 },
        result,
        specs,
    }
}

fn port(random: &mut Random) -> u32 {
    [1, 2, 0xfeff, port::IN_PORT, port::NORMAL, port::FLOOD, port::ALL, port::CONTROLLER, port::LOCAL]
        [random.below(9) as usize]
}

/// A random action that has exactly one encoding in a version.
pub(crate) fn random_action(version: Version, random: &mut Random, fields: &Fields, depth: u32) -> Action {
    let small = random.next_u64() as u16;
    loop {
        let action = match random.below(31) {
            0 => Action::Output { port: port(random), max_len: small },
            1 => Action::OutputField { field: subfield(random, fields, false, 64), max_len: small },
            2 => Action::OutputTruncated { port: port(random), max_len: 14 + u32::from(small) },
            3 => Action::Controller(Controller {
                max_len: small,
                id: random.below(3) as u16,
                reason: random.below(3) as u8,
                userdata: (0..random.below(20)).map(|i| i as u8).collect(),
                pause: random.below(2) == 0,
                meter: (random.below(2) == 0).then_some(7),
            }),
            4 if version == Version::V10 => Action::Enqueue { port: 1 + u32::from(small) / 2, queue: small.into() },
            5 => Action::SetQueue(random.next_u64() as u32),
            6 => Action::PopQueue,
            7 => Action::Group(random.next_u64() as u32),
            8 if version == Version::V15 => Action::Meter(random.next_u64() as u32),
            9..12 => {
                let field = FieldId(random.below(fields.len() as u64) as u16);
                let (value, full) = (value(random, field, fields), fields.get(field).full());
                // The bit for the presence of a VLAN tag must be written; only 1.5 and the longer load encode other
                // masks as one action.
                let may = version == Version::V15 && fields.get(field).maskable && fields.get(field).name != "vlan_vid";
                let mask = if may { mask(random, field, fields) } else { full };
                if !fields.get(field).writable {
                    continue;
                }
                // OpenFlow 1.0 loads at most 64 bits at a time, and has another action for a VLAN id.
                if version == Version::V10 && (fields.get(field).width > 64 || fields.get(field).name == "vlan_vid") {
                    continue;
                }
                Action::SetField { field, value: value & mask, mask }
            }
            12 => {
                let to = subfield(random, fields, true, 64);
                let mask = (u128::MAX >> (128 - to.bits)) << to.offset;
                let value = random.next_u128() & mask;
                if fields.get(to.field).name == "vlan_vid" {
                    continue;
                }
                Action::SetField { field: to.field, value, mask }
            }
            13 => {
                let (from, to) = copy(random, fields);
                Action::Move { from, to }
            }
            14 => Action::StackPush(subfield(random, fields, false, 128)),
            15 => Action::StackPop(subfield(random, fields, true, 128)),
            16 => {
                let name = HeaderAction::ALL[random.below(14) as usize];
                let argument = match name {
                    HeaderAction::PushVlan if version != Version::V10 => 0x88a8,
                    HeaderAction::PushMpls => 0x8847,
                    HeaderAction::PopMpls => 0x800,
                    HeaderAction::PushPbb if version != Version::V10 => 0x88e7,
                    HeaderAction::SetVlanVid if version == Version::V10 => u128::from(small & 0xfff),
                    HeaderAction::SetVlanPcp if version == Version::V10 => 5,
                    HeaderAction::SetMplsTtl => u128::from(small & 0xff),
                    HeaderAction::SetNwTtl if version != Version::V10 => u128::from(small & 0xff),
                    HeaderAction::DecMplsTtl | HeaderAction::DecNwTtl | HeaderAction::PopVlan => 0,
                    HeaderAction::PopPbb | HeaderAction::CopyTtlIn | HeaderAction::CopyTtlOut
                        if version != Version::V10 =>
                    {
                        0
                    }
                    _ => continue,
                };
                Action::Header { name, argument }
            }
            17 => Action::DecTtlControllers((0..random.below(6)).map(|i| i as u16).collect()),
            18 => Action::DeleteField(FieldId(random.below(fields.len() as u64) as u16)),
            19 => {
                let table = (random.below(2) == 0).then(|| random.below(255) as u8);
                let port = port(random);
                Action::Resubmit { port: (port != port::IN_PORT).then_some(port), table, with_ct: random.below(2) == 0 }
            }
            20 => Action::Learn(Box::new(random_learn(random, fields))),
            21 => Action::Conjunction { clause: 1, clauses: 2 + random.below(63) as u8, id: random.next_u64() as u32 },
            22 => Action::Multipath {
                hash: HashFields::SymmetricL3L4Udp,
                basis: small,
                algorithm: MultipathAlgorithm::HighestRandomWeight,
                max_link: small,
                argument: random.next_u64() as u32,
                to: wide_enough(random, fields, 16),
            },
            23 => Action::Bundle {
                hash: HashFields::NwDst,
                basis: small,
                algorithm: BundleAlgorithm::HighestRandomWeight,
                members: (0..random.below(9)).map(|i| i as u32 + 1).collect(),
                to: (random.below(2) == 0).then(|| wide_enough(random, fields, 16)),
            },
            24 => {
                Action::CheckPacketLarger { bytes: small, to: Subfield { bits: 1, ..wide_enough(random, fields, 1) } }
            }
            // A note fills its action to a multiple of 8 bytes.
            25 => Action::Note((0..6 + 8 * random.below(3)).map(|i| i as u8).collect()),
            26 => Action::FinTimeout { idle: small, hard: random.next_u64() as u16 },
            27 => Action::Exit,
            28 if depth < 3 => {
                Action::Clone((0..random.below(4)).map(|_| random_action(version, random, fields, depth + 1)).collect())
            }
            29 => Action::WriteMetadata { value: u64::from(small), mask: u64::from(small) | random.next_u64() },
            30 => Action::Program { id: random.next_u64() as u32, argument: random.next_u64() },
            _ => continue,
        };
        return action;
    }
}
