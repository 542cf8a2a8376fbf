//! P4Runtime requests and answers as plain values, before validation.
//!
//! The types mirror the entities of `p4.v1` field by field (P4Runtime specification, "P4 Entity Messages"). Numbers
//! that mean "unset" in the protocol mean it here, too. `messages::convert` translates between these and protobuf
//! messages.

use abi::state::HashParameters;

/// A 128-bit election id.
pub type ElectionId = u128;

/// A batch of updates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WriteRequest {
    /// The device.
    pub device_id: u64,
    /// The sender's role.
    pub role: Role,
    /// The sender's election id.
    pub election_id: Option<ElectionId>,
    /// The updates, in order.
    pub updates: Vec<Update>,
    /// What happens to the other updates when one fails.
    pub atomicity: Atomicity,
}

/// A role by name, or by its deprecated number; if both are unset, the default role.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Role {
    /// The name (since P4Runtime 1.4).
    pub name: String,
    /// The number of earlier versions of the protocol.
    pub id: u64,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.name.as_str(), self.id) {
            ("", 0) => f.write_str("the default role"),
            ("", id) => write!(f, "role {id}"),
            (name, _) => write!(f, "role `{name}`"),
        }
    }
}

/// What happens to the other updates of a batch when one fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum Atomicity {
    #[default]
    ContinueOnError,
    RollbackOnError,
    DataplaneAtomic,
}

/// One change of a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Insert, modify or delete.
    pub kind: UpdateKind,
    /// What is changed; `None` if the message leaves it out.
    pub entity: Option<Entity>,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum UpdateKind {
    Unspecified,
    Insert,
    Modify,
    Delete,
}

/// Something that can be read or written.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum Entity {
    Extern { extern_type_id: u32, extern_id: u32 },
    Table(TableEntry),
    Member(Member),
    Group(Group),
    Meter(MeterEntry),
    DirectMeter(DirectMeterEntry),
    Counter(CounterEntry),
    DirectCounter(DirectCounterEntry),
    MulticastGroup(MulticastGroup),
    CloneSession(CloneSession),
    ValueSet(ValueSetEntry),
    Register(RegisterEntry),
    Digest(DigestEntry),
    Calculation(CalculationEntry),
}

/// A hash calculation and its parameters. P4Runtime has no entity for this, so messages carry it as an extern entry
/// (`sluice.v1.CalculationEntry`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CalculationEntry {
    /// Its name in the program; empty to read all.
    pub name: String,
    /// `None` in a read.
    pub parameters: Option<HashParameters>,
}

/// An entry of a table.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct TableEntry {
    pub table_id: u32,
    pub matches: Vec<FieldMatch>,
    pub action: Option<TableAction>,
    pub priority: i32,
    pub controller_metadata: u64,
    pub metadata: Vec<u8>,
    pub meter_config: Option<MeterConfig>,
    pub counter_data: Option<CounterData>,
    pub meter_counter_data: Option<MeterCounterData>,
    pub is_default_action: bool,
    pub idle_timeout_ns: i64,
    /// Nanoseconds since the entry was last hit.
    pub time_since_last_hit: Option<i64>,
    pub is_const: bool,
}

/// The match on one key field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldMatch {
    /// The field.
    pub field_id: u32,
    /// The values that match.
    pub value: MatchValue,
}

/// The values that match a field, as sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum MatchValue {
    Unset,
    Exact(Vec<u8>),
    Ternary {
        value: Vec<u8>,
        mask: Vec<u8>,
    },
    Lpm {
        value: Vec<u8>,
        prefix_len: i32,
    },
    Range {
        low: Vec<u8>,
        high: Vec<u8>,
    },
    Optional(Vec<u8>),
    /// An architecture-specific match; holds its message's type URL.
    Other(String),
}

/// The action of a table entry.
#[derive(Clone, PartialEq, Debug)]
pub enum TableAction {
    /// Runs an action.
    Action(Action),
    /// Runs a member's action.
    Member(u32),
    /// Runs the action of one of a group's members.
    Group(u32),
    /// Selects from an action set that belongs to this entry alone.
    OneShot(ActionSet),
}

/// An action with its arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// The action.
    pub action_id: u32,
    /// Parameter ids and values.
    pub params: Vec<(u32, Vec<u8>)>,
}

/// A one-shot action set: a group that belongs to one entry and has no ids.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ActionSet {
    /// Its members.
    pub actions: Vec<WeightedAction>,
    /// The selection mode's protobuf number; 0 for the selector's default.
    pub selection_mode: i32,
    /// The size semantics' protobuf number; 0 for the selector's default.
    pub size_semantics: i32,
    /// An action that runs before the selected member.
    pub group_action: Option<Action>,
}

/// A member of an [`ActionSet`].
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct WeightedAction {
    pub action: Option<Action>,
    pub weight: i32,
    pub watch: Watch,
}

/// The port that decides whether a group's member is live.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// None.
    #[default]
    Unset,
    /// The deprecated 32-bit `watch` field.
    Number(i32),
    /// The port's number as a byte string (`watch_port`).
    Port(Vec<u8>),
}

/// A member of an action profile.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct Member {
    pub action_profile_id: u32,
    pub member_id: u32,
    pub action: Option<Action>,
}

/// A group of a selector.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct Group {
    pub action_profile_id: u32,
    pub group_id: u32,
    pub members: Vec<GroupMember>,
    pub max_size: i32,
}

/// A member's entry in a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct GroupMember {
    pub member_id: u32,
    pub weight: i32,
    pub watch: Watch,
}

/// Counts of bytes and packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct CounterData {
    pub byte_count: i64,
    pub packet_count: i64,
}

/// Counts per meter colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterCounterData {
    pub green: Option<CounterData>,
    pub yellow: Option<CounterData>,
    pub red: Option<CounterData>,
}

/// A meter's rates (units per second) and burst sizes (units); the unit is bytes or packets, by the meter's
/// declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterConfig {
    pub cir: i64,
    pub cburst: i64,
    pub pir: i64,
    pub pburst: i64,
    pub eburst: i64,
}

/// A cell of a counter array.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct CounterEntry {
    pub counter_id: u32,
    pub index: Option<i64>,
    pub data: Option<CounterData>,
}

/// The direct counter of a table entry.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DirectCounterEntry {
    pub table_entry: Option<TableEntry>,
    pub data: Option<CounterData>,
}

/// A cell of a meter array.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterEntry {
    pub meter_id: u32,
    pub index: Option<i64>,
    pub config: Option<MeterConfig>,
    pub counter_data: Option<MeterCounterData>,
}

/// The direct meter of a table entry.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DirectMeterEntry {
    pub table_entry: Option<TableEntry>,
    pub config: Option<MeterConfig>,
    pub counter_data: Option<MeterCounterData>,
}

/// A replica of a multicast group or clone session: one copy of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    /// The egress port.
    pub port: ReplicaPort,
    /// The instance, which tells apart replicas of one port.
    pub instance: u32,
    /// Backup replicas in order of preference, used while the port is down.
    pub backups: Vec<BackupReplica>,
}

/// A replica that replaces another one whose port is down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupReplica {
    /// The egress port.
    pub port: Vec<u8>,
    /// The instance.
    pub instance: u32,
}

/// A replica's port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ReplicaPort {
    /// The port is missing.
    #[default]
    Unset,
    /// The deprecated 32-bit `egress_port` field.
    Number(u32),
    /// The port's number as a byte string.
    Port(Vec<u8>),
}

/// A multicast group: the replicas made of a multicast packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MulticastGroup {
    pub group_id: u32,
    pub replicas: Vec<Replica>,
    pub metadata: Vec<u8>,
}

/// A clone session: the replicas made of a cloned packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct CloneSession {
    pub session_id: u32,
    pub replicas: Vec<Replica>,
    pub class_of_service: u32,
    pub packet_length_bytes: i32,
}

/// A value set with all its members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct ValueSetEntry {
    pub value_set_id: u32,
    pub members: Vec<Vec<FieldMatch>>,
}

/// A cell of a register array.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct RegisterEntry {
    pub register_id: u32,
    pub index: Option<i64>,
    pub data: Option<P4Data>,
}

/// A digest and whether and how it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DigestEntry {
    pub digest_id: u32,
    pub config: Option<DigestConfig>,
}

/// How digest messages are batched into lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DigestConfig {
    pub max_timeout_ns: i64,
    pub max_list_size: i32,
    pub ack_timeout_ns: i64,
}

/// A value of any P4 type.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum P4Data {
    Bitstring(Vec<u8>),
    Varbit {
        bitstring: Vec<u8>,
        bitwidth: i32,
    },
    Bool(bool),
    Tuple(Vec<P4Data>),
    Struct(Vec<P4Data>),
    Header {
        is_valid: bool,
        bitstrings: Vec<Vec<u8>>,
    },
    Enum(String),
    Error(String),
    EnumValue(Vec<u8>),
    /// The name of the valid member and its header; `None` if no member is valid.
    HeaderUnion(Option<(String, Box<P4Data>)>),
    /// A stack of headers.
    HeaderStack(Vec<P4Data>),
    /// A stack of header unions.
    HeaderUnionStack(Vec<P4Data>),
}
