//! BPF instructions: encoded and decoded form.
//!
//! The encoding is that of the "BPF Instruction Set Architecture (ISA)" (RFC 9669). Verifier, interpreter and compiler
//! use [`Op`] only. Instructions are numbered in units of eight bytes, as by `llvm-objdump`, so that the second half of
//! a 64-bit immediate load has its own number ([`Op::Second`]).

use std::fmt;

/// The length of an encoded instruction in bytes.
pub const INSTRUCTION_BYTES: usize = 8;
/// The number of registers: `r0` to `r9` and the frame pointer `r10`.
pub const REGISTERS: usize = 11;
/// The frame pointer.
pub const FRAME_POINTER: usize = 10;

/// An encoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Instruction {
    /// The opcode: class, operation and source or size.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset of a memory access or a jump.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Instruction {
    /// Decodes the eight bytes of an instruction, little endian.
    pub fn decode(bytes: [u8; INSTRUCTION_BYTES]) -> Instruction {
        let [code, registers, off0, off1, imm0, imm1, imm2, imm3] = bytes;
        Instruction {
            code,
            dst: registers & 0xf,
            src: registers >> 4,
            off: i16::from_le_bytes([off0, off1]),
            imm: i32::from_le_bytes([imm0, imm1, imm2, imm3]),
        }
    }

    /// Encodes the instruction in eight bytes.
    pub fn encode(self) -> [u8; INSTRUCTION_BYTES] {
        let [off0, off1] = self.off.to_le_bytes();
        let [imm0, imm1, imm2, imm3] = self.imm.to_le_bytes();
        [self.code, self.src << 4 | self.dst & 0xf, off0, off1, imm0, imm1, imm2, imm3]
    }
}

/// Opcodes and their fields.
pub mod code {
    /// Class: non-standard loads, here of 64-bit immediates.
    pub const LD: u8 = 0;
    /// Class: loads into registers.
    pub const LDX: u8 = 1;
    /// Class: stores of immediates.
    pub const ST: u8 = 2;
    /// Class: stores of registers.
    pub const STX: u8 = 3;
    /// Class: 32-bit arithmetic.
    pub const ALU: u8 = 4;
    /// Class: jumps that compare 64 bits.
    pub const JMP: u8 = 5;
    /// Class: jumps that compare 32 bits.
    pub const JMP32: u8 = 6;
    /// Class: 64-bit arithmetic.
    pub const ALU64: u8 = 7;
    /// Source: a register instead of the immediate.
    pub const X: u8 = 8;
    /// Mode: regular loads and stores.
    pub const MEM: u8 = 0x60;
    /// Mode: atomic operations.
    pub const ATOMIC: u8 = 0xc0;
    /// Loads a 64-bit immediate.
    pub const LD_IMM64: u8 = 0x18;
    /// `src` of [`LD_IMM64`]: the immediate is the number of a map.
    pub const PSEUDO_MAP: u8 = 1;
    /// `src` of [`LD_IMM64`]: the immediate is an address in the value of an array map with one entry.
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    /// `src` of a call: calls a function of the program.
    pub const PSEUDO_CALL: u8 = 1;
    /// Call.
    pub const CALL: u8 = 0x85;
    /// Return.
    pub const EXIT: u8 = 0x95;
    /// Unconditional jump.
    pub const JA: u8 = 0x05;
}

/// Arithmetic operations with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
    Mov,
    Arsh,
}

impl Alu {
    /// All operations, in the order of their codes; negation and byte swaps, whose codes are between these, are
    /// separate.
    pub const ALL: [Alu; 12] = [
        Alu::Add,
        Alu::Sub,
        Alu::Mul,
        Alu::Div,
        Alu::Or,
        Alu::And,
        Alu::Lsh,
        Alu::Rsh,
        Alu::Mod,
        Alu::Xor,
        Alu::Mov,
        Alu::Arsh,
    ];

    /// The upper four bits of the opcode.
    pub fn code(self) -> u8 {
        match self {
            Alu::Add => 0x00,
            Alu::Sub => 0x10,
            Alu::Mul => 0x20,
            Alu::Div => 0x30,
            Alu::Or => 0x40,
            Alu::And => 0x50,
            Alu::Lsh => 0x60,
            Alu::Rsh => 0x70,
            Alu::Mod => 0x90,
            Alu::Xor => 0xa0,
            Alu::Mov => 0xb0,
            Alu::Arsh => 0xc0,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Alu::Add => "+=",
            Alu::Sub => "-=",
            Alu::Mul => "*=",
            Alu::Div => "/=",
            Alu::Or => "|=",
            Alu::And => "&=",
            Alu::Lsh => "<<=",
            Alu::Rsh => ">>=",
            Alu::Mod => "%=",
            Alu::Xor => "^=",
            Alu::Mov => "=",
            Alu::Arsh => "s>>=",
        }
    }
}

/// Conditions of branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Condition {
    Eq,
    Gt,
    Ge,
    Set,
    Ne,
    SGt,
    SGe,
    Lt,
    Le,
    SLt,
    SLe,
}

impl Condition {
    /// All conditions, in the order of their codes.
    pub const ALL: [Condition; 11] = [
        Condition::Eq,
        Condition::Gt,
        Condition::Ge,
        Condition::Set,
        Condition::Ne,
        Condition::SGt,
        Condition::SGe,
        Condition::Lt,
        Condition::Le,
        Condition::SLt,
        Condition::SLe,
    ];

    /// The upper four bits of the opcode.
    pub fn code(self) -> u8 {
        match self {
            Condition::Eq => 0x10,
            Condition::Gt => 0x20,
            Condition::Ge => 0x30,
            Condition::Set => 0x40,
            Condition::Ne => 0x50,
            Condition::SGt => 0x60,
            Condition::SGe => 0x70,
            Condition::Lt => 0xa0,
            Condition::Le => 0xb0,
            Condition::SLt => 0xc0,
            Condition::SLe => 0xd0,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Condition::Eq => "==",
            Condition::Gt => ">",
            Condition::Ge => ">=",
            Condition::Set => "&",
            Condition::Ne => "!=",
            Condition::SGt => "s>",
            Condition::SGe => "s>=",
            Condition::Lt => "<",
            Condition::Le => "<=",
            Condition::SLt => "s<",
            Condition::SLe => "s<=",
        }
    }
}

/// The size of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Size {
    B1,
    B2,
    B4,
    B8,
}

impl Size {
    /// The size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }

    /// Bits 3 and 4 of the opcode.
    pub fn code(self) -> u8 {
        match self {
            Size::B4 => 0x00,
            Size::B2 => 0x08,
            Size::B1 => 0x10,
            Size::B8 => 0x18,
        }
    }

    fn of(code: u8) -> Size {
        match code & 0x18 {
            0x00 => Size::B4,
            0x08 => Size::B2,
            0x10 => Size::B1,
            _ => Size::B8,
        }
    }
}

/// Atomic operations on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds.
    Add,
    /// Or.
    Or,
    /// And.
    And,
    /// Exclusive or.
    Xor,
    /// Exchange, which always fetches the old value.
    Exchange,
    /// Compare-and-exchange: stores the operand if the memory equals `r0`; `r0` becomes the old value.
    CompareExchange,
}

/// A second operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A register.
    Register(u8),
    /// An immediate, sign-extended.
    Immediate(i32),
}

/// A 64-bit immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constant {
    /// A number.
    Number(u64),
    /// The handle of a map, by the map's number in the object.
    Map(u32),
    /// An address in the only value of an array map with one entry.
    MapValue {
        /// The map's number in the object.
        map: u32,
        /// Offset in the value.
        offset: u32,
    },
}

/// A decoded instruction. Targets of jumps and calls are instruction numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// `dst op= src` on 64 bits, or on 32 bits with the upper half zeroed.
    Alu {
        /// Whether on 64 bits.
        wide: bool,
        /// The operation.
        alu: Alu,
        /// Destination and first operand.
        dst: u8,
        /// Second operand.
        src: Operand,
    },
    /// `dst = -dst`.
    Neg {
        /// Whether on 64 bits.
        wide: bool,
        /// The register.
        dst: u8,
    },
    /// Truncates to the lowest bits and converts their byte order.
    Swap {
        /// To big endian; otherwise to little endian, which only truncates.
        big: bool,
        /// The width: 16, 32 or 64 bits.
        bits: u8,
        /// The register.
        dst: u8,
    },
    /// `dst = constant`.
    LoadImmediate {
        /// Destination.
        dst: u8,
        /// The constant.
        constant: Constant,
    },
    /// The second half of [`Op::LoadImmediate`]; never executed.
    Second,
    /// `dst = *(base + off)`, zero-extended.
    Load {
        /// The size of the access.
        size: Size,
        /// Destination.
        dst: u8,
        /// The register with the address.
        base: u8,
        /// The offset added to the address.
        off: i16,
    },
    /// `*(base + off) = src`.
    Store {
        /// The size of the access.
        size: Size,
        /// The register with the address.
        base: u8,
        /// The offset added to the address.
        off: i16,
        /// The value stored.
        src: Operand,
    },
    /// An atomic operation on `*(base + off)`.
    Atomic {
        /// The operation.
        atomic: Atomic,
        /// Whether on eight bytes; otherwise on four.
        wide: bool,
        /// Whether `src` (for compare-and-exchange `r0`) becomes the old value.
        fetch: bool,
        /// The register with the address.
        base: u8,
        /// The offset added to the address.
        off: i16,
        /// The operand.
        src: u8,
    },
    /// An unconditional jump.
    Jump {
        /// Target.
        to: usize,
    },
    /// A conditional jump.
    Branch {
        /// Whether 64 bits are compared; otherwise the lower 32.
        wide: bool,
        /// The condition.
        condition: Condition,
        /// First operand.
        dst: u8,
        /// Second operand.
        src: Operand,
        /// Target.
        to: usize,
    },
    /// A call of a helper.
    Call {
        /// The helper's number in `linux/bpf.h`.
        helper: i32,
    },
    /// A call of a function of the program.
    CallLocal {
        /// The function's first instruction.
        to: usize,
    },
    /// A return from the current function.
    Exit,
}

/// Decodes linked instructions. An error is the number of an instruction and what is wrong with it.
pub(crate) fn decode(code: &[Instruction]) -> Result<Vec<Op>, (usize, String)> {
    let mut ops = Vec::with_capacity(code.len());
    let mut second = false;
    for (number, instruction) in code.iter().enumerate() {
        if second {
            second = false;
            ops.push(Op::Second);
            continue;
        }
        let op = decode_one(code, number, *instruction).map_err(|reason| (number, reason))?;
        second = matches!(op, Op::LoadImmediate { .. });
        ops.push(op);
    }
    for (number, op) in ops.iter().enumerate() {
        if let Op::Jump { to } | Op::Branch { to, .. } | Op::CallLocal { to } = op
            && matches!(ops[*to], Op::Second)
        {
            return Err((number, format!("the target {to} is the second half of a 64-bit immediate load")));
        }
    }
    Ok(ops)
}

fn decode_one(all: &[Instruction], number: usize, i: Instruction) -> Result<Op, String> {
    use code::*;
    let unknown = || format!("instruction code {:#04x} is not supported", i.code);
    let reserved = |unused: bool, what: &str| match unused {
        true => Ok(()),
        false => Err(format!("{what} is reserved for this instruction and must be 0")),
    };
    let register = |r: u8| match (r as usize) < REGISTERS {
        true => Ok(r),
        false => Err(format!("there is no register r{r}")),
    };
    let writable = |r: u8| match register(r)? as usize {
        FRAME_POINTER => Err("r10 is the frame pointer and cannot be written".to_string()),
        _ => Ok(r),
    };
    let target = |off: i64| {
        let to = number as i64 + 1 + off;
        match usize::try_from(to) {
            Ok(to) if to < all.len() => Ok(to),
            _ => Err(format!("the target {to} is outside the program")),
        }
    };
    let operand = || match i.code & X {
        0 => reserved(i.src == 0, "the source register").map(|()| Operand::Immediate(i.imm)),
        _ => reserved(i.imm == 0, "the immediate").and_then(|()| Ok(Operand::Register(register(i.src)?))),
    };
    match i.code & 7 {
        LD => {
            if i.code != LD_IMM64 {
                return Err(format!("{}: legacy packet loads are not supported; read through `data`", unknown()));
            }
            let Some(next) = all.get(number + 1) else {
                return Err("the second half of the 64-bit immediate is missing".to_string());
            };
            if next.code != 0 || next.dst != 0 || next.src != 0 || next.off != 0 {
                return Err("the second half of the 64-bit immediate is not one".to_string());
            }
            reserved(i.off == 0, "the offset")?;
            let constant = match i.src {
                0 => Constant::Number(i.imm as u32 as u64 | (next.imm as u32 as u64) << 32),
                PSEUDO_MAP => Constant::Map(i.imm as u32),
                PSEUDO_MAP_VALUE => Constant::MapValue { map: i.imm as u32, offset: next.imm as u32 },
                other => return Err(format!("64-bit immediates of kind {other} are not supported")),
            };
            Ok(Op::LoadImmediate { dst: writable(i.dst)?, constant })
        }
        LDX if i.code & 0xe0 == MEM => {
            reserved(i.imm == 0, "the immediate")?;
            Ok(Op::Load { size: Size::of(i.code), dst: writable(i.dst)?, base: register(i.src)?, off: i.off })
        }
        ST if i.code & 0xe0 == MEM => {
            reserved(i.src == 0, "the source register")?;
            let src = Operand::Immediate(i.imm);
            Ok(Op::Store { size: Size::of(i.code), base: register(i.dst)?, off: i.off, src })
        }
        STX if i.code & 0xe0 == MEM => {
            reserved(i.imm == 0, "the immediate")?;
            let src = Operand::Register(register(i.src)?);
            Ok(Op::Store { size: Size::of(i.code), base: register(i.dst)?, off: i.off, src })
        }
        STX if i.code & 0xe0 == ATOMIC => {
            let wide = match Size::of(i.code) {
                Size::B4 => false,
                Size::B8 => true,
                _ => return Err("atomic operations are on 4 or 8 bytes".to_string()),
            };
            let atomic = match i.imm & !1 {
                0x00 => Atomic::Add,
                0x40 => Atomic::Or,
                0x50 => Atomic::And,
                0xa0 => Atomic::Xor,
                0xe0 if i.imm & 1 == 1 => Atomic::Exchange,
                0xf0 if i.imm & 1 == 1 => Atomic::CompareExchange,
                _ => return Err(format!("there is no atomic operation {:#x}", i.imm)),
            };
            let fetch = i.imm & 1 == 1;
            let src = match fetch && atomic != Atomic::CompareExchange {
                true => writable(i.src)?,
                false => register(i.src)?,
            };
            Ok(Op::Atomic { atomic, wide, fetch, base: register(i.dst)?, off: i.off, src })
        }
        class @ (ALU | ALU64) => {
            let wide = class == ALU64;
            reserved(i.off == 0, "the offset")?;
            let dst = writable(i.dst)?;
            match i.code & 0xf0 {
                0x80 => {
                    reserved(i.code & X == 0 && i.src == 0 && i.imm == 0, "the operand")?;
                    Ok(Op::Neg { wide, dst })
                }
                0xd0 => {
                    if wide {
                        return Err(unknown());
                    }
                    let bits = match i.imm {
                        16 | 32 | 64 => i.imm as u8,
                        other => return Err(format!("byte swaps are of 16, 32 or 64 bits, not {other}")),
                    };
                    reserved(i.src == 0, "the source register")?;
                    Ok(Op::Swap { big: i.code & X != 0, bits, dst })
                }
                high => {
                    let alu = Alu::ALL.into_iter().find(|alu| alu.code() == high).ok_or_else(unknown)?;
                    Ok(Op::Alu { wide, alu, dst, src: operand()? })
                }
            }
        }
        JMP if i.code == JA => {
            reserved(i.dst == 0 && i.src == 0 && i.imm == 0, "all but the offset")?;
            Ok(Op::Jump { to: target(i.off.into())? })
        }
        JMP if i.code == CALL => {
            reserved(i.dst == 0 && i.off == 0, "all but the immediate")?;
            match i.src {
                0 => Ok(Op::Call { helper: i.imm }),
                PSEUDO_CALL => Ok(Op::CallLocal { to: target(i.imm.into())? }),
                other => Err(format!("calls of kind {other} are not supported")),
            }
        }
        JMP if i.code == EXIT => {
            reserved(i.dst == 0 && i.src == 0 && i.off == 0 && i.imm == 0, "every field")?;
            Ok(Op::Exit)
        }
        class @ (JMP | JMP32) => {
            let high = i.code & 0xf0;
            let condition = Condition::ALL.into_iter().find(|c| c.code() == high).ok_or_else(unknown)?;
            let (dst, src) = (register(i.dst)?, operand()?);
            Ok(Op::Branch { wide: class == JMP, condition, dst, src, to: target(i.off.into())? })
        }
        _ => Err(unknown()),
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Register(r) => write!(f, "r{r}"),
            Operand::Immediate(i) => write!(f, "{i}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |wide: bool| if wide { 'r' } else { 'w' };
        let narrow = |operand: &Operand, wide: bool| match operand {
            Operand::Register(r) => format!("{}{r}", letter(wide)),
            Operand::Immediate(i) => i.to_string(),
        };
        match self {
            Op::Alu { wide, alu, dst, src } => {
                write!(f, "{}{dst} {} {}", letter(*wide), alu.symbol(), narrow(src, *wide))
            }
            Op::Neg { wide, dst } => write!(f, "{0}{dst} = -{0}{dst}", letter(*wide)),
            Op::Swap { big, bits, dst } => write!(f, "r{dst} = {}{bits} r{dst}", if *big { "be" } else { "le" }),
            Op::LoadImmediate { dst, constant } => match constant {
                Constant::Number(n) => write!(f, "r{dst} = {n:#x} ll"),
                Constant::Map(map) => write!(f, "r{dst} = map {map}"),
                Constant::MapValue { map, offset } => write!(f, "r{dst} = map {map} value + {offset}"),
            },
            Op::Second => f.write_str("second half of a 64-bit immediate"),
            Op::Load { size, dst, base, off } => write!(f, "r{dst} = *(u{} *)(r{base} {off:+})", size.bytes() * 8),
            Op::Store { size, base, off, src } => write!(f, "*(u{} *)(r{base} {off:+}) = {src}", size.bytes() * 8),
            Op::Atomic { atomic, wide, fetch, base, off, src } => {
                let bits = if *wide { 64 } else { 32 };
                let fetch = if *fetch { " fetch" } else { "" };
                write!(f, "lock{fetch} {atomic:?} *(u{bits} *)(r{base} {off:+}), r{src}")
            }
            Op::Jump { to } => write!(f, "goto {to}"),
            Op::Branch { wide, condition, dst, src, to } => {
                let (letter, src) = (letter(*wide), narrow(src, *wide));
                write!(f, "if {letter}{dst} {} {src} goto {to}", condition.symbol())
            }
            Op::Call { helper } => match crate::helper::Helper::of(*helper) {
                Some(helper) => write!(f, "call {}", helper.name()),
                None => write!(f, "call {helper}"),
            },
            Op::CallLocal { to } => write!(f, "call {to}"),
            Op::Exit => f.write_str("exit"),
        }
    }
}
