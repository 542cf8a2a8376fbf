//! Translation: takes a packet through the flow tables and records the result for the cache (Open vSwitch's xlate).
//!
//! ```text
//! record ─▶ tables, actions, groups ─▶ effects (what happens)
//!                     │                consulted bits (for which packets it is the same: the megaflow's mask)
//!                     └──────────────▶ dependences (until which change of tables)
//! ```
//!
//! Processing follows OpenFlow (1.3.5, 5) and, for Nicira's actions, ovs-actions(7). A translation itself only
//! learns flows and addresses, which later lookups of the same packet must find. All other effects take place when
//! the list is run.
//!
//! **Limits** (as in Open vSwitch): [`DEPTH_MAX`] nested resubmissions, [`SEARCHES_MAX`] table lookups,
//! [`EFFECTS_MAX`] effects, [`STEPS_MAX`] actions. A packet that exceeds one is dropped.
//!
//! **Work** (`abi::flows`) is charged in steps before it is done: for each lookup, action and bucket, and for lists
//! that are copied. The translation ends when [`Subject::work`] is used up.
//!
//! The tables are read-locked during a translation, except while `learn` changes them; the translation then
//! continues with the changed tables.
//!
//! Tests: `translate/tests.rs`; with the cache, `cache/tests.rs`.

mod actions;
mod finish;
mod fragments;
pub mod frames;
mod groups;
mod hash;
mod learn;
mod output;
mod state;
#[cfg(test)]
mod tests;

use crate::effects::{Effect, Effects, Learned};
use crate::flow::{Flow, Usage};
use crate::key::{Consulted, Layout, WordTerm, Words};
use crate::normal::{Station, Stations};
use crate::pending::{Begin, Pending};
use crate::recent::{Dependence, Recent};
use crate::tables::{Miss, Tables};
use crate::vm::Vm;
use frames::{Frame, Frozen, List, Place, Same, in_order};
use openflow::message::FlowMod;
use openflow::{Action, Error, Match};
use state::State;
use std::collections::HashMap;
use std::sync::{Arc, RwLockReadGuard};

/// Maximum nesting depth of resubmissions to the same or an earlier table.
pub const DEPTH_MAX: u16 = 64;
/// Maximum number of table lookups.
pub const SEARCHES_MAX: u32 = 4096;
/// Maximum number of effects.
pub const EFFECTS_MAX: usize = 16384;
/// Maximum number of actions.
pub const STEPS_MAX: u32 = 1 << 18;

/// Cost of a table lookup, in steps. It covers [`VISITS_PER_STEP`] times as many subtables.
const SEARCH_STEPS: usize = 4;
/// Subtables that are searched in one step.
pub(crate) const VISITS_PER_STEP: u32 = 4;
/// Cost of a header action, in steps.
const HEADER_STEPS: usize = 4;
/// Cost of learning a flow, in steps.
const LEARN_STEPS: usize = 64;
/// Hashes of two words that are computed in one step.
const HASHES_PER_STEP: usize = 8;
/// Up to this number of usages, they are searched linearly; beyond, by hash, so that the time of a translation
/// stays linear.
const MANY_USAGES: usize = 32;

/// Cost of copying or traversing a list of `len` elements, in steps.
fn copied(len: usize) -> usize {
    len.div_ceil(4)
}

/// Cost of an action itself, in steps. The buckets, tables and effects that it leads to are charged separately.
fn steps_of(action: &Action) -> usize {
    match action {
        Action::Header { .. } | Action::DecTtlControllers(_) => HEADER_STEPS,
        Action::Learn(_) => LEARN_STEPS,
        Action::Clone(actions) | Action::WriteActions(actions) => 1 + copied(actions.len()),
        Action::Bundle { members, .. } => 1 + members.len(),
        Action::Multipath { algorithm, max_link, argument, .. } => {
            1 + hash::tries(*algorithm, u32::from(*max_link) + 1, *argument).div_ceil(HASHES_PER_STEP)
        }
        _ => 1,
    }
}

/// The bridge, as translations use it.
pub trait Control: Send + Sync {
    /// Positions of match fields in records.
    fn layout(&self) -> &Arc<Layout>;
    /// Tables, groups, meters, ports.
    fn tables(&self) -> RwLockReadGuard<'_, Tables>;
    /// The log of their changes, with the global generation.
    fn recent(&self) -> &Arc<Recent>;
    /// Adds a learned flow.
    ///
    /// # Errors
    /// If the flow is refused; the error says why.
    fn learn(&self, request: &FlowMod) -> Result<(), Error>;
    /// Schedules a flow whose timeouts have become shorter.
    fn shorten(&self, flow: &Arc<Flow>);
    /// Queues a packet-in for controllers.
    fn packet_in(&self, event: crate::controllers::PacketInEvent);
    /// The states of packets that do not start at table 0.
    fn pending(&self) -> &Pending;
}

/// State that the translations of a bridge share.
#[derive(Clone)]
pub struct Shared {
    /// The bridge.
    pub control: Arc<dyn Control>,
    /// Runs header actions.
    pub vm: Arc<Vm>,
    /// The MAC table of `NORMAL`.
    pub stations: Arc<Stations>,
}

impl Dependence {
    /// The current generation of the table, group or meter that it names.
    pub fn generation(self, tables: &Tables, stations: &Stations) -> u64 {
        match self {
            Dependence::Table(table) => tables.generation(table),
            Dependence::Groups => tables.groups_generation(),
            Dependence::Meters => tables.meters_generation(),
            Dependence::Ports => tables.ports_generation(),
            Dependence::Stations => stations.generation(),
        }
    }
}

/// The result of a translation.
#[derive(Debug)]
pub struct Translation {
    /// The packet's effects.
    pub effects: Effects,
    /// The bits of the record as parsed on which the effects depend, by ascending word.
    pub consulted: Box<[(u32, u64)]>,
    /// The bits of the frame's length on which they depend.
    pub length: u32,
    /// The tables and other state on which they depend, each with its generation.
    pub dependences: Box<[(Dependence, u64)]>,
    /// Whether later packets can have the same start, so that caching makes sense.
    pub is_repeatable: bool,
    /// Whether it learns flows or addresses, or would in a translation that may.
    pub would_learn: bool,
    /// Whether flows were found or counted by other means than lookups of the packet.
    pub finds_flows: bool,
    /// Words that the translation wrote, or that lookups make up (`conj_id`). Of all other words, lookups saw the
    /// parsed value.
    pub written: Words,
    /// Why the packet is dropped, if an error and not a flow drops it.
    pub error: Option<String>,
    /// Work that was done, in steps.
    pub work: u32,
    /// Whether the work limit was exceeded.
    pub is_too_much: bool,
}

/// A packet to be translated.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its record after parsing.
    pub record: &'a [u64],
    /// Its frame's length in bytes.
    pub bytes: u32,
    /// Where processing starts: 0 for table 0, otherwise an id of [`Pending`].
    pub start: u64,
    /// The current time.
    pub now_us: u64,
    /// Work limit, in steps.
    pub work: u32,
}

/// A translation in progress.
pub struct Translator<'a> {
    shared: &'a Shared,
    layout: &'a Arc<Layout>,
    /// The read lock; always present except while `learn` changes the tables.
    tables: Option<RwLockReadGuard<'a, Tables>>,
    subject: Subject<'a>,
    state: State,
    frames: Vec<Frame>,
    stack: Vec<(u128, u32)>,
    set: Vec<Action>,
    is_set_done: bool,
    needs_reparse: bool,
    queue: u32,
    searches: u32,
    steps: u32,
    /// Remaining work in steps, of the whole translation.
    work_left: u32,
    is_too_much: bool,
    length: u32,
    error: Option<String>,
    /// Whether it failed for lack of a resource, so that the result must not be cached.
    is_transient: bool,
    dependences: Vec<(Dependence, u64)>,
    usages: Vec<(Arc<Usage>, u32)>,
    /// Indices into `usages` by address, used once there are many.
    usage_places: HashMap<usize, usize>,
    counts: Vec<(u8, u32, u32)>,
    stations: Vec<Arc<Station>>,
    learned: Vec<Learned>,
    /// Bits that the current lookup consulted, before they are traced back to the record as parsed.
    scratch: Consulted,
    /// Whether flows and addresses may be learned.
    learns: bool,
    would_learn: bool,
    finds_flows: bool,
    trace: Option<Vec<String>>,
}

/// The arrays of a translation, which the next one uses again. A translation is short, and a bridge's records are
/// large, so that otherwise allocating and clearing them would take a third of its time.
#[derive(Debug, Default)]
pub struct Arrays(Option<Box<(State, Lists)>>);

/// Lists that are empty between translations.
#[derive(Debug, Default)]
struct Lists {
    frames: Vec<Frame>,
    dependences: Vec<(Dependence, u64)>,
    usages: Vec<(Arc<Usage>, u32)>,
    counts: Vec<(u8, u32, u32)>,
    scratch: Consulted,
}

/// Translates a packet, and learns flows and addresses.
pub fn translate(shared: &Shared, subject: Subject<'_>, arrays: &mut Arrays) -> Translation {
    Translator::new(shared, subject, true, arrays).translate(arrays).0
}

/// Translates a packet without side effects.
pub fn dry(shared: &Shared, subject: Subject<'_>, arrays: &mut Arrays) -> Translation {
    Translator::new(shared, subject, false, arrays).translate(arrays).0
}

/// Translates a packet without side effects, and returns an explanation, line by line.
pub fn trace(shared: &Shared, subject: Subject<'_>) -> (Translation, Vec<String>) {
    let arrays = &mut Arrays::default();
    let mut translator = Translator::new(shared, subject, false, arrays);
    translator.trace = Some(Vec::new());
    translator.translate(arrays)
}

impl<'a> Translator<'a> {
    fn new(shared: &'a Shared, subject: Subject<'a>, learns: bool, arrays: &mut Arrays) -> Translator<'a> {
        let layout = shared.control.layout();
        let (mut state, lists) = arrays.0.take().map_or_else(
            || (State::new(layout), Lists { scratch: Consulted::new(layout.words()), ..Lists::default() }),
            |arrays| *arrays,
        );
        state.begin(subject.record);
        Translator {
            shared,
            layout,
            tables: Some(shared.control.tables()),
            subject,
            state,
            frames: lists.frames,
            stack: Vec::new(),
            set: Vec::new(),
            is_set_done: false,
            needs_reparse: false,
            queue: 0,
            searches: 0,
            steps: 0,
            work_left: subject.work,
            is_too_much: false,
            length: 0,
            error: None,
            is_transient: false,
            dependences: lists.dependences,
            usages: lists.usages,
            usage_places: HashMap::new(),
            counts: lists.counts,
            stations: Vec::new(),
            learned: Vec::new(),
            scratch: lists.scratch,
            learns,
            would_learn: false,
            finds_flows: false,
            trace: None,
        }
    }

    fn translate(mut self, arrays: &mut Arrays) -> (Translation, Vec<String>) {
        let is_repeatable = self.begin();
        self.work();
        let is_repeatable = is_repeatable && !self.is_transient;
        let trace = self.trace.take().unwrap_or_default();
        if self.error.is_some() {
            // Nothing is output. Lookups count all the same, and TTL checks stay: a TTL may expire before the error
            // is reached.
            for effect in &mut self.state.effects {
                if matches!(
                    effect,
                    Effect::Output { .. } | Effect::Capture { .. } | Effect::Again { .. } | Effect::Meter { .. }
                ) {
                    *effect = Effect::Nothing;
                }
            }
        }
        let effects = self.finish();
        self.consult_fragment();
        let translation = Translation {
            effects,
            finds_flows: self.finds_flows,
            written: self.state.written.with(self.layout.made_up()),
            consulted: self.state.consulted.sorted(),
            length: self.length,
            dependences: self.dependences.drain(..).collect(),
            is_repeatable,
            would_learn: self.would_learn,
            error: self.error,
            work: self.subject.work - self.work_left,
            is_too_much: self.is_too_much,
        };
        self.state.end();
        self.frames.clear();
        self.scratch.clear();
        let Translator { state, frames, dependences, usages, counts, scratch, .. } = self;
        arrays.0 = Some(Box::new((state, Lists { frames, dependences, usages, counts, scratch })));
        (translation, trace)
    }

    /// Sets up the first frames. Returns whether later packets can have the same start.
    fn begin(&mut self) -> bool {
        self.hide_transport();
        if self.subject.start == 0 {
            // All megaflows match the input port; also, outputs exclude it unless a flow names `OFPP_IN_PORT`.
            let in_port = self.layout.in_port();
            self.state.consult_place(in_port, u128::MAX);
            if self.receives() {
                self.search(0, None, true, Place::default());
            }
            return true;
        }
        match self.shared.control.pending().take(self.subject.start) {
            None => {
                self.fail("it begins where nothing is known of any more");
                false
            }
            Some(Begin::PacketOut { actions, in_port, fields }) => {
                self.set_metadata(&[], &fields);
                let place = self.layout.in_port();
                self.state.write(place, u128::from(in_port), u128::MAX);
                let place = Place { reason: crate::controllers::packet_in_reason::PACKET_OUT, ..Place::default() };
                self.frames.push(Frame::Actions { list: List::Owned(actions), at: 0, place });
                false
            }
            Some(Begin::Frozen(frozen)) => {
                self.thaw(&frozen, &Match::any());
                true
            }
            Some(Begin::Resumed(frozen, fields)) => {
                self.thaw(&frozen, &fields);
                false
            }
        }
    }

    fn set_metadata(&mut self, words: &[WordTerm], fields: &Match) {
        words.iter().for_each(|term| self.state.write_word(term.word, term.mask, term.value));
        let layout = self.layout;
        for term in fields.terms().iter().filter(|term| layout.is_metadata(term.field)) {
            self.state.write(layout.place(term.field), term.value, term.mask);
        }
    }

    fn thaw(&mut self, frozen: &Frozen, fields: &Match) {
        if !self.work_on(frozen.frames.len() + copied(frozen.stack.len() + frozen.set.len())) {
            return;
        }
        self.set_metadata(&frozen.metadata, fields);
        self.frames.clone_from(&frozen.frames);
        self.stack.clone_from(&frozen.stack);
        self.set.clone_from(&frozen.set);
        self.is_set_done = frozen.is_set_done;
        self.queue = frozen.queue;
    }

    /// Runs frames until none is left, then the action set.
    fn work(&mut self) {
        while self.error.is_none() {
            let Some(top) = self.frames.last_mut() else {
                if self.is_set_done {
                    return;
                }
                self.is_set_done = true;
                if !self.set.is_empty() && self.work_on(copied(self.set.len())) {
                    self.note(|| "action set".to_string());
                    let reason = crate::controllers::packet_in_reason::ACTION_SET;
                    let list = List::Owned(in_order(&self.set).into());
                    self.frames.push(Frame::Actions { list, at: 0, place: Place { reason, ..Place::default() } });
                }
                continue;
            };
            match top {
                Frame::Actions { list, place, .. } => {
                    let (list, place) = (list.clone(), place.clone());
                    self.do_actions(&list, &place);
                }
                Frame::Rest { flow, is_written, depth } => {
                    let (flow, is_written, depth) = (flow.clone(), *is_written, *depth);
                    self.frames.pop();
                    self.do_rest(flow, is_written, depth);
                }
                Frame::Restore(_) => {
                    if let Some(Frame::Restore(saved)) = self.frames.pop() {
                        // The copy's effects are traversed.
                        self.work_on(copied(self.state.effects.len().saturating_sub(saved.effects)));
                        self.state.restore(saved.journal, saved.effects);
                        (self.stack, self.set, self.queue) = (saved.stack, saved.set, saved.queue);
                        (self.needs_reparse, self.is_set_done) = (saved.needs_reparse, saved.is_set_done);
                    }
                }
                Frame::Buckets { group, next, place } => {
                    let (group, at, place) = (group.clone(), *next, place.clone());
                    *next += 1;
                    if at < group.0.buckets.len() {
                        self.do_bucket(&group.0, at, &place);
                    } else {
                        self.frames.pop();
                    }
                }
            }
            if self.state.effects.len() > EFFECTS_MAX {
                self.fail("it has too many effects");
            }
        }
    }

    /// Executes the actions of the top frame until another frame is on top.
    fn do_actions(&mut self, list: &List, place: &Place) {
        let depth = self.frames.len();
        while self.frames.len() == depth && self.error.is_none() {
            let Some(Frame::Actions { at, .. }) = self.frames.last() else { return };
            let next = *at;
            let Some(action) = list.actions().get(next) else {
                self.frames.pop();
                return;
            };
            if self.needs_reparse && !self.is_blind(action) {
                self.freeze(None);
                return;
            }
            if let Some(Frame::Actions { at, .. }) = self.frames.last_mut() {
                *at = next + 1;
            }
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return self.fail("it has too many actions");
            }
            if self.work_on(steps_of(action)) {
                self.action(action, place);
            }
        }
    }

    /// Charges steps that are about to be done. If not enough are left, the translation fails, and the result is
    /// `false`.
    pub(crate) fn work_on(&mut self, steps: usize) -> bool {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let is_left = steps <= self.work_left;
        if is_left {
            self.work_left -= steps;
        } else {
            (self.work_left, self.is_too_much, self.is_transient) = (0, true, true);
            self.fail("no work is left for it");
        }
        is_left
    }

    /// Executes a flow's instructions that follow Apply-Actions. `is_written` if only Goto-Table is left.
    fn do_rest(&mut self, flow: Same<Flow>, is_written: bool, depth: u16) {
        let instructions = &flow.0.instructions;
        if !self.work_on(1 + copied(instructions.write.len())) {
            return;
        }
        if !is_written {
            if instructions.clear {
                self.set.clear();
            }
            self.set.extend(instructions.write.iter().cloned());
            if let Some((value, mask)) = instructions.metadata {
                self.write_metadata(value, mask);
            }
        }
        if let Some(next) = instructions.goto {
            if self.needs_reparse {
                self.frames.push(Frame::Rest { flow: flow.clone(), is_written: true, depth });
                return self.freeze(None);
            }
            let place = Place { table: flow.0.table, depth, flow: Some(flow), ..Place::default() };
            self.search(next, None, true, place);
        }
    }

    /// Looks up the packet in a table, and pushes frames for the flow's instructions. `is_main` is false for
    /// resubmissions, on which a miss has no effect.
    fn search(&mut self, table: u8, in_port: Option<u32>, is_main: bool, from: Place) {
        let is_deeper = self.searches > 0 && table <= from.table && !is_main;
        let depth = from.depth + u16::from(is_deeper);
        self.searches += 1;
        if depth > DEPTH_MAX || self.searches > SEARCHES_MAX {
            return self.fail("too many tables are searched");
        }
        if !self.work_on(SEARCH_STEPS) {
            return;
        }
        if table >= crate::tables::limit::TABLES {
            return;
        }
        self.depend(Dependence::Table(table));
        let pretended = in_port.map(|port| {
            let place = self.layout.in_port();
            self.state.pretend(place, u128::from(port))
        });
        self.scratch.clear();
        let Some(tables) = &self.tables else { return };
        // The lookup may use all remaining work; it is charged afterwards.
        let most = (SEARCH_STEPS as u32).saturating_add(self.work_left).saturating_mul(VISITS_PER_STEP);
        let mut visits = most;
        let found = tables.table(table).flows.lookup_within(&self.state.record, &mut self.scratch, &mut visits);
        let found = found.map(Option::<&Arc<Flow>>::cloned);
        let miss = tables.miss();
        self.state.consult_all(&self.scratch);
        if let Some(mark) = pretended {
            self.state.undo(mark);
        }
        let steps = found.as_ref().map_or(usize::MAX, |_| (most - visits).div_ceil(VISITS_PER_STEP) as usize);
        if !self.work_on(steps.saturating_sub(SEARCH_STEPS)) {
            return;
        }
        let found = found.flatten();
        let counts = match self.counts.iter_mut().find(|(other, ..)| *other == table) {
            Some(counts) => counts,
            None => {
                self.counts.push((table, 0, 0));
                self.counts.last_mut().expect("one was pushed")
            }
        };
        counts.1 += 1;
        counts.2 += u32::from(found.is_some());
        let Some(flow) = found else {
            self.note(|| format!("table {table}: no match"));
            if is_main && miss == Miss::Controller {
                self.depend(Dependence::Ports);
                self.miss(table);
            }
            return;
        };
        if self.trace.is_some() {
            let text = crate::trace::flow(self.layout, &flow);
            self.note(|| format!("table {table}: {text}"));
        }
        self.count(&flow.usage);
        let instructions = &flow.instructions;
        let flow = Same(Arc::clone(&flow));
        if instructions.clear
            || !instructions.write.is_empty()
            || instructions.metadata.is_some()
            || instructions.goto.is_some()
        {
            self.frames.push(Frame::Rest { flow: flow.clone(), is_written: false, depth });
        }
        if !instructions.apply.is_empty() {
            let place = Place { table, flow: Some(flow.clone()), depth, ..Place::default() };
            self.frames.push(Frame::Actions { list: List::Flow(flow.clone()), at: 0, place });
        }
        if let Some(meter) = instructions.meter {
            self.meter(meter);
        }
        if self.frames.len() > EFFECTS_MAX {
            self.fail("too much is left to be done");
        }
    }

    /// Records state on which this translation depends.
    fn depend(&mut self, on: Dependence) {
        if self.dependences.iter().all(|(other, _)| *other != on)
            && let Some(tables) = &self.tables
        {
            self.dependences.push((on, on.generation(tables, &self.shared.stations)));
        }
    }

    fn count(&mut self, usage: &Arc<Usage>) {
        let address = |usage: &Arc<Usage>| Arc::as_ptr(usage) as usize;
        if self.usages.len() == MANY_USAGES {
            let places = self.usages.iter().enumerate().map(|(at, (usage, _))| (address(usage), at));
            self.usage_places = places.collect();
        }
        let at = match self.usages.len() {
            ..MANY_USAGES => self.usages.iter().position(|(other, _)| Arc::ptr_eq(other, usage)),
            _ => self.usage_places.get(&address(usage)).copied(),
        };
        match at {
            Some(at) => self.usages[at].1 += 1,
            None => {
                if self.usages.len() >= MANY_USAGES {
                    self.usage_places.insert(address(usage), self.usages.len());
                }
                self.usages.push((Arc::clone(usage), 1));
            }
        }
    }

    fn fail(&mut self, why: &str) {
        self.note(|| format!("dropped: {why}"));
        self.error.get_or_insert_with(|| why.to_string());
    }

    /// Implements `exit`: ends processing of this copy of the packet, or of the packet.
    fn exit(&mut self) {
        let to = self.frames.iter().rposition(|frame| matches!(frame, Frame::Restore(_)));
        self.frames.truncate(to.map_or(0, |at| at + 1));
    }

    /// Makes what follows work on a copy of the packet, until its [`Frame::Restore`].
    fn copy(&mut self) {
        if !self.work_on(1 + copied(self.stack.len() + self.set.len())) {
            return;
        }
        let (journal, effects) = self.state.mark();
        self.frames.push(Frame::Restore(Box::new(frames::Saved {
            journal,
            effects,
            stack: self.stack.clone(),
            set: self.set.clone(),
            queue: self.queue,
            needs_reparse: self.needs_reparse,
            is_set_done: self.is_set_done,
        })));
    }

    /// Freezes the rest of this copy's processing and ends it here. Returns the id and state, or `None` if there is
    /// no room.
    fn keep_rest(&mut self, program: Option<(u32, u64)>) -> Option<(u64, Arc<Frozen>)> {
        let copy = self.frames.iter().rposition(|frame| matches!(frame, Frame::Restore(_)));
        let frames = self.frames.split_off(copy.map_or(0, |at| at + 1));
        let layout = self.layout;
        let mut metadata: Vec<WordTerm> = Vec::new();
        for place in layout.metadata().map(|id| layout.place(id)).chain([layout.in_port()]) {
            self.state.consult_place(place, u128::MAX);
            place.spread(place.read(&self.state.record), u128::MAX, |word, mask, value| {
                match metadata.iter_mut().find(|term| term.word == word) {
                    Some(term) => {
                        term.mask |= mask;
                        term.value |= value;
                    }
                    None => metadata.push(WordTerm { word, mask, value }),
                }
            });
        }
        // A clone does not execute the action set at its end.
        let is_copy = copy.is_some();
        let frozen = Frozen {
            metadata,
            stack: std::mem::take(&mut self.stack),
            set: if is_copy { Vec::new() } else { std::mem::take(&mut self.set) },
            is_set_done: is_copy || self.is_set_done,
            queue: self.queue,
            frames,
            program,
            in_port: layout.in_port().read(&self.state.record) as u32,
        };
        self.is_set_done = true;
        let kept = self.shared.control.pending().freeze(frozen);
        if kept.is_none() {
            self.is_transient = true;
            self.fail("too many packets wait");
        }
        kept
    }

    /// Freezes the translation, to be resumed after the frame was deparsed, processed by `program`, and parsed
    /// again (recirculation).
    fn freeze(&mut self, program: Option<(u32, u64)>) {
        let is_modified = self.state.is_modified();
        let Some((start, frozen)) = self.keep_rest(program) else { return };
        self.note(|| format!("goes on after the frame is parsed anew, at {start}"));
        self.state.effects.push(Effect::Again {
            start,
            _held: frozen,
            rewrites: program.is_some(),
            is_modified,
            is_last: false,
        });
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let depth = self.frames.len();
        if let Some(trace) = &mut self.trace
            && trace.len() < EFFECTS_MAX
        {
            trace.push(format!("{:1$}{2}", "", depth.min(40), text()));
        }
    }
}
