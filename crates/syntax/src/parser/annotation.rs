//! Annotations (P4_16, section "Annotations") and `@pragma` lines.

use std::borrow::Cow;

use super::*;
use crate::ast::{Annotation, AnnotationBody, AnnotationToken, AnnotationTokenKind};

/// Reports and drops characters that start no token, except within the parentheses of an annotation and on a `@pragma`
/// line, where any text is allowed.
pub(super) fn drop_bad_characters(tokens: &[Token]) -> (Cow<'_, [Token]>, Vec<Diagnostic>) {
    let is_bad = |token: &Token| matches!(token.kind, TokenKind::Bad(_));
    if !tokens.iter().any(is_bad) {
        return (Cow::Borrowed(tokens), Vec::new());
    }
    let mut kept = Vec::with_capacity(tokens.len());
    let mut diags = Vec::new();
    // Open parentheses of the current annotation; `None` outside.
    let mut nesting: Option<usize> = None;
    let mut pragma = false;
    for (i, token) in tokens.iter().enumerate() {
        pragma &= !token.line_start;
        pragma |= i > 0 && tokens[i - 1].kind == TokenKind::At && token.text() == "pragma";
        match (token.kind, nesting) {
            (TokenKind::LParen, None) => {
                let annotation = i > 1 && tokens[i - 2].kind == TokenKind::At && tokens[i - 1].kind.is_word();
                nesting = annotation.then_some(1);
            }
            (TokenKind::LParen, Some(open)) => nesting = Some(open + 1),
            (TokenKind::RParen, Some(open)) => nesting = (open > 1).then(|| open - 1),
            _ => {}
        }
        if is_bad(token) && nesting.is_none() && !pragma {
            if diags.len() < ERRORS_MAX {
                diags.push(bad_character(token));
            }
            continue;
        }
        kept.push(token.clone());
    }
    (Cow::Owned(kept), diags)
}

fn bad_character(token: &Token) -> Diagnostic {
    let help = match token.text() {
        "'" => "strings are written with double quotes",
        "`" => "names need no quotes",
        "\\" => "a backslash continues a line only as its last character",
        _ => "identifiers have ASCII letters, digits and underscores only",
    };
    Diagnostic::error(codes::BAD_CHARACTER, token.span, format!("unexpected character {:?}", token.text())).help(help)
}

impl Parser<'_> {
    /// `optAnnotations`.
    pub(super) fn annotations(&mut self) -> Parse<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.at(TokenKind::At) {
            annotations.push(self.annotation()?);
        }
        Ok(annotations)
    }

    fn annotation(&mut self) -> Parse<Annotation> {
        let start = self.expect(TokenKind::At)?;
        let word = self.token();
        if !word.kind.is_word() {
            return self.unexpected("an annotation's name");
        }
        if word.text() == "pragma" && !word.space_before {
            return self.pragma(start);
        }
        self.bump();
        let name = name_of(word);
        let body = match self.kind() {
            TokenKind::LParen => self.unstructured()?,
            TokenKind::LBracket => self.nested(|p| p.structured())?,
            _ => AnnotationBody::Empty,
        };
        Ok(Annotation { name, body, span: self.since(start) })
    }

    /// `@pragma name tokens` to the end of the line.
    fn pragma(&mut self, start: Span) -> Parse<Annotation> {
        self.bump();
        let word = self.token();
        if !word.kind.is_word() || word.line_start {
            return self.unexpected("a name after `@pragma`");
        }
        self.bump();
        let first = self.pos;
        while !self.token().line_start {
            self.bump();
        }
        let body = self.tokens_and_exprs(first, self.pos);
        Ok(Annotation { name: name_of(word), body, span: self.since(start) })
    }

    fn unstructured(&mut self) -> Parse<AnnotationBody> {
        let open = self.bump().span;
        let first = self.pos;
        let mut nesting = 0_usize;
        loop {
            match self.kind() {
                TokenKind::RParen if nesting == 0 => break,
                TokenKind::LParen => nesting += 1,
                TokenKind::RParen => nesting -= 1,
                TokenKind::Eof => {
                    self.expect_close(TokenKind::RParen, open)?;
                }
                _ => {}
            }
            self.bump();
        }
        let body = self.tokens_and_exprs(first, self.pos);
        self.expect_close(TokenKind::RParen, open)?;
        Ok(body)
    }

    /// The tokens `first..end`, and the same as expressions if they parse as such.
    fn tokens_and_exprs(&mut self, first: usize, end: usize) -> AnnotationBody {
        let tokens: Vec<AnnotationToken> = self.tokens[first..end].iter().map(annotation_token).collect();
        let exprs = if tokens.is_empty() { None } else { self.exprs_of(first, end) };
        AnnotationBody::Unstructured { tokens, exprs }
    }

    /// Parses `first..end` with a separate parser whose errors are discarded.
    fn exprs_of(&mut self, first: usize, end: usize) -> Option<Vec<Expr>> {
        let mut tokens = self.tokens[first..end].to_vec();
        tokens.push(Token { kind: TokenKind::Eof, text: None, ..self.tokens[end].clone() });
        let mut inner = Parser {
            tokens: &tokens,
            pos: 0,
            diags: Vec::new(),
            last_error_pos: None,
            gave_up: false,
            expr_count: self.expr_count,
            decl_count: self.decl_count,
            scopes: std::mem::take(&mut self.scopes),
            nesting: self.nesting,
            else_ifs: 0,
            height: 0,
            greater_ends: false,
            braces: 0,
            types_are_values: true,
            in_state: false,
        };
        let exprs = inner.expr_list(TokenKind::Eof);
        let complete = inner.at(TokenKind::Eof) && inner.diags.is_empty();
        self.scopes = std::mem::take(&mut inner.scopes);
        match exprs {
            Ok(exprs) if complete => {
                self.expr_count = inner.expr_count;
                Some(exprs)
            }
            _ => None,
        }
    }

    fn structured(&mut self) -> Parse<AnnotationBody> {
        let open = self.bump().span;
        let body = if self.kind().is_name() && self.ahead(1).kind == TokenKind::Eq {
            let (fields, dots) = self.key_values(TokenKind::RBracket)?;
            if let Some(dots) = dots {
                self.misplaced(dots, "`...` is not allowed in an annotation", "remove it");
            }
            AnnotationBody::KeyValues(fields)
        } else {
            AnnotationBody::List(self.expr_list(TokenKind::RBracket)?)
        };
        self.expect_close(TokenKind::RBracket, open)?;
        Ok(body)
    }
}

fn annotation_token(token: &Token) -> AnnotationToken {
    let kind = match token.kind {
        TokenKind::Int => AnnotationTokenKind::Int,
        TokenKind::Str => AnnotationTokenKind::String,
        kind if kind.is_word() => AnnotationTokenKind::Word,
        _ => AnnotationTokenKind::Symbol,
    };
    let text = match &token.text {
        Some(text) => text.clone(),
        None => token.kind.text().into(),
    };
    AnnotationToken { text, kind, span: token.span }
}
