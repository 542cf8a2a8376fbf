//! Hashes of strings of many lengths and alignments, compiled and interpreted. The inline code of CRCs ends at some length;
//! strings here are shorter and longer.

mod common;

use base::Bits;
use common::Both;
use common::random::Random;
use ir::{BinOp, Builder, EntryKind, FieldWidth, HashAlgorithm, Op, Operand, StageKind};

const ALGORITHMS: [HashAlgorithm; 5] =
    [HashAlgorithm::Crc32, HashAlgorithm::Crc16, HashAlgorithm::Xor16, HashAlgorithm::Identity, HashAlgorithm::Csum16];
/// Bytes of the header.
const BYTES: u32 = 80;

/// Field widths that add up to [`BYTES`].
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

/// A program that extracts a header, changes some fields, and hashes runs of fields that begin anywhere, with a constant
/// here and there.
fn program(random: &mut Random) -> ir::Program {
    let mut b = Builder::new("hashes");
    let widths = fields(random);
    let named: Vec<(String, FieldWidth)> =
        widths.iter().enumerate().map(|(i, width)| (format!("f{i}"), FieldWidth::Fixed(*width))).collect();
    let named: Vec<(&str, FieldWidth)> = named.iter().map(|(name, width)| (name.as_str(), *width)).collect();
    let header = b.header("h", &named);
    let slots: Vec<_> = b.program().headers[0].fields.iter().map(|f| f.slot).collect();
    let parser = b.begin_stage("parser", StageKind::Parser);
    let short = b.drop_reason("short");
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, (8 * BYTES).into()) });
    let (good, bad) = (b.block(""), b.block(""));
    b.branch(enough, good, bad);
    b.switch_to(bad);
    b.fate(ir::Fate::Drop(short));
    b.switch_to(good);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.next_stage();
    b.end_stage();
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
    b.fate(ir::Fate::Replicate(ir::ReplicationPoint::IngressEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control]);
    b.program_mut().field_lists.push((0, results));
    b.finish()
}

#[test]
fn hashes_of_any_length_and_alignment_are_the_oracles() {
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
