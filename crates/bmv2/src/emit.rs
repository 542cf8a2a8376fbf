//! Lowers the model to IR: six stages, connected by simple_switch's runtime behaviour (`lower::simple_switch`).
//!
//! ```text
//! parser     states                               emit/parser.rs
//! verify     checksums with `verify`              emit/checksums.rs
//! ingress    nodes of the pipeline, learn lists   emit/control.rs, emit/actions.rs
//! egress     nodes of the pipeline
//! compute    checksums with `update`
//! deparser   primitives, headers in order         emit/headers.rs
//! ```
//!
//! **Fields of invalid headers.** bmv2 keeps their values; the IR's headers have zeros there. A header for which the
//! difference is observable is *loose*: its fields and validity are slots of their own, and an IR header exists only
//! for extraction and emission. All others are headers of the IR, which passes and engines handle best. To find the
//! loose ones, the program is lowered with all headers loose, dataflow analysis finds which may hold values while
//! invalid (`lower::dirty`), and the program is lowered again.

mod actions;
mod arithmetic;
mod checksums;
mod control;
mod headers;
mod parser;

use crate::codes;
use crate::headers::CORE_ERRORS;
use crate::locations::{Location, Spans};
use crate::model::{Field, Model};
use base::diag::Diagnostic;
use base::{Bits, Span};
use headers::HeaderSlots;
use ir::{BinOp, BlockId, Builder, CounterUnit, ExternId, ExternKind, Operand, SlotId, StageKind, TableId, UnOp};
use lower::dirty::{self, Followed};
use lower::simple_switch::{PacketHeader, Stages, Switch, glue};
use std::collections::HashMap;

/// A lowered program, its diagnostics, and the IR objects of the model's objects.
pub(crate) struct Emitted {
    pub program: ir::Program,
    pub diagnostics: Vec<Diagnostic>,
    pub declared: Declared,
}

/// The IR objects that correspond to the model's objects.
#[derive(Default)]
pub(crate) struct Declared {
    /// By whether the table is of egress, and its node.
    pub tables: HashMap<(bool, usize), TableId>,
}

/// Lowers a model.
pub(crate) fn emit(m: &Model, spans: &Spans, name: &str) -> Emitted {
    let all = vec![true; m.headers.len()];
    let (first, cx) = lower_with(m, spans, name, &all);
    let loose = match has_overrun(&first) {
        true => all,
        false => dirty::retained_headers(&first.program, &first.stages, &cx),
    };
    let (second, _) = lower_with(m, spans, name, &loose);
    let mut diagnostics = second.warnings;
    if let Some(span) = second.overrun {
        let message = format!("the program has more than {} operations and variables", lower::SIZE_LIMIT);
        diagnostics.push(Diagnostic::error(codes::TOO_LARGE, span, message));
    }
    let wide = second.program.slots.iter().find(|s| s.width > lower::WIDTH_LIMIT);
    if let Some(slot) = wide {
        let message = format!("a value of {} bits; the widest has {}", slot.width, lower::WIDTH_LIMIT);
        diagnostics.push(Diagnostic::error(codes::RANGE, Span::NONE, message));
    }
    diagnostics.extend(second.faults);
    Emitted { program: second.program, diagnostics, declared: second.declared }
}

fn has_overrun(lowered: &Lowered) -> bool {
    lowered.overrun.is_some() || !lowered.faults.is_empty()
}

struct Lowered {
    program: ir::Program,
    stages: Stages,
    warnings: Vec<Diagnostic>,
    faults: Vec<Diagnostic>,
    overrun: Option<Span>,
    declared: Declared,
}

fn lower_with(m: &Model, spans: &Spans, name: &str, loose: &[bool]) -> (Lowered, Followed) {
    let mut b = Builder::new(name);
    b.set_budget(lower::SIZE_LIMIT);
    for (value, error) in m.errors.iter().enumerate() {
        // 0 means no error in the IR; the JSON may give 0 to another error, which a packet without error then has.
        b.error(match value {
            0 => CORE_ERRORS[0],
            _ if error == CORE_ERRORS[0] => "no error",
            _ => error,
        });
    }
    let mut cx = Cx::new(m, spans, b, loose);
    cx.switch.drop_port = m.drop_port.unwrap_or(cx.switch.drop_port);
    cx.switch.declare(&mut cx.b);
    cx.declare_state();
    cx.declare_tables();
    let stages = Stages {
        parser: cx.parser(),
        verify: cx.verify_checksums(),
        ingress: cx.pipeline(Role::Ingress),
        egress: cx.pipeline(Role::Egress),
        compute: cx.update_checksums(),
        deparser: cx.deparser(),
    };
    let headers: Vec<PacketHeader> = cx.packet_headers();
    let warnings = glue(&mut cx.b, &cx.switch, stages, &headers);
    let mut lists: Vec<(u64, Vec<SlotId>)> = Vec::new();
    for list in &m.field_lists {
        let mut slots: Vec<SlotId> = list.fields.iter().map(|f| cx.slot(*f)).collect();
        slots.sort();
        slots.dedup();
        lists.push((u64::from(list.id), slots));
    }
    lists.sort_by_key(|(id, _)| *id);
    cx.b.program_mut().field_lists = lists;
    cx.b.program_mut().calculations = m.parametric.clone();
    cx.switch.declare_requests(&mut cx.b);
    let followed = Followed {
        headers: cx.headers.iter().map(HeaderSlots::followed).collect(),
        surely_retained: std::mem::take(&mut cx.surely_retained),
        clones_at_egress: cx.switch.clones_at_egress,
        clones_at_ingress: cx.switch.clones_at_ingress,
    };
    let overrun = cx.b.overrun();
    let faults = std::mem::take(&mut cx.faults);
    let declared = Declared { tables: cx.tables.iter().map(|(at, ids)| (*at, ids.table)).collect() };
    let mut program = cx.b.finish();
    program.stages.iter_mut().for_each(lower::drop_unreachable);
    (Lowered { program, stages, warnings, faults, overrun, declared }, followed)
}

/// The block that is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Parser,
    Ingress,
    Egress,
    Checksums,
    Deparser,
}

struct Cx<'m> {
    m: &'m Model,
    spans: &'m Spans,
    b: Builder,
    role: Role,
    headers: Vec<HeaderSlots>,
    /// By stack: the number of elements in use.
    next_of_stack: Vec<SlotId>,
    next_of_union_stack: Vec<SlotId>,
    switch: Switch,
    /// Action data of the table entry, in the action that is being lowered.
    locals: Vec<Operand>,
    counters: Vec<ExternId>,
    meters: Vec<ExternId>,
    registers: Vec<ExternId>,
    profiles: Vec<ExternId>,
    digests: Vec<ExternId>,
    value_sets: Vec<control::SetTables>,
    /// By pipeline and node.
    tables: HashMap<(bool, usize), control::TableIds>,
    /// Blocks that end the parser with an error.
    fail_blocks: HashMap<Option<u32>, BlockId>,
    /// The learn list requested last.
    learn: Option<SlotId>,
    /// The complement of the length that the frame is truncated to.
    truncate: Option<SlotId>,
    surely_retained: Vec<usize>,
    faults: Vec<Diagnostic>,
    /// Location of the object that is being lowered, for diagnostics.
    location: Location,
}

impl<'m> Cx<'m> {
    fn new(m: &'m Model, spans: &'m Spans, b: Builder, loose: &[bool]) -> Cx<'m> {
        let mut cx = Cx {
            m,
            spans,
            b,
            role: Role::Parser,
            headers: Vec::new(),
            next_of_stack: Vec::new(),
            next_of_union_stack: Vec::new(),
            switch: Switch::default(),
            locals: Vec::new(),
            counters: Vec::new(),
            meters: Vec::new(),
            registers: Vec::new(),
            profiles: Vec::new(),
            digests: Vec::new(),
            value_sets: Vec::new(),
            tables: HashMap::new(),
            fail_blocks: HashMap::new(),
            learn: None,
            truncate: None,
            surely_retained: Vec::new(),
            faults: Vec::new(),
            location: Location::default(),
        };
        cx.declare_headers(loose);
        let standard = m.well_known.iter().map(|(name, field)| (name.clone(), cx.slot(*field)));
        cx.switch.standard = standard.collect();
        cx
    }

    /// The slot of a field.
    fn slot(&self, field: Field) -> SlotId {
        self.headers[field.header].fields[field.field].slot
    }

    fn standard(&self, name: &str) -> Option<SlotId> {
        self.switch.standard.get(name).copied()
    }

    /// Sets the JSON location of the operations that follow.
    fn set_location(&mut self, location: Location) {
        self.location = location;
        self.b.set_span(self.spans.of(location));
    }

    fn fault(&mut self, message: impl Into<String>) {
        let (span, path) = (self.b.span(), self.spans.path(self.location));
        self.faults.push(Diagnostic::error(codes::RANGE, span, format!("{path}: {}", message.into())));
    }

    /// Whether lowering stops because the program exceeds a limit of the IR.
    fn is_over_limit(&self) -> bool {
        self.b.overrun().is_some()
    }

    fn open(&mut self, role: Role, name: &str, kind: StageKind) -> ir::StageId {
        self.role = role;
        self.set_location(Location::default());
        self.b.begin_stage(name, kind)
    }

    fn close(&mut self) {
        if !self.b.is_terminated() {
            self.b.next_stage();
        }
        self.set_location(Location::default());
        self.b.end_stage();
    }

    /// Branches on a condition and continues where it holds; returns the block for the other case.
    fn split(&mut self, cond: impl Into<Operand>) -> BlockId {
        let (then, other) = (self.b.block(""), self.b.block(""));
        self.b.branch(cond, then, other);
        self.b.switch_to(then);
        other
    }

    /// Ends the current block with a jump to `to` and continues there.
    fn join_at(&mut self, to: BlockId) {
        self.b.fall_through(to);
        self.b.switch_to(to);
    }

    /// Runs `then` where a condition holds, and `other` where it does not.
    fn if_else(&mut self, cond: impl Into<Operand>, then: impl FnOnce(&mut Self), other: impl FnOnce(&mut Self)) {
        match cond.into() {
            Operand::Const(c) if c.is_true() => then(self),
            Operand::Const(_) => other(self),
            cond => {
                let otherwise = self.split(cond);
                let done = self.b.block("");
                then(self);
                self.b.fall_through(done);
                self.b.switch_to(otherwise);
                other(self);
                self.join_at(done);
            }
        }
    }

    /// Runs `then` where a condition holds.
    fn when(&mut self, cond: impl Into<Operand>, then: impl FnOnce(&mut Self)) {
        match cond.into() {
            Operand::Const(c) if c.is_true() => then(self),
            Operand::Const(_) => {}
            cond => {
                let done = self.split(cond);
                then(self);
                self.join_at(done);
            }
        }
    }

    fn not(&mut self, bit: Operand) -> Operand {
        match bit {
            Operand::Const(c) => Operand::Const(c.not()),
            bit => self.b.un(UnOp::Not, bit).into(),
        }
    }

    fn and(&mut self, a: Operand, b: Operand) -> Operand {
        self.join_bits(BinOp::And, a, b, false)
    }

    fn or(&mut self, a: Operand, b: Operand) -> Operand {
        self.join_bits(BinOp::Or, a, b, true)
    }

    /// The conjunction or disjunction of two bits; `absorbing` is the value of either operand that determines the
    /// result.
    fn join_bits(&mut self, op: BinOp, a: Operand, b: Operand, absorbing: bool) -> Operand {
        match (&a, &b) {
            (Operand::Const(c), other) | (other, Operand::Const(c)) => match c.is_true() == absorbing {
                true => Bits::from_bool(absorbing).into(),
                false => other.clone(),
            },
            _ => self.b.bin(op, a, b).into(),
        }
    }

    /// Declares counters, meters, registers, digests, and the externs of value sets and profiles; direct externs are
    /// declared with their tables.
    fn declare_state(&mut self) {
        let m = self.m;
        let spans = self.spans;
        let declare = |b: &mut Builder, name: &str, location, kind| {
            b.extern_instance(ir::Extern { name: name.to_string(), span: spans.of(location), kind })
        };
        for c in &m.counters {
            let kind = ExternKind::Counter { size: c.size, unit: CounterUnit::Both, direct: None };
            let made = declare(&mut self.b, &c.name, c.location, kind);
            self.counters.push(made);
        }
        for meter in &m.meters {
            let unit = if meter.bytes { CounterUnit::Bytes } else { CounterUnit::Packets };
            let kind = ExternKind::Meter { size: meter.size, unit, direct: None };
            let made = declare(&mut self.b, &meter.name, meter.location, kind);
            self.meters.push(made);
        }
        for r in &m.registers {
            let kind = ExternKind::Register { size: r.size, width: r.width, initial: Bits::zero(r.width) };
            let made = declare(&mut self.b, &r.name, r.location, kind);
            self.registers.push(made);
        }
        for (i, list) in m.learn_lists.iter().enumerate() {
            if let Some(same) = m.learn_lists[..i].iter().position(|other| other.name == list.name) {
                self.digests.push(self.digests[same]);
                continue;
            }
            let fields = list.fields.iter().map(|f| (m.field_name(*f), m.field(*f).width)).collect();
            let made = declare(&mut self.b, &list.name, list.location, ExternKind::Digest { fields });
            self.digests.push(made);
        }
        for profile in &m.profiles {
            let (size, actions) = (profile.size, Vec::new());
            let kind = match &profile.selector {
                None => ExternKind::ActionProfile { size, actions },
                Some(s) => ExternKind::ActionSelector {
                    size,
                    actions,
                    algorithm: s.algorithm,
                    hash_width: arithmetic::hash_width(s.algorithm, self.b.program()),
                    empty: None,
                },
            };
            let made = declare(&mut self.b, &profile.name, profile.location, kind);
            self.profiles.push(made);
        }
    }
}
