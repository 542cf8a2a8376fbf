//! Translates a rewrite to operations: checks, then computations in order, then writes.
//!
//! Each step's result gets a register of its own (SSA form), so that all writes can move after all computations.
//! Constant bits that no later step overwrites move after the other writes and are merged.

use std::sync::Arc;

use super::arithmetic::{binary, unary};
use super::{Data, NOWHERE, Op, Prepared, Shape, Sum, Write, Wrong, fuse};
use crate::path::{Rewrite, Source, Step, WINDOW, Word};
use ir::BinOp;

/// Maximum number of operations of a rewrite. Bounds the memory of a megaflow (16 bytes each) and the time per
/// packet.
const OPS_MAX: usize = 1024;
/// Maximum number of registers; register numbers are bytes.
const REGISTERS_MAX: usize = 256;

/// The value of a description's register during translation.
#[derive(Clone, Copy)]
enum Value {
    Register(u8),
    Const(u64),
}

struct Preparation<'a> {
    rewrite: &'a Rewrite,
    /// Minimum length of a frame in bytes.
    needs: usize,
    ops: Vec<Op>,
    words: Vec<Word>,
    data: Vec<u8>,
    writes: Vec<Write>,
    /// Current values of the description's registers.
    values: Vec<Option<Value>>,
    registers: usize,
    image: Image,
}

/// The bits of the new head that are written, and those of them that are constants.
struct Image {
    written: [bool; WINDOW * 8],
    /// The constant of each bit whose last write is one.
    constants: [Option<bool>; WINDOW * 8],
}

pub(super) fn prepare(rewrite: &Rewrite) -> Result<Prepared, Wrong> {
    let (replaced, head) = (usize::from(rewrite.replaced), usize::from(rewrite.head));
    if replaced.max(head) > WINDOW {
        return Err(Wrong::Head { bytes: replaced.max(head) });
    }
    let mut needs = replaced;
    for (step, s) in rewrite.steps.iter().enumerate() {
        needs = needs.max(check(step, s, head)?);
    }
    let mut preparation = Preparation {
        rewrite,
        needs,
        ops: Vec::new(),
        words: Vec::new(),
        data: Vec::new(),
        writes: Vec::new(),
        values: vec![None; REGISTERS_MAX],
        registers: 0,
        image: Image { written: [false; WINDOW * 8], constants: [None; WINDOW * 8] },
    };
    for (step, s) in rewrite.steps.iter().enumerate() {
        preparation.step(step, s)?;
    }
    if let Some(bit) = preparation.image.written[..head * 8].iter().position(|w| !w).filter(|_| head != replaced) {
        return Err(Wrong::Unwritten { bit });
    }
    preparation.ops = fuse::fuse(preparation.ops, &preparation.words, &mut preparation.writes, rewrite);
    let keeps = preparation.write()?;
    if preparation.ops.len().max(preparation.words.len()) > OPS_MAX {
        return Err(Wrong::Long { what: "operations", limit: OPS_MAX });
    }
    let shape = Shape {
        ops: preparation.ops.into(),
        words: preparation.words.into(),
        needs: needs as u16,
        replaced: rewrite.replaced,
        head: rewrite.head,
        registers: preparation.registers as u16,
        keeps,
        max_len: rewrite.max_len,
    };
    let mut here = [0; 30];
    let data = match here.get_mut(..preparation.data.len()) {
        Some(bytes) => {
            bytes.copy_from_slice(&preparation.data);
            Data::Here(preparation.data.len() as u8, here)
        }
        None => Data::There(preparation.data.into()),
    };
    Ok(Prepared { shape: Arc::new(shape), data })
}

/// Checks a step's offsets and widths. Returns the number of leading bytes of the received frame that it needs.
fn check(step: usize, s: &Step, head: usize) -> Result<usize, Wrong> {
    let width_is_right = |width: u8| match width {
        1..=64 => Ok(()),
        _ => Err(Wrong::Width { step, width }),
    };
    let within = |what, end: usize, limit: usize| match end <= limit {
        true => Ok(end.div_ceil(8)),
        false => Err(Wrong::Outside { step, what, end, limit }),
    };
    match s {
        Step::Load { bit, width, .. } => {
            width_is_right(*width)?;
            within("what it loads", usize::from(*bit) + usize::from(*width), WINDOW * 8)
        }
        Step::Binary { width, .. } | Step::Unary { width, .. } => width_is_right(*width).map(|()| 0),
        Step::Select { .. } => Ok(0),
        Step::Sum { words, .. } => {
            let mut needs = 0;
            for word in words {
                if word.at % 2 != 0 {
                    return Err(Wrong::Odd { step, at: word.at });
                }
                let end = (usize::from(word.at) + 8) * 8 - word.mask.trailing_zeros() as usize;
                if word.mask != 0 {
                    needs = needs.max(within("what it sums", end, WINDOW * 8)?);
                }
            }
            Ok(needs)
        }
        Step::Store { bit, width, .. } => {
            width_is_right(*width)?;
            within("what it stores", usize::from(*bit) + usize::from(*width), head * 8).map(|_| 0)
        }
        Step::Bytes { at, bytes } => {
            within("what it writes", (usize::from(*at) + bytes.len()) * 8, head * 8).map(|_| 0)
        }
        Step::Copy { from, to, len } => {
            within("where it copies to", (usize::from(*to) + usize::from(*len)) * 8, head * 8)?;
            within("what it copies", (usize::from(*from) + usize::from(*len)) * 8, WINDOW * 8)
        }
    }
}

impl Preparation<'_> {
    fn step(&mut self, step: usize, s: &Step) -> Result<(), Wrong> {
        match s {
            Step::Load { to, bit, width } => {
                let register = self.register()?;
                self.ops.push(self.load(register, usize::from(*bit), *width));
                self.set(*to, Value::Register(register));
            }
            Step::Binary { op, to, a, b, width } => {
                let (a, b) = (self.value(step, *a)?, self.value(step, *b)?);
                let value = self.binary(*op, a, b, *width)?;
                self.set(*to, value);
            }
            Step::Unary { op, to, a, width } => {
                let value = match self.value(step, *a)? {
                    Value::Const(a) => Value::Const(unary(*op, a, *width)),
                    Value::Register(a) => {
                        let register = self.register()?;
                        self.ops.push(Op::Unary { op: *op, to: register, a, width: *width });
                        Value::Register(register)
                    }
                };
                self.set(*to, value);
            }
            Step::Select { to, cond, then, other } => {
                let cond = self.value(step, *cond)?;
                let (then, other) = (self.value(step, *then)?, self.value(step, *other)?);
                let value = match cond {
                    Value::Const(0) => other,
                    Value::Const(_) => then,
                    Value::Register(cond) => {
                        let (then, other) = (self.in_register(then)?, self.in_register(other)?);
                        let register = self.register()?;
                        self.ops.push(Op::Select { to: register, cond, then, other });
                        Value::Register(register)
                    }
                };
                self.set(*to, value);
            }
            Step::Sum { to, words, values, constant } => {
                let mut constant = u64::from(*constant);
                let first = self.words.len();
                for word in words.iter().filter(|w| w.mask != 0) {
                    self.sum_word(usize::from(word.at), word.mask)?;
                }
                for value in values {
                    match self.value(step, *value)? {
                        Value::Const(value) => constant = super::add_carry(constant, value),
                        Value::Register(from) => self.ops.push(Op::SumValue { from }),
                    }
                }
                let data = match constant {
                    0 => NOWHERE,
                    _ => self.data(&(super::fold(constant) as u16).to_be_bytes()),
                };
                let register = self.register()?;
                self.ops.push(Op::Sum(Sum {
                    to: register,
                    count: (self.words.len() - first) as u16,
                    first: first as u16,
                    data,
                    store: NOWHERE,
                    has_value: false,
                    from: 0,
                    shift: 0,
                    width: 64,
                    complements: false,
                }));
                self.set(*to, Value::Register(register));
            }
            Step::Store { bit, width, value } => {
                let (bit, bits) = (usize::from(*bit), usize::from(*width));
                match self.value(step, *value)? {
                    Value::Const(value) => {
                        for i in 0..bits {
                            self.image.put(bit + i, value >> (bits - 1 - i) & 1 != 0);
                        }
                    }
                    Value::Register(from) => {
                        self.image.overwrite(bit, bits);
                        self.writes.push(Write::Store { bit, width: *width, from });
                    }
                }
            }
            Step::Bytes { at, bytes } => {
                for (i, byte) in bytes.iter().enumerate() {
                    for bit in 0..8 {
                        self.image.put((usize::from(*at) + i) * 8 + bit, byte >> (7 - bit) & 1 != 0);
                    }
                }
            }
            Step::Copy { from, to, len } => {
                let (from, to, len) = (usize::from(*from), usize::from(*to), usize::from(*len));
                self.image.overwrite(to * 8, len * 8);
                self.writes.push(Write::Copy { from, to, len });
            }
        }
        // A caller may pass any number of steps, so the result is bounded early.
        match self.ops.len().max(self.writes.len()).max(self.words.len()) > OPS_MAX {
            true => Err(Wrong::Long { what: "operations", limit: OPS_MAX }),
            false => Ok(()),
        }
    }

    fn register(&mut self) -> Result<u8, Wrong> {
        if self.registers == REGISTERS_MAX {
            return Err(Wrong::Long { what: "computed values", limit: REGISTERS_MAX });
        }
        self.registers += 1;
        Ok((self.registers - 1) as u8)
    }

    /// Appends bytes to the data, and returns their offset. There are few: of sums, and of writes of at most a
    /// window.
    fn data(&mut self, bytes: &[u8]) -> u16 {
        let at = self.data.len() as u16;
        self.data.extend(bytes);
        at
    }

    fn set(&mut self, register: u8, value: Value) {
        self.values[usize::from(register)] = Some(value);
    }

    fn value(&self, step: usize, source: Source) -> Result<Value, Wrong> {
        match source {
            Source::Const(value) => Ok(Value::Const(value)),
            Source::Register(register) => self.values[usize::from(register)].ok_or(Wrong::Unset { step, register }),
        }
    }

    fn in_register(&mut self, value: Value) -> Result<u8, Wrong> {
        match value {
            Value::Register(register) => Ok(register),
            Value::Const(value) => {
                let to = self.register()?;
                self.ops.push(Op::Const { to, value });
                Ok(to)
            }
        }
    }

    fn binary(&mut self, op: BinOp, a: Value, b: Value, width: u8) -> Result<Value, Wrong> {
        let (a, b) = match (a, b) {
            (Value::Const(a), Value::Const(b)) => return Ok(Value::Const(binary(op, a, b, width))),
            (Value::Const(_), Value::Register(_)) if op.is_commutative() => (b, a),
            _ => (a, b),
        };
        let a = self.in_register(a)?;
        let to = self.register()?;
        self.ops.push(match (op, b) {
            (_, Value::Register(b)) => Op::Binary { op, to, a, b, width },
            (BinOp::Add, Value::Const(b)) => Op::AddConst { to, a, width, b },
            (BinOp::Sub, Value::Const(b)) => Op::AddConst { to, a, width, b: b.wrapping_neg() },
            (_, Value::Const(b)) => Op::BinaryConst { op, to, a, width, b },
        });
        Ok(Value::Register(to))
    }

    fn load(&self, to: u8, bit: usize, width: u8) -> Op {
        match window(bit, width, self.needs) {
            Some((at, shift)) => Op::Load { to, at, shift, width },
            None => Op::LoadBits { to, bit: bit as u16, width },
        }
    }

    /// Adds 64 bits of the received frame to the sum. Bytes after the minimum length are not read: the word is
    /// moved back by an even number of bytes, which does not change the sum, or its bytes are loaded one by one.
    fn sum_word(&mut self, at: usize, mask: u64) -> Result<(), Wrong> {
        let excess = (at + 8).saturating_sub(self.needs).next_multiple_of(2);
        if excess <= at && mask.trailing_zeros() as usize >= 8 * excess {
            self.words.push(Word { at: (at - excess) as u16, mask: mask >> (8 * excess) });
            return Ok(());
        }
        for part in 0..4 {
            let mask = (mask >> (48 - 16 * part)) as u16;
            for half in 0..2usize {
                let byte = (mask >> (8 - 8 * half)) as u8;
                if byte == 0 {
                    continue;
                }
                let loaded = self.register()?;
                self.ops.push(self.load(loaded, (at + 2 * part + half) * 8, 8));
                let masked = self.binary(BinOp::And, Value::Register(loaded), Value::Const(byte.into()), 8)?;
                let from = match half {
                    0 => self.binary(BinOp::Shl, masked, Value::Const(8), 16)?,
                    _ => masked,
                };
                let from = self.in_register(from)?;
                self.ops.push(Op::SumValue { from });
            }
        }
        Ok(())
    }

    /// Emits the writes. Returns whether the received head must be saved.
    fn write(&mut self) -> Result<bool, Wrong> {
        let (replaced, head) = (usize::from(self.rewrite.replaced), usize::from(self.rewrite.head));
        // Bytes of the new head written so far. Byte `i` of the received head has position `i + head - replaced` of
        // the new one.
        let mut dirty = [false; WINDOW];
        let mut keeps = false;
        for write in std::mem::take(&mut self.writes) {
            let (at, len) = match write {
                Write::Store { bit, width, from } => {
                    self.ops.push(store(bit, width, from, head));
                    (bit / 8, (bit + usize::from(width)).div_ceil(8) - bit / 8)
                }
                Write::Copy { from, to, len } => {
                    let overwritten = (from + head..from + head + len)
                        .filter_map(|i| i.checked_sub(replaced))
                        .any(|i| i < head && dirty[i]);
                    keeps |= overwritten;
                    if len != 0 && (overwritten || from + head != to + replaced) {
                        let (from, to) = (from as u16, to as u16);
                        self.ops.push(match len {
                            4..8 if !overwritten => Op::CopyTo8 { from, to, len: len as u8 },
                            8..=16 if !overwritten => Op::CopyTo16 { from, to, len: len as u8 },
                            _ => Op::Copy { from, to, len: len as u16, kept: overwritten },
                        });
                    }
                    (to, len)
                }
            };
            dirty[at..at + len].fill(true);
        }
        self.constants();
        Ok(keeps)
    }
}

impl Preparation<'_> {
    /// Writes the constants: runs of whole bytes, up to 16 at a time, or all within eight bytes if these would take
    /// several operations.
    fn constants(&mut self) {
        let head = usize::from(self.rewrite.head);
        let (masks, values): (Vec<u8>, Vec<u8>) = (0..head).map(|at| self.image.byte(at)).unzip();
        let whole = |at: usize| masks[at..].iter().take(16).take_while(|mask| **mask == 0xff).count();
        // Number of bytes that the operation at this position would write.
        let length = |at: usize| match whole(at) {
            0 | 1 => 1,
            run @ 2..4 => run & !1,
            run => run,
        };
        let mut at = 0;
        while at < head {
            if masks[at] == 0 {
                at += 1;
                continue;
            }
            let (to, len) = (at as u16, length(at));
            // Whether there are more constants after the first operation, within eight bytes from here.
            let is_scattered = len < 8 && masks[at + len..head.min(at + 8)].iter().any(|mask| *mask != 0);
            if is_scattered && at + 8 <= head {
                let mask = u64::from_le_bytes(std::array::from_fn(|i| masks[at + i]));
                let data = self.data(&values[at..at + 8]);
                self.ops.push(Op::PutBits64 { at: to, data, mask });
                at += 8;
                continue;
            }
            let data = self.data(&values[at..at + len]);
            self.ops.push(match len {
                1 if masks[at] != 0xff => Op::PutBits { at: to, data, mask: masks[at] },
                1 => Op::Put8 { at: to, data },
                2 => Op::Put16 { at: to, data },
                4..=8 => Op::PutTo8 { at: to, data, len: len as u8 },
                _ => Op::PutTo16 { at: to, data, len: len as u8 },
            });
            at += len;
        }
    }
}

impl Image {
    fn put(&mut self, bit: usize, value: bool) {
        self.written[bit] = true;
        self.constants[bit] = Some(value);
    }

    fn overwrite(&mut self, bit: usize, width: usize) {
        self.written[bit..bit + width].fill(true);
        self.constants[bit..bit + width].fill(None);
    }

    /// The mask and the values of a byte's constant bits.
    fn byte(&self, at: usize) -> (u8, u8) {
        self.constants[at * 8..at * 8 + 8].iter().fold((0, 0), |(mask, value), bit| {
            (mask << 1 | u8::from(bit.is_some()), value << 1 | u8::from(*bit == Some(true)))
        })
    }
}

/// The offset of eight bytes that cover the bits and end at or before `end`, and the shift of the bits in them.
fn window(bit: usize, width: u8, end: usize) -> Option<(u16, u8)> {
    let at = (bit / 8).min(end.checked_sub(8)?);
    let shift = (at * 8 + 64).checked_sub(bit + usize::from(width))?;
    Some((at as u16, shift as u8))
}

fn store(bit: usize, width: u8, from: u8, head: usize) -> Op {
    let at = (bit / 8) as u16;
    match (bit % 8, width) {
        (0, 8) => Op::Store8 { from, at },
        (0, 16) => Op::Store16 { from, at },
        (0, 32) => Op::Store32 { from, at },
        (0, 64) => Op::Store64 { from, at },
        _ => match window(bit, width, head) {
            Some((at, shift)) => Op::Store { from, at, shift, width },
            None => Op::StoreBits { from, bit: bit as u16, width },
        },
    }
}
