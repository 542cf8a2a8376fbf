//! A log of recent changes, by which workers rule out that a change affects a megaflow.
//!
//! A megaflow depends on whole tables, but a change of a flow only affects packets that match the flow. If the flow
//! requires another value of a bit that the megaflow compares, no packet of the megaflow matches it, and the
//! megaflow stays valid. So a busy controller does not force workers to translate unrelated megaflows again, and
//! the check takes no lock.
//!
//! ```text
//! writer ─▶ Recent: a ring of the last changes ─▶ Seen, one per worker: summaries of blocks of changes
//! ```
//!
//! **Cost.** A busy controller makes 100,000 changes a second, each of which every worker reads. So a change is two
//! cache lines of plain numbers, which a worker reads without writing to them: each has a sequence number before and
//! after (a seqlock), and nothing is allocated or shared by reference counts.
//!
//! **Blocks.** 16 consecutive changes form a block, and 16 blocks a larger one. A block's summary is the set of
//! tables changed in it, and the bits in which all of its flows agree. A few comparisons thus rule out a thousand
//! routes of one network.
//!
//! **What can be ruled out.** Only bits of words that the translation has not written are compared: of these,
//! lookups saw the parsed value. The caller names the written words and those that lookups make up (`conj_id`).
//! Translations that find or count flows by other means are not checked
//! ([`crate::translate::Translation::finds_flows`]).
//!
//! **Order.** A change is stored in the ring before the generation with its number is published. So a worker that
//! has seen a generation finds all changes up to it, except those that later ones have overwritten. If it needs one
//! of these, it compares the generations of the megaflow's dependences instead.
//!
//! Tests: below, and `processor/tests.rs`.

use crate::key::{WordTerm, Words};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Length of the ring: as many changes as a fast controller makes in some hundredths of a second.
const CHANGES: usize = 8192;
/// Number of changes in a block, and of blocks in a larger one.
const FAN: u64 = 16;
/// Number of levels of blocks.
const LEVELS: usize = 2;
/// Maximum number of comparisons per check; beyond, the change is assumed to concern the megaflow. This takes some
/// microseconds, less than a translation.
const COMPARISONS_MAX: usize = 256;
/// Number of words that an extent compares: as many as fit a [`Slot`]. Of more, those with the most bits are kept.
const TERMS_MAX: usize = 6;

/// State on which a translation can depend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dependence {
    /// A table's flows.
    Table(u8),
    /// All groups.
    Groups,
    /// All meters.
    Meters,
    /// The settings of the bridge and its ports.
    Ports,
    /// The MAC table of `NORMAL`.
    Stations,
}

/// The extent of one or several changes: a superset of the packets that they affect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    /// Tables, one bit each.
    tables: [u64; 4],
    /// Other dependences, one bit each.
    others: u8,
    /// Bits that all changed flows require, by word. Without any, all packets may be affected.
    terms: Terms,
    is_empty: bool,
}

/// Some words of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Terms {
    all: [WordTerm; TERMS_MAX],
    len: usize,
}

impl Terms {
    fn new(mut terms: Vec<WordTerm>) -> Terms {
        if terms.len() > TERMS_MAX {
            terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.mask.count_ones()));
        }
        let mut kept = Terms::default();
        terms.into_iter().take(TERMS_MAX).for_each(|term| kept.push(term));
        kept
    }

    fn push(&mut self, term: WordTerm) {
        self.all[self.len] = term;
        self.len += 1;
    }

    fn iter(&self) -> impl Iterator<Item = &WordTerm> {
        self.all[..self.len].iter()
    }
}

impl Extent {
    /// An extent without packets.
    pub(crate) fn nothing() -> Extent {
        Extent { is_empty: true, ..Extent::default() }
    }

    /// The packets that match these terms in a table.
    pub(crate) fn flow(table: u8, terms: Vec<WordTerm>) -> Extent {
        let mut extent = Extent { terms: Terms::new(terms), ..Extent::default() };
        extent.tables[usize::from(table / 64)] |= 1 << (table % 64);
        extent
    }

    /// All packets that depend on this state.
    pub(crate) fn all(of: Dependence) -> Extent {
        match of {
            Dependence::Table(table) => Extent::flow(table, Vec::new()),
            other => Extent { others: bit(other), ..Extent::default() },
        }
    }

    fn add(&mut self, other: &Extent) {
        if other.is_empty {
            return;
        }
        if self.is_empty {
            return self.clone_from(other);
        }
        self.tables.iter_mut().zip(other.tables).for_each(|(all, more)| *all |= more);
        self.others |= other.others;
        let before = std::mem::take(&mut self.terms);
        for term in before.iter() {
            let Some(with) = other.terms.iter().find(|with| with.word == term.word) else { continue };
            let mask = term.mask & with.mask & !(term.value ^ with.value);
            if mask != 0 {
                self.terms.push(WordTerm { word: term.word, mask, value: term.value & mask });
            }
        }
    }

    fn has(&self, on: Dependence) -> bool {
        match on {
            Dependence::Table(table) => self.tables[usize::from(table / 64)] >> (table % 64) & 1 == 1,
            other => self.others & bit(other) != 0,
        }
    }

    /// Whether some packet of a megaflow may be in the extent.
    fn concerns(&self, of: &Subject<'_>) -> bool {
        if self.is_empty || !of.dependences.iter().any(|(on, _)| self.has(*on)) {
            return false;
        }
        let differs = |term: &WordTerm| {
            let at = of.words.binary_search_by_key(&term.word, |(word, _)| *word);
            at.is_ok_and(|at| (of.key[at] ^ term.value) & of.words[at].1 & term.mask != 0 && !of.written.has(term.word))
        };
        !self.terms.iter().any(differs)
    }
}

fn bit(of: Dependence) -> u8 {
    match of {
        Dependence::Table(_) => 0,
        Dependence::Groups => 1,
        Dependence::Meters => 2,
        Dependence::Ports => 4,
        Dependence::Stations => 8,
    }
}

/// A megaflow, as changes are compared with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Its mask: words in ascending order, each with the compared bits.
    pub words: &'a [(u32, u64)],
    /// The values of these bits.
    pub key: &'a [u64],
    /// Words whose parsed values lookups did not see.
    pub written: Words,
    pub dependences: &'a [(Dependence, u64)],
}

/// A change in the ring. Written by one writer, and valid while `number` is that of the change.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// 0 while it is written.
    number: AtomicU64,
    /// [`Head`].
    head: AtomicU64,
    /// The terms' words, 16 bits each.
    words: [AtomicU64; 2],
    /// The terms' masks and values.
    bits: [[AtomicU64; 2]; TERMS_MAX],
}

const _: () = assert!(size_of::<Slot>() == 128, "a change is two cache lines");
const _: () = assert!(TERMS_MAX <= 8, "the words of terms are in two numbers");

/// The other parts of a change of one table or one other dependence, as a number.
struct Head {
    table: Option<u8>,
    others: u8,
    terms: u8,
    is_empty: bool,
}

impl Head {
    fn pack(&self) -> u64 {
        let [table, is_table] = [self.table.unwrap_or(0), self.table.is_some().into()];
        u64::from_le_bytes([table, is_table, self.others, self.terms, self.is_empty.into(), 0, 0, 0])
    }

    fn unpack(packed: u64) -> Head {
        let [table, is_table, others, terms, is_empty, ..] = packed.to_le_bytes();
        Head { table: (is_table != 0).then_some(table), others, terms, is_empty: is_empty != 0 }
    }
}

impl Slot {
    /// Stores a change, whose extent has at most one table.
    fn write(&self, number: u64, extent: &Extent) {
        self.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let tables = extent.tables.iter().zip(0..).find(|(bits, _)| **bits != 0);
        let table = tables.map(|(bits, at)| 64 * at + bits.trailing_zeros() as u8);
        // A word that does not fit is left out: the change is then taken to affect more packets.
        let terms = || extent.terms.iter().filter(|term| term.word <= u32::from(u16::MAX));
        let mut words = [0; 2];
        for (i, term) in terms().enumerate() {
            words[i / 4] |= u64::from(term.word) << (16 * (i % 4));
            self.bits[i][0].store(term.mask, Ordering::Relaxed);
            self.bits[i][1].store(term.value, Ordering::Relaxed);
        }
        self.words.iter().zip(words).for_each(|(to, words)| to.store(words, Ordering::Relaxed));
        let terms = terms().count() as u8;
        let head = Head { table, others: extent.others, terms, is_empty: extent.is_empty };
        self.head.store(head.pack(), Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// The change with this number, if it is there and is not overwritten meanwhile.
    fn read(&self, number: u64) -> Option<Extent> {
        if self.number.load(Ordering::Acquire) != number {
            return None;
        }
        let head = Head::unpack(self.head.load(Ordering::Relaxed));
        let words = self.words.each_ref().map(|words| words.load(Ordering::Relaxed));
        let mut extent = Extent { others: head.others, is_empty: head.is_empty, ..Extent::default() };
        if let Some(table) = head.table {
            extent.tables[usize::from(table / 64)] |= 1 << (table % 64);
        }
        for (i, [mask, value]) in self.bits.iter().enumerate().take(usize::from(head.terms)) {
            let word = (words[i / 4] >> (16 * (i % 4)) & 0xffff) as u32;
            let (mask, value) = (mask.load(Ordering::Relaxed), value.load(Ordering::Relaxed));
            extent.terms.push(WordTerm { word, mask, value });
        }
        fence(Ordering::Acquire);
        (self.number.load(Ordering::Relaxed) == number).then_some(extent)
    }
}

/// The log: a ring of the last changes, and the number of the latest one.
#[derive(Debug)]
pub struct Recent {
    generation: AtomicU64,
    ring: Box<[Slot]>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { generation: AtomicU64::new(1), ring: (0..CHANGES).map(|_| Slot::default()).collect() }
    }
}

impl Recent {
    /// The number of the last change, which is the global generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Logs a change. To be called by the one writer, who holds the state lock.
    pub(crate) fn publish(&self, extent: Extent) {
        let number = self.generation.load(Ordering::Relaxed) + 1;
        self.ring[number as usize % CHANGES].write(number, &extent);
        self.generation.store(number, Ordering::Release);
    }

    fn get(&self, number: u64) -> Option<Extent> {
        self.ring[number as usize % CHANGES].read(number)
    }
}

/// What a worker knows of the log: summaries of blocks.
#[derive(Debug)]
pub(crate) struct Seen {
    recent: Arc<Recent>,
    /// The first change that is known.
    from: u64,
    /// The last change that is known.
    to: u64,
    /// Summaries of blocks, by level, the smallest blocks first.
    blocks: [Vec<Extent>; LEVELS],
}

impl Seen {
    /// Knows the changes that come from now on.
    pub(crate) fn new(recent: &Arc<Recent>) -> Seen {
        let generation = recent.generation();
        let blocks = std::array::from_fn(|level| vec![Extent::nothing(); CHANGES / FAN.pow(level as u32 + 1) as usize]);
        Seen { recent: Arc::clone(recent), from: generation + 1, to: generation, blocks }
    }

    /// Reads the changes up to a generation.
    #[inline]
    pub(crate) fn follow(&mut self, generation: u64) {
        if generation != self.to {
            self.take_in(generation);
        }
    }

    #[cold]
    fn take_in(&mut self, generation: u64) {
        let first = (self.to + 1).max((generation + 1).saturating_sub(CHANGES as u64));
        if first != self.to + 1 {
            self.from = first;
        }
        for number in first..=generation {
            let change = self.recent.get(number);
            if change.is_none() {
                self.from = number + 1;
            }
            for (level, blocks) in self.blocks.iter_mut().enumerate() {
                let size = FAN.pow(level as u32 + 1);
                let count = blocks.len() as u64;
                let block = &mut blocks[(number / size % count) as usize];
                if number.is_multiple_of(size) {
                    *block = Extent::nothing();
                }
                if let Some(change) = &change {
                    block.add(change);
                }
            }
        }
        self.to = generation;
    }

    /// Whether a change after `since` may affect a packet of the megaflow, among the changes that were read.
    pub(crate) fn concerns(&self, since: u64, of: &Subject<'_>) -> bool {
        let oldest = self.from.max((self.to + 1).saturating_sub(CHANGES as u64));
        if since + 1 < oldest {
            return true;
        }
        let mut number = since + 1;
        for _ in 0..COMPARISONS_MAX {
            if number > self.to {
                return false;
            }
            let block = (0..LEVELS).rev().find_map(|level| {
                let size = FAN.pow(level as u32 + 1);
                let is_whole = number.is_multiple_of(size) && number + size - 1 <= self.to;
                let blocks = &self.blocks[level];
                let is_out = is_whole && !blocks[(number / size % blocks.len() as u64) as usize].concerns(of);
                is_out.then_some(size)
            });
            number += match block {
                Some(size) => size,
                None if self.recent.get(number).is_some_and(|change| !change.concerns(of)) => 1,
                None => return true,
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;

    fn term(word: u32, mask: u64, value: u64) -> WordTerm {
        WordTerm { word, mask, value: value & mask }
    }

    /// Whether a packet with these words matches a flow.
    fn matches(terms: &[WordTerm], record: &[u64]) -> bool {
        terms.iter().all(|term| record[term.word as usize] & term.mask == term.value)
    }

    #[test]
    fn no_change_is_ruled_out_that_is_about_a_packet() {
        let mut random = Random::new(4);
        let (mut ruled_out, mut about) = (0, 0);
        for _ in 0..200 {
            let recent = Arc::new(Recent::default());
            let mut seen = Seen::new(&recent);
            let mut all: Vec<(u8, Vec<WordTerm>)> = Vec::new();
            let network = random.next_u64();
            for _ in 0..random.range(1, 700) {
                let table = random.below(2) as u8;
                let terms = match random.below(20) {
                    0 => vec![term(random.below(3) as u32, random.next_u64(), random.next_u64())],
                    _ => vec![term(0, u64::MAX, network & !0xff | random.below(256)), term(1, 0xf, random.next_u64())],
                };
                recent.publish(Extent::flow(table, terms.clone()));
                all.push((table, terms));
                if random.one_in(30) {
                    seen.follow(recent.generation());
                }
            }
            seen.follow(recent.generation());
            let begin = recent.generation() - all.len() as u64;
            for _ in 0..30 {
                let near = if random.one_in(2) { network } else { random.next_u64() };
                let record = [near ^ random.below(4), random.next_u64(), random.next_u64()];
                let words = [(0, random.next_u64() | random.next_u64()), (1, random.next_u64())];
                let key = words.map(|(word, mask)| record[word as usize] & mask);
                let mut written = Words::default();
                if random.one_in(3) {
                    written.add(0);
                }
                let table = random.below(2) as u8;
                let dependences = [(Dependence::Ports, 1), (Dependence::Table(table), 1)];
                let since = begin + random.below(all.len() as u64);
                let subject = Subject { words: &words, key: &key, written, dependences: &dependences };
                // Lookups of the table may have seen any value of a written word.
                let mut found = record;
                let is_about = all[(since - begin) as usize..].iter().any(|(of, terms)| {
                    if written.has(0) {
                        found[0] = terms.iter().find(|term| term.word == 0).map_or(0, |term| term.value);
                    }
                    *of == table && matches(terms, &found)
                });
                let concerns = seen.concerns(since, &subject);
                assert!(concerns || !is_about, "a change that matters is ruled out");
                ruled_out += usize::from(!concerns);
                about += usize::from(is_about);
            }
        }
        assert!(ruled_out > 1000 && about > 100, "{ruled_out} ruled out, {about} that matter");
    }

    #[test]
    fn changes_that_were_overwritten_are_about_everything() {
        let recent = Arc::new(Recent::default());
        let mut seen = Seen::new(&recent);
        let far = || Extent::flow(3, vec![term(0, u64::MAX, 5)]);
        let subject = Subject {
            words: &[(0, 0xff)],
            key: &[1],
            written: Words::default(),
            dependences: &[(Dependence::Table(3), 1)],
        };
        recent.publish(far());
        seen.follow(recent.generation());
        assert!(!seen.concerns(1, &subject), "its destination is another");
        let other = Subject { dependences: &[(Dependence::Table(4), 1)], key: &[5], ..subject };
        assert!(!seen.concerns(1, &other), "its tables are others");
        (0..CHANGES).for_each(|_| recent.publish(far()));
        seen.follow(recent.generation());
        assert!(seen.concerns(1, &subject), "nobody knows the first one any more");
        assert!(!seen.concerns(2, &subject), "a few comparisons tell");
        recent.publish(Extent::all(Dependence::Groups));
        seen.follow(recent.generation());
        assert!(!seen.concerns(3, &subject));
        recent.publish(Extent::all(Dependence::Table(3)));
        seen.follow(recent.generation());
        assert!(seen.concerns(recent.generation() - 1, &subject));
        assert!(!seen.concerns(recent.generation(), &subject));
    }

    /// Writers store changes of one table each, with the table's number in all terms.
    #[test]
    fn a_change_is_read_whole_or_not_at_all() {
        let recent = Recent::default();
        let (read, overwritten) = std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..400_000u64 {
                    let terms = (0..8).map(|word| term(word, 0xff, i % 200)).collect();
                    recent.publish(Extent::flow((i % 200) as u8, terms));
                }
            });
            let (mut read, mut overwritten) = (0, 0);
            while recent.generation() < 400_001 {
                // The oldest ones are being overwritten.
                let number = (recent.generation() + 2).saturating_sub(CHANGES as u64).max(2);
                let Some(extent) = recent.get(number) else {
                    overwritten += 1;
                    continue;
                };
                read += 1;
                let expected = (number - 2) % 200;
                assert!(extent.has(Dependence::Table(expected as u8)) && extent.terms.len == TERMS_MAX, "{extent:?}");
                assert!(extent.terms.iter().all(|term| term.value == expected), "{number}: {extent:?}");
            }
            (read, overwritten)
        });
        println!("{read} read, {overwritten} overwritten");
        assert!(read > 0);
    }
}
