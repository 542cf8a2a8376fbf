//! Prefix tracking (Pfaff et al., NSDI 2015, 5.4) by binary tries with path compression.

use crate::key::{Consulted, Layout, Place, WordTerm, low128};
use openflow::FieldId;

/// Maximum number of tracked fields of a classifier.
const TRIES_MAX: usize = 6;
/// Minimum width of a tracked field, in bits.
const WIDTH_MIN: u32 = 8;
/// Fields from this stage on are always tracked, since they vary most. A field of an earlier stage is tracked only
/// once a flow matches a proper prefix of it.
const STAGE_MIN: usize = 2;

/// A subtable's prefix of a tracked field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Index of the trie in [`Tries`].
    pub trie: usize,
    /// Prefix length in bits, at least 1.
    pub len: u32,
    /// The stage in which the field is looked up.
    pub stage: usize,
}

/// The tries of a classifier.
#[derive(Debug, Default)]
pub struct Tries {
    all: Vec<Tracked>,
}

#[derive(Debug)]
struct Tracked {
    place: Place,
    /// Number of subtables that use it.
    users: usize,
    trie: Trie,
}

/// The result of searching a trie for a value: the first `needed` bits of the value determine that only prefixes of
/// the lengths in `lens` can match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Number of leading bits that determine the result.
    pub needed: u32,
    /// The lengths that can match: bit `n` stands for length `n + 1`.
    pub lens: u128,
}

/// Results of the tries for one record, computed on demand.
#[derive(Debug)]
pub struct Answers([Option<Answer>; TRIES_MAX]);

impl Tries {
    /// Registers a new subtable. Returns its prefixes of tracked fields.
    pub fn acquire(&mut self, layout: &Layout, mask: &[(u32, u64)]) -> Vec<Prefix> {
        let mut found: Vec<Prefix> = Vec::new();
        for (i, field) in layout.fields().iter() {
            let Some(prefix) = self.acquire_field(layout, i, field.width, mask) else { continue };
            if found.iter().any(|other| other.trie == prefix.trie) {
                self.all[prefix.trie].users -= 1;
            } else {
                found.push(prefix);
            }
        }
        found
    }

    fn acquire_field(&mut self, layout: &Layout, field: FieldId, width: u32, mask: &[(u32, u64)]) -> Option<Prefix> {
        let place = layout.place(field);
        if width < WIDTH_MIN || layout.is_metadata(field) {
            return None;
        }
        let len = prefix_len(place, mask)?;
        if len == width && layout.stage(field) < STAGE_MIN && !self.all.iter().any(|t| t.users > 0 && t.place == *place)
        {
            return None;
        }
        // The first stage of its words, so that no lookup consults it earlier.
        let stage = place.parts.iter().map(|part| layout.word_stage(part.word)).min().unwrap_or(0);
        let trie = match self.all.iter().position(|t| t.users > 0 && t.place == *place) {
            Some(at) => at,
            None => {
                let new = Tracked { place: place.clone(), users: 0, trie: Trie::new(width) };
                match self.all.iter().position(|t| t.users == 0) {
                    Some(at) => {
                        self.all[at] = new;
                        at
                    }
                    None if self.all.len() < TRIES_MAX => {
                        self.all.push(new);
                        self.all.len() - 1
                    }
                    None => return None,
                }
            }
        };
        self.all[trie].users += 1;
        Some(Prefix { trie, len, stage })
    }

    /// Unregisters a removed subtable.
    pub fn release(&mut self, prefixes: &[Prefix]) {
        for prefix in prefixes {
            self.all[prefix.trie].users -= 1;
        }
    }

    /// Adds a flow of a subtable with these prefixes.
    pub fn insert(&mut self, prefixes: &[Prefix], terms: &[WordTerm]) {
        for prefix in prefixes {
            let tracked = &mut self.all[prefix.trie];
            tracked.trie.insert(value_of(&tracked.place, terms), prefix.len);
        }
    }

    /// Removes a flow of a subtable with these prefixes.
    pub fn remove(&mut self, prefixes: &[Prefix], terms: &[WordTerm]) {
        for prefix in prefixes {
            let tracked = &mut self.all[prefix.trie];
            tracked.trie.remove(value_of(&tracked.place, terms), prefix.len);
        }
    }

    /// No results yet.
    pub fn begin(&self) -> Answers {
        Answers([None; TRIES_MAX])
    }

    /// Whether flows with this prefix length can match. If not, adds the bits that determine this to `consulted`.
    pub fn can_match(&self, prefix: Prefix, record: &[u64], answers: &mut Answers, consulted: &mut Consulted) -> bool {
        let tracked = &self.all[prefix.trie];
        let answer = answers.0[prefix.trie].get_or_insert_with(|| tracked.trie.search(tracked.place.read(record)));
        if answer.lens >> (prefix.len - 1) & 1 == 1 {
            return true;
        }
        let width = tracked.place.width;
        let mask = low128(width) & !low128(width - answer.needed);
        tracked.place.spread(0, mask, |word, mask, _| consulted.add(word, mask));
        false
    }
}

/// The prefix length of a field in a mask. `None` if the mask has no bits there, or not exactly a prefix.
fn prefix_len(place: &Place, mask: &[(u32, u64)]) -> Option<u32> {
    let mut bits = 0u128;
    for part in &place.parts {
        if let Ok(at) = mask.binary_search_by_key(&part.word, |(word, _)| *word) {
            bits |= u128::from((mask[at].1 & part.mask()) >> part.shift) << part.at;
        }
    }
    let len = (bits << (128 - place.width)).leading_ones();
    (len > 0 && bits == low128(place.width) & !low128(place.width - len.min(place.width))).then_some(len)
}

fn value_of(place: &Place, terms: &[WordTerm]) -> u128 {
    let mut value = 0;
    for part in &place.parts {
        if let Ok(at) = terms.binary_search_by_key(&part.word, |term| term.word) {
            value |= u128::from((terms[at].value & part.mask()) >> part.shift) << part.at;
        }
    }
    value
}

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The prefix, left-aligned.
    bits: u128,
    /// The prefix length.
    len: u32,
    /// Number of flows with exactly this prefix.
    count: u32,
    children: [u32; 2],
}

/// An array of nodes in pieces, so that growing copies nothing.
#[derive(Debug, Default)]
struct Nodes {
    pieces: Vec<Vec<Node>>,
}

impl Nodes {
    /// Number of nodes in a piece.
    const PIECE: usize = 1024;

    fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * Nodes::PIECE + last.len())
    }

    fn push(&mut self, node: Node) {
        match self.pieces.last_mut().filter(|piece| piece.len() < Nodes::PIECE) {
            Some(piece) => piece.push(node),
            None => self.pieces.push(vec![node]),
        }
    }
}

impl std::ops::Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, at: usize) -> &Node {
        &self.pieces[at / Nodes::PIECE][at % Nodes::PIECE]
    }
}

impl std::ops::IndexMut<usize> for Nodes {
    fn index_mut(&mut self, at: usize) -> &mut Node {
        &mut self.pieces[at / Nodes::PIECE][at % Nodes::PIECE]
    }
}

/// A trie of prefixes.
#[derive(Debug)]
pub struct Trie {
    width: u32,
    nodes: Nodes,
    free: Vec<u32>,
}

/// The first `len` bits of a left-aligned value.
fn head(bits: u128, len: u32) -> u128 {
    if len == 0 { 0 } else { bits & !low128(128 - len) }
}

fn bit(bits: u128, at: u32) -> usize {
    (bits >> (127 - at) & 1) as usize
}

impl Trie {
    /// An empty trie for values of `width` bits.
    pub fn new(width: u32) -> Trie {
        let root = Node { bits: 0, len: 0, count: 0, children: [NONE; 2] };
        let mut nodes = Nodes::default();
        nodes.push(root);
        Trie { width, nodes, free: Vec::new() }
    }

    fn add_node(&mut self, node: Node) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Adds a prefix; equal ones are counted.
    pub fn insert(&mut self, value: u128, len: u32) {
        let bits = head(value << (128 - self.width), len);
        let mut at = 0usize;
        loop {
            let node = self.nodes[at];
            if node.len == len {
                self.nodes[at].count += 1;
                return;
            }
            let side = bit(bits, node.len);
            let child = node.children[side];
            let leaf = Node { bits, len, count: 1, children: [NONE; 2] };
            if child == NONE {
                self.nodes[at].children[side] = self.add_node(leaf);
                return;
            }
            let below = self.nodes[child as usize];
            let common = (bits ^ below.bits).leading_zeros().min(len).min(below.len);
            if common == below.len {
                at = child as usize;
                continue;
            }
            // Split the edge to the child where its prefix diverges.
            let mut middle = Node { bits: head(bits, common), len: common, count: 0, children: [NONE; 2] };
            middle.children[bit(below.bits, common)] = child;
            if common == len {
                middle.count = 1;
            } else {
                middle.children[bit(bits, common)] = self.add_node(leaf);
            }
            self.nodes[at].children[side] = self.add_node(middle);
            return;
        }
    }

    /// Removes a prefix, which must have been added.
    pub fn remove(&mut self, value: u128, len: u32) {
        let bits = head(value << (128 - self.width), len);
        // The path to the node: parents, and the sides taken.
        let (mut at, mut path) = (0usize, Vec::new());
        while self.nodes[at].len < len {
            let side = bit(bits, self.nodes[at].len);
            let child = self.nodes[at].children[side];
            if child == NONE {
                return;
            }
            path.push((at, side));
            at = child as usize;
        }
        if self.nodes[at].len != len || self.nodes[at].bits != bits || self.nodes[at].count == 0 {
            return;
        }
        self.nodes[at].count -= 1;
        // A node without flows must have two children, except for the root.
        while let Some((parent, side)) = path.pop() {
            let node = self.nodes[at];
            let rest = match (node.count, node.children) {
                (0, [only, NONE] | [NONE, only]) => only,
                _ => return,
            };
            self.nodes[parent].children[side] = rest;
            self.free.push(at as u32);
            if rest != NONE {
                return;
            }
            at = parent;
        }
    }

    /// The prefix lengths that can match a value.
    pub fn search(&self, value: u128) -> Answer {
        let value = value << (128 - self.width);
        let (mut at, mut lens) = (0usize, 0u128);
        loop {
            let node = self.nodes[at];
            let common = (value ^ node.bits).leading_zeros().min(node.len);
            if common < node.len {
                return Answer { needed: common + 1, lens };
            }
            if node.count > 0 && node.len > 0 {
                lens |= 1 << (node.len - 1);
            }
            if node.len == self.width || node.children == [NONE; 2] {
                return Answer { needed: node.len, lens };
            }
            let child = node.children[bit(value, node.len)];
            if child == NONE {
                return Answer { needed: node.len + 1, lens };
            }
            at = child as usize;
        }
    }
}
