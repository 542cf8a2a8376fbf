//! Method calls: methods of externs, headers and stacks; `apply` of tables, parsers and controls; sizes of types.
//!
//! Specification: P4_16, "Method invocations and function calls", "Operations on headers", "Operations on header
//! stacks", "Direct type invocation", "Compile-time size determination".

use super::calls::CallMode;
use super::expr::constant;
use super::generics::Subst;
use super::instances::NewInstance;
use super::{Checker, Place, Sig};
use crate::codes;
use crate::scope::Symbol;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use num_bigint::BigInt;
use std::rc::Rc;
use syntax::ast;

impl<'a> Checker<'a> {
    pub(super) fn call_member(
        &mut self,
        base: &'a ast::Expr,
        name: &'a ast::Name,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        if let ast::ExprKind::Path(path) = &base.kind
            && let Some(Symbol::Table(table)) = self.scopes.lookup(&path.name.text).map(|e| &e.symbol)
        {
            let table = *table;
            return self.table_apply(table, name, args, span);
        }
        if let Some(ty) = self.type_of_name(base) {
            return self.call_on_type(&ty, base, name, type_args, args, span);
        }
        let base = self.expr(base, None);
        if base.ty.is_unknown() {
            self.check_stray(args);
            return self.poison(span);
        }
        if let Some(size) = self.size_method(&base.ty, name, type_args, args, span) {
            return size;
        }
        match base.ty.clone() {
            Type::Header(_) | Type::HeaderUnion(_) if matches!(&*name.text, "isValid" | "setValid" | "setInvalid") => {
                self.validity(base, name, args, span)
            }
            Type::Stack(..) if matches!(&*name.text, "push_front" | "pop_front") => {
                self.push_pop(base, name, args, span)
            }
            Type::Parser(_) | Type::Control(_) | Type::Block(..) if &*name.text == "apply" => {
                let ExprKind::Instance(reference) = base.kind else { return self.poison(span) };
                self.apply_block(reference, &base.ty, type_args, args, span)
            }
            Type::Extern(id, extern_args) => {
                self.extern_method(base, id, &extern_args, name, type_args, args, expected, span)
            }
            Type::ApplyResult(_) if matches!(&*name.text, "hit" | "miss" | "action_run") => {
                let message = format!("`{name}` is not a method");
                self.report(
                    Diagnostic::error(codes::NO_SUCH_METHOD, name.span, message)
                        .help(format!("it is a field: write `apply().{name}` without parentheses after it")),
                );
                self.check_stray(args);
                self.poison(span)
            }
            ty => {
                let methods: &[&str] = match ty {
                    Type::Header(_) => &["isValid", "setValid", "setInvalid", "minSizeInBits", "minSizeInBytes"],
                    Type::HeaderUnion(_) => &["isValid"],
                    Type::Stack(..) => &["push_front", "pop_front"],
                    Type::Parser(_) | Type::Control(_) | Type::Block(..) => &["apply"],
                    _ => &[],
                };
                let message = format!("`{}` has no method `{name}`", self.show(&ty));
                self.unknown_name(codes::NO_SUCH_METHOD, name, message, methods.iter().copied());
                self.check_stray(args);
                self.poison(span)
            }
        }
    }

    fn no_args(&mut self, name: &ast::Name, args: &[ast::Argument], span: Span) {
        if !args.is_empty() {
            self.error(codes::ARGUMENT_COUNT, span, format!("`{name}` takes no arguments"));
        }
    }

    fn table_apply(&mut self, table: TableId, name: &ast::Name, args: &[ast::Argument], span: Span) -> Expr {
        if matches!(&*name.text, "hit" | "miss" | "action_run") {
            let of = self.prog.tables[table.index()].name.clone();
            let message = format!("a table has no method `{name}`");
            self.report(
                Diagnostic::error(codes::NO_SUCH_METHOD, name.span, message)
                    .help(format!("test it where the table is applied: `{of}.apply().{name}`")),
            );
            return self.poison(span);
        }
        if &*name.text != "apply" {
            self.unknown_name(
                codes::NO_SUCH_METHOD,
                name,
                format!("a table has no method `{name}`"),
                ["apply"].into_iter(),
            );
            return self.poison(span);
        }
        self.no_args(name, args, span);
        if self.open_table == Some(table) {
            let place = self.prog.tables[table.index()].span;
            self.report(
                Diagnostic::error(codes::NOT_HERE, span, "a table cannot apply itself").note(place, "the table"),
            );
            return self.poison(span);
        }
        if self.body.place != Place::Apply {
            self.report(
                Diagnostic::error(
                    codes::NOT_HERE,
                    span,
                    "a table can only be applied in the `apply` block of its control",
                )
                .note(self.prog.tables[table.index()].span, "the table")
                .help(match self.body.place {
                    Place::Action => "an action cannot apply tables: apply this one after the table that runs the action, as in `if (t.apply().hit)`",
                    _ => "move it into the `apply` block",
                }),
            );
        }
        let ty = Type::ApplyResult(table);
        let call = Call {
            callee: Callee::TableApply(table),
            type_args: Vec::new(),
            args: Vec::new(),
            result: ty.clone(),
            span,
        };
        Expr { kind: ExprKind::Call(Box::new(call)), ty, span }
    }

    /// `C.apply(args)` on the name of a type, and sizes of types.
    fn call_on_type(
        &mut self,
        ty: &Type,
        base: &'a ast::Expr,
        name: &'a ast::Name,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        span: Span,
    ) -> Expr {
        if ty.is_unknown() {
            return self.poison(span);
        }
        if let Some(size) = self.size_method(ty, name, type_args, args, span) {
            return size;
        }
        if !matches!(ty, Type::Parser(_) | Type::Control(_)) || &*name.text != "apply" {
            let message = format!("the type `{}` has no method `{name}`", self.show(ty));
            self.error(codes::NO_SUCH_METHOD, name.span, message);
            return self.poison(span);
        }
        let new = NewInstance { span: base.span, ..NewInstance::default() };
        match self.instantiate(&crate::scope::TypeSymbol::Plain(ty.clone()), &[], &[], new) {
            Some((reference, ty)) => self.apply_block(reference, &ty, &[], args, span),
            None => self.poison(span),
        }
    }

    /// `minSizeInBits()` and similar methods, folded; `None` for another method or a type without a size.
    fn size_method(
        &mut self,
        ty: &Type,
        name: &ast::Name,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        span: Span,
    ) -> Option<Expr> {
        let (max, bytes) = match &*name.text {
            "minSizeInBits" => (false, false),
            "minSizeInBytes" => (false, true),
            "maxSizeInBits" => (true, false),
            "maxSizeInBytes" => (true, true),
            _ => return None,
        };
        let bits = self.prog.types.width_bits(ty, max)?;
        self.no_args(name, args, span);
        if !type_args.is_empty() && args.is_empty() {
            self.error(codes::TYPE_ARGUMENT_COUNT, span, format!("`{name}` takes no type arguments"));
        }
        let size = if bytes { bits.div_ceil(8) } else { bits };
        Some(constant(Value::Int(BigInt::from(size)), Type::Int, span))
    }

    fn validity(&mut self, base: Expr, name: &ast::Name, args: &[ast::Argument], span: Span) -> Expr {
        self.no_args(name, args, span);
        let builtin = match &*name.text {
            "isValid" => Builtin::IsValid,
            "setValid" => Builtin::SetValid,
            _ => Builtin::SetInvalid,
        };
        if builtin != Builtin::IsValid {
            if let Type::HeaderUnion(_) = base.ty {
                self.report(
                    Diagnostic::error(
                        codes::NO_SUCH_METHOD,
                        name.span,
                        format!("a header union has no method `{name}`"),
                    )
                    .help("call it on one of its members"),
                );
                return self.poison(span);
            }
            if !self.check_lvalue(&base) {
                return self.poison(span);
            }
        }
        if let (Builtin::IsValid, ExprKind::Const(value)) = (builtin, &base.kind) {
            return constant(Value::Bool(*value != Value::Invalid), Type::Bool, span);
        }
        let result = if builtin == Builtin::IsValid { Type::Bool } else { Type::Void };
        builtin_call(builtin, base, Vec::new(), result, span)
    }

    fn push_pop(&mut self, base: Expr, name: &ast::Name, args: &'a [ast::Argument], span: Span) -> Expr {
        let builtin = if &*name.text == "push_front" { Builtin::PushFront } else { Builtin::PopFront };
        if !self.check_lvalue(&base) {
            return self.poison(span);
        }
        let [arg] = args else {
            self.error(codes::ARGUMENT_COUNT, span, format!("`{name}` takes 1 argument, the count"));
            return self.poison(span);
        };
        let count = self.expr(&arg.value, Some(&Type::Int));
        let count = self.strip_enum(count);
        let value = match self.const_int(&count) {
            Some(n) if n.sign() != num_bigint::Sign::Minus => n,
            Some(_) => {
                self.error(codes::OUT_OF_RANGE, count.span, format!("`{name}` takes a positive count"));
                return self.poison(span);
            }
            None if count.ty.is_unknown() => return self.poison(span),
            None => {
                self.error(
                    codes::NOT_CONSTANT,
                    count.span,
                    format!("the count of `{name}` must be known at compile time"),
                );
                return self.poison(span);
            }
        };
        let arg = Arg {
            param: "count".into(),
            direction: Direction::None,
            ty: Type::Int,
            value: ArgValue::Expr(constant(Value::Int(value), Type::Int, count.span)),
        };
        builtin_call(builtin, base, vec![arg], Type::Void, span)
    }

    /// `instance.apply(args)`.
    fn apply_block(
        &mut self,
        reference: InstanceRef,
        ty: &Type,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        span: Span,
    ) -> Expr {
        let Some((kind, params)) = self.block_params(ty) else { return self.poison(span) };
        let (callee, place, text) = match kind {
            BlockKind::Parser => (Callee::ParserApply(reference), Place::ParserState, "parser states"),
            BlockKind::Control => (Callee::ControlApply(reference), Place::Apply, "the `apply` block of a control"),
            BlockKind::Package => {
                self.error(codes::NOT_HERE, span, "a package cannot be applied");
                return self.poison(span);
            }
        };
        if self.body.place != place {
            let what = if kind == BlockKind::Parser { "parser" } else { "control" };
            self.error(codes::NOT_HERE, span, format!("a {what} can only be applied in {text}"));
        }
        let declared = match ty {
            Type::Parser(id) => self.parser_sigs[id.index()].0.span,
            Type::Control(id) => self.control_sigs[id.index()].0.span,
            _ => Span::NONE,
        };
        let what = format!("`{}`", self.show(ty));
        let sig = Sig {
            what,
            span: declared,
            type_params: Vec::new(),
            hidden_params: Vec::new(),
            params,
            result: Type::Void,
        };
        let Some((args, _)) = self.check_args(&sig, Subst::none(), type_args, args, None, span, CallMode::Free) else {
            return self.poison(span);
        };
        let call = Call { callee, type_args: Vec::new(), args, result: Type::Void, span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }

    #[allow(clippy::too_many_arguments, reason = "a call is that")]
    fn extern_method(
        &mut self,
        object: Expr,
        id: ExternId,
        extern_args: &[Type],
        name: &ast::Name,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        let declared = &self.prog.externs[id.index()];
        let candidates: Vec<usize> = (0..declared.methods.len())
            .filter(|i| declared.methods[*i].name == name.text && declared.methods[*i].kind != MethodKind::Constructor)
            .collect();
        if candidates.is_empty() {
            let mut names: Vec<String> = declared
                .methods
                .iter()
                .filter(|m| m.kind != MethodKind::Constructor)
                .map(|m| m.name.to_string())
                .collect();
            // Overloads have the same name several times.
            names.dedup();
            let place = declared.span;
            let message = format!("extern `{}` has no method `{name}`", declared.name);
            self.unknown_member(codes::NO_SUCH_METHOD, name, message, place, names.iter().map(|s| s.as_str()));
            self.check_stray(args);
            return self.poison(span);
        }
        if self.body.place == Place::ControlLocals || self.body.place == Place::TopLevel {
            self.error(
                codes::METHOD_IN_DECLARATION,
                span,
                "methods of externs are called at run time, not in declarations",
            );
            return self.poison(span);
        }
        let sigs: Vec<Rc<Sig>> = candidates.iter().map(|i| self.method_sigs[id.index()][*i].clone()).collect();
        let Some(chosen) = self.choose(&sigs, args, span, &format!("method `{name}`")) else {
            self.check_stray(args);
            return self.poison(span);
        };
        let (method, sig) = (candidates[chosen], sigs[chosen].clone());
        let subst = Subst::of(&self.prog.externs[id.index()].type_params, extern_args);
        let before = self.diags.len();
        let Some((args, subst)) = self.check_args(&sig, subst, type_args, args, expected, span, CallMode::Extern)
        else {
            return self.poison(span);
        };
        let declared = &self.prog.externs[id.index()].methods[method];
        let (annotations, place) = (declared.annotations.clone(), declared.span);
        self.warn_deprecated(&sig.what, &annotations, span, place);
        let result = self.subst(&sig.result, &subst);
        if !base::diag::has_errors(&self.diags[before.min(self.diags.len())..]) {
            self.check_packet_method(id, name, &subst.args(&sig.type_params), args.len(), span);
        }
        let call = Call {
            callee: Callee::ExternMethod { object, extern_id: id, method: method as u32 },
            type_args: subst.args(&sig.type_params),
            args,
            result: result.clone(),
            span,
        };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: result, span }
    }
}

impl Checker<'_> {
    /// Checks the arguments of methods of `packet_in` and `packet_out` of `core.p4`.
    fn check_packet_method(&mut self, id: ExternId, name: &ast::Name, types: &[Type], args: usize, span: Span) {
        let object = self.prog.externs[id.index()].name.clone();
        let [ty] = types else { return };
        if ty.is_unknown() || self.has_var(ty) {
            return;
        }
        let varbits = self.varbits(ty);
        let shown = self.show(ty);
        let (message, help) = match (&*object, &*name.text) {
            ("packet_in", "extract") if !ty.is_header() => {
                (format!("`{shown}` is not a header"), "only headers are extracted")
            }
            ("packet_in", "extract") if args == 1 && varbits > 0 => (
                format!("`{shown}` has a `varbit` field, whose size is not given"),
                "write extract(header, size in bits)",
            ),
            ("packet_in", "extract") if args == 2 && varbits == 0 => {
                (format!("`{shown}` has no `varbit` field for the size"), "write extract(header)")
            }
            ("packet_in", "extract") if varbits > 1 => {
                self.two_varbits(ty, span);
                return;
            }
            ("packet_in", "lookahead") if varbits > 0 || self.prog.types.width_bits(ty, false).is_none() => {
                (format!("`{shown}` has no fixed size"), "look ahead at bits, headers or structs of fixed size")
            }
            ("packet_out", "emit") if !self.can_emit(ty) => {
                (format!("`{shown}` cannot be emitted"), "headers, stacks, unions, and structs of these are emitted")
            }
            _ => return,
        };
        self.report(Diagnostic::error(codes::BAD_PACKET_OPERATION, span, message).help(help));
    }

    /// Reports, at its fields, a header type that cannot be extracted.
    fn two_varbits(&mut self, ty: &Type, span: Span) {
        let fields = self.prog.types.struct_info(ty).map(|s| s.fields.clone()).unwrap_or_default();
        let mut variable = fields.iter().filter(|f| self.varbits(&f.ty) > 0).map(|f| f.span);
        let first = variable.next().unwrap_or(span);
        let message = format!("`{}` is extracted and has {} `varbit` fields", self.show(ty), self.varbits(ty));
        let mut d = Diagnostic::error(codes::BAD_PACKET_OPERATION, first, message);
        for other in variable {
            d = d.note(other, "another one");
        }
        self.report(d.note(span, "extracted here").help("a header that is extracted has at most one"));
    }

    fn varbits(&self, ty: &Type) -> usize {
        match ty {
            Type::Varbit(_) => 1,
            Type::Header(id) | Type::Struct(id) => {
                self.prog.types.structs[id.index()].fields.iter().map(|f| self.varbits(&f.ty)).sum()
            }
            _ => 0,
        }
    }

    fn can_emit(&self, ty: &Type) -> bool {
        match ty {
            Type::Header(_) | Type::HeaderUnion(_) | Type::Unknown => true,
            Type::Stack(element, _) => self.can_emit(element),
            Type::Struct(id) => self.prog.types.structs[id.index()].fields.iter().all(|f| self.can_emit(&f.ty)),
            Type::Tuple(types) => types.iter().all(|t| self.can_emit(t)),
            _ => false,
        }
    }
}

fn builtin_call(builtin: Builtin, base: Expr, args: Vec<Arg>, result: Type, span: Span) -> Expr {
    let call =
        Call { callee: Callee::Builtin(builtin, base), type_args: Vec::new(), args, result: result.clone(), span };
    Expr { kind: ExprKind::Call(Box::new(call)), ty: result, span }
}
