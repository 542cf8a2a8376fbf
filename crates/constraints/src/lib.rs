//! p4-constraints: what `@entry_restriction` and `@action_restriction` say, and whether an entry keeps to it.
//!
//! ```text
//!   annotation's text ──lexer──▶ tokens ──parser──▶ tree ──check──▶ Constraint ──eval──▶ kept, or the clause that is not
//! ```
//!
//! The language is the one of the p4-constraints project ("p4-constraints language specification"): boolean expressions
//! over the fields of a key, the parameters of an action and the priority. [`Constraint::new`] does all that can be done
//! once per program; [`Constraint::check`] then cannot fail but by a violation. Values are what the data plane has: a field
//! that is a string for controllers is its number.
//!
//! What that specification leaves open is decided here: an integer becomes a `bit<W>` as in P4, modulo 2^W; a field that
//! is not matched exactly equals a number if it accepts that number and nothing else; `true` and `false` are no numbers.
//!
//! **Invariants:** knows no P4Info and no protocol; errors have places in the annotation's text; nesting is bounded.
//! Tests: `tests/language.rs`; in requests, `crates/control/tests/p4runtime/constraints.rs`.

mod check;
mod error;
mod eval;
mod lexer;
mod parser;
mod scope;

pub use error::Error;
pub use eval::Values;
pub use scope::{Operand, Scope};

/// A constraint, ready to be checked against.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Constraint {
    /// Parts that must all hold, with their text.
    clauses: Vec<(String, check::Bool)>,
}

impl Constraint {
    /// Reads a constraint, all clauses of which fit the scope.
    pub fn new(text: &str, scope: &Scope) -> Result<Constraint, Error> {
        let (constraint, misfits) = Constraint::fitting(text, scope)?;
        misfits.into_iter().next().map_or(Ok(constraint), Err)
    }

    /// Reads a constraint; clauses that do not fit the scope (a name that is not there, `::prefix_length` of a ternary field) are left out of
    /// it, each with why.
    pub fn fitting(text: &str, scope: &Scope) -> Result<(Constraint, Vec<Error>), Error> {
        let tokens = lexer::tokens(text)?;
        let trees = parser::parse(&tokens, text.len())?;
        let (mut clauses, mut misfits) = (Vec::new(), Vec::new());
        for tree in &trees {
            match check::condition(tree, scope) {
                Ok(condition) => {
                    let text = text[tree.place.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
                    clauses.push((text, condition));
                }
                Err(error) => misfits.push(error),
            }
        }
        Ok((Constraint { clauses }, misfits))
    }

    /// `Err` is the text of the first clause that does not hold.
    pub fn check(&self, values: Values) -> Result<(), &str> {
        match self.clauses.iter().find(|(_, condition)| !condition.holds(values)) {
            None => Ok(()),
            Some((text, _)) => Err(text),
        }
    }
}
