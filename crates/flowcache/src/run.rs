//! Runs a rewrite on a frame.
//!
//! A [`Rewrite`] is a description. [`Prepared::new`] checks it once and translates it to operations, so that a run
//! needs no checks: first the computations, then the writes. The operations (the *shape*) are stored separately
//! from the constant bytes that they write, since many megaflows differ only in the latter. Writes never overwrite
//! what a later operation reads, with one exception (copies of bytes that earlier steps write). Such a rewrite
//! saves the received head first.
//!
//! Dispatching an operation costs a data-dependent jump, mostly more than the operation itself. So operations that
//! often occur together are fused (Proebsting, "Optimizing an ANSI C Interpreter with Superoperators", POPL 1995):
//! a checksum with its words, the decrement of a TTL, up to 16 constant bytes. A router's rewrite takes four.
//!
//! The new head ends where the received one ended. The payload after it never moves: a longer head grows into the
//! buffer's headroom.
//!
//! Tests: `run/tests.rs` compares with a bit-by-bit reference.

mod arithmetic;
mod fuse;
mod prepare;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ir::{BinOp, UnOp};

use crate::path::{Rewrite, WINDOW, Word};
use arithmetic::{add_carry, binary, fold, ones, unary};

/// An error in a rewrite.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// The head exceeds what may be rewritten.
    #[error("a head of {bytes} bytes; a rewriting covers at most {WINDOW}")]
    Head {
        /// Length of the head in bytes.
        bytes: usize,
    },
    /// A step reads or writes out of bounds.
    #[error("step {step}: {what} ends at bit {end}, behind the last one, {limit}")]
    Outside {
        /// Index of the step.
        step: usize,
        /// What the step does.
        what: &'static str,
        /// First bit after the range that it accesses.
        end: usize,
        /// Number of bits that exist.
        limit: usize,
    },
    /// A width is 0 or more than 64 bits.
    #[error("step {step}: a value of {width} bits; values have 1 to 64")]
    Width {
        /// Index of the step.
        step: usize,
        /// The width in bits.
        width: u8,
    },
    /// A register is read that no earlier step has set.
    #[error("step {step}: reads register {register}, which no step before it sets")]
    Unset {
        /// Index of the step.
        step: usize,
        /// The register.
        register: u8,
    },
    /// A word of a checksum starts at an odd offset.
    #[error("step {step}: a word of a sum begins at byte {at}, which is odd")]
    Odd {
        /// Index of the step.
        step: usize,
        /// The offset in bytes.
        at: u16,
    },
    /// A rewrite has too many computed values or operations.
    #[error("more than {limit} {what}")]
    Long {
        /// Name of the resource whose limit was exceeded.
        what: &'static str,
        /// The maximum number.
        limit: usize,
    },
    /// The head has another length than the received one, and the steps do not write all of its bits.
    #[error("the new head has another length than the received one, and no step writes its bit {bit}")]
    Unwritten {
        /// The first bit that is not written.
        bit: usize,
    },
}

/// An operation of 16 bytes. Offsets are in bytes: of the received frame for reads, of the new head for writes.
/// `shift` is the position of a value within the eight bytes at `at`, read as a big-endian number. Registers are
/// set once, before they are read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Op {
    Const {
        to: u8,
        value: u64,
    },
    Load {
        to: u8,
        at: u16,
        shift: u8,
        width: u8,
    },
    /// A load for which eight bytes are not available, or that covers parts of nine.
    LoadBits {
        to: u8,
        bit: u16,
        width: u8,
    },
    Binary {
        op: BinOp,
        to: u8,
        a: u8,
        b: u8,
        width: u8,
    },
    BinaryConst {
        op: BinOp,
        to: u8,
        a: u8,
        width: u8,
        b: u64,
    },
    AddConst {
        to: u8,
        a: u8,
        width: u8,
        b: u64,
    },
    Unary {
        op: UnOp,
        to: u8,
        a: u8,
        width: u8,
    },
    Select {
        to: u8,
        cond: u8,
        then: u8,
        other: u8,
    },
    /// `to` = `width` bits of the frame, plus `b` (modulo 2^`width`): a fused `Load` and `AddConst`.
    LoadAdd {
        to: u8,
        at: u16,
        shift: u8,
        width: u8,
        b: u64,
    },
    /// Adds a register to the sum that the next [`Op::Sum`] completes.
    SumValue {
        from: u8,
    },
    Sum(Sum),
    /// Copies bytes of the received head (`kept`: from its saved copy).
    Copy {
        from: u16,
        to: u16,
        len: u16,
        kept: bool,
    },
    /// Copies 4 to 8 (`CopyTo8`) or 8 to 16 bytes (`CopyTo16`): two loads, which may overlap, then two stores.
    CopyTo8 {
        from: u16,
        to: u16,
        len: u8,
    },
    CopyTo16 {
        from: u16,
        to: u16,
        len: u8,
    },
    Store8 {
        from: u8,
        at: u16,
    },
    Store16 {
        from: u8,
        at: u16,
    },
    Store32 {
        from: u8,
        at: u16,
    },
    Store64 {
        from: u8,
        at: u16,
    },
    Store {
        from: u8,
        at: u16,
        shift: u8,
        width: u8,
    },
    /// A store for which eight bytes are not available, or that covers parts of nine.
    StoreBits {
        from: u8,
        bit: u16,
        width: u8,
    },
    /// Writes bytes of the data (`Put8`, `Put16`: one or two).
    Put8 {
        at: u16,
        data: u16,
    },
    Put16 {
        at: u16,
        data: u16,
    },
    /// Writes 4 to 8, or 8 to 16 bytes of the data: two stores, which may overlap.
    PutTo8 {
        at: u16,
        data: u16,
        len: u8,
    },
    PutTo16 {
        at: u16,
        data: u16,
        len: u8,
    },
    /// Writes the bits of a byte under a mask.
    PutBits {
        at: u16,
        data: u16,
        mask: u8,
    },
    /// Writes the bits of eight bytes, read as a little-endian number, under a mask.
    PutBits64 {
        at: u16,
        data: u16,
        mask: u64,
    },
}

/// Completes a one's complement sum: of words of the frame, a shifted register, two bytes of the data, and the
/// preceding [`Op::SumValue`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sum {
    to: u8,
    /// The words are `words[first..][..count]` of the shape.
    count: u16,
    first: u16,
    /// Offset of the two bytes in the data; [`NOWHERE`] if there are none.
    data: u16,
    /// Offset in the head to which the 16 bits are written instead of to the register; [`NOWHERE`] if they are not.
    store: u16,
    /// Whether a register is added: the low `width` bits of `from << shift`.
    has_value: bool,
    from: u8,
    shift: u8,
    /// At most 64.
    width: u8,
    complements: bool,
}

/// An offset that is not used in a head, which has at most [`WINDOW`] bytes, or in the data, which has two more per
/// sum.
const NOWHERE: u16 = u16::MAX;

const _: () = assert!(size_of::<Op>() == 16, "four operations to a cache line");

/// A write, before constants are merged.
enum Write {
    Store { bit: usize, width: u8, from: u8 },
    Copy { from: usize, to: usize, len: usize },
}

/// The part of a rewrite that is shared by rewrites that differ only in the bytes that they write.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Shape {
    ops: Box<[Op]>,
    /// Words of sums. Where eight bytes are available, the mask applies to them as a big-endian number.
    words: Box<[Word]>,
    /// Number of bytes of the received head that are read or replaced.
    needs: u16,
    replaced: u16,
    head: u16,
    /// Number of registers.
    registers: u16,
    /// Whether copies need the saved received head.
    keeps: bool,
    max_len: u32,
}

/// The constant bytes that operations write: mostly few, so that they are in the megaflow's own cache line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Data {
    Here(u8, [u8; 30]),
    There(Box<[u8]>),
}

/// A rewrite that has been checked and translated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    shape: Arc<Shape>,
    data: Data,
}

const _: () = assert!(size_of::<Prepared>() == 40, "leaves 24 bytes of a cache line to a megaflow's payload");

impl Prepared {
    /// Checks and translates a rewrite.
    ///
    /// # Errors
    ///
    /// [`Wrong`] if the rewrite is invalid, such as a step that accesses bytes out of bounds or a register that has
    /// not been set.
    pub fn new(rewrite: &Rewrite) -> Result<Prepared, Wrong> {
        prepare::prepare(rewrite)
    }

    /// The minimum length of a frame in bytes; [`Prepared::run`] refuses shorter ones.
    pub fn needs(&self) -> usize {
        usize::from(self.shape.needs)
    }

    /// Whether frames are left unchanged.
    pub fn is_nothing(&self) -> bool {
        self.shape.ops.is_empty() && self.shape.replaced == self.shape.head
    }

    /// The number of bytes by which a frame grows (or shrinks, if negative).
    pub fn growth(&self) -> isize {
        self.shape.head as isize - self.shape.replaced as isize
    }

    /// The part that other rewrites may share.
    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Replaces the shape by an equal one.
    pub(crate) fn share(&mut self, shape: &Arc<Shape>) {
        debug_assert_eq!(self.shape, *shape, "the same operations");
        self.shape = Arc::clone(shape);
    }

    /// Rewrites the frame of `len` bytes at `buffer[offset..]`. Returns the new frame's offset and length.
    ///
    /// Returns `None` and changes nothing if the frame is shorter than the rewrite needs, the new one would be
    /// longer than allowed, or the buffer has no room for it.
    #[inline(always)]
    pub fn run(&self, buffer: &mut [u8], offset: usize, len: usize) -> Option<(usize, usize)> {
        let shape = &*self.shape;
        let (replaced, head) = (usize::from(shape.replaced), usize::from(shape.head));
        if len < self.needs() || buffer.len() < offset.checked_add(len)? {
            return None;
        }
        let start = (offset + replaced).checked_sub(head)?;
        let new_len = len - replaced + head;
        if new_len > shape.max_len as usize {
            return None;
        }
        match shape.registers {
            0..=8 if !shape.keeps => self.each::<8>(buffer, offset, start, &[]),
            _ => self.long(buffer, offset, start),
        }
        Some((start, new_len))
    }

    /// The path with many registers or a saved head. Separate, so that the common path has no large stack frame.
    #[inline(never)]
    fn long(&self, buffer: &mut [u8], offset: usize, start: usize) {
        let mut kept = [0; WINDOW];
        if self.shape.keeps {
            let needs = self.needs();
            kept[..needs].copy_from_slice(&buffer[offset..offset + needs]);
        }
        self.each::<256>(buffer, offset, start, &kept);
    }

    /// Runs all operations. Register numbers are below `REGISTERS`, a power of two. `prepare` has checked that all
    /// offsets are within the frame and that widths are 1 to 64.
    #[inline(always)]
    fn each<const REGISTERS: usize>(&self, buffer: &mut [u8], offset: usize, start: usize, kept: &[u8]) {
        let data: &[u8] = match &self.data {
            Data::Here(_, bytes) => bytes,
            Data::There(bytes) => bytes,
        };
        let mut machine = Machine::<REGISTERS> {
            registers: [0; REGISTERS],
            sum: 0,
            words: &self.shape.words,
            data,
            kept,
            offset,
            start,
        };
        let mut ops = self.shape.ops.iter();
        let mut next = ops.next();
        // Most rewrites consist of these operations in this order. A branch per kind is cheaper than an indirect
        // jump per operation.
        macro_rules! each {
            ($kind:pat) => {
                while let Some(op @ $kind) = next {
                    machine.run(op, buffer);
                    next = ops.next();
                }
            };
        }
        each!(Op::LoadAdd { .. });
        each!(Op::Sum(_));
        each!(Op::CopyTo16 { .. });
        each!(Op::Store8 { .. });
        each!(Op::PutTo16 { .. });
        each!(Op::PutTo8 { .. });
        while let Some(op) = next {
            machine.run(op, buffer);
            next = ops.next();
        }
    }
}

/// The state of a run, apart from the buffer.
struct Machine<'a, const REGISTERS: usize> {
    registers: [u64; REGISTERS],
    sum: u64,
    words: &'a [Word],
    data: &'a [u8],
    /// The saved received head.
    kept: &'a [u8],
    /// Offsets of the received frame and of the new head in the buffer.
    offset: usize,
    start: usize,
}

impl<const REGISTERS: usize> Machine<'_, REGISTERS> {
    #[inline(always)]
    fn run(&mut self, op: &Op, buffer: &mut [u8]) {
        let Machine { registers, sum, words, data, kept, offset, start } = self;
        let (offset, start) = (*offset, *start);
        macro_rules! register {
            ($r:expr) => {
                registers[usize::from($r) & (REGISTERS - 1)]
            };
        }
        match *op {
            Op::Const { to, value } => register!(to) = value,
            Op::Load { to, at, shift, width } => {
                register!(to) = word(buffer, offset + usize::from(at)) >> shift & ones(width);
            }
            Op::LoadBits { to, bit, width } => register!(to) = load_bits(&buffer[offset..], bit.into(), width),
            Op::Binary { op, to, a, b, width } => register!(to) = binary(op, register!(a), register!(b), width),
            Op::BinaryConst { op, to, a, width, b } => register!(to) = binary(op, register!(a), b, width),
            Op::AddConst { to, a, width, b } => register!(to) = register!(a).wrapping_add(b) & ones(width),
            Op::Unary { op, to, a, width } => register!(to) = unary(op, register!(a), width),
            Op::Select { to, cond, then, other } => {
                let (then, other) = (register!(then), register!(other));
                register!(to) = if register!(cond) != 0 { then } else { other };
            }
            Op::LoadAdd { to, at, shift, width, b } => {
                register!(to) = (word(buffer, offset + usize::from(at)) >> shift).wrapping_add(b) & ones(width);
            }
            Op::SumValue { from } => *sum = add_carry(*sum, register!(from)),
            Op::Sum(Sum { to, count, first, data: at, store, has_value, from, shift, width, complements }) => {
                let words = words.get(usize::from(first)..).unwrap_or_default();
                for Word { at, mask } in words.iter().take(count.into()) {
                    *sum = add_carry(*sum, word(buffer, offset + usize::from(*at)) & mask);
                }
                if has_value {
                    *sum = add_carry(*sum, register!(from) << (shift & 63) & ones(width));
                }
                if at != NOWHERE {
                    let [high, low] = bytes(data, at);
                    *sum = add_carry(*sum, u16::from_be_bytes([high, low]).into());
                }
                let value = if complements { !fold(*sum) & 0xffff } else { fold(*sum) };
                *sum = 0;
                match store {
                    NOWHERE => register!(to) = value,
                    _ => put(buffer, start + usize::from(store), (value as u16).to_be_bytes()),
                }
            }
            Op::Copy { from, to, len, kept: from_kept } => {
                let (from, to, len) = (usize::from(from), start + usize::from(to), usize::from(len));
                if from_kept {
                    buffer[to..to + len].copy_from_slice(&kept[from..from + len]);
                } else {
                    buffer.copy_within(offset + from..offset + from + len, to);
                }
            }
            Op::Store8 { from, at } => buffer[start + usize::from(at)] = register!(from) as u8,
            Op::Store16 { from, at } => put(buffer, start + usize::from(at), (register!(from) as u16).to_be_bytes()),
            Op::Store32 { from, at } => put(buffer, start + usize::from(at), (register!(from) as u32).to_be_bytes()),
            Op::Store64 { from, at } => put(buffer, start + usize::from(at), register!(from).to_be_bytes()),
            Op::Store { from, at, shift, width } => {
                blend(buffer, start + usize::from(at), register!(from), shift, width);
            }
            Op::StoreBits { from, bit, width } => {
                store_bits(&mut buffer[start..], bit.into(), width, register!(from));
            }
            Op::CopyTo8 { from, to, len } => {
                copy::<4>(buffer, offset + usize::from(from), start + usize::from(to), len);
            }
            Op::CopyTo16 { from, to, len } => {
                copy::<8>(buffer, offset + usize::from(from), start + usize::from(to), len);
            }
            Op::Put8 { at, data: from } => put::<1>(buffer, start + usize::from(at), bytes(data, from)),
            Op::Put16 { at, data: from } => put::<2>(buffer, start + usize::from(at), bytes(data, from)),
            Op::PutTo8 { at, data: from, len } => put_ends::<4>(buffer, start + usize::from(at), data, from, len),
            Op::PutTo16 { at, data: from, len } => put_ends::<8>(buffer, start + usize::from(at), data, from, len),
            Op::PutBits64 { at, data: from, mask } => {
                let at = start + usize::from(at);
                let new = word(buffer, at).swap_bytes() & !mask | u64::from_le_bytes(bytes(data, from));
                put(buffer, at, new.to_le_bytes());
            }
            Op::PutBits { at, data: from, mask } => {
                let byte = &mut buffer[start + usize::from(at)];
                *byte = *byte & !mask | data[usize::from(from)];
            }
        }
    }
}

/// Reads bytes of the data.
#[inline(always)]
fn bytes<const N: usize>(data: &[u8], at: u16) -> [u8; N] {
    load(data, at.into())
}

#[inline(always)]
fn load<const N: usize>(buffer: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&buffer[at..at + N]);
    bytes
}

/// Reads eight bytes as a big-endian number.
#[inline(always)]
fn word(buffer: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(load(buffer, at))
}

#[inline(always)]
fn put<const N: usize>(buffer: &mut [u8], at: usize, bytes: [u8; N]) {
    buffer[at..at + N].copy_from_slice(&bytes);
}

/// Copies `N` to `2 * N` bytes: the first `N` and the last `N`.
#[inline(always)]
fn copy<const N: usize>(buffer: &mut [u8], from: usize, to: usize, len: u8) {
    let last = usize::from(len) - N;
    let (first, second): ([u8; N], [u8; N]) = (load(buffer, from), load(buffer, from + last));
    put(buffer, to, first);
    put(buffer, to + last, second);
}

/// Writes `N` to `2 * N` bytes of the data, likewise.
#[inline(always)]
fn put_ends<const N: usize>(buffer: &mut [u8], at: usize, data: &[u8], from: u16, len: u8) {
    let last = usize::from(len) - N;
    let (first, second): ([u8; N], [u8; N]) = (load(data, from.into()), load(data, usize::from(from) + last));
    put(buffer, at, first);
    put(buffer, at + last, second);
}

/// Replaces `width` bits of eight bytes, read as a big-endian number.
#[inline(always)]
fn blend(buffer: &mut [u8], at: usize, value: u64, shift: u8, width: u8) {
    let mask = ones(width) << shift;
    let new = word(buffer, at) & !mask | value << shift & mask;
    put(buffer, at, new.to_be_bytes());
}

/// Reads `width` bits starting at bit `bit`.
fn load_bits(bytes: &[u8], bit: usize, width: u8) -> u64 {
    let end = bit + usize::from(width);
    let value = bytes[bit / 8..end.div_ceil(8)].iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    (value >> (end.div_ceil(8) * 8 - end)) as u64 & ones(width)
}

/// Replaces `width` bits starting at bit `bit`.
fn store_bits(bytes: &mut [u8], bit: usize, width: u8, value: u64) {
    let end = bit + usize::from(width);
    let covered = &mut bytes[bit / 8..end.div_ceil(8)];
    let shift = end.div_ceil(8) * 8 - end;
    let mask = u128::from(ones(width)) << shift;
    let old = covered.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    let new = old & !mask | u128::from(value) << shift & mask;
    for (i, byte) in covered.iter_mut().rev().enumerate() {
        *byte = (new >> (8 * i)) as u8;
    }
}
