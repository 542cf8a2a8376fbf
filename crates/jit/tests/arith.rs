//! Every arithmetic operation at widths on both sides of each class's boundary, on edge values and random ones.

mod common;

use base::Bits;
use common::random::Random;
use common::{Both, verified};
use ir::builder::{Builder, FieldWidth};
use ir::{BinOp, CastKind, EntryKind, Fate, HeaderId, Intrinsic, Op, Operand, Program, ReplicationPoint, SlotId};
use ir::{StageKind, UnOp};

const WIDTHS: [u32; 21] = [1, 3, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 192, 200, 512, 1000];

const BIN_OPS: [BinOp; 21] = [
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

fn is_shift(op: BinOp) -> bool {
    matches!(op, BinOp::Shl | BinOp::Lshr | BinOp::Ashr)
}

fn result_width(op: BinOp, width: u32) -> u32 {
    match op {
        BinOp::Eq | BinOp::Ne | BinOp::Ult | BinOp::Ule | BinOp::Slt | BinOp::Sle => 1,
        _ => width,
    }
}

/// A program that extracts `in` and runs `body`, whose slots end up in the record.
fn program(fields: &[(&str, u32)], body: impl FnOnce(&mut Builder, &[SlotId], &mut Vec<SlotId>)) -> Program {
    let mut b = Builder::new("arith");
    let bits: u32 = fields.iter().map(|(_, w)| w).sum();
    let mut fields: Vec<(&str, FieldWidth)> = fields.iter().map(|&(n, w)| (n, FieldWidth::Fixed(w))).collect();
    if !bits.is_multiple_of(8) {
        fields.push(("pad", FieldWidth::Fixed(8 - bits % 8)));
    }
    let header: HeaderId = b.header("in", &fields);
    let drop = b.drop_reason("short");
    let slots: Vec<SlotId> = b.program().headers[0].fields.iter().map(|f| f.slot).collect();
    let port = b.metadata("port", 9);
    b.intrinsic(Intrinsic::IngressPort, port);
    let parser = b.begin_stage("parser", StageKind::Parser);
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, bits.next_multiple_of(8).into()) });
    let (good, short) = (b.block(""), b.block("short"));
    b.branch(enough, good, short);
    b.switch_to(short);
    b.fate(Fate::Drop(drop));
    b.switch_to(good);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.next_stage();
    b.end_stage();
    let control = b.begin_stage("control", StageKind::Control);
    let mut kept = slots.clone();
    body(&mut b, &slots, &mut kept);
    b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control]);
    b.program_mut().field_lists.push((0, kept));
    verified(b.finish())
}

/// Values at carries, sign changes and bounds.
fn edges(width: u32) -> Vec<Bits> {
    let one = Bits::new(width, 1);
    let top = one.shl(u64::from(width) - 1);
    vec![
        Bits::zero(width),
        one.clone(),
        Bits::ones(width),
        top.clone(),
        top.sub(&one),
        top.add(&one),
        Bits::new(width, 0x55),
    ]
}

/// Packets for fields of these widths: edge pairs of the first two fields, then random ones.
fn packets(random: &mut Random, widths: &[u32]) -> Vec<Vec<u8>> {
    let pack = |values: &[Bits]| {
        let all = values.iter().fold(Bits::zero(0), |all, v| all.concat(v));
        let pad = all.width().next_multiple_of(8) - all.width();
        all.concat(&Bits::zero(pad)).to_bytes_be()
    };
    let mut out = Vec::new();
    for a in edges(widths[0]) {
        for b in edges(widths[1]) {
            let mut values = vec![a.clone(), b.clone()];
            values.extend(widths[2..].iter().map(|&w| random.bits(w)));
            out.push(pack(&values));
        }
    }
    for _ in 0..30 {
        out.push(pack(&widths.iter().map(|&w| random.bits(w)).collect::<Vec<_>>()));
    }
    out
}

#[test]
fn binary_operations() {
    let mut random = Random::new(1);
    for width in WIDTHS {
        let fields = [("a", width), ("b", width), ("n", 8), ("m", width.min(300))];
        let shift_const = random.below(u64::from(width) + 2) as u128;
        let p = program(&fields, |b, f, kept| {
            for op in BIN_OPS {
                let amounts: Vec<Operand> = if is_shift(op) {
                    vec![f[2].into(), f[3].into(), Operand::new_const(32, shift_const), Operand::new_const(70, 1 << 66)]
                } else {
                    vec![f[1].into(), Bits::new(width, 3).into(), Bits::ones(width).into(), Bits::zero(width).into()]
                };
                for other in amounts {
                    let dst = b.local("r", result_width(op, width));
                    b.emit(Op::Bin { op, dst, a: f[0].into(), b: other });
                    kept.push(dst);
                }
                // A constant on the left, and the destination as an operand.
                let dst = b.local("r", result_width(op, width));
                b.emit(Op::Bin { op, dst, a: Bits::new(width, 5).into(), b: f[1].into() });
                kept.push(dst);
                if result_width(op, width) == width {
                    let dst = b.local("r", width);
                    b.mov(dst, f[0]);
                    b.emit(Op::Bin { op, dst, a: dst.into(), b: f[1].into() });
                    b.emit(Op::Bin { op, dst, a: f[1].into(), b: dst.into() });
                    kept.push(dst);
                }
            }
        });
        Both::new(p).check(&packets(&mut random, &[width, width, 8, width.min(300)]));
    }
}

#[test]
fn unary_operations_moves_and_selects() {
    let mut random = Random::new(2);
    for width in WIDTHS {
        let p = program(&[("a", width), ("b", width), ("c", 1)], |b, f, kept| {
            for op in [UnOp::Not, UnOp::Neg] {
                let dst = b.un(op, f[0]);
                let copy = b.local("r", width);
                b.mov(copy, dst);
                b.emit(Op::Un { op, dst: copy, a: copy.into() });
                kept.push(copy);
                let copy = b.local("r", width);
                b.mov(copy, dst);
                kept.push(copy);
            }
            let dst = b.local("r", width);
            b.emit(Op::Select { dst, cond: f[2].into(), then: f[0].into(), other: f[1].into() });
            kept.push(dst);
            let dst = b.local("r", width);
            b.emit(Op::Select { dst, cond: f[2].into(), then: Bits::ones(width).into(), other: f[1].into() });
            kept.push(dst);
        });
        Both::new(p).check(&packets(&mut random, &[width, width, 1]));
    }
}

#[test]
fn casts_slices_and_concatenations() {
    let mut random = Random::new(3);
    for width in WIDTHS {
        let others = [1, 7, 8, 15, 33, 63, 64, 65, 128, 130, 257];
        let seed = random.below(1 << 32);
        let p = program(&[("a", width), ("b", 40), ("c", 130)], |b, f, kept| {
            let mut random = Random::new(seed);
            for other in others {
                for kind in [CastKind::Zext, CastKind::Sext, CastKind::Trunc] {
                    if (kind == CastKind::Trunc) == (other <= width) || other == width {
                        let dst = b.local("r", other);
                        b.emit(Op::Cast { kind, dst, a: f[0].into() });
                        kept.push(dst);
                    }
                }
                let dst = b.local("r", width + other);
                let small = b.slice(f[2], other.min(130) - 1, 0);
                let small = b.resize_u(other, small);
                b.emit(Op::Concat { dst, hi: f[0].into(), lo: small.clone() });
                kept.push(dst);
                let dst = b.local("r", width + other);
                b.emit(Op::Concat { dst, hi: small, lo: f[0].into() });
                kept.push(dst);
            }
            for _ in 0..12 {
                let lo = random.below(width.into()) as u32;
                let hi = lo + random.below(u64::from(width - lo)) as u32;
                let dst = b.local("r", hi + 1 - lo);
                b.emit(Op::Slice { dst, a: f[0].into(), hi, lo });
                kept.push(dst);
                let dst = b.local("r", width);
                b.mov(dst, f[0]);
                let value = b.resize_u(hi + 1 - lo, f[1]);
                b.emit(Op::SetSlice { dst, hi, lo, a: value });
                kept.push(dst);
                let dst = b.local("r", width);
                b.emit(Op::SetSlice { dst, hi, lo, a: Bits::ones(hi + 1 - lo).into() });
                kept.push(dst);
            }
        });
        Both::new(p).check(&packets(&mut random, &[width, 40, 130]));
    }
}

#[test]
fn switches_of_every_kind() {
    let mut random = Random::new(4);
    for width in [1, 3, 8, 16, 32, 33, 64, 70, 128, 200] {
        for count in [0u64, 1, 2, 4, 5, 9, 300] {
            let dense = random.below(2) == 0;
            let mut values: Vec<Bits> =
                (0..count).map(|i| if dense { Bits::new(width, (i + 3).into()) } else { random.bits(width) }).collect();
            values.sort();
            values.dedup();
            // Each case has a block of its own, or all share one.
            let programs = [false, true].map(|together| {
                program(&[("a", width), ("b", 1)], |b, f, kept| {
                    let dst = b.local("r", 16);
                    kept.push(dst);
                    let end = b.block("");
                    let mut cases = Vec::new();
                    let from = b.current();
                    let mut last = None;
                    for (i, v) in values.iter().enumerate() {
                        let to = match last {
                            Some(to) if together => to,
                            _ => {
                                let to = b.block("");
                                b.switch_to(to);
                                b.set(dst, i as u128 + 1);
                                b.jump(end);
                                to
                            }
                        };
                        last = Some(to);
                        cases.push((v.clone(), to));
                    }
                    b.switch_to(from);
                    b.switch(f[0], cases, end);
                    b.switch_to(end);
                })
            });
            let mut packets: Vec<Vec<u8>> = (0..20).map(|_| random.bytes((width as usize + 1).div_ceil(8))).collect();
            for v in values.iter().take(50) {
                let all = v.concat(&Bits::zero((width + 1).next_multiple_of(8) - width));
                packets.push(all.to_bytes_be());
            }
            for p in programs {
                Both::new(p).check(&packets);
            }
        }
    }
}
