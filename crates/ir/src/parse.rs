//! The parser of the text form.
//!
//! The text has one item per line. The parser recovers at the next line, so one run reports several errors (codes
//! `E070x`). It resolves names and builds the program. Whether the program is well-formed is for the verifier to check;
//! even block ids may be out of range. It never panics, whatever the text.
//!
//! Names may be used before they are declared: a first pass over the lines collects them.
//!
//! Tests: `tests/text.rs`.

mod code;
mod declarations;
mod lex;
mod openflow;

use crate::print::CALCULATION;
use crate::program::Program;
use base::diag::Diagnostic;
use base::{Bits, FileId, Span};
use lex::{Line, Tok, Token};
use std::collections::HashMap;

/// Parses a program; `file` is the file of the spans in diagnostics.
///
/// # Errors
///
/// All syntax errors and unresolved names, with their location in the text.
pub fn parse(text: &str, file: FileId) -> std::result::Result<Program, Vec<Diagnostic>> {
    let mut diags = Vec::new();
    let lines = lex::lines(text, file, &mut diags);
    let names = Names::collect(&lines, &mut diags);
    let mut reader = Reader { lines: &lines, at: 0, names, program: Program::default(), diags };
    reader.items();
    if reader.diags.is_empty() { Ok(reader.program) } else { Err(reader.diags) }
}

/// Boxed, because diagnostics are large and errors are rare.
type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// Namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    Slot,
    Header,
    Action,
    Table,
    Extern,
    Stage,
    Drop,
    Calculation,
}

impl Space {
    fn noun(self) -> &'static str {
        match self {
            Space::Slot => "slot",
            Space::Header => "header",
            Space::Action => "action",
            Space::Table => "table",
            Space::Extern => "extern",
            Space::Stage => "stage",
            Space::Drop => "drop reason",
            Space::Calculation => "calculation",
        }
    }
}

/// By namespace: the index of each name.
#[derive(Debug, Default)]
struct Names {
    spaces: [HashMap<String, u32>; 8],
}

impl Names {
    fn collect(lines: &[Line], diags: &mut Vec<Diagnostic>) -> Names {
        let mut names = Names::default();
        let mut depth = 0u32;
        for line in lines {
            if depth == 0 {
                names.declaration(line, diags);
            }
            if line.opens() {
                depth += 1;
            } else if line.closes() {
                depth = depth.saturating_sub(1);
            }
        }
        names
    }

    fn declaration(&mut self, line: &Line, diags: &mut Vec<Diagnostic>) {
        let Tok::Word(keyword) = &line.tokens[0].tok else { return };
        let (space, at) = match keyword.as_str() {
            "slot" => (Space::Slot, 1),
            "header" => (Space::Header, 1),
            "action" => (Space::Action, 1),
            "table" => (Space::Table, 1),
            "extern" => (Space::Extern, 1),
            CALCULATION => (Space::Calculation, 1),
            "stage" => (Space::Stage, 2),
            "drops" => {
                for token in &line.tokens[1..] {
                    if let Tok::Word(name) | Tok::Quoted(name) = &token.tok {
                        self.add(Space::Drop, name, token.span, diags);
                    }
                }
                return;
            }
            _ => return,
        };
        if let Some(Token { tok: Tok::Word(name) | Tok::Quoted(name), span }) = line.tokens.get(at) {
            self.add(space, name, *span, diags);
        }
    }

    fn add(&mut self, space: Space, name: &str, span: Span, diags: &mut Vec<Diagnostic>) {
        let map = &mut self.spaces[space as usize];
        let index = map.len() as u32;
        if map.insert(name.to_string(), index).is_some() {
            diags.push(Diagnostic::error("E0704", span, format!("two {}s are named `{name}`", space.noun())));
        }
    }
}

impl Line {
    fn opens(&self) -> bool {
        self.tokens.last().is_some_and(|t| t.tok == Tok::Punct("{"))
    }

    fn closes(&self) -> bool {
        self.tokens[0].tok == Tok::Punct("}")
    }
}

/// A cursor over the lines.
struct Reader<'a> {
    lines: &'a [Line],
    at: usize,
    names: Names,
    program: Program,
    diags: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    fn next_line(&mut self) -> Option<&'a Line> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line)
    }

    /// Parses one line with `f` and reports its error, if any.
    fn with_line<T>(&mut self, line: &'a Line, f: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Option<T> {
        let mut cursor = Cursor { tokens: &line.tokens, at: 0, end: line.end, names: &self.names };
        match f(&mut cursor).and_then(|value| cursor.at_end().map(|()| value)) {
            Ok(value) => Some(value),
            Err(diag) => {
                self.diags.push(*diag);
                None
            }
        }
    }

    /// Calls `f` for every line up to the closing brace.
    fn body(&mut self, opening: &'a Line, mut f: impl FnMut(&mut Self, &'a Line)) {
        loop {
            match self.next_line() {
                Some(line) if line.closes() => {
                    self.with_line(line, |c| c.punct("}"));
                    return;
                }
                Some(line) => f(self, line),
                None => {
                    let diag = Diagnostic::error("E0702", opening.end, "expected `}` before the end of the text");
                    self.diags.push(diag);
                    return;
                }
            }
        }
    }
}

/// A cursor over the tokens of one line.
struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
    end: Span,
    names: &'a Names,
}

impl<'a> Cursor<'a> {
    fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |t| t.span)
    }

    fn peek(&self) -> Option<&'a Tok> {
        self.tokens.get(self.at).map(|t| &t.tok)
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        let found = match self.peek() {
            None => "the end of the line".to_string(),
            Some(Tok::Word(w)) => format!("`{w}`"),
            Some(Tok::Quoted(q)) => format!("{q:?}"),
            Some(Tok::Number(n)) => format!("`{n}`"),
            Some(Tok::Punct(p)) => format!("`{p}`"),
        };
        Err(Box::new(Diagnostic::error("E0702", self.span(), format!("expected {what}, found {found}"))))
    }

    fn at_end(&self) -> Result<()> {
        if self.at == self.tokens.len() { Ok(()) } else { self.expected("the end of the line") }
    }

    fn is_punct(&self, punct: &str) -> bool {
        matches!(self.peek(), Some(Tok::Punct(p)) if *p == punct)
    }

    fn eat_punct(&mut self, punct: &str) -> bool {
        let found = self.is_punct(punct);
        self.at += usize::from(found);
        found
    }

    fn punct(&mut self, punct: &str) -> Result<()> {
        if self.eat_punct(punct) { Ok(()) } else { self.expected(&format!("`{punct}`")) }
    }

    fn comma(&mut self) -> Result<()> {
        self.punct(",")
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Tok::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    fn keyword(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Tok::Word(w)) => {
                self.at += 1;
                Ok(w)
            }
            _ => self.expected(what),
        }
    }

    /// One of the words of a list, which the printer uses too.
    fn one_of<T: Copy>(&mut self, words: &[(T, &str)], what: &str) -> Result<T> {
        let found = match self.peek() {
            Some(Tok::Word(w)) => words.iter().find(|(_, word)| word == w),
            _ => None,
        };
        match found {
            Some((value, _)) => {
                self.at += 1;
                Ok(*value)
            }
            None => self.expected(what),
        }
    }

    fn name(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Some(Tok::Word(name) | Tok::Quoted(name)) => {
                self.at += 1;
                Ok(name.clone())
            }
            _ => self.expected(what),
        }
    }

    fn quoted(&mut self) -> Result<String> {
        match self.peek() {
            Some(Tok::Quoted(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => self.expected("text in quotes"),
        }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        match self.peek() {
            Some(Tok::Number(n)) => {
                let value = n.parse().map_err(|_| {
                    Diagnostic::error("E0705", self.span(), format!("`{n}` is not a number that fits here"))
                })?;
                self.at += 1;
                Ok(value)
            }
            _ => self.expected("a number"),
        }
    }

    fn bits(&mut self) -> Result<Bits> {
        match self.peek() {
            Some(Tok::Number(n)) => {
                let value =
                    Bits::parse(n).map_err(|e| Diagnostic::error("E0705", self.span(), format!("`{n}`: {e}")))?;
                self.at += 1;
                Ok(value)
            }
            _ => self.expected("a constant, as `8w0xff`"),
        }
    }

    /// The index of a declared name.
    fn known(&mut self, space: Space) -> Result<u32> {
        let span = self.span();
        let name = self.name(&format!("the name of a {}", space.noun()))?;
        self.names.spaces[space as usize].get(&name).copied().ok_or_else(|| {
            let diag = Diagnostic::error("E0703", span, format!("there is no {} `{name}`", space.noun()));
            match space {
                Space::Drop => Box::new(diag.help("drop reasons are listed by a line `drops …`")),
                _ => Box::new(diag),
            }
        })
    }

    /// `(a, b, …)`.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.punct("(")?;
        let mut items = Vec::new();
        if self.eat_punct(")") {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat_punct(")") {
                return Ok(items);
            }
            if !self.eat_punct(",") {
                return self.expected("`,` or `)`");
            }
        }
    }

    /// `a, b, …` up to the end of the line, at least one.
    fn rest<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_punct(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `@file:start-end`, or nothing.
    fn place(&mut self) -> Result<Span> {
        if !self.eat_punct("@") {
            return Ok(Span::NONE);
        }
        let file = FileId(self.number()?);
        self.punct(":")?;
        let start = self.number()?;
        self.punct("-")?;
        Ok(Span::new(file, start, self.number()?))
    }
}
