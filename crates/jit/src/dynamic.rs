//! Tables that packets write (PNA, `add_entry`, `set_entry_expire_time`, `restart_expire_timer`).
//!
//! They are looked up like other exact tables ([`crate::probe`]). Their contents are never part of the code, so no
//! entry that a packet adds invalidates code. Adding an entry is a cold call ([`crate::cold_calls`]), so it costs
//! nothing for packets that find their entry; the new entry is passed in memory in the table's layout, after the key.
//! Restarting an entry's timer is one store of the batch's clock.
//!
//! Staged code looks up and adds in one phase, in the packets' order ([`crate::stage::plan`]).
//!
//! Tests: `crates/datapath/tests/dynamic.rs`.

use crate::Error;
use crate::translate::Translator;
use abi::entry::TICK_SHIFT;
use abi::{DynamicBinding, TableBinding};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{Operand, SlotId, TableId};

impl Translator<'_, '_> {
    fn dynamic(&self, table: TableId) -> Result<(TableBinding, DynamicBinding), Error> {
        let binding = self.binding(table)?;
        let missing = || format!("packets cannot write table `{}`", self.program.tables[table.index()].name);
        let dynamic = binding.dynamic.clone().ok_or_else(|| Error::Binding(missing()))?;
        Ok((binding.clone(), dynamic))
    }

    /// Adds an entry with the call `(action, args)`, or sets the call of an existing entry.
    pub fn add_entry(
        &mut self,
        table: TableId,
        keys: &[Operand],
        (action, args): (u32, &[Operand]),
        expire: &Operand,
        replace: bool,
        dst: SlotId,
    ) -> Result<(), Error> {
        let (binding, dynamic) = self.dynamic(table)?;
        let layout = &binding.entry;
        let (Some(params), Some(bytes)) = (layout.params.get(action as usize), layout.sizes.get(action as usize))
        else {
            let name = &self.program.tables[table.index()].name;
            return Err(Error::Binding(format!("table `{name}` has no action {action}")));
        };
        let words = self.key_words(&binding.key, keys);
        let args: Vec<Vec<Value>> = args.iter().map(|arg| self.read_words(arg)).collect();
        let expire = self.read_word(expire);
        let expire = self.b.ins().ireduce(I32, expire);
        // Whole words are stored, in ascending order: bytes stored after a parameter's end are overwritten by the next
        // one.
        let key_bytes = binding.key.bytes;
        let buffer = self.buffer_of(key_bytes + bytes + 8);
        let stack = self.flags.stack;
        self.store_words(stack, &words, buffer, 0);
        let number = self.iconst(action.into());
        self.b.ins().store(stack, number, buffer, key_bytes as i32);
        for (offset, words) in params.iter().zip(&args) {
            self.store_words(stack, words, buffer, key_bytes + offset);
        }
        let handle = self.address(binding.handle as u64);
        let entry = self.add_imm(buffer, key_bytes.into());
        let (bytes, now) = (self.i32_const(*bytes), self.now_us);
        let call = if replace { dynamic.replace } else { dynamic.add };
        let done = self.call_on_cold_path(call as usize, &[handle, buffer, entry, bytes, expire, now], Some(I32));
        let done = done.expect("the call has a result");
        let done = self.b.ins().uextend(I64, done);
        self.write_number(dst, done);
        Ok(())
    }

    /// Restarts the timer of a lookup's entry, if it was a hit; optionally with another expire time.
    pub fn restart_timer(
        &mut self,
        table: TableId,
        hit: &Operand,
        entry: SlotId,
        expire: Option<&Operand>,
    ) -> Result<(), Error> {
        let (binding, dynamic) = self.dynamic(table)?;
        let Some(timer) = binding.entry.timer else { return Ok(()) };
        let hit = self.read_word(hit);
        let (restart, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(hit, restart, &[], done, &[]);
        self.b.seal_block(restart);
        self.b.switch_to_block(restart);
        let entry = self.read_flag(entry);
        if let Some(expire) = expire {
            // Mostly the expire time does not change.
            let known = match expire {
                Operand::Const(number) => {
                    let number = number.to_u64().and_then(|n| usize::try_from(n).ok());
                    number.and_then(|n| dynamic.expire_ms.get(n)).copied()
                }
                Operand::Slot(_) => None,
            };
            let same = known.map(|ms| {
                let (same, other) = (self.b.create_block(), self.b.create_block());
                let has = self.b.ins().uload32(self.flags.state, entry, timer + 4);
                let is_same = self.icmp_imm(IntCC::Equal, has, ms.into());
                self.b.ins().brif(is_same, same, &[], other, &[]);
                self.b.seal_block(same);
                self.b.seal_block(other);
                self.b.set_cold_block(other);
                self.b.switch_to_block(other);
                same
            });
            let number = self.read_word(expire);
            let number = self.b.ins().ireduce(I32, number);
            let (handle, now) = (self.address(binding.handle as u64), self.now_us);
            self.call_on_cold_path(dynamic.set_expire as usize, &[handle, entry, number, now], None);
            self.b.ins().jump(done, &[]);
            let Some(same) = same else {
                self.b.seal_block(done);
                self.b.switch_to_block(done);
                return Ok(());
            };
            self.b.switch_to_block(same);
        }
        self.note_tick(&binding, entry);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// Stores the clock as the start of an entry's time.
    pub fn note_tick(&mut self, binding: &TableBinding, entry: Value) {
        if let Some(timer) = binding.entry.timer {
            let tick = self.b.ins().ushr_imm_u(self.now_us, i64::from(TICK_SHIFT));
            self.b.ins().istore32(self.flags.state, tick, entry, timer);
        }
    }
}
