//! Typed program to IR, one file per architecture.
//!
//! Everything is inlined: sub-parsers, sub-controls, functions and directly called actions become blocks of the stage of
//! the architecture's block that they are called from. Everything is flattened: headers, structs, stacks and unions
//! become slots ([`tree`]). What is left is straight-line operations, branches and table applications.
//!
//! ```text
//! lower()            v1model.rs           parser.rs, stmt.rs, expr.rs, call.rs, table.rs
//!   finds main  ──▶  binds the blocks' ──▶ put each block's code into a stage
//!                    parameters, adds glue
//! ```
//!
//! **Promises.** `lower` never panics on a checked program: what it cannot do it refuses with an `E06xx` diagnostic that
//! names the construct and its place. The result passes `ir::verify`. The fields of invalid headers are zero: `store.rs`
//! and `header.rs` are the only files that write header slots, and they guard.
//!
//! **Only this crate knows architectures by name**, and only the files behind [`arch::Architecture`] do.
//!
//! Specification: P4_16; v1model as bmv2's simple_switch does it. Tests: `tests/`; the reference compiler's samples are
//! counted by `examples/lower_corpus.rs`.

mod arch;
mod call;
mod cleanup;
pub mod codes;
mod context;
mod entries;
mod expr;
mod header;
mod parser;
mod path;
mod stmt;
mod storage;
mod store;
mod table;
mod tree;
mod v1model;
mod visit;

use base::Span;
use base::diag::{Diagnostic, has_errors};
use context::Lowerer;
use sema::TypedProgram;

/// What lowering yields.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The program; `None` when there is an error among the diagnostics.
    pub program: Option<ir::Program>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Lowers a checked program. `name` is the program's name in messages.
pub fn lower(program: &TypedProgram, name: &str) -> Lowered {
    let mut cx = Lowerer::new(program, name);
    match program.main.map(|main| &program.instances[main.index()]) {
        None => cx.refuse(codes::NO_MAIN, Span::NONE, "the program has no `main` package instance"),
        Some(main) => match package_name(program, main) {
            Some("V1Switch") => v1model::lower(&mut cx, main),
            Some(other) => cx.refuse(
                codes::UNKNOWN_ARCHITECTURE,
                main.span,
                format!("the package `{other}` belongs to no supported architecture; `V1Switch` of v1model is"),
            ),
            None => cx.refuse(codes::NO_MAIN, main.span, "`main` is no package instance"),
        },
    }
    cx.finish()
}

/// The name of the architecture a program is written for, if it is a supported one.
pub fn architecture(program: &TypedProgram) -> Option<&'static str> {
    let main = program.instances.get(program.main?.index())?;
    (package_name(program, main)? == "V1Switch").then_some("v1model")
}

fn package_name<'p>(program: &'p TypedProgram, main: &sema::typed::Instance) -> Option<&'p str> {
    match main.of {
        sema::typed::InstanceOf::Package(id) => Some(&program.types.block_types[id.index()].name),
        _ => None,
    }
}

impl Lowered {
    fn new(program: ir::Program, diagnostics: Vec<Diagnostic>) -> Lowered {
        let program = (!has_errors(&diagnostics)).then_some(program);
        Lowered { program, diagnostics }
    }
}
