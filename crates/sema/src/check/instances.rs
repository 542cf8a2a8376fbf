//! Instantiations: declarations, constructor calls, and implementations of abstract methods.
//!
//! Specification: P4_16, "Instantiations", "Constructor invocations", "Instantiating objects with abstract methods".

use super::calls::CallMode;
use super::generics::Subst;
use super::literals::quoted;
use super::{Checker, Owner, Place, Sig};
use crate::codes;
use crate::scope::{Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use base::{Diagnostic, Span};
use std::rc::Rc;
use std::sync::Arc;
use syntax::ast;

/// The name and context of an instantiation.
#[derive(Default)]
pub(crate) struct NewInstance<'a> {
    /// The declared name; `None` if anonymous.
    pub name: Option<&'a ast::Name>,
    pub span: Span,
    pub annotations: Vec<Annotation>,
    /// The control-plane name of an anonymous instance, if it is not the type's name.
    pub control_name: Option<ControlName>,
    pub body: Option<&'a [ast::Decl]>,
    /// The type of the parameter that it is an argument for.
    pub expected: Option<Type>,
    /// Number of objects, in an array of externs.
    pub count: Option<u32>,
}

impl<'a> Checker<'a> {
    /// `T(args) name;`
    pub(super) fn instantiation(&mut self, decl: &'a ast::Decl, inst: &'a ast::Instantiation) {
        let annotations = self.annotations(&decl.annotations);
        let new = NewInstance {
            name: Some(&decl.name),
            span: decl.span,
            annotations,
            control_name: None,
            body: inst.body.as_deref(),
            expected: None,
            count: None,
        };
        let made = match &inst.ty.kind {
            ast::TypeKind::Named { path, args } => match self.type_symbol(path) {
                Some(symbol) => self.instantiate(&symbol, args, &inst.args, new),
                None => {
                    self.check_stray(&inst.args);
                    None
                }
            },
            ast::TypeKind::Array(element, size) => self.instance_array(element, size, inst, new),
            _ => {
                let message = "only externs, parsers, controls and packages have instances";
                self.error(codes::BAD_INSTANCE, inst.ty.span, message);
                None
            }
        };
        if let (Owner::Program, Some((_, Type::Parser(_) | Type::Control(_)))) = (self.body.owner, &made) {
            self.report(
                Diagnostic::error(
                    codes::INSTANCE_PLACE,
                    decl.name.span,
                    "parsers and controls cannot be instantiated at top level",
                )
                .help("write the constructor call where the instance is used"),
            );
        }
        let symbol = match made {
            Some((reference, ty)) => Symbol::Instance(reference, ty),
            None => Symbol::Broken,
        };
        self.declare(&decl.name, symbol);
    }

    /// `T(args) name[n];` for externs: `n` objects with the same name, distinguished by an index.
    fn instance_array(
        &mut self,
        element: &'a ast::TypeRef,
        size: &'a ast::Expr,
        inst: &'a ast::Instantiation,
        new: NewInstance<'a>,
    ) -> Option<(InstanceRef, Type)> {
        let count = self.width(size, 1)?;
        let ast::TypeKind::Named { path, args } = &element.kind else {
            self.error(codes::BAD_INSTANCE, element.span, "only externs have arrays of instances");
            return None;
        };
        let symbol = self.type_symbol(path)?;
        let new = NewInstance { count: Some(count), ..new };
        let (reference, ty) = self.instantiate(&symbol, args, &inst.args, new)?;
        if !matches!(ty, Type::Extern(..)) {
            self.error(codes::BAD_INSTANCE, element.span, "only externs have arrays of instances");
            return None;
        }
        Some((reference, Type::Stack(Arc::new(ty), count)))
    }

    /// `T(args)` in an expression.
    pub(super) fn constructor_call(
        &mut self,
        symbol: &TypeSymbol,
        path: &ast::Path,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        if let (TypeSymbol::Plain(ty), [arg]) = (symbol, args)
            && matches!(self.prog.types.underlying(ty), Type::Bits { .. } | Type::Bool)
        {
            self.report(
                Diagnostic::error(codes::CAST_AS_CALL, span, format!("`{path}` has no constructor"))
                    .help(format!("a cast is written ({path}) …")),
            );
            self.expr(&arg.value, None);
            return self.poison(span);
        }
        match self.instantiate(
            symbol,
            type_args,
            args,
            NewInstance { span, expected: expected.cloned(), ..NewInstance::default() },
        ) {
            Some((reference, ty)) => Expr { kind: ExprKind::Instance(reference), ty, span },
            None => self.poison(span),
        }
    }

    /// Adds an instance to its owner.
    pub(super) fn instantiate(
        &mut self,
        symbol: &TypeSymbol,
        type_args: &'a [ast::TypeRef],
        args: &'a [ast::Argument],
        new: NewInstance<'a>,
    ) -> Option<(InstanceRef, Type)> {
        let span = new.span;
        if matches!(self.body.place, Place::Function | Place::Action) {
            self.report(
                Diagnostic::error(codes::INSTANCE_PLACE, span, "nothing can be instantiated in functions and actions")
                    .help("declare the instance in the control, or at top level"),
            );
            return None;
        }
        let (sig, subst, constructor, control_name) =
            self.constructor(symbol, type_args, args, new.expected.as_ref(), span)?;
        let (args, subst) = self.check_args(&sig, subst, type_args, args, None, span, CallMode::Construct)?;
        let ty = match symbol {
            TypeSymbol::GenericBlock(index) => self.generic_block_type(*index, &subst, span),
            _ => self.subst(&sig.result, &subst),
        };
        if let (TypeSymbol::GenericBlock(_), Type::Unknown) = (symbol, &ty) {
            return None;
        }
        let (inner, outer) = match (&ty, self.body.owner) {
            (Type::Parser(_), Owner::Control(_)) => ("parser", "control"),
            (Type::Control(_), Owner::Parser(_)) => ("control", "parser"),
            _ => ("", ""),
        };
        if !inner.is_empty() {
            let message = format!("a {inner} cannot be instantiated in a {outer}");
            self.error(codes::INSTANCE_PLACE, new.name.map_or(span, |n| n.span), message);
            return None;
        }
        self.check_methods_of(&ty, span);
        let methods = self.abstract_methods(&ty, new.body, span);
        let type_name: Arc<str> = control_name.name.as_str().into();
        let control_name = match (new.name, new.control_name) {
            (Some(name), _) => self.control_name(&name.text, &new.annotations),
            (None, Some(given)) => given,
            (None, None) => control_name,
        };
        let decl = InstanceDecl {
            name: new.name.map_or(type_name, |n| n.text.clone()),
            anonymous: new.name.is_none(),
            ty: ty.clone(),
            constructor,
            count: new.count,
            args,
            methods,
            control_name,
            annotations: new.annotations,
            span: new.name.map_or(span, |n| n.span),
        };
        let list = match self.body.owner {
            Owner::Program => &mut self.prog.globals,
            Owner::Parser(_) | Owner::Control(_) => &mut self.body.instances,
        };
        list.push(decl);
        let index = list.len() as u32 - 1;
        let reference = match self.body.owner {
            Owner::Program => InstanceRef::Global(index),
            _ => InstanceRef::Local(index),
        };
        Some((reference, ty))
    }

    /// The constructor to call: its signature (with the instance's type as return type), type variables and index, and
    /// the control-plane name of an anonymous instance.
    fn constructor(
        &mut self,
        symbol: &TypeSymbol,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        expected: Option<&Type>,
        span: Span,
    ) -> Option<(Rc<Sig>, Subst, Option<u32>, ControlName)> {
        let named = |name: &str| ControlName { name: name.to_string(), ..ControlName::default() };
        // An anonymous instance is named after its type as declared; a `@name` on the type does not apply to it.
        let unnamed = |declared: &str, of: &ControlName| ControlName { hidden: of.hidden, ..named(declared) };
        match symbol {
            TypeSymbol::Plain(Type::Unknown) => None,
            TypeSymbol::Plain(ty @ Type::Parser(id)) => {
                self.check_open(ty, span)?;
                let sig = Sig { result: ty.clone(), ..(*self.parser_sigs[id.index()].1).clone() };
                let parser = &self.prog.parsers[id.index()];
                let name = unnamed(&parser.name, &parser.control_name);
                Some((Rc::new(sig), Subst::none(), None, name))
            }
            TypeSymbol::Plain(ty @ Type::Control(id)) => {
                self.check_open(ty, span)?;
                let sig = Sig { result: ty.clone(), ..(*self.control_sigs[id.index()].1).clone() };
                let control = &self.prog.controls[id.index()];
                let name = unnamed(&control.name, &control.control_name);
                Some((Rc::new(sig), Subst::none(), None, name))
            }
            TypeSymbol::Plain(Type::Extern(id, given)) => {
                let subst = Subst::of(&self.prog.externs[id.index()].type_params, given);
                self.extern_constructor(*id, Some(given.clone()), subst, args, span)
            }
            TypeSymbol::Extern(id) => self.extern_constructor(*id, None, Subst::none(), args, span),
            TypeSymbol::Plain(Type::Block(id, given)) => {
                let info = &self.prog.types.block_types[id.index()];
                let (name, vars) = (named(&info.name), info.type_params.clone());
                let Some(sig) = self.package_sigs.get(id).cloned() else { return self.no_instances(symbol, span) };
                let sig = Sig { type_params: Vec::new(), ..(*sig).clone() };
                Some((Rc::new(sig), Subst::of(&vars, given), None, name))
            }
            TypeSymbol::Block(id) => {
                let name = named(&self.prog.types.block_types[id.index()].name);
                let Some(sig) = self.package_sigs.get(id).cloned() else { return self.no_instances(symbol, span) };
                Some((sig, Subst::none(), None, name))
            }
            TypeSymbol::GenericBlock(index) => {
                let name = named(self.generic_block_name(*index));
                let (sig, subst) = self.generic_block_constructor(*index, type_args, expected);
                Some((Rc::new(sig), subst, None, name))
            }
            _ => self.no_instances(symbol, span),
        }
    }

    fn no_instances<T>(&mut self, symbol: &TypeSymbol, span: Span) -> Option<T> {
        let what = match symbol {
            TypeSymbol::Plain(ty) => self.show(ty),
            TypeSymbol::Generic(index) => self.generic_structs[*index].name.to_string(),
            TypeSymbol::Extern(id) => self.prog.externs[id.index()].name.to_string(),
            TypeSymbol::Block(id) => self.prog.types.block_types[id.index()].name.to_string(),
            TypeSymbol::GenericBlock(index) => self.generic_block_name(*index).to_string(),
        };
        self.report(
            Diagnostic::error(codes::BAD_INSTANCE, span, format!("`{what}` has no instances"))
                .help("only externs, declared parsers and controls, and packages have"),
        );
        None
    }

    /// Reports an instance of a block within itself; `None` in that case.
    fn check_open(&mut self, ty: &Type, span: Span) -> Option<()> {
        if self.open_blocks.contains(ty) {
            let message = format!("`{}` would contain an instance of itself", self.show(ty));
            self.error(codes::NESTED_INSTANCES, span, message);
            return None;
        }
        Some(())
    }

    fn extern_constructor(
        &mut self,
        id: ExternId,
        given: Option<Arc<[Type]>>,
        subst: Subst,
        args: &[ast::Argument],
        span: Span,
    ) -> Option<(Rc<Sig>, Subst, Option<u32>, ControlName)> {
        let declared = &self.prog.externs[id.index()];
        let name = declared.name.clone();
        let type_params = declared.type_params.clone();
        let (annotations, place) = (declared.annotations.clone(), declared.span);
        let candidates: Vec<usize> =
            (0..declared.methods.len()).filter(|i| declared.methods[*i].kind == MethodKind::Constructor).collect();
        self.warn_deprecated(&format!("extern `{name}`"), &annotations, span, place);
        if candidates.is_empty() {
            self.report(
                Diagnostic::error(codes::BAD_INSTANCE, span, format!("extern `{name}` has no constructor"))
                    .note(place, "declared here"),
            );
            return None;
        }
        let sigs: Vec<Rc<Sig>> = candidates.iter().map(|i| self.method_sigs[id.index()][*i].clone()).collect();
        let chosen = self.choose(&sigs, args, span, &format!("constructor of `{name}`"))?;
        let result = match &given {
            Some(types) => Type::Extern(id, types.clone()),
            None => Type::Extern(id, type_params.iter().map(|v| Type::Var(*v)).collect()),
        };
        let type_params = if given.is_some() { Vec::new() } else { type_params };
        let sig = Sig { type_params, result, ..(*sigs[chosen]).clone() };
        let control_name = ControlName { name: name.to_string(), ..ControlName::default() };
        Some((Rc::new(sig), subst, Some(candidates[chosen] as u32), control_name))
    }

    /// Checks the implementations of abstract methods.
    fn abstract_methods(&mut self, ty: &Type, body: Option<&'a [ast::Decl]>, span: Span) -> Vec<(u32, FunctionId)> {
        let Type::Extern(id, type_args) = ty else {
            if let Some(body) = body {
                self.check_stray_methods(body);
                self.error(codes::WRONG_IMPLEMENTATION, span, "only instances of externs implement methods");
            }
            return Vec::new();
        };
        let declared = self.prog.externs[id.index()].clone();
        if let Some(body) = body
            && declared.methods.iter().all(|m| m.kind != MethodKind::Abstract)
        {
            self.check_stray_methods(body);
            let message = format!("extern `{}` has no abstract methods to implement", declared.name);
            self.report(Diagnostic::error(codes::NO_SUCH_METHOD, span, message).note(declared.span, "declared here"));
            return Vec::new();
        }
        let mut result: Vec<(u32, FunctionId)> = Vec::new();
        self.scopes.push();
        for decl in body.unwrap_or_default() {
            match &decl.kind {
                ast::DeclKind::Instantiation(inst) => self.instantiation(decl, inst),
                ast::DeclKind::Function(function) => {
                    let found = declared.methods.iter().position(|m| {
                        m.kind == MethodKind::Abstract
                            && m.name == decl.name.text
                            && function.proto.params.len() <= m.params.len()
                            && m.params[function.proto.params.len()..].iter().all(|p| p.optional)
                    });
                    let Some(method) = found else {
                        let names: Vec<&str> = declared
                            .methods
                            .iter()
                            .filter(|m| m.kind == MethodKind::Abstract)
                            .map(|m| &*m.name)
                            .collect();
                        let message = format!("extern `{}` has no abstract method `{}`", declared.name, decl.name);
                        let place = declared.span;
                        self.unknown_member(codes::NO_SUCH_METHOD, &decl.name, message, place, names.into_iter());
                        continue;
                    };
                    let function_id = self.method_body(decl, function, ty.clone());
                    self.check_implementation(&declared, method, type_args, function_id, decl.name.span);
                    result.push((method as u32, function_id));
                }
                _ => {
                    let message = format!("a {} cannot be declared here", decl.kind.noun());
                    self.error(syntax::codes::MISPLACED, decl.span, message);
                }
            }
        }
        self.scopes.pop();
        let missing: Vec<&str> = declared
            .methods
            .iter()
            .enumerate()
            .filter(|(i, m)| {
                m.kind == MethodKind::Abstract
                    && !result.iter().any(|(j, _)| *j as usize == *i)
                    && find_annotation(&m.annotations, "optional").is_none()
            })
            .map(|(_, m)| &*m.name)
            .collect();
        if !missing.is_empty() {
            let message = format!("the instance does not implement {}", quoted(&missing));
            self.report(Diagnostic::error(codes::NOT_IMPLEMENTED, span, message).note(declared.span, "declared here"));
        }
        result
    }

    /// Checks the signatures of methods that implement no abstract method, to report errors within them.
    fn check_stray_methods(&mut self, body: &'a [ast::Decl]) {
        for decl in body {
            if let ast::DeclKind::Function(function) = &decl.kind {
                self.scopes.push();
                self.type_params(&function.proto.type_params);
                if !matches!(function.proto.result.kind, ast::TypeKind::DontCare) {
                    self.resolve_type(&function.proto.result);
                }
                self.sig_params(&function.proto.params, false);
                self.scopes.pop();
            }
        }
    }

    /// Reports type arguments of an extern that its methods cannot have as parameter types.
    fn check_methods_of(&mut self, ty: &Type, span: Span) {
        let Type::Extern(id, type_args) = ty else { return };
        if type_args.iter().any(Type::is_unknown) {
            return;
        }
        let (vars, methods) = {
            let declared = &self.prog.externs[id.index()];
            (declared.type_params.clone(), declared.methods.clone())
        };
        for method in &methods {
            for param in method.params.iter().filter(|p| p.direction != Direction::None) {
                let Type::Var(var) = param.ty else { continue };
                let Some(at) = vars.iter().position(|v| *v == var) else { continue };
                let Some(given @ (Type::Extern(..) | Type::Block(..) | Type::Int | Type::String)) = type_args.get(at)
                else {
                    continue;
                };
                let message = format!(
                    "`{}` cannot be the type argument: `{}` of method `{}` would have a direction",
                    self.show(given),
                    param.name,
                    method.name
                );
                self.report(
                    Diagnostic::error(codes::BAD_TYPE_ARGUMENT, span, message).note(param.span, "this parameter"),
                );
                return;
            }
        }
    }

    fn check_implementation(
        &mut self,
        declared: &Extern,
        method: usize,
        type_args: &[Type],
        id: FunctionId,
        span: Span,
    ) {
        let wanted = &declared.methods[method];
        let mut agree = true;
        let function = self.prog.functions[id.index()].clone();
        for (want, have) in wanted.params.iter().zip(&function.params) {
            let ty = self.subst_type(&want.ty, &declared.type_params, type_args);
            agree &= want.direction == have.direction && (ty == have.ty || have.ty.is_unknown());
        }
        let result = self.subst_type(&wanted.result, &declared.type_params, type_args);
        agree &= result == function.result || function.result.is_unknown();
        if !agree {
            self.report(
                Diagnostic::error(
                    codes::WRONG_IMPLEMENTATION,
                    span,
                    format!("`{}` has another signature than declared", wanted.name),
                )
                .note(wanted.span, "declared here"),
            );
        }
    }
}
