//! The abstract domain of numbers: known bits, unsigned range and signed range.
//!
//! The abstract operations are sound: the result contains every value of the concrete operation on values of the
//! operands. The tests check this with random operands. Refinements keep every number that satisfies a condition.

use super::tnum::Tnum;
use crate::alu;
use crate::instruction::{Alu, Condition};

/// A set of numbers, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scalar {
    pub(super) bits: Tnum,
    pub(super) umin: u64,
    pub(super) umax: u64,
    pub(super) smin: i64,
    pub(super) smax: i64,
}

const WORD_MAX: u64 = u32::MAX as u64;

impl Scalar {
    pub(super) const UNKNOWN: Scalar =
        Scalar { bits: Tnum::UNKNOWN, umin: 0, umax: u64::MAX, smin: i64::MIN, smax: i64::MAX };

    pub(super) fn of(value: u64) -> Scalar {
        Scalar { bits: Tnum::of(value), umin: value, umax: value, smin: value as i64, smax: value as i64 }
    }

    pub(super) fn unsigned(umin: u64, umax: u64) -> Scalar {
        Scalar { umin, umax, ..Scalar::UNKNOWN }.normalised().unwrap_or(Scalar::UNKNOWN)
    }

    fn signed(smin: i64, smax: i64) -> Scalar {
        Scalar { smin, smax, ..Scalar::UNKNOWN }.normalised().unwrap_or(Scalar::UNKNOWN)
    }

    fn with_bits(bits: Tnum) -> Scalar {
        Scalar { bits, ..Scalar::UNKNOWN }.normalised().unwrap_or(Scalar::UNKNOWN)
    }

    /// The numbers of `bytes` bytes.
    pub(super) fn of_bytes(bytes: usize) -> Scalar {
        match bytes {
            8.. => Scalar::UNKNOWN,
            _ => Scalar::unsigned(0, (1 << (8 * bytes)) - 1),
        }
    }

    /// The number, if the set has only one.
    pub(super) fn known(&self) -> Option<u64> {
        match self.umin == self.umax {
            true => Some(self.umin),
            false => self.bits.known(),
        }
    }

    /// Propagates between the three descriptions; `None` if no number satisfies all.
    fn normalised(mut self) -> Option<Scalar> {
        // Twice: the last step can sharpen the input of the first.
        for _ in 0..2 {
            self.umin = self.umin.max(self.bits.value);
            self.umax = self.umax.min(self.bits.max());
            let sign = 1 << 63;
            let smallest = self.bits.value | self.bits.mask & sign;
            let largest = self.bits.value | self.bits.mask & !sign;
            self.smin = self.smin.max(smallest as i64);
            self.smax = self.smax.min(largest as i64);
            if self.umin > self.umax || self.smin > self.smax {
                return None;
            }
            // A range that does not cross the sign change is also a range of the other signedness.
            if (self.umin as i64) <= self.umax as i64 {
                self.smin = self.smin.max(self.umin as i64);
                self.smax = self.smax.min(self.umax as i64);
            }
            if self.smin > self.smax {
                return None;
            }
            if (self.smin as u64) <= self.smax as u64 {
                self.umin = self.umin.max(self.smin as u64);
                self.umax = self.umax.min(self.smax as u64);
            }
            if self.umin > self.umax {
                return None;
            }
            self.bits = self.bits.intersect(Tnum::range(self.umin, self.umax))?;
        }
        Some(self)
    }

    fn both(self, other: Scalar) -> Scalar {
        let met = Scalar {
            bits: match self.bits.intersect(other.bits) {
                Some(bits) => bits,
                None => return self,
            },
            umin: self.umin.max(other.umin),
            umax: self.umax.min(other.umax),
            smin: self.smin.max(other.smin),
            smax: self.smax.min(other.smax),
        };
        met.normalised().unwrap_or(self)
    }

    /// Whether the set contains all numbers of `other`.
    pub(super) fn contains(&self, other: &Scalar) -> bool {
        self.bits.contains(other.bits)
            && self.umin <= other.umin
            && self.umax >= other.umax
            && self.smin <= other.smin
            && self.smax >= other.smax
    }

    /// The lower 32 bits, zero-extended.
    pub(super) fn low_word(self) -> Scalar {
        if self.umax <= WORD_MAX {
            return self;
        }
        let bits = Scalar::with_bits(self.bits.low(32));
        match self.umin >> 32 == self.umax >> 32 {
            true => bits.both(Scalar::unsigned(self.umin & WORD_MAX, self.umax & WORD_MAX)),
            false => bits,
        }
    }

    /// The set of `a op b`.
    pub(super) fn compute(alu: Alu, wide: bool, a: Scalar, b: Scalar) -> Scalar {
        if let (Some(a), Some(b)) = (a.known(), b.known()) {
            return Scalar::of(alu::compute(alu, wide, a, b));
        }
        if wide {
            return Scalar::wide(alu, a, b, 64);
        }
        let (a, b) = (a.low_word(), b.low_word());
        match alu {
            // The sign is bit 31.
            Alu::Arsh if a.umax > i32::MAX as u64 => Scalar::unsigned(0, WORD_MAX),
            _ => Scalar::wide(alu, a, b, 32).low_word(),
        }
    }

    fn wide(alu: Alu, a: Scalar, b: Scalar, width: u64) -> Scalar {
        match alu {
            Alu::Mov => b,
            Alu::Add => {
                let bits = Scalar::with_bits(a.bits.add(b.bits));
                let bits = match (a.umin.checked_add(b.umin), a.umax.checked_add(b.umax)) {
                    (Some(low), Some(high)) => bits.both(Scalar::unsigned(low, high)),
                    _ => bits,
                };
                match (a.smin.checked_add(b.smin), a.smax.checked_add(b.smax)) {
                    (Some(low), Some(high)) => bits.both(Scalar::signed(low, high)),
                    _ => bits,
                }
            }
            Alu::Sub => {
                let bits = Scalar::with_bits(a.bits.sub(b.bits));
                let bits = match (a.umin.checked_sub(b.umax), a.umax.checked_sub(b.umin)) {
                    (Some(low), Some(high)) => bits.both(Scalar::unsigned(low, high)),
                    _ => bits,
                };
                match (a.smin.checked_sub(b.smax), a.smax.checked_sub(b.smin)) {
                    (Some(low), Some(high)) => bits.both(Scalar::signed(low, high)),
                    _ => bits,
                }
            }
            Alu::Mul => match (a.umin.checked_mul(b.umin), a.umax.checked_mul(b.umax)) {
                (Some(low), Some(high)) => {
                    let zeros = (a.bits.max().trailing_zeros() + b.bits.max().trailing_zeros()).min(63);
                    let multiple = Tnum { value: 0, mask: u64::MAX << zeros };
                    Scalar::unsigned(low, high).both(Scalar::with_bits(multiple))
                }
                _ => Scalar::UNKNOWN,
            },
            Alu::Div => {
                // Division by zero gives zero.
                let low = if b.umin == 0 { 0 } else { a.umin / b.umax };
                Scalar::unsigned(low, a.umax / b.umin.max(1))
            }
            Alu::Mod => match b.umin {
                0 => Scalar::unsigned(0, a.umax),
                _ => Scalar::unsigned(0, a.umax.min(b.umax - 1)),
            },
            Alu::And => Scalar::with_bits(a.bits.and(b.bits)).both(Scalar::unsigned(0, a.umax.min(b.umax))),
            Alu::Or => Scalar::with_bits(a.bits.or(b.bits)).both(Scalar::unsigned(a.umin.max(b.umin), u64::MAX)),
            Alu::Xor => Scalar::with_bits(a.bits.xor(b.bits)),
            Alu::Lsh | Alu::Rsh | Alu::Arsh => match b.known() {
                Some(by) => Scalar::shifted(alu, a, (by & (width - 1)) as u32),
                None if alu == Alu::Rsh => Scalar::unsigned(0, a.umax),
                None if alu == Alu::Arsh && a.smin >= 0 => Scalar::unsigned(0, a.umax),
                None => Scalar::UNKNOWN,
            },
        }
    }

    fn shifted(alu: Alu, a: Scalar, by: u32) -> Scalar {
        match alu {
            Alu::Lsh => {
                let bits = Scalar::with_bits(a.bits.shl(by));
                match a.umax.leading_zeros() >= by {
                    true => bits.both(Scalar::unsigned(a.umin << by, a.umax << by)),
                    false => bits,
                }
            }
            Alu::Rsh => Scalar::with_bits(a.bits.shr(by)).both(Scalar::unsigned(a.umin >> by, a.umax >> by)),
            _ => Scalar::with_bits(a.bits.sar(by)).both(Scalar::signed(a.smin >> by, a.smax >> by)),
        }
    }

    /// The set of `-a`.
    pub(super) fn negated(wide: bool, a: Scalar) -> Scalar {
        Scalar::compute(Alu::Sub, wide, Scalar::of(0), a)
    }

    /// The set of the lowest bits with converted byte order.
    pub(super) fn swapped(big: bool, bits: u8, a: Scalar) -> Scalar {
        match a.known() {
            Some(a) => Scalar::of(alu::swap(big, bits, a)),
            None => Scalar::of_bytes(usize::from(bits) / 8),
        }
    }

    /// The subsets for which a condition may hold; `None` if it never does.
    pub(super) fn refine(condition: Condition, wide: bool, a: Scalar, b: Scalar) -> Option<(Scalar, Scalar)> {
        if let (Some(a), Some(b)) = (a.known(), b.known())
            && !alu::holds(condition, wide, a, b)
        {
            return None;
        }
        if !wide {
            // A refinement of the lower halves applies to the whole if the upper halves are zero; for signed
            // comparisons, bit 31 must be zero too.
            let signed = matches!(condition, Condition::SGt | Condition::SGe | Condition::SLt | Condition::SLe);
            let max = if signed { i32::MAX as u64 } else { WORD_MAX };
            return match a.umax <= max && b.umax <= max {
                true => Scalar::refine(condition, true, a, b),
                false => {
                    let (low, other) = (a.low_word(), b.low_word());
                    match signed {
                        true => Some((a, b)),
                        // The halves only decide whether the condition can hold.
                        false => Scalar::refine(condition, true, low, other).map(|_| (a, b)),
                    }
                }
            };
        }
        let (mut a, mut b) = (a, b);
        match condition {
            Condition::Eq => {
                let bits = a.bits.intersect(b.bits)?;
                let met = Scalar {
                    bits,
                    umin: a.umin.max(b.umin),
                    umax: a.umax.min(b.umax),
                    smin: a.smin.max(b.smin),
                    smax: a.smax.min(b.smax),
                };
                let met = met.normalised()?;
                return Some((met, met));
            }
            Condition::Ne => {
                if let Some(b) = b.known() {
                    a = a.without(b);
                }
                if let Some(a) = a.known() {
                    b = b.without(a);
                }
            }
            Condition::Gt => {
                a.umin = a.umin.max(b.umin.checked_add(1)?);
                b.umax = b.umax.min(a.umax.checked_sub(1)?);
            }
            Condition::Ge => {
                a.umin = a.umin.max(b.umin);
                b.umax = b.umax.min(a.umax);
            }
            Condition::SGt => {
                a.smin = a.smin.max(b.smin.checked_add(1)?);
                b.smax = b.smax.min(a.smax.checked_sub(1)?);
            }
            Condition::SGe => {
                a.smin = a.smin.max(b.smin);
                b.smax = b.smax.min(a.smax);
            }
            Condition::Lt | Condition::Le | Condition::SLt | Condition::SLe => {
                let (b, a) = Scalar::refine(reversed(condition), true, b, a)?;
                return Some((a, b));
            }
            Condition::Set => {
                if a.bits.max() & b.bits.max() == 0 {
                    return None;
                }
                if let Some(b) = b.known()
                    && b.is_power_of_two()
                {
                    a.bits = a.bits.intersect(Tnum { value: b, mask: !b })?;
                }
            }
        }
        Some((a.normalised()?, b.normalised()?))
    }

    /// The subsets for which a condition may fail; `None` if it always holds.
    pub(super) fn refine_not(condition: Condition, wide: bool, a: Scalar, b: Scalar) -> Option<(Scalar, Scalar)> {
        if let Some(condition) = inverse(condition) {
            return Scalar::refine(condition, wide, a, b);
        }
        // No bit of `b` is set in `a`.
        let (low, mask) = if wide { (a, b) } else { (a.low_word(), b.low_word()) };
        if low.bits.value & mask.bits.value != 0 {
            return None;
        }
        if let Some(mask) = mask.known() {
            let bits = a.bits.intersect(Tnum { value: 0, mask: !mask })?;
            return Some((Scalar { bits, ..a }.normalised()?, b));
        }
        Some((a, b))
    }

    fn without(mut self, value: u64) -> Scalar {
        let narrower = self;
        if self.umin == value && self.umin < self.umax {
            self.umin += 1;
        }
        if self.umax == value && self.umin < self.umax {
            self.umax -= 1;
        }
        if self.smin == value as i64 && self.smin < self.smax {
            self.smin += 1;
        }
        if self.smax == value as i64 && self.smin < self.smax {
            self.smax -= 1;
        }
        self.normalised().unwrap_or(narrower)
    }

    /// Whether the set contains a number.
    #[cfg(test)]
    pub(super) fn has(&self, value: u64) -> bool {
        self.bits.contains(Tnum::of(value))
            && (self.umin..=self.umax).contains(&value)
            && (self.smin..=self.smax).contains(&(value as i64))
    }

    /// A random superset of some numbers.
    #[cfg(test)]
    pub(super) fn around(values: &[u64]) -> Scalar {
        let (first, rest) = values.split_first().expect("at least one");
        let mask = rest.iter().fold(0, |mask, value| mask | value ^ first);
        let set = Scalar {
            bits: Tnum { value: first & !mask, mask },
            umin: *values.iter().min().expect("at least one"),
            umax: *values.iter().max().expect("at least one"),
            smin: values.iter().map(|v| *v as i64).min().expect("at least one"),
            smax: values.iter().map(|v| *v as i64).max().expect("at least one"),
        };
        set.normalised().expect("the values are in it")
    }
}

/// The condition with swapped operands.
pub(super) fn reversed(condition: Condition) -> Condition {
    match condition {
        Condition::Gt => Condition::Lt,
        Condition::Ge => Condition::Le,
        Condition::Lt => Condition::Gt,
        Condition::Le => Condition::Ge,
        Condition::SGt => Condition::SLt,
        Condition::SGe => Condition::SLe,
        Condition::SLt => Condition::SGt,
        Condition::SLe => Condition::SGe,
        Condition::Eq | Condition::Ne | Condition::Set => condition,
    }
}

/// The negated condition.
fn inverse(condition: Condition) -> Option<Condition> {
    Some(match condition {
        Condition::Eq => Condition::Ne,
        Condition::Ne => Condition::Eq,
        Condition::Gt => Condition::Le,
        Condition::Le => Condition::Gt,
        Condition::Ge => Condition::Lt,
        Condition::Lt => Condition::Ge,
        Condition::SGt => Condition::SLe,
        Condition::SLe => Condition::SGt,
        Condition::SGe => Condition::SLt,
        Condition::SLt => Condition::SGe,
        Condition::Set => return None,
    })
}
