use base::Bits;
use ir::{BinOp, UnOp};
use random::Random;

use super::{Prepared, Wrong, arithmetic};
use crate::path::{Rewrite, Source, Step, WINDOW, Word};
use router::router;
use steps::apply;

#[path = "../../tests/common/router.rs"]
mod router;
#[path = "../../tests/common/steps.rs"]
mod steps;

const BINARY: [BinOp; 21] = [
    BinOp::Add,
    BinOp::Sub,
    BinOp::Mul,
    BinOp::Div,
    BinOp::Mod,
    BinOp::And,
    BinOp::Or,
    BinOp::Xor,
    BinOp::Shl,
    BinOp::Lshr,
    BinOp::Ashr,
    BinOp::SatAddU,
    BinOp::SatSubU,
    BinOp::SatAddS,
    BinOp::SatSubS,
    BinOp::Eq,
    BinOp::Ne,
    BinOp::Ult,
    BinOp::Ule,
    BinOp::Slt,
    BinOp::Sle,
];

fn bits(width: u8, value: u64) -> Bits {
    Bits::new(width.into(), value.into())
}

/// The result of `base::Bits`.
fn binary(op: BinOp, a: u64, b: u64, width: u8) -> u64 {
    let (x, y) = (bits(width, a), bits(width, b));
    let value = match op {
        BinOp::Add => x.add(&y),
        BinOp::Sub => x.sub(&y),
        BinOp::Mul => x.mul(&y),
        BinOp::Div => x.div_u(&y).unwrap_or(Bits::ones(width.into())),
        BinOp::Mod => x.mod_u(&y).unwrap_or(x),
        BinOp::And => x.and(&y),
        BinOp::Or => x.or(&y),
        BinOp::Xor => x.xor(&y),
        BinOp::Shl => x.shl(b),
        BinOp::Lshr => x.lshr(b),
        BinOp::Ashr => x.ashr(b),
        BinOp::SatAddU => x.sat_add_u(&y),
        BinOp::SatSubU => x.sat_sub_u(&y),
        BinOp::SatAddS => x.sat_add_s(&y),
        BinOp::SatSubS => x.sat_sub_s(&y),
        BinOp::Eq => Bits::from_bool(x == y),
        BinOp::Ne => Bits::from_bool(x != y),
        BinOp::Ult => Bits::from_bool(x.ult(&y)),
        BinOp::Ule => Bits::from_bool(x.ule(&y)),
        BinOp::Slt => Bits::from_bool(x.slt(&y)),
        BinOp::Sle => Bits::from_bool(x.sle(&y)),
    };
    value.to_u64().expect("at most 64 bits")
}

fn unary(op: UnOp, a: u64, width: u8) -> u64 {
    let x = bits(width, a);
    match op {
        UnOp::Not => x.not(),
        UnOp::Neg => x.neg(),
    }
    .to_u64()
    .expect("at most 64 bits")
}

#[test]
fn arithmetic_is_that_of_bits() {
    let mut random = Random::new(1);
    for width in 1..=64 {
        let max = u64::MAX >> (64 - width);
        let edges = [0, 1, 2, max, max - max / 2, max / 2, width.into(), u64::from(width) - 1, u64::MAX];
        let mut values = edges.to_vec();
        values.extend((0..8).map(|_| random.next_u64()));
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            for op in BINARY {
                assert_eq!(
                    arithmetic::binary(op, a, b, width),
                    binary(op, a, b, width),
                    "{op:?} {a:#x} {b:#x}, {width}"
                );
            }
            for op in [UnOp::Not, UnOp::Neg] {
                assert_eq!(arithmetic::unary(op, a, width), unary(op, a, width), "{op:?} {a:#x}, {width}");
            }
        }
    }
}

/// A field that changes and a checksum over it, as in a router, at positions that may overlap.
fn checksum(random: &mut Random, window: usize, head: usize) -> Vec<Step> {
    let place = |random: &mut Random, limit: usize| random.index(limit.min(40) - 9) as u16 & !1;
    let both = head.min(window);
    let (field, sum, words) = (place(random, both), place(random, both), place(random, window));
    let field = field * 8 + *random.pick(&[0, 0, 8, 3]);
    let width = *random.pick(&[8, 8, 16, 5]);
    let mask = *random.pick(&[u64::MAX, 0x00ff_0000_ffff_ffff, 0xff << 40, 0]);
    let (a, b, c) = (Source::Register(250), Source::Register(251), Source::Register(252));
    let values: Box<[Source]> = if random.one_in(2) { [b].into() } else { [a, b].into() };
    let mut all = vec![
        Step::Load { to: 250, bit: field, width },
        Step::Binary { op: BinOp::Sub, to: 250, a, b: Source::Const(1), width: width - random.below(2) as u8 },
        Step::Store { bit: field, width, value: a },
        Step::Binary { op: BinOp::Shl, to: 251, a, b: Source::Const(random.below(18)), width: 16 },
        Step::Sum { to: 252, words: [Word { at: words, mask }].into(), values, constant: random.below(3) as u16 },
        Step::Unary { op: UnOp::Not, to: 252, a: c, width: 16 },
        Step::Store { bit: sum * 8, width: 16, value: c },
    ];
    // Another step that reads the results, or overwrites them.
    match random.below(6) {
        0 => all.push(Step::Store { bit: sum * 8 + 8, width: 16, value: a }),
        1 => all.insert(2, Step::Store { bit: field, width: 16, value: a }),
        2 => all.push(Step::Load { to: 250, bit: sum * 8, width: 16 }),
        3 => all.push(Step::Store { bit: 0, width: 16, value: c }),
        4 => all.push(Step::Bytes { at: sum, bytes: [7, 8, 9].into() }),
        _ => {}
    }
    all
}

/// A random rewrite, valid for frames of `len` bytes.
fn any_rewrite(random: &mut Random, len: usize) -> Rewrite {
    let window = len.min(WINDOW);
    let replaced = random.below(window as u64 + 1) as usize;
    let head = if random.one_in(2) { replaced } else { random.below(100.min(WINDOW as u64) + 1) as usize };
    let mut steps = Vec::new();
    if head != replaced {
        steps.push(Step::Bytes { at: 0, bytes: (0..head).map(|_| random.next_u64() as u8).collect() });
    }
    let mut set: Vec<u8> = Vec::new();
    for _ in 0..random.below(24) {
        if random.one_in(4) && window >= 12 && head >= 12 {
            steps.extend(checksum(random, window, head));
        }
        let source = |random: &mut Random| match set.is_empty() || random.one_in(3) {
            true => Source::Const(random.next_u64() >> random.below(64)),
            false => Source::Register(*random.pick(&set)),
        };
        let to = random.below(6) as u8 * 51;
        let width = *random.pick(&[1, 3, 8, 13, 16, 24, 32, 48, 57, 64]);
        let step = match random.below(9) {
            0 if window * 8 >= usize::from(width) => {
                let bit = random.below((window * 8 - usize::from(width)) as u64 + 1);
                Step::Load { to, bit: (if random.one_in(2) { bit } else { bit & !7 }) as u16, width }
            }
            1 => Step::Binary { op: *random.pick(&BINARY), to, a: source(random), b: source(random), width },
            2 => Step::Unary { op: *random.pick(&[UnOp::Not, UnOp::Neg]), to, a: source(random), width },
            3 => Step::Select { to, cond: source(random), then: source(random), other: source(random) },
            4 if window >= 2 => {
                let words = (0..random.below(4)).map(|_| {
                    let at = random.below(window as u64 / 2) as usize * 2;
                    let mask = random.next_u64() | random.next_u64();
                    let inside = (window - at).min(8);
                    Word { at: at as u16, mask: mask & u64::MAX << (64 - 8 * inside) }
                });
                let words = words.collect();
                let values = (0..random.below(3)).map(|_| source(random)).collect();
                Step::Sum { to, words, values, constant: random.next_u64() as u16 }
            }
            5 | 6 if head * 8 >= usize::from(width) => {
                let bit = random.below((head * 8 - usize::from(width)) as u64 + 1);
                let bit = (if random.one_in(2) { bit } else { bit & !7 }) as u16;
                Step::Store { bit, width, value: source(random) }
            }
            7 => {
                let at = random.below(head as u64 + 1) as usize;
                let len = random.below((head - at) as u64 + 1);
                Step::Bytes { at: at as u16, bytes: (0..len).map(|_| random.next_u64() as u8).collect() }
            }
            8 => {
                let len = random.below(head.min(window) as u64 + 1) as u16;
                let from = random.below((window - usize::from(len)) as u64 + 1) as u16;
                let to = random.below((head - usize::from(len)) as u64 + 1) as u16;
                Step::Copy { from, to, len }
            }
            _ => continue,
        };
        if let Step::Load { to, .. }
        | Step::Binary { to, .. }
        | Step::Unary { to, .. }
        | Step::Select { to, .. }
        | Step::Sum { to, .. } = &step
        {
            set.push(*to);
        }
        steps.push(step);
    }
    Rewrite { steps: steps.into(), replaced: replaced as u16, head: head as u16, max_len: u32::MAX }
}

#[test]
fn rewriting_is_that_of_the_steps_bit_by_bit() {
    let mut random = Random::new(2);
    for case in 0..20_000 {
        let len = random.below(if case % 4 == 0 { 12 } else { 300 }) as usize;
        let rewrite = any_rewrite(&mut random, len);
        let prepared = Prepared::new(&rewrite).unwrap_or_else(|wrong| panic!("{wrong}: {rewrite:?}"));
        let mut buffer: Vec<u8> = (0..128 + len + 8).map(|_| random.next_u64() as u8).collect();
        let frame = buffer[128..128 + len].to_vec();
        let before = buffer.clone();
        let (start, new_len) = prepared.run(&mut buffer, 128, len).expect("there is room");
        assert_eq!(
            buffer[start..start + new_len],
            apply(&rewrite, &frame).expect("any length"),
            "{rewrite:?}\n{frame:02x?}"
        );
        assert_eq!(start + new_len, 128 + len, "the payload stays");
        assert_eq!(buffer[..start], before[..start], "nothing before the frame changes");
        assert_eq!(buffer[128 + len..], before[128 + len..], "nothing behind the frame changes");
    }
}

#[test]
fn without_room_nothing_changes() {
    let grow = Rewrite {
        steps: Box::new([Step::Bytes { at: 0, bytes: vec![1; 20].into() }]),
        replaced: 10,
        head: 20,
        max_len: 50,
    };
    let grow = Prepared::new(&grow).expect("right");
    let mut buffer = [7; 64];
    assert_eq!(grow.run(&mut buffer, 9, 40), None, "headroom of 9 bytes");
    assert_eq!(grow.run(&mut buffer, 20, 41), None, "more than the longest frame");
    assert_eq!(grow.run(&mut buffer, 20, 9), None, "a frame that is too short");
    assert_eq!(grow.run(&mut buffer, 30, 40), None, "a frame that ends behind the buffer");
    assert_eq!(grow.run(&mut buffer, usize::MAX, 40), None, "no frame at all");
    assert_eq!(buffer, [7; 64]);
    assert_eq!(grow.run(&mut buffer, 10, 40), Some((0, 50)));
    assert_eq!((buffer[..20].to_vec(), buffer[20..].to_vec()), (vec![1; 20], vec![7; 44]));
}

#[test]
fn a_router_keeps_the_checksum_right() {
    let router = Prepared::new(&router([9; 12])).expect("right");
    assert!(!router.shape.keeps, "nothing is read that has been overwritten");
    assert_eq!(router.shape.ops.len(), 4, "{:?}", router.shape.ops);
    let mut random = Random::new(3);
    for _ in 0..1000 {
        let mut frame: Vec<u8> = (0..34).map(|_| random.next_u64() as u8).collect();
        let ttl = frame[22];
        assert_eq!(router.run(&mut frame, 0, 34), Some((0, 34)));
        assert_eq!((&frame[..12], frame[22]), (&[9; 12][..], ttl.wrapping_sub(1)));
        let parts = frame[14..].chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]])));
        assert_eq!(parts.sum::<u32>() % 0xffff, 0, "RFC 1071: the sum of a header with its checksum");
    }
}

#[test]
fn wrong_descriptions_are_refused() {
    let refused = |replaced, head, steps: &[Step]| {
        Prepared::new(&Rewrite { steps: steps.into(), replaced, head, max_len: 99 }).expect_err("wrong").to_string()
    };
    let load = |bit, width| Step::Load { to: 0, bit, width };
    let store = |bit, width, value| Step::Store { bit, width, value };
    assert_eq!(refused(0, 300, &[]), "a head of 300 bytes; a rewriting covers at most 256");
    assert_eq!(refused(9, 9, &[load(2048, 1)]), "step 0: what it loads ends at bit 2049, behind the last one, 2048");
    assert_eq!(refused(9, 9, &[load(0, 0)]), "step 0: a value of 0 bits; values have 1 to 64");
    assert_eq!(refused(9, 9, &[load(0, 65)]), "step 0: a value of 65 bits; values have 1 to 64");
    assert_eq!(
        refused(9, 9, &[load(0, 8), store(66, 8, Source::Register(0))]),
        "step 1: what it stores ends at bit 74, behind the last one, 72"
    );
    assert_eq!(
        refused(9, 9, &[store(0, 8, Source::Register(3))]),
        "step 0: reads register 3, which no step before it sets"
    );
    let word = Word { at: 3, mask: 1 };
    let odd = Step::Sum { to: 0, words: Box::new([word]), values: Box::new([]), constant: 0 };
    assert_eq!(refused(20, 20, &[odd]), "step 0: a word of a sum begins at byte 3, which is odd");
    let copy = Step::Copy { from: 250, to: 0, len: 7 };
    assert_eq!(refused(9, 9, &[copy]), "step 0: what it copies ends at bit 2056, behind the last one, 2048");
    let bytes = Step::Bytes { at: 65_535, bytes: vec![0; 9].into() };
    assert_eq!(refused(9, 9, &[bytes]), "step 0: what it writes ends at bit 524352, behind the last one, 72");
    assert_eq!(
        refused(4, 8, &[Step::Bytes { at: 0, bytes: vec![0; 7].into() }]),
        "the new head has another length than the received one, and no step writes its bit 56"
    );
    assert_eq!(
        Prepared::new(&Rewrite { steps: vec![load(0, 8); 300].into(), replaced: 1, head: 1, max_len: 1 }),
        Err(Wrong::Long { what: "computed values", limit: 256 })
    );
    let far = Step::Copy { from: 0, to: 1, len: 1 };
    assert_eq!(
        Prepared::new(&Rewrite { steps: vec![far; 5000].into(), replaced: 2, head: 2, max_len: 1 }),
        Err(Wrong::Long { what: "operations", limit: 1024 })
    );
}
