//! A classifier over a table's entries that also returns the key bits that determine the result.
//!
//! Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999): entries with the same mask form a tuple, one
//! hash table. As in Open vSwitch (Pfaff et al., NSDI 2015, section 5), few bits are consulted. Tuples are searched
//! in the order of their best entry, and the search ends when none can be better (5.2). A tuple in which no entry
//! has the key's value of some field is left after that field alone (like staged lookup, 5.3, but for any field).
//! Tries track prefixes (5.4). For a range, the shortest prefix of the value that is completely inside or outside
//! the range is consulted.
//!
//! It is built once from the entries. Tests: `tests.rs`, against a linear scan.

use super::lanes::{LANE, Layout, prefix_len, prefix_mask};
use super::trie::{Answer, Trie};
use base::Bits;
use base::entry::{KeyMatch, MatchKind, TableEntry};
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};

/// A table's entries, prepared for lookups.
#[derive(Debug)]
pub struct Classifier {
    layout: Layout,
    /// Tuples in the order of their best entries.
    tuples: Vec<Tuple>,
    /// Tries by field, for fields whose prefixes are tracked.
    tries: Vec<Option<Trie>>,
    bytes: usize,
}

/// A tuple: the entries with one mask.
#[derive(Debug)]
struct Tuple {
    mask: Box<[u128]>,
    /// Rank of its best entry.
    best: u32,
    /// Tracked fields that it compares, with the prefix lengths of its mask.
    prefixes: Box<[(usize, u32)]>,
    /// Entries by masked key, the best one first.
    values: HashMap<Box<[u128]>, Vec<Rule>>,
    /// For each field that it compares, the values of its entries; empty if it compares only one.
    fields: Vec<(usize, HashSet<Box<[u128]>>)>,
}

/// An entry of a tuple.
#[derive(Debug)]
struct Rule {
    /// Its rank; 0 is the best entry of the table.
    rank: u32,
    entry: u32,
    ranges: Box<[Range]>,
}

/// A range match of a field.
#[derive(Debug)]
struct Range {
    field: usize,
    low: Box<[u128]>,
    high: Box<[u128]>,
}

/// The result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The index of the entry in the list that the classifier was built from.
    pub entry: Option<u32>,
    /// The consulted bits of each key field. Keys that agree in them have the same result.
    pub consulted: Vec<Bits>,
}

impl Classifier {
    /// Builds the classifier of a table with these key fields (width in bits, match kind).
    pub fn new(keys: &[(u32, MatchKind)], entries: &[TableEntry]) -> Classifier {
        let layout = Layout::new(&keys.iter().map(|(width, _)| *width).collect::<Vec<_>>());
        let ranks = ranks(keys, entries);
        let mut tuples: HashMap<Box<[u128]>, Tuple> = HashMap::new();
        let mut tries: Vec<Option<Trie>> = (0..keys.len()).map(|i| trie(keys, i, entries)).collect();
        for (entry, (rank, at)) in entries.iter().zip(ranks.iter().zip(0..)) {
            let (mut mask, mut value) = (vec![0; layout.lanes], vec![0; layout.lanes]);
            let of_fields = entry.key.iter().zip(keys).enumerate();
            of_fields.clone().for_each(|(i, (of, _))| layout.put_match(i, of, &mut mask, &mut value));
            let ranges = of_fields.filter_map(|(i, (of, _))| range(&layout, i, of)).collect();
            for (i, trie) in tries.iter_mut().enumerate().filter_map(|(i, trie)| Some((i, trie.as_mut()?))) {
                let lane = layout.fields[i].0;
                trie.insert(value[lane], mask[lane].count_ones());
            }
            let rule = Rule { rank: *rank, entry: at, ranges };
            let tuple = match tuples.entry(mask.into()) {
                Slot::Occupied(there) => there.into_mut(),
                Slot::Vacant(place) => {
                    let mask = place.key().clone();
                    place.insert(Tuple::new(mask, &layout, &tries))
                }
            };
            tuple.best = tuple.best.min(rule.rank);
            for (field, values) in &mut tuple.fields {
                let part = &value[layout.of(*field)];
                if !values.contains(part) {
                    values.insert(part.into());
                }
            }
            tuple.values.entry(value.into()).or_default().push(rule);
        }
        let mut tuples: Vec<Tuple> = tuples.into_values().collect();
        tuples.sort_unstable_by_key(|tuple| tuple.best);
        for rules in tuples.iter_mut().flat_map(|tuple| tuple.values.values_mut()) {
            rules.sort_unstable_by_key(|rule| rule.rank);
        }
        let bytes = bytes_of(&tuples, &tries, layout.lanes);
        Classifier { layout, tuples, tries, bytes }
    }

    /// Approximate memory use in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Looks up a key, given as one value of the right width per field.
    pub fn lookup(&self, keys: &[Bits]) -> Found {
        let mut key = vec![0; self.layout.lanes];
        keys.iter().enumerate().for_each(|(i, value)| self.layout.put(i, value, &mut key));
        let mut search = Search {
            classifier: self,
            key: &key,
            consulted: vec![0; self.layout.lanes],
            answers: vec![None; self.tries.len()],
            masked: vec![0; self.layout.lanes],
        };
        let found = search.run();
        let consulted = (0..keys.len()).map(|i| self.layout.get(i, &search.consulted)).collect();
        Found { entry: found, consulted }
    }
}

impl Tuple {
    fn new(mask: Box<[u128]>, layout: &Layout, tries: &[Option<Trie>]) -> Tuple {
        let compared = |i: &usize| mask[layout.of(*i)].iter().any(|lane| *lane != 0);
        let fields: Vec<usize> = (0..layout.fields.len()).filter(compared).collect();
        let tracked = fields.iter().filter(|i| tries[**i].is_some());
        let prefixes = tracked.map(|i| (*i, mask[layout.fields[*i].0].count_ones())).collect();
        let fields = match fields.len() {
            0 | 1 => Vec::new(),
            _ => fields.into_iter().map(|i| (i, HashSet::new())).collect(),
        };
        Tuple { mask, best: u32::MAX, prefixes, values: HashMap::new(), fields }
    }
}

/// The state of a lookup.
struct Search<'a> {
    classifier: &'a Classifier,
    key: &'a [u128],
    consulted: Vec<u128>,
    answers: Vec<Option<Answer>>,
    masked: Vec<u128>,
}

impl Search<'_> {
    fn run(&mut self) -> Option<u32> {
        let mut found: Option<(u32, u32)> = None;
        for tuple in &self.classifier.tuples {
            if found.is_some_and(|(rank, _)| rank < tuple.best) {
                break;
            }
            if self.is_left_by_prefix(tuple) {
                continue;
            }
            for ((masked, key), mask) in self.masked.iter_mut().zip(self.key).zip(&tuple.mask) {
                *masked = key & mask;
            }
            let Some(rules) = tuple.values.get(&*self.masked) else {
                self.consult_miss(tuple);
                continue;
            };
            self.consulted.iter_mut().zip(&tuple.mask).for_each(|(bits, mask)| *bits |= mask);
            let limit = found.map_or(u32::MAX, |(rank, _)| rank);
            let better = rules.iter().take_while(|rule| rule.rank < limit);
            for rule in better {
                if self.is_in_ranges(rule) {
                    found = Some((rule.rank, rule.entry));
                    break;
                }
            }
        }
        found.map(|(_, entry)| entry)
    }

    /// Whether tries rule out all entries of the tuple. If so, consults the bits that determine this.
    fn is_left_by_prefix(&mut self, tuple: &Tuple) -> bool {
        let Classifier { layout, tries, .. } = self.classifier;
        let mut least: Option<(u32, usize, u128)> = None;
        for (field, len) in &tuple.prefixes {
            let (lane, width) = layout.fields[*field];
            let Some(trie) = &tries[*field] else { continue };
            let answer = *self.answers[*field].get_or_insert_with(|| trie.lookup(self.key[lane]));
            if !answer.has(*len) {
                let mask = prefix_mask(width, answer.needed.min(*len));
                let more = (mask & !self.consulted[lane]).count_ones();
                if least.is_none_or(|(least, ..)| more < least) {
                    least = Some((more, lane, mask));
                }
            }
        }
        least.is_some_and(|(_, lane, mask)| {
            self.consulted[lane] |= mask;
            true
        })
    }

    /// Consults the bits that rule out all entries of the tuple: those of one field whose value no entry has, if
    /// there is one, or all.
    fn consult_miss(&mut self, tuple: &Tuple) {
        let layout = &self.classifier.layout;
        let more = |range: std::ops::Range<usize>| -> u32 {
            range.map(|lane| (tuple.mask[lane] & !self.consulted[lane]).count_ones()).sum()
        };
        let missing = tuple.fields.iter().filter(|(field, values)| !values.contains(&self.masked[layout.of(*field)]));
        let least = missing.map(|(field, _)| layout.of(*field)).min_by_key(|range| more(range.clone()));
        let lanes = least.unwrap_or(0..layout.lanes);
        lanes.for_each(|lane| self.consulted[lane] |= tuple.mask[lane]);
    }

    /// Whether the key is in all ranges of an entry. Consults the bits that determine this.
    fn is_in_ranges(&mut self, rule: &Rule) -> bool {
        let layout = &self.classifier.layout;
        let is_in = |range: &&Range| {
            let value = &self.key[layout.of(range.field)];
            *range.low <= *value && *value <= *range.high
        };
        let deciding = rule.ranges.iter().find(|range| !is_in(range));
        let is_in = deciding.is_none();
        let all = rule.ranges.iter().filter(|_| is_in).chain(deciding);
        for range in all {
            let (lane, width) = layout.fields[range.field];
            if width > LANE {
                let ones = Bits::ones(width);
                layout.put(range.field, &ones, &mut self.consulted);
            } else {
                self.consulted[lane] |= cover(width, self.key[lane], range.low[0], range.high[0]);
            }
        }
        is_in
    }
}

/// The mask of the shortest prefix of `value` such that all values with this prefix are in the range, or none is.
fn cover(width: u32, value: u128, low: u128, high: u128) -> u128 {
    let all = prefix_mask(width, width);
    let decides = |mask: &u128| {
        let (first, last) = (value & mask, value & mask | all & !mask);
        low <= first && last <= high || last < low || high < first
    };
    (0..=width).map(|len| prefix_mask(width, len)).find(decides).unwrap_or(all)
}

/// The rank of each entry by precedence; the best one has rank 0.
fn ranks(keys: &[(u32, MatchKind)], entries: &[TableEntry]) -> Vec<u32> {
    let has_priorities = keys.iter().any(|(_, kind)| kind.needs_priority());
    let precedence = |entry: &TableEntry| match has_priorities {
        true => i64::from(entry.priority),
        // Without priorities, at most one field has prefixes.
        false => entry
            .key
            .iter()
            .map(|of| if let KeyMatch::Lpm { prefix_len, .. } = of { (*prefix_len).into() } else { 0 })
            .sum(),
    };
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    // The sort is stable: of equal entries the first wins.
    order.sort_by_key(|at| std::cmp::Reverse(precedence(&entries[*at as usize])));
    let mut ranks = vec![0; entries.len()];
    order.iter().zip(0..).for_each(|(at, rank)| ranks[*at as usize] = rank);
    ranks
}

/// An empty trie for a field, if its entries have prefixes and nothing else there.
fn trie(keys: &[(u32, MatchKind)], field: usize, entries: &[TableEntry]) -> Option<Trie> {
    let (width, kind) = keys[field];
    if width == 0 || width > LANE {
        return None;
    }
    let len = |entry: &TableEntry| match &entry.key[field] {
        KeyMatch::Ternary { mask, .. } => prefix_len(width, mask.to_u128()?),
        _ => None,
    };
    let is_tracked = match kind {
        MatchKind::Lpm => true,
        MatchKind::Ternary => {
            entries.iter().all(|entry| len(entry).is_some())
                && entries.iter().any(|entry| len(entry).is_some_and(|len| 0 < len && len < width))
        }
        _ => false,
    };
    is_tracked.then(|| Trie::new(width))
}

fn range(layout: &Layout, field: usize, of: &KeyMatch) -> Option<Range> {
    let KeyMatch::Range { low, high } = of else { return None };
    let lanes = |value: &Bits| {
        let mut key = vec![0; layout.lanes];
        layout.put(field, value, &mut key);
        Box::from(&key[layout.of(field)])
    };
    Some(Range { field, low: lanes(low), high: lanes(high) })
}

/// Approximate memory use in bytes, including spare capacity of hash tables.
fn bytes_of(tuples: &[Tuple], tries: &[Option<Trie>], lanes: usize) -> usize {
    let of_tuple = |tuple: &Tuple| {
        let rules: usize = tuple.values.values().map(|rules| 40 * rules.capacity()).sum();
        let values = tuple.values.capacity() * (16 * lanes + 64);
        let fields: usize = tuple.fields.iter().map(|(_, values)| values.capacity() * 48).sum();
        256 + rules + values + fields
    };
    tuples.iter().map(of_tuple).sum::<usize>() + tries.iter().flatten().map(|trie| 48 * trie.len()).sum::<usize>()
}
