//! p4-constraints: parses `@entry_restriction` and `@action_restriction` and checks entries and calls against them.
//!
//! ```text
//!   annotation's text ──lexer──▶ tokens ──parser──▶ tree ──check──▶ Constraint ──eval──▶ ok, or a violated clause
//! ```
//!
//! The language is that of the p4-constraints project ("p4-constraints language specification"): boolean expressions
//! over the fields of a key, the parameters of an action and the priority. [`Constraint::new`] does all work that can
//! be done once per program; afterwards [`Constraint::check`] fails only on a violation. Values are those of the data
//! plane: a field that is a string for controllers is compared as its number.
//!
//! Where that specification leaves choices, this crate decides: an integer is converted to `bit<W>` as in P4, modulo
//! 2^W; a field that is not matched exactly equals a number if it accepts that number and no other; `true` and `false`
//! are not numbers.
//!
//! **Invariants:** the crate depends on neither P4Info nor a protocol; errors have byte ranges in the annotation's
//! text; nesting is bounded. Tests: `tests/language.rs`; in requests, `crates/control/tests/p4runtime/constraints.rs`.

mod check;
mod error;
mod eval;
mod lexer;
mod parser;
mod scope;

pub use error::Error;
pub use eval::Values;
pub use scope::{Operand, Scope};

/// A parsed and type-checked constraint.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Constraint {
    /// The clauses, which must all hold, with their text.
    clauses: Vec<(String, check::Bool)>,
}

impl Constraint {
    /// Parses a constraint and checks it against a scope.
    ///
    /// # Errors
    ///
    /// The first error: the text is not a constraint, or a clause does not fit the scope.
    pub fn new(text: &str, scope: &Scope) -> Result<Constraint, Error> {
        let (constraint, misfits) = Constraint::fitting(text, scope)?;
        misfits.into_iter().next().map_or(Ok(constraint), Err)
    }

    /// Parses a constraint and omits clauses that do not fit the scope (an unknown name, `::prefix_length` of a ternary
    /// field); the second value has the error of each.
    ///
    /// # Errors
    ///
    /// The text is not a constraint.
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

    /// Checks values against the constraint.
    ///
    /// # Errors
    ///
    /// The text of the first clause that does not hold.
    pub fn check(&self, values: Values) -> Result<(), &str> {
        match self.clauses.iter().find(|(_, condition)| !condition.holds(values)) {
            None => Ok(()),
            Some((text, _)) => Err(text),
        }
    }
}
