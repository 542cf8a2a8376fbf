//! Resolution of type names to [`Type`]s, struct instantiation, and which types are allowed where.
//!
//! Specification: P4_16, chapter "P4 data types".

use super::Checker;
use super::generics::Subst;
use crate::codes;
use crate::consteval;
use crate::scope::{Symbol, TypeSymbol};
use crate::types::*;
use crate::value::Value;
use base::bits::MAX_WIDTH;
use base::{Diagnostic, Span};
use num_traits::ToPrimitive;
use std::sync::Arc;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Resolves a type reference.
    pub fn resolve_type(&mut self, ty: &'a ast::TypeRef) -> Type {
        match &ty.kind {
            ast::TypeKind::Bool => Type::Bool,
            ast::TypeKind::Error => {
                if self.prog.errors.is_empty() {
                    self.no_errors(ty.span);
                    return Type::Unknown;
                }
                Type::Error
            }
            ast::TypeKind::MatchKind => Type::MatchKind,
            ast::TypeKind::String => Type::String,
            ast::TypeKind::Void => Type::Void,
            ast::TypeKind::Int => Type::Int,
            ast::TypeKind::Bit(width) => self.width(width, 0).map_or(Type::Unknown, Type::bit),
            ast::TypeKind::IntN(width) => self.width(width, 1).map_or(Type::Unknown, Type::int),
            ast::TypeKind::Varbit(width) => self.width(width, 0).map_or(Type::Unknown, Type::Varbit),
            ast::TypeKind::Named { path, args } => {
                let Some(symbol) = self.type_symbol(path) else { return Type::Unknown };
                let args: Vec<Type> = args.iter().map(|t| self.resolve_type(t)).collect();
                self.apply_type(&symbol, path, args, ty.span)
            }
            ast::TypeKind::Array(element, size) => {
                let element = self.resolve_type(element);
                let Some(size) = self.width(size, 0) else { return Type::Unknown };
                match element {
                    Type::Unknown => Type::Unknown,
                    Type::Int
                    | Type::Void
                    | Type::String
                    | Type::MatchKind
                    | Type::Error
                    | Type::Parser(_)
                    | Type::Control(_)
                    | Type::Block(..)
                    | Type::List(_)
                    | Type::Extern(..) => {
                        let message = format!("there are no arrays of `{}`", self.show(&element));
                        self.error(codes::BAD_FIELD_TYPE, ty.span, message);
                        Type::Unknown
                    }
                    element => self.bounded(Type::Stack(Arc::new(element), size), ty.span),
                }
            }
            ast::TypeKind::Tuple(types) => {
                let types: Vec<Type> = types
                    .iter()
                    .map(|t| {
                        let resolved = self.resolve_type(t);
                        // Tuples of `int`, `string`, … exist only at compile time, as elements of lists.
                        if !matches!(resolved, Type::Int | Type::String | Type::MatchKind) {
                            self.check_member_type(&resolved, "a tuple", t.span);
                        }
                        resolved
                    })
                    .collect();
                self.bounded(Type::Tuple(types.into()), ty.span)
            }
            ast::TypeKind::List(element) => Type::List(Arc::new(self.resolve_type(element))),
            ast::TypeKind::DontCare => {
                if self.wildcards.is_some() {
                    let var = self.new_var("_".into());
                    self.wildcards.iter_mut().for_each(|w| w.push(var));
                    return Type::Var(var);
                }
                self.report(
                    Diagnostic::error(
                        codes::DONT_CARE_TYPE,
                        ty.span,
                        "`_` can only be a type argument of a call or constructor",
                    )
                    .help("write the type"),
                );
                Type::Unknown
            }
        }
    }

    /// Reports the type `error` in a program that declares no errors; once.
    fn no_errors(&mut self, span: Span) {
        let known = self.diags.iter().any(|d| d.code == codes::NO_SUCH_TYPE && d.message.starts_with("no errors"));
        if !known {
            self.report(
                Diagnostic::error(codes::NO_SUCH_TYPE, span, "no errors are declared: the type `error` has no values")
                    .help("core.p4 declares some: #include <core.p4>; or write error { … }"),
            );
        }
    }

    /// Like [`Checker::resolve_type`], but returns `None` for `_`.
    pub fn resolve_type_arg(&mut self, ty: &'a ast::TypeRef) -> Option<Type> {
        match ty.kind {
            ast::TypeKind::DontCare => None,
            _ => Some(self.resolve_type(ty)),
        }
    }

    /// The type symbol of a path; reports an error if it is not a type.
    pub fn type_symbol(&mut self, path: &ast::Path) -> Option<TypeSymbol> {
        let found =
            if path.global { self.scopes.lookup_global(&path.name.text) } else { self.scopes.lookup(&path.name.text) };
        match found.map(|e| (&e.symbol, e.span)) {
            Some((Symbol::Type(symbol), _)) => Some(symbol.clone()),
            Some((Symbol::Broken, _)) => None,
            Some((_, declared)) => {
                self.report(
                    Diagnostic::error(codes::NOT_A_TYPE, path.span(), format!("`{path}` is not a type"))
                        .note(declared, "declared here"),
                );
                None
            }
            None => {
                self.undeclared(path, true);
                None
            }
        }
    }

    /// Applies a type symbol to type arguments; reports a wrong number of them.
    pub fn apply_type(&mut self, symbol: &TypeSymbol, path: &ast::Path, args: Vec<Type>, span: Span) -> Type {
        let wanted = self.type_params_of(symbol);
        if wanted != args.len() {
            let message = match (wanted, args.len()) {
                (0, _) => format!("`{path}` takes no type arguments"),
                (n, 0) => format!("`{path}` needs {}", super::tables::counted(n, "type argument")),
                (n, m) => format!("`{path}` takes {}, not {m}", super::tables::counted(n, "type argument")),
            };
            self.error(codes::TYPE_ARGUMENT_COUNT, span, message);
            return Type::Unknown;
        }
        if let TypeSymbol::Plain(Type::Extern(id, _)) | TypeSymbol::Extern(id) = symbol
            && self.open_extern == Some(*id)
        {
            self.report(
                Diagnostic::error(codes::SELF_REFERENCE, span, format!("`{path}` cannot refer to itself"))
                    .note(self.prog.externs[id.index()].span, "its declaration ends below"),
            );
            return Type::Unknown;
        }
        match symbol {
            TypeSymbol::Plain(ty) => ty.clone(),
            TypeSymbol::Generic(index) => self.instantiate_struct(*index, args),
            TypeSymbol::Extern(id) => self.bounded(Type::Extern(*id, args.into()), span),
            TypeSymbol::Block(id) => self.bounded(Type::Block(*id, args.into()), span),
            TypeSymbol::GenericBlock(index) => self.block_instance(*index, args, span),
        }
    }

    /// The number of type arguments that a symbol takes.
    pub fn type_params_of(&self, symbol: &TypeSymbol) -> usize {
        match symbol {
            TypeSymbol::Plain(_) => 0,
            TypeSymbol::Generic(index) => self.generic_structs[*index].type_params.len(),
            TypeSymbol::Extern(id) => self.prog.externs[id.index()].type_params.len(),
            TypeSymbol::Block(id) => self.prog.types.block_types[id.index()].type_params.len(),
            TypeSymbol::GenericBlock(index) => self.generic_block_params(*index),
        }
    }

    /// A width or array size: a local compile-time known integer of at least `least`.
    pub(super) fn width(&mut self, expr: &'a ast::Expr, least: u32) -> Option<u32> {
        let value = self.expr(expr, None);
        if value.ty.is_unknown() {
            return None;
        }
        let number = match value.as_const() {
            Some(Value::Int(n)) => n.to_i64(),
            Some(Value::Bits(bits)) if consteval::is_signed(&self.prog.types, &value.ty) => {
                bits.to_i128().and_then(|n| n.to_i64())
            }
            Some(Value::Bits(bits)) => bits.to_u64().and_then(|n| n.to_i64()),
            Some(_) => {
                let message = format!("a size is an integer, not `{}`", self.show(&value.ty));
                self.error(codes::MISMATCH, expr.span, message);
                return None;
            }
            None => {
                self.report(
                    Diagnostic::error(
                        codes::NOT_CONSTANT,
                        expr.span,
                        "the size of a type must be known where it is written",
                    )
                    .help("constructor parameters and variables cannot be used in types"),
                );
                return None;
            }
        };
        match number.and_then(|n| u32::try_from(n).ok()) {
            Some(n) if n >= least && n <= MAX_WIDTH => Some(n),
            _ => {
                let message = format!("a size between {least} and {MAX_WIDTH} is needed here");
                self.error(codes::OUT_OF_RANGE, expr.span, message);
                None
            }
        }
    }

    /// The instantiation of a generic struct for type arguments; created on first use.
    pub fn instantiate_struct(&mut self, index: usize, args: Vec<Type>) -> Type {
        let kind = self.generic_structs[index].kind;
        let wrap = |id| match kind {
            StructKind::Struct => Type::Struct(id),
            StructKind::Header => Type::Header(id),
            StructKind::HeaderUnion => Type::HeaderUnion(id),
        };
        if let Some(id) = self.generic_cache.get(&(index, args.clone())) {
            return wrap(*id);
        }
        let decl = &self.generic_structs[index];
        let (name, annotations, span) = (decl.name.clone(), decl.annotations.clone(), decl.span);
        let (vars, fields) = (decl.type_params.clone(), decl.fields.clone());
        let id = self.add_struct(StructInfo {
            name,
            kind,
            args: args.clone(),
            fields: Fields::default(),
            annotations,
            span,
        });
        self.struct_origin[id.index()] = Some(index);
        self.generic_cache.insert((index, args.clone()), id);
        let s = Subst::of(&vars, &args);
        let mut applied = Fields::default();
        for field in &fields {
            let ty = self.subst(&field.ty, &s);
            self.check_field_type(kind, &ty, field.span);
            applied.push(FieldInfo { ty, ..field.clone() });
        }
        self.prog.types.structs[id.index()].fields = applied;
        self.measure_struct(id, span);
        wrap(id)
    }

    /// Adds a struct to the type table.
    pub fn add_struct(&mut self, info: StructInfo) -> StructId {
        self.prog.types.structs.push(info);
        self.struct_origin.push(None);
        StructId::from_index(self.prog.types.structs.len() - 1)
    }

    /// Resolves the fields of a struct, header or header union declaration.
    pub fn resolve_fields(&mut self, kind: StructKind, fields: &'a [ast::Field]) -> Fields {
        let mut result = Fields::default();
        for field in fields {
            let ty = self.resolve_type(&field.ty);
            self.check_field_type(kind, &ty, field.ty.span);
            if let Some((_, first)) = result.find(&field.name.text) {
                let first = first.span;
                self.report(
                    Diagnostic::error(
                        codes::DECLARED_TWICE,
                        field.name.span,
                        format!("there are two fields `{}`", field.name),
                    )
                    .note(first, "the first one"),
                );
                continue;
            }
            let annotations = self.annotations(&field.annotations);
            result.push(FieldInfo { name: field.name.text.clone(), ty, annotations, span: field.name.span });
        }
        result
    }

    fn check_field_type(&mut self, kind: StructKind, ty: &Type, span: Span) {
        match kind {
            StructKind::Struct => self.check_member_type(ty, "a struct", span),
            StructKind::Header => self.check_header_field(ty, span),
            StructKind::HeaderUnion => {
                if !matches!(ty, Type::Header(_) | Type::Unknown | Type::Var(_)) {
                    let message = format!("a member of a header union is a header, not `{}`", self.show(ty));
                    self.error(codes::BAD_FIELD_TYPE, span, message);
                }
            }
        }
    }

    /// The anonymous struct type of a record; created on first use.
    pub fn anonymous_struct(&mut self, fields: Vec<(Arc<str>, Type)>, span: Span) -> Type {
        if let Some(id) = self.anonymous.get(&fields) {
            return Type::Struct(*id);
        }
        let infos = fields
            .iter()
            .map(|(name, ty)| FieldInfo { name: name.clone(), ty: ty.clone(), annotations: Vec::new(), span })
            .collect();
        let id = self.add_struct(StructInfo {
            name: "".into(),
            kind: StructKind::Struct,
            args: Vec::new(),
            fields: infos,
            annotations: Vec::new(),
            span,
        });
        self.anonymous.insert(fields, id);
        self.measure_struct(id, span);
        Type::Struct(id)
    }

    fn check_header_field(&mut self, ty: &Type, span: Span) {
        if !self.header_field_ok(ty) {
            self.report(
                Diagnostic::error(codes::BAD_FIELD_TYPE, span, format!("a header cannot have a field of type `{}`", self.show(ty)))
                    .help("fields of headers are `bit`, `int`, `varbit`, `bool`, enums with underlying type, and structs of these"),
            );
        }
    }

    fn header_field_ok(&self, ty: &Type) -> bool {
        match self.prog.types.underlying(ty) {
            Type::Bits { .. } | Type::Varbit(_) | Type::Bool | Type::Unknown | Type::Var(_) => true,
            Type::Struct(id) => self.prog.types.structs[id.index()].fields.iter().all(|f| self.header_field_ok(&f.ty)),
            Type::Stack(element, _) => {
                !matches!(*element, Type::Header(_) | Type::HeaderUnion(_)) && self.header_field_ok(&element)
            }
            _ => false,
        }
    }

    /// Reports types that have no run-time values or may not be part of a composite.
    pub fn check_member_type(&mut self, ty: &Type, container: &str, span: Span) {
        let compile_time = matches!(ty, Type::Int | Type::Void | Type::String | Type::MatchKind | Type::List(_));
        let object = matches!(ty, Type::Extern(..) | Type::Block(..) | Type::Parser(_) | Type::Control(_));
        let bad = compile_time || object;
        if bad {
            let message = format!("`{}` cannot be part of {container}", self.show(ty));
            self.error(codes::BAD_FIELD_TYPE, span, message);
        }
    }

    /// Reports types that a variable cannot have.
    pub fn check_variable_type(&mut self, ty: &Type, span: Span) {
        let help = match ty {
            Type::Int => "give it a width, as `bit<32>`, or make it a `const`",
            Type::Void | Type::String | Type::MatchKind | Type::List(_) => "such values exist at compile time only",
            Type::Extern(..) | Type::Block(..) | Type::Parser(_) | Type::Control(_) => {
                "make an instance: `T(arguments) name;`"
            }
            ty if self.has_int(ty) => "values with an `int` in them exist at compile time only",
            _ => return,
        };
        let message = format!("there are no variables of type `{}`", self.show(ty));
        self.report(Diagnostic::error(codes::BAD_TYPE_HERE, span, message).help(help));
    }

    /// Substitutes `args` for `vars` in a type.
    pub fn subst_type(&mut self, ty: &Type, vars: &[TypeVar], args: &[Type]) -> Type {
        let s = Subst::of(vars, args);
        self.subst(ty, &s)
    }
}
