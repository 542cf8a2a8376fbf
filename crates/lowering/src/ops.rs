//! Dispatch of operations to their lowering, here or in the sibling files.

use crate::build::Lowering;
use crate::error::Error;
use crate::value::Val;
use ir::flow::for_each_header_slot;
use ir::{Inst, Op};

impl Lowering<'_> {
    pub fn op(&mut self, inst: &Inst) -> Result<(), Error> {
        let op = &inst.op;
        match op {
            Op::Mov { .. }
            | Op::Bin { .. }
            | Op::Un { .. }
            | Op::Cast { .. }
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::SetSlice { .. }
            | Op::Select { .. } => self.arithmetic(op),
            Op::SetValid { header } => {
                let one = self.word(1);
                self.write_slot(self.headers[header.index()].valid, &Val::Word(one));
            }
            Op::SetInvalid { header } => {
                let mut slots = Vec::new();
                for_each_header_slot(self.program, *header, |slot| slots.push(slot));
                for slot in slots {
                    let zero = self.zero_val(self.program.width(slot));
                    self.write_slot(slot, &zero);
                }
            }
            Op::HasBits { dst, bits } => self.has_bits(*dst, bits),
            Op::Extract { header, varbit_bits } => self.extract(*header, varbit_bits.as_ref()),
            Op::Advance { bits } => self.advance(bits),
            Op::Lookahead { dst, offset } => self.lookahead(*dst, *offset),
            Op::Consumed { dst } => {
                let cursor = self.read_var(self.vars.cursor);
                self.write_number(*dst, cursor);
            }
            Op::Emit { header } => self.emit(*header)?,
            Op::Truncate { bytes } => self.truncate(bytes),
            Op::Apply { table, keys, selector, hit, action, entry, data } => {
                self.apply(*table, keys, selector, [*hit, *action, *entry, *data])?;
            }
            Op::ActionParam { dst, table, action, param, data } => {
                self.action_param(*dst, *table, (*action, *param), *data)?;
            }
            Op::AddEntry { table, keys, action, args, expire, replace, dst } => {
                self.add_entry(*table, keys, (*action, args), expire, *replace, *dst)?;
            }
            Op::RestartTimer { table, hit, entry, expire } => {
                self.restart_timer(*table, hit, *entry, expire.as_ref())?;
            }
            Op::Count { counter, index, bytes } => self.count(*counter, index, bytes.as_ref())?,
            Op::CountDirect { counter, hit, entry, bytes } => {
                self.count_direct(*counter, hit, *entry, bytes.as_ref())?;
            }
            Op::Meter { meter, dst, index, before, bytes } => {
                self.meter(*meter, *dst, index, (before.as_ref(), bytes.as_ref()));
            }
            Op::MeterDirect { meter, dst, hit, entry, before, bytes } => {
                self.meter_direct(*meter, *dst, (hit, *entry), (before.as_ref(), bytes.as_ref()))?;
            }
            Op::RegisterRead { register, dst, index, .. } => self.register_read(*register, *dst, index)?,
            Op::RegisterUpdate { register, dst, index, update, src } => {
                self.register_update(*register, *dst, index, *update, src)?;
            }
            Op::RegisterWrite { register, index, src } => self.register_write(*register, index, src)?,
            Op::Hash { .. } => self.hash(op),
            Op::Random { dst, low, high } => self.random(*dst, low, high)?,
            Op::Digest { digest, data } => self.digest(*digest, data),
            Op::Log { format, args } => self.log(format, args),
            Op::Assert { cond, text } => self.assert(cond, text),
            Op::Unresolved { callee, args, results } => self.unresolved(callee, args, results),
            Op::Charge { steps } => self.charge(*steps),
            Op::Mark(_) => {}
        }
        Ok(())
    }
}
