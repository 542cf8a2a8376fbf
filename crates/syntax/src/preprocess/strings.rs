//! Multi-line strings, as the reference compiler treats them: its preprocessor runs first, in `cpp`'s mode for
//! assembler, which reads line by line and knows no multi-line strings. So directives within such a string are
//! executed, which programs use to select the clauses of an `@entry_restriction`, and macros are expanded in its lines.
//!
//! Guarantees: a line that is a directive or is skipped leaves its line feed, so that the string keeps its number of
//! lines (P4Info shows it as the reference compiler does). As in `cpp`, nothing is expanded in the string's first line,
//! in a `//` comment, or behind an unpaired `'` or `"` in its line; an unknown directive is text. `#include` is
//! rejected here. A string in the arguments of a macro is kept as written.
//!
//! Tests: `tests.rs` beside this file, `constraints` in `crates/p4info/tests`.

use std::ops::Range;

use super::*;

/// Whether a token is a multi-line string (a backslash at the end of a line continues the line).
pub(super) fn spans_lines(token: &Token, text: &str) -> bool {
    let place = token.span.start as usize..token.span.end as usize;
    token.kind == TokenKind::Str && text.get(place).is_some_and(|raw| line_end(raw, 0) < raw.len())
}

/// The end of the line that contains `pos`: its line feed, or the end of the text. A backslash at the end of a line
/// joins it with the next.
fn line_end(text: &str, pos: usize) -> usize {
    let mut from = pos;
    while let Some(len) = text[from..].find('\n') {
        let end = from + len;
        if !text[pos..end].trim_end_matches('\r').ends_with('\\') {
            return end;
        }
        from = end + 1;
    }
    text.len()
}

/// The position of the first unescaped quote.
fn closing_quote(line: &str) -> Option<usize> {
    let mut protected = false;
    line.bytes().position(|byte| {
        let closes = byte == b'"' && !protected;
        protected = byte == b'\\' && !protected;
        closes
    })
}

/// The directives that are recognised within a string.
const DIRECTIVES: [&str; 12] =
    ["if", "ifdef", "ifndef", "elif", "else", "endif", "define", "undef", "error", "warning", "line", "include"];

impl Preprocessor<'_> {
    /// Reads a multi-line string. `open` is the token as the lexer read it, which may end too early or too late, since
    /// a quote may be in a skipped line. The cursor continues after the closing quote.
    pub(super) fn string_of_lines(
        &mut self,
        open: &Token,
        text: &str,
        cursor: &mut Cursor<'_>,
        conditionals: &mut Vec<Conditional>,
    ) {
        let file = open.span.file;
        let mut pos = open.span.start as usize + 1;
        let mut content = String::new();
        let mut first_line = true;
        while pos < text.len() && !self.stopped {
            let end = line_end(text, pos);
            match self.directive_in_string(file, text, pos..end) {
                Some((hash, line)) if !first_line => {
                    if line[0].text() == "include" && conditionals.iter().all(|c| c.active) {
                        let span = hash.span.to(line[0].span);
                        self.error(codes::BAD_DIRECTIVE, span, "`#include` is not allowed in a string");
                    } else {
                        self.directive(hash.span, &line, conditionals);
                    }
                }
                _ if !conditionals.iter().all(|c| c.active) => {}
                _ => {
                    let close = closing_quote(&text[pos..end]);
                    let line = pos..close.map_or(end, |len| pos + len);
                    let joined = |line: &str| line.replace("\\\r\n", "").replace("\\\n", "");
                    match first_line {
                        true => content.push_str(&joined(&text[line])),
                        false => content.push_str(&joined(&self.expanded_line(file, text, line))),
                    }
                    if content.len() > self.limits.token_bytes_max {
                        let message = format!("a string is longer than {} bytes", self.limits.token_bytes_max);
                        return self.limit(open.span, message);
                    }
                    if let Some(len) = close {
                        let span = Span::new(file, open.span.start, (pos + len + 1) as u32);
                        self.out.push(Token { text: Some(content.into()), span, ..open.clone() });
                        return cursor.seek(pos + len + 1, &mut self.interner);
                    }
                }
            }
            first_line = false;
            content.push('\n');
            pos = end + 1;
        }
        cursor.seek(text.len(), &mut self.interner);
        if !self.stopped {
            let quote = Span::new(file, open.span.start, open.span.start + 1);
            self.error(codes::OPEN_STRING, quote, "this string does not end").help =
                Some("add a closing `\"`; directives within the string may have left it out".into());
        }
    }

    /// The directive in a line: its `#` and what follows.
    fn directive_in_string(&mut self, file: FileId, text: &str, line: Range<usize>) -> Option<(Token, Vec<Token>)> {
        let indent = text[line.clone()].find(|c: char| !c.is_ascii_whitespace())?;
        if !text[line.start + indent..line.end].starts_with('#') {
            return None;
        }
        let mut lexer = Lexer::part(file, text, line.start + indent..line.end);
        let hash = lexer.next(&mut self.interner);
        let mut tokens = Vec::new();
        loop {
            match lexer.next(&mut self.interner) {
                end if end.kind == TokenKind::Eof => break,
                token => tokens.push(token),
            }
        }
        let name = tokens.first()?;
        let known = DIRECTIVES.contains(&name.text()) || name.kind == TokenKind::Int;
        (hash.kind == TokenKind::Hash && known).then_some((hash, tokens))
    }

    /// A line of a string with its macros expanded.
    fn expanded_line(&mut self, file: FileId, text: &str, line: Range<usize>) -> String {
        let mut out = String::new();
        // The position up to which the line has been copied to `out`.
        let mut done = line.start;
        let mut cursor = Cursor::of_text(Lexer::part(file, text, line.clone()), usize::MAX, &mut self.interner);
        while let Some(token) = cursor.take(&mut self.interner) {
            match token.kind {
                TokenKind::Bad(BadToken::Char) if token.text() == "'" => {
                    let Some(len) = text[token.span.end as usize..line.end].find('\'') else { break };
                    cursor.seek(token.span.end as usize + len + 1, &mut self.interner);
                }
                TokenKind::Bad(BadToken::OpenComment | BadToken::OpenString) => break,
                kind if kind.is_word() && self.is_defined(token.text()) => {
                    let start = token.span.start as usize;
                    out.push_str(&text[done..start]);
                    let mut tokens = Vec::new();
                    self.expand(token, &mut cursor, &mut tokens, 0);
                    for (i, token) in tokens.iter().enumerate() {
                        if i > 0 && token.space_before {
                            out.push(' ');
                        }
                        out.push_str(&token.spelling().replace('"', "\\\""));
                    }
                    done = cursor.consumed_to as usize;
                }
                _ => {}
            }
        }
        out.push_str(&text[done..line.end]);
        out
    }
}
