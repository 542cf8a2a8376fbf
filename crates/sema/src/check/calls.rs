//! Calls: overload resolution, assignment of arguments to parameters, inference of type arguments.
//!
//! Overloads differ in the number or the names of their parameters (P4_16, "Extern objects"), never in types
//! alone. The steps of a call: arguments are assigned to parameters; each is checked, with the parameter's type as a
//! hint if it is already known; type arguments are matched; finally every argument is converted to its parameter's
//! final type.

use super::generics::Subst;
use super::literals::quoted;
use super::{Checker, Place, Sig};
use crate::codes;
use crate::scope::{FunctionRef, Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use std::rc::Rc;
use syntax::ast;

/// The kind of callee, which determines what its arguments may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallMode {
    /// Directionless parameters take any value (actions, functions, `apply`).
    Free,
    /// Directionless parameters take compile-time known values (externs).
    Extern,
    /// All parameters take compile-time known values (constructors).
    Construct,
}

impl<'a> Checker<'a> {
    pub(super) fn call(
        &mut self,
        callee: &'a ast::Expr,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        match &callee.kind {
            ast::ExprKind::Path(path) => {
                let Some(entry) = self.lookup(path) else {
                    self.check_stray(args);
                    return self.poison(span);
                };
                match entry.symbol {
                    Symbol::Functions(set) => self.call_function(&path.name, &set, type_args, args, expected, span),
                    Symbol::Action(id) => self.call_action(id, type_args, args, span),
                    Symbol::Type(symbol) => self.constructor_call(&symbol, path, type_args, args, expected, span),
                    Symbol::Broken => self.poison(span),
                    _ => {
                        let mut d =
                            Diagnostic::error(codes::NOT_CALLABLE, callee.span, format!("`{path}` cannot be called"))
                                .note(entry.span, "declared here");
                        if let Symbol::Table(_) = entry.symbol {
                            d = d.help(format!("apply it: {path}.apply()"));
                        }
                        self.report(d);
                        self.poison(span)
                    }
                }
            }
            ast::ExprKind::Member(base, name) => self.call_member(base, name, type_args, args, expected, span),
            ast::ExprKind::Type(ast::TypeRef { kind: ast::TypeKind::Named { path, args: given }, .. }) => {
                let Some(symbol) = self.type_symbol(path) else { return self.poison(span) };
                self.constructor_call(&symbol, path, given, args, expected, span)
            }
            ast::ExprKind::Missing => self.poison(span),
            _ => {
                self.error(codes::NOT_CALLABLE, callee.span, "this cannot be called");
                self.poison(span)
            }
        }
    }

    /// Checks the arguments of a call whose callee is unknown, to report mistakes within them.
    pub(super) fn check_stray(&mut self, args: &'a [ast::Argument]) {
        for arg in args {
            let plain = !matches!(
                arg.value.kind,
                ast::ExprKind::DontCare
                    | ast::ExprKind::List(_)
                    | ast::ExprKind::Record { .. }
                    | ast::ExprKind::InvalidHeader
                    | ast::ExprKind::Default
            );
            if plain {
                self.expr(&arg.value, None);
            }
        }
    }

    fn function_sig(&self, f: FunctionRef) -> Rc<Sig> {
        match f {
            FunctionRef::Extern(id) => self.extern_function_sigs[id.index()].clone(),
            FunctionRef::Declared(index) => self.functions[index].sig.clone(),
        }
    }

    fn call_function(
        &mut self,
        name: &ast::Name,
        set: &[FunctionRef],
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        let sigs: Vec<Rc<Sig>> = set.iter().map(|f| self.function_sig(*f)).collect();
        let Some(chosen) = self.choose(&sigs, args, span, &format!("`{name}`")) else {
            self.check_stray(args);
            return self.poison(span);
        };
        let (function, sig) = (set[chosen], sigs[chosen].clone());
        let mode = match function {
            FunctionRef::Extern(_) => CallMode::Extern,
            FunctionRef::Declared(_) => CallMode::Free,
        };
        let Some((checked, subst)) = self.check_args(&sig, Subst::none(), type_args, args, expected, span, mode) else {
            return self.poison(span);
        };
        let type_args = subst.args(&sig.type_params);
        let result = self.subst(&sig.result, &subst);
        let callee = match function {
            FunctionRef::Extern(id) => {
                let declared = &self.prog.extern_functions[id.index()];
                let (annotations, place) = (declared.annotations.clone(), declared.span);
                self.warn_deprecated(&sig.what, &annotations, span, place);
                if &*name.text == "static_assert" {
                    return self.static_assert(&checked, span);
                }
                if &*name.text == "verify" && !matches!(self.body.place, Place::ParserState | Place::Function) {
                    self.error(codes::NOT_HERE, span, "`verify` can only be called in parsers");
                }
                Callee::ExternFunction(id)
            }
            FunctionRef::Declared(index) => {
                let decl = self.functions[index].decl;
                if decl.annotations.iter().any(|a| &*a.name.text == "deprecated") {
                    let annotations = self.annotations(&decl.annotations);
                    self.warn_deprecated(&sig.what, &annotations, span, decl.name.span);
                }
                match self.function_instance(index, &type_args) {
                    Some(id) => Callee::Function(id),
                    None => return self.poison(span),
                }
            }
        };
        let call = Call { callee, type_args, args: checked, result: result.clone(), span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: result, span }
    }

    fn static_assert(&mut self, args: &[Arg], span: Span) -> Expr {
        let condition = args.first().and_then(|a| a.value.expr());
        let text = args.get(1).and_then(|a| a.value.expr()).and_then(|e| e.as_const()).and_then(|v| match v {
            Value::Str(s) => Some(s.to_string()),
            _ => None,
        });
        if let Some(condition) = condition
            && !condition.ty.is_unknown()
        {
            match condition.as_const() {
                Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => {
                    let message = text.unwrap_or_else(|| "the assertion does not hold".to_string());
                    self.report(Diagnostic::error(codes::ASSERTION, span, format!("static_assert: {message}")));
                }
                _ => self.error(codes::NOT_CONSTANT, condition.span, "the condition must be known at compile time"),
            }
        }
        super::expr::constant(Value::Bool(true), Type::Bool, span)
    }

    fn call_action(
        &mut self,
        id: ActionId,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        span: Span,
    ) -> Expr {
        if !matches!(self.body.place, Place::Apply | Place::Action) {
            self.report(
                Diagnostic::error(codes::NOT_HERE, span, "an action cannot be called here")
                    .note(self.action_sigs[id.index()].span, "the action")
                    .help("actions are called in controls and by other actions; parsers and functions call functions"),
            );
        }
        let sig = self.action_sigs[id.index()].clone();
        let (annotations, place) = (self.prog.actions[id.index()].annotations.clone(), sig.span);
        self.warn_deprecated(&sig.what, &annotations, span, place);
        let Some((args, _)) = self.check_args(&sig, Subst::none(), type_args, args, None, span, CallMode::Free) else {
            return self.poison(span);
        };
        let call = Call { callee: Callee::Action(id), type_args: Vec::new(), args, result: Type::Void, span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }

    /// The index of the overload that accepts these arguments; reports an error if there is none or several.
    pub(super) fn choose(&mut self, sigs: &[Rc<Sig>], args: &[ast::Argument], span: Span, name: &str) -> Option<usize> {
        if sigs.len() == 1 {
            return Some(0);
        }
        let fitting: Vec<usize> = (0..sigs.len()).filter(|i| accepts(&sigs[*i], args)).collect();
        if fitting.len() > 1 {
            // An overload with exactly these parameters is preferred to one that needs default values.
            if let Some(index) = fitting.iter().find(|i| sigs[**i].params.len() == args.len())
                && fitting.iter().filter(|i| sigs[**i].params.len() == args.len()).count() == 1
            {
                return Some(*index);
            }
            let mut d =
                Diagnostic::error(codes::AMBIGUOUS_CALL, span, format!("more than one {name} takes these arguments"));
            for i in fitting {
                d = d.note(sigs[i].span, "this one");
            }
            self.report(d.help("name the arguments: name = value"));
            return None;
        }
        if let Some(index) = fitting.first() {
            return Some(*index);
        }
        let message = format!("no {name} takes {} argument{}", args.len(), if args.len() == 1 { "" } else { "s" });
        let mut d = Diagnostic::error(codes::NO_OVERLOAD, span, message);
        for sig in sigs.iter().take(5) {
            let names: Vec<&str> = sig.params.iter().map(|p| &*p.name).collect();
            d = d.note(sig.span, format!("this one takes ({})", names.join(", ")));
        }
        self.report(d);
        None
    }

    /// Assigns arguments to parameters; an element is `None` if its parameter has no argument. Reports wrong names and
    /// counts.
    fn place_args(
        &mut self,
        sig: &Sig,
        args: &'a [ast::Argument],
        span: Span,
    ) -> Option<Vec<Option<&'a ast::Argument>>> {
        let mut placed: Vec<Option<&'a ast::Argument>> = vec![None; sig.params.len()];
        let named = args.iter().filter(|a| a.name.is_some()).count();
        if named > 0 && named < args.len() {
            self.report(
                Diagnostic::error(codes::MIXED_ARGUMENTS, span, "arguments are either all named or none is")
                    .help("write name = value for each"),
            );
            return None;
        }
        if args.len() > sig.params.len() && named == 0 {
            let message = format!("{} takes {}, here are {}", sig.what, count(sig.params.len()), args.len());
            self.report(Diagnostic::error(codes::ARGUMENT_COUNT, span, message).note(sig.span, "declared here"));
            return None;
        }
        for (i, arg) in args.iter().enumerate() {
            let slot = match &arg.name {
                None => i,
                Some(name) => match sig.params.iter().position(|p| p.name == name.text) {
                    Some(slot) => slot,
                    None => {
                        let names: Vec<&str> = sig.params.iter().map(|p| &*p.name).collect();
                        let message = format!("{} has no parameter `{name}`", sig.what);
                        self.unknown_member(codes::NO_SUCH_PARAMETER, name, message, sig.span, names.into_iter());
                        return None;
                    }
                },
            };
            if placed[slot].is_some() {
                let message = format!("`{}` is given twice", sig.params[slot].name);
                self.error(codes::ARGUMENT_TWICE, arg.span, message);
                return None;
            }
            placed[slot] = Some(arg);
        }
        let missing: Vec<&str> =
            sig.params.iter().zip(&placed).filter(|(p, a)| a.is_none() && !p.optional).map(|(p, _)| &*p.name).collect();
        if !missing.is_empty() {
            let message = format!("{} needs a value for {}", sig.what, quoted(&missing));
            let mut d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message).note(sig.span, "declared here");
            let results: Vec<&str> =
                sig.params.iter().filter(|p| p.direction == Direction::Out).map(|p| &*p.name).collect();
            if let ([result], true, Type::Void) = (results.as_slice(), named == 0, &sig.result) {
                // The call was probably written as `value = register.read(index)`.
                let all: Vec<&str> = sig.params.iter().map(|p| &*p.name).collect();
                let called = sig.what.split('`').nth(1).unwrap_or_default();
                d = d.help(format!("it gives no value but writes to `{result}`: {called}({})", all.join(", ")));
            }
            if sig.what.ends_with("in a table's list") {
                d = d.help("parameters with a direction are given in the list; those without, in entries");
            }
            self.report(d);
            return None;
        }
        Some(placed)
    }

    /// Checks the arguments of a call; also returns the inferred type arguments.
    #[allow(clippy::too_many_arguments, reason = "a call is that")]
    pub(super) fn check_args(
        &mut self,
        sig: &Sig,
        mut subst: Subst,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
        mode: CallMode,
    ) -> Option<(Vec<Arg>, Subst)> {
        if !type_args.is_empty() && type_args.len() != sig.type_params.len() {
            let message = format!(
                "{} takes {}, not {}",
                sig.what,
                super::tables::counted(sig.type_params.len(), "type argument"),
                type_args.len()
            );
            self.report(Diagnostic::error(codes::TYPE_ARGUMENT_COUNT, span, message).note(sig.span, "declared here"));
            return None;
        }
        let given: Vec<Option<Type>> = type_args.iter().map(|t| self.resolve_type_arg(t)).collect();
        subst.extend(&sig.type_params, given.into_iter());
        subst.extend(&sig.hidden_params, std::iter::empty());
        let Some(placed) = self.place_args(sig, args, span) else {
            self.check_stray(args);
            return None;
        };
        let mut values: Vec<ArgValue> = Vec::with_capacity(placed.len());
        for (param, arg) in sig.params.iter().zip(&placed) {
            let value = match arg {
                Some(arg) => self.check_arg(param, arg, &mut subst),
                None => match &param.default {
                    Some(default) => {
                        self.match_types(&mut subst, &param.ty, &default.ty);
                        ArgValue::Expr(Expr { span, ..default.clone() })
                    }
                    None => {
                        if let Some((_, Some(ty))) = self.deferred_defaults.get(&param.span).cloned() {
                            self.match_types(&mut subst, &param.ty, &ty);
                        }
                        ArgValue::Absent
                    }
                },
            };
            values.push(value);
        }
        self.finish_type_args(sig, &mut subst, expected, &values, span, mode);
        self.check_type_args(sig, &subst, &values, span, mode);
        // The erroneous argument may have been the one that determines a type parameter.
        let poisoned = values.iter().any(|v| v.expr().is_some_and(|e| e.ty.is_unknown()));
        let mut result = Vec::with_capacity(values.len());
        for ((param, arg), value) in sig.params.iter().zip(&placed).zip(values) {
            let mut ty = self.subst(&param.ty, &subst);
            if poisoned && ty == Type::Int && param.ty != Type::Int {
                ty = Type::Unknown;
            }
            let deferred = self.deferred_defaults.get(&param.span).map(|(e, _)| *e).filter(|_| arg.is_none());
            let value = match value {
                ArgValue::Absent if deferred.is_some() => {
                    let e = self.deferred_default(deferred, &subst, &ty, span);
                    ArgValue::Expr(self.convert_arg(param, e, &ty, mode))
                }
                // An `int` parameter of an extern accepts integers of any width, also directionless parameters of the
                // caller.
                ArgValue::Expr(e)
                    if mode == CallMode::Extern
                        && ty == Type::Int
                        && matches!(e.ty, Type::Bits { .. })
                        && e.as_const().is_none()
                        && self.is_known(&e, true) =>
                {
                    ty = e.ty.clone();
                    ArgValue::Expr(e)
                }
                ArgValue::Expr(e) => ArgValue::Expr(self.convert_arg(param, e, &ty, mode)),
                other => other,
            };
            result.push(Arg { param: param.name.clone(), direction: param.direction, ty, value });
        }
        Some((result, subst))
    }

    /// Checks a default value whose type depends on type arguments, which are now known.
    fn deferred_default(&mut self, default: Option<&'a ast::Expr>, subst: &Subst, ty: &Type, span: Span) -> Expr {
        let Some(default) = default else { return self.poison(span) };
        self.scopes.push();
        for (var, ty) in subst.found() {
            let name = self.prog.types.vars[var.index()].clone();
            // Two type parameters with the same name are reported at their declaration.
            let _ = self.scopes.declare(&name, Symbol::Type(TypeSymbol::Plain(ty)), span);
        }
        let value = self.expr(default, Some(ty));
        self.scopes.pop();
        Expr { span, ..value }
    }

    fn check_arg(&mut self, param: &SigParam, arg: &'a ast::Argument, subst: &mut Subst) -> ArgValue {
        let known = !self.unfinished(&param.ty, subst);
        let hint = if known { Some(self.subst(&param.ty, subst)) } else { None };
        if let ast::ExprKind::DontCare = arg.value.kind {
            if param.direction != Direction::Out {
                self.report(
                    Diagnostic::error(codes::DONT_CARE_VALUE, arg.span, format!("`{}` needs a value", param.name))
                        .help("`_` can only be an `out` argument"),
                );
                return ArgValue::Expr(self.poison(arg.span));
            }
            return ArgValue::DontCare;
        }
        let e = self.expr(&arg.value, hint.as_ref());
        if matches!(param.direction, Direction::Out | Direction::InOut) && !self.check_lvalue(&e) {
            return ArgValue::Expr(self.poison(e.span));
        }
        if !known {
            let ty = e.ty.clone();
            self.match_types(subst, &param.ty, &ty);
        }
        ArgValue::Expr(e)
    }

    /// Infers type arguments that the arguments leave open from the expected result type; reports those that remain
    /// open.
    fn finish_type_args(
        &mut self,
        sig: &Sig,
        subst: &mut Subst,
        expected: Option<&Type>,
        values: &[ArgValue],
        span: Span,
        mode: CallMode,
    ) {
        if subst.unfinished()
            && let Some(expected) = expected
        {
            self.match_types(subst, &sig.result, expected);
        }
        // Type parameters that only omitted arguments mention need no inference.
        let mut needed: Vec<&Type> =
            sig.params.iter().zip(values).filter(|(_, v)| !matches!(v, ArgValue::Absent)).map(|(p, _)| &p.ty).collect();
        let package = mode == CallMode::Construct && !matches!(sig.result, Type::Extern(..));
        needed.push(&sig.result);
        let unbound = needed.into_iter().find_map(|ty| self.unbound_in(ty, subst));
        // A package may leave type arguments open, except those that one of its default values needs.
        let defaults = sig
            .params
            .iter()
            .zip(values)
            .filter(|(p, v)| matches!(v, ArgValue::Absent) && self.deferred_defaults.contains_key(&p.span));
        let open = defaults.into_iter().find_map(|(p, _)| self.unbound_in(&p.ty, subst));
        let is_broken = subst.met_unknown() || values.iter().any(|v| v.expr().is_some_and(|e| e.ty.is_unknown()));
        let Some(var) = open.or(unbound.filter(|_| !package)) else {
            // If an error has been reported already, an open type argument may be any type.
            let rest = if is_broken { Type::Unknown } else { Type::Void };
            subst.bind_rest(&rest);
            return;
        };
        if !is_broken {
            let name = self.prog.types.vars[var.index()].clone();
            self.report(
                Diagnostic::error(
                    codes::NOT_INFERRED,
                    span,
                    format!("the type argument `{name}` of {} is not known", sig.what),
                )
                .note(sig.span, "declared here")
                .help("write the type arguments: name<T>(…)"),
            );
        }
        subst.bind_rest(&Type::Unknown);
    }

    /// Reports type arguments of which there can be no values.
    fn check_type_args(&mut self, sig: &Sig, subst: &Subst, values: &[ArgValue], span: Span, mode: CallMode) {
        if mode == CallMode::Construct {
            return;
        }
        for (var, ty) in sig.type_params.iter().zip(subst.args(&sig.type_params)) {
            let used = sig.params.iter().zip(values).any(|(p, v)| {
                p.ty == Type::Var(*var) && p.direction != Direction::None && !matches!(v, ArgValue::Absent)
            });
            let bad = match ty {
                Type::Parser(_) | Type::Control(_) | Type::Block(..) | Type::ApplyResult(_) | Type::ActionEnum(_) => {
                    true
                }
                Type::Extern(..) | Type::String => used,
                Type::Void => used || sig.result == Type::Var(*var),
                _ => false,
            };
            if bad {
                let message = format!("{} cannot be used with values of type `{}`", sig.what, self.show(&ty));
                self.report(Diagnostic::error(codes::BAD_TYPE_ARGUMENT, span, message).note(sig.span, "declared here"));
            }
            if self.is_anonymous(&ty) {
                let place = sig.params.iter().zip(values).find(|(p, _)| p.ty == Type::Var(*var));
                let place = place.and_then(|(_, v)| v.expr()).map_or(span, |e| e.span);
                self.report(
                    Diagnostic::error(codes::SHAPE_UNKNOWN, place, "the struct type of this record is not known here")
                        .note(sig.span, format!("{} takes values of any type", sig.what))
                        .help("cast it: (S) { … }"),
                );
            }
        }
    }

    fn convert_arg(&mut self, param: &SigParam, e: Expr, ty: &Type, mode: CallMode) -> Expr {
        if e.ty.is_unknown() {
            return e;
        }
        if matches!(param.direction, Direction::Out | Direction::InOut) {
            if e.ty != *ty && !ty.is_unknown() {
                let message = format!(
                    "`{}` is of type `{}`, the argument of type `{}`",
                    param.name,
                    self.show(ty),
                    self.show(&e.ty)
                );
                self.report(
                    Diagnostic::error(codes::OUT_ARGUMENT, e.span, message)
                        .help("there are no conversions for `out` and `inout`: use a variable of the right type"),
                );
                return Expr { ty: Type::Unknown, ..e };
            }
            return e;
        }
        let before = self.diags.len();
        let e = self.coerce(e, ty);
        self.note_origin(before, param.span, "the parameter");
        let compile_time = match mode {
            CallMode::Free => false,
            CallMode::Extern => param.direction == Direction::None && !matches!(ty, Type::Extern(..)),
            CallMode::Construct => true,
        };
        let known = match mode {
            CallMode::Extern => self.is_known(&e, true),
            CallMode::Construct if self.is_extern_result(&e) => true,
            _ => self.is_compile_time(&e),
        };
        if compile_time && !known {
            self.report(
                Diagnostic::error(
                    codes::NOT_CONSTANT,
                    e.span,
                    format!("`{}` must be known at compile time", param.name),
                )
                .note(param.span, "the parameter has no direction"),
            );
        } else if param.direction == Direction::In
            && mode != CallMode::Construct
            && !ty.is_unknown()
            && self.has_int(&e.ty)
        {
            self.report(
                Diagnostic::error(codes::WIDTH_NEEDED, e.span, format!("the value for `{}` needs a width", param.name))
                    .help("write numbers with a width, as 32w5"),
            );
        }
        e
    }

    /// Whether an expression is a call of an extern function with compile-time known arguments. Such a call is accepted
    /// as a constructor argument, since the architecture may evaluate it at compile time.
    fn is_extern_result(&self, e: &Expr) -> bool {
        let ExprKind::Call(call) = &e.kind else { return false };
        let known = |a: &Arg| a.value.expr().is_none_or(|e| self.is_compile_time(e));
        matches!(call.callee, Callee::ExternFunction(_)) && call.args.iter().all(known)
    }

    /// Whether a type is the anonymous struct type of a record.
    pub(super) fn is_anonymous(&self, ty: &Type) -> bool {
        matches!(ty, Type::Struct(id) if self.prog.types.structs[id.index()].name.is_empty())
    }

    /// Whether a type contains `int`.
    pub(super) fn has_int(&self, ty: &Type) -> bool {
        match ty {
            Type::Int => true,
            Type::Tuple(types) => types.iter().any(|t| self.has_int(t)),
            Type::Struct(id) => self.prog.types.structs[id.index()].fields.iter().any(|f| self.has_int(&f.ty)),
            _ => false,
        }
    }
}

/// Whether the arguments match a signature in number and names.
fn accepts(sig: &Sig, args: &[ast::Argument]) -> bool {
    let given = |i: usize, p: &SigParam| match args.first() {
        Some(ast::Argument { name: Some(_), .. }) => {
            args.iter().any(|a| a.name.as_ref().is_some_and(|n| n.text == p.name))
        }
        _ => i < args.len(),
    };
    let named_exist = args.iter().all(|a| a.name.as_ref().is_none_or(|n| sig.params.iter().any(|p| p.name == n.text)));
    args.len() <= sig.params.len()
        && named_exist
        && sig.params.iter().enumerate().all(|(i, p)| given(i, p) || p.optional)
}

fn count(n: usize) -> String {
    match n {
        0 => "no arguments".to_string(),
        1 => "1 argument".to_string(),
        n => format!("{n} arguments"),
    }
}
