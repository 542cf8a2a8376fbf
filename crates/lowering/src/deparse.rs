//! The deparser: writes emitted headers in front of the payload.
//!
//! In a deparser without branches, emitted headers are recorded as values. When the deparser ends, room is made in
//! front of the payload and the headers are stored there directly; nothing more needs to be read from the frame. A
//! deparser with branches stores headers to a buffer as it runs, and the buffer is copied in front of the payload at
//! the end.
//!
//! The buffer holds everything that the deparser can emit, up to [`ir::EMITTED_BYTES_MAX`] bytes. A packet that emits
//! more is dropped with [`FateCode::NoRoom`], like a packet that outgrows its packet buffer.

use crate::build::{At, Buffer, Lowering};
use crate::emission::{Deparser, Emission, Emitted};
use crate::error::Error;
use crate::header::Segment;
use abi::{FateCode, PacketDesc};
use ir::{HeaderId, Operand, Stage, StageKind};
use mir::{Binary, Condition, Region, Regions, Value};
use std::mem::offset_of;

impl Lowering<'_> {
    pub fn enter_deparser(&mut self, stage: &Stage) {
        self.deparser = Deparser::new(stage, self.headers);
        let (zero, uncut) = (self.word(0), self.word(u64::MAX));
        self.write_var(self.vars.emitted, zero);
        self.write_var(self.vars.truncate, uncut);
    }

    pub fn truncate(&mut self, bytes: &Operand) {
        let bytes = self.read_saturated(bytes);
        self.write_var(self.vars.truncate, bytes);
    }

    pub fn emit(&mut self, header: HeaderId) -> Result<(), Error> {
        let valid = self.read_flag(self.headers[header.index()].valid);
        if self.deparser.is_straight {
            let emitted = self.emitted_header(header, valid)?;
            self.deparser.emitted.push(emitted);
            return Ok(());
        }
        let truth = self.truth(valid);
        self.if_true(truth, |l| {
            let emitted = l.emitted_header(header, valid)?;
            let before = l.read_var(l.vars.emitted);
            let behind = l.add(before, emitted.bytes);
            if l.deparser.may_overflow {
                l.refuse_above(behind);
            }
            let buffer = l.buffer(Buffer::Emitted, l.deparser.buffer_bytes);
            let to = l.add(buffer, before);
            l.store_header(Region::Stack.into(), &emitted, to);
            l.write_var(l.vars.emitted, behind);
            Ok(())
        })
    }

    /// The current values of a header, segment by segment.
    fn emitted_header(&mut self, header: HeaderId, valid: Value) -> Result<Emitted, Error> {
        let layout = &self.headers[header.index()];
        let mut bytes = self.word(layout.fixed_bytes.into());
        let mut segments = Vec::new();
        for segment in &layout.segments {
            segments.push(match segment {
                Segment::Fixed(bytes, fields) => {
                    let operands: Vec<Operand> = fields.iter().map(|field| field.slot.into()).collect();
                    Emission::Fixed(*bytes, self.pieces(&operands))
                }
                Segment::Var(varbit) => {
                    // Lengths should be whole bytes, but programs can set others; these are rounded up.
                    let (bits, most) = (self.read_flag(varbit.length), self.word(varbit.width.into()));
                    let bits = self.min(bits, most);
                    let up = self.add_imm(bits, 7);
                    let var_bytes = self.shr(up, 3);
                    bytes = self.add(bytes, var_bytes);
                    Emission::Var(self.read_words(&varbit.slot.into()), var_bytes)
                }
                Segment::Odd(before, varbit, after) => {
                    let fields = before.iter().map(|f| f.slot).chain([varbit.slot]).chain(after.iter().map(|f| f.slot));
                    let operands: Vec<Operand> = fields.map(Into::into).collect();
                    let (bits, most) = (self.read_flag(varbit.length), self.word(varbit.width.into()));
                    let bits = self.min(bits, most);
                    let bits = self.add_imm(bits, u64::from(8 * layout.fixed_bytes) + 7);
                    bytes = self.shr(bits, 3);
                    Emission::Odd(self.pieces(&operands), (before.len() as u32, varbit.length))
                }
            });
        }
        let (truth, zero) = (self.truth(valid), self.word(0));
        let bytes = self.select(truth, bytes, zero);
        Ok(Emitted { valid, segments, bytes })
    }

    /// Stores a header at an address.
    fn store_header(&mut self, regions: Regions, emitted: &Emitted, to: Value) {
        let mut at = At { base: to, offset: 0 };
        for segment in &emitted.segments {
            match segment {
                Emission::Fixed(bytes, pieces) => {
                    self.store_pieces(regions, pieces, at);
                    at = at.plus(*bytes);
                }
                Emission::Var(words, bytes) => {
                    let to = self.add_imm(at.base, at.offset.into());
                    self.store_varbit(regions, words, *bytes, to);
                    at = At { base: self.add(at.base, *bytes), ..at };
                }
                Emission::Odd(pieces, varbit) => {
                    let (from, _) = self.store_varbits(pieces, &[*varbit]);
                    self.copy_from_buffer(from, regions, at.base, emitted.bytes);
                }
            }
        }
    }

    /// Drops the packet ([`FateCode::NoRoom`]) if `total` exceeds [`ir::EMITTED_BYTES_MAX`].
    fn refuse_above(&mut self, total: Value) {
        let over = self.compare_imm(Condition::Ugt, total, ir::EMITTED_BYTES_MAX.into());
        self.branch_cold_if(over, |l| l.finish_packet(FateCode::NoRoom, 0));
    }

    /// Ends a stage. For a deparser, writes the headers in front of the payload.
    pub fn leave_stage(&mut self, kind: StageKind) -> Result<(), Error> {
        if kind != StageKind::Deparser {
            return Ok(());
        }
        let emitted = std::mem::take(&mut self.deparser.emitted);
        let mut total = self.read_var(self.vars.emitted);
        for header in &emitted {
            total = self.add(total, header.bytes);
        }
        let (data, grow) = self.make_room(total);
        if self.deparser.is_straight {
            let mut to = data;
            for header in &emitted {
                let truth = self.truth(header.valid);
                self.if_true(truth, |l| {
                    l.store_header(Region::Frame.into(), header, to);
                    Ok(())
                })?;
                to = self.add(to, header.bytes);
            }
        } else {
            let buffer = self.buffer(Buffer::Emitted, self.deparser.buffer_bytes);
            self.copy_from_buffer(buffer, Region::Frame.into(), data, total);
        }
        self.deparser.emitted = emitted;
        self.move_start(data, grow, total);
        if self.deparser.truncates {
            self.cut();
        }
        Ok(())
    }

    /// Makes room for `total` bytes in front of the payload. Returns the address of the frame's new first byte, and the
    /// number of bytes by which the frame grows.
    fn make_room(&mut self, total: Value) -> (Value, Value) {
        let cursor = self.read_var(self.vars.cursor);
        let grow = self.sub(total, cursor);
        let headroom = self.load_desc(offset_of!(PacketDesc, headroom), 4);
        let is_short = self.compare(Condition::Sgt, grow, headroom);
        let (make, enough) = (self.new_block(), self.new_block());
        self.end(mir::Terminator::Branch(is_short, mir::Edge::cold(make), mir::Edge::new(enough, Vec::new())));
        self.switch_to(make);
        let (need, id) = (self.half(grow), self.calls.make_headroom());
        let done = self.call(id, vec![self.ctx, self.packet, need]).expect("the call has a result");
        let refused = self.compare_imm(Condition::Eq, done, 0);
        self.branch_cold_if(refused, |l| l.finish_packet(FateCode::NoRoom, 0));
        let data = self.load_desc(offset_of!(PacketDesc, data), 8);
        self.write_var(self.vars.data, data);
        self.jump(enough, Vec::new());
        self.switch_to(enough);
        let old = self.read_var(self.vars.data);
        (self.sub(old, grow), grow)
    }

    /// Makes `data` the frame's first byte; the first `total` bytes are emitted headers.
    fn move_start(&mut self, data: Value, grow: Value, total: Value) {
        let len = self.read_var(self.vars.len);
        let len = self.add(len, grow);
        let headroom = self.load_desc(offset_of!(PacketDesc, headroom), 4);
        let headroom = self.sub(headroom, grow);
        self.store_desc(offset_of!(PacketDesc, data), 8, data);
        self.store_desc(offset_of!(PacketDesc, len), 4, len);
        self.store_desc(offset_of!(PacketDesc, headroom), 4, headroom);
        self.write_var(self.vars.data, data);
        self.write_var(self.vars.len, len);
        self.write_var(self.vars.cursor, total);
    }

    /// Truncates the frame to `truncate` bytes.
    fn cut(&mut self) {
        let (len, most) = (self.read_var(self.vars.len), self.read_var(self.vars.truncate));
        let short = self.min(len, most);
        let cut = self.sub(len, short);
        let tailroom = self.load_desc(offset_of!(PacketDesc, tailroom), 4);
        let tailroom = self.bin(Binary::Add, tailroom, cut);
        self.store_desc(offset_of!(PacketDesc, len), 4, short);
        self.store_desc(offset_of!(PacketDesc, tailroom), 4, tailroom);
        self.write_var(self.vars.len, short);
        // Truncation may cut emitted headers as well; only what remains of them counts as consumed.
        let cursor = self.read_var(self.vars.cursor);
        let cursor = self.min(cursor, short);
        self.write_var(self.vars.cursor, cursor);
    }
}
