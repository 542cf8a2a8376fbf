//! Prefix tracking (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, 5.4): finds the
//! prefix lengths that match a value, and how many of its leading bits determine this. A binary trie with path
//! compression, built once.

use super::lanes::LANE;

/// No node.
const NONE: u32 = u32::MAX;

/// A node: a bit string, and whether it is one of the prefixes.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The bit string, left-aligned in a lane.
    bits: u128,
    len: u32,
    is_prefix: bool,
    children: [u32; 2],
}

/// A trie of a field's prefixes.
#[derive(Debug)]
pub(super) struct Trie {
    width: u32,
    nodes: Vec<Node>,
}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// Number of leading bits that determine the result.
    pub(super) needed: u32,
    /// Matching prefix lengths: bit `n - 1` stands for length `n`.
    lens: u128,
}

impl Answer {
    /// Whether a prefix of this length matches.
    pub(super) fn has(&self, len: u32) -> bool {
        len == 0 || self.lens >> (len - 1) & 1 != 0
    }
}

impl Trie {
    /// An empty trie for a field of `width` bits, 1 to 128.
    pub(super) fn new(width: u32) -> Trie {
        debug_assert!((1..=LANE).contains(&width));
        Trie { width, nodes: vec![Node { bits: 0, len: 0, is_prefix: false, children: [NONE; 2] }] }
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the prefix of `value` with length `len`.
    pub(super) fn insert(&mut self, value: u128, len: u32) {
        let bits = head(value << (LANE - self.width), len);
        let mut at = 0;
        loop {
            if self.nodes[at].len == len {
                self.nodes[at].is_prefix = true;
                return;
            }
            let side = bit(bits, self.nodes[at].len);
            let child = self.nodes[at].children[side];
            if child == NONE {
                self.nodes[at].children[side] = self.push(bits, len, true);
                return;
            }
            let node = self.nodes[child as usize];
            let common = common(node.bits, bits).min(node.len).min(len);
            if common < node.len {
                let middle = self.push(bits, common, common == len);
                self.nodes[middle as usize].children[bit(node.bits, common)] = child;
                self.nodes[at].children[side] = middle;
                at = middle as usize;
            } else {
                at = child as usize;
            }
        }
    }

    fn push(&mut self, bits: u128, len: u32, is_prefix: bool) -> u32 {
        self.nodes.push(Node { bits: head(bits, len), len, is_prefix, children: [NONE; 2] });
        self.nodes.len() as u32 - 1
    }

    /// The prefixes that match a value.
    pub(super) fn lookup(&self, value: u128) -> Answer {
        let bits = value << (LANE - self.width);
        let (mut at, mut lens) = (0, 0);
        loop {
            let node = &self.nodes[at];
            if node.is_prefix && node.len > 0 {
                lens |= 1 << (node.len - 1);
            }
            let [zero, one] = node.children;
            if [zero, one] == [NONE; 2] {
                return Answer { needed: node.len, lens };
            }
            let child = node.children[bit(bits, node.len)];
            if child == NONE {
                return Answer { needed: node.len + 1, lens };
            }
            let next = &self.nodes[child as usize];
            let common = common(next.bits, bits);
            if common < next.len {
                return Answer { needed: common + 1, lens };
            }
            at = child as usize;
        }
    }
}

/// The first `len` bits, followed by zeros.
fn head(bits: u128, len: u32) -> u128 {
    if len == 0 { 0 } else { bits & u128::MAX << (LANE - len) }
}

fn bit(bits: u128, at: u32) -> usize {
    (bits >> (LANE - 1 - at) & 1) as usize
}

/// The length of the common prefix.
fn common(a: u128, b: u128) -> u32 {
    (a ^ b).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_bits_as_tell_which_prefixes_match() {
        let mut trie = Trie::new(8);
        for (value, len) in [(0b1010_0000, 3), (0b1010_1100, 6), (0b0000_0000, 1), (0b1111_0000, 8)] {
            trie.insert(value, len);
        }
        let lens = |answer: Answer| (1..=8).filter(|len| answer.has(*len)).collect::<Vec<_>>();
        let check = |value, needed, wanted: &[u32]| {
            let answer = trie.lookup(value);
            assert_eq!((answer.needed, lens(answer)), (needed, wanted.to_vec()), "{value:08b}");
        };
        check(0b0111_0000, 1, &[1]);
        check(0b1010_1000, 6, &[3]);
        check(0b1010_1101, 6, &[3, 6]);
        check(0b1000_0000, 3, &[]);
        check(0b1110_0000, 4, &[]);
        check(0b1111_0000, 8, &[8]);
    }

    #[test]
    fn random_prefixes_as_a_scan_has_them() {
        let mut random = random::Random::new(11);
        for _ in 0..200 {
            let width = [8, 32, 128][random.below(3) as usize];
            let wide = |random: &mut random::Random| {
                let value = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                // Few distinct values, so that prefixes overlap.
                let value =
                    if random.below(2) == 0 { value & 0x0303_0303_0303_0303_0303_0303_0303_0303 } else { value };
                if width == 128 { value } else { value & ((1 << width) - 1) }
            };
            let mut trie = Trie::new(width);
            let mut all = Vec::new();
            for _ in 0..1 + random.below(40) {
                let (value, len) = (wide(&mut random), random.below(u64::from(width) + 1) as u32);
                trie.insert(value, len);
                all.push((value, len));
            }
            for _ in 0..50 {
                let value = wide(&mut random);
                let answer = trie.lookup(value);
                let mask = |len| super::super::lanes::prefix_mask(width, len);
                for len in 1..=width {
                    let is_there = all.iter().any(|(other, l)| *l == len && (other ^ value) & mask(len) == 0);
                    assert_eq!(answer.has(len), is_there, "{len} of {value:x}");
                }
                // Other values with the same leading bits give the same answer.
                let other = wide(&mut random) & !mask(answer.needed) | value & mask(answer.needed);
                assert_eq!(trie.lookup(other), answer);
            }
        }
    }
}
