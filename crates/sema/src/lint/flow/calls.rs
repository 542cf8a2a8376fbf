//! Calls in the analysis of a body: their effects on the places of the caller.

use super::states::Changes;
use super::walk::Walker;
use super::{BAD, BodyId, CallSite, GOOD, TESTED, compose};
use crate::lint::places::{FramePlaces, Kind, Part, Ref};
use crate::lint::visit::{self, Visitor};
use crate::typed::*;
use crate::types::*;

/// Collects the functions that a body calls.
#[derive(Default)]
struct Functions(Vec<FunctionId>);

impl Visitor<'_> for Functions {
    fn call(&mut self, call: &Call) {
        if let Callee::Function(id) = call.callee {
            self.0.push(id);
        }
    }
}

/// All functions, callees before callers.
pub(super) fn function_order(program: &Program) -> Vec<FunctionId> {
    let callees = |i: usize| {
        let mut found = Functions::default();
        visit::stmts(&program.functions[i].body.stmts, &mut found);
        found.0
    };
    let mut order = Vec::with_capacity(program.functions.len());
    let mut seen = vec![false; program.functions.len()];
    for root in 0..program.functions.len() {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut work = vec![(root, callees(root))];
        while let Some((at, open)) = work.last_mut() {
            match open.pop() {
                Some(next) if !std::mem::replace(&mut seen[next.index()], true) => {
                    work.push((next.index(), callees(next.index())));
                }
                Some(_) => {}
                None => {
                    order.push(FunctionId::from_index(*at));
                    work.pop();
                }
            }
        }
    }
    order
}

/// Where the state of a parameter comes from and is returned to.
#[derive(Clone, Copy)]
enum Given {
    /// Places of the caller.
    Places(Ref),
    /// A value that is not a place; it is initialised.
    Good,
    /// An `out` parameter at the entry of the callee: uninitialised.
    Nothing,
}

impl<'p> Walker<'_, 'p> {
    /// Handles a call of any kind.
    pub fn call(&mut self, call: &'p Call) {
        self.calls_made += 1;
        match &call.callee {
            Callee::Function(id) => self.invoke(BodyId::Function(*id), &call.args),
            Callee::Action(id) => self.invoke(BodyId::Action(*id), &call.args),
            Callee::TableApply(id) => {
                let branches = self.table(*id);
                self.join(branches);
            }
            Callee::ParserApply(i) | Callee::ControlApply(i) => match self.block_of(*i) {
                Some(id) => self.invoke(id, &call.args),
                None => self.unknown(&call.args),
            },
            Callee::ExternMethod { object, extern_id, method } => {
                self.indices(object);
                let object = &self.flow.program.externs[extern_id.index()];
                let extract = &*object.name == "packet_in"
                    && object.methods.get(*method as usize).is_some_and(|m| &*m.name == "extract");
                match call.args.first() {
                    Some(Arg { value: ArgValue::Expr(header), .. }) if extract => {
                        call.args[1..].iter().filter_map(|a| a.value.expr()).for_each(|e| self.rvalue(e));
                        self.assign(header, None);
                    }
                    _ => self.unknown(&call.args),
                }
            }
            Callee::ExternFunction(_) => self.unknown(&call.args),
            Callee::Builtin(builtin, object) => self.builtin(*builtin, object),
        }
    }

    fn block_of(&self, instance: InstanceRef) -> Option<BodyId> {
        let decl = match instance {
            InstanceRef::Local(i) => self.instances.get(i as usize)?,
            InstanceRef::Global(i) => self.flow.program.globals.get(i as usize)?,
            InstanceRef::CtorParam(_) => return None,
        };
        match decl.ty {
            Type::Parser(id) => Some(BodyId::Parser(id)),
            Type::Control(id) => Some(BodyId::Control(id)),
            _ => None,
        }
    }

    fn builtin(&mut self, builtin: Builtin, object: &'p Expr) {
        self.indices(object);
        let Some(r) = self.places.resolve(&self.flow.layouts, object) else { return };
        let single = r.part == Part::Whole && object.ty.is_header();
        match builtin {
            Builtin::IsValid => (r.start..r.start + r.len).for_each(|p| self.weaken(p, TESTED)),
            Builtin::SetValid if single => {
                self.set(r.start, GOOD);
                self.invalidate_other_members(object, r.start);
            }
            Builtin::SetInvalid if single => self.set(r.start, BAD),
            Builtin::SetValid => self.weaken(r.start, GOOD | TESTED),
            Builtin::SetInvalid => self.weaken(r.start, BAD | TESTED),
            Builtin::PushFront | Builtin::PopFront => self.weaken(r.start, TESTED),
        }
    }

    /// A call of a callee without a body: `out` arguments have values afterwards.
    fn unknown(&mut self, args: &'p [Arg]) {
        for arg in args {
            let Some(e) = arg.value.expr() else { continue };
            match arg.direction {
                Direction::In | Direction::None => self.value(e),
                Direction::Out | Direction::InOut => {
                    if arg.direction == Direction::InOut {
                        self.value(e);
                    }
                    match self.places.resolve(&self.flow.layouts, e) {
                        Some(r) if r.part == Part::Whole => {
                            self.indices(e);
                            for p in r.start..r.start + r.len {
                                match self.places.kinds[p as usize] {
                                    Kind::Scalar => self.set(p, GOOD),
                                    Kind::Header | Kind::Stack => self.set(p, GOOD | BAD | TESTED),
                                }
                            }
                        }
                        _ => self.assign(e, None),
                    }
                }
            }
        }
    }

    /// A call of a body: copies in arguments, applies the summary, copies out results.
    fn invoke(&mut self, callee: BodyId, args: &'p [Arg]) {
        let params = self.flow.params(callee);
        let mut given = Vec::with_capacity(args.len());
        for arg in args {
            given.push(match (&arg.value, arg.direction) {
                (_, Direction::Out) => Given::Nothing,
                (ArgValue::Expr(e), direction) => {
                    if direction == Direction::InOut {
                        self.indices(e);
                    } else {
                        self.value(e);
                    }
                    match self.places.resolve(&self.flow.layouts, e) {
                        // An uninitialised scalar has already been reported where it is read for the argument.
                        Some(r) if r.part == Part::Whole && (direction == Direction::InOut || !self.is_scalar(r)) => {
                            Given::Places(r)
                        }
                        _ => Given::Good,
                    }
                }
                _ => Given::Good,
            });
        }
        let flow = self.flow;
        let summary = flow.summary(callee);
        let places = flow.places(callee);
        let same_frame = std::ptr::eq(places, self.places);
        if same_frame {
            for (param, given) in params.iter().zip(&given) {
                let r = places.of_local(param.local);
                for i in 0..r.len {
                    let state = self.given(*given, i);
                    self.set(r.start + i, state);
                }
            }
        }
        // The state at the callee's entry, and the caller's place that it derives from.
        let entry = |place: u32| -> (u8, u32) {
            let local = places.local_of(place);
            match params.iter().position(|p| p.local == local).and_then(|i| given.get(i)) {
                Some(from) => {
                    let i = place - places.of_local(local).start;
                    let source = if let Given::Places(r) = from { r.start + i } else { 0 };
                    (self.given(*from, i), source)
                }
                None if same_frame => (self.state(place), place),
                None => (GOOD, 0),
            }
        };
        let states: Vec<(u8, u32)> = summary.interest.iter().map(|p| entry(*p)).collect();
        self.summary.calls.push(CallSite { callee, states, conditional: self.depth > 0 });
        if let Some(exit) = &summary.exit {
            let at_exit: Changes = match same_frame {
                true => exit.iter().map(|(p, effect)| (*p, compose(*effect, self.state(*p)))).collect(),
                false => self.results(places, params, args, &given, |p| super::lookup(exit, p), exit),
            };
            self.record_exit(&at_exit);
        }
        if !summary.completes {
            self.dead = true;
            return;
        }
        if same_frame {
            for (place, effect) in &summary.effects {
                self.set(*place, compose(*effect, self.state(*place)));
            }
            for (param, arg) in params.iter().zip(args) {
                if let (Direction::Out | Direction::InOut, Some(e)) = (arg.direction, arg.value.expr()) {
                    self.copy_out(places.of_local(param.local), e);
                }
            }
            return;
        }
        for (place, state) in self.results(places, params, args, &given, |p| summary.effect(p), &summary.effects) {
            self.set(place, state);
        }
        for arg in args {
            // Copy-out into parts of places.
            if let (Direction::Out | Direction::InOut, Some(e)) = (arg.direction, arg.value.expr())
                && self.places.resolve(&flow.layouts, e).is_some_and(|r| r.part != Part::Whole)
            {
                self.assign(e, None);
            }
        }
    }

    fn is_scalar(&self, r: Ref) -> bool {
        r.len == 1 && self.places.kinds[r.start as usize] == Kind::Scalar
    }

    fn given(&self, given: Given, i: u32) -> u8 {
        match given {
            Given::Places(r) if i < r.len => self.state(r.start + i),
            Given::Places(_) | Given::Good => GOOD,
            Given::Nothing => BAD,
        }
    }

    /// Copies a parameter in the same frame out to the argument.
    fn copy_out(&mut self, param: Ref, arg: &'p Expr) {
        match self.places.resolve(&self.flow.layouts, arg) {
            Some(r) if r.part == Part::Whole && r.len == param.len => {
                (0..r.len).for_each(|i| self.set(r.start + i, self.state(param.start + i)));
            }
            _ => self.assign(arg, None),
        }
    }

    /// The states of `out` and `inout` arguments that are whole places, after a call of a body with its own frame.
    fn results(
        &self,
        places: &FramePlaces,
        params: &[Param],
        args: &[Arg],
        given: &[Given],
        effect: impl Fn(u32) -> u8,
        effects: &[(u32, u8)],
    ) -> Changes {
        let mut results = Vec::new();
        for ((param, arg), given) in params.iter().zip(args).zip(given) {
            let (Direction::Out | Direction::InOut, Some(e)) = (arg.direction, arg.value.expr()) else { continue };
            let Some(to) = self.places.resolve(&self.flow.layouts, e).filter(|r| r.part == Part::Whole) else {
                continue;
            };
            let from = places.of_local(param.local);
            if arg.direction == Direction::Out {
                for i in 0..to.len.min(from.len) {
                    results.push((to.start + i, compose(effect(from.start + i), BAD)));
                }
                continue;
            }
            let first = effects.partition_point(|e| e.0 < from.start);
            for (place, effect) in effects[first..].iter().take_while(|e| e.0 < from.start + from.len) {
                let i = place - from.start;
                results.push((to.start + i, compose(*effect, self.given(*given, i))));
            }
        }
        results
    }

    // -------------------------------------------------------------------------------------------- tables

    /// A table application: the changes by each of its actions.
    pub fn table(&mut self, id: TableId) -> Vec<Option<Changes>> {
        let table = &self.flow.program.tables[id.index()];
        let layouts = &self.flow.layouts;
        // With a key other than a header field, the control plane can make entries depend on validity: keys that are
        // header fields, and the actions, then count as conditional.
        let is_field = |e: &Expr| self.places.resolve(layouts, e).is_some_and(|r| r.part == Part::Field);
        let (fields, others): (Vec<&Key>, Vec<&Key>) = table.keys.iter().partition(|k| is_field(&k.expr));
        let depth = self.depth;
        others.iter().for_each(|k| self.rvalue(&k.expr));
        self.depth += u32::from(!others.is_empty());
        fields.iter().for_each(|k| self.rvalue(&k.expr));
        let mut branches = Vec::with_capacity(table.actions.len());
        for action in &table.actions {
            let (changes, _) = self.branch(|w| w.invoke(BodyId::Action(action.action), &action.args));
            branches.push(changes);
        }
        self.depth = depth;
        if branches.is_empty() {
            branches.push(Some(Changes::new()));
        }
        branches
    }

    pub fn switch_action(&mut self, id: TableId, cases: &'p [ActionCase]) {
        self.calls_made += 1;
        let branches = self.table(id);
        let mut open: Vec<bool> = vec![true; branches.len()];
        let mut ends = Vec::with_capacity(cases.len() + 1);
        for case in cases {
            let mut before: Vec<Option<Changes>> = Vec::new();
            for action in &case.actions {
                open[*action as usize] = false;
                before.push(branches[*action as usize].clone());
            }
            if case.default {
                let rest = open.iter_mut().zip(&branches).filter_map(|(o, b)| std::mem::take(o).then(|| b.clone()));
                before.extend(rest);
                if before.is_empty() {
                    continue;
                }
            }
            let (end, _) = self.branch(|w| {
                w.join(before);
                w.depth += 1;
                if !w.dead {
                    w.block(&case.body);
                }
            });
            ends.push(end);
        }
        ends.extend(open.iter().zip(branches).filter_map(|(o, b)| o.then_some(b)));
        self.depth += u32::from(ends.iter().any(|e| e.is_none()));
        self.join(ends);
    }
}
