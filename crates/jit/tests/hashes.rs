//! Hashes of strings of many lengths and alignments, compiled and interpreted. CRCs are inline up to some length;
//! strings here are shorter and longer.

mod common;

use base::Bits;
use common::Both;
use common::random::Random;
use ir::{BinOp, Builder, CastKind, EntryKind, FieldWidth, HashAlgorithm, Op, Operand, SlotId, StageId, StageKind};

const ALGORITHMS: [HashAlgorithm; 5] =
    [HashAlgorithm::Crc32, HashAlgorithm::Crc16, HashAlgorithm::Xor16, HashAlgorithm::Identity, HashAlgorithm::Csum16];
/// Bytes of the header.
const BYTES: u32 = 80;

/// Field widths that add up to [`BYTES`] bytes.
fn fields(random: &mut Random) -> Vec<u32> {
    let mut left = 8 * BYTES;
    let mut widths = Vec::new();
    while left > 0 {
        let width = *random.pick(&[1, 3, 4, 5, 8, 8, 12, 13, 16, 16, 24, 32, 32, 48, 64, 100, 128, 130]);
        widths.push(width.min(left));
        left -= width.min(left);
    }
    widths
}

/// A program whose parser extracts a header of fields of these widths, or drops the packet; returns the parser and the
/// fields.
fn extracting(widths: &[u32]) -> (Builder, StageId, Vec<SlotId>) {
    let mut b = Builder::new("hashes");
    let named: Vec<(String, FieldWidth)> =
        widths.iter().enumerate().map(|(i, width)| (format!("f{i}"), FieldWidth::Fixed(*width))).collect();
    let named: Vec<(&str, FieldWidth)> = named.iter().map(|(name, width)| (name.as_str(), *width)).collect();
    let header = b.header("h", &named);
    let slots: Vec<_> = b.program().headers[0].fields.iter().map(|f| f.slot).collect();
    let parser = b.begin_stage("parser", StageKind::Parser);
    let short = b.drop_reason("short");
    let enough = b.temp(1);
    let bits: u32 = widths.iter().sum();
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, bits.into()) });
    let (good, bad) = (b.block(""), b.block(""));
    b.branch(enough, good, bad);
    b.switch_to(bad);
    b.fate(ir::Fate::Drop(short));
    b.switch_to(good);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.next_stage();
    b.end_stage();
    (b, parser, slots)
}

/// The program, whose last stage ends by writing its results to the record.
fn showing(mut b: Builder, parser: StageId, control: StageId, results: Vec<SlotId>) -> ir::Program {
    b.fate(ir::Fate::Replicate(ir::ReplicationPoint::IngressEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control]);
    b.program_mut().field_lists.push((0, results));
    b.finish()
}

/// A program that extracts a header, changes some fields, and hashes runs of fields that begin anywhere, with some
/// constants.
fn program(random: &mut Random) -> ir::Program {
    let widths = fields(random);
    let (mut b, parser, slots) = extracting(&widths);
    let control = b.begin_stage("control", StageKind::Control);
    for (slot, width) in slots.iter().zip(&widths) {
        if random.chance(10) {
            b.emit(Op::Bin { op: BinOp::Add, dst: *slot, a: (*slot).into(), b: Operand::new_const(*width, 1) });
        }
    }
    let mut results = Vec::new();
    for algorithm in ALGORITHMS {
        for _ in 0..4 {
            let first = random.below(slots.len() as u64) as usize;
            let count = 1 + random.below((slots.len() - first) as u64) as usize;
            let mut data: Vec<Operand> = slots[first..first + count].iter().map(|s| (*s).into()).collect();
            if random.chance(30) {
                let width = *random.pick(&[3, 8, 16, 70]);
                let value = Bits::from_bytes_be(width, &random.bytes(width.div_ceil(8) as usize));
                data.insert(random.below(data.len() as u64) as usize, Operand::Const(value));
            }
            let dst = b.metadata("hash", *random.pick(&[14, 32, 64]));
            let max = *random.pick(&[None, Some(1 << 14), Some(1 << 32), Some(1000)]);
            let (base, max) = (Operand::new_const(b.program().width(dst), 0), max.map(|m| Operand::new_const(33, m)));
            b.emit(Op::Hash { algorithm, dst, base, max, data, varbits: Vec::new(), payload: false });
            results.push(dst);
        }
    }
    showing(b, parser, control, results)
}

#[test]
fn hashes_of_any_length_and_alignment_match_the_oracle() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let both = Both::new(program(&mut random));
        let packets: Vec<Vec<u8>> = (0..20).map(|_| random.bytes(BYTES as usize + 4)).collect();
        for outcome in both.check(&packets) {
            assert!(matches!(outcome.fate, interp::Fate::Replicate(_)), "seed {seed}: {:?}", outcome.fate);
            assert_eq!(outcome.slots.len(), 4 * ALGORITHMS.len(), "seed {seed}");
        }
    }
}

/// Widths of fields: pairs from which the hashed fields are selected, and the field that decides.
const PAIRS: [u32; 13] = [32, 32, 16, 16, 8, 8, 64, 64, 24, 24, 13, 13, 6];

/// A program that hashes fields selected from pairs, as a firewall does with both ends of a connection, and computes
/// with their low bits.
fn selecting(random: &mut Random) -> ir::Program {
    let (mut b, parser, slots) = extracting(&PAIRS);
    let control = b.begin_stage("control", StageKind::Control);
    let asked = b.metadata("asked", 1);
    b.emit(Op::Slice { dst: asked, a: slots[12].into(), hi: 2, lo: 2 });
    let (mut selected, mut results) = (Vec::new(), Vec::new());
    for pair in slots[..12].chunks(2) {
        let order = if random.chance(50) { [pair[0], pair[1]] } else { [pair[1], pair[0]] };
        for (then, other) in [(order[0], order[1]), (order[1], order[0])] {
            let dst = b.metadata("selected", b.program().width(then));
            b.emit(Op::Select { dst, cond: asked.into(), then: then.into(), other: other.into() });
            selected.push(dst);
        }
        let width = b.program().width(pair[0]);
        let low = 1 + random.below(width.into()) as u32;
        let parts = [0, 1].map(|i| {
            let dst = b.metadata("low", low);
            b.emit(Op::Cast { kind: CastKind::Trunc, dst, a: selected[selected.len() - 2 + i].into() });
            dst
        });
        let dst = b.metadata("both", low);
        let op = *random.pick(&[BinOp::Xor, BinOp::And, BinOp::Or, BinOp::Add]);
        b.emit(Op::Bin { op, dst, a: parts[0].into(), b: parts[1].into() });
        results.push(dst);
    }
    for algorithm in ALGORITHMS {
        let count = 1 + random.below(6);
        let data: Vec<Operand> = (0..count).map(|_| (*random.pick(&selected)).into()).collect();
        let dst = b.metadata("hash", 32);
        let base = Operand::new_const(32, 0);
        b.emit(Op::Hash { algorithm, dst, base, max: None, data, varbits: Vec::new(), payload: false });
        let dst_high = b.metadata("high", 12);
        b.emit(Op::Slice { dst: dst_high, a: dst.into(), hi: 31, lo: 20 });
        results.extend([dst, dst_high]);
    }
    showing(b, parser, control, results)
}

#[test]
fn hashes_of_selected_fields_match_the_oracle() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let both = Both::new(selecting(&mut random));
        let packets: Vec<Vec<u8>> = (0..20).map(|_| random.bytes(60)).collect();
        for outcome in both.check(&packets) {
            assert!(matches!(outcome.fate, interp::Fate::Replicate(_)), "seed {seed}: {:?}", outcome.fate);
        }
    }
}
