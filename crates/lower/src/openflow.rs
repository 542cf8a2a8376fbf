//! openflow_model: the parser, the header actions and the deparser of an `OpenFlowBridge` as stages.
//!
//! ```text
//! Ingress   prs  hand_over            the flow processor reads and writes the record, and runs `actions` on it
//! Egress    dprs  send
//! ```
//!
//! - `hand_over`: passes every packet to the flow processor with what was parsed, also if the parser rejects it.
//! - `actions`: belongs to no entry point. Its `Op::Apply` yields the action that the flow processor chose, and its
//!   data.
//! - `send`: sends the packet to `egress_port`.
//!
//! Between the two entry points, other code may read and write slots. A field list names those that the parser must
//! leave in the record: match fields, the validities of their headers, and everything that header actions use. Passes
//! and code generation preserve it like any field list. Apart from that, the record only has what `Egress` reads.
//!
//! Match fields and their annotations: `openflow/fields.rs`. Specification: `openflow_model.p4`.
//! Tests: `tests/openflow.rs`.

mod fields;

use crate::arch::{Architecture, ExternCall, TableProperty};
use crate::bpf::{self, Blocks};
use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::tree::Tree;
use crate::v1model::externs::hash_op;
use base::Bits;
use ir::{
    BinOp, EntryKind, Fate, HashAlgorithm, Intrinsic, Operand, ReplicationPoint, SlotId, SlotKind, StageId, StageKind,
    TableId, UnOp,
};
use sema::TypedProgram;
use sema::typed::{Instance, InstanceId, Table};
use std::collections::BTreeSet;

const PACKAGE: &str = "OpenFlowBridge";

/// The field list of slots that the flow processor may read.
const KEPT: u64 = 0;

/// Whether the package is this model's.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let has_packet = program.types.structs.iter().any(|s| &*s.name == "packet_t" && s.field("egress_port").is_some());
    bpf::is_package(program, main, PACKAGE, 3) && has_packet
}

/// Lowers a program whose `main` is an `OpenFlowBridge`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main, PACKAGE, &[4, 3, 4]) else { return };
    let (parser, actions) = (blocks.parser(cx.p), blocks.control(cx.p, 0));
    let [headers, flow, packet] = [1, 2, 3].map(|i| &parser.params[i]);
    let result = &actions.params[2];
    let hdr = cx.allocate(&headers.name, &headers.ty, SlotKind::HeaderPart, headers.span);
    let own = cx.allocate(&flow.name, &flow.ty, SlotKind::Metadata, flow.span);
    let std = cx.allocate(&packet.name, &packet.ty, SlotKind::Metadata, packet.span);
    let out = cx.allocate(&result.name, &result.ty, SlotKind::Metadata, result.span);
    let named = bpf::named_slots(cx, &packet.ty, &std);
    let results = bpf::named_slots(cx, &result.ty, &out);
    let [Some(&in_port), Some(&length), Some(&egress_port)] =
        ["in_port", "length", "egress_port"].map(|name| named.get(name))
    else {
        return cx.refuse(codes::BLOCK_PARAMETERS, packet.span, "`packet_t` is not the one of openflow_model.p4");
    };
    for (which, slot) in
        [(Intrinsic::IngressPort, in_port), (Intrinsic::PacketLength, length), (Intrinsic::EgressPort, egress_port)]
    {
        cx.b.intrinsic(which, slot);
    }
    cx.arch = Some(Box::new(OpenFlow { length }));
    cx.declare_externs();
    cx.declare_tables();

    let binding = |tree: &Tree| Binding::Tree(tree.clone());
    let prs = parser_stage(cx, &blocks, vec![Binding::PacketIn, binding(&hdr), binding(&own), binding(&std)]);
    let hand_over = bpf::glue(cx, "hand_over", |cx| cx.b.fate(Fate::Replicate(ReplicationPoint::IngressEnd)));
    let acts =
        control_stage(cx, &blocks, (0, StageKind::Control), vec![binding(&hdr), binding(&own), binding(&out)], |cx| {
            for slot in out.slots() {
                cx.b.set(slot, 0);
            }
        });
    let values = vec![Binding::PacketOut, binding(&hdr), binding(&own), binding(&std)];
    let dprs = control_stage(cx, &blocks, (1, StageKind::Deparser), values, |_| {});
    let send = bpf::glue(cx, "send", |cx| cx.b.fate(Fate::Send(egress_port.into())));
    bpf::entry(cx, EntryKind::Ingress, &[prs, hand_over]);
    bpf::entry(cx, EntryKind::Egress, &[dprs, send]);

    let fields = fields::collect(cx, &[(headers, &hdr), (flow, &own), (packet, &std)]);
    let table = action_table(cx, &blocks, actions.span);
    let openflow = ir::OpenFlow {
        fields,
        actions: table.map(|table| (acts, table)),
        reparse: results.get("reparse").copied(),
        ttl_exceeded: results.get("ttl_exceeded").copied(),
    };
    let kept = kept(cx, &openflow, acts);
    let program = cx.b.program_mut();
    program.field_lists = vec![(KEPT, kept)];
    program.openflow = Some(openflow);
}

fn parser_stage(cx: &mut Lowerer<'_>, blocks: &Blocks, values: Vec<Binding>) -> StageId {
    let (id, instance) = blocks.parser;
    let parser = &cx.p.parsers[id.index()];
    cx.env = bpf::bound(cx, instance, &parser.params, values);
    let name = cx.env.prefix.to_string();
    let stage = cx.open_stage(&name, StageKind::Parser);
    cx.b.set_span(parser.span);
    let accept = cx.new_join("accept");
    cx.accept = Some(accept);
    cx.exit = None;
    cx.parser_body(id);
    cx.accept = None;
    cx.continue_at(accept);
    cx.close_stage();
    stage
}

/// The stage of control `i`; `begin` emits code in front of it.
fn control_stage(
    cx: &mut Lowerer<'_>,
    blocks: &Blocks,
    (i, kind): (usize, StageKind),
    values: Vec<Binding>,
    begin: impl FnOnce(&mut Lowerer<'_>),
) -> StageId {
    let (id, instance) = blocks.controls[i];
    let control = &cx.p.controls[id.index()];
    cx.env = bpf::bound(cx, instance, &control.params, values);
    let name = cx.env.prefix.to_string();
    let stage = cx.open_stage(&name, kind);
    cx.b.set_span(control.span);
    begin(cx);
    let exit = cx.new_join("exit");
    cx.exit = Some(exit);
    cx.control_body(id);
    cx.exit = None;
    cx.continue_at(exit);
    cx.close_stage();
    stage
}

/// The table of header actions, if the control has one.
fn action_table(cx: &mut Lowerer<'_>, blocks: &Blocks, span: base::Span) -> Option<TableId> {
    let mut all: Vec<((usize, InstanceId), TableId)> =
        cx.tables.iter().map(|((id, instance), info)| ((id.index(), *instance), info.table)).collect();
    all.sort_by_key(|((id, _), _)| *id);
    let is_own = |instance: InstanceId| instance == blocks.controls[0].1;
    if all.iter().any(|((_, instance), _)| !is_own(*instance)) || all.len() > 1 {
        let message = format!("in an `{PACKAGE}`, OpenFlow provides the tables: only the header actions declare one");
        cx.refuse(codes::UNSUPPORTED_TABLE, span, message);
    }
    let table = all.first().map(|(_, table)| *table)?;
    if !cx.b.program().tables[table.index()].keys.is_empty() {
        cx.refuse(
            codes::UNSUPPORTED_TABLE,
            span,
            "the table of the header actions has no key: flows choose the action",
        );
    }
    Some(table)
}

/// The slots that the parser must leave in the record for the flow processor, in order.
fn kept(cx: &Lowerer<'_>, openflow: &ir::OpenFlow, actions: StageId) -> Vec<SlotId> {
    let program = cx.b.program();
    let mut kept: BTreeSet<SlotId> = BTreeSet::new();
    for part in openflow.fields.iter().flat_map(|field| &field.parts) {
        kept.insert(part.slot);
        if let SlotKind::Field(header) = program.slots[part.slot.index()].kind {
            kept.insert(program.headers[header.index()].valid);
        }
    }
    let results = [openflow.reparse, openflow.ttl_exceeded];
    let blocks = &program.stages[actions.index()].blocks;
    let mut mention = |slot: SlotId| {
        let is_own = matches!(program.slots[slot.index()].kind, SlotKind::Temp | SlotKind::Local);
        if !is_own && !results.contains(&Some(slot)) {
            kept.insert(slot);
        }
    };
    for block in blocks {
        for inst in &block.insts {
            inst.op.for_each_use(program, &mut mention);
            inst.op.for_each_def(program, &mut mention);
        }
        block.term.operand().and_then(Operand::slot).into_iter().for_each(&mut mention);
    }
    kept.into_iter().collect()
}

/// The architecture of openflow_model.
struct OpenFlow {
    length: SlotId,
}

impl Architecture for OpenFlow {
    fn declare(&mut self, _: &mut Lowerer<'_>, _: InstanceId) {
        // The model has no extern objects.
    }

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        match name {
            "internet_sum" => {
                let checksum = internet_checksum(cx, &call.value(0));
                Tree::Leaf(cx.b.un(UnOp::Not, checksum).into())
            }
            "checksum_update" => {
                let [checksum, old, new] = [0, 1, 2].map(|i| call.value(i).operand());
                let same = cx.b.bin(BinOp::Eq, old.clone(), new.clone());
                let [not_checksum, not_old] =
                    [&checksum, &old].map(|o| Tree::Leaf(cx.b.un(UnOp::Not, o.clone()).into()));
                let data = Tree::Struct([not_checksum, not_old, Tree::Leaf(new)].into());
                let updated = internet_checksum(cx, &data);
                cx.b.select(same, checksum, updated).into()
            }
            other => cx.foreign_function(other, call),
        }
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let name = cx.p.instance(instance).name.to_string();
        cx.foreign_method(&name, &name, method, call)
    }

    fn direct_meter(&mut self, _: &mut Lowerer<'_>, _: &Table, _: ir::ExternId, _: SlotId, _: SlotId) {
        // The model has no meters.
    }

    fn table_property(&self, _: &str) -> TableProperty {
        TableProperty::Unknown
    }

    fn packet_length(&self) -> Option<SlotId> {
        Some(self.length)
    }
}

/// The Internet checksum of a value.
fn internet_checksum(cx: &mut Lowerer<'_>, data: &Tree) -> SlotId {
    let dst = cx.b.temp(16);
    let op = hash_op(cx, HashAlgorithm::Csum16, dst, Bits::zero(16).into(), None, data, false);
    cx.b.emit(op);
    dst
}
