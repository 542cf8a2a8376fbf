//! Longest prefix match as part of the code: the walk of `tables::lpm::flat`, which describes the memory.
//!
//! The walk has no branch that depends on lengths of prefixes but the one to the last 8 bits, which few addresses need. What it has
//! no answer for goes to the engine by a call, for it must be looked for with care (`tables::lpm`): addresses that only the
//! empty prefix matches, or none; and all of them where there are no such answers: in empty tables and in those that
//! have outgrown them.
//!
//! Tests: `crates/datapath/tests/prefixes.rs`; `crates/tables/tests` for what is walked.

use crate::translate::Translator;
use abi::TableBinding;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use ir::TableId;
use std::mem::offset_of;
use tables::lpm::LpmShared;
use tables::lpm::flat::{DIRECTORY_BITS, LEADS_ON, LINK_BYTES, LINK_SHIFT, STRIDE};

/// Bits of the values that the walk is made for.
const BITS: u32 = 32;

impl Translator<'_, '_> {
    /// The first half of a lookup: the address of the place for a key, or 0, and the key for the second half. Values are
    /// left-aligned in 32 bits. It reads the directory already, most of which is in a cache; the places of large tables are not.
    pub fn prefix_begin(&mut self, table: TableId, shared: Value, key: Value) -> [Value; 2] {
        if let Some(directory) = self.prefix_directory(table) {
            let directory = self.iconst(directory);
            return [self.prefix_place_of(directory, key), key];
        }
        let directory = self.b.ins().load(I64, self.flags.state, shared, offset_of!(LpmShared, flat) as i32);
        let (walk, done) = (self.b.create_block(), self.b.create_block());
        let place = self.b.append_block_param(done, I64);
        self.b.ins().brif(directory, walk, &[], done, &[directory.into()]);
        self.b.seal_block(walk);
        self.b.switch_to_block(walk);
        let found = self.prefix_place_of(directory, key);
        self.b.ins().jump(done, &[found.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        [place, key]
    }

    /// Where the directory of a table is, for code that is made for the table as it is: before it goes, the code is withdrawn.
    fn prefix_directory(&self, table: TableId) -> Option<u64> {
        self.shape(table).and_then(|shape| shape.words.first().copied()).filter(|at| *at != 0)
    }

    /// The address of the place for a key's first bits.
    fn prefix_place_of(&mut self, directory: Value, key: Value) -> Value {
        let index = self.b.ins().ushr_imm_u(key, i64::from(BITS - DIRECTORY_BITS));
        let offset = self.b.ins().ishl_imm_u(index, i64::from(LINK_BYTES.ilog2()));
        let at = self.b.ins().iadd(directory, offset);
        let link = self.b.ins().load(I64, self.flags.state, at, 0);
        let places = self.b.ins().ushr_imm_u(link, i64::from(LINK_SHIFT));
        let next = self.b.ins().ushr_imm_u(key, i64::from(BITS - DIRECTORY_BITS - STRIDE));
        let value = self.b.ins().band(next, link);
        let value = self.mask_word(value, STRIDE);
        let offset = self.b.ins().ishl_imm_u(value, 3);
        self.b.ins().iadd(places, offset)
    }

    /// The second half: goes on with the entry of the longest prefix, or to `miss`.
    pub fn prefix_find(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        place: Value,
        key: Value,
        miss: Block,
    ) -> Value {
        let [walk, on, call, done] = [(); 4].map(|()| self.b.create_block());
        let content = self.b.append_block_param(done, I64);
        if self.prefix_directory(table).is_some() {
            self.b.ins().jump(walk, &[]);
        } else {
            self.b.ins().brif(place, walk, &[], call, &[]);
        }
        self.b.seal_block(walk);
        self.b.switch_to_block(walk);
        let place = self.b.ins().load(I64, self.flags.state, place, 0);
        // Neither null nor with its highest bit set: an entry.
        let zero = self.iconst(0);
        let is_entry = self.b.ins().icmp(IntCC::SignedGreaterThan, place, zero);
        self.b.ins().brif(is_entry, done, &[place.into()], on, &[]);
        self.b.seal_block(on);

        self.b.switch_to_block(on);
        self.b.set_cold_block(on);
        let last = self.b.create_block();
        self.b.ins().brif(place, last, &[], call, &[]);
        self.b.seal_block(last);
        self.b.switch_to_block(last);
        self.b.set_cold_block(last);
        let node = self.b.ins().band_imm_u(place, !LEADS_ON as i64);
        let value = self.mask_word(key, STRIDE);
        let offset = self.b.ins().ishl_imm_u(value, 3);
        let at = self.b.ins().iadd(node, offset);
        let place = self.b.ins().load(I64, self.flags.state, at, 0);
        self.b.ins().brif(place, done, &[place.into()], call, &[]);
        self.b.seal_block(call);

        self.b.switch_to_block(call);
        self.b.set_cold_block(call);
        let width = binding.key.fields[0].width;
        // Keys have the value at their right end.
        let own = if width < BITS { self.b.ins().ushr_imm_u(key, i64::from(BITS - width)) } else { key };
        let found = self.look_up_rarely(binding, own);
        self.b.ins().brif(found, done, &[found.into()], miss, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        content
    }
}
