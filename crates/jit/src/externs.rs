//! Counters, meters, registers, hashes, random numbers, digests, log lines and assertions.
//!
//! Counters and registers are inline, and so are hashes that [`crate::hashes`] supports; the others call the runtime.

use crate::pack::Piece;
use crate::translate::Translator;
use crate::value::{Class, Val, const_words};
use crate::{Error, Optimisation, Site, SiteKind};
use abi::{ExternBinding, WorkerCtx, register_cell_bytes, register_stride_bytes};
use base::Span;
use base::ids::TableId;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Type, Value};
use ir::{BinOp, CounterUnit, ExternId, ExternKind, HashAlgorithm, Operand, SlotId, Update};
use std::mem::offset_of;

/// The arguments of a meter: the packet's colour before it, and the length.
type Given<'o> = (Option<&'o Operand>, Option<&'o Operand>);

// Counters and meters.
impl Translator<'_, '_> {
    fn extern_name(&self, ext: ExternId) -> &str {
        &self.program.externs[ext.index()].name
    }

    fn extern_binding(&self, ext: ExternId) -> Result<ExternBinding, Error> {
        let missing = || Error::Binding(format!("extern `{}` has no binding", self.extern_name(ext)));
        self.bindings.externs.get(ext.index()).copied().ok_or_else(missing)
    }

    fn wrong_binding(&self, ext: ExternId) -> Error {
        Error::Binding(format!("extern `{}` is bound as something else", self.extern_name(ext)))
    }

    pub fn count(&mut self, counter: ExternId, index: &Operand, bytes: Option<&Operand>) -> Result<(), Error> {
        let ExternBinding::Counter { size } = self.extern_binding(counter)? else {
            return Err(self.wrong_binding(counter));
        };
        let index = self.read(index);
        let index = self.saturate_to_word(&index);
        let inside = self.icmp_imm(IntCC::UnsignedLessThan, index, size);
        let bytes = self.given_length(bytes);
        self.count_if(counter, inside, index, bytes);
        Ok(())
    }

    pub fn count_direct(
        &mut self,
        counter: ExternId,
        hit: &Operand,
        entry: SlotId,
        bytes: Option<&Operand>,
    ) -> Result<(), Error> {
        let ExternBinding::Counter { size } = self.extern_binding(counter)? else {
            return Err(self.wrong_binding(counter));
        };
        let hit = self.read_word(hit);
        let (check, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(hit, check, &[], done, &[]);
        self.b.seal_block(check);
        self.b.switch_to_block(check);
        let entry = self.read_flag(entry);
        let index = self.entry_index(counter, entry)?;
        let inside = self.icmp_imm(IntCC::UnsignedLessThan, index, size);
        let bytes = self.given_length(bytes);
        self.count_if(counter, inside, index, bytes);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// Direct counters and meters of a table.
    fn direct_cells(&self, table: TableId) -> Vec<ExternId> {
        let is_direct = |ext: &ExternId| {
            let (ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. }) =
                self.program.externs[ext.index()].kind
            else {
                return false;
            };
            direct == Some(table)
        };
        let has_index = self.bindings.tables.get(table.index()).is_some_and(|table| table.entry.index.is_some());
        let all = (0..self.program.externs.len()).map(ExternId::from_index);
        all.filter(|ext| has_index && is_direct(ext)).collect()
    }

    /// Whether entries of a table have cells of their own.
    pub fn has_direct_cells(&self, table: TableId) -> bool {
        !self.direct_cells(table).is_empty()
    }

    /// Prefetches the cells of an entry's direct counters and meters. The entry may be null.
    pub fn prefetch_direct_cells(&mut self, table: TableId, entry: Value) -> Result<(), Error> {
        let (found, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(entry, found, &[], done, &[]);
        self.b.seal_block(found);
        self.b.switch_to_block(found);
        for ext in self.direct_cells(table) {
            let index = self.entry_index(ext, entry)?;
            let mut count = index;
            if let ExternBinding::Meter { cells, stride_bytes, .. } = self.extern_binding(ext)? {
                let (cells, offset) =
                    (self.address(cells as u64), self.b.ins().imul_imm_u(index, i64::from(stride_bytes)));
                let cell = self.b.ins().iadd(cells, offset);
                // Other workers write it, too.
                self.prefetch_to_write(cell);
                // A count for each of three colours.
                count = self.b.ins().imul_imm_u(index, 3);
            }
            let cells = self.worker_cells(ext);
            let offset = self.b.ins().ishl_imm_u(count, 4);
            let cell = self.b.ins().iadd(cells, offset);
            self.prefetch(cell);
        }
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// The worker's own cells of a counter or meter.
    fn worker_cells(&mut self, ext: ExternId) -> Value {
        let ctx = self.context();
        let bases = self.b.ins().load(I64, self.flags.desc, ctx, offset_of!(WorkerCtx, counters) as i32);
        self.b.ins().load(I64, self.flags.desc, bases, 8 * ext.0 as i32)
    }

    /// The length that an operation gives, or else the packet's.
    fn given_length(&mut self, bytes: Option<&Operand>) -> Value {
        bytes.map_or(self.entry_len, |bytes| self.read_word(bytes))
    }

    fn count_if(&mut self, counter: ExternId, inside: Value, index: Value, bytes: Value) {
        let ExternKind::Counter { unit, .. } = self.program.externs[counter.index()].kind else {
            unreachable!("the verifier checks that `{}` is a counter", self.extern_name(counter))
        };
        let (count, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(inside, count, &[], done, &[]);
        self.b.seal_block(count);
        self.b.switch_to_block(count);
        let cells = self.worker_cells(counter);
        let offset = self.b.ins().ishl_imm_u(index, 4);
        let cell = self.b.ins().iadd(cells, offset);
        if unit != CounterUnit::Bytes {
            self.add_to_cell(cell, 0, None);
        }
        if unit != CounterUnit::Packets {
            self.add_to_cell(cell, 8, Some(bytes));
        }
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    pub fn meter(&mut self, meter: ExternId, dst: SlotId, index: &Operand, given: Given<'_>) {
        let index = self.read(index);
        let index = self.saturate_to_word(&index);
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
        let (ask, done) = (self.b.create_block(), self.b.create_block());
        let colour = self.b.append_block_param(done, I64);
        let green = self.iconst(0);
        self.b.ins().brif(hit, ask, &[], done, &[green.into()]);
        self.b.seal_block(ask);
        self.b.switch_to_block(ask);
        let entry = self.read_flag(entry);
        let index = self.entry_index(meter, entry)?;
        let result = self.call_meter(meter, index, given);
        self.b.ins().jump(done, &[result.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.write_number(dst, colour);
        Ok(())
    }

    fn call_meter(&mut self, meter: ExternId, index: Value, (before, bytes): Given<'_>) -> Value {
        let bytes = self.given_length(bytes);
        let bytes = self.b.ins().ireduce(I32, bytes);
        let green = self.iconst(0);
        let before = before.map_or(green, |before| self.read_word(before));
        let before = self.b.ins().ireduce(I32, before);
        let ext = self.i32_const(meter.0);
        let ctx = self.context();
        let colour = self.call(self.runtime.meter as usize, &[ctx, ext, index, bytes, before], Some(I32));
        self.b.ins().uextend(I64, colour.expect("the call has a result"))
    }
}

// Registers.
impl Translator<'_, '_> {
    /// The cell's address; whether the index is below the size (`None` if it always is); the cell's width in bits.
    pub fn register_cell(&mut self, register: ExternId, index: &Operand) -> Result<(Value, Option<Value>, u32), Error> {
        let ExternBinding::Register { cells, size, width, lock_rank, .. } = self.extern_binding(register)? else {
            return Err(self.wrong_binding(register));
        };
        let index = self.read(index);
        let index = self.saturate_to_word(&index);
        let bits = self.significant_bits(index);
        let surely = bits < 64 && 1 << bits <= size;
        let inside = (!surely).then(|| self.icmp_imm(IntCC::UnsignedLessThan, index, size));
        let offset = self.b.ins().imul_imm_u(index, i64::from(register_stride_bytes(width, lock_rank.is_some())));
        let cells = self.address(cells as u64);
        Ok((self.b.ins().iadd(cells, offset), inside, width))
    }

    pub fn register_read(&mut self, register: ExternId, dst: SlotId, index: &Operand, peek: bool) -> Result<(), Error> {
        if self.prefetch_cell(register, dst, index, peek)? {
            return Ok(());
        }
        let (cell, inside, width) = self.register_cell(register, index)?;
        let Some(inside) = inside else {
            self.acquire(register, cell, width);
            let words = self.load_cell(cell, width);
            self.write_words(dst, words);
            self.release_accessed(register);
            self.release_others(register);
            return Ok(());
        };
        let (load, done) = (self.b.create_block(), self.b.create_block());
        let count = width.div_ceil(64) as usize;
        let results: Vec<Value> = (0..count).map(|_| self.b.append_block_param(done, I64)).collect();
        let zero = self.iconst(0);
        let zeros = vec![zero.into(); count];
        self.b.ins().brif(inside, load, &[], done, &zeros);
        self.b.seal_block(load);
        self.b.switch_to_block(load);
        self.acquire(register, cell, width);
        let words: Vec<_> = self.load_cell(cell, width).into_iter().map(Into::into).collect();
        self.release_accessed(register);
        self.b.ins().jump(done, &words);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.release_others(register);
        self.write_words(dst, results);
        Ok(())
    }

    /// Reads a cell and changes it in one step.
    pub fn register_update(
        &mut self,
        register: ExternId,
        dst: SlotId,
        index: &Operand,
        update: Update,
        src: &Operand,
    ) -> Result<(), Error> {
        if self.prefetch_cell(register, dst, index, false)? {
            return Ok(());
        }
        if self.is_prefetch_pass() {
            return self.register_read(register, dst, index, true);
        }
        let (cell, inside, width) = self.register_cell(register, index)?;
        let src = self.read_word(src);
        let Some(inside) = inside else {
            let before = self.updated_cell(register, (cell, width), update, src)?;
            self.write_words(dst, vec![before]);
            self.release_others(register);
            return Ok(());
        };
        let (change, done) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(done, I64);
        let zero = self.iconst(0);
        self.b.ins().brif(inside, change, &[], done, &[zero.into()]);
        self.b.seal_block(change);
        self.b.switch_to_block(change);
        let before = self.updated_cell(register, (cell, width), update, src)?;
        self.b.ins().jump(done, &[before.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.write_words(dst, vec![result]);
        self.release_others(register);
        Ok(())
    }

    /// Changes a cell in range; its value before.
    fn updated_cell(
        &mut self,
        register: ExternId,
        (cell, width): (Value, u32),
        update: Update,
        src: Value,
    ) -> Result<Value, Error> {
        if let ExternBinding::Register { is_stepped: true, .. } = self.extern_binding(register)? {
            let op = match update {
                Update::Add => AtomicRmwOp::Add,
                Update::And => AtomicRmwOp::And,
                Update::Or => AtomicRmwOp::Or,
                Update::Xor => AtomicRmwOp::Xor,
                Update::Exchange => AtomicRmwOp::Xchg,
            };
            let ty = Type::int(8 * register_cell_bytes(width) as u16).expect("a cell is one word");
            let src = if ty == I64 { src } else { self.b.ins().ireduce(ty, src) };
            let before = self.b.ins().atomic_rmw(ty, self.flags.state, op, cell, src);
            return Ok(if ty == I64 { before } else { self.b.ins().uextend(I64, before) });
        }
        self.acquire(register, cell, width);
        let before = self.load_cell(cell, width)[0];
        let after = match update {
            Update::Add => {
                let sum = self.b.ins().iadd(before, src);
                self.mask_word(sum, width)
            }
            Update::And => self.b.ins().band(before, src),
            Update::Or => self.b.ins().bor(before, src),
            Update::Xor => self.b.ins().bxor(before, src),
            Update::Exchange => src,
        };
        self.store_cell(register, &[after], cell, width);
        Ok(before)
    }

    /// The value of a register's cell as words.
    fn load_cell(&mut self, cell: Value, width: u32) -> Vec<Value> {
        let state = self.flags.state;
        match register_cell_bytes(width) {
            1 => vec![self.b.ins().uload8(I64, state, cell, 0)],
            2 => vec![self.b.ins().uload16(I64, state, cell, 0)],
            4 => vec![self.b.ins().uload32(state, cell, 0)],
            bytes => (0..bytes).step_by(8).map(|at| self.b.ins().load(I64, state, cell, at as i32)).collect(),
        }
    }

    /// Writes a cell; releases its lock, if it is no longer needed.
    fn store_cell(&mut self, register: ExternId, words: &[Value], cell: Value, width: u32) {
        let state = self.flags.state;
        if self.is_released_by_store(register, width) {
            // Bits above the width are zero, and so is a free lock.
            match register_cell_bytes(width) {
                1 => _ = self.b.ins().istore16(state, words[0], cell, 0),
                2 => _ = self.b.ins().istore32(state, words[0], cell, 0),
                _ => _ = self.b.ins().store(state, words[0], cell, 0),
            }
            return;
        }
        match register_cell_bytes(width) {
            1 => _ = self.b.ins().istore8(state, words[0], cell, 0),
            2 => _ = self.b.ins().istore16(state, words[0], cell, 0),
            4 => _ = self.b.ins().istore32(state, words[0], cell, 0),
            _ => self.store_words(state, words, cell, 0),
        }
        self.release_accessed(register);
    }

    pub fn register_write(&mut self, register: ExternId, index: &Operand, src: &Operand) -> Result<(), Error> {
        let (cell, inside, width) = self.register_cell(register, index)?;
        let words = self.read_words(src);
        let Some(inside) = inside else {
            self.acquire(register, cell, width);
            self.store_cell(register, &words, cell, width);
            self.release_others(register);
            return Ok(());
        };
        let (store, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(inside, store, &[], done, &[]);
        self.b.seal_block(store);
        self.b.switch_to_block(store);
        self.acquire(register, cell, width);
        self.store_cell(register, &words, cell, width);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.release_others(register);
        Ok(())
    }
}

// Hashes.
impl Translator<'_, '_> {
    #[allow(clippy::too_many_arguments, reason = "the fields of the operation")]
    pub fn hash(
        &mut self,
        algorithm: HashAlgorithm,
        dst: SlotId,
        base: &Operand,
        max: Option<&Operand>,
        data: &[Operand],
        varbits: &[(u32, SlotId)],
        payload: bool,
    ) {
        let hash = self.hash_value(algorithm, data, varbits, payload);
        let hash = match max {
            None => hash,
            Some(max) => self.hash_modulo(hash, max),
        };
        let width = self.program.width(dst);
        let base = self.read(base);
        let val = match base {
            Val::Word(base) => {
                let is_zero = self.as_constant(base) == Some(0);
                let v = if is_zero { hash } else { self.b.ins().iadd(base, hash) };
                Val::Word(self.mask_word(v, width))
            }
            base => {
                let hash = self.val_of_words(width, vec![hash]);
                self.bin_vals(BinOp::Add, width, base, hash)
            }
        };
        self.write_slot(dst, &val);
    }

    /// `hash mod max`, or 0 if `max` is 0.
    fn hash_modulo(&mut self, hash: Value, max: &Operand) -> Value {
        if let Some(max) = max.constant() {
            let words = const_words(max);
            return match words[0] {
                _ if words[1..].iter().any(|&w| w != 0) => hash,
                0 | 1 => self.iconst(0),
                max if max.is_power_of_two() => self.mask_word(hash, max.ilog2()),
                max => {
                    let max = self.iconst(max);
                    self.b.ins().urem(hash, max)
                }
            };
        }
        let words = self.read_words(max);
        let low = words[0];
        let (zero, one) = (self.iconst(0), self.iconst(1));
        let is_zero = self.icmp(IntCC::Equal, low, zero);
        let divisor = self.b.ins().select(is_zero, one, low);
        let rest = self.b.ins().urem(hash, divisor);
        let high = words[1..].iter().fold(zero, |all, &w| self.b.ins().bor(all, w));
        self.b.ins().select(high, hash, rest)
    }

    /// The hash by a call of the runtime.
    pub fn hash_value(
        &mut self,
        algorithm: HashAlgorithm,
        data: &[Operand],
        varbits: &[(u32, SlotId)],
        payload: bool,
    ) -> Value {
        let inline = varbits.is_empty() && !payload && self.options.has(Optimisation::InlineHashes);
        if let Some(hash) = inline.then(|| self.inline_hash(algorithm, data)).flatten() {
            return hash;
        }
        let pieces = if varbits.is_empty() { self.packed_pieces(data) } else { self.pieces(data) };
        let bits: u32 = pieces.iter().map(|p| p.width).sum();
        let (at, bits) = if varbits.is_empty() {
            let at = self.buffer_at(bits.div_ceil(8));
            self.store_pieces(self.flags.stack, &pieces, 0, 0, bits.div_ceil(8), at);
            (at.base, self.i32_const(bits))
        } else {
            self.pack_varbits(&pieces, varbits, bits)
        };
        let (payload, payload_len) = if payload {
            let (data, len) = (self.b.use_var(self.vars.data), self.b.use_var(self.vars.len));
            let cursor = self.cursor_value();
            let left = self.b.ins().isub(len, cursor);
            (self.b.ins().iadd(data, cursor), self.b.ins().ireduce(I32, left))
        } else {
            (self.iconst(0), self.i32_const(0))
        };
        let algorithm = self.i32_const(algorithm.code());
        let ctx = self.context();
        let args = [ctx, algorithm, at, bits, payload, payload_len];
        self.call(self.runtime.hash as usize, &args, Some(I64)).expect("the call has a result")
    }

    /// Writes a bit string of pieces of which some have a variable length, counted from their low end: it is built as
    /// one wide number, shifted by each piece's length, and then left-aligned. Slow (two calls per piece), but correct
    /// for any alignment. Returns the buffer's address and the number of bits.
    pub fn pack_varbits(&mut self, pieces: &[Piece], varbits: &[(u32, SlotId)], bits_max: u32) -> (Value, Value) {
        // The runtime's wide operations need at least 192 bits and whole words.
        let width = bits_max.next_multiple_of(64).max(192);
        let zero = self.iconst(0);
        let mut string = vec![zero; width as usize / 64];
        let mut total = zero;
        for (i, piece) in pieces.iter().enumerate() {
            let len = match varbits.iter().find(|(operand, _)| *operand as usize == i) {
                Some((_, slot)) => self.read_flag(*slot),
                None => self.iconst(u64::from(piece.width)),
            };
            let shifted = self.bin_wide_shift(BinOp::Shl, width, &string, len);
            string = shifted;
            for (word, &low) in string.iter_mut().zip(&piece.words) {
                *word = self.b.ins().bor(*word, low);
            }
            total = self.b.ins().iadd(total, len);
        }
        let all = self.iconst(u64::from(width));
        let up = self.b.ins().isub(all, total);
        let string = self.bin_wide_shift(BinOp::Shl, width, &string, up);
        let at = self.buffer_at(width / 8);
        self.store_pieces(self.flags.stack, &[Piece { words: string, width }], 0, 0, width / 8, at);
        (at.base, self.b.ins().ireduce(I32, total))
    }

    pub fn bin_wide_shift(&mut self, op: BinOp, width: u32, value: &[Value], by: Value) -> Vec<Value> {
        let val = self.call_wide(op, width, value, &[by]);
        self.words_of_val(&val)
    }

    fn bin_vals(&mut self, op: BinOp, width: u32, a: Val, b: Val) -> Val {
        match (Class::of(width), a, b) {
            (Class::Pair, Val::Pair(a), Val::Pair(b)) => self.bin_pair(op, width, a, b),
            (_, a, b) => {
                let (a, b) = (self.words_of_val(&a), self.words_of_val(&b));
                self.bin_words(op, width, &a, &b)
            }
        }
    }
}

// Calls.
impl Translator<'_, '_> {
    pub fn random(&mut self, dst: SlotId, low: &Operand, high: &Operand) -> Result<(), Error> {
        let width = self.program.width(dst);
        if width > 64 {
            return Err(Error::Unsupported(format!("random numbers of {width} bits (at most 64)")));
        }
        let (low, high) = (self.read_word(low), self.read_word(high));
        let high = self.b.ins().umax(low, high);
        let ctx = self.context();
        let value = self.call(self.runtime.random as usize, &[ctx, low, high], Some(I64));
        self.write_slot(dst, &Val::Word(value.expect("the call has a result")));
        Ok(())
    }

    /// Writes the words of operands one after the other; returns the address and the number of words.
    fn message(&mut self, operands: &[Operand]) -> (Value, Value) {
        let words: Vec<Value> = operands.iter().flat_map(|o| self.read_words(o)).collect();
        let at = self.buffer_of(8 * words.len() as u32);
        self.store_words(self.flags.stack, &words, at, 0);
        (at, self.i32_const(words.len() as u32))
    }

    pub fn digest(&mut self, digest: ExternId, data: &[Operand]) {
        let (at, count) = self.message(data);
        let (ext, packet) = (self.i32_const(digest.0), self.reload_packet());
        let ctx = self.context();
        self.call_on_cold_path(self.runtime.digest as usize, &[ctx, packet, ext, at, count], None);
    }

    pub fn log(&mut self, format: &str, args: &[Operand], span: Span) {
        let arg_widths = args.iter().map(|a| self.width(a)).collect();
        let id = self.site(Site { kind: SiteKind::Log { arg_widths }, text: format.to_owned(), span });
        let (at, count) = self.message(args);
        let packet = self.reload_packet();
        let ctx = self.context();
        self.call_on_cold_path(self.runtime.log as usize, &[ctx, packet, id, at, count], None);
    }

    pub fn assert(&mut self, cond: &Operand, text: &str, span: Span) {
        let id = self.site(Site { kind: SiteKind::Assert, text: text.to_owned(), span });
        let cond = self.read_word(cond);
        let (fail, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, done, &[], fail, &[]);
        self.b.seal_block(fail);
        self.b.set_cold_block(fail);
        self.b.switch_to_block(fail);
        let packet = self.reload_packet();
        let ctx = self.context();
        self.call_on_cold_path(self.runtime.assert_failed as usize, &[ctx, packet, id], None);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    fn site(&mut self, site: Site) -> Value {
        // Specialised code shares the sites of the code that it replaces.
        let id = self.sites.iter().position(|s| *s == site).unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        self.i32_const(id as u32)
    }
}
