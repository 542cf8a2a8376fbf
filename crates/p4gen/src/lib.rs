//! Random P4_16 programs for v1model, well typed by construction, as source text.
//!
//! [`program`] generates one from a seed and a size, the same on every machine. Programs use every part of the language
//! and of the architecture with a deterministic result, and no random numbers. Results of computations end in registers
//! and in a header that is sent, so that few computations are dead. A program comes with set-up lines of an STF script:
//! clone sessions, multicast groups, members of action profiles.
//!
//! [`rewritten`] generates the same program with constructs in an alternative form (`a && b` as `a ? b : false`, slices
//! as shifts, branches exchanged). Both must behave the same, which tests the front end against itself.
//!
//! The compiler must accept every program; `difftest::source` runs them on all engines.
//!
//! | file | contents |
//! | --- | --- |
//! | `types`, `type_decls` | types and their declarations; the types of variables |
//! | `expr`, `compound` | expressions |
//! | `stmt` | statements for any kind of body |
//! | `related` | statements whose conditions concern one variable or header |
//! | `call` | functions and actions, and calls of them |
//! | `parser` | parsers, value sets |
//! | `table` | tables |
//! | `control` | controls, ingress and egress, deparser, checksums |
//! | `externs` | v1model's externs |
//! | `generator` | scopes, and the source text written so far |
//! | `declared` | declarations that statements can use |
//! | `program` | the order of a program's parts |
//!
//! Invariants: every statement is on a line of its own, and every compound expression is in parentheses, so that a
//! reducer needs no grammar. Canary: the program counts in the counter `canary` whenever a constant expression has a
//! different value at run time, which must never happen.
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
