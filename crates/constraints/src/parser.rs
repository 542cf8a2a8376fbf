//! The parser of constraints. Operators from weakest to strongest: `;`, `->`, `||`, `&&`, comparisons, `!` and `-`,
//! `::`. Implication and comparisons are not associative: `a == b == c` is rejected. Nesting is bounded, and with it
//! the recursion of later steps.

use crate::error::Error;
use crate::lexer::{Kind, Token};
use num_bigint::BigInt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The maximum nesting depth of expressions.
const DEPTH_MAX: usize = 100;

/// An expression with its byte range.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) place: Range<usize>,
    pub(crate) node: Node,
}

/// The kind of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Bool(bool),
    Number(BigInt),
    Name(String),
    /// `::priority`
    Attribute(String),
    /// `k::mask`
    Field(Box<Tree>, String),
    Not(Box<Tree>),
    Negative(Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
}

/// Parses the clauses, which semicolons separate; there is at least one. `end` is the length of the text in bytes.
///
/// # Errors
///
/// The text does not follow the grammar, or is nested too deeply.
pub(crate) fn parse(tokens: &[Token], end: usize) -> Result<Vec<Tree>, Error> {
    let mut parser = Parser { tokens, at: 0, end, depth: 0 };
    let mut trees = vec![parser.expression()?];
    while parser.eat(";") {
        if parser.at < tokens.len() {
            trees.push(parser.expression()?);
        }
    }
    match parser.peek() {
        None => Ok(trees),
        Some(_) => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    end: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn place(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(self.end..self.end, |token| token.place.clone())
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Symbol(s)) if *s == symbol);
        self.at += usize::from(found);
        found
    }

    fn one_of(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        symbols.iter().copied().find(|symbol| self.eat(symbol))
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Error> {
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found = match self.peek() {
            None => "the constraint ends".to_string(),
            Some(Kind::Word(word)) => format!("there is `{word}`"),
            Some(Kind::Number(number)) => format!("there is `{number}`"),
            Some(Kind::Quoted(text)) => format!("there is '{text}'"),
            Some(Kind::Symbol(symbol)) => format!("there is `{symbol}`"),
        };
        Error::new(self.place(), format!("expected {wanted}, but {found}"))
    }

    fn word(&mut self, wanted: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// A node that covers the text from `start` to the last token taken.
    fn tree(&self, start: usize, node: Node) -> Tree {
        let end = self.tokens[self.at - 1].place.end;
        Tree { place: start..end, node }
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::new(self.place(), format!("expressions nest deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let done = f(self);
        self.depth -= 1;
        done
    }

    /// An expression without `;`.
    fn expression(&mut self) -> Result<Tree, Error> {
        self.nested(|p| p.unchained(&["->"], |p| p.chained("||", |p| p.chained("&&", Self::comparison))))
    }

    fn comparison(&mut self) -> Result<Tree, Error> {
        self.unchained(&["==", "!=", ">=", "<=", ">", "<"], Self::unary)
    }

    fn chained(
        &mut self,
        symbol: &'static str,
        part: impl Fn(&mut Self) -> Result<Tree, Error>,
    ) -> Result<Tree, Error> {
        let mut left = part(self)?;
        let mut links = 0;
        while self.eat(symbol) {
            links += 1;
            if links > DEPTH_MAX {
                return Err(Error::new(self.place(), format!("more than {DEPTH_MAX} `{symbol}` in a row")));
            }
            let right = part(self)?;
            left = self.tree(left.place.start, Node::Binary(symbol, Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn unchained(
        &mut self,
        symbols: &[&'static str],
        part: impl Fn(&mut Self) -> Result<Tree, Error>,
    ) -> Result<Tree, Error> {
        let left = part(self)?;
        let Some(symbol) = self.one_of(symbols) else { return Ok(left) };
        let right = part(self)?;
        let tree = self.tree(left.place.start, Node::Binary(symbol, Box::new(left), Box::new(right)));
        let place = self.place();
        match self.one_of(symbols) {
            None => Ok(tree),
            Some(_) => {
                Err(Error::new(place, "this does not chain").help("parentheses say which of the two comes first"))
            }
        }
    }

    fn unary(&mut self) -> Result<Tree, Error> {
        let start = self.place().start;
        if self.eat("!") {
            let operand = Box::new(self.nested(Self::unary)?);
            return Ok(self.tree(start, Node::Not(operand)));
        }
        if self.eat("-") {
            let operand = Box::new(self.nested(Self::unary)?);
            return Ok(self.tree(start, Node::Negative(operand)));
        }
        let operand = self.atom()?;
        if !self.eat("::") {
            return Ok(operand);
        }
        let field = self.word("the name of a field: `value`, `mask`, `prefix_length`, `low` or `high`")?;
        Ok(self.tree(start, Node::Field(Box::new(operand), field)))
    }

    fn atom(&mut self) -> Result<Tree, Error> {
        let start = self.place().start;
        if self.eat("(") {
            let inner = self.clauses()?;
            self.expect(")")?;
            return Ok(self.tree(start, inner.node));
        }
        if self.eat("::") {
            let name = self.word("the name of an attribute")?;
            return Ok(self.tree(start, Node::Attribute(name)));
        }
        if let Some(Kind::Number(number)) = self.peek() {
            let number = Node::Number(number.clone());
            self.at += 1;
            return Ok(self.tree(start, number));
        }
        let mut name = self.word("a condition, a name or a number")?;
        match (name.as_str(), self.peek()) {
            ("true", _) => return Ok(self.tree(start, Node::Bool(true))),
            ("false", _) => return Ok(self.tree(start, Node::Bool(false))),
            ("ipv4" | "ipv6" | "mac", Some(Kind::Symbol("("))) => return self.address(start, &name),
            _ => {}
        }
        while self.eat(".") {
            name = format!("{name}.{}", self.word("a name after the dot")?);
        }
        Ok(self.tree(start, Node::Name(name)))
    }

    /// A parenthesised expression, in which `;` is allowed too.
    fn clauses(&mut self) -> Result<Tree, Error> {
        let mut left = self.expression()?;
        while self.eat(";") {
            if matches!(self.peek(), Some(Kind::Symbol(")"))) {
                break;
            }
            let right = self.nested(Self::expression)?;
            left = self.tree(left.place.start, Node::Binary("&&", Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn address(&mut self, start: usize, kind: &str) -> Result<Tree, Error> {
        self.expect("(")?;
        let Some(Kind::Quoted(text)) = self.peek() else {
            return Err(self.unexpected("an address in single quotes"));
        };
        let number = match kind {
            "ipv4" => text.parse::<Ipv4Addr>().ok().map(|a| BigInt::from(u32::from(a))),
            "ipv6" => text.parse::<Ipv6Addr>().ok().map(|a| BigInt::from(u128::from(a))),
            _ => mac(text).map(BigInt::from),
        };
        let number = number.ok_or_else(|| Error::new(self.place(), format!("'{text}' is no {kind} address")))?;
        self.at += 1;
        self.expect(")")?;
        Ok(self.tree(start, Node::Number(number)))
    }
}

/// Parses a MAC address: six bytes of two hexadecimal digits, separated by colons.
fn mac(text: &str) -> Option<u64> {
    let bytes = text.split(':').map(|byte| match byte.len() {
        2 => u8::from_str_radix(byte, 16).ok(),
        _ => None,
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    (bytes.len() == 6).then(|| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
