use super::*;
use crate::flow::Usage;
use crate::key::low128;
use crate::testing::program;
use openflow::Instructions;
use openflow::message::Timeouts;
use random::Random;
use std::sync::atomic::AtomicU32;

fn flow(matching: Match, priority: u16, apply: Vec<Action>) -> Arc<Flow> {
    Arc::new(Flow {
        table: 0,
        matching,
        priority,
        cookie: 0,
        flags: 0,
        importance: 0,
        timeouts: Timeouts::default(),
        fin_timeouts: AtomicU32::new(u32::MAX),
        instructions: Instructions { apply, ..Instructions::default() },
        created_us: 0,
        modified_us: 0,
        usage: Arc::new(Usage::new(0)),
        charge: Default::default(),
    })
}

/// Few distinct values, so that flows and records often agree.
fn value(random: &mut Random, width: u32) -> u128 {
    let value = match random.below(4) {
        0 => random.next_u128(),
        1 => u128::from(random.below(3)),
        2 => u128::from(random.below(3)) << (width - 1).min(6),
        _ => u128::from(random.below(4)) << width.saturating_sub(2),
    };
    value & low128(width)
}

fn random_match(random: &mut Random, layout: &Layout) -> Match {
    let mut matching = Match::any();
    for _ in 0..random.below(5) {
        let id = FieldId(random.index(layout.fields().len()) as u16);
        let width = layout.fields().get(id).width;
        let mask = match random.below(3) {
            0 => u128::MAX,
            1 => !low128(width - random.range(1, width)),
            _ => random.next_u128() & random.next_u128(),
        };
        matching.add(id, value(random, width), mask & low128(width));
    }
    matching
}

fn random_record(random: &mut Random, layout: &Layout, flows: &[Arc<Flow>]) -> Vec<u64> {
    let mut record = vec![0; layout.words()];
    for (id, field) in layout.fields().iter() {
        layout.place(id).write(&mut record, value(random, field.width), u128::MAX);
    }
    // Records that match a flow, or all but one bit of it.
    for _ in 0..random.below(3) {
        if let Some(terms) = (!flows.is_empty()).then(|| layout.terms(&random.pick(flows).matching)).flatten() {
            for term in &terms {
                let at = &mut record[term.word as usize];
                *at = *at & !term.mask | term.value;
            }
            if random.one_in(3) && !terms.is_empty() {
                let term = random.pick(&terms);
                let bits: Vec<u32> = (0..64).filter(|bit| term.mask >> bit & 1 == 1).collect();
                record[term.word as usize] ^= 1 << random.pick(&bits);
            }
        }
    }
    record
}

fn is_match(layout: &Layout, record: &[u64], flow: &Flow) -> bool {
    let mut terms = flow.matching.terms().iter();
    terms.all(|term| layout.place(term.field).read(record) & term.mask == term.value)
}

/// The priority of the best flow, by a linear scan with conjunctions.
fn scan(layout: &Layout, record: &[u64], flows: &[Arc<Flow>], conj_id: FieldId) -> Option<u16> {
    let conjunctions =
        |flow: &&Arc<Flow>| flow.instructions.apply.iter().any(|a| matches!(a, Action::Conjunction { .. }));
    let hard = |record: &[u64]| {
        let hard = flows.iter().filter(|flow| !conjunctions(flow) && is_match(layout, record, flow));
        hard.map(|flow| flow.priority).max()
    };
    let best = hard(record);
    let mut priorities: Vec<u16> =
        flows.iter().map(|flow| flow.priority).filter(|p| best.is_none_or(|b| *p > b)).collect();
    priorities.sort_unstable();
    priorities.dedup();
    for priority in priorities.into_iter().rev() {
        for id in 0..3 {
            let mut seen = [false; 3];
            let mut count = 0;
            for flow in flows.iter().filter(|flow| flow.priority == priority && is_match(layout, record, flow)) {
                for action in &flow.instructions.apply {
                    if let Action::Conjunction { clause, clauses, id: other } = action
                        && *other == id
                    {
                        seen[usize::from(*clause)] = true;
                        count = usize::from(*clauses);
                    }
                }
            }
            if count > 0 && seen[..count].iter().all(|seen| *seen) {
                let mut again = record.to_vec();
                layout.place(conj_id).write(&mut again, u128::from(id), u128::MAX);
                if let Some(found) = hard(&again) {
                    return Some(found);
                }
            }
        }
    }
    best
}

/// Compares overlap checks with a scan. A match that contradicts itself overlaps with nothing.
fn check_overlaps(classifier: &Classifier, flows: &[Arc<Flow>], matching: &Match, priority: u16) {
    let layout = &classifier.layout;
    let overlaps = |flow: &&Arc<Flow>| {
        let (Some(one), Some(other)) = (layout.terms(&flow.matching), layout.terms(matching)) else { return false };
        let same = |word: u32| one.iter().find(|term| term.word == word);
        flow.priority == priority
            && other
                .iter()
                .all(|term| same(term.word).is_none_or(|same| (same.value ^ term.value) & same.mask & term.mask == 0))
    };
    let expected: Vec<&Arc<Flow>> = flows.iter().filter(overlaps).collect();
    let found = classifier.overlapping(matching, priority, &|_| true, &mut 0);
    assert_eq!(found.is_some(), !expected.is_empty(), "{matching:?}");
    for meant in expected {
        let found = classifier.overlapping(matching, priority, &|flow| Arc::ptr_eq(flow, meant), &mut 0);
        assert!(found.is_some_and(|flow| Arc::ptr_eq(flow, meant)));
    }
}

fn check_round(seed: u64, max_flows: u64, steps: usize) {
    let layout = Arc::new(Layout::new(&program()).unwrap());
    let conj_id = layout.fields().numbered(CONJ_ID).unwrap();
    let mut random = Random::new(seed);
    let mut classifier = Classifier::new(&layout);
    let mut flows: Vec<Arc<Flow>> = Vec::new();
    let mut consulted = Consulted::new(layout.words());
    for _ in 0..steps {
        if flows.len() as u64 > random.below(max_flows) {
            let gone = flows.swap_remove(random.index(flows.len()));
            let found = classifier.find(&gone.matching, gone.priority).expect("a flow that was inserted");
            assert!(Arc::ptr_eq(found, &gone));
            assert!(Arc::ptr_eq(&classifier.remove(&gone.matching, gone.priority).unwrap(), &gone));
            assert!(classifier.remove(&gone.matching, gone.priority).is_none());
        } else {
            let matching = random_match(&mut random, &layout);
            let priority = random.below(6) as u16;
            let apply = match random.below(4) {
                0 => {
                    vec![Action::Conjunction { clause: random.below(2) as u8, clauses: 2, id: random.below(3) as u32 }]
                }
                _ => Vec::new(),
            };
            let mut new = flow(matching, priority, apply);
            Arc::get_mut(&mut new).expect("nobody else has it").cookie = random.below(3);
            let terms = layout.terms(&new.matching);
            let is_same = |old: &Arc<Flow>| {
                old.priority == priority
                    && match &terms {
                        Some(terms) => layout.terms(&old.matching).as_ref() == Some(terms),
                        None => old.matching == new.matching,
                    }
            };
            let expected = flows.iter().position(is_same).map(|at| flows.swap_remove(at));
            let replaced = classifier.insert(Arc::clone(&new));
            assert_eq!(replaced.is_some(), expected.is_some());
            flows.push(new);
        }
        assert_eq!(classifier.len(), flows.len());
        assert_eq!(classifier.iter().count(), flows.len());
        check_overlaps(&classifier, &flows, &random_match(&mut random, &layout), random.below(6) as u16);
        let cookie = random.below(3);
        assert_eq!(classifier.with_cookie(cookie), flows.iter().filter(|flow| flow.cookie == cookie).count());
        for _ in 0..4 {
            let record = random_record(&mut random, &layout, &flows);
            consulted.clear();
            let found = classifier.lookup(&record, &mut consulted).cloned();
            let expected = scan(&layout, &record, &flows, conj_id);
            assert_eq!(found.as_ref().map(|flow| flow.priority), expected);
            match classifier.find_plain(&record, &mut { u32::MAX }) {
                Found::None => assert!(found.is_none()),
                Found::Flow(flow) => assert!(found.as_ref().is_some_and(|found| Arc::ptr_eq(found, flow))),
                Found::Conjunction => assert!(flows.iter().any(|flow| !flow.instructions.apply.is_empty())),
                Found::TooMuch => panic!("there are not so many subtables"),
            }
            // Another record with the same consulted bits finds the same flow.
            for _ in 0..6 {
                let mut other = record.clone();
                let other_source = random_record(&mut random, &layout, &flows);
                let is_far = random.one_in(2);
                for (i, word) in other.iter_mut().enumerate() {
                    let flips = if is_far { *word ^ other_source[i] } else { random.next_u64() & random.next_u64() };
                    *word ^= flips & !consulted.mask(i as u32);
                }
                let again = classifier.lookup(&other, &mut Consulted::new(layout.words())).cloned();
                let ptr = |flow: &Option<Arc<Flow>>| flow.as_ref().map(Arc::as_ptr);
                assert_eq!(ptr(&again), ptr(&found), "a bit that was not consulted decides");
            }
        }
    }
}

#[test]
fn lookups_agree_with_a_linear_scan_and_consult_what_decides() {
    for seed in 0..12 {
        check_round(seed, 40, 150);
    }
    check_round(100, 300, 600);
}

#[test]
fn prefixes_consult_few_bits() {
    // The example of NSDI 2015, 5.4.
    let layout = Arc::new(Layout::new(&program()).unwrap());
    let dst = layout.fields().named("ipv4_dst").unwrap();
    let mut classifier = Classifier::new(&layout);
    for (value, len) in
        [(0x1400_0000u128, 8u32), (0x0a01_0000, 16), (0x0a02_0000, 16), (0x0a01_0300, 24), (0x0a01_0405, 32)]
    {
        let mut matching = Match::any();
        matching.add(dst, value, low128(32) & !low128(32 - len));
        classifier.insert(flow(matching, len as u16, Vec::new()));
    }
    let lookup = |address: u128| {
        let mut record = vec![0; layout.words()];
        layout.place(dst).write(&mut record, address, u128::MAX);
        let mut consulted = Consulted::new(layout.words());
        let found = classifier.lookup(&record, &mut consulted).map(|flow| flow.priority);
        (found, consulted.iter().map(|(_, mask)| mask.count_ones()).sum::<u32>())
    };
    assert_eq!(lookup(0x0a01_0305), (Some(24), 24), "10.1.3.5 needs no host bits");
    assert_eq!(lookup(0x1400_0501), (Some(8), 8));
    let (found, bits) = lookup(0x0a03_0501);
    assert!(found.is_none() && bits <= 16, "10.3.5.1 needs 16 bits at most, not {bits}");
}

#[test]
fn a_stage_without_a_match_ends_the_subtable() {
    let layout = Arc::new(Layout::new(&program()).unwrap());
    let named = |name: &str| layout.fields().named(name).unwrap();
    let mut classifier = Classifier::new(&layout);
    let mut matching = Match::any();
    matching.add(named("metadata"), 7, u128::from(u64::MAX));
    matching.add(named("tcp_dst"), 80, 0xffff);
    classifier.insert(flow(matching, 1, Vec::new()));
    let mut consulted = Consulted::new(layout.words());
    assert!(classifier.lookup(&vec![0; layout.words()], &mut consulted).is_none());
    assert_eq!(consulted.iter().count(), 1, "ports are not consulted where the metadata differ");
}

/// A match of fields with values and masks, by name.
fn of_terms(layout: &Layout, terms: &[(&str, u128, u128)]) -> Match {
    let mut matching = Match::any();
    for (name, value, mask) in terms {
        let id = layout.fields().named(name).expect("the test's program has it");
        matching.add(id, *value, mask & layout.fields().get(id).full());
    }
    matching
}

#[test]
fn overlaps_of_few_masks_agree_with_a_scan_while_flows_come_and_go() {
    let layout = Arc::new(Layout::new(&program()).unwrap());
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let shape = |random: &mut Random| {
            let (dst, src, port) = (random.below(6).into(), random.below(4).into(), random.below(4).into());
            match random.below(5) {
                0 => of_terms(&layout, &[("ipv4_dst", dst, u128::MAX), ("tcp_dst", port, u128::MAX)]),
                1 => of_terms(&layout, &[("ipv4_dst", dst, !1), ("ipv4_src", src, u128::MAX)]),
                2 => of_terms(&layout, &[("ipv4_src", src, 3), ("tcp_dst", port, 2)]),
                3 => of_terms(&layout, &[("tcp_dst", port, u128::MAX), ("ipv4_dst", dst, 6)]),
                _ => of_terms(&layout, &[("ipv4_src", src, u128::MAX)]),
            }
        };
        let mut classifier = Classifier::new(&layout);
        let mut flows: Vec<Arc<Flow>> = Vec::new();
        for step in 0..400 {
            if !flows.is_empty() && random.below(60) < flows.len() as u64 {
                let gone = flows.swap_remove(random.index(flows.len()));
                classifier.remove(&gone.matching, gone.priority).expect("a flow that was inserted");
            } else {
                let new = flow(shape(&mut random), random.below(2) as u16, Vec::new());
                if let Some(old) = classifier.insert(Arc::clone(&new)) {
                    flows.retain(|flow| !Arc::ptr_eq(flow, &old));
                }
                flows.push(new);
            }
            // Indices are dropped while there are no checks, and built again.
            let checks = if step % 100 < 60 { random.below(3) } else { 0 };
            for _ in 0..checks {
                check_overlaps(&classifier, &flows, &shape(&mut random), random.below(2) as u16);
            }
        }
    }
}

#[test]
fn overlap_checks_among_many_flows_of_a_mask_look_at_few_of_them() {
    const FLOWS: u128 = 20_000;
    const CHECKS: u64 = 1000;
    let layout = Arc::new(Layout::new(&program()).unwrap());
    let mut classifier = Classifier::new(&layout);
    for i in 0..FLOWS {
        let matching = of_terms(&layout, &[("ipv4_dst", i, u128::MAX), ("tcp_dst", i % 100, u128::MAX)]);
        classifier.insert(flow(matching, 5, Vec::new()));
    }
    // Each flow is checked before it is added, as in a bundle. It has another mask than the many, with one field in
    // common.
    let mut visits = 0;
    for i in 0..CHECKS {
        let port = 100 + u128::from(i);
        let matching = of_terms(&layout, &[("ipv4_src", i.into(), u128::MAX), ("tcp_dst", port, u128::MAX)]);
        assert!(classifier.overlapping(&matching, 5, &|_| true, &mut visits).is_none());
        classifier.insert(flow(matching, 5, Vec::new()));
    }
    // As many scans as building costs, and the building.
    let most = 2 * overlap::BUILD_SCANS as u64 * FLOWS as u64 + 5 * CHECKS;
    assert!(visits <= most, "{visits} flows are looked at, {most} at most");
    // An overlap is found at once, by the same index.
    let before = visits;
    let matching = of_terms(&layout, &[("ipv4_src", 77, u128::MAX), ("tcp_dst", 50, u128::MAX)]);
    let found = classifier.overlapping(&matching, 5, &|_| true, &mut visits).expect("200 flows have this port");
    assert_eq!(layout.terms(&found.matching).map(|terms| terms.len()), Some(2));
    assert!(visits - before <= 4, "{} flows are looked at", visits - before);
}

/// Regression: with one mask more than there are indices, checked in turn, every check built an index.
#[test]
fn masks_in_turn_cost_no_more_than_twice_as_many_scans_as_they_lack_indices() {
    const FLOWS: u128 = 2000;
    const ROUNDS: u64 = 500;
    let layout = Arc::new(Layout::new(&program()).unwrap());
    let mut classifier = Classifier::new(&layout);
    for i in 0..FLOWS {
        let matching = of_terms(&layout, &[("ipv4_dst", i, u128::MAX), ("tcp_dst", i % 100, u128::MAX)]);
        classifier.insert(flow(matching, 5, Vec::new()));
    }
    let ask = |parts: u128| {
        let mut visits = 0;
        for _ in 0..ROUNDS {
            for part in 1..=parts {
                // No flow has these bits, so nothing overlaps.
                let bits = u128::from(u16::MAX) - part;
                let matching = of_terms(&layout, &[("tcp_dst", bits, bits)]);
                assert!(classifier.overlapping(&matching, 5, &|_| true, &mut visits).is_none());
            }
        }
        visits / FLOWS as u64
    };
    let (indices, scans) = (overlap::INDICES_MAX as u64, overlap::BUILD_SCANS as u64);
    let enough = ask(indices.into());
    assert!(enough <= 2 * scans * indices + 2, "{enough} scans");
    // One part at a time has no index. One check of it in twice `BUILD_SCANS` builds an index, which costs as much
    // as half of these checks.
    let (one_more, lacking) = (ask(u128::from(indices) + 1), ROUNDS);
    assert!(one_more <= 2 * lacking, "{one_more} scans");
    // Without indices, all of these checks would be scans.
    assert!(one_more >= ROUNDS / 2);
}
