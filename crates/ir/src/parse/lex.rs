//! The lexer: lines of tokens. The text form has one item per line, so the lexer splits at line ends and the parser
//! recovers there.

use crate::print::{is_name_part, is_name_start};
use base::diag::Diagnostic;
use base::{FileId, Span};

/// The kind of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tok {
    /// A bare word: keyword or name.
    Word(String),
    /// A name or text in quotes.
    Quoted(String),
    /// Begins with a digit: a number or a constant.
    Number(String),
    /// Anything else.
    Punct(&'static str),
}

/// A token and its span in the IR text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub tok: Tok,
    pub span: Span,
}

/// A line that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub tokens: Vec<Token>,
    /// The position after the last token.
    pub end: Span,
}

/// Longest first, so that the longest match wins.
const PUNCTUATION: [&str; 13] = ["&&&", "..", "->", "=", ",", ":", "(", ")", "{", "}", "/", "@", "-"];

/// Splits a text into lines of tokens; `//` begins a comment. Malformed tokens are reported and their line is dropped.
pub(super) fn lines(text: &str, file: FileId, diags: &mut Vec<Diagnostic>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        match tokens(line, at, file) {
            Ok(tokens) if tokens.is_empty() => {}
            Ok(tokens) => {
                let end = tokens[tokens.len() - 1].span.end;
                lines.push(Line { tokens, end: Span::new(file, end, end) });
            }
            Err(diag) => diags.push(*diag),
        }
        at += line.len();
    }
    lines
}

fn tokens(line: &str, at: usize, file: FileId) -> Result<Vec<Token>, Box<Diagnostic>> {
    let span = |from: usize, to: usize| Span::new(file, (at + from) as u32, (at + to) as u32);
    let mut tokens = Vec::new();
    let mut pos = 0;
    while let Some(c) = line[pos..].chars().next() {
        let rest = &line[pos..];
        let run = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
        let start = pos;
        let tok = if c.is_whitespace() {
            pos += c.len_utf8();
            continue;
        } else if rest.starts_with("//") {
            break;
        } else if c.is_ascii_digit() {
            pos += run(|c| c.is_ascii_alphanumeric() || c == '_');
            Tok::Number(line[start..pos].to_string())
        } else if is_name_start(c) {
            pos += run(is_name_part);
            Tok::Word(line[start..pos].to_string())
        } else if c == '"' {
            let (text, len) = quoted(rest)
                .ok_or_else(|| Diagnostic::error("E0701", span(start, line.len()), "broken text in quotes"))?;
            pos += len;
            Tok::Quoted(text)
        } else if let Some(p) = PUNCTUATION.iter().find(|p| rest.starts_with(**p)) {
            pos += p.len();
            Tok::Punct(p)
        } else {
            let span = span(start, start + c.len_utf8());
            let message = format!("unexpected character `{}`", c.escape_debug());
            return Err(Box::new(Diagnostic::error("E0701", span, message)));
        };
        tokens.push(Token { tok, span: span(start, pos) });
    }
    Ok(tokens)
}

/// The value of a leading quoted string, and its length in bytes including the quotes.
fn quoted(rest: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((text, i + 1)),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                c @ ('"' | '\\') => text.push(c),
                'u' => {
                    (chars.next()?.1 == '{').then_some(())?;
                    let digits: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                    text.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                _ => return None,
            },
            c => text.push(c),
        }
    }
    None
}
