//! Replays what the fuzz targets have found before, and their seeds. A crash of `cargo xtask fuzz` becomes a file in
//! `fuzz/regressions/TARGET/`, named for what was wrong.

use difftest::fuzz::{TARGETS, seeds};
use difftest::parallel;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[test]
fn no_found_input_fails_again() {
    let mut failed = Vec::new();
    for (target, body) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(target);
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            let bytes = std::fs::read(&path).expect("a readable file");
            if catch_unwind(AssertUnwindSafe(|| body(&bytes))).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "these inputs fail: {failed:#?}");
}

#[test]
fn seeds_pass() {
    let seeds = seeds();
    for (target, body) in TARGETS {
        let of_target: Vec<_> = seeds.iter().filter(|(of, _, _)| *of == target).collect();
        assert!(of_target.len() >= 12, "{target} has only {} seeds", of_target.len());
        parallel::map(&of_target, |(_, name, bytes)| {
            println!("{target} {name}");
            body(bytes);
        });
    }
}
