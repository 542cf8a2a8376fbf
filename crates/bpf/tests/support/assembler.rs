//! Instructions as Rust values. Jumps are relative, counted in items' instructions as in the encoding.

use bpf::encoding as code;
use bpf::{Alu, Condition, Instruction};

/// A register.
pub type R = u8;
/// Sizes of accesses, as they are encoded.
pub const B: u8 = 0x10;
/// Two bytes.
pub const H: u8 = 0x08;
/// Four bytes.
pub const W: u8 = 0x00;
/// Eight bytes.
pub const D: u8 = 0x18;

/// One or two instructions, and what they refer to.
#[derive(Clone, Debug)]
pub enum Item {
    /// An instruction.
    One(Instruction),
    /// A 64-bit immediate.
    Wide(R, u64),
    /// The address of a map or, with an offset, of data.
    Symbol(R, &'static str, i32),
    /// A call of a function by name.
    Call(&'static str),
}

/// Number of instructions.
pub fn len(items: &[Item]) -> usize {
    items.iter().map(|item| if matches!(item, Item::Wide(..) | Item::Symbol(..)) { 2 } else { 1 }).sum()
}

/// Any instruction.
pub fn raw(code: u8, dst: R, src: R, off: i16, imm: i32) -> Item {
    Item::One(Instruction { code, dst, src, off, imm })
}

/// `dst op= imm` on 64 bits.
pub fn alu(op: Alu, dst: R, imm: i32) -> Item {
    raw(op.code() | code::ALU64, dst, 0, 0, imm)
}

/// `dst op= src` on 64 bits.
pub fn alu_r(op: Alu, dst: R, src: R) -> Item {
    raw(op.code() | code::ALU64 | code::X, dst, src, 0, 0)
}

/// `dst op= imm` on 32 bits.
pub fn alu32(op: Alu, dst: R, imm: i32) -> Item {
    raw(op.code() | code::ALU, dst, 0, 0, imm)
}

/// `dst op= src` on 32 bits.
pub fn alu32_r(op: Alu, dst: R, src: R) -> Item {
    raw(op.code() | code::ALU | code::X, dst, src, 0, 0)
}

/// `dst = imm`.
pub fn mov(dst: R, imm: i32) -> Item {
    alu(Alu::Mov, dst, imm)
}

/// `dst = src`.
pub fn mov_r(dst: R, src: R) -> Item {
    alu_r(Alu::Mov, dst, src)
}

/// `dst += imm`.
pub fn add(dst: R, imm: i32) -> Item {
    alu(Alu::Add, dst, imm)
}

/// `dst += src`.
pub fn add_r(dst: R, src: R) -> Item {
    alu_r(Alu::Add, dst, src)
}

/// `dst = -dst`.
pub fn neg(dst: R) -> Item {
    raw(0x87, dst, 0, 0, 0)
}

/// `dst = be(dst)`.
pub fn big(dst: R, bits: i32) -> Item {
    raw(0xdc, dst, 0, 0, bits)
}

/// `dst = *(base + off)`.
pub fn ldx(size: u8, dst: R, base: R, off: i16) -> Item {
    raw(code::LDX | code::MEM | size, dst, base, off, 0)
}

/// `*(base + off) = src`.
pub fn stx(size: u8, base: R, off: i16, src: R) -> Item {
    raw(code::STX | code::MEM | size, base, src, off, 0)
}

/// `*(base + off) = imm`.
pub fn st(size: u8, base: R, off: i16, imm: i32) -> Item {
    raw(code::ST | code::MEM | size, base, 0, off, imm)
}

/// An atomic operation by its code.
pub fn atomic(size: u8, base: R, off: i16, src: R, operation: i32) -> Item {
    raw(code::STX | code::ATOMIC | size, base, src, off, operation)
}

/// `if dst condition imm goto +off`.
pub fn j(condition: Condition, dst: R, imm: i32, off: i16) -> Item {
    raw(condition.code() | code::JMP, dst, 0, off, imm)
}

/// `if dst condition src goto +off`.
pub fn j_r(condition: Condition, dst: R, src: R, off: i16) -> Item {
    raw(condition.code() | code::JMP | code::X, dst, src, off, 0)
}

/// As `j`, on 32 bits.
pub fn j32(condition: Condition, dst: R, imm: i32, off: i16) -> Item {
    raw(condition.code() | code::JMP32, dst, 0, off, imm)
}

/// `goto +off`.
pub fn ja(off: i16) -> Item {
    raw(code::JA, 0, 0, off, 0)
}

/// Calls a helper.
pub fn call(helper: i32) -> Item {
    raw(code::CALL, 0, 0, 0, helper)
}

/// Calls a function of the object.
pub fn call_function(name: &'static str) -> Item {
    Item::Call(name)
}

/// `dst = imm` of 64 bits.
pub fn wide(dst: R, imm: u64) -> Item {
    Item::Wide(dst, imm)
}

/// `dst = map`.
pub fn map(dst: R, name: &'static str) -> Item {
    Item::Symbol(dst, name, 0)
}

/// `dst = &data + off`.
pub fn data(dst: R, name: &'static str, off: i32) -> Item {
    Item::Symbol(dst, name, off)
}

/// Returns.
pub fn exit() -> Item {
    raw(code::EXIT, 0, 0, 0, 0)
}
