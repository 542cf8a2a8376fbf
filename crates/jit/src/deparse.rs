//! The deparser: emitted headers and payload become one frame.
//!
//! The methods, from the cheapest to the most general:
//!
//! 1. **Edit.** The deparser is straight-line code, and at run time no header has moved ([`crate::flow`], "Layout
//!    changes"). The frame stays in place, and only the bytes of fields that may be modified are stored. An unchanged
//!    header costs nothing.
//! 2. **In place.** Headers were added or removed and the frame's first byte moves, but every header with unchanged
//!    bytes stays where it is in memory (what is added or removed is in front of it). Again only modified bytes are
//!    stored: pushing a tunnel costs the tunnel's headers.
//! 3. **Registers.** Otherwise, if the headers are short, everything that is to be written is loaded first. Which
//!    headers move is a compile-time constant where their validity is; else it is tested at run time.
//! 4. **Buffer.** Otherwise every valid emitted header is written to a buffer on the stack: modified bytes from
//!    registers, others copied from the packet. The buffer is then copied to its place before the payload. Nothing is
//!    written to the packet before everything has been read from it, so headers may overlap their old places in any
//!    way.
//! 5. **Branches.** A deparser with branches uses the buffer too, but emits to it as it goes.
//!
//! The buffer holds all that the deparser can emit, up to [`ir::EMITTED_BYTES_MAX`]. A deparser that emits in a loop,
//! or more than that, checks at run time: a packet whose headers do not fit gets the fate `NoRoom`, like one that
//! outgrows its packet buffer.
//!
//! Tests: `tests/packets.rs`.

use crate::Optimisation;
use crate::flow;
use crate::header::{FieldAt, HeaderLayout, Segment, bits_of, dirty_bytes, runs};
use crate::pack::Piece;
use crate::packet::At;
use crate::translate::Translator;
use abi::{FateCode, PacketDesc};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, StackSlot, Type, Value};
use ir::{HeaderId, Op, Operand, SlotId};
use std::mem::offset_of;

/// The new layout of a frame, if the validity of all headers is known at compile time.
struct KnownLayout {
    /// The valid headers in order: each with its new offset, and the offset that it was extracted from if that is
    /// known.
    emitted: Vec<(HeaderId, u32, Option<i64>)>,
    /// Bytes of the valid headers.
    total: u32,
    /// Bytes by which the frame grows at its start; negative if it shrinks.
    grow: i64,
    /// Whether all headers with unchanged bytes stay where they are in memory.
    in_place: bool,
}

/// Most bytes of headers that are moved through registers.
const MOVED_BYTES_MAX: u32 = 128;

/// Most headers whose places are live from where the frame's new length is known to where the headers are stored.
/// Register allocation takes time for each value in each block that it is live in, so more would be quadratic.
const PLACES_MAX: usize = 64;

/// Whether a header has to be moved, as far as that is known at compile time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moves {
    /// It is in its place already, or none of its bytes are read from the packet.
    Never,
    /// It is valid and in another place.
    Always,
    /// Known at run time only.
    Perhaps,
}

/// A header to be written.
#[derive(Clone, Copy)]
struct Emitted {
    header: HeaderId,
    /// Its new place, if it is valid.
    to: Value,
    moves: Moves,
}

/// Offset and type of loads that cover so many bytes. The last may overlap the one before.
fn chunks(bytes: u32) -> Vec<(u32, Type)> {
    let widths = [(I8X16, 16), (I64, 8), (I32, 4), (I16, 2), (I8, 1)];
    let Some((ty, size)) = widths.into_iter().find(|(_, size)| *size <= bytes) else { return Vec::new() };
    let whole = (0..bytes / size).map(|i| i * size);
    let rest = (!bytes.is_multiple_of(size)).then(|| bytes - size);
    whole.chain(rest).map(|offset| (offset, ty)).collect()
}

impl Translator<'_, '_> {
    /// `Op::Emit`: emits at once if the deparser has branches, else when the stage ends.
    pub fn emit(&mut self, header: HeaderId) {
        if self.flow.deparser(self.position).is_some_and(|d| d.in_order.is_none()) {
            self.emit_to_buffer(header);
        }
    }

    pub fn truncate(&mut self, bytes: &Operand) {
        let bytes = self.read(bytes);
        let bytes = self.saturate_to_word(&bytes);
        self.b.def_var(self.vars.truncate, bytes);
    }

    /// Ends a deparser. Leaves the cursor's variable at the end of the emitted headers.
    pub fn join_packet(&mut self) {
        let flow = self.flow;
        let deparser = flow.deparser(self.position).expect("the stage is a deparser");
        let cursor = self.cursor_value();
        self.b.def_var(self.vars.cursor, cursor);
        match &deparser.in_order {
            None => {
                let total = self.b.use_var(self.vars.emitted);
                let (data, grow) = self.reserve_headroom(total);
                let buffer = self.buffer();
                let buffer = self.stack_addr(buffer);
                self.copy_buffer(buffer, data, total);
                self.move_start(data, grow, total);
            }
            Some(headers) if !flow.layout_may_change => self.edit(headers),
            Some(headers) => {
                let changed = self.b.use_var(self.vars.layout_changed);
                match self.as_constant(changed) {
                    Some(0) => self.edit(headers),
                    Some(_) => self.join_moved(headers),
                    None => self.edit_or_join(headers, changed),
                }
            }
        }
        self.cut();
    }

    fn edit_or_join(&mut self, headers: &[HeaderId], changed: Value) {
        let (edit, join, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(changed, join, &[], edit, &[]);
        self.b.seal_block(edit);
        self.b.seal_block(join);
        self.b.switch_to_block(edit);
        self.edit(headers);
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(join);
        self.join_moved(headers);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    /// Stores the modified bytes of headers that have not moved.
    fn edit(&mut self, headers: &[HeaderId]) {
        for &header in headers {
            // A changed varbit changes the layout, so here varbits are unchanged.
            if self.bytes_of(header).any(|(_, is_dirty)| is_dirty) {
                self.if_valid(header, |t| {
                    let at = t.extracted_at(header);
                    t.store_modified(header, at, false);
                });
            }
        }
    }

    /// Writes the headers where the frame's start moves, and perhaps headers too.
    fn join_moved(&mut self, headers: &[HeaderId]) {
        if let Some(known) = self.known_layout(headers) {
            return self.join_known(headers, &known);
        }
        let mut total = self.iconst(0);
        let mut known_total = Some(0);
        let mut offsets = Vec::new();
        for &header in headers {
            offsets.push((total, known_total));
            let size = self.emitted_size(header);
            total = self.b.ins().iadd(total, size);
            known_total = known_total.zip(self.known_size(header)).map(|(sum, size)| sum + size);
        }
        let (data, grow) = self.reserve_headroom(total);
        let known_grow = match self.facts_now.cursor {
            flow::Place::Const(cursor) => known_total.map(|total| i64::from(total) - i64::from(cursor)),
            flow::Place::Varying => None,
        };
        let emitted: Vec<Emitted> = headers
            .iter()
            .zip(&offsets)
            .map(|(&header, &(offset, known))| {
                let to = self.b.ins().iadd(data, offset);
                let moves = self.moves(header, known.zip(known_grow).map(|(offset, grow)| i64::from(offset) - grow));
                Emitted { header, to, moves }
            })
            .collect();

        // Whether a valid header with unchanged fields has to move.
        let mut moved = None;
        for &Emitted { header, to, .. } in emitted.iter().filter(|e| e.moves == Moves::Perhaps) {
            let valid = self.read_flag(self.facts.headers[header.index()].valid);
            let from = self.extracted_at(header);
            let from = self.add_imm(from.base, u64::from(from.offset));
            let distance = self.b.ins().bxor(from, to);
            let none = self.iconst(0);
            let distance = self.b.ins().select(valid, distance, none);
            moved = Some(match moved {
                Some(moved) => self.b.ins().bor(moved, distance),
                None => distance,
            });
        }
        let certain = emitted.iter().any(|e| e.moves == Moves::Always);
        let done = self.b.create_block();
        if certain || moved.is_some() {
            if let Some(moved) = moved.filter(|_| !certain) {
                let (move_them, in_place) = (self.b.create_block(), self.b.create_block());
                self.b.ins().brif(moved, move_them, &[], in_place, &[]);
                self.b.seal_block(move_them);
                self.b.seal_block(in_place);
                self.b.switch_to_block(in_place);
                self.store_in_place(&emitted, data);
                self.b.ins().jump(done, &[]);
                self.b.switch_to_block(move_them);
            }
            if self.fits_registers(headers) {
                self.move_in_registers(&emitted);
            } else {
                for &header in headers {
                    self.emit_to_buffer(header);
                }
                let buffer = self.buffer();
                let buffer = self.stack_addr(buffer);
                self.copy_buffer(buffer, data, total);
            }
        } else {
            self.store_in_place(&emitted, data);
        }
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.move_start(data, grow, total);
    }

    /// The frame's new layout, if this copy of the code is for packets with known valid headers.
    fn known_layout(&mut self, headers: &[HeaderId]) -> Option<KnownLayout> {
        if self.flow.deparser(self.position).is_some_and(|d| d.may_overflow) {
            return None;
        }
        let flow::Place::Const(consumed) = self.facts_now.cursor else { return None };
        let data = self.b.use_var(self.vars.data);
        let mut emitted = Vec::new();
        let mut total = 0;
        for &header in headers {
            let layout = &self.facts.headers[header.index()];
            let valid = self.read_flag(layout.valid);
            if self.as_constant(valid)? == 0 {
                continue;
            }
            if layout.var.is_some() {
                return None;
            }
            let from = self.extracted_at(header);
            let from = self.distance(from.base, data).map(|d| d + i64::from(from.offset));
            emitted.push((header, total, from));
            total += layout.fixed_bytes;
        }
        let grow = i64::from(total) - i64::from(consumed);
        let stays = |t: &Self, &(header, to, from): &(HeaderId, u32, Option<i64>)| {
            !t.reads_packet(header) || from == Some(i64::from(to) - grow)
        };
        let in_place = emitted.iter().all(|e| stays(self, e));
        let places_known = emitted.iter().all(|e| !self.reads_packet(e.0) || e.2.is_some());
        (in_place || places_known).then_some(KnownLayout { emitted, total, grow, in_place })
    }

    /// As [`Self::join_moved`], for a known layout: only the room is tested at run time.
    fn join_known(&mut self, headers: &[HeaderId], known: &KnownLayout) {
        let total = self.iconst(u64::from(known.total));
        let grow = self.iconst(known.grow as u64);
        if known.grow > 0 {
            self.ensure_headroom(grow, |t| t.has_headroom(known.grow));
        }
        let old = self.b.use_var(self.vars.data);
        let data = self.add_imm(old, known.grow.wrapping_neg() as u64);
        if known.in_place {
            for &(header, to, _) in &known.emitted {
                let to = i64::from(to) - known.grow;
                let at = match u32::try_from(to) {
                    Ok(offset) => At { base: old, offset },
                    Err(_) => At { base: self.add_imm(old, to as u64), offset: 0 },
                };
                self.store_modified(header, at, true);
            }
        } else if self.fits_registers(headers) {
            let mut emitted = Vec::new();
            for &(header, to, from) in &known.emitted {
                let stays = !self.reads_packet(header) || from == Some(i64::from(to) - known.grow);
                let moves = if stays { Moves::Never } else { Moves::Always };
                emitted.push(Emitted { header, to: self.add_imm(data, to.into()), moves });
            }
            self.move_in_registers(&emitted);
        } else {
            for &header in headers {
                self.emit_to_buffer(header);
            }
            let buffer = self.buffer();
            let buffer = self.stack_addr(buffer);
            self.copy_buffer(buffer, data, total);
        }
        if known.grow == 0 {
            self.b.def_var(self.vars.cursor, total);
        } else {
            self.move_start_by(data, known.grow, total);
        }
    }

    /// Whether emitting a header reads bytes of the packet. Beside clean bytes, these are bytes that a clean field
    /// shares with a dirty one.
    fn reads_packet(&self, header: HeaderId) -> bool {
        let is_clean = |slot| !self.flow.is_dirty(self.facts, &self.facts_now, slot);
        let fields = &self.program.headers[header.index()].fields;
        self.flow.is_extracted[header.index()] && fields.iter().any(|f| is_clean(f.slot))
    }

    /// Stores the modified bytes of headers that do not move; the frame begins at `data`.
    fn store_in_place(&mut self, emitted: &[Emitted], data: Value) {
        if emitted.len() > PLACES_MAX {
            return self.store_one_after_another(emitted, data);
        }
        for &Emitted { header, to, .. } in emitted {
            self.if_valid(header, |t| t.store_modified(header, At { base: to, offset: 0 }, true));
        }
    }

    /// As [`Self::store_in_place`], computing each header's place from the previous header's, so that few places are
    /// live at once.
    fn store_one_after_another(&mut self, emitted: &[Emitted], data: Value) {
        self.b.def_var(self.vars.emitted, data);
        for &Emitted { header, .. } in emitted {
            self.if_valid(header, |t| {
                let to = t.b.use_var(t.vars.emitted);
                t.store_modified(header, At { base: to, offset: 0 }, true);
                let size = t.emitted_size(header);
                let next = t.b.ins().iadd(to, size);
                t.b.def_var(t.vars.emitted, next);
            });
        }
    }

    /// Whether a header has to move. `to` is its new offset from the old first byte of the frame, if that is known.
    fn moves(&mut self, header: HeaderId, to: Option<i64>) -> Moves {
        let reads_packet = self.reads_packet(header);
        let valid = self.read_flag(self.facts.headers[header.index()].valid);
        match (self.as_constant(valid), self.flow.extracted_at[header.index()], to) {
            _ if !reads_packet => Moves::Never,
            (Some(0), ..) => Moves::Never,
            (Some(_), flow::Place::Const(from), Some(to)) if i64::from(from) == to => Moves::Never,
            (Some(_), flow::Place::Const(_), Some(_)) => Moves::Always,
            _ => Moves::Perhaps,
        }
    }

    /// Bytes that a header adds to the frame, if they are known at compile time.
    fn known_size(&mut self, header: HeaderId) -> Option<u32> {
        let layout = &self.facts.headers[header.index()];
        let valid = self.read_flag(layout.valid);
        match self.as_constant(valid)? {
            0 => Some(0),
            _ => layout.var.is_none().then_some(layout.fixed_bytes),
        }
    }

    /// Whether headers can be moved through registers.
    fn fits_registers(&self, headers: &[HeaderId]) -> bool {
        let layouts = headers.iter().map(|h| &self.facts.headers[h.index()]);
        let fixed = |h: &HeaderLayout| h.segments.iter().all(|s| matches!(s, Segment::Fixed { .. }));
        self.options.has(Optimisation::WideStores)
            && layouts.clone().all(fixed)
            && layouts.map(|h| h.fixed_bytes).sum::<u32>() <= MOVED_BYTES_MAX
            && self.flow.deparser(self.position).is_some_and(|d| !d.may_overflow)
    }

    /// Moves headers through registers: all loads come before all stores. (Through memory, a load of bytes that several
    /// stores have just written would wait until these have left the store buffer.)
    fn move_in_registers(&mut self, emitted: &[Emitted]) {
        let mut all = Vec::new();
        for &Emitted { header, to, moves } in emitted {
            let layout = &self.facts.headers[header.index()];
            let valid = self.read_flag(layout.valid);
            // An invalid header's pointer leads to the zeros.
            let from = match self.as_constant(valid) {
                Some(0) => continue,
                Some(_) => self.extracted_at(header),
                None => At { base: self.header_pointer(header), offset: 0 },
            };
            let mut words = Vec::new();
            let mut start = 0;
            for segment in &layout.segments {
                let Segment::Fixed { bytes, fields } = segment else {
                    unreachable!("headers with varbits go elsewhere")
                };
                for (is_dirty, first, end) in runs(&self.dirty_bytes_of(*bytes, fields)) {
                    if is_dirty {
                        let Some((pieces, origin)) = self.pieces_of(fields, first, end) else { continue };
                        for (byte, size, value) in self.wide_pieces(&pieces, origin, first, end) {
                            words.push((start + byte, self.be_bytes(value, size)));
                        }
                    } else if moves != Moves::Never {
                        for (offset, ty) in chunks(end - first) {
                            let at = from.plus(start + first + offset);
                            let value = self.b.ins().load(ty, self.flags.packet, at.base, at.offset as i32);
                            words.push((start + first + offset, value));
                        }
                    }
                }
                start += *bytes;
            }
            all.push((header, to, words));
        }
        for (header, to, words) in all {
            self.if_valid(header, |t| {
                for (offset, value) in words {
                    t.b.ins().store(t.flags.packet, value, to, offset as i32);
                }
            });
        }
    }

    /// The bytes of a header's fixed segments: the segment's index, and whether the byte may be modified.
    fn bytes_of(&self, header: HeaderId) -> impl Iterator<Item = (usize, bool)> + '_ {
        let segments = self.facts.headers[header.index()].segments.iter().enumerate();
        segments.flat_map(|(i, segment)| {
            let marks = match segment {
                Segment::Fixed { bytes, fields } => self.dirty_bytes_of(*bytes, fields),
                Segment::Var { .. } => Vec::new(),
                Segment::Odd { .. } => unreachable!("such a header is emitted to the buffer"),
            };
            marks.into_iter().map(move |dirty| (i, dirty))
        })
    }

    fn dirty_bytes_of(&self, bytes: u32, fields: &[FieldAt]) -> Vec<bool> {
        dirty_bytes(bytes, fields, |s| self.flow.is_dirty(self.facts, &self.facts_now, s))
    }

    /// Bytes that a header adds to the frame: its length, or 0 if it is invalid.
    fn emitted_size(&mut self, header: HeaderId) -> Value {
        let layout = &self.facts.headers[header.index()];
        let valid = self.read_flag(layout.valid);
        let mut size = self.iconst(u64::from(layout.fixed_bytes));
        for segment in &layout.segments {
            if let Segment::Var { length, width, .. } | Segment::Odd { length, width, .. } = segment {
                let bytes = self.varbit_bytes(*length, *width);
                size = self.b.ins().iadd(size, bytes);
            }
        }
        let none = self.iconst(0);
        self.b.ins().select(valid, size, none)
    }

    /// Bytes of a varbit by its length field, limited to its greatest width.
    fn varbit_bytes(&mut self, length: SlotId, width: u32) -> Value {
        let bits = self.read_word(&Operand::Slot(length));
        let bytes = self.b.ins().ushr_imm_u(bits, 3);
        let most = self.iconst(u64::from(width / 8));
        self.b.ins().umin(bytes, most)
    }

    /// Runs `body` for code where a header is valid.
    fn if_valid(&mut self, header: HeaderId, body: impl FnOnce(&mut Self)) {
        let valid = self.read_flag(self.facts.headers[header.index()].valid);
        match self.as_constant(valid) {
            Some(0) => return,
            Some(_) => return body(self),
            None => {}
        }
        let (then, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(valid, then, &[], done, &[]);
        self.b.seal_block(then);
        self.b.switch_to_block(then);
        body(self);
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    /// Stores the bytes of a header at `at` that may be modified.
    fn store_modified(&mut self, header: HeaderId, mut at: At, varbits: bool) {
        for segment in &self.facts.headers[header.index()].segments {
            match segment {
                Segment::Fixed { bytes, fields } => {
                    for (is_dirty, from, to) in runs(&self.dirty_bytes_of(*bytes, fields)) {
                        if is_dirty {
                            self.store_fields(self.flags.packet, fields, from, to, at.plus(from));
                        }
                    }
                    at = at.plus(*bytes);
                }
                Segment::Var { slot, length, width } => {
                    let bytes = self.varbit_bytes(*length, *width);
                    if varbits && self.flow.is_dirty(self.facts, &self.facts_now, *slot) {
                        self.store_varbit(self.flags.packet, &Operand::Slot(*slot), bytes, at);
                    }
                    at = At { base: self.b.ins().iadd(at.base, bytes), ..at };
                }
                Segment::Odd { .. } => unreachable!("such a header is emitted to the buffer"),
            }
        }
    }

    /// Stores the bytes `from..to` of a fixed segment from its fields' slots.
    fn store_fields(&mut self, flags: MemFlagsData, fields: &[FieldAt], from: u32, to: u32, at: At) {
        if let Some((pieces, origin)) = self.pieces_of(fields, from, to) {
            self.store_pieces(flags, &pieces, origin, from, to, at);
        }
    }

    /// The fields of a fixed segment that have bits in the bytes `from..to`, and the first one's bit offset.
    fn pieces_of(&mut self, fields: &[FieldAt], from: u32, to: u32) -> Option<(Vec<Piece>, u32)> {
        let touched = |f: &&FieldAt| f.first_byte() < to && f.end_byte() > from;
        let first = fields.iter().find(touched)?;
        let piece = |f: &FieldAt| Piece { words: self.read_words(&Operand::Slot(f.slot)), width: f.width };
        Some((fields.iter().filter(touched).map(piece).collect(), first.bit))
    }

    /// The buffer for emitted headers, large enough for every deparser of the entry point.
    fn buffer(&mut self) -> StackSlot {
        if let Some(buffer) = self.emit_buffer {
            return buffer;
        }
        let bytes = self.flow.deparsers.iter().map(|d| d.buffer_bytes).max().unwrap_or(0);
        let buffer = self.stack_slot(bytes.max(8));
        *self.emit_buffer.insert(buffer)
    }

    /// Appends a header to the buffer if it is valid.
    fn emit_to_buffer(&mut self, header: HeaderId) {
        self.if_valid(header, |t| {
            let layout = &t.facts.headers[header.index()];
            if t.flow.deparser(t.position).is_some_and(|d| d.may_overflow) {
                let size = t.emitted_size(header);
                let emitted = t.b.use_var(t.vars.emitted);
                let end = t.b.ins().iadd(emitted, size);
                t.check_emitted(end);
            }
            let buffer = t.buffer();
            let start = t.stack_addr(buffer);
            let emitted = t.b.use_var(t.vars.emitted);
            let mut to = At { base: t.b.ins().iadd(start, emitted), offset: 0 };
            let mut from = t.extracted_at(header);
            let mut size = t.add_imm(emitted, u64::from(layout.fixed_bytes));
            for segment in &layout.segments {
                match segment {
                    Segment::Fixed { bytes, fields } => {
                        for (is_dirty, first, end) in runs(&t.dirty_bytes_of(*bytes, fields)) {
                            if is_dirty {
                                t.store_fields(t.flags.stack, fields, first, end, to.plus(first));
                            } else {
                                t.copy_to_stack(from.plus(first), to.plus(first), end - first);
                            }
                        }
                        from = from.plus(*bytes);
                        to = to.plus(*bytes);
                    }
                    Segment::Var { slot, length, width } => {
                        let bytes = t.varbit_bytes(*length, *width);
                        if t.flow.is_dirty(t.facts, &t.facts_now, *slot) {
                            t.store_varbit(t.flags.stack, &Operand::Slot(*slot), bytes, to);
                        } else {
                            t.copy_bytes_to_stack(from, to, bytes);
                        }
                        from = At { base: t.b.ins().iadd(from.base, bytes), ..from };
                        to = At { base: t.b.ins().iadd(to.base, bytes), ..to };
                        size = t.b.ins().iadd(size, bytes);
                    }
                    Segment::Odd { before, slot, length, width, after } => {
                        let bytes = t.store_odd(before, (*slot, *length, *width), after, to);
                        size = t.b.ins().iadd(emitted, bytes);
                    }
                }
            }
            t.b.def_var(t.vars.emitted, size);
        });
    }

    /// Ends packets with `NoRoom` unless `total` emitted bytes fit into the buffer.
    fn check_emitted(&mut self, total: Value) {
        let (fits, refuse) = (self.b.create_block(), self.b.create_block());
        let over = self.icmp_imm(IntCC::UnsignedGreaterThan, total, ir::EMITTED_BYTES_MAX.into());
        self.b.ins().brif(over, refuse, &[], fits, &[]);
        self.b.seal_block(fits);
        self.b.seal_block(refuse);
        self.b.set_cold_block(refuse);
        self.b.switch_to_block(refuse);
        self.finish(FateCode::NoRoom, 0);
        self.b.switch_to_block(fits);
    }

    /// Stores a header whose varbit (value, length, width) does not begin at a byte boundary, padded with zero bits to
    /// a whole byte. Returns its number of bytes.
    fn store_odd(&mut self, before: &[FieldAt], var: (SlotId, SlotId, u32), after: &[FieldAt], to: At) -> Value {
        let (slot, length, width) = var;
        let field = |f: &FieldAt| Operand::Slot(f.slot);
        let operands: Vec<Operand> =
            before.iter().map(field).chain([Operand::Slot(slot)]).chain(after.iter().map(field)).collect();
        let pieces = self.pieces(&operands);
        let bits = bits_of(before) + width + bits_of(after);
        let (from, bits) = self.pack_varbits(&pieces, &[(before.len() as u32, length)], bits);
        let bits = self.b.ins().uextend(I64, bits);
        let bits = self.add_imm(bits, 7);
        let bytes = self.b.ins().ushr_imm_u(bits, 3);
        let to = self.add_imm(to.base, u64::from(to.offset));
        let stack = self.flags.stack;
        self.byte_loop(bytes, &mut |t, i| {
            let (from, to) = (t.b.ins().iadd(from, i), t.b.ins().iadd(to, i));
            let byte = t.b.ins().load(I8, stack, from, 0);
            t.b.ins().store(stack, byte, to, 0);
        });
        bytes
    }

    /// Copies a constant number of bytes from the packet to the stack.
    fn copy_to_stack(&mut self, from: At, to: At, bytes: u32) {
        let mut i = 0;
        while i < bytes {
            let (ty, size) = match bytes - i {
                16.. => (I8X16, 16),
                8.. => (I64, 8),
                4.. => (I32, 4),
                2.. => (I16, 2),
                _ => (I8, 1),
            };
            let v = self.b.ins().load(ty, self.flags.packet, from.base, (from.offset + i) as i32);
            self.b.ins().store(self.flags.stack, v, to.base, (to.offset + i) as i32);
            i += size;
        }
    }

    fn copy_bytes_to_stack(&mut self, from: At, to: At, bytes: Value) {
        let from = self.add_imm(from.base, u64::from(from.offset));
        let to = self.add_imm(to.base, u64::from(to.offset));
        let (packet, stack) = (self.flags.packet, self.flags.stack);
        self.byte_loop(bytes, &mut |t, i| {
            let (from, to) = (t.b.ins().iadd(from, i), t.b.ins().iadd(to, i));
            let byte = t.b.ins().load(I8, packet, from, 0);
            t.b.ins().store(stack, byte, to, 0);
        });
    }

    /// Stores the low `bytes` bytes of a varbit's value in network order.
    fn store_varbit(&mut self, flags: MemFlagsData, value: &Operand, bytes: Value, to: At) {
        let words = self.read_words(value);
        let [scratch, ..] = self.wide_scratch(8 * words.len() as u32);
        let scratch = self.stack_addr(scratch);
        self.store_words(self.flags.stack, &words, scratch, 0);
        let to = self.add_imm(to.base, u64::from(to.offset));
        let stack = self.flags.stack;
        self.byte_loop(bytes, &mut |t, i| {
            let last = t.b.ins().isub(bytes, i);
            let from = t.b.ins().iadd(scratch, last);
            let byte = t.b.ins().load(I8, stack, from, -1);
            let to = t.b.ins().iadd(to, i);
            t.b.ins().store(flags, byte, to, 0);
        });
    }

    /// Makes sure that `total` bytes fit before the payload. Returns the frame's new first byte and by how many bytes
    /// the frame grows; the frame itself is still unchanged.
    fn reserve_headroom(&mut self, total: Value) -> (Value, Value) {
        if self.flow.deparser(self.position).is_some_and(|d| d.may_overflow) {
            self.check_emitted(total);
        }
        let cursor = self.b.use_var(self.vars.cursor);
        let grow = self.b.ins().isub(total, cursor);
        self.ensure_headroom(grow, |t| {
            let headroom = t.load_desc32(offset_of!(PacketDesc, headroom));
            t.icmp(IntCC::SignedLessThanOrEqual, grow, headroom)
        });
        let old = self.b.use_var(self.vars.data);
        (self.b.ins().isub(old, grow), grow)
    }

    /// Whether the frame can grow by so many bytes at its start.
    fn has_headroom(&mut self, grow: i64) -> Value {
        let both = self.len_and_headroom();
        self.icmp_imm(IntCC::UnsignedGreaterThanOrEqual, both, (grow as u64) << 32)
    }

    /// The frame's length in the low half, the headroom before it in the high half.
    fn len_and_headroom(&mut self) -> Value {
        const {
            assert!(
                offset_of!(PacketDesc, headroom) == offset_of!(PacketDesc, len) + 4 && cfg!(target_endian = "little")
            )
        };
        self.b.ins().load(I64, self.flags.desc, self.packet, offset_of!(PacketDesc, len) as i32)
    }

    /// Makes sure that the frame can grow by `grow` bytes at its start, if `is_enough` says it cannot yet. Afterwards
    /// `data` and pointers into the packet may have changed.
    fn ensure_headroom(&mut self, grow: Value, is_enough: impl FnOnce(&mut Self) -> Value) {
        let (make, moved, refuse, place) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block(), self.b.create_block());
        let enough = is_enough(self);
        self.b.ins().brif(enough, place, &[], make, &[]);
        self.b.seal_block(make);
        self.b.set_cold_block(make);
        self.b.switch_to_block(make);
        let need = self.b.ins().ireduce(I32, grow);
        let packet = self.reload_packet();
        let ctx = self.context();
        let done = self
            .call_on_cold_path(self.runtime.make_headroom as usize, &[ctx, packet, need], Some(I8))
            .expect("the call has a result");
        self.b.ins().brif(done, moved, &[], refuse, &[]);
        self.b.seal_block(moved);
        self.b.seal_block(refuse);
        self.b.set_cold_block(moved);
        self.b.set_cold_block(refuse);
        self.b.switch_to_block(refuse);
        self.finish(FateCode::NoRoom, 0);
        self.b.switch_to_block(moved);
        let old = self.b.use_var(self.vars.data);
        let data = self.b.ins().load(I64, self.flags.desc, self.packet, offset_of!(PacketDesc, data) as i32);
        self.b.def_var(self.vars.data, data);
        let distance = self.b.ins().isub(data, old);
        let zeros = self.zeros();
        for place in self.header_pointers.clone().into_iter().flatten() {
            let pointer = self.read_pointer(place);
            let is_invalid = self.icmp(IntCC::Equal, pointer, zeros);
            let there = self.b.ins().iadd(pointer, distance);
            let pointer = self.b.ins().select(is_invalid, zeros, there);
            self.write_pointer(place, pointer);
        }
        self.b.ins().jump(place, &[]);
        self.b.seal_block(place);
        self.b.switch_to_block(place);
    }

    /// As [`Self::move_start`], for a constant growth: one addition changes both the frame's length and its headroom.
    fn move_start_by(&mut self, data: Value, grow: i64, total: Value) {
        let both = self.len_and_headroom();
        let both = self.add_imm(both, (grow as u64).wrapping_sub((grow as u64) << 32));
        self.b.ins().store(self.flags.desc, both, self.packet, offset_of!(PacketDesc, len) as i32);
        self.b.ins().store(self.flags.desc, data, self.packet, offset_of!(PacketDesc, data) as i32);
        let len = self.b.use_var(self.vars.len);
        let len = self.add_imm(len, grow as u64);
        self.b.def_var(self.vars.data, data);
        self.b.def_var(self.vars.len, len);
        self.b.def_var(self.vars.cursor, total);
    }

    /// Makes `data` the frame's first byte, after which `total` bytes have been emitted.
    fn move_start(&mut self, data: Value, grow: Value, total: Value) {
        let len = self.b.use_var(self.vars.len);
        let len = self.b.ins().iadd(len, grow);
        let headroom = self.load_desc32(offset_of!(PacketDesc, headroom));
        let headroom = self.b.ins().isub(headroom, grow);
        self.b.ins().store(self.flags.desc, data, self.packet, offset_of!(PacketDesc, data) as i32);
        self.store_desc32(len, offset_of!(PacketDesc, len));
        self.store_desc32(headroom, offset_of!(PacketDesc, headroom));
        self.b.def_var(self.vars.data, data);
        self.b.def_var(self.vars.len, len);
        self.b.def_var(self.vars.cursor, total);
    }

    /// Copies `n` bytes from the stack to the packet in chunks of sixteen, eight or four bytes, the last of which
    /// overlaps the one before.
    fn copy_buffer(&mut self, from: Value, to: Value, n: Value) {
        let done = self.b.create_block();
        for (ty, size) in [(I8X16, 16), (I64, 8), (I32, 4)] {
            let (wide, narrower) = (self.b.create_block(), self.b.create_block());
            let fits = self.icmp_imm(IntCC::UnsignedGreaterThanOrEqual, n, size);
            self.b.ins().brif(fits, wide, &[], narrower, &[]);
            self.b.seal_block(wide);
            self.b.seal_block(narrower);
            self.b.switch_to_block(wide);
            let tail = self.add_imm(n, size.wrapping_neg());
            if size == 16 {
                let (head, inside, out) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                let i = self.b.append_block_param(head, I64);
                let zero = self.iconst(0);
                self.b.ins().jump(head, &[zero.into()]);
                self.b.switch_to_block(head);
                let over = self.icmp(IntCC::UnsignedGreaterThanOrEqual, i, tail);
                self.b.ins().brif(over, out, &[], inside, &[]);
                self.b.seal_block(inside);
                self.b.seal_block(out);
                self.b.switch_to_block(inside);
                self.copy_chunk(ty, from, to, i);
                let next = self.add_imm(i, size);
                self.b.ins().jump(head, &[next.into()]);
                self.b.seal_block(head);
                self.b.switch_to_block(out);
            } else {
                let zero = self.iconst(0);
                self.copy_chunk(ty, from, to, zero);
            }
            self.copy_chunk(ty, from, to, tail);
            self.b.ins().jump(done, &[]);
            self.b.switch_to_block(narrower);
        }
        self.byte_loop(n, &mut |t, i| t.copy_chunk(I8, from, to, i));
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    fn copy_chunk(&mut self, ty: Type, from: Value, to: Value, at: Value) {
        let (from, to) = (self.b.ins().iadd(from, at), self.b.ins().iadd(to, at));
        let v = self.b.ins().load(ty, self.flags.stack, from, 0);
        self.b.ins().store(self.flags.packet, v, to, 0);
    }

    /// Truncates the frame, if the stage has a `Truncate`.
    fn cut(&mut self) {
        let stage = &self.program.stages[self.entry.stages[self.position].index()];
        let truncates = stage.blocks.iter().flat_map(|b| &b.insts).any(|i| matches!(i.op, Op::Truncate { .. }));
        if !truncates {
            return;
        }
        let len = self.b.use_var(self.vars.len);
        let most = self.b.use_var(self.vars.truncate);
        let short = self.b.ins().umin(len, most);
        let cut = self.b.ins().isub(len, short);
        let tailroom = self.load_desc32(offset_of!(PacketDesc, tailroom));
        let tailroom = self.b.ins().iadd(tailroom, cut);
        self.store_desc32(short, offset_of!(PacketDesc, len));
        self.store_desc32(tailroom, offset_of!(PacketDesc, tailroom));
        self.b.def_var(self.vars.len, short);
        // The emitted headers may be truncated too; the cursor must not be beyond the frame's end.
        let cursor = self.b.use_var(self.vars.cursor);
        let cursor = self.b.ins().umin(cursor, short);
        self.b.def_var(self.vars.cursor, cursor);
    }
}
