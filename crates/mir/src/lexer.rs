//! The lexer of the text form.

use std::iter::Peekable;
use std::str::Chars;

/// A syntax error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// What was expected.
    pub message: String,
}

/// A token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Letters, digits, `_` and `.`, a letter first.
    Word(String),
    /// `@name`
    Name(String),
    Number(u128),
    /// One of `= , ( ) { } : + - | # >`.
    Mark(char),
}

/// Splits a text into tokens with their lines. A comment runs from `;` to the end of its line.
///
/// # Errors
///
/// The first malformed token.
pub(crate) fn lex(text: &str) -> Result<Vec<(u32, Token)>, ParseError> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let error = |message: String| ParseError { line, message };
        let mut chars = text.chars().peekable();
        while let Some(&c) = chars.peek() {
            let token = match c {
                ';' => break,
                c if c.is_whitespace() => {
                    chars.next();
                    continue;
                }
                '=' | ',' | '(' | ')' | '{' | '}' | ':' | '+' | '-' | '|' | '#' | '>' => {
                    chars.next();
                    Token::Mark(c)
                }
                '@' => {
                    chars.next();
                    match chars.peek() {
                        Some('"') => {
                            chars.next();
                            Token::Name(
                                quoted(&mut chars)
                                    .ok_or_else(|| error("a name without its closing quote".to_string()))?,
                            )
                        }
                        _ => Token::Name(word(&mut chars)),
                    }
                }
                '0'..='9' => {
                    let digits = word(&mut chars);
                    let number = match digits.strip_prefix("0x") {
                        Some(digits) => u128::from_str_radix(digits, 16),
                        None => digits.parse(),
                    };
                    Token::Number(number.map_err(|_| error(format!("`{digits}` is not a number of up to 128 bits")))?)
                }
                c if c.is_ascii_alphabetic() => Token::Word(word(&mut chars)),
                c => return Err(error(format!("`{c}` has no meaning"))),
            };
            tokens.push((line, token));
        }
    }
    Ok(tokens)
}

fn word(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) {
        word.push(c);
    }
    word
}

/// The rest of a quoted name, with the escapes that `{:?}` writes.
fn quoted(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut name = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(name),
            '\\' => match chars.next()? {
                'n' => name.push('\n'),
                'r' => name.push('\r'),
                't' => name.push('\t'),
                '0' => name.push('\0'),
                'u' => {
                    let digits: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    name.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                c => name.push(c),
            },
            c => name.push(c),
        }
    }
}
