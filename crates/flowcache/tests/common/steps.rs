//! The steps of a rewriting, bit by bit: what [`flowcache::run`] is compared with.

use base::Bits;
use flowcache::path::{Rewrite, Source, Step};
use ir::BinOp;

/// Runs a rewriting bit by bit. `None` if the frame would be too long.
pub fn apply(rewrite: &Rewrite, frame: &[u8]) -> Option<Vec<u8>> {
    let bit = |at: usize| frame.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let (replaced, head_len) = (usize::from(rewrite.replaced), usize::from(rewrite.head));
    let mut head: Vec<Option<bool>> = vec![None; head_len * 8];
    if replaced == head_len {
        (0..head_len * 8).for_each(|at| head[at] = Some(bit(at)));
    }
    let mut registers = [None; 256];
    for step in &rewrite.steps {
        let get = |source: &Source| match source {
            Source::Register(register) => registers[*register as usize].expect("it was computed before"),
            Source::Const(value) => *value,
        };
        let set = match step {
            Step::Load { to, bit: from, width } => {
                let bits = (0..usize::from(*width)).map(|i| bit(usize::from(*from) + i));
                Some((*to, bits.fold(0, |all, bit| all << 1 | u64::from(bit))))
            }
            Step::Binary { op, to, a, b, width } => {
                let a = Bits::new((*width).into(), get(a).into());
                let b = if op.is_shift() {
                    Bits::new(64, get(b).into())
                } else {
                    Bits::new((*width).into(), get(b).into())
                };
                Some((*to, BinOp::apply(*op, &a, &b).to_u64().expect("at most 64 bits")))
            }
            Step::Unary { op, to, a, width } => {
                Some((*to, op.apply(&Bits::new((*width).into(), get(a).into())).to_u64().expect("at most 64 bits")))
            }
            Step::Select { to, cond, then, other } => Some((*to, if get(cond) != 0 { get(then) } else { get(other) })),
            Step::Sum { to, words, values, constant } => {
                let of_words = words.iter().map(|word| {
                    let bits = (0..64).map(|i| bit(usize::from(word.at) * 8 + i));
                    bits.fold(0, |all, bit| all << 1 | u64::from(bit)) & word.mask
                });
                let all = of_words.chain(values.iter().map(get)).chain([(*constant).into()]);
                let mut sum: u64 = all.flat_map(|v| (0..4).map(move |i| v >> (16 * i) & 0xffff)).sum();
                while sum > 0xffff {
                    sum = (sum >> 16) + (sum & 0xffff);
                }
                Some((*to, sum))
            }
            Step::Store { bit, width, value } => {
                let value = get(value);
                for i in 0..usize::from(*width) {
                    head[usize::from(*bit) + i] = Some(value >> (usize::from(*width) - 1 - i) & 1 == 1);
                }
                None
            }
            Step::Bytes { at, bytes } => {
                let bits = bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1));
                bits.enumerate().for_each(|(i, bit)| head[usize::from(*at) * 8 + i] = Some(bit));
                None
            }
            Step::Copy { from, to, len } => {
                for i in 0..usize::from(*len) * 8 {
                    head[usize::from(*to) * 8 + i] = Some(bit(usize::from(*from) * 8 + i));
                }
                None
            }
        };
        if let Some((to, value)) = set {
            registers[to as usize] = Some(value);
        }
    }
    let bits: Vec<bool> = head.into_iter().map(|bit| bit.expect("every bit is written")).collect();
    let mut all: Vec<u8> =
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect();
    all.extend_from_slice(&frame[replaced..]);
    (all.len() <= rewrite.max_len as usize).then_some(all)
}
