//! Differential testing of generated programs: all engines and forms of a program must behave the same.
//!
//! [`Case::generate`] generates a program (`p4gen`) and a script for it: set-up lines, entries that match its keys,
//! packets. [`Case::check`] compiles it and compares
//!
//! - raw IR in the interpreter, the reference,
//! - the IR after each single pass, after all passes but one, and after all, in the interpreter,
//! - raw and optimised IR as machine code, also without some optimisations of code generation,
//! - raw IR that was printed and parsed,
//! - raw IR of the same program with constructs rewritten,
//!
//! in all observable results: frames, answers to set-up lines, counters, registers, digests, drops. [`mutate`] edits
//! sources, which the compiler may refuse but without panicking. [`reduce`] reduces a failing case.
//!
//! Everything is text, so that a reduced case is a file in `tests/stf/generated/`. Everything is determined by a seed.
//!
//! Tests: `tests/generated.rs`.

mod case;
mod engines;
mod finding;
pub mod mutate;
pub mod reduce;
mod script;
mod sweep;

pub use case::Case;
pub use finding::{Counts, Depth, Finding, Kind, catch_panics};
pub use sweep::{Options, Report, size_of, sweep};
