//! Calls. Functions, actions, controls and parsers are inlined; extern calls are lowered by the core or the
//! architecture.
//!
//! **Copy-in/copy-out** (P4_16, "Calling convention"). A parameter is bound directly to its argument's storage if that
//! is indistinguishable from copying:
//! - an `out` or `inout` argument, if it is a whole variable or struct field (not a bit slice, and not a field of a
//!   header, whose writes are guarded) that overlaps no earlier `out` or `inout` argument;
//! - an `in` argument, if it overlaps no `out` or `inout` argument that is bound directly.
//!
//! Copies are written back in the order of the parameters, so the last of several overlapping arguments wins. An action
//! also sees the variables of its control; an argument is then bound directly only if the action's body does not name
//! its variable. In all other cases the parameter is a variable of its own, copied in and out.
//!
//! `exit` performs the copy-out of all callers that it leaves.

use crate::arch::{ExternArg, ExternCall};
use crate::codes;
use crate::context::{Binding, Env, Lowerer, ReturnTarget};
use crate::path::Place;
use crate::tree::Tree;
use crate::visit::{self, Node, has_return, is_pure};
use base::Span;
use ir::{Mark, Operand, SlotId, SlotKind};
use sema::Type;
use sema::typed::{
    ActionId, Arg, ArgValue, Builtin, Call, Callee, ControlId, Direction, Expr, ExprKind, FunctionId, InstanceId,
    InstanceOf, InstanceRef, LocalId, Param, ParserId, StmtKind,
};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// An evaluated argument.
enum EvaluatedArg {
    Value(Binding),
    Place(Option<Place>),
}

/// Provides action data: the value of a parameter, given its index among all parameters.
pub(crate) type DataSource<'a> = &'a mut dyn FnMut(&mut Lowerer<'_>, usize) -> Tree;

impl Lowerer<'_> {
    /// Lowers a call; returns its result.
    pub fn call(&mut self, call: &Call) -> Tree {
        let saved = self.b.set_span(call.span);
        let result = match &call.callee {
            Callee::Function(id) => self.call_function(*id, &call.args, call.span),
            Callee::Action(id) => {
                self.mark_action(*id);
                self.inline_action(*id, &call.args, None, call.span);
                Tree::Nothing
            }
            Callee::TableApply(_) => {
                self.apply_call(call, None);
                Tree::Nothing
            }
            Callee::ParserApply(reference) | Callee::ControlApply(reference) => {
                self.apply_block(*reference, call);
                Tree::Nothing
            }
            Callee::Builtin(builtin, object) => self.builtin(*builtin, object, call),
            Callee::ExternFunction(id) => {
                let p = self.p;
                self.extern_function(&p.extern_functions[id.index()].name, call)
            }
            Callee::ExternMethod { object, extern_id, method } => {
                let p = self.p;
                let info = &p.externs[extern_id.index()];
                self.extern_method(object, &info.methods[*method as usize].name, call)
            }
        };
        self.b.set_span(saved);
        result
    }

    fn builtin(&mut self, builtin: Builtin, object: &Expr, call: &Call) -> Tree {
        match builtin {
            Builtin::IsValid => {
                let tree = self.eval(object);
                self.is_valid(&tree).into()
            }
            Builtin::SetValid => {
                let place = self.place(object);
                self.set_valid(&place);
                Tree::Nothing
            }
            Builtin::SetInvalid => {
                let place = self.place(object);
                self.set_invalid(&place);
                Tree::Nothing
            }
            Builtin::PushFront | Builtin::PopFront => {
                let count = call.args.first().and_then(|a| self.constant(a.value.expr()?)?.to_u64());
                let Some(count) = count else {
                    self.refuse(codes::NOT_CONSTANT, call.span, "the number of elements is not known");
                    return Tree::Nothing;
                };
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let place = self.place(object);
                match builtin {
                    Builtin::PushFront => self.push_front(&place, count),
                    _ => self.pop_front(&place, count),
                }
                Tree::Nothing
            }
        }
    }

    fn extern_function(&mut self, name: &str, call: &Call) -> Tree {
        match name {
            "verify" => {
                self.verify(call);
                Tree::Nothing
            }
            "static_assert" => Tree::constant(1, 1),
            _ => {
                let args = self.extern_args(call);
                let mut arch = self.arch.take();
                let result = match &mut arch {
                    Some(arch) => arch.function(self, name, &ExternCall { call, args }),
                    None => Tree::Nothing,
                };
                self.arch = arch;
                result
            }
        }
    }

    fn extern_method(&mut self, object: &Expr, method: &str, call: &Call) -> Tree {
        let instance = match self.extern_binding(object) {
            Some(Binding::PacketIn) => return self.packet_in(method, call),
            Some(Binding::PacketOut) => return self.packet_out(method, call),
            Some(Binding::Instance(instance)) => instance,
            Some(Binding::Outside(path)) => {
                let args = self.extern_args(call);
                let p = self.p;
                let name = match &object.ty {
                    Type::Extern(id, _) => p.extern_name(*id),
                    _ => "extern",
                };
                return self.foreign_method(name, &path, method, &ExternCall { call, args });
            }
            Some(Binding::Tree(_) | Binding::Known(_)) | None => {
                let message = format!("the object of method `{method}` is not known at compile time");
                self.refuse(codes::EXTERN_MISUSE, object.span, message);
                return self.zero(&call.result);
            }
        };
        let args = self.extern_args(call);
        if let ExprKind::StackElement { index, .. } = &object.kind {
            let index = self.eval(index);
            let (name, path) = self.extern_names(instance);
            let (name, path) = (name.to_string(), format!("{path}[]"));
            return self.foreign_element(&name, &path, &index, method, &ExternCall { call, args });
        }
        let mut arch = self.arch.take();
        let result = match &mut arch {
            Some(arch) => arch.method(self, instance, method, &ExternCall { call, args }),
            None => Tree::Nothing,
        };
        self.arch = arch;
        result
    }

    fn extern_args(&mut self, call: &Call) -> Vec<ExternArg> {
        let last_effect = last_effect(&call.args);
        let mut args = Vec::with_capacity(call.args.len());
        for (i, arg) in call.args.iter().enumerate() {
            args.push(match (&arg.value, arg.direction) {
                (ArgValue::Expr(e), Direction::In | Direction::None) => {
                    let value = self.eval(e);
                    ExternArg::In(if i < last_effect { self.freeze(&value) } else { value })
                }
                (ArgValue::Expr(e), _) => ExternArg::Out(self.place(e)),
                (ArgValue::DontCare | ArgValue::Absent, _) => ExternArg::Absent,
            });
        }
        args
    }

    fn extern_binding(&mut self, object: &Expr) -> Option<Binding> {
        match &object.kind {
            ExprKind::Local(local) => Some(self.local(*local)),
            ExprKind::Instance(reference) => self.p.resolve(*reference, self.env.instance).map(Binding::Instance),
            ExprKind::StackElement { stack, .. } => self.extern_binding(stack),
            _ => None,
        }
    }

    fn call_function(&mut self, id: FunctionId, args: &[Arg], span: Span) -> Tree {
        let p = self.p;
        let function = &p.functions[id.index()];
        let env =
            Env { frame: function.frame, instance: None, prefix: Rc::from(&*function.name), bindings: HashMap::new() };
        let mut result = Tree::Nothing;
        self.inline(&function.params, args, env, None, None, span, |cx| {
            result = match function.body.stmts.split_last() {
                // The common case: a single `return` at the end needs neither a variable nor a jump.
                Some((last, rest)) if !rest.iter().any(has_return) && matches!(last.kind, StmtKind::Return(_)) => {
                    cx.stmts(rest);
                    match &last.kind {
                        StmtKind::Return(Some(value)) => {
                            let value = cx.eval(value);
                            cx.freeze(&value)
                        }
                        _ => Tree::Nothing,
                    }
                }
                _ => {
                    let name = format!("{}.$return", function.name);
                    let result = match function.result {
                        Type::Void => Tree::Nothing,
                        _ => cx.allocate(&name, &function.result, SlotKind::Local, function.span),
                    };
                    cx.returning((!matches!(result, Tree::Nothing)).then(|| result.clone()), |cx| {
                        cx.block(&function.body);
                    });
                    result
                }
            };
        });
        result
    }

    /// Inlines a one-parameter function of an include file that only returns an expression. `None` if there is no such
    /// function, for example because the program has another one of that name.
    pub fn library_function(&mut self, name: &str, value: Operand) -> Option<Operand> {
        let p = self.p;
        let function = p.functions.iter().find(|f| &*f.name == name)?;
        let [param] = function.params.as_slice() else { return None };
        let StmtKind::Return(Some(result)) = &function.body.stmts.first()?.kind else { return None };
        let bindings = HashMap::from([(param.local, Binding::Tree(value.into()))]);
        let env = Env { frame: function.frame, instance: None, prefix: name.into(), bindings };
        let outer = std::mem::replace(&mut self.env, env);
        let result = self.eval(result).operand();
        self.env = outer;
        Some(result)
    }

    /// Lowers a body; its `return` statements jump to its end.
    pub fn returning(&mut self, result: Option<Tree>, body: impl FnOnce(&mut Self)) {
        let join = self.new_join("");
        let outer = self.ret.replace(ReturnTarget { join, result });
        let loops = std::mem::take(&mut self.loops);
        body(self);
        self.loops = loops;
        self.ret = outer;
        self.continue_at(join);
    }

    fn mark_action(&mut self, id: ActionId) {
        let action = &self.p.actions[id.index()];
        let path = match (action.owner, self.env.instance) {
            (Some(_), Some(instance)) => self.p.instance(instance).path.as_str(),
            _ => "",
        };
        self.mark(Mark::Action(action.control_name.qualified(path)));
    }

    /// Inlines an action's body. `data` provides the action data when a table runs it; otherwise all arguments are in
    /// `args`.
    pub fn inline_action(&mut self, id: ActionId, args: &[Arg], data: Option<DataSource<'_>>, span: Span) {
        let p = self.p;
        let action = &p.actions[id.index()];
        let env = match action.owner {
            Some(_) => self.env.clone(),
            None => {
                Env { frame: action.frame, instance: None, prefix: Rc::from(&*action.name), bindings: HashMap::new() }
            }
        };
        let shared = action.owner.is_some().then(|| self.locals_of_action(id));
        self.inline(&action.params, args, env, shared, data, span, |cx| {
            cx.returning(None, |cx| cx.block(&action.body));
        });
    }

    fn apply_block(&mut self, reference: InstanceRef, call: &Call) {
        let Some(instance) = self.p.resolve(reference, self.env.instance) else {
            return self.refuse(codes::NOT_CONSTANT, call.span, "the instance is not known at compile time");
        };
        match self.p.instance(instance).of {
            InstanceOf::Control(control) => self.apply_control(control, instance, &call.args, call.span),
            InstanceOf::Parser(parser) => self.apply_parser(parser, instance, &call.args, call.span),
            InstanceOf::Extern(_) | InstanceOf::Package(_) => {
                self.refuse(codes::MISPLACED, call.span, "this instance cannot be applied");
            }
        }
    }

    /// The environment for the body of an instance.
    pub fn instance_env(&self, instance: InstanceId) -> Env {
        let info = self.p.instance(instance);
        let (frame, name) = match info.of {
            InstanceOf::Control(id) => {
                let control = &self.p.controls[id.index()];
                (control.frame, &control.name)
            }
            InstanceOf::Parser(id) => {
                let parser = &self.p.parsers[id.index()];
                (parser.frame, &parser.name)
            }
            InstanceOf::Extern(_) | InstanceOf::Package(_) => (self.env.frame, &info.name),
        };
        let prefix = if info.path.is_empty() { Rc::from(&**name) } else { Rc::from(info.path.as_str()) };
        Env { frame, instance: Some(instance), prefix, bindings: HashMap::new() }
    }

    fn apply_control(&mut self, id: ControlId, instance: InstanceId, args: &[Arg], span: Span) {
        let control = &self.p.controls[id.index()];
        let env = self.instance_env(instance);
        self.inline(&control.params, args, env, None, None, span, |cx| cx.control_body(id));
    }

    /// Notifies the architecture that the current instance is applied.
    pub fn enter_instance(&mut self) {
        let mut arch = self.arch.take();
        if let (Some(arch), Some(instance)) = (&mut arch, self.env.instance) {
            arch.enter(self, instance);
        }
        self.arch = arch;
    }

    /// Lowers the variables and the `apply` block of the current control.
    pub fn control_body(&mut self, id: ControlId) {
        let p = self.p;
        let control = &p.controls[id.index()];
        self.mark(Mark::Block(self.env.prefix.to_string()));
        self.enter_instance();
        self.returning(None, |cx| {
            cx.stmts(&control.locals);
            cx.block(&control.body);
        });
    }

    fn apply_parser(&mut self, id: ParserId, instance: InstanceId, args: &[Arg], span: Span) {
        let parser = &self.p.parsers[id.index()];
        let env = self.instance_env(instance);
        self.inline(&parser.params, args, env, None, None, span, |cx| {
            cx.mark(Mark::Block(cx.env.prefix.to_string()));
            let accept = cx.new_join("");
            let outer = cx.accept.replace(accept);
            cx.parser_body(id);
            cx.accept = outer;
            cx.continue_at(accept);
        });
    }

    /// Evaluates arguments in the current environment, binds parameters in `env`, lowers `body` there, and copies out.
    /// `shared`: the caller's variables that the body names, if it can see them.
    #[allow(clippy::too_many_arguments, reason = "the one place where all of a call comes together")]
    fn inline(
        &mut self,
        params: &[Param],
        args: &[Arg],
        mut env: Env,
        shared: Option<Rc<HashSet<LocalId>>>,
        mut data: Option<DataSource<'_>>,
        span: Span,
        body: impl FnOnce(&mut Self),
    ) {
        if self.b.is_terminated() || self.too_large(span) {
            return;
        }
        let given = self.arguments(params, args, &mut data);
        let named = |e: &Expr| shared.as_ref().is_some_and(|shared| names_any(e, shared));

        // Whether a parameter can be bound directly to its argument: a whole variable that overlaps no earlier argument
        // that is written. It may overlap a later one, because that one is copied back afterwards.
        let mut written: HashSet<SlotId> = HashSet::new();
        let mut earlier: HashSet<SlotId> = HashSet::new();
        let mut direct = vec![false; given.len()];
        for (i, (given, arg)) in given.iter().zip(args).enumerate() {
            let (EvaluatedArg::Place(Some(place)), Some(e)) = (given, arg.value.expr()) else { continue };
            let slots = place.slots();
            if place.plain().is_some() && !named(e) && slots.iter().all(|s| !earlier.contains(s)) {
                written.extend(&slots);
                direct[i] = true;
            }
            earlier.extend(slots);
        }
        let mut copies: Vec<(LocalId, Option<Place>, Direction)> = Vec::new();
        let mut resets = Vec::new();
        for (i, (given, param)) in given.into_iter().zip(params).enumerate() {
            match given {
                EvaluatedArg::Value(Binding::Tree(tree)) => {
                    let e = args.get(i).and_then(|a| a.value.expr());
                    let at_risk = e.is_some_and(named) || tree.slots().iter().any(|s| written.contains(s));
                    let tree = if at_risk { self.freeze(&tree) } else { tree };
                    env.bindings.insert(param.local, Binding::Tree(tree));
                }
                EvaluatedArg::Value(binding) => {
                    env.bindings.insert(param.local, binding);
                }
                EvaluatedArg::Place(Some(place)) if direct[i] => {
                    let tree = place.plain().cloned().unwrap_or(Tree::Nothing);
                    if param.direction == Direction::Out {
                        resets.push(tree.clone());
                    }
                    env.bindings.insert(param.local, Binding::Tree(tree));
                }
                EvaluatedArg::Place(place) => {
                    // When an action calls another action of the same control, an outer binding may exist.
                    env.bindings.remove(&param.local);
                    copies.push((param.local, place, param.direction));
                }
            }
        }
        let caller = std::mem::replace(&mut self.env, env);
        let copies: Vec<(Tree, Option<Place>)> = copies
            .into_iter()
            .map(|(local, place, direction)| {
                let storage = self.local_storage(local);
                match (&place, direction) {
                    (Some(place), Direction::InOut) => {
                        let value = self.read(place);
                        self.assign(&Place::of(storage.clone()), &value);
                    }
                    _ => resets.push(storage.clone()),
                }
                (storage, place)
            })
            .collect();
        resets.iter().for_each(|tree| self.reset(tree));
        let copies: Vec<(Tree, Place)> = copies.into_iter().filter_map(|(t, p)| Some((t, p?))).collect();

        let outer_exit = self.exit;
        if !copies.is_empty() && outer_exit.is_some() {
            self.exit = Some(self.new_join(""));
        }
        body(self);
        let copy_out = |cx: &mut Self| copies.iter().for_each(|(storage, place)| cx.assign(place, storage));
        if !self.b.is_terminated() {
            copy_out(self);
        }
        if let (false, Some(inner), Some(outer)) = (copies.is_empty(), self.exit, outer_exit)
            && self.is_used(inner)
        {
            let go_on = self.new_join("");
            self.to(go_on);
            self.enter(inner);
            copy_out(self);
            self.to(outer);
            self.enter(go_on);
        }
        self.exit = outer_exit;
        self.env = caller;
    }

    fn arguments(&mut self, params: &[Param], args: &[Arg], data: &mut Option<DataSource<'_>>) -> Vec<EvaluatedArg> {
        let last_effect = last_effect(args);
        let mut given = Vec::with_capacity(params.len());
        for (i, param) in params.iter().enumerate() {
            let value = args.get(i).map_or(&ArgValue::Absent, |a| &a.value);
            given.push(match (param.direction, value) {
                (Direction::In | Direction::None, ArgValue::Expr(e)) => match e.ty {
                    Type::Int | Type::String => match self.constant(e) {
                        Some(value) => EvaluatedArg::Value(Binding::Known(value)),
                        None => {
                            self.refuse(codes::NOT_CONSTANT, e.span, "the value is not known at compile time");
                            EvaluatedArg::Value(Binding::Tree(Tree::Nothing))
                        }
                    },
                    Type::Extern(..) => {
                        EvaluatedArg::Value(self.extern_binding(e).unwrap_or(Binding::Tree(Tree::Nothing)))
                    }
                    _ => {
                        let value = self.eval(e);
                        let value = if i < last_effect { self.freeze(&value) } else { value };
                        EvaluatedArg::Value(Binding::Tree(value))
                    }
                },
                (Direction::In | Direction::None, _) => {
                    let value = match data {
                        Some(data) => data(self, i),
                        None => self.zero(&param.ty),
                    };
                    EvaluatedArg::Value(Binding::Tree(value))
                }
                (Direction::Out | Direction::InOut, ArgValue::Expr(e)) => EvaluatedArg::Place(Some(self.place(e))),
                (Direction::Out | Direction::InOut, _) => EvaluatedArg::Place(None),
            });
        }
        given
    }

    /// The variables of the control that an action names, itself or in actions that it calls.
    fn locals_of_action(&mut self, id: ActionId) -> Rc<HashSet<LocalId>> {
        if let Some(known) = self.action_locals.get(&id) {
            return known.clone();
        }
        let mut locals = HashSet::new();
        let mut called = Vec::new();
        visit::block(&self.p.actions[id.index()].body, &mut |node| match node {
            Node::Expr(Expr { kind: ExprKind::Local(local), .. }) => {
                locals.insert(*local);
            }
            Node::Call(Call { callee: Callee::Action(inner), .. }) if *inner != id => called.push(*inner),
            _ => {}
        });
        for inner in called {
            if self.p.actions[inner.index()].owner.is_some() {
                let more = self.locals_of_action(inner);
                locals.extend(more.iter());
            }
        }
        let locals = Rc::new(locals);
        self.action_locals.insert(id, locals.clone());
        locals
    }

    /// Whether an operand is the constant 1.
    pub fn is_true(o: &Operand) -> bool {
        matches!(o, Operand::Const(c) if c.is_true())
    }
}

fn last_effect(args: &[Arg]) -> usize {
    args.iter().rposition(|a| a.value.expr().is_some_and(|e| !is_pure(e))).unwrap_or(0)
}

fn names_any(e: &Expr, locals: &HashSet<LocalId>) -> bool {
    let mut found = false;
    visit::expr(e, &mut |node| {
        if let Node::Expr(Expr { kind: ExprKind::Local(local), .. }) = node {
            found |= locals.contains(local);
        }
    });
    found
}
