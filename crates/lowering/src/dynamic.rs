//! Tables that packets modify (PNA: `add_entry`, `set_entry_expire_time`, `restart_expire_timer`).

use crate::build::{At, Buffer, Lowering};
use crate::error::Error;
use crate::value::Val;
use abi::entry::TICK_SHIFT;
use abi::{DynamicBinding, TableBinding};
use ir::{Operand, SlotId, TableId};
use mir::{Cast, Op, Region, Type, Value};

impl<'a> Lowering<'a> {
    fn dynamic(&self, table: TableId) -> Result<(&'a TableBinding, &'a DynamicBinding, &'a str), Error> {
        let (binding, name) = (self.binding(table)?, &self.program.tables[table.index()].name);
        let missing = || Error::Binding(format!("packets cannot write table `{name}`"));
        Ok((binding, binding.dynamic.as_ref().ok_or_else(missing)?, name))
    }

    /// Adds an entry with action `action` and arguments `args`; with `replace`, an existing entry of that key gets
    /// them. The buffer for the call has the key, followed by the entry as it will be laid out in the table.
    pub fn add_entry(
        &mut self,
        table: TableId,
        keys: &[Operand],
        (action, args): (u32, &[Operand]),
        expire: &Operand,
        replace: bool,
        dst: SlotId,
    ) -> Result<(), Error> {
        let (binding, dynamic, name) = self.dynamic(table)?;
        let layout = &binding.entry;
        let (Some(params), Some(bytes)) = (layout.params.get(action as usize), layout.sizes.get(action as usize))
        else {
            return Err(Error::Binding(format!("table `{name}` has no action {action}")));
        };
        let words = self.key_words(&binding.key, keys);
        let args: Vec<Vec<Value>> = args.iter().map(|arg| self.read_words(arg)).collect();
        let expire = self.read_saturated(expire);
        let expire = self.half(expire);
        // Whole words are stored, in ascending order: bytes beyond a parameter's end are overwritten by the next
        // parameter.
        let key_bytes = binding.key.bytes;
        let buffer = self.buffer(Buffer::Call, key_bytes + bytes + 8);
        self.store_words(Region::Stack, &words, At { base: buffer, offset: 0 });
        let number = self.word(action.into());
        self.store_le(Region::Stack, 8, buffer, key_bytes, number);
        for (offset, words) in params.iter().zip(&args) {
            self.store_words(Region::Stack, words, At { base: buffer, offset: key_bytes + offset });
        }
        let handle = self.word(binding.handle as u64);
        let entry = self.add_imm(buffer, key_bytes.into());
        let bytes = self.constant(Type::I32, u128::from(*bytes));
        let id = match replace {
            true => self.calls.add_entry("replace", name, dynamic.replace),
            false => self.calls.add_entry("add", name, dynamic.add),
        };
        let done = self.call(id, vec![handle, buffer, entry, bytes, expire, self.now_us]);
        let done = self.value(Type::I64, Op::Cast(Cast::Zext, done.expect("the call has a result")));
        self.write_slot(dst, &Val::Word(done));
        Ok(())
    }

    /// Restarts the expiry timer of the entry that a lookup hit, if it did; `expire` gives it another expire time.
    pub fn restart_timer(
        &mut self,
        table: TableId,
        hit: &Operand,
        entry: SlotId,
        expire: Option<&Operand>,
    ) -> Result<(), Error> {
        let (binding, dynamic, name) = self.dynamic(table)?;
        let hit = self.read_word(hit);
        let is_hit = self.truth(hit);
        self.if_true(is_hit, |l| {
            let entry = l.read_flag(entry);
            match expire {
                Some(expire) if binding.entry.timer.is_some() => {
                    let number = l.read_saturated(expire);
                    let (number, handle) = (l.half(number), l.word(binding.handle as u64));
                    let id = l.calls.set_expire(name, dynamic.set_expire);
                    l.call(id, vec![handle, entry, number, l.now_us]);
                }
                _ => l.note_tick(binding, entry),
            }
            Ok(())
        })
    }

    /// Stores the current time, in ticks, as the start of an entry's expiry timer.
    pub fn note_tick(&mut self, binding: &TableBinding, entry: Value) {
        if let Some(timer) = binding.entry.timer {
            let tick = self.shr(self.now_us, TICK_SHIFT);
            self.store_near(4, entry, timer, tick);
        }
    }
}
