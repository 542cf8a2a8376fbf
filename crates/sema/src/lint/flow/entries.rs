//! Entry states, propagated from callers to callees.
//!
//! Propagation begins with the blocks passed to the package instance `main`, in the order of the package's parameters:
//! what a parser writes to its `out` parameter is the entry state of later controls with a parameter of that type, as
//! in every known architecture; each parser starts afresh. All other inputs from outside count as initialised, and
//! their headers as valid. A body that is never called gets the same assumptions.

use super::{BAD, BodyId, ENTRY, Flow, GOOD, compose};
use crate::lint::places::Kind;
use crate::typed::*;
use crate::types::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub(super) fn propagate_to_callees(flow: &mut Flow, functions: &[FunctionId]) {
    let p = flow.program;
    if let Some(main) = p.main {
        package(flow, main);
    }
    for i in (0..p.controls.len()).rev() {
        to_callees(flow, BodyId::Control(ControlId::from_index(i)));
        for action in p.controls[i].actions.iter().rev() {
            to_callees(flow, BodyId::Action(*action));
        }
    }
    for i in (0..p.parsers.len()).rev() {
        to_callees(flow, BodyId::Parser(ParserId::from_index(i)));
    }
    for i in (0..p.actions.len()).rev().filter(|i| p.actions[*i].owner.is_none()) {
        to_callees(flow, BodyId::Action(ActionId::from_index(i)));
    }
    for id in functions.iter().rev() {
        to_callees(flow, BodyId::Function(*id));
    }
}

fn add(flow: &mut Flow, body: BodyId, states: Vec<u8>, conditional: bool) {
    match flow.entries.entry(body) {
        Entry::Vacant(slot) => {
            slot.insert((states, conditional));
        }
        Entry::Occupied(mut slot) => {
            let (have, all_conditional) = slot.get_mut();
            have.iter_mut().zip(states).for_each(|(h, s)| *h |= s);
            *all_conditional &= conditional;
        }
    }
}

/// Propagates a body's entry states to its callees; all its callers must have been processed.
fn to_callees(flow: &mut Flow, body: BodyId) {
    if !flow.entries.contains_key(&body) {
        let states = from_outside(flow, body, &HashMap::new());
        add(flow, body, states, false);
    }
    let mut found = Vec::new();
    let summary = flow.summary(body);
    if let Some((entry, conditional)) = flow.entries.get(&body) {
        for call in &summary.calls {
            let states = call.states.iter().map(|(state, source)| {
                let before = match summary.interest.binary_search(source) {
                    Ok(i) if state & ENTRY != 0 => entry[i],
                    _ => GOOD,
                };
                compose(*state, before)
            });
            found.push((call.callee, states.collect(), call.conditional || *conditional));
        }
    }
    for (callee, states, conditional) in found {
        add(flow, callee, states, conditional);
    }
}

/// The entry states of a body's places of interest if it is called from outside; `known` has those of parameters by
/// type.
fn from_outside(flow: &Flow, body: BodyId, known: &HashMap<Type, Vec<u8>>) -> Vec<u8> {
    let places = flow.places(body);
    let params = flow.params(body);
    let interest = &flow.summary(body).interest;
    let state = |place: &u32| {
        let local = places.local_of(*place);
        match params.iter().find(|p| p.local == local) {
            Some(Param { direction: Direction::Out, .. }) => BAD,
            Some(param) => {
                let leaf = *place - places.of_local(local).start;
                known.get(&param.ty).map_or(GOOD, |states| states[leaf as usize])
            }
            None => GOOD,
        }
    };
    interest.iter().map(state).collect()
}

fn package(flow: &mut Flow, id: InstanceId) {
    let p = flow.program;
    let mut known: HashMap<Type, Vec<u8>> = HashMap::new();
    for arg in &p.instance(id).args {
        let Some(instance) = arg.value.as_instance() else { continue };
        match p.instance(instance).of {
            InstanceOf::Package(_) => package(flow, instance),
            InstanceOf::Parser(parser) => {
                known.clear();
                block(flow, BodyId::Parser(parser), &mut known);
            }
            InstanceOf::Control(control) => block(flow, BodyId::Control(control), &mut known),
            InstanceOf::Extern(_) => {}
        }
    }
}

fn block(flow: &mut Flow, body: BodyId, known: &mut HashMap<Type, Vec<u8>>) {
    let params = flow.params(body);
    for (i, param) in params.iter().enumerate() {
        // Two parameters of the same type cannot be told apart.
        if params[..i].iter().any(|other| other.ty == param.ty) {
            known.remove(&param.ty);
        }
    }
    let states = from_outside(flow, body, known);
    add(flow, body, states, false);
    let places = flow.places(body);
    let summary = flow.summary(body);
    for (i, param) in params.iter().enumerate() {
        let r = places.of_local(param.local);
        let begin = match param.direction {
            Direction::Out => vec![BAD; r.len as usize],
            _ => known.get(&param.ty).cloned().unwrap_or_else(|| vec![GOOD; r.len as usize]),
        };
        let doubled = params[..i].iter().any(|other| other.ty == param.ty);
        if doubled || !matches!(param.direction, Direction::Out | Direction::InOut) {
            continue;
        }
        let mut end = Vec::with_capacity(begin.len());
        for (place, before) in (r.start..).zip(begin) {
            let mut state = if summary.completes { summary.at_end(place, before) } else { 0 };
            if let Some(exit) = &summary.exit {
                state |= compose(super::lookup(exit, place), before);
            }
            let kind = places.kinds[place as usize];
            end.push(if kind == Kind::Scalar || state == 0 { GOOD } else { state });
        }
        known.insert(param.ty.clone(), end);
    }
}
