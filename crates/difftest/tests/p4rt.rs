//! P4Runtime requests over every program of the tree: valid ones and damaged ones, judged by a model.

mod common;

use datapath::EngineKind;
use difftest::p4rt::{Subject, Totals};

/// Requests to each program.
const REQUESTS: u64 = 400;

#[test]
fn answers_are_those_that_the_specification_allows() {
    // P4RT_SEED repeats or moves on; P4RT_REQUESTS asks longer.
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let (seed, requests) = (number("P4RT_SEED", 1), number("P4RT_REQUESTS", REQUESTS));
    let mut totals = Totals::default();
    let mut faults = Vec::new();
    // What scripts cannot write is in the programs of the Python tests: group actions, varbits in registers.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/py");
    let more = ["everything", "group_action", "varbits", "cells"].map(|name| root.join(name).with_extension("p4"));
    for program in common::programs().into_iter().chain(more) {
        for engine in [EngineKind::Machine, EngineKind::Interpreter] {
            let mut subject =
                Subject::new(&program, engine, seed).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
            if let Err(fault) = subject.run(seed, requests, &mut totals) {
                faults.push(format!(
                    "{} with P4RT_SEED={}, request {}: {}",
                    fault.program, fault.seed, fault.request, fault.what
                ));
            }
        }
    }
    println!("{totals:?}");
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
    assert!(totals.done * 4 > totals.updates, "too little is done for this to test anything: {totals:?}");
    assert!(totals.done * 4 < totals.updates * 3, "too little is refused for this to test anything: {totals:?}");
}

#[test]
fn what_was_acknowledged_reads_the_same_after_restarts() {
    let mut totals = Totals::default();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for program in ["tests/py/everything.p4", "tests/py/group_action.p4", "examples/load_balancer/load_balancer.p4"] {
        let dir = std::env::temp_dir().join(format!("p4rt-kept-{}-{}", std::process::id(), program.replace('/', "-")));
        let _ = std::fs::remove_dir_all(&dir);
        let mut subject = Subject::new(&root.join(program), EngineKind::Machine, 1).unwrap();
        subject.keep_in(&dir).unwrap();
        subject
            .run(1, 520, &mut totals)
            .unwrap_or_else(|fault| panic!("{program}, request {}: {}", fault.request, fault.what));
        drop(subject);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert_eq!(totals.restarts, 12);
}
