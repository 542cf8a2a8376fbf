//! The operations of the control plane on a pipeline's state.
//!
//! Implemented twice and compared in tests: by `datapath` on the fast tables, and by `interp` on linear ones. Values
//! are [`base::entry`] types; ids are those of the program. The control plane serialises writes, so there is one caller
//! at a time. Packets are processed meanwhile.
//!
//! The control plane validates what needs names (unknown tables, wrong widths). Implementations check what only they
//! know (presence, capacity, references) and return a [`StateError`].

use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use ir::Calculated;

/// Why a change or read was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateError {
    /// The entry, member or group exists already.
    Exists,
    /// There is no such entry, member, group or cell.
    NotFound,
    /// The table, profile or group is full; its limit.
    Full(u64),
    /// An entry cannot be added because the process uses more memory of its own than it may; the limit in bytes.
    NoMemory(u64),
    /// An entry refers to a member or group that does not exist.
    NoSuchReference(u32),
    /// The member or group is still in use.
    InUse,
    /// The object or value is not of the kind that the operation needs.
    WrongKind,
    /// The engine does not support the operation; the reason.
    Unsupported(String),
    /// A worker (its number) has not finished a batch in time. It may still run code that the change would make wrong,
    /// or hold memory that must be freed first. The change was refused, and nothing was changed.
    Unacknowledged(u32),
}

/// The kind of update that changes belong to, for implementations that must know which changes may be rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Each change is an update of its own.
    #[default]
    Single,
    /// A batch that takes effect completely or not at all.
    Atomic,
    /// The rollback of an atomic batch. It needs no free space, so it never fails.
    Undo,
}

/// An installed entry as read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadEntry {
    /// The entry.
    pub entry: TableEntry,
    /// Nanoseconds since the last hit (or since insertion), for tables with idle timeouts.
    pub idle_ns: Option<u64>,
}

/// Limit of the expired entries that wait for the control plane: a few megabytes, and more than a controller is
/// notified of in a second. Further ones are only counted.
pub const EXPIRED_MAX: usize = 1 << 16;

/// Statistics of a table that packets write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DynamicCounts {
    /// Entries that packets could not add because the table was full.
    pub refused: u64,
    /// Entries that were removed to make room for a newer one.
    pub evicted: u64,
    /// Entries that were removed because they were idle for their timeout.
    pub expired: u64,
    /// Expired entries of which the control plane was not notified, because more than [`EXPIRED_MAX`] waited.
    pub unreported: u64,
}

/// The state of one loaded program. Every method may be called while packets are processed.
///
/// # Errors
///
/// All methods: [`StateError::WrongKind`] if the extern, table or value is not of the kind that the method needs;
/// [`StateError::NotFound`] if the entry, member, group or cell does not exist; for changes also
/// [`StateError::Unacknowledged`]. Further errors stand at the methods.
pub trait PipelineState: Send + Sync {
    /// Sets the phase of the changes that follow and returns the previous one. A batch begins with [`Phase::Atomic`]
    /// and ends with the phase that this returned.
    fn set_phase(&self, _phase: Phase) -> Phase {
        Phase::Single
    }
    /// Adds an entry. Two entries are the same if keys and priority are equal.
    ///
    /// # Errors
    ///
    /// [`StateError::Exists`] if there is such an entry; [`StateError::Full`] and [`StateError::NoMemory`] if there is
    /// no room; [`StateError::NoSuchReference`] if it refers to an unknown member or group.
    fn insert(&self, table: TableId, entry: &TableEntry) -> Result<(), StateError>;
    /// Replaces the action of the entry with this key and priority. Counters keep their values.
    ///
    /// # Errors
    ///
    /// [`StateError::NoSuchReference`] if the action refers to an unknown member or group.
    fn modify(&self, table: TableId, entry: &TableEntry) -> Result<(), StateError>;
    /// Removes the entry with this key and priority.
    fn delete(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<(), StateError>;
    /// A snapshot of all entries, including those that the program defines. They come in insertion order, except for
    /// tables of exact fields, where keeping the order would take memory for each entry. Such tables return them in no
    /// particular order or, with direct resources, in the order of the cells, which is insertion order until an entry
    /// is deleted.
    fn entries(&self, table: TableId) -> Vec<ReadEntry>;
    /// One step of an iteration over all entries: about `about` entries, and the position at which to continue (`None`
    /// at the end). The iteration begins at position 0. Entries may change between steps; an entry that does not is
    /// returned exactly once.
    fn walk(&self, table: TableId, _place: u64, _about: usize) -> (Vec<ReadEntry>, Option<u64>) {
        (self.entries(table), None)
    }
    /// Whether an iteration that has reached this position has already returned the entry with this key and priority,
    /// which exists.
    fn walk_has_passed(&self, _table: TableId, _place: u64, _key: &[KeyMatch], _priority: i32) -> bool {
        false
    }
    /// The entry with this key and priority.
    fn entry(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<ReadEntry, StateError>;
    /// Number of entries.
    fn len(&self, table: TableId) -> u64;
    /// Removes entries that have been idle for their timeouts, in tables that packets write (`ir::Dynamic`). `now_us`
    /// is the packets' clock. To be called regularly: an entry outlives its timeout by at most one tick of
    /// [`crate::entry::TICK_US`] plus the time between two calls.
    fn expire(&self, _now_us: u64) {}
    /// Returns and forgets the entries that have expired since the last call in tables that packets write, if the
    /// control plane is to be notified of them. At most [`EXPIRED_MAX`] wait.
    fn take_expired(&self) -> Vec<(TableId, TableEntry)> {
        Vec::new()
    }
    /// Whether [`PipelineState::take_expired`] reports the table's idle entries, so that the table need not be searched
    /// for them.
    fn reports_idle(&self, _table: TableId) -> bool {
        false
    }
    /// The statistics of a table that packets write.
    fn dynamic_counts(&self, _table: TableId) -> DynamicCounts {
        DynamicCounts::default()
    }
    /// Sets the default action; `None` resets it to the program's.
    fn set_default(&self, table: TableId, action: Option<&EntryAction>) -> Result<(), StateError>;
    /// The current default action.
    fn default_action(&self, table: TableId) -> EntryAction;

    /// Adds a member to an action profile or selector. `leaving` other members are about to be deleted and do not count
    /// against the profile's size.
    ///
    /// # Errors
    ///
    /// [`StateError::Exists`]; [`StateError::Full`].
    fn member_insert(
        &self,
        profile: ExternId,
        member: u32,
        action: &ActionCall,
        leaving: usize,
    ) -> Result<(), StateError>;
    /// Changes a member's action wherever it is used.
    fn member_modify(&self, profile: ExternId, member: u32, action: &ActionCall) -> Result<(), StateError>;
    /// Removes a member.
    ///
    /// # Errors
    ///
    /// [`StateError::InUse`] if an entry or group refers to it.
    fn member_delete(&self, profile: ExternId, member: u32) -> Result<(), StateError>;
    /// All members.
    fn members(&self, profile: ExternId) -> Vec<(u32, ActionCall)>;
    /// Adds a group. `max_size` is only stored: the control plane interprets it.
    ///
    /// # Errors
    ///
    /// [`StateError::Exists`]; [`StateError::NoSuchReference`] for an unknown member.
    fn group_insert(
        &self,
        profile: ExternId,
        group: u32,
        members: &[GroupMember],
        max_size: u32,
    ) -> Result<(), StateError>;
    /// Replaces a group's members.
    ///
    /// # Errors
    ///
    /// [`StateError::NoSuchReference`] for an unknown member.
    fn group_modify(&self, profile: ExternId, group: u32, members: &[GroupMember]) -> Result<(), StateError>;
    /// From now on, the group's members are chosen at random by weight instead of by the selector's hash.
    fn group_set_random(&self, profile: ExternId, group: u32) -> Result<(), StateError>;
    /// Whether the group's members are chosen at random ([`PipelineState::group_set_random`]).
    fn group_is_random(&self, profile: ExternId, group: u32) -> bool;
    /// Removes a group.
    ///
    /// # Errors
    ///
    /// [`StateError::InUse`] if an entry refers to it.
    fn group_delete(&self, profile: ExternId, group: u32) -> Result<(), StateError>;
    /// All groups: id, members and `max_size`.
    fn groups(&self, profile: ExternId) -> Vec<(u32, Vec<GroupMember>, u32)>;
    /// Reports that a port's link is up or down. Groups with watch ports follow.
    fn port_state(&self, port: u32, up: bool);

    /// The value of a counter cell, summed over workers.
    fn counter(&self, counter: ExternId, index: u64) -> Result<CounterValue, StateError>;
    /// Sets a counter cell.
    fn counter_set(&self, counter: ExternId, index: u64, value: CounterValue) -> Result<(), StateError>;
    /// The value of an entry's direct counter. An empty key, which no entry has, stands for the default entry.
    fn direct_counter(&self, counter: ExternId, key: &[KeyMatch], priority: i32) -> Result<CounterValue, StateError>;
    /// Sets the value of an entry's direct counter.
    fn direct_counter_set(
        &self,
        counter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        value: CounterValue,
    ) -> Result<(), StateError>;
    /// A meter cell's configuration; `None` if it has none (always green).
    fn meter(&self, meter: ExternId, index: u64) -> Result<Option<MeterConfig>, StateError>;
    /// Configures a meter cell; `None` removes the configuration, so that the cell is always green.
    fn meter_set(&self, meter: ExternId, index: u64, config: Option<MeterConfig>) -> Result<(), StateError>;
    /// Packets and bytes that a meter cell has marked green, yellow and red.
    fn meter_counts(&self, meter: ExternId, index: u64) -> Result<[CounterValue; 3], StateError>;
    /// Sets the counts of [`PipelineState::meter_counts`] to zero.
    fn meter_counts_reset(&self, meter: ExternId, index: u64) -> Result<(), StateError>;
    /// The configuration of an entry's direct meter. Keys are as for [`PipelineState::direct_counter`].
    fn direct_meter(&self, meter: ExternId, key: &[KeyMatch], priority: i32)
    -> Result<Option<MeterConfig>, StateError>;
    /// Configures an entry's direct meter.
    fn direct_meter_set(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        config: Option<MeterConfig>,
    ) -> Result<(), StateError>;
    /// Packets and bytes that an entry's direct meter has marked green, yellow and red.
    fn direct_meter_counts(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
    ) -> Result<[CounterValue; 3], StateError>;
    /// Sets the counts of [`PipelineState::direct_meter_counts`] to zero.
    fn direct_meter_counts_reset(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<(), StateError>;
    /// The value of a register cell.
    fn register(&self, register: ExternId, index: u64) -> Result<Bits, StateError>;
    /// Sets a register cell.
    fn register_set(&self, register: ExternId, index: u64, value: &Bits) -> Result<(), StateError>;
    /// Sets the parameters of the calculation of this name or, without a name, of all hashes with this function.
    /// Initially they are [`HashParameters::initial`].
    ///
    /// # Errors
    ///
    /// [`StateError::NotFound`] if the program has no such calculation; [`StateError::WrongKind`] if the calculation
    /// has another function or the parameters are invalid.
    fn hash_parameters_set(&self, calculation: Option<&str>, parameters: &HashParameters) -> Result<(), StateError>;
    /// All current parameters: first those of CRCs without a name, for each width, then those of named calculations.
    /// Setting them in this order gives another state the same parameters.
    fn hash_parameters(&self) -> Vec<(Option<String>, HashParameters)>;
}

/// Limit of a Toeplitz key, in bytes; NICs have 40 or 52. It bounds requests and state files. If the data are longer
/// than the key, the key is repeated.
pub const TOEPLITZ_KEY_MAX: usize = 256;

/// The parameters of a calculation that the control plane can set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashParameters {
    /// The parameters of a custom CRC.
    Crc(CrcParameters),
    /// The key of a Toeplitz hash: a multiple of 4 bytes, at least 4 and at most [`TOEPLITZ_KEY_MAX`].
    Toeplitz(Vec<u8>),
}

impl HashParameters {
    /// The initial parameters of a calculation.
    pub fn initial(function: Calculated) -> HashParameters {
        match function {
            Calculated::Crc16 => HashParameters::Crc(CrcParameters::CRC16),
            Calculated::Crc32 => HashParameters::Crc(CrcParameters::CRC32),
            Calculated::Toeplitz => HashParameters::Toeplitz(vec![0; 4]),
        }
    }

    /// The function that they are for; `None` if they are invalid.
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

/// The parameters of a CRC in the Rocksoft model (Williams, "A painless guide to CRC error detection algorithms").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrcParameters {
    /// Width in bits: 16 or 32.
    pub width: u32,
    /// The polynomial without its highest bit.
    pub polynomial: u32,
    /// Initial value of the remainder.
    pub initial: u32,
    /// The result is XORed with this value at the end.
    pub xor_out: u32,
    /// Whether each input byte is processed from its lowest bit.
    pub reflect_in: bool,
    /// Whether the bits of the result are reversed before `xor_out`.
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

    /// Whether the width is supported and all values fit it.
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
