//! Calculations, and the checksums that are verified after the parser and updated before the deparser.
//!
//! Fields of invalid headers are omitted from a calculation's input.

use super::{Cx, Role};
use crate::model::{Checksum, Expr, Field, Input};
use base::Bits;
use ir::{BinOp, HashAlgorithm, Mark, Op, Operand, SlotId, StageKind};

/// A piece of a calculation's input.
struct Piece {
    value: Operand,
    /// Its length in bits, if that depends on the packet.
    length: Option<SlotId>,
    /// The header that must be valid for the piece to count.
    header: Option<usize>,
}

impl Cx<'_> {
    pub(super) fn verify_checksums(&mut self) -> ir::StageId {
        let m = self.m;
        let stage = self.open(Role::Checksums, "verify", StageKind::Control);
        if let Some(error) = self.standard("checksum_error") {
            let verified: Vec<&Checksum> = m.checksums.iter().filter(|c| c.verify).collect();
            let width = self.b.program().width(error);
            if !verified.is_empty() {
                self.b.set(error, 0);
            }
            for checksum in verified {
                self.mark_checksum(checksum, false);
                let there = self.headers[checksum.target.header].valid();
                self.when(there, |cx| {
                    cx.when_holds(checksum.condition.as_ref(), |cx| {
                        let sum = cx.checksum(checksum);
                        let found = cx.field_value(checksum.target).operand;
                        let found = cx.b.resize_u(64, found);
                        let wrong = cx.b.bin(BinOp::Ne, sum, found);
                        let wrong = cx.b.resize_u(width, wrong);
                        cx.b.emit(Op::Bin { op: BinOp::Or, dst: error, a: error.into(), b: wrong });
                    })
                });
            }
        }
        self.close();
        stage
    }

    pub(super) fn update_checksums(&mut self) -> ir::StageId {
        let m = self.m;
        let stage = self.open(Role::Checksums, "compute", StageKind::Control);
        for checksum in m.checksums.iter().filter(|c| c.update) {
            self.mark_checksum(checksum, true);
            let there = match checksum.calculation {
                None => self.headers[checksum.target.header].valid(),
                Some(_) => Bits::from_bool(true).into(),
            };
            self.when(there, |cx| {
                cx.when_holds(checksum.condition.as_ref(), |cx| {
                    let sum = cx.checksum(checksum);
                    let width = cx.m.field(checksum.target).width;
                    let value = cx.b.resize_u(width, sum);
                    cx.write(checksum.target, value);
                })
            });
        }
        self.close();
        stage
    }

    /// Marks the beginning of a checksum for the tracer.
    fn mark_checksum(&mut self, checksum: &Checksum, update: bool) {
        self.set_location(checksum.location);
        self.b.emit(Op::Mark(Mark::Checksum { name: checksum.name.clone(), update }));
    }

    /// Runs `f` where a condition holds; without a condition, always.
    fn when_holds(&mut self, condition: Option<&Expr>, f: impl FnOnce(&mut Self)) {
        let Some(condition) = condition else { return f(self) };
        let (then, done) = (self.b.block(""), self.b.block(""));
        self.branch_on(condition, then, done);
        self.b.switch_to(then);
        f(self);
        self.join_at(done);
    }

    /// The value of a checksum, in 64 bits.
    fn checksum(&mut self, checksum: &Checksum) -> Operand {
        let zero = Operand::new_const(64, 0);
        match checksum.calculation {
            Some(calculation) => self.calculate(calculation, 64, zero, None),
            None => {
                let mut pieces = self.header_pieces(checksum.target.header);
                pieces[checksum.target.field].value = Operand::new_const(16, 0);
                self.hash(HashAlgorithm::Csum16, pieces, false, 64, zero, None)
            }
        }
    }

    fn header_pieces(&self, header: usize) -> Vec<Piece> {
        let slots = &self.headers[header];
        let of = slots.valid.map(|_| header);
        let piece = |f: &super::headers::FieldSlots| Piece { value: f.slot.into(), length: f.length, header: of };
        slots.fields.iter().map(piece).collect()
    }

    /// The result of a calculation: `base + hash mod max`.
    pub(super) fn calculate(&mut self, index: usize, width: u32, base: Operand, max: Option<Operand>) -> Operand {
        let m = self.m;
        let calculation = &m.calculations[index];
        let mut pieces = Vec::new();
        for input in &calculation.input {
            match input {
                Input::Constant(bits) => {
                    pieces.push(Piece { value: bits.clone().into(), length: None, header: None });
                }
                Input::Header(header) => pieces.extend(self.header_pieces(*header)),
                Input::Field(Field { header, field }) => {
                    pieces.push(self.header_pieces(*header).swap_remove(*field));
                }
            }
        }
        self.hash(calculation.algorithm, pieces, calculation.payload, width, base, max)
    }

    fn hash(
        &mut self,
        algorithm: HashAlgorithm,
        pieces: Vec<Piece>,
        payload: bool,
        width: u32,
        base: Operand,
        max: Option<Operand>,
    ) -> Operand {
        let mut headers: Vec<usize> = pieces.iter().filter_map(|p| p.header).collect();
        headers.dedup();
        let dst = self.b.local("hash", width);
        match headers.as_slice() {
            [] => self.emit_hash(algorithm, pieces, payload, dst, base, max),
            // All pieces depend on one header: the input either has all of them or none.
            [header] => {
                let valid = self.headers[*header].valid();
                let without: Vec<Piece> = pieces
                    .iter()
                    .filter(|p| p.header.is_none())
                    .map(|p| Piece { value: p.value.clone(), length: None, header: None })
                    .collect();
                let (base_too, max_too) = (base.clone(), max.clone());
                self.if_else(
                    valid,
                    |cx| cx.emit_hash(algorithm, pieces, payload, dst, base, max),
                    |cx| cx.emit_hash(algorithm, without, payload, dst, base_too, max_too),
                );
            }
            _ => {
                let pieces = self.omit_invalid_headers(algorithm, pieces);
                self.emit_hash(algorithm, pieces, payload, dst, base, max);
            }
        }
        dst.into()
    }

    /// Omits the pieces of invalid headers: they become zeros where the algorithm ignores zeros, and else have length
    /// zero.
    fn omit_invalid_headers(&mut self, algorithm: HashAlgorithm, pieces: Vec<Piece>) -> Vec<Piece> {
        let program = self.b.program();
        let mut whole_words = true;
        let mut bits = 0u64;
        for (i, piece) in pieces.iter().enumerate() {
            bits += u64::from(piece.value.width(program));
            let last = pieces.get(i + 1).is_none_or(|next| next.header != piece.header);
            whole_words &= piece.length.is_none() && (!last || bits.is_multiple_of(16));
        }
        let sums = matches!(algorithm, HashAlgorithm::Csum16 | HashAlgorithm::Xor16);
        let mut out = Vec::new();
        for mut piece in pieces {
            if let Some(header) = piece.header {
                let valid = self.headers[header].valid();
                let width = piece.value.width(self.b.program());
                if sums && whole_words {
                    // Fields of an invalid header that is not loose are zero.
                    if self.headers[header].loose {
                        piece.value = self.b.select(valid, piece.value, Bits::zero(width)).into();
                    }
                } else {
                    let full: Operand = match piece.length {
                        Some(length) => length.into(),
                        None => Operand::new_const(32, u128::from(width)),
                    };
                    piece.length = Some(self.b.select(valid, full, Operand::new_const(32, 0)));
                }
            }
            out.push(piece);
        }
        out
    }

    fn emit_hash(
        &mut self,
        algorithm: HashAlgorithm,
        pieces: Vec<Piece>,
        payload: bool,
        dst: SlotId,
        base: Operand,
        max: Option<Operand>,
    ) {
        let varbits = pieces.iter().enumerate().filter_map(|(i, p)| Some((i as u32, p.length?))).collect();
        let data = pieces.into_iter().map(|p| p.value).collect();
        self.b.emit(Op::Hash { algorithm, dst, base, max, data, varbits, payload });
    }
}
