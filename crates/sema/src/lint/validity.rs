//! W0803 and W0804: fields of headers that are invalid, or that may be and are not checked (P4_16, "Reading
//! uninitialized values and writing fields of invalid headers").
//!
//! One warning per header and body; a header that may be invalid is reported once per program. «May be» requires a path
//! on which the header has not become valid, no isValid() on any path to the use, and no enclosing condition or key
//! that could imply validity.

use super::catalog::{INVALID_HEADER, MAYBE_INVALID};
use super::flow::{BAD, BodyId, ENTRY, Flow, GOOD, How, TESTED, Use};
use super::places::Kind;
use super::uninit::annotations_around;
use super::{Context, warning};
use crate::typed::*;
use crate::types::Type;
use base::Span;
use std::collections::HashMap;

pub(super) fn check(cx: &mut Context, flow: &Flow) {
    let mut sure: HashMap<(FrameId, u32), (BodyId, Use)> = HashMap::new();
    // By the declaration of the header: parameters of the same struct type usually hold the headers of the same packet.
    let mut maybe: HashMap<(Type, u32), (BodyId, Use)> = HashMap::new();
    for body in flow.bodies() {
        let places = flow.places(body);
        for u in flow.uses(body).filter(|u| u.how != How::Value && u.state & BAD != 0) {
            if u.state & (GOOD | ENTRY) == 0 {
                keep_first(sure.entry((flow.frame_of(body), u.place)).or_insert_with(|| (body, u.clone())), body, u);
            } else if u.how == How::Field && u.state & TESTED == 0 && !u.conditional {
                let local = places.local_of(u.place);
                let leaf = u.place - places.of_local(local).start;
                let key = (places.frame.locals[local.index()].ty.clone(), leaf);
                keep_first(maybe.entry(key).or_insert_with(|| (body, u.clone())), body, u);
            }
        }
    }
    let keys = Keys::new(cx.program);
    let mut found: Vec<(bool, BodyId, Use)> = sure.into_values().map(|(body, u)| (true, body, u)).collect();
    found.extend(maybe.into_values().map(|(body, u)| (false, body, u)));
    found.sort_by_key(|(sure, _, u)| (u.span, !sure));
    for (sure, body, u) in found {
        if cx.is_full() {
            break;
        }
        report(cx, flow, &keys, sure, body, &u);
    }
}

fn report(cx: &mut Context, flow: &Flow, keys: &Keys, sure: bool, body: BodyId, u: &Use) {
    let program = cx.program;
    let places = flow.places(body);
    let place = places.describe(&program.types, &flow.layouts, u.place);
    let header = &place.name;
    let key_of = keys.table_at(u.span);
    let (what, which) = match places.kinds[u.place as usize] {
        Kind::Stack => ("every header of the stack", "the stack"),
        _ => ("the header", "the header"),
    };
    let lint = if sure { &INVALID_HEADER } else { &MAYBE_INVALID };
    let d = match (sure, u.how) {
        (true, How::FieldWrite) => {
            warning(lint, u.span, format!("a field of `{header}` is written, but {what} is invalid"))
                .label("does nothing: invalid on every path to here")
                .help("call setValid() before")
        }
        (true, _) => warning(lint, u.span, format!("a field of `{header}` is read, but {what} is invalid"))
            .label("invalid on every path to here")
            .help("extract it, or call setValid() and write its fields before"),
        (false, _) => warning(lint, u.span, format!("a field of `{header}` is read while the header may be invalid"))
            .label("maybe invalid: not valid on every path, and isValid() is not tested")
            .help(match key_of {
                Some(t) => {
                    format!("apply `{}` under if ({header}.isValid()), or add {header}.isValid() to its key", t.name)
                }
                None => format!("put it under if ({header}.isValid())"),
            }),
    };
    let mut around = annotations_around(program, body);
    around.push(&place.local.annotations);
    around.extend(place.field.map(|f| f.annotations.as_slice()));
    around.extend(key_of.map(|t| t.annotations.as_slice()));
    cx.warn(lint, &around, d.note(place.span, which));
}

fn keep_first(have: &mut (BodyId, Use), body: BodyId, u: Use) {
    if u.span < have.1.span {
        *have = (body, u);
    }
}

/// The keys of all tables, sorted by span.
struct Keys<'p>(Vec<(Span, &'p Table)>);

impl<'p> Keys<'p> {
    fn new(program: &'p Program) -> Keys<'p> {
        let mut keys: Vec<(Span, &Table)> =
            program.tables.iter().flat_map(|t| t.keys.iter().map(move |k| (k.expr.span, t))).collect();
        keys.sort_by_key(|k| k.0);
        Keys(keys)
    }

    /// The table whose key contains a span.
    fn table_at(&self, span: Span) -> Option<&'p Table> {
        let after = self.0.partition_point(|k| (k.0.file, k.0.start) <= (span.file, span.start));
        let (key, table) = self.0.get(after.checked_sub(1)?)?;
        (key.file == span.file && span.end <= key.end).then_some(*table)
    }
}
