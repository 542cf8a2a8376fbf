//! A subtable of a classifier: the flows with one mask.

use super::growing::Growing;
use super::overlap::{FLOWS_MIN, Indices, Known};
use super::trie::{Answers, Prefix, Tries};
use crate::flow::Flow;
use crate::key::{Consulted, Layout, STAGES, WordTerm, mix};
use crate::memory::{Charge, Pool};
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// The identity hasher, for keys that are hashes already.
#[derive(Default, Debug)]
pub struct Keep(u64);

impl Hasher for Keep {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type ByHash<T> = Growing<u64, T, BuildHasherDefault<Keep>>;

/// A flow in a subtable.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The flow.
    pub flow: Arc<Flow>,
    /// Whether it has `conjunction` actions.
    pub is_conjunction: bool,
}

/// Flows with the same values, in descending order of priority.
#[derive(Debug)]
struct Entry {
    /// Values of the mask's words, in their order.
    values: Box<[u64]>,
    rules: Vec<Rule>,
}

/// A stage of the lookup: a group of words that are looked up together (NSDI 2015, 5.3).
#[derive(Debug)]
struct Stage {
    /// Index in the mask after the stage's last word.
    end: usize,
    stage: usize,
    /// Hashes of entries' values up to this stage, with the number of entries that have each. Empty for the last
    /// stage, whose hashes are the keys of `entries`.
    hashes: ByHash<u32>,
}

/// A counting filter over entries, with a cheap hash (a sum of products). It rules out most records that match
/// nothing, which makes searches of many subtables cheap. A saturated count stays.
#[derive(Debug)]
struct Filter {
    counts: Box<[u8; Filter::SLOTS]>,
    /// Factors of the hash, by word of the mask. They depend on the seed, so that an attacker cannot choose values
    /// that collide.
    factors: Box<[u64]>,
}

impl Filter {
    const SLOTS: usize = 512;

    fn new(words: usize, seed: u64) -> Filter {
        let factors = (0..words as u64).map(|i| mix(seed, i) | 1).collect();
        Filter { counts: Box::new([0; Filter::SLOTS]), factors }
    }

    #[inline]
    fn slot(&self, values: impl Iterator<Item = u64>) -> usize {
        let sum = values.zip(&self.factors).fold(0u64, |sum, (value, factor)| {
            // Both halves of a value must reach the upper bits.
            let (low, high) = (value.wrapping_mul(*factor), (value >> 32).wrapping_mul(factor.rotate_left(32)));
            sum.wrapping_add(low).wrapping_add(high)
        });
        (sum >> 55) as usize
    }

    fn add(&mut self, values: &[u64]) {
        let count = &mut self.counts[self.slot(values.iter().copied())];
        *count = count.saturating_add(1);
    }

    fn remove(&mut self, values: &[u64]) {
        let count = &mut self.counts[self.slot(values.iter().copied())];
        if *count != u8::MAX {
            *count -= 1;
        }
    }
}

/// The flows with one mask.
#[derive(Debug)]
pub struct Subtable {
    /// Words with their masks, ordered by stage, then by word.
    mask: Box<[(u32, u64)]>,
    stages: Vec<Stage>,
    prefixes: Vec<Prefix>,
    entries: ByHash<Vec<Entry>>,
    filter: Filter,
    /// Number of flows by priority.
    priorities: BTreeMap<u16, usize>,
    /// Number of flows.
    len: usize,
    seed: u64,
    /// Indices for overlap checks.
    indices: Indices,
    /// Its charge to the bridge's memory.
    _charge: Charge,
}

impl Subtable {
    /// An empty subtable for a mask.
    pub fn new(layout: &Layout, mask: &[(u32, u64)], prefixes: Vec<Prefix>, charge: Charge) -> Subtable {
        let mut mask: Box<[(u32, u64)]> = mask.into();
        mask.sort_by_key(|(word, _)| (layout.word_stage(*word), *word));
        let mut stages: Vec<Stage> = Vec::with_capacity(STAGES);
        for (i, (word, _)) in mask.iter().enumerate() {
            let stage = layout.word_stage(*word);
            match stages.last_mut() {
                Some(last) if last.stage == stage => last.end = i + 1,
                _ => stages.push(Stage { end: i + 1, stage, hashes: ByHash::default() }),
            }
        }
        Subtable {
            filter: Filter::new(mask.len(), layout.seed()),
            mask,
            stages,
            prefixes,
            entries: ByHash::default(),
            priorities: BTreeMap::new(),
            len: 0,
            seed: layout.seed(),
            indices: Indices::default(),
            _charge: charge,
        }
    }

    /// Its prefixes of tracked fields.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    /// The highest priority of its flows.
    pub fn max_priority(&self) -> Option<u16> {
        self.priorities.last_key_value().map(|(priority, _)| *priority)
    }

    /// Its flows.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.entries.values().flatten().flat_map(|entry| &entry.rules).map(|rule| &rule.flow)
    }

    /// Its flows, each with the hash of its values.
    pub fn hashes_of_flows(&self) -> impl Iterator<Item = (u64, &Arc<Flow>)> {
        self.entries.values().flatten().flat_map(|entry| {
            let hash = self.hash(&entry.values);
            entry.rules.iter().map(move |rule| (hash, &rule.flow))
        })
    }

    /// The flows with a hash and a priority.
    pub fn of_hash(&self, hash: u64, priority: u16) -> impl Iterator<Item = &Arc<Flow>> {
        let rules = self.entries.get(&hash).into_iter().flatten().filter_map(move |entry| {
            let at = entry.rules.partition_point(|rule| rule.flow.priority > priority);
            entry.rules.get(at).filter(|rule| rule.flow.priority == priority)
        });
        rules.map(|rule| &rule.flow)
    }

    fn values(&self, terms: &[WordTerm]) -> Box<[u64]> {
        let value = |(word, _): &(u32, u64)| terms.iter().find(|term| term.word == *word).map_or(0, |term| term.value);
        self.mask.iter().map(value).collect()
    }

    /// The hash at the end of each stage.
    fn hashes<'a>(&'a self, values: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        let mut from = 0;
        self.stages.iter().scan(self.seed, move |hash, stage| {
            *hash = values[from..stage.end].iter().fold(*hash, |hash, value| mix(hash, *value));
            from = stage.end;
            Some(*hash)
        })
    }

    /// The hash of all values.
    fn hash(&self, values: &[u64]) -> u64 {
        values.iter().fold(self.seed, |hash, value| mix(hash, *value))
    }

    /// Adds a flow. Returns the flow with the same values and priority that it replaces.
    pub fn insert(&mut self, terms: &[WordTerm], rule: Rule) -> Option<Arc<Flow>> {
        let values = self.values(terms);
        let hash = self.hash(&values);
        let entries = self.entries.entry(hash);
        let priority = rule.flow.priority;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.values == values) {
            let at = entry.rules.partition_point(|other| other.flow.priority > priority);
            if let Some(old) = entry.rules.get_mut(at).filter(|old| old.flow.priority == priority) {
                return Some(std::mem::replace(old, rule).flow);
            }
            entry.rules.insert(at, rule);
        } else {
            entries.push(Entry { values: values.clone(), rules: vec![rule] });
            self.filter.add(&values);
            let hashes: Vec<u64> = self.hashes(&values).collect();
            let last = self.stages.len().saturating_sub(1);
            for (stage, hash) in self.stages[..last].iter_mut().zip(hashes) {
                *stage.hashes.entry(hash) += 1;
            }
        }
        *self.priorities.entry(priority).or_insert(0) += 1;
        self.len += 1;
        self.indices.insert(self.seed, Known { values: &values, priority, hash });
        None
    }

    /// Removes a flow and returns it.
    pub fn remove(&mut self, terms: &[WordTerm], priority: u16) -> Option<Arc<Flow>> {
        let values = self.values(terms);
        let hash = self.hash(&values);
        let entries = self.entries.get_mut(&hash)?;
        let at = entries.iter().position(|entry| entry.values == values)?;
        let rules = &mut entries[at].rules;
        let old = rules.remove(rules.iter().position(|rule| rule.flow.priority == priority)?);
        if rules.is_empty() {
            self.filter.remove(&values);
            entries.swap_remove(at);
            if entries.is_empty() {
                self.entries.remove(&hash);
            }
            let hashes: Vec<u64> = self.hashes(&values).collect();
            let last = self.stages.len().saturating_sub(1);
            for (stage, hash) in self.stages[..last].iter_mut().zip(hashes) {
                if let Some(count) = stage.hashes.get_mut(&hash) {
                    *count -= 1;
                    if *count == 0 {
                        stage.hashes.remove(&hash);
                    }
                }
            }
        }
        if let Some(count) = self.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&priority);
            }
        }
        self.len -= 1;
        let entries = &self.entries;
        let others = || entries.get(&hash).into_iter().flatten().flat_map(|entry| known_of(entry, hash));
        self.indices.remove(self.seed, Known { values: &values, priority, hash }, others);
        Some(old.flow)
    }

    /// The flow with these values and priority.
    pub fn find(&self, terms: &[WordTerm], priority: u16) -> Option<&Arc<Flow>> {
        let values = self.values(terms);
        let entry = self.entries.get(&self.hash(&values))?.iter().find(|entry| entry.values == values)?;
        entry.rules.iter().find(|rule| rule.flow.priority == priority).map(|rule| &rule.flow)
    }

    /// A flow of this priority that passes `is_meant` and overlaps with these terms. If the terms cover the whole
    /// mask, or cover its first stages and no flow has their values there, hashes decide this. Otherwise an index
    /// does, if there are many flows ([`super::overlap`]), or else a scan. Adds the number of flows looked at to
    /// `visits`.
    pub fn overlapping(
        &self,
        terms: &[WordTerm],
        priority: u16,
        is_meant: &dyn Fn(&Arc<Flow>) -> bool,
        memory: Option<&Arc<Pool>>,
        visits: &mut u64,
    ) -> Option<&Arc<Flow>> {
        *visits += 1;
        if !self.priorities.contains_key(&priority) {
            return None;
        }
        let common = |(word, mask): &(u32, u64)| {
            let term = terms.iter().find(|term| term.word == *word);
            term.map_or((0, 0), |term| (term.mask & mask, term.value & mask))
        };
        let common: Box<[(u64, u64)]> = self.mask.iter().map(common).collect();
        let of_priority = |entry: &'_ Entry| {
            entry.rules.iter().position(|rule| rule.flow.priority == priority && is_meant(&rule.flow))
        };
        let agrees = |entry: &Entry| {
            entry.values.iter().zip(&common).all(|(value, (mask, wanted))| (value ^ wanted) & mask == 0)
        };
        let (mut hash, mut from) = (self.seed, 0);
        for (i, stage) in self.stages.iter().enumerate() {
            let is_whole = |at: usize| common[at].0 == self.mask[at].1;
            if !(from..stage.end).all(is_whole) {
                break;
            }
            hash = common[from..stage.end].iter().fold(hash, |hash, (_, value)| mix(hash, *value));
            from = stage.end;
            if i + 1 < self.stages.len() && stage.hashes.get(&hash).is_none() {
                return None;
            }
        }
        let found = |entry| of_priority(entry).map(|at| &entry.rules[at].flow);
        let of_hash = |hash: u64| self.entries.get(&hash)?.iter().filter(|entry| agrees(entry)).find_map(found);
        if from == self.mask.len() {
            return of_hash(hash);
        }
        if self.len >= FLOWS_MIN {
            let (part, wanted): (Vec<u64>, Vec<u64>) = common.iter().copied().unzip();
            let flows = self.entries.values().flatten().flat_map(|entry| known_of(entry, self.hash(&entry.values)));
            if let Some(found) =
                self.indices.find((self.seed, &part, &wanted, priority), memory, (self.len, flows), visits, of_hash)
            {
                return found;
            }
        }
        *visits += self.len as u64;
        self.entries.values().flatten().filter(|entry| agrees(entry)).find_map(found)
    }

    /// Frees the indices of overlap checks.
    pub fn give_up_indices(&self) {
        self.indices.give_up();
    }

    /// The flows that a record matches, in descending order of priority.
    #[inline]
    pub fn find_plain(&self, record: &[u64]) -> &[Rule] {
        let values = self.mask.iter().map(|(word, mask)| record[*word as usize] & mask);
        if self.filter.counts[self.filter.slot(values)] == 0 {
            return &[];
        }
        let hash = self.mask.iter().fold(self.seed, |hash, (word, mask)| mix(hash, record[*word as usize] & mask));
        let Some(entries) = self.entries.get(&hash) else { return &[] };
        entries.iter().find(|entry| self.is_same(entry, record)).map_or(&[], |entry| &entry.rules)
    }

    fn is_same(&self, entry: &Entry, record: &[u64]) -> bool {
        let mut pairs = self.mask.iter().zip(&entry.values);
        pairs.all(|((word, mask), value)| record[*word as usize] & mask == *value)
    }

    /// The flows that a record matches, in descending order of priority: staged lookup. Adds the bits that
    /// determine the result to `consulted`.
    pub fn lookup(
        &self,
        record: &[u64],
        tries: &Tries,
        answers: &mut Answers,
        consulted: &mut Consulted,
    ) -> Option<&[Rule]> {
        let (mut hash, mut from) = (self.seed, 0);
        for (i, stage) in self.stages.iter().enumerate() {
            for prefix in self.prefixes.iter().filter(|prefix| prefix.stage == stage.stage) {
                if !tries.can_match(*prefix, record, answers, consulted) {
                    return None;
                }
            }
            for (word, mask) in &self.mask[from..stage.end] {
                consulted.add(*word, *mask);
                hash = mix(hash, record[*word as usize] & mask);
            }
            from = stage.end;
            if i + 1 < self.stages.len() && stage.hashes.get(&hash).is_none() {
                return None;
            }
        }
        self.entries.get(&hash)?.iter().find(|entry| self.is_same(entry, record)).map(|entry| entry.rules.as_slice())
    }
}

/// The flows of an entry, as indices see them.
fn known_of(entry: &Entry, hash: u64) -> impl Iterator<Item = Known<'_>> {
    entry.rules.iter().map(move |rule| Known { values: &entry.values, priority: rule.flow.priority, hash })
}
