//! Random programs that the verifier accepts: interpreter and machine code give the same verdict, packet, maps and log,
//! and the interpreter, which checks every access, never finds one that the verifier should have refused.

mod support;

use bpf::{Abort, Alu, Condition, Maps, Object, Options, Program, Verdict};
use random::Random;
use support::assembler::*;
use support::packets::run_by;
use support::{ARRAY, HASH, bytes};

/// Bytes of a packet that programs know to be there.
const KNOWN: i32 = 40;
/// Bytes of the stack that programs write first.
const STACK: i16 = 64;
/// The registers with numbers.
const NUMBERS: u8 = 6;
/// The register with the context.
const CONTEXT: R = 6;
/// The register with the packet's address.
const PACKET: R = 7;
/// The register with the address of a value.
const VALUE: R = 8;
/// The register that counts a loop's iterations.
const COUNTER: R = 9;

/// An immediate near the places where something changes, or any.
fn immediate(random: &mut Random) -> i32 {
    let near = [0, 1, -1, 2, 7, 8, 31, 32, 63, 255, 256, 0xffff, i32::MAX, i32::MIN];
    if random.one_in(3) { random.next_u64() as i32 } else { *random.pick(&near) }
}

fn number(random: &mut Random) -> R {
    random.below(NUMBERS.into()) as R
}

/// One or few instructions.
fn instruction(random: &mut Random, functions: bool) -> Vec<Item> {
    let (a, b) = (number(random), number(random));
    let size = *random.pick(&[B, H, W, D]);
    let bytes = match size {
        B => 1,
        H => 2,
        W => 4,
        _ => 8,
    };
    let stack = -(bytes * (1 + random.below((STACK / bytes) as u64) as i16));
    let in_packet = random.below(KNOWN as u64 - bytes as u64 + 1) as i16;
    let in_value = bytes * random.below((16 / bytes) as u64) as i16;
    match random.below(26) {
        0..=5 => {
            let op = *random.pick(&Alu::ALL);
            let wide = random.one_in(2);
            if random.one_in(2) {
                return vec![if wide { alu_r(op, a, b) } else { alu32_r(op, a, b) }];
            }
            let imm = match op {
                Alu::Lsh | Alu::Rsh | Alu::Arsh => random.below(if wide { 64 } else { 32 }) as i32,
                Alu::Div | Alu::Mod => match immediate(random) {
                    0 => 3,
                    imm => imm,
                },
                _ => immediate(random),
            };
            vec![if wide { alu(op, a, imm) } else { alu32(op, a, imm) }]
        }
        6 => vec![neg(a)],
        7 => vec![big(a, *random.pick(&[16, 32, 64]))],
        8 => vec![raw(0xd4, a, 0, 0, *random.pick(&[16, 32, 64]))],
        9 => vec![wide(a, random.next_u64())],
        10 => vec![ldx(size, a, 10, stack)],
        11 => vec![stx(size, 10, stack, a)],
        12 => vec![st(size, 10, stack, immediate(random))],
        13 | 14 => vec![ldx(size, a, PACKET, in_packet)],
        15 => vec![stx(size, PACKET, in_packet, a)],
        16 => vec![ldx(size, a, VALUE, in_value)],
        17 => vec![stx(size, VALUE, in_value, a)],
        18 => {
            let operations = [0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1];
            let (size, off) = if random.one_in(2) { (D, 8) } else { (W, 4) };
            vec![atomic(
                size,
                if random.one_in(3) { 10 } else { VALUE },
                if random.one_in(3) { -off } else { off },
                a,
                *random.pick(&operations),
            )]
        }
        // A variable offset, limited in one of several ways.
        19 => {
            let limit = match random.below(3) {
                0 => vec![alu(Alu::And, a, 15)],
                1 => vec![alu(Alu::Mod, a, 16)],
                _ => vec![alu(Alu::Rsh, a, 60)],
            };
            let (base, access) = match random.below(3) {
                0 => (VALUE, ldx(B, a, b, 0)),
                1 => (10, ldx(B, a, b, -STACK)),
                _ => (10, stx(B, b, -STACK, a)),
            };
            match a == b {
                true => limit,
                false => [limit, vec![mov_r(b, base), add_r(b, a), access, mov(b, 5)]].concat(),
            }
        }
        20 => vec![ldx(W, a, CONTEXT, *random.pick(&[12, 16, 20])), ldx(D, b, CONTEXT, 24)],
        21 => {
            let helper = *random.pick(&[5, 7]);
            called(random, &[call(helper)])
        }
        22 => {
            let sum = [
                mov_r(1, 10),
                add(1, -16),
                mov(2, *random.pick(&[0, 4, 8, 16])),
                mov_r(3, 10),
                add(3, -32),
                mov(4, 12),
                mov(5, 9),
                call(28),
            ];
            called(random, &sum)
        }
        23 => {
            let name: &'static str = random.pick::<&'static str>(&["hash", "array", "recent"]);
            let key = [stx(W, 10, -4, a), mov_r(2, 10), add(2, -4), map(1, name)];
            let then = match random.below(3) {
                0 => vec![mov_r(3, 10), add(3, -24), mov(4, random.below(4) as i32), call(2)],
                1 => vec![map(1, "hash"), call(3)],
                _ => vec![call(1), j(Condition::Eq, 0, 0, 3), ldx(D, 1, 0, 8), stx(D, 0, 0, 1), mov(0, 1)],
            };
            called(random, &[&key[..], &then].concat())
        }
        24 => {
            let flags = random.below(2) as i32;
            called(random, &[mov(1, 5), mov(2, flags), call(23)])
        }
        _ if functions => called(random, &[mov(1, 3), mov_r(2, CONTEXT), mov_r(3, 10), add(3, -8), call_function("f")]),
        _ => vec![mov(a, 1)],
    }
}

/// A call, and numbers in the registers that it clobbers.
fn called(random: &mut Random, call: &[Item]) -> Vec<Item> {
    let mut all = call.to_vec();
    all.extend((1..NUMBERS).map(|register| mov(register, immediate(random))));
    all
}

/// Instructions, branches over some and loops.
fn block(random: &mut Random, count: u64, functions: bool, may_loop: bool) -> Vec<Item> {
    let mut all = Vec::new();
    for _ in 0..1 + random.below(count) {
        match random.below(8) {
            0 | 1 => {
                let body = block(random, 3, functions, false);
                let (condition, off) = (*random.pick(&Condition::ALL), len(&body) as i16);
                let (a, b) = (number(random), number(random));
                all.push(match random.below(3) {
                    0 => j(condition, a, immediate(random), off),
                    1 => j_r(condition, a, b, off),
                    _ => j32(condition, a, immediate(random), off),
                });
                all.extend(body);
            }
            2 if may_loop => {
                let body = block(random, 3, functions, false);
                let back = -(len(&body) as i16) - 2;
                all.push(mov(COUNTER, 1 + random.below(9) as i32));
                all.extend(body);
                all.push(add(COUNTER, -1));
                all.push(j(Condition::Ne, COUNTER, 0, back));
            }
            _ => all.extend(instruction(random, functions)),
        }
    }
    all
}

/// A program: what it knows, random code, and its registers into the packet.
fn program(random: &mut Random) -> Vec<Item> {
    let mut all = vec![
        mov_r(CONTEXT, 1),
        ldx(W, PACKET, 1, 0),
        ldx(W, 3, 1, 4),
        mov_r(4, PACKET),
        add(4, KNOWN),
        mov(0, 1),
        j_r(Condition::Le, 4, 3, 1),
        exit(),
    ];
    if random.one_in(3) {
        // The packet moves first.
        let (helper, delta) = (*random.pick(&[44, 65]), random.below(60) as i32 - 30);
        all = vec![mov_r(CONTEXT, 1), mov(2, delta), call(helper), mov_r(1, CONTEXT)];
        all.extend([ldx(W, PACKET, 1, 0), ldx(W, 3, 1, 4), mov_r(4, PACKET), add(4, KNOWN), mov(0, 1)]);
        all.extend([j_r(Condition::Le, 4, 3, 1), exit()]);
    }
    all.extend([st(W, 10, -4, 1), mov_r(2, 10), add(2, -4), map(1, "array"), call(1)]);
    all.extend([mov_r(VALUE, 0), mov(0, 1), j(Condition::Ne, VALUE, 0, 1), exit(), mov(COUNTER, 0)]);
    for off in (8..=STACK).step_by(8) {
        all.push(st(D, 10, -off, immediate(random)));
    }
    for register in 0..NUMBERS {
        all.push(match random.one_in(2) {
            true => mov(register, immediate(random)),
            false => ldx(D, register, PACKET, 8 * i16::from(register % 4)),
        });
    }
    all.extend(block(random, 14, true, true));
    for register in 0..4 {
        all.push(stx(D, PACKET, 8 * i16::from(register), register));
    }
    all.extend([alu_r(Alu::Xor, 0, 5), alu(Alu::And, 0, 7), exit()]);
    all
}

/// A function with its own numbers.
fn function(random: &mut Random) -> Vec<Item> {
    let mut all = vec![mov_r(CONTEXT, 2), mov_r(VALUE, 3), add(VALUE, -8), mov(COUNTER, 0)];
    all.extend([ldx(W, PACKET, 2, 0), ldx(W, 3, 2, 4), mov_r(4, PACKET), add(4, KNOWN), mov(0, 1)]);
    all.extend([j_r(Condition::Le, 4, 3, 1), exit()]);
    for off in (8..=STACK).step_by(8) {
        all.push(st(D, 10, -off, immediate(random)));
    }
    all.extend((0..NUMBERS).map(|register| mov(register, immediate(random))));
    all.extend(block(random, 6, false, true));
    all.push(exit());
    all
}

#[test]
fn interpreter_and_machine_code_agree() {
    let maps = [("hash", [HASH, 4, 16, 4, 0]), ("array", [ARRAY, 4, 16, 4, 0]), ("recent", [9, 4, 16, 2, 0])];
    let (mut accepted, mut budgets, mut rewritten) = (0, 0, 0);
    for seed in 0..1500 {
        let random = &mut Random::new(seed);
        let code = program(random);
        let file = bytes(&code, &[("f", &function(random))], &maps);
        let object = Object::read(&file).expect("an object");
        let load = |maps: &Maps, compile| {
            let budget = if seed % 5 == 0 { 40 } else { 10_000 };
            Program::load_with(&object, "main", maps, Options { budget, seed: Some(seed), compile })
        };
        let (ours, theirs) = (Maps::new(&object).expect("made"), Maps::new(&object).expect("made"));
        let Ok(compiled) = load(&ours, true) else { continue };
        let interpreted = load(&theirs, false).expect("verified before");
        assert!(compiled.is_compiled() && !interpreted.is_compiled());
        accepted += 1;
        for _ in 0..6 {
            let len = random.range(14, 120) as usize;
            let packet: Vec<u8> = (0..len).map(|_| *random.pick(&[0, 1, 0x7f, 0x80, 0xff, 0x55])).collect();
            let (port, argument, now) = (random.below(9) as u32, random.next_u64(), random.next_u64());
            let a = run_by(&packet, |frame| compiled.run(frame, port, argument, now));
            let b = run_by(&packet, |frame| interpreted.run(frame, port, argument, now));
            assert_eq!(a, b, "seed {seed}, packet {packet:02x?}\n{}", compiled.listing());
            assert_ne!(a.0, Verdict::Aborted(Abort::Fault), "seed {seed}\n{}", compiled.listing());
            budgets += usize::from(a.0 == Verdict::Aborted(Abort::Budget));
            rewritten += usize::from(a.1 != packet);
            for (ours, theirs) in ours.iter().zip(theirs.iter()) {
                let (mut x, mut y) = (ours.dump(), theirs.dump());
                x.sort();
                y.sort();
                assert_eq!(x, y, "seed {seed}, map {}\n{}", ours.spec().name, compiled.listing());
            }
        }
    }
    println!("{accepted} programs, {budgets} runs out of budget, {rewritten} packets changed");
    assert!(accepted > 700 && budgets > 20 && rewritten > 2000, "{accepted} {budgets} {rewritten}");
}

/// Any instructions at all: few are accepted, and those never do harm.
#[test]
fn accepted_programs_never_fault() {
    let maps = [("hash", [HASH, 4, 16, 4, 0]), ("array", [ARRAY, 4, 16, 4, 0]), ("recent", [9, 4, 16, 2, 0])];
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..800 {
        let random = &mut Random::new(seed ^ 0xabcdef);
        let mut code = program(random);
        // Changed at random, so that the verifier has something to find.
        for _ in 0..=random.below(3) {
            let at = random.index(code.len());
            match (&mut code[at], random.below(5)) {
                (Item::One(i), 0) => i.imm = i.imm.wrapping_add(random.below(9) as i32 - 4),
                (Item::One(i), 1) => i.off = i.off.wrapping_add(random.below(17) as i16 - 8),
                (Item::One(i), 2) => i.src = random.below(11) as u8,
                (Item::One(i), 3) => i.dst = random.below(10) as u8,
                (Item::One(i), _) => i.code ^= 1 << random.below(8),
                _ => {}
            }
        }
        let file = bytes(&code, &[("f", &function(random))], &maps);
        let object = Object::read(&file).expect("an object");
        let (ours, theirs) = (Maps::new(&object).expect("made"), Maps::new(&object).expect("made"));
        let options = Options { seed: Some(seed), compile: false, ..Options::default() };
        let Ok(interpreted) = Program::load_with(&object, "main", &ours, options) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        // Only what the interpreter has found harmless runs as machine code.
        let compiled = Program::load_with(&object, "main", &theirs, Options { compile: true, ..options });
        let compiled = compiled.expect("verified before");
        for _ in 0..4 {
            let packet: Vec<u8> = (0..random.range(14, 120)).map(|_| random.next_u64() as u8).collect();
            let b = run_by(&packet, |frame| interpreted.run(frame, 1, 2, 3));
            assert_ne!(b.0, Verdict::Aborted(Abort::Fault), "seed {seed}\n{}", interpreted.listing());
            let a = run_by(&packet, |frame| compiled.run(frame, 1, 2, 3));
            assert_eq!(a, b, "seed {seed}\n{}", interpreted.listing());
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 60 && refused > 200, "{accepted} {refused}");
}
