//! The simulator against closed forms.

use super::lines::{Lines, Time, Transfers, Want};
use super::programs::{Access, Layout, Program, Wait};
use super::simulation::{Outcome, Parameters, run};
use super::traffic::{Arrival, Shares, Spread, worker_of};
use random::Random;

const NS: Time = 1000;
const TRANSFER: Time = 100 * NS;

fn parameters(workers: usize) -> Parameters {
    Parameters {
        workers,
        transfers: Transfers { near: TRANSFER, far: TRANSFER, group: 8 },
        overlap: 10,
        retry: 20 * NS,
        spread: Spread::Any,
        arrival: Arrival::Stream { queue: 1024 },
        batch: 32,
        gap: 0,
        packets: (10_000, 40_000),
        seed: 1,
    }
}

fn program(access: Access, layout: Layout) -> Program {
    Program { name: String::new(), access, layout, pass: 40 * NS, hold: 5 * NS, prefetches: false }
}

fn cells(count: usize, cells: usize) -> Layout {
    Layout::Registers { count, cells, stride: 64 }
}

fn is_close(found: f64, expected: f64, part: f64) -> bool {
    (found - expected).abs() <= part * expected
}

fn assert_close(found: f64, expected: f64, part: f64) {
    assert!(is_close(found, expected, part), "{found} is not within {part} of {expected}");
}

#[test]
fn without_shared_state_the_rate_is_linear_in_the_workers() {
    let shares = Shares::zipf(1000, 1.1);
    for workers in [1, 2, 8, 32, 64] {
        let outcome = run(&program(Access::Own, cells(1, 1)), &shares, &parameters(workers));
        assert_close(outcome.packet_ns, 40.0 / workers as f64, 0.01);
        assert_eq!((outcome.transfers, outcome.locks, outcome.idle), (0.0, 0.0, 0.0));
    }
}

#[test]
fn one_worker_takes_the_pass_whatever_it_does_to_cells() {
    let shares = Shares::zipf(1000, 0.9);
    let every = [
        Access::Own,
        Access::Locked(Wait::Poll),
        Access::Locked(Wait::Retry),
        Access::Peek(0.5),
        Access::Add,
        Access::Turn,
    ];
    for access in every {
        for prefetches in [false, true] {
            let program = Program { prefetches, ..program(access, cells(3, 512)) };
            let outcome = run(&program, &shares, &parameters(1));
            assert_close(outcome.packet_ns, 40.0, 0.01);
            assert_eq!(outcome.transfers, 0.0, "{access:?}");
        }
    }
}

#[test]
fn adds_to_one_cell_take_a_transfer_each_however_many_workers_there_are() {
    // A worker keeps the line until the next request has travelled for 50 ns. Its next add is later than that, or is one more.
    for (pass, adds) in [(60, 1.0), (40, 2.0), (20, 3.0)] {
        for workers in [8, 32] {
            let program = Program { pass: pass * NS, hold: 0, ..program(Access::Add, cells(1, 1)) };
            let outcome = run(&program, &Shares::zipf(1, 0.0), &parameters(workers));
            assert_close(outcome.packet_ns, 100.0 / adds, 0.03);
            assert_close(outcome.transfers, 1.0 / adds, 0.03);
        }
    }
}

#[test]
fn a_lock_for_all_takes_a_transfer_each_and_its_hold_if_the_line_does_not_stay_so_long() {
    for (wait, hold, least) in
        [(Wait::Poll, 5, 100.0), (Wait::Retry, 5, 100.0), (Wait::Poll, 80, 180.0), (Wait::Retry, 80, 180.0)]
    {
        for workers in [8, 32] {
            // The next packet is later than a line is kept.
            let locked =
                Program { pass: (60 + hold) * NS, hold: hold * NS, ..program(Access::Locked(wait), cells(1, 1)) };
            let outcome = run(&locked, &Shares::zipf(1, 0.0), &parameters(workers));
            assert!(outcome.packet_ns >= 0.99 * least, "{workers} {wait:?} {hold}: {outcome:?}");
            assert!(hold == 5 || outcome.locks > 0.5, "{workers} {wait:?} {hold}: {outcome:?}");
        }
    }
}

#[test]
fn two_workers_that_add_to_many_cells_wait_for_half_of_them() {
    let outcome = run(&program(Access::Add, cells(1, 4096)), &Shares::zipf(100_000, 0.0), &parameters(2));
    assert_close(outcome.transfers, 0.5, 0.03);
    assert_close(outcome.packet_ns, (40.0 + 50.0) / 2.0, 0.03);
}

#[test]
fn with_n_workers_a_line_comes_from_another_in_n_less_one_of_n_cases() {
    for workers in [2, 4, 8, 32] {
        let add = program(Access::Add, cells(1, 16_384));
        let outcome = run(&add, &Shares::zipf(100_000, 0.0), &parameters(workers));
        assert_close(outcome.transfers, (workers - 1) as f64 / workers as f64, 0.03);
    }
}

#[test]
fn cells_that_are_only_read_cost_nothing() {
    for workers in [2, 32] {
        let peeks = program(Access::Peek(0.0), cells(1, 4096));
        let outcome = run(&peeks, &Shares::zipf(100_000, 1.1), &parameters(workers));
        assert_close(outcome.packet_ns, 40.0 / workers as f64, 0.01);
        assert_eq!(outcome.transfers, 0.0);
    }
}

#[test]
fn the_more_packets_change_a_cell_the_slower_are_those_that_read_it() {
    let of = |changing| {
        let outcome = run(&program(Access::Peek(changing), cells(1, 64)), &Shares::zipf(64, 0.0), &parameters(8));
        outcome.packet_ns
    };
    assert!(of(0.0) < of(0.01) && of(0.01) < of(0.1) && of(0.1) < of(1.0));
}

#[test]
fn turns_are_one_worker_s_rate_at_most() {
    for workers in [2, 8, 32] {
        let turns = program(Access::Turn, cells(4, 4096));
        let outcome = run(&turns, &Shares::zipf(100_000, 0.0), &parameters(workers));
        assert!(outcome.packet_ns >= 40.0, "{outcome:?}");
        // Four lines overlap, and one of them almost always is another worker's.
        assert!(outcome.packet_ns <= 40.0 + 100.0 + 2.0 * 100.0 / 32.0 + 1.0, "{outcome:?}");
        assert!(outcome.locks > 0.4, "{outcome:?}");
    }
}

#[test]
fn the_flow_of_most_packets_bounds_a_stream_that_is_spread_by_flow() {
    let (flows, workers) = (1000, 8);
    let shares = Shares::zipf(flows, 1.1);
    let sum: f64 = (1..=flows).map(|i| f64::from(i).powf(-1.1)).sum();
    let mut loads = vec![0.0; workers];
    (0..flows).for_each(|flow| loads[worker_of(flow, workers)] += f64::from(flow + 1).powf(-1.1) / sum);
    let most = loads.iter().copied().fold(0.0, f64::max);
    assert!(most > 0.2, "the first flow alone has a fifth");
    let by_flow = Parameters { spread: Spread::ByFlow, packets: (40_000, 100_000), ..parameters(workers) };
    let outcome = run(&program(Access::Own, cells(1, 1)), &shares, &by_flow);
    assert_close(outcome.packet_ns, 40.0 * most, 0.03);
    assert_close(outcome.idle, 1.0 - 1.0 / (most * workers as f64), 0.06);
    // Saturated workers all have packets.
    let saturated = Parameters { arrival: Arrival::Saturated, ..by_flow };
    let outcome = run(&program(Access::Own, cells(1, 1)), &shares, &saturated);
    assert_close(outcome.packet_ns, 40.0 / workers as f64, 0.01);
}

#[test]
fn by_flow_no_line_moves_but_those_in_which_cells_of_several_flows_lie() {
    let by_flow = Parameters { spread: Spread::ByFlow, arrival: Arrival::Saturated, ..parameters(2) };
    // A line for each flow.
    let apart = program(Access::Locked(Wait::Poll), Layout::Entries { cells: 4096, stride: 64 });
    let outcome = run(&apart, &Shares::zipf(4096, 0.0), &by_flow);
    assert_eq!(outcome.transfers, 0.0);
    assert_close(outcome.packet_ns, 20.0, 0.01);
    // Eight flows in each, half of them the other worker's: the last packet was another flow's in seven of eight cases.
    let together = program(Access::Locked(Wait::Poll), Layout::Entries { cells: 4096, stride: 8 });
    let outcome = run(&together, &Shares::zipf(4096, 0.0), &by_flow);
    assert_close(outcome.transfers, 7.0 / 8.0 / 2.0, 0.05);
}

#[test]
fn prefetched_lines_overlap_up_to_the_bound() {
    let of = |overlap| {
        let adds = Program { prefetches: true, ..program(Access::Add, cells(1, 16_384)) };
        run(&adds, &Shares::zipf(100_000, 0.0), &Parameters { overlap, ..parameters(8) }).packet_ns * 8.0
    };
    // A line is in another worker's cache with probability 7/8. So transfers cost 87.5 ns per packet in addition to the
    // pass if none overlap, and a tenth of that if ten do.
    let (one, ten) = (of(1), of(10));
    assert!(one > 40.0 + 60.0 && one < 40.0 + 87.5 + 5.0, "{one}");
    assert!(ten < 40.0 + 87.5 / 10.0 + 5.0, "{ten}");
}

#[test]
fn rounds_give_every_line_to_the_other_worker_in_between() {
    // Each of two workers comes to all 64 flows between two visits of the other: nearly all lines have moved.
    let rounds = Parameters { arrival: Arrival::Rounds, ..parameters(2) };
    let outcome = run(&program(Access::Add, cells(1, 1 << 16)), &Shares::zipf(64, 0.0), &rounds);
    assert!(outcome.transfers > 0.9, "{outcome:?}");
}

#[test]
fn a_gap_lets_others_go_on_and_is_not_counted() {
    let gap = Parameters { gap: 60 * NS, arrival: Arrival::Saturated, ..parameters(4) };
    let outcome = run(&program(Access::Own, cells(1, 1)), &Shares::zipf(64, 0.0), &gap);
    assert_close(outcome.packet_ns, 10.0, 0.02);
    let turns = run(&program(Access::Turn, cells(1, 1)), &Shares::zipf(1, 0.0), &Parameters { gap: 0, ..gap.clone() });
    let with_gap = run(&program(Access::Turn, cells(1, 1)), &Shares::zipf(1, 0.0), &gap);
    assert!(with_gap.locks < turns.locks);
}

#[test]
fn near_lines_are_cheaper_than_far_ones() {
    let of = |group| {
        let near = Transfers { near: 10 * NS, far: TRANSFER, group };
        let add = program(Access::Add, cells(1, 16_384));
        run(&add, &Shares::zipf(100_000, 0.0), &Parameters { transfers: near, ..parameters(8) }).packet_ns * 8.0
    };
    assert_close(of(8), 40.0 + 10.0 * 7.0 / 8.0, 0.03);
    assert_close(of(1), 40.0 + 100.0 * 7.0 / 8.0, 0.03);
    assert_close(of(4), 40.0 + 10.0 * 3.0 / 8.0 + 100.0 * 4.0 / 8.0, 0.03);
}

#[test]
fn a_run_follows_from_its_seed() {
    let of = |seed| -> Outcome {
        let locked = program(Access::Locked(Wait::Poll), cells(4, 1024));
        run(&locked, &Shares::zipf(1000, 1.1), &Parameters { seed, packets: (1000, 5000), ..parameters(8) })
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn flows_have_the_shares_of_zipf_s_law() {
    let mut random = Random::new(3);
    let shares = Shares::zipf(100, 1.1);
    let sum: f64 = (1..=100).map(|i| f64::from(i).powf(-1.1)).sum();
    let mut found = [0u32; 100];
    (0..200_000).for_each(|_| found[shares.draw(&mut random) as usize] += 1);
    for flow in [0, 1, 9, 99] {
        assert_close(f64::from(found[flow]), 200_000.0 * (flow as f64 + 1.0).powf(-1.1) / sum, 0.1);
    }
    let equal = Shares::zipf(4, 0.0);
    let mut found = [0u32; 4];
    (0..40_000).for_each(|_| found[equal.draw(&mut random) as usize] += 1);
    assert!(found.iter().all(|n| (9_500..10_500).contains(n)), "{found:?}");
}

#[test]
fn a_line_serves_one_request_after_the_other() {
    let mut lines = Lines::new(1, Transfers { near: 10, far: 100, group: 2 });
    assert_eq!(lines.request(0, 0, Want::Own, 5), 5, "nobody has it");
    assert_eq!(lines.request(1, 0, Want::Own, 5), 15, "from the same group");
    assert_eq!(lines.request(2, 0, Want::Own, 6), 115, "from another one, once it is there");
    assert!(lines.has(1, 0, Want::Own, 64), "the request travels until 65");
    assert!(lines.has(2, 0, Want::Own, 65) && !lines.has(1, 0, Want::Read, 65));
    assert_eq!(lines.request(2, 0, Want::Read, 50), 115, "it is still under way");
    assert_eq!(lines.request(0, 0, Want::Read, 200), 300);
    assert_eq!(lines.request(1, 0, Want::Read, 300), 310, "the nearest copy");
    assert!(lines.has(0, 0, Want::Read, 400) && !lines.has(0, 0, Want::Own, 400));
    assert_eq!(lines.request(0, 0, Want::Own, 400), 500, "the farthest copy must be given up");
    assert_eq!(lines.moved, 5);
}

#[test]
fn places_lie_in_their_register_s_lines() {
    let sketch = Layout::Registers { count: 4, cells: 65_536, stride: 8 };
    assert_eq!((sketch.cells(), sketch.lines()), (4 * 65_536, 4 * 8192));
    for flow in 0..1000 {
        let places: Vec<_> = sketch.places(flow).collect();
        assert_eq!(places.len(), 4);
        for (register, place) in places.iter().enumerate() {
            assert_eq!(place.cell / 65_536, register);
            assert_eq!((place.first, place.last), (place.cell / 8, place.cell / 8));
        }
    }
    // A cell of 96 bytes begins in one line and ends in the next, or in that after it.
    let meters = Layout::Entries { cells: 100, stride: 96 };
    let of = |flow| meters.places(flow).map(|place| (place.cell, place.first, place.last)).collect::<Vec<_>>();
    assert_eq!(of(0), [(0, 0, 1)]);
    assert_eq!(of(1), [(1, 1, 2)]);
    assert_eq!(of(101), of(1));
    assert_eq!(meters.lines(), 150);
}
