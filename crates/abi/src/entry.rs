//! How the entries of a table lie in memory.
//!
//! ```text
//!   cell                          entry: what lookups give
//!   │                             │
//!   ▼                             ▼
//!   last hit │ idle timeout │ ... │ action │ parameters of the action ...
//!   └─ only where the table has ─┘
//! ```
//!
//! At the entry's address is the number of its action (position in the table's or profile's list), in one byte if the list
//! has fewer than 256 actions, then the action's parameters in order, each in `ceil(width / 8)` bytes, little-endian, bits
//! above the width zero. Nothing is aligned. In front of that address is what only some tables have, so that the
//! parameters of an action lie at the same place in all tables that share an action profile, and in its members.
//!
//! Entries are small because a packet touches one per table: what is not there needs no cache line. They never change
//! once readers can see them, but for the time of the last hit and timers; a modification publishes a new entry and retires the old.

use core::ffi::c_void;

/// The address of an entry. What lies there, [`EntryLayout`] says.
#[repr(C)]
#[derive(Debug)]
pub struct EntryHeader {
    opaque: [u8; 0],
}

/// Which parts the entries of a table have in front of their action.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EntryParts {
    /// The microsecond clock at the last hit, which readers write.
    pub last_hit: bool,
    /// The control plane's: the idle timeout in nanoseconds.
    pub idle_timeout: bool,
    /// The group to choose from, or null.
    pub group: bool,
    /// The dense index of the entry in its table: the cell of its direct counters and meters.
    pub index: bool,
    /// The control plane's: where the action came from.
    pub source: bool,
    /// Of tables that packets write: the clock when the entry's time began, in units of [`TICK_US`], and how long it may be
    /// idle, in milliseconds (0: for ever). Both change while readers see the entry.
    pub timer: bool,
}

/// Microseconds of a tick of entries' timers, as a power of two.
pub const TICK_SHIFT: u32 = 10;
/// Microseconds of a tick of entries' timers.
pub const TICK_US: u64 = 1 << TICK_SHIFT;

/// Where the parts of an entry lie, in bytes relative to its address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EntryLayout {
    /// Bytes of the action's number, which is at the entry's address: 1, 2 or 4.
    pub action_bytes: u32,
    /// Each parameter, by action and position.
    pub params: Vec<Vec<u32>>,
    /// Eight bytes, a multiple of eight bytes behind the cell's start, written by readers.
    pub last_hit: Option<i32>,
    /// Eight bytes.
    pub idle_timeout: Option<i32>,
    /// A pointer, or null when the entry runs its own action.
    pub group: Option<i32>,
    /// Four bytes; [`EntryLayout::NO_INDEX`] for default entries.
    pub index: Option<i32>,
    /// Five bytes: a number and a kind.
    pub source: Option<i32>,
    /// Eight bytes in front of everything, at a multiple of four: the low 32 bits of the tick, the milliseconds.
    pub timer: Option<i32>,
    /// Bytes in front of the entry's address.
    pub before: u32,
    /// Bytes from the entry's address on, by action.
    pub sizes: Vec<u32>,
}

impl EntryLayout {
    /// The index of entries that have no direct resources: defaults.
    pub const NO_INDEX: u32 = u32::MAX;

    /// The layout of entries that run one of `actions`, given by the widths of their parameters, and have these parts.
    pub fn new<A: AsRef<[u32]>>(actions: &[A], parts: EntryParts) -> EntryLayout {
        // One number is for "none".
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

    /// The number that stands for no action: the entry has a group, which decides.
    pub fn no_action(&self) -> u32 {
        u32::MAX >> (32 - 8 * self.action_bytes)
    }

    /// Bytes of the whole entry when it runs `action` (or none).
    pub fn bytes(&self, action: u32) -> u32 {
        self.before + self.sizes.get(action as usize).copied().unwrap_or(self.action_bytes)
    }

    /// Bytes of the largest entry.
    pub fn bytes_max(&self) -> u32 {
        self.before + self.sizes.iter().copied().max().unwrap_or(0).max(self.action_bytes)
    }
}

/// Bytes of a parameter of this width in an entry.
pub fn param_bytes(width: u32) -> u32 {
    width.div_ceil(8)
}
