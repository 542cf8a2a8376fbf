//! W0810 to W0813: unreachable parser states, cases that never match, loops without progress, states without a
//! transition.
//!
//! A case is compared with each kind of earlier case, not with each case: values by their bits under each mask in use.
//! If one `select` has more than [`MAX_KINDS`] masks and ranges, the further ones are ignored.

use super::catalog::{COVERED_CASE, NO_PROGRESS, NO_TRANSITION, UNREACHABLE_STATE};
use super::visit::{self, Visitor};
use super::{Context, warning};
use crate::typed::*;
use crate::value::Value;
use base::{Bits, Span};
use std::collections::HashMap;
use syntax::ast;

/// The maximum number of masks, and of ranges, that a case is compared with.
const MAX_KINDS: usize = 64;

pub(super) fn check(cx: &mut Context) {
    let p = cx.program;
    for parser in &p.parsers {
        let covered: Vec<Vec<Option<Span>>> = parser.states.iter().map(|s| covered_cases(&s.transition)).collect();
        for (state, covered) in parser.states.iter().zip(&covered) {
            let Transition::Select { cases, .. } = &state.transition else { continue };
            for (case, by) in cases.iter().zip(covered) {
                let Some(by) = by else { continue };
                let d = warning(&COVERED_CASE, case.span, "this case can never match")
                    .label("an earlier case matches everything that this one does")
                    .note(*by, "the earlier case")
                    .help("move it up, or remove it");
                cx.warn(&COVERED_CASE, &[&parser.annotations, &state.annotations], d);
            }
        }
        let reached = unreachable(cx, parser, &covered);
        loops(cx, parser, &reached);
    }
    let ast = cx.ast;
    for decl in &ast.decls {
        let ast::DeclKind::Parser(parser) = &decl.kind else { continue };
        let typed = p.parsers.iter().find(|t| t.span == decl.name.span);
        for state in parser.states.iter().filter(|s| s.transition.is_none()) {
            let d = warning(&NO_TRANSITION, state.name.span, format!("the state `{}` has no transition", state.name))
                .label("goes to `reject`")
                .help("write transition accept; or transition reject;");
            let annotations = typed.and_then(|t| {
                let state = t.states.iter().find(|s| s.name == state.name.text)?;
                Some([t.annotations.as_slice(), state.annotations.as_slice()])
            });
            cx.warn(&NO_TRANSITION, annotations.as_ref().map_or(&[], |a| &a[..]), d);
        }
    }
}

// -------------------------------------------------------------------------------------------------- covered cases

/// A keyset of one key with constant values.
enum Pattern<'p> {
    Any,
    /// Value and mask; without a mask all bits count.
    Masked(&'p Value, Option<&'p Bits>),
    Range(&'p Bits, &'p Bits, bool),
    /// Not constant.
    Open,
}

fn pattern<'p>(set: &'p Keyset) -> Pattern<'p> {
    let bits = |e: &'p Expr| e.as_const().and_then(Value::as_bits);
    match set {
        Keyset::DontCare => Pattern::Any,
        Keyset::Value(e) => e.as_const().map_or(Pattern::Open, |v| Pattern::Masked(v, None)),
        Keyset::Mask(value, mask) => match (value.as_const(), bits(mask)) {
            (Some(value @ Value::Bits(_)), Some(mask)) => Pattern::Masked(value, Some(mask)),
            _ => Pattern::Open,
        },
        Keyset::Range(low, high) => match (bits(low), bits(high)) {
            (Some(l), Some(h)) => Pattern::Range(l, h, matches!(low.ty, crate::Type::Bits { signed: true, .. })),
            _ => Pattern::Open,
        },
        Keyset::ValueSet(_) => Pattern::Open,
    }
}

/// The significant bits of a value, or a value that is not bits.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Known {
    Bits(Bits),
    Other(String),
    Any,
}

fn masked(value: &Value, mask: Option<&Bits>) -> Known {
    match (value, mask) {
        (Value::Bits(v), Some(mask)) => Known::Bits(v.and(mask)),
        (Value::Bits(v), None) => Known::Bits(v.clone()),
        (other, _) => Known::Other(format!("{other:?}")),
    }
}

/// For each case, the span of an earlier case that covers it.
fn covered_cases(transition: &Transition) -> Vec<Option<Span>> {
    let Transition::Select { keys, cases, .. } = transition else { return Vec::new() };
    // Earlier cases by their masks (`None`: the key is ignored), then by the significant bits.
    type Masks = Vec<Option<Option<Bits>>>;
    let mut groups: Vec<(Masks, HashMap<Vec<Known>, Span>)> = Vec::new();
    let mut ranges: Vec<(Vec<&Keyset>, Span)> = Vec::new();
    let mut covered = Vec::with_capacity(cases.len());
    for case in cases {
        let sets = &case.keysets;
        if sets.len() != keys.len() {
            // A value set for all keys is covered only by a case that matches everything.
            let all = groups.iter().find(|(masks, _)| masks.iter().all(Option::is_none));
            covered.push(all.and_then(|(_, spans)| spans.values().next().copied()));
            continue;
        }
        let patterns: Vec<Pattern> = sets.iter().map(pattern).collect();
        let by_group = groups.iter().find_map(|(masks, spans)| {
            let key: Option<Vec<Known>> =
                patterns.iter().zip(masks).map(|(pattern, mask)| bits_under(pattern, mask.as_ref())).collect();
            spans.get(&key?).copied()
        });
        let by = by_group.or_else(|| {
            let covers = |earlier: &[&Keyset]| earlier.iter().zip(&patterns).all(|(e, p)| contains(&pattern(e), p));
            ranges.iter().find(|(earlier, _)| covers(earlier)).map(|(_, span)| *span)
        });
        covered.push(by);
        if by.is_some() || patterns.iter().any(|p| matches!(p, Pattern::Open)) {
            continue;
        }
        if patterns.iter().any(|p| matches!(p, Pattern::Range(..))) {
            if ranges.len() < MAX_KINDS {
                ranges.push((sets.iter().collect(), case.span));
            }
            continue;
        }
        let masks: Masks = patterns
            .iter()
            .map(|p| match p {
                Pattern::Masked(_, mask) => Some(mask.cloned()),
                _ => None,
            })
            .collect();
        let known = patterns.iter().map(|p| match p {
            Pattern::Masked(value, mask) => masked(value, *mask),
            _ => Known::Any,
        });
        let known: Vec<Known> = known.collect();
        if let Some((_, spans)) = groups.iter_mut().find(|g| g.0 == masks) {
            spans.entry(known).or_insert(case.span);
        } else if groups.len() < MAX_KINDS {
            groups.push((masks, HashMap::from([(known, case.span)])));
        }
    }
    covered
}

/// The bits under an earlier case's mask, if they are the same for all values of a pattern.
fn bits_under(pattern: &Pattern, mask: Option<&Option<Bits>>) -> Option<Known> {
    match (pattern, mask) {
        (_, None) => Some(Known::Any),
        (Pattern::Masked(value, None), Some(mask)) => Some(masked(value, mask.as_ref())),
        (Pattern::Masked(value, Some(own)), Some(Some(mask))) if own.and(mask) == *mask => {
            Some(masked(value, Some(mask)))
        }
        (Pattern::Range(low, high, _), Some(None)) if low == high => Some(Known::Bits((*low).clone())),
        _ => None,
    }
}

/// Whether `outer` matches everything that `inner` matches.
fn contains(outer: &Pattern, inner: &Pattern) -> bool {
    match (outer, inner) {
        (Pattern::Any, _) => true,
        (Pattern::Range(low, high, signed), Pattern::Masked(Value::Bits(v), None)) => {
            at_most(low, v, *signed) && at_most(v, high, *signed)
        }
        (Pattern::Range(low, high, signed), Pattern::Range(l, h, _)) => {
            at_most(low, l, *signed) && at_most(h, high, *signed)
        }
        (Pattern::Masked(value, mask), inner) => {
            let mask = mask.cloned();
            bits_under(inner, Some(&mask)).is_some_and(|known| known == masked(value, mask.as_ref()))
        }
        _ => false,
    }
}

fn at_most(a: &Bits, b: &Bits, signed: bool) -> bool {
    if signed { a.sle(b) } else { a.ule(b) }
}

// -------------------------------------------------------------------------------------------------- reaching states

/// Reports unreachable states; returns which states are reachable.
fn unreachable(cx: &mut Context, parser: &Parser, covered: &[Vec<Option<Span>>]) -> Vec<bool> {
    let n = parser.states.len();
    let next = |i: usize| {
        let covered = covered[i].iter().map(Option::is_some).chain(std::iter::repeat(false));
        parser.states[i].targets().zip(covered).filter_map(|(t, covered)| match t {
            Target::State(to) if !covered => Some(to as usize),
            _ => None,
        })
    };
    let mut reached = vec![false; n];
    let mark = |from: usize, reached: &mut Vec<bool>| {
        let mut work = vec![from];
        while let Some(i) = work.pop() {
            if !std::mem::replace(&mut reached[i], true) {
                work.extend(next(i));
            }
        }
    };
    if n == 0 {
        return reached;
    }
    mark(parser.start as usize, &mut reached);
    let all_reached = reached.clone();
    // Only the first state of a chain is reported: first states without a predecessor, then one of each loop.
    let mut led_to = vec![false; n];
    for i in (0..n).filter(|i| !reached[*i]) {
        next(i).filter(|to| *to != i).for_each(|to| led_to[to] = true);
    }
    let roots: Vec<usize> = (0..n).filter(|i| !reached[*i] && !led_to[*i]).collect();
    let mut found = Vec::new();
    for i in roots.into_iter().chain(0..n) {
        if !reached[i] {
            found.push(i);
            mark(i, &mut reached);
        }
    }
    for i in found {
        let state = &parser.states[i];
        let span = cx.state_name(state);
        let d = warning(&UNREACHABLE_STATE, span, format!("the state `{}` is never reached", state.name))
            .label("no transition from `start` leads here")
            .note(parser.span, "in this parser")
            .help("add a transition to it, or remove it");
        cx.warn(&UNREACHABLE_STATE, &[&parser.annotations, &state.annotations], d);
    }
    all_reached
}

// -------------------------------------------------------------------------------------------------- loops

/// Whether a state may change anything: the packet's position, a variable, the state of an extern.
#[derive(Default)]
struct Changes(bool);

impl Visitor<'_> for Changes {
    fn written(&mut self, _: &Expr, _: bool) {
        self.0 = true;
    }

    fn call(&mut self, call: &Call) {
        match &call.callee {
            Callee::ExternMethod { .. } | Callee::ParserApply(_) | Callee::ControlApply(_) | Callee::Function(_) => {
                // `lookahead` and `length` do not advance in the packet.
                self.0 |= !(call.args.is_empty() && matches!(call.result, crate::Type::Bits { .. }));
            }
            Callee::Builtin(Builtin::IsValid, _) => {}
            _ => self.0 = true,
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.0 |= matches!(stmt.kind, StmtKind::ForIn { .. });
    }
}

fn loops(cx: &mut Context, parser: &Parser, reached: &[bool]) {
    let idle: Vec<bool> = parser
        .states
        .iter()
        .zip(reached)
        .map(|(s, reached)| {
            let mut changes = Changes::default();
            visit::state(s, &mut changes);
            *reached && !changes.0
        })
        .collect();
    for component in idle_loops(parser, &idle) {
        let Some(first) = component.iter().min() else { continue };
        let state = &parser.states[*first];
        let names: Vec<String> = component.iter().map(|i| format!("`{}`", parser.states[*i].name)).collect();
        let message = match names.as_slice() {
            [one] => format!("the state {one} loops to itself and changes nothing"),
            _ => format!("the states {} form a loop that changes nothing", names.join(", ")),
        };
        let d = warning(&NO_PROGRESS, cx.state_name(state), message)
            .label("every iteration is the same")
            .note(parser.span, "in this parser")
            .help("extract or advance in the loop, or change what its `select` decides upon");
        cx.warn(&NO_PROGRESS, &[&parser.annotations, &state.annotations], d);
    }
}

/// The strongly connected components of the idle states that contain a cycle (Tarjan's algorithm, iterative).
fn idle_loops(parser: &Parser, idle: &[bool]) -> Vec<Vec<usize>> {
    let next = |i: usize| -> Vec<usize> {
        let all =
            parser.states[i].targets().filter_map(|t| if let Target::State(s) = t { Some(s as usize) } else { None });
        all.filter(|to| idle[*to]).collect()
    };
    let n = parser.states.len();
    let (mut index, mut low, mut on_stack) = (vec![usize::MAX; n], vec![0; n], vec![false; n]);
    let (mut count, mut stack, mut found) = (0, Vec::new(), Vec::new());
    for root in (0..n).filter(|i| idle[*i]) {
        if index[root] != usize::MAX {
            continue;
        }
        let mut work: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(root);
        loop {
            if let Some(i) = enter.take() {
                (index[i], low[i], on_stack[i]) = (count, count, true);
                count += 1;
                stack.push(i);
                work.push((i, next(i)));
            }
            let Some((at, open)) = work.last_mut() else { break };
            let at = *at;
            if let Some(to) = open.pop() {
                if index[to] == usize::MAX {
                    enter = Some(to);
                } else if on_stack[to] {
                    low[at] = low[at].min(index[to]);
                }
                continue;
            }
            work.pop();
            if let Some((above, _)) = work.last() {
                low[*above] = low[*above].min(low[at]);
            }
            if low[at] == index[at] {
                let from = stack.iter().rposition(|i| *i == at).unwrap_or(0);
                let component = stack.split_off(from);
                component.iter().for_each(|i| on_stack[*i] = false);
                if component.len() > 1 || next(at).contains(&at) {
                    found.push(component);
                }
            }
        }
    }
    found
}
