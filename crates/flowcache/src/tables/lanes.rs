//! Keys as arrays of 128-bit lanes: each field takes one or more lanes, the most significant first.

use base::Bits;
use base::entry::KeyMatch;

/// Width of a lane in bits.
pub(super) const LANE: u32 = 128;

/// Positions of the fields in a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// The first lane and the width in bits of each field.
    pub(super) fields: Vec<(usize, u32)>,
    /// Number of lanes in a key.
    pub(super) lanes: usize,
}

impl Layout {
    /// The layout of fields with these widths.
    pub(super) fn new(widths: &[u32]) -> Layout {
        let mut lanes = 0;
        let fields = widths.iter().map(|width| {
            let first = lanes;
            lanes += width.div_ceil(LANE).max(1) as usize;
            (first, *width)
        });
        Layout { fields: fields.collect(), lanes }
    }

    /// The lanes of a field.
    pub(super) fn of(&self, field: usize) -> std::ops::Range<usize> {
        let (first, width) = self.fields[field];
        first..first + width.div_ceil(LANE).max(1) as usize
    }

    /// Writes a field's value into a key.
    pub(super) fn put(&self, field: usize, value: &Bits, key: &mut [u128]) {
        let (_, width) = self.fields[field];
        let range = self.of(field);
        if width <= LANE {
            key[range.start] = value.to_u128().unwrap_or(0);
            return;
        }
        let mut hi = width;
        for lane in range {
            // The first lane has the bits that do not fill a whole lane.
            let bits = match hi % LANE {
                0 => LANE,
                rest => rest,
            };
            key[lane] = value.slice(hi - 1, hi - bits).to_u128().unwrap_or(0);
            hi -= bits;
        }
    }

    /// Reads a field's value from a key.
    pub(super) fn get(&self, field: usize, key: &[u128]) -> Bits {
        let (_, width) = self.fields[field];
        let mut range = self.of(field);
        let first = range.next().map_or(0, |lane| key[lane]);
        let of_first = match width % LANE {
            0 => width.min(LANE),
            rest => rest,
        };
        let first = Bits::new(of_first, first);
        range.fold(first, |high, lane| high.concat(&Bits::new(LANE, key[lane])))
    }

    /// Writes the mask and value of an entry's field match. Ranges are treated as wildcards.
    pub(super) fn put_match(&self, field: usize, of: &KeyMatch, mask: &mut [u128], value: &mut [u128]) {
        let (_, width) = self.fields[field];
        let (compared, wanted) = match of {
            KeyMatch::Exact(value) | KeyMatch::Optional(Some(value)) => (Bits::ones(width), value.clone()),
            KeyMatch::Lpm { value, prefix_len } => (prefix(width, *prefix_len), value.clone()),
            KeyMatch::Ternary { value, mask } => (mask.clone(), value.clone()),
            KeyMatch::Optional(None) | KeyMatch::Range { .. } => (Bits::zero(width), Bits::zero(width)),
        };
        self.put(field, &compared, mask);
        self.put(field, &wanted.and(&compared), value);
    }
}

/// The mask of a prefix of `len` bits.
pub(super) fn prefix(width: u32, len: u32) -> Bits {
    match len.min(width) {
        0 => Bits::zero(width),
        len => Bits::ones(width).shl(u64::from(width - len)),
    }
}

/// The length of the prefix whose mask this is, in a field of `width` bits in one lane; `None` if it is not a
/// prefix mask.
pub(super) fn prefix_len(width: u32, mask: u128) -> Option<u32> {
    let ones = mask.count_ones();
    (mask == prefix_mask(width, ones)).then_some(ones)
}

/// Like [`prefix`], in one lane.
pub(super) fn prefix_mask(width: u32, len: u32) -> u128 {
    debug_assert!(width <= LANE && len <= width);
    match len {
        0 => 0,
        len => (u128::MAX >> (LANE - len)) << (width - len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_width_come_back() {
        let layout = Layout::new(&[1, 128, 129, 300, 256]);
        assert_eq!(layout.lanes, 1 + 1 + 2 + 3 + 2);
        let mut key = vec![0; layout.lanes];
        let values: Vec<Bits> = [1u32, 128, 129, 300, 256]
            .map(|width| {
                let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|i| (i * 37 + width) as u8).collect();
                Bits::from_bytes_be(width, &bytes)
            })
            .to_vec();
        values.iter().enumerate().for_each(|(i, value)| layout.put(i, value, &mut key));
        values.iter().enumerate().for_each(|(i, value)| assert_eq!(&layout.get(i, &key), value));
    }

    #[test]
    fn masks_of_prefixes_are_told_from_others() {
        assert_eq!(prefix_len(32, 0xffff_0000), Some(16));
        assert_eq!(prefix_len(32, 0), Some(0));
        assert_eq!(prefix_len(32, 0xffff_ffff), Some(32));
        assert_eq!(prefix_len(128, u128::MAX), Some(128));
        assert_eq!(prefix_len(32, 0xff00_ff00), None);
        assert_eq!(prefix_len(32, 0x0000_ffff), None);
    }
}
