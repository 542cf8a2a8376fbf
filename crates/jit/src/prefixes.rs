//! Longest prefix match as part of the code: the walk of `tables::lpm::dir1688`, which describes the memory.
//!
//! The walk has no branch that depends on prefix lengths except the one to the last 8 bits, which few addresses need.
//! Addresses without an answer there are looked up by a call of the engine, which reads with more care (`tables::lpm`):
//! addresses that match only the empty prefix or none, and all addresses of tables without this structure (empty ones,
//! and those that have outgrown it).
//!
//! Staged code does the walk in steps, each for all packets: link, place, entry. Directory and places are larger than
//! the near caches, so each step prefetches for the next.
//!
//! Tests: `crates/datapath/tests/prefixes.rs`; `crates/tables/tests` for the structure.

use crate::translate::Translator;
use abi::TableBinding;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use ir::TableId;
use std::mem::offset_of;
use tables::lpm::LpmShared;
use tables::lpm::dir1688::longer::{BLOCK, MASK_SHIFT, NEXT_HOP_SHIFT};
use tables::lpm::dir1688::{DIRECTORY_BITS, ENTRIES_AT, EXTENSION_FLAG, LINK_BYTES, LONGER_AT, PLACE_BYTES, STRIDE};

/// Bits of the values that the walk is for.
const BITS: u32 = 32;

impl Translator<'_, '_> {
    /// The first half of a lookup; returns what [`Self::prefix_advance`] needs: the address of the key's link, the key,
    /// and the directory unless it is constant. Keys are left-aligned in 32 bits.
    pub fn prefix_begin(&mut self, table: TableId, shared: Value, key: Value) -> Vec<Value> {
        let known = self.prefix_directory(table).map(|directory| self.base(directory));
        let directory = match known {
            Some(directory) => directory,
            None => self.b.ins().load(I64, self.flags.state, shared, offset_of!(LpmShared, dir1688) as i32),
        };
        // The directory is indexed in network byte order.
        const { assert!(DIRECTORY_BITS == 16) };
        let index = match (self.swapped(key), self.frame_bytes(key).and_then(|bytes| bytes.byte(BITS / 8 - 1))) {
            (Some((_, I32)), Some(first)) => {
                self.b.ins().uload16(I64, self.flags.packet, first.base, first.offset as i32)
            }
            (Some((word, I32)), None) => self.mask_word(word, DIRECTORY_BITS),
            _ => {
                let first = self.b.ins().ushr_imm_u(key, i64::from(BITS - DIRECTORY_BITS));
                self.swap(first, I16)
            }
        };
        let offset = self.b.ins().ishl_imm_u(index, i64::from(LINK_BYTES.ilog2()));
        let link = self.b.ins().iadd(directory, offset);
        [link, key].into_iter().chain(known.is_none().then_some(directory)).collect()
    }

    /// The next step of a lookup: the address of the key's place, or 0 without a directory.
    pub fn prefix_advance(&mut self, carried: &[Value]) -> Value {
        let (link, key) = (carried[0], carried[1]);
        let Some(&directory) = carried.get(2) else { return self.prefix_place(link, key) };
        let (walk, done) = (self.b.create_block(), self.b.create_block());
        let place = self.b.append_block_param(done, I64);
        self.b.ins().brif(directory, walk, &[], done, &[directory.into()]);
        self.b.seal_block(walk);
        self.b.switch_to_block(walk);
        let found = self.prefix_place(link, key);
        self.b.ins().jump(done, &[found.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        place
    }

    /// The number of values that [`Self::prefix_begin`] returns.
    pub fn prefix_words(&self, table: TableId) -> usize {
        if self.prefix_directory(table).is_some() { 2 } else { 3 }
    }

    /// The address of a table's directory, for specialised code, which is invalidated before the directory is replaced.
    fn prefix_directory(&self, table: TableId) -> Option<u64> {
        self.shape(table).and_then(|shape| shape.words.first().copied()).filter(|at| *at != 0)
    }

    /// The address of a key's place, given the address of its link.
    fn prefix_place(&mut self, link: Value, key: Value) -> Value {
        let link = self.b.ins().load(I64, self.flags.state, link, 0);
        const { assert!(STRIDE == 8 && (BITS - DIRECTORY_BITS).is_multiple_of(8)) };
        let in_frame = self.frame_bytes(key).and_then(|bytes| bytes.byte((BITS - DIRECTORY_BITS) / 8 - 1));
        let next = match in_frame {
            Some(at) => self.b.ins().uload8(I64, self.flags.packet, at.base, at.offset as i32),
            None => {
                let next = self.b.ins().ushr_imm_u(key, i64::from(BITS - DIRECTORY_BITS - STRIDE));
                self.mask_word(next, STRIDE)
            }
        };
        // Shifted by the link's low six bits.
        let value = self.b.ins().ushr(next, link);
        let offset = self.b.ins().ishl_imm_u(value, i64::from(PLACE_BYTES.ilog2()));
        self.b.ins().iadd(link, offset)
    }

    /// The second half, from the place on: continues with the entry of the longest prefix, or at `miss`.
    pub fn prefix_find(&mut self, table: TableId, binding: &TableBinding, carried: &[Value], miss: Block) -> Value {
        let (place, key) = (carried[0], carried[1]);
        let [walk, on, longer, numbered, call, done] = [(); 6].map(|()| self.b.create_block());
        let number = self.b.append_block_param(numbered, I64);
        let entry = self.b.append_block_param(done, I64);
        let directory = match self.prefix_directory(table) {
            Some(directory) => {
                let directory = self.base(directory);
                self.b.ins().jump(walk, &[]);
                directory
            }
            None => {
                self.b.ins().brif(place, walk, &[], call, &[]);
                carried[2]
            }
        };
        self.b.seal_block(walk);
        self.b.switch_to_block(walk);
        let content = self.b.ins().uload16(I64, self.flags.state, place, 0);
        // Neither 0 nor with the extension flag (the highest bit): a next-hop index.
        const { assert!(EXTENSION_FLAG == i16::MIN as u16) };
        let low = self.b.ins().ireduce(I16, content);
        let none = self.b.ins().iconst(I16, 0);
        let is_answer = self.b.ins().icmp(IntCC::SignedGreaterThan, low, none);
        self.b.ins().brif(is_answer, numbered, &[content.into()], on, &[]);
        self.b.seal_block(on);

        self.b.switch_to_block(on);
        self.b.set_cold_block(on);
        self.b.ins().brif(content, longer, &[], call, &[]);
        self.b.seal_block(longer);
        self.b.switch_to_block(longer);
        self.b.set_cold_block(longer);
        let found = self.find_longer(directory, content, key);
        self.b.ins().brif(found, numbered, &[found.into()], call, &[]);
        self.b.seal_block(call);
        self.b.seal_block(numbered);

        self.b.switch_to_block(call);
        self.b.set_cold_block(call);
        let width = binding.key.fields[0].width;
        // The engine's keys are right-aligned.
        let own = if width < BITS { self.b.ins().ushr_imm_u(key, i64::from(BITS - width)) } else { key };
        let found = self.lookup_on_cold_path(binding, own);
        self.b.ins().brif(found, done, &[found.into()], miss, &[]);

        self.b.switch_to_block(numbered);
        let offset = self.b.ins().ishl_imm_u(number, 3);
        let entries = self.add_imm(directory, ENTRIES_AT as u64);
        let at = self.b.ins().iadd(entries, offset);
        let found = self.b.ins().load(I64, self.flags.state, at, 0);
        self.b.ins().jump(done, &[found.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        entry
    }

    /// The next-hop index for a key whose place has the extension flag and this content.
    fn find_longer(&mut self, directory: Value, content: Value, key: Value) -> Value {
        let state = self.flags.state;
        let [list, block, done] = [(); 3].map(|()| self.b.create_block());
        let at = self.b.append_block_param(list, I64);
        let number = self.b.append_block_param(done, I64);
        [list, block, done].into_iter().for_each(|block| self.b.set_cold_block(block));
        let index = self.b.ins().ushr_imm_u(key, i64::from(BITS - DIRECTORY_BITS));
        let offset = self.b.ins().ishl_imm_u(index, i64::from(LINK_BYTES.ilog2()));
        let arrays = self.add_imm(directory, LONGER_AT as u64);
        let array = self.b.ins().iadd(arrays, offset);
        let array = self.b.ins().load(I64, state, array, 0);
        let position = self.mask_word(content, STRIDE);
        let offset = self.b.ins().ishl_imm_u(position, i64::from(LINK_BYTES.ilog2()));
        let link = self.b.ins().iadd(array, offset);
        let link = self.b.ins().load(I64, state, link, 0);
        let value = self.mask_word(key, STRIDE);
        let is_block = self.b.ins().band_imm_u(link, BLOCK as i64);
        self.b.ins().brif(is_block, block, &[], list, &[link.into()]);
        self.b.seal_block(block);

        self.b.switch_to_block(block);
        let places = self.add_imm(link, BLOCK.wrapping_neg());
        let offset = self.b.ins().ishl_imm_u(value, i64::from(PLACE_BYTES.ilog2()));
        let place = self.b.ins().iadd(places, offset);
        let found = self.b.ins().uload16(I64, state, place, 0);
        self.b.ins().jump(done, &[found.into()]);

        // The last word of a list accepts everything.
        self.b.switch_to_block(list);
        let word = self.b.ins().uload32(state, at, 0);
        let mask = self.b.ins().ushr_imm_u(word, i64::from(MASK_SHIFT));
        let differs = self.b.ins().bxor(word, value);
        let differs = self.b.ins().band(differs, mask);
        let differs = self.mask_word(differs, STRIDE);
        let found = self.b.ins().ushr_imm_u(word, i64::from(NEXT_HOP_SHIFT));
        let next = self.add_imm(at, size_of::<u32>() as u64);
        self.b.ins().brif(differs, list, &[next.into()], done, &[found.into()]);
        self.b.seal_block(list);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        number
    }
}
