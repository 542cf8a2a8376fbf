//! The lexer of constraints. White space and P4 comments separate tokens.

use crate::error::Error;
use num_bigint::BigInt;
use std::ops::Range;

/// A token with its byte range.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) place: Range<usize>,
}

/// The kind of a token.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Word(String),
    Number(BigInt),
    /// Text in single quotes.
    Quoted(String),
    Symbol(&'static str),
}

/// Operators and punctuation, longer ones before their prefixes.
const SYMBOLS: [&str; 16] = ["::", "&&", "||", "->", "==", "!=", ">=", "<=", ">", "<", "!", "-", "(", ")", ";", "."];

/// All tokens of a text.
///
/// # Errors
///
/// A character that starts no token, a malformed number, or an unterminated string or comment.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").ok_or_else(|| Error::new(at..text.len(), "this comment has no end"))?;
            at += end + 2;
        } else {
            let (kind, length) = token(rest, first, at)?;
            tokens.push(Token { kind, place: at..at + length });
            at += length;
        }
    }
    Ok(tokens)
}

fn token(rest: &str, first: char, at: usize) -> Result<(Kind, usize), Error> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
    if first.is_ascii_digit() {
        return Ok((Kind::Number(number(&rest[..length], at)?), length));
    }
    if word(first) {
        return Ok((Kind::Word(rest[..length].to_string()), length));
    }
    if let Some(quoted) = rest.strip_prefix('\'') {
        let end = quoted.find('\'').ok_or_else(|| Error::new(at..at + rest.len(), "this string has no end"))?;
        return Ok((Kind::Quoted(quoted[..end].to_string()), end + 2));
    }
    match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        Some(symbol) => Ok((Kind::Symbol(symbol), symbol.len())),
        None => Err(Error::new(at..at + first.len_utf8(), format!("`{first}` means nothing in a constraint"))),
    }
}

fn number(text: &str, at: usize) -> Result<BigInt, Error> {
    let (radix, digits) = match text.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0b") => (2, &text[2..]),
        Some("0o") => (8, &text[2..]),
        Some("0d") => (10, &text[2..]),
        Some("0x") => (16, &text[2..]),
        _ => (10, text),
    };
    BigInt::parse_bytes(digits.as_bytes(), radix).ok_or_else(|| {
        Error::new(at..at + text.len(), format!("`{text}` is no number"))
            .help("numbers are 10, 0d10, 0xa, 0o12 or 0b1010, without width and underscores")
    })
}
