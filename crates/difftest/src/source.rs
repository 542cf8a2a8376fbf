//! Generated programs: everything that a program and a script must do the same way, whatever runs it.
//!
//! [`Case::generate`] makes a program (`p4gen`), and for it a script: set-up lines, entries around what its tables' keys
//! are, packets. [`Case::check`] compiles it and compares
//!
//! - raw IR on the interpreter, the truth here,
//! - the IR after each pass alone, after all passes but one, after all, on the interpreter,
//! - raw and optimised IR as machine code, also without some of the optimisations of code generation,
//! - raw IR that was printed and read again,
//! - raw IR of the same program written differently,
//!
//! in everything that can be seen: frames, answers to set-up lines, counters, registers, digests, drops. [`mutate`] edits
//! sources, which may then be refused but must not make the compiler panic. [`reduce`] makes a failing case small.
//!
//! Everything is text, so a reduced case is a file in `tests/stf/generated/`. Everything follows from a seed.
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
