//! A forward data-flow analysis of every place of a frame along the paths through a body: whether a variable is
//! initialised, whether a header is valid. `uninit` and `validity` turn it into warnings.
//!
//! **States.** The state of a place is an element of a powerset lattice: which of [`ENTRY`] (as at the entry of the
//! body), [`BAD`] (uninitialised, or invalid) and [`GOOD`] hold on some path, and [`TESTED`] if `isValid()` has been
//! tested on some path. The join is union, so a state with `BAD` and without `GOOD` is bad for certain, and a state
//! with both is bad on some path. (A variable that is assigned under several conditions also gets `TESTED`: the
//! conditions may be exhaustive.)
//!
//! **Summaries.** The analysis is interprocedural. Each body (action, function, control, parser) is analysed once with
//! an unknown entry ([`walk`]); its effect on each place that it touches is its [`Summary`], used at each call. Parser
//! states are bodies within the parser and are combined over the state graph, 64 places at a time ([`parser`]). Then
//! entry states are propagated from callers to callees, beginning with the blocks of `main` ([`entries`]): a parser's
//! headers flow into the controls that follow it in the package. Uses that were recorded with `ENTRY` in their state
//! are decided at the end.
//!
//! **Cost.** Analysing a body costs the number of places it touches; a branch or a call costs the places touched
//! inside. Only the state graph of a parser is iterated, on bit sets.
//!
//! **Unsoundness**, chosen to avoid false positives: fields of valid headers count as written; all elements of a stack
//! are one place; a loop body counts as executed at least once; parser errors count as not happening.
//!
//! Tests: `crates/sema/tests/lint.rs`.

mod calls;
mod conditions;
mod entries;
mod parser;
mod states;
mod trail;
mod walk;

use super::places::{FramePlaces, Layouts, Ref};
use crate::typed::*;
use crate::types::*;
use base::Span;
use std::collections::HashMap;

/// As at the entry of the body.
pub(super) const ENTRY: u8 = 1;
/// Uninitialised, or invalid.
pub(super) const BAD: u8 = 2;
/// Initialised, or valid.
pub(super) const GOOD: u8 = 4;
/// Some path has tested whether the header is valid.
pub(super) const TESTED: u8 = 8;

/// The composition of transfer functions: the state after `effect` is applied to the state `before`.
fn compose(effect: u8, before: u8) -> u8 {
    let kept = if effect & ENTRY != 0 { before & (ENTRY | BAD | GOOD) } else { 0 };
    kept | (effect & (BAD | GOOD)) | ((effect | before) & TESTED)
}

/// A unit of the analysis, with a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum BodyId {
    Function(FunctionId),
    Action(ActionId),
    Control(ControlId),
    Parser(ParserId),
}

/// How a place is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// A scalar is read.
    Value,
    /// A field of a header, or of some element of a stack, is read.
    Field,
    /// A field of a header, or of some element of a stack, is written.
    FieldWrite,
}

/// A use of a place that may be bad.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub place: u32,
    pub state: u8,
    pub how: How,
    /// Whether it is under a condition (since the variable's declaration) that this analysis cannot evaluate.
    pub conditional: bool,
    pub span: Span,
}

/// A call, with the states of the callee's places of interest.
#[derive(Clone, Debug)]
struct CallSite {
    callee: BodyId,
    /// One state for each of the callee's [`Summary::interest`], and the place of the caller that `ENTRY` in it refers
    /// to.
    states: Vec<(u8, u32)>,
    conditional: bool,
}

/// The summary of a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub uses: Vec<Use>,
    calls: Vec<CallSite>,
    /// The transfer function: for each place that changes, its state at the end in terms of [`ENTRY`].
    effects: Vec<(u32, u8)>,
    /// The same at the points where `exit` ends it, if there are any.
    exit: Option<Vec<(u32, u8)>>,
    /// Whether the end is reachable.
    pub completes: bool,
    /// The places whose entry state matters to `uses` and `calls`, sorted.
    interest: Vec<u32>,
}

impl Summary {
    fn effect(&self, place: u32) -> u8 {
        lookup(&self.effects, place)
    }

    /// The state of a place at the end, given its state at the entry.
    pub fn at_end(&self, place: u32, entry: u8) -> u8 {
        compose(self.effect(place), entry)
    }

    fn find_interest(&mut self) {
        let mut found: Vec<u32> = self.uses.iter().filter(|u| u.state & ENTRY != 0).map(|u| u.place).collect();
        let at_calls = self.calls.iter().flat_map(|c| &c.states);
        found.extend(at_calls.filter(|(state, _)| state & ENTRY != 0).map(|(_, place)| *place));
        found.sort_unstable();
        found.dedup();
        self.interest = found;
    }
}

fn lookup(effects: &[(u32, u8)], place: u32) -> u8 {
    match effects.binary_search_by_key(&place, |e| e.0) {
        Ok(i) => effects[i].1,
        Err(_) => ENTRY,
    }
}

/// Implications between headers of a struct in the parser: which are valid whenever a given one is.
struct Implied {
    /// A bit set of implied leaves for each leaf; `None` if not computed: each implies all others.
    rows: Option<Vec<Vec<u64>>>,
}

/// The analysis of a program.
pub(super) struct Flow<'p> {
    pub program: &'p Program,
    pub layouts: Layouts,
    /// The places of each frame.
    pub frames: Vec<FramePlaces<'p>>,
    functions: Vec<Summary>,
    actions: Vec<Summary>,
    controls: Vec<Summary>,
    parsers: Vec<Summary>,
    implied: HashMap<StructId, Implied>,
    /// By body: the entry state of each place of interest, and whether all calls are conditional.
    entries: HashMap<BodyId, (Vec<u8>, bool)>,
}

impl<'p> Flow<'p> {
    /// Analyses all bodies.
    pub fn new(program: &'p Program) -> Flow<'p> {
        let layouts = Layouts::new(&program.types);
        let frames = program.frames.iter().map(|f| FramePlaces::new(&program.types, &layouts, f)).collect();
        let mut flow = Flow {
            program,
            layouts,
            frames,
            functions: vec![Summary::default(); program.functions.len()],
            actions: vec![Summary::default(); program.actions.len()],
            controls: vec![Summary::default(); program.controls.len()],
            parsers: vec![Summary::default(); program.parsers.len()],
            implied: HashMap::new(),
            entries: HashMap::new(),
        };
        let order = calls::function_order(program);
        flow.summarise(&order);
        entries::propagate_to_callees(&mut flow, &order);
        flow
    }

    pub fn summary(&self, body: BodyId) -> &Summary {
        match body {
            BodyId::Function(id) => &self.functions[id.index()],
            BodyId::Action(id) => &self.actions[id.index()],
            BodyId::Control(id) => &self.controls[id.index()],
            BodyId::Parser(id) => &self.parsers[id.index()],
        }
    }

    pub fn frame_of(&self, body: BodyId) -> FrameId {
        let p = self.program;
        match body {
            BodyId::Function(id) => p.functions[id.index()].frame,
            BodyId::Action(id) => p.actions[id.index()].frame,
            BodyId::Control(id) => p.controls[id.index()].frame,
            BodyId::Parser(id) => p.parsers[id.index()].frame,
        }
    }

    pub fn places(&self, body: BodyId) -> &FramePlaces<'p> {
        &self.frames[self.frame_of(body).index()]
    }

    pub fn params(&self, body: BodyId) -> &'p [Param] {
        let p = self.program;
        match body {
            BodyId::Function(id) => &p.functions[id.index()].params,
            BodyId::Action(id) => &p.actions[id.index()].params,
            BodyId::Control(id) => &p.controls[id.index()].params,
            BodyId::Parser(id) => &p.parsers[id.index()].params,
        }
    }

    /// All bodies, callees before callers except for functions.
    pub fn bodies(&self) -> impl Iterator<Item = BodyId> + use<> {
        let p = self.program;
        let functions = (0..p.functions.len()).map(|i| BodyId::Function(FunctionId::from_index(i)));
        let actions = (0..p.actions.len()).map(|i| BodyId::Action(ActionId::from_index(i)));
        let controls = (0..p.controls.len()).map(|i| BodyId::Control(ControlId::from_index(i)));
        let parsers = (0..p.parsers.len()).map(|i| BodyId::Parser(ParserId::from_index(i)));
        functions.chain(actions).chain(parsers).chain(controls)
    }

    /// The uses in a body, with entry states resolved for the whole program.
    pub fn uses(&self, body: BodyId) -> impl Iterator<Item = Use> {
        let summary = self.summary(body);
        let entry = self.entries.get(&body);
        summary.uses.iter().map(move |u| {
            let before = match entry {
                Some((states, _)) if u.state & ENTRY != 0 => {
                    summary.interest.binary_search(&u.place).map_or(GOOD, |i| states[i])
                }
                _ => GOOD,
            };
            let conditional = u.conditional || entry.is_some_and(|(_, conditional)| *conditional);
            Use { state: compose(u.state, before), conditional, ..u.clone() }
        })
    }

    /// Computes summaries, callees before callers: P4 declares before use, but instantiations of generic functions are
    /// in any order.
    fn summarise(&mut self, functions: &[FunctionId]) {
        let p = self.program;
        for id in functions {
            let mut scratch = states::Scratch::new(self.places(BodyId::Function(*id)));
            self.functions[id.index()] = walk::function(self, *id, &mut scratch);
        }
        for i in (0..p.actions.len()).filter(|i| p.actions[*i].owner.is_none()) {
            let id = ActionId::from_index(i);
            let mut scratch = states::Scratch::new(self.places(BodyId::Action(id)));
            self.actions[i] = walk::action(self, id, &mut scratch);
        }
        for i in 0..p.parsers.len() {
            let (summary, implied) = parser::summary(self, ParserId::from_index(i));
            self.parsers[i] = summary;
            self.implied.extend(implied);
        }
        for i in 0..p.controls.len() {
            let id = ControlId::from_index(i);
            let mut scratch = states::Scratch::new(self.places(BodyId::Control(id)));
            for action in &p.controls[i].actions {
                self.actions[action.index()] = walk::action(self, *action, &mut scratch);
            }
            self.controls[i] = walk::control(self, id, &mut scratch);
        }
    }

    /// The headers of the same struct that are valid whenever this one is.
    fn implied_by(&self, places: &FramePlaces, place: u32) -> Vec<u32> {
        let local = places.local_of(place);
        let Ref { start, len, .. } = places.of_local(local);
        let Type::Struct(id) = places.frame.locals[local.index()].ty else { return Vec::new() };
        let Some(implied) = self.implied.get(&id) else { return Vec::new() };
        match &implied.rows {
            None => (start..start + len).collect(),
            Some(rows) => {
                let row = rows.get((place - start) as usize).map_or(&[][..], |r| r.as_slice());
                (0..len)
                    .filter(|i| row.get(*i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 != 0))
                    .map(|i| start + i)
                    .collect()
            }
        }
    }
}
