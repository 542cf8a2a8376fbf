//! Arithmetic on symbolic values.
//!
//! Constants are folded, bits that an operation only moves stay parts, and all other operations on at most 64 bits
//! make nodes. Wider ones that are not bitwise consult their operands. The semantics are those of
//! `ir::BinOp::apply`.

use super::nodes::{DEPTH_MAX, Kind, NODES_MAX, fold, ones_sum};
use super::run::Run;
use super::value::{Origin, Part, Value, low};
use base::Bits;
use ir::{BinOp, UnOp};

/// Maximum number of parts up to which nested sums are merged.
const SUM_PARTS_MAX: usize = 256;

impl Run<'_> {
    /// Makes a node. If there are too many nodes, consults the operands and returns a constant.
    pub(super) fn make(&mut self, kind: Kind, width: u32, value: u64) -> Part {
        let depth = 1 + kind.operands().map(|operand| self.nodes.depth(operand)).max().unwrap_or(0);
        if self.nodes.len() >= NODES_MAX || depth > DEPTH_MAX {
            kind.operands().for_each(|operand| self.consult_value(operand));
            return Part::constant(width, value);
        }
        let range = self.range_of(&kind, width);
        self.nodes.make(kind, width, value, (range, depth))
    }

    /// `a op b`.
    pub(super) fn binary(&mut self, op: BinOp, a: &Value, b: &Value) -> Value {
        let width = if op.is_comparison() { 1 } else { a.width() };
        self.refuse_volatile([a, b]);
        if a.is_const() && b.is_const() {
            return Value::from_bits(&op.apply(&a.to_bits(), &b.to_bits()));
        }
        if op.is_comparison() {
            return self.compare(op, a, b);
        }
        if matches!(op, BinOp::And | BinOp::Or | BinOp::Xor) {
            return self.bitwise(op, a, b);
        }
        if op.is_shift() && (b.is_const() || width > 64 || b.width() > 64) {
            self.consult_value(b);
            return self.shift(op, a, b.number());
        }
        let is_zero = |value: &Value| value.is_const() && !value.is_true();
        match op {
            BinOp::Add | BinOp::Sub | BinOp::SatAddU | BinOp::SatSubU if is_zero(b) => return a.clone(),
            BinOp::Add | BinOp::SatAddU if is_zero(a) => return b.clone(),
            BinOp::Mul if is_zero(a) || is_zero(b) => return Value::constant(width, 0),
            _ => {}
        }
        let value = op.apply(&a.to_bits(), &b.to_bits());
        match value.to_u64() {
            Some(value) if width <= 64 => {
                Value::from_part(self.make(Kind::Binary { op, a: a.clone(), b: b.clone() }, width, value))
            }
            _ => {
                self.consult_value(a);
                self.consult_value(b);
                Value::from_bits(&value)
            }
        }
    }

    fn shift(&mut self, op: BinOp, a: &Value, amount: u64) -> Value {
        let width = a.width();
        let amount = amount.min(width.into()) as u32;
        let mut all = Value::empty();
        match op {
            BinOp::Shl => {
                all.append(&a.slice(0, width - amount));
                all.push_zeros(amount);
                all
            }
            BinOp::Lshr => a.slice(amount, width - amount).resize(width),
            _ => {
                let sign = a.slice(width - 1, 1);
                let kept = a.slice(amount, width - amount);
                self.signs(&sign, amount).concat(&kept)
            }
        }
    }

    /// `count` copies of a bit.
    fn signs(&mut self, sign: &Value, mut count: u32) -> Value {
        let mut all = Value::empty();
        while count > 0 {
            let take = count.min(64);
            let copies = self.select(sign, &Value::constant(take, u64::MAX), &Value::constant(take, 0));
            all.append(&copies);
            count -= take;
        }
        all
    }

    /// Sign-extends a value.
    pub(super) fn sign_extend(&mut self, a: &Value, width: u32) -> Value {
        let sign = a.slice(a.width() - 1, 1);
        self.signs(&sign, width - a.width()).concat(a)
    }

    pub(super) fn unary(&mut self, op: UnOp, a: &Value) -> Value {
        let width = a.width();
        self.refuse_volatile([a]);
        if a.is_const() {
            return Value::from_bits(&op.apply(&a.to_bits()));
        }
        match op {
            UnOp::Not => self.bitwise(BinOp::Xor, a, &Value::from_bits(&Bits::ones(width))),
            UnOp::Neg if width <= 64 => {
                let value = a.concrete().wrapping_neg() & low(width);
                Value::from_part(self.make(Kind::Unary { op, a: a.clone() }, width, value))
            }
            UnOp::Neg => {
                self.consult_value(a);
                Value::from_bits(&op.apply(&a.to_bits()))
            }
        }
    }

    /// A bitwise operation. Pieces in which neither operand is constant become nodes of at most 64 bits.
    fn bitwise(&mut self, op: BinOp, a: &Value, b: &Value) -> Value {
        let mut pieces = Pieces::default();
        for (p, q) in a.zip(b) {
            if p == q {
                match op {
                    BinOp::Xor => pieces.push(self, op, Part::constant(p.width, 0)),
                    _ => pieces.push(self, op, p),
                }
            } else if p.is_const() && q.is_const() {
                let value = op.apply(&Bits::new(p.width, p.value.into()), &Bits::new(q.width, q.value.into()));
                pieces.push(self, op, Part::constant(p.width, value.to_u64().unwrap_or(0)));
            } else if p.is_const() {
                self.masked(op, q, p, &mut pieces);
            } else if q.is_const() {
                self.masked(op, p, q, &mut pieces);
            } else {
                pieces.wait(self, op, p, q);
            }
        }
        pieces.flush(self, op);
        pieces.done
    }

    /// A bitwise operation with a constant: runs of equal bits in the constant keep, set, clear or flip those of
    /// the part.
    fn masked(&mut self, op: BinOp, part: Part, with: Part, pieces: &mut Pieces) {
        let mut skip = 0;
        while skip < part.width {
            let rest = with.value << (64 - with.width) << skip;
            let is_one = rest >> 63 == 1;
            let run = if is_one { rest.leading_ones() } else { rest.leading_zeros() }.min(part.width - skip);
            let bits = part.slice(skip, run);
            match (op, is_one) {
                (BinOp::And, false) => pieces.push(self, op, Part::constant(run, 0)),
                (BinOp::Or, true) => pieces.push(self, op, Part::constant(run, u64::MAX)),
                (BinOp::Xor, true) => match self.complement(&bits) {
                    Some(known) => known.parts().iter().for_each(|part| pieces.push(self, op, *part)),
                    None => pieces.wait(self, op, bits, Part::constant(run, u64::MAX)),
                },
                _ => pieces.push(self, op, bits),
            }
            skip += run;
        }
    }

    /// The complement of bits that are themselves a complement.
    fn complement(&self, bits: &Part) -> Option<Value> {
        let Origin::Node { node, lo } = bits.origin else { return None };
        match &self.nodes.get(node).kind {
            Kind::Unary { op: UnOp::Not, a } => Some(a.slice(lo, bits.width)),
            _ => None,
        }
    }

    pub(super) fn select(&mut self, cond: &Value, then: &Value, other: &Value) -> Value {
        if cond.is_const() || then == other {
            return if cond.is_true() { then.clone() } else { other.clone() };
        }
        self.refuse_volatile([cond, then, other]);
        let mut done = Value::empty();
        let mut waiting = (Value::empty(), Value::empty());
        for (p, q) in then.zip(other) {
            if p == q {
                self.flush_select(cond, &mut waiting, &mut done);
                done.push(p);
                continue;
            }
            if waiting.0.width() + p.width > 64 {
                self.flush_select(cond, &mut waiting, &mut done);
            }
            waiting.0.push(p);
            waiting.1.push(q);
        }
        self.flush_select(cond, &mut waiting, &mut done);
        done
    }

    fn flush_select(&mut self, cond: &Value, waiting: &mut (Value, Value), done: &mut Value) {
        let (then, other) = std::mem::take(waiting);
        let width = then.width();
        if width == 0 {
            return;
        }
        if width == 1 && then.is_const() && other.is_const() {
            // One of them is 1 and the other 0.
            let chosen = if then.is_true() { cond.clone() } else { self.unary(UnOp::Not, cond) };
            return done.append(&chosen);
        }
        let value = if cond.is_true() { then.concrete() } else { other.concrete() };
        let part = self.make(Kind::Select { cond: cond.clone(), then, other }, width, value);
        done.push(part);
    }

    fn compare(&mut self, op: BinOp, a: &Value, b: &Value) -> Value {
        let outcome = Value::from_bits(&op.apply(&a.to_bits(), &b.to_bits()));
        if matches!(op, BinOp::Eq | BinOp::Ne) {
            return self.equal(op, a, b);
        }
        // Equal parts at the top do not affect the order.
        let pieces: Vec<(Part, Part)> = a.zip(b).collect();
        let equal = pieces.iter().take_while(|(p, q)| p == q).count();
        let Some((p, q)) = pieces.get(equal) else { return outcome };
        if p.is_const() && q.is_const() {
            return outcome;
        }
        let top: u32 = pieces[..equal].iter().map(|(p, _)| p.width).sum();
        let left = a.width() - top;
        if left > 64 {
            self.consult_order(a, b);
            return outcome;
        }
        let op = match op {
            BinOp::Slt if top > 0 => BinOp::Ult,
            BinOp::Sle if top > 0 => BinOp::Ule,
            same => same,
        };
        let kind = Kind::Binary { op, a: a.slice(0, left), b: b.slice(0, left) };
        Value::from_part(self.make(kind, 1, outcome.concrete()))
    }

    fn equal(&mut self, op: BinOp, a: &Value, b: &Value) -> Value {
        let wants = op == BinOp::Eq;
        let constant = |is_equal: bool| Value::constant(1, u64::from(is_equal == wants));
        let pieces: Vec<(Part, Part)> = a.zip(b).filter(|(p, q)| p != q).collect();
        if pieces.iter().any(|(p, q)| p.is_const() && q.is_const()) {
            return constant(false);
        }
        if pieces.is_empty() {
            return constant(true);
        }
        if let [(p, q)] = &pieces[..]
            && p.width == 1
            && (p.is_const() || q.is_const())
        {
            let (bit, with) = if p.is_const() { (q, p) } else { (p, q) };
            let bit = Value::from_part(*bit);
            return if (with.value == 1) == wants { bit } else { self.unary(UnOp::Not, &bit) };
        }
        if let [(p, q)] = &pieces[..]
            && let Some(is_equal) = self.are_equal_sums(p, q)
        {
            return constant(is_equal);
        }
        // Compare in chunks of at most 64 bits, all of which must be equal.
        let mut chunks = vec![(Value::empty(), Value::empty())];
        for (p, q) in pieces {
            if chunks.last().is_none_or(|(a, _)| a.width() + p.width > 64) {
                chunks.push((Value::empty(), Value::empty()));
            }
            if let Some((a, b)) = chunks.last_mut() {
                a.push(p);
                b.push(q);
            }
        }
        let each = if chunks.len() == 1 { op } else { BinOp::Eq };
        let mut all = None;
        for (a, b) in chunks {
            let value = u64::from((a.concrete() == b.concrete()) == (each == BinOp::Eq));
            let part = Value::from_part(self.make(Kind::Binary { op: each, a, b }, 1, value));
            all = Some(match all {
                None => part,
                Some(before) => self.bitwise(BinOp::And, &before, &part),
            });
        }
        let all = all.unwrap_or_else(|| constant(true));
        if each == op { all } else { self.unary(UnOp::Not, &all) }
    }

    /// The one's complement sum of the 16-bit words of `data`, padded with zeros.
    pub(super) fn sum(&mut self, data: &Value) -> Value {
        self.refuse_volatile([data]);
        let mut padded = data.clone();
        padded.push_zeros(data.width().next_multiple_of(16) - data.width());
        let value = ones_sum(&padded);
        // Nested sums of whole words are replaced by their words. All constants are merged into one word.
        let (mut all, mut constant, mut below) = (Value::empty(), 0, padded.width());
        for part in padded.parts() {
            below -= part.width;
            if part.is_const() {
                let mut bits = Value::from_part(*part);
                bits.push_zeros(below % 16);
                constant += u64::from(ones_sum(&bits.resize(bits.width().next_multiple_of(16))));
                continue;
            }
            let inner = if below.is_multiple_of(16) { self.nodes.whole(part) } else { None };
            match inner.as_ref().map(|node| &node.kind) {
                Some(Kind::Sum { data }) if data.parts().len() + all.parts().len() <= SUM_PARTS_MAX => {
                    // The last word of a sum is its constant.
                    all.append(data);
                }
                _ => {
                    // Align to whole words.
                    all.push_zeros((32 - part.width % 16 - below % 16) % 16);
                    all.push(*part);
                    all.push_zeros(below % 16);
                }
            }
        }
        all.push(Part::constant(16, fold(constant).into()));
        let all = self.cancelled(&all).unwrap_or(all);
        if all.is_const() {
            return Value::constant(16, value.into());
        }
        Value::from_part(self.make(Kind::Sum { data: all }, 16, value.into()))
    }
}

/// Finished bits, and the operands collected for the next node.
#[derive(Default)]
struct Pieces {
    done: Value,
    a: Value,
    b: Value,
}

impl Pieces {
    fn push(&mut self, run: &mut Run<'_>, op: BinOp, part: Part) {
        self.flush(run, op);
        self.done.push(part);
    }

    fn wait(&mut self, run: &mut Run<'_>, op: BinOp, a: Part, b: Part) {
        if self.a.width() + a.width > 64 {
            self.flush(run, op);
        }
        self.a.push(a);
        self.b.push(b);
    }

    fn flush(&mut self, run: &mut Run<'_>, op: BinOp) {
        let (a, b) = (std::mem::take(&mut self.a), std::mem::take(&mut self.b));
        let width = a.width();
        if width == 0 {
            return;
        }
        let value = op.apply(&Bits::new(width, a.concrete().into()), &Bits::new(width, b.concrete().into()));
        let is_not = op == BinOp::Xor && b.is_const() && b.concrete() == low(width);
        let kind = if is_not { Kind::Unary { op: UnOp::Not, a } } else { Kind::Binary { op, a, b } };
        let part = run.make(kind, width, value.to_u64().unwrap_or(0));
        self.done.push(part);
    }
}
