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

/// An operation with the P4 place it came from.
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
    /// Left shift; the amount has any width; amounts of at least the width give 0.
    Shl,
    /// Logical right shift, as `Shl`.
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

/// One-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// Bitwise complement (logical not at width 1).
    Not,
    /// Two's complement.
    Neg,
}

/// Width changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CastKind {
    /// To a larger or equal width with zeros.
    Zext,
    /// To a larger or equal width with the sign.
    Sext,
    /// To a smaller or equal width: the low bits.
    Trunc,
}

/// Hash algorithms (v1model `HashAlgorithm`, PSA `PSA_HashAlgorithm_t`); parameters of the CRCs as bmv2 has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashAlgorithm {
    /// CRC-32 (IEEE 802.3, reflected).
    Crc32,
    /// CRC-32 with the control plane's parameters; as `Crc32` until set.
    Crc32Custom,
    /// CRC-16/ARC (polynomial 0x8005, reflected).
    Crc16,
    /// CRC-16 with the control plane's parameters; as `Crc16` until set.
    Crc16Custom,
    /// CRC-16 with polynomial 0x1021 and first remainder 0xffff, not reflected: bmv2's `crcCCITT`.
    CrcCcitt,
    /// A generator that ignores its input's content is not a hash: this is bmv2's `random`, a random number.
    Random,
    /// The first 64 bits of the input, padded with zeros behind them to whole bytes.
    Identity,
    /// Internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.
    Csum16,
    /// Exclusive or of 16-bit words.
    Xor16,
    /// Exclusive or of 32-bit words, the last one padded with zeros: bmv2's `xor32`.
    Xor32,
    /// CRC-8 (polynomial 0x07, not reflected): bmv2's `crc8_custom`, whose parameters nothing sets.
    Crc8,
    /// CRC-64 (polynomial 0x1b, reflected, first remainder 0): bmv2's `crc64_custom`, whose parameters nothing sets.
    Crc64,
    /// XXH64 with seed 0.
    Xxh64,
    /// simple_switch's `hash_ex`: FNV-1 with the bytes as signed numbers, and final mixing.
    HashEx,
    /// A hash that has a name, and so parameters of its own.
    Calculation(CalculationId),
}

impl HashAlgorithm {
    /// The number of the first calculation among [`HashAlgorithm::code`]s.
    pub const CALCULATIONS: u32 = 16;

    /// The number by which compiled code names the algorithm to the runtime.
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
    /// `dst[hi:lo] = a`, the other bits stay.
    SetSlice { dst: SlotId, hi: u32, lo: u32, a: Operand },
    /// `dst = cond ? then : other`; `cond` has width 1.
    Select { dst: SlotId, cond: Operand, then: Operand, other: Operand },

    /// `header.valid = 1`; fields stay (they are zero if it was invalid).
    SetValid { header: HeaderId },
    /// `header.valid = 0` and all its fields zero.
    SetInvalid { header: HeaderId },

    /// Parser: `dst = 1` if at least `bits` bits are left behind the cursor (rounded up to whole bytes).
    HasBits { dst: SlotId, bits: Operand },
    /// Parser: fills the header from the cursor, makes it valid, moves the cursor. The fixed part and `varbit_bits` (a
    /// multiple of 8, at most the varbit's width; `None` if the header has no varbit) must be there: a dominating
    /// `HasBits` says so.
    Extract { header: HeaderId, varbit_bits: Option<Operand> },
    /// Parser: moves the cursor by `bits`, a multiple of 8 that must be there.
    Advance { bits: Operand },
    /// Parser: `dst` = the bits at `offset` behind the cursor, which must be there.
    Lookahead { dst: SlotId, offset: u32 },
    /// `dst` (32 bits) = bytes the parser has consumed so far.
    Consumed { dst: SlotId },

    /// Deparser: appends the header if it is valid; of a varbit, the low bits that its length slot says (the header's
    /// lengths add up to whole bytes; if a program manages that they do not, zeros are put at the end).
    Emit { header: HeaderId },
    /// Deparser: cuts the outgoing frame to at most `bytes` bytes (any width) when the stage ends. The
    /// last one counts.
    Truncate { bytes: Operand },

    /// Looks up a table. `hit` (1 bit); `action` (32 bits): position in the table's action list; `entry` and `data` (64
    /// bits): handles of the matched entry (for direct resources) and of the action data (for `ActionParam`; differs
    /// from `entry` in tables with an action profile). The handles' values belong to the engine and may only be handed
    /// on to the operations named here; they are good until the entry ends (not behind a replication point).
    /// `selector` is empty but for tables with an action selector. An entry whose group has no member to choose counts
    /// as a miss: `hit` is 0 and the default action runs.
    Apply {
        table: TableId,
        keys: Vec<Operand>,
        selector: Vec<Operand>,
        hit: SlotId,
        action: SlotId,
        entry: SlotId,
        data: SlotId,
    },
    /// `dst` = control-plane parameter `param` of action `action` (position in the table's list) of what was matched.
    /// The action must be the one that was matched: this stands behind the branch or switch that has seen it.
    ActionParam { dst: SlotId, table: TableId, action: u32, param: u32, data: SlotId },

    /// Adds an entry to a table that packets write ([`crate::Dynamic::add_on_miss`]): the values are those of a lookup's
    /// keys, `action` is a position in the table's list, `args` are its parameters. The next lookup of these keys finds
    /// it, also this packet's own. `expire` (at most 32 bits) is the number of its expire time
    /// ([`crate::Dynamic::expire_ms`]), which counts for tables whose entries expire.
    ///
    /// `dst` (1 bit) is 0 if the entry was added and 1 if not: one with these keys is there, the table is full and evicts
    /// nothing, or there is no such expire time. With `replace` an entry that is there gets the action, the parameters and the
    /// expire time instead, and keeps its direct resources; one that is not there is not added.
    AddEntry {
        table: TableId,
        keys: Vec<Operand>,
        action: u32,
        args: Vec<Operand>,
        expire: Operand,
        replace: bool,
        dst: SlotId,
    },
    /// The time of the entry that a lookup gave begins anew: it expires when its expire time is over from now on. With
    /// `expire` (at most 32 bits) that becomes another first; nothing happens if there is no such number. Nothing if `hit`
    /// is 0.
    RestartTimer { table: TableId, hit: Operand, entry: SlotId, expire: Option<Operand> },

    /// Counts the packet at `index` (at most 64 bits); out of range counts nothing. `bytes` (32 bits) is its length, which is
    /// the one it had when it entered the stage's entry if there is none.
    Count { counter: ExternId, index: Operand, bytes: Option<Operand> },
    /// Counts the packet at the entry that a lookup gave, which is the default one on a miss; nothing if `hit` is 0.
    CountDirect { counter: ExternId, hit: Operand, entry: SlotId, bytes: Option<Operand> },
    /// `dst` (at least 2 bits) = colour (0 green, 1 yellow, 2 red) of the meter at `index`; out of range is green. The
    /// formula is at `base::entry::MeterConfig`. `before` (2 bits) is the colour that the packet had: without it the meter is
    /// colour-blind. `bytes` as for `Count`.
    Meter { meter: ExternId, dst: SlotId, index: Operand, before: Option<Operand>, bytes: Option<Operand> },
    /// `dst` = colour of the meter of the entry that a lookup gave, which is the default one on a miss; green if `hit` is 0.
    MeterDirect {
        meter: ExternId,
        dst: SlotId,
        hit: Operand,
        entry: SlotId,
        before: Option<Operand>,
        bytes: Option<Operand>,
    },
    /// `dst` = cell; out of range gives 0. A *peek* is a step by itself: it acquires no lock, and nothing that the packet
    /// does to locked cells afterwards depends on its value (`opt`'s pass `peeks` makes them).
    RegisterRead { register: ExternId, dst: SlotId, index: Operand, peek: bool },
    /// cell = `src`; out of range writes nothing.
    RegisterWrite { register: ExternId, index: Operand, src: Operand },
    /// `dst = base + hash(data) mod max` (widths of `base` and `dst` are equal; `max` has any width; `max` 0 gives
    /// `base`; none, or one that does not fit 64 bits, takes the hash as it is). The sum wraps in the width of `dst`, to
    /// which the hash, a number of at most 64 bits, is cut or zero-extended. The data are concatenated, first operand most significant; a length that is no multiple of 8 is padded
    /// with zeros at the end. Varbit operands contribute `varbits` bits: for each `(i, len)`,
    /// operand `i` has the low `len` bits only. With `payload`, the packet's bytes behind the parsed headers follow
    /// (behind the emitted ones after a deparser); `Identity` ignores them.
    Hash {
        algorithm: HashAlgorithm,
        dst: SlotId,
        base: Operand,
        max: Option<Operand>,
        data: Vec<Operand>,
        varbits: Vec<(u32, SlotId)>,
        payload: bool,
    },
    /// `dst` = random in `low..=high` (unsigned; `low` when `high < low`); one width of at most 64 bits.
    Random { dst: SlotId, low: Operand, high: Operand },
    /// Sends a message to the controller.
    Digest { digest: ExternId, data: Vec<Operand> },
    /// Writes a line to the log; `{}` stands for an argument, in decimal; arguments too many go to the end.
    Log { format: String, args: Vec<Operand> },
    /// Counts and reports when `cond` (1 bit) is 0; the packet is dropped by the blocks around it, not by this.
    Assert { cond: Operand, text: String },

    /// A call of code that is not part of the program and that nobody here has: an extern that no architecture maps, or
    /// what surrounds the blocks of a package for another switch. It may do anything but change slots other than
    /// `results`, which hold any value afterwards (different slots, no header's). A program with one can be checked,
    /// optimised and translated; loading it is refused, as a linker refuses an unresolved symbol.
    Unresolved { callee: String, args: Vec<Operand>, results: Vec<SlotId> },

    /// Adds to what the packet has spent in loops in this run of the entry; one that has spent more than
    /// [`STEPS_MAX`](crate::STEPS_MAX) is given up here. Every loop of a stage has one ([`crate::cost`]).
    Charge { steps: u32 },

    /// No effect: tells the tracer what begins here.
    Mark(Mark),
}

/// What a trace shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A parser state is entered.
    State(String),
    /// A control (or sub-control, sub-parser) is entered.
    Block(String),
    /// An action's body begins.
    Action(String),
    /// A checksum of the architecture's is verified or updated next.
    Checksum {
        /// Its name.
        name: String,
        /// Whether it is updated.
        update: bool,
    },
    /// A condition has been evaluated, all parts of it.
    Decision {
        /// Its name.
        name: String,
        /// Whether it holds.
        holds: bool,
    },
    /// A primitive of an action begins; its place is the instruction's.
    Statement,
    /// A table that always runs one action is applied; it became a call of the action.
    Direct {
        /// The table's name.
        table: String,
        /// The action's name.
        action: String,
    },
    /// An `exit` statement was reached; the rest of the control is not run.
    Exit,
    /// An index of a header stack is out of range.
    OutOfRange {
        /// The stack's name.
        stack: String,
        /// How many elements it has.
        size: u64,
    },
}

/// Where the replication engine takes over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplicationPoint {
    /// After ingress: clone, resubmit, multicast, drop or unicast, as the intrinsics say. All slots are in the record.
    /// Packets go on at `Egress`, `CloneIngress` and `Reingress`, nowhere else: what those do not read may be optimised
    /// away, but for intrinsics and field lists.
    IngressEnd,
    /// After egress: a clone is asked for and goes on at `Egress`; the packet itself goes on at `EntryKind::Deparse`.
    EgressEnd,
    /// After deparsing: recirculate, at `Reingress`.
    DeparseEnd,
    /// After deparsing: clones the deparsed frame. The clones go on at `CloneIngress`, the packet itself at `EntryKind::Deparse`.
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
    /// Dropped; the index into `Program::drops` says why.
    Drop(u32),
    /// Sent to a port.
    Send(Operand),
    /// Sent, as it is, to all ports of the multicast group of this number (at most 32 bits).
    Multicast(Operand),
    /// Handed to the replication engine.
    Replicate(ReplicationPoint),
    /// The packet runs through the entry `Reingress` next, with its bytes unchanged. Generated code initialises the packet's record for
    /// that: slots get the values that [`Program::at_reingress`] lists, all others are zero.
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
    /// Goes on in another block of the stage.
    Jump(BlockId),
    /// `cond` has width 1.
    Branch { cond: Operand, then: BlockId, other: BlockId },
    /// Compares with constants of the operand's width (all different).
    Switch { on: Operand, cases: Vec<(Bits, BlockId)>, default: BlockId },
    /// The stage ends; the entry's next stage begins.
    Next,
    /// The packet leaves the pipeline.
    Finish(Fate),
}
