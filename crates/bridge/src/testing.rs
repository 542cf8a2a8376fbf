//! For tests: a small program of the OpenFlow model, tables without connections, and an engine for single packets.

use crate::controllers::PacketInEvent;
use crate::flow::{Flow, Usage};
use crate::host::{Host, NotInjected};
use crate::key::Layout;
use crate::pending::Pending;
use crate::processor::Processor;
use crate::recent::Recent;
use crate::tables::Tables;
use crate::translate::Control;
use abi::flows::{Arrival, FlowProcessor, Output, Outputs};
use base::Bits;
use base::entry::ActionCall;
use base::ids::{ActionId, SlotId};
use ir::{
    Action, BinOp, Builder, EntryKind, Fate, FieldPart, FieldWidth, Intrinsic, MatchField, Op, OpenFlow, Operand,
    Program, StageKind, Table, TableAction,
};
use openflow::message::{FlowMod, Port, PortStats, Queue, QueueStats, Timeouts};
use openflow::{FieldId, Instructions, Match};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

/// Ethernet, one VLAN tag, IPv4, IPv6 addresses, TCP ports, registers; actions `push_vlan`, `pop_vlan`,
/// `dec_nw_ttl`, `push_mpls`.
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
        &[
            ("dscp", Fixed(6)),
            ("ttl", Fixed(8)),
            ("proto", Fixed(8)),
            ("src", Fixed(32)),
            ("dst", Fixed(32)),
            ("frag", Fixed(2)),
        ],
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
    // A prerequisite; `place` is a field's index in the list that follows.
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
        needing(field("nw_frag", i[5], 2, &[(1, 26)]), needs(2, 0xffff, ipv4)),
        needing(field("ipv6_dst", i6[0], 128, &[(0x8000, 27)]), needs(2, 0xffff, ipv6)),
        needing(field("tcp_src", t[0], 16, &[(0x8000, 13)]), needs(6, 0xff, 6)),
        needing(field("tcp_dst", t[1], 16, &[(0x8000, 14)]), needs(6, 0xff, 6)),
    ]);

    // The control of header actions, as a front end generates it.
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
    // push_mpls: what follows the new header is hidden until the frame is parsed again.
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

/// A bridge without connections: tables that tests change, and the packet-ins that controllers would get.
pub struct TestBridge {
    layout: Arc<Layout>,
    tables: RwLock<Tables>,
    pending: Pending,
    recent: Arc<Recent>,
    /// Packet-ins.
    pub packet_ins: Mutex<Vec<PacketInEvent>>,
    /// Number of learned flows.
    pub learned: AtomicU64,
}

impl TestBridge {
    /// A bridge with ports 1 to 4.
    pub fn new(program: &Program) -> Arc<TestBridge> {
        let layout = Arc::new(Layout::new(program).unwrap());
        let mut tables = Tables::new(&layout);
        for number in 1..=4 {
            tables.replace_port(number, Some(Port { number, ..Port::default() }));
        }
        Arc::new(TestBridge {
            recent: Arc::clone(tables.recent()),
            tables: RwLock::new(tables),
            pending: Pending::default(),
            packet_ins: Mutex::default(),
            learned: AtomicU64::new(0),
            layout,
        })
    }

    /// Locks the tables for changes.
    pub fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap()
    }

    /// Adds a flow that applies actions.
    pub fn add(&self, table: u8, priority: u16, matching: Match, apply: Vec<openflow::Action>) -> Arc<Flow> {
        self.add_with(table, priority, matching, Instructions { apply, ..Instructions::default() })
    }

    /// Adds a flow.
    pub fn add_with(&self, table: u8, priority: u16, matching: Match, instructions: Instructions) -> Arc<Flow> {
        let usage = Arc::new(Usage::new(0));
        self.put(Flow {
            table,
            matching,
            priority,
            cookie: 0,
            flags: 0,
            importance: 0,
            timeouts: Timeouts::default(),
            fin_timeouts: AtomicU32::new(u32::MAX),
            instructions,
            created_us: 0,
            modified_us: 0,
            usage,
            charge: Default::default(),
        })
    }

    fn put(&self, flow: Flow) -> Arc<Flow> {
        let flow = Arc::new(flow);
        self.write().insert_flow(Arc::clone(&flow));
        flow
    }

    /// A match of fields, by name.
    pub fn matching(&self, terms: &[(&str, u128)]) -> Match {
        let mut matching = Match::any();
        for (name, value) in terms {
            let id = self.field(name);
            matching.add(id, *value, self.layout.fields().get(id).full());
        }
        matching
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> FieldId {
        self.layout.fields().named(name).expect(name)
    }

    /// A record with these fields. Headers are valid as `eth_type` and `ip_proto` require.
    pub fn record(&self, program: &Program, fields: &[(&str, u128)]) -> Vec<u64> {
        let mut record = vec![0; self.layout.words()];
        for (name, value) in fields {
            self.layout.place(self.field(name)).write(&mut record, *value, u128::MAX);
        }
        set_validity(&self.layout, program, &mut record);
        record
    }
}

/// Sets the validity bits of headers, and clears the fields of invalid ones, as a parser would.
pub fn set_validity(layout: &Layout, program: &Program, record: &mut [u64]) {
    let read = |record: &[u64], name: &str| layout.place(layout.fields().named(name).unwrap()).read(record);
    let kind = read(record, "eth_type");
    let is_ip = kind == 0x800;
    let is_tcp = is_ip && read(record, "ip_proto") == 6;
    let has_vlan = read(record, "vlan_vid") & 0x1000 != 0;
    for header in &program.headers {
        let is_valid = match header.name.as_str() {
            "eth" => true,
            "vlan" => has_vlan,
            "ip" => is_ip,
            "ip6" => kind == 0x86dd,
            _ => is_tcp,
        };
        layout.record().set_word(record, header.valid, u64::from(is_valid));
        if !is_valid {
            header.fields.iter().for_each(|field| {
                layout.record().set(record, field.slot, &Bits::zero(program.width(field.slot)));
            });
        }
    }
}

impl Control for TestBridge {
    fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap()
    }

    fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    fn learn(&self, request: &FlowMod) -> Result<(), openflow::Error> {
        let found = self.tables().table(request.table).flows.find(&request.matching, request.priority).cloned();
        let usage = found.map_or_else(|| Arc::new(Usage::new(0)), |old| Arc::clone(&old.usage));
        self.learned.fetch_add(1, Ordering::Relaxed);
        self.put(Flow {
            table: request.table,
            matching: request.matching.clone(),
            priority: request.priority,
            cookie: request.cookie,
            flags: request.flags,
            importance: 0,
            timeouts: request.timeouts,
            fin_timeouts: AtomicU32::new(u32::MAX),
            instructions: request.instructions.clone(),
            created_us: 0,
            modified_us: 0,
            usage,
            charge: Default::default(),
        });
        Ok(())
    }

    fn shorten(&self, _: &Arc<Flow>) {}

    fn packet_in(&self, event: PacketInEvent) {
        self.packet_ins.lock().unwrap().push(event);
    }

    fn pending(&self) -> &Pending {
        &self.pending
    }
}

/// A host without a switch, which records how ports were configured.
#[derive(Debug, Default)]
pub struct NoSwitch {
    /// Ports with their `OFPPC_` bits.
    pub configured: Mutex<Vec<(u32, u32)>>,
}

impl Host for NoSwitch {
    fn now_us(&self) -> u64 {
        0
    }

    fn inject(&self, _: Vec<u8>, _: u32, _: u64) -> Result<(), NotInjected> {
        Err(NotInjected::Failed("there is no switch".into()))
    }

    fn port_stats(&self, _: u32) -> Option<PortStats> {
        None
    }

    fn queues(&self, _: u32) -> Vec<Queue> {
        Vec::new()
    }

    fn queue_stats(&self, _: u32) -> Vec<QueueStats> {
        Vec::new()
    }

    fn set_port_config(&self, port: u32, config: u32) -> Result<(), String> {
        self.configured.lock().unwrap().push((port, config));
        Ok(())
    }

    fn sync_counts(&self) {}

    fn wake(&self, _: u64) {}
}

/// An output of a processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// To a port and queue, with the record.
    Port(u32, u8, u32, bool, Vec<u64>),
    /// A capture with a token.
    Capture(u64),
    /// A recirculation.
    Again(u64, bool, Vec<u64>),
    /// A drop.
    Dropped,
}

/// Collects outputs, and checks that each packet ends exactly once.
#[derive(Debug, Default)]
pub struct Collected {
    /// The outputs.
    pub left: Vec<Left>,
    ended: bool,
    spent: u32,
}

impl Collected {
    fn push(&mut self, output: Output, left: Left) {
        assert!(!self.ended, "something leaves behind the last output");
        self.ended = output.is_last;
        self.left.push(left);
    }
}

impl Outputs for Collected {
    fn send(&mut self, output: Output, record: &[u64], port: u32, queue: u8) {
        self.push(output, Left::Port(port, queue, output.max_len, output.is_modified, record.to_vec()));
    }

    fn capture(&mut self, output: Output, _: &[u64], token: u64) {
        self.push(output, Left::Capture(token));
    }

    fn again(&mut self, output: Output, record: &[u64], start: u64, rewrites: bool) {
        self.push(output, Left::Again(start, rewrites, record.to_vec()));
    }

    fn end(&mut self, _: usize, is_dropped: bool) {
        assert!(!self.ended, "a packet ends twice");
        self.ended = true;
        if is_dropped {
            assert!(self.left.is_empty());
            self.left.push(Left::Dropped);
        }
    }

    fn work_left(&self, _: usize) -> u32 {
        WORK - self.spent
    }

    fn spend(&mut self, _: usize, steps: u32) {
        self.spent += steps;
    }

    fn refuse(&mut self, packet: usize) {
        self.end(packet, true);
    }
}

/// Work limit of a packet in tests, in steps: that of a packet alone in its burst.
pub const WORK: u32 = 65_536;

/// Passes a packet through a processor as the engine does, including recirculations. Asserts that a packet that is
/// sent as unmodified equals the received one.
pub fn pass(
    processor: &mut Processor,
    program: &Program,
    layout: &Layout,
    (record, bytes): (&[u64], u32),
    start: u64,
    now_us: u64,
) -> Vec<Left> {
    let mut result = Vec::new();
    let mut waiting = vec![(record.to_vec(), start)];
    for _ in 0..16 {
        let Some((received, start)) = waiting.pop() else { break };
        let port = layout.in_port().read(&received) as u32;
        let mut own = received.clone();
        let mut outputs = Collected::default();
        let mut batch = [Arrival { record: &mut own, port, frame: &[], bytes, start }];
        processor.process(&mut batch, now_us, &mut outputs);
        assert!(outputs.ended, "a packet does not end");
        for left in outputs.left {
            match left {
                Left::Capture(token) => {
                    processor.capture(token, &[1, 2, 3]);
                    result.push(Left::Capture(0));
                }
                Left::Again(start, rewrites, mut record) => {
                    // Parsing again resets metadata.
                    for id in layout.metadata() {
                        layout.place(id).write(&mut record, 0, u128::MAX);
                    }
                    for flag in [layout.reparse(), layout.ttl_exceeded()].into_iter().flatten() {
                        record[flag.word as usize] = 0;
                    }
                    layout.in_port().write(&mut record, u128::from(port), u128::MAX);
                    set_validity(layout, program, &mut record);
                    result.push(Left::Again(0, rewrites, Vec::new()));
                    waiting.push((record, start));
                }
                Left::Port(port, queue, max_len, is_modified, record) => {
                    // Compare only the words of headers.
                    let of_frame = |record: &[u64]| -> Vec<u64> {
                        let headers = program
                            .headers
                            .iter()
                            .flat_map(|header| header.fields.iter().map(|field| field.slot).chain([header.valid]));
                        headers.map(|slot| layout.record().get_word(record, slot)).collect()
                    };
                    let sent = of_frame(&record);
                    assert!(is_modified || sent == of_frame(&received), "it is changed, but is said not to be");
                    result.push(Left::Port(port, queue, max_len, is_modified, sent));
                }
                Left::Dropped => result.push(left),
            }
        }
    }
    result
}
