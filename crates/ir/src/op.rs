//! Operations: everything a block can do.
//!
//! Widths are exact: unless said otherwise, operands and destination have one width and nothing converts silently. The
//! semantics of each arithmetic operation is the method of the same name of [`base::Bits`].

use base::ids::{BlockId, CalculationId, ExternId, HeaderId, SlotId, TableId};
use base::{Bits, Span};

/// A value that is read: a slot or a constant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A slot's current value.
    Slot(SlotId),
    /// A constant with its width.
    Const(Bits),
}

/// An operation with its location in the P4 source.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Where it came from.
    pub span: Span,
}

/// Two-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinOp {
    /// Wrapping sum.
    Add,
    /// Wrapping difference.
    Sub,
    /// Wrapping product.
    Mul,
    /// Unsigned quotient; by zero gives all ones.
    Div,
    /// Unsigned remainder; by zero gives the dividend.
    Mod,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Left shift. The amount may have any width; amounts of at least the value's width give 0.
    Shl,
    /// Logical right shift, with amounts as for `Shl`.
    Lshr,
    /// Arithmetic right shift; amounts of at least the width give copies of the sign.
    Ashr,
    /// Unsigned saturating sum.
    SatAddU,
    /// Unsigned saturating difference.
    SatSubU,
    /// Signed saturating sum.
    SatAddS,
    /// Signed saturating difference.
    SatSubS,
    /// Equality; the destination has width 1.
    Eq,
    /// Inequality; the destination has width 1.
    Ne,
    /// Unsigned less; the destination has width 1.
    Ult,
    /// Unsigned less or equal; the destination has width 1.
    Ule,
    /// Signed less; the destination has width 1.
    Slt,
    /// Signed less or equal; the destination has width 1.
    Sle,
}

impl BinOp {
    /// Whether the result is one bit, whatever the operands' width.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinOp::Eq | BinOp::Ne | BinOp::Ult | BinOp::Ule | BinOp::Slt | BinOp::Sle)
    }

    /// Whether the second operand is a shift amount of any width.
    pub fn is_shift(self) -> bool {
        matches!(self, BinOp::Shl | BinOp::Lshr | BinOp::Ashr)
    }

    /// Whether the operands may change places.
    pub fn is_commutative(self) -> bool {
        use BinOp::*;
        matches!(self, Add | Mul | And | Or | Xor | SatAddU | SatAddS | Eq | Ne)
    }
}

/// What [`Op::RegisterUpdate`] makes of a cell: operations that processors can do in one atomic step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Update {
    /// Wrapping sum.
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

impl Update {
    /// All, for parsing.
    pub const ALL: [Update; 5] = [Update::Add, Update::And, Update::Or, Update::Xor, Update::Exchange];

    /// Its name in IR text.
    pub fn name(self) -> &'static str {
        match self {
            Update::Add => "add",
            Update::And => "and",
            Update::Or => "or",
            Update::Xor => "xor",
            Update::Exchange => "exchange",
        }
    }

    /// The binary operation that it applies to cell and operand; `None` if the operand replaces the cell.
    pub fn operation(self) -> Option<BinOp> {
        match self {
            Update::Add => Some(BinOp::Add),
            Update::And => Some(BinOp::And),
            Update::Or => Some(BinOp::Or),
            Update::Xor => Some(BinOp::Xor),
            Update::Exchange => None,
        }
    }
}

/// One-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// Bitwise complement (logical not at width 1).
    Not,
    /// Two's complement negation.
    Neg,
}

/// Conversions between widths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CastKind {
    /// Zero extension to a larger or equal width.
    Zext,
    /// Sign extension to a larger or equal width.
    Sext,
    /// Truncation to a smaller or equal width: the low bits.
    Trunc,
}

/// Hash algorithms (v1model `HashAlgorithm`, PSA `PSA_HashAlgorithm_t`). The CRCs have bmv2's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashAlgorithm {
    /// CRC-32 (IEEE 802.3, reflected).
    Crc32,
    /// CRC-32 with parameters that the control plane sets; initially those of `Crc32`.
    Crc32Custom,
    /// CRC-16/ARC (polynomial 0x8005, reflected).
    Crc16,
    /// CRC-16 with parameters that the control plane sets; initially those of `Crc16`.
    Crc16Custom,
    /// CRC-16 with polynomial 0x1021 and initial remainder 0xffff, not reflected: bmv2's `crcCCITT`.
    CrcCcitt,
    /// A random number, whatever the input: bmv2's `random`.
    Random,
    /// The first 64 bits of the input, after padding it at the end with zeros to whole bytes.
    Identity,
    /// Internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.
    Csum16,
    /// Exclusive or of 16-bit words.
    Xor16,
    /// Exclusive or of 32-bit words, the last one padded with zeros: bmv2's `xor32`.
    Xor32,
    /// CRC-8 (polynomial 0x07, not reflected): bmv2's `crc8_custom`, whose parameters nothing sets.
    Crc8,
    /// CRC-64 (polynomial 0x1b, reflected, initial remainder 0): bmv2's `crc64_custom`, whose parameters nothing sets.
    Crc64,
    /// XXH64 with seed 0.
    Xxh64,
    /// simple_switch's `hash_ex`: FNV-1 over the bytes as signed numbers, with a final mixing step.
    HashEx,
    /// A named hash, with parameters of its own.
    Calculation(CalculationId),
}

impl HashAlgorithm {
    /// The [`HashAlgorithm::code`] of the first calculation.
    pub const CALCULATIONS: u32 = 16;

    /// The number that compiled code passes to the runtime for this algorithm.
    pub const fn code(self) -> u32 {
        match self {
            HashAlgorithm::Crc32 => 0,
            HashAlgorithm::Crc32Custom => 1,
            HashAlgorithm::Crc16 => 2,
            HashAlgorithm::Crc16Custom => 3,
            HashAlgorithm::CrcCcitt => 4,
            HashAlgorithm::Random => 5,
            HashAlgorithm::Identity => 6,
            HashAlgorithm::Csum16 => 7,
            HashAlgorithm::Xor16 => 8,
            HashAlgorithm::Xor32 => 9,
            HashAlgorithm::Crc8 => 10,
            HashAlgorithm::Crc64 => 11,
            HashAlgorithm::Xxh64 => 12,
            HashAlgorithm::HashEx => 13,
            HashAlgorithm::Calculation(id) => HashAlgorithm::CALCULATIONS + id.0,
        }
    }
}

/// Everything a block can do. `dst` slots are written, operands read.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Op {
    /// `dst = src`.
    Mov { dst: SlotId, src: Operand },
    /// `dst = a op b`.
    Bin { op: BinOp, dst: SlotId, a: Operand, b: Operand },
    /// `dst = op a`.
    Un { op: UnOp, dst: SlotId, a: Operand },
    /// `dst = cast a` to the width of `dst`.
    Cast { kind: CastKind, dst: SlotId, a: Operand },
    /// `dst = hi ++ lo`: the first operand is the most significant.
    Concat { dst: SlotId, hi: Operand, lo: Operand },
    /// `dst = a[hi:lo]`.
    Slice { dst: SlotId, a: Operand, hi: u32, lo: u32 },
    /// `dst[hi:lo] = a`; the other bits of `dst` keep their values.
    SetSlice { dst: SlotId, hi: u32, lo: u32, a: Operand },
    /// `dst = cond ? then : other`; `cond` has width 1.
    Select { dst: SlotId, cond: Operand, then: Operand, other: Operand },

    /// `header.valid = 1`; the fields keep their values (zero if the header was invalid).
    SetValid { header: HeaderId },
    /// `header.valid = 0`, and all fields become zero.
    SetInvalid { header: HeaderId },

    /// Parser: `dst = 1` if at least `bits` bits (rounded up to whole bytes) remain after the cursor.
    HasBits { dst: SlotId, bits: Operand },
    /// Parser: fills the header from the cursor, makes it valid, and moves the cursor. The fixed part and `varbit_bits`
    /// (a multiple of 8, at most the varbit's width; `None` if the header has no varbit) must be available: a
    /// dominating `HasBits` has checked it.
    Extract { header: HeaderId, varbit_bits: Option<Operand> },
    /// Parser: moves the cursor by `bits`, a multiple of 8. They must be available.
    Advance { bits: Operand },
    /// Parser: `dst` = the bits at `offset` (in bits) from the cursor. They must be available.
    Lookahead { dst: SlotId, offset: u32 },
    /// `dst` (32 bits) = number of bytes that the parser has consumed so far.
    Consumed { dst: SlotId },

    /// Deparser: appends the header if it is valid. Of a varbit, the number of low bits that its length slot gives is
    /// emitted. The header's length is a multiple of 8 bits; if a program violates that, zeros are appended.
    Emit { header: HeaderId },
    /// Deparser: truncates the outgoing frame to at most `bytes` bytes (any width) when the stage ends. The last one
    /// executed takes effect.
    Truncate { bytes: Operand },

    /// Looks up a table. `hit` (1 bit); `action` (32 bits): position in the table's action list; `entry` and `data` (64
    /// bits): handles of the matched entry (for direct resources) and of the action data (for `ActionParam`; differs
    /// from `entry` in tables with an action profile). Handles are opaque: they may only be passed to the operations
    /// named here, and they are valid until the run of the entry point ends (not after a replication point). `selector`
    /// is empty except for tables with an action selector. An entry whose group has no member to choose counts as a
    /// miss: `hit` is 0 and the default action runs.
    Apply {
        table: TableId,
        keys: Vec<Operand>,
        selector: Vec<Operand>,
        hit: SlotId,
        action: SlotId,
        entry: SlotId,
        data: SlotId,
    },
    /// `dst` = control-plane parameter `param` of action `action` (position in the table's list) of the matched entry.
    /// The action must be the matched one: this operation follows the branch or switch that tests it.
    ActionParam { dst: SlotId, table: TableId, action: u32, param: u32, data: SlotId },

    /// Adds an entry to a table that packets write ([`crate::Dynamic::add_on_miss`]). The key values are in the order
    /// of a lookup's, `action` is a position in the table's list, `args` are its parameters. The next lookup of this
    /// key finds the entry, including lookups by the same packet. `expire` (at most 32 bits) is the index of its expire
    /// time ([`crate::Dynamic::expire_ms`]), which matters if the table's entries expire.
    ///
    /// `dst` (1 bit) is 0 if the entry was added and 1 if not: the key exists already, the table is full and evicts
    /// nothing, or there is no such expire time. With `replace`, an existing entry gets the action, the parameters and
    /// the expire time and keeps its direct resources; an entry that does not exist is not added.
    AddEntry {
        table: TableId,
        keys: Vec<Operand>,
        action: u32,
        args: Vec<Operand>,
        expire: Operand,
        replace: bool,
        dst: SlotId,
    },
    /// Restarts the timer of the entry that a lookup returned. With `expire` (at most 32 bits) its expire time is
    /// changed first; nothing happens if there is none of this index. Nothing happens if `hit` is 0.
    RestartTimer { table: TableId, hit: Operand, entry: SlotId, expire: Option<Operand> },

    /// Counts the packet at `index` (at most 64 bits); an index out of range counts nothing. `bytes` (32 bits) is the
    /// packet's length; if `None`, the length it had at the entry point.
    Count { counter: ExternId, index: Operand, bytes: Option<Operand> },
    /// Counts the packet at the entry that a lookup returned (the default entry on a miss); nothing if `hit` is 0.
    CountDirect { counter: ExternId, hit: Operand, entry: SlotId, bytes: Option<Operand> },
    /// `dst` (at least 2 bits) = colour (0 green, 1 yellow, 2 red) of the meter at `index`; green for an index out of
    /// range. The algorithm is described at `base::entry::MeterConfig`. `before` (2 bits) is the packet's previous
    /// colour; if `None`, the meter is colour-blind. `bytes` as for `Count`.
    Meter { meter: ExternId, dst: SlotId, index: Operand, before: Option<Operand>, bytes: Option<Operand> },
    /// `dst` = colour of the meter of the entry that a lookup returned (the default entry on a miss); green if `hit` is
    /// 0.
    MeterDirect {
        meter: ExternId,
        dst: SlotId,
        hit: Operand,
        entry: SlotId,
        before: Option<Operand>,
        bytes: Option<Operand>,
    },
    /// `dst` = cell; 0 for an index out of range. A *peek* is an atomic step by itself: it acquires no lock, and nothing that the
    /// packet does to locked cells afterwards depends on its value (`opt::peeks` inserts them).
    RegisterRead { register: ExternId, dst: SlotId, index: Operand, peek: bool },
    /// cell = `src`; nothing for an index out of range.
    RegisterWrite { register: ExternId, index: Operand, src: Operand },
    /// `dst` = cell; then cell = cell `update` `src`. For an index out of range `dst` is 0 and nothing is written. It is what a
    /// read and a write do, but one step, for which one instruction may suffice (`opt::updates` makes them).
    RegisterUpdate { register: ExternId, dst: SlotId, index: Operand, update: Update, src: Operand },
    /// `dst = base + hash(data) mod max`. `base` and `dst` have the same width, `max` any. With `max` 0 the result is
    /// `base`; if `max` is `None` or does not fit 64 bits, the hash is not reduced. The hash, a number of at most 64
    /// bits, is truncated or zero-extended to the width of `dst`, in which the sum wraps.
    ///
    /// The data are concatenated, first operand most significant, and padded with zeros at the end to whole bytes.
    /// Varbit operands contribute `varbits` bits: for each `(i, len)`, operand `i` contributes only its low `len` bits.
    /// With `payload`, the packet's bytes after the parsed headers (after a deparser: after the emitted ones) follow;
    /// `Identity` ignores them.
    Hash {
        algorithm: HashAlgorithm,
        dst: SlotId,
        base: Operand,
        max: Option<Operand>,
        data: Vec<Operand>,
        varbits: Vec<(u32, SlotId)>,
        payload: bool,
    },
    /// `dst` = random number in `low..=high` (unsigned; `low` if `high < low`). All have one width of at most 64 bits.
    Random { dst: SlotId, low: Operand, high: Operand },
    /// Sends a message to the controller.
    Digest { digest: ExternId, data: Vec<Operand> },
    /// Writes a line to the log. Each `{}` in `format` stands for an argument, in decimal; surplus arguments are
    /// appended.
    Log { format: String, args: Vec<Operand> },
    /// If `cond` (1 bit) is 0, counts and reports a failed assertion. It does not drop the packet: the surrounding
    /// blocks do.
    Assert { cond: Operand, text: String },

    /// A call of code that is not part of the program and has no definition: an extern that no architecture maps, or
    /// what surrounds the blocks of a package for another switch. It may have any effect except changing slots other
    /// than `results`, which hold arbitrary values afterwards (different slots, none of a header). A program with one
    /// can be checked, optimised and translated, but loading it is refused, as a linker refuses an unresolved symbol.
    Unresolved { callee: String, args: Vec<Operand>, results: Vec<SlotId> },

    /// Adds to the steps that the packet has spent in loops in this run of the entry point. A packet that exceeds
    /// [`STEPS_MAX`](crate::STEPS_MAX) is dropped here. Every loop of a stage has one ([`crate::cost`]).
    Charge { steps: u32 },

    /// No effect: marks for the tracer what begins here.
    Mark(Mark),
}

/// An event that a trace shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A parser state is entered.
    State(String),
    /// A control (or sub-control, sub-parser) is entered.
    Block(String),
    /// An action's body begins.
    Action(String),
    /// The architecture verifies or updates a checksum next.
    Checksum {
        /// Its name.
        name: String,
        /// Whether it is updated.
        update: bool,
    },
    /// A condition has been evaluated completely.
    Decision {
        /// Its name.
        name: String,
        /// Whether it holds.
        holds: bool,
    },
    /// A primitive of an action begins; the instruction's span is its location.
    Statement,
    /// A table that always runs one action is applied; it was replaced by a call of the action.
    Direct {
        /// The table's name.
        table: String,
        /// The action's name.
        action: String,
    },
    /// An `exit` statement was reached; the rest of the control is skipped.
    Exit,
    /// An index of a header stack is out of range.
    OutOfRange {
        /// The stack's name.
        stack: String,
        /// How many elements it has.
        size: u64,
    },
}

/// The points at which the replication engine takes over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplicationPoint {
    /// After ingress: clone, resubmit, multicast, drop or unicast, according to the intrinsics. All slots are in the
    /// record. Packets continue only at `Egress`, `CloneIngress` and `Reingress`: slots that those do not read may be
    /// optimised away, except for intrinsics and field lists.
    IngressEnd,
    /// After egress: the packet is cloned. The clone continues at `Egress`, the packet itself at `EntryKind::Deparse`.
    EgressEnd,
    /// After deparsing: the packet is recirculated to `Reingress`.
    DeparseEnd,
    /// After deparsing: the deparsed frame is cloned. The clones continue at `CloneIngress`, the packet itself at
    /// `EntryKind::Deparse`.
    FrameEnd,
}

/// Why a packet goes back to ingress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Again {
    /// At the end of ingress, as received.
    Resubmitted,
    /// As deparsed.
    Recirculated,
}

impl Again {
    /// All reasons.
    pub const ALL: [Again; 2] = [Again::Resubmitted, Again::Recirculated];

    /// The word of the text form.
    pub fn name(self) -> &'static str {
        match self {
            Again::Resubmitted => "resubmitted",
            Again::Recirculated => "recirculated",
        }
    }
}

/// How a packet leaves the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Dropped for the reason of this index in `Program::drops`.
    Drop(u32),
    /// Sent to a port.
    Send(Operand),
    /// Sent unchanged to all ports of the multicast group of this number (at most 32 bits).
    Multicast(Operand),
    /// Handed to the replication engine.
    Replicate(ReplicationPoint),
    /// Sent back to ingress: the packet continues at the entry point `Reingress` with its bytes unchanged. Compiled
    /// code initialises the packet's record for that: slots get the values that [`Program::at_reingress`] lists, all
    /// others are zero.
    ///
    /// [`Program::at_reingress`]: crate::Program::at_reingress
    Again {
        /// Why.
        why: Again,
        /// The field list that is kept; `None` for no slot.
        list: Option<u64>,
    },
}

/// How a block ends.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Terminator {
    /// Continues in another block of the stage.
    Jump(BlockId),
    /// Continues in `then` if `cond` (1 bit) is 1, otherwise in `other`.
    Branch { cond: Operand, then: BlockId, other: BlockId },
    /// Continues in the block whose constant equals `on`. The constants have the operand's width and are all different.
    Switch { on: Operand, cases: Vec<(Bits, BlockId)>, default: BlockId },
    /// The stage ends, and the entry point's next stage begins.
    Next,
    /// The packet leaves the pipeline.
    Finish(Fate),
}
