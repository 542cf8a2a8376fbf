//! W0801 and W0802: variables read before they are initialised, `out` parameters that are not written on every path
//! (P4_16, "Reading uninitialized values and writing fields of invalid headers").
//!
//! One warning per variable. A read that may be uninitialised is reported only if it is under no condition since the
//! variable's declaration, because `flow` does not track correlated conditions (`if (c) x = 1; if (c) y = x;`).

use super::catalog::{OUT_NOT_WRITTEN, UNINITIALISED};
use super::flow::{BAD, BodyId, ENTRY, Flow, GOOD, How, TESTED, Use};
use super::places::{Kind, Ref};
use super::{Context, warning};
use crate::typed::*;
use crate::types::Type;
use std::collections::HashMap;

pub(super) fn check(cx: &mut Context, flow: &Flow) {
    reads(cx, flow);
    flow.bodies().for_each(|body| outs(cx, flow, body));
}

fn reads(cx: &mut Context, flow: &Flow) {
    // By variable: the first read that is certainly uninitialised, else the first that may be.
    let mut first: HashMap<(FrameId, LocalId), (BodyId, Use, bool)> = HashMap::new();
    for body in flow.bodies() {
        for u in flow.uses(body).filter(|u| u.how == How::Value && u.state & BAD != 0) {
            let sure = u.state & (GOOD | ENTRY) == 0;
            if !sure && (u.conditional || u.state & TESTED != 0) {
                continue;
            }
            let key = (flow.frame_of(body), flow.places(body).local_of(u.place));
            match first.get(&key) {
                Some((_, have, have_sure)) if (!have_sure, have.span) <= (!sure, u.span) => {}
                _ => {
                    first.insert(key, (body, u, sure));
                }
            }
        }
    }
    let mut found: Vec<(BodyId, Use, bool)> = first.into_values().collect();
    found.sort_by_key(|(_, u, _)| u.span);
    for (body, u, sure) in found {
        if cx.is_full() {
            break;
        }
        let place = flow.places(body).describe(&cx.program.types, &flow.layouts, u.place);
        let local = place.local;
        let (what, why, help) = match (local.kind, &local.ty) {
            (LocalKind::Param(Direction::Out), _) => (
                "parameter",
                "an `out` parameter has no value at the start",
                "assign it first, or make the parameter `inout`".to_string(),
            ),
            (LocalKind::Param(_), _) => (
                "parameter",
                "the caller gives a variable without value",
                "assign the caller's variable before the call".to_string(),
            ),
            (LocalKind::Variable, Type::Struct(_)) => {
                ("variable", "declared here", "assign it on every path before".to_string())
            }
            (LocalKind::Variable, _) => (
                "variable",
                "declared here",
                format!("assign it on every path before, or where it is declared: {} = …;", local.name),
            ),
        };
        let (verb, label) =
            if sure { ("is", "no value on any path to here") } else { ("may be", "no value on some path to here") };
        let d =
            warning(&UNINITIALISED, u.span, format!("the {what} `{}` {verb} read before it has a value", place.name))
                .label(label)
                .note(local.span, why)
                .help(help);
        let around = annotations_around(cx.program, body);
        let around: Vec<&[Annotation]> = around.into_iter().chain([local.annotations.as_slice()]).collect();
        cx.warn(&UNINITIALISED, &around, d);
    }
}

/// The annotations of a body and of the declarations that enclose it.
pub(super) fn annotations_around(p: &Program, body: BodyId) -> Vec<&[Annotation]> {
    match body {
        BodyId::Function(id) => {
            let f = &p.functions[id.index()];
            vec![&f.annotations, &f.body.annotations]
        }
        BodyId::Action(id) => {
            let action = &p.actions[id.index()];
            let mut around: Vec<&[Annotation]> = vec![&action.annotations, &action.body.annotations];
            around.extend(action.owner.map(|c| p.controls[c.index()].annotations.as_slice()));
            around
        }
        BodyId::Control(id) => {
            let c = &p.controls[id.index()];
            vec![&c.annotations, &c.body.annotations]
        }
        BodyId::Parser(id) => vec![&p.parsers[id.index()].annotations],
    }
}

fn outs(cx: &mut Context, flow: &Flow, body: BodyId) {
    let p = cx.program;
    let summary = flow.summary(body);
    if !summary.completes {
        return;
    }
    // In PSA a deparser's `out` parameters carry metadata of packet copies, written only if there are copies.
    let is_packet_out = |ty: &Type| matches!(ty, Type::Extern(id, _) if p.extern_name(*id) == "packet_out");
    if flow.params(body).iter().any(|param| is_packet_out(&param.ty)) {
        return;
    }
    let places = flow.places(body);
    for param in flow.params(body).iter().filter(|p| p.direction == Direction::Out) {
        let Ref { start, len, .. } = places.of_local(param.local);
        let scalars: Vec<u32> = (start..start + len).filter(|p| places.kinds[*p as usize] == Kind::Scalar).collect();
        let missing: Vec<u32> = scalars.iter().copied().filter(|p| summary.at_end(*p, BAD) & BAD != 0).collect();
        let Some(first) = missing.first() else { continue };
        let never = missing.iter().all(|p| summary.at_end(*p, BAD) & GOOD == 0);
        // A struct with headers: scalars that a parser's output never sets are not the point of it.
        if scalars.len() as u32 != len && never {
            continue;
        }
        let whole = missing.len() == scalars.len();
        let name = match whole {
            true => param.name.to_string(),
            false => places.describe(&p.types, &flow.layouts, *first).name,
        };
        let more = match missing.len() {
            n if whole || n == 1 => String::new(),
            n => format!(" (and {} more of its fields)", n - 1),
        };
        let rest = if never { "is never written" } else { "is not written on every path" };
        let d = warning(&OUT_NOT_WRITTEN, param.span, format!("the `out` parameter `{name}` {rest}{more}"))
            .label("the caller gets an undefined value")
            .help(format!("assign `{name}` at the start, or make the parameter `inout` to keep the caller's value"));
        let around = annotations_around(p, body);
        let around: Vec<&[Annotation]> = around.into_iter().chain([param.annotations.as_slice()]).collect();
        cx.warn(&OUT_NOT_WRITTEN, &around, d);
    }
}
