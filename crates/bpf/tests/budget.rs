//! What runs cost: instructions, and calls of helpers by what they do.

mod support;

use bpf::Condition::*;
use bpf::{Abort, BUDGET, Options, Program, Verdict};
use support::assembler::*;
use support::packets::run_by;
use support::{HASH, object, packets};

const ROUNDS: i32 = 1000;
const LPM: u32 = 11;

/// A program as machine code and for the interpreter.
fn programs(code: &[Item]) -> [Program; 2] {
    let maps = [("hash", [HASH, 4, 16, 8, 0]), ("prefixes", [LPM, 8, 16, 100, 1])];
    [true, false].map(|compile| {
        let object = object(code, &[], &maps).expect("a good object");
        let maps = bpf::Maps::new(&object).expect("small");
        let options = Options { compile, seed: Some(1), ..Options::default() };
        Program::load_with(&object, "main", &maps, options).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// The verdict, and what was taken of so many instructions, which is the same for both.
fn run(code: &[Item], most: i64) -> (Verdict, i64) {
    let packet = packets::ethernet(0x0800, &[7; 50]);
    let run = |program: Program| {
        let mut left = most;
        let (verdict, after) = run_by(&packet, |frame| program.run_in(frame, 3, 99, 1000, &mut left));
        (verdict, most - left, after)
    };
    let [machine, interpreter] = programs(code).map(run);
    assert_eq!(machine, interpreter);
    (machine.0, machine.1)
}

/// Does something [`ROUNDS`] times; register 6 counts.
fn repeated(body: &[Item]) -> Vec<Item> {
    let back = -(len(body) as i16) - 2;
    [&[mov(6, 0)], body, &[add(6, 1), j(Lt, 6, ROUNDS, back), mov(0, 2), exit()]].concat()
}

/// `csum_diff` of so many bytes.
fn checksum(bytes: i32) -> Vec<Item> {
    vec![mov(1, 0), mov(2, 0), data(3, "globals", 0), mov(4, bytes), mov(5, 0), call(28)]
}

/// `map_update_elem` of the counter's entry, with a value of zeros on the stack.
fn update(map_name: &'static str) -> Vec<Item> {
    let value: Vec<Item> = (0..2).map(|i| st(D, 10, -16 + 8 * i, 0)).collect();
    let arguments = vec![stx(W, 10, -24, 6), map(1, map_name), mov_r(2, 10), add(2, -24), mov_r(3, 10), add(3, -16)];
    [value, arguments, vec![mov(4, 0), call(2)]].concat()
}

#[test]
fn a_run_costs_its_instructions_and_its_helpers() {
    let (verdict, straight) = run(&[mov(0, 2), exit()], 100);
    assert_eq!((verdict, straight), (Verdict::Pass, 2));
    let costs = [4, 64].map(|bytes| {
        let (verdict, cost) = run(&repeated(&checksum(bytes)), 1 << 20);
        assert_eq!(verdict, Verdict::Pass);
        cost / i64::from(ROUNDS)
    });
    assert!(costs[0] > 64 && costs[1] - costs[0] == 15, "a quarter of an instruction for a byte: {costs:?}");
}

/// The finding: a call cost one instruction, so a program could update maps 20,000 times for a packet.
#[test]
fn a_program_that_calls_expensive_helpers_again_and_again_is_aborted() {
    let (verdict, cost) = run(&repeated(&update("hash")), i64::MAX);
    assert_eq!(verdict, Verdict::Aborted(Abort::Budget));
    assert!(cost <= i64::from(BUDGET) + 1000, "{cost}");
    let lookup = |name| [stx(D, 10, -8, 6), map(1, name), mov_r(2, 10), add(2, -8), call(1)];
    let (verdict, of_hash) = run(&repeated(&lookup("hash")), i64::MAX);
    assert_eq!(verdict, Verdict::Pass);
    let (verdict, of_prefixes) = run(&repeated(&lookup("prefixes")), i64::MAX);
    assert_eq!(verdict, Verdict::Pass, "an empty one is one search");
    assert!(of_prefixes >= of_hash);
    let trace = [st(D, 10, -8, 0x21), mov_r(1, 10), add(1, -8), mov(2, 8), call(6)];
    assert_eq!(run(&repeated(&trace), i64::MAX).0, Verdict::Aborted(Abort::Budget));
}

#[test]
fn a_run_that_cannot_be_paid_does_nothing_more() {
    let code = repeated(&checksum(64));
    let (verdict, cost) = run(&code, 1 << 20);
    assert_eq!(verdict, Verdict::Pass);
    assert_eq!(run(&code, cost), (Verdict::Pass, cost));
    for most in [0, 1, 50, cost / 2, cost - 1] {
        let (verdict, taken) = run(&code, most);
        assert_eq!(verdict, Verdict::Aborted(Abort::Budget), "{most} of {cost}");
        assert!(taken > most && taken <= most + 100, "{taken} of {most}");
    }
    // Sixteen bytes in front, if they are paid.
    let grows = [mov(2, -16), call(44), mov(0, 2), exit()];
    for (most, bytes) in [(1000, 80), (40, 64)] {
        let [machine, interpreter] = programs(&grows).map(|program| {
            let packet = packets::ethernet(0x0800, &[7; 50]);
            run_by(&packet, |frame| program.run_in(frame, 3, 99, 1000, &mut { most })).1
        });
        assert_eq!((machine.len(), interpreter.len()), (bytes, bytes));
    }
}
