//! v1model: `V1Switch`'s six blocks as stages, with the glue of bmv2's simple_switch between them.
//!
//! ```text
//! Ingress, Reingress  parser  verify  ingress  ingress_end  egress_start  egress  egress_end  compute  deparser  deparse_end
//! CloneIngress        clone_begin  parser  clone_end        egress_start  egress  egress_end  compute  deparser  deparse_end
//! Egress                                                    egress_start  egress  egress_end  compute  deparser  deparse_end
//! Deparse                                                   deparse_begin                     compute  deparser  deparse_end
//! ```
//!
//! - `ingress_end`: replication if a clone, resubmission or multicast group is asked for; drop if `egress_spec` is 511;
//!   else `egress_port = egress_spec`.
//! - `egress_start`: `egress_spec = 0`. `egress_end`: replication for a clone; drop if `egress_spec` is 511.
//! - `length_start` (after the parser; only where egress asks for the length): see `v1model/length.rs`.
//! - `deparse_end`: replication for a recirculation, else out of the port that the packet had when egress began.
//! - `clone_begin`, `clone_end`: an ingress clone is parsed again, but what the parser wrote to metadata is undone.
//!
//! A test is there only if something in the program can make it true, an entry only if something leads to it: a plain
//! router has none of these tests but the drop. A parser error does not drop; `parser_error` says what happened and the
//! packet goes on with the headers extracted so far.
//!
//! Reference for behaviour: docs/simple_switch.md of behavioral-model. Externs: `v1model/externs.rs`. Tests:
//! `tests/v1model.rs`.

mod cells;
mod externs;
mod length;

use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::tree::Tree;
use base::Diagnostic;
use ir::{
    BinOp, ControllerHeader, EntryKind, Fate, HeaderId, InstanceTypes, Intrinsic, Op, Operand, ReplicationPoint,
    SlotId, SlotKind, StageId, StageKind, UnOp,
};
use length::Length;
use sema::typed::{Annotation, ControlId, Instance, InstanceId, InstanceOf, Param, ParserId, find_annotation};
use sema::types::{StructId, StructKind};
use sema::{Type, TypedProgram};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// The value of a 9-bit `egress_spec` that means drop.
const DROP_PORT: u64 = 511;

/// Name of the counter of packets dropped after ingress; the replication engine uses the same.
const INGRESS_DROP: &str = "ingress drop";
/// Name of the counter of packets dropped after egress.
const EGRESS_DROP: &str = "egress drop";
/// Name of the counter of packets for which an `assert` or `assume` failed.
const ASSERT_DROP: &str = "assertion failed";

/// A field list index that no list has: preserves nothing.
const NO_FIELD_LIST: u128 = 0xffff;

/// Fields of `standard_metadata_t` that the runtime sets or reads.
const INTRINSICS: [(&str, Intrinsic); 14] = [
    ("ingress_port", Intrinsic::IngressPort),
    ("egress_spec", Intrinsic::EgressSpec),
    ("egress_port", Intrinsic::EgressPort),
    ("instance_type", Intrinsic::InstanceType),
    ("packet_length", Intrinsic::PacketLength),
    ("enq_timestamp", Intrinsic::EnqueueTimestamp),
    ("enq_qdepth", Intrinsic::EnqueueDepth),
    ("deq_timedelta", Intrinsic::DequeueDelta),
    ("deq_qdepth", Intrinsic::DequeueDepth),
    ("ingress_global_timestamp", Intrinsic::IngressTimestamp),
    ("egress_global_timestamp", Intrinsic::EgressTimestamp),
    ("mcast_grp", Intrinsic::MulticastGroup),
    ("egress_rid", Intrinsic::EgressRid),
    ("parser_error", Intrinsic::ParserError),
];

/// Which of the six blocks is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockRole {
    Parser,
    Verify,
    Ingress,
    Egress,
    Compute,
    Deparser,
}

/// What the externs found out about the program, and the slots they share.
struct State {
    role: BlockRole,
    /// `standard_metadata_t`'s fields.
    standard: HashMap<String, SlotId>,
    /// Slots for what packets ask the replication engine for, made when first used.
    requests: HashMap<Intrinsic, SlotId>,
    /// The complement of the length that the frame is cut to.
    truncate: Option<SlotId>,
    clones_at_ingress: bool,
    clones_at_egress: bool,
    field_lists: BTreeMap<u64, Vec<SlotId>>,
    /// Digests by the type of their data.
    digests: Vec<(Type, ir::ExternId)>,
}

type Shared = Rc<RefCell<State>>;

/// Whether a package is v1model's switch, and not one of the program's own with that name.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let InstanceOf::Package(id) = main.of else { return false };
    let declared = &program.types.block_types[id.index()];
    let has_standard_metadata = program.types.structs.iter().any(|s| &*s.name == "standard_metadata_t");
    &*declared.name == "V1Switch" && declared.params.len() == 6 && has_standard_metadata
}

/// Lowers a program whose `main` is a `V1Switch`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main) else { return };
    let p = cx.p;
    let parser = &p.parsers[blocks.parser.0.index()];
    let ingress = &p.controls[blocks.ingress.0.index()];
    let [hdr, meta, standard] = [0, 1, 2].map(|i| {
        let param = &ingress.params[i];
        let ty = &parser.params[i + 1].ty;
        let (name, kind) = match i {
            0 => (&*param.name, SlotKind::HeaderPart),
            2 => ("standard_metadata", SlotKind::Metadata),
            _ => (&*param.name, SlotKind::Metadata),
        };
        cx.allocate(name, ty, kind, param.span)
    });
    let names = field_names(cx, &parser.params[3].ty);
    let slots = names.iter().cloned().zip(standard.children()).filter_map(|(n, t)| Some((n, t.operand().slot()?)));
    let standard_slots: HashMap<String, SlotId> = slots.collect();
    for (name, which) in INTRINSICS {
        if let Some(slot) = standard_slots.get(name) {
            cx.b.intrinsic(which, *slot);
        }
    }
    cx.parser_error = standard_slots.get("parser_error").copied();
    let mut field_lists = BTreeMap::new();
    collect_field_lists(cx, &parser.params[2].ty, &meta, &BTreeSet::new(), &mut field_lists);
    let state = State {
        role: BlockRole::Parser,
        standard: standard_slots,
        requests: HashMap::new(),
        truncate: None,
        clones_at_ingress: false,
        clones_at_egress: false,
        field_lists,
        digests: Vec::new(),
    };
    let shared: Shared = Rc::new(RefCell::new(state));
    cx.arch = Some(Box::new(externs::V1Model { state: shared.clone() }));
    cx.declare_externs();
    cx.declare_tables();
    controller_headers(cx);

    let program = cx.b.program_mut();
    program.drop_port = Some(DROP_PORT);
    program.instance_types =
        InstanceTypes { normal: 0, ingress_clone: 1, egress_clone: 2, recirculate: 4, replication: 5, resubmit: 6 };
    cx.b.drop_reason(INGRESS_DROP);

    let phv = Phv { hdr, meta, standard };
    let stages = Stages {
        parser: phv.parser(cx, &shared, blocks.parser),
        verify: phv.control(cx, &shared, BlockRole::Verify, blocks.verify),
        ingress: phv.control(cx, &shared, BlockRole::Ingress, blocks.ingress),
        egress: phv.control(cx, &shared, BlockRole::Egress, blocks.egress),
        compute: phv.control(cx, &shared, BlockRole::Compute, blocks.compute),
        deparser: phv.control(cx, &shared, BlockRole::Deparser, blocks.deparser),
    };
    let state = shared.borrow();
    let mut headers = Vec::new();
    phv.hdr.for_each_header(&mut |h| headers.extend(h.id));
    Glue { cx, state: &state, stages, headers }.entries();
    cx.b.program_mut().field_lists = state.field_lists.clone().into_iter().collect();
    let requests: BTreeMap<Intrinsic, SlotId> = state.requests.iter().map(|(i, s)| (*i, *s)).collect();
    for (which, slot) in requests {
        cx.b.intrinsic(which, slot);
    }
}

/// The instances that `main` was made from.
struct Blocks {
    parser: (ParserId, InstanceId),
    verify: (ControlId, InstanceId),
    ingress: (ControlId, InstanceId),
    egress: (ControlId, InstanceId),
    compute: (ControlId, InstanceId),
    deparser: (ControlId, InstanceId),
}

impl Blocks {
    fn find(cx: &mut Lowerer<'_>, main: &Instance) -> Option<Blocks> {
        let argument = |i: usize| main.args.get(i).and_then(|a| a.value.as_instance());
        let control = |i: usize| {
            let id = argument(i)?;
            match cx.p.instance(id).of {
                InstanceOf::Control(control) => Some((control, id)),
                _ => None,
            }
        };
        let parser = argument(0).and_then(|id| match cx.p.instance(id).of {
            InstanceOf::Parser(parser) => Some((parser, id)),
            _ => None,
        });
        let blocks = (|| {
            Some(Blocks {
                parser: parser?,
                verify: control(1)?,
                ingress: control(2)?,
                egress: control(3)?,
                compute: control(4)?,
                deparser: control(5)?,
            })
        })();
        let Some(blocks) = blocks else {
            cx.refuse(codes::NO_MAIN, main.span, "`V1Switch` needs a parser and five controls");
            return None;
        };
        let p = cx.p;
        let counts = [
            (p.parsers[blocks.parser.0.index()].params.len(), 4),
            (p.controls[blocks.verify.0.index()].params.len(), 2),
            (p.controls[blocks.ingress.0.index()].params.len(), 3),
            (p.controls[blocks.egress.0.index()].params.len(), 3),
            (p.controls[blocks.compute.0.index()].params.len(), 2),
            (p.controls[blocks.deparser.0.index()].params.len(), 2),
        ];
        if counts.iter().any(|(found, wanted)| found != wanted) {
            cx.refuse(codes::BLOCK_PARAMETERS, main.span, "a block of `V1Switch` has the wrong number of parameters");
            return None;
        }
        Some(blocks)
    }
}

/// What all blocks work on. Their parameters stand directly for it: nothing is copied between blocks.
struct Phv {
    hdr: Tree,
    meta: Tree,
    standard: Tree,
}

impl Phv {
    fn parser(&self, cx: &mut Lowerer<'_>, shared: &Shared, (id, instance): (ParserId, InstanceId)) -> StageId {
        shared.borrow_mut().role = BlockRole::Parser;
        let params = &cx.p.parsers[id.index()].params;
        let values = [
            Binding::PacketIn,
            Binding::Tree(self.hdr.clone()),
            Binding::Tree(self.meta.clone()),
            Binding::Tree(self.standard.clone()),
        ];
        cx.env = bind(cx, instance, params, values);
        let name = cx.env.prefix.to_string();
        let stage = cx.open_stage(&name, StageKind::Parser);
        cx.b.set_span(cx.p.parsers[id.index()].span);
        let accept = cx.new_join("accept");
        cx.accept = Some(accept);
        cx.exit = None;
        cx.parser_body(id);
        cx.accept = None;
        cx.land(accept);
        cx.close_stage();
        stage
    }

    fn control(
        &self,
        cx: &mut Lowerer<'_>,
        shared: &Shared,
        role: BlockRole,
        (id, instance): (ControlId, InstanceId),
    ) -> StageId {
        shared.borrow_mut().role = role;
        let params = &cx.p.controls[id.index()].params;
        let (hdr, meta) = (Binding::Tree(self.hdr.clone()), Binding::Tree(self.meta.clone()));
        let standard = Binding::Tree(self.standard.clone());
        let (kind, values) = match role {
            BlockRole::Deparser => (StageKind::Deparser, vec![Binding::PacketOut, hdr]),
            BlockRole::Verify | BlockRole::Compute => (StageKind::Control, vec![hdr, meta]),
            _ => (StageKind::Control, vec![hdr, meta, standard]),
        };
        cx.env = bind(cx, instance, params, values);
        let name = cx.env.prefix.to_string();
        let stage = cx.open_stage(&name, kind);
        cx.b.set_span(cx.p.controls[id.index()].span);
        let exit = cx.new_join("exit");
        cx.exit = Some(exit);
        cx.control_body(id);
        cx.exit = None;
        cx.land(exit);
        let truncate = shared.borrow().truncate;
        if let (BlockRole::Deparser, Some(bytes)) = (role, truncate) {
            let bytes = cx.b.un(UnOp::Not, bytes).into();
            cx.b.emit(Op::Truncate { bytes });
        }
        cx.close_stage();
        stage
    }
}

fn bind(
    cx: &Lowerer<'_>,
    instance: InstanceId,
    params: &[Param],
    values: impl IntoIterator<Item = Binding>,
) -> crate::context::Env {
    let mut env = cx.instance_env(instance);
    env.bindings.extend(params.iter().map(|p| p.local).zip(values));
    env
}

fn field_names(cx: &Lowerer<'_>, ty: &Type) -> Vec<String> {
    cx.p.types.struct_info(ty).map(|s| s.fields.iter().map(|f| f.name.to_string()).collect()).unwrap_or_default()
}

/// Adds the slots below fields with `@field_list` to the lists it names.
fn collect_field_lists(
    cx: &Lowerer<'_>,
    ty: &Type,
    tree: &Tree,
    outer: &BTreeSet<u64>,
    lists: &mut BTreeMap<u64, Vec<SlotId>>,
) {
    let Some(info) = cx.p.types.struct_info(ty) else {
        for list in outer {
            lists.entry(*list).or_default().extend(tree.slots());
        }
        return;
    };
    if let (Tree::Header(h), Some(valid)) = (tree, tree.slots().first()) {
        debug_assert_eq!(h.valid, Operand::Slot(*valid));
        outer.iter().for_each(|list| lists.entry(*list).or_default().push(*valid));
    }
    for (field, tree) in info.fields.iter().zip(tree.children()) {
        let mut inside = outer.clone();
        inside.extend(field_list_indices(&field.annotations));
        collect_field_lists(cx, &field.ty, tree, &inside, lists);
    }
}

fn field_list_indices(annotations: &[Annotation]) -> Vec<u64> {
    let named = annotations.iter().filter(|a| &*a.name == "field_list");
    named.flat_map(|a| a.values().unwrap_or(&[])).filter_map(sema::Value::to_u64).collect()
}

fn controller_headers(cx: &mut Lowerer<'_>) {
    let p = cx.p;
    let mut found: Vec<ControllerHeader> = Vec::new();
    for (i, info) in p.types.structs.iter().enumerate() {
        let name = find_annotation(&info.annotations, "controller_header").and_then(|a| a.as_str());
        let (StructKind::Header, Some(name)) = (info.kind, name) else { continue };
        if found.iter().any(|h| h.name == name) {
            cx.refuse(codes::EXTERN_MISUSE, info.span, format!("there are two `@controller_header(\"{name}\")`"));
            continue;
        }
        let mut fields = Vec::new();
        flatten(cx, "", StructId::from_index(i), &mut fields);
        found.push(ControllerHeader { name: name.to_string(), fields });
    }
    cx.b.program_mut().controller_headers = found;
}

fn flatten(cx: &Lowerer<'_>, prefix: &str, id: StructId, fields: &mut Vec<(String, u32)>) {
    for field in &cx.p.types.fields_of(id).fields {
        let name = format!("{prefix}{}", field.name);
        match cx.p.types.underlying(&field.ty) {
            Type::Struct(inner) => flatten(cx, &format!("{name}."), inner, fields),
            _ => fields.push((name, cx.scalar_width(&field.ty).unwrap_or(0))),
        }
    }
}

/// The six blocks' stages.
struct Stages {
    parser: StageId,
    verify: StageId,
    ingress: StageId,
    egress: StageId,
    compute: StageId,
    deparser: StageId,
}

/// Writes the stages between the blocks.
struct Glue<'g, 'p> {
    cx: &'g mut Lowerer<'p>,
    state: &'g State,
    stages: Stages,
    /// The packet's headers.
    headers: Vec<HeaderId>,
}

impl Glue<'_, '_> {
    fn entries(&mut self) {
        self.drop_idle_group_resets();
        self.warn_of_early_egress_port();
        let s = &self.stages;
        let (parser, verify, ingress, egress) = (s.parser, s.verify, s.ingress, s.egress);
        let (compute, deparser) = (s.compute, s.deparser);
        let asks = |which| self.state.requests.contains_key(&which);
        let again = asks(Intrinsic::ResubmitFlag) || asks(Intrinsic::RecirculateFlag);
        let multicast = self.is_multicast();
        let replicates = self.state.clones_at_ingress || asks(Intrinsic::ResubmitFlag) || multicast;

        // The port to send to: `egress_port`, or what it was when egress began, if egress writes it.
        let egress_port = self.standard("egress_port");
        let out_port = egress_port.map(|port| match self.writes(egress, port) {
            true => {
                let width = self.cx.b.program().width(port);
                self.cx.b.metadata("$output_port", width)
            }
            false => port,
        });
        let (after_parser, ingress_length) = self.length_through_ingress();
        let ingress_end = self.ingress_end(multicast, again, ingress_length.as_ref());
        let egress_length = self.length_through_egress();
        let egress_start = self.egress_start(egress_port, out_port, egress_length.as_ref());
        let egress_end = self.egress_end(egress_length.as_ref());
        let deparse_end = self.deparse_end(out_port);
        let rest = [egress_start, Some(egress), egress_end, Some(compute), Some(deparser), Some(deparse_end)];
        let chain =
            |first: &[Option<StageId>]| -> Vec<StageId> { first.iter().chain(&rest).copied().flatten().collect() };
        let whole = chain(&[Some(parser), after_parser, Some(verify), Some(ingress), Some(ingress_end)]);
        self.cx.b.entry(EntryKind::Ingress, &whole);
        if again {
            self.cx.b.entry(EntryKind::Reingress, &whole);
        }
        if self.state.clones_at_ingress {
            let (begin, end) = self.clone_glue();
            let stages = chain(&[begin, Some(parser), end]);
            self.cx.b.entry(EntryKind::CloneIngress, &stages);
        }
        if replicates || self.state.clones_at_egress {
            let stages = chain(&[]);
            self.cx.b.entry(EntryKind::Egress, &stages);
        }
        if self.state.clones_at_egress {
            let begin = self.deparse_begin();
            let stages: Vec<StageId> =
                [begin, Some(compute), Some(deparser), Some(deparse_end)].into_iter().flatten().collect();
            self.cx.b.entry(EntryKind::Deparse, &stages);
        }
    }

    fn standard(&self, name: &str) -> Option<SlotId> {
        self.state.standard.get(name).copied()
    }

    /// Whether a stage writes a slot, other than with the given constant.
    fn writes_other_than(&self, stage: StageId, slot: SlotId, ignored: Option<u64>) -> bool {
        let program = self.cx.b.program();
        let mut writes = false;
        for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
            if let Op::Mov { dst, src: Operand::Const(c) } = &inst.op
                && *dst == slot
                && c.to_u64() == ignored
                && ignored.is_some()
            {
                continue;
            }
            inst.op.for_each_def(program, |s| writes |= s == slot);
        }
        writes
    }

    fn writes(&self, stage: StageId, slot: SlotId) -> bool {
        self.writes_other_than(stage, slot, None)
    }

    fn reads(&self, stage: StageId, slot: SlotId) -> bool {
        let program = self.cx.b.program();
        let mut reads = false;
        for block in &program.stages[stage.index()].blocks {
            for inst in &block.insts {
                inst.op.for_each_use(program, |s| reads |= s == slot);
            }
            reads |= block.term.operand().and_then(Operand::slot) == Some(slot);
        }
        reads
    }

    /// Ingress chooses a port with `egress_spec`; `egress_port` is what came of that. One that ingress also reads is its own variable.
    fn warn_of_early_egress_port(&mut self) {
        let Some(port) = self.standard("egress_port") else { return };
        let ingress = self.stages.ingress;
        if self.reads(ingress, port) {
            return;
        }
        let program = self.cx.b.program();
        let mut places = Vec::new();
        for inst in program.stages[ingress.index()].blocks.iter().flat_map(|b| &b.insts) {
            inst.op.for_each_def(program, |s| {
                if s == port && !inst.span.is_none() {
                    places.push(inst.span)
                }
            });
        }
        for span in places {
            let message = "writing `egress_port` in ingress does not choose a port";
            let help = "write `egress_spec`: the port in it at the end of ingress is where the packet goes";
            self.cx.report(Diagnostic::warning(codes::WRITTEN_IN_VAIN, span, message).help(help));
        }
    }

    /// Whether the program can ask for multicast: clearing the group, as `mark_to_drop` does, is no such thing.
    fn is_multicast(&self) -> bool {
        let Some(group) = self.standard("mcast_grp") else { return false };
        [self.stages.parser, self.stages.ingress].iter().any(|s| self.writes_other_than(*s, group, Some(0)))
    }

    /// Where no group is ever set, `mark_to_drop` need not clear it.
    fn drop_idle_group_resets(&mut self) {
        let Some(group) = self.standard("mcast_grp") else { return };
        let all = [self.stages.parser, self.stages.ingress, self.stages.egress];
        if all.iter().any(|s| self.writes_other_than(*s, group, Some(0))) {
            return;
        }
        for stage in all {
            for block in &mut self.cx.b.program_mut().stages[stage.index()].blocks {
                block.insts.retain(|i| !matches!(&i.op, Op::Mov { dst, .. } if *dst == group));
            }
        }
    }

    fn ingress_end(&mut self, multicast: bool, again: bool, length: Option<&Length>) -> StageId {
        let stage = self.cx.open_stage("ingress_end", StageKind::Control);
        if let Some(length) = length {
            self.set_length(length);
        }
        let mut asked: Option<Operand> = None;
        let or = |cx: &mut Lowerer<'_>, asked: &mut Option<Operand>, flag: SlotId| {
            *asked = Some(match asked.take() {
                None => flag.into(),
                Some(before) => cx.b.bin(BinOp::Or, before, flag).into(),
            });
        };
        if let (true, Some(flag)) = (self.state.clones_at_ingress, self.request(Intrinsic::CloneFlag)) {
            or(self.cx, &mut asked, flag);
        }
        if let Some(flag) = self.request(Intrinsic::ResubmitFlag) {
            or(self.cx, &mut asked, flag);
        }
        if let (true, Some(group)) = (multicast, self.standard("mcast_grp")) {
            let width = self.cx.b.program().width(group);
            let set = self.cx.b.bin(BinOp::Ne, group, Operand::new_const(width, 0));
            or(self.cx, &mut asked, set);
        }
        if let Some(asked) = asked {
            self.finish_if(asked, Fate::Replicate(ReplicationPoint::IngressEnd));
        }
        if let Some(spec) = self.standard("egress_spec") {
            let written = [self.stages.parser, self.stages.ingress].iter().any(|s| self.writes(*s, spec));
            if written {
                self.drop_check(spec, INGRESS_DROP);
            }
            if let Some(port) = self.standard("egress_port") {
                self.cx.b.mov(port, spec);
            }
        }
        if let (true, Some(instance_type)) = (again, self.standard("instance_type")) {
            self.cx.b.set(instance_type, 0);
        }
        // What the runtime sets for packets that it takes through a replication point.
        if let Some(now) = self.standard("ingress_global_timestamp") {
            for name in ["egress_global_timestamp", "enq_timestamp"] {
                if let Some(slot) = self.standard(name).filter(|s| self.reads(self.stages.egress, *s)) {
                    let width = self.cx.b.program().width(slot);
                    let now = self.cx.b.resize_u(width, now);
                    self.cx.b.mov(slot, now);
                }
            }
        }
        self.cx.close_stage();
        stage
    }

    fn egress_start(
        &mut self,
        egress_port: Option<SlotId>,
        out_port: Option<SlotId>,
        length: Option<&Length>,
    ) -> Option<StageId> {
        let egress = self.stages.egress;
        let spec = self.standard("egress_spec").filter(|s| self.writes(egress, *s) || self.reads(egress, *s));
        let copy = egress_port.zip(out_port).filter(|(port, out)| port != out);
        if spec.is_none() && copy.is_none() && length.is_none() {
            return None;
        }
        let stage = self.cx.open_stage("egress_start", StageKind::Control);
        if let Some(length) = length {
            self.note_rest(length);
        }
        if let Some(spec) = spec {
            self.cx.b.set(spec, 0);
        }
        if let Some((port, out)) = copy {
            self.cx.b.mov(out, port);
        }
        self.cx.close_stage();
        Some(stage)
    }

    fn egress_end(&mut self, length: Option<&Length>) -> Option<StageId> {
        let spec = self.egress_spec_of_egress();
        if spec.is_none() && !self.state.clones_at_egress {
            return None;
        }
        let stage = self.cx.open_stage("egress_end", StageKind::Control);
        if let (true, Some(flag)) = (self.state.clones_at_egress, self.request(Intrinsic::CloneFlag)) {
            let go_on = self.cx.split(flag.into());
            if let Some(length) = length {
                self.set_length(length);
            }
            self.cx.b.fate(Fate::Replicate(ReplicationPoint::EgressEnd));
            self.cx.b.switch_to(go_on);
        }
        if let Some(spec) = spec {
            self.drop_check(spec, EGRESS_DROP);
        }
        self.cx.close_stage();
        Some(stage)
    }

    /// After a replication at the end of egress: the rest of `egress_end`.
    fn deparse_begin(&mut self) -> Option<StageId> {
        let spec = self.egress_spec_of_egress()?;
        let stage = self.cx.open_stage("deparse_begin", StageKind::Control);
        self.drop_check(spec, EGRESS_DROP);
        self.cx.close_stage();
        Some(stage)
    }

    fn deparse_end(&mut self, out_port: Option<SlotId>) -> StageId {
        let stage = self.cx.open_stage("deparse_end", StageKind::Control);
        if let Some(flag) = self.request(Intrinsic::RecirculateFlag) {
            self.finish_if(flag.into(), Fate::Replicate(ReplicationPoint::DeparseEnd));
        }
        let port = out_port.map_or(Operand::new_const(9, 0), Operand::Slot);
        self.cx.b.fate(Fate::Send(port));
        self.cx.close_stage();
        stage
    }

    /// Keeps the metadata that the parser writes as they were before.
    fn clone_glue(&mut self) -> (Option<StageId>, Option<StageId>) {
        let program = self.cx.b.program();
        let mut written = BTreeSet::new();
        for inst in program.stages[self.stages.parser.index()].blocks.iter().flat_map(|b| &b.insts) {
            inst.op.for_each_def(program, |s| {
                if program.slots[s.index()].kind == SlotKind::Metadata {
                    written.insert(s);
                }
            });
        }
        if written.is_empty() {
            return (None, None);
        }
        let saved: Vec<(SlotId, SlotId)> = written
            .into_iter()
            .map(|slot| {
                let width = self.cx.b.program().width(slot);
                let name = format!("$clone.{}", self.cx.b.program().slots[slot.index()].name);
                (slot, self.cx.b.local(name, width))
            })
            .collect();
        let begin = self.cx.open_stage("clone_begin", StageKind::Control);
        saved.iter().for_each(|(slot, copy)| self.cx.b.mov(*copy, *slot));
        self.cx.close_stage();
        let end = self.cx.open_stage("clone_end", StageKind::Control);
        saved.iter().for_each(|(slot, copy)| self.cx.b.mov(*slot, *copy));
        self.cx.close_stage();
        (Some(begin), Some(end))
    }

    fn egress_spec_of_egress(&self) -> Option<SlotId> {
        self.standard("egress_spec").filter(|s| self.writes(self.stages.egress, *s))
    }

    fn request(&self, which: Intrinsic) -> Option<SlotId> {
        self.state.requests.get(&which).copied()
    }

    fn drop_check(&mut self, spec: SlotId, reason: &str) {
        let width = self.cx.b.program().width(spec);
        let drop = self.cx.b.bin(BinOp::Eq, spec, Operand::new_const(width, u128::from(DROP_PORT)));
        let reason = self.cx.b.drop_reason(reason);
        self.finish_if(drop.into(), Fate::Drop(reason));
    }

    fn finish_if(&mut self, cond: Operand, fate: Fate) {
        let go_on = self.cx.split(cond);
        self.cx.b.fate(fate);
        self.cx.b.switch_to(go_on);
    }
}
