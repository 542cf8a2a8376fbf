//! Broken variants of every example: the compiler ends with a program or diagnostics, and never panics.

use difftest::mangle::{self, Plan, Source};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The examples' programs.
fn programs() -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = std::fs::read_dir(&examples).expect("examples/").map(|e| e.expect("a readable folder").path());
    let mut programs: Vec<PathBuf> = folders
        .filter_map(|f| Some(f.join(format!("{}.p4", f.file_name()?.to_str()?))))
        .filter(|p| p.exists())
        .collect();
    programs.sort();
    programs
}

#[test]
fn no_variant_of_an_example_panics() {
    let programs = programs();
    assert!(programs.len() >= 12, "only {} examples", programs.len());
    let mut compiled = 0;
    let mut failed = Vec::new();
    for program in programs {
        let text = std::fs::read_to_string(&program).expect("a readable example");
        let source = Source::new(&text, Plan { cuts: 24, byte_cuts: 8, mutants: 24, seed: 1 });
        for variant in 0..source.variants() {
            let broken = source.variant(variant);
            let run = || mangle::compile(&program.display().to_string(), &broken, &[]);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{}: {}", program.display(), source.name(variant)));
            }
            compiled += 1;
        }
    }
    assert!(compiled > 500);
    assert!(failed.is_empty(), "the compiler panics: {failed:#?}");
}
