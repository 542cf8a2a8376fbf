//! What ebpf_model, ubpf_model and xdp_model have in common: a program attached to a port that passes or drops packets.
//!
//! - A packet that *passes* leaves by the port that `PASS_PORT` of the include file returns for the ingress port. By
//!   default that is the ingress port itself, as in the test benches of the reference compiler's back ends.
//! - If the parser rejects, the program ends; each model defines what becomes of the packet.
//!
//! The models are in `ebpf.rs`, `ubpf.rs` and `xdp.rs`; their externs are in `bpf/externs.rs`.
//!
//! Reference for behaviour: the models' include files, and the back ends `ebpf` and `ubpf` of p4c.

mod externs;
mod lookup3;
mod modules;

use crate::codes;
use crate::context::{Binding, Env, Lowerer};
use crate::tree::Tree;
use base::Span;
use ir::{EntryKind, Fate, Intrinsic, Operand, SlotId, StageId, StageKind};
use sema::TypedProgram;
use sema::typed::{Control, ControlId, Instance, InstanceId, InstanceOf, Param, Parser, ParserId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Drop reason of packets that the program drops.
pub(crate) const FILTER_DROP: &str = "filter drop";
/// Drop reason of packets for which the program ends with an error.
pub(crate) const FILTER_ABORT: &str = "filter abort";
/// Drop reason of packets that the parser rejects.
pub(crate) const PARSER_REJECT: &str = "parser reject";

/// The include files' function from the ingress port to the egress port of packets that pass.
const PASS_PORT: &str = "__pass_port";

/// Width of a port and of a packet's length, in bits.
const PORT_WIDTH: u32 = 32;

/// The model that a program is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Model {
    Ebpf,
    Ubpf,
    Xdp,
}

impl Model {
    /// The name of the model in messages.
    pub fn name(self) -> &'static str {
        match self {
            Model::Ebpf => "ebpf_model",
            Model::Ubpf => "ubpf_model",
            Model::Xdp => "xdp_model",
        }
    }
}

/// The block that is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Parser,
    Pipeline,
    Deparser,
}

/// State shared by the blocks and the externs.
pub(crate) struct State {
    pub model: Model,
    pub role: Role,
    /// The ingress port.
    pub input_port: SlotId,
    /// Length of the received packet in bytes.
    pub packet_length: SlotId,
    /// Whether the parser has accepted.
    pub accepted: SlotId,
    /// ubpf_model: whether `mark_to_drop` was called.
    pub drop: Option<SlotId>,
    /// ubpf_model: the length to which `truncate` cuts, in bytes; 0 if it does not.
    pub truncate: Option<SlotId>,
    /// Microseconds since the switch started, if the program uses it.
    pub now: Option<SlotId>,
}

pub(crate) type Shared = Rc<RefCell<State>>;

/// The constructor arguments of `main`: a parser, then controls.
pub(crate) struct Blocks {
    pub parser: (ParserId, InstanceId),
    pub controls: Vec<(ControlId, InstanceId)>,
}

impl Blocks {
    /// The blocks of a package; `params` are their numbers of parameters, the parser's first. Reports an error if they
    /// differ.
    pub fn find(cx: &mut Lowerer<'_>, main: &Instance, package: &str, params: &[usize]) -> Option<Blocks> {
        let p = cx.p;
        let instance = |i: usize| main.args.get(i).and_then(|a| a.value.as_instance());
        let parser = instance(0).and_then(|id| match p.instance(id).of {
            InstanceOf::Parser(parser) => Some((parser, id)),
            _ => None,
        });
        let control = |i: usize| {
            instance(i).and_then(|id| match p.instance(id).of {
                InstanceOf::Control(control) => Some((control, id)),
                _ => None,
            })
        };
        let controls: Option<Vec<_>> = (1..params.len()).map(control).collect();
        let (Some(parser), Some(controls)) = (parser, controls) else {
            let message = format!("`{package}` needs a parser followed by {}", plural(params.len() - 1, "control"));
            cx.refuse(codes::NO_MAIN, main.span, message);
            return None;
        };
        let first = p.parsers[parser.0.index()].params.len();
        let others = controls.iter().map(|(id, _)| p.controls[id.index()].params.len());
        if !std::iter::once(first).chain(others).eq(params.iter().copied()) {
            let message = format!("a block of `{package}` has the wrong number of parameters");
            cx.refuse(codes::BLOCK_PARAMETERS, main.span, message);
            return None;
        }
        Some(Blocks { parser, controls })
    }

    /// The declaration of the parser.
    pub fn parser<'p>(&self, p: &'p TypedProgram) -> &'p Parser {
        &p.parsers[self.parser.0.index()]
    }

    /// The declaration of control `i`.
    pub fn control<'p>(&self, p: &'p TypedProgram, i: usize) -> &'p Control {
        &p.controls[self.controls[i].0.index()]
    }
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("one {what}") } else { format!("{n} {what}s") }
}

/// Creates the slots that all models have, and declares externs and tables. `named` has slots of the program's own
/// metadata that are used for the port and the length.
pub(crate) fn begin(cx: &mut Lowerer<'_>, model: Model, named: &HashMap<String, SlotId>) -> Shared {
    let mut slot = |name: &str, which: Intrinsic| {
        let slot = named.get(name).copied().unwrap_or_else(|| cx.b.metadata(format!("${name}"), PORT_WIDTH));
        cx.b.intrinsic(which, slot);
        slot
    };
    let input_port = slot("input_port", Intrinsic::IngressPort);
    let packet_length = slot("packet_length", Intrinsic::PacketLength);
    let accepted = cx.b.metadata("$accepted", 1);
    let state =
        State { model, role: Role::Parser, input_port, packet_length, accepted, drop: None, truncate: None, now: None };
    let shared: Shared = Rc::new(RefCell::new(state));
    cx.arch = Some(Box::new(externs::Bpf::new(shared.clone())));
    cx.declare_externs();
    cx.declare_tables();
    shared
}

/// The parser's stage, which records whether the parser accepts.
pub(crate) fn parser_stage(cx: &mut Lowerer<'_>, shared: &Shared, blocks: &Blocks, values: Vec<Binding>) -> StageId {
    let (id, instance) = blocks.parser;
    let parser = &cx.p.parsers[id.index()];
    shared.borrow_mut().role = Role::Parser;
    cx.env = bound(cx, instance, &parser.params, values);
    let name = cx.env.prefix.to_string();
    let stage = cx.open_stage(&name, StageKind::Parser);
    cx.b.set_span(parser.span);
    let accept = cx.new_join("accept");
    cx.accept = Some(accept);
    cx.exit = None;
    cx.parser_body(id);
    cx.accept = None;
    if cx.is_used(accept) {
        cx.continue_at(accept);
        let accepted = shared.borrow().accepted;
        cx.b.set(accepted, 1);
    }
    cx.close_stage();
    stage
}

/// The stage of control `i`; `end` appends code to it.
pub(crate) fn control_stage(
    cx: &mut Lowerer<'_>,
    shared: &Shared,
    blocks: &Blocks,
    (i, role): (usize, Role),
    values: Vec<Binding>,
    end: impl FnOnce(&mut Lowerer<'_>),
) -> StageId {
    let (id, instance) = blocks.controls[i];
    let control = &cx.p.controls[id.index()];
    shared.borrow_mut().role = role;
    cx.env = bound(cx, instance, &control.params, values);
    let name = cx.env.prefix.to_string();
    let kind = if role == Role::Deparser { StageKind::Deparser } else { StageKind::Control };
    let stage = cx.open_stage(&name, kind);
    cx.b.set_span(control.span);
    let exit = cx.new_join("exit");
    cx.exit = Some(exit);
    cx.control_body(id);
    cx.exit = None;
    cx.continue_at(exit);
    if !cx.b.is_terminated() {
        end(cx);
    }
    cx.close_stage();
    stage
}

/// A stage of the architecture itself.
pub(crate) fn glue(cx: &mut Lowerer<'_>, name: &str, code: impl FnOnce(&mut Lowerer<'_>)) -> StageId {
    let stage = cx.open_stage(name, StageKind::Control);
    code(cx);
    cx.close_stage();
    stage
}

/// The environment of a block whose parameters are bound to `values`.
pub(crate) fn bound(cx: &Lowerer<'_>, instance: InstanceId, params: &[Param], values: Vec<Binding>) -> Env {
    let mut env = cx.instance_env(instance);
    env.bindings.extend(params.iter().map(|p| p.local).zip(values));
    env
}

/// Runs `end`, which ends the packet's path, unless a condition holds.
pub(crate) fn unless(cx: &mut Lowerer<'_>, cond: Operand, end: impl FnOnce(&mut Lowerer<'_>)) {
    let (go_on, other) = (cx.b.block(""), cx.b.block(""));
    cx.b.branch(cond, go_on, other);
    cx.b.switch_to(other);
    end(cx);
    cx.b.switch_to(go_on);
}

/// Drops the packet.
pub(crate) fn drop(cx: &mut Lowerer<'_>, reason: &str) {
    let reason = cx.b.drop_reason(reason);
    cx.b.fate(Fate::Drop(reason));
}

/// The egress port of a packet that passes.
pub(crate) fn pass_port(cx: &mut Lowerer<'_>, input_port: SlotId) -> Operand {
    cx.library_function(PASS_PORT, input_port.into()).unwrap_or(input_port.into())
}

/// Whether a stage writes a slot.
pub(crate) fn writes(cx: &Lowerer<'_>, stage: StageId, slot: SlotId) -> bool {
    let program = cx.b.program();
    let mut writes = false;
    for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
        inst.op.for_each_def(program, |s| writes |= s == slot);
    }
    writes
}

/// Declares an entry point.
pub(crate) fn entry(cx: &mut Lowerer<'_>, kind: EntryKind, stages: &[StageId]) {
    cx.b.set_span(Span::NONE);
    cx.b.entry(kind, stages);
}

/// The slots of a struct's scalar fields, by name.
pub(crate) fn named_slots(cx: &Lowerer<'_>, ty: &sema::Type, tree: &Tree) -> HashMap<String, SlotId> {
    let Some(info) = cx.p.types.struct_info(ty) else { return HashMap::new() };
    let fields = info.fields.iter().zip(tree.children());
    fields.filter_map(|(f, t)| Some((f.name.to_string(), t.operand().slot()?))).collect()
}

/// Whether the package of `main` has this name and number of parameters.
pub(crate) fn is_package(program: &TypedProgram, main: &Instance, name: &str, params: usize) -> bool {
    let InstanceOf::Package(id) = main.of else { return false };
    let declared = &program.types.block_types[id.index()];
    &*declared.name == name && declared.params.len() == params
}
