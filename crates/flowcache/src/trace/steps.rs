//! Steps that compute nodes: each node once, after its operands. Adjacent bits of the frame are loaded together.

use super::nodes::{Kind, Mix, fold, ones_sum};
use super::run::Run;
use super::value::{Origin, Part, Value, low};
use crate::path::{Source, Step, WINDOW, Word};
use ir::BinOp;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// Number of registers of a rewrite.
const REGISTERS: usize = 256;

/// A list of steps under construction.
pub(super) struct Steps {
    list: Vec<Step>,
    next: usize,
    nodes: HashMap<u32, u8>,
    values: HashMap<Value, u8, BuildHasherDefault<Mix>>,
}

impl Steps {
    pub fn new() -> Steps {
        Steps { list: Vec::new(), next: 0, nodes: HashMap::new(), values: HashMap::default() }
    }

    pub fn push(&mut self, step: Step) {
        self.list.push(step);
    }

    /// Whether registers have run out; the steps are invalid then.
    pub fn are_too_many(&self) -> bool {
        self.next > REGISTERS
    }

    pub fn done(self) -> Box<[Step]> {
        self.list.into()
    }

    fn register(&mut self) -> u8 {
        self.next += 1;
        (self.next - 1) as u8
    }

    fn binary(&mut self, op: BinOp, a: Source, b: Source, width: u32) -> Source {
        let to = self.register();
        self.push(Step::Binary { op, to, a, b, width: width as u8 });
        Source::Register(to)
    }

    /// The operand for a value of at most 64 bits, computed by steps if needed.
    pub fn source(&mut self, run: &mut Run<'_>, value: &Value) -> Source {
        if value.is_const() {
            return Source::Const(value.concrete());
        }
        if let Some(register) = self.values.get(value) {
            return Source::Register(*register);
        }
        let source = self.compute(run, value);
        if let Source::Register(register) = source {
            self.values.insert(value.clone(), register);
        }
        source
    }

    fn compute(&mut self, run: &mut Run<'_>, value: &Value) -> Source {
        let parts = value.parts();
        if let Some(bit) = place(run, parts) {
            return self.load(run, bit, value.width());
        }
        if let [part] = parts
            && let Origin::Node { node, lo } = part.origin
        {
            return self.bits_of(run, node, lo, part.width);
        }
        // Combine the pieces one by one with shifts and ORs.
        let width = value.width();
        let (mut all, mut constant, mut below, mut i) = (None, 0, width, 0);
        while i < parts.len() {
            let mut end = i + 1;
            let piece = match parts[i].origin {
                // Values that no step can compute are consulted, and become constants.
                Origin::Const | Origin::Length { .. } | Origin::Volatile(_) => {
                    run.consult_value(&Value::from_part(parts[i]));
                    below -= parts[i].width;
                    constant |= parts[i].value << below;
                    i += 1;
                    continue;
                }
                Origin::Frame(_) => {
                    let mut to = end;
                    while to < parts.len() && place(run, &parts[i..to + 1]).is_some() {
                        to += 1;
                        if !parts[to - 1].is_const() {
                            end = to;
                        }
                    }
                    let mut piece = Value::empty();
                    parts[i..end].iter().for_each(|part| piece.push(*part));
                    piece
                }
                Origin::Node { .. } => Value::from_part(parts[i]),
            };
            below -= piece.width();
            i = end;
            let mut source = self.source(run, &piece);
            if below > 0 {
                source = self.binary(BinOp::Shl, source, Source::Const(below.into()), width);
            }
            all = Some(match all {
                None => source,
                Some(before) => self.binary(BinOp::Or, before, source, width),
            });
        }
        match all {
            Some(all) if constant != 0 => self.binary(BinOp::Or, all, Source::Const(constant), width),
            Some(all) => all,
            None => Source::Const(constant),
        }
    }

    fn load(&mut self, run: &mut Run<'_>, bit: u32, width: u32) -> Source {
        if (bit + width) as usize > WINDOW * 8 {
            run.fail(|| format!("it needs byte {} of the frame, which is too far behind", (bit + width) / 8));
        }
        let to = self.register();
        self.push(Step::Load { to, bit: bit as u16, width: width as u8 });
        Source::Register(to)
    }

    /// Extracts bits of a node's value.
    fn bits_of(&mut self, run: &mut Run<'_>, node: u32, lo: u32, width: u32) -> Source {
        let whole = run.nodes.get(node).width;
        let mut source = Source::Register(self.node(run, node));
        if lo > 0 {
            source = self.binary(BinOp::Lshr, source, Source::Const(lo.into()), whole);
        }
        if lo + width < whole {
            source = self.binary(BinOp::And, source, Source::Const(low(width)), whole);
        }
        source
    }

    fn node(&mut self, run: &mut Run<'_>, number: u32) -> u8 {
        if let Some(register) = self.nodes.get(&number) {
            return *register;
        }
        if self.are_too_many() {
            return 0;
        }
        let node = run.nodes.get(number);
        let step = match &node.kind {
            Kind::Binary { op, a, b } => {
                let width = a.width() as u8;
                let (a, b) = (self.source(run, a), self.source(run, b));
                Step::Binary { op: *op, to: self.register(), a, b, width }
            }
            Kind::Unary { op, a } => {
                let width = a.width() as u8;
                let a = self.source(run, a);
                Step::Unary { op: *op, to: self.register(), a, width }
            }
            Kind::Select { cond, then, other } => {
                let [cond, then, other] = [cond, then, other].map(|value| self.source(run, value));
                Step::Select { to: self.register(), cond, then, other }
            }
            Kind::Sum { data } => self.sum(run, data),
        };
        self.push(step);
        let register = (self.next - 1) as u8;
        self.nodes.insert(number, register);
        register
    }

    fn sum(&mut self, run: &mut Run<'_>, data: &Value) -> Step {
        let (mut masks, mut values, mut constant) = (Masks::default(), Vec::new(), 0);
        let mut below = data.width();
        for part in data.parts() {
            below -= part.width;
            let shift = below % 16;
            match part.origin {
                Origin::Const => {
                    let mut bits = Value::from_part(*part);
                    bits.push_zeros(shift);
                    constant += u64::from(ones_sum(&bits));
                }
                Origin::Frame(bit) if masks.add(bit, part.width, shift) => {}
                // In pieces that leave room for the shift.
                _ => {
                    let mut left = part.width;
                    while left > 0 {
                        let width = left.min(48);
                        let piece = Value::from_part(part.slice(left - width, width));
                        let mut source = self.source(run, &piece);
                        if shift > 0 {
                            source = self.binary(BinOp::Shl, source, Source::Const(shift.into()), width + shift);
                        }
                        values.push(source);
                        left -= width;
                    }
                }
            }
        }
        Step::Sum { to: self.register(), words: masks.words(), values: values.into(), constant: fold(constant) }
    }
}

/// The position in the received frame of these adjacent bits, if they are there for all frames of the path.
fn place(run: &Run<'_>, parts: &[Part]) -> Option<u32> {
    let mut before = 0;
    let first = parts.iter().find_map(|part| match part.origin {
        Origin::Frame(bit) => Some(bit.checked_sub(before)),
        _ => {
            before += part.width;
            None
        }
    })??;
    let mut at = first;
    for part in parts {
        let is_there = match part.origin {
            Origin::Frame(bit) => bit == at,
            Origin::Const => (0..part.width).all(|i| run.is_known(at + i, part.value >> (part.width - 1 - i) & 1 == 1)),
            _ => false,
        };
        if !is_there {
            return None;
        }
        at += part.width;
    }
    Some(first)
}

/// Bits of the frame in a sum, as masks of its 16-bit words. A bit that is added twice is in two layers.
#[derive(Default)]
struct Masks(Vec<BTreeMap<u32, u16>>);

impl Masks {
    /// Adds bits that are followed by `shift` bits in their word of the sum. Returns false if the frame's words are
    /// aligned otherwise.
    fn add(&mut self, bit: u32, width: u32, shift: u32) -> bool {
        let end = bit + width;
        if !(end + shift).is_multiple_of(16) || end as usize > WINDOW * 8 {
            return false;
        }
        for at in bit..end {
            let (word, mask) = (at / 16, 0x8000 >> (at % 16));
            let free = self.0.iter().position(|layer| layer.get(&word).is_none_or(|taken| taken & mask == 0));
            let layer = free.unwrap_or_else(|| {
                self.0.push(BTreeMap::new());
                self.0.len() - 1
            });
            *self.0[layer].entry(word).or_default() |= mask;
        }
        true
    }

    /// The masks as 64-bit words.
    fn words(self) -> Box<[Word]> {
        let mut words = Vec::new();
        for mut layer in self.0 {
            while let Some((first, _)) = layer.first_key_value() {
                let first = (*first).min(WINDOW as u32 / 2 - 4);
                let mask =
                    (first..first + 4).fold(0, |all, word| all << 16 | u64::from(layer.remove(&word).unwrap_or(0)));
                words.push(Word { at: first as u16 * 2, mask });
            }
        }
        words.into()
    }
}
