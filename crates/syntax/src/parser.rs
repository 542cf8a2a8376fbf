//! The parser: tokens to syntax tree. A recursive-descent parser for the grammar of the P4_16 specification.
//!
//! **Type names.** P4's grammar depends on whether a name is a type in two places: only then is `(name) operand` a cast
//! and `name < name > (x)` a generic call. Names are declared before use, so the parser keeps a stack of scopes that
//! records whether each name was declared as a type or as something else (`scope::Scopes`). It decides with this and a
//! lookahead scan over tokens that builds nothing (`types::scan_type`): linear, bounded, without backtracking.
//! Everything else (declaration or statement? instantiation or call?) follows from the token sequence, so that an
//! undeclared name gets «unknown name» from `sema` instead of a syntax error here.
//!
//! **Error recovery.** A production that cannot continue reports once and returns `Err(Failed)`; loops over lists
//! (declarations, statements, fields, properties, states, cases) catch it, skip to the next `;` or the bracket that
//! closes the list, and continue. A missing `;` is reported after the previous token and assumed. At most one error is
//! reported per token, and [`ERRORS_MAX`] in total.
//!
//! **Limits.** Nesting is bounded by [`NESTING_MAX`], and the height of an expression tree by [`HEIGHT_MAX`] (long
//! chains like `a + a + …` need no recursion here, but traversals of the tree recurse over them); [`ELSE_IFS_MAX`]
//! bounds `else if` chains likewise.
//!
//! Extensions of the grammar, as in p4c: `bit<expr>` without parentheses, `T name[n]` declarators, instances in blocks,
//! `extern name;` as a forward declaration.
//!
//! One file per part of the grammar: `annotation`, `decl`, `extern_decl`, `block_decl` (parsers, controls), `table`,
//! `stmt`, `expr`, `types`.
//! Tests: `tests/ok`, `tests/err` of this crate; properties in `tests/robust.rs`.

mod annotation;
mod block_decl;
mod decl;
mod expr;
mod extern_decl;
mod scope;
mod stmt;
mod table;
mod types;

use base::{Diagnostic, Span};

use crate::ast::{DeclId, Expr, ExprId, ExprKind, Name, Program};
use crate::codes;
use crate::token::{Token, TokenKind};
use base::spelling::similar;
use scope::{NameKind, Scopes};

/// Maximum nesting of expressions, types, statements and declarations.
pub const NESTING_MAX: u32 = 200;
/// Maximum height of an expression tree.
pub const HEIGHT_MAX: u32 = 1000;
/// Maximum number of `else if` branches around a statement, over all levels.
pub const ELSE_IFS_MAX: u32 = 1000;
/// Maximum number of errors reported in one run.
pub const ERRORS_MAX: usize = 64;

/// Parses a preprocessed program. Always returns a tree; it is complete if no diagnostic is an error.
pub fn parse(tokens: &[Token]) -> (Program, Vec<Diagnostic>) {
    let end = [Token {
        kind: TokenKind::Eof,
        text: None,
        span: tokens.last().map_or(Span::NONE, |t| t.span),
        line_start: true,
        space_before: true,
        no_expand: false,
    }];
    let tokens = if tokens.last().is_some_and(|t| t.kind == TokenKind::Eof) { tokens } else { &end };
    let (tokens, diags) = annotation::drop_bad_characters(tokens);
    let mut parser = Parser {
        tokens: &tokens,
        pos: 0,
        diags,
        last_error_pos: None,
        gave_up: false,
        expr_count: 0,
        decl_count: 0,
        scopes: Scopes::default(),
        nesting: 0,
        else_ifs: 0,
        height: 0,
        greater_ends: false,
        braces: 0,
        types_are_values: false,
        in_state: false,
    };
    let decls = parser.program();
    let program = Program { decls, expr_count: parser.expr_count, decl_count: parser.decl_count };
    (program, parser.diags)
}

/// The production was abandoned; its error has been reported.
struct Failed;

type Parse<T> = Result<T, Failed>;

struct Parser<'t> {
    /// The input; ends with [`TokenKind::Eof`].
    tokens: &'t [Token],
    pos: usize,
    diags: Vec<Diagnostic>,
    /// Token position of the last reported error.
    last_error_pos: Option<usize>,
    /// Set at [`ERRORS_MAX`]: the rest of the input is skipped.
    gave_up: bool,
    expr_count: u32,
    decl_count: u32,
    scopes: Scopes,
    /// Current recursion depth.
    nesting: u32,
    /// `else if` branches around the current statement.
    else_ifs: u32,
    /// Height of the expression or type parsed last.
    height: u32,
    /// Within `bit<...>`: `>` closes the bracket and is not an operator.
    greater_ends: bool,
    /// Number of `{ ... }` expressions around the current one.
    braces: u32,
    /// Within an unstructured annotation, where types are accepted as expressions (`@p4runtime_translation("",
    /// bit<32>)`).
    types_are_values: bool,
    /// Within a parser state, where fewer statements are allowed.
    in_state: bool,
}

impl<'t> Parser<'t> {
    // ------------------------------------------------------------------------------------------------ tokens

    fn token(&self) -> &'t Token {
        &self.tokens[self.pos.min(self.tokens.len() - 1)]
    }

    fn ahead(&self, n: usize) -> &'t Token {
        &self.tokens[(self.pos + n).min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn at(&self, kind: TokenKind) -> bool {
        self.kind() == kind
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// The span of the token read last.
    fn prev_span(&self) -> Span {
        if self.pos == 0 { self.span() } else { self.tokens[self.pos.min(self.tokens.len()) - 1].span }
    }

    /// The span from `start` to the token read last.
    fn since(&self, start: Span) -> Span {
        start.to(self.prev_span())
    }

    fn bump(&mut self) -> &'t Token {
        let token = self.token();
        if token.kind != TokenKind::Eof {
            self.pos += 1;
        }
        token
    }

    fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.at(kind);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, kind: TokenKind) -> Parse<Span> {
        if self.at(kind) { Ok(self.bump().span) } else { self.unexpected(&format!("`{}`", kind.text())) }
    }

    /// Expects `;`; a missing one is reported after the previous token and assumed.
    fn expect_semi(&mut self) {
        if self.eat(TokenKind::Semi) {
            return;
        }
        let prev = self.prev_span();
        let after = Span::new(prev.file, prev.end, prev.end);
        let found = self.describe();
        let diag = Diagnostic::error(codes::MISSING_SEMICOLON, after, format!("expected `;`, found {found}"));
        let diag = match self.kind() {
            TokenKind::Comma => diag.label("write `;` instead of `,`"),
            _ => match self.operator_hint() {
                Some(hint) => diag.help(hint),
                None => diag.label("add `;` here"),
            },
        };
        self.report(diag);
        self.eat(TokenKind::Comma);
    }

    /// Expects the bracket that closes `open`.
    fn expect_close(&mut self, kind: TokenKind, open: Span) -> Parse<Span> {
        if self.at(kind) {
            return Ok(self.bump().span);
        }
        let found = self.describe();
        let diag =
            Diagnostic::error(codes::UNCLOSED, self.span(), format!("expected `{}`, found {found}", kind.text()))
                .note(open, "to close this");
        self.report(self.with_hint(diag));
        // In `if (a {`, `f(a;` and `{ f(a }` the missing `)` is assumed.
        let block_follows = || {
            let before =
                self.tokens.iter().position(|t| t.span == open).and_then(|i| self.tokens.get(i.checked_sub(1)?));
            before.is_some_and(|t| {
                matches!(t.kind, TokenKind::If | TokenKind::Switch | TokenKind::Select | TokenKind::For)
            })
        };
        match self.kind() {
            TokenKind::Semi if kind == TokenKind::RParen => return Ok(self.prev_span()),
            TokenKind::RBrace if kind == TokenKind::RParen && self.braces > 0 => return Ok(self.prev_span()),
            TokenKind::LBrace if kind == TokenKind::RParen && block_follows() => return Ok(self.prev_span()),
            _ => {}
        }
        Err(Failed)
    }

    /// A name: an identifier or a contextual keyword.
    fn name(&mut self, what: &str) -> Parse<Name> {
        let token = self.token();
        if token.kind.is_name() {
            self.bump();
            return Ok(name_of(token));
        }
        if token.kind.is_keyword() {
            let message = format!("expected {what}, found the keyword `{}`", token.text());
            let mut diag = Diagnostic::error(codes::RESERVED_NAME, token.span, message);
            if self.ahead(1).kind != TokenKind::Dot {
                diag = diag.help(format!("`{}` cannot be used as a name", token.text()));
            }
            self.report(diag);
            return Err(Failed);
        }
        self.unexpected(what)
    }

    // ------------------------------------------------------------------------------------------------ errors

    fn describe(&self) -> String {
        let token = self.token();
        match token.kind {
            TokenKind::Eof => "the end of the file".into(),
            TokenKind::Str => "a string".into(),
            kind if kind.is_keyword() => format!("the keyword `{}`", token.text()),
            _ => format!("`{}`", token.text()),
        }
    }

    fn unexpected<T>(&mut self, wanted: &str) -> Parse<T> {
        let found = self.describe();
        let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), format!("expected {wanted}, found {found}"));
        self.report(self.with_hint(diag));
        Err(Failed)
    }

    fn misplaced(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.report(Diagnostic::error(codes::MISPLACED, span, message).help(help));
    }

    /// The P4 equivalent of another language's operator, as help.
    fn operator_hint(&self) -> Option<&'static str> {
        let token = self.token();
        let prev = self.pos.checked_sub(1).map(|i| self.tokens[i].kind);
        match (token.kind, token.text()) {
            (TokenKind::Ident, "and") => Some("logical and is written `&&`"),
            (TokenKind::Ident, "or") => Some("logical or is written `||`"),
            (TokenKind::Eq, _) => Some("`==` compares, `=` assigns and is not an expression"),
            (TokenKind::Semi | TokenKind::RParen, _) if prev == Some(TokenKind::PlusPlus) => {
                Some("`++` concatenates bits; to count write `x = x + 1`")
            }
            _ => None,
        }
    }

    /// Adds «did you mean» when the token before the error is an undeclared name close to a keyword.
    fn with_hint(&self, diag: Diagnostic) -> Diagnostic {
        if diag.help.is_some() {
            return diag;
        }
        if let Some(hint) = self.operator_hint() {
            return diag.help(hint);
        }
        const KEYWORDS: [&str; 24] = [
            "action",
            "actions",
            "apply",
            "const",
            "control",
            "default",
            "else",
            "entries",
            "enum",
            "exit",
            "extern",
            "header",
            "parser",
            "return",
            "select",
            "state",
            "struct",
            "switch",
            "table",
            "transition",
            "typedef",
            "value_set",
            "inout",
            "package",
        ];
        let near = [self.pos.checked_sub(2), self.pos.checked_sub(1), Some(self.pos)]
            .into_iter()
            .flatten()
            .filter_map(|i| self.tokens.get(i))
            .filter(|t| t.kind == TokenKind::Ident && self.scopes.lookup(t.text(), false).is_none())
            .find_map(|t| similar(t.text(), KEYWORDS.into_iter()).map(|k| (t, k)));
        match near {
            Some((token, keyword)) => diag.help(format!("did you mean `{keyword}` instead of `{}`?", token.text())),
            None => diag,
        }
    }

    fn report(&mut self, diag: Diagnostic) {
        if self.gave_up || self.last_error_pos == Some(self.pos) {
            return;
        }
        self.last_error_pos = Some(self.pos);
        if self.diags.len() >= ERRORS_MAX {
            self.gave_up = true;
            self.pos = self.tokens.len() - 1;
            let message = format!("more than {ERRORS_MAX} errors; the rest of the program is not read");
            self.diags.push(Diagnostic::error(codes::TOO_MANY_ERRORS, diag.span, message));
            return;
        }
        self.diags.push(diag);
    }

    /// Runs a production one nesting level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= NESTING_MAX {
            return self.too_deep();
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    fn too_deep<T>(&mut self) -> Parse<T> {
        let diag = Diagnostic::error(codes::TOO_DEEP, self.span(), "the program is nested too deeply here")
            .help("split the expression or statement into several");
        self.report(diag);
        // Continuing would only report the brackets of all levels.
        self.gave_up = true;
        self.pos = self.tokens.len() - 1;
        Err(Failed)
    }

    /// Sets the height of a node, one more than that of its operands.
    fn set_height(&mut self, parts: u32) -> Parse<()> {
        self.height = parts + 1;
        if self.height > HEIGHT_MAX { self.too_deep() } else { Ok(()) }
    }

    /// Error recovery in a list: skips past the next `;` or `{ }` group, or to a bracket that closes the list, a
    /// keyword that starts a declaration, or the end. Always makes progress unless it is already at such a token.
    fn recover(&mut self, start: usize) {
        if self.pos == start && !matches!(self.kind(), TokenKind::RBrace | TokenKind::Eof) {
            self.skip_group();
            if matches!(self.tokens[self.pos - 1].kind, TokenKind::Semi | TokenKind::RBrace) {
                return;
            }
        }
        loop {
            use TokenKind::*;
            match self.kind() {
                Eof | RBrace => return,
                Semi => {
                    self.bump();
                    return;
                }
                LBrace => {
                    self.skip_group();
                    // `{ a, b }` in the arguments of a call.
                    if !matches!(self.kind(), Comma | RParen) {
                        self.eat(Semi);
                        if self.tokens[start].kind == If {
                            self.skip_else();
                        }
                        return;
                    }
                }
                Action | Control | Extern | Header | HeaderUnion | Package | Parser | Struct | Table | Typedef
                | Transition | If | Switch | Return
                    if self.token().line_start =>
                {
                    return;
                }
                _ => self.skip_group(),
            }
        }
    }

    /// Skips one token, or a whole bracketed group.
    fn skip_group(&mut self) {
        let mut open = 0_usize;
        loop {
            match self.kind() {
                TokenKind::LBrace | TokenKind::LParen | TokenKind::LBracket => open += 1,
                TokenKind::RBrace | TokenKind::RParen | TokenKind::RBracket => open = open.saturating_sub(1),
                TokenKind::Eof => return,
                _ => {}
            }
            self.bump();
            if open == 0 {
                return;
            }
        }
    }

    /// Skips the remaining branches of an `if` with an erroneous head.
    fn skip_else(&mut self) {
        while self.eat(TokenKind::Else) {
            loop {
                match self.kind() {
                    TokenKind::RBrace | TokenKind::Eof => return,
                    kind => {
                        self.skip_group();
                        if matches!(kind, TokenKind::LBrace | TokenKind::Semi) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The position after the bracket that closes the one at `pos`.
    fn after_group(&self, pos: usize) -> Option<usize> {
        let mut open = 0_usize;
        for (i, token) in self.tokens.iter().enumerate().skip(pos) {
            match token.kind {
                TokenKind::LBrace | TokenKind::LParen | TokenKind::LBracket => open += 1,
                TokenKind::RBrace | TokenKind::RParen | TokenKind::RBracket => open = open.checked_sub(1)?,
                TokenKind::Eof | TokenKind::Semi => return None,
                _ => {}
            }
            if open == 0 {
                return Some(i + 1);
            }
        }
        None
    }

    /// Parses items up to and including a closing brace; an item with an error is skipped.
    fn items_until_brace<T>(
        &mut self,
        open: Span,
        mut item: impl FnMut(&mut Self, &mut Vec<T>) -> Parse<()>,
    ) -> Parse<Vec<T>> {
        let mut items = Vec::new();
        loop {
            if self.at(TokenKind::RBrace) {
                self.bump();
                return Ok(items);
            }
            if self.at(TokenKind::Eof) {
                self.expect_close(TokenKind::RBrace, open)?;
            }
            let start = self.pos;
            if item(self, &mut items).is_err() {
                self.recover(start);
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ nodes

    fn decl_id(&mut self) -> DeclId {
        self.decl_count += 1;
        DeclId(self.decl_count - 1)
    }

    fn expr_id(&mut self) -> ExprId {
        self.expr_count += 1;
        ExprId(self.expr_count - 1)
    }

    fn expr_node(&mut self, kind: ExprKind, span: Span) -> Expr {
        Expr { id: self.expr_id(), kind, span }
    }

    // ------------------------------------------------------------------------------------------------ names

    /// What the name at `pos` (which may follow a dot) was declared as.
    fn name_kind_at(&self, pos: usize) -> Option<NameKind> {
        let (pos, global) = match self.tokens.get(pos)?.kind {
            TokenKind::Dot => (pos + 1, true),
            _ => (pos, false),
        };
        self.scopes.lookup(self.tokens.get(pos)?.text(), global)
    }

    fn declare(&mut self, name: &Name, kind: NameKind) {
        self.scopes.declare(name.text.clone(), kind);
    }

    /// Runs a production in its own scope.
    fn scoped<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        self.scopes.push();
        let result = parse(self);
        self.scopes.pop();
        result
    }
}

/// The name that a token spells.
fn name_of(token: &Token) -> Name {
    match &token.text {
        Some(text) => Name::new(text.clone(), token.span),
        None => Name::new(token.kind.text(), token.span),
    }
}
