//! Generates a rewrite's steps from the final frame of a pass, which is a function of the received one.
//!
//! The new head is examined bit by bit. Each of its bytes has a base, which is free or part of a copy: the received
//! byte at the same position, a byte copied from elsewhere, or a constant. Bits that differ from the base are
//! stored afterwards. A common end of the head and of what it replaces is left to the payload, so that pushing a
//! header moves no more than necessary.

use super::run::{Run, frame_bits};
use super::steps::Steps;
use super::value::{Origin, Part, Value};
use crate::path::{Rewrite, Step, WINDOW};

/// Up to this number of known, unchanged bytes between constants are written together with these.
const GAP_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bit {
    Const(bool),
    Frame(u32),
    Node(u32, u32),
}

/// The content of a byte of the head before stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Base {
    Nothing,
    Received,
    Copy(u32),
    Const(u8),
}

impl Run<'_> {
    /// Generates the rewrite. This may consult more bits, in which case another pass is needed.
    pub(super) fn rewrite(&mut self, max_len: u32) -> Rewrite {
        let max_len = self.packet.limit.map_or(max_len, |limit| limit.min(max_len));
        let (head, replaced) = (self.packet.head.width() / 8, self.packet.from);
        let whole = head + self.frame.len() as u32 - replaced;
        if whole > max_len {
            self.fail(|| format!("its {whole} bytes are cut to {max_len}"));
        }
        self.longest = self.longest.min((max_len - max_len.min(head)).saturating_add(replaced));
        // If anything new was consulted, there will be another pass.
        if !self.packet.is_rewritten || self.consulted != *self.known {
            return Rewrite { max_len, ..Rewrite::default() };
        }
        let bits = self.head_bits();
        let (mut head, mut replaced) = (bits.len() / 8, self.packet.from as usize);
        while head > 0 && replaced > 0 && self.is_byte(&bits[head * 8 - 8..head * 8], replaced as u32 - 1) {
            (head, replaced) = (head - 1, replaced - 1);
        }
        let bits = &bits[..head * 8];
        if head > WINDOW || replaced > WINDOW {
            self.fail(|| format!("its headers have more than {WINDOW} bytes"));
            return Rewrite::default();
        }
        self.shortest = self.shortest.max(replaced as u32);
        let bases = self.bases(bits, head == replaced);
        let mut steps = Steps::new();
        for run in bases.chunk_by(|a, b| matches!((a.1, b.1), (Base::Copy(x), Base::Copy(y)) if y == x + 1)) {
            if let (at, Base::Copy(from)) = run[0] {
                if from as usize + run.len() > WINDOW {
                    self.fail(|| format!("it copies bytes behind the first {WINDOW}"));
                }
                steps.push(Step::Copy { from: from as u16, to: at as u16, len: run.len() as u16 });
            }
        }
        for run in bases.chunk_by(|a, b| matches!((a.1, b.1), (Base::Const(_), Base::Const(_)))) {
            if let (at, Base::Const(_)) = run[0] {
                let bytes = run.iter().map(|(_, base)| if let Base::Const(byte) = base { *byte } else { 0 }).collect();
                steps.push(Step::Bytes { at: at as u16, bytes });
            }
        }
        self.stores(bits, &bases, &mut steps);
        if steps.are_too_many() {
            for bit in bits {
                if let Bit::Node(node, lo) = *bit {
                    let part = Part { origin: Origin::Node { node, lo }, width: 1, value: 0 };
                    self.consult_value(&Value::from_part(part));
                }
            }
            if self.consulted == *self.known {
                self.fail(|| "its rewriting needs too many values".to_string());
            }
        }
        Rewrite { steps: steps.done(), replaced: replaced as u16, head: head as u16, max_len }
    }

    /// The rewrite of a frame that is sent as received.
    pub(super) fn unchanged(&mut self, max_len: u32) -> Rewrite {
        let bytes = self.frame.len() as u32;
        if bytes > max_len {
            self.fail(|| format!("its {bytes} bytes are cut to {max_len}"));
        }
        self.longest = self.longest.min(max_len);
        Rewrite { max_len, ..Rewrite::default() }
    }

    /// The head, bit by bit.
    fn head_bits(&mut self) -> Vec<Bit> {
        let head = std::mem::take(&mut self.packet.head);
        let mut bits = Vec::with_capacity(head.width() as usize);
        for part in head.parts() {
            if matches!(part.origin, Origin::Length { .. } | Origin::Volatile(_)) {
                self.consult_value(&Value::from_part(*part));
            }
            bits.extend((0..part.width).map(|i| match part.origin {
                Origin::Frame(bit) => Bit::Frame(bit + i),
                Origin::Node { node, lo } => Bit::Node(node, lo + part.width - 1 - i),
                _ => Bit::Const(part.value >> (part.width - 1 - i) & 1 == 1),
            }));
        }
        self.packet.head = head;
        bits
    }

    /// Whether a bit equals the received bit at this position, for all frames of the path.
    fn is_bit(&self, bit: Bit, at: u32) -> bool {
        match bit {
            Bit::Const(value) => self.is_known(at, value),
            Bit::Frame(from) => from == at,
            Bit::Node(..) => false,
        }
    }

    fn is_byte(&self, bits: &[Bit], byte: u32) -> bool {
        (byte * 8..).zip(bits).all(|(at, bit)| self.is_bit(*bit, at))
    }

    /// The position and base of each byte.
    fn bases(&self, bits: &[Bit], stays: bool) -> Vec<(usize, Base)> {
        let constant = |byte: &[Bit]| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit == Bit::Const(true)));
        let is_const = |byte: &[Bit]| byte.iter().all(|bit| matches!(bit, Bit::Const(_)));
        let mut bases: Vec<(usize, Base)> = bits
            .chunks_exact(8)
            .enumerate()
            .map(|(i, byte)| {
                let own = i as u32 * 8;
                let is_own = |(k, bit): (u32, &Bit)| *bit == Bit::Frame(own + k);
                let aligned = || {
                    (0..).zip(byte).find_map(|(k, bit)| match bit {
                        Bit::Frame(from) if from % 8 == k => Some(from / 8),
                        _ => None,
                    })
                };
                let base = if stays && (self.is_byte(byte, i as u32) || (0..).zip(byte).any(is_own)) {
                    Base::Received
                } else if let Some(from) = aligned() {
                    Base::Copy(from)
                } else if byte.iter().any(|bit| matches!(bit, Bit::Const(_))) {
                    Base::Const(constant(byte))
                } else {
                    Base::Nothing
                };
                (i, base)
            })
            .collect();
        // Constants next to a copy that equal the received bytes there are copied as well.
        let n = bases.len();
        let forwards = (1..n).map(|i| (i, i - 1));
        let backwards = (1..n).rev().map(|i| (i - 1, i));
        for (i, beside) in forwards.chain(backwards) {
            if let (Base::Const(_), Base::Copy(from)) = (bases[i].1, bases[beside].1)
                && let Some(from) = (from + i as u32).checked_sub(beside as u32)
                && self.is_byte(&bits[i * 8..i * 8 + 8], from)
            {
                bases[i].1 = Base::Copy(from);
            }
        }
        // Known bytes between constants are written together with these.
        let mut last = None;
        for i in 0..n {
            if let Base::Const(_) = bases[i].1 {
                if let Some(last) = last
                    && i - last <= GAP_MAX + 1
                    && is_const(&bits[last * 8..i * 8])
                {
                    for (k, base) in &mut bases[last..i] {
                        *base = Base::Const(constant(&bits[*k * 8..*k * 8 + 8]));
                    }
                }
                last = Some(i);
            }
        }
        bases
    }

    /// Stores the bits that differ from the bases.
    fn stores(&mut self, bits: &[Bit], bases: &[(usize, Base)], steps: &mut Steps) {
        let is_there = |run: &Self, at: usize| match bases[at / 8].1 {
            Base::Nothing => false,
            Base::Received => run.is_bit(bits[at], at as u32),
            Base::Copy(from) => run.is_bit(bits[at], from * 8 + at as u32 % 8),
            Base::Const(_) => matches!(bits[at], Bit::Const(_)),
        };
        let mut at = 0;
        while at < bits.len() {
            if is_there(self, at) {
                at += 1;
                continue;
            }
            let begin = at;
            at += 1;
            let follows = |at: usize| match (bits[at - 1], bits[at]) {
                (Bit::Const(_), Bit::Const(_)) => true,
                (Bit::Frame(a), Bit::Frame(b)) => b == a + 1,
                (Bit::Node(a, hi), Bit::Node(b, lo)) => a == b && hi == lo + 1,
                _ => false,
            };
            while at < bits.len() && at - begin < 64 && follows(at) && !is_there(self, at) {
                at += 1;
            }
            let width = (at - begin) as u32;
            let origin = match (bits[begin], bits[at - 1]) {
                (Bit::Frame(from), _) => Origin::Frame(from),
                (Bit::Node(node, _), Bit::Node(_, lo)) => Origin::Node { node, lo },
                _ => Origin::Const,
            };
            let value = match origin {
                Origin::Const => {
                    bits[begin..at].iter().fold(0, |all, bit| all << 1 | u64::from(*bit == Bit::Const(true)))
                }
                Origin::Frame(from) => frame_bits(self.frame, from, width),
                _ => 0,
            };
            let value = steps.source(self, &Value::from_part(Part { origin, width, value }));
            steps.push(Step::Store { bit: begin as u16, width: width as u8, value });
        }
    }
}
