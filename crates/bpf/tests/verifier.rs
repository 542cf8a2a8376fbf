//! What the verifier accepts, and what it refuses with which words.

mod support;

use bpf::Alu::*;
use bpf::Condition::*;
use bpf::{Abort, Verdict, VerifyError};
use support::assembler::*;
use support::packets::run;
use support::{load, packets};

/// Accepts a program and gives the verdict on a packet of 64 bytes.
#[track_caller]
fn accepted(code: &[Item]) -> Verdict {
    accepted_with(code, &[])
}

#[track_caller]
fn accepted_with(code: &[Item], functions: &[(&str, &[Item])]) -> Verdict {
    match load(code, functions) {
        Ok(program) => {
            let (verdict, _) = run(&program, &packets::ethernet(0x0800, &[7; 50]), 3, 99, 1000);
            assert!(!matches!(verdict, Verdict::Aborted(Abort::Fault | Abort::Budget)), "{verdict:?}");
            verdict
        }
        Err(e) => panic!("refused: {e}"),
    }
}

/// Refuses a program at an instruction for a reason.
#[track_caller]
fn refused(code: &[Item], at: usize, reason: &str) {
    refused_with(code, &[], at, reason);
}

#[track_caller]
fn refused_with(code: &[Item], functions: &[(&str, &[Item])], at: usize, reason: &str) {
    match load(code, functions) {
        Err(VerifyError::Refused { number, reason: found, place, .. }) => {
            assert!(found.contains(reason), "at {place}: {found}");
            assert_eq!(number, at, "{place}: {found}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

/// Returns `XDP_PASS` behind what is given.
fn pass(code: &[Item]) -> Vec<Item> {
    [code, &[mov(0, 2), exit()]].concat()
}

/// `r2 = data`, `r3 = data_end`, and passes packets of fewer than `len` bytes; `r1` stays the context. Six instructions.
fn bounds(len: i32) -> Vec<Item> {
    vec![ldx(W, 2, 1, 0), ldx(W, 3, 1, 4), mov_r(4, 2), add(4, len), mov(0, 2), j_r(Gt, 4, 3, 0)]
}

/// As `bounds`, with code for packets that are long enough.
fn in_packet(len: i32, code: &[Item]) -> Vec<Item> {
    let mut all = bounds(len);
    all.pop();
    all.push(j_r(Le, 4, 3, 1));
    all.push(exit());
    all.extend_from_slice(code);
    pass(&all)
}

/// Looks `r2 = &0` up in a map: nine instructions.
fn lookup(name: &'static str) -> Vec<Item> {
    vec![st(W, 10, -4, 0), mov_r(2, 10), add(2, -4), map(1, name), call(1)]
}

/// As `lookup`, and returns if there is none.
fn in_value(name: &'static str, code: &[Item]) -> Vec<Item> {
    pass(&[&lookup(name)[..], &[j(Ne, 0, 0, 2), mov(0, 2), exit()], code].concat())
}

// --- Registers ---

#[test]
fn results() {
    assert_eq!(accepted(&[mov(0, 2), exit()]), Verdict::Pass);
    assert_eq!(accepted(&[mov(0, 1), exit()]), Verdict::Drop);
    assert_eq!(accepted(&[mov(0, 3), exit()]), Verdict::Transmit);
    assert_eq!(accepted(&[mov(0, 77), exit()]), Verdict::Aborted(Abort::Result));
    assert_eq!(accepted(&[mov(0, 4), exit()]), Verdict::Aborted(Abort::Result));
}

#[test]
fn no_result() {
    refused(&[exit()], 0, "r0 is read before it is set");
}

#[test]
fn address_as_result() {
    refused(&[mov_r(0, 1), exit()], 1, "r0 must be a number, but is the context");
}

#[test]
fn unset_register() {
    refused(&pass(&[mov_r(3, 6)]), 0, "r6 is read before it is set");
    refused(&pass(&[add_r(6, 1)]), 0, "r6 is read before it is set");
    refused(&pass(&[j(Eq, 8, 0, 0)]), 0, "r8 is read before it is set");
}

#[test]
fn set_on_one_path_only() {
    let code = pass(&[ldx(W, 2, 1, 12), j(Eq, 2, 0, 1), mov(6, 1), mov_r(7, 6)]);
    refused(&code, 3, "r6 is read before it is set");
}

#[test]
fn registers_that_calls_clobber() {
    refused(&pass(&[mov(3, 1), call(5), mov_r(6, 3)]), 2, "r3 is read before it is set");
    accepted(&pass(&[mov(6, 1), call(5), mov_r(7, 6)]));
}

#[test]
fn frame_pointer_is_read_only() {
    refused(&pass(&[add(10, -8)]), 0, "r10 is the frame pointer");
    refused(&pass(&[ldx(W, 10, 1, 0)]), 0, "r10 is the frame pointer");
}

#[test]
fn no_such_register() {
    refused(&pass(&[mov(11, 0)]), 0, "there is no register r11");
}

// --- Encoding ---

#[test]
fn unknown_instructions() {
    refused(&pass(&[raw(0xff, 0, 0, 0, 0)]), 0, "instruction code 0xff is not supported");
    refused(&pass(&[raw(0x20, 0, 0, 0, 0)]), 0, "legacy packet loads are not supported");
    refused(&pass(&[raw(0xb7, 0, 1, 0, 0)]), 0, "the source register is reserved");
    refused(&pass(&[raw(0xbf, 0, 1, 0, 5)]), 0, "the immediate is reserved");
    refused(&pass(&[raw(0xdc, 0, 0, 0, 24)]), 0, "byte swaps are of 16, 32 or 64 bits");
}

#[test]
fn half_of_a_wide_immediate() {
    refused(&[raw(0x18, 0, 0, 0, 1)], 0, "the second half of the 64-bit immediate is missing");
    refused(&pass(&[raw(0x18, 2, 0, 0, 1), mov(3, 1)]), 0, "the second half of the 64-bit immediate is not one");
    refused(&pass(&[ja(1), wide(2, 5)]), 0, "second half of a 64-bit immediate load");
}

#[test]
fn no_map_of_that_number() {
    let half = raw(0, 0, 0, 0, 0);
    refused(&pass(&[raw(0x18, 2, 1, 0, 900), half.clone()]), 0, "there is no map 900");
    refused(&pass(&[raw(0x18, 2, 9, 0, 0), half]), 0, "64-bit immediates of kind 9");
}

// --- Control flow ---

#[test]
fn jumps_outside() {
    refused(&[ja(5)], 0, "the target 6 is outside the program");
    refused(&[ja(-2)], 0, "the target -1 is outside the program");
}

#[test]
fn running_off_the_end() {
    refused(&[mov(0, 2)], 0, "does not end with `exit`");
}

#[test]
fn jump_into_another_function() {
    let code = [call_function("f"), j(Eq, 0, 0, 2), mov(0, 2), exit()];
    refused_with(&code, &[("f", &[mov(0, 0), exit()])], 1, "outside its function");
}

#[test]
fn endless_loop() {
    refused(&[mov(0, 0), ja(-1)], 1, "this loop need not end");
    refused(&pass(&[mov(2, 0), j(Eq, 2, 0, -1)]), 1, "this loop need not end");
}

#[test]
fn loop_until_memory_changes() {
    let code = in_value("array", &[ldx(D, 3, 0, 0), j(Ne, 3, 0, -2)]);
    refused(&code, 9, "this loop need not end");
}

#[test]
fn bounded_loops() {
    let count_up = [mov(2, 0), mov(0, 0), add(2, 1), add_r(0, 2), j(Lt, 2, 100, -3), mov(0, 2), exit()];
    assert_eq!(accepted(&count_up), Verdict::Pass);
    let limited = pass(&[ldx(W, 2, 1, 12), alu(And, 2, 63), j(Eq, 2, 0, 2), add(2, -1), ja(-3)]);
    accepted(&limited);
}

#[test]
fn loop_of_unknown_length() {
    // Up to 2³² iterations.
    let code = pass(&[ldx(W, 2, 1, 12), j(Eq, 2, 0, 2), add(2, -1), ja(-3)]);
    let error = load(&code, &[]).expect_err("refused").to_string();
    assert!(error.contains("bound loops by smaller constants"), "{error}");
}

#[test]
fn branches_of_which_one_is_impossible() {
    // The other branch would be refused.
    accepted(&pass(&[mov(2, 5), j(Gt, 2, 3, 1), mov_r(3, 9)]));
    accepted(&pass(&[ldx(W, 2, 1, 12), alu(And, 2, 7), j(Lt, 2, 8, 1), mov_r(3, 9)]));
    accepted(&pass(&[ldx(W, 2, 1, 12), alu(Or, 2, 1), j(Ne, 2, 0, 1), mov_r(3, 9)]));
    accepted(&pass(&[ldx(W, 2, 1, 12), alu(And, 2, 0xf0), j(Set, 2, 0x0f, 1), ja(1), mov_r(3, 9)]));
    accepted(&pass(&[ldx(W, 2, 1, 12), alu(Rsh, 2, 28), j32(Le, 2, 15, 1), mov_r(3, 9)]));
    accepted(&pass(&[ldx(W, 2, 1, 12), alu(Mod, 2, 10), j(SLt, 2, 10, 1), mov_r(3, 9)]));
}

#[test]
fn equal_registers_learn_together() {
    // r3 is a copy of r2; the bound on one holds for the other.
    let index = [mov_r(6, 0), call(7), mov_r(3, 0), j(Gt, 3, 15, 2), add_r(6, 0), ldx(B, 2, 6, 0)];
    accepted(&in_value("hash", &index));
}

// --- Arithmetic ---

#[test]
fn constants_that_are_no_operands() {
    refused(&pass(&[mov(2, 1), alu(Div, 2, 0)]), 1, "r2 is divided by the constant 0");
    refused(&pass(&[mov(2, 1), alu32(Mod, 2, 0)]), 1, "r2 is divided by the constant 0");
    refused(&pass(&[mov(2, 1), alu(Lsh, 2, 64)]), 1, "r2 of 64 bits is shifted by 64");
    refused(&pass(&[mov(2, 1), alu32(Rsh, 2, 32)]), 1, "r2 of 32 bits is shifted by 32");
    refused(&pass(&[mov(2, 1), alu(Arsh, 2, -1)]), 1, "r2 of 64 bits is shifted by -1");
}

#[test]
fn dividing_by_an_unknown_number() {
    accepted(&pass(&[ldx(W, 2, 1, 12), mov(3, 8), alu_r(Div, 3, 2), alu_r(Mod, 3, 2), alu_r(Lsh, 3, 2)]));
}

#[test]
fn addresses_are_not_numbers() {
    refused(&pass(&[alu(Mul, 1, 2)]), 0, "r1: `Mul` on the context is not an address");
    refused(&pass(&[alu32(Add, 1, 2)]), 0, "32-bit arithmetic on the context");
    refused(&pass(&[alu32_r(Mov, 2, 10)]), 0, "copying 32 bits of it loses the address");
    refused(&pass(&[neg(1)]), 0, "r1 must be a number, but is the context");
    refused(&pass(&[big(10, 16)]), 0, "r10 is the frame pointer");
    refused(&pass(&[mov_r(2, 10), big(2, 16)]), 1, "r2 must be a number");
    refused(&pass(&[mov_r(2, 10), alu_r(Sub, 2, 1)]), 1, "only addresses in the packet can be subtracted");
    refused(&pass(&[mov(2, 1), alu_r(Sub, 2, 10)]), 1, "`Sub` of a number and an address in the stack");
}

#[test]
fn length_of_the_packet() {
    let code = [ldx(W, 2, 1, 0), ldx(W, 0, 1, 4), alu_r(Sub, 0, 2), j(Eq, 0, 64, 1), exit(), mov(0, 3), exit()];
    assert_eq!(accepted(&code), Verdict::Transmit);
}

#[test]
fn far_addresses() {
    refused(&pass(&[mov_r(2, 10), ldx(W, 3, 1, 12), add_r(2, 3)]), 2, "limit the number first");
    refused(&pass(&[mov_r(2, 10), add(2, 1 << 29)]), 1, "out of any bounds");
    refused(&pass(&[ldx(W, 2, 1, 4), add(2, 1)]), 1, "nothing can be added to the end of the packet");
    refused(&pass(&[ldx(W, 2, 1, 12), add_r(1, 2)]), 1, "only constants can be added to the context");
    refused(&pass(&[map(2, "hash"), add(2, 1)]), 2, "nothing can be added to the handle of a map");
}

// --- The context ---

#[test]
fn context_fields() {
    let code = [ldx(D, 2, 1, 24), ldx(W, 3, 1, 12), mov(0, 2), j(Ne, 2, 99, 2), j(Ne, 3, 3, 1), mov(0, 3), exit()];
    assert_eq!(accepted(&code), Verdict::Transmit);
    accepted(&pass(&[ldx(W, 2, 1, 8), ldx(W, 3, 1, 16), ldx(W, 4, 1, 20)]));
    accepted(&pass(&[mov_r(2, 1), add(2, 4), ldx(W, 3, 2, 0)]));
}

#[test]
fn context_out_of_bounds() {
    refused(&pass(&[ldx(W, 2, 1, 32)]), 0, "r1: the context has no field of 4 bytes at offset 32");
    refused(&pass(&[ldx(D, 2, 1, 0)]), 0, "no field of 8 bytes at offset 0");
    refused(&pass(&[ldx(B, 2, 1, 13)]), 0, "no field of 1 bytes at offset 13");
    refused(&pass(&[ldx(W, 2, 1, -4)]), 0, "no field of 4 bytes at offset -4");
}

#[test]
fn context_is_read_only() {
    refused(&pass(&[st(W, 1, 0, 0)]), 0, "the context cannot be written");
    refused(&pass(&[mov(2, 0), atomic(W, 1, 12, 2, 0)]), 1, "atomic operations are not possible on the context");
}

#[test]
fn context_on_one_path_only() {
    let code = pass(&[
        ldx(W, 2, 1, 12),
        mov_r(3, 1),
        st(D, 10, -8, 0),
        j(Eq, 2, 0, 2),
        mov_r(3, 10),
        add(3, -8 - 12),
        ldx(W, 4, 3, 12),
    ]);
    refused(&code, 6, "reads the context on one path and other memory on another");
}

// --- The packet ---

#[test]
fn packet_in_bounds() {
    let code = [ldx(B, 5, 2, 0), ldx(H, 5, 2, 12), ldx(W, 5, 2, 9), stx(D, 2, 6, 5), st(B, 2, 13, 1)];
    assert_eq!(accepted(&in_packet(14, &code)), Verdict::Pass);
}

#[test]
fn packet_without_a_test() {
    refused(&pass(&[ldx(W, 2, 1, 0), ldx(B, 3, 2, 0)]), 1, "compare the address behind them with `data_end` first");
}

#[test]
fn packet_beyond_the_test() {
    refused(&in_packet(14, &[ldx(B, 5, 2, 14)]), 7, "1 bytes at offset 14 of the packet are not known to be in it");
    refused(&in_packet(14, &[st(W, 2, 11, 0)]), 7, "(known: 14)");
    refused(&in_packet(14, &[ldx(B, 5, 2, -1)]), 7, "offset -1");
}

#[test]
fn packet_on_the_wrong_branch() {
    let code = pass(&[&bounds(14)[..5], &[j_r(Le, 4, 3, 1), ldx(B, 5, 2, 0)]].concat());
    refused(&code, 6, "are not known to be in it");
}

#[test]
fn all_comparisons_with_the_end() {
    let test = |condition, swapped: bool, access_if_true: bool, off| {
        let (a, b) = if swapped { (3, 4) } else { (4, 3) };
        let access = ldx(B, 5, 2, off);
        let tail = match access_if_true {
            true => vec![j_r(condition, a, b, 1), exit(), access],
            false => vec![j_r(condition, a, b, 1), access],
        };
        pass(&[&bounds(14)[..5], &tail].concat())
    };
    for (condition, swapped, if_true, last) in [
        (Le, false, true, 13),
        (Lt, false, true, 14),
        (Gt, false, false, 13),
        (Ge, false, false, 14),
        (Ge, true, true, 13),
        (Gt, true, true, 14),
        (Lt, true, false, 13),
        (Le, true, false, 14),
    ] {
        accepted(&test(condition, swapped, if_true, last));
        let refused = load(&test(condition, swapped, if_true, last + 1), &[]).expect_err("beyond").to_string();
        assert!(refused.contains("not known to be in it"), "{condition:?}: {refused}");
    }
}

#[test]
fn variable_offset_in_the_packet() {
    // A header length from the packet, tested again behind it.
    let code = [
        ldx(B, 5, 2, 14),
        alu(And, 5, 15),
        alu(Lsh, 5, 2),
        mov_r(6, 2),
        add(6, 14),
        add_r(6, 5),
        mov_r(7, 6),
        add(7, 4),
        j_r(Gt, 7, 3, 1),
        ldx(W, 5, 6, 0),
    ];
    accepted(&in_packet(15, &code));
    let mut untested = code.to_vec();
    untested.remove(8);
    refused(&in_packet(15, &untested), 15, "not known to be in it");
}

#[test]
fn packet_after_it_was_moved() {
    let code = [mov(7, 0), mov_r(6, 2), mov(2, -4), call(44), ldx(B, 5, 6, 0)];
    refused(&in_packet(14, &code), 11, "r6 points into the packet as it was before a helper moved it");
    let spilled = [stx(D, 10, -8, 2), mov(2, -4), call(44), ldx(D, 6, 10, -8), ldx(B, 5, 6, 0)];
    refused(&in_packet(14, &spilled), 11, "r6 points into the packet as it was before a helper moved it");
    let added = [mov_r(6, 2), mov(2, -4), call(44), add(6, 1)];
    refused(&in_packet(14, &added), 10, "r6 points into the packet as it was");
    let stored = [mov_r(6, 2), mov_r(7, 1), mov(2, -4), call(44), mov(1, 0), mov_r(0, 6), exit()];
    refused(&in_packet(14, &stored), 13, "r0 points into the packet as it was");
    let length = [mov_r(6, 2), mov_r(7, 3), mov(2, -4), call(44), alu_r(Sub, 7, 6), j(Eq, 7, 64, 0)];
    accepted(&in_packet(14, &length));
    let reloaded = [
        mov_r(6, 1),
        mov(2, -4),
        call(44),
        ldx(W, 2, 6, 0),
        ldx(W, 3, 6, 4),
        mov_r(4, 2),
        add(4, 4),
        j_r(Gt, 4, 3, 1),
        ldx(W, 5, 2, 0),
    ];
    accepted(&in_packet(14, &reloaded));
}

#[test]
fn end_of_the_packet_is_no_memory() {
    refused(&pass(&[ldx(W, 2, 1, 4), ldx(B, 3, 2, 0)]), 1, "r2 is the end of the packet, which is no memory");
}

#[test]
fn addresses_do_not_leak_into_the_packet() {
    refused(
        &in_packet(14, &[stx(D, 2, 0, 10)]),
        7,
        "r10 is an address in the stack; it cannot be written to the packet",
    );
    refused(
        &in_packet(14, &[mov(5, 1), atomic(W, 2, 0, 5, 0)]),
        8,
        "atomic operations are not possible on an address in the packet",
    );
}

// --- The stack ---

#[test]
fn stack_in_bounds() {
    accepted(&pass(&[st(D, 10, -512, 1), ldx(D, 2, 10, -512), st(B, 10, -1, 1), ldx(B, 2, 10, -1)]));
}

#[test]
fn stack_out_of_bounds() {
    refused(&pass(&[st(D, 10, 0, 1)]), 0, "8 bytes at offset 0 from the frame pointer are outside the stack");
    refused(&pass(&[st(D, 10, -520, 1)]), 0, "offset -520");
    refused(&pass(&[st(W, 10, -2, 1)]), 0, "outside the stack");
}

#[test]
fn unaligned_stack() {
    refused(&pass(&[st(W, 10, -6, 1)]), 0, "r10: 4 bytes at offset -6 of an address in the stack are not aligned");
}

#[test]
fn stack_that_was_not_written() {
    refused(&pass(&[ldx(D, 2, 10, -8)]), 0, "the stack at offset -8 was not written");
    refused(&pass(&[st(W, 10, -8, 1), ldx(D, 2, 10, -8)]), 1, "the stack at offset -4 was not written");
    let one_path = pass(&[ldx(W, 2, 1, 12), j(Eq, 2, 0, 1), st(D, 10, -8, 1), ldx(D, 3, 10, -8)]);
    refused(&one_path, 3, "the stack at offset -8 was not written");
}

#[test]
fn spilled_addresses() {
    accepted(&pass(&[stx(D, 10, -8, 1), ldx(D, 2, 10, -8), ldx(W, 3, 2, 12)]));
    refused(&pass(&[stx(D, 10, -8, 1), ldx(W, 2, 10, -8)]), 1, "holds an address, which can only be read as a whole");
    refused(&pass(&[stx(W, 10, -8, 1)]), 0, "storing a part of it loses the address");
    let overwritten = pass(&[stx(D, 10, -8, 1), st(B, 10, -8, 0), ldx(D, 2, 10, -8)]);
    refused(&overwritten, 2, "the stack at offset -7 was not written");
}

#[test]
fn variable_offset_in_the_stack() {
    let index = [
        st(D, 10, -8, 0),
        st(D, 10, -16, 0),
        ldx(W, 2, 1, 12),
        alu(And, 2, 15),
        mov_r(3, 10),
        add(3, -16),
        add_r(3, 2),
    ];
    accepted(&pass(&[&index[..], &[ldx(B, 4, 3, 0), stx(B, 3, 0, 4)]].concat()));
    refused(&pass(&[&index[..], &[ldx(W, 4, 3, 0)]].concat()), 7, "outside the stack");
    let spilled = [&index[..], &[stx(D, 10, -8, 1), st(B, 3, 0, 1)]].concat();
    refused(&pass(&spilled), 8, "could be overwritten");
    refused(&pass(&index[1..].iter().cloned().chain([ldx(B, 4, 3, 0)]).collect::<Vec<_>>()), 6, "was not written");
}

// --- Maps ---

#[test]
fn value_may_be_null() {
    refused(&pass(&[&lookup("hash")[..], &[ldx(D, 2, 0, 0)]].concat()), 6, "compare it with 0 first");
    refused(&pass(&[&lookup("hash")[..], &[add(0, 8)]].concat()), 6, "compare it with 0 before adding to it");
    let wrong_branch = pass(&[&lookup("hash")[..], &[j(Ne, 0, 0, 1), ldx(D, 2, 0, 0)]].concat());
    refused(&wrong_branch, 7, "r0 is a number, which is no memory");
}

#[test]
fn handles_are_not_compared() {
    // At run time a handle is the map's number, and the first map's is 0: which branch is taken must not depend on it.
    for condition in [Eq, Ne] {
        let code = pass(&[map(1, "hash"), j(condition, 1, 0, 0)]);
        refused(&code, 2, "r1: the handle of a map cannot be compared");
    }
}

#[test]
fn null_test_holds_for_copies() {
    accepted(&pass(&[&lookup("hash")[..], &[mov_r(6, 0), j(Eq, 0, 0, 1), ldx(D, 2, 6, 8)]].concat()));
}

#[test]
fn value_in_bounds() {
    accepted(&in_value("hash", &[ldx(D, 2, 0, 8), st(D, 0, 0, 5), mov(3, 1), atomic(D, 0, 8, 3, 0)]));
    accepted(&in_value("array", &[mov(3, 1), atomic(D, 0, 0, 3, 1), atomic(W, 0, 4, 3, 0xe1)]));
}

#[test]
fn value_out_of_bounds() {
    refused(
        &in_value("hash", &[ldx(D, 2, 0, 16)]),
        9,
        "8 bytes at offset 16 are outside the value of 16 bytes of map `hash`",
    );
    refused(&in_value("hash", &[st(B, 0, -1, 0)]), 9, "offset -1");
    refused(&in_value("array", &[mov(3, 1), atomic(D, 0, 8, 3, 0)]), 10, "outside the value of 8 bytes");
}

#[test]
fn unaligned_value() {
    refused(&in_value("hash", &[ldx(W, 2, 0, 2)]), 9, "are not aligned");
    refused(&in_value("hash", &[mov(3, 1), atomic(D, 0, 4, 3, 0)]), 10, "are not aligned");
}

#[test]
fn variable_offset_in_a_value() {
    let index =
        |limit: i32| in_value("hash", &[mov_r(6, 0), call(7), j(Gt, 0, limit, 2), add_r(6, 0), ldx(B, 2, 6, 0)]);
    accepted(&index(15));
    refused(&index(16), 13, "offsets 0 to 16");
    let aligned = in_value("hash", &[mov_r(6, 0), call(7), alu(And, 0, 12), add_r(6, 0), ldx(W, 2, 6, 0)]);
    accepted(&aligned);
}

#[test]
fn negative_offset_in_a_value() {
    // Limited above only.
    let code = [mov_r(6, 0), ldx(D, 2, 10, -16), j(SGt, 2, 8, 2), add_r(6, 2), ldx(B, 3, 6, 0)];
    let all = pass(&[&[ldx(D, 5, 1, 24), stx(D, 10, -16, 5)][..], &in_value("hash", &code)].concat());
    refused(&all, 14, "limit the number first");
}

#[test]
fn read_only_maps() {
    accepted(&in_value("fixed", &[ldx(D, 2, 0, 0)]));
    refused(&in_value("fixed", &[st(D, 0, 0, 1)]), 9, "map `fixed` cannot be written by programs");
    let update = [st(W, 10, -4, 0), st(D, 10, -16, 0), mov_r(2, 10), add(2, -4), mov_r(3, 10), add(3, -16), mov(4, 0)];
    let all = |name| pass(&[&update[..], &[map(1, name), call(2)]].concat());
    refused(&all("fixed"), 9, "map `fixed` cannot be written by programs");
    accepted(&all("array"));
}

#[test]
fn addresses_do_not_leak_into_maps() {
    refused(&in_value("hash", &[stx(D, 0, 0, 10)]), 9, "it cannot be written to a map");
    let as_key = [stx(D, 10, -8, 1), mov_r(2, 10), add(2, -8), map(1, "hash"), call(1)];
    refused(&pass(&as_key), 5, "holds an address, which a helper must not see");
}

#[test]
fn constants_and_globals() {
    let constant = [data(2, "constants", 5), ldx(B, 0, 2, 0), alu(Sub, 0, 3), exit()];
    assert_eq!(accepted(&constant), Verdict::Pass);
    refused(&pass(&[data(2, "constants", 0), st(B, 2, 0, 1)]), 2, "map `.rodata` cannot be written");
    accepted(&pass(&[data(2, "globals", 56), st(D, 2, 0, 1), ldx(D, 3, 2, 0)]));
    refused(&pass(&[data(2, "globals", 60), st(D, 2, 0, 1)]), 2, "outside the value of 64 bytes of map `.bss`");
}

#[test]
fn constants_are_known() {
    // The branch that would be refused depends on a constant of the object.
    accepted(&pass(&[data(2, "constants", 8), ldx(B, 3, 2, 0), j(Eq, 3, 8, 1), mov_r(3, 9)]));
}

// --- Comparisons ---

#[test]
fn comparisons_of_addresses() {
    refused(&pass(&[j(Gt, 1, 5, 0)]), 0, "the context cannot be compared with a number");
    refused(&pass(&[j(Eq, 1, 5, 0)]), 0, "cannot be compared with a number");
    refused(&pass(&[j_r(Eq, 1, 10, 0)]), 0, "the context cannot be compared with an address in the stack");
    refused(&pass(&[j32(Eq, 1, 0, 0)]), 0, "32-bit comparison with the context");
    accepted(&pass(&[j(Ne, 1, 0, 1), mov_r(3, 9)]));
}

// --- Helpers ---

#[test]
fn unknown_helper() {
    refused(&pass(&[call(4711)]), 0, "there is no helper 4711; there are map_lookup_elem (1)");
}

#[test]
fn wrong_arguments() {
    refused(
        &pass(&[mov(1, 1), call(1)]),
        1,
        "r1 must be the handle of a map, but is a number (argument 1 of map_lookup_elem)",
    );
    refused(&pass(&[map(1, "hash"), mov(2, 1), call(1)]), 3, "r2 is a number, which is no memory");
    refused(&pass(&[mov(1, 0), mov(2, 0), call(44)]), 2, "r1 must be the context");
    refused(&pass(&[add(1, 4), mov(2, 0), call(44)]), 2, "r1 must be the context");
    refused(&pass(&[mov_r(2, 1), call(44)]), 1, "r2 must be a number, but is the context");
    refused(&pass(&[map(1, "hash"), mov_r(2, 10), add(2, -4), call(1)]), 4, "the stack at offset -4 was not written");
    refused(&pass(&[map(1, "hash"), mov_r(2, 10), add(2, -2), call(1)]), 4, "outside the stack");
    refused(&pass(&[mov(1, 1), call(23)]), 1, "r2 is read before it is set (argument 2 of redirect)");
}

#[test]
fn deleting_from_an_array() {
    let code = |name| pass(&[st(W, 10, -4, 0), mov_r(2, 10), add(2, -4), map(1, name), call(3)]);
    refused(&code("array"), 5, "is an array, whose entries cannot be deleted");
    accepted(&code("hash"));
}

#[test]
fn packet_as_key() {
    accepted(&in_packet(14, &[map(1, "hash"), call(1)]));
    refused(&in_packet(3, &[map(1, "hash"), call(1)]), 9, "4 bytes at offset 0 of the packet are not known");
}

#[test]
fn sizes_of_memory() {
    let checksum = |to: Item, size: i32| {
        pass(&[st(D, 10, -8, 0), mov(1, 0), mov(2, 0), mov_r(3, 10), to, mov(4, size), mov(5, 0), call(28)])
    };
    accepted(&checksum(add(3, -8), 8));
    accepted(&checksum(add(3, -8), 0));
    refused(&checksum(add(3, -8), 12), 7, "outside the stack");
    refused(&checksum(mov(3, 0), 4), 7, "r3 is null, but r4 can be above 0");
    refused(&checksum(add(3, -8), -4), 7, "r4 is a size of up to 18446744073709551612 bytes");
    let trace = |size: &[Item]| pass(&[&[st(D, 10, -8, 0), mov_r(1, 10), add(1, -8)][..], size, &[call(6)]].concat());
    accepted(&trace(&[mov(2, 8)]));
    refused(&trace(&[mov(2, 0)]), 4, "r2 is a size and can be 0");
    refused(&trace(&[mov(2, 8), mov_r(3, 10)]), 5, "r3 is an address in the stack; addresses are not printed");
}

#[test]
fn redirecting() {
    assert_eq!(accepted(&[mov(1, 7), mov(2, 0), call(23), exit()]), Verdict::Redirect(7));
    assert_eq!(accepted(&[mov(1, 7), mov(2, 1), call(23), exit()]), Verdict::Aborted(Abort::Result));
}

// --- Functions ---

#[test]
fn functions() {
    let double = [mov_r(0, 1), add_r(0, 1), exit()];
    assert_eq!(accepted_with(&[mov(1, 1), call_function("f"), exit()], &[("f", &double)]), Verdict::Pass);
    let keeps = [mov(6, 0), mov(7, 0), mov(0, 0), exit()];
    let code = [mov(6, 2), call_function("f"), mov_r(0, 6), exit()];
    assert_eq!(accepted_with(&code, &[("f", &keeps)]), Verdict::Pass);
}

#[test]
fn functions_see_their_arguments_alone() {
    let code = [mov(6, 1), mov(1, 1), call_function("f"), exit()];
    refused_with(&code, &[("f", &[mov_r(0, 6), exit()])], 4, "r6 is read before it is set");
}

#[test]
fn functions_write_to_the_caller_stack() {
    let code = [mov_r(1, 10), add(1, -8), call_function("f"), ldx(D, 0, 10, -8), exit()];
    assert_eq!(accepted_with(&code, &[("f", &[st(D, 1, 0, 2), mov(0, 0), exit()])]), Verdict::Pass);
    refused_with(&code, &[("f", &[mov(0, 0), exit()])], 3, "the stack at offset -8 was not written");
    let leaks = [stx(D, 1, 0, 10), mov(0, 0), exit()];
    refused_with(&code, &[("f", &leaks)], 5, "would outlive it");
}

#[test]
fn functions_do_not_return_their_stack() {
    let code = [call_function("f"), mov(0, 2), exit()];
    refused_with(
        &code,
        &[("f", &[mov_r(0, 10), exit()])],
        4,
        "r0 is an address in the stack of the function that returns",
    );
}

#[test]
fn recursion() {
    let code = [call_function("f"), mov(0, 2), exit()];
    let own = [call_function("f"), mov(0, 0), exit()];
    refused_with(&code, &[("f", &own)], 3, "recursion is not possible");
}

#[test]
fn messages_say_where() {
    let code = [call_function("broken"), mov(0, 2), exit()];
    let error = load(&code, &[("fine", &[mov(0, 0), exit()]), ("broken", &[mov(0, 0), mov_r(0, 9), exit()])]);
    assert_eq!(
        error.expect_err("refused").to_string(),
        "`broken`, instruction 1 (section `.text`, offset 0x18): `r0 = r9`: r9 is read before it is set"
    );
}

// --- State pruning ---

#[test]
fn paths_that_meet_are_followed_once() {
    // 2⁴⁰ paths, were they not pruned.
    let mut code = vec![ldx(D, 6, 1, 24), mov(7, 0)];
    for bit in 0..40 {
        code.extend([mov_r(2, 6), alu(Rsh, 2, bit), alu(And, 2, 1), j(Eq, 2, 0, 1), mov(3, 1)]);
    }
    accepted(&pass(&code));
}

#[test]
fn pruning_keeps_what_differs() {
    // Only one of the paths that meet makes the access wrong.
    let code = in_value(
        "hash",
        &[
            mov_r(6, 0),
            call(7),
            mov(1, 8),
            j(Gt, 0, 1000, 1),
            ja(1),
            mov(1, 16),
            mov(2, 0),
            mov(2, 0),
            mov(2, 0),
            add_r(6, 1),
            ldx(D, 3, 6, 0),
        ],
    );
    refused(&code, 19, "offset 16");
}

#[test]
fn nested_loops() {
    let code = pass(&[mov(6, 0), mov(7, 0), add(7, 1), j(Lt, 7, 50, -2), add(6, 1), j(Lt, 6, 50, -5)]);
    accepted(&code);
}
