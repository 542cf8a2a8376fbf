//! Text form of matches and actions, as in ovs-ofctl(8) and ovs-actions(7), for logs, messages and the command line.
//!
//! Fields have the names of the P4 program. The format of a value follows from its field's width and name: 48 bits are
//! an Ethernet address; 32 or 128 bits of a field named as an address are an IP address; other values are decimal up to
//! 16 bits, hexadecimal above.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::action::{
    Action, BundleAlgorithm, Controller, HashFields, HeaderAction, Instructions, Learn, LearnSpec, MultipathAlgorithm,
    Source, Subfield, port,
};
use crate::field::{Field, FieldId, Fields};
use crate::matching::{Match, Term};

/// A match, e.g. `eth_type=0x800,ipv4_src=10.0.0.0/8`; empty for the match of all packets.
pub fn matching(matching: &Match, fields: &Fields) -> String {
    let terms: Vec<String> = matching.ordered_terms(fields).iter().map(|term| term_text(term, fields)).collect();
    terms.join(",")
}

/// A list of actions, e.g. `dec_ttl,output:1`; `drop` if empty.
pub fn actions(actions: &[Action], fields: &Fields) -> String {
    if actions.is_empty() {
        return "drop".into();
    }
    let mut texts: Vec<String> = Vec::with_capacity(actions.len());
    for action in actions {
        let text = action_text(action, fields);
        // OpenFlow 1.0's action on a transport port is decoded as one per protocol; their equal texts are written once.
        let is_same = matches!(action, Action::SetFieldIfPresent { .. }) && texts.last() == Some(&text);
        if !is_same {
            texts.push(text);
        }
    }
    texts.join(",")
}

/// Instructions, e.g. `meter:1,dec_ttl,goto_table:2`; `drop` if there are none.
pub fn instructions(instructions: &Instructions, fields: &Fields) -> String {
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    let mut texts = Vec::new();
    texts.extend(meter.map(|meter| format!("meter:{meter}")));
    if !apply.is_empty() {
        texts.push(actions(apply, fields));
    }
    if *clear {
        texts.push("clear_actions".into());
    }
    if !write.is_empty() {
        texts.push(format!("write_actions({})", actions(write, fields)));
    }
    texts.extend(metadata.map(|(value, mask)| metadata_text(value, mask)));
    texts.extend(goto.map(|table| format!("goto_table:{table}")));
    if texts.is_empty() { "drop".into() } else { texts.join(",") }
}

/// A port's number, or the name of a reserved one.
pub fn port(number: u32) -> String {
    match number {
        port::IN_PORT => "IN_PORT".into(),
        port::TABLE => "TABLE".into(),
        port::NORMAL => "NORMAL".into(),
        port::FLOOD => "FLOOD".into(),
        port::ALL => "ALL".into(),
        port::CONTROLLER => "CONTROLLER".into(),
        port::LOCAL => "LOCAL".into(),
        port::ANY => "ANY".into(),
        _ => number.to_string(),
    }
}

/// The format of a field's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Ethernet,
    Ipv4,
    Ipv6,
    Port,
    Decimal,
    Hexadecimal,
}

fn look(field: &Field) -> Look {
    let name = field.name.as_str();
    let is_address = ["src", "dst", "spa", "tpa", "target"].iter().any(|end| name.ends_with(end));
    match field.width {
        48 => Look::Ethernet,
        32 if is_address => Look::Ipv4,
        128 if is_address => Look::Ipv6,
        32 if ["in_port", "in_port_oxm", "in_phy_port", "actset_output"].contains(&name) => Look::Port,
        0..=16 if !["eth_type", "vlan_vid", "vlan_tci", "dl_type"].contains(&name) => Look::Decimal,
        _ => Look::Hexadecimal,
    }
}

/// The text of a field's value.
pub fn value(value: u128, field: &Field) -> String {
    match look(field) {
        Look::Ethernet => {
            let bytes: Vec<String> = value.to_be_bytes()[10..].iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.join(":")
        }
        Look::Ipv4 => Ipv4Addr::from(value as u32).to_string(),
        Look::Ipv6 => Ipv6Addr::from(value).to_string(),
        Look::Port => port(value as u32),
        Look::Decimal => value.to_string(),
        Look::Hexadecimal => format!("{value:#x}"),
    }
}

fn masked(of: u128, mask: u128, field: &Field) -> String {
    if mask == field.full() {
        return value(of, field);
    }
    let look = look(field);
    let wild = field.full() ^ mask;
    let is_prefix = matches!(look, Look::Ipv4 | Look::Ipv6) && wild & wild.wrapping_add(1) == 0;
    match look {
        _ if is_prefix => format!("{}/{}", value(of, field), mask.count_ones()),
        Look::Ethernet | Look::Ipv4 | Look::Ipv6 => format!("{}/{}", value(of, field), value(mask, field)),
        _ => format!("{of:#x}/{mask:#x}"),
    }
}

fn term_text(term: &Term, fields: &Fields) -> String {
    let field = fields.get(term.field);
    format!("{}={}", field.name, masked(term.value, term.mask, field))
}

/// A subfield: `reg0[]`, `reg0[3]`, `reg0[0..15]`.
fn bits(bits: &Subfield, fields: &Fields) -> String {
    let field = fields.get(bits.field);
    match bits.bits {
        all if bits.offset == 0 && all == field.width => format!("{}[]", field.name),
        1 => format!("{}[{}]", field.name, bits.offset),
        some => format!("{}[{}..{}]", field.name, bits.offset, bits.offset + some.saturating_sub(1)),
    }
}

fn metadata_text(value: u64, mask: u64) -> String {
    if mask == u64::MAX { format!("write_metadata:{value:#x}") } else { format!("write_metadata:{value:#x}/{mask:#x}") }
}

fn action_text(action: &Action, fields: &Fields) -> String {
    match action {
        Action::Output { port: port::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port: number, .. } if *number >= port::MAX => port(*number),
        Action::Output { port: number, .. } => format!("output:{number}"),
        Action::OutputField { field, .. } => format!("output:{}", bits(field, fields)),
        Action::OutputTruncated { port: number, max_len } => {
            format!("output(port={},max_len={max_len})", port(*number))
        }
        Action::Controller(controller) => controller_text(controller),
        Action::Enqueue { port: number, queue } => format!("enqueue:{}:{queue}", port(*number)),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue => "pop_queue".into(),
        Action::Group(group) => format!("group:{group}"),
        Action::Meter(meter) => format!("meter:{meter}"),
        Action::SetField { field, value, mask } => {
            let field = fields.get(*field);
            format!("set_field:{}->{}", masked(*value, *mask, field), field.name)
        }
        Action::SetFieldIfPresent { field, value, mask } => legacy_text(*field, *value, *mask, fields),
        Action::Move { from, to } => format!("move:{}->{}", bits(from, fields), bits(to, fields)),
        Action::StackPush(from) => format!("push:{}", bits(from, fields)),
        Action::StackPop(to) => format!("pop:{}", bits(to, fields)),
        Action::Header { name, argument } => header_text(*name, *argument),
        Action::DecTtlControllers(ids) => format!("dec_ttl({})", list(ids)),
        Action::DeleteField(field) => format!("delete_field:{}", fields.get(*field).name),
        Action::Resubmit { port: number, table: None, with_ct: false } => {
            format!("resubmit:{}", port(number.unwrap_or(port::IN_PORT)))
        }
        Action::Resubmit { port: number, table, with_ct } => {
            let number = number.map_or(String::new(), port);
            let table = table.map_or(String::new(), |table| table.to_string());
            format!("resubmit({number},{table}{})", if *with_ct { ",ct" } else { "" })
        }
        Action::Learn(learn) => learn_text(learn, fields),
        Action::Conjunction { clause, clauses, id } => {
            format!("conjunction({id},{}/{clauses})", u16::from(*clause) + 1)
        }
        Action::Multipath { hash, basis, algorithm, max_link, argument, to } => {
            let (hash, links) = (hash_text(*hash), u32::from(*max_link) + 1);
            let algorithm = match algorithm {
                MultipathAlgorithm::ModuloN => "modulo_n",
                MultipathAlgorithm::HashThreshold => "hash_threshold",
                MultipathAlgorithm::HighestRandomWeight => "hrw",
                MultipathAlgorithm::IterativeHash => "iter_hash",
            };
            format!("multipath({hash},{basis},{algorithm},{links},{argument},{})", bits(to, fields))
        }
        Action::Bundle { hash, basis, algorithm, members, to } => {
            let algorithm = match algorithm {
                BundleAlgorithm::ActiveBackup => "active_backup",
                BundleAlgorithm::HighestRandomWeight => "hrw",
            };
            let members: Vec<String> = members.iter().map(|member| port(*member)).collect();
            let (name, to) =
                to.map_or(("bundle", String::new()), |to| ("bundle_load", format!(",{}", bits(&to, fields))));
            format!("{name}({},{basis},{algorithm},ofport{to},members:{})", hash_text(*hash), members.join(","))
        }
        Action::CheckPacketLarger { bytes, to } => format!("check_pkt_larger({bytes})->{}", bits(to, fields)),
        Action::Note(bytes) => format!("note:{}", dotted(bytes)),
        Action::FinTimeout { idle, hard } => format!("fin_timeout(idle_timeout={idle},hard_timeout={hard})"),
        Action::Exit => "exit".into(),
        Action::Clone(list) => format!("clone({})", actions(list, fields)),
        Action::ClearActions => "clear_actions".into(),
        Action::WriteActions(list) => format!("write_actions({})", actions(list, fields)),
        Action::WriteMetadata { value, mask } => metadata_text(*value, *mask),
        Action::GotoTable(table) => format!("goto_table:{table}"),
        Action::Program { id, argument } => format!("prog:{id}({argument:#x})"),
        Action::Unsupported(name) => (*name).into(),
    }
}

/// The text of OpenFlow 1.0's set actions, under their own names (ovs-actions(7)).
fn legacy_text(id: FieldId, of: u128, mask: u128, fields: &Fields) -> String {
    let field = fields.get(id);
    let number = (0..128).find(|number| fields.basic(*number) == Some(id)).filter(|_| mask == field.full());
    match number {
        Some(8) => format!("mod_nw_tos:{}", of << 2),
        Some(9) => format!("mod_nw_ecn:{of}"),
        Some(11) => format!("mod_nw_src:{}", value(of, field)),
        Some(12) => format!("mod_nw_dst:{}", value(of, field)),
        Some(13 | 15 | 17) => format!("mod_tp_src:{of}"),
        Some(14 | 16 | 18) => format!("mod_tp_dst:{of}"),
        _ => format!("set_field:{}->{}", masked(of, mask, field), field.name),
    }
}

fn header_text(name: HeaderAction, argument: u128) -> String {
    match name {
        HeaderAction::PushVlan | HeaderAction::PushMpls | HeaderAction::PopMpls | HeaderAction::PushPbb => {
            format!("{}:{argument:#06x}", name.name())
        }
        HeaderAction::SetVlanVid => format!("mod_vlan_vid:{argument}"),
        HeaderAction::SetVlanPcp => format!("mod_vlan_pcp:{argument}"),
        HeaderAction::SetNwTtl => format!("mod_nw_ttl:{argument}"),
        HeaderAction::SetMplsTtl => format!("set_mpls_ttl({argument})"),
        HeaderAction::DecNwTtl => "dec_ttl".into(),
        _ => name.name().into(),
    }
}

fn controller_text(controller: &Controller) -> String {
    let Controller { max_len, id, reason, userdata, pause, meter } = controller;
    let mut parts = Vec::new();
    match reason {
        0 => parts.push("reason=no_match".into()),
        1 => {}
        2 => parts.push("reason=invalid_ttl".into()),
        _ => parts.push(format!("reason={reason}")),
    }
    if *max_len != 0xffff {
        parts.push(format!("max_len={max_len}"));
    }
    if *id != 0 {
        parts.push(format!("id={id}"));
    }
    if !userdata.is_empty() {
        parts.push(format!("userdata={}", dotted(userdata)));
    }
    if *pause {
        parts.push("pause".into());
    }
    parts.extend(meter.map(|meter| format!("meter_id={meter}")));
    format!("controller({})", parts.join(","))
}

fn learn_text(learn: &Learn, fields: &Fields) -> String {
    let mut parts = vec![format!("table={}", learn.table)];
    let mut add = |name: &str, value: u64, neutral: u64| {
        if value != neutral {
            parts.push(format!("{name}={value}"));
        }
    };
    add("idle_timeout", learn.idle_timeout.into(), 0);
    add("hard_timeout", learn.hard_timeout.into(), 0);
    add("fin_idle_timeout", learn.fin_idle_timeout.into(), 0);
    add("fin_hard_timeout", learn.fin_hard_timeout.into(), 0);
    add("priority", learn.priority.into(), 0x8000);
    add("limit", learn.limit.into(), 0);
    if learn.flags & 1 != 0 {
        parts.push("send_flow_rem".into());
    }
    if learn.flags & 2 != 0 {
        parts.push("delete_learned".into());
    }
    if learn.cookie != 0 {
        parts.push(format!("cookie={:#x}", learn.cookie));
    }
    if let Some(result) = &learn.result {
        parts.push(format!("result_dst={}", bits(result, fields)));
    }
    let from_text = |from: &Source| match from {
        Source::Value(value) => format!("{value:#x}"),
        Source::Field(from) => bits(from, fields),
    };
    for spec in &learn.specs {
        parts.push(match spec {
            LearnSpec::Match { to, from: Source::Field(from) } if to == from => bits(to, fields),
            LearnSpec::Match { to, from } => format!("{}={}", bits(to, fields), from_text(from)),
            LearnSpec::Load { to, from } => format!("load:{}->{}", from_text(from), bits(to, fields)),
            LearnSpec::Output { from } => format!("output:{}", bits(from, fields)),
        });
    }
    format!("learn({})", parts.join(","))
}

fn hash_text(hash: HashFields) -> &'static str {
    match hash {
        HashFields::EthSrc => "eth_src",
        HashFields::SymmetricL4 => "symmetric_l4",
        HashFields::SymmetricL3L4 => "symmetric_l3l4",
        HashFields::SymmetricL3L4Udp => "symmetric_l3l4+udp",
        HashFields::NwSrc => "nw_src",
        HashFields::NwDst => "nw_dst",
        HashFields::SymmetricL3 => "symmetric_l3",
    }
}

fn list(numbers: &[u16]) -> String {
    let texts: Vec<String> = numbers.iter().map(u16::to_string).collect();
    texts.join(",")
}

fn dotted(bytes: &[u8]) -> String {
    let texts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    texts.join(".")
}

#[cfg(test)]
mod tests;
