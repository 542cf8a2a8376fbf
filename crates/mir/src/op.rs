//! Instructions and terminators: operands, results and effects.
//!
//! To add an instruction, add it here; the compiler then reports every match that must handle it: `print`, `parse`,
//! `verify`, `interpreter`, `generate`, the passes, and the lowering of crate `codegen`.

use crate::types::{Block, ByteOrder, Effects, FunctionId, Region, Regions, RuntimeId, Slot, TableId, Value};

/// Operations on one integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// Two's complement.
    Neg,
    /// Bitwise complement.
    Not,
    /// Bytes in reverse order; not for `i1` and `i8`.
    ByteSwap,
    /// Number of zero bits above the highest set bit; the width if there is none.
    LeadingZeros,
    /// Number of zero bits below the lowest set bit; the width if there is none.
    TrailingZeros,
}

/// Operations on two integers of one type, modulo its width.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Lower half of the product.
    Mul,
    /// Upper half of the unsigned product; only for `i64`.
    MulHigh,
    /// Unsigned quotient; 0 if the divisor is zero.
    Div,
    /// Unsigned remainder; the dividend if the divisor is zero.
    Rem,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Left shift, by the amount modulo the width.
    Shl,
    /// Logical right shift, likewise.
    Shr,
    /// Arithmetic right shift, likewise.
    Sar,
    /// Left rotation, likewise.
    Rotl,
}

/// Comparisons of two integers of one type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Condition {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

/// Conversions between integer types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cast {
    /// Truncation to a narrower type.
    Trunc,
    /// Zero extension to a wider type.
    Zext,
    /// Sign extension to a wider type.
    Sext,
}

/// How an atomic operation computes the new value from the old one and its operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// The sum.
    Add,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The operand.
    Exchange,
}

impl Unary {
    /// All, with their names.
    pub const ALL: [(Unary, &'static str); 5] = [
        (Unary::Neg, "neg"),
        (Unary::Not, "not"),
        (Unary::ByteSwap, "bswap"),
        (Unary::LeadingZeros, "clz"),
        (Unary::TrailingZeros, "ctz"),
    ];
}

impl Binary {
    /// All, with their names.
    pub const ALL: [(Binary, &'static str); 13] = [
        (Binary::Add, "add"),
        (Binary::Sub, "sub"),
        (Binary::Mul, "mul"),
        (Binary::MulHigh, "mulhi"),
        (Binary::Div, "div"),
        (Binary::Rem, "rem"),
        (Binary::And, "and"),
        (Binary::Or, "or"),
        (Binary::Xor, "xor"),
        (Binary::Shl, "shl"),
        (Binary::Shr, "shr"),
        (Binary::Sar, "sar"),
        (Binary::Rotl, "rotl"),
    ];

    /// Whether the operands may change places.
    pub fn is_commutative(self) -> bool {
        matches!(self, Binary::Add | Binary::Mul | Binary::MulHigh | Binary::And | Binary::Or | Binary::Xor)
    }
}

impl Condition {
    /// All, with their names.
    pub const ALL: [(Condition, &'static str); 10] = [
        (Condition::Eq, "eq"),
        (Condition::Ne, "ne"),
        (Condition::Ult, "ult"),
        (Condition::Ule, "ule"),
        (Condition::Ugt, "ugt"),
        (Condition::Uge, "uge"),
        (Condition::Slt, "slt"),
        (Condition::Sle, "sle"),
        (Condition::Sgt, "sgt"),
        (Condition::Sge, "sge"),
    ];
}

impl Cast {
    /// All, with their names.
    pub const ALL: [(Cast, &'static str); 3] = [(Cast::Trunc, "trunc"), (Cast::Zext, "zext"), (Cast::Sext, "sext")];
}

impl Atomic {
    /// All, with their names.
    pub const ALL: [(Atomic, &'static str); 5] = [
        (Atomic::Add, "add"),
        (Atomic::And, "and"),
        (Atomic::Or, "or"),
        (Atomic::Xor, "xor"),
        (Atomic::Exchange, "xchg"),
    ];
}

/// An address in memory: a base and a constant offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The base, an `i64`.
    pub base: Value,
    /// Offset in bytes.
    pub offset: i32,
}

/// The properties of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The regions in which it may lie.
    pub regions: Regions,
    /// Size in bytes: 1 to 8, or 16.
    pub bytes: u8,
    /// Byte order.
    pub order: ByteOrder,
}

impl Access {
    /// An access with the least significant byte first.
    pub fn little(regions: impl Into<Regions>, bytes: u8) -> Access {
        Access { regions: regions.into(), bytes, order: ByteOrder::Little }
    }

    /// An access in network order.
    pub fn big(regions: impl Into<Regions>, bytes: u8) -> Access {
        Access { regions: regions.into(), bytes, order: ByteOrder::Big }
    }
}

/// A bit field of a packed integer: the lowest `width` bits of a value, shifted left by `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// An integer of at least `width` bits.
    pub value: Value,
    /// Number of bits.
    pub width: u8,
    /// Position of the lowest bit.
    pub offset: u8,
}

/// The target of a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// A function of the runtime.
    Runtime(RuntimeId),
    /// A function of the module.
    Function(FunctionId),
}

/// An operation. The type of its result is that of [`Instruction::result`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A constant, less than 2 to the power of the type's width.
    Const(u128),
    /// See [`Unary`].
    Unary(Unary, Value),
    /// See [`Binary`].
    Binary(Binary, Value, Value),
    /// An `i1`: whether the condition holds.
    Compare(Condition, Value, Value),
    /// The first value (an `i1`) chooses between the second, if set, and the third.
    Select(Value, Value, Value),
    /// See [`Cast`].
    Cast(Cast, Value),
    /// Disjoint bit fields joined into an integer; other bits are zero. Used to build keys, hashed data and adjacent
    /// fields.
    Pack(Vec<Part>),
    /// The hash function of exact tables: for words `k0`, `k1` and seeds `s0`, `s1` (all `i64`), the exclusive or of
    /// both halves of the 128-bit product `(k0 ^ s0) * (k1 ^ s1)`.
    Hash([Value; 4]),
    /// The address of a stack slot plus an offset in bytes.
    StackAddress(Slot, i32),
    /// Loads an integer, zero-extended to the result's type, which has at least the access's size.
    Load(Access, Address),
    /// Stores the lowest bytes of an integer.
    Store(Access, Address, Value),
    /// Atomic read-modify-write of an aligned integer of 8 to 64 bits, in machine byte order. Returns the old value.
    Atomic(Atomic, Regions, Address, Value),
    /// Atomic compare and exchange, as [`Op::Atomic`]: replaces the memory by the second value if it equals the first.
    CompareExchange(Regions, Address, Value, Value),
    /// Atomic store with release ordering of an aligned integer of 8 to 64 bits, in machine byte order: how a lock is
    /// released.
    Release(Regions, Address, Value),
    /// Adds an `i64` to a counter that no other thread writes.
    Count(Address, Value),
    /// Prefetches a cache line, which need not exist; for writing if the flag is set.
    Prefetch(Address, bool),
    /// Begins a lookup of a key, given as `i64` words, and prefetches the memory that it will read.
    ProbeIssue(TableId, Vec<Value>),
    /// Ends a lookup: the address of the entry found, or 0.
    ProbeTake(Value),
    /// Calls a function.
    Call(Callee, Vec<Value>),
    /// A phase boundary, with its number: all packets of a batch come to it before any goes on. It computes nothing;
    /// staging cuts the program here.
    Phase(u32),
}

/// An operation and its result, in a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// The value that it defines.
    pub result: Option<Value>,
    /// Its source location, in the numbering of the function's producer.
    pub location: Option<u32>,
}

/// A control-flow edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The target.
    pub block: Block,
    /// Arguments for the block's parameters.
    pub args: Vec<Value>,
    /// How often it is taken relative to the terminator's other edges; 0 for cold edges.
    pub weight: u32,
}

impl Edge {
    /// An edge of weight 1.
    pub fn new(block: Block, args: Vec<Value>) -> Edge {
        Edge { block, args, weight: 1 }
    }

    /// A cold edge without arguments.
    pub fn cold(block: Block) -> Edge {
        Edge { block, args: Vec::new(), weight: 0 }
    }
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Terminator {
    /// Unconditional.
    Jump(Edge),
    /// The first edge if the `i1` is set, otherwise the second.
    Branch(Value, Edge, Edge),
    /// The edge of the constant that equals an integer of up to 64 bits, otherwise the last one. The constants are all
    /// different.
    Switch(Value, Vec<(u64, Edge)>, Edge),
    /// Returns, with the function's result.
    Return(Option<Value>),
    /// Never reached; the code traps.
    Unreachable,
}

impl Op {
    /// Calls `f` with each operand.
    pub fn operands(&self, mut f: impl FnMut(Value)) {
        self.clone().operands_mut(|value| f(*value));
    }

    /// Calls `f` with each operand, which it may replace.
    pub fn operands_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Op::Const(_) | Op::StackAddress(..) | Op::Phase(_) => {}
            Op::Unary(_, a) | Op::Cast(_, a) | Op::ProbeTake(a) => f(a),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => {
                f(a);
                f(b);
            }
            Op::Select(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
            Op::Pack(parts) => parts.iter_mut().for_each(|part| f(&mut part.value)),
            Op::Hash(words) => words.iter_mut().for_each(f),
            Op::Load(_, address) | Op::Prefetch(address, _) => f(&mut address.base),
            Op::Store(_, address, value)
            | Op::Atomic(_, _, address, value)
            | Op::Release(_, address, value)
            | Op::Count(address, value) => {
                f(&mut address.base);
                f(value);
            }
            Op::CompareExchange(_, address, expected, new) => {
                f(&mut address.base);
                f(expected);
                f(new);
            }
            Op::ProbeIssue(_, args) | Op::Call(_, args) => args.iter_mut().for_each(f),
        }
    }

    /// The instruction's effects; `call` returns those of callees.
    pub fn effects(&self, call: impl FnOnce(Callee) -> Effects) -> Effects {
        let reads = |reads: Regions| Effects { reads, ..Effects::PURE };
        match self {
            Op::Const(_)
            | Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Select(..)
            | Op::Cast(..)
            | Op::Pack(_)
            | Op::Hash(_)
            | Op::StackAddress(..)
            | Op::ProbeIssue(..)
            | Op::Prefetch(..)
            | Op::Phase(_) => Effects::PURE,
            Op::Load(access, _) => reads(access.regions),
            Op::Store(access, ..) => Effects { writes: access.regions, ..Effects::PURE },
            // Other threads' writes become visible here, so nothing that was known of shared memory before holds after
            // it.
            Op::Atomic(_, regions, ..) | Op::CompareExchange(regions, ..) | Op::Release(regions, ..) => {
                let shared = if regions.meets(Regions::SHARED) { Regions::SHARED } else { Regions::NONE };
                Effects { reads: *regions, writes: *regions | shared, ends: false }
            }
            Op::Count(..) => Effects { writes: Region::Counter.into(), ..Effects::PURE },
            Op::ProbeTake(_) => reads(Region::Table.into()),
            Op::Call(callee, _) => call(*callee),
        }
    }

    /// Whether it must be kept although it has no effect and no uses: it influences only the time that the code takes.
    pub fn is_hint(&self) -> bool {
        matches!(self, Op::Prefetch(..) | Op::Phase(_))
    }
}

impl Terminator {
    /// The edges, in order.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        let (first, cases, last): (Option<&Edge>, &[(u64, Edge)], Option<&Edge>) = match self {
            Terminator::Jump(edge) => (Some(edge), &[], None),
            Terminator::Branch(_, then, other) => (Some(then), &[], Some(other)),
            Terminator::Switch(_, cases, default) => (None, cases, Some(default)),
            Terminator::Return(_) | Terminator::Unreachable => (None, &[], None),
        };
        first.into_iter().chain(cases.iter().map(|(_, edge)| edge)).chain(last)
    }

    /// The edges, in order.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let (first, cases, last): (Option<&mut Edge>, &mut [(u64, Edge)], Option<&mut Edge>) = match self {
            Terminator::Jump(edge) => (Some(edge), &mut [], None),
            Terminator::Branch(_, then, other) => (Some(then), &mut [], Some(other)),
            Terminator::Switch(_, cases, default) => (None, cases, Some(default)),
            Terminator::Return(_) | Terminator::Unreachable => (None, &mut [], None),
        };
        first.into_iter().chain(cases.iter_mut().map(|(_, edge)| edge)).chain(last)
    }

    /// Calls `f` with each value that is read, arguments of edges included.
    pub fn operands(&self, mut f: impl FnMut(Value)) {
        match self {
            Terminator::Branch(value, ..) | Terminator::Switch(value, ..) | Terminator::Return(Some(value)) => {
                f(*value)
            }
            Terminator::Jump(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
        self.edges().flat_map(|edge| &edge.args).for_each(|value| f(*value));
    }

    /// As [`Terminator::operands`]; `f` may replace the operands.
    pub fn operands_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Terminator::Branch(value, ..) | Terminator::Switch(value, ..) | Terminator::Return(Some(value)) => f(value),
            Terminator::Jump(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
        self.edges_mut().flat_map(|edge| &mut edge.args).for_each(f);
    }
}
