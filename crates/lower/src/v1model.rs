//! v1model: the six blocks of `V1Switch` as stages, with the glue of bmv2's simple_switch between them
//! (`simple_switch.rs`).
//!
//! A parser error does not drop the packet: `parser_error` has the error, and the packet continues with the headers
//! extracted so far.
//!
//! Reference for behaviour: docs/simple_switch.md of behavioral-model. Externs: `v1model/externs.rs`. Tests:
//! `tests/v1model.rs`.

mod calculations;
mod cells;
pub(crate) mod externs;

use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::simple_switch::{DROP_PORT, Stages, Switch, glue};
use crate::tree::Tree;
use calculations::Calculations;
use ir::{BinOp, ControllerHeader, Op, Operand, SlotId, SlotKind, StageId, StageKind, UnOp};
use sema::typed::{Annotation, ControlId, Instance, InstanceId, InstanceOf, Param, ParserId, find_annotation};
use sema::types::{StructId, StructKind};
use sema::{Type, TypedProgram};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Width in bits of the number of a digest that is sent at the end of ingress.
const LEARN_BITS: u32 = 16;

/// The block that is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockRole {
    Parser,
    Verify,
    Ingress,
    Egress,
    Compute,
    Deparser,
}

/// What lowering of externs has determined about the program, and the slots that externs share.
struct State {
    role: BlockRole,
    /// The fields of `standard_metadata_t`, and information for the glue.
    switch: Switch,
    /// The slot with the one's complement of the length in bytes to which the frame is truncated.
    truncate: Option<SlotId>,
    field_lists: BTreeMap<u64, Vec<SlotId>>,
    /// Digest externs, by the type of their data.
    digests: Vec<(Type, ir::ExternId)>,
    /// For bmv2's behaviour: the slot with the number (from 1) of the digest that ingress requested last. It is sent at
    /// the end of ingress.
    learn: Option<SlotId>,
    learned: Vec<(ir::ExternId, Vec<Operand>)>,
    calculations: Calculations,
}

type Shared = Rc<RefCell<State>>;

/// Whether the package is v1model's, and not one that the program declares under the same name.
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
    let switch = Switch { standard: standard_slots, drop_port: cx.drop_port.unwrap_or(DROP_PORT), ..Switch::default() };
    switch.declare(&mut cx.b);
    cx.parser_error = switch.standard.get("parser_error").copied();
    let mut field_lists = BTreeMap::new();
    collect_field_lists(cx, &parser.params[2].ty, &meta, &BTreeSet::new(), &mut field_lists);
    let checksums = [blocks.compute.1, blocks.verify.1];
    let mut calculations = Calculations::new(p, [blocks.ingress.1, blocks.egress.1], checksums);
    cx.b.program_mut().calculations = std::mem::take(&mut calculations.list);
    let state = State {
        role: BlockRole::Parser,
        switch,
        truncate: None,
        field_lists,
        digests: Vec::new(),
        learn: None,
        learned: Vec::new(),
        calculations,
    };
    let shared: Shared = Rc::new(RefCell::new(state));
    cx.arch = Some(Box::new(externs::V1Model { state: shared.clone() }));
    cx.declare_externs();
    cx.declare_tables();
    controller_headers(cx);

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
    phv.hdr.for_each_header(&mut |h| headers.extend(cx.packet_header(h)));
    if let Some(retained) = &mut cx.retained {
        retained.blocks = Some((stages, state.switch.clones_at_ingress, state.switch.clones_at_egress));
    }
    glue(&mut cx.b, &state.switch, stages, &headers).into_iter().for_each(|warning| cx.report(warning));
    cx.b.program_mut().field_lists = state.field_lists.clone().into_iter().collect();
    state.switch.declare_requests(&mut cx.b);
}

/// The constructor arguments of `main`.
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

/// The variables that all blocks share. The blocks' parameters are bound to them directly, without copies.
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
        cx.continue_at(accept);
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
        cx.continue_at(exit);
        if role == BlockRole::Ingress {
            send_learned(cx, shared);
        }
        let truncate = shared.borrow().truncate;
        if let (BlockRole::Deparser, Some(bytes)) = (role, truncate) {
            let bytes = cx.b.un(UnOp::Not, bytes).into();
            cx.b.emit(Op::Truncate { bytes });
        }
        cx.close_stage();
        stage
    }
}

/// Sends the digest that was requested last, with the current values of its fields.
fn send_learned(cx: &mut Lowerer<'_>, shared: &Shared) {
    let (learn, learned) = (shared.borrow().learn, shared.borrow().learned.clone());
    let Some(learn) = learn else { return };
    for (number, (digest, data)) in (1..).zip(learned) {
        let asked = cx.b.bin(BinOp::Eq, learn, Operand::new_const(LEARN_BITS, number));
        cx.if_else(asked.into(), |cx| cx.b.emit(Op::Digest { digest, data }), |_| {});
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

/// Adds the slots of fields annotated with `@field_list`, including nested ones, to the lists that it names.
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

/// Records the layouts of `@controller_header` headers in the program.
pub(crate) fn controller_headers(cx: &mut Lowerer<'_>) {
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
