//! Generated programs on all engines, with each pass alone: a fixed part of what `cargo xtask generate` does for as long
//! as one likes. GENERATED_SEED and GENERATED_COUNT move on or run longer.

use difftest::parallel;
use difftest::source::{Options, Report, sweep};
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().expect("a number"))
}

#[test]
fn generated_programs_do_the_same_everywhere() {
    let first = number("GENERATED_SEED", 1);
    let seeds: Vec<u64> = (first..first + number("GENERATED_COUNT", 24)).collect();
    let reports = parallel::map(&seeds, |&seed| {
        let options = Options {
            seed,
            count: 1,
            limit: Duration::MAX,
            packets: 96,
            mutations: 6,
            reduction: Duration::from_secs(30),
        };
        sweep(&options, &mut |seed, _, found| {
            if let Some(found) = found {
                let case = &found.case;
                println!("== seed {seed}: {:?}\n{}\n/*\n{}\n*/", found.finding, case.source, case.script.join("\n"));
            }
        })
    });
    let mut report = Report::default();
    reports.into_iter().for_each(|other| report.merge(other));
    println!("{:?}", (report.programs, report.mutations, report.counts));
    let found: Vec<_> = report.found.values().map(|f| (f.seed, &f.finding.kind, &f.finding.place)).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(report.counts.sent > report.counts.packets / 4, "too few packets get through: {:?}", report.counts);
    assert!(report.counts.entries > report.programs, "too few entries: {:?}", report.counts);
}
