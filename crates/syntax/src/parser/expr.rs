//! Expressions, arguments and keyset expressions (P4_16, "Expressions", "Select expressions").

use super::types::Scan;
use super::*;
use crate::ast::{Argument, BinaryOp, Keyset, KeysetElement, KeysetKind, NamedExpr, TypeKind, TypeRef, UnaryOp};
use crate::lexer::parse_int;

/// Precedence of prefix operators and casts.
const PREFIX: u8 = 11;

impl Parser<'_> {
    /// `expression`.
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        self.nested(|p| {
            let cond = p.binary(1)?;
            if !p.at(TokenKind::Question) {
                return Ok(cond);
            }
            let mut height = p.height;
            p.bump();
            let then = p.bracketed_expr()?;
            height = height.max(p.height);
            p.expect(TokenKind::Colon)?;
            let otherwise = p.expr()?;
            height = height.max(p.height);
            p.set_height(height)?;
            let span = cond.span.to(otherwise.span);
            let kind = ExprKind::Ternary { cond: Box::new(cond), then: Box::new(then), otherwise: Box::new(otherwise) };
            Ok(p.expr_node(kind, span))
        })
    }

    /// An expression within brackets, where `>` is an operator again.
    pub(super) fn bracketed_expr(&mut self) -> Parse<Expr> {
        let outer = std::mem::replace(&mut self.greater_ends, false);
        let result = self.expr();
        self.greater_ends = outer;
        result
    }

    /// The binary operator here: `(operator, precedence, number of tokens)`.
    fn operator(&self) -> Option<(BinaryOp, u8, usize)> {
        use BinaryOp as Op;
        use TokenKind::*;
        let next = self.ahead(1);
        Some(match self.kind() {
            OrOr => (Op::Or, 1, 1),
            AndAnd => (Op::And, 2, 1),
            EqEq => (Op::Eq, 3, 1),
            NotEq => (Op::Ne, 3, 1),
            Lt => (Op::Lt, 4, 1),
            LtEq => (Op::Le, 4, 1),
            Gt if self.greater_ends => return None,
            Gt if next.kind == Gt && !next.space_before => (Op::Shr, 8, 2),
            // `>>=` is an assignment.
            Gt if next.kind == GtEq && !next.space_before => return None,
            Gt => (Op::Gt, 4, 1),
            GtEq => (Op::Ge, 4, 1),
            Or => (Op::BitOr, 5, 1),
            Caret => (Op::BitXor, 6, 1),
            And => (Op::BitAnd, 7, 1),
            Shl => (Op::Shl, 8, 1),
            // `[low +: width]`.
            Plus if next.kind == Colon => return None,
            Plus => (Op::Add, 9, 1),
            Minus => (Op::Sub, 9, 1),
            PlusPlus => (Op::Concat, 9, 1),
            PlusSat => (Op::AddSat, 9, 1),
            MinusSat => (Op::SubSat, 9, 1),
            Star => (Op::Mul, 10, 1),
            Slash => (Op::Div, 10, 1),
            Percent => (Op::Mod, 10, 1),
            _ => return None,
        })
    }

    /// Precedence climbing: parses binary operators of at least the given precedence, all left-associative.
    fn binary(&mut self, weakest: u8) -> Parse<Expr> {
        let mut left = self.unary()?;
        let mut height = self.height;
        while let Some((op, strength, used)) = self.operator().filter(|o| o.1 >= weakest) {
            for _ in 0..used {
                self.bump();
            }
            let right = self.nested(|p| p.binary(strength + 1))?;
            self.set_height(height.max(self.height))?;
            height = self.height;
            let span = left.span.to(right.span);
            left = self.expr_node(ExprKind::Binary(op, Box::new(left), Box::new(right)), span);
        }
        self.height = height;
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        let start = self.span();
        let op = match self.kind() {
            TokenKind::Minus => UnaryOp::Neg,
            TokenKind::Plus => UnaryOp::Plus,
            TokenKind::Tilde => UnaryOp::BitNot,
            TokenKind::Not => UnaryOp::Not,
            TokenKind::LParen if self.is_cast() => return self.nested(|p| p.cast()),
            _ => return self.postfix(),
        };
        self.bump();
        let operand = self.nested(|p| p.binary(PREFIX))?;
        self.set_height(self.height)?;
        let span = self.since(start);
        Ok(self.expr_node(ExprKind::Unary(op, Box::new(operand)), span))
    }

    fn cast(&mut self) -> Parse<Expr> {
        let start = self.expect(TokenKind::LParen)?;
        let ty = self.type_ref()?;
        let height = self.height;
        self.expect_close(TokenKind::RParen, start)?;
        let operand = self.binary(PREFIX)?;
        self.set_height(height.max(self.height))?;
        let span = self.since(start);
        Ok(self.expr_node(ExprKind::Cast(ty, Box::new(operand)), span))
    }

    /// Whether the parenthesis here starts a cast: it contains a type, or a name and something that can only be an
    /// operand follows.
    fn is_cast(&self) -> bool {
        use TokenKind::*;
        let closes = |end: usize| self.tokens.get(end).is_some_and(|t| t.kind == RParen);
        if self.scan_type(self.pos + 1, Scan::Known).is_some_and(closes) {
            return true;
        }
        let Some(end) = self.scan_type(self.pos + 1, Scan::AnyName).filter(|end| closes(*end)) else { return false };
        let operand = self.tokens.get(end + 1).map_or(Eof, |t| t.kind);
        matches!(operand, Ident | Int | Str | True | False | This | Not | Tilde | InvalidHeader)
    }

    fn postfix(&mut self) -> Parse<Expr> {
        let start = self.span();
        let mut expr = self.primary()?;
        let mut height = self.height;
        loop {
            let kind = match self.kind() {
                TokenKind::Dot => {
                    if let (ExprKind::Int(_), TokenKind::Int) = (&expr.kind, self.ahead(1).kind) {
                        self.bump();
                        let span = expr.span.to(self.bump().span);
                        let diag = Diagnostic::error(codes::BAD_INTEGER, span, "P4 has no numbers with a fraction")
                            .help("count in smaller units: 1500 thousandths for 1.5");
                        self.report(diag);
                        return Ok(Expr { kind: ExprKind::Missing, span, ..expr });
                    }
                    self.bump();
                    let member = self.name("a member's name")?;
                    self.height = 0;
                    ExprKind::Member(Box::new(expr), member)
                }
                TokenKind::LBracket => self.nested(|p| p.index(expr))?,
                TokenKind::LParen => {
                    let args = self.nested(|p| p.args())?;
                    ExprKind::Call { callee: Box::new(expr), type_args: Vec::new(), args }
                }
                TokenKind::Lt => match self.specialised(expr)? {
                    Ok(kind) => kind,
                    Err(unchanged) => {
                        expr = unchanged;
                        break;
                    }
                },
                _ => break,
            };
            self.set_height(height.max(self.height))?;
            height = self.height;
            expr = self.expr_node(kind, self.since(start));
        }
        self.height = height;
        Ok(expr)
    }

    /// At `<` after an expression: parses type arguments and what follows, or returns the expression (`Err`) if `<` is
    /// a comparison.
    fn specialised(&mut self, expr: Expr) -> Parse<Result<ExprKind, Expr>> {
        let path = match &expr.kind {
            ExprKind::Path(path) => Some(path),
            ExprKind::Member(..) => None,
            _ => return Ok(Err(expr)),
        };
        let is_type = path.is_some_and(|p| self.scopes.lookup(&p.name.text, p.global) == Some(NameKind::Type));
        let end = if is_type { self.scan_specialised(self.pos) } else { None };
        let behind = end.and_then(|end| self.tokens.get(end)).map(|t| t.kind);
        if behind == Some(TokenKind::LParen) || self.is_generic_call(self.pos) {
            return self.nested(|p| {
                let type_args = p.type_args()?;
                let height = p.height;
                let args = p.args()?;
                p.height = p.height.max(height);
                Ok(Ok(ExprKind::Call { callee: Box::new(expr), type_args, args }))
            });
        }
        match (behind, path) {
            (Some(TokenKind::Dot), Some(path)) => {
                let path = path.clone();
                let args = self.nested(|p| p.type_args())?;
                let span = self.since(expr.span);
                Ok(Ok(ExprKind::Type(TypeRef { kind: TypeKind::Named { path, args }, span })))
            }
            _ => Ok(Err(expr)),
        }
    }

    fn index(&mut self, base: Expr) -> Parse<ExprKind> {
        let open = self.expect(TokenKind::LBracket)?;
        let first = self.bracketed_expr()?;
        let mut height = self.height;
        let (base, first) = (Box::new(base), Box::new(first));
        let kind = match self.kind() {
            TokenKind::Colon => {
                self.bump();
                let low = self.bracketed_expr()?;
                height = height.max(self.height);
                ExprKind::Slice { base, high: first, low: Box::new(low) }
            }
            TokenKind::Plus => {
                self.bump();
                self.expect(TokenKind::Colon)?;
                let width = self.bracketed_expr()?;
                height = height.max(self.height);
                ExprKind::SliceFrom { base, low: first, width: Box::new(width) }
            }
            _ => ExprKind::Index(base, first),
        };
        self.expect_close(TokenKind::RBracket, open)?;
        self.height = height;
        Ok(kind)
    }

    fn primary(&mut self) -> Parse<Expr> {
        use TokenKind::*;
        let token = self.token();
        let span = token.span;
        self.height = 1;
        let kind = match token.kind {
            Int => {
                self.bump();
                match parse_int(token.text()) {
                    Ok(literal) => ExprKind::Int(literal),
                    Err(message) => {
                        self.diags.push(
                            Diagnostic::error(codes::BAD_INTEGER, span, message)
                                .help("examples: 10, 0x1F, 8w255, 16w0xFFFF, 4s7, 0b1010_1010"),
                        );
                        ExprKind::Missing
                    }
                }
            }
            Str => {
                self.bump();
                ExprKind::String(token.text.clone().unwrap_or_default())
            }
            True | False => {
                self.bump();
                ExprKind::Bool(token.kind == True)
            }
            This => {
                self.bump();
                ExprKind::This
            }
            Dots => {
                self.bump();
                ExprKind::Default
            }
            InvalidHeader => {
                self.bump();
                ExprKind::InvalidHeader
            }
            LBrace => return self.nested(|p| p.braces()),
            LParen => {
                self.bump();
                let mut inner = self.bracketed_expr()?;
                self.expect_close(RParen, span)?;
                inner.span = self.since(span);
                return Ok(inner);
            }
            Error if self.ahead(1).kind == Dot => {
                self.bump();
                ExprKind::Type(TypeRef { kind: TypeKind::Error, span })
            }
            Bit | IntType | Varbit | Bool | Tuple | StringType if self.types_are_values => {
                ExprKind::Type(self.type_ref()?)
            }
            // Before a member access, `sema` reports the error; before anything else a type is not allowed here.
            Bit | IntType | Varbit | Bool | Tuple
                if self
                    .scan_type(self.pos, Scan::AnyName)
                    .is_some_and(|end| self.tokens.get(end).is_some_and(|t| t.kind == Dot)) =>
            {
                let ty = self.type_ref()?;
                ExprKind::Type(ty)
            }
            Dot => ExprKind::Path(self.path("a name")?),
            kind if kind.is_name() => ExprKind::Path(self.path("a name")?),
            _ => return self.unexpected("an expression"),
        };
        Ok(self.expr_node(kind, self.since(span)))
    }

    /// `{ a, b }`, `{ x = a, ... }`.
    fn braces(&mut self) -> Parse<Expr> {
        let open = self.expect(TokenKind::LBrace)?;
        let outer = std::mem::replace(&mut self.greater_ends, false);
        self.braces += 1;
        let kind = if self.kind().is_name() && self.ahead(1).kind == TokenKind::Eq {
            self.key_values(TokenKind::RBrace).map(|(fields, dots)| ExprKind::Record { fields, dots })
        } else {
            self.expr_list(TokenKind::RBrace).map(ExprKind::List)
        };
        self.braces -= 1;
        self.greater_ends = outer;
        let kind = kind?;
        self.expect_close(TokenKind::RBrace, open)?;
        self.set_height(self.height)?;
        Ok(self.expr_node(kind, self.since(open)))
    }

    /// Expressions separated by commas, with an optional trailing comma, up to `end` (not consumed).
    pub(super) fn expr_list(&mut self, end: TokenKind) -> Parse<Vec<Expr>> {
        let mut exprs = Vec::new();
        let mut height = 0;
        while !self.at(end) {
            exprs.push(self.expr()?);
            height = height.max(self.height);
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.height = height;
        Ok(exprs)
    }

    /// `name = expr` separated by commas up to `end` (not consumed); the last may be `...`.
    pub(super) fn key_values(&mut self, end: TokenKind) -> Parse<(Vec<NamedExpr>, Option<Span>)> {
        let mut fields = Vec::new();
        let mut dots = None;
        let mut height = 0;
        while !self.at(end) {
            if self.at(TokenKind::Dots) && !fields.is_empty() {
                dots = Some(self.bump().span);
                self.eat(TokenKind::Comma);
                break;
            }
            let name = self.name("a field's name")?;
            self.expect(TokenKind::Eq)?;
            let value = self.expr()?;
            height = height.max(self.height);
            let span = name.span.to(value.span);
            fields.push(NamedExpr { name, value, span });
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.height = height;
        Ok((fields, dots))
    }

    /// `(argumentList)`.
    pub(super) fn args(&mut self) -> Parse<Vec<Argument>> {
        let open = self.expect(TokenKind::LParen)?;
        let outer = std::mem::replace(&mut self.greater_ends, false);
        let args = self.args_within();
        self.greater_ends = outer;
        let args = args?;
        self.expect_close(TokenKind::RParen, open)?;
        Ok(args)
    }

    fn args_within(&mut self) -> Parse<Vec<Argument>> {
        let mut args = Vec::new();
        let mut height = 0;
        if !self.at(TokenKind::RParen) {
            loop {
                let start = self.span();
                let mut name = None;
                if self.kind().is_name() && self.ahead(1).kind == TokenKind::Eq {
                    name = Some(self.name("an argument")?);
                    self.bump();
                }
                let value = if self.at(TokenKind::Underscore) {
                    let span = self.bump().span;
                    self.height = 1;
                    self.expr_node(ExprKind::DontCare, span)
                } else {
                    self.expr()?
                };
                height = height.max(self.height);
                args.push(Argument { name, value, span: self.since(start) });
                if !self.eat(TokenKind::Comma) {
                    break;
                }
            }
        }
        self.height = height;
        Ok(args)
    }

    /// `keysetExpression`.
    pub(super) fn keyset(&mut self) -> Parse<Keyset> {
        let start = self.span();
        let elements = if self.at(TokenKind::LParen) && self.is_keyset_tuple() {
            let open = self.bump().span;
            let mut elements = vec![self.keyset_element()?];
            while self.eat(TokenKind::Comma) {
                elements.push(self.keyset_element()?);
            }
            self.expect_close(TokenKind::RParen, open)?;
            elements
        } else {
            vec![self.keyset_element()?]
        };
        Ok(Keyset { elements, span: self.since(start) })
    }

    /// Whether the parenthesis here encloses keyset elements and not an expression: it contains a comma, `&&&`, `..`,
    /// `default` or `_` at its own level and ends the keyset.
    fn is_keyset_tuple(&self) -> bool {
        use TokenKind::*;
        let Some(end) = self.after_group(self.pos) else { return false };
        if !matches!(self.tokens.get(end).map(|t| t.kind), Some(Colon)) {
            return false;
        }
        let mut pos = self.pos + 1;
        while pos + 1 < end {
            match self.tokens[pos].kind {
                Comma | MaskOp | DotDot | Default | Underscore => return true,
                LParen | LBrace | LBracket => match self.after_group(pos) {
                    Some(behind) => pos = behind,
                    None => return false,
                },
                _ => pos += 1,
            }
        }
        false
    }

    fn keyset_element(&mut self) -> Parse<KeysetElement> {
        let start = self.span();
        let kind = match self.kind() {
            TokenKind::Default => {
                self.bump();
                KeysetKind::Default
            }
            TokenKind::Underscore => {
                self.bump();
                KeysetKind::DontCare
            }
            _ => {
                let first = self.expr()?;
                if self.eat(TokenKind::MaskOp) {
                    KeysetKind::Mask(first, self.expr()?)
                } else if self.eat(TokenKind::DotDot) {
                    KeysetKind::Range(first, self.expr()?)
                } else {
                    KeysetKind::Expr(first)
                }
            }
        };
        Ok(KeysetElement { kind, span: self.since(start) })
    }
}
