//! Macro definition and expansion.
//!
//! The algorithm is the usual one of C preprocessors: a stack of frames, each the body of a macro being expanded. A
//! macro is not expanded while its own frame is on the stack; its name found there is painted `no_expand` permanently.
//! Arguments are fully expanded before substitution, except next to `#` and `##`.

use super::*;

/// The substituted body of a macro, being rescanned.
struct Frame {
    tokens: Vec<Token>,
    pos: usize,
    name: Arc<str>,
}

impl Preprocessor<'_> {
    /// `#define`; `args` is what follows it.
    pub(super) fn define(&mut self, args: &[Token], span: Span) {
        let Some((name, rest)) = args.split_first().filter(|(name, _)| name.kind.is_word()) else {
            self.error(codes::BAD_DIRECTIVE, span, "`#define` needs a name");
            return;
        };
        if name.text() == "defined" {
            self.error(codes::BAD_DIRECTIVE, name.span, "`defined` cannot be a macro");
            return;
        }
        let function_like = rest.first().is_some_and(|t| t.kind == TokenKind::LParen && !t.space_before);
        let (params, variadic, body) = if function_like {
            let Some((params, variadic, used)) = self.params(&rest[1..], name.span) else { return };
            (Some(params), variadic, &rest[1 + used..])
        } else {
            (None, false, rest)
        };
        let ends = [body.first(), body.last()];
        if ends.into_iter().flatten().any(|t| t.kind == TokenKind::HashHash) {
            self.error(codes::BAD_PASTE, name.span, "`##` cannot be at an end of a macro's body");
            return;
        }
        let key = self.interner.get(name.text());
        let defined = Macro { params, variadic, body: body.to_vec(), span: name.span };
        if let Some(old) = self.macros.get(&key)
            && !old.same_as(&defined)
        {
            let note = old.span;
            self.diags.push(
                Diagnostic::warning(codes::MACRO_REDEFINED, name.span, format!("macro `{key}` is defined again"))
                    .note(note, "first defined here")
                    .help("use `#undef` first if that is meant"),
            );
        }
        self.macros.insert(key, Arc::new(defined));
    }

    /// The parameters of a function-like macro: `(names, variadic, number of tokens up to and including the
    /// parenthesis)`.
    fn params(&mut self, tokens: &[Token], name: Span) -> Option<(Vec<Arc<str>>, bool, usize)> {
        let mut params: Vec<Arc<str>> = Vec::new();
        let mut pos = 0;
        let kind = |pos: usize| tokens.get(pos).map(|t: &Token| t.kind);
        if kind(0) == Some(TokenKind::RParen) {
            return Some((params, false, 1));
        }
        loop {
            let mut variadic = false;
            match tokens.get(pos) {
                Some(token) if token.kind.is_word() => {
                    let text = self.interner.get(token.text());
                    if params.contains(&text) {
                        self.error(codes::BAD_DIRECTIVE, token.span, format!("parameter `{text}` appears twice"));
                        return None;
                    }
                    if params.len() >= self.limits.params_max {
                        let message = format!("a macro has more than {} parameters", self.limits.params_max);
                        self.limit(token.span, message);
                        return None;
                    }
                    params.push(text);
                    pos += 1;
                    if kind(pos) == Some(TokenKind::Dots) {
                        variadic = true;
                        pos += 1;
                    }
                }
                Some(token) if token.kind == TokenKind::Dots => {
                    params.push(self.interner.get("__VA_ARGS__"));
                    variadic = true;
                    pos += 1;
                }
                _ => {
                    let span = tokens.get(pos).map_or(name, |t| t.span);
                    self.error(codes::BAD_DIRECTIVE, span, "expected a parameter name in `#define`");
                    return None;
                }
            }
            match kind(pos) {
                Some(TokenKind::RParen) => return Some((params, variadic, pos + 1)),
                Some(TokenKind::Comma) if !variadic => pos += 1,
                _ => {
                    let span = tokens.get(pos).map_or(name, |t| t.span);
                    self.error(codes::BAD_DIRECTIVE, span, "expected `,` or `)` in the parameters of `#define`");
                    return None;
                }
            }
        }
    }

    /// Expands a run of tokens in isolation.
    pub(super) fn expand_all(&mut self, tokens: &[Token]) -> Vec<Token> {
        self.expand_arg(tokens, 0)
    }

    fn expand_arg(&mut self, tokens: &[Token], depth: usize) -> Vec<Token> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut cursor = Cursor::of_tokens(tokens, &mut self.interner);
        while let Some(token) = cursor.take(&mut self.interner) {
            if token.kind.is_word() {
                self.expand(token, &mut cursor, &mut out, depth + 1);
            } else {
                out.push(token);
            }
        }
        out
    }

    /// Appends the expansion of `first` to `out`; arguments that extend beyond the macro's own tokens come from
    /// `cursor`.
    pub(super) fn expand(&mut self, first: Token, cursor: &mut Cursor<'_>, out: &mut Vec<Token>, depth: usize) {
        if first.no_expand || !self.is_defined(first.text()) {
            return out.push(first);
        }
        if depth > self.limits.expansion_depth_max {
            let message = format!("macro calls are nested more than {} deep", self.limits.expansion_depth_max);
            return self.limit(first.span, message);
        }
        let use_span = first.span;
        let mut frames: Vec<Frame> = Vec::new();
        let mut next = Some(first);
        while let Some(mut token) = next.take().or_else(|| pop(&mut frames)) {
            if self.stopped || self.too_many_diagnostics(use_span) {
                return;
            }
            if !token.kind.is_word() || token.no_expand {
                self.emit(token, out);
                continue;
            }
            if let Some(builtin) = self.builtin(&token) {
                out.push(builtin);
                continue;
            }
            let Some(definition) = self.macros.get(token.text()).cloned() else {
                out.push(token);
                continue;
            };
            if frames.iter().any(|f| *f.name == *token.text()) {
                token.no_expand = true;
                out.push(token);
                continue;
            }
            let args = match &definition.params {
                None => Vec::new(),
                Some(_) => match self.args(&token, &definition, &mut frames, cursor) {
                    // An erroneous call leaves the name alone, so that the parser does not report a gap.
                    Args::NotACall | Args::Wrong => {
                        out.push(token);
                        continue;
                    }
                    Args::Some(args) => args,
                },
            };
            let body = self.substitute(&definition, &args, &token, use_span, depth);
            self.expanded += body.len() + 1;
            if self.expanded > self.limits.expansion_tokens_max {
                let message = format!("macros make more than {} tokens", self.limits.expansion_tokens_max);
                return self.limit(use_span, message);
            }
            if frames.len() >= self.limits.macros_open_max {
                let message =
                    format!("macros are replaced within one another more than {} deep", self.limits.macros_open_max);
                return self.limit(use_span, message);
            }
            let name = self.interner.get(token.text());
            frames.push(Frame { tokens: body, pos: 0, name });
        }
    }

    fn emit(&mut self, token: Token, out: &mut Vec<Token>) {
        match token.kind {
            TokenKind::Bad(bad) => self.bad_token(&token, bad, out),
            _ => out.push(token),
        }
    }

    fn builtin(&mut self, token: &Token) -> Option<Token> {
        let (kind, text): (_, Arc<str>) = match token.text() {
            "__LINE__" => (TokenKind::Int, self.sources.locate(token.span).map_or(0, |l| l.1).to_string().into()),
            "__FILE__" => (TokenKind::Str, self.sources.locate(token.span).map_or("", |l| l.0).into()),
            _ => return None,
        };
        Some(Token { kind, text: Some(text), ..token.clone() })
    }

    /// Takes the token that [`peek`] returns.
    fn take(&mut self, frames: &mut Vec<Frame>, cursor: &mut Cursor<'_>) -> Option<Token> {
        if let Some(token) = pop(frames) {
            return Some(token);
        }
        cursor.peek().filter(|t| !(t.line_start && t.kind == TokenKind::Hash))?;
        cursor.take(&mut self.interner)
    }

    /// Reads the arguments of a call of a function-like macro.
    fn args(&mut self, name: &Token, definition: &Macro, frames: &mut Vec<Frame>, cursor: &mut Cursor<'_>) -> Args {
        if peek(frames, cursor).is_none_or(|t| t.kind != TokenKind::LParen) {
            return Args::NotACall;
        }
        self.take(frames, cursor);
        let params = definition.params.as_ref().map_or(0, Vec::len);
        let mut args: Vec<Vec<Token>> = vec![Vec::new()];
        let mut nesting = 0;
        loop {
            let Some(token) = self.take(frames, cursor) else {
                self.diags.push(
                    Diagnostic::error(
                        codes::MACRO_ARGUMENTS,
                        name.span,
                        format!("call of macro `{}` does not end", name.text()),
                    )
                    .note(definition.span, "the macro is defined here")
                    .help("add `)`; directives are not allowed in macro arguments"),
                );
                return Args::Wrong;
            };
            match token.kind {
                TokenKind::RParen if nesting == 0 => break,
                TokenKind::Comma if nesting == 0 && !(definition.variadic && args.len() == params) => {
                    args.push(Vec::new());
                    continue;
                }
                TokenKind::LParen => nesting += 1,
                TokenKind::RParen => nesting -= 1,
                _ => {}
            }
            if let Some(arg) = args.last_mut() {
                arg.push(token);
            }
        }
        if params == 0 && args.len() == 1 && args[0].is_empty() {
            args.clear();
        }
        if definition.variadic && args.len() + 1 == params {
            args.push(Vec::new());
        }
        if args.len() != params {
            let message = format!("macro `{}` takes {params} arguments, not {}", name.text(), args.len());
            self.diags.push(
                Diagnostic::error(codes::MACRO_ARGUMENTS, name.span, message)
                    .note(definition.span, "the macro is defined here"),
            );
            return Args::Wrong;
        }
        Args::Some(args)
    }

    /// The body of a macro with its arguments substituted.
    fn substitute(
        &mut self,
        definition: &Macro,
        args: &[Vec<Token>],
        name: &Token,
        use_span: Span,
        depth: usize,
    ) -> Vec<Token> {
        let params = definition.params.as_deref().unwrap_or_default();
        let param = |token: &Token| {
            let found = if token.kind.is_word() { params.iter().position(|p| **p == *token.text()) } else { None };
            found.and_then(|i| args.get(i))
        };
        let mut expanded: Vec<Option<Vec<Token>>> = vec![None; args.len()];
        let mut out: Vec<Token> = Vec::with_capacity(definition.body.len());
        let body = &definition.body;
        let mut pos = 0;
        // Whether the left operand of a following `##` is empty.
        let mut paste_left_empty = false;
        while pos < body.len() {
            let token = &body[pos];
            let pasted_next = body.get(pos + 1).is_some_and(|t| t.kind == TokenKind::HashHash);
            if token.kind == TokenKind::Hash && definition.params.is_some() {
                match body.get(pos + 1).and_then(&param) {
                    Some(arg) => {
                        let text = self.stringify(arg);
                        out.push(Token { kind: TokenKind::Str, text: Some(text), ..made(token, use_span) });
                    }
                    None => {
                        let span = token.span;
                        self.error(codes::BAD_PASTE, span, "`#` in a macro's body needs a parameter after it");
                    }
                }
                pos += 2;
                continue;
            }
            if token.kind == TokenKind::HashHash && pos > 0 && pos + 1 < body.len() {
                let right = &body[pos + 1];
                let right: Vec<Token> = match param(right) {
                    Some(arg) => arg.clone(),
                    None => vec![made(right, use_span)],
                };
                let left = if paste_left_empty { None } else { out.pop() };
                paste_left_empty = left.is_none() && right.is_empty();
                match (left, right.split_first()) {
                    (Some(left), Some((first, rest))) => {
                        let pasted = self.paste(&left, first, use_span);
                        out.extend(pasted);
                        out.extend_from_slice(rest);
                    }
                    (Some(left), None) => out.push(left),
                    (None, _) => out.extend(right),
                }
                pos += 2;
                continue;
            }
            match param(token) {
                Some(arg) if pasted_next => {
                    paste_left_empty = arg.is_empty();
                    out.extend_from_slice(arg);
                }
                Some(arg) => {
                    let index = params.iter().position(|p| **p == *token.text()).unwrap_or(0);
                    if expanded[index].is_none() {
                        expanded[index] = Some(self.expand_arg(arg, depth));
                    }
                    let start = out.len();
                    out.extend_from_slice(expanded[index].as_deref().unwrap_or_default());
                    if let Some(first) = out.get_mut(start) {
                        first.space_before |= token.space_before;
                    }
                }
                None => {
                    paste_left_empty = false;
                    out.push(made(token, use_span));
                }
            }
            if out.len() + self.expanded > self.limits.expansion_tokens_max {
                let message = format!("macros make more than {} tokens", self.limits.expansion_tokens_max);
                self.limit(use_span, message);
                return Vec::new();
            }
            pos += 1;
        }
        for token in &mut out {
            token.line_start = false;
        }
        if let Some(first) = out.first_mut() {
            first.line_start = name.line_start;
            first.space_before = name.space_before;
        }
        out
    }

    fn stringify(&mut self, arg: &[Token]) -> Arc<str> {
        let mut text = String::new();
        for (i, token) in arg.iter().enumerate() {
            if i > 0 && token.space_before {
                text.push(' ');
            }
            if token.kind == TokenKind::Str {
                text.push_str(&format!("\\\"{}\\\"", token.text().replace('\\', "\\\\").replace('"', "\\\"")));
            } else {
                text.push_str(token.text());
            }
        }
        self.made_text(text.len(), arg.first().map_or(Span::NONE, |t| t.span));
        text.into()
    }

    /// Counts a text produced by `#` or `##` against the limit: repeated self-concatenation grows exponentially.
    fn made_text(&mut self, bytes: usize, at: Span) {
        self.pasted += bytes;
        if self.pasted > self.limits.pasted_bytes_max {
            let message = format!("`#` and `##` make more than {} bytes", self.limits.pasted_bytes_max);
            self.limit(at, message);
        }
    }

    /// Pastes two tokens; returns both if the result is not a token. `cpp` for assembler does so too, and programs
    /// written for the reference compiler contain such `##` (`) ## name`).
    fn paste(&mut self, left: &Token, right: &Token, use_span: Span) -> Vec<Token> {
        let text = format!("{}{}", left.spelling(), right.spelling());
        self.made_text(text.len(), use_span);
        let tokens = lex(use_span.file, &text, &mut self.interner);
        match tokens.as_slice() {
            [one, end] if end.kind == TokenKind::Eof && !matches!(one.kind, TokenKind::Bad(_)) => {
                vec![Token { space_before: left.space_before, ..made(one, use_span) }]
            }
            _ => vec![left.clone(), Token { space_before: true, ..right.clone() }],
        }
    }
}

/// A copy of a token of a macro's body, with the span of the macro's use.
fn made(token: &Token, span: Span) -> Token {
    Token { span, line_start: false, no_expand: false, ..token.clone() }
}

enum Args {
    /// No parenthesis follows: the name is not expanded.
    NotACall,
    /// The call is erroneous and has been reported.
    Wrong,
    /// One token list per parameter.
    Some(Vec<Vec<Token>>),
}

fn pop(frames: &mut Vec<Frame>) -> Option<Token> {
    while let Some(frame) = frames.last_mut() {
        if let Some(token) = frame.tokens.get(frame.pos) {
            frame.pos += 1;
            return Some(token.clone());
        }
        frames.pop();
    }
    None
}

/// The next token of a macro call: from the frames, then from the text up to the next directive.
fn peek<'a>(frames: &'a [Frame], cursor: &'a Cursor<'_>) -> Option<&'a Token> {
    let framed = frames.iter().rev().find_map(|f| f.tokens.get(f.pos));
    framed.or_else(|| cursor.peek().filter(|t| !(t.line_start && t.kind == TokenKind::Hash)))
}
