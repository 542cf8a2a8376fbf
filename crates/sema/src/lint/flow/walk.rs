//! The analysis of one body: statements in order, branches joined; see [`super`].
//!
//! The state is one array for the frame. A branch undoes its changes (by the trail) and passes them to the join, so
//! that its cost is the number of places it touches (`states`, `trail`). `conditions` and `calls` are further parts of
//! the walk.

use super::states::{Changes, Scratch};
use super::{BAD, BodyId, ENTRY, Flow, GOOD, How, Summary, TESTED, Use};
use crate::lint::places::{FramePlaces, Kind, Part, Ref};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::Span;

pub(super) struct Walker<'a, 'p> {
    pub flow: &'a Flow<'p>,
    pub places: &'a FramePlaces<'p>,
    pub instances: &'p [InstanceDecl],
    pub(super) scratch: &'a mut Scratch,
    /// Whether this point is unreachable.
    pub dead: bool,
    /// The number of enclosing opaque conditions.
    pub depth: u32,
    /// For each enclosing loop: the start of its trail, and the states at `break` and `continue`.
    loops: Vec<(usize, Vec<Changes>)>,
    /// Incremented at each call that may change something.
    pub calls_made: u32,
    pub summary: Summary,
}

/// The summary of a function.
pub(super) fn function(flow: &Flow, id: FunctionId, scratch: &mut Scratch) -> Summary {
    let mut walker = Walker::new(flow, flow.places(BodyId::Function(id)), &[], scratch);
    walker.block(&flow.program.functions[id.index()].body);
    walker.finish()
}

/// The summary of an action; the actions that it calls have been summarised.
pub(super) fn action(flow: &Flow, id: ActionId, scratch: &mut Scratch) -> Summary {
    let action = &flow.program.actions[id.index()];
    let instances = action.owner.map_or(&[][..], |c| &flow.program.controls[c.index()].instances);
    let mut walker = Walker::new(flow, flow.places(BodyId::Action(id)), instances, scratch);
    walker.block(&action.body);
    walker.finish()
}

/// The summary of a control; its actions have been summarised.
pub(super) fn control(flow: &Flow, id: ControlId, scratch: &mut Scratch) -> Summary {
    let control = &flow.program.controls[id.index()];
    let mut walker = Walker::new(flow, flow.places(BodyId::Control(id)), &control.instances, scratch);
    walker.stmts(&control.locals);
    walker.block(&control.body);
    walker.finish()
}

impl<'a, 'p> Walker<'a, 'p> {
    pub fn new(
        flow: &'a Flow<'p>,
        places: &'a FramePlaces<'p>,
        instances: &'p [InstanceDecl],
        scratch: &'a mut Scratch,
    ) -> Walker<'a, 'p> {
        let summary = Summary::default();
        Walker { flow, places, instances, scratch, dead: false, depth: 0, loops: Vec::new(), calls_made: 0, summary }
    }

    // -------------------------------------------------------------------------------------------- statements

    pub fn block(&mut self, block: &'p Block) {
        self.stmts(&block.stmts);
    }

    pub fn stmts(&mut self, stmts: &'p [Stmt]) {
        for stmt in stmts {
            if self.dead {
                return;
            }
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'p Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, op, value } => {
                if op.is_some() {
                    self.rvalue(target);
                }
                self.value(value);
                self.assign(target, Some(value));
            }
            StmtKind::Call(call) => self.call(call),
            StmtKind::Var { local, init } => {
                init.iter().for_each(|e| self.value(e));
                self.scratch.declared_at[local.index()] = self.depth;
                self.scratch.declared.push(local.index());
                let r = self.places.of_local(*local);
                match init {
                    Some(e) => self.copy(r, e),
                    None => (r.start..r.start + r.len).for_each(|p| self.set(p, BAD)),
                }
            }
            StmtKind::Block(b) => self.block(b),
            StmtKind::If { cond, then, otherwise } => {
                let facts = self.condition(cond);
                let more = u32::from(facts.opaque);
                let yes = self.branch(|w| {
                    w.dead = facts.known == Some(false);
                    w.depth += more;
                    w.apply(&facts.yes);
                    if !w.dead {
                        w.block(then);
                    }
                });
                let no = self.branch(|w| {
                    w.dead = facts.known == Some(true);
                    w.depth += more;
                    w.apply(&facts.no);
                    if let (Some(b), false) = (otherwise, w.dead) {
                        w.block(b);
                    }
                });
                match (&yes.0, &no.0) {
                    (Some(_), None) => self.depth = yes.1,
                    (None, Some(_)) => self.depth = no.1,
                    _ => {}
                }
                self.join(vec![yes.0, no.0]);
            }
            StmtKind::SwitchAction { apply, table, cases } => {
                apply.args.iter().for_each(|a| a.value.expr().into_iter().for_each(|e| self.value(e)));
                self.switch_action(*table, cases);
            }
            StmtKind::Switch { subject, cases } => {
                self.rvalue(subject);
                let mut branches = Vec::with_capacity(cases.len() + 1);
                for case in cases {
                    let (changes, _) = self.branch(|w| {
                        w.depth += 1;
                        w.block(&case.body);
                    });
                    branches.push(changes);
                }
                if !cases.iter().any(|c| c.default) {
                    branches.push(Some(Changes::new()));
                }
                self.depth += u32::from(branches.iter().any(|b| b.is_none()));
                self.join(branches);
            }
            StmtKind::For { init, cond, update, body, .. } => {
                self.stmts(init);
                let facts = self.condition(cond);
                self.loop_body(|w| {
                    w.depth += u32::from(facts.opaque);
                    w.apply(&facts.yes);
                    w.block(body);
                    w.stmts(update);
                });
            }
            StmtKind::ForIn { variable, collection, body, .. } => {
                match collection {
                    ForCollection::Elements(e) => self.value(e),
                    ForCollection::Range(a, b) => {
                        self.rvalue(a);
                        self.rvalue(b);
                    }
                }
                let r = self.places.of_local(*variable);
                self.set_unknown(r);
                self.loop_body(|w| w.block(body));
            }
            StmtKind::Break | StmtKind::Continue => {
                if let Some(mark) = self.loops.last().map(|l| l.0) {
                    let changes = self.changes_since(mark);
                    self.loops.last_mut().into_iter().for_each(|l| l.1.push(changes.clone()));
                }
                self.dead = true;
            }
            StmtKind::Return(value) => {
                value.iter().for_each(|e| self.value(e));
                self.scratch.returns.count += 1;
                self.dead = true;
            }
            StmtKind::Exit => {
                self.record_exit(&[]);
                self.dead = true;
            }
        }
    }

    /// A loop, taken as executed once; headers may also be as before it.
    fn loop_body(&mut self, f: impl FnOnce(&mut Self)) {
        self.loops.push((self.scratch.trail.len(), Vec::new()));
        let (end, _) = self.branch(f);
        let mut branches: Vec<Option<Changes>> = vec![end];
        if let Some((_, breaks)) = self.loops.pop() {
            branches.extend(breaks.into_iter().map(Some));
        }
        if branches.iter().all(|b| b.is_none()) {
            branches.push(Some(Changes::new()));
        }
        for (place, state) in branches.iter_mut().flatten().flatten() {
            if self.places.kinds[*place as usize] != Kind::Scalar {
                *state |= self.scratch.state[*place as usize] | TESTED;
            }
        }
        self.join(branches);
    }

    // -------------------------------------------------------------------------------------------- writing

    /// Writes an l-value; `value` is the written expression, if there is one.
    pub fn assign(&mut self, target: &'p Expr, value: Option<&Expr>) {
        self.indices(target);
        let Some(r) = self.places.resolve(&self.flow.layouts, target) else { return };
        match r.part {
            Part::Whole => {
                match value {
                    Some(value) => self.copy(r, value),
                    None => (r.start..r.start + r.len).for_each(|p| self.set(p, GOOD)),
                }
                if target.ty.is_header() {
                    self.invalidate_other_members(target, r.start);
                }
            }
            Part::Field => self.note(r.start, How::FieldWrite, target.span),
            Part::Bits => self.set(r.start, GOOD),
            Part::Element if self.places.kinds[r.start as usize] == Kind::Scalar => self.set(r.start, GOOD),
            Part::Element => match target.ty {
                Type::Header(_) | Type::HeaderUnion(_) => self.weaken(r.start, GOOD | TESTED),
                _ => self.note(r.start, How::FieldWrite, target.span),
            },
        }
    }

    /// A member of a header union becomes valid: the others become invalid (P4_16, "Operations on header unions").
    pub fn invalidate_other_members(&mut self, member: &Expr, place: u32) {
        if let ExprKind::Field(base, _) = &member.kind
            && matches!(base.ty, Type::HeaderUnion(_))
            && let Some(r) = self.places.resolve(&self.flow.layouts, base)
            && r.part == Part::Whole
        {
            (r.start..r.start + r.len).filter(|p| *p != place).for_each(|p| self.set(p, BAD));
        }
    }

    /// Copies the states of a value to the places that it is assigned to.
    pub fn copy(&mut self, to: Ref, value: &Expr) {
        let from = self.places.resolve(&self.flow.layouts, value);
        match (&value.kind, from) {
            (ExprKind::Const(Value::Invalid), _) => {
                (to.start..to.start + to.len).for_each(|p| self.set(p, BAD));
            }
            (_, Some(from)) if from.part == Part::Whole && from.len == to.len => {
                for i in 0..to.len {
                    let state = match self.state(from.start + i) {
                        // Already reported where it is read.
                        _ if to.len == 1 && self.places.kinds[to.start as usize] == Kind::Scalar => GOOD,
                        // The entry state of one place says nothing about another: unknown.
                        s if s & ENTRY != 0 => GOOD | TESTED,
                        s => s,
                    };
                    self.set(to.start + i, state);
                }
            }
            (ExprKind::Aggregate(elements), _) => self.copy_elements(to, &value.ty, elements),
            _ => self.set_unknown(to),
        }
    }

    /// Writes an unknown value: its headers may be valid or invalid.
    fn set_unknown(&mut self, to: Ref) {
        for place in to.start..to.start + to.len {
            let scalar = self.places.kinds[place as usize] == Kind::Scalar;
            self.set(place, if scalar { GOOD } else { GOOD | TESTED });
        }
    }

    fn copy_elements(&mut self, to: Ref, ty: &Type, elements: &[Expr]) {
        let Type::Struct(id) = ty else {
            return self.set_unknown(to);
        };
        for (i, element) in elements.iter().enumerate() {
            let start = to.start + self.flow.layouts.offset(*id, i as u32);
            let len = self.flow.layouts.leaves(&element.ty);
            self.copy(Ref { start, len, part: Part::Whole }, element);
        }
    }

    // -------------------------------------------------------------------------------------------- reading

    /// Records a use of a place that may be uninitialised or invalid.
    pub fn note(&mut self, place: u32, how: How, span: Span) {
        let state = self.state(place);
        if state & (BAD | ENTRY) == 0 {
            return;
        }
        let since = self.scratch.declared_at[self.places.local_of(place).index()];
        self.summary.uses.push(Use { place, state, how, conditional: self.depth > since, span });
    }

    /// Evaluates a value that may be composite: copying headers and structs does not count as reading them.
    pub fn value(&mut self, e: &'p Expr) {
        let composite = matches!(e.ty, Type::Struct(_) | Type::Header(_) | Type::HeaderUnion(_) | Type::Stack(..));
        match &e.kind {
            ExprKind::Aggregate(elements) => elements.iter().for_each(|e| self.value(e)),
            _ if composite && self.places.resolve(&self.flow.layouts, e).is_some() => self.indices(e),
            _ => self.rvalue(e),
        }
    }

    /// Evaluates the indices in an l-value.
    pub fn indices(&mut self, e: &'p Expr) {
        match &e.kind {
            ExprKind::Field(base, _)
            | ExprKind::TupleElement(base, _)
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
            | ExprKind::StackLastIndex(base)
            | ExprKind::Slice { base, .. } => self.indices(base),
            ExprKind::StackElement { stack: base, index } | ExprKind::SliceFrom { base, low: index, .. } => {
                self.indices(base);
                self.rvalue(index);
            }
            _ => {}
        }
    }

    /// Reads a value.
    pub fn rvalue(&mut self, e: &'p Expr) {
        if let Some(r) = self.places.resolve(&self.flow.layouts, e) {
            self.indices(e);
            let kind = self.places.kinds[r.start as usize];
            match r.part {
                Part::Whole if r.len == 1 && kind == Kind::Scalar => self.note(r.start, How::Value, e.span),
                Part::Whole => {}
                Part::Bits | Part::Element if kind == Kind::Scalar => self.note(r.start, How::Value, e.span),
                Part::Field => self.note(r.start, How::Field, e.span),
                _ if matches!(e.ty, Type::Header(_) | Type::HeaderUnion(_) | Type::Stack(..)) => {}
                _ => self.note(r.start, How::Field, e.span),
            }
            return;
        }
        match &e.kind {
            ExprKind::Const(_)
            | ExprKind::Local(_)
            | ExprKind::CtorParam(_)
            | ExprKind::Instance(_)
            | ExprKind::This => {}
            ExprKind::StackLastIndex(a) => self.indices(a),
            ExprKind::Field(a, _)
            | ExprKind::TupleElement(a, _)
            | ExprKind::StackNext(a)
            | ExprKind::StackLast(a)
            | ExprKind::Slice { base: a, .. }
            | ExprKind::Cast(a) => self.rvalue(a),
            ExprKind::StackElement { stack: a, index: b } | ExprKind::SliceFrom { base: a, low: b, .. } => {
                self.rvalue(a);
                self.rvalue(b);
            }
            ExprKind::Unary(UnaryOp::Not, _) | ExprKind::Binary(BinaryOp::And | BinaryOp::Or, ..) => {
                let facts = self.condition(e);
                self.mark_tested(&facts);
            }
            ExprKind::Unary(_, a) => self.rvalue(a),
            ExprKind::Binary(_, a, b) => {
                self.rvalue(a);
                self.rvalue(b);
            }
            ExprKind::Ternary { cond, then, otherwise } => {
                let facts = self.condition(cond);
                let more = u32::from(facts.opaque);
                let yes = self.branch(|w| {
                    w.depth += more;
                    w.apply(&facts.yes);
                    w.value(then);
                });
                let no = self.branch(|w| {
                    w.depth += more;
                    w.apply(&facts.no);
                    w.value(otherwise);
                });
                self.join(vec![yes.0, no.0]);
            }
            ExprKind::Aggregate(elements) => elements.iter().for_each(|e| self.value(e)),
            ExprKind::Call(c) if matches!(c.callee, Callee::Builtin(Builtin::IsValid, _)) => {
                let facts = self.condition(e);
                self.mark_tested(&facts);
            }
            ExprKind::Call(c) | ExprKind::ApplyHit(c) | ExprKind::ApplyMiss(c) => self.call(c),
        }
    }
}
