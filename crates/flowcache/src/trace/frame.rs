//! Parsing and deparsing of the symbolic frame.

use super::run::Run;
use super::tables::Bytes;
use super::value::Value;
use ir::HeaderId;

impl Run<'_> {
    /// Length of the current frame in bytes.
    pub(super) fn length(&self) -> u32 {
        let whole = self.packet.head_bytes() + self.frame.len() as u32 - self.packet.from;
        whole.min(self.packet.limit.unwrap_or(u32::MAX))
    }

    /// Begins an entry, whose counters count the frame's present length.
    pub(super) fn enter(&mut self) {
        let plus = self.packet.head_bytes() as i32 - self.packet.from as i32;
        self.entered = Bytes::Received { plus, at_most: self.packet.limit.unwrap_or(u32::MAX) };
    }

    /// Whether `bits` bits are left. Consults the frame's length.
    pub(super) fn has_bits(&mut self, bits: u64) -> bool {
        let needed = (self.packet.cursor / 8).saturating_add(bits.div_ceil(8));
        let head = self.packet.head_bytes();
        if self.packet.limit.is_some_and(|limit| needed > limit.into()) {
            return false;
        }
        if needed <= head.into() {
            return true;
        }
        let needed = needed - u64::from(head) + u64::from(self.packet.from);
        let Ok(needed) = u32::try_from(needed) else { return false };
        let is_there = needed as usize <= self.frame.len();
        if is_there {
            self.shortest = self.shortest.max(needed);
        } else {
            self.longest = self.longest.min(needed - 1);
        }
        is_there
    }

    /// Bits of the current frame, starting `offset` bits after the cursor.
    pub(super) fn peek(&mut self, offset: u64, width: u32) -> Value {
        if width == 0 {
            return Value::empty();
        }
        let start = self.packet.cursor + offset;
        let end = start + u64::from(width);
        if end.div_ceil(8) > self.length().into() {
            self.fail(|| "it reads behind the frame's end".to_string());
            return Value::constant(width, 0);
        }
        let (start, end, head) = (start as u32, end as u32, self.packet.head.width());
        let mut all = Value::empty();
        if start < head {
            let to = end.min(head);
            all.append(&self.packet.head.slice(head - to, to - start));
        }
        if end > head {
            let from = start.max(head);
            all.append(&self.received(self.packet.from * 8 + from - head, end - from));
        }
        all
    }

    pub(super) fn extract(&mut self, header: HeaderId, varbit: u64) {
        let cx = self.cx;
        let header = &cx.program.headers[header.index()];
        let mut offset = 0;
        for field in &header.fields {
            let width = cx.program.width(field.slot);
            let bits = if field.varbit_length.is_some() { varbit } else { width.into() };
            if bits > width.into() {
                return self.fail(|| format!("`{}` has no room for {bits} bits", header.name));
            }
            self.slots[field.slot.index()] = self.peek(offset, bits as u32).resize(width);
            offset += bits;
            if let Some(length) = field.varbit_length {
                self.slots[length.index()] = Value::constant(32, bits);
            }
        }
        self.packet.cursor += offset;
        self.slots[header.valid.index()] = Value::constant(1, 1);
    }

    pub(super) fn emit(&mut self, header: HeaderId) {
        let cx = self.cx;
        let header = &cx.program.headers[header.index()];
        let valid = self.slots[header.valid.index()].clone();
        self.consult_value(&valid);
        if !valid.is_true() {
            return;
        }
        let mut bits = 0;
        for field in &header.fields {
            let value = self.slots[field.slot.index()].clone();
            let width = match field.varbit_length {
                Some(length) => {
                    let length = self.slots[length.index()].clone();
                    self.consult_value(&length);
                    (length.number() as u32).min(value.width())
                }
                None => value.width(),
            };
            self.packet.out.append(&value.slice(0, width));
            bits += width;
        }
        self.packet.out.push_zeros(bits.next_multiple_of(8) - bits);
        if self.packet.out.width() / 8 > ir::EMITTED_BYTES_MAX {
            self.fail(|| "it emits more than a deparser may".to_string());
        }
    }

    /// Ends a deparser: its output and the payload become the frame.
    pub(super) fn deparse(&mut self) {
        let packet = &mut self.packet;
        let mut head = std::mem::take(&mut packet.out);
        let emitted = head.width() / 8;
        let (consumed, before) = ((packet.cursor / 8) as u32, packet.head_bytes());
        if consumed < before {
            let left = packet.head.slice(0, (before - consumed) * 8);
            head.append(&left);
        } else {
            packet.from += consumed - before;
        }
        // Truncated bytes are not part of the payload.
        let cut = packet.limit.map(|limit| emitted + limit.saturating_sub(consumed));
        let asked = packet.truncate.take().map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        packet.limit = cut.into_iter().chain(asked).min();
        if let Some(limit) = packet.limit
            && limit < head.width() / 8
        {
            head = head.slice(head.width() - limit * 8, limit * 8);
        }
        packet.head = head;
        packet.is_rewritten = true;
        let length = self.length();
        self.packet.cursor = u64::from(emitted.min(length)) * 8;
    }
}
