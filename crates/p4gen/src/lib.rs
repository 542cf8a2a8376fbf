//! Random P4_16 programs for v1model, well typed by construction, as source text.
//!
//! [`program`] makes one from a seed and a size; the same on every machine. A program uses every part of the language and
//! of the architecture whose outcome is definite: nothing draws random numbers. What it computes ends in registers and in
//! a header that is sent, so that few computations are dead. With it come set-up lines in the language of STF scripts:
//! clone sessions, multicast groups, members of action profiles.
//!
//! [`rewritten`] makes the same program with constructs written another way (`a && b` as `a ? b : false`, slices as
//! shifts, branches exchanged): both must do the same, which holds the front end against itself.
//!
//! The compiler must accept every program; `difftest::source` runs them on all engines.
//!
//! | file | what |
//! | --- | --- |
//! | `types` | declarations of types; which type a variable gets |
//! | `expr`, `compound` | expressions |
//! | `stmt` | statements that can stand anywhere |
//! | `related` | statements whose conditions are about one variable or header |
//! | `call` | functions and actions, and calls of them |
//! | `parser` | parsers, value sets |
//! | `table` | tables |
//! | `control` | controls, ingress and egress, deparser, checksums |
//! | `externs` | v1model's externs |
//! | `generator` | scopes, and the text that grows |
//! | `declared` | what can be used |
//! | `program` | the order of everything |
//!
//! Invariants: every statement stands on a line of its own, and every compound expression is in parentheses, so that a
//! reducer needs to know no grammar. Canary: a program counts in the counter `canary` what can never happen (a constant
//! expression has another value when it is computed at run time).
//!
//! Tests: `tests/programs.rs`; that the compiler accepts them, in `crates/difftest/tests/generated.rs`.

mod call;
mod compound;
mod control;
mod declared;
mod expr;
mod externs;
mod generator;
mod parser;
mod program;
mod related;
mod stmt;
mod table;
mod type_decls;
mod types;

pub use program::{Generated, program, rewritten};
