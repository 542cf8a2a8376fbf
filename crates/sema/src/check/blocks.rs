//! Parsers and controls. Specification: P4_16, chapters "Packet parsing" and "Control blocks".

use super::case_fit::CaseFit;
use super::{Checker, Owner, Place, Sig};
use crate::codes;
use crate::scope::{Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use base::{Diagnostic, Span};
use std::collections::HashMap;
use std::rc::Rc;
use syntax::ast;

/// The states of a parser.
struct States<'a> {
    list: &'a [ast::State],
    /// Index of the first state of each name.
    first: HashMap<&'a str, usize>,
}

impl<'a> Checker<'a> {
    /// The signatures of `apply` and of the constructor.
    fn block_sigs(
        &mut self,
        decl: &'a ast::Decl,
        params: &'a [ast::Param],
        constructor_params: &'a [ast::Param],
    ) -> (Rc<Sig>, Rc<Sig>) {
        let noun = decl.kind.noun();
        let params = self.sig_params(params, false);
        let ctor = self.sig_params(constructor_params, true);
        for p in &ctor {
            if let Type::Block(id, _) = &p.ty
                && self.prog.types.block_types[id.index()].kind.word() != noun
            {
                let kind = self.prog.types.block_types[id.index()].kind.word();
                let message = format!("`{}` cannot be a {kind}: a {noun} has no instances of these", p.name);
                self.error(codes::BAD_PARAMETER_TYPE, p.span, message);
            }
            if p.direction != Direction::None {
                self.error(codes::BAD_DIRECTION, p.span, "constructor parameters have no direction");
            }
            if find_annotation(&p.annotations, "optional").is_some() {
                self.report(
                    Diagnostic::error(
                        codes::BAD_OPTIONAL,
                        p.span,
                        "a constructor parameter of a parser or control cannot be `@optional`",
                    )
                    .help("give it a default value: T name = value"),
                );
            }
        }
        let sig = |params| Sig {
            what: format!("{noun} `{}`", decl.name),
            span: decl.name.span,
            type_params: Vec::new(),
            hidden_params: Vec::new(),
            params,
            result: Type::Void,
        };
        (Rc::new(sig(params)), Rc::new(sig(ctor)))
    }

    fn declare_ctor_params(&mut self, params: &'a [ast::Param], sig: &Sig) {
        for (i, (ast, param)) in params.iter().zip(&sig.params).enumerate() {
            let symbol = match &param.ty {
                Type::Unknown => Symbol::Broken,
                ty @ (Type::Extern(..) | Type::Block(..) | Type::Parser(_) | Type::Control(_)) => {
                    Symbol::Instance(InstanceRef::CtorParam(i as u32), ty.clone())
                }
                ty => Symbol::CtorParam(i as u32, ty.clone()),
            };
            self.declare(&ast.name, symbol);
        }
    }

    /// The signatures of `apply` and of the constructor of a parser or control.
    pub(super) fn block_sigs_of(&mut self, decl: &'a ast::Decl) -> (Rc<Sig>, Rc<Sig>) {
        match &decl.kind {
            ast::DeclKind::Parser(parser) => self.block_sigs(decl, &parser.params, &parser.constructor_params),
            ast::DeclKind::Control(control) => self.block_sigs(decl, &control.params, &control.constructor_params),
            _ => self.block_sigs(decl, &[], &[]),
        }
    }

    /// Registers a parser or control before its body is checked; returns its type.
    pub(super) fn reserve_block(&mut self, decl: &'a ast::Decl, sigs: (Rc<Sig>, Rc<Sig>)) -> Type {
        match &decl.kind {
            ast::DeclKind::Parser(_) => Type::Parser(self.reserve_parser(decl, sigs)),
            _ => Type::Control(self.reserve_control(decl, sigs)),
        }
    }

    /// Checks the body of a parser or control registered by [`Checker::reserve_block`].
    pub(super) fn block_body(&mut self, ty: &Type, decl: &'a ast::Decl) {
        match (&decl.kind, ty) {
            (ast::DeclKind::Parser(parser), Type::Parser(id)) => self.parser_body(*id, decl, parser),
            (ast::DeclKind::Control(control), Type::Control(id)) => self.control_body(*id, control),
            _ => {}
        }
    }

    // -------------------------------------------------------------------------------------------- controls

    pub(super) fn control(&mut self, decl: &'a ast::Decl, control: &'a ast::ControlDecl) {
        if !control.type_params.is_empty() {
            return self.generic_block(decl, &control.type_params);
        }
        let sigs = self.block_sigs(decl, &control.params, &control.constructor_params);
        let id = self.reserve_control(decl, sigs);
        self.declare(&decl.name, Symbol::Type(TypeSymbol::Plain(Type::Control(id))));
        self.control_body(id, control);
    }

    fn reserve_control(&mut self, decl: &'a ast::Decl, sigs: (Rc<Sig>, Rc<Sig>)) -> ControlId {
        let annotations = self.annotations(&decl.annotations);
        let id = ControlId::from_index(self.prog.controls.len());
        let frame = FrameId::from_index(self.prog.frames.len());
        self.prog.frames.push(Frame::default());
        self.prog.types.control_names.push(decl.name.text.clone());
        self.prog.controls.push(Control {
            name: decl.name.text.clone(),
            frame,
            params: Vec::new(),
            ctor_params: sigs.1.params.clone(),
            instances: Vec::new(),
            actions: Vec::new(),
            tables: Vec::new(),
            locals: Vec::new(),
            body: Block::default(),
            control_name: self.control_name(&decl.name.text, &annotations),
            annotations,
            span: decl.name.span,
        });
        self.control_sigs.push(sigs);
        id
    }

    fn control_body(&mut self, id: ControlId, control: &'a ast::ControlDecl) {
        let (frame, ctor_sig) = (self.prog.controls[id.index()].frame, self.control_sigs[id.index()].1.clone());
        let outer = self.enter_body(Place::ControlLocals, Owner::Control(id));
        self.open_blocks.push(Type::Control(id));
        self.scopes.push();
        let params = self.runtime_params(&control.params);
        self.declare_ctor_params(&control.constructor_params, &ctor_sig);
        self.scopes.push();
        let mut locals = Vec::new();
        for local in &control.locals {
            self.control_local(id, frame, local, &mut locals);
        }
        self.body.place = Place::Apply;
        let body = self.block(&control.apply);
        self.scopes.pop();
        self.scopes.pop();
        self.open_blocks.pop();
        let done = self.leave_body(outer);
        self.prog.frames[frame.index()] = done.frame;
        let slot = &mut self.prog.controls[id.index()];
        (slot.params, slot.instances, slot.locals, slot.body) = (params, done.instances, locals, body);
    }

    fn control_local(&mut self, id: ControlId, frame: FrameId, local: &'a ast::Decl, locals: &mut Vec<Stmt>) {
        match &local.kind {
            ast::DeclKind::Const(c) => self.const_decl(local, c),
            ast::DeclKind::Variable(v) => {
                let stmt = self.variable(local, v);
                locals.push(stmt);
            }
            ast::DeclKind::Instantiation(inst) => self.instantiation(local, inst),
            ast::DeclKind::Action(action) => {
                let action = self.action(local, action, Some(id), frame);
                self.prog.controls[id.index()].actions.push(action);
                self.declare(&local.name, Symbol::Action(action));
            }
            ast::DeclKind::Table(table) => {
                let table = self.table(local, table, id);
                self.prog.controls[id.index()].tables.push(table);
            }
            _ => {
                let message = format!("a {} cannot be declared in a control", local.kind.noun());
                self.error(syntax::codes::MISPLACED, local.span, message);
            }
        }
    }

    // -------------------------------------------------------------------------------------------- parsers

    pub(super) fn parser(&mut self, decl: &'a ast::Decl, parser: &'a ast::ParserDecl) {
        if !parser.type_params.is_empty() {
            return self.generic_block(decl, &parser.type_params);
        }
        let sigs = self.block_sigs(decl, &parser.params, &parser.constructor_params);
        let id = self.reserve_parser(decl, sigs);
        self.declare(&decl.name, Symbol::Type(TypeSymbol::Plain(Type::Parser(id))));
        self.parser_body(id, decl, parser);
    }

    fn reserve_parser(&mut self, decl: &'a ast::Decl, sigs: (Rc<Sig>, Rc<Sig>)) -> ParserId {
        let annotations = self.annotations(&decl.annotations);
        let id = ParserId::from_index(self.prog.parsers.len());
        let frame = FrameId::from_index(self.prog.frames.len());
        self.prog.frames.push(Frame::default());
        self.prog.types.parser_names.push(decl.name.text.clone());
        self.prog.parsers.push(Parser {
            name: decl.name.text.clone(),
            frame,
            params: Vec::new(),
            ctor_params: sigs.1.params.clone(),
            instances: Vec::new(),
            value_sets: Vec::new(),
            locals: Vec::new(),
            states: Vec::new(),
            start: 0,
            control_name: self.control_name(&decl.name.text, &annotations),
            annotations,
            span: decl.name.span,
        });
        self.parser_sigs.push(sigs);
        id
    }

    fn parser_body(&mut self, id: ParserId, decl: &'a ast::Decl, parser: &'a ast::ParserDecl) {
        let (frame, ctor_sig) = (self.prog.parsers[id.index()].frame, self.parser_sigs[id.index()].1.clone());
        let outer = self.enter_body(Place::ParserLocals, Owner::Parser(id));
        self.open_blocks.push(Type::Parser(id));
        self.scopes.push();
        let params = self.runtime_params(&parser.params);
        self.declare_ctor_params(&parser.constructor_params, &ctor_sig);
        self.scopes.push();
        let mut locals = Vec::new();
        for local in &parser.locals {
            match &local.kind {
                ast::DeclKind::Const(c) => self.const_decl(local, c),
                ast::DeclKind::Variable(v) => {
                    let stmt = self.variable(local, v);
                    locals.push(stmt);
                }
                ast::DeclKind::Instantiation(inst) => self.instantiation(local, inst),
                ast::DeclKind::ValueSet(set) => self.value_set(id, local, set),
                _ => {
                    let message = format!("a {} cannot be declared in a parser", local.kind.noun());
                    self.error(syntax::codes::MISPLACED, local.span, message);
                }
            }
        }
        self.body.place = Place::ParserState;
        let (states, start) = self.states(decl, parser);
        self.scopes.pop();
        self.scopes.pop();
        self.open_blocks.pop();
        let done = self.leave_body(outer);
        self.prog.frames[frame.index()] = done.frame;
        let slot = &mut self.prog.parsers[id.index()];
        (slot.params, slot.instances, slot.locals) = (params, done.instances, locals);
        (slot.states, slot.start) = (states, start);
    }

    fn value_set(&mut self, owner: ParserId, decl: &'a ast::Decl, set: &'a ast::ValueSetDecl) {
        let element = self.resolve_type(&set.element);
        if !matches!(
            element,
            Type::Bits { .. }
                | Type::Bool
                | Type::Enum(_)
                | Type::SerEnum(_)
                | Type::Newtype(_)
                | Type::Struct(_)
                | Type::Tuple(_)
                | Type::Unknown
        ) {
            let message = format!("there are no value sets of `{}`", self.show(&element));
            self.report(
                Diagnostic::error(codes::BAD_FIELD_TYPE, set.element.span, message)
                    .help("its elements are numbers with a width, booleans, enums, and structs or tuples of these"),
            );
        }
        let size = self.expr(&set.size, Some(&Type::Int));
        if !self.is_compile_time(&size) {
            self.error(codes::NOT_CONSTANT, set.size.span, "the size of a value set must be known at compile time");
        } else if !matches!(size.ty, Type::Int | Type::Bits { .. } | Type::Unknown) {
            let message = format!("the size of a value set is an integer, not `{}`", self.show(&size.ty));
            self.error(codes::MISMATCH, set.size.span, message);
        }
        let annotations = self.annotations(&decl.annotations);
        let control_name = self.control_name(&decl.name.text, &annotations);
        let id = ValueSetId::from_index(self.prog.value_sets.len());
        self.prog.value_sets.push(ValueSet {
            name: decl.name.text.clone(),
            owner,
            control_name,
            element,
            size,
            annotations,
            span: decl.name.span,
        });
        self.prog.parsers[owner.index()].value_sets.push(id);
        self.declare(&decl.name, Symbol::ValueSet(id));
    }

    fn states(&mut self, decl: &'a ast::Decl, parser: &'a ast::ParserDecl) -> (Vec<State>, u32) {
        let mut start = None;
        let mut all = States { list: &parser.states, first: HashMap::new() };
        for (i, state) in parser.states.iter().enumerate() {
            let first = *all.first.entry(state.name.as_str()).or_insert(i);
            if matches!(&*state.name.text, "accept" | "reject") {
                self.report(
                    Diagnostic::error(
                        codes::BUILT_IN_STATE,
                        state.name.span,
                        format!("the state `{}` is built in", state.name),
                    )
                    .help("rename it"),
                );
            }
            if first < i {
                let first = &parser.states[first];
                self.report(
                    Diagnostic::error(
                        codes::DECLARED_TWICE,
                        state.name.span,
                        format!("there are two states `{}`", state.name),
                    )
                    .note(first.name.span, "the first one"),
                );
            } else if &*state.name.text == "start" {
                start = Some(i as u32);
            }
        }
        if start.is_none() {
            self.report(
                Diagnostic::error(
                    codes::BAD_STATES,
                    decl.name.span,
                    format!("parser `{}` has no state `start`", decl.name),
                )
                .help("add: state start { … }"),
            );
        }
        let states: Vec<State> = parser.states.iter().map(|s| self.state(s, &all)).collect();
        if start.is_some() && !reaches_end(&states, start.unwrap_or(0)) {
            self.report(
                Diagnostic::error(codes::ENDLESS_PARSER, decl.name.span, format!("parser `{}` never ends", decl.name))
                    .help("no path from `start` leads to `accept` or `reject`"),
            );
        }
        (states, start.unwrap_or(0))
    }

    fn state(&mut self, state: &'a ast::State, all: &States<'a>) -> State {
        self.scopes.push();
        let mut body = Vec::new();
        for stmt in &state.body {
            self.stmt(stmt, &mut body);
        }
        let transition = match &state.transition {
            None => Transition::Direct(Target::Reject),
            Some(ast::Transition { kind: ast::TransitionKind::Direct(name), .. }) => {
                Transition::Direct(self.target(name, all))
            }
            Some(ast::Transition { kind: ast::TransitionKind::Select(select), span }) => {
                self.select(select, all, *span)
            }
        };
        self.scopes.pop();
        let annotations = self.annotations(&state.annotations);
        State { name: state.name.text.clone(), body, transition, annotations, span: state.span }
    }

    fn target(&mut self, name: &ast::Name, all: &States<'_>) -> Target {
        match &*name.text {
            "accept" => Target::Accept,
            "reject" => Target::Reject,
            text => match all.first.get(text) {
                Some(i) => Target::State(*i as u32),
                None => {
                    let names = all.list.iter().map(|s| s.name.as_str()).chain(["accept", "reject"]);
                    self.unknown_name(codes::NO_SUCH_STATE, name, format!("there is no state `{name}`"), names);
                    Target::Reject
                }
            },
        }
    }

    fn select(&mut self, select: &'a ast::Select, all: &States<'a>, span: Span) -> Transition {
        let mut keys: Vec<Expr> = Vec::with_capacity(select.args.len());
        for arg in &select.args {
            let key = self.expr(arg, None);
            if !selectable(&key.ty) {
                let message = format!("`select` cannot match values of type `{}`", self.show(&key.ty));
                let mut d = Diagnostic::error(codes::BAD_KEYSET, key.span, message);
                if key.ty == Type::Int {
                    d = d.help("give the number a width, as 8w3");
                }
                self.report(d);
                keys.push(self.poison(key.span));
                continue;
            }
            keys.push(key);
        }
        let mut cases = Vec::with_capacity(select.cases.len());
        let mut fit = CaseFit::default();
        for case in &select.cases {
            let before = self.diags.len();
            let keysets = self.select_keysets(&case.keyset, &keys);
            if !is_rest(&case.keyset) {
                fit.add(&self.diags, before);
            }
            let target = self.target(&case.next, all);
            cases.push(SelectCase { keysets, target, span: case.span });
        }
        if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
            let types: Vec<String> = keys.iter().map(|k| self.show(&k.ty)).collect();
            let message = format!("no case matches the type of the `select` keys, `{}`", types.join("`, `"));
            let one = fit.none_fits(&mut self.diags, first.span.to(last.span), &message);
            self.diags.extend(one);
        }
        Transition::Select { keys, cases, span }
    }

    fn select_keysets(&mut self, keyset: &'a ast::Keyset, keys: &[Expr]) -> Vec<Keyset> {
        if let [ast::KeysetElement { kind: ast::KeysetKind::Default | ast::KeysetKind::DontCare, .. }] =
            keyset.elements.as_slice()
        {
            return keys.iter().map(|_| Keyset::DontCare).collect();
        }
        if let [element] = keyset.elements.as_slice()
            && keys.len() != 1
            && let Some(set) = self.value_set_of(element)
        {
            self.check_value_set(set, keys, element.span);
            return vec![Keyset::ValueSet(set)];
        }
        if keyset.elements.len() != keys.len() {
            let message = format!("{} keys are selected on, here are {}", keys.len(), keyset.elements.len());
            self.error(codes::KEYSET_COUNT, keyset.span, message);
            return Vec::new();
        }
        keyset
            .elements
            .iter()
            .zip(keys)
            .map(|(element, key)| match self.value_set_of(element) {
                Some(set) => {
                    self.check_value_set(set, std::slice::from_ref(key), element.span);
                    Keyset::ValueSet(set)
                }
                None => self.keyset(element, &key.ty, "select"),
            })
            .collect()
    }

    fn value_set_of(&self, element: &ast::KeysetElement) -> Option<ValueSetId> {
        match &element.kind {
            ast::KeysetKind::Expr(ast::Expr { kind: ast::ExprKind::Path(path), .. }) => {
                match self.scopes.lookup(&path.name.text).map(|e| &e.symbol) {
                    Some(Symbol::ValueSet(id)) => Some(*id),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn check_value_set(&mut self, set: ValueSetId, keys: &[Expr], span: Span) {
        let element = self.prog.value_sets[set.index()].element.clone();
        let mut types = Vec::new();
        self.leaves(&element, &mut types);
        let fits = types.len() == keys.len()
            && types.iter().zip(keys).all(|(t, k)| {
                *t == k.ty
                    || k.ty.is_unknown()
                    || t.is_unknown()
                    || self.prog.types.underlying(t) == self.prog.types.underlying(&k.ty)
            });
        let whole = matches!(keys, [key] if key.ty == element);
        if !fits && !whole && !element.is_unknown() {
            let keys: Vec<String> = keys.iter().map(|k| self.show(&k.ty)).collect();
            let message =
                format!("the value set holds `{}`, the keys are `{}`", self.show(&element), keys.join("`, `"));
            let place = self.prog.value_sets[set.index()].span;
            self.report(Diagnostic::error(codes::VALUE_SET_TYPE, span, message).note(place, "the value set"));
        }
    }

    /// Appends the types of the scalar leaves of a struct or tuple, in order.
    fn leaves(&self, ty: &Type, out: &mut Vec<Type>) {
        match ty {
            Type::Struct(id) => {
                for field in &self.prog.types.structs[id.index()].fields {
                    self.leaves(&field.ty, out);
                }
            }
            Type::Tuple(types) => types.iter().for_each(|t| self.leaves(t, out)),
            ty => out.push(ty.clone()),
        }
    }

    /// The keyset for one key of type `ty`.
    pub(super) fn keyset(&mut self, element: &'a ast::KeysetElement, ty: &Type, place: &str) -> Keyset {
        match &element.kind {
            ast::KeysetKind::Default | ast::KeysetKind::DontCare => Keyset::DontCare,
            ast::KeysetKind::Expr(e) => Keyset::Value(self.keyset_value(e, ty, place)),
            ast::KeysetKind::Mask(value, mask) => {
                let bits = matches!(self.prog.types.underlying(ty), Type::Bits { .. } | Type::Bool | Type::Unknown);
                if !bits {
                    let message = format!("values of type `{}` have no masks", self.show(ty));
                    self.error(codes::NO_MASK_OR_RANGE, element.span, message);
                    return Keyset::DontCare;
                }
                match self.keyset_pair(value, mask, ty, place, "&&&", element.span) {
                    Some((value, mask)) => Keyset::Mask(value, mask),
                    None => Keyset::DontCare,
                }
            }
            ast::KeysetKind::Range(low, high) => {
                if !matches!(self.prog.types.underlying(ty), Type::Bits { .. } | Type::Unknown) {
                    let message = format!("values of type `{}` have no ranges", self.show(ty));
                    self.error(codes::NO_MASK_OR_RANGE, element.span, message);
                    return Keyset::DontCare;
                }
                match self.keyset_pair(low, high, ty, place, "..", element.span) {
                    Some((low, high)) => Keyset::Range(low, high),
                    None => Keyset::DontCare,
                }
            }
        }
    }

    /// The two operands of a mask or range; reports an error if their types do not match.
    fn keyset_pair(
        &mut self,
        left: &'a ast::Expr,
        right: &'a ast::Expr,
        ty: &Type,
        place: &str,
        operator: &str,
        span: Span,
    ) -> Option<(Expr, Expr)> {
        let (left, right) = (self.expr(left, Some(ty)), self.expr(right, Some(ty)));
        if matches!((&left.ty, &right.ty), (Type::Bits { .. }, Type::Bits { .. })) && left.ty != right.ty {
            let message =
                format!("`{operator}` cannot be applied to `{}` and `{}`", self.show(&left.ty), self.show(&right.ty));
            self.report(
                Diagnostic::error(codes::BAD_OPERANDS, span, message)
                    .help(format!("what is matched is of type `{}`", self.show(ty))),
            );
            return None;
        }
        Some((self.keyset_coerce(left, ty, place), self.keyset_coerce(right, ty, place)))
    }

    /// A value in a keyset. Integers and masks of the underlying type are also accepted for enums and `type`s.
    pub(super) fn keyset_value(&mut self, e: &'a ast::Expr, ty: &Type, place: &str) -> Expr {
        let value = self.expr(e, Some(ty));
        self.keyset_coerce(value, ty, place)
    }

    fn keyset_coerce(&mut self, value: Expr, ty: &Type, place: &str) -> Expr {
        if let ExprKind::Call(_) = value.kind {
            self.error(codes::NOT_HERE, value.span, "nothing can be called here");
            return self.poison(value.span);
        }
        let underlying = self.prog.types.underlying(ty);
        let value = match &value.ty {
            Type::Int | Type::Bits { .. } if underlying != *ty && matches!(underlying, Type::Bits { .. }) => {
                let value = self.coerce(value, &underlying);
                self.convert(value, ty.clone())
            }
            _ => self.coerce(value, ty),
        };
        if !self.is_compile_time(&value) && place != "select" {
            self.error(codes::NOT_CONSTANT, value.span, format!("the values of {place} must be known at compile time"));
        }
        value
    }
}

/// Whether a keyset matches all values.
fn is_rest(keyset: &ast::Keyset) -> bool {
    matches!(
        keyset.elements.as_slice(),
        [ast::KeysetElement { kind: ast::KeysetKind::Default | ast::KeysetKind::DontCare, .. }]
    )
}

/// Whether `select` can match on a type.
fn selectable(ty: &Type) -> bool {
    match ty {
        Type::Bits { .. } | Type::Bool | Type::Enum(_) | Type::SerEnum(_) | Type::Error | Type::Newtype(_) => true,
        Type::Tuple(types) => types.iter().all(selectable),
        _ => ty.is_unknown(),
    }
}

/// Whether some path reaches `accept` or `reject`. (A `select` without a matching case also leaves the parser, but only
/// by an error.)
fn reaches_end(states: &[State], start: u32) -> bool {
    let mut seen = vec![false; states.len()];
    let mut work = vec![Target::State(start)];
    while let Some(target) = work.pop() {
        let Target::State(i) = target else { return true };
        if std::mem::replace(&mut seen[i as usize], true) {
            continue;
        }
        match &states[i as usize].transition {
            Transition::Direct(target) => work.push(*target),
            Transition::Select { cases, .. } => work.extend(cases.iter().map(|c| c.target)),
        }
    }
    false
}
