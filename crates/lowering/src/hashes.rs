//! Hashes, computed by the runtime: the data are first written to memory as a bit string.

use crate::build::{At, Buffer, Lowering};
use crate::value::Val;
use ir::{HashAlgorithm, Op as IrOp, Operand, SlotId};
use mir::{Binary, Condition, Region, Type, Value};

impl Lowering<'_> {
    pub fn hash(&mut self, op: &IrOp) {
        let IrOp::Hash { algorithm, dst, base, max, data, varbits, payload } = op else {
            unreachable!("{op:?} is not a hash")
        };
        let hash = self.hash_value(*algorithm, data, varbits, *payload);
        let hash = match max {
            None => hash,
            Some(max) => self.hash_modulo(hash, max),
        };
        let base = self.read(base);
        let val: Val = self.add_number(self.program.width(*dst), base, hash);
        self.write_slot(*dst, &val);
    }

    /// `hash mod max`; 0 if `max` is 0, and `hash` itself if `max` needs more than 64 bits.
    fn hash_modulo(&mut self, hash: Value, max: &Operand) -> Value {
        let words = self.read_words(max);
        let (low, zero) = (words[0], self.word(0));
        let rest = self.bin(Binary::Rem, hash, low);
        let is_zero = self.compare(Condition::Eq, low, zero);
        let rest = self.select(is_zero, zero, rest);
        let high = words[1..].iter().fold(zero, |all, word| self.bin(Binary::Or, all, *word));
        let is_high = self.truth(high);
        self.select(is_high, hash, rest)
    }

    /// The hash of `data`, computed by the runtime's `hash`.
    pub fn hash_value(
        &mut self,
        algorithm: HashAlgorithm,
        data: &[Operand],
        varbits: &[(u32, SlotId)],
        payload: bool,
    ) -> Value {
        let pieces = self.pieces(data);
        let (at, bits) = if varbits.is_empty() {
            let bits: u32 = pieces.iter().map(|piece| piece.width).sum();
            let base = self.buffer(Buffer::Call, bits.div_ceil(8));
            self.store_pieces(Region::Stack, &pieces, At { base, offset: 0 });
            (base, self.word(bits.into()))
        } else {
            self.store_varbits(&pieces, varbits)
        };
        let (payload, payload_len) = if payload {
            let (data, len) = (self.read_var(self.vars.data), self.read_var(self.vars.len));
            let cursor = self.read_var(self.vars.cursor);
            (self.add(data, cursor), self.sub(len, cursor))
        } else {
            (self.word(0), self.word(0))
        };
        let (bits, payload_len) = (self.half(bits), self.half(payload_len));
        let algorithm = self.constant(Type::I32, algorithm.code().into());
        let id = self.calls.hash();
        let args = vec![self.ctx, algorithm, at, bits, payload, payload_len];
        self.call(id, args).expect("the call has a result")
    }
}
