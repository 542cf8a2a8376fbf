//! Tristate numbers: numbers of which some bits are known ("tnum" of the Linux verifier).
//!
//! Addition and subtraction are those of Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation with
//! Tristate Numbers" (CGO 2022).

/// A set of numbers: the bits in `mask` are unknown, the others equal those of `value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tnum {
    pub(super) value: u64,
    pub(super) mask: u64,
}

impl Tnum {
    pub(super) const UNKNOWN: Tnum = Tnum { value: 0, mask: u64::MAX };

    pub(super) const fn of(value: u64) -> Tnum {
        Tnum { value, mask: 0 }
    }

    /// The smallest tristate number that contains `low` to `high`: their common leading bits.
    pub(super) fn range(low: u64, high: u64) -> Tnum {
        let differing = low ^ high;
        let mask = match differing {
            0 => 0,
            _ => u64::MAX >> differing.leading_zeros(),
        };
        Tnum { value: low & !mask, mask }
    }

    pub(super) fn known(self) -> Option<u64> {
        (self.mask == 0).then_some(self.value)
    }

    pub(super) fn max(self) -> u64 {
        self.value | self.mask
    }

    /// Whether the set contains all numbers of `other`.
    pub(super) fn contains(self, other: Tnum) -> bool {
        other.mask & !self.mask == 0 && (self.value ^ other.value) & !self.mask == 0
    }

    /// The intersection; `None` if it is empty.
    pub(super) fn intersect(self, other: Tnum) -> Option<Tnum> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        let mask = self.mask & other.mask;
        Some(Tnum { value: (self.value | other.value) & !mask, mask })
    }

    pub(super) fn add(self, other: Tnum) -> Tnum {
        let masks = self.mask.wrapping_add(other.mask);
        let values = self.value.wrapping_add(other.value);
        let sum = masks.wrapping_add(values);
        let mask = sum ^ values | self.mask | other.mask;
        Tnum { value: values & !mask, mask }
    }

    pub(super) fn sub(self, other: Tnum) -> Tnum {
        let values = self.value.wrapping_sub(other.value);
        let high = values.wrapping_add(self.mask);
        let low = values.wrapping_sub(other.mask);
        let mask = high ^ low | self.mask | other.mask;
        Tnum { value: values & !mask, mask }
    }

    pub(super) fn and(self, other: Tnum) -> Tnum {
        let value = self.value & other.value;
        Tnum { value, mask: self.max() & other.max() & !value }
    }

    pub(super) fn or(self, other: Tnum) -> Tnum {
        let value = self.value | other.value;
        Tnum { value, mask: (self.mask | other.mask) & !value }
    }

    pub(super) fn xor(self, other: Tnum) -> Tnum {
        let mask = self.mask | other.mask;
        Tnum { value: (self.value ^ other.value) & !mask, mask }
    }

    pub(super) fn shl(self, by: u32) -> Tnum {
        Tnum { value: self.value << by, mask: self.mask << by }
    }

    pub(super) fn shr(self, by: u32) -> Tnum {
        Tnum { value: self.value >> by, mask: self.mask >> by }
    }

    /// Arithmetic shift right: an unknown sign bit shifts in unknown bits.
    pub(super) fn sar(self, by: u32) -> Tnum {
        let (value, mask) = ((self.value as i64 >> by) as u64, (self.mask as i64 >> by) as u64);
        Tnum { value: value & !mask, mask }
    }

    pub(super) fn low(self, bits: u32) -> Tnum {
        let kept = u64::MAX >> (64 - bits);
        Tnum { value: self.value & kept, mask: self.mask & kept }
    }
}
