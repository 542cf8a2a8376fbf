//! Sets of small numbers for dataflow analyses: slots, fields, headers, nodes.
//!
//! An analysis has a set for each block, and a large program has about as many numbers as blocks, so plain bit vectors
//! would take quadratic memory, and quadratic time to join. But the sets of neighbouring blocks are nearly equal. So a
//! set is a persistent tree whose subtrees are shared with the sets from which it was copied or joined: a copy takes
//! constant time, a change copies one leaf and the path to it, and [`BitSet::union`] and [`BitSet::difference`] skip
//! shared subtrees. The time of an analysis is then proportional to what changes from block to block, times the height
//! of the tree.
//!
//! Small sets (up to [`LEAF_BITS`] numbers) are a single leaf: an array and a count.
//!
//! Invariant: no leaf and no inner node is empty, so equal sets are equal trees.
//!
//! Tests: at the end of the file.

use std::sync::Arc;

/// Number of words of a leaf.
const LEAF_WORDS: usize = 4;
/// Number of bits of a leaf.
pub const LEAF_BITS: usize = 64 * LEAF_WORDS;
/// Children of an inner node.
const FAN: usize = 8;

/// A set of numbers below a bound that is fixed at creation. Sets that are combined have the same bound.
#[derive(Clone, Debug, Default)]
pub struct BitSet {
    root: Tree,
    /// Levels of inner nodes.
    height: u32,
}

/// A subtree; `None` is the empty set.
type Tree = Option<Node>;

#[derive(Clone, Debug)]
enum Node {
    Leaf(Arc<[u64; LEAF_WORDS]>),
    Inner(Arc<[Tree; FAN]>),
}

/// Number of bits below a node of this height.
fn span(height: u32) -> usize {
    LEAF_BITS * FAN.pow(height)
}

impl BitSet {
    /// The empty set of numbers below `bound`.
    pub fn new(bound: usize) -> BitSet {
        let height = (0..).find(|h| span(*h) >= bound).expect("spans grow");
        BitSet { root: None, height }
    }

    /// All numbers below `bound`.
    pub fn full(bound: usize) -> BitSet {
        fn tree(height: u32, count: usize) -> Tree {
            if count == 0 {
                return None;
            }
            if height == 0 {
                let word = |w: usize| match count.saturating_sub(64 * w) {
                    0 => 0,
                    bits @ 1..64 => (1 << bits) - 1,
                    _ => u64::MAX,
                };
                return Some(Node::Leaf(Arc::new(std::array::from_fn(word))));
            }
            let below = span(height - 1);
            let full = (count >= below).then(|| tree(height - 1, below)).flatten();
            let child = |c: usize| match count.saturating_sub(c * below) {
                rest if rest >= below => full.clone(),
                rest => tree(height - 1, rest),
            };
            Some(Node::Inner(Arc::new(std::array::from_fn(child))))
        }
        let mut set = BitSet::new(bound);
        set.root = tree(set.height, bound);
        set
    }

    /// Adds a number.
    pub fn insert(&mut self, i: usize) {
        let (mut at, mut height, mut rest) = (&mut self.root, self.height, i);
        loop {
            if height == 0 {
                let Node::Leaf(words) = at.get_or_insert_with(|| Node::Leaf(Arc::default())) else { unreachable!() };
                if words[rest / 64] >> (rest % 64) & 1 == 0 {
                    Arc::make_mut(words)[rest / 64] |= 1 << (rest % 64);
                }
                return;
            }
            height -= 1;
            let Node::Inner(children) = at.get_or_insert_with(|| Node::Inner(Arc::default())) else { unreachable!() };
            at = &mut Arc::make_mut(children)[rest / span(height)];
            rest %= span(height);
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, i: usize) {
        fn remove(tree: &mut Tree, height: u32, i: usize) {
            match tree {
                Some(Node::Leaf(words)) => {
                    let words = Arc::make_mut(words);
                    words[i / 64] &= !(1 << (i % 64));
                    if *words == [0; LEAF_WORDS] {
                        *tree = None;
                    }
                }
                Some(Node::Inner(children)) => {
                    let children = Arc::make_mut(children);
                    remove(&mut children[i / span(height - 1)], height - 1, i % span(height - 1));
                    if children.iter().all(Option::is_none) {
                        *tree = None;
                    }
                }
                None => {}
            }
        }
        if self.contains(i) {
            remove(&mut self.root, self.height, i);
        }
    }

    /// Whether the set contains a number.
    pub fn contains(&self, i: usize) -> bool {
        let (mut at, mut height, mut rest) = (&self.root, self.height, i);
        loop {
            match at {
                None => return false,
                Some(Node::Leaf(words)) => return words[rest / 64] >> (rest % 64) & 1 == 1,
                Some(Node::Inner(children)) => {
                    height -= 1;
                    at = &children[rest / span(height)];
                    rest %= span(height);
                }
            }
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Adds all members of `other`. Returns whether that changed anything.
    pub fn union(&mut self, other: &BitSet) -> bool {
        match union(&self.root, &other.root) {
            Union::Both | Union::Left => false,
            Union::Right => {
                self.root.clone_from(&other.root);
                true
            }
            Union::New(node) => {
                self.root = Some(node);
                true
            }
        }
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.difference(&EMPTY)
    }

    /// Members that are not in `other`, in ascending order.
    pub fn difference<'a>(&'a self, other: &'a BitSet) -> impl Iterator<Item = usize> + 'a {
        let mut stack = vec![(&self.root, &other.root, self.height, 0)];
        let mut words: [u64; LEAF_WORDS] = [0; LEAF_WORDS];
        let (mut word, mut from) = (LEAF_WORDS, 0);
        std::iter::from_fn(move || {
            loop {
                while word < LEAF_WORDS {
                    if words[word] != 0 {
                        let bit = words[word].trailing_zeros() as usize;
                        words[word] &= words[word] - 1;
                        return Some(from + 64 * word + bit);
                    }
                    word += 1;
                }
                let (ours, theirs, height, first) = stack.pop()?;
                if is_same(ours, theirs) {
                    continue;
                }
                match (ours, theirs) {
                    (None, _) => {}
                    (Some(Node::Leaf(a)), theirs) => {
                        words = **a;
                        if let Some(Node::Leaf(b)) = theirs {
                            words.iter_mut().zip(&**b).for_each(|(a, b)| *a &= !b);
                        }
                        (word, from) = (0, first);
                    }
                    (Some(Node::Inner(a)), theirs) => {
                        for (c, child) in a.iter().enumerate().rev() {
                            let other = match theirs {
                                Some(Node::Inner(b)) => &b[c],
                                _ => &None,
                            };
                            stack.push((child, other, height - 1, first + c * span(height - 1)));
                        }
                    }
                }
            }
        })
    }
}

/// The empty set of any bound.
const EMPTY: BitSet = BitSet { root: None, height: 0 };

impl PartialEq for BitSet {
    fn eq(&self, other: &BitSet) -> bool {
        fn equal(a: &Tree, b: &Tree) -> bool {
            is_same(a, b)
                || match (a, b) {
                    (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => a == b,
                    (Some(Node::Inner(a)), Some(Node::Inner(b))) => a.iter().zip(&**b).all(|(a, b)| equal(a, b)),
                    _ => false,
                }
        }
        equal(&self.root, &other.root)
    }
}

impl Eq for BitSet {}

/// Whether two trees are the same node, or both empty.
fn is_same(a: &Tree, b: &Tree) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => Arc::ptr_eq(a, b),
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// The union of two trees.
enum Union {
    /// It equals both.
    Both,
    /// It equals the first.
    Left,
    /// It equals the second.
    Right,
    New(Node),
}

fn union(a: &Tree, b: &Tree) -> Union {
    match (a, b) {
        _ if is_same(a, b) => Union::Both,
        (_, None) => Union::Left,
        (None, _) => Union::Right,
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => {
            let both: [u64; LEAF_WORDS] = std::array::from_fn(|w| a[w] | b[w]);
            match (both == **a, both == **b) {
                (true, true) => Union::Both,
                (true, false) => Union::Left,
                (false, true) => Union::Right,
                (false, false) => Union::New(Node::Leaf(Arc::new(both))),
            }
        }
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => {
            let children: [Union; FAN] = std::array::from_fn(|c| union(&a[c], &b[c]));
            let is_left = children.iter().all(|c| matches!(c, Union::Both | Union::Left));
            let is_right = children.iter().all(|c| matches!(c, Union::Both | Union::Right));
            match (is_left, is_right) {
                (true, true) => Union::Both,
                (true, false) => Union::Left,
                (false, true) => Union::Right,
                (false, false) => {
                    let mut children = children.into_iter().enumerate();
                    let child = |_| match children.next().expect("there are as many") {
                        (c, Union::Both | Union::Left) => a[c].clone(),
                        (c, Union::Right) => b[c].clone(),
                        (_, Union::New(node)) => Some(node),
                    };
                    Union::New(Node::Inner(Arc::new(std::array::from_fn(child))))
                }
            }
        }
        _ => unreachable!("sets of one bound have one height"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check(set: &BitSet, model: &BTreeSet<usize>) {
        assert!(set.iter().eq(model.iter().copied()), "{set:?} is not {model:?}");
        assert_eq!(set.is_empty(), model.is_empty());
    }

    #[test]
    fn sets_are_sets() {
        for bound in [1, 63, 64, 65, LEAF_BITS, LEAF_BITS + 1, LEAF_BITS * FAN, LEAF_BITS * FAN + 1, 40_000] {
            let mut sets: Vec<(BitSet, BTreeSet<usize>)> =
                (0..4).map(|_| (BitSet::new(bound), BTreeSet::new())).collect();
            let mut random = random::Random::new(bound as u64);
            let mut below = |n: usize| random.index(n);
            for _ in 0..2_000 {
                let (to, from, i) = (below(4), below(4), below(bound));
                match below(8) {
                    0..=3 => {
                        sets[to].0.insert(i);
                        sets[to].1.insert(i);
                    }
                    4 => {
                        sets[to].0.remove(i);
                        sets[to].1.remove(&i);
                    }
                    5 => sets[to] = sets[from].clone(),
                    6 => {
                        let other = sets[from].clone();
                        let changed = !other.1.is_subset(&sets[to].1);
                        assert_eq!(sets[to].0.union(&other.0), changed);
                        sets[to].1.extend(other.1);
                    }
                    _ => {
                        let (a, b) = (&sets[to], &sets[from]);
                        assert!(a.0.difference(&b.0).eq(a.1.difference(&b.1).copied()));
                        assert_eq!(a.0 == b.0, a.1 == b.1);
                    }
                }
                check(&sets[to].0, &sets[to].1);
                assert_eq!(sets[to].0.contains(i), sets[to].1.contains(&i));
            }
            let (mut all, every) = (BitSet::full(bound), (0..bound).collect());
            check(&all, &every);
            (0..bound).for_each(|i| all.remove(i));
            assert_eq!(all, BitSet::new(bound));
        }
    }
}
