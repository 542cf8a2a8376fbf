//! bmv2's treatment of invalid headers, where it differs from P4_16: their fields keep their values.
//!
//! In P4 these are undefined; the IR has zeros there. Lowering for bmv2 (`Options::bmv2`) makes a header *retained* if
//! the program can observe a kept value: its validity and its fields are then slots of their own, and a header of the
//! IR is used for extraction and emission only. All other headers are ordinary headers of the IR, which passes and
//! engines handle best. To find the retained ones, the program is lowered with all headers retained and analysed
//! (`dirty.rs`); then it is lowered again.
//!
//! | | retained |
//! | --- | --- |
//! | `setInvalid`; elements that `push_front` and `pop_front` free; other members of a union | `valid = 0` |
//! | `setValid` of an invalid header | fields become zero, `valid = 1` |
//! | `h.f = x` | written, also while `h` is invalid |
//! | `h = g` | copied if `g` is valid, else `valid = 0` |
//! | `h == g` | both invalid, or both valid with equal fields |
//! | `extract`, `emit` | through the header of the IR |
//!
//! Reference: `Header`, `add_header`, `remove_header` and `assign_header` of behavioral-model. Tests: `tests/stf/bmv2/`
//! at the root.

use crate::context::Lowerer;
use crate::dirty::Followed;
use crate::simple_switch::{PacketHeader, Stages};
use crate::tree::{HeaderTree, Tree};
use base::Bits;
use ir::{BinOp, HeaderId, Op, Operand, SlotId};
use std::collections::{HashMap, HashSet};

/// Which headers are retained, and the headers created so far.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    /// Whether each header is retained, in order of creation; headers beyond the end are retained as well.
    retained: Vec<bool>,
    /// By header: its validity slot and the slots of its fields; `None` without a validity slot.
    made: Vec<Option<(SlotId, Vec<SlotId>)>>,
    /// By field: the validity slot of its header.
    header_of: HashMap<SlotId, SlotId>,
    /// The stages of the program's blocks, and whether ingress and egress create clones; set by the architecture.
    pub blocks: Option<(Stages, bool, bool)>,
}

impl Retained {
    pub fn new(retained: Vec<bool>) -> Retained {
        Retained { retained, ..Retained::default() }
    }

    /// The input of the analysis in `dirty.rs`, from a program whose headers are all retained.
    pub fn followed(self, program: &ir::Program) -> Option<(Stages, Followed)> {
        let (stages, clones_at_ingress, clones_at_egress) = self.blocks?;
        // A field list may restore a field of an invalid header.
        let listed: HashSet<SlotId> = program.field_lists.iter().flat_map(|(_, slots)| slots).copied().collect();
        let is_listed = |fields: &Vec<SlotId>| fields.iter().any(|slot| listed.contains(slot));
        let made = self.made.iter().enumerate();
        let surely_retained = made.filter(|(_, h)| h.as_ref().is_some_and(|(_, fields)| is_listed(fields)));
        let surely_retained = surely_retained.map(|(index, _)| index).collect();
        Some((stages, Followed { headers: self.made, surely_retained, clones_at_ingress, clones_at_egress }))
    }
}

// Headers.
impl Lowerer<'_> {
    /// Whether the next header to be created is retained.
    pub fn next_is_retained(&self) -> bool {
        self.retained.as_ref().is_some_and(|l| l.retained.get(l.made.len()).copied().unwrap_or(true))
    }

    /// Records a header that has been created.
    pub fn note_header(&mut self, h: &HeaderTree) {
        let Some(retained) = &mut self.retained else { return };
        let mut fields = Vec::new();
        h.fields.iter().for_each(|f| fields.extend(f.slots()));
        let Operand::Slot(valid) = h.valid else { return retained.made.push(None) };
        retained.header_of.extend(fields.iter().map(|f| (*f, valid)));
        retained.made.push(Some((valid, fields)));
    }

    /// The validity slot of the header that contains an operand, unless it is known to be 1. `None` with the semantics
    /// of P4_16, where fields of invalid headers are read as zeros.
    pub fn header_of(&self, field: &Operand) -> Option<SlotId> {
        let valid = *self.retained.as_ref()?.header_of.get(&field.slot()?)?;
        (!self.facts.contains(&valid)).then_some(valid)
    }

    /// A header's contribution to the packet's length; `None` if it has no wire format.
    pub fn packet_header(&self, h: &HeaderTree) -> Option<PacketHeader> {
        let mut header = PacketHeader::of(self.b.program(), h.id?);
        if let (true, Operand::Slot(valid)) = (h.retained, &h.valid) {
            header.valid = *valid;
            let mut lengths = Vec::new();
            h.fields
                .iter()
                .for_each(|f| f.for_each_wire_leaf(&mut |_, length| lengths.extend(length.and_then(Operand::slot))));
            header.varbit_bits = lengths.first().copied();
        }
        Some(header)
    }

    /// Emits a branch on a bit: `then` where it is 1, `other` where it is 0.
    pub fn if_else(&mut self, cond: Operand, then: impl FnOnce(&mut Self), other: impl FnOnce(&mut Self)) {
        match &cond {
            Operand::Const(c) if c.is_true() => then(self),
            Operand::Const(_) => other(self),
            Operand::Slot(_) => {
                let facts = self.facts.clone();
                let done = self.new_join("");
                let otherwise = self.split(cond);
                then(self);
                self.to(done);
                self.start_block(otherwise, facts);
                other(self);
                self.continue_at(done);
            }
        }
    }

    /// `setValid` of a retained header.
    pub fn make_retained_valid(&mut self, h: &HeaderTree) {
        let Operand::Slot(valid) = h.valid else { return };
        if self.facts.contains(&valid) {
            return;
        }
        self.if_else(
            valid.into(),
            |_| {},
            |cx| {
                h.fields.iter().for_each(|f| cx.reset(f));
                cx.b.set(valid, 1);
            },
        );
    }

    /// Copies a header value to a retained header.
    pub fn copy_to_retained(&mut self, to: &HeaderTree, value: &HeaderTree, guard: Option<&Operand>) {
        let Operand::Slot(valid) = to.valid else { return };
        if let Some(guard) = guard {
            self.if_else(guard.clone(), |cx| cx.copy_to_retained(to, value, None), |_| {});
            return self.forget(to);
        }
        let there = match &value.valid {
            Operand::Slot(slot) if self.facts.contains(slot) => Self::bit(true),
            other => other.clone(),
        };
        let surely = Self::is_true(&there);
        self.if_else(
            there,
            |cx| {
                to.fields.iter().zip(value.fields.iter()).for_each(|(to, value)| cx.store(to, value, None));
                cx.b.set(valid, 1);
            },
            |cx| cx.b.set(valid, 0),
        );
        match surely {
            true => _ = self.facts.insert(valid),
            false => self.forget(to),
        }
    }

    /// A header's value for assignment to one that is not retained: fields are zero if it is invalid.
    pub fn without_kept_fields(&mut self, value: &HeaderTree) -> HeaderTree {
        let unsure = match &value.valid {
            Operand::Slot(slot) => self.retained.is_some() && !self.facts.contains(slot),
            Operand::Const(_) => false,
        };
        if !unsure {
            return value.clone();
        }
        let valid = value.valid.clone();
        let fields = value.fields.iter().map(|field| {
            let zero = self.zero_like(field);
            self.select(&valid, field, &zero)
        });
        let fields = fields.collect();
        HeaderTree { id: None, retained: false, valid, fields }
    }

    /// Copies the fields of the IR's header `wire`, which has been extracted, to a retained header.
    pub fn take_from_wire(&mut self, h: &HeaderTree, wire: HeaderId) {
        self.move_wire_fields(h, wire, |cx, own, wire| cx.b.mov(own, wire));
        if let Operand::Slot(valid) = h.valid {
            self.b.set(valid, 1);
        }
    }

    /// `emit` of a retained header.
    pub fn emit_retained(&mut self, h: &HeaderTree, wire: HeaderId) {
        let emit = |cx: &mut Self| {
            cx.b.emit(Op::SetValid { header: wire });
            cx.move_wire_fields(h, wire, |cx, own, wire| cx.b.mov(wire, own));
            cx.b.emit(Op::Emit { header: wire });
        };
        self.if_else(h.valid.clone(), emit, |_| {});
    }

    /// Calls `f` with each field (varbit lengths included) and its counterpart in the IR's header `wire`.
    fn move_wire_fields(&mut self, h: &HeaderTree, wire: HeaderId, mut f: impl FnMut(&mut Self, SlotId, SlotId)) {
        let mut own = Vec::new();
        h.fields.iter().for_each(|field| own.extend(field.slots()));
        let fields = self.b.program().headers[wire.index()].fields.iter();
        let of_wire: Vec<SlotId> = fields.flat_map(|f| [Some(f.slot), f.varbit_length]).flatten().collect();
        own.into_iter().zip(of_wire).for_each(|(own, wire)| f(self, own, wire));
    }

    /// One bit: whether two values of the same shape are equal; fields of invalid headers are ignored.
    pub fn equal_where_fields_are_kept(&mut self, a: &Tree, b: &Tree) -> Operand {
        let mut result = Self::bit(true);
        match (a, b) {
            (Tree::Header(x), Tree::Header(y)) => {
                let mut fields = Self::bit(true);
                for (x, y) in x.fields.iter().zip(y.fields.iter()) {
                    let equal = self.equal_where_fields_are_kept(x, y);
                    fields = self.and(fields, equal);
                }
                let same_state = self.equal_operands(&x.valid, &y.valid);
                let invalid = self.not(x.valid.clone());
                let without_fields = match (&invalid, &fields) {
                    (Operand::Const(c), _) if !c.is_true() => fields,
                    (Operand::Const(_), _) => Self::bit(true),
                    (_, Operand::Const(c)) if c.is_true() => Self::bit(true),
                    _ => self.b.bin(BinOp::Or, invalid, fields).into(),
                };
                self.and(same_state, without_fields)
            }
            (Tree::Leaf(_) | Tree::Varbit { .. }, _) => {
                let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
                a.for_each_operand(&mut |o| of_a.push(o.clone()));
                b.for_each_operand(&mut |o| of_b.push(o.clone()));
                for (x, y) in of_a.iter().zip(&of_b) {
                    let equal = self.equal_operands(x, y);
                    result = self.and(result, equal);
                }
                result
            }
            _ => {
                for (x, y) in a.children().iter().zip(b.children()) {
                    if self.is_too_large() {
                        break;
                    }
                    let equal = self.equal_where_fields_are_kept(x, y);
                    result = self.and(result, equal);
                }
                result
            }
        }
    }

    fn equal_operands(&mut self, a: &Operand, b: &Operand) -> Operand {
        match (a, b) {
            (Operand::Const(x), Operand::Const(y)) => Self::bit(x == y),
            _ if a == b => Self::bit(true),
            _ => self.b.bin(BinOp::Eq, a.clone(), b.clone()).into(),
        }
    }
}

/// A piece of an extern's input data.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub value: Operand,
    /// Length in bits, if it depends on the packet.
    pub length: Option<Operand>,
}

impl Lowerer<'_> {
    /// Leaves out the fields of invalid headers from a calculation's input, as bmv2 does. In a checksum whose 16-bit
    /// words these fields fill entirely they are replaced by zeros; otherwise their length becomes zero.
    pub fn omit_invalid_fields(&mut self, is_sum: bool, pieces: Vec<Piece>) -> Vec<Piece> {
        let headers: Vec<Option<SlotId>> = pieces.iter().map(|p| self.header_of(&p.value)).collect();
        if headers.iter().all(Option::is_none) {
            return pieces;
        }
        // Whether the fields of each such header end at a 16-bit boundary.
        let mut whole_words = true;
        let mut bits = 0u64;
        for (i, piece) in pieces.iter().enumerate() {
            bits += u64::from(self.width(&piece.value));
            let last = headers.get(i + 1).is_none_or(|next| *next != headers[i]);
            whole_words &= piece.length.is_none() && (!last || bits.is_multiple_of(16));
        }
        let left_out = pieces.into_iter().zip(headers).map(|(piece, header)| {
            let Some(valid) = header else { return piece };
            let width = self.width(&piece.value);
            if is_sum && whole_words {
                let value = self.b.select(valid, piece.value, Bits::zero(width)).into();
                return Piece { value, length: None };
            }
            let full = piece.length.unwrap_or(Operand::new_const(32, u128::from(width)));
            let length = self.b.select(valid, full, Operand::new_const(32, 0)).into();
            Piece { value: piece.value, length: Some(length) }
        });
        left_out.collect()
    }
}
