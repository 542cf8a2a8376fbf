//! Digests, log lines, assertions and calls of unresolved externs: operands are written to a buffer and passed to a
//! function.

use crate::build::{At, Buffer, Lowering};
use crate::site::{Site, SiteKind};
use ir::layout::words_of;
use ir::{ExternId, Operand, SlotId};
use mir::{Condition, Region, Type, Value};

impl Lowering<'_> {
    /// Writes the operands' words consecutively to a buffer. Returns its address and the number of words.
    fn message(&mut self, operands: &[Operand]) -> (Value, Value) {
        let words: Vec<Value> = operands.iter().flat_map(|operand| self.read_words(operand)).collect();
        let base = self.buffer_with(Buffer::Call, &words);
        (base, self.constant(Type::I32, words.len() as u128))
    }

    pub fn digest(&mut self, digest: ExternId, data: &[Operand]) {
        let (at, count) = self.message(data);
        let ext = self.constant(Type::I32, digest.0.into());
        let id = self.calls.digest();
        self.call(id, vec![self.ctx, self.packet, ext, at, count]);
    }

    pub fn log(&mut self, format: &str, args: &[Operand]) {
        let arg_widths = args.iter().map(|operand| self.width(operand)).collect();
        let site = self.site(SiteKind::Log { arg_widths }, format);
        let (at, count) = self.message(args);
        let id = self.calls.log();
        self.call(id, vec![self.ctx, self.packet, site, at, count]);
    }

    pub fn assert(&mut self, cond: &Operand, text: &str) {
        let site = self.site(SiteKind::Assert, text);
        let cond = self.read_word(cond);
        let fails = self.compare_imm(Condition::Eq, cond, 0);
        let (failed, done) = (self.new_block(), self.new_block());
        self.end(mir::Terminator::Branch(fails, mir::Edge::cold(failed), mir::Edge::new(done, Vec::new())));
        self.switch_to(failed);
        let id = self.calls.assert_failed();
        self.call(id, vec![self.ctx, self.packet, site]);
        self.jump(done, Vec::new());
        self.switch_to(done);
    }

    /// The index of a site, as a constant.
    fn site(&mut self, kind: SiteKind, text: &str) -> Value {
        let site = Site { kind, text: text.to_string(), span: self.span };
        let id = self.sites.iter().position(|other| *other == site).unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        self.constant(Type::I32, id as u128)
    }

    /// Calls an unresolved extern. Such a module is never linked.
    pub fn unresolved(&mut self, callee: &str, args: &[Operand], results: &[SlotId]) {
        let given: Vec<Value> = args.iter().flat_map(|operand| self.read_words(operand)).collect();
        let wanted: u32 = results.iter().map(|slot| words_of(self.program.width(*slot))).sum();
        let given_words = given.len() as u128;
        let args = self.buffer_with(Buffer::Call, &given);
        let base = self.buffer(Buffer::Result, 8 * wanted);
        let (given, count) = (self.constant(Type::I32, given_words), self.constant(Type::I32, wanted.into()));
        let id = self.calls.unresolved(callee);
        self.call(id, vec![self.ctx, args, given, base, count]);
        let mut offset = 0;
        for slot in results {
            let width = self.program.width(*slot);
            let val = self.load_val(Region::Stack, width, At { base, offset });
            let val = self.mask_val(val, width);
            self.write_slot(*slot, &val);
            offset += 8 * words_of(width);
        }
    }
}
