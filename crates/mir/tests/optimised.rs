//! Generated modules behave the same before and after passes: the interpreter gives the same result and memory.

mod support;

use mir::passes::{PASSES, optimise, run_pass};
use mir::{Module, print, verify};
use support::{arena, generated, run};

const NUMBERS: [[u64; 2]; 3] = [[0, 0], [1, u64::MAX], [0x1234_5678_9abc_def0, 77]];

#[track_caller]
fn same(seed: u64, before: &Module, after: &Module, what: &str) {
    let violations = verify(after);
    assert!(violations.is_empty(), "seed {seed}, {what}: {}\n{before}\n{after}", violations[0]);
    for (i, numbers) in NUMBERS.into_iter().enumerate() {
        let arena = arena(seed.wrapping_add(i as u64));
        let (expected, found) = (run(before, numbers, arena.clone()), run(after, numbers, arena));
        assert!(expected == found, "seed {seed}, {what}: {:?} {:?}\n{before}\n{after}", expected.0, found.0);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let more = std::env::var("MIR_SEEDS").ok().and_then(|count| count.parse().ok());
    0..more.unwrap_or(1000)
}

#[test]
fn all_passes() {
    let (mut before, mut after) = (0, 0);
    for (seed, module) in generated(seeds()) {
        let mut optimised = module.clone();
        optimise(&mut optimised, &[]);
        same(seed, &module, &optimised, "all passes");
        let size = |module: &Module| module.functions.iter().map(|function| function.instructions()).sum::<usize>();
        (before, after) = (before + size(&module), after + size(&optimised));
    }
    // The passes have an effect: random code has much dead code.
    assert!(4 * after < 3 * before, "{before} instructions, {after} behind all passes");
}

#[test]
fn each_pass_alone() {
    for pass in PASSES {
        let mut changed = 0;
        for (seed, module) in generated(0..500) {
            let mut alone = module.clone();
            assert!(run_pass(&mut alone, pass.name));
            same(seed, &module, &alone, pass.name);
            changed += u32::from(print(&alone) != print(&module));
        }
        assert!(changed > 20, "{pass:?} changed {changed} modules");
    }
}

#[test]
fn each_pass_left_out() {
    for pass in PASSES {
        for (seed, module) in generated(500..800) {
            let mut optimised = module.clone();
            optimise(&mut optimised, &[pass.name]);
            same(seed, &module, &optimised, &format!("without {pass:?}"));
        }
    }
}

#[test]
fn running_again_changes_little() {
    for (seed, module) in generated(0..300) {
        let mut once = module;
        (0..4).for_each(|_| optimise(&mut once, &[]));
        let mut twice = once.clone();
        optimise(&mut twice, &[]);
        assert_eq!(print(&once), print(&twice), "seed {seed}");
    }
}
