//! What the control plane may ask of a pipeline's state.
//!
//! Implemented twice and compared: by `datapath` on the fast tables, and by `interp` on linear ones. Values are
//! [`base::entry`] types; ids are those of the program. One caller at a time (the control plane serialises writes);
//! packets run meanwhile.
//!
//! Validation that needs names (unknown table, wrong width) is the control plane's; implementations check what only
//! they know (presence, capacity, references) and answer with a [`StateError`].

use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use ir::Calculated;

/// Why a change or read was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateError {
    /// The entry, member or group is there already.
    Exists,
    /// There is no such entry, member, group or cell.
    NotFound,
    /// The table, profile or group holds as many as it may; the bound.
    Full(u64),
    /// The process has more memory of its own than it may have when an entry is added; the bound in bytes.
    NoMemory(u64),
    /// An entry refers to a member or group that does not exist.
    NoSuchReference(u32),
    /// A member or group is still referred to.
    InUse,
    /// The object is not of the kind the call needs.
    WrongKind,
    /// This engine cannot; what.
    Unsupported(String),
    /// A worker, by number, may still run code that the change would make wrong, or still hold what must be freed first, and has not
    /// come to the end of a batch for so long that the change was refused. Nothing was changed.
    Unacknowledged(u32),
}

/// What changes belong to, for states that must know what may have to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing: each change stands for itself.
    #[default]
    Single,
    /// A batch that takes effect as a whole or not at all.
    Atomic,
    /// Rollback of an atomic batch. It needs no free space, so it never fails.
    Undo,
}

/// An installed entry as read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadEntry {
    /// The entry.
    pub entry: TableEntry,
    /// Nanoseconds since it was last hit (or inserted), for tables with idle timeouts.
    pub idle_ns: Option<u64>,
}

/// Expired entries that wait for the control plane: a few megabytes, and more than a controller is told of in a second. Further ones are
/// only counted.
pub const EXPIRED_MAX: usize = 1 << 16;

/// What became of entries of a table that packets write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DynamicCounts {
    /// Entries that packets wanted to add to the table when it was full.
    pub refused: u64,
    /// Entries that ended for a newer one.
    pub evicted: u64,
    /// Entries that were idle for their timeouts.
    pub expired: u64,
    /// Of those, what the control plane should have been told and was not, since it did not ask for too long.
    pub untold: u64,
}

/// The state of one loaded program. Every method may be called while packets run.
pub trait PipelineState: Send + Sync {
    /// What the changes from here on belong to; what they belonged to before. A batch begins with [`Phase::Atomic`] and ends with
    /// the phase that this returned.
    fn set_phase(&self, _phase: Phase) -> Phase {
        Phase::Single
    }
    /// Adds an entry. Two entries are the same if keys and priority are equal.
    fn insert(&self, table: TableId, entry: &TableEntry) -> Result<(), StateError>;
    /// Replaces the action of the entry with this key and priority; counters stay.
    fn modify(&self, table: TableId, entry: &TableEntry) -> Result<(), StateError>;
    /// Removes the entry with this key and priority.
    fn delete(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<(), StateError>;
    /// All entries, the program's own included; a snapshot. In insertion order, but for tables of exact fields: to remember
    /// it would take memory for each entry. Theirs come in no particular order, or, with direct resources, in that of the
    /// cells, which is the order of insertion until entries are deleted.
    fn entries(&self, table: TableId) -> Vec<ReadEntry>;
    /// A step of a walk over all entries: about so many, and the place to go on from. It begins at place 0. Entries may be
    /// changed between steps: those that are not are given exactly once.
    fn walk(&self, table: TableId, _place: u64, _about: usize) -> (Vec<ReadEntry>, Option<u64>) {
        (self.entries(table), None)
    }
    /// Whether a walk that has come to this place has given the entry with this key and priority, which is there.
    fn is_before(&self, _table: TableId, _place: u64, _key: &[KeyMatch], _priority: i32) -> bool {
        false
    }
    /// The entry with this key and priority.
    fn entry(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<ReadEntry, StateError>;
    /// Number of entries.
    fn len(&self, table: TableId) -> u64;
    /// Ends entries that have been idle for their timeouts, in tables that packets write (`ir::Dynamic`). `now_us` is the
    /// clock that packets have. To be called now and then: entries live at most a tick of [`crate::entry::TICK_US`] and the
    /// time between two calls longer than they say.
    fn expire(&self, _now_us: u64) {}
    /// Entries of tables that packets write that have been idle for their timeouts, since the last call, as far as the
    /// control plane is to be told. At most [`EXPIRED_MAX`] wait.
    fn take_expired(&self) -> Vec<(TableId, TableEntry)> {
        Vec::new()
    }
    /// Whether [`PipelineState::take_expired`] tells of the table's idle entries, so that nobody else has to look.
    fn tells_idle(&self, _table: TableId) -> bool {
        false
    }
    /// What packets could not do in a table that they write.
    fn dynamic_counts(&self, _table: TableId) -> DynamicCounts {
        DynamicCounts::default()
    }
    /// The default action; `None` resets it to the program's.
    fn set_default(&self, table: TableId, action: Option<&EntryAction>) -> Result<(), StateError>;
    /// The current default action.
    fn default_action(&self, table: TableId) -> EntryAction;

    /// Adds a member to an action profile or selector. So many others are about to leave: they take no room.
    fn member_insert(
        &self,
        profile: ExternId,
        member: u32,
        action: &ActionCall,
        leaving: usize,
    ) -> Result<(), StateError>;
    /// Changes a member's action everywhere it is used.
    fn member_modify(&self, profile: ExternId, member: u32, action: &ActionCall) -> Result<(), StateError>;
    /// Removes a member that nothing refers to.
    fn member_delete(&self, profile: ExternId, member: u32) -> Result<(), StateError>;
    /// All members.
    fn members(&self, profile: ExternId) -> Vec<(u32, ActionCall)>;
    /// Adds a group. `max_size` is only kept: what it counts is the control plane's to know.
    fn group_insert(
        &self,
        profile: ExternId,
        group: u32,
        members: &[GroupMember],
        max_size: u32,
    ) -> Result<(), StateError>;
    /// Replaces a group's members.
    fn group_modify(&self, profile: ExternId, group: u32, members: &[GroupMember]) -> Result<(), StateError>;
    /// From now on members of the group are drawn at random by weight, not by the selector's hash.
    fn group_set_random(&self, profile: ExternId, group: u32) -> Result<(), StateError>;
    /// Whether they are.
    fn group_is_random(&self, profile: ExternId, group: u32) -> bool;
    /// Removes a group that no entry refers to.
    fn group_delete(&self, profile: ExternId, group: u32) -> Result<(), StateError>;
    /// All groups with members and `max_size`.
    fn groups(&self, profile: ExternId) -> Vec<(u32, Vec<GroupMember>, u32)>;
    /// A port's link went up or down: groups with watch ports follow.
    fn port_state(&self, port: u32, up: bool);

    /// A counter cell, summed over workers.
    fn counter(&self, counter: ExternId, index: u64) -> Result<CounterValue, StateError>;
    /// Sets a counter cell.
    fn counter_set(&self, counter: ExternId, index: u64, value: CounterValue) -> Result<(), StateError>;
    /// A direct counter's cell of an entry; of the default entry for an empty key, which no other entry has.
    fn direct_counter(&self, counter: ExternId, key: &[KeyMatch], priority: i32) -> Result<CounterValue, StateError>;
    /// Sets a direct counter's cell.
    fn direct_counter_set(
        &self,
        counter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        value: CounterValue,
    ) -> Result<(), StateError>;
    /// A meter cell's configuration; `None` when not configured (always green).
    fn meter(&self, meter: ExternId, index: u64) -> Result<Option<MeterConfig>, StateError>;
    /// Configures a meter cell; `None` makes it green again.
    fn meter_set(&self, meter: ExternId, index: u64, config: Option<MeterConfig>) -> Result<(), StateError>;
    /// What a meter cell has marked green, yellow and red.
    fn meter_counts(&self, meter: ExternId, index: u64) -> Result<[CounterValue; 3], StateError>;
    /// Sets those to zero.
    fn meter_counts_reset(&self, meter: ExternId, index: u64) -> Result<(), StateError>;
    /// A direct meter's configuration of an entry; keys are as for [`PipelineState::direct_counter`].
    fn direct_meter(&self, meter: ExternId, key: &[KeyMatch], priority: i32)
    -> Result<Option<MeterConfig>, StateError>;
    /// Configures a direct meter of an entry.
    fn direct_meter_set(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        config: Option<MeterConfig>,
    ) -> Result<(), StateError>;
    /// What the direct meter of an entry has marked green, yellow and red.
    fn direct_meter_counts(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
    ) -> Result<[CounterValue; 3], StateError>;
    /// Sets those to zero.
    fn direct_meter_counts_reset(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<(), StateError>;
    /// A register cell.
    fn register(&self, register: ExternId, index: u64) -> Result<Bits, StateError>;
    /// Sets a register cell.
    fn register_set(&self, register: ExternId, index: u64, value: &Bits) -> Result<(), StateError>;
    /// Sets the parameters of a calculation of the program, or without a name of all of the same function; until then they are
    /// [`HashParameters::initial`].
    ///
    /// Errors: [`StateError::NotFound`] for a calculation that the program does not have; [`StateError::WrongKind`] for one of another
    /// function, and for parameters that are not possible.
    fn hash_parameters_set(&self, calculation: Option<&str>, parameters: &HashParameters) -> Result<(), StateError>;
    /// What they are: those of CRCs without a name first, of each width, then the calculations'. Setting them one after the other
    /// gives another state the same ones.
    fn hash_parameters(&self) -> Vec<(Option<String>, HashParameters)>;
}

/// Bytes of a Toeplitz key at most; NICs have 40 or 52. It bounds what a request and the state files hold. Data that are longer than the
/// key begin with it again.
pub const TOEPLITZ_KEY_MAX: usize = 256;

/// What the control plane sets of a calculation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashParameters {
    /// A custom CRC's.
    Crc(CrcParameters),
    /// The key of a Toeplitz hash: words of 4 bytes, at least one, at most [`TOEPLITZ_KEY_MAX`] bytes.
    Toeplitz(Vec<u8>),
}

impl HashParameters {
    /// Those of a calculation before anybody has set them.
    pub fn initial(function: Calculated) -> HashParameters {
        match function {
            Calculated::Crc16 => HashParameters::Crc(CrcParameters::CRC16),
            Calculated::Crc32 => HashParameters::Crc(CrcParameters::CRC32),
            Calculated::Toeplitz => HashParameters::Toeplitz(vec![0; 4]),
        }
    }

    /// Whose parameters they are; `None` if there are none such.
    pub fn function(&self) -> Option<Calculated> {
        match self {
            HashParameters::Crc(crc) if !crc.are_possible() => None,
            HashParameters::Crc(crc) if crc.width == 16 => Some(Calculated::Crc16),
            HashParameters::Crc(_) => Some(Calculated::Crc32),
            HashParameters::Toeplitz(key) => {
                let possible = !key.is_empty() && key.len().is_multiple_of(4) && key.len() <= TOEPLITZ_KEY_MAX;
                possible.then_some(Calculated::Toeplitz)
            }
        }
    }
}

/// What makes a CRC (Williams: "A painless guide to CRC error detection algorithms").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrcParameters {
    /// Bits: 16 or 32.
    pub width: u32,
    /// Without its highest bit.
    pub polynomial: u32,
    /// What the remainder is at first.
    pub initial: u32,
    /// What the result is combined with in the end.
    pub xor_out: u32,
    /// Whether each byte goes in from its lowest bit on.
    pub reflect_in: bool,
    /// Whether the result's bits are turned round, before `xor_out`.
    pub reflect_out: bool,
}

impl CrcParameters {
    /// CRC-16/ARC.
    pub const CRC16: CrcParameters =
        CrcParameters { width: 16, polynomial: 0x8005, initial: 0, xor_out: 0, reflect_in: true, reflect_out: true };
    /// CRC-16/IBM-3740, which is widely called CRC-CCITT.
    pub const CCITT: CrcParameters = CrcParameters {
        width: 16,
        polynomial: 0x1021,
        initial: 0xffff,
        xor_out: 0,
        reflect_in: false,
        reflect_out: false,
    };
    /// CRC-32 (IEEE 802.3).
    pub const CRC32: CrcParameters = CrcParameters {
        width: 32,
        polynomial: 0x04c1_1db7,
        initial: u32::MAX,
        xor_out: u32::MAX,
        reflect_in: true,
        reflect_out: true,
    };

    /// Whether there are CRCs of this width and all values fit it.
    pub fn are_possible(&self) -> bool {
        let fits = |v: u32| self.width == 32 || v >> 16 == 0;
        matches!(self.width, 16 | 32) && [self.polynomial, self.initial, self.xor_out].into_iter().all(fits)
    }
}

/// A digest message that a pipeline sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestMessage {
    /// The digest.
    pub digest: ExternId,
    /// One value per field.
    pub fields: Vec<Bits>,
}
