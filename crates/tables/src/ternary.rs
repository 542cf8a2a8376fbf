//! Ternary, range and optional matching with priorities: tuple space search.
//!
//! Entries with the same mask form a *tuple*, a hash table over their masked values, so a lookup costs one probe per
//! tuple, not one comparison per entry. Tuples are visited in the order of their highest priorities, and the search
//! ends at the first one that cannot beat the best match so far. (Srinivasan, Suri, Varghese: "Packet classification
//! using tuple space search"; the sorting by priority is from Pfaff et al.: "The design and implementation of Open
//! vSwitch", section 5.2.) The key is hashed for eight tuples at a time, and a Bloom filter excludes those that have no
//! matching entry ([`search`]), so such a tuple costs a few cycles.
//!
//! - *Ranges* are not expanded to prefixes, which would multiply entries. The leading bits that both ends of a range
//!   share become part of the mask, and the range is checked on the candidates that the hash finds. So a range that is
//!   one value or a prefix is hashed in full.
//! - *Exact, optional and lpm* fields are masks. Tables of long exact keys are one tuple; tables of long prefixes have
//!   one tuple per length, with the length as priority ([`Rule::PrefixLength`]).
//!
//! Tables of up to [`LINEAR_MAX`] entries are searched linearly instead ([`linear`]), and tables with many masks use
//! bit vectors ([`vectors`]).
//!
//! Structure: a [`Filter`] over all entries, rebuilt when it is saturated; a list of all tuples in segments
//! ([`TupleList`]), one of which is replaced when a tuple is added, removed or reordered ([`list`]); for each [`Tuple`] a
//! [`Buckets`] array, replaced when it grows; each bucket is a chain of [`Node`]s, best rank first, changed in place.
//!
//! **Concurrent readers.** Each change of one entry becomes visible with one store (a link, or the entry of a node).
//! The entry is in the filter before that, and a new list that ranks its tuple higher follows after it: so a stale
//! filter or list only hides the newest entry or costs a probe. Lookups that overlap with several changes are repeated
//! ([`crate::version`]). Unlinked nodes and segments keep their own links until they are freed, so that a reader on one
//! can continue.
//!
//! Cost: insertion and removal change one bucket, and a segment of the list of tuples if their order changes. Whatever
//! masks, keys and priorities are chosen, `n` changes copy `O(n log n)` nodes, tuples and rows: chains that are long are
//! indexed ([`chains`]), segments and the list of entries beside bit vectors are short, and what is rebuilt as a whole is
//! rebuilt after a number of changes in proportion to its size (`ternary/tests.rs` counts). Memory follows the entries that
//! are there: a filter, and a tuple's buckets, [`SHRINK`] times as many as their entries are replaced by fewer.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

mod chains;
mod filter;
mod lanes;
mod linear;
mod list;
mod memory;
mod search;
mod vectors;

use crate::engine::{Engine, Rank, Writing};
use crate::key::KeyShape;
use crate::reclaim::{Domain, Limbo};
use crate::version::Version;
use abi::table::{KeyField, LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader};
use base::entry::MatchKind;
use chains::Chains;
use filter::Filter;
use lanes::Hasher;
use linear::{Item, LINEAR_MAX, Linear};
use list::Segments;
use memory::{Buckets, Node, Unlinked};
use search::{RangeField, Shared, Tuple, TupleList, lookups};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use vectors::{Cost, Fresh, NIBBLES, Published, Vectors, changes_max};

/// Unlinked objects that are retired together in one epoch.
const RETIRED_TOGETHER: usize = 32;

/// Buckets or words of a filter per entry from which on there are too many. New ones are at most 4 per entry, so entries as
/// many as an eighth of them have gone since; chosen.
const SHRINK: usize = 8;
/// Buckets that are not worth replacing by fewer: a cache line.
const BUCKETS_MIN: usize = 8;

/// The rule for which of several matching entries wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The one with the highest priority.
    Priority,
    /// The one with the longest prefix in the only `lpm` field.
    PrefixLength,
}

/// The writer's data of a tuple.
struct Writer {
    tuple: *mut Tuple,
    len: usize,
    /// The number of entries of each priority.
    priorities: BTreeMap<i32, u32>,
}

/// Where the masks of all tuples have bits.
struct Masked {
    /// By nibble of the key, how many masks have bits there.
    uses: Vec<u32>,
    /// How many nibbles, and how many words of the key, have bits in some mask.
    nibbles: usize,
    words: usize,
}

impl Masked {
    fn new(words: usize) -> Masked {
        Masked { uses: vec![0; words * NIBBLES], nibbles: 0, words: 0 }
    }

    /// Counts a mask that a tuple has from now on or, unless it `comes`, has no longer.
    fn count(&mut self, mask: &[u64], comes: bool) {
        for (word, uses) in mask.iter().zip(self.uses.chunks_exact_mut(NIBBLES)).filter(|(word, _)| **word != 0) {
            let used = |uses: &[u32]| uses.iter().filter(|uses| **uses > 0).count();
            let before = used(uses);
            for (nibble, uses) in uses.iter_mut().enumerate().filter(|(nibble, _)| word >> (4 * nibble) & 0xf != 0) {
                debug_assert!(comes || *uses > 0, "nibble {nibble} of a mask was counted");
                *uses = if comes { *uses + 1 } else { *uses - 1 };
            }
            let after = used(uses);
            self.nibbles = self.nibbles + after - before;
            self.words = self.words + usize::from(after > 0) - usize::from(before > 0);
        }
    }
}

/// The writer's data of a table that uses bit vectors.
struct WithVectors {
    rows: Arc<Vectors>,
    /// In rank order.
    fresh: Vec<Fresh>,
    /// Entries of the bit vectors that have been removed since they were built.
    gone: usize,
}

/// The writer's side.
pub(crate) struct Ternary {
    shared: Box<Shared>,
    rule: Rule,
    prefix: Option<KeyField>,
    tuples: HashMap<Vec<u64>, Writer>,
    segments: Segments,
    chains: Chains,
    masked: Masked,
    vectors: Option<WithVectors>,
    len: usize,
    /// How many entries have been copied to filters, buckets and bit vectors so far.
    copied: u64,
    /// Unlinked objects that are not in limbo yet.
    retired: Vec<Retired>,
    limbo: Limbo<Retired>,
}

// SAFETY: the pointers point at memory that the engine owns.
unsafe impl Send for Ternary {}

enum Retired {
    Node(Unlinked),
    Buckets(*mut Buckets),
    Tuple(*mut Tuple),
    List(*mut TupleList),
    Filter(*mut Filter),
    Linear(*mut Linear),
    Rows(Arc<Vectors>),
    Vectors(*mut Published),
}

/// A ternary engine for keys of any shape.
pub(crate) fn engine(shape: &KeyShape, rule: Rule) -> Box<dyn Engine> {
    Box::new(new(shape, rule))
}

fn new(shape: &KeyShape, rule: Rule) -> Ternary {
    let fields = &shape.layout().fields;
    let range = |f: &KeyField| RangeField {
        word: f.offset as usize / 8,
        shift: f.offset % 8 * 8,
        mask: u64::MAX >> (64 - (f.bytes * 8).min(64)),
        words: f.bytes.div_ceil(8) as usize,
    };
    let hasher = Hasher::new(shape.words());
    let list = Box::into_raw(Box::new(TupleList::new(Vec::new(), &hasher)));
    Ternary {
        shared: Box::new(Shared {
            linear: AtomicPtr::new(Box::into_raw(Box::new(Linear::new(Vec::new())))),
            vectors: AtomicPtr::new(ptr::null_mut()),
            tuples: AtomicPtr::new(list),
            version: Version::new(),
            filter: AtomicPtr::new(Box::into_raw(Box::new(Filter::new(&[])))),
            hasher,
            words: shape.words(),
            ranges: fields.iter().filter(|f| f.kind == MatchKind::Range).map(range).collect(),
        }),
        rule,
        prefix: fields.iter().find(|f| f.kind == MatchKind::Lpm).cloned(),
        tuples: HashMap::new(),
        segments: Segments::new(list),
        chains: Chains::default(),
        masked: Masked::new(shape.words()),
        vectors: None,
        len: 0,
        copied: 0,
        retired: Vec::new(),
        limbo: Limbo::default(),
    }
}

/// A change of one entry.
enum Change {
    Insert(Fresh),
    Replace((i32, u64), *mut EntryHeader),
    Remove((i32, u64)),
}

/// A packed key divided: the tuple's mask, and the words that its node stores.
struct Split {
    mask: Vec<u64>,
    words: Vec<u64>,
    priority: i32,
}

impl Ternary {
    fn split(&self, packed: &[u64], (priority, _): Rank) -> Split {
        let n = self.shared.words;
        // Packed keys of tables with only exact fields have no masks: all bits count.
        let mut mask = if packed.len() == n { vec![u64::MAX; n] } else { packed[n..].to_vec() };
        for range in &self.shared.ranges {
            share_prefix(range, &packed[..n], &packed[n..], &mut mask);
        }
        let mut words: Vec<u64> = packed[..n].iter().zip(&mask).map(|(v, m)| v & m).collect();
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
        Split { mask, words, priority }
    }

    /// Retires unlinked objects once enough have accumulated: each new epoch is a store to a cache line that all
    /// workers read.
    fn retire(&mut self, domain: &Domain) {
        if self.retired.len() >= RETIRED_TOGETHER {
            let epoch = domain.advance_by(self.retired.iter().map(Retired::bytes).sum());
            self.retired.drain(..).for_each(|retired| self.limbo.push(epoch, retired));
        }
    }

    /// Publishes the list with a tuple at the place of another highest priority; `None` for a tuple that is not listed.
    fn rank(&mut self, tuple: *const Tuple, before: Option<i32>, after: Option<i32>) {
        if before == after {
            return;
        }
        let Ternary { shared, segments, retired, .. } = self;
        let mut retire = |list| retired.push(Retired::List(list));
        if let Some(priority) = after {
            segments.insert(&shared.tuples, &shared.hasher, (priority, tuple), &mut retire);
        }
        if let Some(priority) = before {
            if after.is_some() {
                // A lookup that has passed the new place before the tuple was there must not miss it at the old one.
                shared.version.change();
            }
            segments.remove(&shared.tuples, &shared.hasher, (priority, tuple), &mut retire);
        }
    }

    /// How many entries and tuples changes have copied and stepped over so far.
    #[cfg(test)]
    fn work(&self) -> u64 {
        self.copied + self.segments.copied() + self.chains.steps()
    }

    /// Adds an entry's hash to the filter, which is rebuilt if it is saturated.
    fn filter(&mut self, hash: u32) {
        let filter = self.shared.filter.load(Ordering::Relaxed);
        // SAFETY: the filter is linked, so it is alive.
        let there = unsafe { &*filter };
        if !there.needs_rebuild() {
            return there.add(hash);
        }
        self.make_filter(Some(hash));
    }

    /// Rebuilds the filter from all entries and one that is about to be added.
    fn make_filter(&mut self, more: Option<u32>) {
        let mut hashes = Vec::from_iter(more);
        for writer in self.tuples.values() {
            // SAFETY: tuples in the map are alive, and so is what is linked below them.
            unsafe { (*(*writer.tuple).buckets.load(Ordering::Relaxed)).nodes(|node| hashes.push((*node).hash)) };
        }
        self.copied += hashes.len() as u64;
        let new = Box::into_raw(Box::new(Filter::new(&hashes)));
        let old = self.shared.filter.swap(new, Ordering::AcqRel);
        self.retired.push(Retired::Filter(old));
    }

    /// Gives back what a tuple with so many entries, or none any more, and the table no longer need.
    fn shrink(&mut self, tuple: *mut Tuple, len: usize) {
        // SAFETY: the tuple is alive; its buckets are replaced only by the writer.
        unsafe {
            let place = &(*tuple).buckets;
            let old = place.load(Ordering::Relaxed);
            if len > 0 && (*old).len() > BUCKETS_MIN && (*old).len() >= SHRINK * len {
                self.chains.forget(&*old);
                place.store((*old).shortened((2 * len).next_power_of_two()), Ordering::Release);
                self.copied += len as u64;
                (*old).nodes(|node| self.retired.push(Retired::Node(Node::unlinked(node))));
                self.retired.push(Retired::Buckets(old));
            }
        }
        // SAFETY: the filter is linked, so it is alive.
        if unsafe { &*self.shared.filter.load(Ordering::Relaxed) }.is_too_large(self.len) {
            self.make_filter(None);
        }
        if self.tuples.capacity() > SHRINK * self.tuples.len().max(BUCKETS_MIN) {
            self.tuples.shrink_to(2 * self.tuples.len());
        }
    }

    /// Rebuilds and publishes the list of a small table's entries; null if there are too many.
    fn publish_linear(&mut self) {
        let new =
            if self.len > LINEAR_MAX { ptr::null_mut() } else { Box::into_raw(Box::new(Linear::new(self.items()))) };
        let old = self.shared.linear.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            self.retired.push(Retired::Linear(old));
        }
    }

    /// All entries.
    fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::with_capacity(self.len);
        for (mask, writer) in &self.tuples {
            // SAFETY: tuples in the map are alive, and so is what is linked below them.
            unsafe {
                (*(*writer.tuple).buckets.load(Ordering::Relaxed)).nodes(|node| {
                    let entry = (*node).entry.load(Ordering::Relaxed);
                    items.push(Item { rank: ((*node).priority, (*node).seq), mask, words: Node::words(node), entry });
                });
            }
        }
        items
    }

    /// Applies a change of the tuples to the bit vectors, if the table uses them or should from now on.
    fn change_vectors(&mut self, change: Change) {
        let cost = Cost::new(self.len, self.tuples.len(), self.masked.nibbles, self.masked.words);
        if self.len <= LINEAR_MAX || !cost.prefers_vectors(self.vectors.is_some()) {
            if let Some(old) = self.vectors.take() {
                self.retired.push(Retired::Rows(old.rows));
                self.publish_vectors();
            }
            return;
        }
        let Some(vectors) = &mut self.vectors else { return self.make_vectors() };
        let search = |fresh: &[Fresh], rank| fresh.binary_search_by_key(&order(rank), |f| order(f.rank));
        match change {
            Change::Insert(fresh) => {
                let at = search(&vectors.fresh, fresh.rank).unwrap_or_else(|at| at);
                vectors.fresh.insert(at, fresh);
            }
            Change::Replace(rank, entry) => match vectors.rows.place(rank) {
                Some(place) => return place.store(entry, Ordering::Release),
                None => _ = search(&vectors.fresh, rank).map(|at| vectors.fresh[at].entry = entry),
            },
            Change::Remove(rank) => match vectors.rows.place(rank) {
                Some(place) => {
                    vectors.gone += 1;
                    place.store(ptr::null_mut(), Ordering::Release);
                    if vectors.gone + vectors.fresh.len() < changes_max(self.len) {
                        return;
                    }
                }
                None => _ = search(&vectors.fresh, rank).map(|at| vectors.fresh.remove(at)),
            },
        }
        if vectors.gone + vectors.fresh.len() >= changes_max(self.len) {
            self.make_vectors()
        } else {
            self.publish_vectors()
        }
    }

    /// Rebuilds the bit vectors from all entries.
    fn make_vectors(&mut self) {
        let rows = Arc::new(match &self.vectors {
            Some(earlier) => Vectors::new(earlier.rows.with(&earlier.fresh)),
            None => Vectors::new(self.items()),
        });
        self.copied += self.len as u64;
        if let Some(old) = self.vectors.replace(WithVectors { rows, fresh: Vec::new(), gone: 0 }) {
            self.retired.push(Retired::Rows(old.rows));
        }
        self.publish_vectors();
    }

    /// Publishes the bit vectors; null if the table does not use them.
    fn publish_vectors(&mut self) {
        self.copied += self.vectors.as_ref().map_or(0, |v| v.fresh.len() as u64);
        let publish = |v: &WithVectors| Box::into_raw(Box::new(Published::new(Arc::clone(&v.rows), &v.fresh)));
        let new = self.vectors.as_ref().map_or(ptr::null_mut(), publish);
        let old = self.shared.vectors.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            self.retired.push(Retired::Vectors(old));
        }
    }

    /// The node of an entry, which is unlinked if it is `gone`.
    fn locate(&mut self, split: &Split, seq: u64, gone: bool) -> *mut Node {
        let (tuple, rank) = (self.tuples[&split.mask].tuple, (split.priority, seq));
        // SAFETY: tuples in the map are alive, and so is what is linked below them.
        unsafe {
            let hash = self.shared.hasher.hash((*tuple).salt, split.words.iter().copied());
            let head = (*(*tuple).buckets.load(Ordering::Relaxed)).head(hash);
            let link = self.chains.link(head, rank);
            let node = link.load(Ordering::Relaxed);
            let found = node.as_ref().expect("the entry is stored");
            assert!(found.hash == hash && (found.priority, found.seq) == rank, "the entry is stored");
            if gone {
                link.store(found.next.load(Ordering::Relaxed), Ordering::Release);
                self.chains.unlinked(head, rank);
            }
            node
        }
    }
}

/// The order of ranks.
fn order(rank: (i32, u64)) -> (std::cmp::Reverse<i32>, u64) {
    (std::cmp::Reverse(rank.0), rank.1)
}

/// Sets a range field's bits of `mask` to the leading bits that the range's ends share.
fn share_prefix(range: &RangeField, low: &[u64], high: &[u64], mask: &mut [u64]) {
    if range.words == 1 {
        let field = range.mask << range.shift;
        let differ = (low[range.word] ^ high[range.word]) & field;
        // Ones from the highest differing bit down; those in the field must not be hashed.
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
        lookups().0
    }

    fn lookup_batch(&self) -> LookupBatchFn {
        lookups().1
    }

    fn snapshot(&self) -> *const c_void {
        (&raw const *self.shared).cast()
    }

    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let new_tuple = || {
            let (salt, buckets) = (crate::random_seeds()[0], AtomicPtr::new(Buckets::new(1)));
            let tuple = Box::into_raw(Box::new(Tuple { mask: split.mask.clone(), salt, buckets }));
            Writer { tuple, len: 0, priorities: BTreeMap::new() }
        };
        let writer = self.tuples.entry(split.mask.clone()).or_insert_with(new_tuple);
        let before = writer.priorities.last_key_value().map(|(p, _)| *p);
        *writer.priorities.entry(split.priority).or_insert(0) += 1;
        writer.len += 1;
        let (tuple, len) = (writer.tuple, writer.len);
        // SAFETY: the tuple is alive.
        let hash = self.shared.hasher.hash(unsafe { (*tuple).salt }, split.words.iter().copied());
        self.filter(hash);
        // SAFETY: the tuple is alive; its buckets are replaced only here, by the writer.
        unsafe {
            let place = &(*tuple).buckets;
            let mut buckets = place.load(Ordering::Relaxed);
            if len > (*buckets).len() {
                let old = buckets;
                self.chains.forget(&*old);
                buckets = (*old).doubled();
                self.copied += len as u64;
                place.store(buckets, Ordering::Release);
                (*old).nodes(|node| self.retired.push(Retired::Node(Node::unlinked(node))));
                self.retired.push(Retired::Buckets(old));
            }
            let (head, place) = ((*buckets).head(hash), (split.priority, rank.1));
            let link = self.chains.link(head, place);
            let node = Node::new(hash, split.priority, rank.1, entry, &split.words);
            (*node).next.store(link.load(Ordering::Relaxed), Ordering::Relaxed);
            link.store(node, Ordering::Release);
            self.chains.linked(head, place, node);
        }
        self.rank(tuple, before, before.max(Some(split.priority)));
        self.len += 1;
        if len == 1 {
            self.masked.count(&split.mask, true);
        }
        let rank = (split.priority, rank.1);
        // Before the list for small tables is unpublished, so that readers see the change with one store.
        self.change_vectors(Change::Insert(Fresh { rank, mask: split.mask, words: split.words, entry }));
        if self.len <= LINEAR_MAX + 1 {
            self.publish_linear();
        }
        self.retire(w.domain);
    }

    fn replace(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let node = self.locate(&split, rank.1, false);
        // SAFETY: the node is linked, so it is alive.
        unsafe { (*node).entry.store(entry, Ordering::Release) };
        self.change_vectors(Change::Replace((split.priority, rank.1), entry));
        if self.len <= LINEAR_MAX {
            self.publish_linear();
        }
        self.retire(w.domain);
    }

    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank) {
        let split = self.split(packed, rank);
        self.shared.version.change();
        let node = self.locate(&split, rank.1, true);
        self.retired.push(Retired::Node(Node::unlinked(node)));
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
        let (tuple, len) = (writer.tuple, writer.len);
        self.rank(tuple, before, after);
        if len == 0 {
            self.tuples.remove(&split.mask);
            self.masked.count(&split.mask, false);
            self.retired.push(Retired::Tuple(tuple));
        }
        self.len -= 1;
        self.shrink(tuple, len);
        self.change_vectors(Change::Remove((split.priority, rank.1)));
        if self.len <= LINEAR_MAX {
            self.publish_linear();
        }
        self.retire(w.domain);
    }

    fn collect(&mut self, domain: &Domain) {
        // SAFETY: what comes out of limbo was unlinked, and every worker has been quiescent since.
        self.limbo.collect(domain, |retired| unsafe { retired.free() });
    }
}

impl Retired {
    /// About how many bytes of memory are retired.
    fn bytes(&self) -> usize {
        // SAFETY: what was unlinked and not freed yet is alive.
        unsafe {
            match self {
                Retired::Node(unlinked) => unlinked.bytes(),
                Retired::Buckets(buckets) => (**buckets).bytes(),
                Retired::Tuple(tuple) => (*(**tuple).buckets.load(Ordering::Relaxed)).bytes(),
                Retired::List(list) => (**list).bytes(),
                Retired::Filter(filter) => (**filter).bytes(),
                Retired::Linear(linear) => (**linear).bytes(),
                Retired::Rows(rows) => rows.bytes(),
                Retired::Vectors(vectors) => (**vectors).bytes(),
            }
        }
    }

    /// # Safety
    /// No reader can see it any more.
    unsafe fn free(self) {
        // SAFETY: the caller's promise; each was boxed or allocated once and is retired once.
        unsafe {
            match self {
                Retired::Node(unlinked) => unlinked.free(),
                Retired::Buckets(buckets) => drop(Box::from_raw(buckets)),
                Retired::List(list) => drop(Box::from_raw(list)),
                Retired::Filter(filter) => drop(Box::from_raw(filter)),
                Retired::Linear(linear) => drop(Box::from_raw(linear)),
                Retired::Rows(rows) => drop(rows),
                Retired::Vectors(vectors) => drop(Box::from_raw(vectors)),
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
            // SAFETY: there are no readers; nodes and tuples in use are not in limbo.
            unsafe {
                let buckets = (*writer.tuple).buckets.load(Ordering::Relaxed);
                let mut nodes = Vec::new();
                (*buckets).nodes(|node| nodes.push(Node::unlinked(node)));
                nodes.into_iter().for_each(|unlinked| unlinked.free());
                Retired::Tuple(writer.tuple).free();
            }
        }
        // SAFETY: there are no readers.
        unsafe {
            self.segments.lists().for_each(|list| Retired::List(list).free());
            Retired::Filter(self.shared.filter.load(Ordering::Relaxed)).free();
            let linear = self.shared.linear.load(Ordering::Relaxed);
            if !linear.is_null() {
                Retired::Linear(linear).free();
            }
            let vectors = self.shared.vectors.load(Ordering::Relaxed);
            if !vectors.is_null() {
                Retired::Vectors(vectors).free();
            }
            self.retired.drain(..).chain(self.limbo.drain()).for_each(|retired| retired.free());
        }
    }
}

#[cfg(test)]
mod tests;
