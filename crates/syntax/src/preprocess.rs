//! The preprocessor: the part of the C preprocessor that P4 programs use (P4_16, section "Preprocessing").
//!
//! It works on tokens, not text, so that every token keeps its span in the file in which it was written; a token
//! produced by a macro has the span of the macro's use. Directives: `#include`, `#define` (object-like, function-like,
//! variadic, `#`, `##`), `#undef`, `#if`, `#ifdef`, `#ifndef`, `#elif`, `#else`, `#endif`, `#error`, `#warning`,
//! `#pragma once`. `#line` and `# 12 "file"` are recorded in the [`SourceMap`] as the origin of lines, but spans and
//! messages always refer to the file that was read. Any other `#pragma` is ignored, as C specifies. `@pragma` belongs
//! to P4 and is left to the parser.
//!
//! Invariants: every loop and recursion is bounded by [`Limits`]; reaching a limit is an error, never a hang. Nothing
//! in a skipped group is reported. `__FILE__` and `__LINE__` are defined; nothing else is predefined.
//!
//! Where programs depend on the behaviour of the reference compiler's preprocessor (`cpp` for assembler), this one
//! behaves the same: directives within multi-line strings are executed (`strings`), and `##` between tokens that do not
//! form a token leaves both.
//!
//! Files: this one processes files and directives; `macros` expands; `condition` evaluates `#if`; `strings` reads
//! multi-line strings.

mod condition;
mod definition;
mod macros;
mod strings;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::{Diagnostic, FileId, SourceMap, Span};

use crate::codes;
use crate::lexer::{Lexer, lex};
use crate::loader::{FileLoader, Options, SourceInput};
use crate::token::{BadToken, Interner, Token, TokenKind};
use definition::Macro;

/// Bounds on the resources that preprocessing a program may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Depth of nested includes.
    pub include_depth_max: usize,
    /// Files read in total.
    pub files_max: usize,
    /// Bytes read in total.
    pub source_bytes_max: usize,
    /// Tokens lexed in total; groups that conditions exclude count only with their directives.
    pub tokens_max: usize,
    /// Bytes per token, since names appear in messages.
    pub token_bytes_max: usize,
    /// Tokens produced by macros in total.
    pub expansion_tokens_max: usize,
    /// Bytes of tokens produced by `#` and `##` in total.
    pub pasted_bytes_max: usize,
    /// Nesting of macro calls within macro arguments.
    pub expansion_depth_max: usize,
    /// Nesting of macros being expanded.
    pub macros_open_max: usize,
    /// Parameters per macro.
    pub params_max: usize,
    /// Nesting of `#if` groups.
    pub conditionals_max: usize,
    /// Errors and warnings in total.
    pub diagnostics_max: usize,
}

impl Default for Limits {
    /// Far above real programs: the largest in the reference compiler's corpus (switch.p4) has 280 KB and 46,000 tokens
    /// including its includes. A token takes about 60 bytes here and about 300 as part of the tree, so that at the
    /// limits the front end takes about 1 GB. Depths are several times those that the C standard guarantees.
    fn default() -> Limits {
        Limits {
            include_depth_max: 64,
            files_max: 2_000,
            source_bytes_max: SOURCE_BYTES_MAX,
            tokens_max: 2_000_000,
            token_bytes_max: 16 << 10,
            expansion_tokens_max: 1_000_000,
            pasted_bytes_max: 4 << 20,
            expansion_depth_max: 64,
            macros_open_max: 512,
            params_max: 256,
            conditionals_max: 128,
            diagnostics_max: 200,
        }
    }
}

/// Maximum size of a program with its includes, in bytes.
pub const SOURCE_BYTES_MAX: usize = 32 << 20;

/// Preprocesses a program. The tokens end with [`TokenKind::Eof`] and contain no [`TokenKind::Bad`] except
/// [`BadToken::Char`].
pub fn preprocess(
    source: SourceInput,
    options: &Options,
    loader: &dyn FileLoader,
    sources: &mut SourceMap,
) -> (Vec<Token>, Vec<Diagnostic>) {
    preprocess_within(source, options, loader, sources, Limits::default())
}

/// [`preprocess`] with the given limits.
pub fn preprocess_within(
    source: SourceInput,
    options: &Options,
    loader: &dyn FileLoader,
    sources: &mut SourceMap,
    limits: Limits,
) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut pp = Preprocessor {
        options,
        loader,
        sources,
        limits,
        interner: Interner::default(),
        macros: HashMap::new(),
        once: HashSet::new(),
        depth: 0,
        files_read: 0,
        bytes_read: 0,
        tokens_read: 0,
        pasted: 0,
        expanded: 0,
        stopped: false,
        out: Vec::new(),
        diags: Vec::new(),
    };
    for (name, value) in &options.defines {
        pp.define_option(name, value);
    }
    pp.file(&source.name, source.text, Span::NONE);
    let end = pp.out.last().map_or(Span::NONE, |t| Span::new(t.span.file, t.span.end, t.span.end));
    pp.out.push(Token {
        kind: TokenKind::Eof,
        text: None,
        span: end,
        line_start: true,
        space_before: true,
        no_expand: false,
    });
    (pp.out, pp.diags)
}

/// Up to this many omitted lines are written as empty lines; longer gaps become a `#line`.
const EMPTY_LINES_MAX: u32 = 4;

/// Prints tokens as a program whose only directives are `#line`. It parses to the same tree; its line markers give the
/// original lines, with file names without their directories.
pub fn to_text(tokens: &[Token], sources: &SourceMap) -> String {
    let mut text = String::new();
    let mut last: Option<&Token> = None;
    // The original file and line that the next output line would have.
    let mut next: Option<(&str, u32)> = None;
    for token in tokens.iter().filter(|t| t.kind != TokenKind::Eof) {
        match last {
            None => {}
            Some(_) if token.line_start => text.push('\n'),
            Some(_) if token.space_before => text.push(' '),
            // Adjacent in the source, or `>` `>`, which form one operator.
            Some(last) if last.span.file == token.span.file && last.span.end == token.span.start => {}
            Some(last) if last.kind == TokenKind::Gt && matches!(token.kind, TokenKind::Gt | TokenKind::GtEq) => {}
            // Made adjacent by a macro: they must not merge.
            Some(_) => text.push(' '),
        }
        if (last.is_none() || token.line_start)
            && let Some((file, line)) = sources.origin(token.span)
        {
            match next
                .filter(|(before, expected)| *before == file && line >= *expected)
                .map(|(_, expected)| line - expected)
            {
                Some(left_out @ 0..=EMPTY_LINES_MAX) => (0..left_out).for_each(|_| text.push('\n')),
                _ => {
                    // An embedded file keeps its whole name.
                    let base = file.rsplit('/').next().unwrap_or(file);
                    let name = if file.starts_with('<') { file } else { base };
                    text.push_str(&format!("#line {line} \"{name}\"\n"));
                }
            }
            next = Some((file, line + 1));
        }
        let spelling = token.spelling();
        if let Some((_, line)) = &mut next {
            // A multi-line string.
            *line += spelling.bytes().filter(|byte| *byte == b'\n').count() as u32;
        }
        text.push_str(&spelling);
        last = Some(token);
    }
    text.push('\n');
    text
}

struct Preprocessor<'a> {
    options: &'a Options,
    loader: &'a dyn FileLoader,
    sources: &'a mut SourceMap,
    limits: Limits,
    interner: Interner,
    macros: HashMap<Arc<str>, Arc<Macro>>,
    /// Names of files with `#pragma once`.
    once: HashSet<String>,
    depth: usize,
    files_read: usize,
    bytes_read: usize,
    tokens_read: usize,
    /// Bytes produced by `#` and `##` so far.
    pasted: usize,
    /// Tokens produced by macros so far.
    expanded: usize,
    /// Set when a limit is reached: nothing more is read.
    stopped: bool,
    out: Vec<Token>,
    diags: Vec<Diagnostic>,
}

/// A reading position in tokens. The tokens of a file are lexed on demand, since a directive decides what comes next.
struct Cursor<'t> {
    source: TokenSource<'t>,
    /// The next token; [`TokenKind::Eof`] at the end.
    next: Option<Token>,
    /// End position of the token taken last, in bytes.
    consumed_to: u32,
    /// Number of tokens that may still be lexed.
    left: usize,
    /// Number of tokens lexed since it was last added to the total.
    lexed: usize,
}

enum TokenSource<'t> {
    Text(Lexer<'t>),
    Tokens(std::slice::Iter<'t, Token>),
}

impl<'t> Cursor<'t> {
    /// A cursor over a text, of which at most `tokens_max` tokens are read.
    fn of_text(lexer: Lexer<'t>, tokens_max: usize, interner: &mut Interner) -> Cursor<'t> {
        Cursor::new(TokenSource::Text(lexer), tokens_max, interner)
    }

    fn of_tokens(tokens: &'t [Token], interner: &mut Interner) -> Cursor<'t> {
        Cursor::new(TokenSource::Tokens(tokens.iter()), usize::MAX, interner)
    }

    fn new(source: TokenSource<'t>, left: usize, interner: &mut Interner) -> Cursor<'t> {
        let mut cursor = Cursor { source, next: None, consumed_to: 0, left, lexed: 0 };
        cursor.read(interner);
        cursor
    }

    fn read(&mut self, interner: &mut Interner) {
        self.next = match &mut self.source {
            TokenSource::Text(_) if self.left == 0 => None,
            TokenSource::Text(lexer) => {
                let token = lexer.next(interner);
                // The end of the input does not count as a token.
                let counts = usize::from(token.kind != TokenKind::Eof);
                self.left -= counts;
                self.lexed += counts;
                Some(token)
            }
            TokenSource::Tokens(tokens) => tokens.next().cloned(),
        };
    }

    fn peek(&self) -> Option<&Token> {
        self.next.as_ref().filter(|t| t.kind != TokenKind::Eof)
    }

    fn take(&mut self, interner: &mut Interner) -> Option<Token> {
        let token = self.next.take_if(|t| t.kind != TokenKind::Eof)?;
        self.consumed_to = token.span.end;
        self.read(interner);
        Some(token)
    }

    /// Takes the tokens up to the end of the current line.
    fn take_line(&mut self, interner: &mut Interner) -> Vec<Token> {
        let mut line = Vec::new();
        while self.peek().is_some_and(|t| !t.line_start) {
            line.extend(self.take(interner));
        }
        line
    }

    /// Skips lines up to the next directive; the next token must begin a line.
    fn skip_to_directive(&mut self, interner: &mut Interner) {
        if let (TokenSource::Text(lexer), Some(next)) = (&mut self.source, &self.next) {
            lexer.seek_directive(next.span.start as usize);
            self.read(interner);
        }
    }

    /// Continues at a byte of the file, in the middle of a line.
    fn seek(&mut self, pos: usize, interner: &mut Interner) {
        if let TokenSource::Text(lexer) = &mut self.source {
            lexer.seek(pos);
            self.read(interner);
        }
    }
}

/// An open `#if` group.
struct Conditional {
    /// Span of its `#if`.
    span: Span,
    /// Whether a branch was taken.
    taken: bool,
    /// Whether the current branch is read.
    active: bool,
    /// Span of its `#else`.
    else_span: Option<Span>,
}

impl Preprocessor<'_> {
    fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.diags.push(Diagnostic::error(code, span, message));
        let last = self.diags.len() - 1;
        &mut self.diags[last]
    }

    fn limit(&mut self, span: Span, message: String) {
        if !self.stopped {
            self.stopped = true;
            self.error(codes::PREPROCESSOR_LIMIT, span, message);
        }
    }

    /// Reports that files are included too deeply, usually because they include each other.
    fn too_deep(&mut self, name: &str, at: Span) {
        if self.stopped {
            return;
        }
        let mut chain = vec![name.to_owned()];
        let mut place = at;
        while let Some(file) = self.sources.get(place.file) {
            chain.push(file.name.clone());
            place = self.sources.included_from(place.file);
            if chain.last().is_some_and(|n| n == name) || place.is_none() {
                break;
            }
        }
        if chain.last().is_none_or(|n| n != name) {
            return self.limit(at, format!("files are included more than {} deep", self.limits.include_depth_max));
        }
        chain.reverse();
        self.limit(at, format!("`{name}` includes itself: {}", chain.join(" includes ")));
        if let Some(d) = self.diags.last_mut() {
            d.help = Some("add an include guard: #ifndef NAME, #define NAME, the text, #endif".into());
        }
    }

    fn define_option(&mut self, name: &str, value: &str) {
        let text = format!("{name} {value}");
        let file = self.sources.add("<command line>", text.as_str());
        let tokens = lex(file, &text, &mut self.interner);
        self.define(&tokens[..tokens.len() - 1], Span::new(file, 0, text.len() as u32));
    }

    /// Processes one file to its end; `at` is its `#include`.
    fn file(&mut self, name: &str, text: Arc<str>, at: Span) {
        self.files_read += 1;
        self.bytes_read += text.len();
        if self.files_read > self.limits.files_max {
            return self.limit(at, format!("more than {} files are included", self.limits.files_max));
        }
        if self.bytes_read > self.limits.source_bytes_max {
            return self.limit(at, format!("sources are longer than {} bytes", self.limits.source_bytes_max));
        }
        if self.depth >= self.limits.include_depth_max {
            return self.too_deep(name, at);
        }
        self.depth += 1;
        let file = self.sources.add(name, text.clone());
        self.sources.set_included_from(file, at);
        // One more than allowed, so that exceeding the limit is noticed.
        let left = self.limits.tokens_max.saturating_sub(self.tokens_read) + 1;
        let mut cursor = Cursor::of_text(Lexer::new(file, &text), left, &mut self.interner);
        let mut conditionals: Vec<Conditional> = Vec::new();
        while let Some(token) = cursor.take(&mut self.interner) {
            self.tokens_read += std::mem::take(&mut cursor.lexed);
            if self.tokens_read > self.limits.tokens_max {
                self.limit(token.span, format!("the program has more than {} tokens", self.limits.tokens_max));
            }
            if self.stopped || self.too_many_diagnostics(token.span) {
                break;
            }
            if token.line_start && token.kind == TokenKind::Hash {
                let line = cursor.take_line(&mut self.interner);
                self.tokens_read += std::mem::take(&mut cursor.lexed);
                self.directive(token.span, &line, &mut conditionals);
                if !conditionals.iter().all(|c| c.active) {
                    cursor.skip_to_directive(&mut self.interner);
                }
            } else if strings::spans_lines(&token, &text) {
                self.string_of_lines(&token, &text, &mut cursor, &mut conditionals);
                if !conditionals.iter().all(|c| c.active) {
                    cursor.skip_to_directive(&mut self.interner);
                }
            } else {
                self.ordinary(token, &mut cursor);
            }
        }
        if !self.stopped {
            for open in conditionals {
                self.error(codes::UNBALANCED_CONDITIONAL, open.span, "this conditional has no `#endif`").help =
                    Some("add `#endif` before the end of this file".into());
            }
        }
        self.depth -= 1;
    }

    /// Whether the limit of diagnostics is reached; reports that and stops reading.
    fn too_many_diagnostics(&mut self, at: Span) -> bool {
        if self.diags.len() >= self.limits.diagnostics_max {
            let message =
                format!("more than {} errors and warnings; the rest is not read", self.limits.diagnostics_max);
            self.limit(at, message);
        }
        self.stopped
    }

    /// Processes a token of program text.
    fn ordinary(&mut self, token: Token, cursor: &mut Cursor<'_>) {
        if token.text().len() > self.limits.token_bytes_max {
            let message = format!("a name, number or string is longer than {} bytes", self.limits.token_bytes_max);
            return self.limit(token.span, message);
        }
        let mut out = std::mem::take(&mut self.out);
        match token.kind {
            TokenKind::Bad(bad) => self.bad_token(&token, bad, &mut out),
            kind if kind.is_word() => self.expand(token, cursor, &mut out, 0),
            _ => out.push(token),
        }
        self.out = out;
    }

    /// Reports a bad token of the lexer. Single characters pass: they are allowed in an unstructured annotation, which
    /// only the parser recognises.
    fn bad_token(&mut self, token: &Token, bad: BadToken, out: &mut Vec<Token>) {
        match bad {
            BadToken::Char => out.push(token.clone()),
            BadToken::OpenComment => {
                self.error(codes::OPEN_COMMENT, token.span, "this comment does not end").help =
                    Some("add `*/`; comments do not nest".into());
            }
            BadToken::OpenString => {
                self.error(codes::OPEN_STRING, token.span, "this string does not end").help =
                    Some("add a closing `\"`; a quote within a string is written `\\\"`".into());
            }
        }
    }

    /// Processes a directive; `line` is what follows `#`.
    fn directive(&mut self, hash: Span, line: &[Token], conditionals: &mut Vec<Conditional>) {
        let Some((name, args)) = line.split_first() else { return }; // `#` alone is allowed
        let span = hash.to(name.span);
        let active = conditionals.iter().all(|c| c.active);
        match name.text() {
            "if" | "ifdef" | "ifndef" if conditionals.len() >= self.limits.conditionals_max => {
                let message = format!("`#if` groups are nested more than {} deep", self.limits.conditionals_max);
                self.limit(span, message);
            }
            "if" | "ifdef" | "ifndef" => {
                let value = active && self.condition(name.text(), span, args);
                conditionals.push(Conditional { span, taken: value, active: value, else_span: None });
            }
            "elif" | "else" | "endif" => self.branch(name.text(), span, args, conditionals),
            _ if !active => {}
            "include" => self.include(span, args),
            "define" => self.define(args, span),
            "undef" => self.undef(args, span),
            "error" | "warning" => {
                let text = self.raw_text(args);
                if name.text() == "error" {
                    self.error(codes::ERROR_DIRECTIVE, span, format!("#error {text}"));
                } else {
                    self.diags.push(Diagnostic::warning(codes::WARNING_DIRECTIVE, span, format!("#warning {text}")));
                }
            }
            "pragma" => {
                if args.first().is_some_and(|t| t.text() == "once")
                    && let Some(file) = self.sources.get(hash.file)
                {
                    self.once.insert(file.name.clone());
                }
            }
            "line" => self.line_marker(hash, args),
            // A line marker as other preprocessors write it.
            _ if name.kind == TokenKind::Int => self.line_marker(hash, line),
            other => {
                let known = [
                    "include", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "warning",
                    "pragma", "line",
                ];
                let near = base::spelling::similar(other, known.iter().copied());
                let help = match near {
                    Some(near) => format!("did you mean `#{near}`?"),
                    None => format!("known directives: {}", known.join(", ")),
                };
                self.error(codes::UNKNOWN_DIRECTIVE, span, format!("unknown directive `#{other}`")).help = Some(help);
                if near.is_some_and(|near| near.starts_with("if")) {
                    // Opened anyway, so that its `#endif` is not a second error.
                    conditionals.push(Conditional { span, taken: true, active: true, else_span: None });
                }
            }
        }
    }

    fn condition(&mut self, directive: &str, span: Span, args: &[Token]) -> bool {
        if directive == "if" {
            return self.evaluate(span, args);
        }
        match args {
            [name, rest @ ..] if name.kind.is_word() => {
                self.warn_extra(rest, directive);
                let defined = self.is_defined(name.text());
                if directive == "ifdef" { defined } else { !defined }
            }
            _ => {
                self.error(codes::BAD_DIRECTIVE, span, format!("`#{directive}` needs the name of a macro"));
                false
            }
        }
    }

    fn branch(&mut self, directive: &str, span: Span, args: &[Token], conditionals: &mut Vec<Conditional>) {
        let Some((last, outer)) = conditionals.split_last_mut() else {
            self.error(codes::UNBALANCED_CONDITIONAL, span, format!("`#{directive}` without `#if`"));
            return;
        };
        if directive == "endif" {
            if outer.iter().all(|c| c.active) {
                self.warn_extra(args, directive);
            }
            conditionals.pop();
            return;
        }
        if let Some(first) = last.else_span {
            let message = format!("`#{directive}` after `#else`");
            self.diags.push(
                Diagnostic::error(codes::UNBALANCED_CONDITIONAL, span, message).note(first, "the `#else` is here"),
            );
            last.active = false;
            return;
        }
        let outer_active = outer.iter().all(|c| c.active);
        if directive == "else" {
            last.else_span = Some(span);
            last.active = outer_active && !last.taken;
            last.taken = true;
            self.warn_extra(args, directive);
        } else if last.taken || !outer_active {
            last.active = false;
        } else {
            let value = self.evaluate(span, args);
            last.active = value;
            last.taken = value;
        }
    }

    fn warn_extra(&mut self, extra: &[Token], directive: &str) {
        if let Some(first) = extra.first() {
            let message = format!("`#{directive}` ignores the rest of its line");
            self.diags.push(Diagnostic::warning(codes::EXTRA_TOKENS, first.span, message).help("remove it"));
        }
    }

    fn undef(&mut self, args: &[Token], span: Span) {
        match args {
            [name, rest @ ..] if name.kind.is_word() => {
                self.macros.remove(name.text());
                self.warn_extra(rest, "undef");
            }
            _ => {
                self.error(codes::BAD_DIRECTIVE, span, "`#undef` needs the name of a macro");
            }
        }
    }

    fn is_defined(&self, name: &str) -> bool {
        self.macros.contains_key(name) || name == "__FILE__" || name == "__LINE__"
    }

    /// The source text covered by a run of tokens on one line.
    fn raw_text(&self, tokens: &[Token]) -> String {
        match tokens {
            [] => String::new(),
            [first, .., last] => self.sources.text(first.span.to(last.span)).unwrap_or_default().trim_end().to_owned(),
            [only] => only.spelling(),
        }
    }

    /// `#line 12 "file.p4"`; a malformed one is ignored.
    fn line_marker(&mut self, hash: Span, args: &[Token]) {
        let Some(line) = args.first().and_then(|line| line.text().parse().ok()) else { return };
        let name = args.get(1).filter(|name| name.kind == TokenKind::Str);
        self.sources.set_marker(hash, line, name.map(Token::text));
    }

    fn include(&mut self, span: Span, args: &[Token]) {
        let expanded;
        let mut args = args;
        if !matches!(args.first().map(|t| t.kind), Some(TokenKind::Str | TokenKind::Lt)) {
            expanded = self.expand_all(args);
            args = &expanded;
        }
        let (name, quoted, rest) = match args {
            [name, rest @ ..] if name.kind == TokenKind::Str => (name.text().to_owned(), true, rest),
            [open, inner @ ..] if open.kind == TokenKind::Lt => {
                let Some(close) = inner.iter().position(|t| t.kind == TokenKind::Gt) else {
                    self.error(codes::BAD_DIRECTIVE, open.span, "`#include <` without `>`");
                    return;
                };
                let written = inner[..close].iter().all(|t| t.span.file == open.span.file && t.span != open.span);
                let name = match (written, inner[close].span.start) {
                    // As written, so that `<a-b/c.p4>` keeps its spelling.
                    (true, end) => {
                        let raw = Span::new(open.span.file, open.span.end, end);
                        self.sources.text(raw).unwrap_or_default().trim().to_owned()
                    }
                    (false, _) => inner[..close].iter().map(|t| t.text()).collect(),
                };
                (name, false, &inner[close + 1..])
            }
            _ => {
                self.error(codes::BAD_DIRECTIVE, span, "`#include` needs \"file\" or <file>");
                return;
            }
        };
        self.warn_extra(rest, "include");
        let place = args.first().map_or(span, |first| first.span.to(args[args.len() - rest.len() - 1].span));
        match self.find(&name, quoted, span.file) {
            Found::File(path, text) => {
                if !self.once.contains(&path) {
                    self.file(&path, text, place);
                }
            }
            Found::Nowhere(tried) => {
                let like = self.similar_file(&name, quoted, span.file);
                let architecture = is_architecture(&name);
                let mut help = Vec::new();
                let own = self.loader.names(None);
                let blocks = |name: &&String| name.starts_with("p4lib/");
                let own: Vec<String> = own.iter().filter(|n| !blocks(n)).map(|name| format!("<{name}>")).collect();
                // A name in angle brackets is usually an architecture file.
                let may_be = architecture || (like.is_none() && !quoted && !name.contains('/'));
                if may_be && !own.is_empty() {
                    help.push(format!("the compiler comes with {}, and no other architecture", own.join(" and ")));
                }
                if like.is_none() {
                    help.push(match tried.is_empty() {
                        true => "no include directory is given; add one with -I".to_owned(),
                        false => format!("looked in: {}; add a directory with -I", tried.join(", ")),
                    });
                }
                let guess = like.map(|like| format!("did you mean {like}?"));
                let help = guess.into_iter().chain((!help.is_empty()).then(|| help.join("; ")));
                let help = help.collect::<Vec<String>>().join(" ");
                self.error(codes::INCLUDE_NOT_FOUND, place, format!("cannot find `{name}`")).help = Some(help);
            }
            Found::Refused(path, why) => {
                self.error(codes::INCLUDE_REFUSED, place, format!("`{path}` is not included: {why}"));
            }
        }
    }

    /// The directories that are searched for an included file, in order.
    fn dirs(&self, quoted: bool, from: FileId) -> Vec<&str> {
        let mut dirs: Vec<&str> = Vec::new();
        let includer = self.sources.get(from).map_or("", |f| f.name.as_str());
        if quoted && !includer.starts_with('<') {
            dirs.push(includer.rfind('/').map_or("", |slash| &includer[..slash.max(1)]));
        }
        dirs.extend(self.options.include_dirs.iter().map(String::as_str));
        dirs
    }

    /// A file with a name similar to a missing one, as it would be included; never one named like the including file.
    fn similar_file(&self, name: &str, quoted: bool, from: FileId) -> Option<String> {
        let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
        let includer = self.sources.get(from).map_or("", |f| f.name.rsplit('/').next().unwrap_or_default());
        for dir in self.dirs(quoted, from) {
            let at = [dir, folder].into_iter().filter(|d| !d.is_empty()).collect::<Vec<_>>().join("/");
            let names = self.loader.names(Some(&at));
            let others = names.iter().map(String::as_str).filter(|name| *name != includer);
            if let Some(like) = base::spelling::similar(file, others) {
                let path = if folder.is_empty() { like.to_owned() } else { format!("{folder}/{like}") };
                return Some(if quoted { format!("\"{path}\"") } else { format!("<{path}>") });
            }
        }
        let names = self.loader.names(None);
        base::spelling::similar(name, names.iter().map(String::as_str)).map(|like| format!("<{like}>"))
    }

    fn find(&self, name: &str, quoted: bool, from: FileId) -> Found {
        let mut tried = Vec::new();
        for dir in self.dirs(quoted, from) {
            let path = if name.starts_with('/') || dir.is_empty() {
                name.to_owned()
            } else if dir.ends_with('/') {
                format!("{dir}{name}")
            } else {
                format!("{dir}/{name}")
            };
            match self.loader.read(&path) {
                Ok(Some(text)) => return Found::File(path, text),
                Ok(None) => {}
                Err(why) => return Found::Refused(path, why),
            }
            tried.push(if dir.is_empty() { ".".to_owned() } else { dir.to_owned() });
        }
        match self.loader.embedded(name) {
            Some(text) => Found::File(format!("<{name}>"), text),
            None => Found::Nowhere(tried),
        }
    }
}

/// Known architectures, by the names of their files.
const ARCHITECTURES: &[&str] = &[
    "ebpf_model",
    "openflow_model",
    "pna",
    "psa",
    "simple_sume_switch",
    "sume_switch",
    "t2na",
    "tna",
    "tofino",
    "tofino2",
    "ubpf",
    "ubpf_model",
    "v1model",
    "very_simple_model",
    "xdp_model",
];

/// Whether an included file has the name of a known architecture's file.
fn is_architecture(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    ARCHITECTURES.contains(&file.strip_suffix(".p4").unwrap_or(file))
}

enum Found {
    File(String, Arc<str>),
    Nowhere(Vec<String>),
    /// The path of an existing file, and the reason why it is not read.
    Refused(String, String),
}

#[cfg(test)]
mod tests;
