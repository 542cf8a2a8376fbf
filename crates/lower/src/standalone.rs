//! Packages of unknown architectures: every block is lowered on its own.
//!
//! A program whose `main` is a package that no supported architecture declares can be checked, optimised and translated
//! but not loaded: what happens between its blocks is unknown. For this it is given the following semantics, which
//! assume nothing:
//!
//! - The blocks are the parsers and controls among the arguments of `main`, including those of nested packages, in
//!   order. Each is a stage; together they form the entry point `ingress`, which drops all packets.
//! - Before a block, unresolved code sets its `in`, `inout` and directionless value parameters to arbitrary values.
//!   After it, unresolved code reads its `out` and `inout` parameters, and a parser's error. Both are `Op::Unresolved`.
//!   Blocks share only tables and externs.
//! - A parser's `packet_in` and a control's `packet_out` are the frame; such controls become deparsers. Other objects
//!   passed as parameters are foreign, as are all externs except those of core.p4.
//! - `out` parameters start as zeros and invalid headers.
//!
//! ```text
//! entry ingress   p  p.end  c  c.end  …  end
//! ```
//!
//! Specification: P4_16, "Architecture description". Tests: `tests/standalone.rs`.

use crate::arch::{Architecture, ExternCall, TableProperty};
use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::tree::Tree;
use base::Span;
use base::diag::Diagnostic;
use ir::{EntryKind, Fate, Intrinsic, SlotId, SlotKind, StageId, StageKind};
use sema::Type;
use sema::Value;
use sema::typed::{ControlId, Direction, Instance, InstanceId, InstanceOf, LocalId, Param, ParserId, Table};
use std::rc::Rc;

/// Drop reason of all packets of such a program.
const DROP: &str = "no architecture";

/// Width of the packet's length, in bits.
const LENGTH_WIDTH: u32 = 32;

/// A block of `main`, with its instance.
enum Block {
    Parser(ParserId, InstanceId),
    Control(ControlId, InstanceId),
}

/// Lowers a program whose `main` is an unknown package.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance, package: &str) {
    cx.package_is_foreign = true;
    cx.unloadable.push(not_loadable(cx, main, package));
    let length = cx.b.metadata("packet_length", LENGTH_WIDTH);
    cx.b.intrinsic(Intrinsic::PacketLength, length);
    cx.parser_error = Some(cx.b.metadata("parser_error", crate::storage::ENUM_WIDTH));
    cx.arch = Some(Box::new(Standalone { length }));
    cx.declare_tables();
    let mut stages = Vec::new();
    for block in blocks(cx, main) {
        stages.extend(lower_block(cx, package, &block));
    }
    let end = cx.open_stage("end", StageKind::Control);
    let reason = cx.b.drop_reason(DROP);
    cx.b.fate(Fate::Drop(reason));
    cx.close_stage();
    stages.push(end);
    cx.b.entry(EntryKind::Ingress, &stages);
}

fn not_loadable(cx: &Lowerer<'_>, main: &Instance, package: &str) -> Diagnostic {
    let message =
        format!("the package `{package}` is of no architecture that this switch runs: it can be checked, not loaded");
    let declared = match main.of {
        InstanceOf::Package(id) => cx.p.types.block_types[id.index()].span,
        _ => Span::NONE,
    };
    Diagnostic::error(codes::UNKNOWN_ARCHITECTURE, main.span, message)
        .note(declared, "declared here")
        .help(format!("the architectures that can be loaded: {}", crate::architectures()))
}

/// The blocks of a package, including those of nested packages.
fn blocks(cx: &Lowerer<'_>, main: &Instance) -> Vec<Block> {
    let mut found = Vec::new();
    let mut waiting: Vec<&Value> = main.args.iter().rev().map(|a| &a.value).collect();
    while let Some(value) = waiting.pop() {
        match value {
            Value::Instance(id) => {
                let instance = cx.p.instance(*id);
                match instance.of {
                    InstanceOf::Parser(parser) => found.push(Block::Parser(parser, *id)),
                    InstanceOf::Control(control) => found.push(Block::Control(control, *id)),
                    InstanceOf::Package(_) => waiting.extend(instance.args.iter().rev().map(|a| &a.value)),
                    InstanceOf::Extern(_) => {}
                }
            }
            Value::Seq(values) => waiting.extend(values.iter().rev()),
            _ => {}
        }
    }
    found
}

/// The stage of a block, and the unresolved code after it.
fn lower_block(cx: &mut Lowerer<'_>, package: &str, block: &Block) -> [StageId; 2] {
    let p = cx.p;
    let (params, instance, span) = match block {
        Block::Parser(id, instance) => (&p.parsers[id.index()].params, *instance, p.parsers[id.index()].span),
        Block::Control(id, instance) => (&p.controls[id.index()].params, *instance, p.controls[id.index()].span),
    };
    let mut env = cx.instance_env(instance);
    let bound = bind(cx, &env.prefix.clone(), params, block);
    env.bindings.extend(bound.iter().cloned());
    cx.env = env;
    let name = cx.env.prefix.to_string();
    let has_packet = |b: &(LocalId, Binding)| matches!(b.1, Binding::PacketOut);
    let kind = match block {
        Block::Parser(..) => StageKind::Parser,
        Block::Control(..) if bound.iter().any(has_packet) => StageKind::Deparser,
        Block::Control(..) => StageKind::Control,
    };
    let stage = cx.open_stage(&name, kind);
    cx.b.set_span(span);
    arguments(cx, format!("{package}.{name} arguments"), params, &bound, span);
    match block {
        Block::Parser(id, _) => {
            if let Some(slot) = cx.parser_error {
                cx.b.set(slot, 0);
            }
            let accept = cx.new_join("accept");
            cx.accept = Some(accept);
            cx.exit = None;
            cx.parser_body(*id);
            cx.accept = None;
            cx.continue_at(accept);
        }
        Block::Control(id, _) => {
            let exit = cx.new_join("exit");
            cx.exit = Some(exit);
            cx.control_body(*id);
            cx.exit = None;
            cx.continue_at(exit);
        }
    }
    cx.close_stage();

    let end = cx.open_stage(&format!("{name}.end"), StageKind::Control);
    cx.b.set_span(span);
    let mut seen: Vec<Tree> = Vec::new();
    if let (Block::Parser(..), Some(error)) = (block, cx.parser_error) {
        seen.push(error.into());
    }
    for (param, (_, binding)) in params.iter().zip(&bound) {
        if let (Direction::Out | Direction::InOut, Binding::Tree(tree)) = (param.direction, binding) {
            seen.push(tree.clone());
        }
    }
    cx.call_unresolved(format!("{package}.{name} results"), &seen, &[], span);
    cx.close_stage();
    [stage, end]
}

/// The bindings of a block's parameters.
fn bind(cx: &mut Lowerer<'_>, prefix: &str, params: &[Param], block: &Block) -> Vec<(LocalId, Binding)> {
    let mut packet_is_free = true;
    let mut bound = Vec::with_capacity(params.len());
    for param in params {
        let binding = match &param.ty {
            Type::Extern(id, _) => {
                let first = std::mem::replace(&mut packet_is_free, false);
                match (block, cx.p.extern_name(*id)) {
                    (Block::Parser(..), "packet_in") if first => Binding::PacketIn,
                    (Block::Control(..), "packet_out") if first => Binding::PacketOut,
                    _ => {
                        packet_is_free = first;
                        Binding::Outside(Rc::from(format!("{prefix}.{}", param.name)))
                    }
                }
            }
            ty => {
                let name = format!("{prefix}.{}", param.name);
                Binding::Tree(cx.allocate(&name, ty, SlotKind::Metadata, param.span))
            }
        };
        bound.push((param.local, binding));
    }
    bound
}

/// Emits the unresolved code that sets a block's parameters.
fn arguments(cx: &mut Lowerer<'_>, callee: String, params: &[Param], bound: &[(LocalId, Binding)], span: Span) {
    let given: Vec<(&Type, &Tree)> = params
        .iter()
        .zip(bound)
        .filter_map(|(param, (_, binding))| match (param.direction, binding) {
            (Direction::Out, _) => None,
            (_, Binding::Tree(tree)) => Some((&param.ty, tree)),
            _ => None,
        })
        .collect();
    let types: Vec<&Type> = given.iter().map(|(ty, _)| *ty).collect();
    let values = cx.call_unresolved(callee, &[], &types, span);
    for ((_, tree), value) in given.into_iter().zip(&values) {
        cx.store(tree, value, None);
    }
}

/// An architecture about which nothing is known.
struct Standalone {
    length: SlotId,
}

impl Architecture for Standalone {
    fn declare(&mut self, _: &mut Lowerer<'_>, _: InstanceId) {}

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        cx.foreign_function(name, call)
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let (extern_name, path) = cx.extern_names(instance);
        let (extern_name, path) = (extern_name.to_string(), path.to_string());
        cx.foreign_method(&extern_name, &path, method, call)
    }

    fn direct_meter(&mut self, _: &mut Lowerer<'_>, _: &Table, _: ir::ExternId, _: SlotId, _: SlotId) {
        // No table has one: table properties have no meaning here.
    }

    fn table_property(&self, _: &str) -> TableProperty {
        // Its meaning is up to the unknown architecture.
        TableProperty::Ignored
    }

    fn packet_length(&self) -> Option<SlotId> {
        Some(self.length)
    }
}
