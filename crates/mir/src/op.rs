//! Instructions and terminators, what they read and write, and their effects.
//!
//! An instruction that is added here is named by the compiler in every match that must know it: `print`, `parse`,
//! `verify`, `interpreter`, `generate`, the passes, and the lowering of crate `codegen`.

use crate::types::{Block, ByteOrder, Effects, FunctionId, Region, Regions, RuntimeId, Slot, TableId, Value};

/// Operations on one integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// Two's complement.
    Neg,
    /// All bits inverted.
    Not,
    /// Bytes in the opposite order; not of `i1` and `i8`.
    ByteSwap,
    /// Zero bits above the highest set one; all bits of zero.
    LeadingZeros,
    /// Zero bits below the lowest set one; all bits of zero.
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
    /// Upper half of the unsigned product; of `i64` only.
    MulHigh,
    /// Unsigned quotient; by zero it is zero.
    Div,
    /// Unsigned remainder; by zero it is the dividend.
    Rem,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift to the left by the amount modulo the width.
    Shl,
    /// Logical shift to the right, likewise.
    Shr,
    /// Arithmetic shift to the right, likewise.
    Sar,
    /// Rotation to the left, likewise.
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
    /// To a narrower type.
    Trunc,
    /// To a wider type, with zeros.
    Zext,
    /// To a wider type, with copies of the highest bit.
    Sext,
}

/// What an atomic operation puts in the place of the old value.
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

/// A place in memory: a base and a constant number of bytes behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// An `i64`.
    pub base: Value,
    /// Bytes.
    pub offset: i32,
}

/// How memory is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// Where it may be.
    pub regions: Regions,
    /// Bytes: 1 to 8, or 16.
    pub bytes: u8,
    /// Their order.
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

/// A part of a packed integer: the lowest `width` bits of a value, moved up by `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// An integer of at least `width` bits.
    pub value: Value,
    /// Bits that count.
    pub width: u8,
    /// Where the lowest of them goes.
    pub offset: u8,
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// A function of the runtime.
    Runtime(RuntimeId),
    /// A function of the module.
    Function(FunctionId),
}

/// What an instruction computes. The result's type is the [`Instruction`]'s.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A number below two to the type's width.
    Const(u128),
    /// See [`Unary`].
    Unary(Unary, Value),
    /// See [`Binary`].
    Binary(Binary, Value, Value),
    /// An `i1`: whether the condition holds.
    Compare(Condition, Value, Value),
    /// The first value if the `i1` is set, else the second.
    Select(Value, Value, Value),
    /// See [`Cast`].
    Cast(Cast, Value),
    /// Disjoint bit fields put together; other bits are zero. How keys, hashed data and neighbouring fields are built.
    Pack(Vec<Part>),
    /// The hash of exact tables: for words `k0`, `k1` and seeds `s0`, `s1` (all `i64`), both halves of the product
    /// `(k0 ^ s0) * (k1 ^ s1)` combined by exclusive or.
    Hash([Value; 4]),
    /// The address of a stack slot and bytes behind it.
    StackAddress(Slot, i32),
    /// An integer of at least the access's bytes, zero-extended.
    Load(Access, Address),
    /// The lowest bytes of an integer.
    Store(Access, Address, Value),
    /// The old value of an aligned integer in memory, which is replaced in one step; 8 to 64 bits, machine order.
    Atomic(Atomic, Regions, Address, Value),
    /// As [`Op::Atomic`]: replaced by the second value if it is the first.
    CompareExchange(Regions, Address, Value, Value),
    /// Stores an aligned integer of 8 to 64 bits, machine order, in one step, behind all that comes ahead of it: how a lock
    /// is released.
    Release(Regions, Address, Value),
    /// Adds an `i64` to a counter that no other thread writes.
    Count(Address, Value),
    /// Asks for a cache line, which need not exist; to be written if the flag is set.
    Prefetch(Address, bool),
    /// Begins a lookup of a key, given as `i64` words; asks for the memory that the answer is in.
    ProbeIssue(TableId, Vec<Value>),
    /// The address of the entry that a lookup finds, or 0.
    ProbeTake(Value),
    /// Calls a function.
    Call(Callee, Vec<Value>),
    /// Where the packets of a batch wait for one another, by number. It computes nothing; staging cuts here.
    Phase(u32),
}

/// An operation with its result, in a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// The value that it defines.
    pub result: Option<Value>,
    /// Where it comes from, in the numbering of whoever made the function.
    pub place: Option<u32>,
}

/// A way from one block to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Where it leads.
    pub block: Block,
    /// The values of the block's parameters.
    pub args: Vec<Value>,
    /// How often it is taken compared with the terminator's other edges; 0 is hardly ever.
    pub weight: u32,
}

impl Edge {
    /// An edge of weight 1.
    pub fn new(block: Block, args: Vec<Value>) -> Edge {
        Edge { block, args, weight: 1 }
    }

    /// An edge without arguments that is hardly ever taken.
    pub fn cold(block: Block) -> Edge {
        Edge { block, args: Vec::new(), weight: 0 }
    }
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Terminator {
    /// Goes on.
    Jump(Edge),
    /// The first edge if the `i1` is set, else the second.
    Branch(Value, Edge, Edge),
    /// The edge of the constant that an integer of up to 64 bits equals, else the last. Constants differ.
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

    /// What the instruction does besides computing its result; `call` says that of callees.
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
            // Other threads may have written before what is read here: nothing of shared memory is known behind.
            Op::Atomic(_, regions, ..) | Op::CompareExchange(regions, ..) | Op::Release(regions, ..) => {
                let shared = if regions.meets(Regions::SHARED) { Regions::SHARED } else { Regions::NONE };
                Effects { reads: *regions, writes: *regions | shared, ends: false }
            }
            Op::Count(..) => Effects { writes: Region::Counter.into(), ..Effects::PURE },
            Op::ProbeTake(_) => reads(Region::Table.into()),
            Op::Call(callee, _) => call(*callee),
        }
    }

    /// Whether it must stay though it has no effect and nothing uses it: it is there for the time that it takes.
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

    /// As [`Terminator::operands`]; `f` may replace them.
    pub fn operands_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Terminator::Branch(value, ..) | Terminator::Switch(value, ..) | Terminator::Return(Some(value)) => f(value),
            Terminator::Jump(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
        self.edges_mut().flat_map(|edge| &mut edge.args).for_each(f);
    }
}
