//! A whole program: the packet header vector, tables, externs, stages, and how the stages hang together.
//!
//! The IR knows no protocol and no architecture. What an architecture means is spelled out by `lower`: the glue between
//! its blocks is stages of its own, its metadata are slots, and the few slots that the *runtime* must read or write (the
//! port a packet came from, the multicast group it asks for) are named by [`Intrinsic`].
//!
//! **Slots.** Every header field, metadata field, local and temporary is a slot: a mutable variable of a fixed width.
//! All slots are zero when a packet starts at [`EntryKind::Ingress`], but for the intrinsics that the runtime sets.
//!
//! **Headers.** A header is its field slots in wire order and a one-bit validity slot. *The fields of an invalid header
//! are zero*: `Op::SetInvalid` clears them, and lowering guards writes to a header that may be invalid. So reads need no
//! check and a header copy is a copy of slots. Stacks exist only as names and groups: lowering turns `next`, `last`,
//! `push_front`, `pop_front` and dynamic indices into plain operations on their elements and a `nextIndex` slot.

use crate::op::{Again, Fate, Inst, Op, Operand, Terminator};
use base::Span;
use base::entry::{ActionCall, MatchKind, TableEntry};
use base::ids::{ActionId, BlockId, ExternId, HeaderId, SlotId, StageId, TableId};
use std::collections::BTreeMap;

/// Most bytes of headers that a deparser can emit, on every engine; a packet for which that is not enough has no room. No buffer
/// has place for more headers and a frame behind them.
pub const EMITTED_BYTES_MAX: u32 = 16 * 1024;

/// A program of one pipeline.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// The name of the source, for messages.
    pub name: String,
    /// The packet header vector.
    pub slots: Vec<Slot>,
    /// Header instances, stack elements and union members included.
    pub headers: Vec<Header>,
    /// Actions that tables name. Their bodies are blocks behind the table's switch.
    pub actions: Vec<Action>,
    /// Tables; parser value sets are tables with [`Table::value_set`].
    pub tables: Vec<Table>,
    /// Counters, meters, registers, digests, action profiles.
    pub externs: Vec<Extern>,
    /// Parsers, controls, deparsers, glue.
    pub stages: Vec<Stage>,
    /// What runs, in order, for each way a packet enters; at most one per [`EntryKind`], `Ingress` always.
    pub entries: Vec<EntryPoint>,
    /// Hashes whose parameters the control plane sets one by one ([`crate::HashAlgorithm::Calculation`]).
    pub calculations: Vec<Calculation>,
    /// Slots with a meaning for the runtime.
    pub intrinsics: Vec<(Intrinsic, SlotId)>,
    /// Slots that survive a clone, resubmission or recirculation, by field-list index (v1model `@field_list`).
    pub field_lists: Vec<(u64, Vec<SlotId>)>,
    /// `error` members; a value of an error slot is an index here. `NoError` is 0.
    pub errors: Vec<String>,
    /// Names of the drop counters that `Fate::Drop` refers to.
    pub drops: Vec<String>,
    /// The value of `EgressSpec` that means drop, if the architecture has one.
    pub drop_port: Option<u64>,
    /// The number of the port to the controller, if the architecture fixes it.
    pub cpu_port: Option<u64>,
    /// The number of the port that leads back to ingress, if the architecture has one.
    pub recirculation_port: Option<u64>,
    /// The clone session that leads to `cpu_port` as long as the control plane has made no session of that number.
    pub cpu_session: Option<u64>,
    /// Whether the copies of a clone session are cut to its length when they are made; else they are when they are sent.
    pub cuts_clones_first: bool,
    /// Whether packets wait in a queue of their port between ingress and egress: every packet that goes on to egress is handed to
    /// the replication engine. Else queues, if a port has any, are behind the deparser.
    pub queues: bool,
    /// The values of `InstanceType` for packets that did not come from a port.
    pub instance_types: InstanceTypes,
    /// Controller headers' layouts: packet-in and packet-out (P4Runtime `@controller_header`).
    pub controller_headers: Vec<ControllerHeader>,
    /// What it tells a flow processor, which decides in the place of tables, if the architecture is one for that.
    pub openflow: Option<OpenFlow>,
}

/// A hash whose parameters the control plane sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calculation {
    /// Its name, `calc_0`.
    pub name: String,
    /// What it calculates.
    pub function: Calculated,
}

/// The function of a calculation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Calculated {
    /// A CRC of 16 bits, CRC-16/ARC at first.
    Crc16,
    /// A CRC of 32 bits, CRC-32 at first.
    Crc32,
    /// The Toeplitz hash of receive-side scaling, 32 bits: for each bit of the data that is set, the 32 bits of the key from there on
    /// are combined by exclusive or; behind its end the key begins again. The key is four zero bytes at first.
    Toeplitz,
}

impl Calculated {
    /// Bits of the result.
    pub fn width(self) -> u32 {
        match self {
            Calculated::Crc16 => 16,
            Calculated::Crc32 | Calculated::Toeplitz => 32,
        }
    }
}

/// What a program of the OpenFlow model tells the switch: it declares protocols, OpenFlow's tables decide.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenFlow {
    /// Match fields, in order of declaration.
    pub fields: Vec<MatchField>,
    /// The control of header actions: its stage, and its table, whose actions they are (`push_vlan` for `Actions.push_vlan`).
    pub actions: Option<(StageId, TableId)>,
    /// One bit: an action has changed headers so that the frame must be parsed anew before other fields are matched or written.
    pub reparse: Option<SlotId>,
    /// One bit: an action has found that a TTL is over.
    pub ttl_exceeded: Option<SlotId>,
}

/// A match field (OpenFlow 1.3.5, 7.2.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchField {
    /// As users of OpenFlow know it, `eth_dst`.
    pub name: String,
    /// Where it is, the most significant part first: bits `lo .. lo + width` of slots. At most 128 bits together.
    pub parts: Vec<FieldPart>,
    /// Its OXM and NXM numbers, the preferred one first: class, field, experimenter.
    pub numbers: Vec<(u16, u8, u32)>,
    /// Whether a match may mask it.
    pub maskable: bool,
    /// Whether actions may write it.
    pub writable: bool,
    /// Whether it belongs to the packet's way through the switch and not to its bytes: it is kept when the frame is parsed anew, and
    /// packet-ins carry it.
    pub is_metadata: bool,
    /// What must hold for it to be there: all of (place of another field, mask, one of these values).
    pub prerequisites: Vec<(u32, u128, Vec<u128>)>,
}

/// A part of a match field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPart {
    /// The slot.
    pub slot: SlotId,
    /// Its lowest bit that belongs to the field.
    pub lo: u32,
    /// How many bits do.
    pub width: u32,
}

/// A variable of the packet header vector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Unique; `hdr.ipv4.ttl`, `meta.vrf`, `ingress.tmp`, `%3`.
    pub name: String,
    /// Bits, at least 1. Booleans have 1. A varbit's slot has its maximum.
    pub width: u32,
    /// What it is.
    pub kind: SlotKind,
}

/// What a slot is. Only headers' slots have rules (see the module text); the rest is for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// A field of a header.
    Field(HeaderId),
    /// The number of bits in a header's varbit field (32 bits wide).
    VarbitLength(HeaderId),
    /// A header's validity (1 bit).
    Valid(HeaderId),
    /// What belongs to the packet's headers but to no [`Header`]: the `nextIndex` of their stacks, and fields and validity
    /// of a header that has no wire form. An egress-to-egress clone keeps it, as it keeps headers.
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
    /// What entries may run; `Apply` yields positions in this list.
    pub actions: Vec<TableAction>,
    /// Runs on a miss.
    pub default_action: ActionCall,
    /// Whether the control plane may not change the default action.
    pub const_default: bool,
    /// Entries of the program.
    pub entries: Vec<TableEntry>,
    /// Whether the control plane may not add, change or remove entries.
    pub const_entries: bool,
    /// Most entries; a further insert is refused.
    pub size: u64,
    /// The action profile or selector, if entries name members and groups.
    pub implementation: Option<ExternId>,
    /// Direct counters and meters.
    pub direct: Vec<ExternId>,
    /// Whether entries may carry an idle timeout.
    pub idle_timeout: bool,
    /// Whether this is a parser value set (one action without effect; only `hit` is read).
    pub value_set: bool,
    /// What packets do to the entries, if they do anything; all keys are exact then.
    pub dynamic: Option<Dynamic>,
}

/// What packets do to the entries of a table (PNA, "Tables with add-on-miss capability", "Table entry idle timeout").
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Dynamic {
    /// Whether packets add entries ([`Op::AddEntry`]).
    pub add_on_miss: bool,
    /// What becomes of an entry that has been idle for its timeout.
    pub expiry: Expiry,
    /// Whether every hit begins the entry's time anew; otherwise [`Op::RestartTimer`] alone does.
    pub restart_on_hit: bool,
    /// Milliseconds of each expire time that packets may name, by number; 0 is never.
    pub expire_ms: Vec<u32>,
    /// Whether packets that find the table full make room: the entry ends that has been idle for longest, among some.
    pub evicts: bool,
}

/// Steps of a table's time in the shortest of its expire times, about.
const STEPS_OF_SHORTEST: u64 = 32;
/// Longest step of a table's time: half a second.
const STEP_US_MAX: u64 = 1 << 19;

impl Dynamic {
    /// The unit of the table's time, of so many ticks: an entry's time is over at the first multiple of it that comes after its
    /// timeout. About a thirtieth of the shortest expire time, at most half a second, and at least a tick.
    pub fn step_ticks(&self, tick_us: u64) -> u64 {
        let shortest_us = self.expire_ms.iter().filter(|ms| **ms > 0).map(|ms| u64::from(*ms) * 1000).min();
        let step = (shortest_us.unwrap_or(u64::MAX) / STEPS_OF_SHORTEST).min(STEP_US_MAX) / tick_us;
        1 << step.max(1).ilog2()
    }
}

/// What becomes of an entry that has been idle for its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Expiry {
    /// Entries have no timeouts.
    #[default]
    Never,
    /// It stays, and the control plane is told.
    Notify,
    /// It ends.
    Delete,
    /// It ends, and the control plane is told.
    DeleteAndNotify,
}

impl Expiry {
    /// Whether idle entries end.
    pub fn deletes(self) -> bool {
        matches!(self, Expiry::Delete | Expiry::DeleteAndNotify)
    }
}

/// A key field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Control-plane name, `hdr.ipv4.dstAddr`.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// How it is compared.
    pub kind: MatchKind,
}

/// An action in a table's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableAction {
    /// Which.
    pub action: ActionId,
    /// `@defaultonly`: not for entries.
    pub default_only: bool,
    /// `@tableonly`: not as default.
    pub table_only: bool,
}

/// The name of the action that runs `first`, then `then`: what P4Runtime calls a group's action before a member's.
pub fn composed_action_name(first: &str, then: &str) -> String {
    format!("{first}.$then.{then}")
}

/// An extern instance with state or control-plane life.
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
    /// Counter array, or beside each entry of `direct`.
    Counter {
        /// Cells (for direct ones the table's size).
        size: u64,
        /// What is counted.
        unit: CounterUnit,
        /// The table it belongs to.
        direct: Option<TableId>,
    },
    /// Meter array (RFC 2698), or beside each entry of `direct`.
    Meter {
        /// Cells.
        size: u64,
        /// Bytes or packets.
        unit: CounterUnit,
        /// The table it belongs to.
        direct: Option<TableId>,
    },
    /// Register array; cells start at `initial`.
    Register {
        /// Cells.
        size: u64,
        /// Bits of a cell.
        width: u32,
        /// First value.
        initial: base::Bits,
    },
    /// Members that entries of one or more tables refer to.
    ActionProfile {
        /// Most members.
        size: u64,
        /// What members may run (all tables that share it have this same list).
        actions: Vec<TableAction>,
    },
    /// An action profile with groups.
    ActionSelector {
        /// Most members over all groups.
        size: u64,
        /// What members may run.
        actions: Vec<TableAction>,
        /// Hash over the `selector` keys.
        algorithm: crate::op::HashAlgorithm,
        /// Bits of the hash that are used.
        hash_width: u32,
        /// What a group runs that has no member to choose: a position in `actions`. Without, such a group counts as a miss.
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
    /// May extract, advance, look ahead, and apply value sets. Starts at the frame's first byte.
    Parser,
    /// May apply tables.
    Control,
    /// May emit; the emitted headers and the rest of the packet are joined when the stage ends, whichever way it ends.
    /// From then on the joined bytes are the frame, and as many of them as were emitted count as consumed.
    Deparser,
}

/// A control-flow graph. Block 0 is where it starts.
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
    /// For reading; empty, or a parser state's or action's name.
    pub label: String,
    /// Straight-line code.
    pub insts: Vec<Inst>,
    /// Where it goes on.
    pub term: Terminator,
    /// The place of the terminator.
    pub span: Span,
}

/// How a packet enters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EntryKind {
    /// From a port: slots are zero but for the intrinsics.
    Ingress,
    /// Resubmitted or recirculated: as `Ingress`, but preserved slots keep their values (they come from the record). The
    /// engine clears all others but the intrinsics in the record; the optimiser relies on that.
    Reingress,
    /// A clone that is parsed again, then egress: of the packet as received (from `IngressEnd`) or as deparsed (from
    /// `FrameEnd`). Slots as for `Reingress`.
    CloneIngress,
    /// A copy for egress, with all slots from the record.
    Egress,
    /// After egress, when replication had to look in between: with all slots from the record.
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

/// What a slot has when a packet goes on at [`EntryKind::Reingress`]; numbers are cut to its width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtReingress {
    /// What it had before.
    Kept,
    /// The port by which the packet came.
    IngressPort,
    /// The time of the batch that it came in.
    Timestamp,
    /// The frame's bytes.
    Length,
    /// This number.
    Number(u64),
}

/// The stages of one way in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryPoint {
    /// Which way.
    pub kind: EntryKind,
    /// Stages in order; `Terminator::Next` goes on with the next one. The last one ends with `Finish` on all paths.
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
    /// Set by the runtime: the port the packet came from.
    IngressPort = "ingress_port",
    /// Set by the runtime: bytes of the frame when it entered (ingress) or was copied (egress).
    PacketLength = "packet_length",
    /// Set by the runtime: see [`InstanceTypes`].
    InstanceType = "instance_type",
    /// Set by the runtime: microseconds since the switch started, when the packet was received.
    IngressTimestamp = "ingress_timestamp",
    /// Set by the runtime before egress: microseconds.
    EgressTimestamp = "egress_timestamp",
    /// Set by the runtime before egress: microseconds when it was queued.
    EnqueueTimestamp = "enqueue_timestamp",
    /// Set by the runtime before egress: packets in the queue.
    EnqueueDepth = "enqueue_depth",
    /// Set by the runtime before egress: microseconds in the queue.
    DequeueDelta = "dequeue_delta",
    /// Set by the runtime before egress: packets in the queue.
    DequeueDepth = "dequeue_depth",
    /// Read at `ReplicationPoint::IngressEnd`: where to.
    EgressSpec = "egress_spec",
    /// Set before egress: the port it leaves by.
    EgressPort = "egress_port",
    /// Read at `IngressEnd`: the multicast group, 0 for none.
    MulticastGroup = "multicast_group",
    /// Set by the runtime before egress: the replica's instance id.
    EgressRid = "egress_rid",
    /// Read at `IngressEnd`: 1 when the packet itself is dropped, whatever else it asks for but clones.
    DropFlag = "drop_flag",
    /// Set by the runtime before egress, for copies of a clone session: the session's class of service.
    ClassOfService = "class_of_service",
    /// Read at `IngressEnd`, `EgressEnd` and `FrameEnd`: 1 if the program requests a clone.
    CloneFlag = "clone_flag",
    /// Read with `CloneFlag`: the clone session.
    CloneSession = "clone_session",
    /// Read with `CloneFlag` at `EgressEnd`: the port that the copy goes to, in programs that name one and no session.
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

/// A header that stands before packets exchanged with the controller.
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

    /// The stages of a way in.
    pub fn entry(&self, kind: EntryKind) -> Option<&EntryPoint> {
        self.entries.iter().find(|e| e.kind == kind)
    }

    /// Whether an entry consists of `send egress_port` alone: the frame leaves unchanged by the port that the replication engine has set.
    pub fn sends_at_once(&self, kind: EntryKind) -> bool {
        let stages = self.entry(kind).map_or(&[][..], |entry| &entry.stages);
        let [stage] = stages else { return false };
        let [block] = &self.stages[stage.index()].blocks[..] else { return false };
        let port = self.intrinsic(Intrinsic::EgressPort).map(Operand::Slot);
        block.insts.is_empty() && matches!(&block.term, Terminator::Finish(Fate::Send(to)) if Some(to) == port.as_ref())
    }

    /// The slots a field list keeps; empty when there is none of that index.
    pub fn field_list(&self, index: u64) -> &[SlotId] {
        self.field_lists.iter().find(|(i, _)| *i == index).map_or(&[], |(_, s)| s)
    }

    /// The slots that are not zero when a packet goes on at [`EntryKind::Reingress`], and what is in them: what it had there if
    /// they are in the field list, and, list or not, what the switch knows of it.
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

    /// What the program calls and nobody has ([`Op::Unresolved`]), in order of the calls; a program with any cannot run.
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
