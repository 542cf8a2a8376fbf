//! Writes a packet's record where the packet leaves an entry point's code and continues at another one.
//!
//! For the replication engine (`Fate::Replicate`) the record gets all slots that may be read later; for the next pass
//! through ingress (`Fate::Again`), those that are kept. Clean fields are loaded from the frame.
//!
//! Tests: `tests/packets.rs`, `tests/files.rs`; `datapath`'s `tests/again.rs`.

use crate::translate::Translator;
use crate::value::Val;
use abi::PacketDesc;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{Again, AtReingress, BitSet, HeaderId, Intrinsic, Operand, ReplicationPoint, SlotId};
use std::mem::offset_of;

impl Translator<'_, '_> {
    /// Fills the record: slots that the replication point spills, from variables; clean header fields, from the packet;
    /// zeros elsewhere.
    pub fn spill(&mut self, point: ReplicationPoint) {
        let (packet, record) = self.begin_record();
        let spilled = self.facts.spilled(point);
        for slot in (0..self.program.slots.len()).map(SlotId::from_index) {
            match spilled.contains(slot.index()) && !self.is_only_in_packet(slot) {
                true => self.spill_slot(slot, record),
                false => self.spill_word(slot, None, record),
            }
        }
        self.spill_fields(spilled, record);
        self.packet = packet;
    }

    /// Writes the slots that the next pass through ingress reads: those of a field list, intrinsics, and zeros.
    pub fn spill_for_reingress(&mut self, why: Again, list: Option<u64>) {
        let (packet, record) = self.begin_record();
        let values = self.program.at_reingress(why, list);
        for slot in self.facts.read_at_reingress.iter().map(SlotId::from_index) {
            let number = match values.get(&slot) {
                None => None,
                Some(AtReingress::Kept) => {
                    if !self.is_only_in_packet(slot) {
                        self.spill_slot(slot, record);
                    }
                    continue;
                }
                Some(AtReingress::IngressPort) => Some(self.intrinsic_at_ingress(Intrinsic::IngressPort)),
                Some(AtReingress::Timestamp) => Some(self.intrinsic_at_ingress(Intrinsic::IngressTimestamp)),
                Some(AtReingress::Length) => Some(self.load_desc32(offset_of!(PacketDesc, len))),
                Some(AtReingress::Number(number)) => Some(self.iconst(*number)),
            };
            self.spill_word(slot, number, record);
        }
        let mut kept = BitSet::new(self.program.slots.len());
        let slots = values.iter().filter(|(_, value)| **value == AtReingress::Kept).map(|(slot, _)| slot.index());
        slots.filter(|slot| self.facts.read_at_reingress.contains(*slot)).for_each(|slot| kept.insert(slot));
        self.spill_fields(&kept, record);
        self.packet = packet;
    }

    /// Returns the current descriptor, which the caller must restore, and the record.
    fn begin_record(&mut self) -> (Value, Value) {
        let packet = self.reload_packet();
        let packet = std::mem::replace(&mut self.packet, packet);
        let record = self.b.ins().load(I64, self.flags.origin, self.packet, offset_of!(PacketDesc, record) as i32);
        (packet, record)
    }

    /// Whether a field has no variable, like clean fields of headers with varbits.
    fn is_only_in_packet(&self, slot: SlotId) -> bool {
        self.facts.lazy_field(slot).is_none() && !self.flow.is_dirty(self.facts, &self.facts_now, slot)
    }

    fn spill_slot(&mut self, slot: SlotId, record: Value) {
        let val = match self.read_origin(slot) {
            Some(word) => Val::Word(word),
            None => self.read_slot(slot),
        };
        let words = self.words_of_val(&val);
        self.store_words(self.flags.desc, &words, record, 8 * self.record.offset(slot) as u32);
    }

    /// A number truncated to the slot's width, or zero.
    fn spill_word(&mut self, slot: SlotId, number: Option<Value>, record: Value) {
        let width = self.program.width(slot);
        let zero = self.iconst(0);
        let mut words = vec![zero; width.div_ceil(64) as usize];
        if let (Some(number), Some(first)) = (number, words.first_mut()) {
            *first = self.mask_word(number, width.min(64));
        }
        self.store_words(self.flags.desc, &words, record, 8 * self.record.offset(slot) as u32);
    }

    /// Copies those of these slots that only the frame holds, for valid headers.
    fn spill_fields(&mut self, spilled: &BitSet, record: Value) {
        for h in 0..self.program.headers.len() {
            let fields = &self.program.headers[h].fields;
            let is_there = |slot: SlotId| spilled.contains(slot.index()) && self.is_only_in_packet(slot);
            if !fields.iter().any(|f| is_there(f.slot)) {
                continue;
            }
            let header = HeaderId::from_index(h);
            let valid = self.read_flag(self.facts.headers[h].valid);
            let (load, done) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(valid, load, &[], done, &[]);
            self.b.seal_block(load);
            self.b.switch_to_block(load);
            let at = self.extracted_at(header);
            let var_bytes = self.facts.headers[h].var.map(|(_, length)| {
                let bits = self.read_word(&Operand::Slot(length));
                self.b.ins().ushr_imm_u(bits, 3)
            });
            self.load_header(header, at, var_bytes, &mut |t, slot, load| {
                if spilled.contains(slot.index()) && t.is_only_in_packet(slot) {
                    let val = load(t);
                    let words = t.words_of_val(&val);
                    t.store_words(t.flags.desc, &words, record, 8 * t.record.offset(slot) as u32);
                }
            });
            self.b.ins().jump(done, &[]);
            self.b.seal_block(done);
            self.b.switch_to_block(done);
        }
    }
}
