//! Runs every row with tiny counts, to keep the benchmark working. Times are not checked.

use bench::report::{Figures, Report, Run};
use bench::rows::{self, Settings, WORKS};
use bench::subject::{self, Options};
use bench::workers::{Cells, Spread};
use bench::workload::{Flows, Workload, l2l3acl, stateful_firewall};
use bench::{compare, copies, disturbance, examples, growth, openflow, parts, passes, updates, workers};
use std::sync::Arc;

fn settings() -> Settings {
    Settings { options: Options::default(), batch: 32, rounds: 2, lock: None, quick: true }
}

#[test]
fn every_row_compares_and_runs() {
    let settings = settings();
    for work in WORKS {
        let row = rows::run(work, &settings).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(row.fates[0] > 0, "{}: no packet was sent", work.name);
        assert!(row.series.iter().all(|s| s.median() > 0.0), "{}: nothing was timed", work.name);
    }
}

#[test]
fn every_row_of_copies_compares_and_runs() {
    for row in copies::ALL {
        let row = copies::run(row, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(row.fates[0] + row.fates[1] >= row.fates[2], "{}: packets are missing", row.name);
        assert!(row.series.iter().all(|s| s.median() > 0.0), "{}: nothing was timed", row.name);
    }
}

#[test]
fn every_row_of_examples_compares_and_runs() {
    for row in examples::ALL {
        let measured = examples::run(row, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(measured.fates[0] > 0 && measured.fates[1] == 0, "{}: {measured:?}", row.name);
        assert!(measured.series.iter().all(|s| s.median() > 0.0), "{}: nothing was timed", row.name);
    }
}

#[test]
fn every_row_of_openflow_compares_and_runs() {
    for row in openflow::ALL {
        let measured = openflow::run(row, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(measured.fates[0] > 0, "{}: no packet was sent", row.name);
        assert!(measured.series.iter().all(|s| s.median() > 0.0), "{}: nothing was timed", row.name);
    }
}

#[test]
fn tables_are_attacked_and_revalidated() {
    for attack in disturbance::ATTACKS {
        let attacked = disturbance::attack(attack, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        let are_dropped = attack.name == "openflow-attack";
        assert!(attacked.fates[0] > 0 && (attacked.fates[1] > 0) == are_dropped, "only hostile packets: {attacked:?}");
    }
    let revalidated = disturbance::revalidation("revalidation", &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    let changed = disturbance::flow_mods("flow mods", &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    assert!(changed.figures.iter().all(|figure| figure.values.iter().all(|value| *value > 0.0)), "{changed:?}");
    assert!(revalidated.figures.iter().all(|figure| figure.values.iter().all(|ms| *ms > 0.0)), "{revalidated:?}");
}

#[test]
fn every_curve_has_points_and_becomes_a_plot() {
    let folder = std::env::temp_dir().join(format!("sluice-bench-{}", std::process::id()));
    let report = Report::new(folder.clone(), Run::default()).expect("a folder below the temporary one");
    for growth in growth::ALL {
        let curves = growth::run(growth, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(curves.points.len() >= 2, "{}", growth.name);
        report.curves(&curves).unwrap_or_else(|e| panic!("{e:#}"));
        let plot = std::fs::read_to_string(folder.join(format!("{}.svg", growth.name))).expect("a plot");
        assert!(plot.contains("<polyline"), "{}", growth.name);
    }
    std::fs::remove_dir_all(folder).expect("the folder was made above");
}

#[test]
fn tables_that_change_are_measured() {
    for (run, figures) in
        [(updates::insert as fn(&str, &Settings) -> _, 6), (updates::memory, 2), (updates::recompile, 20)]
    {
        let all: Figures = run("quick", &settings()).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!(all.figures.len(), figures, "{}", all.name);
        assert!(all.figures.iter().all(|f| !f.values.is_empty() && f.values.iter().all(|v| v.is_finite())), "{all:?}");
    }
}

#[test]
fn optimisations_left_out_change_no_packet() {
    let size = l2l3acl::Size { mixed: true, ..l2l3acl::Size::of(100, 64) };
    let row = passes::run("l2l3acl", &l2l3acl::workload(size), &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(row.series.len(), 5 + 2 * datapath::optimisations().len());
}

#[test]
fn the_program_is_cut_into_parts_and_runs_on_two_workers() {
    let workload = l2l3acl::workload(l2l3acl::Size::of(100, 64));
    parts::run("parts", &workload, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    let run = |workload: &Workload, how| {
        workers::run("workers", workload, how, 1.9, &settings()).unwrap_or_else(|e| panic!("{e:#}"))
    };
    assert_eq!(run(&workload, (Spread::Any, None)).series.len(), 3);
    let firewall = stateful_firewall::workload(Flows::Uniform(64), 64, 1);
    let cells = Some(Cells { registers: 1, size: 1 << 20 });
    let row = run(&firewall, (Spread::ByFlow, cells));
    assert_eq!((row.series.len(), row.bars.len()), (5, 3));
    let limited = workers::rate_limiter(200, &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    let row = workers::measured("rate_limiter", &limited, (Spread::ByFlow, None), 1.9, &settings());
    assert_eq!(row.unwrap_or_else(|e| panic!("{e:#}")).series.len(), 3);
}

#[test]
fn every_strategy_sends_the_same_packets() {
    let size = l2l3acl::Size { mixed: true, ..l2l3acl::Size::of(300, 500) };
    let row = rows::strategies("l2l3acl", &l2l3acl::workload(size), &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!((row.series.len(), row.bars.len()), (5, 4));
}

#[test]
fn every_engine_sends_the_same_packets() {
    let work = WORKS.iter().find(|w| w.name == "stateful_firewall").expect("it has a row");
    let row =
        rows::engines("stateful_firewall", &(work.workload)(true), &settings()).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!((row.series.len(), row.bars.len()), (6, 5));
}

#[test]
fn rules_near_to_traffic_deny_as_many_packets() {
    let denied = |near: bool| {
        let workload = l2l3acl::workload(l2l3acl::Size { near, ..l2l3acl::Size::of(1000, 2048) });
        let mut subject = [subject::c(&workload, false).expect("there is a C version")];
        compare::all(&mut subject, &workload.frames, 32).expect("nothing to compare with")[1]
    };
    let (far, near) = (denied(false), denied(true));
    assert!(far > 0 && far.abs_diff(near) <= 1, "{far} and {near} of 2048");
}

#[test]
fn new_flows_do_not_repeat() {
    let flows = bench::workload::Flows::New { pairs: 1, packets: 1000 };
    let workload = l2l3acl::workload(l2l3acl::Size { flows, ..l2l3acl::Size::of(100, 1) });
    let all: std::collections::BTreeSet<&[u8]> = (0..1000).map(|i| &workload.frames.get(i).1[26..38]).collect();
    assert_eq!(all.len(), 1000);
}

#[test]
fn a_difference_is_reported_with_both_packets() {
    let size = l2l3acl::Size::of(100, 64);
    let workload = l2l3acl::workload(size);
    let mut other = l2l3acl::workload(size);
    // The same entries, except that next hops have other addresses.
    let entries = Arc::clone(&other.entries);
    other.entries = Arc::new(move |emit| {
        entries(&mut |entry| {
            let mut entry = *entry;
            if l2l3acl::KINDS[entry.kind as usize] == "next_hop.rewrite" {
                entry.args[3] ^= 1;
            }
            emit(&entry);
        });
    });
    let mut subjects = [
        subject::sluice("Sluice", &workload, &Options::default()).expect("it compiles"),
        subject::c(&other, true).expect("there is a C version"),
    ];
    let text = compare::all(&mut subjects, &workload.frames, 32).expect_err("they differ").to_string();
    assert!(text.contains("\nSluice: port ") && text.contains("\nC, batched: port "), "{text}");
}

#[test]
fn seeded_workloads_are_reproducible() {
    let [a, b] = [(); 2].map(|()| l2l3acl::workload(l2l3acl::Size::of(100, 64)));
    let entries = |w: &bench::workload::Workload| {
        let mut all = Vec::new();
        (w.entries)(&mut |e| all.push(*e));
        all
    };
    assert_eq!(entries(&a), entries(&b));
    assert!((0..a.frames.len()).all(|i| a.frames.get(i) == b.frames.get(i)));
}
