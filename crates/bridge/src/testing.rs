//! A small program of the OpenFlow model, for tests.

use base::Bits;
use base::entry::ActionCall;
use base::ids::{ActionId, SlotId};
use ir::{
    Action, BinOp, Builder, EntryKind, Fate, FieldPart, FieldWidth, Intrinsic, MatchField, Op, OpenFlow, Operand,
    Program, StageKind, Table, TableAction,
};

fn field(name: &str, slot: SlotId, width: u32, numbers: &[(u16, u8)]) -> MatchField {
    MatchField {
        name: name.to_string(),
        parts: vec![FieldPart { slot, lo: 0, width }],
        numbers: numbers.iter().map(|(class, field)| (*class, *field, 0)).collect(),
        maskable: true,
        writable: true,
        is_metadata: false,
        prerequisites: Vec::new(),
    }
}

/// Ethernet, one VLAN tag, IPv4, IPv6 addresses, TCP ports, registers; actions `push_vlan`, `pop_vlan`, `dec_nw_ttl`, `push_mpls`.
pub fn program() -> Program {
    use FieldWidth::Fixed;
    let mut b = Builder::new("test");
    let in_port = b.metadata("in_port", 32);
    b.intrinsic(Intrinsic::IngressPort, in_port);
    let metadata = b.metadata("metadata", 64);
    let regs: Vec<SlotId> = (0..2).map(|i| b.metadata(format!("xreg{i}"), 64)).collect();
    let conj_id = b.metadata("conj_id", 32);
    let reparse = b.metadata("reparse", 1);
    let exceeded = b.metadata("ttl_exceeded", 1);
    let eth = b.header("eth", &[("dst", Fixed(48)), ("src", Fixed(48)), ("type", Fixed(16))]);
    let vlan = b.header("vlan", &[("pcp", Fixed(3)), ("present", Fixed(1)), ("vid", Fixed(12))]);
    let ip = b.header(
        "ip",
        &[("dscp", Fixed(6)), ("ttl", Fixed(8)), ("proto", Fixed(8)), ("src", Fixed(32)), ("dst", Fixed(32))],
    );
    let ip6 = b.header("ip6", &[("dst", Fixed(128))]);
    let tcp = b.header("tcp", &[("src", Fixed(16)), ("dst", Fixed(16))]);
    let slots = |b: &Builder, header: base::ids::HeaderId| -> Vec<SlotId> {
        b.program().headers[header.index()].fields.iter().map(|field| field.slot).collect()
    };
    let (e, v, i, i6, t) = (slots(&b, eth), slots(&b, vlan), slots(&b, ip), slots(&b, ip6), slots(&b, tcp));
    let valid = |b: &Builder, header: base::ids::HeaderId| b.program().headers[header.index()].valid;
    let (vlan_valid, ip_valid) = (valid(&b, vlan), valid(&b, ip));

    let meta = |field: MatchField| MatchField { is_metadata: true, ..field };
    let mut fields = vec![
        meta(field("in_port", in_port, 32, &[(0x8000, 0)])),
        meta(field("metadata", metadata, 64, &[(0x8000, 2)])),
        meta(field("conj_id", conj_id, 32, &[(1, 37)])),
    ];
    for (n, slot) in regs.iter().enumerate() {
        fields.push(meta(field(&format!("xreg{n}"), *slot, 64, &[(0x8001, n as u8)])));
        for half in 0..2 {
            let number = 2 * n as u8 + half;
            let mut reg = meta(field(&format!("reg{number}"), *slot, 32, &[(1, number)]));
            reg.parts[0].lo = if half == 0 { 32 } else { 0 };
            fields.push(reg);
        }
    }
    let base = fields.len() as u32;
    // A place in the list that follows.
    let needs = |place: u32, mask: u128, value: u128| vec![(base + place, mask, vec![value])];
    let needing = |field: MatchField, prerequisites| MatchField { prerequisites, ..field };
    let vlan_field = MatchField {
        parts: vec![FieldPart { slot: v[1], lo: 0, width: 1 }, FieldPart { slot: v[2], lo: 0, width: 12 }],
        ..field("vlan_vid", v[2], 12, &[(0x8000, 6)])
    };
    let (ipv4, ipv6) = (0x800, 0x86dd);
    fields.extend([
        field("eth_dst", e[0], 48, &[(0x8000, 3)]),
        field("eth_src", e[1], 48, &[(0x8000, 4)]),
        field("eth_type", e[2], 16, &[(0x8000, 5)]),
        vlan_field,
        needing(field("vlan_pcp", v[0], 3, &[(0x8000, 7)]), needs(3, 0x1000, 0x1000)),
        needing(field("ip_dscp", i[0], 6, &[(0x8000, 8)]), needs(2, 0xffff, ipv4)),
        needing(field("ip_proto", i[2], 8, &[(0x8000, 10)]), needs(2, 0xffff, ipv4)),
        needing(field("nw_ttl", i[1], 8, &[(1, 29)]), needs(2, 0xffff, ipv4)),
        needing(field("ipv4_src", i[3], 32, &[(0x8000, 11)]), needs(2, 0xffff, ipv4)),
        needing(field("ipv4_dst", i[4], 32, &[(0x8000, 12)]), needs(2, 0xffff, ipv4)),
        needing(field("ipv6_dst", i6[0], 128, &[(0x8000, 27)]), needs(2, 0xffff, ipv6)),
        needing(field("tcp_src", t[0], 16, &[(0x8000, 13)]), needs(6, 0xff, 6)),
        needing(field("tcp_dst", t[1], 16, &[(0x8000, 14)]), needs(6, 0xff, 6)),
    ]);

    // The control of header actions, as a front end makes it.
    let names: [(&str, &[(&str, u32)]); 4] =
        [("push_vlan", &[("type", 16)]), ("pop_vlan", &[]), ("dec_nw_ttl", &[]), ("push_mpls", &[("type", 16)])];
    let actions: Vec<ActionId> = names
        .iter()
        .map(|(name, params)| {
            let params = params.iter().map(|(name, width)| (name.to_string(), *width)).collect();
            b.action(Action { name: format!("Actions.{name}"), params })
        })
        .collect();
    let table = b.table(Table {
        name: "Actions.header_actions".to_string(),
        span: base::Span::NONE,
        keys: Vec::new(),
        actions: actions
            .iter()
            .map(|action| TableAction { action: *action, default_only: false, table_only: false })
            .collect(),
        default_action: ActionCall { action: 1, args: Vec::new() },
        const_default: false,
        entries: Vec::new(),
        const_entries: false,
        size: 1,
        implementation: None,
        direct: Vec::new(),
        idle_timeout: false,
        value_set: false,
        dynamic: None,
    });
    let stage = b.begin_stage("Actions", StageKind::Control);
    let (hit, action, entry, data) = (b.temp(1), b.temp(32), b.temp(64), b.temp(64));
    b.emit(Op::Apply { table, keys: Vec::new(), selector: Vec::new(), hit, action, entry, data });
    let bodies: Vec<_> = names.iter().map(|(name, _)| b.block(*name)).collect();
    let join = b.block("join");
    let cases = bodies.iter().enumerate().skip(1).map(|(k, body)| (Bits::new(32, k as u128), *body)).collect();
    b.switch(action, cases, bodies[0]);
    // push_vlan
    b.switch_to(bodies[0]);
    let kind = b.temp(16);
    b.emit(Op::ActionParam { dst: kind, table, action: 0, param: 0, data });
    b.emit(Op::SetValid { header: vlan });
    b.set(v[1], 1);
    b.mov(e[2], kind);
    b.jump(join);
    // pop_vlan
    b.switch_to(bodies[1]);
    let (pop, popped) = (b.block("pop"), b.block("popped"));
    b.branch(vlan_valid, pop, popped);
    b.switch_to(pop);
    b.emit(Op::SetInvalid { header: vlan });
    b.set(e[2], 0x800);
    b.jump(popped);
    b.switch_to(popped);
    b.jump(join);
    // dec_nw_ttl
    b.switch_to(bodies[2]);
    let (is_ip, over, decrement) = (b.block("is_ip"), b.block("over"), b.block("decrement"));
    b.branch(ip_valid, is_ip, join);
    b.switch_to(is_ip);
    let is_over = b.bin(BinOp::Ule, i[1], Operand::Const(Bits::new(8, 1)));
    b.branch(is_over, over, decrement);
    b.switch_to(over);
    b.set(exceeded, 1);
    b.jump(join);
    b.switch_to(decrement);
    let less = b.bin(BinOp::Sub, i[1], Operand::Const(Bits::new(8, 1)));
    b.mov(i[1], less);
    b.jump(join);
    // push_mpls: what is below is not to be seen until it is parsed anew.
    b.switch_to(bodies[3]);
    let kind = b.temp(16);
    b.emit(Op::ActionParam { dst: kind, table, action: 3, param: 0, data });
    b.mov(e[2], kind);
    b.set(reparse, 1);
    b.jump(join);
    b.switch_to(join);
    b.next_stage();
    b.end_stage();

    let last = b.begin_stage("end", StageKind::Control);
    let drop = b.drop_reason("end");
    b.fate(Fate::Drop(drop));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[last]);
    let mut program = b.finish();
    program.openflow =
        Some(OpenFlow { fields, actions: Some((stage, table)), reparse: Some(reparse), ttl_exceeded: Some(exceeded) });
    program
}
