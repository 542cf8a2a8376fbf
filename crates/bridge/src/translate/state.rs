//! The packet of a translation: its record, where its bits come from, and what was consulted.
//!
//! **Provenance.** Per word: bits that are constants of the path, bits that derive from bits of the packet as parsed, and the others,
//! which are still these. Consulting a bit consults what it comes from: so the mask is one over the record *as parsed*.
//!
//! Changes are kept in a journal, so that copies of a packet (clones, buckets) cost what they change.

use crate::effects::Effect;
use crate::key::{Consulted, Layout, Part, Place, Words};
use crate::vm::Vm;
use std::rc::Rc;
use std::sync::Arc;

/// Bits of the record as parsed, by word.
type Sources = Rc<[(u32, u64)]>;

/// What a word was before a change.
#[derive(Debug)]
struct Undo {
    word: u32,
    value: u64,
    constant: u64,
    derived: u64,
    sources: Option<Sources>,
}

/// The packet of a translation.
#[derive(Debug)]
pub struct State {
    layout: Arc<Layout>,
    /// Its record.
    pub record: Vec<u64>,
    constant: Vec<u64>,
    derived: Vec<u64>,
    sources: Vec<Option<Sources>>,
    /// What was consulted of the record as parsed.
    pub consulted: Consulted,
    journal: Vec<Undo>,
    /// Words that were changed, whether or not they are now.
    pub written: Words,
    /// Visible words that are changed.
    changed: usize,
    /// What it does.
    pub effects: Vec<Effect>,
}

impl State {
    /// A packet as parsed.
    pub fn new(layout: &Arc<Layout>, record: &[u64]) -> State {
        let words = layout.words();
        let mut own = record.to_vec();
        own.resize(words, 0);
        State {
            layout: Arc::clone(layout),
            record: own,
            constant: vec![0; words],
            derived: vec![0; words],
            sources: vec![None; words],
            consulted: Consulted::new(words),
            journal: Vec::new(),
            written: Words::default(),
            changed: 0,
            effects: Vec::new(),
        }
    }

    /// Bits of a word decide something.
    pub fn consult(&mut self, word: u32, mask: u64) {
        let (constant, derived) = (self.constant[word as usize], self.derived[word as usize]);
        self.consulted.add(word, mask & !constant & !derived);
        if mask & derived != 0
            && let Some(sources) = &self.sources[word as usize]
        {
            sources.iter().for_each(|(word, mask)| self.consulted.add(*word, *mask));
        }
    }

    /// Bits that a lookup consulted do.
    pub fn consult_all(&mut self, consulted: &Consulted) {
        consulted.iter().for_each(|(word, mask)| self.consult(word, mask));
    }

    /// A value's bits under the mask do.
    pub fn consult_place(&mut self, place: &Place, mask: u128) {
        place.spread(0, mask, |word, mask, _| self.consult(word, mask));
    }

    /// A value, which decides something.
    pub fn read(&mut self, place: &Place) -> u128 {
        self.consult_place(place, u128::MAX);
        place.read(&self.record)
    }

    /// A flag, which decides something.
    pub fn read_flag(&mut self, flag: Part) -> bool {
        self.consult(flag.word, flag.mask());
        crate::effects::is_set(&self.record, flag)
    }

    /// What bits of a word come from.
    fn origin(&self, word: u32, mask: u64, into: &mut Vec<(u32, u64)>) {
        let (constant, derived) = (self.constant[word as usize], self.derived[word as usize]);
        let own = mask & !constant & !derived;
        if own != 0 {
            into.push((word, own));
        }
        if mask & derived != 0
            && let Some(sources) = &self.sources[word as usize]
        {
            into.extend(sources.iter());
        }
    }

    fn is_changed(&self, word: u32) -> bool {
        (self.constant[word as usize] | self.derived[word as usize]) != 0 && self.layout.is_visible(word)
    }

    /// Before a change of a word.
    fn note(&mut self, word: u32) -> bool {
        self.written.add(word);
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

    /// Writes a constant's bits under the mask.
    pub fn write(&mut self, place: &Place, value: u128, mask: u128) {
        place.spread(value, mask, |word, mask, value| self.write_word(word, mask, value));
    }

    /// Writes a constant's bits under the mask.
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

    /// Copies a value.
    pub fn copy(&mut self, from: &Place, to: &Place) {
        let value = from.read(&self.record);
        // Which bits of the value come from where.
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

    /// Changes so far, for [`State::undo`].
    pub fn journal_len(&self) -> usize {
        self.journal.len()
    }

    /// A flag is not set: packets of which it is do not get here.
    pub fn assume(&mut self, flag: Part) {
        let was_changed = self.note(flag.word);
        self.set_constant(flag.word, flag.mask());
        self.count(flag.word, was_changed);
    }

    /// A value may be changed from now on by what is done to packets one by one. Translations take it as it is here.
    pub fn blur(&mut self, place: &Place) {
        for part in &place.parts {
            let mut sources = Vec::new();
            self.origin(part.word, part.mask(), &mut sources);
            let was_changed = self.note(part.word);
            // A constant is none any more.
            sources.push((part.word, part.mask()));
            self.set_derived(part.word, part.mask(), sources);
            self.count(part.word, was_changed);
        }
    }

    /// Whether the frame may have to be written anew.
    pub fn is_modified(&self) -> bool {
        self.changed > 0
    }

    /// Where a copy's changes begin.
    pub fn mark(&mut self) -> (usize, usize) {
        self.effects.push(Effect::Save(Box::default()));
        (self.journal.len(), self.effects.len() - 1)
    }

    /// Ends a copy: the packet is what it was.
    pub fn restore(&mut self, journal: usize, effects: usize) {
        let mut words: Vec<u32> = self.journal[journal..].iter().map(|undo| undo.word).collect();
        words.sort_unstable();
        words.dedup();
        self.undo(journal);
        // Meters that drop this copy go on here.
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

    /// A change of the record for a lookup, which is undone with [`State::undo`].
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

    /// Ends it.
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
