//! P4Info as plain values: what a controller sees of a program.
//!
//! The same tree as the `p4.config.v1` messages (P4Runtime specification, "The P4Info Message"), without protobuf:
//! alternatives are enums, absent fields are `Option` or empty, and [`NewType`] keeps the underlying type that the
//! message drops when the type is translated. `text` prints it; `messages::convert` turns it into messages.
//!
//! Invariants of a generated P4Info: ids are unique over all objects and carry the prefix of their kind; names are
//! unique within a kind; every id and type name that is referred to exists.

use base::Bits;
use base::entry::MatchKind;
use constraints::Constraint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program's P4Info: every object that a controller can address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct P4Info {
    /// Name, version and architecture of the program.
    pub pkg_info: PkgInfo,
    /// Match-action tables.
    pub tables: Vec<Table>,
    /// Actions that tables or profiles refer to.
    pub actions: Vec<Action>,
    /// Action profiles and selectors.
    pub action_profiles: Vec<ActionProfile>,
    /// Counter arrays.
    pub counters: Vec<Counter>,
    /// Counters attached to table entries.
    pub direct_counters: Vec<DirectCounter>,
    /// Meter arrays.
    pub meters: Vec<Meter>,
    /// Meters attached to table entries.
    pub direct_meters: Vec<DirectMeter>,
    /// The packet-in and packet-out headers.
    pub controller_packet_metadata: Vec<ControllerPacketMetadata>,
    /// Parser value sets.
    pub value_sets: Vec<ValueSet>,
    /// Register arrays.
    pub registers: Vec<Register>,
    /// Digests: messages to the controller.
    pub digests: Vec<Digest>,
    /// Instances of externs that P4Runtime does not define.
    pub externs: Vec<Extern>,
    /// Named types that the objects refer to.
    pub type_info: TypeInfo,
    /// Whether it was generated from names only, so that a controller with the source's P4Info may use other ids and
    /// more headers. Not part of the message.
    pub from_names: bool,
}

/// The kinds of objects; the value is the prefix of their ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names of the messages")]
pub enum ObjectKind {
    Action = 0x01,
    Table = 0x02,
    ValueSet = 0x03,
    ControllerHeader = 0x04,
    ActionProfile = 0x11,
    Counter = 0x12,
    DirectCounter = 0x13,
    Meter = 0x14,
    DirectMeter = 0x15,
    Register = 0x16,
    Digest = 0x17,
}

impl ObjectKind {
    /// All kinds, ordered by prefix.
    pub const ALL: [ObjectKind; 11] = [
        ObjectKind::Action,
        ObjectKind::Table,
        ObjectKind::ValueSet,
        ObjectKind::ControllerHeader,
        ObjectKind::ActionProfile,
        ObjectKind::Counter,
        ObjectKind::DirectCounter,
        ObjectKind::Meter,
        ObjectKind::DirectMeter,
        ObjectKind::Register,
        ObjectKind::Digest,
    ];

    /// The top byte of ids of this kind.
    pub fn prefix(self) -> u8 {
        self as u8
    }

    /// The kind of an id; `None` if no kind has its prefix.
    pub fn of(id: u32) -> Option<ObjectKind> {
        ObjectKind::ALL.into_iter().find(|kind| u32::from(kind.prefix()) == id >> 24)
    }

    /// The noun for messages: `table`, `direct counter`.
    pub fn noun(self) -> &'static str {
        match self {
            ObjectKind::Action => "action",
            ObjectKind::Table => "table",
            ObjectKind::ValueSet => "value set",
            ObjectKind::ControllerHeader => "controller header",
            ObjectKind::ActionProfile => "action profile",
            ObjectKind::Counter => "counter",
            ObjectKind::DirectCounter => "direct counter",
            ObjectKind::Meter => "meter",
            ObjectKind::DirectMeter => "direct meter",
            ObjectKind::Register => "register",
            ObjectKind::Digest => "digest",
        }
    }
}

/// The fields that all objects have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Preamble {
    /// Unique over all objects; the top byte is [`ObjectKind::prefix`].
    pub id: u32,
    /// Fully qualified name.
    pub name: String,
    /// The shortest suffix of the name that is unique.
    pub alias: String,
    /// Annotations without their own field.
    pub annotations: Annotations,
    /// From `@brief` and `@description`.
    pub doc: Option<Documentation>,
}

/// Annotations from the source, except those with their own field in P4Info (`@name`, `@id`, `@brief`…).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Annotations {
    /// `@name(...)` as written.
    pub plain: Vec<String>,
    /// The location of each element of `plain`; unknown for the one that an implicit default action gets.
    pub plain_at: Vec<SourceLocation>,
    /// `@name[...]`.
    pub structured: Vec<StructuredAnnotation>,
}

/// `@name[...]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StructuredAnnotation {
    /// The name without `@`.
    pub name: String,
    /// The contents of the brackets.
    pub body: StructuredBody,
    /// Its location.
    pub at: SourceLocation,
}

/// A place in the source (`SourceLocation` in p4types.proto).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SourceLocation {
    /// The file's name as the preprocessor knows it, or as given by `#line`.
    pub file: String,
    /// 1-based; 0 if unknown.
    pub line: u32,
    /// 1-based; 0 if unknown.
    pub column: u32,
}

/// The two forms of structured annotations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StructuredBody {
    /// `@a[]`.
    Empty,
    /// `@a[1, "x"]`.
    Expressions(Vec<Expression>),
    /// `@a[k = 1]`.
    KeyValues(Vec<(String, Expression)>),
}

/// A constant in a structured annotation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "what they say")]
pub enum Expression {
    String(String),
    Int64(i64),
    Bool(bool),
}

/// Documentation of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Documentation {
    /// One-line summary; may be empty.
    pub brief: String,
    /// Full description; may be empty.
    pub description: String,
}

/// Information about the program, from `@pkginfo` and other annotations on `main`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "keys of @pkginfo")]
pub struct PkgInfo {
    pub name: String,
    pub version: String,
    pub doc: Option<Documentation>,
    pub annotations: Annotations,
    /// `v1model`, `psa`, `pna`.
    pub arch: String,
    pub organization: String,
    pub contact: String,
    pub url: String,
    pub platform_properties: Option<PlatformProperties>,
}

/// The platform properties, from `@platform_property`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "keys of @platform_property")]
pub struct PlatformProperties {
    pub multicast_group_table_size: i32,
    pub multicast_group_table_total_replicas: i32,
    pub multicast_group_table_max_replicas_per_entry: i32,
}

/// A match-action table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Key fields in order, without `selector` fields.
    pub match_fields: Vec<MatchField>,
    /// Actions in the order of the table's list.
    pub action_refs: Vec<ActionRef>,
    /// Id of the default action if it is `const`.
    pub const_default_action_id: Option<u32>,
    /// The default action before the first write.
    pub initial_default_action: Option<ActionCall>,
    /// Id of the action profile that entries refer to.
    pub implementation_id: Option<u32>,
    /// Ids of direct counters and meters.
    pub direct_resource_ids: Vec<u32>,
    /// Maximum number of entries.
    pub size: i64,
    /// Whether entries may have an idle timeout.
    pub idle_timeout: bool,
    /// Whether it has `const entries`.
    pub is_const_table: bool,
    /// Whether each of the program's entries is `const`, in order. Not part of the message.
    pub const_entries: Vec<bool>,
    /// Whether the program lists entries.
    pub has_initial_entries: bool,
    /// The constraint on entries (`@entry_restriction`), over the match fields in order.
    pub restriction: Option<Constraint>,
}

/// A field of a key or value set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MatchField {
    /// `@id`, or counted from 1 in key order.
    pub id: u32,
    /// `hdr.ipv4.dstAddr`; empty for a value set of a plain `bit<W>`.
    pub name: String,
    /// Annotations without their own field.
    pub annotations: Annotations,
    /// Documentation.
    pub doc: Option<Documentation>,
    /// Width in bits as the controller sees it; 0 for a string or an enum without underlying type.
    pub bitwidth: u32,
    /// Its match type.
    pub match_type: MatchType,
    /// Name of its user-defined type, a key in [`TypeInfo`].
    pub type_name: Option<String>,
}

/// A match kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MatchType {
    /// A match kind that P4Runtime defines.
    Known(MatchKind),
    /// A match kind that the architecture declares.
    Other(String),
}

/// An action in a table's list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActionRef {
    /// The action.
    pub id: u32,
    /// Where it may be used.
    pub scope: ActionScope,
    /// Annotations of the reference, not of the action.
    pub annotations: Annotations,
}

/// Where an action of a table may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ActionScope {
    /// In entries and as default action.
    #[default]
    TableAndDefault,
    /// `@tableonly`: only in entries.
    TableOnly,
    /// `@groupaction`: only before the action of a selected group member.
    GroupAction,
    /// `@defaultonly`: only as default action.
    DefaultOnly,
}

/// An action with arguments, by parameter id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActionCall {
    /// The action.
    pub action_id: u32,
    /// Parameter ids and values.
    pub arguments: Vec<(u32, Bits)>,
}

/// An action.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Action {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Parameters that the control plane supplies, in order.
    pub params: Vec<Param>,
    /// The constraint on arguments (`@action_restriction`).
    pub restriction: Option<Constraint>,
}

/// A control-plane parameter of an action, or a field of a controller header.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Param {
    /// `@id`, or counted from 1 in order.
    pub id: u32,
    /// The P4 name.
    pub name: String,
    /// Annotations without their own field.
    pub annotations: Annotations,
    /// Documentation; not used in controller headers.
    pub doc: Option<Documentation>,
    /// Width in bits as the controller sees it; 0 for a string or an enum without underlying type.
    pub bitwidth: u32,
    /// Name of its user-defined type.
    pub type_name: Option<String>,
}

/// An action profile or selector.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ActionProfile {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Ids of the tables that use it.
    pub table_ids: Vec<u32>,
    /// Whether it has groups.
    pub with_selector: bool,
    /// Maximum number of members, or as defined by [`SelectorSize`].
    pub size: i64,
    /// Maximum size of a group; 0 if the program states none.
    pub max_group_size: i32,
    /// What the sizes count, if the program states it.
    pub selector_size: Option<SelectorSize>,
    /// `@weights_disallowed`.
    pub weights_disallowed: bool,
}

/// What a selector's sizes count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SelectorSize {
    /// The sum of the members' weights.
    SumOfWeights,
    /// The number of members, each with a bounded weight.
    SumOfMembers {
        /// Maximum weight of a member, from `@max_member_weight`; 0 if unbounded.
        max_member_weight: i32,
    },
}

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "what they say")]
pub enum CounterUnit {
    Bytes,
    Packets,
    Both,
}

/// What a meter measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "what they say")]
pub enum MeterUnit {
    Bytes,
    Packets,
}

/// How a meter marks packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum MeterType {
    /// RFC 2698.
    #[default]
    TwoRateThreeColor,
    /// RFC 2697: `@single_rate_three_color`.
    SingleRateThreeColor,
    /// Single rate without yellow: `@single_rate_two_color`.
    SingleRateTwoColor,
}

/// A counter array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// The unit that it counts.
    pub unit: CounterUnit,
    /// Number of cells.
    pub size: i64,
    /// Name of the user-defined type of the index.
    pub index_type_name: Option<String>,
}

/// A counter attached to each entry of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectCounter {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// The unit that it counts.
    pub unit: CounterUnit,
    /// Id of the table.
    pub direct_table_id: u32,
}

/// A meter array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Meter {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// The unit that it measures.
    pub unit: MeterUnit,
    /// Its marking algorithm.
    pub meter_type: MeterType,
    /// Number of cells.
    pub size: i64,
    /// Name of the user-defined type of the index.
    pub index_type_name: Option<String>,
}

/// A meter attached to each entry of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectMeter {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// The unit that it measures.
    pub unit: MeterUnit,
    /// Its marking algorithm.
    pub meter_type: MeterType,
    /// Id of the table.
    pub direct_table_id: u32,
}

/// A header of packets between switch and controller; its name is `packet_in` or `packet_out`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ControllerPacketMetadata {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Its fields in order, padding included.
    pub metadata: Vec<Param>,
}

/// A parser value set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ValueSet {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// The fields of a member.
    pub match_fields: Vec<MatchField>,
    /// Maximum number of members.
    pub size: i32,
}

/// A register array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Type of a cell.
    pub type_spec: DataType,
    /// Number of cells.
    pub size: i32,
    /// Name of the user-defined type of the index.
    pub index_type_name: Option<String>,
}

/// A digest: a kind of message to the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Digest {
    /// Id, name, alias, annotations.
    pub preamble: Preamble,
    /// Type of a message's data.
    pub type_spec: DataType,
}

/// Instances of an extern that P4Runtime does not define; listed, but not addressable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Extern {
    /// Id prefix of the extern type, from 0x81.
    pub extern_type_id: u32,
    /// Name of the P4 extern type.
    pub extern_type_name: String,
    /// Its instances.
    pub instances: Vec<Preamble>,
}

/// A P4 type as a controller sees it; names refer to [`TypeInfo`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of P4 types")]
pub enum DataType {
    Bit(u32),
    Int(u32),
    Varbit(u32),
    Bool,
    Tuple(Vec<DataType>),
    Struct(String),
    Header(String),
    HeaderUnion(String),
    HeaderStack { header: String, size: u32 },
    HeaderUnionStack { header_union: String, size: u32 },
    Enum(String),
    Error,
    SerializableEnum(String),
    NewType(String),
}

/// Named types, sorted by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TypeInfo {
    /// `struct`s.
    pub structs: BTreeMap<String, StructType>,
    /// `header`s.
    pub headers: BTreeMap<String, StructType>,
    /// `header_union`s; members are headers.
    pub header_unions: BTreeMap<String, StructType>,
    /// `enum`s without values.
    pub enums: BTreeMap<String, EnumType>,
    /// Members of `error`, if it is used.
    pub error: Option<Vec<String>>,
    /// `enum bit<W>`s.
    pub serializable_enums: BTreeMap<String, SerializableEnumType>,
    /// `type`s.
    pub new_types: BTreeMap<String, NewType>,
}

/// A struct, header or header union: its fields in order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StructType {
    /// Names and types.
    pub members: Vec<(String, DataType)>,
    /// Annotations of the type.
    pub annotations: Annotations,
}

/// An enum without values.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EnumType {
    /// Names of the members.
    pub members: Vec<String>,
    /// Annotations of the type.
    pub annotations: Annotations,
}

/// An enum with values.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SerializableEnumType {
    /// Width of the values.
    pub bitwidth: u32,
    /// Names and values.
    pub members: Vec<(String, Bits)>,
    /// Annotations of the type.
    pub annotations: Annotations,
}

/// A `type`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewType {
    /// The data plane's type, with chains of `type` resolved.
    pub underlying: DataType,
    /// The controller's type, from `@p4runtime_translation`.
    pub translation: Option<Translation>,
    /// Annotations of the type.
    pub annotations: Annotations,
}

/// The translation of a type between controller and data plane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Translation {
    /// URI that identifies the translation.
    pub uri: String,
    /// The controller's type.
    pub sdn_type: SdnType,
}

/// A controller-side type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SdnType {
    /// `bit<W>`.
    Bits(u32),
    /// A string.
    String,
}
