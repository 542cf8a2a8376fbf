//! A pass of a trace: the slots, the consulted bits, and operations for a flow processor between the two entries.

use super::context::{BLOCKS_MAX, Context, Known};
use super::nodes::{Kind, Nodes};
use super::outcome::Untraceable;
use super::packet::Packet;
use super::tables::{Bytes, Counted, Looked, Tables};
use super::value::{Origin, Part, Value, low};
use crate::path::WINDOW;
use base::Bits;
use base::ids::{SlotId, StageId, TableId};
use ir::layout::words_of;
use ir::{BinOp, UnOp};
use std::cmp::Ordering;
use std::rc::Rc;

/// The action to assume for a table while a single action is run.
pub(super) struct Chosen {
    pub table: TableId,
    pub action: u32,
}

/// A pass over the program. Flow processors use it to read and write the record, in the words of `ir::layout`.
pub struct Run<'t> {
    pub(super) cx: &'t Context,
    pub(super) frame: &'t [u8],
    /// What earlier passes found to be the same for all frames of the path.
    pub(super) known: &'t Known,
    /// The same, extended by what this pass consults.
    pub(super) consulted: Known,
    pub(super) slots: Vec<Value>,
    pub(super) nodes: Nodes,
    /// By node: bits that have been consulted.
    walked: Vec<u64>,
    pub(super) packet: Packet,
    pub(super) shortest: u32,
    pub(super) longest: u32,
    /// Arguments of the actions that lookups chose; a data handle is an index here plus one.
    pub(super) matched: Vec<Rc<[Bits]>>,
    pub(super) chosen: Option<Chosen>,
    pub(super) tables: Option<&'t mut dyn Tables>,
    pub(super) counted: Vec<Counted>,
    pub(super) lookups: Vec<Looked>,
    /// Length of the frame when the current entry began.
    pub(super) entered: Bytes,
    pub(super) blocks_left: u32,
    pub(super) steps_left: u64,
    saved: Vec<Vec<(u32, Value)>>,
    failure: Option<Untraceable>,
}

impl<'t> Run<'t> {
    pub(super) fn new(
        cx: &'t Context,
        frame: &'t [u8],
        known: &'t Known,
        tables: Option<&'t mut dyn Tables>,
    ) -> Run<'t> {
        let length = frame.len() as u32;
        Run {
            cx,
            frame,
            known,
            consulted: known.clone(),
            slots: cx.zeros.clone(),
            nodes: Nodes::default(),
            walked: Vec::new(),
            packet: Packet::default(),
            shortest: if known.length { length } else { 0 },
            longest: if known.length { length } else { u32::MAX },
            matched: Vec::new(),
            chosen: None,
            tables,
            counted: Vec::new(),
            lookups: Vec::new(),
            entered: Bytes::Received { plus: 0, at_most: u32::MAX },
            blocks_left: BLOCKS_MAX,
            steps_left: ir::STEPS_MAX,
            saved: Vec::new(),
            failure: None,
        }
    }

    /// Records why the run fails; the first reason is kept.
    pub(super) fn fail(&mut self, why: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(Untraceable(why()));
        }
    }

    /// Fails if [`fail`](Run::fail) was called.
    pub(super) fn check(&self) -> Result<(), Untraceable> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn refuse_volatile<const N: usize>(&mut self, values: [&Value; N]) {
        for value in values {
            for part in value.parts() {
                if let Origin::Volatile(name) = part.origin {
                    self.fail(|| format!("it reads `{name}`, which differs from packet to packet"));
                }
            }
        }
    }
}

// Consulting.
impl Run<'_> {
    /// Consults all bits of a value.
    pub(super) fn consult_value(&mut self, value: &Value) {
        for part in value.parts() {
            self.consult_part(part, u64::MAX);
        }
    }

    /// Consults bits of a value of at most 64 bits.
    fn consult_bits(&mut self, value: &Value, needed: u64) {
        let mut below = value.width();
        for part in value.parts() {
            below -= part.width;
            self.consult_part(part, needed.checked_shr(below).unwrap_or(0));
        }
    }

    pub(super) fn consult_part(&mut self, part: &Part, needed: u64) {
        let needed = needed & low(part.width);
        if needed == 0 {
            return;
        }
        match part.origin {
            Origin::Const => {}
            Origin::Frame(bit) => self.consult_frame(bit, part.width, needed),
            Origin::Node { node, lo } => self.consult_node(node, needed << lo),
            Origin::Length { .. } => {
                self.consulted.length = true;
                (self.shortest, self.longest) = (self.frame.len() as u32, self.frame.len() as u32);
            }
            Origin::Volatile(_) => self.refuse_volatile([&Value::from_part(*part)]),
        }
    }

    fn consult_frame(&mut self, bit: u32, width: u32, needed: u64) {
        for i in 0..width {
            if needed >> (width - 1 - i) & 1 == 1 {
                let at = bit + i;
                match self.consulted.mask.get_mut(at as usize / 8) {
                    Some(byte) => *byte |= 0x80 >> (at % 8),
                    None => {
                        return self.fail(|| format!("byte {} of the frame decides, which is too far behind", at / 8));
                    }
                }
            }
        }
    }

    /// Consults bits of a node's value: the bits of its operands that determine them.
    fn consult_node(&mut self, node: u32, needed: u64) {
        if self.walked.len() <= node as usize {
            self.walked.resize(node as usize + 1, 0);
        }
        let needed = needed & !self.walked[node as usize];
        if needed == 0 {
            return;
        }
        self.walked[node as usize] |= needed;
        let node = self.nodes.get(node);
        // Carries go upwards, so lower bits are needed as well.
        let below = low(64 - needed.leading_zeros());
        match &node.kind {
            Kind::Binary { op, a, b } => {
                let (x, y) = (a.concrete(), b.concrete());
                match op {
                    // A 0 alone decides a conjunction, a 1 a disjunction.
                    BinOp::And => {
                        self.consult_bits(a, needed & (!x | y));
                        self.consult_bits(b, needed & x);
                    }
                    BinOp::Or => {
                        self.consult_bits(a, needed & (x | !y));
                        self.consult_bits(b, needed & !x);
                    }
                    BinOp::Xor => [a, b].into_iter().for_each(|value| self.consult_bits(value, needed)),
                    BinOp::Add | BinOp::Sub | BinOp::Mul => {
                        [a, b].into_iter().for_each(|value| self.consult_bits(value, below));
                    }
                    _ if op.is_comparison() && self.consult_length(*op, a, b) => {}
                    BinOp::Ult | BinOp::Ule | BinOp::Slt | BinOp::Sle => self.consult_order(a, b),
                    // A value other than 0 has a 1 bit that suffices. (Other unequal values are consulted wholly,
                    // which makes fewer masks.)
                    BinOp::Eq | BinOp::Ne if x != y && (a.is_const() && x == 0 || b.is_const() && y == 0) => {
                        let top = 1 << (63 - (x | y).leading_zeros());
                        [a, b].into_iter().for_each(|value| self.consult_bits(value, top));
                    }
                    _ => [a, b].into_iter().for_each(|value| self.consult_value(value)),
                }
            }
            Kind::Unary { op: UnOp::Not, a } => self.consult_bits(a, needed),
            Kind::Unary { op: UnOp::Neg, a } => self.consult_bits(a, below),
            Kind::Select { cond, then, other } => {
                self.consult_value(cond);
                self.consult_bits(if cond.is_true() { then } else { other }, needed);
            }
            Kind::Sum { data } => self.consult_value(data),
        }
    }

    /// Consults a comparison of the frame's length with a constant: restricts lengths to the same side of the
    /// constant. `false` if the operands are others.
    fn consult_length(&mut self, op: BinOp, a: &Value, b: &Value) -> bool {
        let is_length =
            |value: &Value| matches!(value.parts(), [Part { origin: Origin::Length { lo: 0 }, width: 32, .. }]);
        let constant = match (is_length(a), is_length(b)) {
            (true, false) if b.is_const() => b.concrete(),
            (false, true) if a.is_const() => a.concrete(),
            _ => return false,
        };
        let Ok(constant @ 0..0x8000_0000) = u32::try_from(constant) else { return false };
        let length = self.frame.len() as u32;
        if matches!(op, BinOp::Eq | BinOp::Ne) {
            match length.cmp(&constant) {
                Ordering::Less => self.longest = self.longest.min(constant - 1),
                Ordering::Greater => self.shortest = self.shortest.max(constant + 1),
                Ordering::Equal => return false,
            }
            return true;
        }
        // The smallest length on the larger side.
        let larger = if matches!(op, BinOp::Ule | BinOp::Sle) == is_length(a) { constant + 1 } else { constant };
        if length >= larger {
            self.shortest = self.shortest.max(larger);
        } else {
            self.longest = self.longest.min(larger - 1);
        }
        true
    }

    /// Consults the order of two values, signed or unsigned: their bits down to the first that differ.
    pub(super) fn consult_order(&mut self, a: &Value, b: &Value) {
        for (p, q) in a.zip(b) {
            let differ = p.value ^ q.value;
            let needed = if differ == 0 { u64::MAX } else { !(low(64 - differ.leading_zeros()) >> 1) };
            self.consult_part(&p, needed);
            self.consult_part(&q, needed);
            if differ != 0 {
                return;
            }
        }
    }
}

// The record, for flow processors.
impl Run<'_> {
    /// The record's words for the traced frame.
    pub fn record(&self) -> Vec<u64> {
        let layout = &self.cx.layout;
        let mut record = vec![0; layout.words()];
        for (i, value) in self.slots.iter().enumerate() {
            let at = layout.offset(SlotId::from_index(i));
            for (k, word) in record[at..at + words_of(value.width()) as usize].iter_mut().enumerate() {
                let lo = 64 * k as u32;
                *word = value.slice(lo, (value.width() - lo).min(64)).concrete();
            }
        }
        record
    }

    /// The slot that contains a word, the position of the word's lowest bit in it, and the word's width.
    fn place(&self, word: u32) -> (usize, u32, u32) {
        let (slot, lo) = self.cx.words[word as usize];
        (slot as usize, lo, (self.slots[slot as usize].width() - lo).min(64))
    }

    pub(super) fn word(&self, word: u32) -> Value {
        let (slot, lo, width) = self.place(word);
        self.slots[slot].slice(lo, width)
    }

    fn set_word(&mut self, word: u32, shift: u32, bits: &Value) {
        let (slot, lo, width) = self.place(word);
        let Some(room) = width.checked_sub(shift) else { return };
        let bits = bits.resize(bits.width().min(room));
        self.slots[slot] = self.slots[slot].set_slice(lo + shift, &bits);
    }

    /// Consults bits of a word. Returns their values, with zeros elsewhere.
    ///
    /// # Panics
    /// If there is no such word. Other functions on words panic likewise.
    pub fn consult(&mut self, word: u32, mask: u64) -> u64 {
        let value = self.word(word);
        self.consult_bits(&value, mask);
        value.concrete() & mask
    }

    /// Writes the bits of a word under a mask.
    pub fn write(&mut self, word: u32, mask: u64, value: u64) {
        let mut shift = 0;
        while shift < 64 && mask >> shift != 0 {
            shift += (mask >> shift).trailing_zeros();
            let run = (mask >> shift).trailing_ones();
            self.set_word(word, shift, &Value::constant(run, value >> shift));
            shift += run;
        }
    }

    /// Copies bits. Pieces are (word, lowest bit, width), the least significant one first. Writes at most as many
    /// bits as are read.
    pub fn copy(&mut self, from: &[(u32, u32, u32)], to: &[(u32, u32, u32)]) {
        let mut bits = Value::empty();
        for (word, shift, width) in from.iter().rev() {
            let value = self.word(*word);
            bits.append(&value.resize((shift + width).max(value.width())).slice(*shift, *width));
        }
        let mut at = 0;
        for (word, shift, width) in to {
            let width = (*width).min(bits.width() - at);
            self.set_word(*word, *shift, &bits.slice(at, width));
            at += width;
        }
    }

    /// Pushes these words onto a stack.
    pub fn save(&mut self, words: &[u32]) {
        let words = words.iter().map(|word| (*word, self.word(*word))).collect();
        self.saved.push(words);
    }

    /// Pops the words of the last [`save`](Run::save) and restores them.
    pub fn restore(&mut self) {
        for (word, value) in self.saved.pop().unwrap_or_default() {
            self.set_word(word, 0, &value);
        }
    }

    /// Runs a stage as if `table` had chosen `action` with these arguments; missing ones are 0.
    ///
    /// # Errors
    /// If the stage contains an operation that cannot be traced.
    pub fn run_action(
        &mut self,
        stage: StageId,
        table: TableId,
        action: u32,
        args: &[u128],
    ) -> Result<(), Untraceable> {
        let program = std::sync::Arc::clone(&self.cx.program);
        let of = program.tables.get(table.index()).and_then(|table| table.actions.get(action as usize));
        let Some(of) = of else { return Err(Untraceable(format!("there is no action {action} to run"))) };
        let params = program.actions[of.action.index()].params.iter().enumerate();
        let args = params.map(|(i, (_, width))| Bits::new(*width, args.get(i).copied().unwrap_or(0)));
        self.matched.push(args.collect());
        self.chosen = Some(Chosen { table, action });
        let done = self.stage(stage);
        self.chosen = None;
        done.map(|_| ())
    }
}

/// `width` bits of the frame starting at bit `bit`; bits after its end are zero.
pub(super) fn frame_bits(frame: &[u8], bit: u32, width: u32) -> u64 {
    let (first, last) = (bit / 8, (bit + width).div_ceil(8));
    let all = (first..last).fold(0u128, |all, at| all << 8 | u128::from(frame.get(at as usize).copied().unwrap_or(0)));
    (all >> (last * 8 - bit - width)) as u64 & low(width)
}

impl Run<'_> {
    /// Bits of the received frame, as constants where they are known.
    pub(super) fn received(&self, bit: u32, width: u32) -> Value {
        let mut all = Value::empty();
        let (mut at, end) = (bit, bit + width);
        while at < end {
            let width = (end - at).min(64);
            let (value, known) = (frame_bits(self.frame, at, width), frame_bits(&self.known.mask, at, width));
            let mut skip = 0;
            while skip < width {
                let rest = known << (64 - width) << skip;
                let is_known = rest >> 63 == 1;
                let run = if is_known { rest.leading_ones() } else { rest.leading_zeros() }.min(width - skip);
                let origin = if is_known { Origin::Const } else { Origin::Frame(at) };
                let part = Part { origin, width, value };
                let mut part = part.slice(skip, run);
                if !is_known {
                    part.origin = Origin::Frame(at + skip);
                }
                all.push(part);
                skip += run;
            }
            at += width;
        }
        all
    }

    /// Whether a bit of the received frame is known to be `value`.
    pub(super) fn is_known(&self, bit: u32, value: bool) -> bool {
        (bit as usize) < WINDOW * 8
            && frame_bits(&self.known.mask, bit, 1) == 1
            && frame_bits(self.frame, bit, 1) == u64::from(value)
    }
}
