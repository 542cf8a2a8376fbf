//! A program and a switch for tests of the control plane: a router with one object of every kind, on the interpreter's
//! naive state. Used by `control` and `grpc`.
#![allow(dead_code, reason = "each test binary uses a part")]

use abi::state::PipelineState;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::{ActionId, ExternId, TableId};
use base::{Bits, Span};
use control::pipeline::{Built, Target};
use datapath::replication::Replication;
use ir::program as ir;
use p4info::ids::Allocator;
use p4info::{self as info, ObjectKind, P4Info};
use std::sync::{Arc, Mutex};

/// The controller's port.
pub const CPU: u32 = 64;

/// The program that this source text means: `router`, `router smaller` (without `acl`), anything else is refused.
pub fn program(source: &str) -> Option<(P4Info, ir::Program)> {
    match source {
        "router" => Some(router(true)),
        "router smaller" => Some(router(false)),
        _ => None,
    }
}

/// The id of an object of the router.
pub fn id(kind: ObjectKind, name: &str) -> u32 {
    ids().id(kind, name).unwrap_or_else(|| panic!("the router has no {} {name}", kind.noun()))
}

const NAMES: [(ObjectKind, &str); 20] = [
    (ObjectKind::Table, "ingress.ipv4_lpm"),
    (ObjectKind::Table, "ingress.acl"),
    (ObjectKind::Table, "ingress.ecmp"),
    (ObjectKind::Table, "ingress.fixed"),
    (ObjectKind::Table, "ingress.keyless"),
    (ObjectKind::Action, "ingress.forward"),
    (ObjectKind::Action, "ingress.discard"),
    (ObjectKind::Action, "NoAction"),
    (ObjectKind::ActionProfile, "ingress.selector"),
    (ObjectKind::Counter, "ingress.count"),
    (ObjectKind::DirectCounter, "ingress.route_count"),
    (ObjectKind::Meter, "ingress.police"),
    (ObjectKind::DirectMeter, "ingress.route_police"),
    (ObjectKind::Register, "ingress.state"),
    (ObjectKind::Register, "ingress.pair"),
    (ObjectKind::Digest, "learn"),
    (ObjectKind::ValueSet, "parser.types"),
    (ObjectKind::ControllerHeader, "packet_in"),
    (ObjectKind::ControllerHeader, "packet_out"),
    (ObjectKind::Action, "ingress.elsewhere"),
];

fn ids() -> info::ids::Allocation {
    let mut allocator = Allocator::default();
    for (kind, name) in NAMES {
        allocator.add(kind, name, None).unwrap();
    }
    allocator.allocate()
}

fn preamble(kind: ObjectKind, name: &str) -> info::Preamble {
    info::Preamble { id: id(kind, name), name: name.into(), alias: name.into(), ..Default::default() }
}

fn field(id: u32, name: &str, bitwidth: u32, kind: MatchKind) -> info::MatchField {
    let (annotations, doc) = Default::default();
    let match_type = info::MatchType::Known(kind);
    info::MatchField { id, name: name.into(), annotations, doc, bitwidth, match_type, type_name: None }
}

fn param(id: u32, name: &str, bitwidth: u32) -> info::Param {
    info::Param { id, name: name.into(), bitwidth, ..Default::default() }
}

/// `(name, scope)` of each action.
fn refs(actions: &[(&str, info::ActionScope)]) -> Vec<info::ActionRef> {
    let id = |name| id(ObjectKind::Action, name);
    let annotations = info::Annotations::default;
    actions.iter().map(|(n, scope)| info::ActionRef { id: id(n), scope: *scope, annotations: annotations() }).collect()
}

fn router(with_acl: bool) -> (P4Info, ir::Program) {
    use info::ActionScope::{DefaultOnly, TableAndDefault, TableOnly};
    let no_action = id(ObjectKind::Action, "NoAction");
    let table = |name: &str, match_fields: Vec<info::MatchField>, actions: &[(&str, info::ActionScope)]| info::Table {
        preamble: preamble(ObjectKind::Table, name),
        match_fields,
        action_refs: refs(actions),
        initial_default_action: Some(info::ActionCall { action_id: no_action, arguments: vec![] }),
        size: 8,
        ..Default::default()
    };
    let mut tables = vec![
        info::Table {
            direct_resource_ids: vec![
                id(ObjectKind::DirectCounter, "ingress.route_count"),
                id(ObjectKind::DirectMeter, "ingress.route_police"),
            ],
            idle_timeout: true,
            ..table(
                "ingress.ipv4_lpm",
                vec![field(1, "hdr.ipv4.dst", 32, MatchKind::Lpm)],
                &[("ingress.forward", TableAndDefault), ("ingress.discard", TableOnly), ("NoAction", DefaultOnly)],
            )
        },
        info::Table {
            implementation_id: Some(id(ObjectKind::ActionProfile, "ingress.selector")),
            ..table(
                "ingress.ecmp",
                vec![field(1, "meta.group", 8, MatchKind::Exact)],
                &[("ingress.forward", TableAndDefault), ("NoAction", DefaultOnly)],
            )
        },
        info::Table {
            is_const_table: true,
            has_initial_entries: true,
            const_default_action_id: Some(no_action),
            ..table(
                "ingress.fixed",
                vec![field(1, "meta.kind", 8, MatchKind::Exact)],
                &[("ingress.forward", TableAndDefault), ("NoAction", DefaultOnly)],
            )
        },
        table("ingress.keyless", vec![], &[("ingress.forward", TableAndDefault), ("NoAction", TableAndDefault)]),
    ];
    if with_acl {
        tables.push(table(
            "ingress.acl",
            vec![
                field(1, "hdr.ipv4.src", 32, MatchKind::Ternary),
                field(2, "hdr.udp.dst", 16, MatchKind::Range),
                field(3, "hdr.ipv4.protocol", 8, MatchKind::Optional),
                field(4, "meta.port", 9, MatchKind::Exact),
            ],
            &[("ingress.forward", TableAndDefault), ("ingress.discard", TableAndDefault), ("NoAction", DefaultOnly)],
        ));
    }
    let action = |name: &str, params| info::Action { preamble: preamble(ObjectKind::Action, name), params };
    let mut type_info = info::TypeInfo::default();
    let members = |list: &[(&str, info::DataType)]| info::StructType {
        members: list.iter().map(|(name, data_type)| (name.to_string(), data_type.clone())).collect(),
        ..Default::default()
    };
    type_info.structs.insert("learn".into(), members(&[("mac", info::DataType::Bit(48)), ("port", info::DataType::Bit(9))]));
    type_info.structs.insert("pair".into(), members(&[("a", info::DataType::Int(12)), ("b", info::DataType::Bool)]));
    let controller_header = |name: &str, port: &str| info::ControllerPacketMetadata {
        preamble: preamble(ObjectKind::ControllerHeader, name),
        metadata: vec![param(1, port, 9), param(2, "padding", 7)],
    };
    let info = P4Info {
        pkg_info: info::PkgInfo { arch: "v1model".into(), ..Default::default() },
        tables,
        actions: vec![
            action("ingress.forward", vec![param(1, "port", 9), param(2, "mac", 48)]),
            action("ingress.discard", vec![]),
            action("NoAction", vec![]),
            action("ingress.elsewhere", vec![]),
        ],
        action_profiles: vec![info::ActionProfile {
            preamble: preamble(ObjectKind::ActionProfile, "ingress.selector"),
            table_ids: vec![id(ObjectKind::Table, "ingress.ecmp")],
            with_selector: true,
            size: 16,
            max_group_size: 6,
            ..Default::default()
        }],
        counters: vec![info::Counter {
            preamble: preamble(ObjectKind::Counter, "ingress.count"),
            unit: info::CounterUnit::Both,
            size: 4,
            index_type_name: None,
        }],
        direct_counters: vec![info::DirectCounter {
            preamble: preamble(ObjectKind::DirectCounter, "ingress.route_count"),
            unit: info::CounterUnit::Both,
            direct_table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
        }],
        meters: vec![info::Meter {
            preamble: preamble(ObjectKind::Meter, "ingress.police"),
            unit: info::MeterUnit::Bytes,
            size: 4,
            index_type_name: None,
        }],
        direct_meters: vec![info::DirectMeter {
            preamble: preamble(ObjectKind::DirectMeter, "ingress.route_police"),
            unit: info::MeterUnit::Bytes,
            direct_table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
        }],
        registers: vec![
            info::Register {
                preamble: preamble(ObjectKind::Register, "ingress.state"),
                type_spec: info::DataType::Bit(32),
                size: 4,
                index_type_name: None,
            },
            info::Register {
                preamble: preamble(ObjectKind::Register, "ingress.pair"),
                type_spec: info::DataType::Struct("pair".into()),
                size: 2,
                index_type_name: None,
            },
        ],
        digests: vec![info::Digest {
            preamble: preamble(ObjectKind::Digest, "learn"),
            type_spec: info::DataType::Struct("learn".into()),
        }],
        value_sets: vec![info::ValueSet {
            preamble: preamble(ObjectKind::ValueSet, "parser.types"),
            match_fields: vec![field(1, "", 16, MatchKind::Exact)],
            size: 2,
        }],
        controller_packet_metadata: vec![
            controller_header("packet_in", "ingress_port"),
            controller_header("packet_out", "egress_port"),
        ],
        externs: vec![],
        type_info,
    };
    let program = ir_program(&info);
    (info, program)
}

/// The data plane's side of the same program: only what its state is made from.
fn ir_program(info: &P4Info) -> ir::Program {
    let actions: Vec<ir::Action> = info
        .actions
        .iter()
        .map(|a| ir::Action {
            name: a.preamble.name.clone(),
            params: a.params.iter().map(|p| (p.name.clone(), p.bitwidth)).collect(),
        })
        .collect();
    let action = |id: u32| ActionId::from_index(info.actions.iter().position(|a| a.preamble.id == id).unwrap());
    let listed = |table: &info::Table| -> Vec<ir::TableAction> {
        let scope = |r: &info::ActionRef, scope| r.scope == scope;
        table
            .action_refs
            .iter()
            .map(|r| ir::TableAction {
                action: action(r.id),
                default_only: scope(r, info::ActionScope::DefaultOnly),
                table_only: scope(r, info::ActionScope::TableOnly),
            })
            .collect()
    };
    let keys = |fields: &[info::MatchField]| -> Vec<ir::Key> {
        let kind = |f: &info::MatchField| match f.match_type {
            info::MatchType::Known(kind) => kind,
            info::MatchType::Other(_) => unreachable!("the router has none"),
        };
        fields.iter().map(|f| ir::Key { name: f.name.clone(), width: f.bitwidth, kind: kind(f) }).collect()
    };
    let mut externs: Vec<ir::Extern> = Vec::new();
    let mut add = |name: &str, kind| {
        externs.push(ir::Extern { name: name.into(), span: Span::NONE, kind });
        ExternId::from_index(externs.len() - 1)
    };
    let unit = ir::CounterUnit::Both;
    let lpm = Some(TableId(0));
    let route_count = add("ingress.route_count", ir::ExternKind::Counter { size: 8, unit, direct: lpm });
    let route_police = add("ingress.route_police", ir::ExternKind::Meter { size: 8, unit, direct: lpm });
    add("ingress.count", ir::ExternKind::Counter { size: 4, unit, direct: None });
    add("ingress.police", ir::ExternKind::Meter { size: 4, unit, direct: None });
    add("ingress.state", ir::ExternKind::Register { size: 4, width: 32, initial: Bits::zero(32) });
    add("ingress.pair", ir::ExternKind::Register { size: 2, width: 13, initial: Bits::zero(13) });
    add("learn", ir::ExternKind::Digest { fields: vec![("mac".into(), 48), ("port".into(), 9)] });
    let members = listed(info.tables.iter().find(|t| t.preamble.name == "ingress.ecmp").unwrap());
    let algorithm = ::ir::op::HashAlgorithm::Crc16;
    let selector =
        add("ingress.selector", ir::ExternKind::ActionSelector { size: 16, actions: members, algorithm, hash_width: 16 });
    let mut tables: Vec<ir::Table> = info
        .tables
        .iter()
        .map(|table| {
            let list = listed(table);
            let no_action = list.iter().position(|a| actions[a.action.index()].name == "NoAction").unwrap();
            let is_lpm = table.preamble.name == "ingress.ipv4_lpm";
            ir::Table {
                name: table.preamble.name.clone(),
                span: Span::NONE,
                keys: keys(&table.match_fields),
                actions: list,
                default_action: ActionCall { action: no_action as u32, args: vec![] },
                const_default: table.const_default_action_id.is_some(),
                entries: vec![],
                const_entries: table.is_const_table,
                size: 8,
                implementation: table.implementation_id.map(|_| selector),
                direct: if is_lpm { vec![route_count, route_police] } else { vec![] },
                idle_timeout: table.idle_timeout,
                value_set: false,
            }
        })
        .collect();
    let fixed = tables.iter_mut().find(|t| t.name == "ingress.fixed").unwrap();
    fixed.entries.push(TableEntry {
        key: vec![KeyMatch::Exact(Bits::new(8, 7))],
        priority: 0,
        action: EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(9, 1), Bits::new(48, 2)] }),
        idle_timeout_ns: 0,
    });
    let no_action = ActionId::from_index(2);
    tables.push(ir::Table {
        name: "parser.types".into(),
        span: Span::NONE,
        keys: keys(&info.value_sets[0].match_fields),
        actions: vec![ir::TableAction { action: no_action, default_only: false, table_only: false }],
        default_action: ActionCall { action: 0, args: vec![] },
        const_default: true,
        entries: vec![],
        const_entries: false,
        size: 2,
        implementation: None,
        direct: vec![],
        idle_timeout: false,
        value_set: true,
    });
    let header = |name: &str, port: &str| ir::ControllerHeader {
        name: name.into(),
        fields: vec![(port.into(), 9), ("padding".into(), 7)],
    };
    ir::Program {
        name: "router".into(),
        actions,
        tables,
        externs,
        controller_headers: vec![header("packet_in", "ingress_port"), header("packet_out", "egress_port")],
        ..ir::Program::default()
    }
}

/// A switch that runs nothing but remembers what it was told.
pub struct FakeSwitch {
    replication: Replication,
    /// Frames that were injected, with their port.
    pub injected: Mutex<Vec<(u32, Vec<u8>)>>,
    /// The state of the running program.
    pub running: Mutex<Option<Arc<interp::State>>>,
}

impl FakeSwitch {
    pub fn new() -> Arc<FakeSwitch> {
        Arc::new(FakeSwitch {
            replication: Replication::new(),
            injected: Mutex::default(),
            running: Mutex::default(),
        })
    }

    pub fn state(&self) -> Arc<interp::State> {
        self.running.lock().unwrap().clone().expect("a program runs")
    }
}

impl Target for FakeSwitch {
    fn build(&self, source: &[u8]) -> Result<Built, String> {
        let text = std::str::from_utf8(source).map_err(|e| e.to_string())?;
        let (info, program) = program(text).ok_or_else(|| format!("error: `{text}` is no program"))?;
        let program = Arc::new(program);
        let state = Arc::new(interp::State::new(Arc::clone(&program)));
        let shared: Arc<dyn PipelineState> = Arc::clone(&state) as _;
        Ok(Built { p4info: Arc::new(info), program, state: shared, handle: state })
    }

    fn activate(&self, built: &Built) -> Result<(), String> {
        let state = Arc::clone(&built.handle).downcast::<interp::State>().map_err(|_| "not built here")?;
        *self.running.lock().unwrap() = Some(state);
        Ok(())
    }

    fn replication(&self) -> &Replication {
        &self.replication
    }

    fn ports(&self) -> Vec<u32> {
        vec![1, 2, 3]
    }

    fn cpu_port(&self) -> Option<u32> {
        Some(CPU)
    }

    fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), String> {
        self.injected.lock().unwrap().push((port, frame));
        Ok(())
    }
}
