//! The lexer: source text to tokens (P4_16, section "Lexical constructs").
//!
//! It never fails: text that is not a token becomes a [`TokenKind::Bad`] token. Three things are deliberately left to
//! later stages or differ from C:
//! - `>>` and `>>=` come out as `>` `>` and `>` `>=`; the parser joins adjacent ones where an operator is expected, so
//!   that `list<bit<8>>` needs no feedback into the lexer;
//! - a digit starts a token that extends over all letters, digits and underscores; [`parse_int`] checks it when the
//!   parser reads it, so that `#define W 8w` and `W##0xFF` work and `#if 10UL` is left to the preprocessor;
//! - backslash-newline joins lines: within a word or a string it disappears; elsewhere it is white space that does not
//!   end a line (so within an operator symbol it separates tokens, unlike in C).
//!
//! [`Lexer`] reads one token at a time and can be repositioned, because the preprocessor decides what is read next:
//! lines of a skipped group never become tokens, so an unbalanced quote in them affects nothing after them.
//!
//! Tests: `tests/` of this crate and the end of this file.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use base::{FileId, Span};
use num_bigint::BigInt;

use crate::ast::{IntLiteral, IntLiteralType};
use crate::token::{BadToken, Interner, Token, TokenKind};

/// The maximum length of an integer literal, in bytes; converting decimal digits takes quadratic time.
pub const INT_LITERAL_BYTES_MAX: usize = 4096;
/// The maximum width in a literal such as `8w0`, in bits (the same bound as for `bit<W>` types in `sema`).
pub const LITERAL_WIDTH_MAX: u32 = 1 << 16;

/// The symbols that start with a character, longest first. `>>` is absent: see the module documentation.
fn symbols(first: u8) -> &'static [TokenKind] {
    use TokenKind::*;
    match first {
        b'(' => &[LParen],
        b')' => &[RParen],
        b'{' => &[InvalidHeader, LBrace],
        b'}' => &[RBrace],
        b'[' => &[LBracket],
        b']' => &[RBracket],
        b';' => &[Semi],
        b',' => &[Comma],
        b'.' => &[Dots, DotDot, Dot],
        b':' => &[Colon],
        b'=' => &[EqEq, Eq],
        b'@' => &[At],
        b'<' => &[ShlEq, Shl, LtEq, Lt],
        b'>' => &[GtEq, Gt],
        b'&' => &[MaskOp, AndAnd, AndEq, And],
        b'|' => &[PlusSatEq, MinusSatEq, PlusSat, MinusSat, OrOr, OrEq, Or],
        b'!' => &[NotEq, Not],
        b'+' => &[PlusPlus, PlusEq, Plus],
        b'-' => &[MinusEq, Minus],
        b'*' => &[StarEq, Star],
        b'/' => &[SlashEq, Slash],
        b'%' => &[PercentEq, Percent],
        b'^' => &[CaretEq, Caret],
        b'~' => &[Tilde],
        b'?' => &[Question],
        b'#' => &[HashHash, Hash],
        _ => &[],
    }
}

/// Lexes a whole text; the last token is [`TokenKind::Eof`].
pub fn lex(file: FileId, text: &str, interner: &mut Interner) -> Vec<Token> {
    lex_at_most(usize::MAX, file, text, interner).0
}

/// Lexes at most `tokens_max` tokens of a text. The flag says whether these are all; then the last one is
/// [`TokenKind::Eof`], which does not count.
pub fn lex_at_most(tokens_max: usize, file: FileId, text: &str, interner: &mut Interner) -> (Vec<Token>, bool) {
    let mut lexer = Lexer::new(file, text);
    let mut tokens = Vec::with_capacity((text.len() / 5).min(tokens_max) + 1);
    loop {
        let token = lexer.next(interner);
        let done = token.kind == TokenKind::Eof;
        tokens.push(token);
        if done || tokens.len() > tokens_max {
            return (tokens, done);
        }
    }
}

/// Reads the tokens of a text one by one; after the last one it returns [`TokenKind::Eof`] forever.
pub struct Lexer<'a> {
    file: FileId,
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
    line_start: bool,
    space_before: bool,
    /// Whether it is in the line of a directive, where strings end with the line.
    in_directive: bool,
}

impl<'a> Lexer<'a> {
    /// A lexer for a whole file.
    pub fn new(file: FileId, text: &'a str) -> Lexer<'a> {
        Lexer { file, text, bytes: text.as_bytes(), pos: 0, line_start: true, space_before: false, in_directive: false }
    }

    /// A lexer for the bytes `place` of a file's text. The first token does not begin a line.
    pub fn part(file: FileId, text: &'a str, place: Range<usize>) -> Lexer<'a> {
        let text = &text[..place.end];
        Lexer {
            file,
            text,
            bytes: text.as_bytes(),
            pos: place.start,
            line_start: false,
            space_before: false,
            in_directive: false,
        }
    }

    /// The whole text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Continues at this byte, in the middle of a line.
    pub fn seek(&mut self, pos: usize) {
        (self.pos, self.line_start, self.space_before, self.in_directive) = (pos, false, false, false);
    }

    /// Skips from a byte that begins a line (apart from white space) to the next line that begins with `#`, or to the
    /// end. The skipped text need not consist of tokens: only comments, and strings within one line, are recognised.
    pub fn seek_directive(&mut self, pos: usize) {
        self.seek(pos);
        loop {
            self.line_start = true;
            if self.skip_space().is_some() {
                // An unterminated comment.
                self.pos = self.bytes.len();
                return;
            }
            if self.pos >= self.bytes.len() || (self.peek(0) == b'#' && self.peek(1) != b'#') {
                return;
            }
            self.skip_line();
        }
    }

    /// Skips the rest of a line, up to its line feed.
    fn skip_line(&mut self) {
        self.line_start = false;
        while self.pos < self.bytes.len() && !self.line_start {
            match self.peek(0) {
                b'"' => {
                    let line = &self.bytes[self.pos + 1..];
                    let mut len = 0;
                    while !matches!(line.get(len), None | Some(b'"' | b'\n')) {
                        len += if line[len] == b'\\' { 2 } else { 1 };
                    }
                    self.pos = (self.pos + 1 + len + usize::from(line.get(len) == Some(&b'"'))).min(self.bytes.len());
                }
                b'/' if self.peek(1) == b'*' && !self.text[self.pos + 2..].contains("*/") => {
                    self.pos = self.bytes.len()
                }
                b' ' | b'\t' | b'\r' | b'\n' | b'\\' | b'/' | 0x0b | 0x0c => {
                    let before = self.pos;
                    self.skip_space();
                    if self.pos == before {
                        self.pos += 1;
                    }
                }
                _ => self.pos += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.pos + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self, kind: TokenKind, text: Option<Arc<str>>, start: usize) -> Token {
        let span = Span::new(self.file, start as u32, self.pos as u32);
        let token = Token {
            kind,
            text,
            span,
            line_start: self.line_start,
            space_before: self.space_before || self.line_start,
            no_expand: false,
        };
        self.line_start = false;
        self.space_before = false;
        token
    }

    /// The next token.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, interner: &mut Interner) -> Token {
        if let Some(open_comment) = self.skip_space() {
            self.pos = self.bytes.len();
            let mut token = self.token(TokenKind::Bad(BadToken::OpenComment), Some("/*".into()), open_comment);
            token.span.end = token.span.start + 2;
            return token;
        }
        let start = self.pos;
        let Some(&first) = self.bytes.get(start) else {
            self.line_start = true;
            return self.token(TokenKind::Eof, None, start);
        };
        match first {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                let text = self.take_word();
                match TokenKind::keyword(&text) {
                    Some(keyword) => self.token(keyword, None, start),
                    None => {
                        let text = interner.get(&text);
                        self.token(TokenKind::Ident, Some(text), start)
                    }
                }
            }
            b'0'..=b'9' => {
                let text = self.take_word();
                let text = interner.get(&text);
                self.token(TokenKind::Int, Some(text), start)
            }
            b'"' => self.string(),
            _ => self.symbol(),
        }
    }

    /// Takes letters, digits and underscores, including those joined by a backslash at the end of a line.
    fn take_word(&mut self) -> Cow<'a, str> {
        let mut start = self.pos;
        let mut joined = String::new();
        loop {
            while is_word_byte(self.peek(0)) {
                self.pos += 1;
            }
            let splice = match (self.peek(0), self.peek(1), self.peek(2)) {
                (b'\\', b'\n', _) => 2,
                (b'\\', b'\r', b'\n') => 3,
                _ => 0,
            };
            let part = &self.text[start..self.pos];
            if splice == 0 || !is_word_byte(self.peek(splice)) {
                return match joined.is_empty() {
                    true => Cow::Borrowed(part),
                    false => Cow::Owned(joined + part),
                };
            }
            joined.push_str(part);
            self.pos += splice;
            start = self.pos;
        }
    }

    /// Skips white space and comments; returns the position of an unterminated comment.
    fn skip_space(&mut self) -> Option<usize> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line_start = true;
                    self.in_directive = false;
                    self.pos += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => {
                    self.space_before = true;
                    self.pos += 1;
                }
                b'\\' if self.peek(1) == b'\n' => {
                    self.space_before = true;
                    self.pos += 2;
                }
                b'\\' if self.peek(1) == b'\r' && self.peek(2) == b'\n' => {
                    self.space_before = true;
                    self.pos += 3;
                }
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => {
                    self.space_before = true;
                    match self.text[self.pos + 2..].find("*/") {
                        Some(end) => self.pos += 2 + end + 2,
                        None => return Some(self.pos),
                    }
                }
                // A byte order mark at the start of the file.
                0xef if self.pos == 0 && self.text.starts_with('\u{feff}') => self.pos = 3,
                _ => return None,
            }
        }
    }

    fn line_comment(&mut self) {
        self.space_before = true;
        while let Some(len) = self.text[self.pos..].find('\n') {
            let line = &self.text[self.pos..self.pos + len];
            if line.trim_end_matches('\r').ends_with('\\') {
                self.pos += len + 1;
                continue;
            }
            self.pos += len;
            return;
        }
        self.pos = self.bytes.len();
    }

    fn string(&mut self) -> Token {
        let start = self.pos;
        self.pos += 1;
        loop {
            match self.bytes.get(self.pos) {
                Some(b'"') => break,
                // A backslash escapes the next byte, which is ASCII or the first byte of a longer character.
                Some(b'\\') => self.pos += 2,
                Some(b'\n') if self.in_directive => {
                    let text = self.text[start..self.pos].into();
                    return self.token(TokenKind::Bad(BadToken::OpenString), Some(text), start);
                }
                Some(_) => self.pos += 1,
                None => {
                    // Takes one character only, so that the rest of the file is still lexed.
                    self.pos = start + 1;
                    return self.token(TokenKind::Bad(BadToken::OpenString), Some("\"".into()), start);
                }
            }
        }
        let raw = &self.text[start + 1..self.pos];
        let text: Arc<str> = if raw.contains("\\\n") || raw.contains("\\\r\n") {
            raw.replace("\\\r\n", "").replace("\\\n", "").into()
        } else {
            raw.into()
        };
        self.pos += 1;
        self.token(TokenKind::Str, Some(text), start)
    }

    fn symbol(&mut self) -> Token {
        let start = self.pos;
        let rest = &self.bytes[start..];
        let mut candidates = symbols(self.peek(0)).iter();
        match candidates.find(|kind| kind.text().len() == 1 || rest.starts_with(kind.text().as_bytes())) {
            Some(&kind) => {
                self.pos += kind.text().len();
                self.in_directive |= kind == TokenKind::Hash && self.line_start;
                self.token(kind, None, start)
            }
            None => {
                let len = self.text[start..].chars().next().map_or(1, char::len_utf8);
                self.pos += len;
                let text: Arc<str> = self.text[start..self.pos].into();
                self.token(TokenKind::Bad(BadToken::Char), Some(text), start)
            }
        }
    }
}

fn is_word_byte(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_')
}

/// Parses an integer literal.
///
/// # Errors
///
/// A message that says what is wrong with the literal: too long, no digits, a digit outside the base, an invalid width.
pub fn parse_int(text: &str) -> Result<IntLiteral, String> {
    if text.len() > INT_LITERAL_BYTES_MAX {
        return Err(format!("integer literal is longer than {INT_LITERAL_BYTES_MAX} characters"));
    }
    let (prefix, digits) = match text.find(['w', 's']) {
        Some(at) => (Some((&text[..at], text.as_bytes()[at])), &text[at + 1..]),
        None => (None, text),
    };
    let ty = match prefix {
        None => IntLiteralType::Int,
        Some((width, sign)) => {
            let width = match width.parse::<u32>() {
                Ok(width) if width <= LITERAL_WIDTH_MAX => width,
                Ok(_) => return Err(format!("width of `{text}` is more than {LITERAL_WIDTH_MAX} bits")),
                Err(_) if width.bytes().all(|b| b.is_ascii_digit()) => {
                    return Err(format!("width of `{text}` is more than {LITERAL_WIDTH_MAX} bits"));
                }
                Err(_) => return Err(format!("`{width}` in `{text}` is not a width")),
            };
            if sign == b'w' { IntLiteralType::Bit(width) } else { IntLiteralType::IntN(width) }
        }
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0d") => (10, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    if radix == 10 && digits.starts_with('_') && !text.contains(['d', 'D']) {
        return Err(format!("`{text}` starts its digits with an underscore"));
    }
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if plain.is_empty() {
        return Err(format!("`{text}` has no digits"));
    }
    if let Some(bad) = plain.chars().find(|c| !c.is_digit(radix)) {
        return Err(format!("`{bad}` in `{text}` is not a digit of base {radix}"));
    }
    match BigInt::parse_bytes(plain.as_bytes(), radix) {
        Some(value) => Ok(IntLiteral { value, ty, radix: radix as u8 }),
        None => Err(format!("`{text}` is not an integer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let tokens = lex(FileId(0), text, &mut Interner::default());
        tokens.iter().map(|t| if t.kind == TokenKind::Eof { "EOF".into() } else { t.spelling() }).collect()
    }

    #[test]
    fn symbols_take_the_longest_spelling() {
        assert_eq!(
            kinds("a|+|=b |+| c|-|d||e|f"),
            ["a", "|+|=", "b", "|+|", "c", "|-|", "d", "||", "e", "|", "f", "EOF"]
        );
        assert_eq!(
            kinds("&&&x&&y&=z {#} a>>b<<c...d"),
            ["&&&", "x", "&&", "y", "&=", "z", "{#}", "a", ">", ">", "b", "<<", "c", "...", "d", "EOF"]
        );
    }

    #[test]
    fn comments_separate_and_lines_continue() {
        let tokens = lex(FileId(0), "a/* x\n */b // c \\\n still\nc \\\n d", &mut Interner::default());
        let got: Vec<_> = tokens.iter().map(|t| (t.text(), t.line_start)).collect();
        assert_eq!(got, [("a", true), ("b", false), ("c", true), ("d", false), ("", true)]);
    }

    #[test]
    fn names_continue_after_a_backslash_at_the_end_of_a_line() {
        assert_eq!(kinds("AB_\\\nCD\\\r\n12 a\\\n+ pars\\\ner"), ["AB_CD12", "a", "+", "parser", "EOF"]);
    }

    #[test]
    fn invalid_text_is_an_error_token() {
        let bad = |text: &str| lex(FileId(0), text, &mut Interner::default())[0].kind;
        assert_eq!(bad("/* x"), TokenKind::Bad(BadToken::OpenComment));
        assert_eq!(bad("\"x\\\""), TokenKind::Bad(BadToken::OpenString));
        assert_eq!(bad("é"), TokenKind::Bad(BadToken::Char));
    }

    #[test]
    fn integers_keep_value_width_and_sign() {
        let int = |text: &str| parse_int(text).map(|l| (l.value.to_string(), l.ty));
        assert_eq!(int("16w0377"), Ok(("377".into(), IntLiteralType::Bit(16))));
        assert_eq!(int("16w0o377"), Ok(("255".into(), IntLiteralType::Bit(16))));
        assert_eq!(int("8s0b1010_1010"), Ok(("170".into(), IntLiteralType::IntN(8))));
        assert_eq!(int("0xFF_FF"), Ok(("65535".into(), IntLiteralType::Int)));
        assert_eq!(int("0d12"), Ok(("12".into(), IntLiteralType::Int)));
        for bad in ["0x", "0b2", "8w", "8x3", "12a", "4_0w3", "99999999999w1", "8w_1"] {
            assert!(int(bad).is_err(), "{bad}");
        }
        assert!(parse_int(&"9".repeat(INT_LITERAL_BYTES_MAX + 1)).is_err());
    }
}
