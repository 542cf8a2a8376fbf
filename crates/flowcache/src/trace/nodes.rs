//! Computed values as a DAG: a node is made once per operation and operands (value numbering).

use super::value::{Origin, Part, Value};
use ir::{BinOp, UnOp};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Maximum number of nodes of a run. Operands of further ones are consulted instead.
pub(super) const NODES_MAX: usize = 1000;

/// Maximum depth of the graph; walks are recursive.
pub(super) const DEPTH_MAX: u32 = 64;

/// An operation on values of at most 64 bits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Binary {
        op: BinOp,
        a: Value,
        b: Value,
    },
    Unary {
        op: UnOp,
        a: Value,
    },
    Select {
        cond: Value,
        then: Value,
        other: Value,
    },
    /// The one's complement sum of 16-bit words (RFC 1071), not complemented; 0 only if all bits are 0. `data` is
    /// any number of whole words.
    Sum {
        data: Value,
    },
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub kind: Kind,
    pub width: u32,
    /// The value for the traced frame.
    pub value: u64,
    /// Lower and upper bound of the value for any frame.
    pub range: (u64, u64),
    /// Depth: the number of nodes on the longest path down, including this one.
    pub depth: u32,
}

impl Kind {
    pub fn operands(&self) -> impl Iterator<Item = &Value> {
        let all = match self {
            Kind::Binary { a, b, .. } => [Some(a), Some(b), None],
            Kind::Unary { a, .. } => [Some(a), None, None],
            Kind::Select { cond, then, other } => [Some(cond), Some(then), Some(other)],
            Kind::Sum { data } => [Some(data), None, None],
        };
        all.into_iter().flatten()
    }
}

/// The nodes of a run.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    list: Vec<Rc<Node>>,
    numbers: HashMap<Kind, u32, BuildHasherDefault<Mix>>,
}

/// A hash function for short lists of small numbers. It is not collision-resistant, which runs do not need: they
/// are short.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, node: u32) -> Rc<Node> {
        Rc::clone(&self.list[node as usize])
    }

    /// The node of an operation whose value is `value` for the traced frame.
    pub fn make(&mut self, kind: Kind, width: u32, value: u64, (range, depth): ((u64, u64), u32)) -> Part {
        let list = &mut self.list;
        let node = *self.numbers.entry(kind).or_insert_with_key(|kind| {
            list.push(Rc::new(Node { kind: kind.clone(), width, value, range, depth }));
            list.len() as u32 - 1
        });
        Part { origin: Origin::Node { node, lo: 0 }, width, value }
    }

    /// The depth of the deepest node in a value.
    pub fn depth(&self, value: &Value) -> u32 {
        let depths = value.parts().iter().map(|part| match part.origin {
            Origin::Node { node, .. } => self.list[node as usize].depth,
            _ => 0,
        });
        depths.max().unwrap_or(0)
    }

    /// The node whose whole value a part is, if there is one.
    pub fn whole(&self, part: &Part) -> Option<Rc<Node>> {
        match part.origin {
            Origin::Node { node, lo: 0 } if self.list[node as usize].width == part.width => Some(self.get(node)),
            _ => None,
        }
    }
}

/// The one's complement sum of 16-bit words.
pub(super) fn ones_sum(data: &Value) -> u16 {
    let (mut sum, mut below) = (0u64, data.width());
    for part in data.parts() {
        below -= part.width;
        // Shifting by 16 bits has no effect: 2^16 is 1 modulo 2^16 - 1.
        let mut value = u128::from(part.value) << (below % 16);
        while value != 0 {
            sum += value as u64 & 0xffff;
            value >>= 16;
        }
    }
    fold(sum)
}

/// Folds a sum of words into one; 0 only if the sum is 0.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
