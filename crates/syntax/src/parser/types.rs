//! Types, type parameters and type arguments (P4_16, "P4 data types"), and the lookahead scan that distinguishes them
//! from expressions.

use super::*;
use crate::ast::{IntLiteral, IntLiteralType, Path, TypeKind, TypeParam, TypeRef};

/// Maximum nesting of types in the lookahead scan.
const SCAN_NESTING_MAX: u32 = 32;

/// Which names the lookahead scan accepts as types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// Declared types only.
    Known,
    /// Any name.
    AnyName,
}

impl Parser<'_> {
    /// `typeRef`.
    pub(super) fn type_ref(&mut self) -> Parse<TypeRef> {
        match self.kind() {
            TokenKind::Void => {
                let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), "expected a type, found `void`");
                self.report(diag.help("`void` is the result of functions and methods only"));
                Err(Failed)
            }
            TokenKind::Underscore => {
                let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), "expected a type, found `_`");
                self.report(diag.help("`_` is a type only between `<` and `>`"));
                Err(Failed)
            }
            _ => self.type_arg(),
        }
    }

    /// `typeOrVoid`.
    pub(super) fn type_or_void(&mut self) -> Parse<TypeRef> {
        if self.at(TokenKind::Void) { self.type_arg() } else { self.type_ref() }
    }

    /// `typeArg`: a type, `void` or `_`.
    fn type_arg(&mut self) -> Parse<TypeRef> {
        self.nested(|p| {
            let start = p.span();
            let kind = p.type_kind()?;
            let mut height = p.height;
            let mut ty = TypeRef { kind, span: p.since(start) };
            while p.at(TokenKind::LBracket) {
                ty = p.array_suffix(ty)?;
                height = height.max(p.height);
                p.set_height(height)?;
                height = p.height;
            }
            p.height = height;
            Ok(ty)
        })
    }

    /// `[size]` after a type or declared name.
    pub(super) fn array_suffix(&mut self, element: TypeRef) -> Parse<TypeRef> {
        let open = self.expect(TokenKind::LBracket)?;
        let size = self.bracketed_expr()?;
        let close = self.expect_close(TokenKind::RBracket, open)?;
        let span = element.span.to(close);
        Ok(TypeRef { kind: TypeKind::Array(Box::new(element), Box::new(size)), span })
    }

    fn type_kind(&mut self) -> Parse<TypeKind> {
        use TokenKind::*;
        let token = self.token();
        self.height = 1;
        let simple = match token.kind {
            Bool => Some(TypeKind::Bool),
            Error => Some(TypeKind::Error),
            MatchKind => Some(TypeKind::MatchKind),
            StringType => Some(TypeKind::String),
            Void => Some(TypeKind::Void),
            Underscore => Some(TypeKind::DontCare),
            _ => None,
        };
        if let Some(kind) = simple {
            self.bump();
            return Ok(kind);
        }
        match token.kind {
            Bit => {
                self.bump();
                if self.at(Lt) {
                    return Ok(TypeKind::Bit(self.width()?));
                }
                let one = IntLiteral { value: 1.into(), ty: IntLiteralType::Int, radix: 10 };
                Ok(TypeKind::Bit(Box::new(self.expr_node(ExprKind::Int(one), token.span))))
            }
            IntType => {
                self.bump();
                if self.at(Lt) { Ok(TypeKind::IntN(self.width()?)) } else { Ok(TypeKind::Int) }
            }
            Varbit => {
                self.bump();
                Ok(TypeKind::Varbit(self.width()?))
            }
            Tuple => {
                self.bump();
                Ok(TypeKind::Tuple(self.type_args()?))
            }
            List if self.ahead(1).kind == Lt => {
                self.bump();
                let span = self.span();
                let mut args = self.type_args()?;
                match (args.pop(), args.is_empty()) {
                    (Some(element), true) => Ok(TypeKind::List(Box::new(element))),
                    _ => {
                        let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, span, "`list` takes one type argument");
                        self.report(diag);
                        Err(Failed)
                    }
                }
            }
            Dot => Ok(self.named_type()?),
            kind if kind.is_name() => Ok(self.named_type()?),
            _ => self.unexpected("a type"),
        }
    }

    fn named_type(&mut self) -> Parse<TypeKind> {
        let path = self.path("a type")?;
        let args = if self.at(TokenKind::Lt) { self.type_args()? } else { Vec::new() };
        Ok(TypeKind::Named { path, args })
    }

    /// `name` or `.name`.
    pub(super) fn path(&mut self, what: &str) -> Parse<Path> {
        let global = self.eat(TokenKind::Dot);
        Ok(Path { global, name: self.name(what)? })
    }

    /// `<width>` of `bit`, `int` and `varbit`: an expression in which `>` is not an operator outside parentheses.
    fn width(&mut self) -> Parse<Box<Expr>> {
        let open = self.expect(TokenKind::Lt)?;
        let outer = std::mem::replace(&mut self.greater_ends, true);
        let width = self.expr();
        self.greater_ends = outer;
        let width = width?;
        self.expect_close(TokenKind::Gt, open)?;
        Ok(Box::new(width))
    }

    /// `<T, U>`, possibly empty.
    pub(super) fn type_args(&mut self) -> Parse<Vec<TypeRef>> {
        let open = self.expect(TokenKind::Lt)?;
        let mut args = Vec::new();
        let mut height = 0;
        if !self.at(TokenKind::Gt) {
            loop {
                args.push(self.type_arg()?);
                height = height.max(self.height);
                if !self.eat(TokenKind::Comma) {
                    break;
                }
            }
        }
        self.expect_close(TokenKind::Gt, open)?;
        self.set_height(height)?;
        Ok(args)
    }

    /// `<T, U>` of a declaration, declared in the current scope; nothing when there is no `<`.
    pub(super) fn type_params(&mut self) -> Parse<Vec<TypeParam>> {
        let mut params = Vec::new();
        if !self.at(TokenKind::Lt) {
            return Ok(params);
        }
        let open = self.bump().span;
        loop {
            let name = self.name("a type parameter")?;
            self.declare(&name, NameKind::Type);
            params.push(TypeParam { id: self.decl_id(), name });
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.expect_close(TokenKind::Gt, open)?;
        Ok(params)
    }

    /// The position after the type that starts at `pos`, if there is one. Builds and reports nothing.
    pub(super) fn scan_type(&self, pos: usize, names: Scan) -> Option<usize> {
        self.scan_type_within(pos, names, SCAN_NESTING_MAX)
    }

    fn scan_type_within(&self, pos: usize, names: Scan, depth: u32) -> Option<usize> {
        use TokenKind::*;
        let kind = |pos: usize| self.tokens.get(pos).map_or(Eof, |t| t.kind);
        let mut end = match kind(pos) {
            Bool | Error | MatchKind | StringType | Void | Underscore => pos + 1,
            Bit | IntType | Varbit if kind(pos + 1) == Lt => self.scan_width(pos + 1)?,
            Bit | IntType => pos + 1,
            Tuple => self.scan_type_args(pos + 1, Scan::AnyName, depth)?,
            List if kind(pos + 1) == Lt => self.scan_type_args(pos + 1, Scan::AnyName, depth)?,
            first => {
                if names == Scan::Known && self.name_kind_at(pos) != Some(NameKind::Type) {
                    return None;
                }
                let name = if first == Dot { pos + 1 } else { pos };
                if !kind(name).is_name() {
                    return None;
                }
                if kind(name + 1) == Lt { self.scan_type_args(name + 1, Scan::AnyName, depth)? } else { name + 1 }
            }
        };
        while kind(end) == LBracket {
            end = self.after_group(end)?;
        }
        Some(end)
    }

    /// The position after `<T, U>`; `names` applies to the first argument only, as in the grammar
    /// (`realTypeArgumentList`).
    fn scan_type_args(&self, pos: usize, names: Scan, depth: u32) -> Option<usize> {
        use TokenKind::*;
        let depth = depth.checked_sub(1)?;
        let kind = |pos: usize| self.tokens.get(pos).map_or(Eof, |t| t.kind);
        if kind(pos) != Lt {
            return None;
        }
        if kind(pos + 1) == Gt {
            return Some(pos + 2);
        }
        let mut end = self.scan_type_within(pos + 1, names, depth)?;
        loop {
            match kind(end) {
                Comma => end = self.scan_type_within(end + 1, Scan::AnyName, depth)?,
                Gt => return Some(end + 1),
                _ => return None,
            }
        }
    }

    /// The position after `<width>`.
    fn scan_width(&self, pos: usize) -> Option<usize> {
        use TokenKind::*;
        let mut pos = pos + 1;
        loop {
            pos = match self.tokens.get(pos)?.kind {
                Gt => return Some(pos + 1),
                LParen | LBracket => self.after_group(pos)?,
                Semi | LBrace | RBrace | RParen | RBracket | Eof | Eq => return None,
                _ => pos + 1,
            };
        }
    }

    /// Whether `<` at `pos` opens the type arguments of a call: `<T>(`, where the first argument is certainly a type.
    pub(super) fn is_generic_call(&self, pos: usize) -> bool {
        let end = self.scan_type_args(pos, Scan::Known, SCAN_NESTING_MAX);
        end.is_some_and(|end| self.tokens.get(end).is_some_and(|t| t.kind == TokenKind::LParen))
    }

    /// The position after type arguments that are followed by `(` or `.`, after the name of a type.
    pub(super) fn scan_specialised(&self, pos: usize) -> Option<usize> {
        self.scan_type_args(pos, Scan::AnyName, SCAN_NESTING_MAX)
    }
}
