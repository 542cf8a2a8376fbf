//! What the portable architectures have in common: the lowering of their blocks to stages, and their externs.
//!
//! | file | what |
//! | --- | --- |
//! | `portable/emits.rs` | splits a deparser into a stage that computes and a stage that emits |
//! | `portable/externs.rs` | counters, meters, registers, hashes, random numbers, digests, profiles, table properties |
//! | `portable/checksums.rs` | `Checksum` and `InternetChecksum`, which accumulate data within a block |
//!
//! The packet paths of an architecture are not here, but in `psa.rs` and `pna.rs`.

pub(crate) mod checksums;
pub(crate) mod emits;
pub(crate) mod externs;

use crate::context::{Binding, Lowerer};
use ir::{BlockId, Fate, Op, Operand, SlotId, StageId, StageKind};
use sema::typed::{ControlId, InstanceId, InstanceOf, Param, ParserId};

/// A parser of the package, and its instance.
pub(crate) type ParserBlock = (ParserId, InstanceId);
/// A control of the package, and its instance.
pub(crate) type ControlBlock = (ControlId, InstanceId);

// Blocks of the package.
impl Lowerer<'_> {
    /// The parser passed as an argument of the package; `None` if the instance is not a parser.
    pub fn parser_block(&self, id: Option<InstanceId>) -> Option<ParserBlock> {
        match self.p.instance(id?).of {
            InstanceOf::Parser(parser) => Some((parser, id?)),
            _ => None,
        }
    }

    /// The control passed as an argument of the package; `None` if the instance is not a control.
    pub fn control_block(&self, id: Option<InstanceId>) -> Option<ControlBlock> {
        match self.p.instance(id?).of {
            InstanceOf::Control(control) => Some((control, id?)),
            _ => None,
        }
    }

    /// Lowers a parser of the package to a stage. Its parameters are bound to `values` directly, without copies.
    pub fn parser_stage(&mut self, (id, instance): ParserBlock, values: Vec<Binding>) -> StageId {
        let p = self.p;
        let parser = &p.parsers[id.index()];
        let name = self.enter_block(instance, &parser.params, values);
        let stage = self.open_stage(&name, StageKind::Parser);
        self.b.set_span(parser.span);
        let accept = self.new_join("accept");
        self.accept = Some(accept);
        self.exit = None;
        self.parser_body(id);
        self.accept = None;
        self.continue_at(accept);
        self.close_stage();
        stage
    }

    /// Lowers a control of the package to a stage, like [`Lowerer::parser_stage`].
    pub fn control_stage(&mut self, (id, instance): ControlBlock, values: Vec<Binding>) -> StageId {
        let p = self.p;
        let control = &p.controls[id.index()];
        let name = self.enter_block(instance, &control.params, values);
        let stage = self.open_stage(&name, StageKind::Control);
        self.b.set_span(control.span);
        let exit = self.new_join("exit");
        self.exit = Some(exit);
        self.control_body(id);
        self.exit = None;
        self.continue_at(exit);
        self.close_stage();
        stage
    }

    fn enter_block(&mut self, instance: InstanceId, params: &[Param], values: Vec<Binding>) -> String {
        let mut env = self.instance_env(instance);
        env.bindings.extend(params.iter().map(|p| p.local).zip(values));
        self.env = env;
        self.env.prefix.to_string()
    }
}

// Stages of the architecture itself.
impl Lowerer<'_> {
    /// A stage of architecture glue.
    pub fn glue_stage(&mut self, name: &str, body: impl FnOnce(&mut Self)) -> StageId {
        let stage = self.open_stage(name, StageKind::Control);
        body(self);
        self.close_stage();
        stage
    }

    /// Ends the packet's path with `fate` if a condition holds.
    pub fn finish_if(&mut self, cond: Operand, fate: Fate) {
        let go_on: BlockId = self.split(cond);
        self.b.fate(fate);
        self.b.switch_to(go_on);
    }

    /// Whether a stage assigns to a slot anything but the constant `ignored`.
    pub fn assigns_other_than(&self, stage: StageId, slot: SlotId, ignored: u64) -> bool {
        let program = self.b.program();
        let mut assigns = false;
        for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
            match &inst.op {
                Op::Mov { dst, src: Operand::Const(c) } if *dst == slot && c.to_u64() == Some(ignored) => {}
                op => op.for_each_def(program, |s| assigns |= s == slot),
            }
        }
        assigns
    }
}
