//! Messages and their parts, common to all versions. Names are those of the specification; where versions differ, of
//! the newest.

use crate::action::{Action, Bucket, Instructions};
use crate::error::ErrorKind;
use crate::field::FieldId;
use crate::matching::Match;

pub use crate::version::Version;

/// A message in either direction. Where a request and its reply differ, the reply is named `…Reply`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Message {
    /// Opens a connection. `versions` is the bitmap of the sender's versions (bit 1 is OpenFlow 1.0), the highest of
    /// which is in the header.
    Hello { versions: u32 },
    /// Reports a failed request: `data` is its first bytes, or a text if a hello failed.
    Error { kind: ErrorKind, data: Vec<u8> },
    /// Requests a reply with the same bytes.
    EchoRequest(Vec<u8>),
    /// The reply to an echo request.
    EchoReply(Vec<u8>),
    /// Requests the switch's features.
    FeaturesRequest,
    /// The switch's features.
    FeaturesReply(Features),
    /// Requests the switch's configuration.
    GetConfigRequest,
    /// The switch's configuration.
    GetConfigReply(SwitchConfig),
    /// Sets the switch's configuration.
    SetConfig(SwitchConfig),
    /// A packet sent to the controller.
    PacketIn(Box<PacketIn>),
    /// Resumes a packet paused by a `controller` action (Nicira).
    Resume(Box<PacketIn>),
    /// A packet sent by the controller.
    PacketOut(PacketOut),
    /// Notifies that a flow was removed.
    FlowRemoved(FlowRemoved),
    /// Notifies that a port was added, deleted or modified.
    PortStatus { reason: PortReason, port: Port },
    /// Adds, modifies or deletes flows.
    FlowMod(FlowMod),
    /// Adds, modifies or deletes a group or its buckets.
    GroupMod(GroupMod),
    /// Adds, modifies or deletes a meter.
    MeterMod(MeterMod),
    /// Modifies a port.
    PortMod(PortMod),
    /// Configures a table: `OFPTC_` bits, and the vacancy thresholds down and up in percent.
    TableMod { table: u8, config: u32, vacancy: Option<(u8, u8)> },
    /// Requests statistics or descriptions.
    Multipart(Request),
    /// One message of a multipart reply; `more` if others follow.
    MultipartReply { reply: Reply, more: bool },
    /// Requests a reply after all earlier messages have been processed.
    BarrierRequest,
    /// The reply to a barrier request.
    BarrierReply,
    /// Requests a role, or the current one.
    RoleRequest(RoleRequest),
    /// The controller's role.
    RoleReply(RoleRequest),
    /// Notifies that the controller's role changed without a request of its own.
    RoleStatus { role: Role, reason: u8, generation: u64 },
    /// Requests which asynchronous messages the controller receives.
    GetAsyncRequest,
    /// The asynchronous messages that the controller receives.
    GetAsyncReply(AsyncConfig),
    /// Sets which asynchronous messages the controller receives.
    SetAsync(AsyncConfig),
    /// Requests the queues of a port (1.0 to 1.3).
    QueueGetConfigRequest { port: u32 },
    /// The queues of a port.
    QueueGetConfigReply { port: u32, queues: Vec<Queue> },
    /// Opens, closes, commits or discards a bundle, or replies to that (1.4; ONF extension of 1.3).
    BundleControl { bundle: u32, kind: BundleControl, flags: u16 },
    /// Adds a message to a bundle.
    BundleAdd { bundle: u32, flags: u16, message: Box<Framed> },
    /// Forwards a group or meter mod of another controller (1.4; ONF extension of 1.3).
    Requestforward(Box<Framed>),
    /// Notifies that a table's vacancy crossed a threshold (1.4): thresholds down and up, current vacancy, in percent.
    TableStatus { reason: u8, table: u8, config: u32, vacancy: Option<(u8, u8, u8)> },
    /// Notifies of a controller connection's status (1.5).
    ControllerStatus(ControllerStatus),
    /// Sets the connection's packet-in format (Nicira): 0 the version's own, 1 `NXPIF_NXT_PACKET_IN`, 2
    /// `NXPIF_NXT_PACKET_IN2`.
    SetPacketInFormat(u32),
    /// Sets the connection's flow format (Nicira, 1.0): 0 the version's own, 2 NXM.
    SetFlowFormat(u32),
    /// Sets whether flow mods of 1.0 carry a table id (Nicira).
    FlowModTableId(bool),
    /// Sets the connection's controller id, for [`Action::Controller`] (Nicira).
    SetControllerId(u16),
    /// Cancels a flow monitor (Nicira, 1.0; in 1.4 a multipart request).
    FlowMonitorCancel(u32),
    /// Notifies that flow monitoring paused because the buffer is full (Nicira).
    FlowMonitorPaused,
    /// Notifies that flow monitoring resumed (Nicira).
    FlowMonitorResumed,
    /// Nicira's mapping of tunnel metadata: decoded only to be refused by name.
    TlvTable,
    /// An unknown experimenter message.
    Experimenter { experimenter: u32, kind: u32, data: Vec<u8> },
}

/// A message with the contents of its header.
#[derive(Clone, PartialEq, Debug)]
pub struct Framed {
    /// The version of its encoding.
    pub version: Version,
    /// The transaction id: a reply has that of its request.
    pub xid: u32,
    /// The message.
    pub message: Message,
}

/// A switch's features.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// The datapath id.
    pub datapath: u64,
    /// The number of packets that the switch can buffer.
    pub buffers: u32,
    /// The number of tables.
    pub tables: u8,
    /// The auxiliary connection's id; 0 for the main connection.
    pub auxiliary: u8,
    /// `OFPC_` capabilities with 1.3's numbers, from which 1.0's are derived.
    pub capabilities: u32,
    /// The supported action types as a bitmap (1.0 only).
    pub actions: u32,
    /// The ports (1.0 only).
    pub ports: Vec<Port>,
}

/// A switch's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// `OFPC_FRAG_` bits: the handling of IP fragments.
    pub flags: u16,
    /// The number of bytes of a packet that a table miss sends to the controller.
    pub miss_send_len: u16,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Its name; at most 15 bytes are encoded.
    pub name: String,
    /// `OFPPC_` bits with 1.3's numbers, and those that only 1.0 has.
    pub config: u32,
    /// `OFPPS_` bits with 1.3's numbers.
    pub state: u32,
    /// `OFPPF_` bits with 1.3's numbers: current, advertised, supported, advertised by the peer.
    pub features: [u32; 4],
    /// Current and maximum bit rate in kbit/s.
    pub speeds: [u32; 2],
}

/// Why a port status message was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortReason {
    /// The port was added.
    Add = 0,
    /// The port was removed.
    Delete = 1,
    /// The port changed.
    Modify = 2,
}

/// A packet sent to the controller, in any of the formats.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketIn {
    /// The length of the whole packet in bytes, of which `frame` may have fewer.
    pub total_len: u16,
    /// An `OFPR_` reason with 1.4's numbers; older versions get the closest that they have.
    pub reason: u8,
    /// The table of the flow that sent it.
    pub table: u8,
    /// The cookie of the flow that sent it; all ones for none.
    pub cookie: u64,
    /// The ingress port and other metadata that are not zero.
    pub fields: Match,
    /// The frame, possibly truncated.
    pub frame: Vec<u8>,
    /// The userdata of the `controller` action (Nicira).
    pub userdata: Vec<u8>,
    /// The opaque state that resumes the packet (Nicira).
    pub continuation: Option<Vec<u8>>,
}

/// A packet sent by the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    /// The id of the buffered packet; all ones for none.
    pub buffer: u32,
    /// The ingress port to assume, and other metadata (1.5).
    pub fields: Match,
    /// The ingress port to assume, in all versions.
    pub in_port: u32,
    /// The actions to apply.
    pub actions: Vec<Action>,
    /// The frame; empty if the packet is buffered.
    pub frame: Vec<u8>,
}

/// Why a flow was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovedReason {
    /// It matched no packet for its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout expired.
    HardTimeout = 1,
    /// A flow mod deleted it.
    Delete = 2,
    /// Its group was deleted.
    GroupDelete = 3,
    /// Its meter was deleted (1.4).
    MeterDelete = 4,
    /// It was evicted to make room (1.4).
    Eviction = 5,
}

/// A flow that was removed.
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
    /// Its lifetime: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// Its timeouts.
    pub timeouts: Timeouts,
    /// Its counters.
    pub counts: Counts,
}

/// Timeouts in seconds; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timeouts {
    /// The time without a matching packet.
    pub idle: u16,
    /// The time since the flow was added.
    pub hard: u16,
}

/// Packet and byte counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A flow mod's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Adds a flow, replacing one with the same match and priority.
    Add = 0,
    /// Modifies all flows that the match covers (non-strict).
    Modify = 1,
    /// Modifies the flow with this match and priority.
    ModifyStrict = 2,
    /// Deletes all flows that the match covers (non-strict).
    Delete = 3,
    /// Deletes the flow with this match and priority.
    DeleteStrict = 4,
}

/// `OFPFF_` bits.
pub mod flow_flag {
    /// Sends a flow-removed message when the flow ends.
    pub const SEND_FLOW_REM: u16 = 1;
    /// Refuses the flow if it overlaps another of the same priority.
    pub const CHECK_OVERLAP: u16 = 2;
    /// Resets the counters.
    pub const RESET_COUNTS: u16 = 4;
    /// Disables the packet counter.
    pub const NO_PKT_COUNTS: u16 = 8;
    /// Disables the byte counter.
    pub const NO_BYT_COUNTS: u16 = 16;
}

/// A flow mod: adds, modifies or deletes flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// The command.
    pub command: FlowCommand,
    /// The table; 255 means all tables in deletions, and an unspecified table in 1.0.
    pub table: u8,
    /// The match.
    pub matching: Match,
    /// The priority.
    pub priority: u16,
    /// The cookie of an added flow; in 1.0, if the mask is zero, also of modified flows (all ones changes none).
    pub cookie: u64,
    /// Selects flows whose cookie equals `cookie` under this mask.
    pub cookie_mask: u64,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The id of a buffered packet to process; all ones for none.
    pub buffer: u32,
    /// For deletions: selects flows that output to this port; [`crate::action::port::ANY`] for all flows.
    pub out_port: u32,
    /// For deletions: selects flows that use this group; [`GROUP_ANY`] for all flows.
    pub out_group: u32,
    /// [`flow_flag`] bits.
    pub flags: u16,
    /// The importance: less important flows are evicted first (1.4).
    pub importance: u16,
    /// The instructions.
    pub instructions: Instructions,
}

/// A group mod's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCommand {
    /// Adds a group.
    Add,
    /// Modifies a group.
    Modify,
    /// Deletes a group, or all.
    Delete,
    /// Adds or modifies a group (Nicira).
    AddOrModify,
    /// Inserts buckets after the bucket with this id, or first or last (1.5).
    InsertBucket(u32),
    /// Removes the bucket with this id, or the first, the last or all (1.5).
    RemoveBucket(u32),
}

/// Bucket ids in group mods (1.5).
pub mod bucket {
    /// The highest bucket id.
    pub const MAX: u32 = 0xffff_ff00;
    /// The first bucket.
    pub const FIRST: u32 = 0xffff_fffd;
    /// The last bucket.
    pub const LAST: u32 = 0xffff_fffe;
    /// All buckets.
    pub const ALL: u32 = 0xffff_ffff;
}

/// All groups, in requests and deletions.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// Any group; no group.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// The highest group id.
pub const GROUP_MAX: u32 = 0xffff_ff00;

/// A group's type: how it selects buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// Executes all buckets.
    All = 0,
    /// Executes one bucket, selected by hash and weights.
    Select = 1,
    /// Executes its only bucket.
    Indirect = 2,
    /// Executes the first live bucket.
    FastFailover = 3,
}

/// A group mod: adds, modifies or deletes a group or its buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// The command.
    pub command: GroupCommand,
    /// The group id.
    pub group: u32,
    /// The group's type.
    pub kind: GroupKind,
    /// The group's buckets, or those to insert.
    pub buckets: Vec<Bucket>,
    /// The selection method; its `method` is empty for the switch's own.
    pub selection: Selection,
}

/// The selection method of a `select` group (ovs-ofctl(8)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// `hash`, `dp_hash` or empty.
    pub method: String,
    /// The method's parameter.
    pub parameter: u64,
    /// The fields that are hashed, with masks.
    pub fields: Vec<(FieldId, u128)>,
}

/// A meter mod's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterCommand {
    /// Adds a meter.
    Add = 0,
    /// Modifies a meter.
    Modify = 1,
    /// Deletes a meter, or all.
    Delete = 2,
}

/// Meter ids.
pub mod meter {
    /// The highest id of a meter that flows use.
    pub const MAX: u32 = 0xffff_0000;
    /// The meter of packets to a slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// The meter of packet-ins.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// All meters, in requests and deletions.
    pub const ALL: u32 = 0xffff_ffff;
}

/// `OFPMF_` bits.
pub mod meter_flag {
    /// Rates are in kbit/s.
    pub const KBPS: u16 = 1;
    /// Rates are in packets/s.
    pub const PKTPS: u16 = 2;
    /// Bands have burst sizes.
    pub const BURST: u16 = 4;
    /// Statistics are collected.
    pub const STATS: u16 = 8;
}

/// A band's type: what happens to packets above its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops them.
    Drop,
    /// Raises the DSCP's drop precedence by this many levels.
    DscpRemark(u8),
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Its type.
    pub kind: BandKind,
    /// Its rate, in kbit/s or packets/s by the meter's flags.
    pub rate: u32,
    /// Its burst size, in kbit or packets.
    pub burst: u32,
}

/// A meter mod, or a meter's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// The command.
    pub command: MeterCommand,
    /// [`meter_flag`] bits.
    pub flags: u16,
    /// The meter id.
    pub meter: u32,
    /// The bands.
    pub bands: Vec<Band>,
}

/// A port mod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// The port.
    pub port: u32,
    /// The port's Ethernet address, which must match.
    pub address: [u8; 6],
    /// `OFPPC_` bits.
    pub config: u32,
    /// The `config` bits to change.
    pub mask: u32,
    /// `OFPPF_` features to advertise; 0 for no change.
    pub advertise: u32,
}

/// A controller's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// In requests: keeps the current role.
    NoChange = 0,
    /// Full access, like other equal controllers.
    Equal = 1,
    /// Full access, at most one controller.
    Master = 2,
    /// Read-only access.
    Slave = 3,
}

/// A role and the generation of the master election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleRequest {
    /// The role.
    pub role: Role,
    /// `generation_id`, the generation of the master election; `None` if none has been set.
    pub generation: Option<u64>,
    /// The controller's short id (1.5); all ones for none.
    pub short: u16,
}

/// The asynchronous messages that a controller receives: bitmaps of reasons, for roles master and equal, and for slave.
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

/// The type of a bundle control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BundleControl {
    /// Opens a bundle.
    OpenRequest = 0,
    /// The bundle is open.
    OpenReply = 1,
    /// Closes a bundle to further messages.
    CloseRequest = 2,
    /// The bundle is closed.
    CloseReply = 3,
    /// Applies a bundle's messages.
    CommitRequest = 4,
    /// The bundle has been applied.
    CommitReply = 5,
    /// Drops a bundle.
    DiscardRequest = 6,
    /// The bundle has been dropped.
    DiscardReply = 7,
}

/// The status of a connection to a controller (1.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// The controller's short id.
    pub short: u16,
    /// The controller's role.
    pub role: Role,
    /// An `OFPCSR_` reason.
    pub reason: u8,
    /// Whether the connection is up.
    pub is_up: bool,
    /// The connection's URI.
    pub uri: String,
}

/// Selects flows in requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFilter {
    /// The table; 255 for all.
    pub table: u8,
    /// Flows that output to this port; [`crate::action::port::ANY`] for all.
    pub out_port: u32,
    /// Flows that use this group; [`GROUP_ANY`] for all.
    pub out_group: u32,
    /// Flows whose cookie equals this under `cookie_mask`.
    pub cookie: u64,
    /// The mask of `cookie`.
    pub cookie_mask: u64,
    /// Flows that this match covers.
    pub matching: Match,
}

/// The body of a multipart request.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Request {
    /// Manufacturer, hardware, software.
    Desc,
    /// Flows with their instructions.
    Flow(FlowFilter),
    /// Flows without their instructions (1.5 `OFPMP_FLOW_STATS`).
    FlowStats(FlowFilter),
    /// Total counters of flows.
    Aggregate(FlowFilter),
    /// Tables' counters.
    Table,
    /// Tables' features: requested if empty, otherwise set.
    TableFeatures(Vec<TableFeatures>),
    /// Tables' configuration (1.4).
    TableDesc,
    /// Ports' counters.
    PortStats { port: u32 },
    /// Ports' descriptions.
    PortDesc { port: u32 },
    /// Queues' counters.
    Queue { port: u32, queue: u32 },
    /// Queues' descriptions (1.4).
    QueueDesc { port: u32, queue: u32 },
    /// Groups' counters.
    Group { group: u32 },
    /// Groups' descriptions.
    GroupDesc { group: u32 },
    /// Features of groups.
    GroupFeatures,
    /// Meters' counters.
    Meter { meter: u32 },
    /// Meters' configuration.
    MeterConfig { meter: u32 },
    /// Features of meters.
    MeterFeatures,
    /// Adds, modifies or deletes flow monitors.
    FlowMonitor(Vec<FlowMonitor>),
    /// Features of bundles (1.5).
    BundleFeatures { flags: u32 },
    /// Status of controller connections (1.5).
    ControllerStatus,
    /// An unknown experimenter request.
    Experimenter { experimenter: u32, kind: u32 },
}

/// A flow monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitor {
    /// Its id.
    pub id: u32,
    /// Whether to add, modify or delete it.
    pub command: MonitorCommand,
    /// [`monitor_flag`] bits.
    pub flags: u16,
    /// Flows that output to this port; [`crate::action::port::ANY`] for all.
    pub out_port: u32,
    /// Flows that use this group; [`GROUP_ANY`] for all.
    pub out_group: u32,
    /// The table; 255 for all.
    pub table: u8,
    /// Flows that this match covers.
    pub matching: Match,
}

/// A flow monitor request's command (1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorCommand {
    /// Adds the monitor.
    Add = 0,
    /// Modifies the monitor.
    Modify = 1,
    /// Deletes the monitor.
    Delete = 2,
}

/// `OFPFMF_` bits of 1.4; Nicira's have the same numbers.
pub mod monitor_flag {
    /// Reports the flows that exist.
    pub const INITIAL: u16 = 1;
    /// Reports added flows.
    pub const ADD: u16 = 2;
    /// Reports removed flows.
    pub const REMOVED: u16 = 4;
    /// Reports modified flows.
    pub const MODIFY: u16 = 8;
    /// Reports include instructions.
    pub const INSTRUCTIONS: u16 = 16;
    /// Reports the connection's own changes in full, not abbreviated.
    pub const NO_ABBREV: u16 = 32;
    /// Reports only the connection's own changes.
    pub const ONLY_OWN: u16 = 64;
}

/// The body of a multipart reply.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Reply {
    /// Manufacturer, hardware, software.
    Desc(Desc),
    /// Flows with their instructions.
    Flow(Vec<FlowEntry>),
    /// Flows without their instructions.
    FlowStats(Vec<FlowEntry>),
    /// Total counters of flows, and the number of flows.
    Aggregate { counts: Counts, flows: u32 },
    /// Tables' counters.
    Table(Vec<TableStats>),
    /// Tables' features.
    TableFeatures(Vec<TableFeatures>),
    /// Tables' configuration.
    TableDesc(Vec<TableDesc>),
    /// Ports' counters.
    PortStats(Vec<PortStats>),
    /// Ports' descriptions.
    PortDesc(Vec<Port>),
    /// Queues' counters.
    Queue(Vec<QueueStats>),
    /// Queues' descriptions.
    QueueDesc(Vec<Queue>),
    /// Groups' counters.
    Group(Vec<GroupStats>),
    /// Groups' descriptions.
    GroupDesc(Vec<GroupDesc>),
    /// Features of groups.
    GroupFeatures(GroupFeatures),
    /// Meters' counters.
    Meter(Vec<MeterStats>),
    /// Meters' configuration.
    MeterConfig(Vec<MeterMod>),
    /// Features of meters.
    MeterFeatures(MeterFeatures),
    /// Changes of monitored flows.
    FlowMonitor(Vec<FlowUpdate>),
    /// Features of bundles: capability bits.
    BundleFeatures { capabilities: u16 },
    /// Status of controller connections.
    ControllerStatus(Vec<ControllerStatus>),
}

/// A table's configuration: its number, `OFPTC_` bits; vacancy thresholds down and up and the current vacancy, in
/// percent.
pub type TableDesc = (u8, u32, Option<(u8, u8, u8)>);

/// The description of a switch.
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
    /// A human-readable name of the datapath.
    pub datapath: String,
}

/// A flow with its counters.
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
    /// Its age: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// The time since it last matched a packet and since it was last modified, in seconds.
    pub ages: (u32, u32),
    /// Its counters.
    pub counts: Counts,
    /// Its instructions.
    pub instructions: Instructions,
}

/// A table's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Its number.
    pub table: u8,
    /// Its name (1.0).
    pub name: String,
    /// The maximum number of flows (1.0).
    pub max: u32,
    /// The number of flows.
    pub active: u32,
    /// The number of packets looked up.
    pub lookups: u64,
    /// The number of packets that matched a flow.
    pub matched: u64,
}

/// A table's features.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// Its number.
    pub table: u8,
    /// The command (1.5): 0 replaces all tables, 1 modifies, 2 enables, 3 disables this one.
    pub command: u8,
    /// `OFPTFF_` bits (1.5).
    pub features: u32,
    /// Its name.
    pub name: String,
    /// The metadata bits that flows can match, and those that they can write.
    pub metadata: (u64, u64),
    /// `OFPTC_` bits.
    pub config: u32,
    /// The maximum number of flows.
    pub max: u32,
    /// Instruction types, for flows and for the table miss.
    pub instructions: [Vec<u16>; 2],
    /// Tables that goto-table can name, for flows and for the table miss.
    pub next: [Vec<u8>; 2],
    /// Action types that write-actions can have, for flows and for the table miss.
    pub write: [Vec<u16>; 2],
    /// Action types that apply-actions can have, for flows and for the table miss.
    pub apply: [Vec<u16>; 2],
    /// Fields that can be matched, and whether with a mask.
    pub matches: Vec<(FieldId, bool)>,
    /// Fields that may be wildcarded.
    pub wildcards: Vec<FieldId>,
    /// Fields that the action set can set, for flows and for the table miss.
    pub write_fields: [Vec<FieldId>; 2],
    /// Fields that apply-actions can set, for flows and for the table miss.
    pub apply_fields: [Vec<FieldId>; 2],
}

impl TableFeatures {
    /// The name of a feature in which `wanted` exceeds this table's; `None` if it exceeds none.
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

/// A port's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Its number.
    pub port: u32,
    /// Received packets and bytes.
    pub received: Counts,
    /// Sent packets and bytes.
    pub sent: Counts,
    /// Dropped packets: received and sent.
    pub dropped: [u64; 2],
    /// Errors: received and sent.
    pub errors: [u64; 2],
    /// Its age: seconds and nanoseconds.
    pub duration: (u32, u32),
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// Minimum and maximum rate, in tenths of a percent of the port's rate.
    pub rates: [Option<u16>; 2],
}

/// A queue's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// Sent packets and bytes.
    pub sent: Counts,
    /// Packets dropped by overrun.
    pub errors: u64,
    /// Its age: seconds and nanoseconds.
    pub duration: (u32, u32),
}

/// A group's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Its id.
    pub group: u32,
    /// The number of flows and groups that use it.
    pub references: u32,
    /// Packets and bytes that it processed.
    pub counts: Counts,
    /// Its age: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// Packets and bytes that each bucket processed.
    pub buckets: Vec<Counts>,
}

/// A group's description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// Its id.
    pub group: u32,
    /// Its type.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// Its selection method.
    pub selection: Selection,
}

/// Features of groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// The supported types as a bitmap.
    pub kinds: u32,
    /// `OFPGFC_` bits.
    pub capabilities: u32,
    /// The maximum number of groups of each type.
    pub max: [u32; 4],
    /// For each type, the supported action types as a bitmap.
    pub actions: [u32; 4],
}

/// A meter's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Its id.
    pub meter: u32,
    /// The number of flows that use it.
    pub flows: u32,
    /// Packets and bytes that it processed.
    pub counts: Counts,
    /// Its age: seconds and nanoseconds.
    pub duration: (u32, u32),
    /// Packets and bytes that exceeded each band.
    pub bands: Vec<Counts>,
}

/// Features of meters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// The maximum number of meters.
    pub max: u32,
    /// The supported band types as a bitmap.
    pub bands: u32,
    /// [`meter_flag`] bits.
    pub capabilities: u32,
    /// The maximum number of bands of a meter.
    pub max_bands: u8,
    /// The maximum colour value.
    pub max_colors: u8,
    /// `OFPMFF_` bits (1.5).
    pub features: u32,
}

/// A change of a monitored flow.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum FlowUpdate {
    /// A flow exists when monitoring starts, or was added, modified or removed.
    Full { event: UpdateEvent, reason: RemovedReason, flow: FlowEntry },
    /// A request of the connection itself, with this transaction id, took effect.
    Abbreviated { xid: u32 },
    /// Monitoring paused, or resumed if false (1.4).
    Paused(bool),
}

/// The event of a flow update, with 1.4's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateEvent {
    /// The flow existed when monitoring started.
    Initial = 0,
    /// The flow was added.
    Added = 1,
    /// The flow was removed.
    Removed = 2,
    /// The flow was modified.
    Modified = 3,
}
