//! Headers, stacks and unions: their slots, and all code that writes them.
//!
//! Only this file writes slots of headers. Writes to fields of a header that is not loose have no effect while it is
//! invalid, so the IR's rule (invalid headers have zeros) holds.
//!
//! Stacks behave as in bmv2's default build: `push` and `pop` move all elements, and vacated elements become invalid.

use super::arithmetic::Value;
use super::{Cx, Role};
use crate::model::{Expr, Field, StackRef};
use base::Bits;
use ir::{BinOp, FieldWidth, HeaderId, Mark, Op, Operand, SlotId, SlotKind, StageKind};
use lower::simple_switch::PacketHeader;

/// The slots of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldSlots {
    pub slot: SlotId,
    /// Bits of a varbit field.
    pub length: Option<SlotId>,
}

/// The slots of a header.
#[derive(Clone, Debug)]
pub(super) struct HeaderSlots {
    pub fields: Vec<FieldSlots>,
    /// `None` for metadata, which is always valid.
    pub valid: Option<SlotId>,
    /// The IR's header; for a loose header it serves extraction and emission only.
    pub wire: Option<HeaderId>,
    pub loose: bool,
}

impl HeaderSlots {
    pub fn valid(&self) -> Operand {
        self.valid.map_or(Bits::from_bool(true).into(), Operand::Slot)
    }

    /// The validity, and the slots of all fields.
    pub fn followed(&self) -> Option<(SlotId, Vec<SlotId>)> {
        Some((self.valid?, self.fields.iter().flat_map(|f| [Some(f.slot), f.length]).flatten().collect()))
    }
}

/// A header that an expression names.
#[derive(Clone, Debug)]
pub(super) enum HeaderRef {
    Known(usize),
    /// One of several, selected by an index of 32 bits; none if that is out of range.
    Indexed(Vec<usize>, Operand),
}

// Declarations.
impl Cx<'_> {
    pub(super) fn declare_headers(&mut self, loose: &[bool]) {
        let m = self.m;
        let in_lists: Vec<usize> = m
            .field_lists
            .iter()
            .flat_map(|l| &l.fields)
            .map(|f| f.header)
            .filter(|h| !m.headers[*h].metadata)
            .collect();
        self.surely_retained.extend(in_lists);
        for (i, header) in m.headers.iter().enumerate() {
            let ty = m.header_type(i);
            if header.metadata {
                let slot = |f: &crate::model::FieldType| {
                    let name = format!("{}.{}", header.name, f.name);
                    let length = f.varbit.then(|| self.b.metadata(format!("{name}.$length"), 32));
                    FieldSlots { slot: self.b.metadata(name, f.width), length }
                };
                let fields = ty.fields.iter().map(slot).collect();
                self.headers.push(HeaderSlots { fields, valid: None, wire: None, loose: false });
                continue;
            }
            let widths: Vec<(&str, FieldWidth)> = ty
                .fields
                .iter()
                .map(|f| (&*f.name, if f.varbit { FieldWidth::Varbit(f.width) } else { FieldWidth::Fixed(f.width) }))
                .collect();
            let is_loose = loose[i];
            let name = if is_loose { format!("{}.$wire", header.name) } else { header.name.clone() };
            let wire = self.b.header(name, &widths);
            let made = &self.b.program().headers[wire.index()];
            let own = |f: &ir::Field| FieldSlots { slot: f.slot, length: f.varbit_length };
            let (fields, valid) = (made.fields.iter().map(own).collect(), made.valid);
            let slots = match is_loose {
                false => HeaderSlots { fields, valid: Some(valid), wire: Some(wire), loose: false },
                true => {
                    let mut part = |name: String, width| self.b.slot(name, width, SlotKind::HeaderPart);
                    let fields = ty
                        .fields
                        .iter()
                        .map(|f| FieldSlots {
                            slot: part(format!("{}.{}", header.name, f.name), f.width),
                            length: f.varbit.then(|| part(format!("{}.{}.$length", header.name, f.name), 32)),
                        })
                        .collect();
                    let valid = part(format!("{}.$valid", header.name), 1);
                    HeaderSlots { fields, valid: Some(valid), wire: Some(wire), loose: true }
                }
            };
            self.headers.push(slots);
        }
        for stack in &m.stacks {
            let next = self.b.slot(format!("{}.$next", stack.name), 32, SlotKind::HeaderPart);
            self.next_of_stack.push(next);
        }
        for stack in &m.union_stacks {
            let next = self.b.slot(format!("{}.$next", stack.name), 32, SlotKind::HeaderPart);
            self.next_of_union_stack.push(next);
        }
    }

    /// The packet's headers, for its length.
    pub(super) fn packet_headers(&self) -> Vec<PacketHeader> {
        let program = self.b.program();
        let of = |h: &HeaderSlots| {
            let mut header = PacketHeader::of(program, h.wire?);
            header.valid = h.valid?;
            header.varbit_bits = h.fields.iter().find_map(|f| f.length);
            Some(header)
        };
        self.headers.iter().filter_map(of).collect()
    }

    /// The other members of the header's union, of which at most one is valid.
    fn siblings(&self, header: usize) -> Vec<usize> {
        let union = self.m.headers[header].union;
        union.map_or(Vec::new(), |u| self.m.unions[u].members.iter().copied().filter(|h| *h != header).collect())
    }
}

// Writes.
impl Cx<'_> {
    /// Makes a header invalid.
    pub(super) fn remove(&mut self, header: usize) {
        let slots = &self.headers[header];
        match (slots.loose, slots.wire, slots.valid) {
            (false, Some(wire), _) => self.b.emit(Op::SetInvalid { header: wire }),
            (true, _, Some(valid)) => self.b.set(valid, 0),
            _ => {}
        }
    }

    /// Makes a header valid. With `reset`, values that its fields had while it was invalid are cleared.
    pub(super) fn add(&mut self, header: usize, reset: bool) {
        let slots = self.headers[header].clone();
        let Some(valid) = slots.valid else { return };
        if !reset {
            self.surely_retained.push(header);
        }
        let there = self.split(Operand::Slot(valid));
        let done = self.b.block("");
        self.b.jump(done);
        self.b.switch_to(there);
        for sibling in self.siblings(header) {
            self.remove(sibling);
        }
        match (slots.loose, slots.wire) {
            (true, _) => {
                if reset {
                    for field in &slots.fields {
                        self.b.set(field.slot, 0);
                        if let Some(length) = field.length {
                            self.b.set(length, 0);
                        }
                    }
                }
                self.b.set(valid, 1);
            }
            (false, Some(wire)) => self.b.emit(Op::SetValid { header: wire }),
            (false, None) => {}
        }
        self.join_at(done);
    }

    /// Copies a header of the same type; an invalid source makes the target invalid.
    pub(super) fn copy(&mut self, to: usize, from: usize) {
        if to == from || self.is_over_limit() {
            return;
        }
        let (a, b) = (self.headers[to].clone(), self.headers[from].clone());
        let Some(valid) = a.valid else {
            // Metadata are always valid, and keep their values if the source is invalid.
            return self
                .when(b.valid(), |cx| a.fields.iter().zip(&b.fields).for_each(|(x, y)| cx.b.mov(x.slot, y.slot)));
        };
        if !a.loose && !b.loose && self.m.headers[to].union.is_none() {
            // Fields of an invalid header are zero on both sides.
            for (x, y) in a.fields.iter().zip(&b.fields) {
                self.b.mov(x.slot, y.slot);
                if let (Some(x), Some(y)) = (x.length, y.length) {
                    self.b.mov(x, y);
                }
            }
            self.b.mov(valid, b.valid());
            return;
        }
        self.if_else(
            b.valid(),
            |cx| {
                for sibling in cx.siblings(to) {
                    if sibling != from {
                        cx.remove(sibling);
                    }
                }
                for (x, y) in a.fields.iter().zip(&b.fields) {
                    cx.b.mov(x.slot, y.slot);
                    if let (Some(x), Some(y)) = (x.length, y.length) {
                        cx.b.mov(x, y);
                    }
                }
                cx.b.set(valid, 1);
                if cx.siblings(to).contains(&from) {
                    cx.remove(from);
                }
            },
            |cx| cx.remove(to),
        );
    }

    pub(super) fn copy_union(&mut self, to: usize, from: usize) {
        let m = self.m;
        for (a, b) in m.unions[to].members.iter().zip(&m.unions[from].members) {
            self.copy(*a, *b);
        }
    }

    /// Moves the elements of a stack by `by` positions.
    pub(super) fn shift(&mut self, stack: StackRef, by: usize, push: bool) {
        let m = self.m;
        let (size, next) = match stack {
            StackRef::Headers(s) => (m.stacks[s].elements.len(), self.next_of_stack[s]),
            StackRef::Unions(s) => (m.union_stacks[s].elements.len(), self.next_of_union_stack[s]),
        };
        let by = by.min(size);
        if by == 0 {
            return;
        }
        let copy = |cx: &mut Self, to: usize, from: usize| match stack {
            StackRef::Headers(s) => cx.copy(m.stacks[s].elements[to], m.stacks[s].elements[from]),
            StackRef::Unions(s) => cx.copy_union(m.union_stacks[s].elements[to], m.union_stacks[s].elements[from]),
        };
        let clear = |cx: &mut Self, index: usize| match stack {
            StackRef::Headers(s) => cx.remove(m.stacks[s].elements[index]),
            StackRef::Unions(s) => {
                m.unions[m.union_stacks[s].elements[index]].members.iter().for_each(|h| cx.remove(*h));
            }
        };
        let count = Operand::new_const(32, by as u128);
        if push {
            (by..size).rev().for_each(|i| copy(self, i, i - by));
            (0..by).for_each(|i| clear(self, i));
            let sum = self.b.bin(BinOp::Add, next, count);
            let limit = Operand::new_const(32, size as u128);
            let over = self.b.bin(BinOp::Ult, limit.clone(), sum);
            self.b.emit(Op::Select { dst: next, cond: over.into(), then: limit, other: sum.into() });
        } else {
            (0..size - by).for_each(|i| copy(self, i, i + by));
            (size - by..size).for_each(|i| clear(self, i));
            self.b.emit(Op::Bin { op: BinOp::SatSubU, dst: next, a: next.into(), b: count });
        }
    }

    /// Fills a header from the packet, which must have enough bits.
    pub(super) fn extract(&mut self, header: usize, varbit_bits: Option<Operand>) {
        for sibling in self.siblings(header) {
            self.remove(sibling);
        }
        let slots = self.headers[header].clone();
        let (Some(wire), Some(valid)) = (slots.wire, slots.valid) else { return };
        self.b.emit(Op::Extract { header: wire, varbit_bits });
        if slots.loose {
            let of_wire = self.b.program().headers[wire.index()].fields.clone();
            for (field, from) in slots.fields.iter().zip(&of_wire) {
                self.b.mov(field.slot, from.slot);
                if let (Some(to), Some(from)) = (field.length, from.varbit_length) {
                    self.b.mov(to, from);
                }
            }
            self.b.set(valid, 1);
        }
    }

    /// Assigns a number to a field: truncated, or clamped if the field is saturating.
    pub(super) fn assign_field(&mut self, field: Field, value: &Expr) {
        let value = self.fitted(field, value);
        self.write(field, value);
    }

    /// The value of an expression in a field's width.
    pub(super) fn fitted(&mut self, field: Field, value: &Expr) -> Operand {
        let ty = self.m.field(field);
        match ty.saturating {
            false => self.modulo(value, ty.width),
            true => {
                let exact = self.exact(value);
                self.saturate(exact, ty.width, ty.signed).operand
            }
        }
    }

    /// Writes a value of the field's width.
    pub(super) fn write(&mut self, field: Field, value: Operand) {
        let slots = &self.headers[field.header];
        let slot = slots.fields[field.field].slot;
        match slots.valid {
            Some(valid) if !slots.loose => {
                self.b.emit(Op::Select { dst: slot, cond: valid.into(), then: value, other: slot.into() });
            }
            _ => self.b.mov(slot, value),
        }
    }

    pub(super) fn assign_varbit(&mut self, to: Field, from: Field) {
        let [a, b] = [to, from].map(|f| self.headers[f.header].fields[f.field]);
        let width = self.b.program().width(a.slot);
        let value = self.b.resize_u(width, b.slot);
        self.write(to, value);
        let (Some(length), Some(from_length)) = (a.length, b.length) else { return };
        let slots = &self.headers[to.header];
        match slots.valid {
            Some(valid) if !slots.loose => {
                let (then, other) = (from_length.into(), length.into());
                self.b.emit(Op::Select { dst: length, cond: valid.into(), then, other });
            }
            _ => self.b.mov(length, from_length),
        }
    }

    /// Runs `f` for the header that a reference names.
    pub(super) fn for_header(&mut self, header: &HeaderRef, mut f: impl FnMut(&mut Self, usize)) {
        match header {
            HeaderRef::Known(header) => f(self, *header),
            HeaderRef::Indexed(headers, index) => {
                let (done, beyond) = (self.b.block(""), self.b.block(""));
                let blocks: Vec<_> = headers.iter().map(|_| self.b.block("")).collect();
                let cases = blocks.iter().enumerate().map(|(i, b)| (Bits::new(32, i as u128), *b)).collect();
                self.b.switch(index.clone(), cases, beyond);
                self.b.switch_to(beyond);
                self.mark_out_of_bounds(headers);
                self.b.jump(done);
                for (block, header) in blocks.into_iter().zip(headers) {
                    self.b.switch_to(block);
                    f(self, *header);
                    self.b.fall_through(done);
                }
                self.b.switch_to(done);
            }
        }
    }

    /// Marks for traces that the index of a stack is out of range.
    fn mark_out_of_bounds(&mut self, headers: &[usize]) {
        let m = self.m;
        let has = |elements: &[usize]| headers.first().is_some_and(|first| elements.contains(first));
        let stack = m.stacks.iter().find(|s| has(&s.elements)).map(|s| &s.name);
        let of_unions = m.union_stacks.iter().find(|s| s.elements.iter().any(|u| has(&m.unions[*u].members)));
        if let Some(stack) = stack.or(of_unions.map(|s| &s.name)) {
            self.b.emit(Op::Mark(Mark::OutOfRange { stack: stack.clone(), size: headers.len() as u64 }));
        }
    }

    /// Marks for traces if an index of a stack that is read is out of range.
    fn check_index(&mut self, headers: &[usize], index: &Operand) {
        let size = headers.len() as u64;
        match index {
            Operand::Const(c) if c.to_u64().is_some_and(|i| i < size) => {}
            Operand::Const(_) => self.mark_out_of_bounds(headers),
            Operand::Slot(_) => {
                let last = Operand::new_const(32, u128::from(size.saturating_sub(1)));
                let beyond = self.b.bin(BinOp::Ult, last, index.clone());
                self.when(beyond, |cx| cx.mark_out_of_bounds(headers));
            }
        }
    }

    /// The header that an expression names.
    pub(super) fn header_ref(&mut self, expr: &Expr) -> HeaderRef {
        let m = self.m;
        match expr {
            Expr::Header(header) => HeaderRef::Known(*header),
            Expr::Element(stack, index) => {
                let index = self.index32(index);
                HeaderRef::Indexed(m.stacks[*stack].elements.clone(), index)
            }
            Expr::MemberOf(union, member) => match &**union {
                Expr::Union(union) => HeaderRef::Known(m.unions[*union].members[*member]),
                Expr::UnionElement(stack, index) => {
                    let index = self.index32(index);
                    let headers = m.union_stacks[*stack].elements.iter().map(|u| m.unions[*u].members[*member]);
                    HeaderRef::Indexed(headers.collect(), index)
                }
                _ => HeaderRef::Indexed(Vec::new(), Operand::new_const(32, 0)),
            },
            _ => HeaderRef::Indexed(Vec::new(), Operand::new_const(32, 0)),
        }
    }

    /// One of several headers' values, selected by an index of 32 bits; zero if that is out of range.
    pub(super) fn choose(&mut self, index: &Operand, values: Vec<Operand>) -> Operand {
        let width = values.first().map_or(1, |v| v.width(self.b.program()));
        let mut chosen = Operand::new_const(width, 0);
        for (i, value) in values.into_iter().enumerate().rev() {
            let is = self.b.bin(BinOp::Eq, index.clone(), Bits::new(32, i as u128));
            chosen = self.b.select(is, value, chosen).into();
        }
        chosen
    }

    /// A field of the header that a reference names.
    pub(super) fn field_of(&mut self, header: &HeaderRef, field: usize) -> Value {
        match header {
            HeaderRef::Known(header) => self.field_value(Field { header: *header, field }),
            HeaderRef::Indexed(headers, index) => {
                let Some(first) = headers.first() else { return Value::unsigned(Operand::new_const(1, 0)) };
                let signed = self.m.header_type(*first).fields[field].signed;
                self.check_index(headers, index);
                let values = headers.iter().map(|h| self.headers[*h].fields[field].slot.into()).collect();
                Value { operand: self.choose(index, values), signed }
            }
        }
    }

    /// Whether the header that a reference names is valid.
    pub(super) fn is_valid(&mut self, header: &HeaderRef) -> Operand {
        match header {
            HeaderRef::Known(header) => self.headers[*header].valid(),
            HeaderRef::Indexed(headers, index) => {
                self.check_index(headers, index);
                let values = headers.iter().map(|h| self.headers[*h].valid()).collect();
                self.choose(index, values)
            }
        }
    }
}

// The deparser.
impl Cx<'_> {
    pub(super) fn deparser(&mut self) -> ir::StageId {
        let m = self.m;
        let stage = self.open(Role::Deparser, "deparser", StageKind::Deparser);
        for call in &m.deparser.calls {
            self.call(call);
        }
        for header in &m.deparser.order {
            let slots = self.headers[*header].clone();
            let (Some(wire), Some(valid)) = (slots.wire, slots.valid) else { continue };
            if !slots.loose {
                self.b.emit(Op::Emit { header: wire });
                continue;
            }
            self.when(Operand::Slot(valid), |cx| {
                cx.b.emit(Op::SetValid { header: wire });
                let of_wire = cx.b.program().headers[wire.index()].fields.clone();
                for (field, to) in slots.fields.iter().zip(&of_wire) {
                    cx.b.mov(to.slot, field.slot);
                    if let (Some(from), Some(to)) = (field.length, to.varbit_length) {
                        cx.b.mov(to, from);
                    }
                }
                cx.b.emit(Op::Emit { header: wire });
            });
        }
        if let Some(bytes) = self.truncate {
            let bytes = self.b.un(ir::UnOp::Not, bytes).into();
            self.b.emit(Op::Truncate { bytes });
        }
        self.close();
        stage
    }
}
