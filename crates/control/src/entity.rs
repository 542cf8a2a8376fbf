//! Requests and answers as plain values: what P4Runtime messages say, before anyone looks whether they make sense.
//!
//! Field by field the entities of `p4.v1` (P4Runtime specification, "P4 Entity Messages"); numbers that mean "unset" in
//! the protocol mean it here, too. `messages::convert` makes these from messages and messages from these.

use abi::state::HashParameters;

/// A 128-bit election id.
pub type ElectionId = u128;

/// A batch of updates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WriteRequest {
    /// Which device.
    pub device_id: u64,
    /// The sender's role.
    pub role: Role,
    /// The sender's election id.
    pub election_id: Option<ElectionId>,
    /// In order.
    pub updates: Vec<Update>,
    /// What happens to the rest when one fails.
    pub atomicity: Atomicity,
}

/// A role by name, or by the older protocol's number; both unset is the default role.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Role {
    /// Since P4Runtime 1.4.
    pub name: String,
    /// Before.
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

/// What happens to the rest of a batch when an update fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum Atomicity {
    #[default]
    ContinueOnError,
    RollbackOnError,
    DataplaneAtomic,
}

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Insert, modify or delete.
    pub kind: UpdateKind,
    /// Of what; `None` when the message says nothing.
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

/// A hash and its parameters. The protocol has none: messages carry it as an extern's entry (`sluice.v1.CalculationEntry`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CalculationEntry {
    /// Its name in the program; empty for a read of all.
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
    /// Nanoseconds.
    pub time_since_last_hit: Option<i64>,
    pub is_const: bool,
}

/// What one key field accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldMatch {
    /// Which field.
    pub field_id: u32,
    /// What it accepts.
    pub value: MatchValue,
}

/// The values a field accepts, as sent.
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
    /// A message of an architecture; its type.
    Other(String),
}

/// What an entry does.
#[derive(Clone, PartialEq, Debug)]
pub enum TableAction {
    /// Runs an action.
    Action(Action),
    /// Runs a member's action.
    Member(u32),
    /// Runs the action of one of a group's members.
    Group(u32),
    /// Brings its own group.
    OneShot(ActionSet),
}

/// An action with arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// Which.
    pub action_id: u32,
    /// Parameter ids and values.
    pub params: Vec<(u32, Vec<u8>)>,
}

/// A group without ids of its own.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ActionSet {
    /// Its members.
    pub actions: Vec<WeightedAction>,
    /// The protocol's number of the selection mode, 0 for the selector's.
    pub selection_mode: i32,
    /// The protocol's number of the size semantics, 0 for the selector's.
    pub size_semantics: i32,
    /// Runs in addition.
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

/// The port a member's liveness depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// None.
    #[default]
    Unset,
    /// The older protocol's number.
    Number(i32),
    /// A port as bytes.
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

/// A member's part in a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct GroupMember {
    pub member_id: u32,
    pub weight: i32,
    pub watch: Watch,
}

/// Bytes and packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct CounterData {
    pub byte_count: i64,
    pub packet_count: i64,
}

/// Counters per colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterCounterData {
    pub green: Option<CounterData>,
    pub yellow: Option<CounterData>,
    pub red: Option<CounterData>,
}

/// Rates and bursts.
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

/// An entry's counter.
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

/// An entry's meter.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DirectMeterEntry {
    pub table_entry: Option<TableEntry>,
    pub config: Option<MeterConfig>,
    pub counter_data: Option<MeterCounterData>,
}

/// A copy of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    /// Where to.
    pub port: ReplicaPort,
    /// The copy's number.
    pub instance: u32,
    /// Who takes its place while its port is down, in order of preference.
    pub backups: Vec<BackupReplica>,
}

/// A copy in place of another one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupReplica {
    /// Where to.
    pub port: Vec<u8>,
    /// The copy's number.
    pub instance: u32,
}

/// A replica's port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ReplicaPort {
    /// Missing.
    #[default]
    Unset,
    /// The older protocol's number.
    Number(u32),
    /// As bytes.
    Port(Vec<u8>),
}

/// Where multicast packets go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MulticastGroup {
    pub group_id: u32,
    pub replicas: Vec<Replica>,
    pub metadata: Vec<u8>,
}

/// Where clones go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct CloneSession {
    pub session_id: u32,
    pub replicas: Vec<Replica>,
    pub class_of_service: u32,
    pub packet_length_bytes: i32,
}

/// All members of a value set.
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

/// How a digest is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct DigestEntry {
    pub digest_id: u32,
    pub config: Option<DigestConfig>,
}

/// How lists of digest messages are made.
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
    /// Headers.
    HeaderStack(Vec<P4Data>),
    /// Header unions.
    HeaderUnionStack(Vec<P4Data>),
}
