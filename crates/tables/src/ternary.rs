//! Ternary, range and optional matching, with priorities: tuple space search.
//!
//! Entries with the same mask form a *tuple*, a hash table over their masked values, so a lookup costs one probe per
//! tuple, not one compare per entry. Tuples are visited in the order of the highest priority in them, and the search
//! ends at the first one that cannot beat what was found. (Srinivasan, Suri, Varghese: "Packet classification using
//! tuple space search"; the sorting by priority is Pfaff et al.: "The design and implementation of Open vSwitch",
//! section 5.2.)
//!
//! - *Ranges* do not become prefixes, which would multiply entries. A range contributes the leading bits that its ends
//!   share to the mask, and is checked on the candidates that the hash finds; a range of one value is thus hashed in
//!   full, and one that is a prefix too.
//! - *Exact, optional and lpm* fields are masks. Tables of long exact keys are one tuple, tables of long prefixes one
//!   tuple per length with the length as priority ([`Rule::PrefixLength`]).
//!
//! Tables of up to [`LINEAR_MAX`] entries are compared one by one instead ([`linear`]).
//!
//! Structure: a [`TupleList`], replaced as a whole when a tuple comes, goes or changes its place; each [`Tuple`] has a
//! [`Buckets`] array, replaced when it grows; each bucket is a list of [`Node`]s, best rank first, changed in place.
//!
//! Why readers may run meanwhile: each change of one entry becomes visible with one store (a link, or the entry of a
//! node), before a new list that ranks the tuple higher, and after such a list never: a stale list only hides the
//! newest entry or costs a probe. Lookups that overlap with several changes look again ([`crate::version`]). Unlinked
//! nodes keep their own link until they are freed, so that a reader on one finds its way out.
//!
//! Cost: insert and remove touch one bucket, and the list of tuples if the order changes.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

mod linear;
mod memory;

use crate::engine::{Engine, Rank, Writing, one_by_one};
use crate::key::KeyShape;
use crate::reclaim::{Domain, Limbo};
use crate::version::Version;
use abi::table::{KeyField, LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use base::entry::MatchKind;
use linear::{Item, LINEAR_MAX, Linear};
use memory::{Buckets, Dead, Node};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Which of several matching entries wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The one with the highest priority.
    Priority,
    /// The one with the longest prefix in the only `lpm` field.
    PrefixLength,
}

/// What readers see; at one address for the life of the table.
struct Shared {
    /// Null when there are too many entries.
    linear: AtomicPtr<Linear>,
    tuples: AtomicPtr<TupleList>,
    version: Version,
    seeds: [u64; 2],
    /// Words of a packet's key.
    words: usize,
    /// Range fields, checked on candidates.
    ranges: Vec<RangeField>,
}

/// Where a range field lies.
#[derive(Clone, Copy, Debug)]
struct RangeField {
    word: usize,
    shift: u32,
    /// Of a field within one word.
    mask: u64,
    /// More than 1 for fields above 64 bits.
    words: usize,
}

/// All tuples, highest priority first. Immutable.
struct TupleList {
    tuples: Vec<(i32, *const Tuple)>,
}

/// The entries with one mask.
struct Tuple {
    /// One word per word of the key.
    mask: Vec<u64>,
    buckets: AtomicPtr<Buckets>,
}

/// What only the writer knows of a tuple.
struct Writer {
    tuple: *mut Tuple,
    len: usize,
    /// How many entries of each priority.
    priorities: BTreeMap<i32, u32>,
}

/// The writer's side.
pub(crate) struct Ternary {
    shared: Box<Shared>,
    rule: Rule,
    prefix: Option<KeyField>,
    tuples: HashMap<Vec<u64>, Writer>,
    len: usize,
    limbo: Limbo<Retired>,
}

// SAFETY: the pointers lead to memory that the engine owns.
unsafe impl Send for Ternary {}

enum Retired {
    Node(Dead),
    Buckets(*mut Buckets),
    Tuple(*mut Tuple),
    List(*mut TupleList),
    Linear(*mut Linear),
}

/// The engine for any keys.
pub(crate) fn engine(shape: &KeyShape, rule: Rule) -> Box<dyn Engine> {
    let fields = &shape.layout().fields;
    let range = |f: &KeyField| RangeField {
        word: f.offset as usize / 8,
        shift: f.offset % 8 * 8,
        mask: u64::MAX >> (64 - (f.bytes * 8).min(64)),
        words: f.bytes.div_ceil(8) as usize,
    };
    let list = Box::into_raw(Box::new(TupleList { tuples: Vec::new() }));
    Box::new(Ternary {
        shared: Box::new(Shared {
            linear: AtomicPtr::new(Box::into_raw(Box::new(Linear::new(Vec::new())))),
            tuples: AtomicPtr::new(list),
            version: Version::new(),
            seeds: crate::random_seeds(),
            words: shape.words(),
            ranges: fields.iter().filter(|f| f.kind == MatchKind::Range).map(range).collect(),
        }),
        rule,
        prefix: fields.iter().find(|f| f.kind == MatchKind::Lpm).cloned(),
        tuples: HashMap::new(),
        len: 0,
        limbo: Limbo::default(),
    })
}

/// Hash of the masked words of a key.
#[inline]
fn hash(words: impl Iterator<Item = u64>, seeds: [u64; 2]) -> u64 {
    words.fold(seeds[0], |h, word| {
        let product = u128::from(h ^ word) * u128::from(seeds[1]);
        product as u64 ^ (product >> 64) as u64
    })
}

/// Looks a key up; see [`LookupFn`].
unsafe extern "C" fn lookup(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller passes a handle of such a table and a key of its layout, and is online; what is linked stays
    // until it is quiescent.
    unsafe {
        let shared = &*(*handle).snapshot.load(Ordering::Acquire).cast::<Shared>();
        let key = key.cast::<u64>();
        shared.version.read(|| shared.search(|i| key.add(i).read_unaligned()))
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn lookup_batch(
    handle: *const TableHandle,
    keys: *const u8,
    count: u32,
    out: *mut *const EntryHeader,
) {
    // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries, and is online.
    unsafe {
        let stride = (*(*handle).snapshot.load(Ordering::Acquire).cast::<Shared>()).words * 8;
        one_by_one(lookup, stride, handle, keys, count, out);
    }
}

impl Shared {
    /// The best entry for a key, or null.
    ///
    /// # Safety
    /// The caller is online; `key` gives each of the key's words.
    #[inline]
    unsafe fn search(&self, key: impl Fn(usize) -> u64 + Copy) -> *mut EntryHeader {
        // SAFETY: linked memory outlives the caller's batch.
        if let Some(linear) = unsafe { self.linear.load(Ordering::Acquire).as_ref() } {
            return linear.search(self, key);
        }
        let mut best: Option<&Node> = None;
        // SAFETY: linked memory outlives the caller's batch.
        for &(priority, tuple) in unsafe { &(*self.tuples.load(Ordering::Acquire)).tuples } {
            if best.is_some_and(|b| b.priority > priority) {
                break;
            }
            // SAFETY: as above.
            let tuple = unsafe { &*tuple };
            let masked = |i: usize| key(i) & tuple.mask[i];
            let hash = hash((0..self.words).map(masked), self.seeds);
            // SAFETY: as above.
            let buckets = unsafe { &*tuple.buckets.load(Ordering::Acquire) };
            let mut next = buckets.head(hash).load(Ordering::Acquire);
            // SAFETY: as above.
            while let Some(node) = unsafe { next.as_ref() } {
                if best.is_some_and(|b| !node.beats(b)) {
                    break;
                }
                // SAFETY: a node of this engine has all the words that are asked for.
                if node.hash == hash && unsafe { self.accepts(next, masked, key) } {
                    best = Some(node);
                    break;
                }
                next = node.next.load(Ordering::Acquire);
            }
        }
        best.map_or(ptr::null_mut(), |node| node.entry.load(Ordering::Acquire))
    }

    /// Whether a node's value equals the masked key and its ranges contain the key.
    ///
    /// # Safety
    /// The node is alive and has the words of this engine.
    #[inline]
    unsafe fn accepts(&self, node: *const Node, masked: impl Fn(usize) -> u64, key: impl Fn(usize) -> u64) -> bool {
        // SAFETY: the caller's promise.
        let word = |i: usize| unsafe { Node::word(node, i) };
        (0..self.words).all(|i| word(i) == masked(i)) && self.in_ranges(|i| word(self.words + i), key)
    }

    /// Whether the key is in all ranges; `ends` gives the words of the low ends and then of the high ends.
    #[inline]
    fn in_ranges(&self, ends: impl Fn(usize) -> u64, key: impl Fn(usize) -> u64) -> bool {
        self.ranges.iter().all(|range| {
            let (low, high) = (range.word, self.words + range.word);
            if range.words == 1 {
                let part = |w: u64| w >> range.shift & range.mask;
                let value = part(key(range.word));
                part(ends(low)) <= value && value <= part(ends(high))
            } else {
                let at_least = |a: &dyn Fn(usize) -> u64, b: &dyn Fn(usize) -> u64| {
                    (0..range.words).rev().map(a).ge((0..range.words).rev().map(b))
                };
                let value = |i: usize| key(range.word + i);
                at_least(&value, &|i| ends(low + i)) && at_least(&|i| ends(high + i), &value)
            }
        })
    }
}

/// What of a packed key goes where: the tuple's mask, and the words of the node.
struct Split {
    mask: Vec<u64>,
    words: Vec<u64>,
    hash: u64,
    priority: i32,
}

impl Ternary {
    fn split(&self, packed: &[u64], (priority, _): Rank) -> Split {
        let n = self.shared.words;
        // Tables of only exact keys have no masks: everything counts.
        let mut mask = if packed.len() == n { vec![u64::MAX; n] } else { packed[n..].to_vec() };
        for range in &self.shared.ranges {
            share_prefix(range, &packed[..n], &packed[n..], &mut mask);
        }
        let mut words: Vec<u64> = packed[..n].iter().zip(&mask).map(|(v, m)| v & m).collect();
        let hash = hash(words.iter().copied(), self.shared.seeds);
        if !self.shared.ranges.is_empty() {
            words.extend_from_slice(packed);
        }
        let priority = match (self.rule, &self.prefix) {
            (Rule::PrefixLength, Some(field)) => {
                let at = field.offset as usize / 8;
                let ones = |i: usize| mask[at + i];
                if field.bytes >= 8 {
                    (0..field.bytes as usize / 8).map(|i| ones(i).count_ones()).sum::<u32>() as i32
                } else {
                    let part = ones(0) >> (field.offset % 8 * 8) & ((1 << (8 * field.bytes)) - 1);
                    part.count_ones() as i32
                }
            }
            _ => priority,
        };
        Split { mask, words, hash, priority }
    }

    /// Publishes the list of tuples anew.
    fn publish(&mut self, domain: &Domain) {
        let top = |w: &Writer| w.priorities.last_key_value().map(|(priority, _)| (*priority, w.tuple.cast_const()));
        let mut tuples: Vec<(i32, *const Tuple)> = self.tuples.values().filter_map(top).collect();
        tuples.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let list = Box::into_raw(Box::new(TupleList { tuples }));
        let old = self.shared.tuples.swap(list, Ordering::AcqRel);
        self.limbo.push(domain.advance(), Retired::List(old));
    }

    /// Publishes the list of few entries anew, or that there are too many.
    fn publish_linear(&mut self, domain: &Domain) {
        let new = if self.len > LINEAR_MAX {
            ptr::null_mut()
        } else {
            let mut items = Vec::new();
            for (mask, writer) in &self.tuples {
                // SAFETY: tuples in the map are alive, and so is what is linked below them.
                unsafe {
                    (*(*writer.tuple).buckets.load(Ordering::Relaxed)).nodes(|node| {
                        let entry = (*node).entry.load(Ordering::Relaxed);
                        items.push(Item {
                            rank: ((*node).priority, (*node).seq),
                            mask,
                            words: Node::words(node),
                            entry,
                        });
                    });
                }
            }
            Box::into_raw(Box::new(Linear::new(items)))
        };
        let old = self.shared.linear.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            self.limbo.push(domain.advance(), Retired::Linear(old));
        }
    }

    /// The link that leads to the node with this hash and rank, and the node.
    fn locate(&self, split: &Split, seq: u64) -> (&AtomicPtr<Node>, *mut Node) {
        let tuple = self.tuples[&split.mask].tuple;
        // SAFETY: tuples in the map are alive, and so is what is linked below them.
        unsafe {
            let mut link = (*(*tuple).buckets.load(Ordering::Relaxed)).head(split.hash);
            loop {
                let node = link.load(Ordering::Relaxed);
                let found = node.as_ref().expect("the entry is stored");
                if found.hash == split.hash && (found.priority, found.seq) == (split.priority, seq) {
                    return (link, node);
                }
                link = &found.next;
            }
        }
    }
}

/// Sets a range field's bits of `mask` to the leading bits that its ends share.
fn share_prefix(range: &RangeField, low: &[u64], high: &[u64], mask: &mut [u64]) {
    if range.words == 1 {
        let field = range.mask << range.shift;
        let differ = (low[range.word] ^ high[range.word]) & field;
        // Ones from the highest differing bit down; in the field these are what the hash must not see.
        let below = if differ == 0 { 0 } else { u64::MAX >> differ.leading_zeros() };
        mask[range.word] = mask[range.word] & !field | field & !below;
        return;
    }
    let mut equal = true;
    for i in (range.word..range.word + range.words).rev() {
        let differ = low[i] ^ high[i];
        mask[i] = match (equal, differ) {
            (true, 0) => u64::MAX,
            (true, _) => !(u64::MAX >> differ.leading_zeros()),
            (false, _) => 0,
        };
        equal &= differ == 0;
    }
}

impl Engine for Ternary {
    fn kind(&self) -> EngineKind {
        EngineKind::Opaque
    }

    fn lookup(&self) -> LookupFn {
        lookup
    }

    fn lookup_batch(&self) -> LookupBatchFn {
        lookup_batch
    }

    fn snapshot(&self) -> *const c_void {
        (&raw const *self.shared).cast()
    }

    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let new_tuple = || {
            let buckets = AtomicPtr::new(Buckets::new(1));
            let tuple = Box::into_raw(Box::new(Tuple { mask: split.mask.clone(), buckets }));
            Writer { tuple, len: 0, priorities: BTreeMap::new() }
        };
        let writer = self.tuples.entry(split.mask.clone()).or_insert_with(new_tuple);
        let before = writer.priorities.last_key_value().map(|(p, _)| *p);
        *writer.priorities.entry(split.priority).or_insert(0) += 1;
        writer.len += 1;
        // SAFETY: the tuple is alive; its buckets are replaced only here, by the writer.
        unsafe {
            let place = &(*writer.tuple).buckets;
            let mut buckets = place.load(Ordering::Relaxed);
            if writer.len > (*buckets).len() {
                let old = buckets;
                buckets = (*old).doubled();
                place.store(buckets, Ordering::Release);
                let epoch = w.domain.advance();
                (*old).nodes(|node| self.limbo.push(epoch, Retired::Node(Node::dead(node))));
                self.limbo.push(epoch, Retired::Buckets(old));
            }
            (*buckets).insert(Node::new(split.hash, split.priority, rank.1, entry, &split.words));
        }
        if before.is_none_or(|p| split.priority > p) {
            self.publish(w.domain);
        }
        self.len += 1;
        if self.len <= LINEAR_MAX + 1 {
            self.publish_linear(w.domain);
        }
    }

    fn replace(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let (_, node) = self.locate(&split, rank.1);
        // SAFETY: the node is linked, so it is alive.
        unsafe { (*node).entry.store(entry, Ordering::Release) };
        if self.len <= LINEAR_MAX {
            self.publish_linear(w.domain);
        }
    }

    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let (link, node) = self.locate(&split, rank.1);
        // SAFETY: the node is linked, so it is alive.
        let dead = unsafe {
            link.store((*node).next.load(Ordering::Relaxed), Ordering::Release);
            Node::dead(node)
        };
        self.limbo.push(w.domain.advance(), Retired::Node(dead));
        let writer = self.tuples.get_mut(&split.mask).expect("the entry's tuple is there");
        writer.len -= 1;
        let before = writer.priorities.last_key_value().map(|(p, _)| *p);
        if let Some(count) = writer.priorities.get_mut(&split.priority) {
            *count -= 1;
            if *count == 0 {
                writer.priorities.remove(&split.priority);
            }
        }
        let after = writer.priorities.last_key_value().map(|(p, _)| *p);
        let gone = (writer.len == 0).then_some(writer.tuple);
        if before != after {
            self.publish(w.domain);
        }
        if let Some(tuple) = gone {
            self.tuples.remove(&split.mask);
            self.limbo.push(w.domain.advance(), Retired::Tuple(tuple));
        }
        self.len -= 1;
        if self.len <= LINEAR_MAX {
            self.publish_linear(w.domain);
        }
    }

    fn collect(&mut self, domain: &Domain) {
        // SAFETY: what comes out of limbo was unlinked, and every worker has been quiescent since.
        self.limbo.collect(domain, |retired| unsafe { retired.free() });
    }
}

impl Retired {
    /// # Safety
    /// No reader can see it any more.
    unsafe fn free(self) {
        // SAFETY: the caller's promise; each was boxed or allocated once and is retired once.
        unsafe {
            match self {
                Retired::Node(dead) => dead.free(),
                Retired::Buckets(buckets) => drop(Box::from_raw(buckets)),
                Retired::List(list) => drop(Box::from_raw(list)),
                Retired::Linear(linear) => drop(Box::from_raw(linear)),
                Retired::Tuple(tuple) => {
                    let tuple = Box::from_raw(tuple);
                    drop(Box::from_raw(tuple.buckets.load(Ordering::Relaxed)));
                }
            }
        }
    }
}

impl Drop for Ternary {
    /// There are no readers any more.
    fn drop(&mut self) {
        for (_, writer) in self.tuples.drain() {
            // SAFETY: nobody reads; nodes and tuples in use are not in limbo.
            unsafe {
                let buckets = (*writer.tuple).buckets.load(Ordering::Relaxed);
                let mut nodes = Vec::new();
                (*buckets).nodes(|node| nodes.push(Node::dead(node)));
                nodes.into_iter().for_each(|dead| dead.free());
                Retired::Tuple(writer.tuple).free();
            }
        }
        // SAFETY: nobody reads.
        unsafe {
            Retired::List(self.shared.tuples.load(Ordering::Relaxed)).free();
            let linear = self.shared.linear.load(Ordering::Relaxed);
            if !linear.is_null() {
                Retired::Linear(linear).free();
            }
            self.limbo.drain().for_each(|retired| retired.free());
        }
    }
}
