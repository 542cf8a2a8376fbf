//! A whole program: the packet header vector, tables, externs, stages, and the entry points that connect stages.
//!
//! The IR knows no protocol and no architecture. `lower` makes an architecture's meaning explicit: the glue between its
//! blocks becomes stages, and its metadata become slots. [`Intrinsic`] names the few slots that the *runtime* reads or
//! writes (the port on which a packet was received, the multicast group that it requests).
//!
//! **Slots.** Every header field, metadata field, local and temporary is a slot: a mutable variable of a fixed width.
//! All slots are zero when a packet starts at [`EntryKind::Ingress`], except for the intrinsics that the runtime sets.
//!
//! **Headers.** A header is its field slots in wire order and a one-bit validity slot. *The fields of an invalid header
//! are zero*: `Op::SetInvalid` clears them, and lowering guards writes to a header that may be invalid. So reads need
//! no check and a header copy is a copy of slots. Stacks exist only as names and groups: lowering turns `next`, `last`,
//! `push_front`, `pop_front` and dynamic indices into plain operations on their elements and a `nextIndex` slot.

use crate::op::{Again, Fate, Inst, Op, Operand, Terminator};
use base::Span;
use base::entry::{ActionCall, MatchKind, TableEntry};
use base::ids::{ActionId, BlockId, ExternId, HeaderId, SlotId, StageId, TableId};
use std::collections::BTreeMap;

/// Limit of the bytes of headers that a deparser can emit, on every engine. A packet with more is dropped for lack of
/// room: no buffer holds more headers and a frame after them.
pub const EMITTED_BYTES_MAX: u32 = 16 * 1024;

/// The program of one pipeline.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// The name of the source, for messages.
    pub name: String,
    /// The packet header vector.
    pub slots: Vec<Slot>,
    /// Header instances, including stack elements and union members.
    pub headers: Vec<Header>,
    /// Actions that tables name. Their bodies are the blocks to which the table's switch branches.
    pub actions: Vec<Action>,
    /// Tables; parser value sets are tables with [`Table::value_set`].
    pub tables: Vec<Table>,
    /// Counters, meters, registers, digests, action profiles.
    pub externs: Vec<Extern>,
    /// Parsers, controls, deparsers, glue.
    pub stages: Vec<Stage>,
    /// The entry points: for each kind, the stages that run, in order. At most one per [`EntryKind`]; `Ingress` always
    /// exists.
    pub entries: Vec<EntryPoint>,
    /// Hashes with parameters of their own, which the control plane sets ([`crate::HashAlgorithm::Calculation`]).
    pub calculations: Vec<Calculation>,
    /// Slots with a meaning for the runtime.
    pub intrinsics: Vec<(Intrinsic, SlotId)>,
    /// Slots that keep their values through a clone, resubmission or recirculation, by field-list index (v1model
    /// `@field_list`).
    pub field_lists: Vec<(u64, Vec<SlotId>)>,
    /// `error` members; a value of an error slot is an index here. `NoError` is 0.
    pub errors: Vec<String>,
    /// Names of the drop counters that `Fate::Drop` refers to.
    pub drops: Vec<String>,
    /// The value of `EgressSpec` that means drop, if the architecture has one.
    pub drop_port: Option<u64>,
    /// The number of the port to the controller, if the architecture fixes it.
    pub cpu_port: Option<u64>,
    /// The number of the port whose packets go back to ingress, if the architecture has one.
    pub recirculation_port: Option<u64>,
    /// The clone session that sends to `cpu_port` until the control plane creates a session of that number.
    pub cpu_session: Option<u64>,
    /// Whether copies are truncated to their clone session's length when they are made; otherwise when they are sent.
    pub cuts_clones_first: bool,
    /// Whether packets wait in a queue of their port between ingress and egress, so that every packet that goes on to
    /// egress is handed to the replication engine. Otherwise queues, if a port has any, come after the deparser.
    pub queues: bool,
    /// The values of `InstanceType` for packets that did not come from a port.
    pub instance_types: InstanceTypes,
    /// Controller headers' layouts: packet-in and packet-out (P4Runtime `@controller_header`).
    pub controller_headers: Vec<ControllerHeader>,
    /// The description for a flow processor, which decides in place of tables, if the program is for the OpenFlow
    /// architecture.
    pub openflow: Option<OpenFlow>,
}

/// A hash with parameters of its own, which the control plane sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calculation {
    /// Its name, `calc_0`.
    pub name: String,
    /// Its function.
    pub function: Calculated,
}

/// The function of a calculation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Calculated {
    /// A CRC of 16 bits, initially CRC-16/ARC.
    Crc16,
    /// A CRC of 32 bits, initially CRC-32.
    Crc32,
    /// The Toeplitz hash of receive-side scaling, 32 bits: the exclusive or, over all bits of the data that are set, of
    /// the 32 bits of the key that begin at the same position. A key shorter than the data is repeated. The initial key
    /// is four zero bytes.
    Toeplitz,
}

impl Calculated {
    /// Width of the result in bits.
    pub fn width(self) -> u32 {
        match self {
            Calculated::Crc16 => 16,
            Calculated::Crc32 | Calculated::Toeplitz => 32,
        }
    }
}

/// The description that a program of the OpenFlow architecture gives the switch: the program declares protocols, and
/// OpenFlow's tables decide.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenFlow {
    /// Match fields, in order of declaration.
    pub fields: Vec<MatchField>,
    /// The control that holds the header actions: its stage, and its table, whose actions they are (`push_vlan` for
    /// `Actions.push_vlan`).
    pub actions: Option<(StageId, TableId)>,
    /// One bit, set by an action that changed headers such that the frame must be parsed anew before other fields are
    /// matched or written.
    pub reparse: Option<SlotId>,
    /// One bit, set by an action that found an expired TTL.
    pub ttl_exceeded: Option<SlotId>,
}

/// A match field (OpenFlow 1.3.5, 7.2.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchField {
    /// Its OpenFlow name, `eth_dst`.
    pub name: String,
    /// The slot bits that make up the field, most significant part first. At most 128 bits together.
    pub parts: Vec<FieldPart>,
    /// Its OXM and NXM numbers, the preferred one first: class, field, experimenter.
    pub numbers: Vec<(u16, u8, u32)>,
    /// Whether a match may mask it.
    pub maskable: bool,
    /// Whether actions may write it.
    pub writable: bool,
    /// Whether it is pipeline state of the packet instead of bytes of its frame: it is kept when the frame is parsed
    /// anew, and packet-ins carry it.
    pub is_metadata: bool,
    /// Its prerequisites, all of which must hold: (index of another field, mask, accepted values).
    pub prerequisites: Vec<(u32, u128, Vec<u128>)>,
}

/// A part of a match field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPart {
    /// The slot.
    pub slot: SlotId,
    /// The lowest bit of the slot that belongs to the field.
    pub lo: u32,
    /// Number of bits.
    pub width: u32,
}

/// A variable of the packet header vector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Unique; `hdr.ipv4.ttl`, `meta.vrf`, `ingress.tmp`, `%3`.
    pub name: String,
    /// Width in bits, at least 1. Booleans have 1. A varbit's slot has its maximum width.
    pub width: u32,
    /// Its role.
    pub kind: SlotKind,
}

/// The role of a slot. Only slots of headers obey rules (see the module text); the other kinds are for readers of the
/// text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// A field of a header.
    Field(HeaderId),
    /// The current length in bits of a header's varbit field (32 bits wide).
    VarbitLength(HeaderId),
    /// A header's validity (1 bit).
    Valid(HeaderId),
    /// Part of the packet's headers but of no [`Header`]: the `nextIndex` of a stack, and fields and validity of a
    /// header that has no wire form. An egress-to-egress clone keeps it, as it keeps headers.
    HeaderPart,
    /// User or standard metadata.
    Metadata,
    /// A P4 variable or parameter.
    Local,
    /// Made by the compiler; assigned before read on every path of its stage.
    Temp,
}

/// A header instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// `hdr.ipv4`, `hdr.srcRoutes[2]`.
    pub name: String,
    /// Fields in wire order; their widths add up to a multiple of 8 (without the varbit).
    pub fields: Vec<Field>,
    /// The validity slot.
    pub valid: SlotId,
}

/// A field of a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The P4 name.
    pub name: String,
    /// Its value. A varbit's value is right-aligned: a number below `2^length`.
    pub slot: SlotId,
    /// For a varbit field, the slot that holds its length in bits; at most one per header.
    pub varbit_length: Option<SlotId>,
}

/// An action as the control plane sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Action {
    /// Fully qualified control-plane name, `MyIngress.forward`.
    pub name: String,
    /// Control-plane (directionless) parameters: name and width.
    pub params: Vec<(String, u32)>,
}

/// A match-action table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Fully qualified control-plane name, `MyIngress.ipv4_lpm`.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Key fields in order. Empty: the default action always runs and `hit` is false.
    pub keys: Vec<Key>,
    /// The actions that entries may run. `Apply` yields positions in this list.
    pub actions: Vec<TableAction>,
    /// The action that runs on a miss.
    pub default_action: ActionCall,
    /// Whether the control plane may not change the default action.
    pub const_default: bool,
    /// Entries that the program defines.
    pub entries: Vec<TableEntry>,
    /// Whether the control plane may not add, change or remove entries.
    pub const_entries: bool,
    /// Largest number of entries; further inserts are refused.
    pub size: u64,
    /// The action profile or selector, if entries name members and groups.
    pub implementation: Option<ExternId>,
    /// Direct counters and meters.
    pub direct: Vec<ExternId>,
    /// Whether entries may carry an idle timeout.
    pub idle_timeout: bool,
    /// Whether this is a parser value set (one action without effect; only `hit` is read).
    pub value_set: bool,
    /// How packets change the entries, if they do. All keys are exact then.
    pub dynamic: Option<Dynamic>,
}

/// How packets change the entries of a table (PNA, "Tables with add-on-miss capability", "Table entry idle timeout").
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Dynamic {
    /// Whether packets add entries ([`Op::AddEntry`]).
    pub add_on_miss: bool,
    /// What happens to an entry that has been idle for its timeout.
    pub expiry: Expiry,
    /// Whether every hit restarts the entry's timer; otherwise only [`Op::RestartTimer`] does.
    pub restart_on_hit: bool,
    /// The expire times that packets may choose from, in milliseconds, by index; 0 is never.
    pub expire_ms: Vec<u32>,
    /// Whether a packet that finds the table full evicts an entry: the one of a few candidates that has been idle
    /// longest.
    pub evicts: bool,
}

/// Approximate number of time steps in a table's shortest expire time.
const STEPS_OF_SHORTEST: u64 = 32;
/// Largest time step, in microseconds: half a second.
const STEP_US_MAX: u64 = 1 << 19;

impl Dynamic {
    /// The time step of the table, in ticks of `tick_us` microseconds: a power of two. An entry expires at the first
    /// multiple of it after its timeout. About a thirtieth of the shortest expire time, at most half a second, and at
    /// least one tick.
    pub fn step_ticks(&self, tick_us: u64) -> u64 {
        let shortest_us = self.expire_ms.iter().filter(|ms| **ms > 0).map(|ms| u64::from(*ms) * 1000).min();
        let step = (shortest_us.unwrap_or(u64::MAX) / STEPS_OF_SHORTEST).min(STEP_US_MAX) / tick_us;
        1 << step.max(1).ilog2()
    }
}

/// What happens to an entry that has been idle for its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Expiry {
    /// Entries have no timeouts.
    #[default]
    Never,
    /// The entry stays, and the control plane is notified.
    Notify,
    /// The entry is removed.
    Delete,
    /// The entry is removed, and the control plane is notified.
    DeleteAndNotify,
}

impl Expiry {
    /// Whether idle entries are removed.
    pub fn deletes(self) -> bool {
        matches!(self, Expiry::Delete | Expiry::DeleteAndNotify)
    }
}

/// A key field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Control-plane name, `hdr.ipv4.dstAddr`.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// How it is compared.
    pub kind: MatchKind,
}

/// An action in a table's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableAction {
    /// The action.
    pub action: ActionId,
    /// `@defaultonly`: not for entries.
    pub default_only: bool,
    /// `@tableonly`: not as default.
    pub table_only: bool,
}

/// The name of the action that runs `first`, then `then`. P4Runtime composes a group's action with a member's in this
/// way.
pub fn combined_action_name(first: &str, then: &str) -> String {
    format!("{first}.$then.{then}")
}

/// An extern instance that has state or that the control plane knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extern {
    /// Fully qualified control-plane name.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// What it is.
    pub kind: ExternKind,
}

/// Packets, bytes or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterUnit {
    /// Packets only.
    Packets,
    /// Bytes only.
    Bytes,
    /// Both.
    Both,
}

/// The kinds of extern instances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExternKind {
    /// A counter array or, if `direct`, a counter per table entry.
    Counter {
        /// Number of cells (for direct counters, the table's size).
        size: u64,
        /// What is counted.
        unit: CounterUnit,
        /// The table it belongs to.
        direct: Option<TableId>,
    },
    /// A meter array (RFC 2698) or, if `direct`, a meter per table entry.
    Meter {
        /// Number of cells.
        size: u64,
        /// Bytes or packets.
        unit: CounterUnit,
        /// The table it belongs to.
        direct: Option<TableId>,
    },
    /// A register array; the cells start with `initial`.
    Register {
        /// Number of cells.
        size: u64,
        /// Width of a cell in bits.
        width: u32,
        /// Initial value of each cell.
        initial: base::Bits,
    },
    /// Members that entries of one or more tables refer to.
    ActionProfile {
        /// Largest number of members.
        size: u64,
        /// The actions that members may run (the same list in all tables that share the profile).
        actions: Vec<TableAction>,
    },
    /// An action profile with groups.
    ActionSelector {
        /// Largest number of members over all groups.
        size: u64,
        /// The actions that members may run.
        actions: Vec<TableAction>,
        /// Hash over the `selector` keys.
        algorithm: crate::op::HashAlgorithm,
        /// Number of bits of the hash that are used.
        hash_width: u32,
        /// The action of a group without a member to choose: a position in `actions`, and arguments. If `None`, such a
        /// group counts as a miss.
        empty: Option<base::entry::ActionCall>,
    },
    /// Messages to the controller.
    Digest {
        /// Field names and widths.
        fields: Vec<(String, u32)>,
    },
}

/// What kind of P4 block a stage came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// May extract, advance, look ahead, and apply value sets. Starts at the first byte of the frame.
    Parser,
    /// May apply tables.
    Control,
    /// May emit. When the stage ends, on whichever path, the emitted headers and the rest of the packet are joined. The
    /// joined bytes are the frame from then on, and the emitted ones count as consumed.
    Deparser,
}

/// A control-flow graph. Block 0 is its entry block.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// Instance name of the P4 block, or the architecture's name for its glue.
    pub name: String,
    /// What its blocks may contain.
    pub kind: StageKind,
    /// Blocks.
    pub blocks: Vec<Block>,
}

impl Stage {
    /// The first block.
    pub const START: BlockId = BlockId(0);
}

/// A basic block.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// For readers: empty, or the name of a parser state or action.
    pub label: String,
    /// Straight-line code.
    pub insts: Vec<Inst>,
    /// How the block ends.
    pub term: Terminator,
    /// The source location of the terminator.
    pub span: Span,
}

/// The kinds of entry points: how a packet enters the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EntryKind {
    /// From a port. All slots are zero except the intrinsics.
    Ingress,
    /// Resubmitted or recirculated. As `Ingress`, but preserved slots keep their values (they come from the record). In
    /// the record the engine clears all others but the intrinsics, and the optimiser relies on that.
    Reingress,
    /// A clone that is parsed again before egress: of the packet as received (from `IngressEnd`) or as deparsed (from
    /// `FrameEnd`). Slots as for `Reingress`.
    CloneIngress,
    /// A copy for egress, with all slots from the record.
    Egress,
    /// After egress, if the replication engine ran in between. All slots come from the record.
    Deparse,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [EntryKind; 5] =
        [EntryKind::Ingress, EntryKind::Reingress, EntryKind::CloneIngress, EntryKind::Egress, EntryKind::Deparse];

    /// The word of the text form.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Ingress => "ingress",
            EntryKind::Reingress => "reingress",
            EntryKind::CloneIngress => "clone_ingress",
            EntryKind::Egress => "egress",
            EntryKind::Deparse => "deparse",
        }
    }
}

/// The value of a slot when a packet continues at [`EntryKind::Reingress`]; numbers are truncated to its width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtReingress {
    /// Its previous value.
    Kept,
    /// The port on which the packet was received.
    IngressPort,
    /// The time of the batch in which the packet was received.
    Timestamp,
    /// The length of the frame in bytes.
    Length,
    /// This number.
    Number(u64),
}

/// An entry point: a sequence of stages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryPoint {
    /// Its kind.
    pub kind: EntryKind,
    /// Stages in order; `Terminator::Next` continues with the next one. On all paths the last one ends with `Finish`.
    pub stages: Vec<StageId>,
}

macro_rules! intrinsics {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Slots that the runtime reads or writes.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Intrinsic { $($(#[$doc])* $name,)* }
        impl Intrinsic {
            /// All of them.
            pub const ALL: &'static [Intrinsic] = &[$(Intrinsic::$name,)*];
            /// The word of the text form.
            pub fn name(self) -> &'static str {
                match self { $(Intrinsic::$name => $text,)* }
            }
        }
    };
}

intrinsics! {
    /// Set by the runtime: the port on which the packet was received.
    IngressPort = "ingress_port",
    /// Set by the runtime: length of the frame in bytes, when it entered (ingress) or was copied (egress).
    PacketLength = "packet_length",
    /// Set by the runtime: see [`InstanceTypes`].
    InstanceType = "instance_type",
    /// Set by the runtime: microseconds since the switch started, when the packet was received.
    IngressTimestamp = "ingress_timestamp",
    /// Set by the runtime before egress: the time, in microseconds.
    EgressTimestamp = "egress_timestamp",
    /// Set by the runtime before egress: the time when it was queued, in microseconds.
    EnqueueTimestamp = "enqueue_timestamp",
    /// Set by the runtime before egress: packets in the queue when it was queued.
    EnqueueDepth = "enqueue_depth",
    /// Set by the runtime before egress: time spent in the queue, in microseconds.
    DequeueDelta = "dequeue_delta",
    /// Set by the runtime before egress: packets in the queue when it left.
    DequeueDepth = "dequeue_depth",
    /// Read at `ReplicationPoint::IngressEnd`: the egress port.
    EgressSpec = "egress_spec",
    /// Set before egress: the port by which the packet leaves.
    EgressPort = "egress_port",
    /// Read at `IngressEnd`: the multicast group, 0 for none.
    MulticastGroup = "multicast_group",
    /// Set by the runtime before egress: the replica's instance id.
    EgressRid = "egress_rid",
    /// Read at `IngressEnd`: 1 when the packet itself is dropped, whatever else it requests; clones are still made.
    DropFlag = "drop_flag",
    /// Set by the runtime before egress, for copies of a clone session: the session's class of service.
    ClassOfService = "class_of_service",
    /// Read at `IngressEnd`, `EgressEnd` and `FrameEnd`: 1 if the program requests a clone.
    CloneFlag = "clone_flag",
    /// Read with `CloneFlag`: the clone session.
    CloneSession = "clone_session",
    /// Read with `CloneFlag` at `EgressEnd`: the port of the copy, in programs that name a port and no session.
    ClonePort = "clone_port",
    /// Read with `CloneFlag`: the field list to keep.
    CloneFieldList = "clone_field_list",
    /// Read at `IngressEnd`: 1 when the packet is to be parsed again.
    ResubmitFlag = "resubmit_flag",
    /// Read with `ResubmitFlag`: the field list to keep.
    ResubmitFieldList = "resubmit_field_list",
    /// Read at `DeparseEnd`: 1 when the packet goes back to ingress.
    RecirculateFlag = "recirculate_flag",
    /// Read with `RecirculateFlag`: the field list to keep.
    RecirculateFieldList = "recirculate_field_list",
    /// The parser's error, an index into `Program::errors`.
    ParserError = "parser_error",
}

/// Values of `InstanceType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InstanceTypes {
    /// From a port.
    pub normal: u64,
    /// Ingress-to-egress clone.
    pub ingress_clone: u64,
    /// Egress-to-egress clone.
    pub egress_clone: u64,
    /// Recirculated.
    pub recirculate: u64,
    /// Multicast replica.
    pub replication: u64,
    /// Resubmitted.
    pub resubmit: u64,
}

/// A header in front of packets that are exchanged with the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerHeader {
    /// `packet_in` or `packet_out`.
    pub name: String,
    /// Field names and widths in wire order.
    pub fields: Vec<(String, u32)>,
}

impl Program {
    /// The width of a slot.
    pub fn width(&self, slot: SlotId) -> u32 {
        self.slots[slot.index()].width
    }

    /// The slot of an intrinsic, if the program has it.
    pub fn intrinsic(&self, which: Intrinsic) -> Option<SlotId> {
        self.intrinsics.iter().find(|(i, _)| *i == which).map(|(_, s)| *s)
    }

    /// The entry point of this kind, if the program has it.
    pub fn entry(&self, kind: EntryKind) -> Option<&EntryPoint> {
        self.entries.iter().find(|e| e.kind == kind)
    }

    /// Whether the entry point consists of `send egress_port` alone: the frame leaves unchanged by the port that the
    /// replication engine has set.
    pub fn sends_at_once(&self, kind: EntryKind) -> bool {
        let stages = self.entry(kind).map_or(&[][..], |entry| &entry.stages);
        let [stage] = stages else { return false };
        let [block] = &self.stages[stage.index()].blocks[..] else { return false };
        let port = self.intrinsic(Intrinsic::EgressPort).map(Operand::Slot);
        block.insts.is_empty() && matches!(&block.term, Terminator::Finish(Fate::Send(to)) if Some(to) == port.as_ref())
    }

    /// The slots that a field list keeps; empty if there is no list of this index.
    pub fn field_list(&self, index: u64) -> &[SlotId] {
        self.field_lists.iter().find(|(i, _)| *i == index).map_or(&[], |(_, s)| s)
    }

    /// The slots that may be nonzero when a packet continues at [`EntryKind::Reingress`], and their values. Slots in
    /// the field list are kept; intrinsics have the switch's values, whether or not they are in the list.
    pub fn at_reingress(&self, why: Again, list: Option<u64>) -> BTreeMap<SlotId, AtReingress> {
        let kept = list.map_or(&[][..], |list| self.field_list(list));
        let mut all: BTreeMap<SlotId, AtReingress> = kept.iter().map(|slot| (*slot, AtReingress::Kept)).collect();
        let instance_type = match why {
            Again::Resubmitted => self.instance_types.resubmit,
            Again::Recirculated => self.instance_types.recirculate,
        };
        for (which, slot) in &self.intrinsics {
            let value = match which {
                Intrinsic::IngressPort => AtReingress::IngressPort,
                Intrinsic::IngressTimestamp => AtReingress::Timestamp,
                Intrinsic::PacketLength => AtReingress::Length,
                Intrinsic::InstanceType => AtReingress::Number(instance_type),
                _ => continue,
            };
            all.insert(*slot, value);
        }
        all
    }

    /// A table by its control-plane name.
    pub fn table_named(&self, name: &str) -> Option<TableId> {
        self.tables.iter().position(|t| t.name == name).map(TableId::from_index)
    }

    /// The unresolved callees of the program ([`Op::Unresolved`]), in order of the calls. A program with any cannot be
    /// loaded.
    pub fn unresolved(&self) -> impl Iterator<Item = &str> {
        let insts = self.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts);
        insts.filter_map(|inst| match &inst.op {
            Op::Unresolved { callee, .. } => Some(callee.as_str()),
            _ => None,
        })
    }

    /// An extern by its control-plane name.
    pub fn extern_named(&self, name: &str) -> Option<ExternId> {
        self.externs.iter().position(|e| e.name == name).map(ExternId::from_index)
    }
}
