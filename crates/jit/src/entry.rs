//! Reads from table entries; `abi::entry` describes their layout.

use crate::Error;
use crate::translate::Translator;
use crate::value::Val;
use abi::EntryLayout;
use abi::entry::param_bytes;
use base::ids::ExternId;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::ExternKind;

impl Translator<'_, '_> {
    /// The number of the entry's action.
    pub fn entry_action(&mut self, layout: &EntryLayout, entry: Value) -> Value {
        self.entry_bytes(entry, 0, layout.action_bytes)
    }

    /// The index of an entry's cell in a direct counter or meter.
    pub fn entry_index(&mut self, ext: ExternId, entry: Value) -> Result<Value, Error> {
        let table = match self.program.externs[ext.index()].kind {
            ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => direct,
            _ => None,
        };
        let index = table.and_then(|t| self.bindings.tables.get(t.index())).and_then(|t| t.entry.index);
        let Some(index) = index else {
            let name = &self.program.externs[ext.index()].name;
            return Err(Error::Binding(format!("the entries that `{name}` counts for have no index")));
        };
        Ok(self.b.ins().uload32(self.flags.entry, entry, index))
    }

    /// A parameter of `width` bits at `offset`.
    pub fn entry_param(&mut self, width: u32, entry: Value, offset: u32) -> Val {
        let bytes = param_bytes(width);
        let word = |i: u32| self.entry_bytes(entry, offset + 8 * i, (bytes - 8 * i).min(8));
        let words = (0..bytes.div_ceil(8)).map(word).collect();
        self.val_of_words(width, words)
    }

    /// A little-endian integer of up to eight bytes; no byte after it is read.
    fn entry_bytes(&mut self, entry: Value, offset: u32, bytes: u32) -> Value {
        let (flags, at) = (self.flags.entry, offset as i32);
        match bytes {
            1 => self.b.ins().uload8(I64, flags, entry, at),
            2 => self.b.ins().uload16(I64, flags, entry, at),
            4 => self.b.ins().uload32(flags, entry, at),
            8 => self.b.ins().load(I64, flags, entry, at),
            // The last bytes of a longer integer, loaded with some of the bytes before them.
            _ if offset + bytes >= 8 => {
                let word = self.b.ins().load(I64, flags, entry, at - (8 - bytes as i32));
                self.b.ins().ushr_imm_u(word, i64::from(64 - 8 * bytes))
            }
            _ => {
                let low = if bytes > 4 { 4 } else { 2 };
                let high = self.entry_bytes(entry, offset + low, bytes - low);
                let high = self.b.ins().ishl_imm_u(high, i64::from(8 * low));
                let low = self.entry_bytes(entry, offset, low);
                self.b.ins().bor(high, low)
            }
        }
    }
}
