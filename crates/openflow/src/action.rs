//! Actions, instructions and buckets, common to all versions.

use crate::field::FieldId;

/// Reserved port numbers of OpenFlow 1.1 and later (1.3.5, 7.2.1). `wire` translates those of 1.0.
pub mod port {
    /// `OFPP_MAX`: the highest number of a physical or logical port.
    pub const MAX: u32 = 0xffff_ff00;
    /// The ingress port.
    pub const IN_PORT: u32 = 0xffff_fff8;
    /// The first table; valid in packet-outs only.
    pub const TABLE: u32 = 0xffff_fff9;
    /// Traditional (non-OpenFlow) forwarding.
    pub const NORMAL: u32 = 0xffff_fffa;
    /// All ports except the ingress port and those with flooding disabled.
    pub const FLOOD: u32 = 0xffff_fffb;
    /// All ports except the ingress port.
    pub const ALL: u32 = 0xffff_fffc;
    /// The controller.
    pub const CONTROLLER: u32 = 0xffff_fffd;
    /// The local port: the switch's own network stack.
    pub const LOCAL: u32 = 0xffff_fffe;
    /// No port; in requests, any port.
    pub const ANY: u32 = 0xffff_ffff;

    /// The 32-bit number of a 16-bit port of OpenFlow 1.0 and Nicira's formats, whose reserved ports begin at 0xff00.
    pub fn from_16(number: u16) -> u32 {
        let number = u32::from(number);
        if number < 0xff00 { number } else { number | 0xffff_0000 }
    }

    /// The reverse of [`from_16`]; `None` for a port without a 16-bit number.
    pub fn to_16(number: u32) -> Option<u16> {
        if (0xff00..MAX).contains(&number) { None } else { Some(number as u16) }
    }
}

/// `OFPCML_NO_BUFFER`: sends the whole packet to the controller.
pub const NO_BUFFER: u16 = 0xffff;

/// Bits `offset .. offset + bits` of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subfield {
    /// The field.
    pub field: FieldId,
    /// The lowest bit.
    pub offset: u32,
    /// The number of bits, at least 1.
    pub bits: u32,
}

/// An operand: a constant or bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A constant.
    Value(u128),
    /// Bits of a field of the packet.
    Field(Subfield),
}

/// An action, or an instruction in a list of actions.
#[allow(missing_docs)] // of the variants' fields, which are named after the specification's
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends the packet to a port, which may be reserved (see [`port`]); a controller gets at most `max_len` bytes.
    Output { port: u32, max_len: u16 },
    /// Sends the packet to the port whose number a field holds (Nicira).
    OutputField { field: Subfield, max_len: u16 },
    /// Sends at most `max_len` bytes of the packet to a port (Nicira).
    OutputTruncated { port: u32, max_len: u32 },
    /// Sends the packet to a controller, with options (Nicira).
    Controller(Controller),
    /// Sends the packet through a queue of a port (OpenFlow 1.0).
    Enqueue { port: u32, queue: u32 },
    /// Sets the queue for later outputs.
    SetQueue(u32),
    /// Resets the queue to the original one (Nicira).
    PopQueue,
    /// Processes the packet in a group.
    Group(u32),
    /// Applies a meter (an action in OpenFlow 1.5, an instruction before).
    Meter(u32),
    /// Sets the bits of a field that the mask selects.
    SetField { field: FieldId, value: u128, mask: u128 },
    /// Sets a field if its prerequisites hold and actions may write it, otherwise does nothing (OpenFlow 1.0's
    /// `set_tp_src` and the like).
    SetFieldIfPresent { field: FieldId, value: u128, mask: u128 },
    /// Copies bits of a field (Nicira's `move`, OpenFlow 1.5's copy-field).
    Move { from: Subfield, to: Subfield },
    /// Pushes bits of a field onto the packet's stack (Nicira).
    StackPush(Subfield),
    /// Pops bits of a field from the packet's stack (Nicira).
    StackPop(Subfield),
    /// Adds, removes or changes headers with the P4 action of this name; see [`HeaderAction`].
    Header { name: HeaderAction, argument: u128 },
    /// Decrements the TTL; a packet whose TTL has expired goes to the controllers with these ids (Nicira).
    DecTtlControllers(Vec<u16>),
    /// Removes an optional field from the packet (Nicira).
    DeleteField(FieldId),
    /// Searches a table again, with this ingress port (Nicira). `None` stands for the current port or table.
    Resubmit { port: Option<u32>, table: Option<u8>, with_ct: bool },
    /// Adds or modifies a flow derived from the packet (Nicira).
    Learn(Box<Learn>),
    /// One clause of a conjunctive match: clause `clause` (from 0) of `clauses` of conjunction `id` (Nicira).
    Conjunction { clause: u8, clauses: u8, id: u32 },
    /// Writes a link chosen by a hash of the flow to a field (Nicira).
    Multipath {
        hash: HashFields,
        basis: u16,
        algorithm: MultipathAlgorithm,
        max_link: u16,
        argument: u32,
        to: Subfield,
    },
    /// Selects one of the ports that are live, and sends the packet to it or writes its number to a field (Nicira).
    Bundle { hash: HashFields, basis: u16, algorithm: BundleAlgorithm, members: Vec<u32>, to: Option<Subfield> },
    /// Writes a bit: whether the packet is longer than `bytes` bytes (Nicira).
    CheckPacketLarger { bytes: u16, to: Subfield },
    /// Does nothing; carries data for the controller (Nicira).
    Note(Vec<u8>),
    /// Shortens the flow's timeouts, in seconds, on TCP FIN or RST (Nicira).
    FinTimeout { idle: u16, hard: u16 },
    /// Ends the processing of the packet's actions (Nicira).
    Exit,
    /// Applies actions to a copy of the packet (Nicira).
    Clone(Vec<Action>),
    /// As an instruction: clears the action set.
    ClearActions,
    /// As an instruction: merges actions into the action set.
    WriteActions(Vec<Action>),
    /// As an instruction: writes the metadata field under a mask.
    WriteMetadata { value: u64, mask: u64 },
    /// As an instruction: continues in a later table.
    GotoTable(u8),
    /// Runs a loaded BPF program by its id (Sluice's own experimenter action).
    Program { id: u32, argument: u64 },
    /// An action that is decoded but not implemented, such as `ct`: the bridge refuses it by name.
    Unsupported(&'static str),
}

/// Actions that change which headers a packet has, or whose meaning only the P4 program knows. Each is the action of
/// the P4 program with this name; a flow that uses an action that the program lacks is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderAction {
    /// Argument: the tag's EtherType.
    PushVlan,
    /// No argument.
    PopVlan,
    /// OpenFlow 1.0: sets the VLAN id of the outermost tag; pushes a tag with EtherType 0x8100 if there is none.
    SetVlanVid,
    /// OpenFlow 1.0: the same for the VLAN priority.
    SetVlanPcp,
    /// Argument: the label's EtherType.
    PushMpls,
    /// Argument: the EtherType of the payload.
    PopMpls,
    /// Argument: the tag's EtherType.
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
    /// Copies the TTL from the next-to-outermost to the outermost header with a TTL.
    CopyTtlOut,
    /// Copies the TTL from the outermost to the next-to-outermost header with a TTL.
    CopyTtlIn,
}

impl HeaderAction {
    /// All header actions.
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

    /// The name of the P4 action that implements it.
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

/// Nicira's `controller` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    /// The number of bytes of the packet to send.
    pub max_len: u16,
    /// The id of the controllers that get the packet.
    pub id: u16,
    /// An `OFPR_` reason.
    pub reason: u8,
    /// Data that the packet-in carries.
    pub userdata: Vec<u8>,
    /// Whether the packet's processing pauses until the controller resumes it.
    pub pause: bool,
    /// The meter that limits its packet-ins.
    pub meter: Option<u32>,
}

/// The fields that a hash covers (Nicira's `multipath` and `bundle`), numbered as in `enum nx_hash_fields`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// Ethernet source.
    EthSrc = 0,
    /// Layers 2 to 4, symmetric: equal for both directions.
    SymmetricL4 = 1,
    /// Layers 3 and 4 with TCP and SCTP ports, symmetric.
    SymmetricL3L4 = 2,
    /// Layers 3 and 4 with TCP, UDP and SCTP ports, symmetric.
    SymmetricL3L4Udp = 3,
    /// Network source.
    NwSrc = 4,
    /// Network destination.
    NwDst = 5,
    /// Network addresses, symmetric.
    SymmetricL3 = 6,
}

/// How Nicira's `multipath` chooses a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MultipathAlgorithm {
    /// The hash modulo the number of links.
    ModuloN = 0,
    /// Hash threshold (RFC 2992).
    HashThreshold = 1,
    /// Highest random weight (RFC 2991).
    HighestRandomWeight = 2,
    /// Iterative hash: hashes again until the result is a link.
    IterativeHash = 3,
}

/// How Nicira's `bundle` chooses a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleAlgorithm {
    /// The first live port.
    ActiveBackup = 0,
    /// Highest random weight.
    HighestRandomWeight = 1,
}

/// Nicira's `learn` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// The learned flow's idle timeout in seconds.
    pub idle_timeout: u16,
    /// The learned flow's hard timeout in seconds.
    pub hard_timeout: u16,
    /// The learned flow's priority.
    pub priority: u16,
    /// The learned flow's cookie.
    pub cookie: u64,
    /// The table that the learned flow is added to.
    pub table: u8,
    /// `NX_LEARN_F_` bits.
    pub flags: u16,
    /// The learned flow's idle timeout after a TCP FIN or RST, in seconds.
    pub fin_idle_timeout: u16,
    /// The learned flow's hard timeout after a TCP FIN or RST, in seconds.
    pub fin_hard_timeout: u16,
    /// The maximum number of flows that this action may have learned; 0 for no limit.
    pub limit: u32,
    /// The bit that records whether the flow could be added, if `flags` ask for it.
    pub result: Option<Subfield>,
    /// The parts of the learned flow.
    pub specs: Vec<LearnSpec>,
}

/// A part of a learned flow.
#[allow(missing_docs)] // of the variants' fields, which are named after ovs-actions(7)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSpec {
    /// A match on bits of a field.
    Match { to: Subfield, from: Source },
    /// A load of bits into a field.
    Load { to: Subfield, from: Source },
    /// An output to the port that a field holds.
    Output { from: Subfield },
}

/// A flow's instructions, in the order of execution (OpenFlow 1.3.5, 5.9). OpenFlow 1.0 has `apply` only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instructions {
    /// The meter, first.
    pub meter: Option<u32>,
    /// Apply-actions: applied immediately.
    pub apply: Vec<Action>,
    /// Clear-actions: empties the action set.
    pub clear: bool,
    /// Write-actions: merged into the action set.
    pub write: Vec<Action>,
    /// Write-metadata: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// Goto-table: the table to continue in.
    pub goto: Option<u8>,
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Its bucket id (OpenFlow 1.5; before, its index).
    pub id: u32,
    /// Its weight in a `select` group.
    pub weight: u16,
    /// The bucket is live only if this port is up.
    pub watch_port: Option<u32>,
    /// The bucket is live only if this group is live.
    pub watch_group: Option<u32>,
    /// Its action set.
    pub actions: Vec<Action>,
}
