//! Passes: transformations of a module that preserve its behaviour, one per file.
//!
//! A pass works on one function at a time and knows only the declarations of others. In debug builds the verifier runs
//! before and after each pass. `tests/passes/` has texts before and after; `tests/optimised.rs` runs generated modules
//! through all passes, and through each alone, and compares the runs.

mod branches;
mod common_subexpressions;
mod constants;
mod dead_code;
mod parameters;
mod simplify;

use crate::function::{Function, Module};
use crate::verify::verify_function;

/// Transforms a function, of which the module holds an unchanged copy meanwhile. Returns whether it changed anything.
type Run = fn(&Module, &mut Function) -> bool;

/// A pass.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name, by which it can be switched off.
    pub name: &'static str,
    run: Run,
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All passes, in order of their first run.
pub const PASSES: [Pass; 6] = [
    Pass { name: "constants", run: constants::run },
    Pass { name: "branches", run: branches::run },
    Pass { name: "parameters", run: parameters::run },
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "common_subexpressions", run: common_subexpressions::run },
    Pass { name: "dead_code", run: dead_code::run },
];

/// Largest number of iterations over all passes. A further one only finds what earlier ones have made possible.
const ROUNDS_MAX: usize = 2;

/// Runs all passes on all functions, except those named in `without`.
///
/// # Panics
///
/// In debug builds, if the result of a pass is not well-formed: a bug in the pass.
pub fn optimise(module: &mut Module, without: &[&str]) {
    for number in 0..module.functions.len() {
        for _ in 0..ROUNDS_MAX {
            let mut changed = false;
            for pass in PASSES.iter().filter(|pass| !without.contains(&pass.name)) {
                changed |= run_on(module, number, pass);
            }
            if !changed {
                break;
            }
        }
    }
}

/// Runs one pass once on all functions. Returns whether there is such a pass.
///
/// # Panics
///
/// As [`optimise`].
pub fn run_pass(module: &mut Module, name: &str) -> bool {
    let Some(pass) = PASSES.iter().find(|pass| pass.name == name) else { return false };
    for number in 0..module.functions.len() {
        run_on(module, number, pass);
    }
    true
}

fn run_on(module: &mut Module, number: usize, pass: &Pass) -> bool {
    check(module, &module.functions[number], pass, "before");
    // A copy stays in the module, so that recursive calls find the function's declaration.
    let mut function = module.functions[number].clone();
    let changed = (pass.run)(module, &mut function);
    check(module, &function, pass, "after");
    module.functions[number] = function;
    changed
}

fn check(module: &Module, function: &Function, pass: &Pass, when: &str) {
    if cfg!(debug_assertions) {
        let violations = verify_function(module, function);
        let name = pass.name;
        assert!(violations.is_empty(), "{when} {name}: {}\n{}", violations[0], crate::print_function(module, function));
    }
}
