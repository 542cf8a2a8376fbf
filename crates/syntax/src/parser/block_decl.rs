//! Parsers and controls: their types, bodies, states and value sets (P4_16, "Packet parsing", "Control blocks").

use super::*;
use crate::ast::{
    Annotation, BlockTypeDecl, ControlDecl, Decl, DeclKind, Param, ParserDecl, Select, SelectCase, State, Stmt,
    Transition, TransitionKind, TypeParam, ValueSetDecl,
};

impl Parser<'_> {
    /// `parser` or `control`: a type declaration when `;` follows the parameters, else a declaration with a body.
    pub(super) fn parser_or_control(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let keyword = self.bump();
        let start = keyword.span;
        let is_parser = keyword.kind == TokenKind::Parser;
        let name = self.name(if is_parser { "a parser's name" } else { "a control's name" })?;
        self.declare(&name, NameKind::Type);
        let kind = self.scoped(|p| {
            let type_params = p.type_params()?;
            let params = p.params()?;
            if p.at(TokenKind::LParen) || p.at(TokenKind::LBrace) {
                let constructor_params = if p.at(TokenKind::LParen) { p.params()? } else { Vec::new() };
                return if is_parser {
                    p.parser_body(type_params, params, constructor_params)
                } else {
                    p.control_body(type_params, params, constructor_params)
                };
            }
            if !p.at(TokenKind::Semi) {
                let after = Span::new(p.prev_span().file, p.prev_span().end, p.prev_span().end);
                let found = p.describe();
                let message = format!("expected `{{` or `;` after the parameters, found {found}");
                p.report(Diagnostic::error(codes::UNEXPECTED_TOKEN, after, message));
                return Err(Failed);
            }
            p.bump();
            let decl = BlockTypeDecl { type_params, params };
            Ok(if is_parser { DeclKind::ParserType(decl) } else { DeclKind::ControlType(decl) })
        })?;
        Ok(self.decl_node(annotations, name, kind, start))
    }

    fn parser_body(
        &mut self,
        type_params: Vec<TypeParam>,
        params: Vec<Param>,
        constructor_params: Vec<Param>,
    ) -> Parse<DeclKind> {
        let open = self.expect(TokenKind::LBrace)?;
        let mut states: Vec<State> = Vec::new();
        let locals = self.items_until_brace(open, |p, locals| {
            let annotations = p.annotations()?;
            if p.at(TokenKind::State) && p.ahead(1).kind.is_name() {
                states.push(p.state(annotations)?);
                return Ok(());
            }
            let start = p.span();
            let decl = match p.misspelt(&[TokenKind::State, TokenKind::Const, TokenKind::ValueSet]) {
                Some(TokenKind::State) => {
                    states.push(p.state(annotations)?);
                    return Ok(());
                }
                Some(TokenKind::Const) => p.const_decl(annotations)?,
                Some(TokenKind::ValueSet) => p.value_set(annotations)?,
                _ if p.at(TokenKind::Semi) => return p.unexpected("a declaration or `state`"),
                _ if p.foreign_declaration("parser") => return Err(Failed),
                _ => p.variable_or_instance(annotations)?,
            };
            if !states.is_empty() {
                let span = p.since(start);
                let message = format!("`{}` is declared after a state", decl.name);
                p.misplaced(span, message, "declare a parser's locals before its first state");
            }
            locals.push(decl);
            Ok(())
        })?;
        Ok(DeclKind::Parser(ParserDecl { type_params, params, constructor_params, locals, states }))
    }

    /// `value_set<T>(size) name;`
    pub(super) fn value_set(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let open = self.expect(TokenKind::Lt)?;
        let element = self.type_ref()?;
        self.expect_close(TokenKind::Gt, open)?;
        let open = self.expect(TokenKind::LParen)?;
        let size = self.expr()?;
        self.expect_close(TokenKind::RParen, open)?;
        let name = self.name("a value set's name")?;
        self.declare(&name, NameKind::Value);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::ValueSet(ValueSetDecl { element, size }), start))
    }

    fn state(&mut self, annotations: Vec<Annotation>) -> Parse<State> {
        let start = self.bump().span;
        let id = self.decl_id();
        let name = self.name("a state's name")?;
        let open = self.expect(TokenKind::LBrace)?;
        self.in_state = true;
        let mut transition: Option<Transition> = None;
        let body = self.scoped(|p| {
            p.items_until_brace(open, |p, body: &mut Vec<Stmt>| {
                if let Some(first) = &transition {
                    let first = first.span;
                    let diag =
                        Diagnostic::error(codes::MISPLACED, p.span(), "nothing may follow `transition` in a state")
                            .note(first, "the transition is here");
                    p.report(diag);
                }
                if p.at(TokenKind::Transition) || p.is_misspelt_transition() {
                    let parsed = p.transition()?;
                    transition.get_or_insert(parsed);
                    return Ok(());
                }
                if p.at(TokenKind::Select) {
                    let diag = Diagnostic::error(codes::MISPLACED, p.span(), "`select` without `transition`")
                        .help("write `transition select(...) { ... }`");
                    p.report(diag);
                    return Err(Failed);
                }
                p.block_item(body)
            })
        });
        self.in_state = false;
        Ok(State { id, annotations, name, body: body?, transition, span: self.since(start) })
    }

    /// `trasition accept;` would parse as a variable of type `trasition`: reports it and treats it as the keyword.
    fn is_misspelt_transition(&mut self) -> bool {
        let token = self.token();
        let next = self.ahead(1).kind;
        let misspelt = token.kind == TokenKind::Ident
            && (next == TokenKind::Select || next.is_name() && self.ahead(2).kind == TokenKind::Semi)
            && self.scopes.lookup(token.text(), false).is_none()
            && (similar(token.text(), ["transition"].into_iter()).is_some() || token.text() == "goto");
        if misspelt {
            let message = format!("unknown keyword `{}`", token.text());
            let diag = Diagnostic::error(codes::MISSPELT_KEYWORD, token.span, message);
            self.report(diag.help("did you mean `transition`?"));
        }
        misspelt
    }

    fn transition(&mut self) -> Parse<Transition> {
        let start = self.bump().span;
        if !self.at(TokenKind::Select) {
            let next = self.name("a state's name or `select`")?;
            self.expect_semi();
            return Ok(Transition { kind: TransitionKind::Direct(next), span: self.since(start) });
        }
        self.bump();
        let open = self.expect(TokenKind::LParen)?;
        let args = self.expr_list(TokenKind::RParen)?;
        self.expect_close(TokenKind::RParen, open)?;
        let open = self.expect(TokenKind::LBrace)?;
        let cases = self.items_until_brace(open, |p, cases| {
            let start = p.span();
            let keyset = p.keyset()?;
            p.expect(TokenKind::Colon)?;
            let next = p.name("a state's name")?;
            p.expect_semi();
            cases.push(SelectCase { keyset, next, span: p.since(start) });
            Ok(())
        })?;
        Ok(Transition { kind: TransitionKind::Select(Select { args, cases }), span: self.since(start) })
    }

    /// Reports a declaration that belongs in another kind of block or at top level.
    fn foreign_declaration(&mut self, block: &str) -> bool {
        use TokenKind::*;
        let token = self.token();
        let help = match token.kind {
            Action | Table => "actions and tables are declared in controls",
            State | ValueSet => "states and value sets are declared in parsers",
            Header | HeaderUnion | Struct | Enum | Typedef | Extern | Package | Parser | Control => {
                "it is declared at top level; is a `}` missing before it?"
            }
            Apply => "only controls have an `apply` block",
            _ => return false,
        };
        let starts = matches!(self.ahead(1).kind, Lt | LBrace) || self.ahead(1).kind.is_name() || token.kind == Enum;
        if starts {
            self.misplaced(token.span, format!("`{}` cannot be declared in a {block}", token.text()), help);
        }
        starts
    }

    fn control_body(
        &mut self,
        type_params: Vec<TypeParam>,
        params: Vec<Param>,
        constructor_params: Vec<Param>,
    ) -> Parse<DeclKind> {
        let open = self.expect(TokenKind::LBrace)?;
        let mut apply = None;
        let locals = self.items_until_brace(open, |p, locals| {
            let annotations = p.annotations()?;
            let start = p.span();
            if p.at(TokenKind::Apply) && matches!(p.ahead(1).kind, TokenKind::LBrace | TokenKind::At) {
                p.bump();
                let mut annotations = annotations;
                annotations.extend(p.annotations()?);
                let block = p.block(annotations)?;
                if apply.is_some() {
                    p.misplaced(start, "a control has one `apply` block", "merge the two");
                }
                apply.get_or_insert(block);
                return Ok(());
            }
            let decl = match p.misspelt(&[TokenKind::Action, TokenKind::Table, TokenKind::Const]) {
                Some(TokenKind::Action) => p.action(annotations)?,
                Some(TokenKind::Table) => p.table(annotations)?,
                Some(TokenKind::Const) => p.const_decl(annotations)?,
                _ if matches!(
                    p.kind(),
                    TokenKind::If | TokenKind::Semi | TokenKind::LBrace | TokenKind::Switch | TokenKind::For
                ) =>
                {
                    p.misplaced(start, "statements are not allowed here", "move it into the `apply` block");
                    p.stmt()?;
                    return Ok(());
                }
                _ if p.foreign_declaration("control") => return Err(Failed),
                _ => p.variable_or_instance(annotations)?,
            };
            if apply.is_some() {
                let message = format!("`{}` is declared after the `apply` block", decl.name);
                p.misplaced(start, message, "move the `apply` block to the end of the control");
            }
            locals.push(decl);
            Ok(())
        })?;
        let Some(apply) = apply else {
            let close = self.prev_span();
            let message = "this control has no `apply` block";
            self.report(Diagnostic::error(codes::NO_APPLY, close, message).help("add `apply { }` before this"));
            return Err(Failed);
        };
        Ok(DeclKind::Control(ControlDecl { type_params, params, constructor_params, locals, apply }))
    }
}
