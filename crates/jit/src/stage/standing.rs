//! Where headers stand when packets wait.
//!
//! On a way that knows which headers were extracted, a header's pointer is the frame's first byte and a constant, or it
//! leads to the zeros. Such a pointer needs no place in a row: the phase makes it anew. A forward analysis carries that
//! through the graph; it says what [`crate::packet`] does with pointers.

use crate::flow::{Flow, Place, ProgramFacts};
use crate::stage::plan::{Plan, Spot};
use ir::{Op, Program};

/// What a header's pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The zeros: it was never extracted, or it became invalid.
    Zeros,
    /// So many bytes from the frame's first byte.
    At(u32),
    /// Only known when a packet is there.
    Varying,
}

/// By phase (none for the first) and header.
pub(crate) fn standings(program: &Program, facts: &ProgramFacts, flow: &Flow, plan: &Plan) -> Vec<Vec<Standing>> {
    let nodes = &flow.graph.nodes;
    let mut at: Vec<Option<Vec<Standing>>> = vec![None; nodes.len()];
    at[0] = Some(vec![Standing::Zeros; program.headers.len()]);
    // Until nothing changes: once and a half for each nesting of loops.
    loop {
        let mut changed = false;
        for n in 0..nodes.len() {
            let Some(mut standing) = at[n].clone() else { continue };
            let insts = &flow.graph.block(program, n).insts;
            step(program, facts, flow, n, insts.len(), &mut standing);
            if flow.graph.ends_stage(program, n) && flow.deparser(nodes[n].position).is_some() {
                // The frame begins elsewhere now.
                standing.fill(Standing::Varying);
            }
            for &s in &nodes[n].succs {
                changed |= match &mut at[s] {
                    Some(known) => join(known, &standing),
                    none => {
                        *none = Some(standing.clone());
                        true
                    }
                };
            }
        }
        if !changed {
            break;
        }
    }
    let of = |(n, inst): Spot| {
        let mut standing = at[n].clone().unwrap_or_else(|| vec![Standing::Varying; program.headers.len()]);
        step(program, facts, flow, n, inst, &mut standing);
        standing
    };
    plan.phases.iter().map(|p| p.cut.map(|c| of(plan.lookups[c].spot)).unwrap_or_default()).collect()
}

/// Carries what is known over the first `count` operations of a node.
fn step(program: &Program, facts: &ProgramFacts, flow: &Flow, node: usize, count: usize, standing: &mut [Standing]) {
    let mut now = flow.at[node].clone();
    let position = flow.graph.nodes[node].position;
    for inst in &flow.graph.block(program, node).insts[..count] {
        match &inst.op {
            Op::Extract { header, .. } => {
                standing[header.index()] = match now.cursor {
                    Place::Const(offset) => Standing::At(offset),
                    Place::Varying => Standing::Varying,
                };
            }
            Op::SetInvalid { header } => standing[header.index()] = Standing::Zeros,
            _ => {}
        }
        flow.step(program, facts, position, &inst.op, &mut now);
    }
}

fn join(known: &mut [Standing], other: &[Standing]) -> bool {
    let mut changed = false;
    for (known, other) in known.iter_mut().zip(other) {
        if *known != *other && *known != Standing::Varying {
            *known = Standing::Varying;
            changed = true;
        }
    }
    changed
}
