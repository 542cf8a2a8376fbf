//! Counters and meters.

use crate::build::{At, Lowering};
use crate::error::Error;
use crate::value::Val;
use abi::{ExternBinding, WorkerCtx};
use ir::{CounterUnit, ExternId, ExternKind, Operand, SlotId};
use mir::{Address, Cast, Condition, Op, Region, Type, Value};
use std::mem::offset_of;

/// Optional operands of a meter's execution: the packet's colour before it, and the length in bytes.
pub(crate) type Given<'o> = (Option<&'o Operand>, Option<&'o Operand>);

impl Lowering<'_> {
    fn extern_name(&self, ext: ExternId) -> &str {
        &self.program.externs[ext.index()].name
    }

    pub fn extern_binding(&self, ext: ExternId) -> Result<ExternBinding, Error> {
        let missing = || Error::Binding(format!("extern `{}` has no binding", self.extern_name(ext)));
        self.bindings.externs.get(ext.index()).copied().ok_or_else(missing)
    }

    pub fn wrong_binding(&self, ext: ExternId) -> Error {
        Error::Binding(format!("extern `{}` is bound as something else", self.extern_name(ext)))
    }

    pub fn count(&mut self, counter: ExternId, index: &Operand, bytes: Option<&Operand>) -> Result<(), Error> {
        let index = self.read_saturated(index);
        self.count_at(counter, index, bytes)
    }

    pub fn count_direct(
        &mut self,
        counter: ExternId,
        hit: &Operand,
        entry: SlotId,
        bytes: Option<&Operand>,
    ) -> Result<(), Error> {
        let hit = self.read_word(hit);
        let is_hit = self.truth(hit);
        self.if_true(is_hit, |l| {
            let entry = l.read_flag(entry);
            let index = l.entry_index(counter, entry)?;
            l.count_at(counter, index, bytes)
        })
    }

    /// Increments a counter's cell; an index out of range has no effect.
    fn count_at(&mut self, counter: ExternId, index: Value, bytes: Option<&Operand>) -> Result<(), Error> {
        let (ExternBinding::Counter { size }, ExternKind::Counter { unit, .. }) =
            (self.extern_binding(counter)?, &self.program.externs[counter.index()].kind)
        else {
            return Err(self.wrong_binding(counter));
        };
        let inside = self.compare_imm(Condition::Ult, index, size);
        self.if_true(inside, |l| {
            let bytes = l.given_length(bytes);
            let bases = l.load_le(Region::Context, 8, l.ctx, offset_of!(WorkerCtx, counters) as u32);
            let cells = l.load_le(Region::Context, 8, bases, 8 * counter.0);
            let offset = l.shl(index, 4);
            let cell = l.add(cells, offset);
            if *unit != CounterUnit::Bytes {
                let one = l.word(1);
                l.effect(Op::Count(Address { base: cell, offset: 0 }, one));
            }
            if *unit != CounterUnit::Packets {
                l.effect(Op::Count(Address { base: cell, offset: 8 }, bytes));
            }
            Ok(())
        })
    }

    /// The length in bytes that an operation specifies, or else the packet's.
    fn given_length(&mut self, bytes: Option<&Operand>) -> Value {
        match bytes {
            Some(bytes) => self.read_word(bytes),
            None => self.entry_len,
        }
    }

    /// The index of an entry's cell in a direct counter or meter.
    fn entry_index(&mut self, ext: ExternId, entry: Value) -> Result<Value, Error> {
        let table = match self.program.externs[ext.index()].kind {
            ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => direct,
            _ => None,
        };
        let binding = table.and_then(|table| self.bindings.tables.get(table.index()));
        let Some(index) = binding.and_then(|binding| binding.entry.index) else {
            let name = self.extern_name(ext);
            return Err(Error::Binding(format!("the entries that `{name}` counts for have no index")));
        };
        Ok(self.load_at(Region::Entry, 4, entry, index))
    }

    pub fn meter(&mut self, meter: ExternId, dst: SlotId, index: &Operand, given: Given<'_>) {
        let index = self.read_saturated(index);
        let colour = self.call_meter(meter, index, given);
        self.write_number(dst, colour);
    }

    pub fn meter_direct(
        &mut self,
        meter: ExternId,
        dst: SlotId,
        (hit, entry): (&Operand, SlotId),
        given: Given<'_>,
    ) -> Result<(), Error> {
        let hit = self.read_word(hit);
        let (is_hit, green) = (self.truth(hit), self.word(0));
        let colour = self.values_if(is_hit, vec![green], |l| {
            let entry = l.read_flag(entry);
            let index = l.entry_index(meter, entry)?;
            Ok(vec![l.call_meter(meter, index, given)])
        })?;
        self.write_number(dst, colour[0]);
        Ok(())
    }

    fn call_meter(&mut self, meter: ExternId, index: Value, (before, bytes): Given<'_>) -> Value {
        let bytes = self.given_length(bytes);
        let bytes = self.half(bytes);
        let before = match before {
            Some(before) => self.read_word(before),
            None => self.word(0),
        };
        let (before, ext) = (self.half(before), self.constant(Type::I32, meter.0.into()));
        let id = self.calls.meter();
        let colour = self.call(id, vec![self.ctx, ext, index, bytes, before]).expect("the call has a result");
        self.value(Type::I64, Op::Cast(Cast::Zext, colour))
    }

    /// A random number in `low..=high`, of at most 64 bits.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `dst` is wider than 64 bits.
    pub fn random(&mut self, dst: SlotId, low: &Operand, high: &Operand) -> Result<(), Error> {
        let width = self.program.width(dst);
        if width > 64 {
            return Err(Error::Unsupported(format!("random numbers of {width} bits (at most 64)")));
        }
        let (low, high) = (self.read_word(low), self.read_word(high));
        let less = self.compare(Condition::Ult, high, low);
        let high = self.select(less, low, high);
        let id = self.calls.random();
        let value = self.call(id, vec![self.ctx, low, high]).expect("the call has a result");
        self.write_slot(dst, &Val::Word(value));
        Ok(())
    }

    /// Loads a field of the packet's descriptor.
    pub fn load_desc(&mut self, offset: usize, bytes: u8) -> Value {
        self.load(mir::Access::little(Region::Descriptor, bytes), At { base: self.packet, offset: offset as u32 })
    }

    pub fn store_desc(&mut self, offset: usize, bytes: u8, value: Value) {
        self.store_le(Region::Descriptor, bytes, self.packet, offset as u32, value);
    }
}
