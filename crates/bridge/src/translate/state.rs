//! The packet of a translation: its record, the provenance of its bits, and the consulted bits.
//!
//! **Provenance.** For each word, some bits are constants of the translation, some are derived from bits of the
//! packet as parsed, and the others are unchanged. Consulting a bit consults its sources, so the resulting mask is
//! one over the record *as parsed*.
//!
//! Changes are logged in an undo journal, so that a copy of the packet (clone, bucket) costs only what it changes.

use crate::effects::Effect;
use crate::key::{Consulted, Layout, Part, Place, Words};
use crate::vm::Vm;
use std::sync::Arc;

/// Bits of the record as parsed, by word.
type Sources = Arc<[(u32, u64)]>;

/// A word's state before a change.
#[derive(Debug)]
struct Undo {
    word: u32,
    value: u64,
    constant: u64,
    derived: u64,
    sources: Option<Sources>,
}

/// The packet of a translation. Its arrays are used again for the next one ([`State::begin`], [`State::end`]).
#[derive(Debug)]
pub struct State {
    layout: Arc<Layout>,
    /// Its record.
    pub record: Vec<u64>,
    constant: Vec<u64>,
    derived: Vec<u64>,
    sources: Vec<Option<Sources>>,
    /// Consulted bits of the record as parsed.
    pub consulted: Consulted,
    journal: Vec<Undo>,
    /// Words whose `constant`, `derived` or `sources` may be set; the same word may occur several times.
    touched: Vec<u32>,
    /// Words that were changed at any time, even if the change was undone.
    pub written: Words,
    /// The number of visible words that are changed.
    changed: usize,
    /// Bits that read as zero though the packet has other values: transport fields of a first fragment.
    hidden: Vec<(u32, u64)>,
    /// Whether reads of bits that are hidden in first fragments are recorded.
    watches_transport: bool,
    /// Whether the sources of a value include such bits.
    has_moved_transport: bool,
    /// The effects so far.
    pub effects: Vec<Effect>,
}

impl State {
    /// A state without a packet.
    pub fn new(layout: &Arc<Layout>) -> State {
        let words = layout.words();
        State {
            layout: Arc::clone(layout),
            record: Vec::with_capacity(words),
            constant: vec![0; words],
            derived: vec![0; words],
            sources: vec![None; words],
            consulted: Consulted::new(words),
            journal: Vec::new(),
            touched: Vec::new(),
            written: Words::default(),
            changed: 0,
            hidden: Vec::new(),
            watches_transport: false,
            has_moved_transport: false,
            effects: Vec::new(),
        }
    }

    /// Starts with a packet as parsed.
    pub fn begin(&mut self, record: &[u64]) {
        self.record.clear();
        self.record.extend_from_slice(record);
        self.record.resize(self.constant.len(), 0);
    }

    /// Forgets the packet and all that was recorded about it.
    pub fn end(&mut self) {
        for word in self.touched.drain(..) {
            let at = word as usize;
            (self.constant[at], self.derived[at], self.sources[at]) = (0, 0, None);
        }
        self.consulted.clear();
        self.journal.clear();
        self.effects.clear();
        (self.written, self.changed) = (Words::default(), 0);
        self.hidden.clear();
        (self.watches_transport, self.has_moved_transport) = (false, false);
    }

    /// Makes bits of the packet as parsed read as zero. Their writes are effects all the same.
    pub fn hide(&mut self, bits: &[(u32, u64)]) {
        for (word, mask) in bits {
            self.record[*word as usize] &= !mask;
            // Lookups do not see the parsed value.
            self.written.add(*word);
        }
        self.hidden.extend_from_slice(bits);
    }

    /// Records whether the bits are read that are hidden in first fragments.
    pub fn watch_transport(&mut self) {
        self.watches_transport = true;
    }

    /// Whether bits were read that are hidden in first fragments.
    pub fn has_read_transport(&self) -> bool {
        let is_consulted = || self.layout.transport().iter().any(|(word, mask)| self.consulted.mask(*word) & mask != 0);
        self.watches_transport && (self.has_moved_transport || is_consulted())
    }

    /// The bits of a word that are as parsed.
    fn parsed(&self, word: u32, mask: u64) -> u64 {
        let hidden = self.hidden.iter().filter(|(other, _)| *other == word).fold(0, |all, (_, mask)| all | mask);
        mask & !self.constant[word as usize] & !self.derived[word as usize] & !hidden
    }

    /// Consults bits of a word: the result depends on them.
    pub fn consult(&mut self, word: u32, mask: u64) {
        self.consulted.add(word, self.parsed(word, mask));
        if mask & self.derived[word as usize] != 0
            && let Some(sources) = &self.sources[word as usize]
        {
            sources.iter().for_each(|(word, mask)| self.consulted.add(*word, *mask));
        }
    }

    /// Consults the bits that a lookup consulted.
    pub fn consult_all(&mut self, consulted: &Consulted) {
        consulted.iter().for_each(|(word, mask)| self.consult(word, mask));
    }

    /// Consults the bits of a value under a mask.
    pub fn consult_place(&mut self, place: &Place, mask: u128) {
        place.spread(0, mask, |word, mask, _| self.consult(word, mask));
    }

    /// Reads and consults a value.
    pub fn read(&mut self, place: &Place) -> u128 {
        self.consult_place(place, u128::MAX);
        place.read(&self.record)
    }

    /// Reads and consults a flag.
    pub fn read_flag(&mut self, flag: Part) -> bool {
        self.consult(flag.word, flag.mask());
        crate::effects::is_set(&self.record, flag)
    }

    /// Appends the sources of a word's bits to `into`.
    fn origin(&mut self, word: u32, mask: u64, into: &mut Vec<(u32, u64)>) {
        let own = self.parsed(word, mask);
        if own != 0 {
            into.push((word, own));
            let is_transport = |(other, mask): &(u32, u64)| *other == word && own & mask != 0;
            self.has_moved_transport |= self.watches_transport && self.layout.transport().iter().any(is_transport);
        }
        if mask & self.derived[word as usize] != 0
            && let Some(sources) = &self.sources[word as usize]
        {
            into.extend(sources.iter());
        }
    }

    fn is_changed(&self, word: u32) -> bool {
        (self.constant[word as usize] | self.derived[word as usize]) != 0 && self.layout.is_visible(word)
    }

    /// Logs a word's state before a change. Returns whether it was changed already.
    fn note(&mut self, word: u32) -> bool {
        self.written.add(word);
        self.touched.push(word);
        let at = word as usize;
        let (value, constant, derived) = (self.record[at], self.constant[at], self.derived[at]);
        self.journal.push(Undo { word, value, constant, derived, sources: self.sources[at].clone() });
        self.is_changed(word)
    }

    fn count(&mut self, word: u32, was_changed: bool) {
        match (was_changed, self.is_changed(word)) {
            (false, true) => self.changed += 1,
            (true, false) => self.changed -= 1,
            _ => {}
        }
    }

    fn set_constant(&mut self, word: u32, mask: u64) {
        let at = word as usize;
        self.constant[at] |= mask;
        self.derived[at] &= !mask;
        if self.derived[at] == 0 {
            self.sources[at] = None;
        }
    }

    fn set_derived(&mut self, word: u32, mask: u64, mut from: Vec<(u32, u64)>) {
        let at = word as usize;
        if from.is_empty() {
            return self.set_constant(word, mask);
        }
        self.constant[at] &= !mask;
        self.derived[at] &= !mask;
        if self.derived[at] != 0
            && let Some(sources) = &self.sources[at]
        {
            from.extend(sources.iter());
        }
        self.derived[at] |= mask;
        from.sort_unstable();
        from.dedup_by(|(word, mask), (other, sum)| {
            let is_same = word == other;
            if is_same {
                *sum |= *mask;
            }
            is_same
        });
        self.sources[at] = Some(from.into());
    }

    /// Writes the bits of a constant under a mask.
    pub fn write(&mut self, place: &Place, value: u128, mask: u128) {
        place.spread(value, mask, |word, mask, value| self.write_word(word, mask, value));
    }

    /// Writes the bits of a constant under a mask to a word.
    pub fn write_word(&mut self, word: u32, mask: u64, value: u64) {
        let at = word as usize;
        if mask & !self.constant[at] == 0 && self.record[at] & mask == value {
            return;
        }
        let was_changed = self.note(word);
        self.record[at] = self.record[at] & !mask | value;
        self.set_constant(word, mask);
        self.count(word, was_changed);
        match self.effects.last_mut() {
            Some(Effect::Write { word: last, mask: other, value: of }) if *last == word => {
                *of = *of & !mask | value;
                *other |= mask;
            }
            _ => self.effects.push(Effect::Write { word, mask, value }),
        }
    }

    /// Copies a value to another place.
    pub fn copy(&mut self, from: &Place, to: &Place) {
        let value = from.read(&self.record);
        // The sources of each part of the value.
        let mut origins: Vec<(Place, Vec<(u32, u64)>)> = Vec::new();
        for part in &to.parts {
            let mut sources = Vec::new();
            let bits = from.slice(part.at, part.width);
            bits.spread(0, u128::MAX, |word, mask, _| self.origin(word, mask, &mut sources));
            origins.push((Place { parts: vec![*part], width: to.width }, sources));
        }
        if origins.iter().all(|(_, sources)| sources.is_empty()) {
            return self.write(to, value, u128::MAX);
        }
        for (place, sources) in origins {
            place.spread(value, u128::MAX, |word, mask, value| {
                let was_changed = self.note(word);
                let at = &mut self.record[word as usize];
                *at = *at & !mask | value;
                self.set_derived(word, mask, sources.clone());
                self.count(word, was_changed);
            });
        }
        self.effects.push(Effect::Move(Box::new((from.clone(), to.clone()))));
    }

    /// Runs a header action.
    pub fn run(&mut self, vm: &Vm, action: u32, args: &[u128], checks_ttl: bool) {
        let mut origins = Vec::new();
        for (word, on) in &vm.dependences(action).written {
            let mut sources = Vec::new();
            on.iter().for_each(|(word, mask)| self.origin(*word, *mask, &mut sources));
            origins.push((*word, sources));
        }
        let noted: Vec<(u32, bool)> = origins.iter().map(|(word, _)| (*word, self.note(*word))).collect();
        vm.run(action, args, &mut self.record);
        for ((word, sources), (_, was_changed)) in origins.into_iter().zip(noted) {
            self.set_derived(word, u64::MAX, sources);
            self.count(word, was_changed);
        }
        self.effects.push(Effect::Run { action, args: args.into(), checks_ttl });
    }

    /// The current position in the journal, for [`State::undo`].
    pub fn journal_len(&self) -> usize {
        self.journal.len()
    }

    /// Assumes that a flag is not set. Packets for which it is set do not get here.
    pub fn assume(&mut self, flag: Part) {
        let was_changed = self.note(flag.word);
        self.set_constant(flag.word, flag.mask());
        self.count(flag.word, was_changed);
    }

    /// Makes a value unknown, because running the effects may change it per packet. This translation still uses the
    /// present value.
    pub fn blur(&mut self, place: &Place) {
        for part in &place.parts {
            let mut sources = Vec::new();
            self.origin(part.word, part.mask(), &mut sources);
            let was_changed = self.note(part.word);
            // It is no longer a constant.
            sources.push((part.word, part.mask()));
            self.set_derived(part.word, part.mask(), sources);
            self.count(part.word, was_changed);
        }
    }

    /// Whether the frame may have to be deparsed again.
    pub fn is_modified(&self) -> bool {
        self.changed > 0
    }

    /// Starts a copy. Returns positions in the journal and in the effects, for [`State::restore`].
    pub fn mark(&mut self) -> (usize, usize) {
        self.effects.push(Effect::Save(Box::default()));
        (self.journal.len(), self.effects.len() - 1)
    }

    /// Ends a copy: restores the packet.
    pub fn restore(&mut self, journal: usize, effects: usize) {
        let mut words: Vec<u32> = self.journal[journal..].iter().map(|undo| undo.word).collect();
        words.sort_unstable();
        words.dedup();
        self.undo(journal);
        // Meters that drop this copy continue here.
        let end = self.effects.len();
        for (at, effect) in self.effects.iter_mut().enumerate().skip(effects) {
            if let Effect::Meter { skip, .. } = effect
                && *skip == u32::MAX
            {
                *skip = (end - at - 1) as u32;
            }
        }
        let words: Box<[u32]> = words.into();
        self.effects[effects] = Effect::Save(words.clone());
        self.effects.push(Effect::Restore(words));
    }

    /// Changes a value for the time of a lookup. Returns the position for [`State::undo`].
    pub fn pretend(&mut self, place: &Place, value: u128) -> usize {
        let mark = self.journal.len();
        place.spread(value, u128::MAX, |word, mask, value| {
            let was_changed = self.note(word);
            let at = &mut self.record[word as usize];
            *at = *at & !mask | value;
            self.set_constant(word, mask);
            self.count(word, was_changed);
        });
        mark
    }

    /// Undoes changes back to a position in the journal.
    pub fn undo(&mut self, mark: usize) {
        for undo in self.journal.drain(mark..).rev().collect::<Vec<_>>() {
            let was_changed = self.is_changed(undo.word);
            let at = undo.word as usize;
            self.record[at] = undo.value;
            self.constant[at] = undo.constant;
            self.derived[at] = undo.derived;
            self.sources[at] = undo.sources;
            self.count(undo.word, was_changed);
        }
    }
}
