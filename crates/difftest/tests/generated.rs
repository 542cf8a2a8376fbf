//! Generated programs on all engines, with each pass alone: a fixed part of what `cargo xtask generate` does for as long
//! as one likes. GENERATED_SEED and GENERATED_COUNT move on or run longer.

use difftest::source::{Options, sweep};
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().expect("a number"))
}

#[test]
fn generated_programs_do_the_same_everywhere() {
    let options = Options {
        seed: number("GENERATED_SEED", 1),
        count: number("GENERATED_COUNT", 24),
        limit: Duration::MAX,
        packets: 96,
        mutations: 6,
        reduction: Duration::from_secs(30),
    };
    let report = sweep(&options, &mut |seed, _, found| {
        if let Some(found) = found {
            let case = &found.case;
            println!("== seed {seed}: {:?}\n{}\n/*\n{}\n*/", found.finding, case.source, case.script.join("\n"));
        }
    });
    println!("{:?}", (report.programs, report.mutations, report.counts));
    let found: Vec<_> = report.found.values().map(|f| (f.seed, &f.finding.kind, &f.finding.place)).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(report.counts.sent > report.counts.packets / 4, "too few packets get through: {:?}", report.counts);
    assert!(report.counts.entries > report.programs, "too few entries: {:?}", report.counts);
}
