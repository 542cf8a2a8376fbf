//! How keys and entries lie in memory, and what compiled code is told about a table when it is made.
//!
//! **Keys.** A key is laid out as little-endian integers, each key field at its natural alignment: 1, 2, 4 or 8 bytes
//! for widths up to 8, 16, 32, 64 bits, and a multiple of 8 bytes beyond (least significant word first). Padding is
//! zero; the whole is padded to a multiple of 8 bytes. So an exact key compares as 64-bit words.
//!
//! **Entries.** [`crate::entry`]. They never change once readers can see them: a modification publishes a new one and
//! retires the old (counters are elsewhere, by index).
//!
//! **Readers.** Compiled code holds entry pointers only within one batch. A worker announces a quiescent point between
//! batches; only then is retired memory freed.

use crate::entry::{EntryHeader, EntryLayout};
use base::entry::MatchKind;
use core::sync::atomic::AtomicPtr;

/// What stays at one address for as long as a table lives. Engines put their own snapshot pointer behind `snapshot`.
#[repr(C)]
#[derive(Debug)]
pub struct TableHandle {
    /// The engine's current snapshot, published with release order.
    pub snapshot: AtomicPtr<core::ffi::c_void>,
    /// The current default entry; never null.
    pub default_entry: AtomicPtr<EntryHeader>,
}

/// Looks one key up: the matching entry, or null on a miss. `key` has the table's key layout.
pub type LookupFn = unsafe extern "C" fn(handle: *const TableHandle, key: *const u8) -> *const EntryHeader;

/// Looks `count` keys up, which lie one after the other, each with the bytes of the table's key layout: writes the entry of
/// each key to `out`, or null on a miss. It gives what a [`LookupFn`] gives for each key; engines whose lookups wait for
/// memory work on several keys at a time. `count` may be 0.
pub type LookupBatchFn =
    unsafe extern "C" fn(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader);

/// Resolves an entry's group, not null: the chosen member's entry, or null when the group is empty. `hash` is the
/// selector's hash of the selector keys, already cut to its width.
pub type SelectFn = unsafe extern "C" fn(group: *const core::ffi::c_void, hash: u64) -> *const EntryHeader;

/// Where one key field lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyField {
    /// Byte offset in the key.
    pub offset: u32,
    /// Bytes it takes: 1, 2, 4, 8 or a multiple of 8.
    pub bytes: u32,
    /// Bits that count.
    pub width: u32,
    /// How it is compared.
    pub kind: MatchKind,
}

/// Where all key fields lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyLayout {
    /// In key order.
    pub fields: Vec<KeyField>,
    /// Bytes of the whole key: a multiple of 8.
    pub bytes: u32,
}

impl KeyLayout {
    /// The layout of key fields with these widths and kinds.
    pub fn new(keys: impl IntoIterator<Item = (u32, MatchKind)>) -> KeyLayout {
        let mut at = 0u32;
        let fields = keys
            .into_iter()
            .map(|(width, kind)| {
                let bytes = match width {
                    0..=8 => 1,
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

/// How an engine may be probed without calling it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// Always misses: a table without keys.
    Empty,
    /// Only through `lookup`.
    Opaque,
    /// Two-slot buckets of `tables::exact`; `jit` inlines the probe (layout: that module).
    ExactInline,
    /// One entry pointer per key value, `tables::direct`: `snapshot` points at an array of entry pointers, indexed by
    /// the key; `jit` inlines it.
    DirectIndex,
}

/// What compiled code is told about a table.
#[derive(Clone, Debug)]
pub struct TableBinding {
    /// Stays valid for as long as the pipeline's state lives.
    pub handle: *const TableHandle,
    /// Key layout.
    pub key: KeyLayout,
    /// The probe.
    pub engine: EngineKind,
    /// Always usable.
    pub lookup: LookupFn,
    /// Always usable: many keys at once.
    pub lookup_batch: LookupBatchFn,
    /// For tables with an action selector.
    pub select: Option<SelectFn>,
    /// What entries look like, those of the table and its default. Members that groups choose have the same action number
    /// and parameters, and nothing in front of them.
    pub entry: EntryLayout,
    /// About how much memory lookups can touch: whether caches hold it decides how code goes about them.
    pub footprint_bytes: u64,
}

/// What compiled code is told about an extern.
#[derive(Clone, Copy, Debug)]
pub enum ExternBinding {
    /// Cells are in `WorkerCtx::counters`; the number of cells.
    Counter {
        /// Cells.
        size: u64,
    },
    /// Through calls.
    Meter {
        /// Cells.
        size: u64,
    },
    /// `cells` points at `size * ceil(width / 64)` words, shared by all workers; words are read and written whole.
    Register {
        /// First cell.
        cells: *mut u64,
        /// Cells.
        size: u64,
        /// Bits of a cell.
        width: u32,
    },
    /// Nothing to bind: action profiles, digests.
    None,
}

/// All of a pipeline, by id.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// By `TableId`.
    pub tables: Vec<TableBinding>,
    /// By `ExternId`.
    pub externs: Vec<ExternBinding>,
}

const _: () = assert!(size_of::<TableHandle>() == 16);
