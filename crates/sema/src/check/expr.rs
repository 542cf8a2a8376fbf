//! Expressions: names, members, indices, slices, casts. Operators, literals of composite types and calls have their own
//! files.
//!
//! [`Checker::expr`] takes the type that the context expects as a hint: it determines the type of literals but converts
//! nothing. [`Checker::expr_as`] converts. Results known at compile time are folded bottom-up.

use super::{Checker, Place};
use crate::codes;
use crate::consteval;
use crate::scope::{Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::bits::MAX_WIDTH;
use base::{Bits, Diagnostic, Span};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Checks an expression and converts it to a type.
    pub fn expr_as(&mut self, e: &'a ast::Expr, ty: &Type) -> Expr {
        let expr = self.expr(e, Some(ty));
        self.coerce(expr, ty)
    }

    /// Checks an expression of any type; `expected` is a hint.
    pub fn expr(&mut self, e: &'a ast::Expr, expected: Option<&Type>) -> Expr {
        let span = e.span;
        match &e.kind {
            ast::ExprKind::Bool(b) => constant(Value::Bool(*b), Type::Bool, span),
            ast::ExprKind::Int(literal) => self.int_literal(literal, span),
            ast::ExprKind::String(s) => constant(Value::Str(s.clone()), Type::String, span),
            ast::ExprKind::Path(path) => self.path(path),
            ast::ExprKind::This => match self.body.this.clone() {
                Some(ty) => Expr { kind: ExprKind::This, ty, span },
                None => {
                    self.error(
                        codes::NO_THIS,
                        span,
                        "`this` is only known in the implementation of an abstract method",
                    );
                    self.poison(span)
                }
            },
            ast::ExprKind::Type(_) => {
                self.error(codes::WRONG_KIND, span, "a type is not a value");
                self.poison(span)
            }
            ast::ExprKind::DontCare => {
                self.report(
                    Diagnostic::error(codes::DONT_CARE_VALUE, span, "`_` is not a value")
                        .help("it is allowed as an `out` argument and in keysets"),
                );
                self.poison(span)
            }
            ast::ExprKind::Default => self.default_expr(expected, span),
            ast::ExprKind::InvalidHeader => self.invalid_header(expected, span),
            ast::ExprKind::Member(base, name) => self.member(base, name, span),
            ast::ExprKind::Index(base, index) => self.index(base, index, span),
            ast::ExprKind::Slice { base, high, low } => self.slice(base, high, low, span),
            ast::ExprKind::SliceFrom { base, low, width } => self.slice_from(base, low, width, span),
            ast::ExprKind::Unary(op, operand) => self.unary(*op, operand, span),
            ast::ExprKind::Binary(op, left, right) => self.binary(*op, left, right, expected, span),
            ast::ExprKind::Ternary { cond, then, otherwise } => self.ternary(cond, then, otherwise, expected, span),
            ast::ExprKind::Cast(ty, operand) => self.cast_expr(ty, operand, span),
            ast::ExprKind::Call { callee, type_args, args } => self.call(callee, type_args, args, expected, span),
            ast::ExprKind::List(elements) => self.list(elements, expected, span),
            ast::ExprKind::Record { fields, dots } => self.record(fields, *dots, expected, span),
            ast::ExprKind::Missing => self.poison(span),
        }
    }

    fn int_literal(&mut self, literal: &ast::IntLiteral, span: Span) -> Expr {
        let (ty, width) = match literal.ty {
            ast::IntLiteralType::Int => return constant(Value::Int(literal.value.clone()), Type::Int, span),
            ast::IntLiteralType::Bit(w) => (Type::bit(w), w),
            ast::IntLiteralType::IntN(w) => (Type::int(w), w),
        };
        if width > MAX_WIDTH {
            self.error(codes::OUT_OF_RANGE, span, format!("the widest value has {MAX_WIDTH} bits"));
            return self.poison(span);
        }
        if width == 0 && literal.ty == ast::IntLiteralType::IntN(0) {
            self.error(codes::OUT_OF_RANGE, span, "a signed value has at least 1 bit");
            return self.poison(span);
        }
        self.warn_overflow(&literal.value, &ty, span);
        constant(Value::Bits(Bits::from_bigint(width, &literal.value)), ty, span)
    }

    /// Whether an integer fits into a fixed-width type.
    pub fn fits(&self, value: &BigInt, ty: &Type) -> bool {
        let Type::Bits { width, signed } = self.prog.types.underlying(ty) else { return true };
        let wrapped = Bits::from_bigint(width, value);
        *value == if signed { wrapped.to_bigint_signed() } else { BigInt::from(wrapped.to_biguint()) }
    }

    /// Warns when an integer does not fit into a fixed-width type.
    pub fn warn_overflow(&mut self, value: &BigInt, ty: &Type, span: Span) {
        let Type::Bits { width, signed } = self.prog.types.underlying(ty) else { return };
        let wrapped = Bits::from_bigint(width, value);
        let back = if signed { wrapped.to_bigint_signed() } else { BigInt::from(wrapped.to_biguint()) };
        if back != *value {
            let message = format!("{value} does not fit into `{}` and becomes {back}", self.show(ty));
            self.report(Diagnostic::warning(codes::OVERFLOW, span, message));
        }
    }

    fn path(&mut self, path: &ast::Path) -> Expr {
        let span = path.span();
        // Match kinds are in scope under their names.
        if let Some(index) = self.prog.match_kinds.iter().position(|m| *m == path.name.text)
            && self.scopes.lookup(&path.name.text).is_none()
        {
            return constant(Value::MatchKind(index as u32), Type::MatchKind, span);
        }
        let Some(entry) = self.lookup(path) else { return self.poison(span) };
        let not_value = |what: &str| format!("{what} `{path}` is not a value");
        let message = match entry.symbol {
            Symbol::Const(value) => return Expr { span, ..(*value).clone() },
            Symbol::Local(id, body) if body == self.body.number => {
                let ty = self.body.frame.locals[id.index()].ty.clone();
                return Expr { kind: ExprKind::Local(id), ty, span };
            }
            Symbol::Local(..) => {
                self.report(
                    Diagnostic::error(
                        codes::NOT_DECLARED,
                        span,
                        format!("`{path}` of an enclosing block is not reachable here"),
                    )
                    .note(entry.span, "declared here")
                    .help("pass it as a parameter"),
                );
                return self.poison(span);
            }
            Symbol::CtorParam(index, ty) => return Expr { kind: ExprKind::CtorParam(index), ty, span },
            Symbol::Instance(reference, ty) => return Expr { kind: ExprKind::Instance(reference), ty, span },
            Symbol::Broken => return self.poison(span),
            Symbol::Type(_) => not_value("the type"),
            Symbol::Action(_) => not_value("the action"),
            Symbol::Table(_) => not_value("the table"),
            Symbol::ValueSet(_) => not_value("the value set"),
            Symbol::Functions(_) => not_value("the function"),
        };
        self.report(Diagnostic::error(codes::WRONG_KIND, span, message).note(entry.span, "declared here"));
        self.poison(span)
    }

    /// The type that an expression names, if it names one.
    pub fn type_of_name(&mut self, e: &'a ast::Expr) -> Option<Type> {
        match &e.kind {
            ast::ExprKind::Type(ty) => Some(self.resolve_type(ty)),
            ast::ExprKind::Path(path) => {
                let found = if path.global {
                    self.scopes.lookup_global(&path.name.text)
                } else {
                    self.scopes.lookup(&path.name.text)
                };
                match found.map(|e| &e.symbol) {
                    Some(Symbol::Type(TypeSymbol::Plain(ty))) => Some(ty.clone()),
                    Some(Symbol::Type(symbol)) => {
                        let symbol = symbol.clone();
                        Some(self.apply_type(&symbol, path, Vec::new(), e.span))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn member(&mut self, base: &'a ast::Expr, name: &'a ast::Name, span: Span) -> Expr {
        if let Some(ty) = self.type_of_name(base) {
            return self.type_member(&ty, name, span);
        }
        if let ast::ExprKind::Path(path) = &base.kind
            && let Some(Symbol::Table(_)) = self.scopes.lookup(&path.name.text).map(|e| &e.symbol)
        {
            let help = match &*name.text {
                "hit" | "miss" | "action_run" => format!("test it where the table is applied: `{path}.apply().{name}`"),
                _ => format!("apply it: {path}.apply()"),
            };
            self.report(
                Diagnostic::error(codes::NO_SUCH_MEMBER, name.span, format!("a table has no member `{name}`"))
                    .help(help),
            );
            return self.poison(span);
        }
        let base = self.expr(base, None);
        self.member_of(base, name, span)
    }

    fn member_of(&mut self, base: Expr, name: &ast::Name, span: Span) -> Expr {
        match &base.ty {
            Type::Unknown => return self.poison(span),
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                let info = &self.prog.types.structs[id.index()];
                if let Some((index, field)) = info.field(&name.text) {
                    let ty = field.ty.clone();
                    return self.field(base, index as u32, ty, span);
                }
                let fields: Vec<String> = info.fields.iter().map(|f| f.name.to_string()).collect();
                let declared = info.span;
                let message = format!("`{}` has no field `{name}`", self.show(&base.ty));
                let known = fields.iter().map(|s| s.as_str());
                self.unknown_member(codes::NO_SUCH_MEMBER, name, message, declared, known);
                return self.poison(span);
            }
            Type::Stack(element, size) => {
                if let Some(expr) = self.stack_member(&base, element, *size, name, span) {
                    return expr;
                }
            }
            Type::ApplyResult(table) => {
                let table = *table;
                let ExprKind::Call(call) = base.kind else { return self.poison(span) };
                match &*name.text {
                    "hit" => return Expr { kind: ExprKind::ApplyHit(call), ty: Type::Bool, span },
                    "miss" => return Expr { kind: ExprKind::ApplyMiss(call), ty: Type::Bool, span },
                    "action_run" => return Expr { kind: ExprKind::Call(call), ty: Type::ActionEnum(table), span },
                    _ => {}
                }
                self.unknown_name(
                    codes::NO_SUCH_MEMBER,
                    name,
                    format!("the result of `apply` has no member `{name}`"),
                    ["hit", "miss", "action_run"].into_iter(),
                );
                return self.poison(span);
            }
            _ => {}
        }
        let message = format!("`{}` has no member `{name}`", self.show(&base.ty));
        self.error(codes::NO_SUCH_MEMBER, name.span, message);
        self.poison(span)
    }

    /// A member access, folded if the base is constant.
    pub fn field(&mut self, base: Expr, index: u32, ty: Type, span: Span) -> Expr {
        if let ExprKind::Const(value) = &base.kind
            && let Some(value) = consteval::field(&self.prog.types, value, &base.ty, index as usize)
        {
            return constant(value, ty, span);
        }
        if let ExprKind::Aggregate(elements) = &base.kind
            && let Some(element) = elements.get(index as usize)
        {
            return Expr { span, ..element.clone() };
        }
        Expr { kind: ExprKind::Field(Box::new(base), index), ty, span }
    }

    fn stack_member(&mut self, base: &Expr, element: &Type, size: u32, name: &ast::Name, span: Span) -> Option<Expr> {
        let is_header_stack = matches!(element, Type::Header(_) | Type::HeaderUnion(_));
        let in_parser = matches!(self.body.place, Place::ParserState | Place::ParserLocals);
        let boxed = || Box::new(base.clone());
        let expr = match &*name.text {
            "size" => return Some(constant(Value::Bits(Bits::new(32, u128::from(size))), Type::bit(32), span)),
            _ if !is_header_stack => return None,
            "next" => Expr { kind: ExprKind::StackNext(boxed()), ty: element.clone(), span },
            "last" => Expr { kind: ExprKind::StackLast(boxed()), ty: element.clone(), span },
            "lastIndex" => Expr { kind: ExprKind::StackLastIndex(boxed()), ty: Type::bit(32), span },
            _ => {
                self.unknown_name(
                    codes::NO_SUCH_MEMBER,
                    name,
                    format!("a header stack has no member `{name}`"),
                    ["next", "last", "lastIndex", "size", "push_front", "pop_front"].into_iter(),
                );
                return Some(self.poison(span));
            }
        };
        if !in_parser {
            self.report(
                Diagnostic::error(
                    codes::STACK_OUTSIDE_PARSER,
                    span,
                    format!("`{name}` of a header stack can only be used in parsers"),
                )
                .help("use an index: stack[i]"),
            );
            return Some(self.poison(span));
        }
        Some(expr)
    }

    fn type_member(&mut self, ty: &Type, name: &ast::Name, span: Span) -> Expr {
        match ty {
            Type::Unknown => self.poison(span),
            Type::Enum(id) | Type::SerEnum(id) => {
                let info = &self.prog.types.enums[id.index()];
                if let Some(index) = info.members.iter().position(|m| m.name == name.text) {
                    let value = info.members[index].value.clone().unwrap_or(Value::Enum(index as u32));
                    return constant(value, ty.clone(), span);
                }
                let members: Vec<String> = info.members.iter().map(|m| m.name.to_string()).collect();
                let declared = info.span;
                let message = format!("enum `{}` has no member `{name}`", info.name);
                let known = members.iter().map(|s| s.as_str());
                self.unknown_member(codes::NO_SUCH_ENUM_MEMBER, name, message, declared, known);
                self.poison(span)
            }
            Type::Error => {
                if let Some(index) = self.prog.errors.iter().position(|m| *m == name.text) {
                    return constant(Value::Error(index as u32), Type::Error, span);
                }
                let members = self.prog.errors.clone();
                let message = format!("there is no error `{name}`");
                self.unknown_name(codes::NO_SUCH_ENUM_MEMBER, name, message, members.iter().map(|s| &**s));
                self.poison(span)
            }
            Type::MatchKind => {
                if let Some(index) = self.prog.match_kinds.iter().position(|m| *m == name.text) {
                    return constant(Value::MatchKind(index as u32), Type::MatchKind, span);
                }
                let members = self.prog.match_kinds.clone();
                let message = format!("there is no match kind `{name}`");
                self.unknown_name(codes::NO_SUCH_MATCH_KIND, name, message, members.iter().map(|s| &**s));
                self.poison(span)
            }
            _ => {
                let message = format!("the type `{}` has no member `{name}`", self.show(ty));
                self.error(codes::NO_SUCH_MEMBER, name.span, message);
                self.poison(span)
            }
        }
    }

    fn index(&mut self, base: &'a ast::Expr, index: &'a ast::Expr, span: Span) -> Expr {
        let base = self.expr(base, None);
        let index = self.expr(index, None);
        let index = self.strip_enum(index);
        if base.ty.is_unknown() || index.ty.is_unknown() {
            return self.poison(span);
        }
        if !matches!(index.ty, Type::Int | Type::Bits { .. }) {
            let message = format!("an index is an integer, not `{}`", self.show(&index.ty));
            self.error(codes::MISMATCH, index.span, message);
            return self.poison(span);
        }
        match base.ty.clone() {
            Type::Tuple(types) => {
                let Some(i) = self.index_below(&index, types.len() as u64) else { return self.poison(span) };
                self.tuple_element(base, i as u32, types[i as usize].clone(), span)
            }
            Type::Stack(element, size) => {
                let index = if index.as_const().is_some() {
                    let Some(i) = self.index_below(&index, u64::from(size)) else { return self.poison(span) };
                    if let ExprKind::Const(Value::Seq(values)) = &base.kind {
                        return constant(values[i as usize].clone(), (*element).clone(), span);
                    }
                    constant(Value::Bits(Bits::new(32, u128::from(i))), Type::bit(32), index.span)
                } else if index.ty == Type::Int {
                    self.coerce(index, &Type::bit(32))
                } else {
                    index
                };
                let kind = ExprKind::StackElement { stack: Box::new(base), index: Box::new(index) };
                Expr { kind, ty: (*element).clone(), span }
            }
            other => {
                let message = format!("`{}` has no elements to index", self.show(&other));
                self.report(
                    Diagnostic::error(codes::NOT_INDEXABLE, span, message).help("a bit slice is written x[high:low]"),
                );
                self.poison(span)
            }
        }
    }

    fn tuple_element(&mut self, base: Expr, index: u32, ty: Type, span: Span) -> Expr {
        match &base.kind {
            ExprKind::Const(Value::Seq(values)) => constant(values[index as usize].clone(), ty, span),
            ExprKind::Aggregate(elements) => Expr { span, ..elements[index as usize].clone() },
            _ => Expr { kind: ExprKind::TupleElement(Box::new(base), index), ty, span },
        }
    }

    /// The value of a constant index in `0 .. size`; reports an error otherwise.
    fn index_below(&mut self, index: &Expr, size: u64) -> Option<u64> {
        match self.const_int(index) {
            Some(i) if i >= BigInt::from(0) && i < BigInt::from(size) => i.to_u64(),
            Some(i) => {
                let message = format!("index {i} is outside of 0 … {}", size.saturating_sub(1));
                self.error(codes::BAD_INDEX, index.span, message);
                None
            }
            None => {
                self.error(codes::NOT_CONSTANT, index.span, "the index must be known at compile time");
                None
            }
        }
    }

    /// The value of a constant integer of any type.
    pub fn const_int(&self, e: &Expr) -> Option<BigInt> {
        match e.as_const()? {
            Value::Int(v) => Some(v.clone()),
            Value::Bits(v) if consteval::is_signed(&self.prog.types, &e.ty) => Some(v.to_bigint_signed()),
            Value::Bits(v) => Some(BigInt::from(v.to_biguint())),
            _ => None,
        }
    }

    /// A bound of a slice; reports an error if it is not a constant in range.
    fn bound(&mut self, e: &'a ast::Expr) -> Option<u32> {
        let bound = self.expr(e, None);
        if bound.ty.is_unknown() {
            return None;
        }
        match self.const_int(&bound).map(|v| v.to_u32()) {
            Some(Some(v)) if v <= MAX_WIDTH => Some(v),
            Some(_) => {
                self.error(codes::BAD_SLICE, e.span, "the bound of a slice is out of range");
                None
            }
            None => {
                self.report(
                    Diagnostic::error(
                        codes::NOT_CONSTANT,
                        e.span,
                        "the bound of a slice must be known at compile time",
                    )
                    .help("a slice at a variable offset is written x[low +: width]"),
                );
                None
            }
        }
    }

    /// The base of a slice and its width in bits (`None` for an `int`: unbounded).
    fn slice_base(&mut self, base: &'a ast::Expr) -> Option<(Expr, Option<u32>)> {
        let base = self.expr(base, None);
        let base = self.strip_enum(base);
        match base.ty {
            Type::Unknown => None,
            Type::Bits { width, .. } => Some((base, Some(width))),
            Type::Int => Some((base, None)),
            _ => {
                let message = format!("no bits can be taken from `{}`", self.show(&base.ty));
                self.error(codes::NOT_INDEXABLE, base.span, message);
                None
            }
        }
    }

    fn slice(&mut self, base: &'a ast::Expr, high: &'a ast::Expr, low: &'a ast::Expr, span: Span) -> Expr {
        let base = self.slice_base(base);
        let (high, low) = (self.bound(high), self.bound(low));
        let (Some((base, width)), Some(high), Some(low)) = (base, high, low) else { return self.poison(span) };
        self.slice_at(base, width, high, low, span)
    }

    fn slice_at(&mut self, base: Expr, width: Option<u32>, high: u32, low: u32, span: Span) -> Expr {
        if low > high {
            self.report(
                Diagnostic::error(codes::BAD_SLICE, span, format!("the slice [{high}:{low}] is empty"))
                    .help("the high bit comes first"),
            );
            return self.poison(span);
        }
        let base = match width {
            Some(width) if high >= width => {
                let message = format!("bit {high} is outside of `{}`", self.show(&base.ty));
                self.error(codes::BAD_SLICE, span, message);
                return self.poison(span);
            }
            Some(_) => base,
            None => match &base.kind {
                // A slice of an `int` of unbounded width: `high + 1` bits suffice.
                ExprKind::Const(Value::Int(v)) => {
                    constant(Value::Bits(Bits::from_bigint(high + 1, v)), Type::bit(high + 1), base.span)
                }
                _ => self.coerce(base, &Type::bit(high + 1)),
            },
        };
        let ty = Type::bit(high - low + 1);
        match &base.kind {
            ExprKind::Const(Value::Bits(v)) => constant(Value::Bits(v.slice(high, low)), ty, span),
            _ => Expr { kind: ExprKind::Slice { base: Box::new(base), high, low }, ty, span },
        }
    }

    fn slice_from(&mut self, base: &'a ast::Expr, low: &'a ast::Expr, width: &'a ast::Expr, span: Span) -> Expr {
        let base = self.slice_base(base);
        let low = self.expr(low, None);
        let low = self.strip_enum(low);
        let width = self.bound(width);
        let (Some((base, base_width)), Some(width)) = (base, width) else { return self.poison(span) };
        if low.ty.is_unknown() {
            return self.poison(span);
        }
        if width == 0 || base_width.is_some_and(|w| width > w) {
            self.error(codes::BAD_SLICE, span, format!("{width} bits cannot be taken from `{}`", self.show(&base.ty)));
            return self.poison(span);
        }
        if low.as_const().is_some() {
            let Some(low) = self.const_int(&low).and_then(|v| v.to_u32()).filter(|v| *v <= MAX_WIDTH) else {
                self.error(codes::BAD_SLICE, low.span, "the offset of a slice is out of range");
                return self.poison(span);
            };
            return self.slice_at(base, base_width, low + width - 1, low, span);
        }
        if !matches!(low.ty, Type::Bits { signed: false, .. }) || base_width.is_none() {
            let message = format!("the offset of a slice is a `bit`, not `{}`", self.show(&low.ty));
            self.error(codes::MISMATCH, low.span, message);
            return self.poison(span);
        }
        Expr {
            kind: ExprKind::SliceFrom { base: Box::new(base), low: Box::new(low), width },
            ty: Type::bit(width),
            span,
        }
    }

    /// Converts a value of a serialisable enum to its underlying type; returns any other expression unchanged.
    pub fn strip_enum(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Type::SerEnum(id) => match self.prog.types.enums[id.index()].repr.clone() {
                Some(repr) => self.convert(e, repr),
                None => e,
            },
            _ => e,
        }
    }

    /// Whether an expression is an assignable l-value; reports an error if not.
    pub fn check_lvalue(&mut self, e: &Expr) -> bool {
        let what = match &e.kind {
            _ if e.ty.is_unknown() => return true,
            ExprKind::Local(id) => {
                let local = &self.body.frame.locals[id.index()];
                match local.kind {
                    LocalKind::Variable | LocalKind::Param(Direction::Out | Direction::InOut) => return true,
                    LocalKind::Param(direction) => {
                        let kind =
                            if direction == Direction::In { "`in` parameter" } else { "parameter without direction" };
                        let message = format!("`{}` is read-only: it is an {kind}", local.name);
                        let message = message.replace("an parameter", "a parameter");
                        let place = local.span;
                        self.report(
                            Diagnostic::error(codes::NOT_ASSIGNABLE, e.span, message)
                                .note(place, "declared here")
                                .help("copy it to a variable"),
                        );
                        return false;
                    }
                }
            }
            ExprKind::Field(base, _)
            | ExprKind::TupleElement(base, _)
            | ExprKind::StackElement { stack: base, .. }
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
            | ExprKind::Slice { base, .. }
            | ExprKind::SliceFrom { base, .. } => return self.check_lvalue(base),
            ExprKind::StackLastIndex(_) => "`lastIndex` is read-only",
            ExprKind::Const(_) => "a constant cannot be assigned to",
            ExprKind::Call(_) | ExprKind::ApplyHit(_) | ExprKind::ApplyMiss(_) => {
                "the result of a call cannot be assigned to"
            }
            ExprKind::CtorParam(_) => "a constructor parameter is read-only",
            ExprKind::Instance(_) | ExprKind::This => "an instance cannot be assigned to",
            ExprKind::Cast(inner) if matches!(inner.ty, Type::SerEnum(_)) => return self.check_lvalue(inner),
            _ => "this is a value, not a place to assign to",
        };
        self.report(
            Diagnostic::error(codes::NOT_ASSIGNABLE, e.span, what)
                .help("a variable, parameter, field, element or slice is needed"),
        );
        false
    }

    /// Whether an expression has a value at compile time in every instance (it may depend on constructor parameters).
    pub fn is_compile_time(&self, e: &Expr) -> bool {
        self.is_known(e, false)
    }

    /// Like [`Checker::is_compile_time`]; with `undirected`, directionless parameters also count as known, since some
    /// callers pass constants.
    pub fn is_known(&self, e: &Expr, undirected: bool) -> bool {
        let known = |e: &Expr| self.is_known(e, undirected);
        match &e.kind {
            ExprKind::Const(_) | ExprKind::CtorParam(_) | ExprKind::Instance(_) => true,
            ExprKind::Local(id) => {
                // The caller may pass a constant; it must if all values of the type are compile-time known.
                let local = &self.body.frame.locals[id.index()];
                local.kind == LocalKind::Param(Direction::None)
                    && (undirected || matches!(local.ty, Type::Int | Type::String))
            }
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Field(a, _) | ExprKind::TupleElement(a, _) => {
                known(a)
            }
            ExprKind::Slice { base, .. } => known(base),
            ExprKind::SliceFrom { base: a, low: b, .. }
            | ExprKind::Binary(_, a, b)
            | ExprKind::StackElement { stack: a, index: b } => known(a) && known(b),
            ExprKind::Ternary { cond, then, otherwise } => known(cond) && known(then) && known(otherwise),
            ExprKind::Aggregate(elements) => elements.iter().all(known),
            _ => e.ty.is_unknown(),
        }
    }
}

/// A constant.
pub(crate) fn constant(value: Value, ty: Type, span: Span) -> Expr {
    Expr { kind: ExprKind::Const(value), ty, span }
}
