//! Ids, spans, diagnostics, table entries and bit-vector values.
//!
//! The bottom of the crate graph: it imports no other crate of the workspace. `bits` is the one place where P4
//! arithmetic is defined; the constant evaluator, the interpreter and the optimiser's constant folding all call it, and
//! compiled code is tested against it.

pub mod bits;
pub mod diag;
pub mod entry;
pub mod ids;
pub mod span;
pub mod spelling;
pub mod visible;

pub use bits::Bits;
pub use diag::{Diagnostic, Severity};
pub use span::{FileId, SourceMap, Span};
