//! Statements and blocks (P4_16, chapter "Statements").

use super::types::Scan;
use super::*;
use crate::ast::{
    Annotation, BinaryOp, Block, Decl, DeclKind, ForCollection, ForInStmt, ForStmt, Stmt, StmtKind, SwitchCase,
    SwitchLabel, VariableDecl,
};

/// The kind of a statement, as determined by its first tokens.
enum Start {
    Declaration,
    Expression,
}

impl Parser<'_> {
    /// `blockStatement`; `annotations` are those before it.
    pub(super) fn block(&mut self, annotations: Vec<Annotation>) -> Parse<Block> {
        self.nested(|p| {
            let open = p.expect(TokenKind::LBrace)?;
            let stmts = p.scoped(|p| p.items_until_brace(open, Self::block_item))?;
            Ok(Block { annotations, stmts, span: p.since(open) })
        })
    }

    /// A statement or declaration in a block or state.
    pub(super) fn block_item(&mut self, items: &mut Vec<Stmt>) -> Parse<()> {
        items.push(self.stmt()?);
        Ok(())
    }

    pub(super) fn stmt(&mut self) -> Parse<Stmt> {
        self.nested(|p| {
            let start = p.span();
            let kind = p.stmt_kind()?;
            Ok(Stmt { kind, span: p.since(start) })
        })
    }

    fn stmt_kind(&mut self) -> Parse<StmtKind> {
        use TokenKind::*;
        let start = self.span();
        let annotations = self.annotations()?;
        let token = self.token();
        if self.in_state && matches!(token.kind, Switch | For | Return | Exit | Break | Continue) {
            let message = format!("`{}` is not allowed in a parser state", token.text());
            self.misplaced(token.span, message, "use `transition` and more states");
        }
        if !annotations.is_empty() && matches!(token.kind, If | Return | Exit | Break | Continue | Switch | Semi) {
            let span = self.since(start);
            self.misplaced(span, "annotations are not allowed on this statement", "put it in a block: `@a { ... }`");
        }
        match token.kind {
            Semi => {
                self.bump();
                Ok(StmtKind::Empty)
            }
            LBrace => Ok(StmtKind::Block(self.block(annotations)?)),
            If => self.if_stmt(),
            Switch => self.switch(),
            For => self.for_stmt(annotations),
            Return => {
                self.bump();
                let value = if matches!(self.kind(), Semi | RBrace) { None } else { Some(self.expr()?) };
                self.expect_semi();
                Ok(StmtKind::Return(value))
            }
            Exit => self.keyword_stmt(StmtKind::Exit),
            Break => self.keyword_stmt(StmtKind::Break),
            Continue => self.keyword_stmt(StmtKind::Continue),
            Const => Ok(StmtKind::Decl(Box::new(self.const_decl(annotations)?))),
            State if self.ahead(1).kind.is_name() && self.ahead(2).kind == LBrace => {
                self.misplaced(token.span, "a state is not allowed within a state", "is a `}` missing before it?");
                Err(Failed)
            }
            Action | Table | Control | Parser | Struct | Header | HeaderUnion | Enum | Extern | Typedef | Package
                if self.ahead(1).kind.is_name() =>
            {
                let message = format!("a declaration of `{}` is not allowed within statements", token.text());
                self.misplaced(token.span, message, "move it out of the block; is a `}` missing before it?");
                Err(Failed)
            }
            Else => {
                let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, token.span, "`else` without `if`")
                    .help("the branch before `else` must be one statement or a `{ }` block");
                self.report(diag);
                self.bump();
                Err(Failed)
            }
            Ident
                if token.text() == "while"
                    && self.ahead(1).kind == LParen
                    && self.scopes.lookup("while", false).is_none() =>
            {
                self.misplaced(token.span, "P4 has no `while`", "write `for (; condition; ) { ... }`");
                self.bump();
                let open = self.expect(LParen)?;
                self.expr()?;
                self.expect_close(RParen, open)?;
                self.stmt_kind()
            }
            _ => match self.statement_start() {
                Start::Declaration => {
                    let decl = self.variable_or_instance(annotations)?;
                    Ok(StmtKind::Decl(Box::new(decl)))
                }
                Start::Expression => {
                    if !annotations.is_empty() {
                        let span = self.since(start);
                        let help = "put the statement in a block: `@a { ... }`";
                        self.misplaced(span, "annotations are not allowed on this statement", help);
                    }
                    let kind = self.assignment_or_call()?;
                    self.expect_semi();
                    Ok(kind)
                }
            },
        }
    }

    fn keyword_stmt(&mut self, kind: StmtKind) -> Parse<StmtKind> {
        self.bump();
        self.expect_semi();
        Ok(kind)
    }

    /// The kind of statement that starts here; `T name` and `T(args) name` are declarations.
    fn statement_start(&self) -> Start {
        use TokenKind::*;
        let base_type =
            matches!(self.kind(), Bit | IntType | Varbit | Bool | Tuple | StringType | MatchKind | Void | ValueSet);
        if base_type || self.at(Error) && self.ahead(1).kind != Dot {
            return Start::Declaration;
        }
        let list = self.at(List) && self.ahead(1).kind == Lt;
        if !list && self.name_kind_at(self.pos) == Some(NameKind::Value) {
            return Start::Expression;
        }
        let Some(mut end) = self.scan_type(self.pos, Scan::AnyName) else { return Start::Expression };
        if self.tokens.get(end).is_some_and(|t| t.kind == LParen) {
            match self.after_group(end) {
                Some(behind) => end = behind,
                None => return Start::Expression,
            }
        }
        if self.tokens.get(end).is_some_and(|t| t.kind.is_name()) { Start::Declaration } else { Start::Expression }
    }

    /// `T name = init;`, `T(args) name;` or `T(args) name = { ... };`
    pub(super) fn variable_or_instance(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.span();
        let ty = self.type_ref()?;
        if self.at(TokenKind::LParen) {
            return self.instantiation(annotations, ty, start);
        }
        if self.kind().is_name() && self.ahead(1).kind == TokenKind::LParen && self.is_function() {
            let message = format!("the function `{}` is declared within a block", self.token().text());
            self.misplaced(self.span(), message, "declare it at top level, above its use");
            return Err(Failed);
        }
        let decl = self.variable(annotations, ty, start)?;
        self.expect_semi();
        Ok(decl)
    }

    /// Whether the name here is followed by the parameters and body of a function.
    fn is_function(&self) -> bool {
        let behind = self.after_group(self.pos + 1).and_then(|pos| self.tokens.get(pos));
        behind.is_some_and(|t| t.kind == TokenKind::LBrace)
    }

    /// `name = init` after a type, without the semicolon.
    fn variable(&mut self, annotations: Vec<Annotation>, ty: crate::ast::TypeRef, start: Span) -> Parse<Decl> {
        let (name, ty) = self.declarator("a variable's name", ty)?;
        let init = if self.eat(TokenKind::Eq) { Some(self.expr()?) } else { None };
        self.declare(&name, NameKind::Value);
        let kind = DeclKind::Variable(VariableDecl { ty, init });
        Ok(self.decl_node(annotations, name, kind, start))
    }

    /// An assignment or call without its semicolon.
    fn assignment_or_call(&mut self) -> Parse<StmtKind> {
        use TokenKind::*;
        let first = self.token();
        let target = self.expr()?;
        let adjacent = self.ahead(1).kind == GtEq && !self.ahead(1).space_before;
        let (op, used) = match self.kind() {
            Eq => (None, 1),
            PlusEq => (Some(BinaryOp::Add), 1),
            MinusEq => (Some(BinaryOp::Sub), 1),
            StarEq => (Some(BinaryOp::Mul), 1),
            SlashEq => (Some(BinaryOp::Div), 1),
            PercentEq => (Some(BinaryOp::Mod), 1),
            AndEq => (Some(BinaryOp::BitAnd), 1),
            OrEq => (Some(BinaryOp::BitOr), 1),
            CaretEq => (Some(BinaryOp::BitXor), 1),
            ShlEq => (Some(BinaryOp::Shl), 1),
            PlusSatEq => (Some(BinaryOp::AddSat), 1),
            MinusSatEq => (Some(BinaryOp::SubSat), 1),
            Gt if adjacent => (Some(BinaryOp::Shr), 2),
            _ => {
                if matches!(target.kind, ExprKind::Call { .. }) {
                    return Ok(StmtKind::Call(target));
                }
                if self.kind().is_name() && matches!(target.kind, ExprKind::Path(_)) {
                    return self.unexpected("`=`, `.`, `(` or `;`");
                }
                if self.token().line_start || matches!(self.kind(), Semi | RBrace) {
                    let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, target.span, "this is not a statement")
                        .help("a statement assigns (`x = ...;`), calls (`f(...);`) or starts with a keyword");
                    let diag = if first.kind == Ident { self.with_hint_first(first, diag) } else { diag };
                    self.report(diag);
                    return Err(Failed);
                }
                return self.unexpected("`=`, an assignment operator, or a call");
            }
        };
        for _ in 0..used {
            self.bump();
        }
        let value = self.expr()?;
        Ok(StmtKind::Assign { target, op, value })
    }

    /// Replaces the help if the statement's first word is similar to a statement keyword (`exti;`).
    fn with_hint_first(&self, first: &Token, diag: Diagnostic) -> Diagnostic {
        let keywords = ["return", "exit", "break", "continue", "switch", "apply"];
        match similar(first.text(), keywords.into_iter()) {
            Some(keyword) if self.scopes.lookup(first.text(), false).is_none() => {
                diag.help(format!("did you mean `{keyword}`?"))
            }
            _ => diag,
        }
    }

    /// `if`, with the whole chain of `else if` parsed in a loop: generated programs have hundreds.
    fn if_stmt(&mut self) -> Parse<StmtKind> {
        let outer = self.else_ifs;
        let result = self.if_chain();
        self.else_ifs = outer;
        result
    }

    fn if_chain(&mut self) -> Parse<StmtKind> {
        let mut arms = Vec::new();
        let last = loop {
            let start = self.bump().span;
            let cond = self.condition()?;
            let then = Box::new(self.stmt()?);
            arms.push((start, cond, then));
            if !self.eat(TokenKind::Else) {
                break None;
            }
            if !self.at(TokenKind::If) {
                break Some(Box::new(self.stmt()?));
            }
            self.else_ifs += 1;
            if self.else_ifs > ELSE_IFS_MAX {
                return self.too_deep();
            }
        };
        let end = self.prev_span();
        let mut otherwise = last;
        while arms.len() > 1
            && let Some((start, cond, then)) = arms.pop()
        {
            let kind = StmtKind::If { cond, then, otherwise };
            otherwise = Some(Box::new(Stmt { kind, span: start.to(end) }));
        }
        match arms.pop() {
            Some((_, cond, then)) => Ok(StmtKind::If { cond, then, otherwise }),
            None => self.unexpected("`if`"),
        }
    }

    /// `(expression)`.
    fn condition(&mut self) -> Parse<Expr> {
        let open = self.expect(TokenKind::LParen)?;
        let cond = self.expr()?;
        self.expect_close(TokenKind::RParen, open)?;
        Ok(cond)
    }

    fn switch(&mut self) -> Parse<StmtKind> {
        self.bump();
        let subject = self.condition()?;
        let open = self.expect(TokenKind::LBrace)?;
        let cases = self.items_until_brace(open, |p, cases| {
            let start = p.span();
            let label = if p.at(TokenKind::Default) {
                SwitchLabel::Default(p.bump().span)
            } else if p.at(TokenKind::LBrace) {
                p.misplaced(start, "a `switch` label cannot start with `{`", "put the label in parentheses");
                SwitchLabel::Expr(p.expr()?)
            } else {
                SwitchLabel::Expr(p.expr()?)
            };
            p.expect(TokenKind::Colon)?;
            let body = if matches!(p.kind(), TokenKind::LBrace | TokenKind::At) {
                let annotations = p.annotations()?;
                Some(p.block(annotations)?)
            } else {
                None
            };
            cases.push(SwitchCase { label, body, span: p.since(start) });
            Ok(())
        })?;
        Ok(StmtKind::Switch { subject, cases })
    }

    fn for_stmt(&mut self, annotations: Vec<Annotation>) -> Parse<StmtKind> {
        self.bump();
        let open = self.expect(TokenKind::LParen)?;
        self.scoped(|p| {
            let start = p.span();
            if p.at(TokenKind::Semi) {
                return p.for_rest(annotations, Vec::new(), open);
            }
            let inner = p.annotations()?;
            if let Start::Declaration = p.statement_start() {
                let ty = p.type_ref()?;
                if p.kind().is_name() && p.ahead(1).kind == TokenKind::In {
                    return p.for_in(annotations, inner, ty, start, open);
                }
                let first = p.variable(inner, ty, start)?;
                let init = vec![Stmt { span: first.span, kind: StmtKind::Decl(Box::new(first)) }];
                return p.for_rest(annotations, init, open);
            }
            let kind = p.assignment_or_call()?;
            let init = vec![Stmt { kind, span: p.since(start) }];
            p.for_rest(annotations, init, open)
        })
    }

    /// The rest of a `for` statement after its first initialiser.
    fn for_rest(&mut self, annotations: Vec<Annotation>, mut init: Vec<Stmt>, open: Span) -> Parse<StmtKind> {
        while !init.is_empty() && self.eat(TokenKind::Comma) {
            let start = self.span();
            let inner = self.annotations()?;
            let kind = match self.statement_start() {
                Start::Declaration => {
                    let ty = self.type_ref()?;
                    StmtKind::Decl(Box::new(self.variable(inner, ty, start)?))
                }
                Start::Expression => self.assignment_or_call()?,
            };
            init.push(Stmt { kind, span: self.since(start) });
        }
        self.expect_semi();
        let cond = self.expr()?;
        self.expect_semi();
        let mut update = Vec::new();
        if !self.at(TokenKind::RParen) {
            loop {
                let start = self.span();
                let kind = self.assignment_or_call()?;
                update.push(Stmt { kind, span: self.since(start) });
                if !self.eat(TokenKind::Comma) {
                    break;
                }
            }
        }
        self.expect_close(TokenKind::RParen, open)?;
        let body = self.stmt()?;
        Ok(StmtKind::For(Box::new(ForStmt { annotations, init, cond, update, body })))
    }

    /// The rest of `for (T name in collection) body` after the type.
    fn for_in(
        &mut self,
        annotations: Vec<Annotation>,
        inner: Vec<Annotation>,
        ty: crate::ast::TypeRef,
        start: Span,
        open: Span,
    ) -> Parse<StmtKind> {
        let name = self.name("a variable's name")?;
        let kind = DeclKind::Variable(VariableDecl { ty, init: None });
        let variable = self.decl_node(inner, name, kind, start);
        self.expect(TokenKind::In)?;
        let first = self.expr()?;
        let collection = if self.eat(TokenKind::DotDot) {
            ForCollection::Range(first, self.expr()?)
        } else {
            ForCollection::Expr(first)
        };
        self.expect_close(TokenKind::RParen, open)?;
        self.declare(&variable.name, NameKind::Value);
        let body = self.stmt()?;
        Ok(StmtKind::ForIn(Box::new(ForInStmt { annotations, variable, collection, body })))
    }
}
