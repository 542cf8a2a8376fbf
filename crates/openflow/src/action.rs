//! Actions, instructions and buckets, for all versions alike.

use crate::field::FieldId;

/// Reserved port numbers, as OpenFlow 1.1 and later have them (1.3.5, 7.2.1); those of 1.0 are translated by `wire`.
pub mod port {
    /// The most that a port of a switch can have.
    pub const MAX: u32 = 0xffff_ff00;
    /// The port by which the packet came.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// The first table, for packet-outs.
    pub const TABLE: u32 = 0xffff_fff9;
    /// As a switch without OpenFlow does.
    pub const NORMAL: u32 = 0xffff_fffa;
    /// All ports but that by which it came and those that are not to be flooded.
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports but that by which it came.
    pub const ALL: u32 = 0xffff_fffc;
    /// The controller.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The switch's own network stack.
    pub const LOCAL: u32 = 0xffff_fffe;
    /// None; any, in requests.
    pub const ANY: u32 = 0xffff_ffff;

    /// The number of a port of OpenFlow 1.0 and of Nicira's formats, whose reserved ports begin at 0xff00.
    pub fn from_16(number: u16) -> u32 {
        let number = u32::from(number);
        if number < 0xff00 { number } else { number | 0xffff_0000 }
    }

    /// The reverse, if there is one.
    pub fn to_16(number: u32) -> Option<u16> {
        if (0xff00..MAX).contains(&number) { None } else { Some(number as u16) }
    }
}

/// All of a packet, for a controller.
pub const NO_BUFFER: u16 = 0xffff;

/// Bits `offset .. offset + bits` of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subfield {
    /// The field.
    pub field: FieldId,
    /// The lowest bit.
    pub offset: u32,
    /// How many, at least 1.
    pub bits: u32,
}

/// A value that is constant or comes from a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A constant.
    Value(u128),
    /// Bits of the packet's fields.
    Field(Subfield),
}

/// What a switch does with a packet.
#[allow(missing_docs)] // of the variants' fields, whose names say what they are
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends it to a port, or to one of [`port`]'s; `max_len` bytes of it to a controller.
    Output { port: u32, max_len: u16 },
    /// Sends it to the port that a field names (Nicira).
    OutputField { field: Subfield, max_len: u16 },
    /// Sends at most so many bytes of it (Nicira).
    OutputTruncated { port: u32, max_len: u32 },
    /// Sends it to a controller (Nicira).
    Controller(Controller),
    /// Sends it through a queue of a port (OpenFlow 1.0).
    Enqueue { port: u32, queue: u32 },
    /// The queue for later outputs.
    SetQueue(u32),
    /// The queue is the first again (Nicira).
    PopQueue,
    /// Goes through a group.
    Group(u32),
    /// Goes through a meter (OpenFlow 1.5; earlier as an instruction).
    Meter(u32),
    /// Writes a field's bits under the mask.
    SetField { field: FieldId, value: u128, mask: u128 },
    /// Writes a field only if what it needs is there (OpenFlow 1.0's `set_tp_src` and the like, which are ignored for other packets).
    SetFieldIfPresent { field: FieldId, value: u128, mask: u128 },
    /// Copies bits of a field (Nicira's `move`, OpenFlow 1.5's copy-field).
    Move { from: Subfield, to: Subfield },
    /// Pushes bits of a field onto the packet's stack (Nicira).
    StackPush(Subfield),
    /// Pops them from there (Nicira).
    StackPop(Subfield),
    /// Changes headers as the program's action of that name does: `push_vlan`, `dec_ttl`. Which names there are: [`header`].
    Header { name: HeaderAction, argument: u128 },
    /// Decrements the TTL and sends packets whose TTL is over to these controllers (Nicira).
    DecTtlControllers(Vec<u16>),
    /// Writes no bits of the field and takes it from the packet (Nicira).
    DeleteField(FieldId),
    /// Searches a table as if the packet had come by another port (Nicira). `None` stands for the current one.
    Resubmit { port: Option<u32>, table: Option<u8>, with_ct: bool },
    /// Adds or changes a flow made of the packet (Nicira).
    Learn(Box<Learn>),
    /// Part of a conjunctive match: clause `clause` (from 0) of `clauses` of conjunction `id` (Nicira).
    Conjunction { clause: u8, clauses: u8, id: u32 },
    /// Writes a hash of the flow to a field, for choosing among links (Nicira).
    Multipath {
        hash: HashFields,
        basis: u16,
        algorithm: MultipathAlgorithm,
        max_link: u16,
        argument: u32,
        to: Subfield,
    },
    /// Chooses one of ports that are up (Nicira); sends to it, or writes it to a field.
    Bundle { hash: HashFields, basis: u16, algorithm: BundleAlgorithm, members: Vec<u32>, to: Option<Subfield> },
    /// Whether the packet is larger than so many bytes, as a bit (Nicira).
    CheckPacketLarger { bytes: u16, to: Subfield },
    /// Nothing (Nicira).
    Note(Vec<u8>),
    /// Shortens the flow's timeouts on TCP FIN and RST (Nicira).
    FinTimeout { idle: u16, hard: u16 },
    /// Ends what the packet does (Nicira).
    Exit,
    /// Does these to a copy of it (Nicira).
    Clone(Vec<Action>),
    /// As instructions: forgets the action set.
    ClearActions,
    /// As an instruction: adds to the action set.
    WriteActions(Vec<Action>),
    /// As an instruction: writes the metadata field.
    WriteMetadata { value: u64, mask: u64 },
    /// As an instruction: goes on in a later table.
    GotoTable(u8),
    /// Runs a loaded program by its id (an experimenter's action of Sluice).
    Program { id: u32, argument: u64 },
    /// An action that can be read but is not done: refused by name, as `ct`.
    Unsupported(&'static str),
}

/// Actions that change which headers a packet has, or work on what only the program knows. Each is an action of the P4 program by
/// this name; a program that lacks one refuses flows with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderAction {
    /// Argument: the tag's EtherType.
    PushVlan,
    /// No argument.
    PopVlan,
    /// OpenFlow 1.0's: writes the VLAN id of the outermost tag, and adds one of 0x8100 where there is none.
    SetVlanVid,
    /// The same for the priority.
    SetVlanPcp,
    /// Argument: the label's EtherType.
    PushMpls,
    /// Argument: the EtherType of what is below.
    PopMpls,
    /// Argument: the EtherType.
    PushPbb,
    /// No argument.
    PopPbb,
    /// Argument: the TTL.
    SetMplsTtl,
    /// No argument.
    DecMplsTtl,
    /// Argument: the TTL.
    SetNwTtl,
    /// No argument.
    DecNwTtl,
    /// Copies the outer from the next TTL.
    CopyTtlOut,
    /// Copies the next from the outer TTL.
    CopyTtlIn,
}

impl HeaderAction {
    /// All of them.
    pub const ALL: [HeaderAction; 14] = [
        HeaderAction::PushVlan,
        HeaderAction::PopVlan,
        HeaderAction::SetVlanVid,
        HeaderAction::SetVlanPcp,
        HeaderAction::PushMpls,
        HeaderAction::PopMpls,
        HeaderAction::PushPbb,
        HeaderAction::PopPbb,
        HeaderAction::SetMplsTtl,
        HeaderAction::DecMplsTtl,
        HeaderAction::SetNwTtl,
        HeaderAction::DecNwTtl,
        HeaderAction::CopyTtlOut,
        HeaderAction::CopyTtlIn,
    ];

    /// The program's action of this name does it.
    pub fn name(self) -> &'static str {
        match self {
            HeaderAction::PushVlan => "push_vlan",
            HeaderAction::PopVlan => "pop_vlan",
            HeaderAction::SetVlanVid => "set_vlan_vid",
            HeaderAction::SetVlanPcp => "set_vlan_pcp",
            HeaderAction::PushMpls => "push_mpls",
            HeaderAction::PopMpls => "pop_mpls",
            HeaderAction::PushPbb => "push_pbb",
            HeaderAction::PopPbb => "pop_pbb",
            HeaderAction::SetMplsTtl => "set_mpls_ttl",
            HeaderAction::DecMplsTtl => "dec_mpls_ttl",
            HeaderAction::SetNwTtl => "set_nw_ttl",
            HeaderAction::DecNwTtl => "dec_nw_ttl",
            HeaderAction::CopyTtlOut => "copy_ttl_out",
            HeaderAction::CopyTtlIn => "copy_ttl_in",
        }
    }
}

/// Nicira's `controller`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    /// Bytes to send.
    pub max_len: u16,
    /// Which controllers: those of this id.
    pub id: u16,
    /// An `OFPR_` reason.
    pub reason: u8,
    /// Sent along.
    pub userdata: Vec<u8>,
    /// Whether the packet waits for the controller to let it go on.
    pub pause: bool,
    /// The meter for its packet-ins.
    pub meter: Option<u32>,
}

/// What a hash for choosing is taken over (Nicira's `multipath` and `bundle`), by the numbers of `enum nx_hash_fields`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// Ethernet source.
    EthSrc = 0,
    /// Layers 2 to 4; the same for both directions.
    SymmetricL4 = 1,
    /// Layers 3 and 4; the same for both directions.
    SymmetricL3L4 = 2,
    /// The same, with UDP ports.
    SymmetricL3L4Udp = 3,
    /// Network source.
    NwSrc = 4,
    /// Network destination.
    NwDst = 5,
    /// Network addresses; the same for both directions.
    SymmetricL3 = 6,
}

/// Nicira's `multipath`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MultipathAlgorithm {
    /// Hash modulo links.
    ModuloN = 0,
    /// Hash threshold (RFC 2992).
    HashThreshold = 1,
    /// Highest random weight (RFC 2991).
    HighestRandomWeight = 2,
    /// Hash again until it fits.
    IterativeHash = 3,
}

/// Nicira's `bundle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleAlgorithm {
    /// The first that is up.
    ActiveBackup = 0,
    /// Highest random weight.
    HighestRandomWeight = 1,
}

/// Nicira's `learn`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Of the learned flow.
    pub idle_timeout: u16,
    /// Of the learned flow.
    pub hard_timeout: u16,
    /// Of the learned flow.
    pub priority: u16,
    /// Of the learned flow.
    pub cookie: u64,
    /// Where it goes.
    pub table: u8,
    /// `NX_LEARN_F_` bits.
    pub flags: u16,
    /// Of the learned flow.
    pub fin_idle_timeout: u16,
    /// Of the learned flow.
    pub fin_hard_timeout: u16,
    /// Most flows that it may have made; 0 for no limit.
    pub limit: u32,
    /// Where it is said whether the flow was added, if `flags` ask for it.
    pub result: Option<Subfield>,
    /// What the learned flow is made of.
    pub specs: Vec<LearnSpec>,
}

/// A part of a learned flow.
#[allow(missing_docs)] // of the variants' fields, whose names say what they are
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSpec {
    /// Matches bits.
    Match { to: Subfield, from: Source },
    /// Loads bits.
    Load { to: Subfield, from: Source },
    /// Sends to a port.
    Output { from: Subfield },
}

/// What a flow does: the instructions, in the order in which they are done (OpenFlow 1.3.5, 5.9). OpenFlow 1.0 has `apply` only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instructions {
    /// First, a meter.
    pub meter: Option<u32>,
    /// Then these actions.
    pub apply: Vec<Action>,
    /// Then the action set is forgotten.
    pub clear: bool,
    /// Then these go into the action set.
    pub write: Vec<Action>,
    /// Then the metadata field is written: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// Then the packet goes on in this table.
    pub goto: Option<u8>,
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Its number (OpenFlow 1.5; before, its place).
    pub id: u32,
    /// Its share in a `select` group.
    pub weight: u16,
    /// It is live if this port is up.
    pub watch_port: Option<u32>,
    /// It is live if this group is.
    pub watch_group: Option<u32>,
    /// What it does.
    pub actions: Vec<Action>,
}
