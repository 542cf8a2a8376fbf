//! A million generated packets over every program of the tree, on raw IR, optimised IR and machine code.

mod common;

use difftest::{Subject, Totals, parallel, run_rounds};

/// At least this many packets altogether.
const PACKETS: u64 = 1_000_000;
/// Of one round.
const ROUND: u64 = 1024;

#[test]
fn engines_agree_on_a_million_packets() {
    let mut programs = common::programs();
    // Each of its packets makes thousands of others: nothing new to see, and minutes to wait.
    programs.retain(|p| !p.ends_with("v1model/limits.p4"));
    // Nor where each goes round until its steps are spent, millions of them in the interpreter.
    programs.retain(|p| !p.ends_with("v1model/loops.p4"));
    assert!(programs.len() >= 12, "found only {programs:?}");
    // DIFFTEST_SEED repeats or moves on; DIFFTEST_PACKETS runs longer.
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let seed = number("DIFFTEST_SEED", 1);
    let rounds = number("DIFFTEST_PACKETS", PACKETS).div_ceil(ROUND * programs.len() as u64);
    let results = parallel::map(&programs, |program| {
        let mut totals = Totals::default();
        let subject = match Subject::read(program, &program.with_extension("stf")) {
            Ok(subject) => subject,
            Err(error) if error.to_string().contains("draws random numbers") => return (totals, None),
            Err(error) => panic!("{}: {error:#}", program.display()),
        };
        let difference = run_rounds(&subject, seed, rounds, &mut totals).expect("every program loads on every engine");
        (totals, difference)
    });
    let mut totals = Totals::default();
    let mut differences = Vec::new();
    for (of_program, difference) in results {
        totals += of_program;
        differences.extend(difference);
    }
    println!("{} packets, {} frames sent, {} entries", totals.packets, totals.sent, totals.entries);
    let text: Vec<String> =
        differences.iter().map(|d| format!("{} with DIFFTEST_SEED={}: {}", d.program, d.seed, d.what)).collect();
    assert!(differences.is_empty(), "{}", text.join("\n\n"));
    assert!(totals.sent > totals.packets / 10, "too few packets get through for this to test anything: {totals:?}");
}
