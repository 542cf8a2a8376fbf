//! Symbolic values: the contents of a slot, and where each bit comes from.
//!
//! A value is a list of parts of at most 64 bits, the most significant one first. A part has its bits for the
//! traced frame, and their origin. Operations that only move bits (slices, concatenations, extensions) work on
//! parts; arithmetic makes nodes (`nodes.rs`).

use base::Bits;

/// The origin of bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Origin {
    /// The same for all frames of the path.
    Const,
    /// The received frame, starting at this bit.
    Frame(u32),
    /// A node's value, from bit `lo` on.
    Node { node: u32, lo: u32 },
    /// The received frame's length in bytes as a 32-bit number, from bit `lo` on.
    Length { lo: u32 },
    /// A value that is different for each packet, such as a timestamp; with its name.
    Volatile(&'static str),
}

/// Adjacent bits of one origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Part {
    pub origin: Origin,
    /// Width in bits, 1 to 64.
    pub width: u32,
    /// The bits' values for the traced frame.
    pub value: u64,
}

/// A mask of the `width` low bits; `width` is at most 64.
pub(super) fn low(width: u32) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - width) }
}

impl Part {
    pub fn constant(width: u32, value: u64) -> Part {
        Part { origin: Origin::Const, width, value: value & low(width) }
    }

    pub fn is_const(&self) -> bool {
        self.origin == Origin::Const
    }

    /// `width` bits of it, after the `skip` most significant ones.
    pub fn slice(&self, skip: u32, width: u32) -> Part {
        let below = self.width - skip - width;
        let origin = match self.origin {
            Origin::Frame(bit) => Origin::Frame(bit + skip),
            Origin::Node { node, lo } => Origin::Node { node, lo: lo + below },
            Origin::Length { lo } => Origin::Length { lo: lo + below },
            same @ (Origin::Const | Origin::Volatile(_)) => same,
        };
        Part { origin, width, value: self.value >> below & low(width) }
    }

    /// Both parts as one, if they are adjacent bits of the same origin.
    fn joined(&self, next: &Part) -> Option<Part> {
        let width = self.width + next.width;
        if width > 64 {
            return None;
        }
        let origin = match (self.origin, next.origin) {
            (Origin::Const, Origin::Const) => Origin::Const,
            (Origin::Frame(a), Origin::Frame(b)) if a + self.width == b => Origin::Frame(a),
            (Origin::Node { node: a, lo: hi }, Origin::Node { node: b, lo }) if a == b && lo + next.width == hi => {
                Origin::Node { node: a, lo }
            }
            (Origin::Length { lo: hi }, Origin::Length { lo }) if lo + next.width == hi => Origin::Length { lo },
            _ => return None,
        };
        Some(Part { origin, width, value: self.value << next.width | next.value })
    }
}

/// A symbolic value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Value {
    width: u32,
    parts: Parts,
}

/// A list of parts in which no adjacent ones can be joined. Most values have one part, which needs no allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
enum Parts {
    #[default]
    None,
    One(Part),
    /// At least two.
    Many(Vec<Part>),
}

impl Value {
    /// No bits.
    pub fn empty() -> Value {
        Value::default()
    }

    /// A constant of any width, the low bits of `value`.
    pub fn constant(width: u32, value: u64) -> Value {
        let mut all = Value::empty();
        all.push_zeros(width.saturating_sub(64));
        all.push(Part::constant(width.min(64), value));
        all
    }

    pub fn from_bits(bits: &Bits) -> Value {
        let width = bits.width();
        if width <= 64 {
            return Value::constant(width, bits.to_u64().unwrap_or(0));
        }
        let mut all = Value::empty();
        let first = (width - 1) % 64 + 1;
        let mut hi = width;
        let mut take = first;
        while hi > 0 {
            all.push(Part::constant(take, bits.slice(hi - 1, hi - take).to_u64().unwrap_or(0)));
            hi -= take;
            take = 64;
        }
        all
    }

    pub fn from_part(part: Part) -> Value {
        let mut all = Value::empty();
        all.push(part);
        all
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn parts(&self) -> &[Part] {
        match &self.parts {
            Parts::None => &[],
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    pub fn is_const(&self) -> bool {
        self.parts().iter().all(Part::is_const)
    }

    /// The value for the traced frame; its low 64 bits if it is wider.
    pub fn concrete(&self) -> u64 {
        self.parts().iter().fold(0, |all, part| all.checked_shl(part.width).unwrap_or(0) | part.value)
    }

    /// The value for the traced frame, saturated to 64 bits.
    pub fn number(&self) -> u64 {
        let mut above = self.width;
        let is_large = self.parts().iter().any(|part| {
            above -= part.width;
            part.value != 0 && (above >= 64 || (above > 0 && part.value.leading_zeros() < above))
        });
        if is_large { u64::MAX } else { self.concrete() }
    }

    pub fn is_true(&self) -> bool {
        self.parts().iter().any(|part| part.value != 0)
    }

    pub fn to_bits(&self) -> Bits {
        let mut parts = self.parts().iter().map(|part| Bits::new(part.width, part.value.into()));
        let first = parts.next().unwrap_or_else(|| Bits::zero(0));
        parts.fold(first, |all, part| all.concat(&part))
    }

    /// Appends bits at the least significant end.
    pub fn push(&mut self, part: Part) {
        if part.width == 0 {
            return;
        }
        self.width += part.width;
        match &mut self.parts {
            Parts::None => self.parts = Parts::One(part),
            Parts::One(last) => match last.joined(&part) {
                Some(joined) => *last = joined,
                None => self.parts = Parts::Many(vec![*last, part]),
            },
            Parts::Many(parts) => {
                if let Some(last) = parts.last_mut()
                    && let Some(joined) = last.joined(&part)
                {
                    *last = joined;
                } else {
                    parts.push(part);
                }
            }
        }
    }

    pub fn push_zeros(&mut self, mut width: u32) {
        while width > 0 {
            let take = width.min(64);
            self.push(Part::constant(take, 0));
            width -= take;
        }
    }

    pub fn append(&mut self, value: &Value) {
        value.parts().iter().for_each(|part| self.push(*part));
    }

    pub fn concat(&self, lo: &Value) -> Value {
        let mut all = self.clone();
        all.append(lo);
        all
    }

    /// `width` bits starting at bit `lo`, counted from the least significant one.
    pub fn slice(&self, lo: u32, width: u32) -> Value {
        debug_assert!(lo + width <= self.width);
        if width == self.width {
            return self.clone();
        }
        let mut all = Value::empty();
        // From the most significant end.
        let (from, to) = (self.width - lo - width, self.width - lo);
        let mut at = 0;
        for part in self.parts() {
            let (start, end) = (at.max(from), (at + part.width).min(to));
            if start < end {
                all.push(part.slice(start - at, end - start));
            }
            at += part.width;
        }
        all
    }

    /// The value with the bits from `lo` on replaced.
    pub fn set_slice(&self, lo: u32, bits: &Value) -> Value {
        let above = lo + bits.width;
        let mut all = self.slice(above, self.width - above);
        all.append(bits);
        all.append(&self.slice(0, lo));
        all
    }

    /// The value zero-extended or truncated to `width`.
    pub fn resize(&self, width: u32) -> Value {
        if width <= self.width {
            return self.slice(0, width);
        }
        let mut all = Value::empty();
        all.push_zeros(width - self.width);
        all.append(self);
        all
    }

    /// Splits two values of the same width at the boundaries of both their parts, and pairs the pieces.
    pub fn zip<'a>(&'a self, other: &'a Value) -> impl Iterator<Item = (Part, Part)> + 'a {
        debug_assert_eq!(self.width, other.width);
        let (mut a, mut b) = (self.parts().iter().copied(), other.parts().iter().copied());
        let (mut left, mut right): (Option<Part>, Option<Part>) = (None, None);
        std::iter::from_fn(move || {
            let p = left.take().or_else(|| a.next())?;
            let q = right.take().or_else(|| b.next())?;
            let width = p.width.min(q.width);
            let rest = |part: Part| (part.width > width).then(|| part.slice(width, part.width - width));
            (left, right) = (rest(p), rest(q));
            Some((p.slice(0, width), q.slice(0, width)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_cut() {
        let frame = |bit, width| Part { origin: Origin::Frame(bit), width, value: 0 };
        let mut value = Value::from_part(frame(8, 8));
        value.push(frame(16, 4));
        value.push(Part::constant(4, 0xf));
        assert_eq!(value.parts(), [frame(8, 12), Part::constant(4, 0xf)]);
        assert_eq!(value.slice(2, 4).parts(), [frame(18, 2), Part::constant(2, 3)]);
        assert_eq!(value.set_slice(4, &Value::constant(12, 0xabc)).parts(), [Part::constant(16, 0xabcf)]);
        assert_eq!(value.resize(80).width(), 80);
        assert_eq!(Value::from_bits(&Bits::ones(130)).number(), u64::MAX);
        assert_eq!(Value::constant(130, 7).number(), 7);
        assert_eq!(Value::constant(130, 7).to_bits(), Bits::new(130, 7));
    }
}
