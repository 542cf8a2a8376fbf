//! The memory layout of table entries.
//!
//! ```text
//!   cell                          entry: what lookups give
//!   │                             │
//!   ▼                             ▼
//!   last hit │ idle timeout │ ... │ action │ parameters of the action ...
//!   └─ only where the table has ─┘
//! ```
//!
//! At the entry's address is the number of its action (its position in the table's or profile's list), in one byte if
//! the list has fewer than 256 actions. The action's parameters follow in order, each in `ceil(width / 8)` bytes,
//! little-endian, with zeros above the width. Nothing is aligned. Parts that only some tables have lie before that
//! address, so an action's parameters have the same offsets in all tables that share an action profile, and in the
//! profile's members.
//!
//! Entries are compact because a packet touches one per table: parts that are left out cost no cache lines. An entry is
//! immutable once readers can see it, except for the time of its last hit and its timer. A modification publishes a new
//! entry and retires the old one.

use core::ffi::c_void;

/// The start of an entry; only used behind pointers. [`EntryLayout`] describes its bytes.
#[repr(C)]
#[derive(Debug)]
pub struct EntryHeader {
    opaque: [u8; 0],
}

/// The optional parts that a table's entries have before their action.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EntryParts {
    /// The time of the last hit, in microseconds, written by readers.
    pub last_hit: bool,
    /// The idle timeout in nanoseconds; read by the control plane only.
    pub idle_timeout: bool,
    /// The group to choose from, or null.
    pub group: bool,
    /// The dense index of the entry in its table, which is the cell of its direct counters and meters.
    pub index: bool,
    /// Where the action came from; read by the control plane only.
    pub source: bool,
    /// In tables that packets write: when the entry's time began, in ticks of [`TICK_US`], and how long it may be idle,
    /// in milliseconds (0: for ever). Both change while readers see the entry.
    pub timer: bool,
}

/// The length of a tick of entry timers, in microseconds, as a power of two.
pub const TICK_SHIFT: u32 = 10;
/// The length of a tick of entry timers, in microseconds.
pub const TICK_US: u64 = 1 << TICK_SHIFT;

/// The offsets of an entry's parts, in bytes relative to its address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EntryLayout {
    /// Size of the action's number, in bytes: 1, 2 or 4. It lies at the entry's address.
    pub action_bytes: u32,
    /// The offset of each parameter, by action and position.
    pub params: Vec<Vec<u32>>,
    /// Eight bytes, at a multiple of eight bytes from the start of the cell; written by readers.
    pub last_hit: Option<i32>,
    /// Eight bytes.
    pub idle_timeout: Option<i32>,
    /// A pointer; null when the entry runs its own action.
    pub group: Option<i32>,
    /// Four bytes; [`EntryLayout::NO_INDEX`] for default entries.
    pub index: Option<i32>,
    /// Five bytes: a number and a kind.
    pub source: Option<i32>,
    /// Eight bytes before all other parts, four-byte aligned: the low 32 bits of the tick, then the milliseconds.
    pub timer: Option<i32>,
    /// Bytes before the entry's address.
    pub before: u32,
    /// Bytes from the entry's address on, by action.
    pub sizes: Vec<u32>,
}

impl EntryLayout {
    /// The index of entries without direct resources, that is of default entries.
    pub const NO_INDEX: u32 = u32::MAX;

    /// The layout of entries with these parts that run one of `actions`, each given as the widths of its parameters in
    /// bits.
    pub fn new<A: AsRef<[u32]>>(actions: &[A], parts: EntryParts) -> EntryLayout {
        // The highest number means "no action".
        let action_bytes = match actions.len() {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        let mut layout = EntryLayout { action_bytes, ..EntryLayout::default() };
        for widths in actions {
            let mut at = action_bytes;
            let place = |width: &u32| {
                let here = at;
                at += param_bytes(*width);
                here
            };
            layout.params.push(widths.as_ref().iter().map(place).collect());
            layout.sizes.push(at);
        }
        let EntryParts { last_hit, idle_timeout, group, index, source, timer } = parts;
        let group = (group, size_of::<*const c_void>() as i32);
        let sizes = [(timer, 8), (last_hit, 8), (idle_timeout, 8), group, (index, 4), (source, 5)];
        let before: i32 = sizes.iter().filter(|(there, _)| *there).map(|(_, bytes)| bytes).sum();
        let mut at = -before;
        let mut place = |(there, bytes): (bool, i32)| {
            let here = at;
            at += if there { bytes } else { 0 };
            there.then_some(here)
        };
        let [timer, last_hit, idle_timeout, group, index, source] = sizes.map(&mut place);
        EntryLayout { last_hit, idle_timeout, group, index, source, timer, before: before as u32, ..layout }
    }

    /// The action number of entries without an action of their own, whose group decides.
    pub fn no_action(&self) -> u32 {
        u32::MAX >> (32 - 8 * self.action_bytes)
    }

    /// Size in bytes of an entry that runs `action`, or no action if there is none of this number.
    pub fn bytes(&self, action: u32) -> u32 {
        self.before + self.sizes.get(action as usize).copied().unwrap_or(self.action_bytes)
    }

    /// Size in bytes of the largest entry.
    pub fn bytes_max(&self) -> u32 {
        self.before + self.sizes.iter().copied().max().unwrap_or(0).max(self.action_bytes)
    }
}

/// Size in bytes of a parameter of this width (in bits) in an entry.
pub fn param_bytes(width: u32) -> u32 {
    width.div_ceil(8)
}
