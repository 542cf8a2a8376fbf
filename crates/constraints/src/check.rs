//! The type checker of constraints: which expressions are conditions, and which operands they take.
//!
//! A tree becomes a [`Bool`] over [`Number`]s, in which conversions are explicit and every name is an index, so that
//! evaluation needs no names and cannot fail.

use crate::error::Error;
use crate::parser::{Node, Tree};
use crate::scope::{Operand, Scope};
use base::entry::MatchKind;
use num_bigint::BigInt;

/// A condition.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Bool {
    Const(bool),
    Not(Box<Bool>),
    And(Box<Bool>, Box<Bool>),
    Or(Box<Bool>, Box<Bool>),
    Same(Box<Bool>, Box<Bool>),
    Compare(Order, Number, Number),
}

/// A comparison of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Order {
    Equal,
    Less,
    LessOrEqual,
}

/// An integer expression of arbitrary precision.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Number {
    Const(BigInt),
    Priority,
    Negative(Box<Number>),
    /// The operand modulo 2^W.
    Wrapped(u32, Box<Number>),
    /// A part of the field, or the parameter, at this index of the scope.
    Part(usize, Part),
}

/// A part of a field's match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Part {
    Value,
    Mask,
    PrefixLength,
    Low,
    High,
}

/// An expression with its type.
enum Typed {
    Bool(Bool),
    /// `int`
    Int(Number),
    /// `bit<W>`
    Bits(u32, Number),
    /// A field whose match has several parts: its index, match kind and width in bits.
    Field(usize, MatchKind, u32),
}

impl Typed {
    fn name(&self) -> String {
        match self {
            Typed::Bool(_) => "bool".to_string(),
            Typed::Int(_) => "int".to_string(),
            Typed::Bits(width, _) => format!("bit<{width}>"),
            Typed::Field(_, kind, width) => format!("{}<{width}>", kind.name()),
        }
    }
}

/// The parts that together determine what a field of a match kind accepts.
fn parts(kind: MatchKind) -> &'static [(&'static str, Part)] {
    match kind {
        MatchKind::Exact => &[("value", Part::Value)],
        MatchKind::Lpm => &[("value", Part::Value), ("prefix_length", Part::PrefixLength)],
        MatchKind::Ternary | MatchKind::Optional => &[("value", Part::Value), ("mask", Part::Mask)],
        MatchKind::Range => &[("low", Part::Low), ("high", Part::High)],
    }
}

/// Checks a tree that must be a condition.
///
/// # Errors
///
/// A name that is not in the scope, an operand of the wrong type, or a tree that is not a condition.
pub(crate) fn condition(tree: &Tree, scope: &Scope) -> Result<Bool, Error> {
    match typed(tree, scope)? {
        Typed::Bool(condition) => Ok(condition),
        other => Err(Error::new(tree.place.clone(), format!("expected a condition, this is `{}`", other.name()))
            .help("compare it with something")),
    }
}

fn boxed(tree: &Tree, scope: &Scope) -> Result<Box<Bool>, Error> {
    condition(tree, scope).map(Box::new)
}

fn not(condition: Bool) -> Bool {
    Bool::Not(Box::new(condition))
}

fn typed(tree: &Tree, scope: &Scope) -> Result<Typed, Error> {
    let wrong = |message: String| Error::new(tree.place.clone(), message);
    Ok(match &tree.node {
        Node::Bool(value) => Typed::Bool(Bool::Const(*value)),
        Node::Number(value) => Typed::Int(Number::Const(value.clone())),
        Node::Name(name) => {
            let position = scope.names.iter().position(|(known, _)| known == name);
            let position = position.ok_or_else(|| unknown(tree, name, scope))?;
            match scope.names[position].1 {
                Operand::Field(MatchKind::Exact, width) | Operand::Param(width) => {
                    Typed::Bits(width, Number::Part(position, Part::Value))
                }
                Operand::Field(kind, width) => Typed::Field(position, kind, width),
            }
        }
        Node::Attribute(name) if name == "priority" && scope.has_priority => Typed::Int(Number::Priority),
        Node::Attribute(name) => {
            let help = if scope.has_priority { "there is `::priority`" } else { "entries here have no attributes" };
            return Err(wrong(format!("there is no attribute `{name}`")).help(help));
        }
        Node::Field(of, name) => field(tree, of, name, scope)?,
        Node::Not(operand) => Typed::Bool(Bool::Not(boxed(operand, scope)?)),
        Node::Negative(operand) => match typed(operand, scope)? {
            Typed::Int(number) => Typed::Int(Number::Negative(Box::new(number))),
            other => {
                return Err(Error::new(operand.place.clone(), format!("`-` is for `int`, this is `{}`", other.name())));
            }
        },
        Node::Binary("&&", a, b) => Typed::Bool(Bool::And(boxed(a, scope)?, boxed(b, scope)?)),
        Node::Binary("||", a, b) => Typed::Bool(Bool::Or(boxed(a, scope)?, boxed(b, scope)?)),
        Node::Binary("->", a, b) => Typed::Bool(Bool::Or(Box::new(Bool::Not(boxed(a, scope)?)), boxed(b, scope)?)),
        Node::Binary(symbol, a, b) => Typed::Bool(comparison(tree, symbol, typed(a, scope)?, typed(b, scope)?)?),
    })
}

fn unknown(tree: &Tree, name: &str, scope: &Scope) -> Error {
    let error = Error::new(tree.place.clone(), format!("there is no `{name}` here"));
    let names: Vec<String> = scope.names.iter().map(|(name, _)| format!("`{name}`")).collect();
    match names.is_empty() {
        true => error,
        false => error.help(format!("there is {}", names.join(", "))),
    }
}

fn field(tree: &Tree, of: &Tree, name: &str, scope: &Scope) -> Result<Typed, Error> {
    let (position, kind, width) = match (&of.node, typed(of, scope)?) {
        (_, Typed::Field(position, kind, width)) => (position, kind, width),
        (Node::Name(_), Typed::Bits(width, Number::Part(position, _))) => (position, MatchKind::Exact, width),
        (_, other) => {
            return Err(Error::new(of.place.clone(), format!("`::{name}` is for fields, this is `{}`", other.name())));
        }
    };
    let Some((_, part)) = parts(kind).iter().find(|(known, _)| *known == name) else {
        let names: Vec<String> = parts(kind).iter().map(|(name, _)| format!("`::{name}`")).collect();
        let message = format!("a field of type `{}<{width}>` has no `{name}`", kind.name());
        return Err(Error::new(tree.place.clone(), message).help(format!("it has {}", names.join(" and "))));
    };
    Ok(match part {
        Part::PrefixLength => Typed::Int(Number::Part(position, *part)),
        _ => Typed::Bits(width, Number::Part(position, *part)),
    })
}

fn comparison(tree: &Tree, symbol: &str, a: Typed, b: Typed) -> Result<Bool, Error> {
    let (left, right) = (a.name(), b.name());
    let equality = matches!(symbol, "==" | "!=");
    let mismatch = |help: &str| {
        let message = format!("`{left} {symbol} {right}` means nothing");
        Err(Error::new(tree.place.clone(), message).help(help))
    };
    let wrapped = |width, number| Number::Wrapped(width, Box::new(number));
    let equal = match (a, b) {
        (Typed::Int(a), Typed::Int(b)) => return Ok(ordered(symbol, a, b)),
        (Typed::Bits(width, a), Typed::Bits(other, b)) if width == other => return Ok(ordered(symbol, a, b)),
        (Typed::Bits(width, a), Typed::Int(b)) => return Ok(ordered(symbol, a, wrapped(width, b))),
        (Typed::Int(a), Typed::Bits(width, b)) => return Ok(ordered(symbol, wrapped(width, a), b)),
        (Typed::Bits(..), Typed::Bits(..)) => return mismatch("the widths must be the same"),
        (Typed::Bool(a), Typed::Bool(b)) if equality => Bool::Same(Box::new(a), Box::new(b)),
        (Typed::Field(a, kind, width), Typed::Field(b, other, same)) if equality && kind == other && width == same => {
            let pair =
                |(_, part): &(&str, Part)| Bool::Compare(Order::Equal, Number::Part(a, *part), Number::Part(b, *part));
            all(parts(kind).iter().map(pair))
        }
        (Typed::Field(at, kind, width), Typed::Int(number)) | (Typed::Int(number), Typed::Field(at, kind, width))
            if equality =>
        {
            exactly(at, kind, width, wrapped(width, number))
        }
        (Typed::Field(at, kind, width), Typed::Bits(same, number))
        | (Typed::Bits(same, number), Typed::Field(at, kind, width))
            if equality && width == same =>
        {
            exactly(at, kind, width, number)
        }
        (Typed::Field(_, kind, _), _) | (_, Typed::Field(_, kind, _)) if !equality => {
            let names: Vec<String> = parts(kind).iter().map(|(name, _)| format!("`::{name}`")).collect();
            return mismatch(&format!("only its parts have an order: {}", names.join(", ")));
        }
        _ => return mismatch("both sides must be conditions, or numbers"),
    };
    Ok(if symbol == "==" { equal } else { not(equal) })
}

fn ordered(symbol: &str, a: Number, b: Number) -> Bool {
    match symbol {
        "==" => Bool::Compare(Order::Equal, a, b),
        "!=" => not(Bool::Compare(Order::Equal, a, b)),
        "<" => Bool::Compare(Order::Less, a, b),
        "<=" => Bool::Compare(Order::LessOrEqual, a, b),
        ">" => Bool::Compare(Order::Less, b, a),
        _ => Bool::Compare(Order::LessOrEqual, b, a),
    }
}

fn all(conditions: impl Iterator<Item = Bool>) -> Bool {
    conditions.reduce(|a, b| Bool::And(Box::new(a), Box::new(b))).unwrap_or(Bool::Const(true))
}

/// The condition that the field accepts exactly this number.
fn exactly(at: usize, kind: MatchKind, width: u32, number: Number) -> Bool {
    let whole = |part: Part| match part {
        Part::Value | Part::Low | Part::High => number.clone(),
        Part::Mask => Number::Wrapped(width, Box::new(Number::Const(BigInt::from(-1)))),
        Part::PrefixLength => Number::Const(BigInt::from(width)),
    };
    all(parts(kind).iter().map(|(_, part)| Bool::Compare(Order::Equal, Number::Part(at, *part), whole(*part))))
}
