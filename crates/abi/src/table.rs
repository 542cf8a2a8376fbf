//! The memory layout of keys, and the description of tables and externs that is bound into compiled code.
//!
//! **Keys.** A key consists of little-endian integers, each field at its natural alignment: 1, 2, 4 or 8 bytes for
//! widths up to 8, 16, 32, 64 bits, and a multiple of 8 bytes beyond (least significant word first). Keys of exact
//! fields only are packed: each field takes only the bytes that its width needs; no field of up to 64 bits crosses a
//! 64-bit word, and wider ones begin at one. Padding is zero, and the key is padded to a multiple of 8 bytes. So an
//! exact key is compared as 64-bit words, and a VLAN with an Ethernet address is one word.
//!
//! **Entries.** See [`crate::entry`]. They are immutable once readers can see them: a modification publishes a new
//! entry and retires the old one. Counters are kept separately, by the entry's index.
//!
//! **Readers.** Compiled code holds entry pointers only within one batch. A worker announces a quiescent point between
//! batches; only then is retired memory freed.

use crate::entry::{EntryHeader, EntryLayout};
use base::entry::MatchKind;
use core::sync::atomic::AtomicPtr;

/// The part of a table that stays at one address as long as the table lives. An engine publishes its contents through
/// `snapshot`.
#[repr(C)]
#[derive(Debug)]
pub struct TableHandle {
    /// The engine's current snapshot, published with release order.
    pub snapshot: AtomicPtr<core::ffi::c_void>,
    /// The current default entry. Never null.
    pub default_entry: AtomicPtr<EntryHeader>,
}

/// Looks up one key and returns the matching entry, or null on a miss. `key` has the table's key layout.
pub type LookupFn = unsafe extern "C" fn(handle: *const TableHandle, key: *const u8) -> *const EntryHeader;

/// Looks up `count` consecutive keys, each of the size of the table's key layout, and writes the entry of each to
/// `out`, or null on a miss. The results are those of [`LookupFn`]; engines whose lookups wait for memory interleave
/// several keys. `count` may be 0.
pub type LookupBatchFn =
    unsafe extern "C" fn(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader);

/// Returns the entry of the member that a group selects, or null when the group is empty. `group` is not null. `hash`
/// is the selector's hash of the selector fields, already truncated to its width.
pub type SelectFn = unsafe extern "C" fn(group: *const core::ffi::c_void, hash: u64) -> *const EntryHeader;

/// Adds an entry on behalf of a packet. `key` has the table's key layout. `entry` has the layout of entries from their
/// action on ([`EntryLayout`]), in `bytes` bytes. `expire` is the index of an expire time. Returns 0 if the entry was
/// added, 1 if not.
///
/// The caller's worker is online. The call may wait for other writers of the same part of the table, but for nothing
/// else.
pub type AddEntryFn = unsafe extern "C" fn(
    handle: *const TableHandle,
    key: *const u8,
    entry: *const u8,
    bytes: u32,
    expire: u32,
    now_us: u64,
) -> u32;

/// Changes an entry's expire time and restarts its timer. Does nothing if there is no expire time of this index.
pub type SetExpireFn =
    unsafe extern "C" fn(handle: *const TableHandle, entry: *const EntryHeader, expire: u32, now_us: u64);

/// The functions and timers of a table that packets write.
#[derive(Clone, Debug)]
pub struct DynamicBinding {
    /// Adds an entry whose key is not in the table.
    pub add: AddEntryFn,
    /// Replaces the entry of a key that is in the table.
    pub replace: AddEntryFn,
    /// See [`SetExpireFn`].
    pub set_expire: SetExpireFn,
    /// Whether each hit restarts the entry's timer.
    pub restart_on_hit: bool,
    /// The expire times in milliseconds, by index.
    pub expire_ms: Vec<u32>,
}

/// The place of one field in a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyField {
    /// Byte offset in the key.
    pub offset: u32,
    /// Size in bytes: 1, 2, 4, 8 or a multiple of 8; any number in packed keys.
    pub bytes: u32,
    /// Width in bits.
    pub width: u32,
    /// How it is compared.
    pub kind: MatchKind,
}

/// The layout of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyLayout {
    /// In key order.
    pub fields: Vec<KeyField>,
    /// Size of the key in bytes, a multiple of 8.
    pub bytes: u32,
}

impl KeyLayout {
    /// The packed layout of exact key fields of these widths (in bits): first-fit decreasing into 64-bit words.
    pub fn packed(widths: impl IntoIterator<Item = u32>) -> KeyLayout {
        let field = |width: u32| KeyField { offset: 0, bytes: width.div_ceil(8).max(1), width, kind: MatchKind::Exact };
        let mut fields: Vec<KeyField> = widths.into_iter().map(field).collect();
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(fields[*i].bytes));
        // Bytes in use of each word.
        let mut words: Vec<u32> = Vec::new();
        for i in order {
            let bytes = fields[i].bytes;
            let room = words.iter().position(|taken| taken + bytes <= 8);
            let at = room.unwrap_or(words.len());
            fields[i].offset = 8 * at as u32 + room.map_or(0, |at| words[at]);
            match room {
                Some(at) => words[at] += bytes,
                None => {
                    words.extend(std::iter::repeat_n(8, bytes as usize / 8));
                    words.extend((!bytes.is_multiple_of(8)).then_some(bytes % 8));
                }
            }
        }
        KeyLayout { fields, bytes: 8 * words.len() as u32 }
    }

    /// The layout of key fields of these widths (in bits) and match kinds.
    pub fn new(keys: impl IntoIterator<Item = (u32, MatchKind)>) -> KeyLayout {
        let mut at = 0u32;
        let fields = keys
            .into_iter()
            .map(|(width, kind)| {
                let bytes = match width {
                    0 => 0,
                    1..=8 => 1,
                    9..=16 => 2,
                    17..=32 => 4,
                    33..=64 => 8,
                    _ => width.div_ceil(64) * 8,
                };
                at = at.next_multiple_of(bytes.min(8));
                let field = KeyField { offset: at, bytes, width, kind };
                at += bytes;
                field
            })
            .collect();
        KeyLayout { fields, bytes: at.next_multiple_of(8) }
    }
}

/// How compiled code may look up a table without a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// Every lookup misses: a table without keys.
    Empty,
    /// No inline lookup: `lookup` is called.
    Opaque,
    /// The hash buckets of `tables::exact`; `jit` inlines the probe ([`TableBinding::exact`]).
    ExactInline,
    /// DIR-16-8-8 of `tables::lpm`, for a key of one prefix field of up to 32 bits. `jit` inlines the lookup of
    /// `tables::lpm::dir1688`, and calls `lookup` where that has no answer.
    Prefixes,
    /// A direct index, `tables::direct`: `snapshot` points to an array of entry pointers, indexed by the key. `jit`
    /// inlines it.
    DirectIndex,
}

/// The layout of an exact table's buckets. It does not change while the table lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExactLayout {
    /// Size of a key in a slot, in bytes: 4, 8, 12 or 16. A bucket begins with the first eight bytes of each key, one
    /// after the other; the rest of each key follows. The table's key layout has at least as many bytes; what it has
    /// beyond is zero.
    pub key_bytes: u32,
    /// Number of slots in a bucket.
    pub slots: u32,
    /// Offset of the first slot's entry or, if `out_of_line`, of its address.
    pub entry_offset: u32,
    /// Distance in bytes from a slot's entry (or its address) to the next one's.
    pub entry_bytes: u32,
    /// Whether a slot holds its entry's address, in six bytes, instead of the entry.
    pub out_of_line: bool,
}

/// A table as it is bound into compiled code.
#[derive(Clone, Debug)]
pub struct TableBinding {
    /// The table's handle, valid as long as the pipeline's state lives.
    pub handle: *const TableHandle,
    /// The layout of its keys.
    pub key: KeyLayout,
    /// The inline lookup.
    pub engine: EngineKind,
    /// The layout of buckets, for [`EngineKind::ExactInline`].
    pub exact: Option<ExactLayout>,
    /// Looks up one key, whatever the engine.
    pub lookup: LookupFn,
    /// Looks up many keys at once, whatever the engine.
    pub lookup_batch: LookupBatchFn,
    /// Selects a member of a group, for tables with an action selector.
    pub select: Option<SelectFn>,
    /// The layout of the table's entries and its default entry. Members of groups have the same layout from the action
    /// number on, and nothing before it.
    pub entry: EntryLayout,
    /// Set for tables that packets write. Their contents are never compiled into code.
    pub dynamic: Option<DynamicBinding>,
    /// Approximate size of the memory that lookups touch, in bytes. Whether it fits the caches decides how code looks
    /// keys up.
    pub footprint_bytes: u64,
}

/// An extern as it is bound into compiled code.
#[derive(Clone, Copy, Debug)]
pub enum ExternBinding {
    /// A counter, whose cells are in `WorkerCtx::counters`.
    Counter {
        /// Number of cells.
        size: u64,
    },
    /// A meter, which is reached through [`crate::RuntimeCalls::meter`].
    Meter {
        /// Number of cells.
        size: u64,
        /// The first cell, only to be prefetched.
        cells: *const u8,
        /// Distance in bytes from one cell to the next; what packets need of each is in its first cache line.
        stride_bytes: u32,
    },
    /// A register: `size` cells of [`register_cell_bytes`] each, [`register_stride_bytes`] apart, shared by all
    /// workers. A cell of up to eight bytes, and each word of a larger one, is read and written in one access.
    Register {
        /// The first cell.
        cells: *mut u64,
        /// Number of cells.
        size: u64,
        /// Width of a cell in bits.
        width: u32,
        /// Approximate number of bytes that packets use.
        footprint_bytes: u64,
        /// The rank of its locks, if packets lock cells (`ir::atomicity`). Locks are acquired in ascending order of
        /// rank. A cell's lock is the byte directly after its [`register_cell_bytes`]: 0 when free, 1 when held.
        lock_rank: Option<u32>,
        /// Whether packets of several workers change cells by atomic instructions: `Op::RegisterUpdate` must be one.
        is_stepped: bool,
    },
    /// Nothing to bind: action profiles, digests.
    None,
}

/// Size in bytes of a register cell of `width` bits: 1, 2, 4 or a multiple of 8, least significant word first. Bits
/// above the width are zero.
pub const fn register_cell_bytes(width: u32) -> u32 {
    match width {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => width.div_ceil(64) * 8,
    }
}

/// Distance in bytes from one register cell to the next. A lock may follow each cell; cells stay aligned.
pub const fn register_stride_bytes(width: u32, has_locks: bool) -> u32 {
    match register_cell_bytes(width) {
        cell if !has_locks => cell,
        cell @ 0..8 => 2 * cell,
        cell => cell + 8,
    }
}

/// The bindings of a pipeline's tables and externs.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// By `TableId`.
    pub tables: Vec<TableBinding>,
    /// By `ExternId`.
    pub externs: Vec<ExternBinding>,
}

const _: () = assert!(size_of::<TableHandle>() == 16);
