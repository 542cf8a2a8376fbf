//! Messages, for all versions alike. Names are OpenFlow's; where versions differ, the newest one's.

use crate::action::{Action, Bucket, Instructions};
use crate::error::ErrorKind;
use crate::field::FieldId;
use crate::matching::Match;

pub use crate::version::Version;

/// A message, with or without answer. Where a request and its reply are one variant's two directions, the reply is named `…Reply`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Message {
    /// The versions that the sender speaks, as a bitmap (bit 1 is OpenFlow 1.0); its highest is in the header.
    Hello { versions: u32 },
    /// A request that failed: with the first bytes of it, or a text for a failed hello.
    Error { kind: ErrorKind, data: Vec<u8> },
    /// Wants an answer with the same bytes.
    EchoRequest(Vec<u8>),
    /// That answer.
    EchoReply(Vec<u8>),
    /// What the switch is.
    FeaturesRequest,
    /// That.
    FeaturesReply(Features),
    /// How fragments are handled, and how much of a packet a table miss sends.
    GetConfigRequest,
    /// That.
    GetConfigReply(SwitchConfig),
    /// Sets it.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(Box<PacketIn>),
    /// A packet that waits lets itself be let go on (Nicira).
    Resume(Box<PacketIn>),
    /// A packet from the controller.
    PacketOut(PacketOut),
    /// A flow ended.
    FlowRemoved(FlowRemoved),
    /// A port came, went or changed.
    PortStatus { reason: PortReason, port: Port },
    /// Adds, changes, removes flows.
    FlowMod(FlowMod),
    /// Adds, changes, removes a group, or its buckets.
    GroupMod(GroupMod),
    /// Adds, changes, removes a meter.
    MeterMod(MeterMod),
    /// Changes a port.
    PortMod(PortMod),
    /// Configures a table: `OFPTC_` bits.
    TableMod { table: u8, config: u32, vacancy: Option<(u8, u8)> },
    /// Wants statistics or descriptions.
    Multipart(Request),
    /// A part of them; `more` follow.
    MultipartReply { reply: Reply, more: bool },
    /// Wants an answer when all before it is done.
    BarrierRequest,
    /// That answer.
    BarrierReply,
    /// Asks for a role, or for the current one.
    RoleRequest(RoleRequest),
    /// The role.
    RoleReply(RoleRequest),
    /// The role changed for another reason.
    RoleStatus { role: Role, reason: u8, generation: u64 },
    /// Which asynchronous messages the controller gets.
    GetAsyncRequest,
    /// That.
    GetAsyncReply(AsyncConfig),
    /// Sets it.
    SetAsync(AsyncConfig),
    /// Queues of a port (1.0 to 1.3).
    QueueGetConfigRequest { port: u32 },
    /// Those.
    QueueGetConfigReply { port: u32, queues: Vec<Queue> },
    /// Begins, ends, commits or discards a bundle (1.4; an extension of ONF's for 1.3).
    BundleControl { bundle: u32, kind: BundleControl, flags: u16 },
    /// A message of a bundle.
    BundleAdd { bundle: u32, flags: u16, message: Box<Framed> },
    /// A group, or its removal, was asked for by another controller (1.4).
    Requestforward(Box<Framed>),
    /// A table's vacancy went over or under its limits (1.4).
    TableStatus { reason: u8, table: u8, config: u32, vacancy: Option<(u8, u8, u8)> },
    /// The status of connections to controllers (1.5).
    ControllerStatus(ControllerStatus),
    /// How packet-ins look on this connection (Nicira): 0 as the version has them, 1 `NXPIF_NXT_PACKET_IN`, 2 `NXPIF_NXT_PACKET_IN2`.
    SetPacketInFormat(u32),
    /// How flow mods look on this connection (Nicira, 1.0): 0 as in 1.0, 2 with NXM.
    SetFlowFormat(u32),
    /// Whether flow mods of 1.0 name tables (Nicira).
    FlowModTableId(bool),
    /// This connection's id, for [`Action::Controller`] (Nicira).
    SetControllerId(u16),
    /// Ends a flow monitor (Nicira 1.0; 1.4 by a multipart request).
    FlowMonitorCancel(u32),
    /// A flow monitor's messages stop for want of room (Nicira).
    FlowMonitorPaused,
    /// They go on again (Nicira).
    FlowMonitorResumed,
    /// What tunnel metadata maps to: read and refused by name.
    TlvTable,
    /// An experimenter's that is not known.
    Experimenter { experimenter: u32, kind: u32, data: Vec<u8> },
}

/// A message with its header.
#[derive(Clone, PartialEq, Debug)]
pub struct Framed {
    /// The version of its format.
    pub version: Version,
    /// Says which request a reply answers.
    pub xid: u32,
    /// The message.
    pub message: Message,
}

/// What a switch is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// The bridge's number.
    pub datapath: u64,
    /// Packets that it can keep for controllers.
    pub buffers: u32,
    /// How many tables.
    pub tables: u8,
    /// Which auxiliary connection this is; 0 for the main one.
    pub auxiliary: u8,
    /// `OFPC_` bits of 1.3; 1.0's are made of them.
    pub capabilities: u32,
    /// Actions, 1.0 only: a bit for each of its action types.
    pub actions: u32,
    /// Ports, 1.0 only.
    pub ports: Vec<Port>,
}

/// How fragments are handled, and how much of a packet a table miss sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// `OFPC_FRAG_` bits.
    pub flags: u16,
    /// Bytes.
    pub miss_send_len: u16,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// At most 15 bytes are sent.
    pub name: String,
    /// `OFPPC_` bits of 1.3 (1.0's where only that has them).
    pub config: u32,
    /// `OFPPS_` bits of 1.3.
    pub state: u32,
    /// `OFPPF_` bits of 1.3: current, advertised, supported, of the peer.
    pub features: [u32; 4],
    /// Current and highest bit rate, kbit/s.
    pub speeds: [u32; 2],
}

/// Why a port's status was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortReason {
    /// It is new.
    Add = 0,
    /// It is gone.
    Delete = 1,
    /// It changed.
    Modify = 2,
}

/// A packet for the controller, in any of the formats.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketIn {
    /// Always the whole packet's; what is sent may be less.
    pub total_len: u16,
    /// An `OFPR_` number as of 1.4 (older versions get what they know).
    pub reason: u8,
    /// The table that sent it.
    pub table: u8,
    /// Of the flow that sent it; all ones for none.
    pub cookie: u64,
    /// The port by which it came, and other metadata that are not zero.
    pub fields: Match,
    /// The frame, cut.
    pub frame: Vec<u8>,
    /// The action's (Nicira).
    pub userdata: Vec<u8>,
    /// What lets the packet go on (Nicira).
    pub continuation: Option<Vec<u8>>,
}

/// A packet from the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    /// The packet that the switch keeps, or all ones for none.
    pub buffer: u32,
    /// The port by which it is thought to have come, and other metadata (1.5).
    pub fields: Match,
    /// The same port, of all versions.
    pub in_port: u32,
    /// What is done with it.
    pub actions: Vec<Action>,
    /// The frame, if there is no buffer.
    pub frame: Vec<u8>,
}

/// Why a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovedReason {
    /// Nothing matched it for its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout is over.
    HardTimeout = 1,
    /// It was removed.
    Delete = 2,
    /// Its group was.
    GroupDelete = 3,
    /// Its meter was (1.4).
    MeterDelete = 4,
    /// It made room for another (1.4).
    Eviction = 5,
}

/// A flow ended.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowRemoved {
    /// Its match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Its table.
    pub table: u8,
    /// Why.
    pub reason: RemovedReason,
    /// How long it was there: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// Its timeouts in seconds.
    pub timeouts: Timeouts,
    /// What matched it.
    pub counts: Counts,
}

/// Timeouts in seconds; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timeouts {
    /// Without a packet.
    pub idle: u16,
    /// At all.
    pub hard: u16,
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What a flow mod does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Adds a flow, in the place of one with the same match and priority.
    Add = 0,
    /// Changes all flows within the match.
    Modify = 1,
    /// Changes the flow with this match and priority.
    ModifyStrict = 2,
    /// Removes all flows within the match.
    Delete = 3,
    /// Removes the flow with this match and priority.
    DeleteStrict = 4,
}

/// `OFPFF_` bits.
pub mod flow_flag {
    /// Says when it ends.
    pub const SEND_FLOW_REM: u16 = 1;
    /// Must not overlap another of its priority.
    pub const CHECK_OVERLAP: u16 = 2;
    /// Sets counts to zero.
    pub const RESET_COUNTS: u16 = 4;
    /// Does not count packets.
    pub const NO_PKT_COUNTS: u16 = 8;
    /// Does not count bytes.
    pub const NO_BYT_COUNTS: u16 = 16;
}

/// Adds, changes, removes flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// What it does.
    pub command: FlowCommand,
    /// The table; 255 stands for all in deletions, and for none named in 1.0.
    pub table: u8,
    /// The match.
    pub matching: Match,
    /// The priority.
    pub priority: u16,
    /// The new flow's cookie; with a mask of zero also that of changed flows is kept.
    pub cookie: u64,
    /// Only flows whose cookie is `cookie` under this mask.
    pub cookie_mask: u64,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The buffered packet that goes through the flow, or all ones.
    pub buffer: u32,
    /// For deletions: only flows that output to this port; [`crate::action::port::ANY`] for all.
    pub out_port: u32,
    /// For deletions: only flows that go through this group; `0xffff_ffff` for all.
    pub out_group: u32,
    /// [`flow_flag`] bits.
    pub flags: u16,
    /// Flows of less importance are evicted first (1.4).
    pub importance: u16,
    /// What it does.
    pub instructions: Instructions,
}

/// What a group mod does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCommand {
    /// Adds a group.
    Add,
    /// Changes one.
    Modify,
    /// Removes one, or all.
    Delete,
    /// Adds a group, or changes it (Nicira).
    AddOrModify,
    /// Adds buckets (1.5): behind the one of this number, or first or last.
    InsertBucket(u32),
    /// Removes the bucket of this number, or the first, last, or all.
    RemoveBucket(u32),
}

/// Places of buckets in group mods (1.5).
pub mod bucket {
    /// Numbers of buckets are at most this.
    pub const MAX: u32 = 0xffff_ff00;
    /// The first.
    pub const FIRST: u32 = 0xffff_fffd;
    /// The last.
    pub const LAST: u32 = 0xffff_fffe;
    /// All.
    pub const ALL: u32 = 0xffff_ffff;
}

/// All groups, in requests and deletions.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// Any group, or none named.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// Groups' numbers are at most this.
pub const GROUP_MAX: u32 = 0xffff_ff00;

/// How a group chooses buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// All.
    All = 0,
    /// One, by hash and weights.
    Select = 1,
    /// Its only one.
    Indirect = 2,
    /// The first that is live.
    FastFailover = 3,
}

/// Adds, changes, removes a group, or its buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// What it does.
    pub command: GroupCommand,
    /// Its number.
    pub group: u32,
    /// Its kind.
    pub kind: GroupKind,
    /// Its buckets, or those that are added.
    pub buckets: Vec<Bucket>,
    /// The name of the selection method (an ONF extension), its parameter and the fields that it takes; empty for the switch's own.
    pub selection: Selection,
}

/// How a `select` group chooses (an ONF extension).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// `hash`, `dp_hash` or empty.
    pub method: String,
    /// Its parameter.
    pub parameter: u64,
    /// Fields and the bits of them.
    pub fields: Vec<(FieldId, u128)>,
}

/// What a meter mod does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterCommand {
    /// Adds a meter.
    Add = 0,
    /// Changes one.
    Modify = 1,
    /// Removes one, or all.
    Delete = 2,
}

/// Numbers of meters.
pub mod meter {
    /// Numbers of meters are at most this.
    pub const MAX: u32 = 0xffff_0000;
    /// For packets to a slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// For packet-ins.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// All, in requests and deletions.
    pub const ALL: u32 = 0xffff_ffff;
}

/// `OFPMF_` bits.
pub mod meter_flag {
    /// Rates are kbit/s.
    pub const KBPS: u16 = 1;
    /// Rates are packets/s.
    pub const PKTPS: u16 = 2;
    /// Bursts count.
    pub const BURST: u16 = 4;
    /// It counts.
    pub const STATS: u16 = 8;
}

/// What a meter's band does with packets over its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops them.
    Drop,
    /// Raises the drop precedence in the DSCP by so much.
    DscpRemark(u8),
}

/// A meter's band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// What it does.
    pub kind: BandKind,
    /// In the meter's unit.
    pub rate: u32,
    /// In kbit or packets.
    pub burst: u32,
}

/// Adds, changes, removes a meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// What it does.
    pub command: MeterCommand,
    /// [`meter_flag`] bits.
    pub flags: u16,
    /// Its number.
    pub meter: u32,
    /// Its bands.
    pub bands: Vec<Band>,
}

/// Changes a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// Its number.
    pub port: u32,
    /// Must be its address.
    pub address: [u8; 6],
    /// `OFPPC_` bits.
    pub config: u32,
    /// Which of them change.
    pub mask: u32,
    /// What it advertises; 0 for no change.
    pub advertise: u32,
}

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// No change, in requests.
    NoChange = 0,
    /// As all others.
    Equal = 1,
    /// Alone may change.
    Master = 2,
    /// Reads only.
    Slave = 3,
}

/// A role and the generation of the election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleRequest {
    /// The role.
    pub role: Role,
    /// The generation; `None` if none has been named.
    pub generation: Option<u64>,
    /// Its short number (1.5), all ones for none.
    pub short: u16,
}

/// Which asynchronous messages a controller gets: bits by reason, as master (or equal) and as slave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncConfig {
    /// `OFPR_` bits.
    pub packet_in: [u32; 2],
    /// `OFPPR_` bits.
    pub port_status: [u32; 2],
    /// `OFPRR_` bits.
    pub flow_removed: [u32; 2],
    /// `OFPCRR_` bits (1.4).
    pub role_status: [u32; 2],
    /// `OFPTR_` bits (1.4).
    pub table_status: [u32; 2],
    /// `OFPRFR_` bits (1.4).
    pub requestforward: [u32; 2],
}

/// What happens to a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BundleControl {
    /// Begins.
    OpenRequest = 0,
    /// Has begun.
    OpenReply = 1,
    /// Takes no more messages.
    CloseRequest = 2,
    /// Is closed.
    CloseReply = 3,
    /// Is done.
    CommitRequest = 4,
    /// Has been done.
    CommitReply = 5,
    /// Is thrown away.
    DiscardRequest = 6,
    /// Has been.
    DiscardReply = 7,
}

/// The status of a connection to a controller (1.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// Its short number.
    pub short: u16,
    /// Its role.
    pub role: Role,
    /// Why it is told.
    pub reason: u8,
    /// Whether the connection is up.
    pub is_up: bool,
    /// Its URI.
    pub uri: String,
}

/// Which flows a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFilter {
    /// The table; 255 for all.
    pub table: u8,
    /// Flows that output to this port; any.
    pub out_port: u32,
    /// Flows that go through this group; any.
    pub out_group: u32,
    /// Flows whose cookie is this under the mask.
    pub cookie: u64,
    /// See there.
    pub cookie_mask: u64,
    /// Flows within this.
    pub matching: Match,
}

/// A multipart request.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Request {
    /// Who made the switch.
    Desc,
    /// Flows, with what they do.
    Flow(FlowFilter),
    /// Flows' match and counts (1.5 `OFPMP_FLOW_STATS`; before, none).
    FlowStats(FlowFilter),
    /// Sums of flows.
    Aggregate(FlowFilter),
    /// Tables' counts.
    Table,
    /// What tables can do: asks, or sets if there are any.
    TableFeatures(Vec<TableFeatures>),
    /// Tables' configuration (1.4).
    TableDesc,
    /// Ports' counts.
    PortStats { port: u32 },
    /// Ports.
    PortDesc { port: u32 },
    /// Queues' counts.
    Queue { port: u32, queue: u32 },
    /// Queues (1.4).
    QueueDesc { port: u32, queue: u32 },
    /// Groups' counts.
    Group { group: u32 },
    /// Groups.
    GroupDesc { group: u32 },
    /// What groups can do.
    GroupFeatures,
    /// Meters' counts.
    Meter { meter: u32 },
    /// Meters.
    MeterConfig { meter: u32 },
    /// What meters can do.
    MeterFeatures,
    /// Begins, changes or ends flow monitors.
    FlowMonitor(Vec<FlowMonitor>),
    /// Bundles' features (1.5).
    BundleFeatures { flags: u32 },
    /// Controllers' status (1.5).
    ControllerStatus,
    /// An experimenter's that is not known.
    Experimenter { experimenter: u32, kind: u32 },
}

/// A flow monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitor {
    /// Its number.
    pub id: u32,
    /// Whether it begins, changes or ends.
    pub command: MonitorCommand,
    /// [`monitor_flag`] bits.
    pub flags: u16,
    /// Flows that output to this port; any.
    pub out_port: u32,
    /// Flows that go through this group; any.
    pub out_group: u32,
    /// The table; 255 for all.
    pub table: u8,
    /// Flows within this.
    pub matching: Match,
}

/// What becomes of a flow monitor (1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorCommand {
    /// Begins.
    Add = 0,
    /// Changes.
    Modify = 1,
    /// Ends.
    Delete = 2,
}

/// `OFPFMF_` bits of 1.4; Nicira's are the same.
pub mod monitor_flag {
    /// The flows there are.
    pub const INITIAL: u16 = 1;
    /// New ones.
    pub const ADD: u16 = 2;
    /// Removed ones.
    pub const REMOVED: u16 = 4;
    /// Changed ones.
    pub const MODIFY: u16 = 8;
    /// With what they do.
    pub const INSTRUCTIONS: u16 = 16;
    /// The connection's own changes in full too, instead of abbreviated.
    pub const NO_ABBREV: u16 = 32;
    /// Only the connection's own.
    pub const ONLY_OWN: u16 = 64;
}

/// A part of a multipart reply.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Reply {
    /// Who made the switch.
    Desc(Desc),
    /// Flows.
    Flow(Vec<FlowEntry>),
    /// Flows without what they do.
    FlowStats(Vec<FlowEntry>),
    /// Sums of flows, and how many.
    Aggregate { counts: Counts, flows: u32 },
    /// Tables' counts.
    Table(Vec<TableStats>),
    /// What tables can do.
    TableFeatures(Vec<TableFeatures>),
    /// Tables' configuration.
    TableDesc(Vec<TableDesc>),
    /// Ports' counts.
    PortStats(Vec<PortStats>),
    /// Ports.
    PortDesc(Vec<Port>),
    /// Queues' counts.
    Queue(Vec<QueueStats>),
    /// Queues.
    QueueDesc(Vec<Queue>),
    /// Groups' counts.
    Group(Vec<GroupStats>),
    /// Groups.
    GroupDesc(Vec<GroupDesc>),
    /// What groups can do.
    GroupFeatures(GroupFeatures),
    /// Meters' counts.
    Meter(Vec<MeterStats>),
    /// Meters.
    MeterConfig(Vec<MeterMod>),
    /// What meters can do.
    MeterFeatures(MeterFeatures),
    /// What happened to flows.
    FlowMonitor(Vec<FlowUpdate>),
    /// What bundles can do: capabilities.
    BundleFeatures { capabilities: u16 },
    /// Controllers' status.
    ControllerStatus(Vec<ControllerStatus>),
}

/// A table's configuration: its number, `OFPTC_` bits, vacancy down, up and now.
pub type TableDesc = (u8, u32, Option<(u8, u8, u8)>);

/// Who made the switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desc {
    /// The manufacturer.
    pub manufacturer: String,
    /// The hardware.
    pub hardware: String,
    /// The software.
    pub software: String,
    /// The serial number.
    pub serial: String,
    /// What people call the bridge.
    pub datapath: String,
}

/// A flow, with its counts.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowEntry {
    /// Its table.
    pub table: u8,
    /// Its match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Its timeouts.
    pub timeouts: Timeouts,
    /// Its [`flow_flag`] bits.
    pub flags: u16,
    /// Its importance.
    pub importance: u16,
    /// How long it has been there: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// How long it has been idle and how long since it was changed, in seconds.
    pub ages: (u32, u32),
    /// What matched it.
    pub counts: Counts,
    /// What it does.
    pub instructions: Instructions,
}

/// A table's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Its number.
    pub table: u8,
    /// Its name (1.0).
    pub name: String,
    /// Most flows (1.0).
    pub max: u32,
    /// Flows.
    pub active: u32,
    /// Packets that were looked up.
    pub lookups: u64,
    /// Packets that matched.
    pub matched: u64,
}

/// What a table can do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// Its number.
    pub table: u8,
    /// What is done (1.5): 0 replaces all, 1 changes, 2 enables, 3 disables.
    pub command: u8,
    /// `OFPTFF_` bits (1.5).
    pub features: u32,
    /// Its name.
    pub name: String,
    /// Metadata bits that flows can match and write.
    pub metadata: (u64, u64),
    /// `OFPTC_` bits.
    pub config: u32,
    /// Most flows.
    pub max: u32,
    /// Types of instructions, on a match and on a miss.
    pub instructions: [Vec<u16>; 2],
    /// Tables that can be gone to, on a match and on a miss.
    pub next: [Vec<u8>; 2],
    /// Types of actions that can be written, on a match and on a miss.
    pub write: [Vec<u16>; 2],
    /// Types of actions that can be applied, on a match and on a miss.
    pub apply: [Vec<u16>; 2],
    /// Fields that can be matched; whether with masks.
    pub matches: Vec<(FieldId, bool)>,
    /// Fields that can be left out.
    pub wildcards: Vec<FieldId>,
    /// Fields that can be written in the action set, on a match and on a miss.
    pub write_fields: [Vec<FieldId>; 2],
    /// Fields that can be written at once, on a match and on a miss.
    pub apply_fields: [Vec<FieldId>; 2],
}

impl TableFeatures {
    /// What `wanted` has beyond this, by name; `None` if it has at most this.
    pub fn lacks(&self, wanted: &TableFeatures) -> Option<&'static str> {
        fn has<T: PartialEq>(of: &[T], wanted: &[T]) -> bool {
            wanted.iter().all(|one| of.contains(one))
        }
        fn have<T: PartialEq>(of: &[Vec<T>; 2], wanted: &[Vec<T>; 2]) -> bool {
            of.iter().zip(wanted).all(|(of, wanted)| has(of, wanted))
        }
        let matches = |(field, has_mask): &(FieldId, bool)| {
            self.matches.iter().any(|(other, maskable)| other == field && (*maskable || !has_mask))
        };
        let checks = [
            ("max_entries", wanted.max <= self.max),
            ("metadata", wanted.metadata.0 & !self.metadata.0 == 0 && wanted.metadata.1 & !self.metadata.1 == 0),
            ("instructions", have(&self.instructions, &wanted.instructions)),
            ("next tables", have(&self.next, &wanted.next)),
            ("actions to write", have(&self.write, &wanted.write)),
            ("actions to apply", have(&self.apply, &wanted.apply)),
            ("match fields", wanted.matches.iter().all(matches)),
            ("wildcards", has(&self.wildcards, &wanted.wildcards)),
            ("fields to write", have(&self.write_fields, &wanted.write_fields)),
            ("fields to set", have(&self.apply_fields, &wanted.apply_fields)),
        ];
        checks.into_iter().find(|(_, has)| !has).map(|(name, _)| name)
    }
}

/// A port's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Its number.
    pub port: u32,
    /// Received.
    pub received: Counts,
    /// Sent.
    pub sent: Counts,
    /// Dropped: received and sent.
    pub dropped: [u64; 2],
    /// Errors: received and sent.
    pub errors: [u64; 2],
    /// How long it has been there: seconds and nanoseconds.
    pub duration: (u32, u32),
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// Least and highest rate in tenths of a percent.
    pub rates: [Option<u16>; 2],
}

/// A queue's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// What was sent.
    pub sent: Counts,
    /// What did not fit.
    pub errors: u64,
    /// How long it has been there: seconds and nanoseconds.
    pub duration: (u32, u32),
}

/// A group's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Its number.
    pub group: u32,
    /// Flows and groups that go through it.
    pub references: u32,
    /// What went through it.
    pub counts: Counts,
    /// How long it has been there: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// What went through each bucket.
    pub buckets: Vec<Counts>,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// Its number.
    pub group: u32,
    /// Its kind.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// How it chooses.
    pub selection: Selection,
}

/// What groups can do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// Kinds: a bit each.
    pub kinds: u32,
    /// `OFPGFC_` bits.
    pub capabilities: u32,
    /// Most groups of each kind.
    pub max: [u32; 4],
    /// Action types that each kind can do: a bit each.
    pub actions: [u32; 4],
}

/// A meter's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Its number.
    pub meter: u32,
    /// Flows that go through it.
    pub flows: u32,
    /// What went through it.
    pub counts: Counts,
    /// How long it has been there: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// What each band acted on.
    pub bands: Vec<Counts>,
}

/// What meters can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// Most meters.
    pub max: u32,
    /// Band types: a bit each.
    pub bands: u32,
    /// [`meter_flag`] bits.
    pub capabilities: u32,
    /// Most bands of a meter.
    pub max_bands: u8,
    /// Most colours.
    pub max_colors: u8,
    /// Features (1.5).
    pub features: u32,
}

/// What happened to a flow.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum FlowUpdate {
    /// It was added, changed, or was there when the monitor began; or it was removed.
    Full { event: UpdateEvent, reason: RemovedReason, flow: FlowEntry },
    /// The connection's own request of this number did what it asked for.
    Abbreviated { xid: u32 },
    /// Messages stop, or go on (1.4).
    Paused(bool),
}

/// What happened to a flow, by 1.4's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateEvent {
    /// It was there.
    Initial = 0,
    /// It was added.
    Added = 1,
    /// It was removed.
    Removed = 2,
    /// It was changed.
    Modified = 3,
}
