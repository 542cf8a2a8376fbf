//! A million generated packets over every program of the tree, on raw IR, optimised IR and machine code.

use difftest::{Subject, Totals, run_rounds};
use std::path::{Path, PathBuf};

/// At least this many packets altogether.
const PACKETS: u64 = 1_000_000;
/// Of one round.
const ROUND: u64 = 1024;

/// All programs with a script, below `examples/` and `tests/stf/`.
fn programs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("examples"), root.join("tests/stf")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("v1model/limits.p4") {
                // Each of its packets makes thousands of others: nothing new to see, and minutes to wait.
            } else if path.extension().is_some_and(|e| e == "p4") && path.with_extension("stf").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn engines_agree_on_a_million_packets() {
    let programs = programs();
    assert!(programs.len() >= 12, "found only {programs:?}");
    // DIFFTEST_SEED repeats or moves on; DIFFTEST_PACKETS runs longer.
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let seed = number("DIFFTEST_SEED", 1);
    let rounds = number("DIFFTEST_PACKETS", PACKETS).div_ceil(ROUND * programs.len() as u64);
    let mut totals = Totals::default();
    let mut differences = Vec::new();
    for program in &programs {
        let subject = match Subject::read(program, &program.with_extension("stf")) {
            Ok(subject) => subject,
            Err(error) if error.to_string().contains("draws random numbers") => continue,
            Err(error) => panic!("{}: {error:#}", program.display()),
        };
        let found = run_rounds(&subject, seed, rounds, &mut totals).expect("every program loads on every engine");
        differences.extend(found);
    }
    println!("{} packets, {} frames sent, {} entries", totals.packets, totals.sent, totals.entries);
    let text: Vec<String> =
        differences.iter().map(|d| format!("{} with DIFFTEST_SEED={}: {}", d.program, d.seed, d.what)).collect();
    assert!(differences.is_empty(), "{}", text.join("\n\n"));
    assert!(totals.sent > totals.packets / 10, "too few packets get through for this to test anything: {totals:?}");
}
