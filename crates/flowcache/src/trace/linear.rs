//! One's complement sums as linear forms.
//!
//! The value of a sum is the total of its words modulo 65535, except that it is 0 only if all of them are. So if
//! some word is known not to be 0, terms can be expanded and cancelled as numbers modulo 65535: complements, nested
//! sums, additions and subtractions that do not wrap. A checksum that is updated by the difference of two sums (RFC
//! 1624) is thus reduced to that difference, which is a constant for a TTL.

use super::nodes::{Kind, ones_sum};
use super::run::{Run, frame_bits};
use super::value::{Origin, Part, Value, low};
use ir::{BinOp, UnOp};
use std::collections::BTreeMap;

/// 2^16 is 1 modulo this.
const MODULUS: u64 = 0xffff;

/// Maximum number of bits added to a form, counting repetitions.
const BITS_MAX: u32 = 4096;

/// A bit of the frame, or of a node (counted from the most significant one of 64).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Bit {
    Frame(u32),
    Node(u32, u32),
}

/// A linear form modulo 65535: a constant, and bits with their coefficients.
#[derive(Default)]
struct Linear {
    constant: u64,
    bits: BTreeMap<Bit, u64>,
    /// Number of bits added so far.
    count: u32,
}

impl Linear {
    fn add(&mut self, bit: Bit, factor: u64) {
        let all = self.bits.entry(bit).or_default();
        *all = (*all + factor) % MODULUS;
        self.count += 1;
    }
}

impl Run<'_> {
    /// Lower and upper bound of a value of at most 64 bits, for any frame.
    pub(super) fn range(&self, value: &Value) -> (u64, u64) {
        value.parts().iter().fold((0, 0), |(lo, hi), part| {
            let (least, most) = match self.nodes.whole(part) {
                _ if part.is_const() => (part.value, part.value),
                Some(node) => node.range,
                None => (0, low(part.width)),
            };
            let shift = |bits: u64| bits.checked_shl(part.width).unwrap_or(0);
            (shift(lo) | least, shift(hi) | most)
        })
    }

    /// Lower and upper bound of an operation's result.
    pub(super) fn range_of(&self, kind: &Kind, width: u32) -> (u64, u64) {
        let all = (0, low(width));
        match kind {
            Kind::Binary { op, a, b } if !op.is_comparison() => {
                let ((a_lo, a_hi), (b_lo, b_hi)) = (self.range(a), self.range(b));
                match op {
                    BinOp::Sub if a_lo >= b_hi => (a_lo - b_hi, a_hi - b_lo),
                    BinOp::Add => match a_hi.checked_add(b_hi) {
                        Some(most) if most <= all.1 => (a_lo + b_lo, most),
                        _ => all,
                    },
                    BinOp::And => (0, a_hi.min(b_hi)),
                    BinOp::Or => (a_lo.max(b_lo), all.1),
                    _ => all,
                }
            }
            Kind::Select { then, other, .. } => {
                let ((a_lo, a_hi), (b_lo, b_hi)) = (self.range(then), self.range(other));
                (a_lo.min(b_lo), a_hi.max(b_hi))
            }
            Kind::Unary { op: UnOp::Not, a } => {
                let (least, most) = self.range(a);
                (all.1 - most, all.1 - least)
            }
            Kind::Sum { data } => (u64::from(self.is_never_zero(data)), all.1),
            _ => all,
        }
    }

    /// Whether some part is known not to be 0, for any frame.
    fn is_never_zero(&self, data: &Value) -> bool {
        data.parts().iter().any(|part| match self.nodes.whole(part) {
            Some(node) => node.range.0 > 0,
            None => part.is_const() && part.value != 0,
        })
    }

    /// The words of a sum after cancelling terms; `None` if this is impossible or changes nothing.
    pub(super) fn cancelled(&mut self, data: &Value) -> Option<Value> {
        let has_nodes = data.parts().iter().any(|part| matches!(part.origin, Origin::Node { .. }));
        if !has_nodes || !self.is_never_zero(data) {
            return None;
        }
        let mut form = Linear::default();
        self.linear(data, 1, &mut form)?;
        let words = self.words_of(form)?;
        debug_assert_eq!(ones_sum(&words), ones_sum(data));
        Some(words)
    }

    /// Whether two sums are equal, if this is the same for all frames.
    pub(super) fn are_equal_sums(&self, a: &Part, b: &Part) -> Option<bool> {
        let is_sum = |part: &Part| match self.nodes.whole(part)?.kind {
            Kind::Sum { .. } => Some(()),
            _ => None,
        };
        is_sum(a)?;
        is_sum(b)?;
        let mut form = Linear::default();
        self.linear(&Value::from_part(*a), 1, &mut form)?;
        self.linear(&Value::from_part(*b), MODULUS - 1, &mut form)?;
        if form.bits.values().any(|factor| *factor != 0) {
            return None;
        }
        let never_zero = |part: &Part| self.nodes.whole(part).is_some_and(|node| node.range.0 > 0);
        match form.constant {
            0 if never_zero(a) && never_zero(b) => Some(true),
            0 => None,
            _ => Some(false),
        }
    }

    /// Adds `factor * value` to a form; `None` if the form becomes too large.
    fn linear(&self, value: &Value, factor: u64, form: &mut Linear) -> Option<()> {
        let mut below = value.width();
        for part in value.parts() {
            below -= part.width;
            let factor = factor * (1 << (below % 16)) % MODULUS;
            if let Origin::Node { node, lo } = part.origin
                && self.taken_apart(node, lo, part.width, factor, form)?
            {
                continue;
            }
            for i in 0..part.width {
                let place = part.width - 1 - i;
                let factor = factor * (1 << (place % 16)) % MODULUS;
                match part.origin {
                    Origin::Const => form.constant = (form.constant + factor * (part.value >> place & 1)) % MODULUS,
                    Origin::Frame(bit) => form.add(Bit::Frame(bit + i), factor),
                    Origin::Node { node, lo } => form.add(Bit::Node(node, 63 - (lo + place)), factor),
                    Origin::Length { .. } | Origin::Volatile(_) => return None,
                }
            }
            if form.count > BITS_MAX {
                return None;
            }
        }
        Some(())
    }

    /// Adds a node's operands to a form, if the node is linear in them. `None` if the form becomes too large.
    fn taken_apart(&self, node: u32, lo: u32, width: u32, factor: u64, form: &mut Linear) -> Option<bool> {
        let node = self.nodes.get(node);
        let is_whole = lo == 0 && node.width == width;
        let minus = (MODULUS - factor) % MODULUS;
        form.count += 1;
        if form.count > BITS_MAX {
            return None;
        }
        match &node.kind {
            Kind::Unary { op: UnOp::Not, a } => {
                form.constant = (form.constant + factor * (low(width) % MODULUS)) % MODULUS;
                self.linear(&a.slice(lo, width), minus, form)?;
            }
            Kind::Sum { data } if is_whole => self.linear(data, factor, form)?,
            Kind::Binary { op: BinOp::Sub, a, b } if is_whole && self.range(a).0 >= self.range(b).1 => {
                self.linear(a, factor, form)?;
                self.linear(b, minus, form)?;
            }
            Kind::Binary { op: BinOp::Add, a, b } if is_whole => {
                let most = self.range(a).1.checked_add(self.range(b).1);
                if most.is_none_or(|most| most > low(width)) {
                    return Some(false);
                }
                self.linear(a, factor, form)?;
                self.linear(b, factor, form)?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Words whose sum has this form and that are never all 0. `None` if a coefficient is neither a power of two
    /// nor the negative of one.
    fn words_of(&mut self, form: Linear) -> Option<Value> {
        let mut constant = form.constant;
        let mut words = Value::empty();
        // Sign and exponent of each bit's coefficient.
        let signed = |factor: u64| match factor {
            _ if factor.is_power_of_two() => Some((false, factor.trailing_zeros())),
            _ if (MODULUS - factor).is_power_of_two() => Some((true, (MODULUS - factor).trailing_zeros())),
            _ => None,
        };
        let bits = form.bits.into_iter().filter(|(_, factor)| *factor != 0);
        let bits = bits.map(|(bit, factor)| Some((bit, signed(factor)?))).collect::<Option<Vec<_>>>()?;
        let follows = |a: &(Bit, (bool, u32)), b: &(Bit, (bool, u32))| {
            let is_next = match (a.0, b.0) {
                (Bit::Frame(a), Bit::Frame(b)) => b == a + 1,
                (Bit::Node(a, hi), Bit::Node(b, lo)) => a == b && lo == hi + 1,
                _ => false,
            };
            is_next && a.1.0 == b.1.0 && (b.1.1 + 1) % 16 == a.1.1
        };
        for run in bits.chunk_by(follows) {
            for run in run.chunks(64) {
                let (first, (is_negative, _)) = run[0];
                let (_, (_, shift)) = run[run.len() - 1];
                let width = run.len() as u32;
                let part = match first {
                    Bit::Frame(bit) => {
                        Part { origin: Origin::Frame(bit), width, value: frame_bits(self.frame, bit, width) }
                    }
                    Bit::Node(node, from_top) => {
                        let lo = 64 - from_top - width;
                        let value = self.nodes.get(node).value >> lo & low(width);
                        Part { origin: Origin::Node { node, lo }, width, value }
                    }
                };
                let mut value = Value::from_part(part);
                if is_negative {
                    // -x is the complement of x minus all ones.
                    value = self.unary(UnOp::Not, &value);
                    let ones = low(width) % MODULUS * (1 << shift) % MODULUS;
                    constant = (constant + MODULUS - ones) % MODULUS;
                }
                words.push_zeros((32 - width % 16 - shift) % 16);
                words.append(&value);
                words.push_zeros(shift);
            }
        }
        words.push(Part::constant(16, if constant == 0 { MODULUS } else { constant }));
        Some(words)
    }
}
