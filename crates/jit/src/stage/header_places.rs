//! Which header pointers are constants where packets wait.
//!
//! On a path where it is known which headers were extracted, a header's pointer is the frame's first byte plus a
//! constant, or points to the zeros; and whether headers moved is known too. Rows need not hold either: the phase
//! computes them again. This forward dataflow analysis mirrors what [`crate::packet`] does with pointers and
//! [`crate::translate`] with the layout flag.

use crate::flow::{Flow, LayoutChange, Place, ProgramFacts};
use crate::stage::plan::{Plan, ProgramPoint};
use ir::{EntryPoint, Op, Program, SlotId};

/// The value of a header's pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderPlace {
    /// The zeros: the header was never extracted, or it became invalid.
    Zeros,
    /// So many bytes after the frame's first byte.
    At(u32),
    /// Known at run time only.
    Varying,
}

/// The facts at a program point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeaderPlaces {
    /// By header.
    pub headers: Vec<HeaderPlace>,
    /// Whether the emitted headers may not be where they would be emitted to; `None` if it is known at run time only.
    pub layout_changed: Option<bool>,
}

/// The facts at each phase's start; for the first phase, where a packet starts.
pub(crate) fn header_places(
    program: &Program,
    facts: &ProgramFacts,
    flow: &Flow,
    plan: &Plan,
    entry: &EntryPoint,
) -> Vec<HeaderPlaces> {
    let walk = Walk { program, facts, flow, entry };
    let nodes = &flow.graph.nodes;
    let mut start = HeaderPlaces { headers: vec![HeaderPlace::Zeros; program.headers.len()], layout_changed: None };
    walk.enter(0, &mut start, flow.at[0].clone());
    let mut at: Vec<Option<HeaderPlaces>> = vec![None; nodes.len()];
    at[0] = Some(start.clone());
    // Iterate to a fixed point: facts about loops get weaker in each round.
    loop {
        let mut changed = false;
        for n in 0..nodes.len() {
            let Some(mut header_places) = at[n].clone() else { continue };
            let now = walk.step(n, usize::MAX, &mut header_places);
            if flow.graph.ends_stage(program, n) {
                if flow.deparser(nodes[n].position).is_some() {
                    // The frame begins elsewhere now.
                    header_places.headers.fill(HeaderPlace::Varying);
                    header_places.layout_changed = Some(true);
                }
                if nodes[n].position + 1 < entry.stages.len() {
                    walk.enter(nodes[n].position + 1, &mut header_places, now);
                }
            }
            for &s in &nodes[n].succs {
                changed |= match &mut at[s] {
                    Some(known) => known.join(&header_places),
                    none => {
                        *none = Some(header_places.clone());
                        true
                    }
                };
            }
        }
        if !changed {
            break;
        }
    }
    let of = |(n, inst): ProgramPoint| {
        let mut header_places = at[n].clone().expect("every node can be reached");
        walk.step(n, inst, &mut header_places);
        header_places
    };
    plan.phases.iter().map(|p| p.cut.map_or_else(|| start.clone(), |c| of(plan.lookups[c].program_point))).collect()
}

struct Walk<'a> {
    program: &'a Program,
    facts: &'a ProgramFacts,
    flow: &'a Flow,
    entry: &'a EntryPoint,
}

impl Walk<'_> {
    /// Enters a stage, at the entry point's start or from the previous stage, with the facts `at`.
    fn enter(&self, position: usize, header_places: &mut HeaderPlaces, mut at: crate::flow::Facts) {
        if let Some(changed) = self.flow.enter_stage(self.program, self.entry, position, &mut at) {
            header_places.layout_changed = Some(changed);
        }
    }

    /// Applies the first `count` operations of a node; returns the flow facts after them.
    fn step(&self, node: usize, count: usize, header_places: &mut HeaderPlaces) -> crate::flow::Facts {
        let mut now = self.flow.at[node].clone();
        let place = &self.flow.graph.nodes[node];
        let mut known = place.known.clone();
        let flag = |known: &crate::paths::Known, slot: SlotId| known.get(&slot).map(|v| !v.is_zero());
        for inst in self.flow.graph.block(self.program, node).insts.iter().take(count) {
            match &inst.op {
                Op::Extract { header, .. } => {
                    header_places.headers[header.index()] = match now.cursor {
                        Place::Const(offset) => HeaderPlace::At(offset),
                        Place::Varying => HeaderPlace::Varying,
                    };
                }
                Op::SetInvalid { header } => header_places.headers[header.index()] = HeaderPlace::Zeros,
                _ => {}
            }
            let moved = match self.flow.step(self.program, self.facts, place.position, &inst.op, &mut now) {
                LayoutChange::None => Some(false),
                LayoutChange::Always => Some(true),
                LayoutChange::Validated(slot) => flag(&known, slot).map(|was| !was),
                LayoutChange::Invalidated(slot) => flag(&known, slot),
                LayoutChange::Assigned(_) => None,
            };
            header_places.layout_changed = match (header_places.layout_changed, moved) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (so_far, Some(false)) => so_far,
                _ => None,
            };
            inst.op.for_each_def(self.program, |s| _ = known.remove(&s));
        }
        now
    }
}

impl HeaderPlaces {
    /// Joins with `other`: keeps only what holds in both. Returns whether anything changed.
    fn join(&mut self, other: &HeaderPlaces) -> bool {
        let mut changed = false;
        for (known, other) in self.headers.iter_mut().zip(&other.headers) {
            if *known != *other && *known != HeaderPlace::Varying {
                *known = HeaderPlace::Varying;
                changed = true;
            }
        }
        if self.layout_changed.is_some() && self.layout_changed != other.layout_changed {
            self.layout_changed = None;
            changed = true;
        }
        changed
    }
}
