//! Prefilters made by tables ([`tables::prefilter`]): keys that cannot match any rule are not looked up.
//!
//! Tests: `tests/files/`; `crates/datapath/tests/rules.rs` and `recompile.rs`, against the interpreter.

use crate::bit_vectors::KeyParts;
use crate::translate::Translator;
use abi::Prefilter;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use tables::columns::Column;

impl Translator<'_, '_> {
    /// Whether a key passes the prefilter, as a condition.
    pub fn passes_prefilter(&mut self, prefilter: &Prefilter, key: &KeyParts) -> Value {
        // Not read-only: the table's writer may set bits.
        let flags = MemFlagsData::trusted().with_can_move();
        let mut common = None;
        for column in &prefilter.columns {
            let rows = self.iconst(column.rows.as_ptr() as u64);
            let column = Column { word: column.word, byte: column.byte };
            let offset = self.key_byte(key, column, size_of::<u64>().ilog2());
            let at = self.b.ins().iadd(rows, offset);
            let row = self.b.ins().load(I64, flags, at, 0);
            common = Some(match common {
                Some(so_far) => self.b.ins().band(so_far, row),
                None => row,
            });
        }
        common.expect("a prefilter looks at a byte")
    }
}
