//! Registers whose cells are not numbers, and random numbers that are not `bit<W>` of at most 64 bits.
//!
//! A register's cell is one bit string. A value of any type of fixed size is laid out in it member by member, the first
//! one most significant. Booleans take 1 bit; errors and enums without underlying type 32; a header begins with its
//! validity bit; a varbit takes its maximum width, followed by its length in 32 bits. `control` uses the same layout.
//!
//! ```text
//! register<S>(8) r;   struct S { bit<4> a; bool b; }      extern register r size 8 width 5
//! r.read(s, i);                                       =>  %0 = register_read r[i];  s.a = %0[4:1];  s.b = %0[0:0]
//! ```
//!
//! `random` of a signed type or of more than 64 bits is `lo` plus a random offset. For a wide type the offset is a
//! random number with at least 64 excess bits modulo the number of values, so its bias is at most 2^-64.
//!
//! Tests: `tests/stf/v1model/registers.stf` and `random.stf` at the root, `tests/v1model.rs`.

use crate::context::Lowerer;
use crate::path::Place;
use crate::tree::Tree;
use base::Bits;
use ir::{BinOp, CastKind, Op, Operand, SlotId, SlotKind};
use sema::Type;

/// The operands of a value in the order of a cell. A stack's `nextIndex` is not part of its value.
fn leaves(value: &Tree) -> Vec<Operand> {
    let mut all = Vec::new();
    // `map` drops what only storage has.
    let _ = value.map(&mut |o| {
        all.push(o.clone());
        o.clone()
    });
    all
}

impl Lowerer<'_> {
    /// Width in bits of a register's cell for values of a type; `None` if it is zero or exceeds the limit.
    pub(crate) fn cell_width(&self, ty: &Type) -> Option<u32> {
        let widths = leaves(&self.zero(ty)).iter().map(|o| u64::from(self.width(o))).sum::<u64>();
        u32::try_from(widths).ok().filter(|w| (1..=base::bits::MAX_WIDTH).contains(w))
    }

    /// Packs a value of a type into the bit string of a cell.
    pub(crate) fn pack_cell(&mut self, value: &Tree, ty: &Type) -> Operand {
        // A list expression for a header has no validity bit: it is converted to the shape of the type.
        let shaped = match leaves(value).len() == leaves(&self.zero(ty)).len() {
            true => value.clone(),
            false => {
                let copy = self.allocate("$cell", ty, SlotKind::Temp, self.b.span());
                self.assign(&Place::of(copy.clone()), value);
                copy
            }
        };
        let value = &shaped;
        let mut parts = leaves(value).into_iter().filter(|o| o.width(self.b.program()) > 0);
        let Some(first) = parts.next() else { return Operand::Const(Bits::zero(1)) };
        let rest: Vec<Operand> = parts.collect();
        rest.into_iter().fold(first, |all, part| self.b.concat(all, part).into())
    }

    /// Unpacks a cell's bit string to a value of a type.
    pub(crate) fn unpack_cell(&mut self, cell: SlotId, ty: &Type) -> Tree {
        let shape = self.zero(ty);
        if let Tree::Leaf(_) = shape {
            return cell.into();
        }
        let mut above = self.b.program().width(cell);
        shape.map(&mut |o| match o.width(self.b.program()) {
            0 => o.clone(),
            width => {
                let hi = above - 1;
                above -= width;
                self.b.slice(cell, hi, above).into()
            }
        })
    }

    /// A random number in `low..=high`, or `low` if `high < low`.
    pub(crate) fn random_between(&mut self, signed: bool, low: Operand, high: Operand) -> SlotId {
        let width = self.width(&low);
        if width <= 64 && !signed {
            let dst = self.b.temp(width);
            self.b.emit(Op::Random { dst, low, high });
            return dst;
        }
        let less = self.b.bin(if signed { BinOp::Slt } else { BinOp::Ult }, high.clone(), low.clone());
        let span = self.b.bin(BinOp::Sub, high, low.clone());
        let span = self.b.select(less, Bits::zero(width), span);
        let offset = if width <= 64 {
            let dst = self.b.temp(width);
            self.b.emit(Op::Random { dst, low: Bits::zero(width).into(), high: span.into() });
            dst
        } else {
            let number = self.random_words(width.div_ceil(64) + 1);
            let wide = self.b.program().width(number);
            let span = self.b.resize_u(wide, span);
            let count = self.b.bin(BinOp::Add, span, Bits::new(wide, 1));
            let offset = self.b.bin(BinOp::Mod, number, count);
            self.b.cast(CastKind::Trunc, width, offset)
        };
        self.b.bin(BinOp::Add, low, offset)
    }

    /// A random number of `64 * count` bits.
    fn random_words(&mut self, count: u32) -> SlotId {
        let word = |cx: &mut Self| {
            let dst = cx.b.temp(64);
            cx.b.emit(Op::Random { dst, low: Bits::zero(64).into(), high: Bits::ones(64).into() });
            dst
        };
        (1..count).fold(word(self), |all, _| {
            let low = word(self);
            self.b.concat(all, low)
        })
    }
}
