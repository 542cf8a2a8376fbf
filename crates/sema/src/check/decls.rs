//! Top-level declarations, and the parts of signatures: type parameters and parameters.

use super::{Checker, GenericStruct, Owner, Place, Sig};
use crate::codes;
use crate::consteval;
use crate::scope::{FunctionRef, Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::Diagnostic;
use std::rc::Rc;
use syntax::ast;

impl<'a> Checker<'a> {
    pub(super) fn top_level(&mut self, decl: &'a ast::Decl) {
        match &decl.kind {
            ast::DeclKind::Const(c) => self.const_decl(decl, c),
            ast::DeclKind::Variable(_) => self.report(
                Diagnostic::error(
                    syntax::codes::MISPLACED,
                    decl.span,
                    format!("the variable `{}` is declared outside of any block", decl.name),
                )
                .help("only constants and instances can be declared at top level"),
            ),
            ast::DeclKind::Instantiation(inst) => self.instantiation(decl, inst),
            ast::DeclKind::Action(action) => self.global_action(decl, action),
            ast::DeclKind::Function(function) => self.function(decl, function),
            ast::DeclKind::ExternFunction(proto) => self.extern_function(decl, proto),
            ast::DeclKind::ExternObject(object) => self.extern_object(decl, object),
            ast::DeclKind::Parser(parser) => self.parser(decl, parser),
            ast::DeclKind::Control(control) => self.control(decl, control),
            ast::DeclKind::ParserType(ty) => self.block_type(decl, ty, BlockKind::Parser),
            ast::DeclKind::ControlType(ty) => self.block_type(decl, ty, BlockKind::Control),
            ast::DeclKind::PackageType(ty) => self.block_type(decl, ty, BlockKind::Package),
            ast::DeclKind::Header(fields) => self.fields_decl(decl, fields, StructKind::Header),
            ast::DeclKind::HeaderUnion(fields) => self.fields_decl(decl, fields, StructKind::HeaderUnion),
            ast::DeclKind::Struct(fields) => self.fields_decl(decl, fields, StructKind::Struct),
            ast::DeclKind::Enum(e) => self.enum_decl(decl, e),
            ast::DeclKind::Error(members) => {
                let known = std::mem::take(&mut self.prog.errors);
                self.prog.errors = self.add_members(known, members, "error");
            }
            ast::DeclKind::MatchKind(members) => {
                let known = std::mem::take(&mut self.prog.match_kinds);
                self.prog.match_kinds = self.add_members(known, members, "match kind");
            }
            ast::DeclKind::Typedef(ast::TypedefDecl::Type(target)) => {
                self.annotations(&decl.annotations);
                let ty = self.resolve_type(target);
                if let Type::Void | Type::MatchKind = ty {
                    let message = format!("`{}` cannot be given another name", self.show(&ty));
                    self.error(codes::BAD_UNDERLYING_TYPE, target.span, message);
                }
                let symbol = match ty {
                    Type::Unknown => Symbol::Broken,
                    ty => Symbol::Type(TypeSymbol::Plain(ty)),
                };
                self.declare(&decl.name, symbol);
            }
            ast::DeclKind::Typedef(ast::TypedefDecl::Derived(inner)) => {
                self.top_level(inner);
                let symbol = match self.scopes.lookup_global(&inner.name.text).map(|e| e.symbol.clone()) {
                    Some(symbol @ Symbol::Type(_)) => symbol,
                    _ => Symbol::Broken,
                };
                self.declare(&decl.name, symbol);
            }
            ast::DeclKind::NewType(target) => self.new_type(decl, target),
            ast::DeclKind::Table(_) | ast::DeclKind::ValueSet(_) => {
                let message = format!("the {} `{}` is declared outside of any block", decl.kind.noun(), decl.name);
                self.error(syntax::codes::MISPLACED, decl.span, message);
            }
        }
    }

    pub(super) fn const_decl(&mut self, decl: &'a ast::Decl, c: &'a ast::ConstDecl) {
        // The typed program does not keep them, but they can contain errors.
        self.annotations(&decl.annotations);
        let ty = self.resolve_type(&c.ty);
        if matches!(ty, Type::Void | Type::Extern(..) | Type::Parser(_) | Type::Control(_) | Type::Block(..)) {
            let message = format!("there are no constants of type `{}`", self.show(&ty));
            self.error(codes::BAD_TYPE_HERE, c.ty.span, message);
        }
        let value = self.expr_as(&c.value, &ty);
        if !self.is_compile_time(&value) {
            self.report(
                Diagnostic::error(
                    codes::NOT_CONSTANT,
                    c.value.span,
                    format!("the value of `{}` is not known at compile time", decl.name),
                )
                .help("make it a variable"),
            );
            self.declare(&decl.name, Symbol::Broken);
            return;
        }
        if !super::limits::is_small(&value) {
            self.error(codes::TOO_LARGE, c.value.span, format!("the expression of `{}` is too large", decl.name));
            self.declare(&decl.name, Symbol::Broken);
            return;
        }
        let symbol = if value.ty.is_unknown() { Symbol::Broken } else { Symbol::Const(Rc::new(value)) };
        self.declare(&decl.name, symbol);
    }

    fn fields_decl(&mut self, decl: &'a ast::Decl, fields: &'a ast::FieldsDecl, kind: StructKind) {
        let annotations = self.annotations(&decl.annotations);
        let (name, span) = (decl.name.text.clone(), decl.name.span);
        if !fields.type_params.is_empty() {
            self.scopes.push();
            let type_params = self.type_params(&fields.type_params);
            let fields = self.resolve_fields(kind, &fields.fields);
            self.scopes.pop();
            let index = self.generic_structs.len();
            self.generic_structs.push(GenericStruct { name, kind, type_params, fields, annotations, span });
            self.declare(&decl.name, Symbol::Type(TypeSymbol::Generic(index)));
            return;
        }
        let fields = self.resolve_fields(kind, &fields.fields);
        let id = self.add_struct(StructInfo { name, kind, args: Vec::new(), fields, annotations, span });
        self.measure_struct(id, span);
        let ty = match kind {
            StructKind::Struct => Type::Struct(id),
            StructKind::Header => Type::Header(id),
            StructKind::HeaderUnion => Type::HeaderUnion(id),
        };
        self.declare(&decl.name, Symbol::Type(TypeSymbol::Plain(ty)));
    }

    fn enum_decl(&mut self, decl: &'a ast::Decl, e: &'a ast::EnumDecl) {
        let annotations = self.annotations(&decl.annotations);
        let repr = e.repr.as_ref().map(|t| (self.resolve_type(t), t.span));
        let repr = match repr {
            Some((ty @ Type::Bits { .. }, _)) => Some(ty),
            Some((Type::Unknown, _)) => {
                self.declare(&decl.name, Symbol::Broken);
                return;
            }
            Some((ty, span)) => {
                let message =
                    format!("the underlying type of an enum is `bit<W>` or `int<W>`, not `{}`", self.show(&ty));
                self.error(codes::BAD_UNDERLYING_TYPE, span, message);
                self.declare(&decl.name, Symbol::Broken);
                return;
            }
            None => None,
        };
        let id = EnumId::from_index(self.prog.types.enums.len());
        self.prog.types.enums.push(EnumInfo {
            name: decl.name.text.clone(),
            repr: repr.clone(),
            members: Vec::new(),
            annotations,
            span: decl.name.span,
        });
        let ty = if repr.is_some() { Type::SerEnum(id) } else { Type::Enum(id) };
        // Member values can refer to earlier members.
        self.declare(&decl.name, Symbol::Type(TypeSymbol::Plain(ty.clone())));
        self.scopes.push();
        for member in &e.members {
            let members = &self.prog.types.enums[id.index()].members;
            if let Some(first) = members.iter().find(|m| m.name == member.name.text).map(|m| m.span) {
                self.report(
                    Diagnostic::error(
                        codes::DECLARED_TWICE,
                        member.name.span,
                        format!("there are two members `{}`", member.name),
                    )
                    .note(first, "the first one"),
                );
                continue;
            }
            let value = self.enum_value(member, repr.as_ref());
            let annotations = self.annotations(&member.annotations);
            if let Some(value) = &value {
                let value = Expr { kind: ExprKind::Const(value.clone()), ty: ty.clone(), span: member.name.span };
                self.declare(&member.name, Symbol::Const(Rc::new(value)));
            }
            let info = EnumMember { name: member.name.text.clone(), value, annotations, span: member.name.span };
            self.prog.types.enums[id.index()].members.push(info);
        }
        self.scopes.pop();
    }

    fn enum_value(&mut self, member: &'a ast::Member, repr: Option<&Type>) -> Option<Value> {
        match (repr, &member.value) {
            (Some(repr), Some(value)) => {
                let e = self.expr(value, Some(repr));
                if let (Some(number), Type::Int) = (self.const_int(&e), &e.ty)
                    && !self.fits(&number, repr)
                {
                    let message = format!("{number} does not fit into `{}`", self.show(repr));
                    self.error(codes::OUT_OF_RANGE, value.span, message);
                    return consteval::default_value(&self.prog.types, repr);
                }
                let e = self.coerce(e, repr);
                let default = consteval::default_value(&self.prog.types, repr);
                match e.kind {
                    ExprKind::Const(v) if !e.ty.is_unknown() && v.as_bits().is_some() => Some(v),
                    ExprKind::Const(_) => default,
                    _ => {
                        self.error(
                            codes::NOT_CONSTANT,
                            value.span,
                            "the value of an enum member must be known at compile time",
                        );
                        default
                    }
                }
            }
            (Some(repr), None) => {
                self.report(
                    Diagnostic::error(
                        syntax::codes::UNEXPECTED_TOKEN,
                        member.name.span,
                        format!("`{}` needs a value", member.name),
                    )
                    .help("every member of an enum with underlying type has one: name = value"),
                );
                consteval::default_value(&self.prog.types, repr)
            }
            (None, Some(value)) => {
                self.report(
                    Diagnostic::error(
                        syntax::codes::MISPLACED,
                        value.span,
                        "members of an enum without underlying type have no value",
                    )
                    .help("write `enum bit<8> …`"),
                );
                None
            }
            (None, None) => None,
        }
    }

    fn add_members(
        &mut self,
        mut known: Vec<std::sync::Arc<str>>,
        members: &'a ast::MembersDecl,
        what: &str,
    ) -> Vec<std::sync::Arc<str>> {
        for member in &members.members {
            if known.contains(&member.name.text) {
                let message = format!("the {what} `{}` is declared twice", member.name);
                self.error(codes::DECLARED_TWICE, member.name.span, message);
            } else {
                known.push(member.name.text.clone());
            }
        }
        known
    }

    fn new_type(&mut self, decl: &'a ast::Decl, target: &'a ast::TypeRef) {
        let underlying = self.resolve_type(target);
        let annotations = self.annotations(&decl.annotations);
        let ok = matches!(underlying, Type::Bits { .. } | Type::Bool | Type::Newtype(_));
        if !ok {
            if !underlying.is_unknown() {
                let message = format!("`type` cannot be made from `{}`", self.show(&underlying));
                self.report(
                    Diagnostic::error(codes::BAD_UNDERLYING_TYPE, target.span, message)
                        .help("it is made from `bit<W>`, `int<W>`, `bool` or another `type`; otherwise use `typedef`"),
                );
            }
            self.declare(&decl.name, Symbol::Broken);
            return;
        }
        let id = NewtypeId::from_index(self.prog.types.newtypes.len());
        self.prog.types.newtypes.push(NewtypeInfo {
            name: decl.name.text.clone(),
            underlying,
            annotations,
            span: decl.name.span,
        });
        self.declare(&decl.name, Symbol::Type(TypeSymbol::Plain(Type::Newtype(id))));
    }

    // -------------------------------------------------------------------------------------------- signatures

    /// Declares type parameters in the innermost scope.
    pub(super) fn type_params(&mut self, params: &'a [ast::TypeParam]) -> Vec<TypeVar> {
        params
            .iter()
            .map(|p| {
                let var = self.new_var(p.name.text.clone());
                self.declare(&p.name, Symbol::Type(TypeSymbol::Plain(Type::Var(var))));
                var
            })
            .collect()
    }

    /// Checks the parameters of a signature.
    ///
    /// `of_package`: the signature is a constructor of a package, parser or control, which can take parsers and
    /// controls.
    pub(super) fn sig_params(&mut self, params: &'a [ast::Param], of_package: bool) -> Vec<SigParam> {
        let mut result: Vec<SigParam> = Vec::with_capacity(params.len());
        for param in params {
            let ty = self.resolve_type(&param.ty);
            if let Some(first) = result.iter().find(|p| p.name == param.name.text) {
                let first = first.span;
                self.report(
                    Diagnostic::error(
                        codes::DECLARED_TWICE,
                        param.name.span,
                        format!("`{}` is declared twice in one scope", param.name),
                    )
                    .note(first, "first declared here")
                    .help("rename one of them"),
                );
            }
            self.check_param_type(&ty, param, of_package);
            let annotations = self.annotations(&param.annotations);
            let has_default = param.default.is_some();
            let before = self.diags.len();
            let value = param.default.as_ref().map(|e| {
                let value = if self.has_var(&ty) { self.expr(e, None) } else { self.expr_as(e, &ty) };
                (e, value)
            });
            // The type of a default value can depend on type arguments that only the instantiation provides.
            let unknown = &self.diags[before.min(self.diags.len())..];
            let deferred = of_package && self.has_var(&ty) && unknown.iter().all(|d| d.code == codes::NOT_INFERRED);
            if let Some((e, value)) = value.as_ref().filter(|_| deferred) {
                self.diags.truncate(before);
                let open = self.block_params(&value.ty).is_some_and(|(_, ps)| ps.iter().any(|p| self.has_var(&p.ty)));
                let known = Some(value.ty.clone()).filter(|ty| !open && !ty.is_unknown());
                self.deferred_defaults.insert(param.name.span, (*e, known));
            }
            let default = value.filter(|_| !deferred).map(|(e, value)| {
                if matches!(param.direction, Direction::Out | Direction::InOut) {
                    self.error(codes::BAD_DEFAULT, e.span, "an `out` or `inout` parameter has no default value");
                } else if !self.is_compile_time(&value) {
                    self.error(codes::NOT_CONSTANT, e.span, "a default value must be known at compile time");
                }
                value
            });
            result.push(SigParam {
                name: param.name.text.clone(),
                direction: param.direction,
                ty,
                optional: has_default || find_annotation(&annotations, "optional").is_some(),
                default,
                annotations,
                span: param.name.span,
            });
        }
        result
    }

    fn check_param_type(&mut self, ty: &Type, param: &ast::Param, of_package: bool) {
        let directed = param.direction != Direction::None;
        let message = match ty {
            Type::Parser(_) | Type::Control(_) => {
                format!(
                    "`{}` cannot be of type `{}`: only parser and control types can be used",
                    param.name,
                    self.show(ty)
                )
            }
            Type::Block(..) if !of_package => {
                format!(
                    "`{}` cannot be of type `{}`: only constructors take parsers and controls",
                    param.name,
                    self.show(ty)
                )
            }
            Type::Void => format!("`{}` cannot be of type `void`", param.name),
            Type::Extern(..) | Type::Block(..) if directed && !of_package => {
                format!("`{}` is an object and cannot have a direction", param.name)
            }
            Type::Int | Type::String if directed => {
                format!(
                    "`{}` of type `{}` exists at compile time only and cannot have a direction",
                    param.name,
                    self.show(ty)
                )
            }
            _ => return,
        };
        self.error(codes::BAD_PARAMETER_TYPE, param.span, message);
    }

    /// The signature of a function, extern function or method.
    pub(super) fn prototype_sig(&mut self, name: &ast::Name, proto: &'a ast::Prototype, what: &str) -> Rc<Sig> {
        self.scopes.push();
        let type_params = self.type_params(&proto.type_params);
        let result = self.resolve_type(&proto.result);
        let outer = self.wildcards.replace(Vec::new());
        let params = self.sig_params(&proto.params, false);
        let hidden_params = std::mem::replace(&mut self.wildcards, outer).unwrap_or_default();
        self.scopes.pop();
        Rc::new(Sig { what: format!("{what} `{name}`"), span: name.span, type_params, hidden_params, params, result })
    }

    /// Declares the run-time parameters of a body in the innermost scope.
    pub(super) fn runtime_params(&mut self, params: &'a [ast::Param]) -> Vec<Param> {
        params
            .iter()
            .map(|p| {
                let ty = self.resolve_type(&p.ty);
                let annotations = self.annotations(&p.annotations);
                let local = self.new_local(&p.name, ty.clone(), LocalKind::Param(p.direction), annotations.clone());
                Param { local, name: p.name.text.clone(), direction: p.direction, ty, annotations, span: p.name.span }
            })
            .collect()
    }

    fn extern_function(&mut self, decl: &'a ast::Decl, proto: &'a ast::Prototype) {
        let sig = self.prototype_sig(&decl.name, proto, "extern function");
        let annotations = self.annotations(&decl.annotations);
        let id = ExternFunctionId::from_index(self.prog.extern_functions.len());
        self.prog.extern_functions.push(ExternFunction {
            name: decl.name.text.clone(),
            type_params: sig.type_params.clone(),
            params: sig.params.clone(),
            result: sig.result.clone(),
            annotations,
            span: decl.name.span,
        });
        self.extern_function_sigs.push(sig.clone());
        self.declare_function(&decl.name, FunctionRef::Extern(id), &sig);
    }

    fn extern_object(&mut self, decl: &'a ast::Decl, object: &'a ast::ExternObjectDecl) {
        let annotations = self.annotations(&decl.annotations);
        let id = ExternId::from_index(self.prog.externs.len());
        self.prog.types.extern_names.push(decl.name.text.clone());
        let symbol = if object.type_params.is_empty() {
            TypeSymbol::Plain(Type::Extern(id, [].into()))
        } else {
            TypeSymbol::Extern(id)
        };
        self.prog.externs.push(Extern {
            name: decl.name.text.clone(),
            type_params: Vec::new(),
            methods: Vec::new(),
            annotations,
            span: decl.name.span,
        });
        self.method_sigs.push(Vec::new());
        self.declare(&decl.name, Symbol::Type(symbol));
        self.scopes.push();
        let type_params = self.type_params(&object.type_params);
        self.prog.externs[id.index()].type_params = type_params.clone();
        let outer = self.open_extern.replace(id);
        let mut methods: Vec<ExternMethod> = Vec::with_capacity(object.methods.len());
        for method in &object.methods {
            let (kind, what) = match method.kind {
                ast::MethodKind::Method => (MethodKind::Method, "method"),
                ast::MethodKind::Constructor => (MethodKind::Constructor, "constructor"),
                ast::MethodKind::Abstract => (MethodKind::Abstract, "method"),
            };
            let sig = self.prototype_sig(&method.name, &method.proto, what);
            if let Type::Int | Type::String = sig.result {
                let message = format!("a method cannot return `{}`", self.show(&sig.result));
                self.report(
                    Diagnostic::error(codes::BAD_RESULT_TYPE, method.proto.result.span, message)
                        .help("such values exist at compile time only"),
                );
            }
            let same = methods.iter().find(|m| {
                m.name == method.name.text
                    && m.params.len() == sig.params.len()
                    && m.params.iter().zip(&sig.params).all(|(a, b)| a.name == b.name)
            });
            if let Some(first) = same.map(|m| m.span) {
                let message = format!("`{}` is declared twice with the same parameters", method.name);
                self.report(
                    Diagnostic::error(codes::DECLARED_TWICE, method.name.span, message)
                        .note(first, "first declared here"),
                );
            }
            if method.kind == ast::MethodKind::Constructor && method.name.text != decl.name.text {
                self.report(
                    Diagnostic::error(
                        codes::METHOD_RESULT,
                        method.name.span,
                        format!("method `{}` has no result type", method.name),
                    )
                    .help(format!(
                        "write `void {}(…)`, or name it `{}` if it is the constructor",
                        method.name, decl.name
                    )),
                );
            }
            if method.kind != ast::MethodKind::Constructor && method.name.text == decl.name.text {
                self.report(
                    Diagnostic::error(codes::METHOD_RESULT, method.name.span, "a constructor has no result type")
                        .help(format!("write {}(…);", decl.name)),
                );
            }
            let annotations = self.annotations(&method.annotations);
            methods.push(ExternMethod {
                name: method.name.text.clone(),
                kind,
                type_params: sig.type_params.clone(),
                params: sig.params.clone(),
                result: sig.result.clone(),
                annotations,
                span: method.name.span,
            });
            self.method_sigs[id.index()].push(sig);
        }
        self.open_extern = outer;
        self.scopes.pop();
        self.prog.externs[id.index()].methods = methods;
    }

    fn block_type(&mut self, decl: &'a ast::Decl, ty: &'a ast::BlockTypeDecl, kind: BlockKind) {
        let annotations = self.annotations(&decl.annotations);
        self.scopes.push();
        let type_params = self.type_params(&ty.type_params);
        let outer = self.wildcards.replace(Vec::new());
        let params = self.sig_params(&ty.params, kind == BlockKind::Package);
        let hidden_params = std::mem::replace(&mut self.wildcards, outer).unwrap_or_default();
        self.scopes.pop();
        let id = BlockTypeId::from_index(self.prog.types.block_types.len());
        if kind == BlockKind::Package {
            for param in params.iter().filter(|p| p.direction != Direction::None) {
                self.error(codes::BAD_DIRECTION, param.span, "parameters of a package have no direction");
            }
            let sig = Sig {
                what: format!("package `{}`", decl.name),
                span: decl.name.span,
                type_params: type_params.clone(),
                hidden_params,
                params: params.clone(),
                result: Type::Block(id, type_params.iter().map(|v| Type::Var(*v)).collect()),
            };
            self.package_sigs.insert(id, Rc::new(sig));
        }
        let symbol =
            if type_params.is_empty() { TypeSymbol::Plain(Type::Block(id, [].into())) } else { TypeSymbol::Block(id) };
        self.prog.types.block_types.push(BlockTypeInfo {
            name: decl.name.text.clone(),
            kind,
            type_params,
            params,
            annotations,
            span: decl.name.span,
        });
        self.declare(&decl.name, Symbol::Type(symbol));
    }

    // -------------------------------------------------------------------------------------------- actions

    fn global_action(&mut self, decl: &'a ast::Decl, action: &'a ast::ActionDecl) {
        let outer = self.enter_body(Place::Action, Owner::Program);
        let frame = FrameId::from_index(self.prog.frames.len());
        self.prog.frames.push(Frame::default());
        let id = self.action(decl, action, None, frame);
        let body = self.leave_body(outer);
        self.prog.frames[frame.index()] = body.frame;
        self.prog.actions[id.index()].control_name.global = true;
        self.declare(&decl.name, Symbol::Action(id));
    }

    /// Checks an action; the caller declares its name afterwards.
    pub(super) fn action(
        &mut self,
        decl: &'a ast::Decl,
        action: &'a ast::ActionDecl,
        owner: Option<ControlId>,
        frame: FrameId,
    ) -> ActionId {
        let annotations = self.annotations(&decl.annotations);
        let mut params = self.sig_params(&action.params, false);
        if let Some(at) = params.iter().position(|p| p.direction == Direction::None)
            && let Some(late) = params[at..].iter().find(|p| p.direction != Direction::None)
        {
            let span = late.span;
            self.report(
                Diagnostic::error(codes::BAD_DIRECTION, span, "parameters with a direction come before action data")
                    .note(params[at].span, "this one has no direction and is given by the table"),
            );
        }
        for param in &mut params {
            if let Type::Extern(..) | Type::Block(..) | Type::Parser(_) | Type::Control(_) | Type::Int | Type::String =
                param.ty
            {
                let message = format!("`{}` cannot be a parameter of an action", self.show(&param.ty));
                self.error(codes::BAD_PARAMETER_TYPE, param.span, message);
                param.ty = Type::Unknown;
            }
        }
        let sig = Sig {
            what: format!("action `{}`", decl.name),
            span: decl.name.span,
            type_params: Vec::new(),
            hidden_params: Vec::new(),
            params,
            result: Type::Void,
        };
        let place = std::mem::replace(&mut self.body.place, Place::Action);
        self.scopes.push();
        let params = self.runtime_params(&action.params);
        let body = self.block(&action.body);
        self.scopes.pop();
        self.body.place = place;
        let control_name = self.control_name(&decl.name.text, &annotations);
        let id = ActionId::from_index(self.prog.actions.len());
        self.prog.actions.push(Action {
            name: decl.name.text.clone(),
            owner,
            frame,
            params,
            body,
            control_name,
            annotations,
            span: decl.name.span,
        });
        self.action_sigs.push(Rc::new(sig));
        id
    }
}
